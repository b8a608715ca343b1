"""Callers that use a gateway as much as they can, each kind in a process of its own: `running(...)` starts one,
`python -m support.floods` is its program."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

from support import processes

LEASE = {"ttl_ms": 2_000}
LARGE_TABLE, EXPORTED, HELD = "flood_large", "flood/exported", "flood/held"
LARGE_SQL = f"""create table {LARGE_TABLE} (id int primary key, body text);
                insert into {LARGE_TABLE} select n, repeat('x', 1000000) from generate_series(1, 8) n;
                select fencing.expose_table('{LARGE_TABLE}');
                insert into fencing.history (event, resource, fencing_token, detail)
                select 'lease_granted', '{EXPORTED}', n, json_build_object('text', repeat('x', 800))
                  from generate_series(1, 20000) n"""

Make = Callable[[int, int], bytes]  # the request number `turn` of connection `number`


class Flood:
    """Connections that send a request as soon as they may, and are opened again when they are closed."""

    def __init__(self, port: int, key: str, source: str) -> None:
        self.port, self.key, self.source = port, key, source
        self.selector = selectors.DefaultSelector()
        self.turns: dict[int, int] = {}
        self.answers = 0

    def request(
        self, method: str, path: str, body: object = None, headers: str = "", length: int | None = None
    ) -> bytes:
        payload = b"" if body is None else json.dumps(body).encode()
        sized = (
            f"Content-Type: application/json\r\nContent-Length: {length or len(payload)}\r\n"
            if payload or length
            else ""
        )
        return (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {self.key}\r\n{headers}{sized}\r\n".encode()
            + payload
        )

    def connect(self, number: int, receive_buffer: int = 0) -> socket.socket:
        made = socket.socket()
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(10)
        made.bind((self.source, 0))
        made.connect(("127.0.0.1", self.port))
        self.turns.setdefault(number, 0)
        return made

    def send(self, connection: socket.socket, number: int, make: Make, pipelined: int) -> None:
        for _ in range(pipelined):
            self.turns[number] += 1
            connection.sendall(make(number, self.turns[number]))

    def repeat(self, connections: int, make: Make, pipelined: int = 1) -> None:
        """Sends the next request of a connection when an answer has arrived."""

        def open_one(number: int) -> None:
            made = self.connect(number)
            self.selector.register(made, selectors.EVENT_READ, number)
            self.send(made, number, make, pipelined)

        for number in range(connections):
            open_one(number)
        while True:
            for key, _ in self.selector.select(1):
                connection, number = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                try:
                    received = connection.recv(1 << 18)
                    if not received:
                        raise ConnectionError
                    answers = received.count(b"HTTP/1.1 ")
                    self.answers += answers
                    if answers:
                        self.send(connection, number, make, answers)
                except OSError:
                    self.selector.unregister(connection)
                    connection.close()
                    time.sleep(0.01)  # a flood of new connections is another kind
                    open_one(number)

    def hold(self, connections: int, make: Make, receive_buffer: int = 0, trickle: bytes = b"") -> None:
        """Sends one request on each connection and reads nothing; sends `trickle` ten times a second."""
        opened: dict[int, socket.socket] = {}
        while True:
            for number in range(connections):
                try:
                    if number not in opened:
                        opened[number] = self.connect(number, receive_buffer)
                        opened[number].settimeout(1)
                        self.send(opened[number], number, make, 1)
                    elif trickle:
                        opened[number].sendall(trickle)
                    elif (
                        make(number, 0) == b"" and opened[number].recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
                    ):
                        raise ConnectionError
                except BlockingIOError:
                    pass
                except OSError:
                    if number in opened:
                        opened.pop(number).close()
            time.sleep(0.1)  # the rate of the trickle


def requests(flood: Flood) -> None:
    flood.repeat(20, lambda number, turn: flood.request("GET", "/v1/leases/nothing"), pipelined=20)


def anonymous_requests(flood: Flood) -> None:
    flood.key = ""
    flood.repeat(20, lambda number, turn: b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", pipelined=5)


def connections(flood: Flood) -> None:
    flood.hold(800, lambda number, turn: b"")


def slow_bodies(flood: Flood) -> None:
    flood.hold(100, lambda number, turn: flood.request("POST", "/v1/writes", length=1_000_000), trickle=b" " * 20_000)


def unread_answers(flood: Flood) -> None:
    flood.hold(30, lambda number, turn: flood.request("GET", f"/v1/tables/{LARGE_TABLE}"), receive_buffer=4_096)


def waiters(flood: Flood) -> None:
    flood.repeat(
        300,
        lambda number, turn: flood.request(
            "POST", "/v1/leases", {"resource": HELD, "wait_ms": 20_000, "owner": f"o-{number}", **LEASE}
        ),
    )


def streams(flood: Flood) -> None:
    flood.hold(
        200,
        lambda number, turn: flood.request("GET", "/v1/history/stream", headers="Accept: text/event-stream\r\n")
        if number % 2
        else flood.request(
            "POST", "/v1/leases", {"resource": f"flood/kept-{number}", **LEASE}, "Accept: text/event-stream\r\n"
        ),
    )


def writes(flood: Flood) -> None:
    def write(number: int, turn: int) -> bytes:
        resource = f"inventory/flood-{number}"
        return flood.request(
            "POST",
            "/v1/writes",
            {
                "lease": {"resource": resource, **LEASE},
                "operations": [
                    {"update": "inventory", "where": {"sku": f"flood-{number}"}, "set": {"note": str(turn)}}
                ],
            },
        )

    flood.repeat(100, write)


def reads(flood: Flood) -> None:
    flood.repeat(100, lambda number, turn: flood.request("GET", "/v1/tables/inventory?note=ilike.*a*b*c*&limit=1000"))


def exports(flood: Flood) -> None:
    flood.repeat(
        50,
        lambda number, turn: flood.request(
            "GET", f"/v1/history?resource={EXPORTED}", headers="Accept: application/x-ndjson\r\n"
        ),
    )


def failed_authentications(flood: Flood) -> None:
    wrong = Flood(flood.port, "", flood.source)

    def guess(number: int, turn: int) -> bytes:
        wrong.key = f"guess-{number}-{turn}-of-a-key"
        return wrong.request("GET", "/v1/history")

    flood.repeat(50, guess, pipelined=4)


def resources(flood: Flood) -> None:
    flood.repeat(
        100, lambda number, turn: flood.request("POST", "/v1/leases", {"resource": f"flood/{number}/{turn}", **LEASE})
    )


KINDS: dict[str, Callable[[Flood], None]] = {
    kind.__name__: kind
    for kind in (
        requests,
        anonymous_requests,
        connections,
        slow_bodies,
        unread_answers,
        waiters,
        streams,
        writes,
        reads,
        exports,
        failed_authentications,
        resources,
    )
}


@contextmanager
def running(kind: str, port: int, key: str, source: str, log: Path) -> Iterator[subprocess.Popen]:
    """Runs a flood while the block lasts, with a lower priority than the gateway,
    so that it does not take the processor from it."""
    tests = Path(__file__).resolve().parents[1]
    made = processes.start(
        ["nice", "-n", "10", sys.executable, "-m", "support.floods", kind, str(port), key, source],
        log,
        env={**os.environ, "PYTHONPATH": str(tests), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        yield made
        assert made.poll() is None, f"the flood {kind} has ended: {log.read_text()[-2000:]}"
    finally:
        made.kill()
        made.wait()


if __name__ == "__main__":
    KINDS[sys.argv[1]](Flood(int(sys.argv[2]), sys.argv[3], sys.argv[4]))
