"""The memory budgets of request bodies and answers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import select
import socket
import struct
import termios
from typing import Callable

import pytest
from support.api import Answer, Api, expect_problem
from support.cluster import Cluster, Gateway, credentials
from support.polling import eventually, pause
from support.processes import resident_bytes
from support.wire import Wire

MIB = 1 << 20
KEYS = {"first": "the key of the first", "second": "the key of the second"}
CREDENTIALS = credentials(KEYS, "leases", "writes")


def used_bytes(api: Api, kind: str) -> int:
    """Returns the used bytes of the budget "bodies" or "answers"."""
    return int(api.metric(f'fencegate_http_memory_bytes{{kind="{kind}"}}'))


@pytest.fixture(scope="module")
def parts(cluster: Cluster) -> str:
    """A table in which the rows of an `id` make an answer of `id` MB."""
    name = "memory_parts"
    cluster.query(f"create table {name} (id int, part int, body text, primary key (id, part))")
    cluster.query(
        f"insert into {name} select id, part, repeat('x', 1000000) from (values (8), (60)) as size (id), "
        "generate_series(1, id) part"
    )
    cluster.query(f"insert into {name} select 2, part, '' from generate_series(1, 8) part")
    # Characters of one to four bytes in turn, so that chunks of an answer end within characters.
    cluster.query(f"insert into {name} select 1, part, repeat('aß€😀', 10000 + part) from generate_series(1, 80) part")
    cluster.query(f"select fencing.expose_table('{name}')")
    return name


def wait_for_table(gateway: Gateway, table: str) -> None:
    eventually(lambda: gateway.api.get(f"/v1/tables/{table}?id=eq.0").status == 200, goal="the gateway knows the table")


def ask(wire: Wire, target: str) -> None:
    wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


# Answers


def test_answers_large_and_unread_stay_within_budget(start_gateway: Callable[..., Gateway], parts: str) -> None:
    gateway = start_gateway(http={"request_timeout_ms": 60_000}, postgres={"statement_timeout_ms": 60_000})
    wait_for_table(gateway, parts)
    before = resident_bytes(gateway.pid)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire("127.0.0.1", gateway.api.port, 60)) for _ in range(8)]
        for wire in wires:
            ask(wire, f"/v1/tables/{parts}?id=eq.60")
        statuses = [wire.socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) for wire in wires]
        grown = resident_bytes(gateway.pid) - before
        assert b"HTTP/1.1 200" in statuses and b"HTTP/1.1 503" in statuses, statuses
        assert grown < (96 + 32) * MIB, f"{grown / MIB:.0f} MiB"
        assert (
            used_bytes(gateway.api, "answers") <= 96 * MIB
        ), "three quarters for one principal; nothing once the stalled connection was closed"
        refused = wires[statuses.index(b"HTTP/1.1 503")].receive()
        assert b"/problems/overloaded" in refused.body and "retry-after" in refused.headers
    eventually(lambda: used_bytes(gateway.api, "answers") == 0, goal="the connections are closed")
    whole = gateway.api.get(f"/v1/tables/{parts}?id=eq.60")
    assert whole.status == 200 and len(whole.body) > 60_000_000
    assert used_bytes(gateway.api, "answers") == 0
    eventually(lambda: resident_bytes(gateway.pid) - before < 32 * MIB, goal="the memory goes back to the system")


def test_answer_to_slow_reader_is_complete(start_gateway: Callable[..., Gateway], cluster: Cluster, parts: str) -> None:
    gateway = start_gateway()
    wait_for_table(gateway, parts)
    expected = cluster.query(f"select part, body from {parts} where id = 1 order by part")
    with Wire("127.0.0.1", gateway.api.port, 30) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        ask(wire, f"/v1/tables/{parts}?id=eq.1&select=part,body&order=part")
        eventually(lambda: used_bytes(gateway.api, "answers") > 5 * MIB, goal="the answer waits for its reader")
        taken = wire.receive()
    rows = json.loads(taken.body)
    assert [(row["part"], row["body"]) for row in rows] == [tuple(row) for row in expected]


def test_answer_refused_midway_leaves_session_usable(
    start_gateway: Callable[..., Gateway], cluster: Cluster, parts: str
) -> None:
    gateway = start_gateway(http={"answers_max_bytes": MIB}, postgres={"connections": 1})
    wait_for_table(gateway, parts)
    cluster.query(
        "create function public.memory_session() returns int language sql stable as 'select pg_backend_pid()'"
    )
    cluster.query("select fencing.expose_function('public.memory_session()')")
    eventually(lambda: gateway.api.get("/v1/rpc/memory_session").status == 200, goal="the gateway knows the function")
    session = gateway.api.get("/v1/rpc/memory_session").json()
    for _ in range(3):
        expect_problem(gateway.api.get(f"/v1/tables/{parts}?id=eq.8"), 503, "overloaded")
        small = gateway.api.get(f"/v1/tables/{parts}?id=eq.8&select=part&limit=2&order=part")
        assert small.json() == [{"part": 1}, {"part": 2}]
    assert gateway.api.get("/v1/rpc/memory_session").json() == session
    assert used_bytes(gateway.api, "answers") == 0


@pytest.mark.parametrize("written_by", ["operation", "function"])
def test_write_with_rows_over_budget_503_and_nothing_changed(
    start_gateway: Callable[..., Gateway], cluster: Cluster, parts: str, resource: str, written_by: str
) -> None:
    gateway = start_gateway(http={"answers_max_bytes": MIB})
    wait_for_table(gateway, parts)
    cluster.query(
        f"""create or replace function public.memory_fill(length int) returns setof {parts} language sql volatile
                            security definer set search_path = public
                            as 'update {parts} set body = repeat(''x'', length) where id = 2 returning *'"""
    )
    cluster.query("select fencing.expose_function('public.memory_fill(int)')")
    was = cluster.query(f"select distinct length(body) from {parts} where id = 2")

    def fill(length: int) -> Answer:
        operation = (
            {"call": "memory_fill", "args": {"length": length}}
            if written_by == "function"
            else {"update": parts, "where": {"id": 2}, "set": {"body": "x" * length}}
        )
        lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
        answer = gateway.api.post(
            "/v1/writes",
            {"lease_id": lease["lease_id"], "operations": [operation], "return": "rows"},
            {"Idempotency-Key": f"{resource[-20:]}-{length}"},
        )
        gateway.api.release(lease)
        return answer

    for _ in range(2):
        expect_problem(fill(300_000), 503, "overloaded")
        assert cluster.query(f"select distinct length(body) from {parts} where id = 2") == was
    done = fill(10)
    assert done.status == 200 and len(done.json()["results"]) == 1, done
    assert cluster.query(f"select distinct length(body) from {parts} where id = 2") == [(10,)]
    failed = [item for item in gateway.api.history(resource=resource) if item["event"] == "write_failed"]
    assert [item["detail"]["error"] for item in failed] == ["overloaded"] * 2
    assert used_bytes(gateway.api, "answers") == 0


def test_history_with_large_details_ends_pages_early(start_gateway: Callable[..., Gateway], cluster: Cluster) -> None:
    gateway = start_gateway()
    cluster.query(
        """insert into fencing.history (event, resource, fencing_token, detail)
                           select 'lease_granted', 'memory/large', n, json_build_object('text', repeat('x', 60000))
                             from generate_series(1, 500) n"""
    )
    before = resident_bytes(gateway.pid)
    page = gateway.api.get("/v1/history", resource="memory/large", order="asc", limit=1000).json()
    tokens = [item["fencing_token"] for item in page["items"]]
    assert 60 < len(tokens) < 100 and page["next_cursor"]
    rest = gateway.api.get(
        "/v1/history", resource="memory/large", order="asc", limit=10, cursor=page["next_cursor"]
    ).json()
    assert rest["items"][0]["fencing_token"] == len(tokens) + 1
    whole = gateway.api.get("/v1/history?resource=memory/large&order=asc", {"Accept": "application/x-ndjson"})
    assert [json.loads(line)["fencing_token"] for line in whole.body.splitlines()] == list(range(1, 501))
    assert resident_bytes(gateway.pid) - before < 24 * MIB


# Bodies


def send_body_without_last_byte(wire: Wire, key: str, body: bytes) -> None:
    wire.send(
        f"POST /v1/writes HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n".encode()
    )
    with contextlib.suppress(OSError):  # refused meanwhile
        wire.send(body)


def readable_sockets(wires: list[Wire]) -> list[socket.socket]:
    """Returns the sockets of connections that have received data."""
    return select.select([wire.socket for wire in wires], [], [], 0)[0]


def send_more(wire: Wire) -> None:
    with contextlib.suppress(OSError):
        wire.send(b"x" * 60_000)


def unacknowledged_bytes(wires: list[Wire]) -> int:
    """Returns the number of bytes that the gateway has not acknowledged yet."""
    return sum(struct.unpack("i", fcntl.ioctl(wire.socket, termios.TIOCOUTQ, b"\0" * 4))[0] for wire in wires)


def test_bodies_unfinished_stay_within_budget_and_shares(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(auth=CREDENTIALS, http={"bodies_max_bytes": 16 * MIB})
    api = gateway.api
    before = resident_bytes(gateway.pid)
    body = b'{"lease_id": "' + b"x" * (MIB - 100)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire("127.0.0.1", api.port, 30)) for _ in range(100)]
        for wire in wires:
            send_body_without_last_byte(wire, KEYS["first"], body)
        eventually(lambda: len(readable_sockets(wires)) >= 85, 20, goal="those that do not fit are refused")
        refused = [wire for wire in wires if wire.socket in readable_sockets(wires)]
        grown = resident_bytes(gateway.pid) - before
        assert grown < (16 + 16) * MIB, f"{grown / MIB:.0f} MiB"
        assert 8 * MIB < used_bytes(api, "bodies") <= 12 * MIB, "three quarters for one principal"
        answer = refused[0].receive()
        assert answer.status == 503 and b"/problems/overloaded" in answer.body and "retry-after" in answer.headers
        with Wire("127.0.0.1", api.port, 30) as other:
            send_body_without_last_byte(other, KEYS["second"], body + b'", "operations": []')
            other.send(b"}")
            assert other.receive().status == 400, "another principal's body is read and checked"
    eventually(lambda: used_bytes(api, "bodies") == 0, goal="the connections are closed")
    with Wire("127.0.0.1", api.port, 30) as wire:
        send_body_without_last_byte(wire, KEYS["first"], body + b'", "operations": []')
        wire.send(b"}")
        assert wire.receive().status == 400
    eventually(lambda: used_bytes(api, "bodies") == 0, goal="the request is done")


def test_body_with_many_values_counts_their_memory(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(http={"bodies_max_bytes": 8 * MIB})
    api = gateway.api
    before = resident_bytes(gateway.pid)
    many = b'{"lease_id": "x", "operations": [' + b"[]," * 300_000 + b"[]]}"
    expect_problem(api.post("/v1/writes", raw=many), 503, "overloaded")
    assert resident_bytes(gateway.pid) - before < 24 * MIB
    few = b'{"lease_id": "x", "operations": ["' + b"x" * 900_000 + b'"]}'
    expect_problem(api.post("/v1/writes", raw=few), 400, "invalid-request")
    assert used_bytes(api, "bodies") == 0


def test_refused_callers_still_sending_use_little_memory(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(auth=CREDENTIALS, limits={"address": {"failed_authentications_per_minute": 0}})
    before = resident_bytes(gateway.pid)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire("127.0.0.1", gateway.api.port, 30)) for _ in range(500)]
        for wire in wires:
            send_body_without_last_byte(wire, "nobody's", b"x" * 1_000)
            assert wire.receive().status == 401
        for wire in wires:
            send_more(wire)
        eventually(lambda: unacknowledged_bytes(wires) == 0, 20, goal="the gateway has read what they sent")
        grown = resident_bytes(gateway.pid) - before
        assert grown < 14 * MIB, f"{grown / MIB:.1f} MiB"


def test_bytes_behind_streaming_request_are_counted(start_gateway: Callable[..., Gateway], resource: str) -> None:
    """The buffer of a body of 64 KiB does not stay for one byte, and what is sent behind a request counts
    while its answer lasts."""
    gateway = start_gateway()
    api = gateway.api
    body = json.dumps({"resource": resource, "ttl_ms": 2_000}).encode()
    head = (
        "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    for behind, least, most in ((b"G", 1, 8_192), (b"x" * 50_000, 10_000, 65_536)):
        with Wire(api.host, api.port, 30) as wire:
            wire.send(head)
            pause(0.2, "the head arrives first, so that what follows is read into the larger buffer")
            wire.send(body + behind)
            assert wire.socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 200"
            eventually(
                lambda: least <= used_bytes(api, "bodies") <= most, 5, goal=f"{least} to {most} bytes are counted"
            )
        eventually(lambda: used_bytes(api, "bodies") == 0, goal="the stream has ended")
