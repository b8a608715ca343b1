"""An HTTP client of the gateway: sends and reads JSON, checks each answer against openapi.json,
and has a method for each call."""

from __future__ import annotations

import http.client
import json
import re
import ssl
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
        """Returns the body as JSON; numbers with a fraction are Decimal, so that no digit is lost."""
        return json.loads(self.body, parse_float=Decimal)

    def __str__(self) -> str:
        return f"{self.status} {self.body[:2000].decode(errors='replace')}"


def expect_problem(answer: Answer, status: int, slug: str) -> Json:
    """Checks status and form of a problem (RFC 9457 and docs/http-api.md) and returns the document."""
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
    """Returns the pointers of a problem's `errors`, each of which must have a detail."""
    errors = expect_problem(answer, status, slug)["errors"]
    assert all(isinstance(error["detail"], str) and error["detail"] for error in errors), answer
    return [error["pointer"] for error in errors]


class Connection:
    """One keep-alive connection, to be used by one thread at a time."""

    def __init__(
        self, host: str, port: int, headers: dict[str, str], timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self.wire = (
            http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
            if tls
            else http.client.HTTPConnection(host, port, timeout=timeout)
        )
        self.headers = headers
        self.last_request = "", ""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.wire.close()

    def send(
        self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> None:
        """Sends a request with `body` as JSON, or with the bytes `raw` as they are."""
        sent_headers = dict(self.headers)
        if body is not None or raw is not None:
            sent_headers["Content-Type"] = "application/json"
        sent_headers.update(headers or {})
        payload = raw if body is None else json.dumps(body, default=str).encode()
        self.last_request = method, path
        self.wire.request(method, path, payload, sent_headers)

    def receive(self) -> Answer:
        began = time.monotonic()
        response = self.wire.getresponse()
        answer = Answer(response.status, response.msg, response.read(), time.monotonic() - began)
        contract.check(*self.last_request, answer)
        return answer

    def call(
        self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> Answer:
        began = time.monotonic()
        self.send(method, path, body, headers, raw)
        response = self.receive()
        return Answer(response.status, response.headers, response.body, time.monotonic() - began)

    def post(self, path: str, body: Json = None, headers: dict[str, str] | None = None, **options: Any) -> Answer:
        return self.call("POST", path, body, headers, **options)


class Call(threading.Thread):
    """A call that runs in a thread, on its own connection, while the test continues."""

    def __init__(
        self, connection: Connection, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.began = time.monotonic()
        connection.send(
            method, path, body, headers
        )  # sent before the constructor returns, so that calls arrive in the order in which they are made
        self.received: Answer | None = None
        self.failed: Exception | None = None
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.received = self.connection.receive()
        except Exception as failure:  # shown by answer()
            self.failed = failure
        self.ended = time.monotonic()

    def answer(self, timeout: float = 15.0) -> Answer:
        self.join(timeout)
        assert not self.is_alive(), f"no answer within {timeout} s"
        if self.failed:
            raise self.failed
        assert self.received is not None
        self.connection.close()
        return self.received

    def disconnect(self) -> None:
        """Closes the connection without waiting for the answer."""
        wire = self.connection.wire.sock
        if wire is not None:
            wire.shutdown(2)
        self.connection.close()
        self.join(5)


class Api:
    """Calls to one gateway. Each call opens a connection; `connection()` returns one to keep.
    `tls` is for a gateway with HTTPS.

    `must_acquire`, `must_write`, `must_release` and `must_revoke` fail the test where the call does not succeed;
    `acquire`, `write` and `release` return the answer.
    """

    def __init__(
        self, url: str, key: str | None = None, timeout: float = 40.0, tls: ssl.SSLContext | None = None
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        self.tls = tls
        self.url, self.host, self.port, self.timeout = url, parts.hostname or "", parts.port or 80, timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def with_key(self, key: str | None) -> "Api":
        return Api(self.url, key, self.timeout, self.tls)

    def connection(self) -> Connection:
        return Connection(self.host, self.port, self.headers, self.timeout, self.tls)

    def call(
        self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> Answer:
        with self.connection() as connection:
            return connection.call(method, path, body, headers, raw)

    def post(self, path: str, body: Json = None, headers: dict[str, str] | None = None, **options: Any) -> Answer:
        return self.call("POST", path, body, headers, **options)

    def get(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return self.call("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path, headers=headers)

    def begin(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None) -> Call:
        connection = self.connection()
        connection.wire.connect()
        return Call(connection, method, path, body, headers)

    def metric(self, sample: str) -> float:
        """Returns the value of a metric; `sample` is its name with the labels as they are printed."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.get("/metrics").body.decode(), re.MULTILINE)
        assert found, sample
        return float(found[1])

    # Leases

    def acquire(self, resource: object, **fields: object) -> Answer:
        return self.call("POST", "/v1/leases", {"resource": resource, **fields})

    def begin_acquire(self, resource: str, **fields: object) -> Call:
        return self.begin("POST", "/v1/leases", {"resource": resource, **fields})

    def waiters(self, resource: str) -> int:
        """Returns the number of callers in this gateway's queues for resources whose names begin with `resource`."""
        page = self.get("/v1/leases", resource_prefix=resource, limit=1)
        assert page.status == 200, page
        return page.json()["waiting_gateways"][0]["waiters"]

    def await_waiters(self, resource: str, count: int) -> None:
        """Waits until `count` callers are in this gateway's queues for the resource."""
        eventually(
            lambda: self.waiters(resource) == count, 15, interval=0.005, goal=f"{count} callers wait for {resource}"
        )

    def begin_wait(self, resource: str, **fields: object) -> Call:
        """Begins to acquire a held resource, and returns the call once it is in this gateway's queue."""
        waiters = self.waiters(resource)
        call = self.begin_acquire(resource, **{"wait_ms": 20_000, "ttl_ms": 20_000, **fields})
        eventually(
            lambda: not call.is_alive() or self.waiters(resource) == waiters + 1,
            15,
            interval=0.005,
            goal=f"it is in the queue for {resource}",
        )
        assert call.is_alive(), f"it did not wait: {call.received}"
        return call

    def must_acquire(self, resource: str, ttl_ms: int = 20_000, **fields: object) -> Json:
        """Acquires a lease on a free resource; repeats the call while too few nodes answer in time,
        or the answer comes after the end of a short ttl."""
        until = time.monotonic() + 10
        answer = self.acquire(resource, ttl_ms=ttl_ms, **fields)
        while time.monotonic() < until and (
            answer.status == 410 or answer.status == 503 and answer.json()["type"] == "/problems/no-quorum"
        ):
            answer = self.acquire(resource, ttl_ms=ttl_ms, **fields)
        assert answer.status == 201, f"no lease on {resource}: {answer}"
        return answer.json()

    def read_lease(self, lease: Json) -> Answer:
        return self.call("GET", lease_path(lease))

    def renew(self, lease: Json, ttl_ms: int = 20_000) -> Answer:
        return self.call("POST", f"{lease_path(lease)}/renew", {"ttl_ms": ttl_ms})

    def release(self, lease: Json) -> Answer:
        return self.call("DELETE", lease_path(lease))

    def must_release(self, lease: Json) -> None:
        answer = self.release(lease)
        assert answer.status == 204, f"not released: {answer}"

    def revoke(self, resource: str, **fields: object) -> Answer:
        return self.call("DELETE", resource_path(resource, "lease"), {"reason": "a test", **fields})

    def must_revoke(self, resource: str) -> None:
        answer = self.revoke(resource)
        assert answer.status == 204, f"not revoked: {answer}"

    def is_held(self, resource: str) -> bool:
        """Returns whether leases on resources whose names begin with `resource` are listed."""
        return bool(self.get("/v1/leases", resource_prefix=resource).json()["items"])

    # Writes

    def write(self, lease: Json, *operations: Json, **fields: object) -> Answer:
        return self.call(
            "POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": list(operations), **fields}
        )

    def must_write(self, lease: Json, *operations: Json, **fields: object) -> Json:
        answer = self.write(lease, *operations, **fields)
        assert answer.status == 200, f"not written: {answer}"
        return answer.json()

    # History

    def history(self, **filters: object) -> list[Json]:
        """Returns the items of one page of the largest size."""
        answer = self.get("/v1/history", **{"limit": 1000, **filters})
        assert answer.status == 200, str(answer)
        return answer.json()["items"]


def lease_path(lease: Json | str) -> str:
    lease_id = lease if isinstance(lease, str) else lease["lease_id"]
    return f"/v1/leases/{urllib.parse.quote(lease_id, safe=SAFE_IN_PATHS)}"


def resource_path(resource: str, part: str = "") -> str:
    path = f"/v1/resources/{urllib.parse.quote(resource, safe=SAFE_IN_PATHS)}"
    return f"{path}/{part}" if part else path
