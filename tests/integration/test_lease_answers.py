"""An answer that gives a lease leaves the gateway while the lease is valid, or says that it is lost: gateways stopped between grant and answer."""

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
from support.polling import let_pass
from support.stack import lease_keys
from support.wire import Wire, request

TTL_MS = 150
STOPPED = 0.4  # seconds: longer than any of these leases
ROUNDS, CALLERS = 25, 48


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> Iterator[Gateway]:
    """With threads of which one grants and another answers."""
    settings = cluster.settings()
    settings["http"]["threads"] = 4
    gateway = cluster.gateway(settings)
    gateway.start()
    yield gateway
    gateway.kill()


@dataclass
class Caller:
    wire: Wire
    sent_at: float = 0.0


def readable(sockets: list[socket.socket], within: float) -> list[socket.socket]:
    return select.select(sockets, [], [], within)[0]


def stopped_in_a_burst(gateway: Gateway, callers: list[Caller], requests: list[bytes], delay: float) -> tuple[list[tuple[Caller, int, dict]], float]:
    """Stops the gateway while it answers. Out: what was answered after it went on again, and when that was."""
    for caller, text in zip(callers, requests):
        caller.sent_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        caller.wire.send(text)
    until = time.perf_counter() + delay
    while time.perf_counter() < until:
        pass
    processes.signal_all([gateway.pid], signal.SIGSTOP)
    let_pass(STOPPED, "how long it is stopped is what is tested")
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


def granted_at_last(caller: Caller, asked: bytes) -> dict:
    """The lease that was asked for; where nodes were late it is asked for again."""
    for _ in range(50):
        answer = caller.wire.receive()
        if answer.status == 201:
            return json.loads(answer.body)
        assert answer.status == 503, answer
        caller.wire.send(asked)
    raise AssertionError("the nodes were always late")


def ends_at(lease: dict) -> float:
    return dt.datetime.fromisoformat(lease["expires_at"].replace("Z", "+00:00")).timestamp()


@pytest.mark.parametrize("kind", ["acquire", "renew", "show"])
def test_answer_when_stopped_before_it_then_410_not_an_old_lease(alone: Gateway, kind: str) -> None:
    callers = [Caller(Wire(alone.api.host, alone.api.port, 30)) for _ in range(CALLERS)]
    too_late, lost = 0, 0
    for number in range(ROUNDS):
        names = [f"test/{kind}-{number}-{caller}" for caller in range(CALLERS)]
        if kind == "acquire":
            requests = [request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": TTL_MS}).encode()) for name in names]
        else:
            asked = [request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": 100 + TTL_MS}).encode()) for name in names]
            for caller, text in zip(callers, asked):
                caller.wire.send(text)
            paths = [f"/v1/leases/{granted_at_last(caller, text)['lease_id']}" for caller, text in zip(callers, asked)]
            requests = [request("POST", f"{path}/renew", json.dumps({"ttl_ms": TTL_MS}).encode()) if kind == "renew" else request("GET", path) for path in paths]
        late, resumed = stopped_in_a_burst(alone, callers, requests, random.uniform(0.001, 0.012))
        for caller, status, body in late:
            assert status in (200, 201, 410, 503), body
            if status in (200, 201) and body["validity_ms"] > 0:
                too_late += ends_at(body) < resumed
                lease_end = ends_at(body) - time.time() + time.clock_gettime(time.CLOCK_BOOTTIME)
                counted = caller.sent_at + (body["served_ms"] + body["validity_ms"]) / 1000
                assert counted <= lease_end + 0.02, "who counts from its own sending never believes in it for too long"
            lost += status == 410 or (kind == "show" and status == 200 and body["validity_ms"] == 0)
    for caller in callers:
        caller.wire.socket.close()
    # Between the last look at the clock and the kernel's taking of the bytes there is a fraction of a microsecond.
    assert too_late <= 1, f"{too_late} leases were told of when they were over, {lost} not"
    assert lost > 0, "the gateway was never stopped between a grant and its answer"


def test_grant_when_stopped_before_its_answer_then_released(cluster: Cluster, alone: Gateway) -> None:
    callers = [Caller(Wire(alone.api.host, alone.api.port, 30)) for _ in range(CALLERS)]
    for number in range(ROUNDS):
        names = [f"test/released-{number}-{caller}" for caller in range(CALLERS)]
        requests = [request("POST", "/v1/leases", json.dumps({"resource": name, "ttl_ms": TTL_MS}).encode()) for name in names]
        late, _ = stopped_in_a_burst(alone, callers, requests, random.uniform(0.001, 0.012))
        for caller, status, body in late:
            if status == 410:
                name = names[callers.index(caller)]
                assert body["type"] == "/problems/lease-lost"
                assert lease_keys(cluster.clients(), name) == []
                return
    pytest.fail("the gateway was never stopped between a grant and its answer")


def test_served_when_the_call_waited_then_that_long(api: Api, resource: str) -> None:
    held = api.take(resource, ttl_ms=20_000)
    assert held["served_ms"] < 1_000
    waiter = api.begin_ask(resource, wait_ms=10_000)
    let_pass(0.5, "how long it waits is what is tested")
    api.give_back(held)
    answer = waiter.answer()
    assert 400 <= answer.json()["served_ms"] <= (waiter.ended - waiter.began) * 1000 + 1


def test_kept_lease_when_stopped_then_lost_not_renewed(alone: Gateway) -> None:
    with EventStream(alone.api, {"resource": "test/kept-stopped", "ttl_ms": 300}) as kept:
        granted = kept.next("granted")
        assert granted.data["served_ms"] < 1_000
        processes.signal_all([alone.pid], signal.SIGSTOP)
        let_pass(0.6, "longer than the lease")
        os.kill(alone.pid, signal.SIGCONT)
        lost = kept.next("lost")
        assert lost.data["validity_ms"] == 0 and lost.data["served_ms"] >= 600
        assert all(event.data["validity_ms"] > 0 and event.data["served_ms"] >= 0 for event in kept.events[:-1])
