"""Limits of the memory of a gateway under hostile callers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Callable

import pytest
from support import processes
from support.api import Answer, expect_problem
from support.cluster import Cluster, Gateway, credentials
from support.polling import eventually
from support.processes import processor_seconds
from support.wire import RawAnswer, Wire

MIB = 1 << 20
HEAD = (
    b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def make(start_gateway: Callable[..., Gateway]) -> Callable[..., Gateway]:
    """Returns a function that starts a gateway with these keys in its section http."""
    return lambda **http: start_gateway(http=http)


def send_without_end(wire: Wire, piece: bytes, most: int = 64 * MIB) -> None:
    """Sends the piece repeatedly, up to `most` bytes or until the gateway closes the connection."""
    with contextlib.suppress(OSError):
        for _ in range(most // len(piece)):
            wire.send(piece)


def test_refusal_of_request_head_precedes_reading_of_body(cluster: Cluster) -> None:
    """A caller without a key must not make the gateway buffer a body."""
    settings = cluster.settings()
    settings["auth"] = credentials({"x": "the-key"}, "leases")
    with cluster.serving(settings) as gateway:
        for path, key, status in (
            ("/v1/leases", "nobodys", 401),
            ("/v1/history/summary", "the-key", 405),
            ("/v1/nothing", "the-key", 404),
        ):
            with Wire("127.0.0.1", gateway.api.port) as wire:
                wire.send(
                    f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n".encode() + b" " * 1000
                )
                assert wire.receive().status == status


def test_chunks_without_end_are_refused_in_little_memory(make: Callable[..., Gateway]) -> None:
    gateway = make()
    for begin, piece in [
        (b"5;", b"x" * 65_536),
        (b'5;a="', b"\t" * 65_536),
        (b"0\r\nX-Long: ", b"x" * 65_536),
        (b"0\r\n", b"X-Trailer: y\r\n" * 5_000),
        (b"", b"1;" + b"x" * 8_000 + b"\r\n \r\n"),
        (b"0" * 60_000, b"0" * 65_536),
    ]:
        before = processes.resident_bytes(gateway.pid)
        with Wire("127.0.0.1", gateway.api.port) as wire:
            wire.send(HEAD + begin)
            send_without_end(wire, piece)
            assert processes.resident_bytes(gateway.pid) - before < 8 * MIB, begin[:20]
            assert wire.receive().status in (400, 431), begin[:20]
    assert gateway.api.get("/healthz").status == 200


def test_header_of_many_fields_431_at_little_cost(make: Callable[..., Gateway]) -> None:
    gateway = make(header_max_bytes=MIB)
    many = b"".join(b"a%x: \r\n" % number for number in range(2_690))

    def ask(fields: bytes) -> RawAnswer:
        with Wire("127.0.0.1", gateway.api.port) as wire:
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n")
            return wire.receive()

    assert ask(b"a: b\r\n" * 99).status == 200
    refused = ask(b"a: b\r\n" * 100)
    assert refused.status == 431 and b"/problems/header-too-large" in refused.body
    used = processor_seconds(gateway.pid)
    for _ in range(100):
        assert ask(many).status == 431
    assert processor_seconds(gateway.pid) - used < 0.5, "11.6 ms each without a limit"


@pytest.fixture(scope="module")
def large_rows(cluster: Cluster) -> str:
    """A table with ten groups of rows of 8 MiB each."""
    name = "edge_large"
    cluster.query(f"create table {name} (id int, part int, body text, primary key (id, part))")
    cluster.query(
        f"insert into {name} select n, part, repeat('x', {8 * MIB} / 128) from generate_series(1, 10) n, "
        "generate_series(1, 128) part"
    )
    cluster.query(f"select fencing.expose_table('{name}')")
    return name


def test_answers_unread_stay_within_budget(make: Callable[..., Gateway], large_rows: str) -> None:
    gateway = make(answers_max_bytes=20 * MIB)
    eventually(
        lambda: gateway.api.get(f"/v1/tables/{large_rows}?id=eq.0").status == 200, goal="the gateway knows the table"
    )
    before = processes.resident_bytes(gateway.pid)
    with contextlib.ExitStack() as stack:
        wires = []
        for number in range(10):
            wires.append(stack.enter_context(Wire("127.0.0.1", gateway.api.port, 30)))
            wires[-1].send(
                f"GET /v1/tables/{large_rows}?id=eq.{number + 1} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            first = wires[-1].socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)
            assert first in (b"HTTP/1.1 200", b"HTTP/1.1 503")
        assert processes.resident_bytes(gateway.pid) - before < 48 * MIB, "80 MiB of answers"
        for refused in [wire for wire in wires if wire.socket.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 503"]:
            assert b"/problems/overloaded" in refused.receive().body
    fits = eventually(
        lambda: (answer := gateway.api.get(f"/v1/tables/{large_rows}?id=eq.1")).status == 200 and answer,
        goal="the closed connections are released",
    )
    assert len(fits.body) > 8 * MIB


def test_fenced_read_over_budget_leaves_fence(
    make: Callable[..., Gateway], cluster: Cluster, large_rows: str, resource: str
) -> None:
    api = make(answers_max_bytes=4 * MIB).api
    eventually(lambda: api.get(f"/v1/tables/{large_rows}?id=eq.0").status == 200, goal="the gateway knows the table")

    def read() -> Answer:
        return api.get(
            f"/v1/tables/{large_rows}?id=eq.1", {"Fencing-Lease": api.must_acquire(resource, ttl_ms=2_000)["lease_id"]}
        )

    expect_problem(
        eventually(lambda: answer if (answer := read()).status != 410 else None, goal="the lease lasts until the read"),
        503,
        "overloaded",
    )
    assert (
        cluster.query("select id from fencing.history where resource = %s and event = 'fence_raised'", (resource,))
        == []
    )


def test_answers_over_budget_close_stalled_reader(make: Callable[..., Gateway], large_rows: str) -> None:
    gateway = make(answers_max_bytes=24 * MIB)
    eventually(
        lambda: gateway.api.get(f"/v1/tables/{large_rows}?id=eq.0").status == 200, goal="the gateway knows the table"
    )
    with contextlib.ExitStack() as stack:
        for number in range(2):
            stalled = stack.enter_context(Wire("127.0.0.1", gateway.api.port))
            stalled.send(f"GET /v1/tables/{large_rows}?id=eq.{number + 1} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert stalled.socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 200"
        taken = eventually(
            lambda: [answer] if (answer := gateway.api.get(f"/v1/tables/{large_rows}?id=eq.3")).status == 200 else [],
            goal="the stalled connections are closed for it",
        )
        assert len(taken[0].body) > 8 * MIB


def test_answers_of_lingering_connections_are_freed(make: Callable[..., Gateway], large_rows: str) -> None:
    """A caller that goes on sending after `Connection: close` keeps its connection for up
    to 30 s, but not its answer."""
    gateway = make(answers_max_bytes=24 * MIB)
    eventually(
        lambda: gateway.api.get(f"/v1/tables/{large_rows}?id=eq.0").status == 200, goal="the gateway knows the table"
    )
    before = processes.resident_bytes(gateway.pid)
    with contextlib.ExitStack() as stack:
        wires: list[Wire] = []
        for _ in range(10):
            wires.append(stack.enter_context(Wire("127.0.0.1", gateway.api.port, 30)))
            wires[-1].send(
                f"GET /v1/tables/{large_rows}?id=eq.1 HTTP/1.1\r\nHost: localhost\r\n"
                "Connection: close\r\n\r\nx".encode()
            )
            assert len(wires[-1].receive().body) > 8 * MIB
            for wire in wires:
                wire.send(b"x")  # the connection lingers on
        grown = processes.resident_bytes(gateway.pid) - before
        assert grown < 40 * MIB, f"{grown / MIB:.0f} MiB, 80 MiB of answers"


def test_exports_unread_use_little_memory(make: Callable[..., Gateway], cluster: Cluster) -> None:
    gateway = make(answers_max_bytes=16 * MIB)
    cluster.query(
        """insert into fencing.history (event, resource, fencing_token, owner, detail)
                           select 'lease_granted', 'edge/export', n, repeat('o', 100),
                             json_build_object('text', repeat('x', 800)) from generate_series(1, 20000) n"""
    )
    before = processes.resident_bytes(gateway.pid)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire("127.0.0.1", gateway.api.port, 120)) for _ in range(100)]
        for wire in wires:
            wire.send(
                b"GET /v1/history?resource=edge/export HTTP/1.1\r\nHost: localhost\r\n"
                b"Accept: application/x-ndjson\r\n\r\n"
            )
        statuses = [int(wire.socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL).split()[1]) for wire in wires]
        # Exports beyond the budget are refused.
        assert set(statuses) <= {200, 429, 503} and statuses.count(200) > 10, statuses
        grown = processes.resident_bytes(gateway.pid) - before
        assert grown < 64 * MIB, f"{grown / MIB:.0f} MiB"
        assert gateway.api.get("/healthz").status == 200
    whole = eventually(
        lambda: (
            answer := gateway.api.get("/v1/history?resource=edge/export", {"Accept": "application/x-ndjson"})
        ).status
        == 200
        and answer,
        30,
        goal="the closed exports are released",
    )
    assert len(whole.body.splitlines()) == 20_000


def test_stop_while_answer_is_sent_takes_no_longer(make: Callable[..., Gateway], large_rows: str) -> None:
    """A connection whose answer was being sent when the gateway began to stop closes after it."""
    gateway = make(shutdown_grace_ms=0)
    eventually(
        lambda: gateway.api.get(f"/v1/tables/{large_rows}?id=eq.0").status == 200, goal="the gateway knows the table"
    )
    with Wire("127.0.0.1", gateway.api.port, 30) as wire:
        wire.send(f"GET /v1/tables/{large_rows}?id=in.(1,2,3,4) HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = bytearray(wire.socket.recv(1))
        os.kill(gateway.pid, signal.SIGTERM)
        eventually(lambda: "stopping" in gateway.log.read_text(), goal="the gateway begins to stop")
        arrived = time.monotonic()
        while piece := wire.socket.recv(MIB):
            received += piece
            arrived = time.monotonic()
        assert time.monotonic() - arrived < 4, "callers have 5 s to close their side"
        assert len(received) > 32 * MIB and gateway.process is not None and gateway.process.wait(20) == 0
