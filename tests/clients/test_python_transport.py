"""How the Python client connects: credentials that cannot be sent, several gateways, many calls at a time,
and gateways that cannot be reached. The gateways are simple servers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator

import pytest
from python_clients import both, clients, errors, fencegate
from support import processes
from support.certificates import Authority, Certificate
from support.faults import sale_operation
from support.polling import eventually

SECRET = "secret-key"
UNSENDABLE = [f"{SECRET}\n", f"{SECRET}\r", f" {SECRET}", f"{SECRET} ", f"{SECRET}\0", f"{SECRET}é", ""]


class Server(ThreadingHTTPServer):
    request_queue_size = 200
    daemon_threads = True


@contextmanager
def serving(
    on_request: Callable[[str], None] = lambda path: None,
    certificate: Certificate | None = None,
    keys: list[str] | None = None,
) -> Iterator[str]:
    """Answers each GET with `{}` once `on_request` has returned. Closes the connection in place of an answer to a POST,
    whose Idempotency-Key is added to `keys`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            on_request(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self) -> None:
            assert keys is not None
            keys.append(self.headers["Idempotency-Key"])
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.file, certificate.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def dropping_packets() -> Iterator[int]:
    """Returns a port at which no connection can be established: the system drops the packets,
    because the queue of the listener is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        queued: list[socket.socket] = []

        def is_full() -> bool:
            connection = socket.socket()
            connection.settimeout(0.3)
            queued.append(connection)
            try:
                connection.connect(("127.0.0.1", port))
            except TimeoutError:
                return True
            return False

        try:
            eventually(is_full, goal="the queue is full")
            yield port
        finally:
            for connection in queued:
                connection.close()


@contextmanager
def silent() -> Iterator[int]:
    """Returns a port at which connections are established, and nothing is read or answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# Credentials


def test_credentials_that_cannot_be_sent_are_refused() -> None:
    for kind in (fencegate.Client, fencegate.AsyncClient):
        for credential in UNSENDABLE:
            with pytest.raises(ValueError, match="credential: ") as refused:
                kind("http://127.0.0.1:9", credential=credential)
            assert SECRET not in str(refused.value)


@both
def test_token_that_cannot_be_sent_is_never_shown(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    for value in [*UNSENDABLE, None, SECRET.encode()]:
        with serving() as url, clients(kind, url, credential=lambda: value) as client:
            for call in (
                lambda: client.get("/"),
                lambda: client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"]),
            ):
                with pytest.raises(errors.ConnectionFailed, match="credential") as failed:
                    call()
                assert not failed.value.maybe_executed
                assert SECRET not in "".join(traceback.format_exception(failed.value)) + caplog.text


@both
def test_failing_token_does_not_hide_the_key_of_a_write(kind: str) -> None:
    """The connection is cut after the write was sent, and the function raises for the repeat."""
    keys: list[str] = []
    no_token = RuntimeError("no token")

    def token() -> str:
        if keys:
            raise no_token
        return "first"

    with serving(keys=keys) as url, clients(kind, url, credential=token) as client, pytest.raises(
        errors.OutcomeUnknown
    ) as unknown:
        client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"])
    assert [unknown.value.idempotency_key] == keys and unknown.value.__cause__ is no_token


@both
def test_failing_token_is_raised_if_nothing_was_sent(kind: str) -> None:
    """At first no connection is established, and the function raises for the repeat."""
    tokens = iter(["first"])

    def token() -> str:
        for value in tokens:
            return value
        raise LookupError("no token")

    with clients(kind, f"http://127.0.0.1:{processes.free_port()}", credential=token) as client, pytest.raises(
        LookupError, match="no token"
    ):
        client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"])


@both
def test_header_that_cannot_be_sent_is_never_shown(kind: str) -> None:
    from fencegate._lease import LeaseHandle, LeaseState, now

    lease = LeaseHandle(
        LeaseState(
            {
                "lease_id": f"{SECRET}\n",
                "resource": "a",
                "fencing_token": 1,
                "ttl_ms": 60_000,
                "served_ms": 0,
                "validity_ms": 60_000,
            },
            now(),
        )
    )
    with serving() as url, clients(kind, url) as client, pytest.raises(
        errors.ConnectionFailed, match="header"
    ) as failed:
        client.get("/", lease=lease)
    assert not failed.value.maybe_executed and SECRET not in "".join(traceback.format_exception(failed.value))


@both
@pytest.mark.parametrize("key", ["job\n", "two words", "", "x" * 65, "é"])
def test_idempotency_key_that_cannot_be_sent_is_refused(kind: str, key: str) -> None:
    with clients(kind, "http://127.0.0.1:9") as client, pytest.raises(ValueError, match="idempotency_key"):
        client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"], idempotency_key=key)


def test_url_that_is_missing_is_a_value_error() -> None:
    for kind in (fencegate.Client, fencegate.AsyncClient):
        with pytest.raises(ValueError, match="url: name at least one gateway"):
            kind(None)  # type: ignore[arg-type]


def test_url_that_httpx_refuses_is_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later versions of httpx than that of Debian 12 raise InvalidURL for `http://a:abc`,
    which is no ValueError, and may cite the URL."""
    import httpx

    def refuse(url: str) -> None:
        raise httpx.InvalidURL(f"Invalid port: {url}")

    monkeypatch.setattr("httpx.URL", refuse)
    for kind in (fencegate.Client, fencegate.AsyncClient):
        with pytest.raises(ValueError, match="url: ") as refused:
            kind(f"http://user:{SECRET}@a:abc")
        assert SECRET not in "".join(traceback.format_exception(refused.value))


# Connections


@both
@pytest.mark.parametrize("address", ["HTTP://LOCALHOST:{}", "http://localhost:{}/"])
def test_next_gateway_is_used_whatever_the_form_of_the_url(kind: str, address: str) -> None:
    with serving() as url, clients(kind, [address.format(processes.free_port()), url], retry_for=5) as client:
        assert client.get("/") == {}


def test_next_gateway_is_used_once_for_each_failure() -> None:
    """Two failures of the same gateway lead to the next one, and not to the one after it."""
    import httpx
    from fencegate._protocol import NoAnswer, Request
    from fencegate._transport import Transport

    transport = Transport(["http://A.test:80", "https://b.test:443", "http://b.test"], None, None, None, None, None)
    first, second = (transport.begin(Request("GET", "/", 1.0)) for _ in range(2))
    for sent in (first, second):
        with pytest.raises(NoAnswer):
            transport.fail(sent, httpx.ConnectError("refused"))
    third = transport.begin(Request("GET", "/", 1.0))
    assert str(third.url) == "https://b.test/"
    assert (
        transport.end(third, httpx.Response(503)).next_gateway
        and not transport.end(third, httpx.Response(429)).next_gateway
    )
    assert str(transport.begin(Request("GET", "/", 1.0)).url) == "http://b.test/"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Authority]:
    folder = tmp_path_factory.mktemp("pki")
    return {name: Authority(folder, name) for name in ("trusted", "foreign")}


@both
@pytest.mark.parametrize("second", ["trusted", "foreign"])
def test_untrusted_gateway_leads_to_the_next_one(kind: str, second: str, authorities: dict[str, Authority]) -> None:
    """A call ends early only if each gateway has an untrusted certificate."""
    certificates = [
        authorities[name].issue(f"{kind}-{second}-{number}") for number, name in enumerate(("foreign", second))
    ]
    began = time.monotonic()
    with serving(certificate=certificates[0]) as first, serving(certificate=certificates[1]) as other:
        with clients(kind, [first, other], ca=str(authorities["trusted"].file)) as client:
            if second == "trusted":
                assert client.get("/") == {}
            else:
                with pytest.raises(errors.ConnectionFailed, match="(?i)certificate") as failed:
                    client.get("/")
                assert not failed.value.maybe_executed
    assert time.monotonic() - began < 15, "it was not repeated for retry_for"


@both
def test_call_does_not_queue_behind_calls_that_wait(kind: str) -> None:
    """A renewal must not wait until one of a hundred calls that wait for a lease has its answer."""
    answered, waiting = threading.Event(), threading.Semaphore(0)

    def on_request(path: str) -> None:
        if path == "/waiting":
            waiting.release()
            answered.wait(60)

    with serving(on_request) as url, clients(kind, url, request_timeout=30, retry_for=0) as client, ThreadPoolExecutor(
        100
    ) as pool:
        calls = [pool.submit(client.get, "/waiting") for _ in range(100)]
        try:
            assert all(waiting.acquire(timeout=20) for _ in calls)
            assert client.get("/other") == {}
        finally:
            answered.set()
        assert [call.result() for call in calls] == [{}] * 100


def pool_of(client: Any) -> Any:
    return getattr(client, "client", client)._http._pool


@both
@pytest.mark.parametrize("ended_by", ["httpx", "driver"])
@pytest.mark.parametrize("layer", ["tcp", "tls"])
def test_connection_that_is_not_established_sends_nothing(
    kind: str, ended_by: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ended_by == "driver":
        monkeypatch.setattr("fencegate._transport.CONNECT_PART", 2.0)
    with dropping_packets() if layer == "tcp" else silent() as port:
        with clients(
            kind, f"http{'s' if layer == 'tls' else ''}://127.0.0.1:{port}", request_timeout=1.0, retry_for=0
        ) as client:
            for _ in range(3):
                expected = f"no answer from 127.0.0.1:{port}: Connect(Timeout|Error)"
                with pytest.raises(errors.ConnectionFailed, match=expected) as failed:
                    client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"])
                assert not failed.value.maybe_executed
            eventually(
                lambda: ended_by == "driver" or not pool_of(client).connections,
                goal="httpcore keeps no connection of them",
            )


@both
def test_gateway_that_does_not_answer_may_have_executed(kind: str) -> None:
    with silent() as port, clients(
        kind, f"http://127.0.0.1:{port}", request_timeout=2.0, retry_for=0
    ) as client, pytest.raises(errors.OutcomeUnknown):
        client.one_shot_write(sale_operation("sku-1"), resources=["inventory/sku-1"])


@pytest.mark.parametrize(
    "arguments, options, named",
    [
        (["ftp://a"], {}, "url"),
        (["http://"], {}, "url"),
        ([[]], {}, "url"),
        (["http://user:secret@a"], {}, "url"),
        (["http://a"], {"ca": "x.pem"}, "url"),
        *(
            ([url], {}, "url: has to be")
            for url in ("http://a:abc", "http://a:65536", "http://user:secret@a:abc", "http://[::1", "http://ü..b")
        ),
        (["http://a"], {"credential": 1}, "credential: "),
        (["https://a"], {"key": "a"}, "key"),
        (["http://a"], {"request_timeout": 0}, "request_timeout"),
        *(
            (["http://a"], {"cell": cell}, "cell: has to be an integer from 0 to 65535")
            for cell in (-1, 65_536, 0.5, "1", True)
        ),
        (["http://a"], {"retry_for": -1}, "retry_for"),
    ],
)
def test_client_refuses_arguments_that_cannot_work(arguments: list[Any], options: dict[str, Any], named: str) -> None:
    for kind in (fencegate.Client, fencegate.AsyncClient):
        with pytest.raises(ValueError, match=named) as refused:
            kind(*arguments, **options)
        assert "secret" not in str(refused.value)


def test_calls_refuse_arguments_that_cannot_work() -> None:
    with fencegate.Client("http://127.0.0.1:9") as client:
        for call, named in [
            (lambda: client.lease(), "resources"),
            (lambda: client.one_shot_write(resources=["a"]), "operations"),
            (lambda: client.one_shot_write({"call": "f"}, resources="a"), "resources"),
            (
                lambda: client.one_shot_write({"call": "f"}, resources=["a"], keep_outcome=False, idempotency_key="k"),
                "keep_outcome",
            ),
        ]:
            with pytest.raises(ValueError, match=named):
                call()
    with pytest.raises(errors.ConnectionFailed, match="closed"):
        client.lease("a")
