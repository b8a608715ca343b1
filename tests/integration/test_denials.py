"""Denied requests are events of the history: who, from where, why; sampled under a flood,
with a count of what was left out."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import psycopg2
import pytest
from support.api import Api, expect_problem, lease_path
from support.cluster import Cluster, Gateway, credential
from support.faults import install_shop, sale_operation
from support.polling import eventually

SCOPES = {
    "admin": ["leases", "writes", "history", "operate", "bare_tokens"],
    "reader": ["history"],
    "orders": ["leases", "writes"],
}
WRONG_KEY = "a-key-that-nobody-has-0123456789"


def key_of(principal: str) -> str:
    return f"the-key-of-{principal}"


@pytest.fixture(scope="module")
def settings(cluster: Cluster) -> dict[str, Any]:
    made = cluster.settings(waiters_max=1, max_ttl_ms=20_000)
    made["auth"] = {"api_keys": [credential(name, key_of(name), *scopes) for name, scopes in SCOPES.items()]}
    made["audit"] = {"buffer_max": 1_000, "on_full": "refuse"}
    return made


@pytest.fixture
def guarded(cluster: Cluster, settings: dict[str, Any]) -> Iterator[Gateway]:
    """A gateway with API keys and the smallest buffer of events; each test has its own,
    because windows last a minute."""
    with cluster.serving(settings) as made:
        yield made


@pytest.fixture
def callers(guarded: Gateway) -> dict[str, Api]:
    return {name: guarded.api.with_key(key_of(name)) for name in SCOPES}


@dataclass
class Denials:
    """The history of the module's database from the beginning of a test on."""

    cluster: Cluster
    after: int

    def query(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        return self.cluster.query(statement, arguments)

    def find(self, **detail: object) -> list[dict[str, Any]]:
        """Returns the denials whose detail has these members, oldest first."""
        found = self.query(
            "select principal, resource, detail from fencing.history where event = 'request_denied' and id > %s "
            "and detail @> %s::jsonb order by id",
            self.after,
            json.dumps(detail),
        )
        return [{"principal": principal, "resource": resource, **facts} for principal, resource, facts in found]

    def wait_for(self, request_id: str) -> dict[str, Any]:
        return eventually(
            lambda: self.find(request_id=request_id), goal=f"the denial of {request_id} is in the history"
        )[0]

    def text(self) -> str:
        return "\n".join(row for row, in self.query("select h::text from fencing.history h where id > %s", self.after))


@pytest.fixture
def denials(cluster: Cluster) -> Denials:
    last = cluster.query("select coalesce(max(id), 0) from fencing.history")[0][0]
    return Denials(cluster, last)


def test_denials_of_each_kind_have_caller_and_reason(denials: Denials, callers: dict[str, Api], resource: str) -> None:
    lease = callers["admin"].must_acquire(resource)
    changed = {**lease, "lease_id": lease["lease_id"][:-4] + "AAA="}
    nobody = callers["admin"].with_key(WRONG_KEY)
    cases = [
        (
            "no-key",
            callers["admin"].with_key(None),
            "GET",
            "/v1/nodes",
            None,
            401,
            "unauthenticated",
            None,
            "/v1/nodes",
        ),
        ("wrong-key", nobody, "DELETE", lease_path(lease), None, 401, "unauthenticated", None, "/v1/leases/{lease_id}"),
        (
            "scope",
            callers["reader"],
            "POST",
            "/v1/leases",
            {"resource": resource},
            403,
            "forbidden",
            "reader",
            "/v1/leases",
        ),
        (
            "another's",
            callers["orders"],
            "POST",
            f"{lease_path(lease)}/renew",
            {},
            403,
            "forbidden",
            "orders",
            "/v1/leases/{lease_id}/renew",
        ),
        (
            "changed",
            callers["orders"],
            "DELETE",
            lease_path(changed),
            None,
            403,
            "lease-not-authentic",
            "orders",
            "/v1/leases/{lease_id}",
        ),
    ]
    for request_id, api, method, path, body, status, slug, principal, route in cases:
        problem = expect_problem(api.call(method, path, body, headers={"X-Request-Id": request_id}), status, slug)
        found = denials.wait_for(request_id)
        assert ":" in found.pop("gateway") and found.pop("credential", "none")[:4] == ("key:" if principal else "none")
        assert found == {
            "principal": principal,
            "resource": None,
            "status": status,
            "problem": slug,
            "reason": problem["detail"],
            "address": "127.0.0.1",
            "method": method,
            "route": route,
            "request_id": request_id,
        }
    everything = denials.text()
    assert "unauthenticated" in everything
    for secret in (WRONG_KEY, lease["lease_id"], changed["lease_id"], *(key_of(name) for name in SCOPES)):
        assert secret not in everything and secret[:24] not in everything


def test_denial_429_is_recorded_and_filtered(denials: Denials, callers: dict[str, Api], resource: str) -> None:
    orders = callers["orders"]
    lease = orders.must_acquire(resource)
    waiting = orders.begin_acquire(resource, wait_ms=20_000, ttl_ms=1_000)
    callers["admin"].await_waiters(resource, 1)
    expect_problem(
        orders.post("/v1/leases", {"resource": resource, "wait_ms": 1_000}, headers={"X-Request-Id": "third"}),
        429,
        "too-many-waiters",
    )
    assert denials.wait_for("third")["status"] == 429
    orders.must_release(lease)
    assert waiting.answer().status == 201
    items = callers["reader"].history(event="request_denied", principal="orders")
    assert items[0]["detail"]["request_id"] == "third" and {(item["event"], item["principal"]) for item in items} == {
        ("request_denied", "orders")
    }
    summary = callers["reader"].get("/v1/history/summary", bucket_ms=3_600_000).json()
    assert any(bucket["counts"].get("request_denied") for bucket in summary["buckets"]), summary


def test_refusals_of_the_guard_are_recorded_once(
    cluster: Cluster, denials: Denials, callers: dict[str, Api], unique_name: Callable[[str], str]
) -> None:
    """A row of another resource, a stale token, and a fenced read with one: write_rejected has them already."""
    admin, sku = callers["admin"], install_shop(cluster, unique_name("sku"))
    other = install_shop(cluster, unique_name("sku"))
    lease = admin.must_acquire(f"inventory/{sku}")
    eventually(
        lambda: admin.get("/v1/tables/inventory", sku=f"eq.{sku}").status == 200, goal="the gateway knows the table"
    )
    expect_problem(admin.write(lease, sale_operation(other)), 403, "resource-not-covered")
    denials.query(
        "select * from fencing.raise_fences(%s, 9007199254740991, 'o', 'p', null, 'a test')", [f"inventory/{sku}"]
    )
    expect_problem(admin.write(lease, sale_operation(sku)), 412, "stale-fencing-token")
    expect_problem(
        admin.get("/v1/tables/inventory", headers={"Fencing-Lease": lease["lease_id"]}, sku=f"eq.{sku}"),
        412,
        "stale-fencing-token",
    )
    expect_problem(
        callers["reader"].post("/v1/leases", {"resource": "a"}, headers={"X-Request-Id": "last"}), 403, "forbidden"
    )
    denials.wait_for("last")  # events are stored in order
    assert [found["request_id"] for found in denials.find()] == ["last"]
    rejected = denials.query(
        "select count(*) from fencing.history where event = 'write_rejected' and principal = 'admin' and id > %s",
        denials.after,
    )
    assert rejected == [(3,)]


def call_from(gateway: Gateway, address: str, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.api.port, timeout=20, source_address=(address, 0))
    connection.request("GET", "/v1/nodes", headers={"X-Api-Key": key})
    status = connection.getresponse().status
    connection.close()
    return status


def test_flood_is_sampled_and_the_rest_is_counted(denials: Denials, guarded: Gateway) -> None:
    sent = {"127.0.0.1": 60, "127.0.0.2": 3, "127.0.0.3": 20}
    for address, count in sent.items():
        assert {call_from(guarded, address, WRONG_KEY) for _ in range(count)} == {401}
    assert guarded.stop() == 0
    for address, count in sent.items():
        found = denials.find(address=address)
        full = [item for item in found if "left_out" not in item]
        rest = [item for item in found if "left_out" in item]
        assert len(full) == min(count, 5), found
        assert [item["left_out"] for item in rest] == ([count - 5] if count > 5 else [])
        assert all(
            item["from"] <= item["to"] and item["problem"] == "unauthenticated" and item["status"] == 401
            for item in rest
        )


def test_flood_stops_no_grants_while_events_are_held(
    cluster: Cluster, denials: Denials, guarded: Gateway, callers: dict[str, Api], unique_name: Callable[[str], str]
) -> None:
    """The buffer holds 1,000 events; the denials would need more than its sixteenth,
    and what does not fit is counted."""
    with psycopg2.connect(cluster.conninfo()) as blocker:
        blocker.cursor().execute("lock table fencing.event_stream in access exclusive mode")
        addresses = [f"127.0.1.{number}" for number in range(1, 101)]
        for address in addresses:
            assert {call_from(guarded, address, WRONG_KEY) for _ in range(4)} == {401}
        for _ in range(100):
            callers["orders"].must_acquire(unique_name("test/granted"))
        blocker.rollback()
    eventually(denials.find, goal="the events are written")
    assert guarded.stop() == 0
    found = [item for item in denials.find() if item["address"] in addresses]
    assert len([item for item in found if "left_out" not in item]) <= 62
    assert sum(item.get("left_out", 1) for item in found) == 4 * len(addresses)
    granted = denials.query(
        "select count(*) from fencing.history where event = 'lease_granted' and id > %s", denials.after
    )
    assert granted == [(100,)]
