"""config/haproxy/haproxy.cfg and config/nginx/nginx.conf before servers that are no gateways."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable
from urllib.parse import quote, urlencode

import pytest
from support import processes
from support.api import Api
from support.polling import pause
from support.proxies import Haproxy, Nginx, Proxy


def test_files_are_valid(tmp_path: Path) -> None:
    done = processes.run(["haproxy", "-c", "-f", str(Haproxy.FILE)])
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    with Nginx(tmp_path, [1, 2]) as nginx:
        done = nginx.check()
        assert done.returncode == 0 and "[warn]" not in done.stderr, done.stderr


class DyingGateway(ThreadingHTTPServer):
    """Is ready, and closes the connection of every call without an answer,
    as a gateway that is killed after it has the request.

    While not `dies`, it answers them.
    """

    def __init__(self) -> None:
        self.calls, self.dies = 0, True
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith(("/readyz", "/healthz")):
                self.send_response(200)
                self.end_headers()
            else:
                self.server.calls += 1  # type: ignore[attr-defined]
                if not self.server.dies:  # type: ignore[attr-defined]
                    self.send_response(200)
                    self.end_headers()

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass


@pytest.mark.parametrize("kind", [Haproxy, Nginx])
def test_proxy_repeats_only_what_may_be_repeated(tmp_path: Path, kind: type[Proxy]) -> None:
    gateways = [DyingGateway(), DyingGateway()]
    key = {"Idempotency-Key": "a"}
    repeated = {2, 3} if kind is Haproxy else {4}
    with kind(tmp_path, [gateway.server_port for gateway in gateways]) as proxy:
        proxy.await_ready()
        for method, path, headers, attempts in (
            ("POST", "/v1/writes", {}, {1}),
            ("POST", "/v1/rpc/place_order", {}, {1}),
            ("DELETE", "/v1/tables/inventory", {}, {1}),
            ("DELETE", "/v1/resource/lease?resource=a", {}, {1}),
            ("POST", "/v1/writes", key, repeated),
            ("DELETE", "/v1/tables/inventory", key, repeated),
            ("GET", "/v1/tables/inventory", {}, repeated),
            ("POST", "/v1/leases", {}, repeated),
            ("DELETE", "/v1/leases/a", {}, repeated),
        ):
            before = sum(gateway.calls for gateway in gateways)
            with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)) as connection:
                connection.request(method, path, b"{}" if method == "POST" else None, headers)
                answer = connection.getresponse()
                assert (answer.status, json.load(answer)["status"]) == (502, 502)
            assert sum(gateway.calls for gateway in gateways) - before in attempts, (method, path, headers)
    for gateway in gateways:
        gateway.shutdown()
        gateway.server_close()


def test_gateway_that_is_back_gets_the_calls_of_the_other(tmp_path: Path) -> None:
    """nginx sends no call for a second to a gateway that has failed, unless the other one fails within that second."""
    gateways = [DyingGateway(), DyingGateway()]
    with Nginx(tmp_path, [gateway.server_port for gateway in gateways]) as proxy:
        proxy.await_ready()
        for turn in range(4):
            pause(1.1, "nginx forgets failures")
            for dies in (0, 1):
                gateways[dies].dies, gateways[1 - dies].dies = True, False
                for _ in range(2 + turn % 2):
                    assert proxy.api.get("/v1/tables/inventory").status == 200, (turn, dies)
    for gateway in gateways:
        gateway.shutdown()
        gateway.server_close()


# nginx in the way in which it is often set up: the path after the prefix is decoded, so that %2F becomes a slash.
DECODING = """
events {}
http {
    access_log off;
    server {
        listen 8080;
        location /locks/ {
            proxy_set_header Host $http_host;
            proxy_pass http://10.0.0.11:8080/;
        }
    }
}
"""


def test_second_forms_pass_nginx_that_decodes_slashes(
    tmp_path: Path, api: Api, unique_name: Callable[[str], str]
) -> None:
    """Each address with a resource in its path is 404 there; the form with the resource in the query is not."""
    resource = f"{unique_name('a')}/b c%2Fd"
    with Nginx(tmp_path, [api.port], text=DECODING) as nginx:
        nginx.await_ready()

        def status_of(method: str, path: str, body: object = None) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=30)) as connection:
                headers = {"Content-Type": "application/json"} if body else {}
                connection.request(method, f"/locks{path}", json.dumps(body) if body else None, headers)
                return connection.getresponse().status

        for method, part, body, status in (
            ("GET", "", None, 200),
            ("DELETE", "/lease", {"reason": "r"}, 204),
            ("POST", "/fence", {"reason": "r", "last_fencing_token": 7}, 200),
        ):
            api.acquire(resource, ttl_ms=10_000)
            assert status_of(method, f"/v1/resources/{quote(resource, safe='')}{part}", body) == 404, part
            assert status_of(method, f"/v1/resource{part}?{urlencode({'resource': resource})}", body) == status, part
        shown = api.get("/v1/resource", resource=resource).json()
        assert (shown["resource"], shown["last_fencing_token"]) == (resource, 7)


@pytest.mark.parametrize(
    ("kind", "status", "detail"),
    [
        (Haproxy, 503, "No gateway is ready for this call."),
        (Nginx, 502, "A gateway ended before it answered, or none runs. The call may have taken effect."),
    ],
)
def test_no_gateway_that_runs_is_answered_by_a_problem_document(
    tmp_path: Path, kind: type[Proxy], status: int, detail: str
) -> None:
    with kind(tmp_path, [processes.free_port(), processes.free_port()]) as proxy:
        proxy.await_ready(*([0] if kind is Haproxy else []))
        for path in ("/v1/leases", "/v1/nodes", "/v1/writes"):
            with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), path
                assert json.load(answer)["detail"] == detail, path
