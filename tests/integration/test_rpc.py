"""/v1/rpc: functions run as guarded writes, and those that are not volatile as reads."""

from __future__ import annotations

from decimal import Decimal
from typing import Callable, Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack

FUNCTIONS = {
    "rpc_sum(integer, numeric)": (
        "create function rpc_sum(a integer, b numeric default 0.50) returns numeric language sql immutable "
        "as 'select a + b'"
    ),
    "rpc_list(integer)": (
        "create function rpc_list(n integer) returns setof integer language sql stable "
        "as 'select * from generate_series(1, n)'"
    ),
    "rpc_table(integer)": (
        "create function rpc_table(n integer) returns table (k integer, word text) language sql stable as $$ "
        "select i, 'w' || i from generate_series(1, n) as i $$"
    ),
    "rpc_spot()": (
        "create function rpc_spot(out x integer, out y text) language sql immutable as $$ select 1, 'it''s' $$"
    ),
    "rpc_null()": "create function rpc_null() returns text language sql immutable as 'select null::text'",
    "rpc_void()": "create function rpc_void() returns void language sql stable as 'select'",
    "rpc_words(text[])": (
        "create function rpc_words(words text[]) returns jsonb language sql immutable as 'select to_jsonb(words)'"
    ),
    "rpc_liar()": (
        "create function rpc_liar() returns bigint language sql stable security definer as $$ "
        "select nextval('public.order_events_id_seq') $$"
    ),
    "rpc_leaver(text, text)": (
        "create function rpc_leaver(name text, value text) returns text language sql stable "
        "as 'select set_config(name, value, false)'"
    ),
    "rpc_locker()": (
        "create function rpc_locker() returns void language sql volatile set search_path = public "
        "as 'select pg_advisory_lock(4711); create temp table if not exists left_behind ()'"
    ),
    "rpc_settings()": "create function rpc_settings() returns jsonb language sql stable as $$ "
    "select jsonb_build_object('timezone', current_setting('timezone'), 'timeout', "
    "current_setting('statement_timeout'), 'path', current_setting('search_path'), 'style', "
    "current_setting('datestyle')) $$",
    **{
        f"rpc_counted_{kind}()": f"create function rpc_counted_{kind}() returns {result} language plpgsql stable "
        "as $$ begin perform set_config('rpc.count', "
        f"(coalesce(nullif(current_setting('rpc.count', true), ''), '0')::integer + 1)::text, true); {give} end $$"
        for kind, result, give in (
            ("value", "integer", "return current_setting('rpc.count');"),
            ("set", "setof integer", "return next current_setting('rpc.count'); return;"),
            ("row", "table (n integer)", "n := current_setting('rpc.count'); return next;"),
        )
    },
    "rpc_poke()": "create function rpc_poke() returns void language sql volatile as 'select'",
}


@pytest.fixture(scope="module")
def rpc(stack: Stack) -> Iterator[Api]:
    for signature, definition in FUNCTIONS.items():
        stack.query(definition)
        stack.query(f"select fencing.expose_function('{signature}')")
    api = stack.api()
    eventually(lambda: api.get("/v1/rpc/rpc_null").status == 200, goal="the gateway knows the functions")
    yield api
    for signature in FUNCTIONS:
        stack.query(f"select fencing.hide('{signature.split('(')[0]}'); drop function {signature}")


def call(api: Api, name: str, args: Json = None, lease: Json | None = None) -> Answer:
    return api.post(f"/v1/rpc/{name}", args, {"Fencing-Lease": lease["lease_id"]} if lease else {})


@pytest.mark.parametrize(
    "name, args, query, value",
    [
        ("rpc_sum", {"a": 1}, "a=1", b"1.50"),
        (
            "rpc_sum",
            {"a": 2, "b": "0.123456789012345678901"},
            "a=2&b=0.123456789012345678901",
            b"2.123456789012345678901",
        ),
        ("rpc_list", {"n": 3}, "n=3", b"[1,2,3]"),
        ("rpc_list", {"n": 0}, "n=0", b"[]"),
        ("rpc_table", {"n": 1}, "n=1", b'[{"k":1,"word":"w1"}]'),
        ("rpc_spot", None, "", b'{"x":1,"y":"it\'s"}'),
        ("rpc_null", {}, "", b"null"),
        ("rpc_words", {"words": ["a,b", None]}, "words={%22a,b%22,NULL}", b'["a,b", null]'),
    ],
)
def test_function_without_changes_needs_no_lease(
    rpc: Api, resource: str, name: str, args: Json, query: str, value: bytes
) -> None:
    lease = rpc.must_acquire(resource)
    for answer in (
        call(rpc, name, args),
        call(rpc, name, args, lease),
        rpc.get(f"/v1/rpc/{name}?{query}"),
        rpc.get(f"/v1/rpc/{name}?{query}", {"Fencing-Lease": lease["lease_id"]}),
    ):
        assert (answer.status, answer.body) == (200, value), answer
    assert (
        rpc.must_write(lease, {"call": name, "args": args or {}})["results"][0]["value"] is not None or value == b"null"
    )


@pytest.mark.parametrize(
    "name, value", [("rpc_counted_value", b"1"), ("rpc_counted_set", b"[1]"), ("rpc_counted_row", b"[1]")]
)
def test_function_read_is_evaluated_once(rpc: Api, resource: str, name: str, value: bytes) -> None:
    lease = rpc.must_acquire(resource)
    for answer in (
        rpc.get(f"/v1/rpc/{name}"),
        call(rpc, name),
        rpc.get(f"/v1/rpc/{name}", {"Fencing-Lease": lease["lease_id"]}),
        call(rpc, name, lease=lease),
    ):
        assert (answer.status, answer.body) == (200, value), answer


def test_set_content_range_tells_number_of_rows_sent(rpc: Api, resource: str) -> None:
    for n, rows, reported in ((0, 0, "*/*"), (3, 3, "0-2/*"), (1001, 1000, "0-999/*")):
        for answer in (rpc.get("/v1/rpc/rpc_list", n=n), call(rpc, "rpc_list", {"n": n})):
            assert (len(answer.json()), answer.headers["Content-Range"]) == (rows, reported), answer.headers.items()
    whole = call(rpc, "rpc_list", {"n": 1001}, rpc.must_acquire(resource))
    assert (len(whole.json()), whole.headers["Content-Range"]) == (1001, None)
    assert rpc.get("/v1/rpc/rpc_sum", a=1).headers["Content-Range"] is None


def test_call_with_query_reads_it_as_parts_of_set(rpc: Api, resource: str) -> None:
    """In a query GET has arguments and parts of the set; POST has its arguments in the body."""
    for headers in ({}, {"Fencing-Lease": rpc.must_acquire(resource)["lease_id"]}):
        assert pointers_of(rpc.post("/v1/rpc/rpc_list?n=3&limit=1", {"n": 2}, headers)) == ["n"]
        assert rpc.post("/v1/rpc/rpc_list?limit=1&offset=1", {"n": 3}, headers).json() == [2]
        assert rpc.post("/v1/rpc/rpc_table?k=gt.1&select=word", {"n": 2}, headers).json() == [{"word": "w2"}]
        assert pointers_of(rpc.post("/v1/rpc/rpc_sum?order=a&a=eq.1", {"a": 2}, headers), 422, "unprocessable") == [
            "a",
            "order",
        ]
    assert pointers_of(rpc.post("/v1/writes?then=release", {"operations": [{"call": "rpc_poke"}]})) == ["then"]


def test_function_returning_nothing_204(rpc: Api, resource: str) -> None:
    assert [
        a.status
        for a in (
            call(rpc, "rpc_void"),
            rpc.get("/v1/rpc/rpc_void"),
            call(rpc, "rpc_poke", {}, rpc.must_acquire(resource)),
        )
    ] == [204, 204, 204]


def test_function_that_may_change_something_needs_lease(rpc: Api) -> None:
    expect_problem(call(rpc, "rpc_poke"), 428, "fencing-required")
    expect_problem(rpc.get("/v1/rpc/rpc_poke"), 428, "fencing-required")
    expect_problem(call(rpc, "place_order", {"order_id": 1, "sku": "x", "quantity": 1}), 428, "fencing-required")


def test_function_wrongly_declared_stable_is_refused(rpc: Api) -> None:
    """A read runs in a read-only transaction, whatever the function is declared as."""
    for answer in (call(rpc, "rpc_liar"), rpc.get("/v1/rpc/rpc_liar")):
        assert "may not change anything" in expect_problem(answer, 422, "unprocessable")["detail"]


def test_order_placed_by_rpc_is_guarded_and_in_history(
    stack: Stack, rpc: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    order = int(unique_name("")[1:], 16) % 10**9
    lease = rpc.post("/v1/leases", {"resources": [f"orders/{order}", sku.resource], "ttl_ms": 20_000}).json()
    answer = call(rpc, "place_order", {"order_id": order, "sku": sku.name, "quantity": 3}, lease)
    assert (answer.status, answer.json(), sku.stock()) == (200, order, 7)
    assert {item["resource"] for item in rpc.history(write_id=answer.headers["Fencing-Write-Id"])} == {
        f"orders/{order}",
        sku.resource,
    }
    expect_problem(
        call(rpc, "place_order", {"order_id": order, "sku": sku.name, "quantity": 3}, lease),
        409,
        "constraint-violation",
    )
    only_sku = rpc.must_acquire(f"orders/{order + 1}")
    expect_problem(
        call(rpc, "place_order", {"order_id": order + 1, "sku": sku.name, "quantity": 3}, only_sku),
        403,
        "resource-not-covered",
    )
    assert sku.stock() == 7


def test_call_with_stale_token_412(rpc: Api, resource: str) -> None:
    a = rpc.must_acquire(resource, ttl_ms=300)
    b = rpc.must_acquire(resource, wait_ms=3_000)
    assert call(rpc, "rpc_poke", {}, b).status == 204
    expect_problem(call(rpc, "rpc_poke", {}, a), 412, "stale-fencing-token")
    expect_problem(rpc.get("/v1/rpc/rpc_null", {"Fencing-Lease": a["lease_id"]}), 412, "stale-fencing-token")


def test_call_with_faults_names_arguments(rpc: Api, resource: str) -> None:
    lease = rpc.must_acquire(resource)
    for held in (None, lease):
        expect_problem(call(rpc, "nope", {}, held), 404, "not-found")
        assert pointers_of(call(rpc, "rpc_sum", {"a": 1, "c": 2}, held), 422, "unprocessable") == ["/c"]
        assert pointers_of(call(rpc, "rpc_sum", {}, held), 422, "unprocessable") == [""]
        assert pointers_of(call(rpc, "rpc_sum", {"b": 1, "a": "x"}, held), 422, "unprocessable") == ["/a"]
        assert pointers_of(call(rpc, "rpc_sum", [1], held)) == [""]
    assert pointers_of(rpc.get("/v1/rpc/rpc_sum?a=1&a=2")) == ["a"]
    assert pointers_of(rpc.get("/v1/rpc/rpc_sum?a=1&z=2"), 422, "unprocessable") == ["z"]
    assert pointers_of(rpc.get("/v1/rpc/rpc_sum?a=%00")) == ["a"]
    assert pointers_of(rpc.get("/v1/rpc/rpc_sum?b=1&a=x"), 422, "unprocessable") == ["a"]


def test_one_value_with_limit_0_is_refused(rpc: Api) -> None:
    problem = expect_problem(rpc.get("/v1/rpc/rpc_sum?a=1&limit=0"), 422, "unprocessable")
    assert [error["pointer"] for error in problem["errors"]] == ["limit"]
    assert rpc.get("/v1/rpc/rpc_sum?a=1&limit=1").json() == 1.5


def test_set_above_limit_is_cut(rpc: Api) -> None:
    assert call(rpc, "rpc_list", {"n": 5000}).json() == list(range(1, 1001))


def test_argument_number_keeps_its_digits(rpc: Api) -> None:
    answer = rpc.post("/v1/rpc/rpc_sum", raw=b'{"a": 0, "b": 12345678901234567890.10}')
    assert answer.json() == Decimal("12345678901234567890.10") and answer.body.endswith(b".10")


def test_key_repeated_runs_function_once(stack: Stack, rpc: Api, sku: Sku) -> None:
    """place_order takes three pieces; called twice under one key, it takes them once."""
    order = 900_000_000 + int(sku.name[-6:], 16)
    lease = rpc.post("/v1/leases", {"resources": [f"inventory/{sku.name}", f"orders/{order}"], "ttl_ms": 20_000}).json()
    headers = {"Fencing-Lease": lease["lease_id"], "Idempotency-Key": f"order-{order}"}
    before = stack.query("select stock from inventory where sku = %s", (sku.name,))[0][0]
    answers = [
        rpc.post("/v1/rpc/place_order", body, headers)
        for body in (
            {"order_id": order, "sku": sku.name, "quantity": 3},
            {"quantity": 3, "sku": sku.name, "order_id": order},
        )
    ]
    assert answers[0].status == 200 and answers[0].body == answers[1].body, answers
    assert [answer.headers["Idempotency-Replayed"] for answer in answers] == [None, "true"]
    assert stack.query("select stock from inventory where sku = %s", (sku.name,))[0][0] == before - 3
    rpc.release(lease)


def test_function_that_changes_session_is_not_seen_by_next(stack: Stack, rpc: Api, resource: str) -> None:
    """Settings, locks and temporary tables that a function leaves
    in a shared connection must not affect later calls."""
    lease = rpc.must_acquire(resource)
    for name, value in (
        ("TimeZone", "Asia/Tokyo"),
        ("statement_timeout", "1"),
        ("search_path", "public"),
        ("default_transaction_read_only", "on"),
        ("DateStyle", "German"),
    ):
        assert call(rpc, "rpc_leaver", {"name": name, "value": value}).status == 200
        assert call(rpc, "rpc_leaver", {"name": name, "value": value}, lease).status == 200
    for _ in range(8):  # twice the number of connections for reads
        assert call(rpc, "rpc_locker", {}, lease).status == 204
        settings = rpc.get("/v1/rpc/rpc_settings").json()
        assert settings == {
            "timezone": "UTC",
            "timeout": "5s",
            "path": "pg_catalog, pg_temp",
            "style": "ISO, MDY",
        }, settings
    rpc.release(lease)
