"""config/haproxy/haproxy.cfg and config/nginx/nginx.conf before two gateways under load.

Gateways restart or are killed, and no call fails.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Callable, Iterator
from urllib.parse import quote

import pytest
from support.api import Api, Connection, expect_problem, lease_path
from support.cli import Cli, first_line
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.events import EventStream, is_free, open_kept_lease
from support.polling import eventually
from support.proxies import Haproxy, Nginx, Proxy
from support.stack import Stack
from support.wire import Wire, lose_power, request

SKUS = [f"sku-{number}" for number in range(1, 9)]


class Load:
    """Callers in threads, each with its own connection, until `stop`; what failed is in `failures`."""

    def __init__(self, api: Api, jobs: list[Callable[[Connection, str], None]]) -> None:
        self.api, self.stopping, self.failures, self.done = api, threading.Event(), [], Counter()
        self.threads = [
            threading.Thread(target=self._run, args=(job, SKUS[index % len(SKUS)]), daemon=True)
            for index, job in enumerate(jobs)
        ]
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
    lease = call(
        connection, 201, "POST", "/v1/leases", {"resource": f"inventory/{sku}", "ttl_ms": 10_000, "wait_ms": 15_000}
    )
    call(connection, 200, "POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": sale(sku)})
    call(connection, 200, "POST", f"{lease_path(lease)}/renew", {"ttl_ms": 10_000})
    call(connection, 204, "DELETE", lease_path(lease))


def lease_alone(connection: Connection, sku: str) -> None:
    owner = f"lease-alone-{threading.get_ident()}"  # by which a repeated call finds what the lost one was granted
    lease = call(
        connection,
        201,
        "POST",
        "/v1/leases",
        {"resource": f"alone/{sku}", "ttl_ms": 10_000, "wait_ms": 15_000, "owner": owner},
    )
    call(connection, 200, "POST", f"{lease_path(lease)}/renew", {"ttl_ms": 10_000})
    connection.call("DELETE", lease_path(lease))


def one_shot_write(connection: Connection, sku: str) -> None:
    call(
        connection,
        200,
        "POST",
        "/v1/writes",
        {"lease": {"resources": [f"inventory/{sku}"], "ttl_ms": 10_000, "wait_ms": 15_000}, "operations": sale(sku)},
    )


def keyed_write(connection: Connection, sku: str) -> None:
    call(
        connection,
        200,
        "POST",
        "/v1/writes",
        {"lease": {"resources": [f"inventory/{sku}"], "ttl_ms": 5_000, "wait_ms": 15_000}, "operations": sale(sku)},
        **{"Idempotency-Key": uuid.uuid4().hex},
    )


def read(connection: Connection, sku: str) -> None:
    call(connection, 200, "GET", f"/v1/tables/inventory?sku=eq.{sku}")


@pytest.fixture(scope="module")
def shop(stack: Stack) -> Iterator[Cluster]:
    with running_cluster(stack, "proxies", max_ttl_ms=10_000) as made:
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


@pytest.fixture(params=[Haproxy, Nginx])
def proxy(request: pytest.FixtureRequest, shop: Cluster, gateways: list[Gateway]) -> Iterator[Proxy]:
    with request.param(shop.folder, [gateway.api.port for gateway in gateways]) as made:
        made.await_ready()
        yield made


haproxy_alone = pytest.mark.parametrize("proxy", [Haproxy], indirect=True)
nginx_alone = pytest.mark.parametrize("proxy", [Nginx], indirect=True)


@pytest.fixture
def sales(shop: Cluster) -> Callable[[], int]:
    """Returns a function that counts the pieces that were sold since."""

    def stock() -> int:
        return int(shop.query("select sum(stock) from inventory")[0][0])

    shop.query(
        "begin; select fencing.enter('inventory/' || sku, greatest(fencing.fence('inventory/' || sku), 1)) "
        "from inventory;"
        "update inventory set stock = 1000000, initial_stock = 1000000; commit"
    )
    before = stock()
    return lambda: before - stock()


def test_rolling_restarts_fail_no_call(gateways: list[Gateway], proxy: Proxy, sales: Callable[[], int]) -> None:
    """Behind HAProxy also calls without an Idempotency-Key,
    which are never repeated once a gateway has them: it asks for readiness, and nginx does not."""
    unkeyed = [lease_and_write, lease_and_write, one_shot_write] if isinstance(proxy, Haproxy) else []
    load = Load(proxy.api, [*unkeyed, lease_alone, keyed_write, keyed_write, read])
    for gateway in gateways * 2:
        load.await_more()
        assert gateway.stop() == 0
        load.await_more()
        gateway.start()
        gateway.wait_until_all_vote()
        proxy.await_ready()
    load.stop()
    assert sales() == sum(load.done[job.__name__] for job in (lease_and_write, one_shot_write, keyed_write))


def test_killed_gateways_fail_no_repeatable_call(
    gateways: list[Gateway], proxy: Proxy, sales: Callable[[], int]
) -> None:
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
    stopped = eventually(
        lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None), goal="the call waits"
    )
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
        waiting.send(
            "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        asked = eventually(
            lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None),
            goal="the call waits",
        )
    eventually(lambda: asked.api.waiters(resource) == 0, 5, goal="it has left the queue")
    gateways[0].api.must_release(lease)
    began = time.monotonic()
    done = Cli(proxy.api.url).run("lock", "--ttl", "10s", resource, "--", "true")
    assert (
        done.returncode == 0 and time.monotonic() - began < 5
    ), "it does not wait for an end of the stream that never comes"
    eventually(lambda: is_free(gateways[0].api, resource), 3, goal="the lease is released")


@haproxy_alone
def test_kept_lease_without_power_ends_behind_the_proxy(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    """The proxy acknowledges what the gateways send.
    nginx leaves what the caller does not acknowledge to the kernel."""
    kept = open_kept_lease(proxy.api, resource, ttl_ms=2_000)
    kept.wait_for("renewed")
    lose_power(kept.socket)
    eventually(lambda: is_free(gateways[0].api, resource), 60, goal="the lease is not renewed any more")
    kept.disconnect()


def test_waiting_caller_without_power_leaves_the_queue(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
    with Wire("127.0.0.1", proxy.port) as waiting:
        waiting.send(request("POST", "/v1/leases", json.dumps({"resource": resource, "wait_ms": 30_000}).encode()))
        asked = eventually(
            lambda: next((gateway for gateway in gateways if gateway.api.waiters(resource)), None),
            goal="the call waits",
        )
        lose_power(waiting.socket)
        renewed = eventually(
            lambda: gateways[0].api.renew(lease, 10_000).status == 200 and asked.api.waiters(resource) == 0,
            25,
            goal="it has left the queue",
        )
        assert renewed


@pytest.mark.parametrize("way", ["proxy", "addresses"])
def test_commands_go_on_over_rolling_restarts(
    gateways: list[Gateway], proxy: Proxy, resource: str, tmp_path: Path, way: str
) -> None:
    cli = Cli(proxy.api.url if way == "proxy" else ",".join(gateway.api.url for gateway in gateways))
    running = [
        cli.begin(
            *(("elect",) if number == 0 else ("lock",)),
            "--ttl",
            "10s",
            f"{resource}/{number}",
            "--",
            "sh",
            "-c",
            f"echo $FENCING_TOKEN >> {tmp_path}/{number}; until [ -e {tmp_path}/stop ]; do sleep 0.05; done",
        )
        for number in range(5)
    ]
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


def test_watch_passes_at_once(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    """Each event passes before the next one exists: the heartbeat is 10 s away."""
    lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
    with EventStream(proxy.api, None, method="GET", path=lease_path(lease)) as watch:
        watch.wait_for("held", 5)
        gateways[0].api.must_release(lease)
        watch.wait_for("released", 5)


def test_history_stream_passes_at_once(gateways: list[Gateway], proxy: Proxy, resource: str) -> None:
    with EventStream(proxy.api, None, method="GET", path=f"/v1/history/stream?resource={resource}") as stream:
        lease = gateways[0].api.must_acquire(resource, ttl_ms=10_000)
        stream.wait_for("lease_granted", 8)
        gateways[0].api.must_release(lease)
        stream.wait_for("lease_released", 8)


def test_longest_names_and_bodies_pass(proxy: Proxy, unique_name: Callable[[str], str]) -> None:
    """A lease_id, in a path and in Location, has all names of its lease; Fencing-Resource has them percent-encoded."""
    stem = unique_name("ü")
    names = [f"{stem}/{number:02}" + "ü" * ((62 - len(f"{stem}/{number:02}".encode())) // 2) for number in range(64)]
    with proxy.api.connection() as connection:
        lease = call(connection, 201, "POST", "/v1/leases", {"resources": names, "ttl_ms": 10_000})
        call(connection, 200, "POST", f"{lease_path(lease)}/renew", {"ttl_ms": 10_000})
        call(connection, 204, "DELETE", lease_path(lease))
        operations = [{"update": "inventory", "where": {"sku": "none"}, "set": {"note": "x"}}]
        coded = ",".join(quote(name, safe="") for name in names)
        assert 8_192 < len(coded) < 16_000
        token = {"Fencing-Resource": coded, "Fencing-Token": str(lease["fencing_token"])}
        call(connection, 200, "POST", "/v1/writes", {"operations": operations}, **token)
        operations[0]["set"]["note"] = "x" * 1_048_576
        expect_problem(connection.post("/v1/writes", {"operations": operations}, token), 413, "too-large")


@haproxy_alone
def test_backends_follow_their_own_readiness(
    shop: Cluster, gateways: list[Gateway], proxy: Proxy, resource: str
) -> None:
    """Without a majority of the nodes, writes and reads go on, and calls for leases get the cause from a gateway."""
    for node in shop.nodes[:3]:
        node.kill()
    assert isinstance(proxy, Haproxy)
    read_states = proxy.ready
    wanted = {"leases": False, "state": True, "writes": True}
    eventually(
        lambda: read_states()
        == {(name, f"gateway-{number}"): ready for name, ready in wanted.items() for number in (1, 2)},
        20,
        goal="leases are not ready",
    )
    with proxy.api.connection() as connection:
        read(connection, "sku-1")
        assert Counter(node["state"] for node in proxy.api.get("/v1/nodes").json()["nodes"])["voting"] == 2
        connection.wire.request(
            "POST", "/v1/leases", json.dumps({"resource": resource}), {"Content-Type": "application/json"}
        )
        answer = connection.wire.getresponse()
        problem = json.load(answer)
        assert (answer.status, answer.headers["Content-Type"], problem["type"].rpartition("/")[2]) == (
            503,
            "application/problem+json",
            "no-quorum",
        ), problem
    for node in shop.nodes[:3]:
        node.start()
    proxy.await_ready()


@nginx_alone
def test_nginx_shows_why_no_gateway_grants_leases(
    shop: Cluster, gateways: list[Gateway], proxy: Proxy, resource: str
) -> None:
    """What every gateway answers comes through with its cause."""
    for node in shop.nodes[:3]:
        node.kill()
    eventually(
        lambda: all(gateway.api.get("/readyz/leases").status == 503 for gateway in gateways),
        20,
        goal="leases are not ready",
    )
    with proxy.api.connection() as connection:
        read(connection, "sku-1")
        for _ in range(5):
            expect_problem(connection.post("/v1/leases", {"resource": resource}), 503, "no-quorum")
    for node in shop.nodes[:3]:
        node.start()
    for gateway in gateways:
        gateway.wait_until_all_vote()
