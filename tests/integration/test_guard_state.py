"""The state of the guard: of each table whether it is enforced, observed or open, since when and by whom,
and what the installation can't notice. Every place that shows it shows the same."""

from __future__ import annotations

import json
from typing import Any, Iterator

import psycopg2
import pytest

from support.api import Api, expect_problem
from support.cli import Cli
from support.cluster import Cluster, Gateway
from support.faults import install_shop
from support.polling import eventually

PROTECT = "select fencing.protect('inventory', $$'inventory/' || sku$$, %s)"


@pytest.fixture(scope="module")
def watched(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway that asks often, on a database with the shop."""
    install_shop(cluster, "sku")
    settings = cluster.settings()
    settings["postgres"]["guard_check_interval_ms"] = 200
    with cluster.serving(settings) as made:
        yield made


def query(cluster: Cluster, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    return cluster.query(statement, arguments)


def tables(api: Api) -> dict[str, Any]:
    answer = api.get("/v1/guard")
    return {table["table"]: table for table in answer.json()["tables"]} if answer.status == 200 else {}


def await_state(api: Api, state: str, reason: str | None) -> dict[str, Any]:
    def find() -> dict[str, Any] | None:
        found = tables(api).get("public.inventory")
        return found if found and (found["state"], found["reason"]) == (state, reason) else None

    return eventually(find, goal=f"the gateway knows that the table is {state}")


def counted(api: Api) -> dict[str, str]:
    lines = api.get("/metrics").body.decode().splitlines()
    return {line.split('"')[1]: line.split()[1] for line in lines if line.startswith("fencegate_guard_tables{")}


def check(cluster: Cluster, gateway: Gateway) -> tuple[int, list[str]]:
    done = cluster.call("check", "--config", str(gateway.config))
    return done.returncode, [line for line in done.stdout.splitlines() if line.split()[1] == "guard:"]


def verify(cluster: Cluster, *options: str) -> str:
    done = cluster.call("verify", "--conninfo", cluster.conninfo(), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_state_of_an_opened_table_is_shown_everywhere(cluster: Cluster, watched: Gateway) -> None:
    api, user = watched.api, query(cluster, "select session_user::text")[0][0]
    assert await_state(api, "enforced", None)["principal"] == user
    assert counted(api) == {"open": "0", "observed": "0", "enforced": "3"}
    assert check(cluster, watched) == (
        0,
        ["ok    guard: every check is in place, tables: 0 open, 0 observed, 3 enforced"],
    )

    query(cluster, "select fencing.unprotect('inventory')")
    opened = await_state(api, "open", "unprotected")
    line = f"public.inventory is open since {opened['since']}, by {user}: unprotect() was called"
    assert opened["principal"] == user and counted(api) == {"open": "1", "observed": "0", "enforced": "2"}
    code, lines = check(cluster, watched)
    assert code == 69 and lines == [f"FAULT guard: {line}"]
    shown = Cli(api.url).run_on_terminal("status", NO_COLOR="1")
    assert (
        shown.end() == 0
        and "guard, tables: 1 open, 0 observed, 2 enforced, faults: 0" in shown.shown
        and f"  {line}" in shown.shown
    )
    assert line in verify(cluster)
    assert json.loads(verify(cluster, "--json"))["guard"]["tables"][0] == opened

    query(cluster, PROTECT, "observe")
    await_state(api, "observed", None)
    code, lines = check(cluster, watched)
    assert (
        code == 0
        and len(lines) == 1
        and lines[0].startswith("ok    guard: WARNING: public.inventory is observed since ")
        and "not refused" in lines[0]
    )

    query(cluster, PROTECT, "enforce")
    await_state(api, "enforced", None)
    query(cluster, "alter table inventory disable trigger user")
    found = await_state(api, "open", "fault")
    assert found["principal"] == user and found["since"] and len(found["faults"]) == found["fault_count"] == 7
    assert api.get("/v1/guard").json()["fault_count"] == 7
    code, lines = check(cluster, watched)
    assert code == 69 and len(lines) == 8 and all(line.startswith("FAULT ") for line in lines)
    query(cluster, PROTECT, "enforce")
    await_state(api, "enforced", None)


def test_what_the_installation_does_not_notice_is_shown(cluster: Cluster, watched: Gateway) -> None:
    """As in an installation by a role that is no superuser, where the owner of a table opens it for one transaction."""
    assert "Not noticed" not in verify(cluster)
    triggers = [name for name, in query(cluster, "select evtname from pg_event_trigger where evtname like 'fencing%%'")]
    for name in triggers:
        query(cluster, f"alter event trigger {name} disable")
    try:
        enable = "; ".join(
            f"alter table orders enable always trigger {name}"
            for name, in query(
                cluster, "select tgname from pg_trigger where tgrelid = 'orders'::regclass and tgname like 'fencing%%'"
            )
        )
        query(
            cluster,
            "begin; alter table orders disable trigger user; "
            f"insert into orders (id, sku, quantity) values (780, 'sku-1', 1); {enable}; commit",
        )
        limit = eventually(lambda: limits(watched.api), goal="the gateway knows it")[0]
        assert limit.startswith("event triggers are missing: the owner of a table can disable its checks and change")
        altered = "public.orders: its checks were altered since protect()"
        opened = eventually(
            lambda: (found := tables(watched.api)["public.orders"])["state"] == "open" and found["since"] and found,
            goal="the gateway has recorded the fault, which it may show before",
        )
        assert any(fault.startswith(altered) for fault in opened["faults"])
        assert "public.orders is open since " in verify(cluster)
        query(cluster, "select fencing.protect('orders', $$'orders/' || id::text$$)")
        eventually(
            lambda: not [f for f in watched.api.get("/v1/guard").json()["faults"] if f.startswith(altered)],
            goal="protect() has ended it",
        )
        assert "public.orders from " in verify(cluster)
        _, lines = check(cluster, watched)
        assert f"ok    guard: WARNING: this installation can't notice everything: {limit}" in lines
        assert f"Not noticed by this installation: {limit}." in verify(cluster)
        shown = Cli(watched.api.url).run_on_terminal("status", NO_COLOR="1")
        assert shown.end() == 0 and "not noticed: event triggers are missing" in shown.shown
    finally:
        for name in triggers:
            query(cluster, f"alter event trigger {name} enable always")


def test_recorder_that_fails_is_shown(cluster: Cluster, watched: Gateway) -> None:
    eventually(lambda: limits(watched.api) == [], goal="the gateway knows no limit")
    ((port,),) = query(cluster, "select fencing.recorder_port()")
    query(cluster, "alter server fencing_recorder options (set port '1')")
    try:
        limit = eventually(lambda: limits(watched.api), goal="the gateway knows it")[0]
        assert limit.startswith("the recorder fails, so that refusals") and "port 1" in limit
    finally:
        query(cluster, f"alter server fencing_recorder options (set port '{port}')")
    eventually(lambda: limits(watched.api) == [], goal="it works again")
    shown = watched.api.get("/v1/guard").json()["storage_generation"]
    assert [(shown["timeline"], shown["floor"])] == query(
        cluster, "select timeline, floor from fencing.storage_generation"
    )


def limits(api: Api) -> list[str]:
    answer = api.get("/v1/guard")
    return answer.json()["limits"] if answer.status == 200 else []


def test_state_is_unknown_before_the_first_answer(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["postgres"]["guard_check_interval_ms"] = 200
    gateway = cluster.gateway(settings)
    with psycopg2.connect(cluster.conninfo()) as blocker:
        blocker.cursor().execute("lock table fencing.fault_check in access exclusive mode")
        gateway.start()
        assert "not asked" in expect_problem(gateway.api.get("/v1/guard"), 503, "storage-unavailable")["detail"]
        shown = Cli(gateway.api.url).run("status")
        assert shown.returncode == 0 and '{"guard":null}' in shown.stdout.splitlines()
    blocker.close()
    await_state(gateway.api, "enforced", None)
    gateway.kill()
