"""Compression of answers: from http.gzip_min_bytes on, for callers that ask for it,
and within the memory of answers."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from typing import Callable, Iterator

import pytest
from support.cluster import Cluster, Gateway
from support.processes import processor_seconds
from support.stack import Stack
from support.wire import Wire


def ask(
    gateway: Gateway, path: str, encoding: str | None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    wire = http.client.HTTPConnection(gateway.api.host, gateway.api.port, timeout=20)
    wire.putrequest(method, path, skip_accept_encoding=True)
    if encoding is not None:
        wire.putheader("Accept-Encoding", encoding)
    wire.endheaders()
    answer = wire.getresponse()
    body = answer.read()
    wire.close()
    return answer, body


@pytest.fixture(scope="module")
def small_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with the default limit of compression and the least memory for answers."""
    settings = cluster.settings()
    settings["http"]["answers_max_bytes"] = 1 << 20
    with cluster.serving(settings) as made:
        yield made


@pytest.fixture
def long_history(stack: Stack, cluster: Cluster, unique_name: Callable[[str], str]) -> Callable[..., str]:
    """Records events and returns the path that shows them all."""

    def record(count: int, detail_bytes: int = 100) -> str:
        resource = unique_name("gzip/long")
        stack.query(
            "insert into fencing.history (event, resource, detail) select 'fence_raised', %s, "
            "jsonb_build_object('n', n, 'text', repeat(md5(n::text), %s)) from generate_series(1, %s) n",
            (resource, detail_bytes // 32, count),
            dbname=cluster.database,
        )
        return f"/v1/history?limit=1000&resource={resource.replace('/', '%2F')}"

    return record


def test_gzip_large_answer_is_compressed_where_asked_for(gateway: Gateway, long_history: Callable[..., str]) -> None:
    path = long_history(900)
    plain, plain_body = ask(gateway, path, None)
    assert (
        plain.headers["Content-Encoding"] is None
        and plain.headers["Vary"] == "Accept-Encoding"
        and len(plain_body) > 200_000
    )
    for encoding in ("gzip", "deflate, gzip;q=0.5, br", "*", "x-gzip"):
        answer, body = ask(gateway, path, encoding)
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding"), encoding
        assert (
            int(answer.headers["Content-Length"]) == len(body) < len(plain_body) / 2
            and gzip.decompress(body) == plain_body
        )
    for encoding in ("", "identity", "br", "gzip;q=0", "*;q=0", "gzip;q=0.5, identity"):
        answer, body = ask(gateway, path, encoding)
        assert answer.headers["Content-Encoding"] is None and body == plain_body, encoding
    head, nothing = ask(gateway, path, "gzip", "HEAD")
    assert head.headers["Content-Encoding"] == "gzip" and not nothing


def test_gzip_small_answers_and_streams_are_not_compressed(gateway: Gateway, long_history: Callable[..., str]) -> None:
    small, _ = ask(gateway, long_history(3), "gzip")
    assert small.headers["Content-Encoding"] is None and small.headers["Vary"] is None
    wire = http.client.HTTPConnection(gateway.api.host, gateway.api.port, timeout=20)
    wire.request("GET", long_history(900), headers={"Accept": "text/csv", "Accept-Encoding": "gzip"})
    answer = wire.getresponse()
    assert answer.status == 200 and answer.read().count(b"\n") > 900
    assert answer.headers["Content-Encoding"] is None
    wire.close()


def test_gzip_min_bytes_0_compresses_nothing(cluster: Cluster, long_history: Callable[..., str]) -> None:
    settings = cluster.settings()
    settings["http"]["gzip_min_bytes"] = 0
    with cluster.serving(settings) as made:
        answer, body = ask(made, long_history(900), "gzip")
        assert (
            answer.headers["Content-Encoding"] is None and answer.headers["Vary"] is None and json.loads(body)["items"]
        )


def test_gzip_without_memory_sends_answer_uncompressed(
    small_gateway: Gateway, long_history: Callable[..., str]
) -> None:
    """Three quarters of 1 MiB do not hold an answer of 500 KB, its copy and the state of the compression."""
    answer, body = ask(small_gateway, long_history(900, 320), "gzip")
    assert answer.status == 200 and 400_000 < len(body) < 780_000, len(body)
    assert answer.headers["Content-Encoding"] is None and len(json.loads(body)["items"]) == 900
    fits, body = ask(small_gateway, long_history(200), "gzip")
    assert fits.headers["Content-Encoding"] == "gzip" and len(json.loads(gzip.decompress(body))["items"]) == 200


def test_gzip_answer_is_followed_by_next_on_connection(gateway: Gateway, long_history: Callable[..., str]) -> None:
    path = long_history(900)
    with Wire(gateway.api.host, gateway.api.port) as wire:
        wire.send(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\nGET /healthz HTTP/1.1\r\n"
            "Host: localhost\r\n\r\n".encode()
        )
        assert len(json.loads(gzip.decompress(wire.receive().body))["items"]) == 900
        assert wire.receive().status == 200


def test_gzip_openapi_is_compressed_once(gateway: Gateway) -> None:
    """This address needs no credential, so an answer must take less than compressing it."""
    count = 400
    plain, plain_body = ask(gateway, "/openapi.json", None)
    answer, body = ask(gateway, "/openapi.json", "gzip")
    assert answer.headers["Content-Encoding"] == "gzip" and gzip.decompress(body) == plain_body
    assert (
        plain.headers["Content-Encoding"] is None
        and plain.headers["Vary"] == answer.headers["Vary"] == "Accept-Encoding"
    )
    used = processor_seconds(gateway.pid)
    with Wire(gateway.api.host, gateway.api.port, 30) as wire:
        for _ in range(count):
            wire.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
            assert wire.receive().body == body
    each = (processor_seconds(gateway.pid) - used) / count
    began = time.process_time()
    for _ in range(10):
        gzip.compress(plain_body, 1)
    compressing = (time.process_time() - began) / 10
    assert each < compressing, f"{each * 1000:.2f} of {compressing * 1000:.2f} ms each"
