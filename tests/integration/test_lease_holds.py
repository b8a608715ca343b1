"""A lease held several times by the same owner."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from support.api import Api, expect_problem
from support.polling import eventually, let_pass
from support.stack import Stack, lease_keys

Fresh = Callable[[str], str]


def again(api: Api, resource: object, owner: str = "same", ttl_ms: int = 20_000, **more: Any) -> Any:
    """One hold more of a lease that the owner has."""
    answer = api.ask(resource, owner=owner, ttl_ms=ttl_ms, **more)
    assert answer.status == 200, f"no further hold: {answer}"
    return answer.json()


def test_owner_when_it_asks_again_then_200_same_token_and_a_hold_more(here: Api, resource: str) -> None:
    first = here.take(resource, owner="same")
    assert first["hold_count"] == 1
    for count in (2, 3, 4):
        answer = here.ask(resource, owner="same", ttl_ms=20_000)
        assert answer.status == 200, answer
        lease = answer.json()
        assert (lease["fencing_token"], lease["hold_count"]) == (first["fencing_token"], count)
        assert lease["lease_id"] != first["lease_id"]
        assert answer.headers["Location"].endswith(lease["lease_id"])
        assert answer.headers["Idempotency-Replayed"] is None
    assert here.look(first).json()["hold_count"] == 4


def test_holds_when_released_one_by_one_then_200_with_the_rest_and_204_at_last(guarded_pair: Stack, here: Api, resource: str) -> None:
    holds = [here.take(resource, owner="same"), again(here, resource), again(here, resource)]
    lease = holds[-1]
    for left in (2, 1):
        given = holds.pop(0)
        answer = here.release(given)
        assert answer.status == 200, answer
        assert answer.json() == {"lease_id": given["lease_id"], "resource": resource, "fencing_token": lease["fencing_token"], "hold_count": left}
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
    second = again(there, resource, owner)
    assert second["hold_count"] == 2
    expect_problem(here.ask(resource, owner=owner[:-1] + "~"), 423, "resource-locked")
    assert here.release(lease).json()["hold_count"] == 1
    here.give_back(second)


def test_hold_when_its_ttl_is_shorter_then_the_lease_keeps_its_time(guarded_pair: Stack, here: Api, resource: str) -> None:
    here.take(resource, owner="same", ttl_ms=40_000)
    again(here, resource, ttl_ms=1_000)
    eventually(lambda: len(lease_keys(guarded_pair.nodes(), resource)) == 5, what="the grant is on every node")
    assert all(node.pttl(f"fg:lease:{resource}") > 20_000 for node in guarded_pair.nodes())


def test_hold_when_its_ttl_is_longer_then_the_lease_lives_as_long(here: Api, resource: str) -> None:
    first = here.take(resource, owner="same", ttl_ms=1_500)
    second = again(here, resource, ttl_ms=20_000)
    assert second["validity_ms"] > 15_000
    let_pass(1.6, "past the first ttl")
    assert here.look(first).json()["hold_count"] == 2
    assert here.look(second).json()["hold_count"] == 2


def test_renewal_when_held_more_than_once_then_the_holds_stay(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    other = again(there, resource)
    for api, hold in ((here, lease), (there, other), (here, other)):
        renewed = api.renew(hold).json()
        assert (renewed["hold_count"], renewed["fencing_token"], renewed["lease_id"]) == (2, lease["fencing_token"], hold["lease_id"])
    assert there.release(lease).json()["hold_count"] == 1
    assert here.renew(other).json()["hold_count"] == 1
    here.give_back(other)


def test_holds_when_over_two_gateways_then_one_count(here: Api, there: Api, resource: str) -> None:
    holds = [here.take(resource, owner="same"), *(again(api, resource) for api in (there, here, there))]
    assert [hold["hold_count"] for hold in holds] == [1, 2, 3, 4]
    assert [api.release(hold).json()["hold_count"] for api, hold in zip((here, here, there), holds)] == [3, 2, 1]
    there.give_back(holds[-1])
    expect_problem(here.look(holds[-1]), 410, "lease-lost")


def test_holds_when_many_ask_at_once_then_each_counts(here: Api, there: Api, resource: str) -> None:
    calls = [api.begin_ask(resource, owner="same", ttl_ms=20_000, wait_ms=5_000) for api in (here, there) * 5]
    answers = [call.answer() for call in calls]
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201], [str(answer) for answer in answers]
    leases = [answer.json() for answer in answers]
    assert len({lease["fencing_token"] for lease in leases}) == 1 and len({lease["lease_id"] for lease in leases}) == 10
    assert here.look(leases[0]).json()["hold_count"] == 10
    for left in range(9, 0, -1):
        assert here.release(leases[left]).json()["hold_count"] == left
    here.give_back(leases[0])


def test_owner_when_others_wait_then_it_gets_its_hold_at_once_and_they_their_turn_later(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    waiters = [api.begin_ask(resource, owner=f"waiter-{number}", ttl_ms=20_000, wait_ms=15_000) for number, api in enumerate((here, here, there))]
    here.await_waiters(resource, 2)
    there.await_waiters(resource, 1)
    holds = [lease]
    for api in (here, there):
        answer = api.ask(resource, owner="same", ttl_ms=20_000, wait_ms=10_000)
        assert answer.status == 200 and answer.seconds < 3, answer
        holds.append(answer.json())
    assert [here.release(hold).status for hold in holds] == [200, 200, 204]
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
        assert answer.json()["fencing_token"] == lease["fencing_token"]
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
