"""wait_ms: which waiter is granted next, when, and what remains of a caller that gives up."""

from __future__ import annotations

import time

from support.api import Api, expect_problem
from support.polling import eventually, pause, remains
from support.stack import Stack, lease_keys


def test_waiter_is_served_when_lease_expires(api: Api, resource: str) -> None:
    began = time.monotonic()
    held = api.must_acquire(resource, ttl_ms=800)
    answer = api.acquire(resource, wait_ms=5_000)
    waited = time.monotonic() - began
    assert answer.status == 201, answer
    assert 0.7 < waited < 5
    assert answer.json()["fencing_token"] > held["fencing_token"]


def test_waiter_timed_out_423_with_queue_position(stack: Stack, api: Api, resource: str) -> None:
    held = api.must_acquire(resource, ttl_ms=20_000)
    waiters = [api.begin_wait(resource) for _ in range(2)]
    answer = api.acquire(resource, wait_ms=500)
    problem = expect_problem(answer, 423, "resource-locked")
    assert 0.5 <= answer.seconds < 5
    assert problem["queue_position"] == 3
    assert 15_000 < problem["remaining_ms"] <= 20_000
    assert int(answer.headers["Retry-After"]) >= 1
    for waiter in waiters:
        waiter.disconnect()
    api.await_waiters(resource, 0)
    api.must_release(held)
    remains(lambda: not lease_keys(stack.nodes(), resource), 0.5, goal="it is not granted to the waiter that timed out")


def test_waiters_are_served_in_order_of_arrival(api: Api, resource: str) -> None:
    held = api.must_acquire(resource)
    waiters = [api.begin_wait(resource, owner=f"waiter-{number}") for number in range(6)]
    api.must_release(held)
    tokens = [held["fencing_token"]]
    for number, waiter in enumerate(waiters):
        answer = waiter.answer()
        assert answer.status == 201, answer
        lease = answer.json()
        assert lease["owner"] == f"waiter-{number}"
        assert not [later for later in waiters[number + 1 :] if not later.is_alive()], "two were served at once"
        tokens.append(lease["fencing_token"])
        api.must_release(lease)
    assert tokens == sorted(set(tokens))


def test_waiters_keep_order_when_one_disconnects(api: Api, resource: str) -> None:
    held = api.must_acquire(resource)
    first, second, third = (api.begin_wait(resource, owner=owner) for owner in ("first", "second", "third"))
    second.disconnect()
    api.must_release(held)
    for waiter, owner in ((first, "first"), (third, "third")):
        answer = waiter.answer()
        assert answer.status == 201 and answer.json()["owner"] == owner, answer
        api.must_release(answer.json())
    assert api.acquire(resource).status == 201


def test_waiter_disconnected_leaves_no_trace(stack: Stack, api: Api, resource: str) -> None:
    held = api.must_acquire(resource, owner="holder")
    lost = api.begin_wait(resource, owner="gone")
    lost.disconnect()
    api.await_waiters(resource, 0)
    api.must_release(held)
    remains(lambda: not lease_keys(stack.nodes(), resource), 1, goal="no key of the disconnected caller")
    api.must_release(api.must_acquire(resource, owner="next"))
    eventually(
        lambda: len(api.history(resource=resource, event="lease_granted")) == 2, goal="the grants are in the history"
    )
    assert {item["owner"] for item in api.history(resource=resource, event="lease_granted")} == {"holder", "next"}


def test_validity_of_waiter_counts_from_grant(api: Api, resource: str) -> None:
    held = api.must_acquire(resource)
    waiter = api.begin_wait(resource, ttl_ms=10_000)
    pause(1, "the wait is long compared with the allowance for drift")
    api.must_release(held)
    assert waiter.answer().json()["validity_ms"] > 8_900


def test_grant_in_history_says_how_long_it_was_waited_for(api: Api, resource: str) -> None:
    held = api.must_acquire(resource)
    waiter = api.begin_wait(resource)
    pause(0.3, "the wait is longer than that of a free lease")
    assert api.acquire(resource).status == 423
    api.must_release(held)
    api.must_release(waiter.answer().json())

    def read() -> list[int]:
        items = api.history(resource=resource, order="asc")
        grants = [item["detail"]["waited_ms"] for item in items if item["event"] == "lease_granted"]
        return grants if len(grants) == 2 else []

    first, second = eventually(read, goal="both grants are in the history")
    assert first < second >= 300
    (refused,) = api.history(resource=resource, event="lease_refused")
    assert 0 <= refused["detail"]["waited_ms"] < second, refused
