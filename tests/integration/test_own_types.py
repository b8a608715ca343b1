"""Types of applications and of extensions: found in their schema, and compared with their own operators."""

from __future__ import annotations

import urllib.parse
from typing import Iterator

import pytest
from support.api import Api, Json, expect_problem
from support.polling import eventually
from support.stack import Stack

ALL = "members/all"


@pytest.fixture(scope="module")
def members(stack: Stack) -> Iterator[Api]:
    """A table with types of two other schemas, among them citext, which ignores case."""
    stack.query(
        'create schema kinds; create schema "Own Types"; create extension citext schema "Own Types"; '
        'create extension ltree schema "Own Types";'
        "create type kinds.rank as enum ('low', 'high'); "
        "create domain kinds.mail as \"Own Types\".citext check (value like '%@%');"
        'create table members (id integer primary key, name "Own Types".citext, mail kinds.mail, rank kinds.rank, '
        'path "Own Types".ltree);'
        'create function promoted(rank kinds.rank, name "Own Types".citext) returns text language sql immutable '
        "set search_path = pg_catalog, pg_temp as"
        " $$ select name::text || ' is ' || rank::text $$"
    )
    stack.query(
        f"select fencing.protect('members', $$'{ALL}'::text$$); select fencing.expose_table('members'); "
        "select fencing.expose_function('promoted(kinds.rank, \"Own Types\".citext)')"
    )
    api = stack.api()
    eventually(lambda: api.get("/v1/tables/members").status == 200, goal="the gateway knows the table")
    yield api
    stack.query(
        "select fencing.hide('members'); select fencing.hide('promoted'); select fencing.unprotect('members'); "
        'drop table members; drop schema kinds cascade; drop schema "Own Types" cascade'
    )


@pytest.fixture
def lease(stack: Stack, members: Api) -> Iterator[Json]:
    """A lease, with three rows inserted in one call."""
    held = members.must_acquire(ALL, wait_ms=10_000)
    rows = [
        {"id": i, "name": name, "mail": f"{name}@X", "rank": "low", "path": f"top.{name}"}
        for i, name in enumerate(("Ann", "BOB", "cleo"))
    ]
    answer = members.post("/v1/tables/members", rows, {"Fencing-Lease": held["lease_id"]})
    assert answer.status == 201, answer
    yield held
    members.must_write(held, {"delete": "members", "where": {"id": {"gte": 0}}})
    members.release(held)


def ids(api: Api, query: str) -> str:
    answer = api.call("GET", "/v1/tables/members?order=id&select=id&" + urllib.parse.quote(query, safe="=&"))
    assert answer.status == 200, answer
    return "".join(str(row["id"]) for row in answer.json())


@pytest.mark.parametrize(
    "query, found",
    [
        ("name=eq.ANN", "0"),
        ("name=neq.bob", "02"),
        ("name=in.(ann,CLEO)", "02"),
        ("name=not.in.(ann)", "12"),
        ("name=lt.b", "0"),
        ("name=like.A*", "0"),
        ("name=like.b*", "1"),
        ("name=ilike.B*", "1"),
        ("mail=eq.bob@x", "1"),
        ("mail=in.(BOB@X)", "1"),
        ("or=(name.eq.cleo,mail.eq.ann@x)", "02"),
        ("rank=eq.low", "012"),
        ("rank=gt.low", ""),
        ("path=eq.top.Ann", "0"),
        ("path=gt.top.BOB", "2"),
    ],
)
def test_rows_filtered_by_extension_type_match_psql(members: Api, lease: Json, query: str, found: str) -> None:
    assert ids(members, query) == found


def test_write_condition_on_extension_type_matches_psql(members: Api, lease: Json) -> None:
    for where, rows in (({"name": "ann"}, 1), ({"name": {"neq": "ANN"}}, 2), ({"mail": {"in": ["ANN@x", "bob@X"]}}, 2)):
        assert members.must_write(
            lease, {"update": "members", "where": where, "set": {"rank": "high"}, "expect_rows": rows}
        )
    expect_problem(
        members.write(lease, {"update": "members", "where": {"id": 0}, "set": {"mail": "none"}}),
        409,
        "constraint-violation",
    )


def test_function_with_types_of_other_schemas_is_served(members: Api, lease: Json) -> None:
    assert members.get("/v1/rpc/promoted", rank="high", name="Ann").json() == "Ann is high"


def test_rows_embedded_by_extension_type_match_foreign_key(stack: Stack, members: Api) -> None:
    stack.query(
        'create table badges (code "Own Types".citext primary key); '
        'create table owners (id integer primary key, badge "Own Types".citext references badges);'
        "insert into badges values ('Gold'); insert into owners values (1, 'GOLD'); "
        "select fencing.expose_table('badges'); select fencing.expose_table('owners')"
    )
    try:
        eventually(lambda: members.get("/rest/v1/owners").status == 200, goal="the gateway knows the tables")
        assert members.get("/rest/v1/owners?select=id,badges(code)").json() == [{"id": 1, "badges": {"code": "Gold"}}]
        assert members.get("/rest/v1/badges?select=code,owners!inner(id)").json() == [
            {"code": "Gold", "owners": [{"id": 1}]}
        ]
    finally:
        stack.query("select fencing.hide('badges'); select fencing.hide('owners'); drop table owners, badges")
