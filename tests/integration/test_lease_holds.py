"""A lease held several times by the same owner."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from support.api import Api, expect_problem
from support.polling import eventually, pause
from support.stack import Stack, lease_keys

NameMaker = Callable[[str], str]


def acquire_again(api: Api, resource: object, owner: str = "same", ttl_ms: int = 20_000, **more: Any) -> Any:
    """Acquires another hold of a lease that the owner has."""
    answer = api.acquire(resource, owner=owner, ttl_ms=ttl_ms, **more)
    assert answer.status == 200, f"no further hold: {answer}"
    return answer.json()


def test_owner_asking_again_200_same_token_and_another_hold(api_a: Api, resource: str) -> None:
    first = api_a.must_acquire(resource, owner="same")
    assert first["hold_count"] == 1
    for count in (2, 3, 4):
        answer = api_a.acquire(resource, owner="same", ttl_ms=20_000)
        assert answer.status == 200, answer
        lease = answer.json()
        assert (lease["fencing_token"], lease["hold_count"]) == (first["fencing_token"], count)
        assert lease["lease_id"] != first["lease_id"]
        assert answer.headers["Location"].endswith(lease["lease_id"])
        assert answer.headers["Idempotency-Replayed"] is None
    assert api_a.read_lease(first).json()["hold_count"] == 4


def test_holds_released_200_with_rest_and_204_for_last(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    holds = [api_a.must_acquire(resource, owner="same"), acquire_again(api_a, resource), acquire_again(api_a, resource)]
    lease = holds[-1]
    for left in (2, 1):
        given = holds.pop(0)
        answer = api_a.release(given)
        assert answer.status == 200, answer
        assert answer.json() == {"lease_id": given["lease_id"], "resource": resource, "fencing_token": lease["fencing_token"], "hold_count": left}
        expect_problem(api_a.acquire(resource), 423, "resource-locked")
        assert api_a.read_lease(lease).json()["hold_count"] == left
    api_a.must_release(lease)
    expect_problem(api_a.release(lease), 410, "lease-lost")
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), goal="no key of it is left")
    assert api_a.must_acquire(resource, owner="same")["fencing_token"] > lease["fencing_token"]


@pytest.mark.parametrize("owner", ["other", "sam", "same ", "samesame", "Same", "\u00e4" * 64, None])
def test_another_owner_423(api_a: Api, resource: str, owner: str | None) -> None:
    held = api_a.must_acquire(resource, owner="same")
    answer = api_a.acquire(resource, ttl_ms=1_000, **({} if owner is None else {"owner": owner}))
    expect_problem(answer, 423, "resource-locked")
    assert api_a.read_lease(held).json()["hold_count"] == 1


def test_same_owner_of_another_principal_423(api_a: Api, orders: Api, resource: str) -> None:
    held = api_a.must_acquire(resource, owner="same")
    expect_problem(orders.acquire(resource, owner="same"), 423, "resource-locked")
    assert api_a.read_lease(held).json()["hold_count"] == 1


@pytest.mark.parametrize("more", [{}, {"owner": ""}], ids=["left-out", "empty"])
def test_owner_absent_gets_no_second_hold(api_a: Api, resource: str, more: dict[str, str]) -> None:
    answer = api_a.acquire(resource, ttl_ms=20_000, **more)
    if answer.status == 400:  # an empty name may be refused
        return
    assert answer.status == 201, answer
    expect_problem(api_a.acquire(resource, **more), 423, "resource-locked")


@pytest.mark.parametrize("owner", ["x" * 128, "J\u00fcrgen \U0001f511", "a b", '"\\', "%0a", "\u200b", "[%w]+ $1 ^.*", "@0123456789abcdef", "- 1 2"])
def test_owner_with_unusual_characters_is_recognized(api_a: Api, api_b: Api, resource: str, owner: str) -> None:
    lease = api_a.must_acquire(resource, owner=owner)
    second = acquire_again(api_b, resource, owner)
    assert second["hold_count"] == 2
    expect_problem(api_a.acquire(resource, owner=owner[:-1] + "~"), 423, "resource-locked")
    assert api_a.release(lease).json()["hold_count"] == 1
    api_a.must_release(second)


def test_hold_with_shorter_ttl_keeps_time_of_lease(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    api_a.must_acquire(resource, owner="same", ttl_ms=40_000)
    acquire_again(api_a, resource, ttl_ms=1_000)
    eventually(lambda: len(lease_keys(guarded_pair.nodes(), resource)) == 5, goal="the grant is on every node")
    assert all(node.pttl(f"fg:lease:{resource}") > 20_000 for node in guarded_pair.nodes())


def test_hold_with_longer_ttl_extends_lease(api_a: Api, resource: str) -> None:
    first = api_a.must_acquire(resource, owner="same", ttl_ms=1_500)
    second = acquire_again(api_a, resource, ttl_ms=20_000)
    assert second["validity_ms"] > 15_000
    pause(1.6, "past the first ttl")
    assert api_a.read_lease(first).json()["hold_count"] == 2
    assert api_a.read_lease(second).json()["hold_count"] == 2


def test_renewal_keeps_number_of_holds(api_a: Api, api_b: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="same")
    other = acquire_again(api_b, resource)
    for api, hold in ((api_a, lease), (api_b, other), (api_a, other)):
        renewed = api.renew(hold).json()
        assert (renewed["hold_count"], renewed["fencing_token"], renewed["lease_id"]) == (2, lease["fencing_token"], hold["lease_id"])
    assert api_b.release(lease).json()["hold_count"] == 1
    assert api_a.renew(other).json()["hold_count"] == 1
    api_a.must_release(other)


def test_holds_over_two_gateways_have_one_count(api_a: Api, api_b: Api, resource: str) -> None:
    holds = [api_a.must_acquire(resource, owner="same"), *(acquire_again(api, resource) for api in (api_b, api_a, api_b))]
    assert [hold["hold_count"] for hold in holds] == [1, 2, 3, 4]
    assert [api.release(hold).json()["hold_count"] for api, hold in zip((api_a, api_a, api_b), holds)] == [3, 2, 1]
    api_b.must_release(holds[-1])
    expect_problem(api_a.read_lease(holds[-1]), 410, "lease-lost")


def test_holds_requested_at_once_all_count(api_a: Api, api_b: Api, resource: str) -> None:
    calls = [api.begin_acquire(resource, owner="same", ttl_ms=20_000, wait_ms=5_000) for api in (api_a, api_b) * 5]
    answers = [call.answer() for call in calls]
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201], [str(answer) for answer in answers]
    leases = [answer.json() for answer in answers]
    assert len({lease["fencing_token"] for lease in leases}) == 1 and len({lease["lease_id"] for lease in leases}) == 10
    assert api_a.read_lease(leases[0]).json()["hold_count"] == 10
    for left in range(9, 0, -1):
        assert api_a.release(leases[left]).json()["hold_count"] == left
    api_a.must_release(leases[0])


def test_owner_gets_hold_at_once_while_others_wait(api_a: Api, api_b: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="same")
    waiters = [api.begin_acquire(resource, owner=f"waiter-{number}", ttl_ms=20_000, wait_ms=15_000) for number, api in enumerate((api_a, api_a, api_b))]
    api_a.await_waiters(resource, 2)
    api_b.await_waiters(resource, 1)
    holds = [lease]
    for api in (api_a, api_b):
        answer = api.acquire(resource, owner="same", ttl_ms=20_000, wait_ms=10_000)
        assert answer.status == 200 and answer.seconds < 3, answer
        holds.append(answer.json())
    assert [api_a.release(hold).status for hold in holds] == [200, 200, 204]
    pending = list(waiters)
    while pending:
        served = eventually(lambda: next((call for call in pending if not call.is_alive()), None), 10, goal="the next waiter is served")
        answer = served.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        api_a.must_release(answer.json())
        pending.remove(served)


@pytest.mark.parametrize("repeat_by", ["owner", "key"])
def test_holder_is_recognized_if_minority_has_another_token(guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker, repeat_by: str) -> None:
    """As after a grant on counters that disagreed: a minority has the lease with a higher token. Whichever nodes answer first, the token of
    the majority counts."""
    nodes = guarded_pair.nodes()
    for number in range(20):
        resource = unique_name("test/minority")
        body = {"resource": resource, "ttl_ms": 20_000, **({"owner": "same"} if repeat_by == "owner" else {})}
        headers = {"Idempotency-Key": unique_name("key")} if repeat_by == "key" else {}
        lease = api_a.call("POST", "/v1/leases", body, headers).json()
        token = str(lease["fencing_token"])

        def held_under_it() -> list[Any]:
            return [node for node in nodes if f" {token} " in (node.get(f"fg:lease:{resource}") or "")]

        if len(eventually(lambda: len(lease_keys(nodes, resource)) == 5 and held_under_it(), goal="the grant is on every node")) < 5:
            continue  # a minority has another token already, and changing more nodes would end the lease
        for node in (nodes[number % 5], nodes[(number + 2) % 5]):
            node.set(f"fg:lease:{resource}", node.get(f"fg:lease:{resource}").replace(token, str(lease["fencing_token"] + 5), 1), keepttl=True)
        answer = (api_a, api_b)[number % 2].call("POST", "/v1/leases", body, headers)
        assert answer.status == (200 if repeat_by == "owner" else 201), answer
        assert answer.json()["fencing_token"] == lease["fencing_token"]
        assert api_a.read_lease(lease).json()["hold_count"] == (2 if repeat_by == "owner" else 1)


def test_holds_with_disagreeing_counters_lose_no_lease(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    """New names each time, so that counters disagree sometimes, as in practice."""
    with api_a.connection() as connection_a, api_b.connection() as connection_b:
        for number in range(300):
            body = {"resource": unique_name("test/vain"), "ttl_ms": 20_000, "owner": "same"}
            lease = connection_a.call("POST", "/v1/leases", body).json()
            repeated = (connection_a, connection_b)[number % 2].call("POST", "/v1/leases", body)
            seen = connection_a.call("GET", f"/v1/leases/{lease['lease_id']}")
            assert (repeated.status, seen.status) == (200, 200), f"{number}: {repeated}, {seen}"
