"""Kept leases when nodes forget, fall silent or the gateway stops, and when they have been held as long as is allowed."""

from __future__ import annotations

import json
import socket
import time
from typing import Iterator

import pytest
from support.api import Api, expect_problem, pointers_of
from support.cluster import Cluster, Gateway
from support.events import EventStream, is_free, keep
from support.polling import eventually, let_pass, NotInTime
from support.stack import Stack, lease_keys
from support.wire import Wire, request


@pytest.fixture
def keeper(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway of the module's cluster, with nodes that vote."""
    made = cluster.gateway()
    made.start()
    yield made
    made.kill()


def test_nodes_when_a_majority_forgets_the_lease_then_lost_within_its_validity(cluster: Cluster, keeper: Gateway, resource: str) -> None:
    with keep(keeper.api, resource, ttl_ms=1_500) as kept:
        lease = kept.granted()
        kept.next("renewed")
        for client in cluster.clients()[:3]:
            client.delete(f"fg:lease:{resource}")
        forgot = time.monotonic()
        lost = kept.next("lost", 5)
        assert lost.at - forgot < 1.5
        assert lost.data["fencing_token"] == lease["fencing_token"] and lost.data["reason"]
        kept.wait_for_end()
        eventually(lambda: not lease_keys(cluster.clients(), resource), what="the rest of it is cleared away")


def test_nodes_when_all_are_wiped_then_lost_within_its_validity(cluster: Cluster, keeper: Gateway, resource: str) -> None:
    with keep(keeper.api, resource, ttl_ms=1_500) as kept:
        kept.next("renewed")
        for client in cluster.clients():
            client.flushall()
        wiped = time.monotonic()
        lost = kept.next("lost", 8)
        assert lost.at - wiped < 1.5 + 0.5, "it must be told when its validity is over, at the latest"
        kept.wait_for_end()
    eventually(lambda: keeper.api.get("/readyz").status == 200, 20, what="the nodes vote again")


def test_gateway_when_it_stops_then_released_and_the_lease_is_free(cluster: Cluster, resource: str) -> None:
    stopping, other = cluster.gateway(), cluster.gateway()
    stopping.start()
    other.start()
    kept = keep(stopping.api, resource, ttl_ms=2_000, owner="keeper")
    lease = kept.granted()
    waiter = other.api.begin_ask(resource, wait_ms=10_000)
    began = time.monotonic()
    assert stopping.stop() == 0
    assert time.monotonic() - began < 10
    released = kept.next("released")
    assert released.data["lease_id"] == lease["lease_id"] and "stopping" in released.data["reason"]
    assert released.data["validity_ms"] == 0
    kept.wait_for_end()
    assert "lost" not in kept.names()
    answer = waiter.answer()
    assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
    assert waiter.ended - released.at < 1.5, "it had to wait for the lease to run out"
    events = eventually(lambda: (found := other.api.history(resource=resource, event="lease_released")) and found, what="the release is in the history")
    assert events[0]["owner"] == "keeper"
    other.api.give_back(answer.json())
    assert other.stop() == 0


def test_kept_lease_when_max_renewals_are_over_then_it_goes_on(cluster: Cluster, resource: str) -> None:
    """Time alone bounds it; the count is for POST …/renew."""
    gateway = cluster.gateway(cluster.settings(max_renewals=2))
    gateway.start()
    with keep(gateway.api, resource, ttl_ms=600) as kept:
        eventually(lambda: kept.names().count("renewed") >= 4, 8, what="four renewals")
        assert "released" not in kept.names()
        assert kept.events[-1].data["renewals_left"] == 0
        expect_problem(gateway.api.renew(kept.events[0].data, ttl_ms=600), 409, "renewals-exhausted")
    assert gateway.stop() == 0


def test_kept_lease_when_max_hold_is_over_then_released_then(here: Api, there: Api, resource: str) -> None:
    with keep(here, resource, ttl_ms=900, max_hold_ms=2_000) as kept:
        first = kept.granted()
        assert first["max_hold_ms"] == 2_000 and 1_500 < first["hold_left_ms"] <= 2_000
        released = kept.next("released", 8)
        assert "max_hold" in released.data["reason"] and released.data["hold_left_ms"] == 0
        assert 1.6 < released.at - kept.events[0].at < 3
        lefts = [event.data["hold_left_ms"] for event in kept.events]
        assert lefts == sorted(lefts, reverse=True) and kept.names().count("renewed") >= 4
        kept.wait_for_end()
    assert is_free(there, resource)


def test_max_hold_when_it_can_not_be_honoured_then_400(here: Api, resource: str) -> None:
    for body, accept in (({"max_hold_ms": 86_400_001}, "text/event-stream"), ({"max_hold_ms": 99}, "text/event-stream"),
                         ({"max_hold_ms": "1"}, "text/event-stream"), ({"max_hold_ms": 5_000}, "application/json")):
        answer = here.call("POST", "/v1/leases", {"resource": resource, **body}, {"Accept": accept})
        assert pointers_of(answer) == ["/max_hold_ms"]
    assert here.renew(lease := here.take(resource)).json()["max_hold_ms"] == 86_400_000
    here.give_back(lease)


def test_hold_when_as_long_as_allowed_then_released_with_the_reason(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_hold_ms=2_000))
    gateway.start()
    kept = keep(gateway.api, resource, ttl_ms=900)
    released = kept.next("released", 8)
    assert "max_hold" in released.data["reason"]
    kept.wait_for_end()
    assert is_free(gateway.api, resource)
    assert gateway.stop() == 0


def test_reader_when_it_takes_nothing_then_the_lease_is_kept_and_the_end_is_still_told(cluster: Cluster, keeper: Gateway, resource: str) -> None:
    """Events that nobody reads fill the buffers of the connection, not the gateway's time."""
    body = json.dumps({"resource": resource, "ttl_ms": 150}).encode()
    with Wire(keeper.api.host, keeper.api.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(request("POST", "/v1/leases", body, "Accept: text/event-stream"))
        let_pass(1.5, "as many events as fill the buffers")
        expect_problem(keeper.api.ask(resource), 423, "resource-locked")
        assert wire._more() and b"event: granted" in wire.buffer
        keeper.api.give_back(json.loads(wire.buffer.split(b"data: ")[1].split(b"\n")[0]))
        eventually(lambda: b"event: lost" in wire.buffer or not wire._more(), 5, what="the end")
        assert b"event: lost" in wire.buffer


def test_nodes_when_a_majority_is_silent_then_lost_when_the_validity_is_over_and_not_later(guarded_pair: Stack, here: Api, resource: str) -> None:
    guarded_pair.wait_until_whole()
    with keep(here, resource, ttl_ms=1_200) as kept:
        kept.next("renewed")
        with guarded_pair.frozen(guarded_pair.node_pids()[:3]):
            told = kept.events[-1]
            lost = kept.next("lost", 6)
            assert lost.at - told.at < 1.2 + 0.7, "its caller went on believing that it holds it"
            assert lost.data["reason"]
            kept.wait_for_end()
    guarded_pair.wait_until_whole()
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), what="no key of it is left")


def test_nodes_when_a_minority_is_silent_then_kept_all_the_same(guarded_pair: Stack, here: Api, resource: str) -> None:
    guarded_pair.wait_until_whole()

    def on_all_five() -> EventStream | None:
        """Counters may disagree at first: then a grant has its token on a majority and no more."""
        kept = keep(here, resource, ttl_ms=900, wait_ms=5_000)
        token = str(kept.granted()["fencing_token"])
        try:
            eventually(lambda: all(token in (node.get(f"fg:lease:{resource}") or "") for node in guarded_pair.nodes()), 0.3)
            return kept
        except NotInTime:
            kept.hang_up()
            return None

    with eventually(on_all_five, 15, what="a lease on all five") as kept:
        kept.next("renewed")
        with guarded_pair.frozen(guarded_pair.node_pids()[:2]):
            count = kept.names().count("renewed")
            eventually(lambda: kept.names().count("renewed") >= count + 4, 8, what="it is renewed by the others")
        assert "lost" not in kept.names()
    guarded_pair.wait_until_whole()
