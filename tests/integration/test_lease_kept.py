"""Kept leases: POST /v1/leases over text/event-stream; the gateway renews the lease while the connection is open."""

from __future__ import annotations

import json
import socket
import time
from typing import Callable

import pytest
from support.api import Api, expect_problem, lease_path, pointers_of
from support.events import EventStream, is_free, open_kept_lease
from support.polling import eventually, pause, remains
from support.shop import create_sku
from support.stack import Stack, lease_keys
from support.wire import Wire, request

LEASE_MEMBERS = set(
    "lease_id fencing_token owner hold_count ttl_ms validity_ms served_ms expires_at renewals_left quorum".split()
)
RELEASED_WITHIN = 1.0  # seconds from a disconnect to the release; the gateway checks every 50 ms


# Events


def test_kept_lease_first_event_has_lease(api_a: Api, resource: str) -> None:
    with open_kept_lease(api_a, resource, owner="keeper", ttl_ms=10_000) as kept:
        lease = kept.wait_for_grant()
        assert set(lease) == LEASE_MEMBERS | {"resource", "max_hold_ms", "hold_left_ms"}
        assert lease["max_hold_ms"] == 86_400_000 and 0 <= 86_400_000 - lease["hold_left_ms"] < 5_000
        assert (lease["resource"], lease["owner"], lease["hold_count"], lease["ttl_ms"]) == (
            resource,
            "keeper",
            1,
            10_000,
        )
        assert 8_000 < lease["validity_ms"] <= 9_898
        assert kept.head is not None and kept.head.status == 200
        assert (kept.head.headers["Cache-Control"], kept.head.headers["X-Accel-Buffering"]) == ("no-store", "no")
        assert kept.head.headers["Location"] == lease_path(lease)
        assert api_a.read_lease(lease).json()["fencing_token"] == lease["fencing_token"]


def test_kept_lease_is_renewed_every_third_of_ttl(api_a: Api, resource: str) -> None:
    with open_kept_lease(api_a, resource, ttl_ms=3_000) as kept:
        first = kept.wait_for_grant()
        eventually(lambda: kept.names().count("renewed") >= 2, 20, goal="two renewals")
        renewed = [event for event in kept.events if event.name == "renewed"]
        gaps = sorted(after.received_at - before.received_at for before, after in zip(kept.events, kept.events[1:]))
        assert 0.8 < gaps[0] < 2.0, gaps
        for count, event in enumerate(renewed, 1):
            assert set(event.data) == set(first)
            assert (event.data["lease_id"], event.data["fencing_token"]) == (first["lease_id"], first["fencing_token"])
            assert event.data["renewals_left"] == first["renewals_left"] - count
            assert 0 < event.data["validity_ms"] < 3_000
        expect_problem(api_a.acquire(resource), 423, "resource-locked")


def test_kept_lease_on_several_resources_keeps_all(api_a: Api, api_b: Api, unique_name: Callable[[str], str]) -> None:
    names = sorted(unique_name("test/kept") for _ in range(3))
    with EventStream(api_a, {"resources": names, "ttl_ms": 2_000}) as kept:
        assert sorted(kept.wait_for_grant()["resources"]) == names
        kept.wait_for("renewed")
        pause(2, "the ttl")
        for name in names:
            expect_problem(api_b.acquire(name), 423, "resource-locked")
    for name in names:
        eventually(lambda: is_free(api_b, name), RELEASED_WITHIN + 4, goal="free again")


def test_kept_lease_writes_like_any_lease(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str]
) -> None:
    goods = create_sku(guarded_pair, unique_name("sku-kept"), 10)
    with open_kept_lease(api_a, goods.resource, ttl_ms=2_000, fence_on_grant=True) as kept:
        lease = kept.wait_for_grant()
        for api in (api_a, api_b):
            pause(1.2, "more than half of the ttl")
            api.must_write(lease, goods.sell(), require_live=True)
    assert goods.stock() == 8


# End of a kept lease


def test_kept_lease_of_disconnected_caller_is_released(
    guarded_pair: Stack, api_a: Api, api_b: Api, resource: str
) -> None:
    kept = open_kept_lease(api_a, resource, ttl_ms=30_000)
    lease = kept.wait_for_grant()
    kept.disconnect()
    hung_up = time.monotonic()
    eventually(lambda: api_b.read_lease(lease).status == 410, 5, goal="it is released")
    assert time.monotonic() - hung_up < RELEASED_WITHIN + 0.5
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), 2, goal="no key of it is left on any node")
    assert api_b.must_acquire(resource)["fencing_token"] > lease["fencing_token"]


def test_kept_lease_of_half_closed_connection_is_released(api_a: Api, resource: str) -> None:
    kept = open_kept_lease(api_a, resource, ttl_ms=30_000)
    lease = kept.wait_for_grant()
    kept.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: api_a.read_lease(lease).status == 410, 5, goal="it is released")
    kept.disconnect()


def test_kept_lease_of_caller_disconnected_at_grant_is_released(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    names = [unique_name("test/kept-gone") for _ in range(20)]
    for number, name in enumerate(names):
        kept = open_kept_lease(api_a, name, ttl_ms=30_000)
        pause(0.0007 * number, "the caller disconnects at different moments")
        kept.disconnect()
    nodes = guarded_pair.nodes()
    eventually(lambda: not [name for name in names if lease_keys(nodes, name)], 5, goal="no key of any of them is left")


@pytest.mark.parametrize("at", ["same", "other"])
def test_kept_lease_revoked_sends_lost_at_once(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str], at: str
) -> None:
    goods = create_sku(guarded_pair, unique_name("sku-kept"), 10)
    with open_kept_lease(api_a, goods.resource, ttl_ms=30_000) as kept:
        lease = kept.wait_for_grant()
        operator = api_a if at == "same" else api_b
        revoked = time.monotonic()
        operator.must_revoke(goods.resource)
        lost = kept.wait_for("lost", 5)
        assert lost.received_at - revoked < 5, "it was not notified but found out at its next renewal"
        assert lost.data["lease_id"] == lease["lease_id"] and lost.data["validity_ms"] == 0
        assert lost.data["reason"]
        kept.wait_for_end()
        assert kept.names() == ["granted", "lost"]
        expect_problem(api_a.write(lease, goods.sell()), 412, "stale-fencing-token")
        assert is_free(api_b, goods.resource)


@pytest.mark.parametrize("at", ["same", "other"])
def test_kept_lease_released_by_another_call_sends_lost(api_a: Api, api_b: Api, resource: str, at: str) -> None:
    with open_kept_lease(api_a, resource, ttl_ms=30_000) as kept:
        lease = kept.wait_for_grant()
        released = time.monotonic()
        (api_a if at == "same" else api_b).must_release(lease)
        lost = kept.wait_for("lost", 5)
        assert lost.received_at - released < 5, "its next renewal is after 10 s"
        kept.wait_for_end()


def test_kept_lease_ended_connection_serves_next_request(api_a: Api, resource: str) -> None:
    kept = open_kept_lease(api_a, resource, ttl_ms=30_000)
    api_a.must_release(kept.wait_for_grant())
    kept.wait_for_end()
    assert kept.names() == ["granted", "lost"]
    assert kept.connection.call("GET", "/healthz").status == 200
    kept.connection.close()


def test_kept_lease_pipelined_request_is_answered_after_end(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 2_000}).encode()
    authorization = f"Authorization: Bearer {guarded_pair.key('admin')}"
    with Wire(api_a.host, api_a.port) as wire:
        wire.send(
            request("POST", "/v1/leases", body, "Accept: text/event-stream", authorization) + request("GET", "/healthz")
        )
        eventually(
            lambda: wire.read_more() and b"event: renewed" in wire.buffer,
            5,
            goal="it is kept although another request is pipelined",
        )
        lease = json.loads(wire.buffer.split(b"data: ")[1].split(b"\n")[0])
        api_a.must_release(lease)
        eventually(
            lambda: b'"status":"ok"' in wire.buffer.replace(b" ", b"") or not wire.read_more(),
            5,
            goal="the next answer",
        )
        end, _, rest = wire.buffer.partition(b"0\r\n\r\n")
        assert b"event: lost" in end and rest.startswith(b"HTTP/1.1 200"), wire.buffer


def test_kept_lease_over_http_1_0_sends_events_until_close(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 2_000}).encode()
    authorization = f"Authorization: Bearer {guarded_pair.key('admin')}"
    with Wire(api_a.host, api_a.port) as wire:
        wire.send(
            request("POST", "/v1/leases", body, "Accept: text/event-stream", authorization).replace(
                b"HTTP/1.1", b"HTTP/1.0"
            )
        )
        eventually(lambda: wire.read_more() and b"event: renewed" in wire.buffer, 5, goal="a renewal")
        head, _, events = wire.buffer.partition(b"\r\n\r\n")
        assert b"chunked" not in head.lower() and b"content-length" not in head.lower()
        assert events.startswith(b"event: granted\ndata: {")
        api_a.must_release(json.loads(events.split(b"data: ")[1].split(b"\n")[0]))
        while wire.read_more():
            pass
        assert wire.buffer.endswith(b"\n\n") and b"event: lost" in wire.buffer


# Waiting for a kept lease


def test_kept_lease_of_held_resource_waits_and_is_granted(api_a: Api, api_b: Api, resource: str) -> None:
    for holder in (api_a, api_b):
        held = holder.must_acquire(resource)
        with open_kept_lease(api_a, resource, ttl_ms=10_000, wait_ms=10_000) as kept:
            remains(lambda: not kept.events and kept.head is None, 0.3, goal="no event comes before the grant")
            holder.must_release(held)
            assert kept.wait_for_grant(5)["fencing_token"] > held["fencing_token"]
        eventually(lambda: is_free(api_a, resource), RELEASED_WITHIN + 4, goal="free again")


def test_kept_lease_not_granted_answers_problem(api_a: Api, resource: str) -> None:
    api_a.must_acquire(resource)
    for wait_ms in (0, 200):
        kept = open_kept_lease(api_a, resource, wait_ms=wait_ms)
        kept.wait_for_end()
        assert kept.refused is not None
        expect_problem(kept.refused, 423, "resource-locked")


def test_kept_lease_of_disconnected_waiter_is_not_granted(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    held = api_a.must_acquire(resource)
    kept = open_kept_lease(api_a, resource, wait_ms=20_000)
    api_a.await_waiters(resource, 1)
    kept.disconnect()
    api_a.await_waiters(resource, 0)
    api_a.must_release(held)
    remains(
        lambda: not lease_keys(guarded_pair.nodes(), resource), 0.5, goal="it is not granted to the disconnected waiter"
    )


# Requests


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/event-stream", "text/event-stream"),
        ("TEXT/Event-Stream", "text/event-stream"),
        ("text/event-stream;q=0.5, */*;q=0.1", "text/event-stream"),
        ("text/*", "text/event-stream"),
        ("application/json, text/event-stream", "application/json"),
        ("*/*", "application/json"),
        ("application/json;q=0.1, text/event-stream;q=0.2", "text/event-stream"),
        ("text/event-stream;q=0, */*", "application/json"),
        ("", "application/json"),
    ],
)
def test_accept_of_both_types_chooses_preferred(api_a: Api, resource: str, accept: str, kind: str) -> None:
    with api_a.connection() as connection:
        connection.send("POST", "/v1/leases", {"resource": resource}, {"Accept": accept})
        head = connection.wire.getresponse()
        assert head.headers.get_content_type() == kind


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream;q=0, application/json;q=0", "application/xml"])
def test_accept_of_neither_type_406_and_no_lease(api_a: Api, resource: str, accept: str) -> None:
    expect_problem(api_a.post("/v1/leases", {"resource": resource}, {"Accept": accept}), 406, "not-acceptable")
    assert api_a.acquire(resource).status == 201


def test_kept_lease_with_wrong_body_400_as_json(api_a: Api) -> None:
    assert pointers_of(
        api_a.post("/v1/leases", {"resource": "a//b", "ttl_ms": 1}, {"Accept": "text/event-stream"})
    ) == ["/resource", "/ttl_ms"]


def test_kept_lease_of_holder_adds_hold_until_stream_ends(api_a: Api, api_b: Api, resource: str) -> None:
    held = api_a.must_acquire(resource, owner="same")
    for api in (api_a, api_b):
        with open_kept_lease(api, resource, owner="same", ttl_ms=20_000) as kept:
            lease = kept.wait_for_grant(5)
            assert (lease["fencing_token"], lease["hold_count"]) == (held["fencing_token"], 2)
        eventually(lambda: api_a.read_lease(held).json()["hold_count"] == 1, 5, goal="the hold is released")
    api_a.must_release(held)


def test_kept_lease_opened_twice_has_hold_for_each_stream(api_a: Api, api_b: Api, resource: str) -> None:
    first = open_kept_lease(api_a, resource, owner="same", ttl_ms=3_000)
    lease = first.wait_for_grant()
    second = open_kept_lease(api_b, resource, owner="same", ttl_ms=3_000)
    held = second.wait_for_grant(5)
    assert (held["fencing_token"], held["hold_count"]) == (lease["fencing_token"], 2)
    first.disconnect()
    eventually(lambda: api_b.read_lease(held).json()["hold_count"] == 1, 5, goal="one hold is released")
    count = second.names().count("renewed")
    eventually(lambda: second.names().count("renewed") > count, goal="renewals of the other stream continue")
    second.disconnect()
    eventually(lambda: is_free(api_a, resource), RELEASED_WITHIN + 4, goal="free with the last hold")


def test_kept_lease_with_repeated_key_has_hold_of_its_own(api_a: Api, api_b: Api, resource: str) -> None:
    """A caller that lost the answer repeats the request: the end of the first stream must not end the second one."""
    key = {"Idempotency-Key": resource}
    first = open_kept_lease(api_a, resource, key, ttl_ms=3_000)
    lease = first.wait_for_grant()
    assert first.head is not None and first.head.headers["Idempotency-Replayed"] is None
    for api in (api_a, api_b):
        with open_kept_lease(api, resource, key, ttl_ms=3_000) as again:
            granted = again.wait_for_grant(5)
            assert (granted["fencing_token"], granted["hold_count"]) == (lease["fencing_token"], 2)
            assert again.head is not None and again.head.headers["Idempotency-Replayed"] == "true"
        eventually(lambda: api_a.read_lease(lease).json()["hold_count"] == 1, 5, goal="the hold is released")
    second = open_kept_lease(api_b, resource, key, ttl_ms=3_000)
    held = second.wait_for_grant(5)
    first.disconnect()
    eventually(
        lambda: api_b.read_lease(held).json()["hold_count"] == 1, 5, goal="the hold of the first stream is released"
    )
    count = second.names().count("renewed")
    eventually(lambda: second.names().count("renewed") > count, goal="renewals of the second stream continue")
    second.disconnect()
    eventually(lambda: is_free(api_a, resource), RELEASED_WITHIN + 4, goal="free with the last hold")


def test_key_used_for_stream_and_plain_lease_422(api_a: Api, api_b: Api, resource: str) -> None:
    key = {"Idempotency-Key": resource}
    body = {"resource": resource, "ttl_ms": 20_000}
    lease = api_a.post("/v1/leases", body, key).json()
    for api in (api_a, api_b):
        expect_problem(
            api.post("/v1/leases", body, {**key, "Accept": "text/event-stream"}), 422, "idempotency-mismatch"
        )
    api_a.must_release(lease)
