"""A lease held several times by the same owner."""

from __future__ import annotations

from typing import Any

import pytest
from support.api import Api, expect_problem
from support.polling import eventually
from support.stack import Stack, lease_keys


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
        assert answer.json() == {
            "lease_id": given["lease_id"],
            "resource": resource,
            "fencing_token": lease["fencing_token"],
            "hold_count": left,
        }
        expect_problem(api_a.acquire(resource), 423, "resource-locked")
        assert api_a.read_lease(lease).json()["hold_count"] == left
    api_a.must_release(lease)
    expect_problem(api_a.release(lease), 410, "lease-lost")
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), goal="no key of it is left")
    assert api_a.must_acquire(resource, owner="same")["fencing_token"] > lease["fencing_token"]


def test_same_owner_of_another_principal_423(api_a: Api, orders: Api, resource: str) -> None:
    held = api_a.must_acquire(resource, owner="same")
    expect_problem(orders.acquire(resource, owner="same"), 423, "resource-locked")
    assert api_a.read_lease(held).json()["hold_count"] == 1


@pytest.mark.parametrize(
    "owner",
    ["x" * 128, "J\u00fcrgen \U0001f511", "a b", '"\\', "%0a", "\u200b", "[%w]+ $1 ^.*", "@0123456789abcdef", "- 1 2"],
)
def test_owner_with_unusual_characters_is_recognized(api_a: Api, api_b: Api, resource: str, owner: str) -> None:
    lease = api_a.must_acquire(resource, owner=owner)
    second = acquire_again(api_b, resource, owner)
    assert second["hold_count"] == 2 and lease["owner"] == api_b.read_lease(second).json()["owner"] == owner
    expect_problem(api_a.acquire(resource, owner=owner[:-1] + "~"), 423, "resource-locked")
    assert api_a.release(lease).json()["hold_count"] == 1
    api_a.must_release(second)


def test_hold_with_longer_ttl_extends_lease(api_a: Api, resource: str) -> None:
    first = api_a.must_acquire(resource, owner="same", ttl_ms=1_500)
    second = acquire_again(api_a, resource, ttl_ms=20_000)
    assert second["validity_ms"] > 15_000
    assert api_a.read_lease(first).json()["validity_ms"] > 15_000, "of the lease, so of both holds"


def test_renewal_keeps_number_of_holds(api_a: Api, api_b: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="same")
    other = acquire_again(api_b, resource)
    for api, hold in ((api_a, lease), (api_b, other), (api_a, other)):
        renewed = api.renew(hold).json()
        assert (renewed["hold_count"], renewed["fencing_token"], renewed["lease_id"]) == (
            2,
            lease["fencing_token"],
            hold["lease_id"],
        )
    assert api_b.release(lease).json()["hold_count"] == 1
    assert api_a.renew(other).json()["hold_count"] == 1
    api_a.must_release(other)


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
    waiters = [
        api.begin_acquire(resource, owner=f"waiter-{number}", ttl_ms=20_000, wait_ms=15_000)
        for number, api in enumerate((api_a, api_a, api_b))
    ]
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
        served = eventually(
            lambda: next((call for call in pending if not call.is_alive()), None), goal="the next waiter is served"
        )
        answer = served.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        api_a.must_release(answer.json())
        pending.remove(served)
