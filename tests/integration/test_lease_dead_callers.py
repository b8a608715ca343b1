"""Callers that vanish without a word, as machines that lose their power: a kept lease ends,
and a waiter leaves the queue."""

from __future__ import annotations

import json
import time

from support.api import Api
from support.events import is_free, open_kept_lease
from support.polling import eventually, remains
from support.wire import Wire, lose_power, request

TTL_MS = 2_000
# Much longer than the ttl, and much shorter than the quarter of an hour for
# which a kernel repeats unacknowledged bytes.
NOTICED_WITHIN = 30.0


def test_kept_lease_of_machine_without_power_ends(api_a: Api, api_b: Api, resource: str) -> None:
    kept = open_kept_lease(api_a, resource, ttl_ms=TTL_MS)
    kept.wait_for("renewed")
    lose_power(kept.socket)
    eventually(lambda: is_free(api_b, resource), NOTICED_WITHIN, goal="the lease is not renewed any more")
    kept.disconnect()


def test_kept_lease_of_living_caller_stays_beside_it(api_a: Api, resource: str) -> None:
    """A caller that acknowledges and never reads anything else is served as before."""
    with open_kept_lease(api_a, resource, ttl_ms=TTL_MS) as kept:
        count = eventually(lambda: kept.names().count("renewed"), goal="it is renewed")
        remains(lambda: not is_free(api_a, resource), 2 * TTL_MS / 1_000)
        eventually(lambda: kept.names().count("renewed") > count + 2, goal="further renewals")
        assert "lost" not in kept.names()


def test_waiter_without_power_leaves_the_queue(api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=60_000)
    with Wire(api_a.host, api_a.port) as dead:
        body = json.dumps({"resource": resource, "wait_ms": 30_000, "ttl_ms": TTL_MS}).encode()
        dead.send(request("POST", "/v1/leases", body, f"Authorization: {api_a.headers['Authorization']}"))
        api_a.await_waiters(resource, 1)
        lose_power(dead.socket)
        began = time.monotonic()
        eventually(lambda: api_a.waiters(resource) == 0, NOTICED_WITHIN, goal="it has left the queue")
        assert time.monotonic() - began < 25, "its wait ended, and the gateway had not noticed"
    living = api_a.begin_wait(resource)
    api_a.must_release(lease)
    assert living.answer().status == 201


def test_idle_waiter_that_lives_stays_in_the_queue(api_a: Api, resource: str) -> None:
    """It is silent for longer than the gateway's probes take."""
    lease = api_a.must_acquire(resource, ttl_ms=60_000)
    waiting = api_a.begin_wait(resource, wait_ms=30_000)
    remains(lambda: api_a.waiters(resource) == 1, 14)
    api_a.must_release(lease)
    assert waiting.answer().status == 201
