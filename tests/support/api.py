"""The HTTP contract as a client sees it: JSON out and in, problems checked, leases and writes in one line."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from dataclasses import dataclass
from decimal import Decimal
from email.message import Message
from typing import Any

from support import contract
from support.polling import eventually

Json = Any
SAFE_IN_PATHS = "-._~"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes
    seconds: float

    def json(self) -> Json:
        """The body; numbers with a fraction as Decimal, so that no digit is lost on the way."""
        return json.loads(self.body, parse_float=Decimal)

    def __str__(self) -> str:
        return f"{self.status} {self.body[:2000].decode(errors='replace')}"


def expect_problem(answer: Answer, status: int, slug: str) -> Json:
    """Checks the shape of RFC 9457 and of the contract, and gives the document."""
    assert answer.status == status, f"expected {status} {slug}, got {answer}"
    assert answer.headers.get_content_type() == "application/problem+json", answer.headers.items()
    problem = answer.json()
    assert problem["type"] == f"/problems/{slug}", answer
    assert problem["status"] == status, answer
    for member in ("title", "detail", "request_id"):
        assert isinstance(problem[member], str) and problem[member], f"{member} of {answer}"
    assert answer.headers["X-Request-Id"] == problem["request_id"], f"{answer.headers.items()} {answer}"
    return problem


def pointers_of(answer: Answer, status: int = 400, slug: str = "invalid-request") -> list[str]:
    """The pointers of a problem's `errors`, each of which must come with a reason."""
    errors = expect_problem(answer, status, slug)["errors"]
    assert all(isinstance(error["detail"], str) and error["detail"] for error in errors), answer
    return [error["pointer"] for error in errors]


class Connection:
    """One keep-alive connection. Not for two threads at once."""

    def __init__(self, host: str, port: int, headers: dict[str, str], timeout: float) -> None:
        self.wire = http.client.HTTPConnection(host, port, timeout=timeout)
        self.headers = headers
        self.asked = "", ""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.wire.close()

    def send(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None,
             raw: bytes | None = None) -> None:
        """Sends a request; `raw` in place of `body` goes out as it is."""
        out = dict(self.headers)
        if body is not None or raw is not None:
            out["Content-Type"] = "application/json"
        out.update(headers or {})
        payload = raw if body is None else json.dumps(body, default=str).encode()
        self.asked = method, path
        self.wire.request(method, path, payload, out)

    def receive(self) -> Answer:
        began = time.monotonic()
        got = self.wire.getresponse()
        answer = Answer(got.status, got.msg, got.read(), time.monotonic() - began)
        contract.check(*self.asked, answer)
        return answer

    def call(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None,
             raw: bytes | None = None) -> Answer:
        began = time.monotonic()
        self.send(method, path, body, headers, raw)
        got = self.receive()
        return Answer(got.status, got.headers, got.body, time.monotonic() - began)


class Call(threading.Thread):
    """A call on a connection of its own that is under way while the test goes on."""

    def __init__(self, connection: Connection, method: str, path: str, body: Json = None,
                 headers: dict[str, str] | None = None) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.began = time.monotonic()
        connection.send(method, path, body, headers)  # sent before the constructor returns: the order of calls is the order of arrival
        self.got: Answer | None = None
        self.failed: Exception | None = None
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.got = self.connection.receive()
        except Exception as failure:  # shown by answer()
            self.failed = failure
        self.ended = time.monotonic()

    def answer(self, within: float = 15.0) -> Answer:
        self.join(within)
        assert not self.is_alive(), f"no answer within {within} s"
        if self.failed:
            raise self.failed
        assert self.got is not None
        self.connection.close()
        return self.got

    def hang_up(self) -> None:
        """What a caller does that loses patience: the connection goes away, without a word."""
        wire = self.connection.wire.sock
        if wire is not None:
            wire.shutdown(2)
        self.connection.close()
        self.join(5)


class Api:
    """Calls on one gateway. Each call opens a connection; `connection()` keeps one."""

    def __init__(self, url: str, key: str | None = None, timeout: float = 40.0) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.host, self.port, self.timeout = url, parts.hostname or "", parts.port or 80, timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def with_key(self, key: str | None) -> "Api":
        return Api(self.url, key, self.timeout)

    def connection(self) -> Connection:
        return Connection(self.host, self.port, self.headers, self.timeout)

    def call(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None,
             raw: bytes | None = None) -> Answer:
        with self.connection() as connection:
            return connection.call(method, path, body, headers, raw)

    def get(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return self.call("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path, headers=headers)

    def begin(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None) -> Call:
        connection = self.connection()
        connection.wire.connect()
        return Call(connection, method, path, body, headers)

    # leases

    def ask(self, resource: object, **more: object) -> Answer:
        return self.call("POST", "/v1/leases", {"resource": resource, **more})

    def begin_ask(self, resource: str, **more: object) -> Call:
        return self.begin("POST", "/v1/leases", {"resource": resource, **more})

    def waiters(self, resource: str) -> int:
        """Callers that have a place in this gateway's queue for the resource (or one whose name begins so)."""
        page = self.get("/v1/leases", resource_prefix=resource, limit=1)
        assert page.status == 200, page
        return page.json()["waiters"]

    def await_waiters(self, resource: str, count: int) -> None:
        """Waits until so many callers have a place in this gateway's queue."""
        eventually(lambda: self.waiters(resource) == count, 15, every=0.005, what=f"{count} callers wait for {resource}")

    def begin_wait(self, resource: str, **more: object) -> Call:
        """A call that waits: it has its place in this gateway's queue."""
        waiters = self.waiters(resource)
        call = self.begin_ask(resource, **{"wait_ms": 20_000, "ttl_ms": 20_000, **more})
        eventually(lambda: not call.is_alive() or self.waiters(resource) == waiters + 1, 15, every=0.005, what=f"a place in the queue for {resource}")
        assert call.is_alive(), f"it did not wait: {call.got}"
        return call

    def take(self, resource: str, ttl_ms: int = 20_000, **more: object) -> Json:
        """A lease that is to be had; where nodes were late it is asked for again."""
        until = time.monotonic() + 10
        answer = self.ask(resource, ttl_ms=ttl_ms, **more)
        while answer.status == 503 and answer.json()["type"] == "/problems/no-quorum" and time.monotonic() < until:
            answer = self.ask(resource, ttl_ms=ttl_ms, **more)
        assert answer.status == 201, f"no lease on {resource}: {answer}"
        return answer.json()

    def look(self, lease: Json) -> Answer:
        return self.call("GET", lease_path(lease))

    def renew(self, lease: Json, ttl_ms: int = 20_000) -> Answer:
        return self.call("POST", f"{lease_path(lease)}/renew", {"ttl_ms": ttl_ms})

    def release(self, lease: Json) -> Answer:
        return self.call("DELETE", lease_path(lease))

    def give_back(self, lease: Json) -> None:
        answer = self.release(lease)
        assert answer.status == 204, f"not released: {answer}"

    # writes

    def write(self, lease: Json, *operations: Json, **more: object) -> Answer:
        return self.call("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": list(operations), **more})

    def wrote(self, lease: Json, *operations: Json, **more: object) -> Json:
        answer = self.write(lease, *operations, **more)
        assert answer.status == 200, f"not written: {answer}"
        return answer.json()

    # history

    def history(self, **filters: object) -> list[Json]:
        """Items of one page; asks for as many as a page may hold."""
        answer = self.get("/v1/history", **{"limit": 1000, **filters})
        assert answer.status == 200, str(answer)
        return answer.json()["items"]


def lease_path(lease: Json | str) -> str:
    lease_id = lease if isinstance(lease, str) else lease["lease_id"]
    return f"/v1/leases/{urllib.parse.quote(lease_id, safe=SAFE_IN_PATHS)}"
