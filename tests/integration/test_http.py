"""HTTP: methods, media types, limits, connections, and clients that violate the protocol."""

from __future__ import annotations

import json
import uuid

import pytest
from support.api import Api, expect_problem, lease_path
from support.polling import eventually, pause
from support.shop import Sku
from support.stack import Stack
from support.wire import Wire, request


def lease_body() -> dict[str, object]:
    return {"resource": f"test/http-{uuid.uuid4().hex[:12]}", "ttl_ms": 20_000}


@pytest.fixture
def wire(api: Api) -> Wire:
    return Wire(api.host, api.port)


@pytest.mark.parametrize("path", ["/nope", "/v1/leases/", "/v1//leases"])
def test_path_unknown_404(api: Api, path: str) -> None:
    for method in ("GET", "POST"):
        assert (
            "/openapi.json"
            in expect_problem(api.call(method, path, {} if method == "POST" else None), 404, "not-found")["detail"]
        )


@pytest.mark.parametrize(
    "method, path, allowed",
    [
        ("GET", "/v1/writes", {"POST"}),
        ("POST", "/v1/leases/x", {"GET", "DELETE"}),
        ("DELETE", "/readyz", {"GET"}),
        ("BREW", "/v1/leases", {"POST"}),
    ],
)
def test_method_not_of_this_path_405_with_allow(api: Api, method: str, path: str, allowed: set[str]) -> None:
    answer = api.call(method, path)
    expect_problem(answer, 405, "method-not-allowed")
    listed = {name.strip() for name in answer.headers["Allow"].split(",")}
    assert allowed <= listed and method not in listed


def test_accept_of_no_available_type_406(api: Api) -> None:
    expect_problem(api.get("/v1/history", {"Accept": "application/xml;q=0.9, text/plain"}), 406, "not-acceptable")
    assert api.get("/v1/history", {"Accept": "text/html, application/json;q=0.1"}).status == 200


def test_content_type_other_than_json_in_utf_8_415(api: Api) -> None:
    refused = expect_problem(
        api.post("/v1/leases", lease_body(), {"Content-Type": "application/x-www-form-urlencoded"}),
        415,
        "unsupported-media-type",
    )
    assert "'content-type: application/json'" in refused["detail"]
    refused = expect_problem(
        api.post("/v1/leases", lease_body(), {"Content-Type": "application/json; charset=latin1"}),
        415,
        "unsupported-media-type",
    )
    assert "latin1" in refused["detail"]
    assert api.post("/v1/leases", lease_body(), {"Content-Type": "APPLICATION/JSON; charset=UTF-8"}).status == 201


def test_body_too_large_413_and_gateway_survives(api: Api) -> None:
    body = b'{"resource": "' + b"x" * (1 << 20) + b'"}'
    expect_problem(api.post("/v1/leases", raw=body), 413, "too-large")
    assert api.get("/healthz").status == 200


def test_body_at_limit_is_read(api: Api) -> None:
    body = json.dumps(lease_body()).encode()
    assert api.post("/v1/leases", raw=body + b" " * ((1 << 20) - len(body))).status == 201


def test_request_of_chunks_sent_byte_by_byte_is_answered(wire: Wire) -> None:
    body = json.dumps(lease_body()).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:10], body[10:]))
    with wire:
        for byte in (
            b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        ):
            wire.send(bytes([byte]))
        assert wire.receive().status == 201


def test_empty_line_before_request_is_ignored(wire: Wire) -> None:
    """Some clients send one after a body."""
    with wire:
        wire.send(request("POST", "/v1/leases", json.dumps(lease_body()).encode()))
        assert wire.receive().status == 201
        for piece in (b"\r", b"\nG", b"ET"):
            wire.send(piece)
            pause(0.05, "the piece arrives alone")
        wire.send(b" /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.receive().status == 200


def test_expect_100_continue_is_answered_before_body(wire: Wire) -> None:
    body = json.dumps(lease_body()).encode()
    with wire:
        wire.send(
            b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert wire.receive(has_body=False).status == 100
        wire.send(body)
        assert wire.receive().status == 201


def test_request_head_too_large_431_and_closed(wire: Wire, api: Api) -> None:
    with wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n")
        assert wire.receive().status == 431
        assert wire.is_closed()
    assert api.get("/healthz").status == 200


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\r\n\r\n\r\n\r\nnonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    ],
    ids=["words", "tls", "two-lengths"],
)
def test_bytes_that_are_no_request_400_or_closed(wire: Wire, api: Api, bytes_: bytes) -> None:
    with wire:
        wire.send(bytes_)
        if not wire.is_closed():
            assert wire.receive().status == 400
            assert wire.is_closed()
    assert api.get("/healthz").status == 200


def test_request_id_sent_is_echoed(api: Api) -> None:
    for path in ("/healthz", "/nope"):
        assert api.get(path, {"X-Request-Id": "my-id-42"}).headers["X-Request-Id"] == "my-id-42"


def test_request_id_absent_is_made_unique(api: Api) -> None:
    ids = [api.get("/healthz").headers["X-Request-Id"] for _ in range(20)]
    assert all(ids) and len(set(ids)) == 20


@pytest.mark.parametrize("strange", ["x" * 5_000, "caf\u00e9"])
def test_request_id_strange_keeps_answer_well_formed(api: Api, strange: str) -> None:
    answer = api.get("/nope", {"X-Request-Id": strange})
    problem = expect_problem(answer, 404, "not-found")
    assert len(problem["request_id"]) <= 200 or problem["request_id"] == strange


def test_connection_kept_alive_serves_many_requests(api: Api) -> None:
    with api.connection() as connection:
        connection.wire.connect()
        port = connection.wire.sock.getsockname()[1]
        for number in range(100):
            assert connection.call("GET", "/healthz").status == 200
            assert connection.call("GET", "/nope").status == 404
            assert connection.post("/v1/leases", {"resource": 5}).status == 400
            assert (
                connection.wire.sock and connection.wire.sock.getsockname()[1] == port
            ), f"closed after round {number}"


def test_connection_close_requested_closes_after_answer(wire: Wire) -> None:
    with wire:
        wire.send(request("GET", "/healthz", b"", "Connection: close"))
        assert wire.receive().status == 200
        assert wire.is_closed()


def test_connection_of_http_1_0_closes_after_answer(wire: Wire) -> None:
    with wire:
        wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert wire.receive().status == 200
        assert wire.is_closed()


def test_requests_pipelined_are_answered_in_order(wire: Wire) -> None:
    ids = [f"pipelined-{number}" for number in range(30)]
    with wire:
        wire.send(
            b"".join(
                request("GET", ["/healthz", "/nope", "/readyz"][number % 3], b"", f"X-Request-Id: {name}")
                for number, name in enumerate(ids)
            )
        )
        answers = [wire.receive() for _ in ids]
    assert [answer.headers["x-request-id"] for answer in answers] == ids
    assert [answer.status for answer in answers] == [200, 404, 200] * 10


def test_requests_pipelined_behind_waiting_one_keep_order(api: Api, wire: Wire, resource: str) -> None:
    held = api.must_acquire(resource)
    body = json.dumps({"resource": resource, "ttl_ms": 1_000, "wait_ms": 10_000}).encode()
    with wire:
        wire.send(request("POST", "/v1/leases", body) + request("GET", "/healthz"))
        api.await_waiters(resource, 1)
        api.must_release(held)
        assert wire.receive().status == 201
        assert wire.receive().status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/nope"])
def test_head_answers_as_get_without_body(wire: Wire, path: str) -> None:
    with wire:
        wire.send(request("GET", path, b"", "X-Request-Id: same"))
        get = wire.receive()
        wire.send(request("HEAD", path, b"", "X-Request-Id: same") + request("GET", path, b"", "X-Request-Id: same"))
        head = wire.receive(has_body=False)
        again = wire.receive()
    assert head.status == get.status == again.status
    assert head.headers["content-length"] == str(len(get.body))
    assert head.headers["content-type"] == get.headers["content-type"]
    assert again.body == get.body


def test_head_of_leases_answers_as_list_and_takes_nothing(api: Api, resource: str) -> None:
    answer = api.call("HEAD", "/v1/leases", {"resource": resource})
    assert answer.status == 200 and answer.body == b"" and answer.headers.get_content_type() == "application/json"
    assert (
        api.call("HEAD", "/v1/leases", {"resource": resource}, {"Accept": "text/event-stream"}).status == 406
    ), "the list has no event stream"
    assert api.acquire(resource).status == 201


def test_head_of_path_for_post_only_405(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource)
    answer = api.call("HEAD", f"{lease_path(lease)}/renew")
    assert answer.status == 405 and answer.body == b""
    assert api.read_lease(lease).json()["renewals_left"] == lease["renewals_left"]


def test_health_and_readiness_200_on_healthy_stack(api: Api) -> None:
    assert api.get("/healthz").status == api.get("/readyz").status == 200


def test_connections_idle_by_hundreds_do_not_block_others(api: Api) -> None:
    silent = [Wire(api.host, api.port) for _ in range(300)]
    try:
        for wire in silent[::2]:
            wire.send(b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        for _ in range(20):
            assert api.get("/healthz").status == 200
    finally:
        for wire in silent:
            wire.socket.close()


def test_client_that_never_reads_does_not_block_others(stack: Stack, api: Api) -> None:
    with Wire(api.host, api.port) as stalled:
        stalled.socket.settimeout(0.3)
        try:
            for _ in range(2_000):
                stalled.send(request("GET", "/v1/history?limit=1000"))
        except TimeoutError:
            pass
        assert eventually(lambda: api.get("/healthz").status == 200 and api.get("/readyz").status == 200)


def test_answers_of_api_forbid_caching_and_sniffing(api: Api, sku: Sku) -> None:
    for method, path, accept in [
        ("GET", "/healthz", "*/*"),
        ("GET", "/nope", "*/*"),
        ("GET", "/v1/history", "text/csv"),
        ("GET", "/v1/history", "application/json"),
        ("GET", f"/v1/tables/inventory?sku=eq.{sku.name}", "*/*"),
        ("POST", "/v1/leases", "*/*"),
        ("GET", "/problems/forbidden", "*/*"),
    ]:
        answer = api.call(method, path, {} if method == "POST" else None, {"Accept": accept})
        assert (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]) == (
            "no-store",
            "nosniff",
        ), f"{method} {path}"
    assert api.get("/console").headers["Cache-Control"] == "no-cache"
