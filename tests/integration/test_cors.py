"""CORS: pages of http.allowed_origins may read answers in a browser, pages of other origins may not."""

from __future__ import annotations

import http.client
import json
import os
import signal
from typing import Iterator, cast

import pytest
from support.cluster import Cluster, Gateway, credentials
from support.polling import eventually

PAGE, OTHER = "https://shop.example", "https://evil.example"
KEY = "a-long-enough-key-of-the-orders"


class Response(http.client.HTTPResponse):
    text: str


def ask(gateway: Gateway, method: str, path: str, origin: str | None, body: object = None, **headers: str) -> Response:
    """Sends a request and returns the response, with its body in `text`."""
    wire = http.client.HTTPConnection(gateway.api.host, gateway.api.port, timeout=10)
    sent = {
        **({"Origin": origin} if origin else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
        **({"Content-Type": "application/json"} if body else {}),
    }
    wire.response_class = Response
    wire.request(method, path, json.dumps(body) if body else None, sent)
    answer = cast(Response, wire.getresponse())
    answer.text = answer.read().decode()
    wire.close()
    return answer


def cors_fields(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {name: value for name, value in answer.getheaders() if name.startswith("Access-Control-")}


@pytest.fixture(scope="module")
def cors_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with a key and one allowed origin."""
    settings = cluster.settings()
    settings["http"]["allowed_origins"] = [PAGE]
    settings["auth"] = credentials({"orders": KEY})
    with cluster.serving(settings) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def keyless_gateway(cluster: Cluster) -> Iterator[Gateway]:
    settings = cluster.settings()
    settings["http"]["allowed_origins"] = [PAGE]
    with cluster.serving(settings) as gateway:
        yield gateway


def test_cors_preflight_names_methods_and_headers_without_key(cors_gateway: Gateway) -> None:
    answer = ask(
        cors_gateway,
        "OPTIONS",
        "/v1/leases",
        PAGE,
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization,content-type,idempotency-key",
    )
    fields = cors_fields(answer)
    assert answer.status == 204 and fields["Access-Control-Allow-Origin"] == PAGE
    assert {"GET", "POST"} <= set(fields["Access-Control-Allow-Methods"].split(", "))
    assert {"Authorization", "Content-Type", "Idempotency-Key", "Fencing-Cell", "Fencing-Lease"} <= set(
        fields["Access-Control-Allow-Headers"].split(", ")
    )
    assert fields["Access-Control-Max-Age"] == "600" and answer.headers["Vary"] == "Origin"
    assert "Access-Control-Allow-Methods" not in cors_fields(
        ask(cors_gateway, "OPTIONS", "/v1/leases", PAGE)
    ), "a plain OPTIONS is no preflight"


@pytest.mark.parametrize(
    "origin",
    [
        OTHER,
        *(
            "null https://shop.example:8443 http://shop.example https://shop.example.evil.example "
            "https://SHOP.example"
        ).split(),
    ],
)
def test_cors_unknown_origin_gets_no_header(cors_gateway: Gateway, origin: str) -> None:
    for method, path, headers in (
        ("OPTIONS", "/v1/leases", {"Access_Control_Request_Method": "POST"}),
        ("GET", "/v1/history", {"Authorization": f"Bearer {KEY}"}),
        ("POST", "/v1/leases", {}),
    ):
        answer = ask(cors_gateway, method, path, origin, **headers)
        assert cors_fields(answer) == {} and answer.headers["Vary"] == "Origin", answer.getheaders()


def test_cors_headers_are_those_of_openapi(cors_gateway: Gateway) -> None:
    """What the contract has as a header, a page may send, or read."""

    def names(value: object) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            if value.get("in") == "header":
                yield "request", value["name"]
            if "description" in value and isinstance(value.get("headers"), dict):
                yield from (("answer", name) for name in value["headers"])
        for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            yield from names(member)

    found = list(names(json.loads(ask(cors_gateway, "GET", "/openapi.json", None).text)))
    requests, answers = ({name.lower() for kind, name in found if kind == wanted} for wanted in ("request", "answer"))
    assert {"fencing-lease", "idempotency-key"} <= requests and {"location", "etag"} <= answers
    fields = cors_fields(ask(cors_gateway, "OPTIONS", "/v1/leases", PAGE, Access_Control_Request_Method="POST"))
    assert requests <= set(fields["Access-Control-Allow-Headers"].lower().split(", "))
    assert answers - {"content-security-policy"} <= set(
        fields["Access-Control-Expose-Headers"].lower().split(", ")
    ), "the console's pages alone have a policy"


def test_cors_every_answer_names_origin_and_exposes_headers(cors_gateway: Gateway, resource: str) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    granted = ask(cors_gateway, "POST", "/v1/leases", PAGE, {"resource": resource, "ttl_ms": 2_000}, **key)
    assert (
        granted.status == 201 and granted.headers["Location"]
    ), "a page of the origin may change something with its key"
    answers = [
        granted,
        ask(cors_gateway, "GET", "/v1/history", PAGE, **key),
        ask(cors_gateway, "GET", "/v1/history", PAGE),
        ask(cors_gateway, "POST", "/v1/leases", PAGE, {"resource": resource}, **key),
        ask(cors_gateway, "GET", "/nothing", PAGE),
        ask(cors_gateway, "PUT", "/v1/leases", PAGE),
        ask(cors_gateway, "GET", "/v1/history", PAGE, Accept="text/csv", **key),
        ask(cors_gateway, "GET", "/healthz", PAGE, **{"X_Long": "x" * 20_000}),
    ]
    assert [answer.status for answer in answers] == [201, 200, 401, 423, 404, 405, 200, 431]
    for answer in answers[:-1]:
        fields = cors_fields(answer)
        assert (
            fields["Access-Control-Allow-Origin"] == PAGE and "Access-Control-Allow-Credentials" not in fields
        ), answer.getheaders()
        assert {"Location", "RateLimit", "Retry-After", "ETag", "X-Request-Id", "Fencing-Write-Id"} <= set(
            fields["Access-Control-Expose-Headers"].split(", ")
        )
    without = ask(cors_gateway, "GET", "/v1/history", None, **key)
    assert cors_fields(without) == {} and without.headers["Vary"] == "Origin"


def test_cors_event_stream_names_origin(cors_gateway: Gateway, resource: str) -> None:
    wire = http.client.HTTPConnection(cors_gateway.api.host, cors_gateway.api.port, timeout=10)
    wire.request(
        "POST",
        "/v1/leases",
        json.dumps({"resource": resource}),
        {
            "Origin": PAGE,
            "Accept": "text/event-stream",
            "Authorization": f"Bearer {KEY}",
            "Content-Type": "application/json",
            "Accept-Encoding": "gzip",
        },
    )
    answer = wire.getresponse()
    assert (
        answer.status == 200
        and answer.headers["Access-Control-Allow-Origin"] == PAGE
        and answer.headers["Content-Encoding"] is None
    )
    assert answer.readline() == b"event: granted\n", "an event arrives uncompressed and at once"
    wire.close()


def test_cors_keyless_gateway_serves_listed_origin_only(keyless_gateway: Gateway, resource: str) -> None:
    served = ask(keyless_gateway, "POST", "/v1/leases", PAGE, {"resource": resource})
    assert served.status == 201 and cors_fields(served)["Access-Control-Allow-Origin"] == PAGE
    for method in ("GET", "OPTIONS", "POST"):
        refused = ask(keyless_gateway, method, "/v1/leases", OTHER, Access_Control_Request_Method="POST")
        assert refused.status == 403 and cors_fields(refused) == {}, refused.getheaders()


def test_cors_is_off_by_default(gateway: Gateway) -> None:
    answer = ask(gateway, "GET", "/healthz", f"http://localhost:{gateway.api.port}")
    assert cors_fields(answer) == {} and answer.headers["Vary"] is None


def test_cors_origins_are_reloaded_by_sighup(cluster: Cluster) -> None:
    settings = cluster.settings()
    with cluster.serving(settings) as gateway:
        assert ask(gateway, "GET", "/healthz", PAGE).status == 403
        settings["http"]["allowed_origins"] = [PAGE]
        gateway.write_config(settings)
        os.kill(gateway.pid, signal.SIGHUP)
        answer = eventually(
            lambda: (found := ask(gateway, "GET", "/healthz", PAGE)).status == 200 and found,
            goal="the origin is allowed",
        )
        assert cors_fields(answer)["Access-Control-Allow-Origin"] == PAGE
