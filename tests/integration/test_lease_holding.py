"""What one lease may hold: several times by the same owner, several resources at once, and the same request repeated."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import random
import time
import uuid
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually, stays
from support.shop import stock_up
from support.stack import Stack, lease_keys

Fresh = Callable[[str], str]


@pytest.fixture
def orders(guarded_pair: Stack) -> Api:
    """Another principal, at the first gateway."""
    return guarded_pair.api(0, "orders")


# the same owner again


def again(api: Api, resource: object, owner: str = "same", ttl_ms: int = 20_000, **more: Any) -> Any:
    """One hold more of a lease that the owner has."""
    answer = api.ask(resource, owner=owner, ttl_ms=ttl_ms, **more)
    assert answer.status == 200, f"no further hold: {answer}"
    return answer.json()


def test_owner_when_it_asks_again_then_200_the_same_lease_and_one_hold_more(here: Api, resource: str) -> None:
    first = here.take(resource, owner="same")
    assert first["hold_count"] == 1
    for count in (2, 3, 4):
        answer = here.ask(resource, owner="same", ttl_ms=20_000)
        assert answer.status == 200, answer
        lease = answer.json()
        assert (lease["lease_id"], lease["fencing_token"], lease["hold_count"]) == (first["lease_id"], first["fencing_token"], count)
        assert answer.headers["Location"].endswith(lease["lease_id"])
        assert answer.headers["Idempotency-Replayed"] is None
    assert here.look(first).json()["hold_count"] == 4


def test_holds_when_released_one_by_one_then_200_with_the_rest_and_204_at_last(guarded_pair: Stack, here: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    again(here, resource)
    again(here, resource)
    for left in (2, 1):
        answer = here.release(lease)
        assert answer.status == 200, answer
        assert answer.json() == {"lease_id": lease["lease_id"], "resource": resource, "fencing_token": lease["fencing_token"], "hold_count": left}
        expect_problem(here.ask(resource), 423, "resource-locked")
        assert here.look(lease).json()["hold_count"] == left
    here.give_back(lease)
    expect_problem(here.release(lease), 410, "lease-lost")
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), what="no key of it is left")
    assert here.take(resource, owner="same")["fencing_token"] > lease["fencing_token"]


@pytest.mark.parametrize("owner", ["other", "sam", "same ", "samesame", "Same", "\u00e4" * 64, None])
def test_another_owner_when_it_asks_then_423(here: Api, resource: str, owner: str | None) -> None:
    held = here.take(resource, owner="same")
    answer = here.ask(resource, ttl_ms=1_000, **({} if owner is None else {"owner": owner}))
    expect_problem(answer, 423, "resource-locked")
    assert here.look(held).json()["hold_count"] == 1


def test_same_owner_when_of_another_principal_then_423(here: Api, orders: Api, resource: str) -> None:
    held = here.take(resource, owner="same")
    expect_problem(orders.ask(resource, owner="same"), 423, "resource-locked")
    assert here.look(held).json()["hold_count"] == 1


@pytest.mark.parametrize("more", [{}, {"owner": ""}], ids=["left-out", "empty"])
def test_owner_when_not_named_then_it_is_nobody_twice(here: Api, resource: str, more: dict[str, str]) -> None:
    answer = here.ask(resource, ttl_ms=20_000, **more)
    if answer.status == 400:  # an empty name may be refused outright
        return
    assert answer.status == 201, answer
    expect_problem(here.ask(resource, **more), 423, "resource-locked")


@pytest.mark.parametrize("owner", ["x" * 128, "J\u00fcrgen \U0001f511", "a b", '"\\', "%0a", "\u200b", "[%w]+ $1 ^.*", "@0123456789abcdef", "- 1 2"])
def test_owner_when_it_has_odd_letters_then_it_is_known_again(here: Api, there: Api, resource: str, owner: str) -> None:
    lease = here.take(resource, owner=owner)
    assert again(there, resource, owner)["hold_count"] == 2
    expect_problem(here.ask(resource, owner=owner[:-1] + "~"), 423, "resource-locked")
    assert here.release(lease).json()["hold_count"] == 1
    here.give_back(lease)


def test_hold_when_its_ttl_is_shorter_then_the_lease_keeps_its_time(guarded_pair: Stack, here: Api, resource: str) -> None:
    here.take(resource, owner="same", ttl_ms=40_000)
    again(here, resource, ttl_ms=1_000)
    eventually(lambda: len(lease_keys(guarded_pair.nodes(), resource)) == 5, what="the grant is on every node")
    assert all(node.pttl(f"fg:lease:{resource}") > 20_000 for node in guarded_pair.nodes())


def test_hold_when_its_ttl_is_longer_then_the_lease_lives_as_long(here: Api, resource: str) -> None:
    first = here.take(resource, owner="same", ttl_ms=1_500)
    second = again(here, resource, ttl_ms=20_000)
    assert second["validity_ms"] > 15_000
    time.sleep(1.6)
    assert here.look(first).json()["hold_count"] == 2


def test_renewal_when_held_more_than_once_then_the_holds_stay(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    again(there, resource)
    for api in (here, there, here):
        renewed = api.renew(lease).json()
        assert (renewed["hold_count"], renewed["fencing_token"]) == (2, lease["fencing_token"])
    assert there.release(lease).json()["hold_count"] == 1
    assert here.renew(lease).json()["hold_count"] == 1
    here.give_back(lease)


def test_holds_when_over_two_gateways_then_one_count(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    assert [again(api, resource)["hold_count"] for api in (there, here, there)] == [2, 3, 4]
    assert [api.release(lease).json()["hold_count"] for api in (here, here, there)] == [3, 2, 1]
    there.give_back(lease)
    expect_problem(here.look(lease), 410, "lease-lost")


def test_holds_when_many_ask_at_once_then_each_counts(here: Api, there: Api, resource: str) -> None:
    calls = [api.begin_ask(resource, owner="same", ttl_ms=20_000, wait_ms=5_000) for api in (here, there) * 5]
    answers = [call.answer() for call in calls]
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201], [str(answer) for answer in answers]
    leases = [answer.json() for answer in answers]
    assert len({lease["lease_id"] for lease in leases}) == 1
    assert here.look(leases[0]).json()["hold_count"] == 10
    for left in range(9, 0, -1):
        assert here.release(leases[0]).json()["hold_count"] == left
    here.give_back(leases[0])


def test_owner_when_others_wait_then_it_gets_its_hold_at_once_and_they_their_turn_later(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    waiters = [api.begin_ask(resource, owner=f"waiter-{number}", ttl_ms=20_000, wait_ms=15_000) for number, api in enumerate((here, here, there))]
    time.sleep(0.3)
    for api in (here, there):
        answer = api.ask(resource, owner="same", ttl_ms=20_000, wait_ms=10_000)
        assert answer.status == 200 and answer.seconds < 3, answer
    assert [here.release(lease).status for _ in range(3)] == [200, 200, 204]
    pending = list(waiters)
    while pending:
        served = eventually(lambda: next((call for call in pending if not call.is_alive()), None), 10, what="the next waiter is served")
        answer = served.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        here.give_back(answer.json())
        pending.remove(served)


@pytest.mark.parametrize("how", ["owner", "key"])
def test_holder_when_a_minority_of_nodes_has_another_token_then_known_again_and_its_lease_lives(
        guarded_pair: Stack, here: Api, there: Api, fresh: Fresh, how: str) -> None:
    """As after a grant on counters that disagreed: the nodes that were past its token keep theirs. Whichever answer first, the lease is the majority's."""
    nodes = guarded_pair.nodes()
    for number in range(20):
        resource = fresh("test/minority")
        body = {"resource": resource, "ttl_ms": 20_000, **({"owner": "same"} if how == "owner" else {})}
        headers = {"Idempotency-Key": fresh("key")} if how == "key" else {}
        lease = here.call("POST", "/v1/leases", body, headers).json()
        token = str(lease["fencing_token"])

        def held_under_it() -> list[Any]:
            return [node for node in nodes if f" {token} " in (node.get(f"fg:lease:{resource}") or "")]

        if len(eventually(lambda: len(lease_keys(nodes, resource)) == 5 and held_under_it(), what="the grant is on every node")) < 5:
            continue  # it happened by itself, and taking the token from more nodes would take the lease
        for node in (nodes[number % 5], nodes[(number + 2) % 5]):
            node.set(f"fg:lease:{resource}", node.get(f"fg:lease:{resource}").replace(token, str(lease["fencing_token"] + 5), 1), keepttl=True)
        answer = (here, there)[number % 2].call("POST", "/v1/leases", body, headers)
        assert answer.status == (200 if how == "owner" else 201), answer
        assert answer.json()["lease_id"] == lease["lease_id"]
        assert here.look(lease).json()["hold_count"] == (2 if how == "owner" else 1)


def test_holds_when_taken_in_vain_then_no_lease_is_lost(here: Api, there: Api, fresh: Fresh) -> None:
    """Fresh names, so that counters disagree now and then as they do in life."""
    with here.connection() as one, there.connection() as other:
        for number in range(300):
            body = {"resource": fresh("test/vain"), "ttl_ms": 20_000, "owner": "same"}
            lease = one.call("POST", "/v1/leases", body).json()
            again_at = (one, other)[number % 2].call("POST", "/v1/leases", body)
            seen = one.call("GET", f"/v1/leases/{lease['lease_id']}")
            assert (again_at.status, seen.status) == (200, 200), f"{number}: {again_at}, {seen}"


# several resources


def names(fresh: Fresh, count: int, stem: str = "test/several") -> list[str]:
    return sorted(fresh(f"{stem}-{number:02}") for number in range(count))


def ask_all(api: Api, resources: list[str], ttl_ms: int = 20_000, **more: Any) -> Answer:
    return api.call("POST", "/v1/leases", {"resources": resources, "ttl_ms": ttl_ms, **more})


def take_all(api: Api, resources: list[str], **more: Any) -> Any:
    answer = ask_all(api, resources, **more)
    assert answer.status == 201, f"no lease on {resources}: {answer}"
    return answer.json()


@pytest.mark.parametrize("count", [2, 3, 16])
def test_resources_when_several_then_one_lease_with_one_token_on_all(guarded_pair: Stack, here: Api, fresh: Fresh, count: int) -> None:
    resources = names(fresh, count)
    lease = take_all(here, resources)
    assert sorted(lease["resources"]) == resources and "resource" not in lease
    assert here.look(lease).json()["resources"] == lease["resources"]
    nodes = guarded_pair.nodes()
    for resource in resources:
        expect_problem(here.ask(resource), 423, "resource-locked")
        eventually(lambda: len(lease_keys(nodes, resource)) >= 3, what="held by a majority")
    assert here.renew(lease).json()["fencing_token"] == lease["fencing_token"]
    here.give_back(lease)
    eventually(lambda: not [key for resource in resources for key in lease_keys(nodes, resource)], what="release frees all")
    for resource in resources:
        assert here.take(resource)["fencing_token"] > lease["fencing_token"]


def test_resources_when_the_list_has_one_then_it_is_as_with_resource(here: Api, resource: str) -> None:
    lease = take_all(here, [resource])
    assert lease["resource"] == resource and "resources" not in lease
    here.give_back(lease)


def test_token_of_several_when_each_had_its_own_then_newer_than_every_one(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 4)
    highest = 0
    for number, resource in enumerate(resources):
        for _ in range(1 + 3 * number):
            lease = here.take(resource)
            highest = max(highest, lease["fencing_token"])
            here.give_back(lease)
    for api in (here, there, here):
        lease = take_all(api, resources)
        assert lease["fencing_token"] > highest
        highest = lease["fencing_token"]
        api.give_back(lease)
    assert all(here.take(resource)["fencing_token"] > highest for resource in resources)


def test_resources_when_one_is_held_then_423_and_nothing_of_the_rest_is_taken(guarded_pair: Stack, here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 5)
    nodes = guarded_pair.nodes()
    for position in (0, 2, 4):
        held = here.take(resources[position], ttl_ms=30_000)
        rest = [resource for resource in resources if resource != resources[position]]
        for api, wait_ms in ((here, 0), (there, 0), (here, 300)):
            problem = expect_problem(ask_all(api, resources, wait_ms=wait_ms), 423, "resource-locked")
            assert 0 < problem["remaining_ms"] <= 30_000
            eventually(lambda: not [key for resource in rest for key in lease_keys(nodes, resource)], 2, what="nothing is left on any node")
        for resource in rest:
            here.give_back(here.take(resource))
        here.give_back(held)


def test_resources_when_named_in_another_order_then_the_same_lease(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 3)
    lease = take_all(here, resources, owner="same")
    for api, order in zip(itertools.cycle((here, there)), itertools.permutations(resources)):
        answer = ask_all(api, list(order), owner="same")
        assert answer.status == 200 and answer.json()["lease_id"] == lease["lease_id"], answer
        assert answer.json()["hold_count"] == 2
        assert here.release(lease).json()["hold_count"] == 1
    here.give_back(lease)


def test_owner_when_it_holds_other_resources_than_it_asks_for_then_423(here: Api, fresh: Fresh) -> None:
    """A lease has one set of resources; a part of it, or more than it, is another lease."""
    resources = names(fresh, 3)
    lease = take_all(here, resources[:2], owner="same")
    for wrong in (resources[:1], resources[1:2], resources, resources[1:]):
        expect_problem(ask_all(here, wrong, owner="same"), 423, "resource-locked")
    assert here.look(lease).json()["hold_count"] == 1


def test_sets_that_overlap_when_contended_then_never_both_held_and_everybody_gets_on(here: Api, there: Api, fresh: Fresh) -> None:
    """{a, b}, {b, c}, {c, a} and each alone: whoever holds writes its name on all it holds and finds nobody else's there."""
    a, b, c = names(fresh, 3)
    sets = [[a, b], [b, c], [c, a], [b]]
    held: dict[str, int] = {}
    faults: list[str] = []
    tokens: dict[str, list[int]] = {a: [], b: [], c: []}
    chance = random.Random(7)

    def contend(number: int) -> int:
        mine, api = sets[number % len(sets)], (here, there)[number % 2]
        order = chance.sample(mine, len(mine))
        for _ in range(8):
            lease = take_all(api, order, wait_ms=30_000)
            for resource in mine:
                other = held.setdefault(resource, number)
                if other != number:
                    faults.append(f"{number} and {other} both hold {resource}")
                tokens[resource].append(lease["fencing_token"])
            time.sleep(0.002)
            for resource in mine:
                held.pop(resource, None)
            api.give_back(lease)
        return number

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(contend, range(8))) == list(range(8))
    assert not faults
    assert time.monotonic() - began < 30, "64 turns took too long: they hinder each other"
    assert all(noted == sorted(set(noted)) for noted in tokens.values())


def test_write_when_it_touches_two_resources_then_one_lease_on_both_lets_it(guarded_pair: Stack, here: Api, fresh: Fresh) -> None:
    goods = stock_up(guarded_pair, fresh("sku-several"), 10)
    order_id = uuid.uuid4().int % 2**62
    order = {"call": "place_order", "args": {"order_id": order_id, "sku": goods.name, "quantity": 3}}
    only_goods = here.take(goods.resource)
    expect_problem(here.write(only_goods, order), 403, "resource-not-covered")
    here.give_back(only_goods)

    lease = take_all(here, [goods.resource, f"orders/{order_id}"])
    written = here.wrote(lease, order)
    assert written["results"] == [{"value": order_id}]
    assert {fence["resource"]: fence["last_fencing_token"] for fence in written["fences"]} == \
        {goods.resource: lease["fencing_token"], f"orders/{order_id}": lease["fencing_token"]}
    assert goods.stock() == 7
    here.give_back(lease)

    newer = here.take(goods.resource)
    here.wrote(newer, goods.sell())
    problem = expect_problem(here.write(lease, {**order, "args": {**order["args"], "order_id": order_id}}), 412, "stale-fencing-token")
    assert problem["resource"] == goods.resource
    assert goods.stock() == 6


@pytest.mark.parametrize(("resources", "pointers"), [
    ([], ["/resources"]), ([f"test/n{n}" for n in range(17)], ["/resources"]), (["test/a", "test/a"], ["/resources/1"]), (["test/a", "b//c", 7], ["/resources/1", "/resources/2"]),
    ("test/a", ["/resources"]), (None, ["/resources"]), ({"a": 1}, ["/resources"]), ([["test/a"], "test/b"], ["/resources/0"])])
def test_resources_when_wrong_then_400_pointing_at_each(here: Api, resources: object, pointers: list[str]) -> None:
    assert pointers_of(here.call("POST", "/v1/leases", {"resources": resources})) == pointers


def test_resources_when_16_with_the_longest_names_then_every_call_takes_the_lease_id(guarded_pair: Stack, here: Api, there: Api, fresh: Fresh) -> None:
    resources = [f"{name}/{'x' * (199 - len(name))}" for name in names(fresh, 16)]
    assert {len(name) for name in resources} == {200}
    lease = take_all(here, resources, owner="\u00e4" * 64)
    assert there.look(lease).json()["resources"] == lease["resources"]
    assert there.renew(lease).status == 200
    update = {"update": "inventory", "where": {"sku": "none"}, "set": {"note": "x"}}
    for headers in ({}, {"Fencing-Lease": lease["lease_id"]}):
        body = {"operations": [update], **({} if headers else {"lease_id": lease["lease_id"]})}
        assert there.call("POST", "/v1/writes", body, headers).status == 200
    assert ask_all(there, resources[::-1], owner="\u00e4" * 64).json()["hold_count"] == 2
    assert here.release(lease).status == 200
    here.give_back(lease)
    eventually(lambda: not [key for resource in resources for key in lease_keys(guarded_pair.nodes(), resource)], what="all are free")


def test_waiter_for_several_when_only_its_last_is_held_then_it_is_woken_by_that(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 3)
    for holder in (here, there):
        held = holder.take(resources[-1])
        waiter = here.begin("POST", "/v1/leases", {"resources": resources, "wait_ms": 10_000, "ttl_ms": 20_000})
        time.sleep(0.2)
        released = time.monotonic()
        holder.give_back(held)
        answer = waiter.answer()
        assert answer.status == 201, answer
        assert waiter.ended - released < 1.5
        here.give_back(answer.json())


def test_waiter_for_several_when_many_contend_for_one_of_them_then_it_gets_its_turn_and_holds_up_nobody(here: Api, fresh: Fresh) -> None:
    """All at one gateway: hand-over keeps `second` busy for ever, and who waits for both stands at the head of those who wait for `first`."""
    first, second = names(fresh, 2)
    turns: collections.Counter[str] = collections.Counter()
    ended = False

    def contend(name: str, resources: list[str]) -> None:
        while not ended:
            lease = take_all(here, resources, wait_ms=30_000)
            turns[name] += 1
            here.give_back(lease)

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        callers = [pool.submit(contend, "second", [second]) for _ in range(3)] + [pool.submit(contend, "first", [first]) for _ in range(3)]
        callers.append(pool.submit(contend, "both", [first, second]))
        try:
            eventually(lambda: turns["both"] >= 5, 8, what=f"five turns with both; so far {turns}")
        finally:
            ended = True
        for caller in callers:
            caller.result(30)
    assert turns["first"] >= 5


# Idempotency-Key


def ask_with_key(api: Api, key: str, body: dict[str, Any]) -> Answer:
    return api.call("POST", "/v1/leases", body, {"Idempotency-Key": key})


def test_key_when_sent_again_then_the_same_lease_and_no_second_hold(here: Api, there: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        body = {"resource": resource, "ttl_ms": 20_000, **owner}
        key = uuid.uuid4().hex
        first = ask_with_key(here, key, body)
        assert first.status == 201 and first.headers["Idempotency-Replayed"] is None, first
        lease = first.json()
        for api in (here, there, here):
            answer = ask_with_key(api, key, body)
            assert answer.status in (200, 201) and answer.headers["Idempotency-Replayed"] == "true", answer
            repeated = answer.json()
            for member in ("lease_id", "fencing_token", "hold_count", "resource", "owner"):
                assert repeated[member] == lease[member], member
            assert 0 < repeated["validity_ms"] < 20_000
        there.give_back(lease)


def test_key_when_the_wait_differs_then_still_the_same_request(here: Api, resource: str) -> None:
    """How long a caller is ready to wait changes nothing about what it gets."""
    key = uuid.uuid4().hex
    lease = ask_with_key(here, key, {"resource": resource, "wait_ms": 0}).json()
    answer = ask_with_key(here, key, {"resource": resource, "wait_ms": 2_000})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer


def test_key_when_the_ttl_differs_then_422(here: Api, there: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        key = uuid.uuid4().hex
        lease = ask_with_key(here, key, {"resource": resource, "ttl_ms": 20_000, **owner}).json()
        for api in (here, there):
            expect_problem(ask_with_key(api, key, {"resource": resource, "ttl_ms": 19_000, **owner}), 422, "idempotency-mismatch")
        assert here.look(lease).json()["hold_count"] == 1
        here.give_back(lease)


def test_key_when_the_lease_was_released_then_a_new_lease(here: Api, there: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 2_000}
    tokens = []
    for api in (here, there, here):
        answer = ask_with_key(api, key, body)
        assert answer.status == 201 and answer.headers["Idempotency-Replayed"] is None, answer
        tokens.append(answer.json()["fencing_token"])
        api.give_back(answer.json())
    assert tokens == sorted(set(tokens))


def test_key_when_of_another_principal_then_its_own(here: Api, orders: Api, resource: str) -> None:
    key = uuid.uuid4().hex
    assert ask_with_key(here, key, {"resource": resource}).status == 201
    expect_problem(ask_with_key(orders, key, {"resource": resource}), 423, "resource-locked")


def test_key_when_another_then_another_hold_and_each_is_repeated_by_its_own(here: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000, "owner": "same"}
    keys = [uuid.uuid4().hex for _ in range(4)]
    for count, key in enumerate(keys, 1):
        answer = ask_with_key(here, key, body)
        assert answer.status == (201 if count == 1 else 200) and answer.json()["hold_count"] == count, answer
    for key in keys:
        answer = ask_with_key(here, key, body)
        assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["hold_count"] == len(keys), answer


def test_key_when_others_wait_for_the_resource_then_still_the_same_lease_at_once(here: Api, there: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 5_000}
    lease = ask_with_key(here, key, body).json()
    waiters = [api.begin_ask(resource, wait_ms=10_000, ttl_ms=20_000) for api in (here, there)]
    time.sleep(0.2)
    for api in (here, there):
        answer = ask_with_key(api, key, body)
        assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer
        assert answer.seconds < 3
    for waiter in waiters:
        waiter.hang_up()
    here.give_back(lease)


@pytest.mark.parametrize("held_first", [False, True], ids=["free", "waiting"])
def test_keys_when_equal_and_at_once_then_one_lease(here: Api, there: Api, resource: str, held_first: bool) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 10_000}
    held = here.take(resource) if held_first else None
    calls = [api.begin("POST", "/v1/leases", body, {"Idempotency-Key": key}) for api in (here, there) * 4]
    if held:
        time.sleep(0.3)
        here.give_back(held)
    answers = [call.answer() for call in calls]
    assert {answer.status for answer in answers} <= {200, 201}, [str(answer) for answer in answers]
    assert len({answer.json()["lease_id"] for answer in answers}) == 1
    assert [answer.headers["Idempotency-Replayed"] for answer in answers].count(None) == 1
    lease = answers[0].json()
    assert here.look(lease).json()["hold_count"] == 1
    here.give_back(lease)
    stays(lambda: here.look(lease).status == 410, 0.2)


def test_key_when_the_lease_has_several_resources_then_the_same_lease(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 3)
    key = uuid.uuid4().hex
    lease = ask_with_key(here, key, {"resources": resources}).json()
    answer = ask_with_key(there, key, {"resources": resources[::-1]})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer
    here.give_back(lease)


@pytest.mark.parametrize("key", ["", "x" * 65, "a b", "\u00e4", "a\tb"])
def test_key_when_wrong_then_400_naming_the_header(here: Api, resource: str, key: str) -> None:
    answer = here.call("POST", "/v1/leases", {"resource": resource}, {"Idempotency-Key": key.encode().decode("latin-1")})
    assert pointers_of(answer) == ["Idempotency-Key"]
    assert here.ask(resource).status == 201


def test_key_when_as_long_as_allowed_then_taken_to_the_last_letter(here: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000}
    assert ask_with_key(here, "k" * 64, body).status == 201
    assert ask_with_key(here, "k" * 64, body).headers["Idempotency-Replayed"] == "true"
    expect_problem(ask_with_key(here, "k" * 63 + "l", body), 423, "resource-locked")
