"""HTTPS: versions, certificates of the gateway and of callers,
and that everything on a connection works as without TLS."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import time
from typing import Any, Callable, Iterator

import pytest
from support import processes
from support.certificates import Certificate, Certificates, tls_settings, trust
from support.cluster import Cluster, Gateway
from support.events import EventStream, is_free, open_kept_lease
from support.polling import eventually, remains
from support.processes import resident_bytes
from support.wire import Wire, request

HOST = "127.0.0.1"
MIB = 1 << 20
CURL_UNTRUSTED = 60
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
by_version = pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def make(cluster: Cluster, pki: Certificates) -> Iterator[Callable[..., Gateway]]:
    """Returns a function that starts a gateway with these keys of http.tls."""
    made: list[Gateway] = []

    def start(http: dict[str, Any] | None = None, caller: Certificate | None = None, **tls: object) -> Gateway:
        made.append(cluster.start_gateway(tls_settings(cluster.settings(), pki, http, **tls), trust(pki.root, caller)))
        return made[-1]

    yield start
    for gateway in made:
        gateway.kill()


@pytest.fixture(scope="module")
def secured(make: Callable[..., Gateway]) -> Gateway:
    """A gateway with the default settings of http.tls. No test stops it."""
    return make()


@pytest.fixture(scope="module")
def verifying(make: Callable[..., Gateway], pki: Certificates) -> Gateway:
    """A gateway that accepts client certificates. No test stops it."""
    return make(client_ca_file=str(pki.root.file))


def connect(gateway: Gateway, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(
        socket.create_connection((HOST, gateway.api.port), 10), server_hostname=HOST, suppress_ragged_eofs=False
    )


def curl(gateway: Gateway, *arguments: str, path: str = "/healthz") -> subprocess.CompletedProcess:
    return processes.run(
        [
            *"curl -sS --noproxy * -w".split(),
            "%{http_code}",
            "-o",
            "/dev/null",
            *arguments,
            f"https://{HOST}:{gateway.api.port}{path}",
        ],
        timeout=30,
    )


def opened_with_tls(gateway: Gateway, pki: Certificates, timeout: float = 10.0) -> Wire:
    return Wire(HOST, gateway.api.port, timeout, trust(pki.root))


# Versions, ciphers, protocols


@by_version
def test_tls_version_is_served_with_aead_cipher(secured: Gateway, pki: Certificates, version: ssl.TLSVersion) -> None:
    context = trust(pki.root, version=version)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(secured, context) as connection:
        assert connection.version() == version.name.replace("_", ".")
        assert re.search("GCM|CHACHA20", connection.cipher()[0]) and connection.compression() is None
        assert connection.selected_alpn_protocol() == "http/1.1"
        connection.sendall(request("GET", "/healthz"))
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("options", [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3"]], ids=["1.2", "1.3"])
def test_tls_curl_with_authority_gets_answer(secured: Gateway, pki: Certificates, options: list[str]) -> None:
    done = curl(secured, "--cacert", str(pki.root.file), *options)
    assert (done.returncode, done.stdout) == (0, "200"), done


def test_tls_curl_with_other_authority_refuses_gateway(secured: Gateway, pki: Certificates) -> None:
    assert curl(secured, "--cacert", str(pki.foreign.file)).returncode == CURL_UNTRUSTED


def refusal_of(gateway: Gateway, context: ssl.SSLContext) -> str:
    """Returns the reason of the alert with which the gateway ends a handshake, or a request in TLS 1.3."""
    with pytest.raises(ssl.SSLError) as refused:
        with connect(gateway, context) as connection:
            connection.sendall(request("GET", "/healthz"))
            received = connection.recv(4096)
            assert not received, received
    return refused.value.reason or str(refused.value)


def old_version(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_version_1_1_is_refused(secured: Gateway) -> None:
    assert refusal_of(secured, old_version(ssl.TLSVersion.TLSv1_1)) == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_tls_version_below_minimum_version_is_refused(make: Callable[..., Gateway], pki: Certificates) -> None:
    strict = make(minimum_version="1.3")
    assert refusal_of(strict, trust(pki.root, version=ssl.TLSVersion.TLSv1_2)) == "TLSV1_ALERT_PROTOCOL_VERSION"
    assert strict.api.get("/healthz").status == 200
    assert strict.stop() == 0


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "AES128-GCM-SHA256"])
def test_tls_1_2_cipher_without_aead_or_secrecy_is_refused(secured: Gateway, pki: Certificates, cipher: str) -> None:
    context = trust(pki.root, version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(cipher)
    assert refusal_of(secured, context) == "SSLV3_ALERT_HANDSHAKE_FAILURE"


def test_tls_alpn_without_http_1_1_is_refused(secured: Gateway, pki: Certificates) -> None:
    context = trust(pki.root)
    context.set_alpn_protocols(["h2"])
    assert "no application protocol" in refusal_of(secured, context)


@by_version
def test_tls_session_is_never_resumed(secured: Gateway, pki: Certificates, version: ssl.TLSVersion) -> None:
    context = trust(pki.root, version=version)
    with connect(secured, context) as first:
        first.sendall(request("GET", "/healthz"))
        assert first.recv(4096)
        session = first.session
    assert session is None or not session.has_ticket
    again = context.wrap_socket(
        socket.create_connection((HOST, secured.api.port), 10), server_hostname=HOST, session=session
    )
    assert not again.session_reused
    again.close()


def test_tls_1_2_renegotiation_is_refused(secured: Gateway, pki: Certificates) -> None:
    done = processes.run(
        ["openssl", "s_client", "-connect", f"{HOST}:{secured.api.port}", "-tls1_2", "-CAfile", str(pki.root.file)],
        input="R\n",
        timeout=30,
    )
    assert "RENEGOTIATING" in done.stderr + done.stdout and "no renegotiation" in done.stderr, done


# Connections that do not complete a handshake


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_plain_http_on_tls_port_gets_400(secured: Gateway, method: str) -> None:
    with Wire(HOST, secured.api.port) as wire:
        wire.send(request(method, "/v1/leases"))
        answer = wire.receive()
        assert answer.status == 400 and json.loads(answer.body)["type"] == "/problems/invalid-request"
        assert "HTTPS" in json.loads(answer.body)["detail"] and wire.is_closed()


def test_handshake_with_garbage_is_closed(secured: Gateway) -> None:
    for garbage in (b"\x00" * 64, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02", bytes(range(128, 256)) * 100):
        with Wire(HOST, secured.api.port) as wire:
            wire.send(garbage)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.read_more():
                pass
    assert secured.api.get("/healthz").status == 200


def test_handshake_that_never_ends_is_closed(make: Callable[..., Gateway]) -> None:
    impatient = make({"idle_timeout_ms": 1_000})
    silent, begun = (Wire(HOST, impatient.api.port) for _ in range(2))
    begun.send(b"\x16\x03\x01")
    began = time.monotonic()
    assert silent.is_closed() and begun.is_closed()
    assert 0.9 < time.monotonic() - began < 4
    assert impatient.stop() == 0


def test_connections_in_handshake_count_and_are_replaced(make: Callable[..., Gateway], pki: Certificates) -> None:
    small = make({"connections_max": 3})
    silent = [Wire(HOST, small.api.port) for _ in range(3)]
    with Wire(HOST, small.api.port) as refused:
        assert refused.is_closed()  # there is no TLS in which an answer could be sent
    eventually(
        lambda: any(wire.is_closed() for wire in silent) if can_connect(small, pki) else False,
        goal="one that shakes no hand is replaced",
    )
    for wire in silent:
        wire.socket.close()
    assert small.stop() == 0


def can_connect(gateway: Gateway, pki: Certificates) -> bool:
    try:
        with connect(gateway, trust(pki.root)) as connection:
            connection.sendall(request("GET", "/healthz"))
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


# Certificates of callers


@by_version
def test_client_certificate_optional_serves_with_and_without(
    verifying: Gateway, pki: Certificates, version: ssl.TLSVersion
) -> None:
    for certificate in (None, pki.orders):
        with Wire(HOST, verifying.api.port, tls=trust(pki.root, certificate, version)) as wire:
            wire.send(request("GET", "/healthz"))
            assert wire.receive().status == 200


@by_version
@pytest.mark.parametrize(
    "which, alert",
    [
        ("of_foreign", "TLSV1_ALERT_UNKNOWN_CA"),
        ("expired", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        ("server_only", "SSLV3_ALERT_CERTIFICATE_UNKNOWN|TLSV1_ALERT_UNKNOWN_CA|SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"),
    ],
)
def test_client_certificate_invalid_is_refused_with_alert(
    verifying: Gateway, pki: Certificates, version: ssl.TLSVersion, which: str, alert: str
) -> None:
    certificate = pki.root.issue("server_only", usage="serverAuth") if which == "server_only" else getattr(pki, which)
    assert re.fullmatch(alert, refusal_of(verifying, trust(pki.root, certificate, version)))


@by_version
def test_client_certificate_required_refuses_caller_without(
    make: Callable[..., Gateway], pki: Certificates, version: ssl.TLSVersion
) -> None:
    strict = make(caller=pki.orders, client_ca_file=str(pki.root.file), client_certificates="required")
    assert refusal_of(strict, trust(pki.root, version=version)) in (
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
    )
    assert strict.api.get("/healthz").status == 200
    assert strict.stop() == 0


def test_client_certificate_not_asked_for_without_authority(secured: Gateway, pki: Certificates) -> None:
    with Wire(HOST, secured.api.port, tls=trust(pki.root, pki.of_foreign)) as wire:
        wire.send(request("GET", "/healthz"))
        assert wire.receive().status == 200


# Requests and answers


def test_tls_pipelined_requests_are_answered_in_order(secured: Gateway, pki: Certificates) -> None:
    with opened_with_tls(secured, pki) as wire:
        paths = ["/healthz", "/none", "/readyz", "/v1/leases?limit=1"]
        wire.send(b"".join(request("GET", path) for path in paths))
        assert [wire.receive().status for _ in paths] == [200, 404, 200, 200]


def test_tls_request_in_single_bytes_is_answered(secured: Gateway, pki: Certificates) -> None:
    with opened_with_tls(secured, pki) as wire:
        for byte in request("GET", "/healthz"):
            wire.send(bytes([byte]))
        assert wire.receive().status == 200


def test_tls_large_body_with_expect_continue_is_read(secured: Gateway, pki: Certificates, resource: str) -> None:
    body = json.dumps({"resource": resource, "ttl_ms": 1_000}).encode().ljust(900_000)
    with opened_with_tls(secured, pki) as wire:
        head, _, _ = request("POST", "/v1/leases", body, "Expect: 100-continue").partition(b"\r\n\r\n")
        wire.send(head + b"\r\n\r\n")
        assert wire.receive(has_body=False).status == 100
        wire.send(body)
        assert wire.receive().status == 201


def test_tls_slow_reader_gets_many_large_answers_whole(secured: Gateway, pki: Certificates) -> None:
    """The answers exceed all buffers, so that records wait in the gateway until the caller reads."""
    expected = secured.api.get("/openapi.json").body
    count = 40 * MIB // len(expected)
    with opened_with_tls(secured, pki, timeout=30) as wire:
        wire.send(request("GET", "/openapi.json") * count)
        remains(lambda: secured.api.get("/healthz").status == 200, 0.5)
        for _ in range(count):
            assert wire.receive().body == expected


def test_tls_reader_that_stops_is_closed_after_idle_timeout(make: Callable[..., Gateway], pki: Certificates) -> None:
    impatient = make({"idle_timeout_ms": 1_000})
    with opened_with_tls(impatient, pki) as wire:
        wire.send(request("GET", "/openapi.json") * 1_000)
        eventually(lambda: open_connections(impatient) == 0, goal="the connection is closed")
    assert impatient.stop() == 0


def open_connections(gateway: Gateway) -> int:
    """Counts the connections that others have with the gateway."""
    table = processes.run(["ss", "-Htn", "state", "established", f"( sport = :{gateway.api.port} )"], check=True).stdout
    return len(table.splitlines())


# Streams and callers that hang up


def test_tls_history_stream_delivers_events(secured: Gateway, resource: str) -> None:
    with EventStream(secured.api, None, method="GET", path=f"/v1/history/stream?resource={resource}") as stream:
        eventually(lambda: stream.head is not None, goal="the stream is open")
        secured.api.must_acquire(resource, ttl_ms=1_000)
        assert stream.wait_for("lease_granted").data["resource"] == resource


def test_tls_kept_lease_ends_when_caller_hangs_up(secured: Gateway, resource: str) -> None:
    with open_kept_lease(secured.api, resource, ttl_ms=2_000) as kept:
        token = kept.wait_for_grant()["fencing_token"]
        kept.wait_for("renewed")
        kept.disconnect()
    eventually(lambda: is_free(secured.api, resource), 5, goal="the lease ends")
    events = eventually(lambda: secured.api.history(resource=resource, event="lease_released"), goal="it was released")
    assert token in [event["fencing_token"] for event in events], "it has expired"


def test_tls_waiting_caller_that_hangs_up_leaves_queue(secured: Gateway, resource: str) -> None:
    with open_kept_lease(secured.api, resource) as kept:
        kept.wait_for_grant()
        waiting = secured.api.begin_wait(resource, ttl_ms=1_000)
        waiting.disconnect()
        secured.api.await_waiters(resource, 0)


# Stop, memory


def test_tls_stop_closes_idle_connections_with_close_notify(make: Callable[..., Gateway], pki: Certificates) -> None:
    stopped = make()
    idle = [opened_with_tls(stopped, pki) for _ in range(5)]
    silent = Wire(HOST, stopped.api.port)
    idle[0].send(request("GET", "/healthz"))
    assert idle[0].receive().status == 200
    began = time.monotonic()
    assert stopped.stop() == 0
    assert time.monotonic() - began < 4, "callers have 5 s"
    for wire in idle:
        assert wire.is_closed()  # a connection that was cut raises SSLEOFError
        wire.socket.close()
    assert silent.is_closed()
    silent.socket.close()


def test_tls_connection_close_ends_with_close_notify(secured: Gateway, pki: Certificates) -> None:
    with opened_with_tls(secured, pki) as wire:
        wire.send(request("GET", "/healthz", b"", "Connection: close"))
        assert wire.receive().status == 200 and wire.is_closed()


def test_tls_handshakes_leave_no_memory(secured: Gateway, pki: Certificates) -> None:
    context, foreign = trust(pki.root), trust(pki.foreign)

    def shake_hands(count: int) -> None:
        for number in range(count):
            with connect(secured, context) as connection:
                connection.sendall(request("GET", "/healthz"))
                assert connection.recv(4096)
            if number % 10 == 0:
                with pytest.raises(ssl.SSLError):
                    connect(secured, foreign)

    shake_hands(100)
    before = resident_bytes(secured.pid)
    shake_hands(400)
    assert resident_bytes(secured.pid) - before < 2 * MIB, "one connection has about 30 KiB"


def test_tls_idle_connections_take_little_memory(secured: Gateway, pki: Certificates) -> None:
    count = 300
    before = resident_bytes(secured.pid)
    idle = [opened_with_tls(secured, pki) for _ in range(count)]
    for wire in idle:
        wire.send(request("GET", "/healthz"))
        assert wire.receive().status == 200
    assert (resident_bytes(secured.pid) - before) / count < 64 * 1024
    for wire in idle:
        wire.socket.close()


def test_ends_of_certificates_are_metrics(verifying: Gateway) -> None:
    text = verifying.api.call("GET", "/metrics").body.decode()
    for name in ("certificate_file", "client_ca_file"):
        pattern = rf'^fencegate_certificate_expiry_timestamp_seconds{{file="http.tls.{name}"}} (\S+)$'
        assert float(re.search(pattern, text, re.MULTILINE)[1]) > time.time()
