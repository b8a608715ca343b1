"""The same request repeated under an Idempotency-Key."""

from __future__ import annotations

import uuid
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import pause, remains

NameMaker = Callable[[str], str]


def acquire_with_key(api: Api, key: str, body: dict[str, Any]) -> Answer:
    return api.post("/v1/leases", body, {"Idempotency-Key": key})


def test_key_repeated_same_lease_and_no_second_hold(api_a: Api, api_b: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        body = {"resource": resource, "ttl_ms": 20_000, **owner}
        key = uuid.uuid4().hex
        first = acquire_with_key(api_a, key, body)
        assert first.status == 201 and first.headers["Idempotency-Replayed"] is None, first
        lease = first.json()
        for api in (api_a, api_b, api_a):
            answer = acquire_with_key(api, key, body)
            assert answer.status in (200, 201) and answer.headers["Idempotency-Replayed"] == "true", answer
            repeated = answer.json()
            for member in ("lease_id", "fencing_token", "hold_count", "resource", "owner"):
                assert repeated[member] == lease[member], member
            assert 0 < repeated["validity_ms"] < 20_000
        api_b.must_release(lease)


def test_key_with_another_wait_is_same_request(api_a: Api, resource: str) -> None:
    """wait_ms is not part of what the key identifies."""
    key = uuid.uuid4().hex
    lease = acquire_with_key(api_a, key, {"resource": resource, "wait_ms": 0}).json()
    answer = acquire_with_key(api_a, key, {"resource": resource, "wait_ms": 2_000})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer


@pytest.mark.parametrize("owners", [("pod-1", "pod-2"), ("pod-1", None), (None, "pod-2")])
def test_key_from_another_owner_same_lease(
    api_a: Api, api_b: Api, resource: str, owners: tuple[str | None, str | None]
) -> None:
    """The process that got the lease was replaced by another one, which repeats its request."""
    key = uuid.uuid4().hex
    bodies = [{"resource": resource, "ttl_ms": 20_000, **({"owner": owner} if owner else {})} for owner in owners]
    lease = acquire_with_key(api_a, key, bodies[0]).json()
    waiter = api_b.begin_wait(resource)  # a repeat must not wait behind it
    for api in (api_a, api_b):
        answer = acquire_with_key(api, key, bodies[1])
        assert answer.headers["Idempotency-Replayed"] == "true", answer
        assert [answer.json()[member] for member in ("lease_id", "owner", "hold_count")] == [
            lease[member] for member in ("lease_id", "owner", "hold_count")
        ]
    expect_problem(acquire_with_key(api_a, uuid.uuid4().hex, bodies[1]), 423, "resource-locked")
    assert api_b.renew(answer.json()).status == 200
    waiter.disconnect()
    api_b.must_release(answer.json())


def test_key_of_caller_that_waits_keeps_place_for_another_owner(api_a: Api, resource: str) -> None:
    held = api_a.must_acquire(resource)
    key = uuid.uuid4().hex
    expect_problem(
        acquire_with_key(api_a, key, {"resource": resource, "owner": "pod-1", "wait_ms": 100}), 423, "resource-locked"
    )
    later = api_a.begin_wait(resource)
    again = api_a.begin(
        "POST",
        "/v1/leases",
        {"resource": resource, "owner": "pod-2", "wait_ms": 20_000, "ttl_ms": 20_000},
        {"Idempotency-Key": key},
    )
    api_a.await_waiters(resource, 2)
    api_a.must_release(held)
    assert again.answer().status == 201 and later.is_alive()
    api_a.must_release(again.answer().json())
    api_a.must_release(later.answer().json())


def test_key_with_another_ttl_422(api_a: Api, api_b: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        key = uuid.uuid4().hex
        lease = acquire_with_key(api_a, key, {"resource": resource, "ttl_ms": 20_000, **owner}).json()
        for api in (api_a, api_b):
            expect_problem(
                acquire_with_key(api, key, {"resource": resource, "ttl_ms": 19_000, **owner}),
                422,
                "idempotency-mismatch",
            )
        assert api_a.read_lease(lease).json()["hold_count"] == 1
        api_a.must_release(lease)


def test_key_of_released_lease_gets_new_lease(api_a: Api, api_b: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 2_000}
    tokens = []
    for api in (api_a, api_b, api_a):
        answer = acquire_with_key(api, key, body)
        assert answer.status == 201 and answer.headers["Idempotency-Replayed"] is None, answer
        tokens.append(answer.json()["fencing_token"])
        api.must_release(answer.json())
    assert tokens == sorted(set(tokens))


def test_key_of_released_hold_422(api_a: Api, resource: str) -> None:
    """The lease still has other holds, and with it the key."""
    body = {"resource": resource, "ttl_ms": 20_000, "owner": "same"}
    key = uuid.uuid4().hex
    first, other = acquire_with_key(api_a, key, body).json(), api_a.acquire(**body).json()
    assert api_a.release(first).json()["hold_count"] == 1
    problem = expect_problem(acquire_with_key(api_a, key, body), 422, "idempotency-mismatch")
    assert (
        "was released" in problem["detail"] and "another request" not in problem["title"] + problem["detail"]
    ), problem
    api_a.must_release(other)
    assert acquire_with_key(api_a, key, body).status == 201, "the key is forgotten with the lease"


def test_key_of_another_principal_is_separate(api_a: Api, orders: Api, resource: str) -> None:
    key = uuid.uuid4().hex
    assert acquire_with_key(api_a, key, {"resource": resource}).status == 201
    expect_problem(acquire_with_key(orders, key, {"resource": resource}), 423, "resource-locked")


def test_key_other_adds_hold_and_each_repeats_its_own(api_a: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000, "owner": "same"}
    keys = [uuid.uuid4().hex for _ in range(4)]
    for count, key in enumerate(keys, 1):
        answer = acquire_with_key(api_a, key, body)
        assert answer.status == (201 if count == 1 else 200) and answer.json()["hold_count"] == count, answer
    for key in keys:
        answer = acquire_with_key(api_a, key, body)
        assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["hold_count"] == len(keys), answer


def test_key_repeated_while_others_wait_same_lease_at_once(api_a: Api, api_b: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 5_000}
    lease = acquire_with_key(api_a, key, body).json()
    waiters = [api.begin_acquire(resource, wait_ms=10_000, ttl_ms=20_000) for api in (api_a, api_b)]
    for api in (api_a, api_b):
        api.await_waiters(resource, 1)
    for api in (api_a, api_b):
        answer = acquire_with_key(api, key, body)
        assert (
            answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"]
        ), answer
        assert answer.seconds < 3
    for waiter in waiters:
        waiter.disconnect()
    api_a.must_release(lease)


@pytest.mark.parametrize("held_first", [False, True], ids=["free", "waiting"])
def test_keys_equal_at_once_get_one_lease(api_a: Api, api_b: Api, resource: str, held_first: bool) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 10_000}
    held = api_a.must_acquire(resource) if held_first else None
    calls = [api.begin("POST", "/v1/leases", body, {"Idempotency-Key": key}) for api in (api_a, api_b) * 4]
    if held:
        pause(0.3, "the calls that wait are in the queue")
        api_a.must_release(held)
    answers = [call.answer() for call in calls]
    assert {answer.status for answer in answers} <= {200, 201}, [str(answer) for answer in answers]
    assert len({answer.json()["lease_id"] for answer in answers}) == 1
    assert [answer.headers["Idempotency-Replayed"] for answer in answers].count(None) == 1
    lease = answers[0].json()
    assert api_a.read_lease(lease).json()["hold_count"] == 1
    api_a.must_release(lease)
    remains(lambda: api_a.read_lease(lease).status == 410, 0.2)


def test_key_repeated_for_several_resources_same_lease(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    resources = [unique_name("test/several") for _ in range(3)]
    key = uuid.uuid4().hex
    lease = acquire_with_key(api_a, key, {"resources": resources}).json()
    answer = acquire_with_key(api_b, key, {"resources": resources[::-1]})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer
    api_a.must_release(lease)


@pytest.mark.parametrize("key", ["", "x" * 65, "a b", "\u00e4", "a\tb"])
def test_key_wrong_400_names_header(api_a: Api, resource: str, key: str) -> None:
    answer = api_a.post("/v1/leases", {"resource": resource}, {"Idempotency-Key": key.encode().decode("latin-1")})
    assert pointers_of(answer) == ["Idempotency-Key"]
    assert api_a.acquire(resource).status == 201


def test_key_of_maximum_length_is_compared_fully(api_a: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000}
    assert acquire_with_key(api_a, "k" * 64, body).status == 201
    assert acquire_with_key(api_a, "k" * 64, body).headers["Idempotency-Replayed"] == "true"
    expect_problem(acquire_with_key(api_a, "k" * 63 + "l", body), 423, "resource-locked")
