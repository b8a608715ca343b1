"""config/haproxy/haproxy.cfg before two gateways under load: gateways that restart or are killed, and no call that fails."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable, Iterator
from urllib.request import urlopen

import pytest
from support import processes
from support.api import Api, Connection, lease_path
from support.cli import Cli, first_line
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.events import is_free, open_kept_lease
from support.polling import eventually
from support.stack import Stack
from support.wire import Wire, lose_power, request

FILE = processes.repository() / "config" / "haproxy" / "haproxy.cfg"
SKUS = [f"sku-{number}" for number in range(1, 9)]


class Proxy:
    """HAProxy by the file of the repository, on ports of its own."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.port, self.metrics, self.log = processes.free_port(), processes.free_port(), folder / "haproxy.log"
        environment = {"FENCEGATE_BIND": f"127.0.0.1:{self.port}", "METRICS_BIND": f"127.0.0.1:{self.metrics}",
                       **{f"GATEWAY_{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}}
        self.process = processes.start(["haproxy", "-db", "-f", str(FILE)], self.log, env={**os.environ, **environment})
        self.api = Api(f"http://127.0.0.1:{self.port}", timeout=30)

    def ready(self) -> dict[tuple[str, str], bool]:
        """Returns for each backend and server whether calls are sent there."""
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            states = re.findall(r'^haproxy_server_status\{proxy="(\w+)",server="([\w-]+)",state="UP"\} (\d)', answer.read().decode(), re.MULTILINE)
        return {(backend, server): value == "1" for backend, server, value in states}

    def await_ready(self, count: int = 6) -> None:
        eventually(lambda: sum(self.ready().values()) == count, 20, goal=f"{count} servers are ready")


class Load:
    """Callers in threads, each with its own connection, until `stop`; what failed is in `failures`."""

    def __init__(self, api: Api, jobs: list[Callable[[Connection, str], None]]) -> None:
        self.api, self.stopping, self.failures, self.done = api, threading.Event(), [], Counter()
        self.threads = [threading.Thread(target=self._run, args=(job, SKUS[index % len(SKUS)]), daemon=True) for index, job in enumerate(jobs)]
        for thread in self.threads:
            thread.start()

    def _run(self, job: Callable[[Connection, str], None], sku: str) -> None:
        connection = self.api.connection()
        while not self.stopping.is_set():
            try:
                job(connection, sku)
                self.done[job.__name__] += 1
            except Exception as failure:
                self.failures.append(f"{job.__name__}: {failure!r}")
                connection.close()
                connection = self.api.connection()
        connection.close()

    def total(self) -> int:
        return sum(self.done.values())

    def await_more(self, count: int = 150) -> None:
        """Waits until so many further jobs are done."""
        wanted = self.total() + count
        eventually(lambda: self.total() >= wanted or self.failures, 60, goal=f"{wanted} jobs are done")

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(40)
        print(f"{sum(self.done.values())} jobs done {dict(self.done)}, {len(self.failures)} failed")
        assert not self.failures and all(self.done[name] for name in self.done), (len(self.failures), self.failures[:5])


def call(connection: Connection, status: int, method: str, path: str, body: object = None, **headers: str) -> dict:
    answer = connection.call(method, path, body, headers)
    assert answer.status == status, f"{method} {path}: {answer}"
    return answer.json() if answer.body else {}


def sale(sku: str) -> list[dict]:
    return [{"update": "inventory", "where": {"sku": sku}, "add": {"stock": -1}, "expect_rows": 1}]


def lease_and_write(connection: Connection, sku: str) -> None:
    lease = call(connection, 201, "POST", "/v1/leases", {"resource": f"inventory/{sku}", "ttl_ms": 10_000, "wait_ms": 15_000})
    call(connection, 200, "POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": sale(sku)})
    call(connection, 200, "POST", f"{lease_path(lease)}/renew", {"ttl_ms": 10_000})
    call(connection, 204, "DELETE", lease_path(lease))


def one_shot_write(connection: Connection, sku: str) -> None:
    call(connection, 200, "POST", "/v1/writes", {"lease": {"resources": [f"inventory/{sku}"], "ttl_ms": 10_000, "wait_ms": 15_000}, "operations": sale(sku)})


def keyed_write(connection: Connection, sku: str) -> None:
    call(connection, 200, "POST", "/v1/writes", {"lease": {"resources": [f"inventory/{sku}"], "ttl_ms": 5_000, "wait_ms": 15_000}, "operations": sale(sku)},
         **{"Idempotency-Key": uuid.uuid4().hex})


def read(connection: Connection, sku: str) -> None:
    call(connection, 200, "GET", f"/v1/tables/inventory?sku=eq.{sku}")


@pytest.fixture(scope="module")
def shop(stack: Stack) -> Iterator[Cluster]:
    with running_cluster(stack, "haproxy", max_ttl_ms=10_000) as made:
        assert made.call("migrate", "--conninfo", stack.conninfo(made.database), "--with-example").returncode == 0
        yield made


@pytest.fixture(scope="module")
def gateways(shop: Cluster) -> Iterator[list[Gateway]]:
    made = []
    for _ in range(2):
        settings = shop.settings()
        del settings["http"]["shutdown_grace_ms"]  # the default
        settings["http"]["connections_per_address_max"] = 0
        made.append(shop.gateway(settings))
    for gateway in made:
        gateway.start()
        gateway.wait_until_all_vote()
    yield made
    for gateway in made:
        gateway.kill()


@pytest.fixture
def proxy(shop: Cluster, gateways: list[Gateway]) -> Iterator[Proxy]:
    made = Proxy(shop.folder, [gateway.api.port for gateway in gateways])
    try:
        made.await_ready()
        yield made
    finally:
        assert processes.stop(made.process) in (0, 143, -15), made.log.read_text()


@pytest.fixture
def sales(shop: Cluster) -> Callable[[], int]:
    """Returns a function that counts the pieces that were sold since."""

    def stock() -> int:
        return int(shop.stack.query("select sum(stock) from inventory", dbname=shop.database)[0][0])

    shop.stack.query("begin; select fencing.enter('inventory/' || sku, greatest(fencing.fence('inventory/' || sku), 1)) from inventory;"
                     "update inventory set stock = 1000000, initial_stock = 1000000; commit", dbname=shop.database)
    before = stock()
    return lambda: before - stock()


def test_proxy_file_is_valid() -> None:
    done = subprocess.run(["haproxy", "-c", "-f", str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr


class DyingGateway(ThreadingHTTPServer):
    """Is ready, and closes the connection of every call without an answer, as a gateway that is killed after it has the request."""

    def __init__(self) -> None:
        self.calls = 0
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith(("/readyz", "/healthz")):
                self.send_response(200)
                self.end_headers()
            else:
                self.server.calls += 1  # type: ignore[attr-defined]

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass


def test_proxy_repeats_only_what_may_be_repeated(tmp_path: Path) -> None:
    gateways = [DyingGateway(), DyingGateway()]
    proxy = Proxy(tmp_path, [gateway.server_port for gateway in gateways])
    key = {"Idempotency-Key": "a"}
    try:
        proxy.await_ready()
        for method, path, headers, attempts in (("POST", "/v1/writes", {}, 1), ("POST", "/v1/rpc/place_order", {}, 1), ("DELETE", "/v1/tables/inventory", {}, 1),
                                                ("POST", "/v1/writes", key, 3), ("GET", "/v1/tables/inventory", {}, 3), ("POST", "/v1/leases", {}, 3), ("DELETE", "/v1/leases/a", {}, 3)):
            before = sum(gateway.calls for gateway in gateways)
            with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)) as connection:
                connection.request(method, path, b"{}" if method == "POST" else None, headers)
                answer = connection.getresponse()
                assert (answer.status, json.load(answer)["status"]) == (502, 502)
            assert sum(gateway.calls for gateway in gateways) - before == attempts, (method, path, headers)
    finally:
        processes.stop(proxy.process)
        for gateway in gateways:
            gateway.shutdown()
            gateway.server_close()


def test_rolling_restarts_fail_no_call(gateways: list[Gateway], proxy: Proxy, sales: Callable[[], int]) -> None:
    """Also calls without an Idempotency-Key, which are never repeated once a gateway has them."""
    load = Load(proxy.api, [lease_and_write, lease_and_write, one_shot_write, keyed_write, read])
    for gateway in gateways * 2:
        load.await_more()
        assert gateway.stop() == 0
        load.await_more()
        gateway.start()
        gateway.wait_until_all_vote()
        proxy.await_ready()
    load.stop()
    assert sales() == sum(load.done[job.__name__] for job in (lease_and_write, one_shot_write, keyed_write))


def test_killed_gateways_fail_no_repeatable_call(gateways: list[Gateway], proxy: Proxy, sales: Callable[[], int]) -> None:
    load = Load(proxy.api, [keyed_write, keyed_write, keyed_write, read, read])
    for gateway in gateways:
        load.await_more()
        gateway.kill()
        load.await_more()
        gateway.start()
        gateway.wait_until_all_vote()
        proxy.await_ready()
    load.stop()
    assert sales() == load.done["keyed_write"]


def test_waiting_call_goes_on_at_the_other_gateway(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
    waiting = proxy.api.begin_acquire(resource, wait_ms=25_000)
    stopped = eventually(lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None), goal="the call waits")
    other = next(gateway for gateway in gateways if gateway is not stopped)
    assert stopped.stop() == 0
    other.api.await_waiters(resource, 1)
    other.api.must_release(lease)
    assert waiting.answer(10).status == 201
    stopped.start()


def test_caller_that_hangs_up_is_noticed_behind_the_proxy(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    """A caller that waits leaves the queue, and a kept lease ends, long before an answer or an event would be sent."""
    lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
    with Wire("127.0.0.1", proxy.port) as waiting:
        body = json.dumps({"resource": resource, "wait_ms": 20_000}).encode()
        waiting.send(f"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        asked = eventually(lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None), goal="the call waits")
    eventually(lambda: asked.api.waiters(resource) == 0, 5, goal="it has left the queue")
    gateways[0].api.must_release(lease)
    began = time.monotonic()
    done = Cli(proxy.api.url).run("lock", "--ttl", "10s", resource, "--", "true")
    assert done.returncode == 0 and time.monotonic() - began < 5, "it does not wait for an end of the stream that never comes"
    eventually(lambda: is_free(gateways[0].api, resource), 3, goal="the lease is released")


def test_caller_without_power_is_noticed_behind_the_proxy(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    """Its kept lease ends, and it leaves the queue; the proxy acknowledges what the gateways send."""
    kept = open_kept_lease(proxy.api, resource, ttl_ms=2_000)
    kept.wait_for("renewed")
    lose_power(kept.socket)
    eventually(lambda: is_free(gateways[0].api, resource), 60, goal="the lease is not renewed any more")
    kept.disconnect()
    lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
    with Wire("127.0.0.1", proxy.port) as waiting:
        waiting.send(request("POST", "/v1/leases", json.dumps({"resource": resource, "wait_ms": 30_000}).encode()))
        asked = eventually(lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None), goal="the call waits")
        lose_power(waiting.socket)
        renewed = eventually(lambda: gateways[0].api.renew(lease, 10_000).status == 200 and asked.api.waiters(resource) == 0, 25, goal="it has left the queue")
        assert renewed


@pytest.mark.parametrize("way", ["proxy", "addresses"])
def test_commands_go_on_over_rolling_restarts(gateways: list[Gateway], proxy: Proxy, resource: str, tmp_path: Path, way: str) -> None:
    cli = Cli(proxy.api.url if way == "proxy" else ",".join(gateway.api.url for gateway in gateways))
    running = [cli.begin(*(("elect",) if number == 0 else ("lock",)), "--ttl", "10s", f"{resource}/{number}", "--", "sh", "-c",
                         f"echo $FENCING_TOKEN >> {tmp_path}/{number}; until [ -e {tmp_path}/stop ]; do sleep 0.05; done") for number in range(5)]
    for number in range(len(running)):
        first_line(tmp_path / str(number))
    for gateway in gateways * 2:
        assert gateway.stop() == 0
        gateway.start()
        gateway.wait_until_all_vote()
        proxy.await_ready()
    (tmp_path / "stop").touch()
    for number, command in enumerate(running):
        _, errors = command.communicate(timeout=20)
        assert command.returncode == 0, errors
        assert len((tmp_path / str(number)).read_text().splitlines()) == 1, "it has been started once"


def test_kept_lease_stream_passes_and_ends_with_gateway(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    with open_kept_lease(proxy.api, resource, ttl_ms=5_000) as kept:
        kept.wait_for("renewed")
        for gateway in gateways:
            assert gateway.stop() == 0
            gateway.start()
            proxy.await_ready()
        kept.wait_for("released")
        assert set(kept.names()) == {"granted", "renewed", "released"}


def test_backends_follow_their_own_readiness(shop: Cluster, gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    """Without a majority of the nodes, writes and reads go on, and calls for leases get the cause from a gateway."""
    for node in shop.nodes[:3]:
        node.kill()
    wanted = {"leases": False, "state": True, "writes": True}
    eventually(lambda: proxy.ready() == {(name, f"gateway-{number}"): ready for name, ready in wanted.items() for number in (1, 2)}, 20, goal="leases are not ready")
    with proxy.api.connection() as connection:
        read(connection, "sku-1")
        assert Counter(node["state"] for node in proxy.api.get("/v1/nodes").json()["nodes"])["voting"] == 2
        connection.wire.request("POST", "/v1/leases", json.dumps({"resource": resource}), {"Content-Type": "application/json"})
        answer = connection.wire.getresponse()
        problem = json.load(answer)
        assert (answer.status, answer.headers["Content-Type"], problem["type"].rpartition("/")[2]) == (503, "application/problem+json", "no-quorum"), problem
    for node in shop.nodes[:3]:
        node.start()
    proxy.await_ready()


def test_no_gateway_that_runs_is_answered_by_a_problem_document(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path, [processes.free_port(), processes.free_port()])
    try:
        proxy.await_ready(0)
        for path in ("/v1/leases", "/v1/nodes", "/v1/writes"):
            with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, answer.headers["Content-Type"]) == (503, "application/problem+json"), path
                assert json.load(answer)["detail"] == "No gateway is ready for this call.", path
    finally:
        processes.stop(proxy.process)
