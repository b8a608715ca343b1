"""A lease on several resources: all or none."""

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
from support.polling import eventually, let_pass
from support.shop import stock_up
from support.stack import Stack, lease_keys

Fresh = Callable[[str], str]


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
        told = here.get(f"/v1/resources/{resource.replace('/', '%2F')}").json()["lease"]
        assert told["resource"] == resource and sorted(told["resources"]) == resources, "who takes one away takes all"
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


def test_resources_when_named_in_another_order_then_another_hold(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 3)
    lease = take_all(here, resources, owner="same")
    for api, order in zip(itertools.cycle((here, there)), itertools.permutations(resources)):
        answer = ask_all(api, list(order), owner="same")
        assert answer.status == 200 and answer.json()["fencing_token"] == lease["fencing_token"], answer
        assert answer.json()["hold_count"] == 2
        assert here.release(answer.json()).json()["hold_count"] == 1
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
            let_pass(0.002, "it is held for a moment")
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
    again = ask_all(there, resources[::-1], owner="\u00e4" * 64).json()
    assert again["hold_count"] == 2
    assert here.release(lease).status == 200
    here.give_back(again)
    eventually(lambda: not [key for resource in resources for key in lease_keys(guarded_pair.nodes(), resource)], what="all are free")


def test_waiter_for_several_when_only_its_last_is_held_then_it_is_woken_by_that(here: Api, there: Api, fresh: Fresh) -> None:
    resources = names(fresh, 3)
    for holder in (here, there):
        held = holder.take(resources[-1])
        waiter = here.begin("POST", "/v1/leases", {"resources": resources, "wait_ms": 10_000, "ttl_ms": 20_000})
        here.await_waiters(resources[-1], 1)
        released = time.monotonic()
        holder.give_back(held)
        answer = waiter.answer()
        assert answer.status == 201, answer
        assert waiter.ended - released < 5
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
