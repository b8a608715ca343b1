"""SIGHUP with other authorities of client certificates: what callers with a certificate
of an earlier authority still get."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import Iterator

import pytest
from support.api import Api, expect_problem
from support.cluster import Cluster
from support.events import open_kept_lease
from support.polling import eventually, pause
from support.reloads import WITHDRAWN, Reloaded, Rotation, key_entry
from support.wire import Wire, request

HOST = "127.0.0.1"


@pytest.fixture
def rotation(cluster: Cluster, tmp_path: Path) -> Iterator[Rotation]:
    """A gateway whose callers have certificates of the second authority, of the principal `shop`."""
    made = Rotation(cluster, tmp_path)
    reloaded = made.reloaded
    reloaded.settings["http"]["tls"]["client_ca_file"] = str(made.second.file)
    reloaded.settings["auth"] = {
        "api_keys": [key_entry("admin")],
        "client_certificates": [{"principal": "shop", "subject": "CN=shop", "scopes": ["leases", "writes", "history"]}],
    }
    reloaded.reload()
    yield made
    reloaded.gateway.kill()


@pytest.fixture
def identified(rotation: Rotation) -> ssl.SSLContext:
    """The TLS of the caller `shop`."""
    issued = rotation.second.issue("shop")
    context = ssl.create_default_context(cafile=str(rotation.first.file))
    context.load_cert_chain(issued.file, issued.key)
    return context


def withdraw_authority(rotation: Rotation) -> None:
    rotation.reloaded.settings["http"]["tls"]["client_ca_file"] = str(rotation.first.file)
    rotation.reloaded.reload()


def open_wire(reloaded: Reloaded, context: ssl.SSLContext) -> Wire:
    return Wire(HOST, reloaded.gateway.api.port, 30, context)


def test_reload_of_authorities_closes_their_connections(rotation: Rotation, identified: ssl.SSLContext) -> None:
    gateway = rotation.reloaded.gateway
    with Api(gateway.api.url, tls=identified).connection() as with_certificate, gateway.api.connection() as without:
        assert (
            with_certificate.call("GET", "/v1/leases?limit=1").status == without.call("GET", "/healthz").status == 200
        )
        withdraw_authority(rotation)
        assert without.call("GET", "/healthz").status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            with_certificate.call("GET", "/healthz")


def test_reload_of_authorities_ends_waits_of_their_callers(
    rotation: Rotation, identified: ssl.SSLContext, resource: str
) -> None:
    reloaded = rotation.reloaded
    with open_kept_lease(reloaded.api("admin"), resource) as held, open_kept_lease(
        Api(reloaded.gateway.api.url, tls=identified), resource, wait_ms=20_000
    ) as waiting:
        held.wait_for_grant()
        reloaded.api("admin").await_waiters(resource, 1)
        withdraw_authority(rotation)
        waiting.wait_for_end()
        assert (
            waiting.refused is not None
            and expect_problem(waiting.refused, 401, "unauthenticated")["detail"] == WITHDRAWN
        )
        assert not held.ended


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_reload_of_authorities_ends_handshakes_under_way(
    rotation: Rotation, identified: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    """The gateway has sent its own certificate, and has yet to verify that of the caller."""
    identified.minimum_version = identified.maximum_version = version
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = identified.wrap_bio(received, to_send, server_hostname=HOST)
    with socket.create_connection((HOST, rotation.reloaded.gateway.api.port), 5) as connection:
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        connection.sendall(to_send.read())
        while not to_send.pending:
            received.write(connection.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
        withdraw_authority(rotation)
        if (
            version is ssl.TLSVersion.TLSv1_3
        ):  # its handshake ends with the caller's flight, that of 1.2 with the gateway's answer to it
            tls.write(request("GET", "/v1/leases?limit=1"))
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(to_send.read())
            answer = connection.recv(65_536)
        assert not answer


def test_reload_of_authorities_refuses_request_partly_read(rotation: Rotation, identified: ssl.SSLContext) -> None:
    whole = request("GET", "/v1/leases?limit=1")
    with open_wire(rotation.reloaded, identified) as wire:
        wire.send(whole)
        assert wire.receive().status == 200
        wire.send(whole[:-10])
        pause(0.3, "the gateway has read the first part")
        withdraw_authority(rotation)
        wire.send(whole[-10:])
        refused = wire.receive()
        assert refused.status == 401 and refused.headers["connection"] == "close" and wire.is_closed()


def test_reload_of_authorities_ends_connection_after_answer(
    rotation: Rotation, identified: ssl.SSLContext, cluster: Cluster
) -> None:
    """A request that was sent behind the one whose answer is under way is not answered."""
    cluster.query("create table reload_large (id int primary key, body text)")
    cluster.query("insert into reload_large select n, repeat('x', 1000000) from generate_series(1, 30) n")
    cluster.query("select fencing.expose_table('reload_large')")
    api = Api(rotation.reloaded.gateway.api.url, tls=identified)
    eventually(lambda: api.get("/v1/tables/reload_large?id=eq.0").status == 200, goal="the gateway knows the table")
    with open_wire(rotation.reloaded, identified) as wire:
        wire.send(request("GET", "/v1/tables/reload_large") + request("GET", "/healthz"))
        assert wire.read_more(), "the answer is being sent"
        withdraw_authority(rotation)
        answer = wire.receive()
        assert answer.status == 200 and len(answer.body) > 30_000_000
        assert wire.is_closed()


def test_rules_of_one_value_are_told_apart(rotation: Rotation) -> None:
    """The event of a reload names the one of them that has changed."""
    reloaded = rotation.reloaded
    rules = [
        {"principal": "a", "dns": "shop.test", "scopes": ["leases"]},
        {"principal": "b", "uri": "shop.test", "scopes": ["leases"]},
    ]
    reloaded.settings["auth"]["client_certificates"] = rules
    reloaded.reload()
    rules[1]["scopes"] = ["history"]
    reloaded.reload()
    admin = reloaded.api("admin")

    def changed() -> list[tuple[str, str, list[str]]]:
        items = admin.history(event="configuration_reloaded", limit=1)
        return [
            (rule["name"], rule["now"]["principal"], rule["now"]["scopes"])
            for rule in items[0]["detail"]["rules"]
            if rule["was"] and rule["now"]
        ]

    expected = [("certificate:shop.test (uri)", "b", ["history"])]
    eventually(lambda: changed() == expected, goal="the second rule has changed")
