"""A server in place of a gateway that answers as a scenario says, and records what it is asked."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator, Optional

LEASE_ID = "L~1"
PATHS = {
    "POST /v1/leases": "acquire",
    "POST /v1/leases/cancel": "cancel",
    f"POST /v1/leases/{LEASE_ID}/renew": "renew",
    f"GET /v1/leases/{LEASE_ID}": "inspect",
    f"DELETE /v1/leases/{LEASE_ID}": "release",
    "POST /v1/writes": "write",
    "GET /v1/history": "history",
    "GET /v1/history/stream": "follow",
}


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection is closed. `stream`: events, after which the connection stays open,
    unless it `breaks`. `endless`: then a line follows that is longer than clients read."""

    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_ms: int = 0
    stream: Optional[str] = None
    breaks: bool = False
    endless: bool = False


@dataclass(frozen=True)
class Asked:
    """A request: its call, such as `renew`, the number of its gateway, and when it came, in seconds.
    `after` is its Last-Event-ID."""

    call: str
    gateway: int
    key: Optional[str]
    body: Any
    query: str
    at: float
    after: Optional[str]


DROP = Answer(0)
HANG = Answer(0, delay_ms=60_000)
LINE_BLOCKS = 512  # of 64 KiB


def granted(
    ttl_ms: int = 60_000,
    validity_ms: Optional[int] = None,
    delay_ms: int = 0,
    served_ms: int = 0,
    token: int = 2**53 - 1,
    resource: str = "a",
    **sharing: Any,
) -> Answer:
    """A lease, or its renewal, with the largest token unless it is given."""
    document = {
        "lease_id": LEASE_ID,
        "resource": resource,
        "fencing_token": token,
        "ttl_ms": ttl_ms,
        "validity_ms": ttl_ms if validity_ms is None else validity_ms,
        "served_ms": served_ms,
        **sharing,
    }
    return Answer(201, document, delay_ms=delay_ms)


def problem(status: int, slug: str, retry_after: Optional[int] = None, delay_ms: int = 0, **members: Any) -> Answer:
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": "d", "request_id": "r"}
    headers = {"Content-Type": "application/problem+json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Answer(status, {**document, **members}, headers, delay_ms)


def of_proxy(status: int) -> Answer:
    return Answer(status, "<html>", {"Content-Type": "text/html"})


def applied(replayed: bool = False, delay_ms: int = 0) -> Answer:
    document = {"applied": True, "write_id": "W", "fences": [], "results": [{"rows_affected": 1}]}
    return Answer(200, document, {"Idempotency-Replayed": "true"} if replayed else {}, delay_ms)


def page(*ids: int, cursor: Optional[str] = None) -> Answer:
    items = [{"id": each, "at": "2026-11-21T10:00:00.000Z", "event": "lease_granted"} for each in ids]
    return Answer(200, {"items": items, "next_cursor": cursor})


def fences(resource: str, *raised: tuple[int, int]) -> Answer:
    """The raised fences of a resource, each with its token and the second at which it was raised."""
    event = {"event": "fence_raised", "resource": resource}
    items = [
        {"id": token, "at": f"2026-11-21T10:00:{second:02}.000Z", "fencing_token": token, **event}
        for token, second in raised
    ]
    return Answer(200, {"items": items, "next_cursor": None})


def events(text: str) -> Answer:
    return Answer(200, stream=text)


def followed(*ids: int, rest: str = "") -> Answer:
    """A stream of the history with these events, which then breaks."""
    item = '{"id": %d, "at": "2026-11-21T10:00:00.000Z", "event": "lease_granted"}'
    texts = [f"id: {each}\nevent: lease_granted\ndata: {item % each}\n\n" for each in ids]
    return Answer(200, stream="".join(texts) + rest, breaks=True)


class ScriptedGateways:
    """One server for each script. A script has a list of answers for each call, the last of which is repeated;
    a call without a list, such as the stream that watches a lease, is refused."""

    def __init__(self, scripts: list[dict[str, list[Answer]]]) -> None:
        self.asked: list[Asked] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self.servers = [self._serve(number, script) for number, script in enumerate(scripts)]

    def _serve(self, number: int, script: dict[str, list[Answer]]) -> ThreadingHTTPServer:
        gateways = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = gateways.find_answer(number, script, self.command, self.path, dict(self.headers), content)
                gateways.ended.wait(answer.delay_ms / 1000)
                if answer.status == 0:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                if answer.stream is not None:
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(answer.stream.encode())
                    for _ in range(LINE_BLOCKS if answer.endless else 0):
                        self.wfile.write(b"x" * 2**16)
                    self.wfile.flush()
                    if not answer.breaks:
                        gateways.ended.wait()
                    return
                text = answer.document if isinstance(answer.document, str) else json.dumps(answer.document)
                body = b"" if answer.document is None else text.encode()
                headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client has closed the connection
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def find_answer(
        self,
        gateway: int,
        script: dict[str, list[Answer]],
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        path, _, query = path.partition("?")
        call = PATHS.get(f"{method} {path.replace('%7E', '~')}", "unknown")
        given = {name.lower(): value for name, value in headers.items()}
        if call == "inspect" and given.get("accept") == "text/event-stream":
            call = "watch"
        document = json.loads(body) if body else None
        asked = Asked(
            call, gateway, given.get("idempotency-key"), document, query, time.monotonic(), given.get("last-event-id")
        )
        with self._lock:
            before = sum(each.call == call and each.gateway == gateway for each in self.asked)
            self.asked.append(asked)
        answers = script.get(call, [problem(404, "not-found")])
        return answers[min(before, len(answers) - 1)]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{server.server_port}" for server in self.servers]

    def close(self) -> None:
        self.ended.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()


@contextmanager
def serving(scripts: list[dict[str, list[Answer]]]) -> Iterator[ScriptedGateways]:
    made = ScriptedGateways(scripts)
    try:
        yield made
    finally:
        made.close()
