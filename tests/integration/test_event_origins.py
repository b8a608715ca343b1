"""What an event says of the request that caused it, and what a refused write wanted; a resource at a time."""

from __future__ import annotations

import datetime
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import pytest
from support.api import Api, Json, expect_problem, pointers_of, resource_path
from support.cli import Cli
from support.polling import eventually
from support.shop import Sku, create_sku
from support.stack import Stack


@pytest.fixture
def goods(guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]) -> Sku:
    return create_sku(guarded_pair, unique_name("sku-origin"), 10)


@pytest.fixture
def recorded(guarded_pair: Stack) -> Iterator[None]:
    guarded_pair.query("select fencing.record_changes('inventory', null, array['note'])")
    yield
    guarded_pair.query("select fencing.stop_recording('inventory')")


def events_of(api: Api, resource: str, goal: str) -> list[Json]:
    """Returns the events of a resource, the oldest first, once there is one of the type `goal`."""

    def read() -> list[Json]:
        items = api.history(resource=resource, order="asc")
        return items if any(item["event"] == goal for item in items) else []

    return eventually(read, goal=f"{goal} is in the history")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_every_event_names_request_and_credential(api_a: Api, orders: Api, goods: Sku) -> None:
    def call(api: Api, request_id: str, *arguments: Any) -> Any:
        return api.call(*arguments, headers={"X-Request-Id": request_id})

    lease = call(orders, "acquire", "POST", "/v1/leases", {"resource": goods.resource, "fence_on_grant": True}).json()
    body = {"lease_id": lease["lease_id"], "operations": [goods.sell()]}
    assert call(orders, "write", "POST", "/v1/writes", body).status == 200
    assert call(orders, "fail", "POST", "/v1/writes", {**body, "operations": [goods.sell(99)]}).status == 409
    assert call(api_a, "revoke", "DELETE", resource_path(goods.resource, "lease"), {"reason": "a test"}).status == 204
    assert call(orders, "late", "POST", "/v1/writes", body).status == 412
    fence = {"reason": "a test", "last_fencing_token": lease["fencing_token"]}
    assert call(api_a, "repair", "POST", resource_path(goods.resource, "fence"), fence).status == 200
    own = {"lease": {"resource": goods.resource}, "operations": [goods.sell()]}
    assert call(orders, "one-shot", "POST", "/v1/writes", own).status == 200
    items = events_of(api_a, goods.resource, "lease_released")
    seen = {(item["event"], item["detail"]["request_id"]) for item in items}
    assert seen >= {
        ("lease_granted", "acquire"),
        ("fence_raised", "acquire"),
        ("write_applied", "write"),
        ("write_failed", "fail"),
        ("fence_raised", "revoke"),
        ("lease_revoked", "revoke"),
        ("write_rejected", "late"),
        ("fence_raised", "repair"),
        ("write_applied", "one-shot"),
        ("fence_raised", "one-shot"),
        ("lease_released", "one-shot"),
    }
    credentials = {item["principal"]: item["detail"]["credential"] for item in items}
    assert len(set(credentials.values())) == 2 and all(name.startswith("key:") for name in credentials.values())
    for item in items:
        assert item["detail"]["address"] == "127.0.0.1", item
        assert item["detail"]["gateway"].rsplit(":", 1)[0] == socket.gethostname(), item
        assert item["detail"]["credential"] == credentials[item["principal"]], item
    (revoked,) = (item for item in items if item["event"] == "lease_revoked")
    assert revoked["principal"] == "admin" and revoked["detail"]["holder"] == {"principal": "orders", "owner": ""}
    seals = [item for item in items if item["event"] == "fence_raised" and item["detail"]["request_id"] != "repair"]
    grants = [item["fencing_token"] for item in items if item["event"] == "lease_granted"]
    assert [(item["fencing_token"], item["last_fencing_token"]) for item in seals] == [
        (grants[0], grants[0]),
        (grants[0], grants[0] + 1),
        (grants[1], grants[1] + 1),
    ]


def test_replay_of_kept_outcome_is_an_event(api_a: Api, goods: Sku) -> None:
    own = {"lease": {"resource": goods.resource, "owner": "o"}, "operations": [goods.sell()]}
    failing = {**own, "operations": [goods.sell(99)]}
    for body, status in ((own, 200), (failing, 409)):
        key = {"Idempotency-Key": f"{goods.name}-{status}"}
        first = api_a.call("POST", "/v1/writes", body, headers=key)
        assert first.status == status
        again = api_a.call("POST", "/v1/writes", body, headers={**key, "X-Request-Id": f"again-{status}"})
        assert again.status == status and again.headers["Idempotency-Replayed"] == "true"
        found = eventually(
            lambda: [
                item
                for item in api_a.history(resource=goods.resource, event="write_replayed")
                if item["detail"]["request_id"] == f"again-{status}"
            ],
            goal="the replay is in the history",
        )
        (item,) = found
        assert item["owner"] == "o" and item["write_id"] == first.json()["write_id"], item
        assert item["detail"].get("error") == (None if status == 200 else "expectation-failed")


def test_refused_write_has_what_it_wanted_masked(guarded_pair: Stack, api_a: Api, goods: Sku, recorded: None) -> None:
    lease = api_a.must_acquire(goods.resource)
    api_a.must_revoke(goods.resource)
    change = {
        "update": "inventory",
        "where": {"sku": goods.name, "stock": {"gte": 1}},
        "add": {"stock": -1},
        "set": {"note": "a secret"},
    }
    expect_problem(api_a.write(lease, change), 412, "stale-fencing-token")
    wide = {"update": "inventory", "where": {"sku": goods.name}, "set": {"note": "x" * 40_000, "stock": 5}}
    expect_problem(api_a.write(lease, wide), 412, "stale-fencing-token")
    second, first = api_a.history(resource=goods.resource, event="write_rejected")
    (wanted,) = first["detail"]["wanted"]
    assert wanted["operation"] == "update" and wanted["table"] == "inventory"
    arguments = {(each["part"], each["column"]): each for each in wanted["arguments"]}
    assert arguments["add", "stock"]["value"] == "-1"
    assert (arguments["where", "stock"]["operator"], arguments["where", "stock"]["value"]) == ("gte", "1")
    ((mask,),) = guarded_pair.query("select fencing.masked_value('a secret')")
    assert arguments["set", "note"]["value"] == mask
    assert "a secret" not in json.dumps(first) and second["detail"]["wanted"][0]["left_out"] >= 1


def test_wanted_is_absent_without_record_changes(api_a: Api, goods: Sku) -> None:
    lease = api_a.must_acquire(goods.resource)
    expect_problem(api_a.write(lease, goods.sell(99)), 409, "expectation-failed")
    api_a.must_revoke(goods.resource)
    expect_problem(api_a.write(lease, goods.sell()), 412, "stale-fencing-token")
    for event in ("write_rejected", "write_failed"):
        (item,) = api_a.history(resource=goods.resource, event=event)
        assert "wanted" not in item["detail"], item


def test_resource_at_a_time_has_holder_fence_and_rows(
    guarded_pair: Stack, api_a: Api, orders: Api, cli: Cli, goods: Sku, recorded: None
) -> None:
    def at(api: Api, moment: str) -> Json:
        answer = api.get(resource_path(goods.resource), at=moment)
        assert answer.status == 200, answer
        return answer.json()

    lease = api_a.must_acquire(goods.resource, owner="o")
    api_a.must_write(lease, goods.sell())
    events_of(api_a, goods.resource, "lease_granted")
    held = now()
    api_a.must_write(lease, goods.sell(2))
    api_a.must_release(lease)
    events_of(api_a, goods.resource, "lease_released")
    free = now()
    then = at(api_a, held)
    token = lease["fencing_token"]
    lease_then = {"fencing_token": token, "mode": "exclusive", "principal": "admin", "owner": "o", "until": ""}
    assert {**then["lease"], "until": ""} == lease_then
    assert then["last_fencing_token"] == token and then["at"] == held and then["rows_complete"]
    assert {"table": "public.inventory", "mode": "enforce"} in then["tables"]
    (row,) = then["rows"]
    assert row["table"] == "public.inventory" and row["key"] == {"sku": goods.name} and row["values"]["stock"] == "9"
    then = at(api_a, free)
    assert then["lease"] is None and then["rows"][0]["values"]["stock"] == "7"
    shown = cli.run("history", "--resource", goods.resource, "--at", held)
    assert shown.returncode == 0 and json.loads(shown.stdout)["lease"]["owner"] == "o", shown
    terminal = cli.run_on_terminal("history", "--resource", goods.resource, "--at", held)
    assert terminal.end() == 0 and "admin o" in terminal.shown and "enforce" in terminal.shown, terminal.shown
    assert cli.run("history", "--at", held).returncode == 64


def test_resource_at_refuses_future_and_token(api_a: Api, resource: str) -> None:
    for query in ({"at": "2199-01-01T00:00:00Z"}, {"at": "soon"}, {"at": now(), "fencing_token": 1}):
        assert pointers_of(api_a.get(resource_path(resource), **query)) == ["at"]


def test_trace_is_application_name_while_a_write_runs(guarded_pair: Stack, orders: Api, goods: Sku) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    lease = orders.must_acquire(goods.resource)
    body = {"lease_id": lease["lease_id"], "operations": [goods.sell()]}

    def seen() -> bool:
        return (
            guarded_pair.query("select count(*) from pg_stat_activity where application_name ~ %s", (trace,))[0][0] > 0
        )

    def write(header: str) -> int:
        return orders.call("POST", "/v1/writes", body, headers={"traceparent": header}).status

    blocker = guarded_pair.sql()
    with blocker.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("begin")
        cursor.execute("select from inventory where sku = %s for update", (goods.name,))
        answer = pool.submit(write, f"00-{trace}-00f067aa0ba902b7-01")
        eventually(seen, goal="the write that waits shows its trace")
        cursor.execute("rollback")
        assert answer.result() == 200
    blocker.close()
    eventually(lambda: not seen(), goal="the name ends with the transaction")
    assert write(f"00-{trace}'; select-00f067aa0ba902b7-01") == 200, "a malformed one is ignored"
    (applied, other) = (
        item
        for item in events_of(guarded_pair.api(), goods.resource, "write_applied")
        if item["event"] == "write_applied"
    )
    assert (applied["trace_id"], other["trace_id"]) == (trace, None)
