"""Limits of connections and open files, and the end of connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource as limits
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import Cluster, Gateway
from support.events import EventStream
from support.polling import eventually, pause
from support.processes import processor_seconds
from support.wire import Wire, request

MIB = 1 << 20


@pytest.fixture
def make(start_gateway: Callable[..., Gateway]) -> Callable[..., Gateway]:
    """Returns a function that starts a gateway with these keys in its section http."""
    return lambda **http: start_gateway(http=http)


@contextlib.contextmanager
def open_connections(port: int, count: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    limits.setrlimit(limits.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))
    try:
        for _ in range(count):
            made.append(socket.create_connection(("127.0.0.1", port), 10, (source, 0)))
        yield made
    finally:
        for connection in made:
            connection.close()


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def send_get(connection: socket.socket, target: str = "/healthz") -> bytes:
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection.recv(4_096)


def ask_without_reading(connection: socket.socket) -> None:
    """Sends requests until the gateway reads no more, because it cannot send its answers on."""
    connection.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)


def test_files_low_soft_limit_is_raised(make: Callable[..., Gateway], cluster: Cluster) -> None:
    soft_before, hard_before = limits.getrlimit(limits.RLIMIT_NOFILE)
    limits.setrlimit(limits.RLIMIT_NOFILE, (1_024, hard_before))
    try:
        gateway = make(connections_per_address_max=0)
    finally:
        limits.setrlimit(limits.RLIMIT_NOFILE, (soft_before, hard_before))
    text = Path(f"/proc/{gateway.pid}/limits").read_text()
    soft, hard = next(line.split()[3:5] for line in text.splitlines() if line.startswith("Max open files"))
    assert soft == hard
    with open_connections(gateway.api.port, 1_100):
        cluster.stack.query(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
            (cluster.database,),
        )
        eventually(lambda: gateway.api.get("/readyz").status == 200, goal="connected anew")


def test_files_low_hard_limit_reserves_some_for_postgresql(cluster: Cluster, resource: str) -> None:
    settings = cluster.settings()
    gateway = cluster.gateway(settings)
    command = ["sh", "-c", f'ulimit -n 400; exec {processes.fencegate_binary()} "$@"', "fencegate"]
    checked = processes.run([*command, "check", "--config", str(gateway.config)], timeout=60)
    found = re.search(
        r"ok    connections: http.connections_max is 10000, of which (\d+) fit.*400 open files allowed", checked.stdout
    )
    assert found and 200 < int(found[1]) < 380, checked.stdout
    with open(gateway.log, "ab") as log:
        gateway.process = subprocess.Popen(
            [*command, "serve", "--config", str(gateway.config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        gateway.wait_until_ready()
        assert f"of which {found[1]} fit" in gateway.log.read_text()
        with open_connections(gateway.api.port, 450):
            cluster.stack.query(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
                (cluster.database,),
            )
            eventually(lambda: gateway.api.get("/readyz").status == 200, goal="connected anew")
            used = processor_seconds(gateway.pid)
            pause(1, "the time over which processor time is measured")
            assert processor_seconds(gateway.pid) - used < 0.5, "it polls without waiting"
            assert gateway.api.acquire(resource, ttl_ms=2_000).status == 201
    finally:
        gateway.kill()


def test_files_too_few_refuse_start(cluster: Cluster) -> None:
    gateway = cluster.gateway()
    binary = processes.fencegate_binary()
    done = processes.run(["sh", "-c", f"ulimit -n 70; exec {binary} serve --config {gateway.config}"], timeout=60)
    assert done.returncode == 69 and "too few are left for HTTP" in done.stdout + done.stderr, done


def test_connections_of_one_address_do_not_block_others(make: Callable[..., Gateway]) -> None:
    gateway = make(connections_max=60, connections_per_address_max=50)
    with open_connections(gateway.api.port, 60, "127.0.0.2") as flood, open_connections(
        gateway.api.port, 1, "127.0.0.3"
    ) as other_connections:
        assert status_of(send_get(other_connections[0])) == 200
        assert status_of(send_get(flood[-1])) == 200, "an idle connection of the same address was closed for it"
        assert (
            status_of(flood[0].recv(4_096)) == 429 and flood[0].recv(1) == b""
        ), "the oldest idle connection is closed"


def make_busy(connections: list[socket.socket], resource: str) -> None:
    """Lets all but the last wait for a lease that is held; the last one does not read its answers."""
    ask_without_reading(connections[-1])
    body = json.dumps({"resource": resource, "ttl_ms": 100, "wait_ms": 10_000}).encode()
    for connection in connections[:-1]:
        connection.sendall(request("POST", "/v1/leases", body))


def test_connections_of_address_all_busy_429(make: Callable[..., Gateway], resource: str) -> None:
    """Three connections wait, which is as many as may, and one does not read its answers."""
    gateway = make(connections_per_address_max=4)
    with EventStream(gateway.api, {"resource": resource, "ttl_ms": 2_000}) as kept, open_connections(
        gateway.api.port, 4, "127.0.0.2"
    ) as busy:
        kept.wait_for_grant()
        make_busy(busy, resource)
        eventually(lambda: gateway.api.get("/v1/leases").json()["waiters"] == 3, goal="all of them wait")
        with open_connections(gateway.api.port, 1, "127.0.0.2") as one_more:
            answer = one_more[0].recv(4_096)
            assert status_of(answer) == 429 and b"/problems/too-many-requests" in answer and b"Retry-After: " in answer
            assert one_more[0].recv(1) == b""
        assert gateway.api.get("/healthz").status == 200, "another address"


def test_connections_exhausted_close_oldest_idle(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make(connections_max=5)
    with open_connections(gateway.api.port, 5) as idle:
        for connection in idle[1:] + idle[:1]:
            assert status_of(send_get(connection)) == 200
        assert gateway.api.get("/healthz").status == 200
        assert idle[1].recv(1) == b"", "idle for longest"
        assert status_of(send_get(idle[0])) == 200
    with EventStream(gateway.api, {"resource": resource, "ttl_ms": 2_000}) as kept, open_connections(
        gateway.api.port, 4
    ) as busy:
        kept.wait_for_grant()
        make_busy(busy, resource)
        answer = eventually(lambda: refused if (refused := gateway.api.get("/healthz")).status == 503 else None)
        expect_problem(answer, 503, "overloaded")


def test_idle_connection_of_another_thread_is_replaced(make: Callable[..., Gateway]) -> None:
    """The kernel chooses the thread of a connection: of three in four another thread has the one that is idle.
    A few may be refused, because that one is not idle yet when its caller has the answer."""
    gateway = make(connections_max=1, threads=4)
    with contextlib.ExitStack() as stack:
        refused = 0
        for _ in range(24):
            wire = stack.enter_context(Wire("127.0.0.1", gateway.api.port))
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            refused += wire.receive().status == 503
    assert refused < 8


def test_connections_with_endless_requests_are_closed(make: Callable[..., Gateway]) -> None:
    gateway = make(connections_max=5)
    with open_connections(gateway.api.port, 5) as slow:
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        eventually(
            lambda: gateway.api.get("/healthz").status == 200,
            5,
            goal="a connection that has sent nothing for a second is closed",
        )
        closed = select.select(slow, [], [], 1)[0][0]
        assert status_of(closed.recv(4_096)) == 503 and closed.recv(1) == b"", "its caller awaits an answer"


def test_idle_time_before_request_does_not_count(make: Callable[..., Gateway]) -> None:
    gateway = make(idle_timeout_ms=3_000)
    with Wire("127.0.0.1", gateway.api.port) as wire, Wire("127.0.0.1", gateway.api.port) as idle:
        for each in (wire, idle):
            each.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.receive().status == 200
        pause(1.5, "half of the idle timeout")
        wire.send(b"GET /healthz HTTP/1.1\r\n")
        assert idle.is_closed(), "the idle timeout since the last answer is over for both"
        wire.send(b"Host: localhost\r\n\r\n")
        assert wire.receive().status == 200


def test_empty_lines_do_not_prolong_idle_connection(make: Callable[..., Gateway]) -> None:
    gateway = make(idle_timeout_ms=1_000)
    with Wire("127.0.0.1", gateway.api.port) as wire, pytest.raises(OSError):
        for _ in range(100):
            wire.send(b"\r\n")
            pause(0.1, "much shorter than the idle timeout")


def served_connection(gateway: Gateway) -> Wire | None:
    """Returns a connection with an answer; None if it was refused."""
    wire = Wire("127.0.0.1", gateway.api.port)
    wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return wire if wire.receive().status == 200 else None


def test_request_that_has_just_begun_is_not_replaced(make: Callable[..., Gateway]) -> None:
    gateway = make(connections_max=1)
    with eventually(lambda: served_connection(gateway), goal="no earlier one counts") as wire:
        pause(1.2, "longer than a request may take to arrive while all connections are in use")
        wire.send(b"GET /healthz HTTP/1.1\r\n")
        pause(0.2, "the gateway has read the first line")
        with open_connections(gateway.api.port, 1) as refused:
            assert refused[0].recv(4_096).startswith(b"HTTP/1.1 503 ")
        wire.send(b"Host: localhost\r\n\r\n")
        assert wire.receive().status == 200


# End of a connection


@pytest.mark.parametrize("size", [2 * MIB, 200 * MIB])
def test_body_too_large_python_reads_413(api: Api, size: int) -> None:
    connection = http.client.HTTPConnection(api.host, api.port, timeout=30)
    connection.request("POST", "/v1/leases", b"x" * size, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 413
    connection.close()


def test_body_too_large_wget_reads_413(api: Api, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"x" * 40 * MIB)
    done = processes.run(
        ["wget", "-S", "-O", "-", "--tries=1", "--timeout=30", f"--post-file={body}", f"{api.url}/v1/leases"],
        timeout=60,
    )
    assert "413 Content Too Large" in done.stderr, done.stderr


def test_body_refused_and_endless_is_closed(make: Callable[..., Gateway]) -> None:
    gateway = make()
    with Wire("127.0.0.1", gateway.api.port, 20) as wire:
        wire.send(b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        assert wire.receive().status == 413
        began = time.monotonic()
        ends = tuple(f":{port:04X}" for port in (gateway.api.port, wire.socket.getsockname()[1]))

        def is_closed() -> bool:
            """Whether no process has the gateway's end any more: its inode is 0."""
            rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
            return not any(row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[9] != "0" for row in rows)

        eventually(is_closed, 20, goal="the gateway closes the connection")
        assert time.monotonic() - began > 4, "five seconds without a byte"


def test_close_with_unread_input_sends_whole_answer(api: Api) -> None:
    with Wire(api.host, api.port) as wire:
        wire.socket.close()
        wire.socket = socket.socket()
        wire.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096
        )  # most of the answer is still at the gateway when it closes
        wire.socket.connect((api.host, api.port))
        wire.send(
            b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000
        )
        answer = wire.receive()
        assert answer.status == 200 and json.loads(answer.body)["openapi"]
