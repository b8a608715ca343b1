"""Kept leases when nodes lose data or do not answer, when the gateway stops, and at the end of max_hold."""

from __future__ import annotations

import json
import socket
import time
from typing import Iterator

import pytest
from support.api import Api, expect_problem, pointers_of
from support.cluster import Cluster, Gateway
from support.events import EventStream, is_free, open_kept_lease
from support.polling import NotInTime, eventually
from support.stack import Stack, lease_keys
from support.wire import Wire, request


@pytest.fixture
def keeping_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway of the module's cluster."""
    with cluster.serving() as made:
        yield made


def test_kept_lease_forgotten_by_majority_lost_within_validity(
    cluster: Cluster, keeping_gateway: Gateway, resource: str
) -> None:
    with open_kept_lease(keeping_gateway.api, resource, ttl_ms=1_500) as kept:
        lease = kept.wait_for_grant()
        kept.wait_for("renewed")
        for client in cluster.clients()[:3]:
            client.delete(f"fg:lease:{resource}")
        forgot = time.monotonic()
        lost = kept.wait_for("lost", 5)
        assert lost.received_at - forgot < 1.5 + 1
        assert lost.data["fencing_token"] == lease["fencing_token"] and lost.data["reason"]
        kept.wait_for_end()
        eventually(
            lambda: not lease_keys(cluster.clients(), resource), goal="its keys are removed from the other nodes"
        )


def test_kept_lease_on_wiped_nodes_lost_within_validity(
    cluster: Cluster, keeping_gateway: Gateway, resource: str
) -> None:
    with open_kept_lease(keeping_gateway.api, resource, ttl_ms=1_500) as kept:
        kept.wait_for("renewed")
        for client in cluster.clients():
            client.flushall()
        wiped = time.monotonic()
        lost = kept.wait_for("lost", 8)
        assert lost.received_at - wiped < 1.5 + 2, "the event must come by the end of its validity"
        kept.wait_for_end()
    eventually(lambda: keeping_gateway.api.get("/readyz").status == 200, 20, goal="the nodes vote again")


def test_kept_lease_of_stopping_gateway_is_released(cluster: Cluster, resource: str) -> None:
    stopping, other_gateway = cluster.gateway(), cluster.gateway()
    stopping.start()
    other_gateway.start()
    kept = open_kept_lease(stopping.api, resource, ttl_ms=2_000, owner="keeper")
    lease = kept.wait_for_grant()
    waiter = other_gateway.api.begin_acquire(resource, wait_ms=10_000)
    began = time.monotonic()
    assert stopping.stop() == 0
    assert time.monotonic() - began < 10
    released = kept.wait_for("released")
    assert released.data["lease_id"] == lease["lease_id"] and "stopping" in released.data["reason"]
    assert released.data["validity_ms"] == 0
    kept.wait_for_end()
    assert "lost" not in kept.names()
    answer = waiter.answer()
    assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
    assert waiter.ended - released.received_at < 1.5, "it had to wait for the lease to expire"
    events = eventually(
        lambda: (found := other_gateway.api.history(resource=resource, event="lease_released")) and found,
        goal="the release is in the history",
    )
    assert events[0]["owner"] == "keeper"
    other_gateway.api.must_release(answer.json())
    assert other_gateway.stop() == 0


def test_kept_lease_continues_past_max_renewals(cluster: Cluster, resource: str) -> None:
    """max_renewals counts POST …/renew only; a kept lease is limited by max_hold_ms."""
    gateway = cluster.start_gateway(cluster.settings(max_renewals=2))
    with open_kept_lease(gateway.api, resource, ttl_ms=1_800) as kept:
        eventually(lambda: kept.names().count("renewed") >= 4, 20, goal="four renewals")
        assert "released" not in kept.names()
        assert kept.events[-1].data["renewals_left"] == 0
        expect_problem(gateway.api.renew(kept.events[0].data, ttl_ms=1_800), 409, "renewals-exhausted")
    assert gateway.stop() == 0


def test_kept_lease_is_released_at_requested_max_hold(api_a: Api, api_b: Api, resource: str) -> None:
    with open_kept_lease(api_a, resource, ttl_ms=1_800, max_hold_ms=2_000) as kept:
        first = kept.wait_for_grant()
        assert first["max_hold_ms"] == 2_000 and 1_000 < first["hold_left_ms"] <= 2_000
        released = kept.wait_for("released", 15)
        assert "max_hold" in released.data["reason"] and released.data["hold_left_ms"] == 0
        assert 1.6 < released.received_at - kept.began < 6
        lefts = [event.data["hold_left_ms"] for event in kept.events]
        assert lefts == sorted(lefts, reverse=True) and kept.names().count("renewed") >= 2
        kept.wait_for_end()
    assert is_free(api_b, resource)


def test_max_hold_that_can_not_be_honoured_400(api_a: Api, resource: str) -> None:
    for body, accept in (
        ({"max_hold_ms": 86_400_001}, "text/event-stream"),
        ({"max_hold_ms": 99}, "text/event-stream"),
        ({"max_hold_ms": "1"}, "text/event-stream"),
        ({"max_hold_ms": 5_000}, "application/json"),
    ):
        answer = api_a.post("/v1/leases", {"resource": resource, **body}, {"Accept": accept})
        assert pointers_of(answer) == ["/max_hold_ms"]
    assert api_a.renew(lease := api_a.must_acquire(resource)).json()["max_hold_ms"] == 86_400_000
    api_a.must_release(lease)


def test_kept_lease_is_released_at_configured_max_hold(cluster: Cluster, resource: str) -> None:
    gateway = cluster.start_gateway(cluster.settings(max_hold_ms=2_000))
    kept = open_kept_lease(gateway.api, resource, ttl_ms=1_800)
    released = kept.wait_for("released", 15)
    assert "max_hold" in released.data["reason"]
    kept.wait_for_end()
    assert is_free(gateway.api, resource)
    assert gateway.stop() == 0


def test_kept_lease_of_stalled_reader_is_lost(cluster: Cluster, keeping_gateway: Gateway, resource: str) -> None:
    """Unread events fill the buffers of the connection, so that the last one is not acknowledged: nothing says
    that the caller lives."""
    names = [f"{resource}/{number:02}".ljust(200, "x") for number in range(16)]  # so that few events fill the buffers
    body = json.dumps({"resources": names, "ttl_ms": 1_500}).encode()
    with Wire(keeping_gateway.api.host, keeping_gateway.api.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(request("POST", "/v1/leases", body, "Accept: text/event-stream"))
        eventually(lambda: is_free(keeping_gateway.api, names[0]), 20, goal="it is not renewed any more")
        eventually(lambda: b"event: lost" in wire.buffer or not wire.read_more(), goal="the end")
        assert b"event: granted" in wire.buffer


def test_kept_lease_silent_majority_lost_at_end_of_validity(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    guarded_pair.wait_until_all_vote()
    with open_kept_lease(api_a, resource, ttl_ms=2_000) as kept:
        kept.wait_for("renewed")
        with guarded_pair.frozen(guarded_pair.node_pids()[:3]):
            reported = kept.events[-1]
            lost = kept.wait_for("lost", 10)
            assert (
                lost.received_at - reported.received_at < 2 + 2
            ), "the caller was notified after the end of the validity"
            assert lost.data["reason"]
            kept.wait_for_end()
    guarded_pair.wait_until_all_vote()
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), goal="no key of it is left")


def test_kept_lease_silent_minority_is_kept(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    guarded_pair.wait_until_all_vote()

    def on_all_five() -> EventStream | None:
        """Returns a kept lease whose token is on all five nodes, or None if counters disagreed at the grant."""
        kept = open_kept_lease(api_a, resource, ttl_ms=3_000, wait_ms=5_000)
        token = str(kept.wait_for_grant()["fencing_token"])
        try:
            eventually(
                lambda: all(token in (node.get(f"fg:lease:{resource}") or "") for node in guarded_pair.nodes()), 0.3
            )
            return kept
        except NotInTime:
            kept.disconnect()
            return None

    with eventually(on_all_five, 15, goal="a lease on all five") as kept:
        kept.wait_for("renewed")
        with guarded_pair.frozen(guarded_pair.node_pids()[:2]):
            count = kept.names().count("renewed")
            eventually(lambda: kept.names().count("renewed") >= count + 2, 20, goal="the other nodes renew it")
        assert "lost" not in kept.names()
    guarded_pair.wait_until_all_vote()
