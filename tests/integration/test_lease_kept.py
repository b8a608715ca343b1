"""Kept leases: POST /v1/leases over text/event-stream, which the gateway renews for as long as its caller listens."""

from __future__ import annotations

import json
import socket
import time
from typing import Callable

import pytest
from support.api import Api, expect_problem, lease_path, pointers_of
from support.events import EventStream, is_free, keep
from support.polling import eventually, let_pass, stays
from support.shop import stock_up
from support.stack import Stack, lease_keys
from support.wire import Wire, request

LEASE_MEMBERS = {"lease_id", "fencing_token", "owner", "hold_count", "ttl_ms", "validity_ms", "served_ms", "expires_at", "renewals_left", "quorum"}
HUNG_UP_WITHIN = 1.0  # what a caller that hangs up may leave the resource locked for; the gateway looks every 50 ms


# what comes


def test_kept_lease_when_granted_then_the_first_event_has_the_lease(here: Api, resource: str) -> None:
    with keep(here, resource, owner="keeper", ttl_ms=10_000) as kept:
        lease = kept.granted()
        assert set(lease) == LEASE_MEMBERS | {"resource", "max_hold_ms", "hold_left_ms"}
        assert lease["max_hold_ms"] == 86_400_000 and 0 <= 86_400_000 - lease["hold_left_ms"] < 5_000
        assert (lease["resource"], lease["owner"], lease["hold_count"], lease["ttl_ms"]) == (resource, "keeper", 1, 10_000)
        assert 8_000 < lease["validity_ms"] <= 9_898
        assert kept.head is not None and kept.head.status == 200
        assert kept.head.headers["Cache-Control"] == "no-store"
        assert kept.head.headers["Location"] == lease_path(lease)
        assert here.look(lease).json()["fencing_token"] == lease["fencing_token"]


def test_kept_lease_when_time_passes_then_renewed_every_third_of_its_ttl(here: Api, resource: str) -> None:
    with keep(here, resource, ttl_ms=900) as kept:
        first = kept.granted()
        eventually(lambda: kept.names().count("renewed") >= 5, 8, what="five renewals")
        renewed = [event for event in kept.events if event.name == "renewed"]
        gaps = sorted(after.at - before.at for before, after in zip(kept.events, kept.events[1:]))
        assert 0.25 < gaps[len(gaps) // 2] < 0.6, gaps
        for count, event in enumerate(renewed, 1):
            assert set(event.data) == set(first)
            assert (event.data["lease_id"], event.data["fencing_token"]) == (first["lease_id"], first["fencing_token"])
            assert event.data["renewals_left"] == first["renewals_left"] - count
            assert 0 < event.data["validity_ms"] < 900
        expect_problem(here.ask(resource), 423, "resource-locked")


def test_kept_lease_when_it_has_several_resources_then_all_are_kept(here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    names = sorted(fresh("test/kept") for _ in range(3))
    with EventStream(here, {"resources": names, "ttl_ms": 600}) as kept:
        assert sorted(kept.granted()["resources"]) == names
        kept.next("renewed")
        let_pass(0.6, "the ttl")
        for name in names:
            expect_problem(there.ask(name), 423, "resource-locked")
    for name in names:
        eventually(lambda: is_free(there, name), HUNG_UP_WITHIN + 4, what="free again")


def test_kept_lease_when_it_writes_then_as_with_any_lease(guarded_pair: Stack, here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    goods = stock_up(guarded_pair, fresh("sku-kept"), 10)
    with keep(here, goods.resource, ttl_ms=600, fence_on_grant=True) as kept:
        lease = kept.granted()
        for api in (here, there):
            api.wrote(lease, goods.sell(), require_live=True)
            let_pass(0.5, "most of the ttl")
    assert goods.stock() == 8


# how it ends


def test_caller_when_it_hangs_up_then_released_within_a_second(guarded_pair: Stack, here: Api, there: Api, resource: str) -> None:
    kept = keep(here, resource, ttl_ms=30_000)
    lease = kept.granted()
    kept.hang_up()
    hung_up = time.monotonic()
    eventually(lambda: there.look(lease).status == 410, 5, what="it is released")
    assert time.monotonic() - hung_up < HUNG_UP_WITHIN + 0.5
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), 2, what="no key of it is left on any node")
    assert there.take(resource)["fencing_token"] > lease["fencing_token"]


def test_caller_when_it_only_closes_its_side_then_that_counts_as_hanging_up(here: Api, resource: str) -> None:
    kept = keep(here, resource, ttl_ms=30_000)
    lease = kept.granted()
    kept.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: here.look(lease).status == 410, 5, what="it is released")
    kept.hang_up()


def test_caller_when_it_hangs_up_while_another_waits_then_that_one_has_it(here: Api, there: Api, resource: str) -> None:
    for waiter in (here, there):
        kept = keep(here, resource, ttl_ms=30_000)
        lease = kept.granted()
        call = waiter.begin_ask(resource, wait_ms=10_000, ttl_ms=10_000)
        waiter.await_waiters(resource, 1)
        hung_up = kept.hang_up()
        answer = call.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        assert call.ended - hung_up < 5, "it had to wait for the lease to run out"
        waiter.give_back(answer.json())


def test_caller_when_it_hangs_up_in_the_moment_of_the_grant_then_nothing_stays(guarded_pair: Stack, here: Api, fresh: Callable[[str], str]) -> None:
    names = [fresh("test/kept-gone") for _ in range(20)]
    for number, name in enumerate(names):
        kept = keep(here, name, ttl_ms=30_000)
        let_pass(0.0007 * number, "the moment is what is tested")
        kept.hang_up()
    nodes = guarded_pair.nodes()
    eventually(lambda: not [name for name in names if lease_keys(nodes, name)], 5, what="no key of any of them is left")


@pytest.mark.parametrize("at", ["same", "other"])
def test_operator_when_it_revokes_then_lost_comes_at_once(guarded_pair: Stack, here: Api, there: Api, fresh: Callable[[str], str], at: str) -> None:
    goods = stock_up(guarded_pair, fresh("sku-kept"), 10)
    with keep(here, goods.resource, ttl_ms=30_000) as kept:
        lease = kept.granted()
        operator = here if at == "same" else there
        revoked = time.monotonic()
        assert operator.call("DELETE", f"/v1/resources/{goods.resource.replace('/', '%2F')}/lease", {"reason": "stuck"}).status == 204
        lost = kept.next("lost", 5)
        assert lost.at - revoked < 5, "it was not told, but found out at its next renewal"
        assert lost.data["lease_id"] == lease["lease_id"] and lost.data["validity_ms"] == 0
        assert lost.data["reason"]
        kept.wait_for_end()
        assert kept.names() == ["granted", "lost"]
        expect_problem(here.write(lease, goods.sell()), 412, "stale-fencing-token")
        assert is_free(there, goods.resource)


@pytest.mark.parametrize("at", ["same", "other"])
def test_kept_lease_when_somebody_releases_it_then_lost(here: Api, there: Api, resource: str, at: str) -> None:
    with keep(here, resource, ttl_ms=30_000) as kept:
        lease = kept.granted()
        released = time.monotonic()
        (here if at == "same" else there).give_back(lease)
        lost = kept.next("lost", 5)
        assert lost.at - released < 5, "its next renewal is after 10 s"
        kept.wait_for_end()


def test_stream_when_it_has_ended_then_the_connection_serves_the_next_request(here: Api, resource: str) -> None:
    kept = keep(here, resource, ttl_ms=30_000)
    here.give_back(kept.granted())
    kept.wait_for_end()
    assert kept.names() == ["granted", "lost"]
    assert kept.connection.call("GET", "/healthz").status == 200
    kept.connection.close()


def test_request_when_sent_behind_the_stream_then_answered_after_its_end(guarded_pair: Stack, here: Api, resource: str) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 600}).encode()
    authorization = f"Authorization: Bearer {guarded_pair.key('admin')}"
    with Wire(here.host, here.port) as wire:
        wire.send(request("POST", "/v1/leases", body, "Accept: text/event-stream", authorization) + request("GET", "/healthz"))
        eventually(lambda: wire._more() and b"event: renewed" in wire.buffer, 5, what="it is kept although something is behind it")
        lease = json.loads(wire.buffer.split(b"data: ")[1].split(b"\n")[0])
        here.give_back(lease)
        eventually(lambda: b'"status":"ok"' in wire.buffer.replace(b" ", b"") or not wire._more(), 5, what="the next answer")
        end, _, rest = wire.buffer.partition(b"0\r\n\r\n")
        assert b"event: lost" in end and rest.startswith(b"HTTP/1.1 200"), wire.buffer


def test_client_of_http_1_0_when_it_keeps_a_lease_then_bare_events_until_the_end_of_the_connection(guarded_pair: Stack, here: Api, resource: str) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 600}).encode()
    authorization = f"Authorization: Bearer {guarded_pair.key('admin')}"
    with Wire(here.host, here.port) as wire:
        wire.send(request("POST", "/v1/leases", body, "Accept: text/event-stream", authorization).replace(b"HTTP/1.1", b"HTTP/1.0"))
        eventually(lambda: wire._more() and b"event: renewed" in wire.buffer, 5, what="a renewal")
        head, _, events = wire.buffer.partition(b"\r\n\r\n")
        assert b"chunked" not in head.lower() and b"content-length" not in head.lower()
        assert events.startswith(b"event: granted\ndata: {")
        here.give_back(json.loads(events.split(b"data: ")[1].split(b"\n")[0]))
        while wire._more():
            pass
        assert wire.buffer.endswith(b"\n\n") and b"event: lost" in wire.buffer


# waiting for it


def test_kept_lease_when_the_resource_is_held_then_it_waits_and_is_granted(here: Api, there: Api, resource: str) -> None:
    for holder in (here, there):
        held = holder.take(resource)
        with keep(here, resource, ttl_ms=10_000, wait_ms=10_000) as kept:
            stays(lambda: not kept.events and kept.head is None, 0.3, what="nothing comes before the grant")
            holder.give_back(held)
            assert kept.granted(5)["fencing_token"] > held["fencing_token"]
        eventually(lambda: is_free(here, resource), HUNG_UP_WITHIN + 4, what="free again")


def test_kept_lease_when_not_granted_then_a_problem_and_no_stream(here: Api, resource: str) -> None:
    here.take(resource)
    for wait_ms in (0, 200):
        kept = keep(here, resource, wait_ms=wait_ms)
        kept.wait_for_end()
        assert kept.refused is not None
        expect_problem(kept.refused, 423, "resource-locked")


def test_caller_when_it_hangs_up_while_waiting_for_a_kept_lease_then_nothing_stays(guarded_pair: Stack, here: Api, resource: str) -> None:
    held = here.take(resource)
    kept = keep(here, resource, wait_ms=20_000)
    here.await_waiters(resource, 1)
    kept.hang_up()
    here.await_waiters(resource, 0)
    here.give_back(held)
    stays(lambda: not lease_keys(guarded_pair.nodes(), resource), 0.5, what="nobody takes it")


# who asks how


@pytest.mark.parametrize(("accept", "kind"), [
    ("text/event-stream", "text/event-stream"), ("TEXT/Event-Stream", "text/event-stream"), ("text/event-stream;q=0.5, */*;q=0.1", "text/event-stream"),
    ("text/*", "text/event-stream"), ("application/json, text/event-stream", "application/json"), ("*/*", "application/json"),
    ("application/json;q=0.1, text/event-stream;q=0.2", "text/event-stream"), ("text/event-stream;q=0, */*", "application/json"), ("", "application/json")])
def test_accept_when_it_names_both_or_one_then_what_it_prefers(here: Api, resource: str, accept: str, kind: str) -> None:
    with here.connection() as connection:
        connection.send("POST", "/v1/leases", {"resource": resource}, {"Accept": accept})
        head = connection.wire.getresponse()
        assert head.headers.get_content_type() == kind


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream;q=0, application/json;q=0", "application/xml"])
def test_accept_when_it_allows_neither_then_406_and_no_lease(here: Api, resource: str, accept: str) -> None:
    expect_problem(here.call("POST", "/v1/leases", {"resource": resource}, {"Accept": accept}), 406, "not-acceptable")
    assert here.ask(resource).status == 201


def test_body_when_wrong_then_400_as_json_also_for_a_stream(here: Api) -> None:
    assert pointers_of(here.call("POST", "/v1/leases", {"resource": "a//b", "ttl_ms": 1}, {"Accept": "text/event-stream"})) == ["/resource", "/ttl_ms"]


def test_owner_when_it_keeps_what_it_holds_then_one_hold_more_which_the_end_of_the_stream_gives_back(here: Api, there: Api, resource: str) -> None:
    held = here.take(resource, owner="same")
    for api in (here, there):
        with keep(api, resource, owner="same", ttl_ms=20_000) as kept:
            lease = kept.granted(5)
            assert (lease["fencing_token"], lease["hold_count"]) == (held["fencing_token"], 2)
        eventually(lambda: here.look(held).json()["hold_count"] == 1, 5, what="the hold is given back")
    here.give_back(held)


def test_owner_when_it_takes_what_it_keeps_then_the_stream_goes_on_after_the_release(here: Api, there: Api, resource: str) -> None:
    with keep(here, resource, owner="same", ttl_ms=900) as kept:
        lease = kept.granted()
        for api in (here, there):
            taken = api.ask(resource, owner="same", ttl_ms=900).json()
            assert taken["hold_count"] == 2
            assert api.release(taken).json()["hold_count"] == 1
        count = kept.names().count("renewed")
        eventually(lambda: kept.names().count("renewed") > count, 5, what="it goes on")
        assert "lost" not in kept.names()


def test_owner_when_it_keeps_twice_then_each_stream_has_its_hold(here: Api, there: Api, resource: str) -> None:
    first = keep(here, resource, owner="same", ttl_ms=900)
    lease = first.granted()
    second = keep(there, resource, owner="same", ttl_ms=900)
    held = second.granted(5)
    assert (held["fencing_token"], held["hold_count"]) == (lease["fencing_token"], 2)
    first.hang_up()
    eventually(lambda: there.look(held).json()["hold_count"] == 1, 5, what="one hold is given back")
    count = second.names().count("renewed")
    eventually(lambda: second.names().count("renewed") > count + 1, 5, what="the other goes on")
    second.hang_up()
    eventually(lambda: is_free(here, resource), HUNG_UP_WITHIN + 4, what="free with the last hold")


def test_key_when_a_kept_lease_is_asked_for_again_then_the_same_lease_and_a_hold_of_its_own(here: Api, there: Api, resource: str) -> None:
    """The answer was lost, the caller asks again: the end of the first stream, which may long be dead, must not end the second."""
    key = {"Idempotency-Key": resource}
    first = keep(here, resource, key, ttl_ms=900)
    lease = first.granted()
    assert first.head is not None and first.head.headers["Idempotency-Replayed"] is None
    for api in (here, there):
        with keep(api, resource, key, ttl_ms=900) as again:
            granted = again.granted(5)
            assert (granted["fencing_token"], granted["hold_count"]) == (lease["fencing_token"], 2)
            assert again.head is not None and again.head.headers["Idempotency-Replayed"] == "true"
        eventually(lambda: here.look(lease).json()["hold_count"] == 1, 5, what="the hold is given back")
    second = keep(there, resource, key, ttl_ms=900)
    held = second.granted(5)
    first.hang_up()
    eventually(lambda: there.look(held).json()["hold_count"] == 1, 5, what="the first one's hold is given back")
    count = second.names().count("renewed")
    eventually(lambda: second.names().count("renewed") > count + 1, 5, what="the second goes on")
    second.hang_up()
    eventually(lambda: is_free(here, resource), HUNG_UP_WITHIN + 4, what="free with the last hold")


def test_key_when_used_for_a_stream_and_for_a_lease_of_its_own_then_another_request(here: Api, there: Api, resource: str) -> None:
    key = {"Idempotency-Key": resource}
    body = {"resource": resource, "ttl_ms": 20_000}
    lease = here.call("POST", "/v1/leases", body, key).json()
    for api in (here, there):
        expect_problem(api.call("POST", "/v1/leases", body, {**key, "Accept": "text/event-stream"}), 422, "idempotency-mismatch")
    here.give_back(lease)
