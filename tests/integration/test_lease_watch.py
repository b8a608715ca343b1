"""GET /v1/leases/{lease_id} as text/event-stream: tells of the end of a lease at once, and does not keep it."""

from __future__ import annotations

import time

import pytest
from support.api import Api, Json, expect_problem, lease_path
from support.cluster import Cluster
from support.events import EventStream, is_free
from support.polling import pause, remains


# A third of the ttl would be the next renewal. What is noticed only by asking again comes later.
TTL_MS, AT_ONCE = 60_000, 4.0
CLUSTER_MAX_TTL_MS = 10_000


def watch(api: Api, lease: Json) -> EventStream:
    """Returns a stream that has delivered its first event."""
    watching = EventStream(api, None, method="GET", path=lease_path(lease))
    held = watching.wait_for("held").data
    assert (held["lease_id"], held["fencing_token"], held["ttl_ms"]) == (
        lease["lease_id"],
        lease["fencing_token"],
        lease["ttl_ms"],
    )
    assert 0 < held["validity_ms"] <= lease["ttl_ms"] and "reason" not in held
    return watching


@pytest.mark.parametrize("at", ["same", "other"])
def test_watch_tells_of_revocation_at_either_gateway(api_a: Api, api_b: Api, resource: str, at: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=TTL_MS)
    with watch(api_b, lease) as watching:
        began = time.monotonic()
        operator = api_b if at == "same" else api_a
        operator.must_revoke(resource)
        lost = watching.wait_for("lost")
        assert lost.received_at - began < AT_ONCE
        assert lost.data["lease_id"] == lease["lease_id"] and lost.data["validity_ms"] == 0 and lost.data["reason"]
        watching.wait_for_end()
        assert watching.names() == ["held", "lost"]


@pytest.mark.parametrize("at", ["same", "other"])
def test_watch_tells_of_release_at_either_gateway(api_a: Api, api_b: Api, resource: str, at: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=TTL_MS)
    with watch(api_b, lease) as watching:
        began = time.monotonic()
        (api_b if at == "same" else api_a).must_release(lease)
        assert watching.wait_for("released").received_at - began < AT_ONCE
        watching.wait_for_end()
        assert watching.names() == ["held", "released"]


def test_watch_does_not_keep_the_lease(api_a: Api, resource: str) -> None:
    with watch(api_a, api_a.must_acquire(resource, ttl_ms=1_500)) as watching:
        lost = watching.wait_for("lost", 15)
        assert lost.received_at - watching.began > 1.0
        assert is_free(api_a, resource)


def test_watch_of_renewed_lease_goes_on(api_a: Api, api_b: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=3_000)
    with watch(api_a, lease) as watching:
        until = time.monotonic() + 7
        while time.monotonic() < until:
            assert api_b.renew(lease, 3_000).status == 200
            pause(0.5, "less than a third of the ttl")
        assert watching.names() == ["held"] and not watching.ended
        api_b.must_release(lease)
        watching.wait_for("released")


def test_watch_of_one_hold_ends_with_it_alone(api_a: Api, resource: str) -> None:
    first = api_a.must_acquire(resource, ttl_ms=TTL_MS, owner="worker")
    second = api_a.acquire(resource, ttl_ms=TTL_MS, owner="worker").json()
    with watch(api_a, first) as of_first, EventStream(api_a, None, method="GET", path=lease_path(second)) as of_second:
        of_second.wait_for("held")
        assert api_a.release(first).status == 200
        of_first.wait_for("released")
        remains(lambda: of_second.names() == ["held"] and not of_second.ended, 0.5)
        api_a.must_release(second)
        of_second.wait_for("released")


def test_watch_ends_with_its_gateway_and_the_lease_lives(cluster: Cluster, resource: str) -> None:
    stopping, other = cluster.gateway(), cluster.gateway()
    stopping.start()
    other.start()
    lease = stopping.api.must_acquire(resource, ttl_ms=10_000)
    with watch(stopping.api, lease) as watching:
        assert stopping.stop() == 0
        watching.wait_for_end()
        assert watching.names() == ["held"]
    with watch(other.api, other.api.renew(lease, 10_000).json()) as watching:
        other.api.must_release(lease)
        watching.wait_for("released")
    assert other.stop() == 0


def test_caller_that_hangs_up_ends_watch_and_not_the_lease(api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=TTL_MS)
    watch(api_a, lease).disconnect()
    remains(lambda: api_a.read_lease(lease).status == 200, 0.5)
    api_a.must_release(lease)


def test_watch_of_lease_that_is_over_410(api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource)
    api_a.must_release(lease)
    expect_problem(api_a.call("GET", lease_path(lease), headers={"Accept": "text/event-stream"}), 410, "lease-lost")
    expect_problem(
        api_a.call("GET", "/v1/leases/forged", headers={"Accept": "text/event-stream"}), 403, "lease-not-authentic"
    )
