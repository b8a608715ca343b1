"""What the tests of the Python client share: both clients behind one synchronous interface,
and the gateways that they call."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Coroutine, Iterator

import pytest
from support import processes
from support.cluster import Gateway
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import Gate

ROOT = processes.repository()
PACKAGE = ROOT / "clients/python"
sys.path.insert(0, str(PACKAGE / "src"))

import fencegate  # noqa: E402
from fencegate import errors  # noqa: E402

NO_LIMIT = 10**9
both = pytest.mark.parametrize("kind", ["sync", "async"])


class LeaseFacade:
    """An AsyncLease whose coroutines are run in the event loop of the client."""

    def __init__(self, client: "AsyncFacade", acquisition: Any) -> None:
        self._client = client
        self.lease = client.run(acquisition.__aenter__())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lease, name)

    def write(self, *operations: Any, **options: Any) -> Any:
        return self._client.run(self.lease.write(*operations, **options))

    def release(self, **options: Any) -> None:
        self._client.run(self.lease.release(**options))

    def __enter__(self) -> "LeaseFacade":
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.run(self.lease.__aexit__(*error))


class AsyncFacade:
    """An AsyncClient with the interface of Client; its event loop has a thread of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = fencegate.AsyncClient(*arguments, **options)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def lease(self, *resources: str, **options: Any) -> LeaseFacade:
        async def begin() -> Any:
            return self.client.lease(*resources, **options)

        return LeaseFacade(self, self.run(begin()))

    def adopt(self, lease_id: str, **options: Any) -> LeaseFacade:
        async def begin() -> Any:
            return self.client.adopt(lease_id, **options)

        return LeaseFacade(self, self.run(begin()))

    def one_shot_write(self, *operations: Any, **options: Any) -> Any:
        return self.run(self.client.one_shot_write(*operations, **options))

    def run_once_per_tick(self, resource: str, every: float, work: Any, **options: Any) -> bool:
        return self.run(self.client.run_once_per_tick(resource, every, work, **options))

    def get(self, path: str, **options: Any) -> Any:
        return self.run(self.client.get(path, **options))

    def history(self, **filters: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [event async for event in self.client.history(**filters)]

        return self.run(collect())

    def follow(self, **filters: Any) -> Iterator[Any]:
        async def begin() -> Any:
            return self.client.follow(**filters)

        events = self.run(begin())
        try:
            while True:
                yield self.run(events.__anext__())
        finally:
            self.run(events.aclose())

    def close(self) -> None:
        self.run(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


@contextmanager
def clients(kind: str, *arguments: Any, **options: Any) -> Iterator[Any]:
    """Opens a Client or an AsyncClient while the block lasts."""
    client = fencegate.Client(*arguments, **options) if kind == "sync" else AsyncFacade(*arguments, **options)
    try:
        yield client
    finally:
        client.close()


def recorded_answers(client: Any, on_answer: Callable[[], None] = lambda: None) -> list[tuple[str, int, str]]:
    """Returns a list to which the path of each request and the status and content of its answer are added."""
    transport = getattr(client, "client", client)._transport
    answers: list[tuple[str, int, str]] = []
    end = transport.end

    def record(sent: Any, answer: Any) -> Any:
        answers.append((sent.url.path, answer.status_code, answer.text))
        on_answer()
        return end(sent, answer)

    transport.end = record
    return answers


def await_renewal(lease: Any) -> None:
    """Waits until the validity of a lease, which decreases with time, is longer again."""
    least = lease.remaining()

    def is_longer() -> bool:
        nonlocal least
        least, longer = min(least, lease.remaining()), lease.remaining() > least + 0.2
        assert lease.remaining(), "it is over"
        return longer

    eventually(is_longer, interval=0.01, goal="the lease is renewed")


def is_lost_on_time(lease: Any) -> bool:
    """Waits until a lease that cannot be renewed is lost; that is never before its end.
    Returns False if it is so late that a busy machine may be the cause: then the test tries again."""
    began, left = time.monotonic(), lease.remaining()
    eventually(lease.lost.is_set, 5, interval=0.002, goal="the lease is lost")
    late = time.monotonic() - began - left
    assert -0.25 < late < 3.0, f"lost {late} s after its end"
    return late < 0.25


class Site:
    """Gateways of their own that use the nodes and the database of the stack."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.started: list[Gateway] = []

    def settings(self, **lease: object) -> dict[str, Any]:
        return {
            "http": {"address": "127.0.0.1", "port": processes.free_port(), "shutdown_grace_ms": 0},
            "redis": {
                "node_timeout_ms": 1_000,
                "nodes": [
                    {name: node[name] for name in ("name", "host", "port")} for node in self.stack.facts["redis"]
                ],
            },
            "lease": {"signing_key_file": str(self.stack.data / "signing.key"), **lease},
            "postgres": {"conninfo": self.stack.conninfo()},
        }

    def start(self, settings: dict[str, Any], **options: Any) -> Gateway:
        gateway = Gateway(self.folder, f"gateway-{len(self.started)}", settings, **options)
        self.started.append(gateway)
        gateway.start()
        return gateway

    def add_article(self, stem: str) -> str:
        """Returns the name of a new article with a stock of 10."""
        self.stack.query("select shop_stock(%s, 1, 10)", (f"{stem}-",))
        return f"{stem}-1"

    def stock(self, sku: str) -> int:
        return self.stack.query("select stock from inventory where sku = %s", (sku,))[0][0]


def url_of(gate: Gate) -> str:
    return f"http://127.0.0.1:{gate.port}"


def cut_first_answer(gate: Gate) -> None:
    """Resets the next connection when its answer comes; later ones work."""
    limits = iter([0])
    gate.replies.cut_after = lambda: next(limits, NO_LIMIT)


def problem(slug: str, status: int) -> dict[str, Any]:
    return {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": "It is refused.", "request_id": "r"}


@dataclass
class Reply:
    """An answer of a server in place of a gateway; `document` is sent as JSON."""

    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def answering(on_request: Callable[[str, str, int], Reply]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Runs a server that answers what `on_request` returns for the method, the path and the port of the connection.
    Returns its URL, and a list to which the requests are added."""
    requests: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Accept") == "text/event-stream":  # this server does not let a lease be watched
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            requests.append((self.command, self.path))
            reply = on_request(self.command, self.path, self.client_address[1])
            content = b"" if reply.document is None else json.dumps(reply.document).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()
