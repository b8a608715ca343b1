"""POST /v1/leases/cancel: a caller gives up a request for a lease, whose Idempotency-Key names it."""

from __future__ import annotations

import uuid
from typing import Any, Callable

from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually, pause
from support.stack import Stack, lease_keys

NameMaker = Callable[[str], str]
TTL_MS = 40_000  # far longer than a test waits for what a cancellation releases
WAIT_MAX = 20


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def cancel(api: Api, key: dict[str, str], body: dict[str, Any]) -> Answer:
    answer = api.post("/v1/leases/cancel", body, key)
    assert answer.status == 204 and not answer.body, answer
    return answer


def expect_cancelled(answer: Answer) -> None:
    assert "was cancelled" in expect_problem(answer, 422, "idempotency-mismatch")["detail"], answer


def test_cancel_ends_wait_and_next_waiter_is_served(api_a: Api, resource: str) -> None:
    held, key = api_a.must_acquire(resource), new_key()
    body = {"resource": resource, "ttl_ms": TTL_MS, "wait_ms": 20_000}
    waiting = api_a.begin("POST", "/v1/leases", body, key)
    api_a.await_waiters(resource, 1)
    next_one = api_a.begin_wait(resource)
    cancel(api_a, key, body)
    expect_cancelled(waiting.answer())
    api_a.must_release(held)
    assert next_one.answer().status == 201


def test_cancel_releases_grant_at_any_gateway(api_a: Api, api_b: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": TTL_MS}
    for granting, cancelling in ((api_a, api_a), (api_a, api_b), (api_b, api_a)):
        key = new_key()
        lease = granting.post("/v1/leases", body, key).json()
        assert granting.renew(lease).status == 200, "it is used"
        for _ in range(2):
            cancel(cancelling, key, body)
            assert granting.read_lease(lease).status == 410
        api_b.must_release(api_b.must_acquire(resource))


def test_cancel_before_request_wins_at_same_gateway(api_a: Api, resource: str) -> None:
    key, body = new_key(), {"resource": resource, "ttl_ms": TTL_MS, "wait_ms": 5_000}
    cancel(api_a, key, body)
    expect_cancelled(api_a.post("/v1/leases", body, key))
    api_a.must_release(api_a.must_acquire(resource))
    expect_cancelled(api_a.post("/v1/leases", body, key))


def test_cancel_before_request_releases_at_other_gateway(api_a: Api, api_b: Api, resource: str) -> None:
    key, body = new_key(), {"resource": resource, "ttl_ms": TTL_MS}
    cancel(api_a, key, body)
    late = api_b.post("/v1/leases", body, key)
    assert late.status == 201, late
    eventually(
        lambda: api_b.read_lease(late.json()).status == 410,
        WAIT_MAX,
        goal="the gateway of the cancellation releases it",
    )
    assert api_b.acquire(resource).status == 201


def test_cancel_releases_later_grant_to_waiter_of_other_gateway(api_a: Api, api_b: Api, resource: str) -> None:
    """As if the other gateway could not notice that its caller is gone."""
    held, key = api_a.must_acquire(resource), new_key()
    body = {"resource": resource, "ttl_ms": TTL_MS, "wait_ms": 20_000}
    waiting = api_b.begin("POST", "/v1/leases", body, key)
    api_b.await_waiters(resource, 1)
    cancel(api_a, key, body)
    assert api_b.waiters(resource) == 1
    api_a.must_release(held)
    granted = waiting.answer()
    assert granted.status == 201, granted
    assert api_a.acquire(resource, wait_ms=20_000, ttl_ms=5_000).seconds < WAIT_MAX
    assert api_b.read_lease(granted.json()).status == 410


def test_cancelled_while_handed_over_leaves_no_lease(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    for number in range(20):
        held, key = api_a.must_acquire(resource), new_key()
        body = {"resource": resource, "ttl_ms": TTL_MS, "wait_ms": 20_000}
        waiting = api_a.begin("POST", "/v1/leases", body, key)
        api_a.await_waiters(resource, 1)
        released = api_a.begin("DELETE", f"/v1/leases/{held['lease_id']}")
        if number % 2:
            pause(0.0005 * number, "cancellations before, during and after the hand-over")
        waiting.disconnect()
        cancel(api_a, key, body)
        assert released.answer().status == 204
        eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), WAIT_MAX, goal="no node has a lease")


def test_cancel_of_another_request_has_no_effect(
    api_a: Api, orders: Api, resource: str, unique_name: NameMaker
) -> None:
    key, body = new_key(), {"resource": resource, "ttl_ms": TTL_MS, "owner": "worker"}
    lease = api_a.post("/v1/leases", body, key).json()
    cancel(orders, key, body)
    cancel(api_a, key, {**body, "resource": unique_name("test/other")})
    cancel(api_a, new_key(), body)
    assert api_a.read_lease(lease).status == 200
    cancel(api_a, key, {**body, "ttl_ms": 100, "owner": "another process of the caller"})
    assert api_a.read_lease(lease).status == 410


def test_cancel_releases_one_hold_of_lease(api_a: Api, api_b: Api, resource: str) -> None:
    body, key = {"resource": resource, "ttl_ms": TTL_MS, "owner": "same"}, new_key()
    first = api_a.must_acquire(resource, owner="same")
    second = api_b.post("/v1/leases", body, key)
    assert second.status == 200 and second.json()["hold_count"] == 2, second
    cancel(api_a, key, body)
    assert api_a.read_lease(second.json()).status == 410
    assert api_a.read_lease(first).json()["hold_count"] == 1
    api_a.must_release(first)


def test_cancel_for_several_resources_in_any_order(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    resources, key = [unique_name("test/several") for _ in range(3)], new_key()
    lease = api_a.post("/v1/leases", {"resources": resources, "ttl_ms": TTL_MS}, key).json()
    cancel(api_b, key, {"resources": resources[:2]})
    assert api_a.read_lease(lease).status == 200
    cancel(api_b, key, {"resources": resources[::-1]})
    assert api_a.acquire(resources[1]).status == 201


def test_cancel_ends_kept_lease_with_its_key(api_a: Api, resource: str) -> None:
    key, body = new_key(), {"resource": resource, "ttl_ms": TTL_MS, "max_hold_ms": 60_000}
    with api_a.connection() as stream:
        stream.send("POST", "/v1/leases", body, {**key, "Accept": "text/event-stream"})
        response = stream.wire.getresponse()
        assert response.status == 200 and response.readline() == b"event: granted\n"
        cancel(api_a, key, body)
        assert b"event: lost" in response.read()
    assert api_a.acquire(resource).status == 201


def test_cancel_is_recorded_as_release(api_a: Api, resource: str) -> None:
    key, body = new_key(), {"resource": resource, "ttl_ms": TTL_MS}
    token = api_a.post("/v1/leases", body, key).json()["fencing_token"]
    cancel(api_a, key, body)
    released = eventually(lambda: api_a.history(resource=resource, event="lease_released"), WAIT_MAX)
    assert [item["fencing_token"] for item in released] == [token]


def test_cancel_names_missing_key_and_faulty_fields(api_a: Api, resource: str) -> None:
    assert pointers_of(api_a.post("/v1/leases/cancel", {"resource": resource})) == ["Idempotency-Key"]
    assert pointers_of(api_a.post("/v1/leases/cancel", {"resource": resource}, {"Idempotency-Key": "a b"})) == [
        "Idempotency-Key"
    ]
    assert pointers_of(api_a.post("/v1/leases/cancel", {"resource": "", "more": 1}, new_key())) == [
        "/more",
        "/resource",
    ]
