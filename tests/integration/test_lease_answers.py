"""An answer with a lease is sent while the lease is valid,
or reports it lost: gateways suspended between grant and answer."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Iterator

import pytest
from support import processes
from support.api import Api
from support.cluster import Cluster, Gateway
from support.events import EventStream
from support.polling import pause
from support.stack import lease_keys
from support.wire import Wire, request

TTL_MS = 150
STOPPED = 0.4  # seconds: longer than any of these leases
ROUNDS_MIN, ROUNDS, CALLERS = 8, 25, 48


@pytest.fixture(scope="module")
def threaded_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with four threads, so that one grants a lease and another answers."""
    settings = cluster.settings()
    settings["http"]["threads"] = 4
    with cluster.serving(settings) as gateway:
        yield gateway


@dataclass
class Caller:
    wire: Wire
    sent_at: float = 0.0


def readable(sockets: list[socket.socket], timeout: float) -> list[socket.socket]:
    return select.select(sockets, [], [], timeout)[0]


def stop_during_burst(
    gateway: Gateway, callers: list[Caller], requests: list[bytes], delay: float
) -> tuple[list[tuple[Caller, int, dict]], float]:
    """Suspends the gateway while it answers.
    Returns the answers that came after it was resumed, and the time of that."""
    for caller, text in zip(callers, requests):
        caller.sent_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        caller.wire.send(text)
    until = time.perf_counter() + delay
    while time.perf_counter() < until:
        pass
    processes.signal_all([gateway.pid], signal.SIGSTOP)
    pause(STOPPED, "the gateway is suspended for longer than the leases last")
    early = set(readable([caller.wire.socket for caller in callers], 0))
    resumed = time.time()
    os.kill(gateway.pid, signal.SIGCONT)
    late = []
    for caller in callers:
        was_late = caller.wire.socket not in early
        answer = caller.wire.receive()
        if was_late:
            late.append((caller, answer.status, json.loads(answer.body)))
    return late, resumed


def receive_grant(caller: Caller, asked: bytes) -> dict:
    """Returns the lease that was requested; repeats the request while too few nodes answer in time,
    or the answer comes after the lease."""
    for _ in range(50):
        answer = caller.wire.receive()
        if answer.status == 201:
            return json.loads(answer.body)
        assert answer.status in (410, 503), answer
        caller.wire.send(asked)
    raise AssertionError("too few nodes answered in time in all of 50 attempts")


def ends_at(lease: dict) -> float:
    return dt.datetime.fromisoformat(lease["expires_at"].replace("Z", "+00:00")).timestamp()


@pytest.mark.parametrize("kind", ["acquire", "renew", "show"])
def test_answer_after_gateway_pause_410_not_expired_lease(threaded_gateway: Gateway, kind: str) -> None:
    callers = [Caller(Wire(threaded_gateway.api.host, threaded_gateway.api.port, 30)) for _ in range(CALLERS)]
    too_late, lost = 0, 0
    for number in range(ROUNDS):
        names = [f"test/{kind}-{number}-{caller}" for caller in range(CALLERS)]
        if kind == "acquire":
            requests = [
                request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": TTL_MS}).encode())
                for name in names
            ]
        else:
            asked = [
                request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": 100 + TTL_MS}).encode())
                for name in names
            ]
            for caller, text in zip(callers, asked):
                caller.wire.send(text)
            paths = [f"/v1/leases/{receive_grant(caller, text)['lease_id']}" for caller, text in zip(callers, asked)]
            requests = [
                request("POST", f"{path}/renew", json.dumps({"ttl_ms": TTL_MS}).encode())
                if kind == "renew"
                else request("GET", path)
                for path in paths
            ]
        late, resumed = stop_during_burst(threaded_gateway, callers, requests, random.uniform(0.001, 0.012))
        for caller, status, body in late:
            assert status in (200, 201, 410, 503), body
            if status in (200, 201) and body["validity_ms"] > 0:
                too_late += ends_at(body) < resumed
                lease_end = ends_at(body) - time.time() + time.clock_gettime(time.CLOCK_BOOTTIME)
                counted = caller.sent_at + (body["served_ms"] + body["validity_ms"]) / 1000
                assert (
                    counted <= lease_end + 0.02
                ), "a caller that counts from its own sending never relies on the lease for too long"
            lost += status == 410 or (kind == "show" and status == 200 and body["validity_ms"] == 0)
        if lost and number + 1 >= ROUNDS_MIN:
            break
    for caller in callers:
        caller.wire.socket.close()
    # A fraction of a microsecond passes between the last check of the clock and the write to the socket.
    assert too_late <= 1, f"{too_late} leases were sent after their end, {lost} were not"
    assert lost > 0, "the gateway was never suspended between a grant and its answer"


def test_grant_after_gateway_pause_is_released(cluster: Cluster, threaded_gateway: Gateway) -> None:
    callers = [Caller(Wire(threaded_gateway.api.host, threaded_gateway.api.port, 30)) for _ in range(CALLERS)]
    for number in range(ROUNDS):
        names = [f"test/released-{number}-{caller}" for caller in range(CALLERS)]
        requests = [
            request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": TTL_MS}).encode()) for name in names
        ]
        late, _ = stop_during_burst(threaded_gateway, callers, requests, random.uniform(0.001, 0.012))
        for caller, status, body in late:
            if status == 410:
                name = names[callers.index(caller)]
                assert body["type"] == "/problems/lease-lost"
                assert lease_keys(cluster.clients(), name) == []
                return
    pytest.fail("the gateway was never suspended between a grant and its answer")


def test_served_ms_includes_time_in_queue(api: Api, resource: str) -> None:
    held = api.must_acquire(resource, ttl_ms=20_000)
    assert held["served_ms"] < 1_000
    waiter = api.begin_wait(resource, wait_ms=10_000)
    pause(0.5, "the caller waits for as long")
    api.must_release(held)
    answer = waiter.answer()
    assert 400 <= answer.json()["served_ms"] <= (waiter.ended - waiter.began) * 1000 + 1


def test_kept_lease_after_gateway_pause_is_lost(threaded_gateway: Gateway) -> None:
    with EventStream(threaded_gateway.api, {"resource": "test/kept-stopped", "ttl_ms": 300}) as kept:
        granted = kept.wait_for("granted")
        assert granted.data["served_ms"] < 1_000
        processes.signal_all([threaded_gateway.pid], signal.SIGSTOP)
        pause(0.6, "longer than the lease")
        os.kill(threaded_gateway.pid, signal.SIGCONT)
        lost = kept.wait_for("lost")
        assert lost.data["validity_ms"] == 0 and lost.data["served_ms"] >= 600
        assert all(event.data["validity_ms"] > 0 and event.data["served_ms"] >= 0 for event in kept.events[:-1])
