"""GET /v1/changes and `fencegate changes`: the rows that changed, of tables for which record_changes() was called."""

from __future__ import annotations

import csv
import io
import json
import random
from typing import Iterator

import pytest
from support.api import Api, Json, expect_problem, pointers_of
from support.cli import Cli
from support.stack import Stack

MEMBERS = "id at table operation key old new resource fencing_token write_id principal direct application".split()


@pytest.fixture(scope="module")
def table(stack: Stack) -> Iterator[str]:
    """A protected table whose changes are recorded, the column secret by its hash."""
    name = f"recorded_{random.randrange(10**9)}"
    stack.query(
        f"create table {name} (id integer primary key, n integer, secret text);"
        f"select fencing.protect('{name}', $$'{name}/' || id::text$$);"
        f"select fencing.record_changes('{name}', null, array['secret']);"
        f"select fencing.expose_table('{name}')"
    )
    yield name
    stack.query(
        f"select fencing.stop_recording('{name}'), fencing.unprotect('{name}', true), fencing.hide('{name}');"
        f"drop table {name}"
    )


def changes(api: Api, **query: object) -> list[Json]:
    answer = api.get("/v1/changes", **query)
    assert answer.status == 200, answer
    return answer.json()["items"]


def insert_directly(stack: Stack, table: str, first: int, last: int) -> None:
    stack.query(
        f"insert into fencing.guard (resource, last_fencing_token, entered_xid, entered_at) select '{table}/' || i, 1, "
        f"pg_current_xact_id(), now() from generate_series({first}, {last}) i;"
        f"insert into {table} select i, 0, 'hidden' from generate_series({first}, {last}) i"
    )


def test_write_of_a_gateway_and_direct_sql_are_told_apart(stack: Stack, api: Api, table: str) -> None:
    insert_directly(stack, table, 1, 1)
    lease = api.must_acquire(f"{table}/1")
    write = api.must_write(lease, {"update": table, "where": {"id": 1}, "set": {"n": 7, "secret": None}})
    api.must_release(lease)
    update, insert = changes(api, resource=f"{table}/1")
    assert list(update) == MEMBERS
    (secret,) = update["old"]["secret"].values()
    assert update["new"] == {"n": "7", "secret": None} and update["old"] == {"n": "0", "secret": {"masked": secret}}
    assert insert["new"] == {"id": "1", "n": "0", "secret": {"masked": secret}} and insert["old"] is None
    (applied,) = api.history(write_id=write["write_id"])
    assert [update[name] for name in ("write_id", "fencing_token", "principal", "direct", "application")] == [
        write["write_id"],
        lease["fencing_token"],
        applied["principal"],
        False,
        None,
    ]
    assert insert["direct"] and insert["write_id"] is None and insert["principal"]
    assert (update["table"], update["operation"], update["key"]) == (f"public.{table}", "update", {"id": "1"})


def test_one_shots_of_one_lease_each_have_their_own_change(stack: Stack, api: Api, table: str) -> None:
    resource = f"{table}/9"
    insert_directly(stack, table, 9, 9)
    lease = api.must_acquire(resource)
    calls = []
    for number in range(3):
        write = {"update": table, "where": {"id": 9}, "set": {"n": 10 + number}}
        wanted = {"resource": resource, "wait_ms": 20_000}
        calls.append(api.begin("POST", "/v1/writes", {"lease": wanted, "operations": [write]}))
        api.await_waiters(resource, number + 1)
    api.must_release(lease)
    done = [call.answer().json() for call in calls]
    alone = {"update": table, "where": {"id": 9}, "set": {"n": 20}}
    done.append(api.post("/v1/writes", {"lease": {"resource": resource}, "operations": [alone]}).json())
    assert done[0]["fencing_token"] == done[2]["fencing_token"] < done[3]["fencing_token"]
    found = [change for change in reversed(changes(api, resource=resource)) if change["operation"] == "update"]
    assert [(change["write_id"], change["fencing_token"], change["new"]) for change in found] == [
        (write["write_id"], write["fencing_token"], {"n": n}) for write, n in zip(done, ("10", "11", "12", "20"))
    ]


def test_one_shots_that_sell_out_are_decided_in_one_transaction(stack: Stack, api: Api, table: str) -> None:
    resource, sku = f"{table}/10", {"id": 10}
    insert_directly(stack, table, 10, 10)
    lease = api.must_acquire(resource)
    api.must_write(lease, {"update": table, "where": sku, "set": {"n": 4}})
    sell = {"update": table, "where": {**sku, "n": {"gte": 1}}, "add": {"n": -1}, "expect_rows": 1}
    body = {"lease": {"resource": resource, "wait_ms": 20_000}, "operations": [sell]}
    keys = [f"{resource}/{number}" for number in range(9)]
    calls = []
    for key in keys:
        calls.append(api.begin("POST", "/v1/writes", body, {"Idempotency-Key": key}))
        api.await_waiters(resource, len(calls))
    api.must_release(lease)
    sold, refused = [call.answer() for call in calls[:4]], [call.answer() for call in calls[4:]]
    assert [answer.status for answer in sold] == [200] * 4
    for answer in refused:
        assert expect_problem(answer, 409, "expectation-failed")["rows_affected"] == 0
    found = [change for change in reversed(changes(api, resource=resource)) if change["operation"] == "update"][1:]
    writes = [answer.json()["write_id"] for answer in sold]
    assert [(change["write_id"], change["new"]) for change in found] == list(
        zip(writes, ({"n": n} for n in ("3", "2", "1", "0")))
    )
    token = sold[0].json()["fencing_token"]
    rows = stack.query(
        "select event::text, count(*), count(distinct write_id), count(distinct xmin::text) from fencing.history "
        "where resource = %s and fencing_token = %s and event::text ~ '^write|^fence' group by 1 order by 1",
        (resource, token),
    )
    assert rows == [("fence_raised", 1, 1, 1), ("write_applied", 4, 4, 1), ("write_failed", 5, 5, 1)]
    assert stack.query("select fencing.fence(%s)", (resource,)) == [(token + 1,)]
    for key, answer in zip(keys, [*sold, *refused]):
        again = api.post("/v1/writes", body, {"Idempotency-Key": key})
        assert (again.status, again.headers["Idempotency-Replayed"]) == (answer.status, "true")


def test_refused_and_failed_writes_leave_no_change(stack: Stack, api: Api, table: str) -> None:
    insert_directly(stack, table, 2, 3)
    lease = api.must_acquire(f"{table}/2")
    update = {"update": table, "where": {"id": 2}, "set": {"n": 1}}
    expect_problem(api.write(lease, update, {**update, "where": {"id": 3}}), 403, "resource-not-covered")
    assert api.write(lease, {**update, "expect_rows": 9}).status >= 400
    api.must_release(lease)
    newer = api.must_acquire(f"{table}/2")
    api.must_write(newer, {"update": table, "where": {"id": 2}, "set": {"n": 0}})
    assert api.write(lease, update).status >= 400
    api.must_release(newer)
    assert [item["operation"] for item in changes(api, table=f"public.{table}", key='{"id": 2}')] == ["insert"]


def test_each_filter_selects(stack: Stack, api: Api, table: str) -> None:
    insert_directly(stack, table, 80, 82)
    lease = api.must_acquire(f"{table}/81")
    write = api.must_write(lease, {"update": table, "where": {"id": 81}, "set": {"n": 5}})
    api.must_release(lease)
    ours = {"resource_prefix": f"{table}/8"}
    (update,) = changes(api, write_id=write["write_id"])
    token = lease["fencing_token"]
    for filters, count in [
        ({"table": f"public.{table}", "token_min": token, "token_max": token, **ours}, 1),
        ({"key": '{"id": "81"}', **ours}, 2),
        ({"key": '{"id": 81}', "column": "secret", **ours}, 1),
        ({"column": "n", "principal": update["principal"], "token_min": token, **ours}, 1),
        ({"from": update["at"], "token_min": token, **ours}, 1),
        ({"to": "2020-01-01T00:00:00Z", **ours}, 0),
        ({"table": "public.nothing"}, 0),
    ]:
        assert len(changes(api, **filters)) == count, filters


def test_pages_and_exports_have_each_change_once(stack: Stack, api: Api, table: str) -> None:
    insert_directly(stack, table, 100, 2600)
    query = {"resource_prefix": f"{table}/", "column": "secret", "order": "asc", "limit": 1000}
    paged: list[Json] = []
    cursor: dict[str, str] = {}
    while not paged or cursor:
        page = api.get("/v1/changes", **query, **cursor).json()
        paged += page["items"]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
    assert len({item["id"] for item in paged}) == len(paged) >= 2501
    query.pop("limit")
    ndjson = api.get("/v1/changes", {"Accept": "application/x-ndjson"}, **query).body.splitlines()
    assert [json.loads(line) for line in ndjson] == paged
    text = api.get("/v1/changes", {"Accept": "text/csv"}, **query).body.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert list(rows[0]) == MEMBERS and [int(row["id"]) for row in rows] == [item["id"] for item in paged]
    assert json.loads(rows[-1]["new"]) == paged[-1]["new"] and rows[-1]["old"] == ""


@pytest.mark.parametrize("key", ["7", "{}", "[]", '{"id": null}', '{"id": 1.5}', '{"id": "\\u0000"}', "id=7"])
def test_key_that_is_no_object_of_values_is_refused(api: Api, key: str) -> None:
    assert pointers_of(api.get("/v1/changes", key=key)) == ["key"]


def test_faults_of_the_query_are_all_named(api: Api) -> None:
    wrong = {"event": "x", "table": "", "column": "", "limit": 0, "order": "up", "token_min": -1, "cursor": "!"}
    assert sorted(pointers_of(api.get("/v1/changes", **wrong))) == sorted(wrong)


def test_command_prints_changes(stack: Stack, api: Api, table: str) -> None:
    insert_directly(stack, table, 50, 51)
    cli = Cli(api.url)
    done = cli.run("changes", "--table", f"public.{table}", "--row", "id=50", "--column", "n")
    assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == [{"id": "50"}], done
    assert len(cli.run("changes", "--resource", f"{table}/50", "--csv").stdout.splitlines()) == 2
    terminal = cli.run_on_terminal("changes", "--resource", f"{table}/51", columns=200, NO_COLOR="1")
    assert terminal.end() == 0 and "insert" in terminal.shown and f"public.{table}" in terminal.shown, terminal.shown
    assert cli.run("changes", "--row", "50").returncode == cli.run("changes", "--follow").returncode == 64
