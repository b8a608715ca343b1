"""Readiness for leases and for writes, and signals that must not end a gateway."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import Cluster, Gateway
from support.polling import eventually, pause, remains
from support.stack import Stack
from support.wire import Wire, request


def readiness(api: Api) -> dict[str, int]:
    return {path: api.get(f"/readyz{path}").status for path in ("", "/leases", "/writes")}


def test_readiness_postgresql_hanging_leases_stay_ready(stack: Stack, api: Api, resource: str) -> None:
    with stack.frozen(stack.postgres_pids()):
        eventually(
            lambda: readiness(api) == {"": 503, "/leases": 200, "/writes": 503}, 15, goal="only leases are ready"
        )
        expect_problem(api.get("/readyz/writes"), 503, "storage-unavailable")
        api.must_release(api.must_acquire(resource))
    eventually(lambda: set(readiness(api).values()) == {200}, 30, goal="everything is ready again")


def test_readiness_nodes_hanging_writes_stay_ready(stack: Stack, api: Api) -> None:
    pids = [node["pid"] for node in stack.facts["redis"]]
    with stack.frozen(pids[:3]):
        eventually(
            lambda: readiness(api) == {"": 503, "/leases": 503, "/writes": 200}, 15, goal="only writes are ready"
        )
        assert len(expect_problem(api.get("/readyz/leases"), 503, "no-quorum")["nodes"]) == len(pids)
    eventually(lambda: set(readiness(api).values()) == {200}, 60, goal="everything is ready again")


def test_readiness_checks_do_not_grow_with_callers(cluster: Cluster) -> None:
    """Anyone may ask whether a gateway is ready, so that callers share one check, and its result for 0.2 s."""

    def count_checks() -> int:
        pause(1.5, "PostgreSQL counts calls a second late")
        return cluster.query(
            "select coalesce(sum(calls), 0)::int from pg_stat_user_functions "
            "where funcname = 'storage_generation_state'"
        )[0][0]

    cluster.query(f"alter database {cluster.database} set track_functions = 'all'")
    gateway = cluster.start_gateway()
    try:
        before, began = count_checks(), time.monotonic()
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire("127.0.0.1", gateway.api.port, 30)) for _ in range(50)]
            for _ in range(20):
                for wire in wires:
                    wire.send(request("GET", "/readyz/writes"))
                assert {wire.receive().status for wire in wires} == {200}
        made, seconds = count_checks() - before, time.monotonic() - began
        assert (
            0 < made < 10 + 7 * seconds
        ), f"{made} checks in {seconds:.1f} s; the gateway makes another one each second"
    finally:
        gateway.kill()
        cluster.query(f"alter database {cluster.database} reset track_functions")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_gateway_on_user_signal_logs_and_keeps_serving(gateway: Gateway, resource: str, number: signal.Signals) -> None:
    lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
    os.kill(gateway.pid, number)
    eventually(lambda: f"({number.name[3:]}): ignored" in gateway.log.read_text(), goal="the log has the signal")
    assert gateway.api.renew(lease, ttl_ms=2_000).status == 200
    assert gateway.stop() == 0


def with_grace(cluster: Cluster, milliseconds: int) -> Gateway:
    settings = cluster.settings()
    settings["http"]["shutdown_grace_ms"] = milliseconds
    gateway = cluster.start_gateway(settings)
    return gateway


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_grace_serves_while_not_ready_until_second_signal(
    cluster: Cluster, resource: str, second: signal.Signals
) -> None:
    gateway = with_grace(cluster, 60_000)
    with gateway.api.connection() as connection:
        assert connection.call("GET", "/healthz").headers["Connection"] is None
        os.kill(gateway.pid, signal.SIGTERM)
        eventually(
            lambda: readiness(gateway.api) == {"": 503, "/leases": 503, "/writes": 503}, 5, goal="nothing is ready"
        )
        expect_problem(gateway.api.get("/readyz/writes"), 503, "shutting-down")
        lease = connection.post("/v1/leases", {"resource": resource, "ttl_ms": 2_000})
        assert (lease.status, lease.headers["Connection"]) == (201, "close")
    for number in (signal.SIGHUP, signal.SIGUSR1):
        os.kill(gateway.pid, number)
    gateway.api.must_release(lease.json())
    assert gateway.process is not None and processes.stop(gateway.process, 10, second) == 0


def test_grace_ends_by_itself_and_interrupt_has_none(cluster: Cluster) -> None:
    gateway = with_grace(cluster, 4_000)
    began = time.monotonic()
    assert gateway.stop() == 0 and time.monotonic() - began >= 4
    gateway.start()
    began = time.monotonic()
    assert gateway.process is not None and processes.stop(gateway.process, 10, signal.SIGINT) == 0
    assert time.monotonic() - began < 4


ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL}
STOPPING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGSYS,
    signal.SIGXCPU,
    signal.SIGXFSZ,
}


def test_gateway_ignores_meaningless_signals(gateway: Gateway, resource: str) -> None:
    lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
    for number in sorted(signal.valid_signals() - ENDING - STOPPING - FAULTS):
        os.kill(gateway.pid, number)
        assert gateway.api.renew(lease, ttl_ms=2_000).status == 200, number
    assert gateway.stop() == 0


def test_dev_under_nohup_survives_hangup(own_stack: Stack) -> None:
    own_stack.stop()
    own_stack.prefix = ["nohup"]
    own_stack.start()
    assert own_stack.process is not None
    for number in (
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGIO,
    ):
        own_stack.process.send_signal(number)
    remains(lambda: own_stack.process.poll() is None and own_stack.api().get("/readyz").status == 200, 1.0)
    own_stack.stop()
    assert (
        "shutdown_grace_ms" not in (own_stack.data / "logs" / "gateway-1.log").read_text()
    ), "an interactive stack stops at once"
