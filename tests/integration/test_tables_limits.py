"""Reads and writes of /rest/v1 that cost much, and what they must not reveal: embedded rows, counts of the planner,
long statements, keys that are not exposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem
from support.polling import eventually
from support.stack import Stack

ALL = "parts/all"
WIDTH = 20
PLAIN = ",".join(f"n{i} integer default {i}" for i in range(WIDTH))
TABLES = f"""
create table kits (id integer primary key, label text, shown boolean);
create table parts (id integer primary key, kit integer references kits, body text, {PLAIN});
create table sealed (hidden_key integer primary key, label text);
insert into kits select g, 'kit ' || g, g <= 3 from generate_series(1, 40) as g;
insert into parts (id, kit, body) select g, 1, repeat('x', 1000) from generate_series(1, 1000) as g;
create view shown_kits as select id, label from kits where shown;
create function first_kit() returns kits language sql as 'select 1, null::text, null::boolean';
select fencing.protect(t::regclass, $$'{ALL}'::text$$) from unnest('{{parts,sealed}}'::text[]) as t;
select fencing.expose_table(t::regclass) from unnest('{{parts,kits,shown_kits}}'::text[]) as t;
select fencing.expose_table('sealed', columns => '{{label}}');
select fencing.expose_function('first_kit()');
analyze kits, parts;
"""
NAMES = "{parts,kits,shown_kits,sealed,first_kit}"


@pytest.fixture(scope="module")
def parts(stack: Stack) -> Iterator[Api]:
    stack.query(TABLES)
    api = stack.api()
    eventually(
        lambda: api.get("/rest/v1/sealed").status == 200 and api.get("/rest/v1/rpc/first_kit").status == 428,
        goal="the gateway knows the tables",
    )
    yield api
    stack.query(
        f"select fencing.hide(n) from unnest('{NAMES}'::text[]) as n; select fencing.unprotect('parts'); "
        "select fencing.unprotect('sealed');"
        "drop view shown_kits; drop function first_kit(); drop table parts, kits, sealed"
    )


@pytest.fixture
def lease(parts: Api) -> Iterator[Json]:
    held = parts.must_acquire(ALL, wait_ms=10_000)
    yield held
    parts.release(held)


def private_megabytes(stack: Stack) -> int:
    """Returns the memory of the process of PostgreSQL that has most of its own."""
    most = 0
    for pid in stack.postgres_pids():
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue  # it has ended
        most = max([most, *(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon:"))])
    return most


def measured(stack: Stack, parts: Api, path: str) -> tuple[Answer, int]:
    """Returns the answer and the most megabytes of a process meanwhile.
    Repeats the call on 503: so much may take longer than statement_timeout on a busy machine."""
    most = 0

    def answered() -> Answer | None:
        nonlocal most
        call = parts.begin("GET", path)
        while call.is_alive():
            most = max(most, private_megabytes(stack))
        answer = call.answer()
        return answer if answer.status != 503 else None

    return eventually(answered, 60, goal="PostgreSQL finishes in time"), most


def count_of(api: Api, path: str, kind: str) -> str:
    answer = api.get(path, {"Prefer": f"count={kind}"})
    assert answer.status in (200, 206), answer
    return answer.headers["Content-Range"].split("/")[1]


def test_embedded_rows_over_limit_end_before_memory_does(stack: Stack, parts: Api) -> None:
    """A thousand rows of a kilobyte, embedded in each of themselves, would be a gigabyte of text,
    and several times that in PostgreSQL."""
    answer, most = measured(stack, parts, "/rest/v1/kits?id=eq.1&select=parts(id,kits(id,parts(body)))")
    problem = expect_problem(answer, 422, "unprocessable")
    assert (problem["answer_bytes_max"], "larger" in problem["detail"]) == (64 << 20, True)
    assert most < 500, f"{most} MB"
    (small,) = parts.get(
        "/rest/v1/kits?id=eq.1&select=id,parts(id,kits(id,parts(id)))&parts.id=lte.2&parts.kits.parts.id=eq.7"
    ).json()
    assert small == {"id": 1, "parts": [{"id": part, "kits": {"id": 1, "parts": [{"id": 7}]}} for part in (1, 2)]}
    lines = parts.get("/rest/v1/kits?id=lte.2&order=id&select=id,parts(id)&parts.limit=1", {"Accept": "text/csv"}).body
    assert lines == b'id,parts\n1,"[{""id"":1}]"\n2,[]'


@pytest.mark.parametrize(
    "path", ["/v1/tables/fillings?limit=1000", "/v1/rpc/all_fillings", "/v1/rpc/all_fillings?select=id,body"]
)
def test_rows_over_limit_end_before_memory_does(stack: Stack, parts: Api, path: str) -> None:
    """Three hundred rows of a megabyte, and several times that in PostgreSQL."""
    stack.query(
        "create table fillings as select g as id, repeat('x', 1000000) as body from generate_series(1, 300) as g; "
        "select fencing.expose_table('fillings');"
        "create function all_fillings() returns setof fillings language sql stable set search_path = public, pg_temp "
        "as 'select * from fillings'; select fencing.expose_function('all_fillings()')"
    )
    try:
        eventually(
            lambda: parts.get("/v1/rpc/all_fillings?select=id&limit=1").status == 200,
            goal="the gateway knows the function",
        )
        answer, most = measured(stack, parts, path)
        problem = expect_problem(answer, 422, "unprocessable")
        assert (problem["answer_bytes_max"], "larger" in problem["detail"]) == (64 << 20, True), problem
        assert most < 500, f"{most} MB"
    finally:
        stack.query(
            "select fencing.hide('fillings'); select fencing.hide('all_fillings'); drop function all_fillings(); "
            "drop table fillings"
        )


def test_planned_count_of_deep_plan_is_answered(parts: Api) -> None:
    joined = ",".join(f"x{i}:parts!inner(id)" for i in range(16))
    limits = "&".join(f"x{i}.limit=1" for i in range(16))
    assert int(count_of(parts, f"/rest/v1/kits?limit=1&select=id,{joined}&{limits}", "planned")) >= 1


def test_estimate_never_below_rows_of_answer(stack: Stack, parts: Api) -> None:
    stack.query(
        "create table fresh (id integer); alter table fresh set (autovacuum_enabled = off); analyze fresh; "
        "insert into fresh values (1), (2), (3); select fencing.expose_table('fresh')"
    )
    try:
        stack.query("update pg_class set reltuples = 1, relpages = 1 where relname = 'fresh'")
        eventually(lambda: parts.get("/rest/v1/fresh").status == 200, goal="the gateway knows the table")
        assert int(count_of(parts, "/rest/v1/fresh", "planned")) >= 3
    finally:
        stack.query("select fencing.hide('fresh'); drop table fresh")


def test_planned_count_of_view_tells_nothing_of_hidden_rows(parts: Api) -> None:
    for kind in ("planned", "estimated"):
        assert count_of(parts, "/rest/v1/shown_kits?limit=1", kind) == "3"
        assert count_of(parts, "/rest/v1/shown_kits?id=gt.3", kind) == "0"


def test_statements_of_many_rows_leave_memory_of_postgresql(stack: Stack, parts: Api, lease: Json) -> None:
    """Which rows lack which column makes each insert another statement;
    PostgreSQL needs megabytes for each that stays prepared."""
    names = [f"n{i}" for i in range(WIDTH)]

    def insert(number: int) -> None:
        first = 10_000 + number * 1_000
        rows = [{"id": first + i, "kit": 2, **({names[i % WIDTH]: 1} if i != number else {})} for i in range(1_000)]
        answer = parts.post(
            f"/rest/v1/parts?columns=id,kit,{','.join(names)}",
            rows,
            {"Prefer": "missing=default", "Fencing-Lease": lease["lease_id"]},
        )
        assert answer.status == 201, answer

    insert(0)
    before = private_megabytes(stack)
    for number in range(1, 16):
        insert(number)
    assert private_megabytes(stack) - before < 25


def test_upsert_by_key_that_is_not_exposed_does_not_name_it(parts: Api, lease: Json) -> None:
    answer = parts.post(
        "/rest/v1/sealed", {"label": "x"}, {"Prefer": "resolution=merge-duplicates", "Fencing-Lease": lease["lease_id"]}
    )
    problem = expect_problem(answer, 422, "unprocessable")
    assert [error["pointer"] for error in problem["errors"]] == ["on_conflict"] and b"hidden_key" not in answer.body


def test_read_that_postgresql_can_not_prepare_is_unprocessable(parts: Api) -> None:
    assert expect_problem(parts.get("/rest/v1/parts?id=like.1*"), 422, "unprocessable")["code"] == "42883"


def test_nulls_of_single_value_are_stripped_after_write(parts: Api, lease: Json) -> None:
    answer = parts.post(
        "/rest/v1/rpc/first_kit",
        {},
        {"Accept": "application/vnd.pgrst.object+json;nulls=stripped", "Fencing-Lease": lease["lease_id"]},
    )
    assert (answer.status, answer.body) == (200, b'{"id":1}')


@pytest.mark.parametrize(
    "path, headers",
    [
        ("/rest/v1/%ff", {}),
        ("/rest/v1/rpc/%ff", {}),
        ("/rest/v1/kits?id=%ff.1", {}),
        ("/rest/v1/kits?select=a!(" + "x" * 18 + "%C3%A9)", {}),
        ("/rest/v1/kits", {"Prefer": "handling=strict, foo=\xff"}),
    ],
)
def test_refusal_that_cites_any_bytes_is_json_in_utf8(parts: Api, path: str, headers: dict[str, str]) -> None:
    answer = parts.get(path, headers)
    assert answer.status in (400, 404)
    assert json.loads(answer.body.decode())["detail"]
