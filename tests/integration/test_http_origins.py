"""Checks of Host and Origin: a gateway without API keys serves loopback hosts, and requests from its own pages only."""

from __future__ import annotations

import json
from typing import Iterator

import pytest
from support.api import Api
from support.cluster import Cluster, Gateway
from support.stack import Stack
from support.wire import RawAnswer, Wire

FENCE = json.dumps({"reason": "test", "last_fencing_token": 0}).encode()


@pytest.fixture(scope="module")
def named_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with two allowed hosts."""
    settings = cluster.settings()
    settings["http"]["allowed_hosts"] = ["Shop.Example", "console.example:8443"]
    with cluster.serving(settings) as gateway:
        yield gateway


def ask(
    api: Api,
    host: str | None,
    *headers: str,
    method: str = "GET",
    target: str = "/healthz",
    body: bytes = b"",
    version: str = "1.1",
) -> RawAnswer:
    lines = [f"{method} {target} HTTP/{version}", *([] if host is None else [f"Host: {host}"]), *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    with Wire(api.host, api.port) as wire:
        wire.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        return wire.receive()


def slug_of(answer: RawAnswer) -> str:
    return json.loads(answer.body)["type"].removeprefix("/problems/")


@pytest.mark.parametrize(
    "host",
    (
        "localhost localhost:8080 LocalHost. app.localhost:1 127.0.0.1 127.8.9.1:80 [::1] [::1]:8080 "
        "[0:0:0:0:0:0:0:1] [::ffff:127.0.0.1]:9"
    ).split(),
)
def test_host_loopback_is_served(api: Api, host: str) -> None:
    assert ask(api, host).status == 200


@pytest.mark.parametrize(
    "host",
    (
        "evil.example evil.example:8080 localhost.evil.example 127.0.0.1.evil.example notlocalhost "
        "192.0.2.1 [2001:db8::1]:80 0.0.0.0 2130706433"
    ).split(),
)
def test_host_of_another_site_421_on_every_path(api: Api, host: str) -> None:
    for target in ("/healthz", "/v1/leases", "/nope", "/console", "/metrics"):
        answer = ask(api, host, target=target)
        assert answer.status == 421 and slug_of(answer) == "misdirected-request", answer


@pytest.mark.parametrize(
    "host", ["", "a b", *"localhost:x localhost:99999 user@localhost [::1 [localhost] localhost/ ex%61mple a,b".split()]
)
def test_host_invalid_400(api: Api, host: str) -> None:
    answer = ask(api, host)
    assert answer.status == 400 and slug_of(answer) == "invalid-request", answer


def test_host_missing_or_repeated_400(api: Api) -> None:
    assert ask(api, None).status == 400
    assert ask(api, "localhost", "Host: localhost").status == 400
    assert ask(api, None, version="1.0").status == 200, "HTTP/1.0 has no Host, and no browser uses it"
    assert ask(api, "evil.example", version="1.0").status == 421


def test_target_absolute_overrides_host(api: Api) -> None:
    assert ask(api, "evil.example", target="http://localhost:8080/healthz").status == 200
    assert ask(api, "evil.example", target="HTTP://LOCALHOST/healthz").status == 200
    assert ask(api, "localhost", target="http://evil.example/healthz").status == 421
    assert ask(api, "localhost", target="HTTPS://evil.example").status == 421
    for target in ("http://user@localhost/healthz", "http://@/healthz", "http:///healthz"):
        assert ask(api, "localhost", target=target).status == 400, target


@pytest.mark.parametrize(
    "headers",
    [
        ["Origin: http://evil.example"],
        ["Origin: null"],
        ["Origin: http://localhost:1"],
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"],
        ["Origin: http://localhost:8080.evil.example"],
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"],
    ],
    ids=" ".join,
)
def test_origin_foreign_403_and_fence_unchanged(api: Api, resource: str, headers: list[str]) -> None:
    lease = api.must_acquire(resource, fence_on_grant=True)
    path = f"/v1/resources/{resource.replace('/', '%2F')}"
    refused = ask(api, "localhost:8080", *headers, method="POST", target=f"{path}/fence", body=FENCE)
    assert refused.status == 403 and slug_of(refused) == "forbidden", refused
    assert ask(api, "localhost:8080", *headers, target=path).status == 403, "reading is refused too"
    assert api.get(path).json()["last_fencing_token"] == lease["fencing_token"]


@pytest.mark.parametrize(
    "host, headers",
    [
        ("localhost:8080", ["Origin: http://localhost:8080"]),
        ("LOCALHOST", ["Origin: http://localhost"]),
        ("localhost", ["Origin: http://localhost:80"]),
        ("[::1]:8080", ["Origin: http://[::1]:8080", "Sec-Fetch-Site: same-origin"]),
        ("localhost", ["Sec-Fetch-Site: none"]),
        ("localhost", ["Sec-Fetch-Site: same-origin"]),
    ],
    ids=str,
)
def test_origin_of_own_site_is_served(api: Api, resource: str, host: str, headers: list[str]) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 10_000}).encode()
    assert ask(api, host, *headers, method="POST", target="/v1/leases", body=body).status == 201


def test_link_from_another_site_shows_page(api: Api) -> None:
    followed = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]
    assert ask(api, "localhost", *followed, target="/console").status == 200
    body = json.dumps({"resource": "test/form", "ttl_ms": 100}).encode()
    assert ask(api, "localhost", *followed, method="POST", target="/v1/leases", body=body).status == 403


def test_allowed_hosts_and_their_pages_are_served(named_gateway: Gateway) -> None:
    api = named_gateway.api
    assert (
        ask(api, "shop.example").status
        == ask(api, "SHOP.example.:80").status
        == ask(api, "console.example:8443").status
        == 200
    )
    assert (
        ask(api, "console.example").status
        == ask(api, "console.example:80").status
        == ask(api, "evil.example").status
        == 421
    )
    for number, origin in enumerate(("https://shop.example", "https://console.example:8443")):
        body = json.dumps({"resource": f"test/named-{number}", "ttl_ms": 2_000}).encode()
        assert (
            ask(
                api,
                "127.0.0.1",
                f"Origin: {origin}",
                "Sec-Fetch-Site: cross-site",
                method="POST",
                target="/v1/leases",
                body=body,
            ).status
            == 201
        )
    assert (
        ask(
            api, "shop.example", "Origin: https://console.example", method="POST", target="/v1/leases", body=body
        ).status
        == 403
    )


def test_keys_allow_any_host_but_no_write_from_foreign_page(guarded_pair: Stack, resource: str) -> None:
    api, key = guarded_pair.api(0), f"Authorization: Bearer {guarded_pair.key('admin')}"
    body = json.dumps({"resource": resource, "ttl_ms": 10_000}).encode()
    foreign = "Origin: https://evil.example"
    assert ask(api, "gateway.example", key, target="/v1/leases").status == 200
    assert ask(api, "gateway.example", target="/v1/leases").status == 401
    assert (
        ask(api, "gateway.example", key, foreign, target="/v1/leases").status == 200
    ), "a page can not read an answer without CORS headers"
    assert ask(api, "gateway.example", key, foreign, method="POST", target="/v1/leases", body=body).status == 403
    assert (
        ask(
            api,
            "gateway.example",
            key,
            "Origin: https://gateway.example",
            method="POST",
            target="/v1/leases",
            body=body,
        ).status
        == 201
    )
