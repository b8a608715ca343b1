"""A caller of modest rate beside another principal that floods the gateway from another address, in each way and in all at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import statistics
import time
from pathlib import Path
from typing import Iterator

import pytest
from support import floods
from support.api import Answer, Api, Connection, Json, lease_path
from support.cluster import Cluster, Gateway
from support.polling import eventually, pause

MIB = 1 << 20
KEYS = {name: f"the key of {name}, which is long" for name in ("good", "flood", "holder")}
P99_MAX_SECONDS = 0.1
RESIDENT_MAX_BYTES = 256 * 1_000_000
CYCLES = 60
SHOP = """create table inventory (sku text primary key, stock integer not null default 10, note text); insert into inventory select 'flood-' || n from generate_series(0, 99) n;
          insert into inventory values ('good'); select fencing.protect('inventory', $$'inventory/' || sku$$); select fencing.expose_table('inventory')"""


@pytest.fixture(scope="module")
def flooded(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with limits for everyone but the principal `good`, and a resource that is always held."""
    cluster.stack.query(SHOP, dbname=cluster.database)
    cluster.stack.query(floods.LARGE_SQL, dbname=cluster.database)
    settings = cluster.settings(max_ttl_ms=cluster.max_ttl_ms)
    settings["http"].update(bodies_max_bytes=64 * MIB, answers_max_bytes=64 * MIB)
    settings["auth"] = {"api_keys": [{"principal": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": ["leases", "writes", "history"]}
                                     for name, key in KEYS.items()]}
    settings["limits"] = {"address": {"requests_per_second": 300}, "principal": {"requests_per_second": 200, "requests_burst": 50, "leases_max": 500},
                          "principals": [{"principal": "good", "requests_per_second": 1000}]}
    gateway = cluster.gateway(settings)
    gateway.start()
    api = gateway.api.with_key(KEYS["good"])
    eventually(lambda: api.get("/v1/tables/inventory?sku=eq.good").status == 200, 10, goal="the gateway knows the tables")
    holder = gateway.api.with_key(KEYS["holder"]).connection()
    holder.send("POST", "/v1/leases", {"resource": floods.HELD, "ttl_ms": 2_000}, {"Accept": "text/event-stream"})
    assert holder.wire.getresponse().status == 200
    yield gateway
    holder.close()
    gateway.kill()


def peak_resident_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def use_gateway(connection: Connection, turn: int) -> list[float]:
    """Acquires a lease, writes under it, releases it, and reads. Returns the seconds of each call."""
    seconds: list[float] = []

    def call(status: int, method: str, path: str, body: Json = None) -> Answer:
        connection.send(method, path, body)
        answer = connection.receive()
        seconds.append(answer.seconds)  # without the time of the check against openapi.json
        assert answer.status == status, f"{method} {path}: {answer}"
        return answer

    lease = call(201, "POST", "/v1/leases", {"resource": "inventory/good", "ttl_ms": 2_000, "wait_ms": 1_000}).json()
    call(200, "POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [{"update": "inventory", "where": {"sku": "good"}, "set": {"note": str(turn)}}]})
    call(204, "DELETE", lease_path(lease))
    call(200, "GET", "/v1/tables/inventory?sku=eq.good")
    call(200, "GET", "/v1/history?limit=5")
    return seconds


def measure_p99(api: Api) -> float:
    seconds: list[float] = []
    with api.connection() as connection:
        for turn in range(CYCLES):
            seconds += use_gateway(connection, turn)
            pause(0.02, "a modest rate")
    return statistics.quantiles(seconds, n=100)[98]


@pytest.fixture(scope="module")
def p99_max(flooded: Gateway) -> float:
    """The bound: 100 ms, or five times the p99 without a flood where a busy machine makes that more."""
    return max(P99_MAX_SECONDS, 5 * measure_p99(flooded.api.with_key(KEYS["good"])))


def record(kind: str, p99: float, bound: float, resident: int, processor_share: float) -> None:
    """Prints what was measured; a file of measurements gets it too, if one is named."""
    line = f"{kind}: p99 {p99 * 1000:.1f} ms (bound {bound * 1000:.0f} ms), peak {resident / 1e6:.0f} MB, processor {processor_share:.0%}, load {os.getloadavg()[0]:.0f}"
    print(line)
    if name := os.environ.get("FENCEGATE_FLOODS_MEASURED"):
        with open(name, "a") as file:
            file.write(line + "\n")


def check_beside(kinds: list[str], gateway: Gateway, p99_max: float, folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        for number, kind in enumerate(kinds):
            stack.enter_context(floods.running(kind, gateway.api.port, KEYS["flood"], f"127.0.0.{number + 10}", folder / f"{kind}.log"))
        pause(1.0, "the floods have opened their connections")
        began, used = time.monotonic(), processor_seconds(gateway.pid)
        p99 = measure_p99(gateway.api.with_key(KEYS["good"]))
        resident, processor_share = peak_resident_bytes(gateway.pid), (processor_seconds(gateway.pid) - used) / (time.monotonic() - began)
        record(kinds[0] if len(kinds) == 1 else "all at once", p99, p99_max, resident, processor_share)
        assert p99 < p99_max
        assert resident < RESIDENT_MAX_BYTES


@pytest.mark.parametrize("kind", list(floods.KINDS))
def test_good_client_is_prompt_beside_flood(flooded: Gateway, p99_max: float, tmp_path: Path, kind: str) -> None:
    check_beside([kind], flooded, p99_max, tmp_path)


def test_good_client_is_prompt_beside_all_floods(flooded: Gateway, p99_max: float, tmp_path: Path) -> None:
    check_beside(list(floods.KINDS), flooded, p99_max, tmp_path)
