"""GET /v1/tables: PostgREST's grammar, what is refused, and reads that raise the fence."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually, let_pass
from support.shop import Sku, stock_up
from support.stack import Stack

ROWS = [("a", 1, "one"), ("b", 2, None), ("c", 3, "th,r(e)e"), ("d", None, 'qu"o\'te'), ("e", 5, "%_*")]


@pytest.fixture(scope="module")
def things(stack: Stack) -> Iterator[Api]:
    stack.query("create table things (id text primary key, n integer, words text, flag boolean, secret text default 's'); "
                "select fencing.expose_table('things', columns => '{id,n,words,flag}')")
    for row in ROWS:
        stack.query("insert into things (id, n, words) values (%s, %s, %s)", row)
    stack.query("update things set flag = n > 2")
    api = stack.api()
    eventually(lambda: api.get("/v1/tables/things").status == 200, 10, what="the gateway knows the table")
    yield api
    stack.query("select fencing.hide('things'); drop table things")


def ids(answer: Answer) -> str:
    assert answer.status in (200, 206), answer
    return "".join(row["id"] for row in answer.json())


@pytest.mark.parametrize("query, found", [
    ("n=eq.2", "b"), ("n=neq.2", "ace"), ("n=lt.2", "a"), ("n=lte.2", "ab"), ("n=gt.3", "e"), ("n=gte.3", "ce"), ("n=gte.2&n=lt.5", "bc"),
    ("n=in.(1,5)", "ae"), ("n=not.in.(1,5)", "bc"), ("n=in.()", ""), ("n=not.in.()", "abcde"), ("words=in.()", ""), ("n=is.null", "d"), ("n=not.is.null", "abce"), ("flag=is.true", "ce"), ("flag=is.false", "ab"),
    ("flag=is.unknown", "d"), ("n=not.eq.2", "ace"), ("words=like.*e", "acd"), ("words=ilike.ONE", "a"), ("words=eq.%25_*", "e"), ("words=like.*o*", "ad"),
    ('words=in.(one,"th,r(e)e","qu\\"o\'te")', "acd"), ("or=(n.eq.1,and(n.gt.2,n.lt.5))", "ac"), ("not.or=(n.eq.1,n.eq.2)", "ce"), ("and=(n.gt.1,n.not.eq.3)", "be"),
    ('or=(words.eq."th,r(e)e",id.in.(a,e))', "ace"), ('"id"=eq.a', "a"), ("words=eq.'; drop table things; --", ""), ("words=eq.null", ""), ("", "abcde"), ("&n=eq.1&&", "a"),
])
def test_rows_when_filtered_then_those_that_match(things: Api, query: str, found: str) -> None:
    encoded = query.replace(" ", "%20").replace("'", "%27").replace('"', "%22").replace("\\", "%5C")
    assert ids(things.get("/v1/tables/things?order=id" + ("&" + encoded if query else ""))) == found


@pytest.mark.parametrize("order, found", [("n", "abced"), ("n.desc", "decba"), ("n.desc.nullslast", "ecbad"), ("n.asc.nullsfirst", "dabce"), ("flag.desc.nullslast,id.desc", "ecbad")])
def test_rows_when_ordered_then_in_that_order(things: Api, order: str, found: str) -> None:
    assert ids(things.get("/v1/tables/things", order=order)) == found


def test_columns_when_selected_then_only_those_under_their_names(things: Api) -> None:
    answer = things.get("/v1/tables/things", select='n,"the text":words', id="eq.a")
    assert answer.body == b'[{"n":1,"the text":"one"}]'
    assert things.get("/v1/tables/things", id="eq.a").json() == [{"id": "a", "n": 1, "words": "one", "flag": False}]
    assert things.get("/v1/tables/things", id="eq.a", select="*").json() == [{"id": "a", "n": 1, "words": "one", "flag": False}]


def test_page_when_limited_then_content_range_says_which(things: Api) -> None:
    page = things.get("/v1/tables/things", order="id", limit=2, offset=1)
    assert (page.status, ids(page), page.headers["Content-Range"]) == (200, "bc", "1-2/*")
    counted = things.get("/v1/tables/things", {"Prefer": "count=exact"}, order="id", limit=2, offset=1, n="gt.1")
    assert (counted.status, ids(counted), counted.headers["Content-Range"]) == (206, "ce", "1-2/3")
    assert counted.headers["Preference-Applied"] == "count=exact"
    all_of_them = things.get("/v1/tables/things", {"Prefer": "count=exact"})
    assert (all_of_them.status, all_of_them.headers["Content-Range"]) == (200, "0-4/5")
    none = things.get("/v1/tables/things", {"Prefer": "count=exact"}, id="eq.x")
    assert (none.status, none.body, none.headers["Content-Range"]) == (200, b"[]", "*/0")
    assert things.get("/v1/tables/things", limit=0).body == b"[]"


def test_rows_when_more_than_the_limit_then_cut_at_it(stack: Stack, things: Api) -> None:
    stack.query("insert into things (id, n) select 'many-' || k, -1 from generate_series(1, 1200) as k")
    try:
        for asked in ({}, {"limit": 5000}):
            answer = things.get("/v1/tables/things", {"Prefer": "count=exact"}, n="eq.-1", **asked)
            assert (answer.status, len(answer.json()), answer.headers["Content-Range"]) == (206, 1000, "0-999/1200")
    finally:
        stack.query("delete from things where n = -1")


@pytest.mark.parametrize("query, pointer", [
    ("n=2", "n"), ("n=like", "n"), ("n=fts.x", "n"), ("n=in.1", "n"), ("n=is.maybe", "n"), ("or=(n.eq.1", "or"), ("select=", "select"), ("select=id,id", "select"),
    ("order=id.up", "order"), ("limit=-1", "limit"), ("limit=x", "limit"), ("offset=-1", "offset"), ("select=id&select=n", "select"), ("on_conflict=id", "on_conflict"), ("id=eq.%00", "id"), ("id=eq.%ff", "id"),
])
def test_query_when_malformed_then_400_naming_the_parameter(things: Api, query: str, pointer: str) -> None:
    assert pointers_of(things.get(f"/v1/tables/things?{query}")) == [pointer]


@pytest.mark.parametrize("query, pointer", [("nope=eq.1", "nope"), ("secret=eq.s", "secret"), ("select=secret", "select"), ("order=secret", "order"), ("or=(secret.eq.s)", "or")])
def test_column_when_unknown_or_not_exposed_then_422_naming_the_parameter(things: Api, query: str, pointer: str) -> None:
    assert pointers_of(things.get(f"/v1/tables/things?{query}"), 422, "unprocessable") == [pointer]


@pytest.mark.parametrize("query, pointer", [("id=eq.a&n=eq.x", "n"), ("n=in.(1,x)", "n"), ("or=(id.eq.a,flag.eq.x)", "or"), ("n=eq.99999999999", "n")])
def test_value_when_postgresql_can_not_read_it_then_422_naming_the_parameter(things: Api, query: str, pointer: str) -> None:
    assert pointers_of(things.get(f"/v1/tables/things?{query}"), 422, "unprocessable") == [pointer]


@pytest.mark.parametrize("accept, status", [("text/csv", 406), ("application/json;q=0", 406), ("text/csv, */*;q=0.1", 200), ("application/*", 200)])
def test_rows_when_json_is_not_accepted_then_406(things: Api, accept: str, status: int) -> None:
    for path in ("/v1/tables/things", "/v1/rpc/nope"):
        answer = things.call("GET", path, None, {"Accept": accept})
        if status == 406:
            expect_problem(answer, 406, "not-acceptable")
        else:
            assert answer.status == (200 if "tables" in path else 404), answer


def test_value_when_of_the_wrong_type_then_422_with_the_servers_words(things: Api) -> None:
    problem = expect_problem(things.get("/v1/tables/things", n="eq.two"), 422, "unprocessable")
    assert "integer" in problem["detail"] and problem["sqlstate"] == "22P02"


def test_table_when_unknown_or_not_for_reading_then_404(stack: Stack, things: Api) -> None:
    for name in ("nope", "pg_class", "things;", "public.things", "%22"):
        expect_problem(things.get(f"/v1/tables/{name}"), 404, "not-found")
    stack.query("create table letter_box (id text); select fencing.expose_table('letter_box', operations => '{insert}')")
    expect_problem(things.get("/v1/tables/letter_box"), 404, "not-found")
    stack.query("select fencing.hide('letter_box'); drop table letter_box")


def test_request_when_flooded_with_filters_then_refused(things: Api) -> None:
    assert pointers_of(things.get("/v1/tables/things?" + "&".join(["n=eq.1"] * 65))) == ["query"]
    assert pointers_of(things.get("/v1/tables/things?or=(" + ",".join(["n.eq.1"] * 257) + ")")) == ["or"]
    assert things.get("/v1/tables/things?" + "&".join(["n=eq.1"] * 10_000)).status in (400, 414, 431)


def test_read_when_the_view_would_write_then_refused(stack: Stack, things: Api) -> None:
    """A plain read is a read-only transaction."""
    stack.query("create function sneak() returns integer language sql volatile security definer as $$ update public.things set words = 'sneaked' where id = 'a' returning 1 $$;"
                "create view sneaky as select sneak() as n; select fencing.expose_table('sneaky', operations => '{select}')")
    answer = eventually(lambda: (lambda a: a if a.status != 404 else None)(things.get("/v1/tables/sneaky")), 10, what="the gateway knows the view")
    assert "may not change anything" in expect_problem(answer, 422, "unprocessable")["detail"]
    assert things.get("/v1/tables/things", id="eq.a", select="words").json() == [{"words": "one"}]
    stack.query("select fencing.hide('sneaky'); drop view sneaky; drop function sneak()")


def test_read_when_slow_then_ended_by_its_time_and_no_write_waits(stack: Stack, api: Api, sku: Sku) -> None:
    stack.query("create view slow as select pg_sleep(30)::text as n; select fencing.expose_table('slow', operations => '{select}')")
    eventually(lambda: api.get("/v1/tables/slow", select="nope").status == 422, 10, what="the gateway knows the view")
    reads = [api.begin("GET", "/v1/tables/slow") for _ in range(8)]
    let_pass(0.3, "all reads that may run at once have begun")
    lease = api.take(sku.resource)
    began = time.monotonic()
    api.wrote(lease, sku.sell())
    assert time.monotonic() - began < 1.0, "a write waited for a read"
    for read in reads:
        assert read.answer(30).status == 503
    stack.query("select fencing.hide('slow'); drop view slow")


# Fenced reads


def fenced(api: Api, lease: dict[str, Any], sku: Sku, **more: object) -> Answer:
    return api.get("/v1/tables/inventory", {"Fencing-Lease": lease["lease_id"]}, sku=f"eq.{sku.name}", select="stock", **more)


def test_fenced_read_when_newest_then_the_fence_is_raised_and_older_holders_are_out(stack: Stack, api: Api, sku: Sku) -> None:
    a = api.take(sku.resource, ttl_ms=300, owner="a")
    b = api.take(sku.resource, wait_ms=3_000, owner="b")
    answer = fenced(api, b, sku)
    assert (answer.status, answer.json()) == (200, [{"stock": 10}])
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(b["fencing_token"],)]
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 10
    api.wrote(b, sku.sell())
    (raised,) = api.history(resource=sku.resource, event="fence_raised")
    assert (raised["fencing_token"], raised["detail"]["reason"]) == (b["fencing_token"], "fenced read")


def test_fenced_read_when_stale_then_412_nothing_read_and_in_the_history(api: Api, sku: Sku) -> None:
    a = api.take(sku.resource, ttl_ms=300, owner="a")
    b = api.take(sku.resource, wait_ms=3_000, owner="b")
    api.wrote(b, sku.sell())
    problem = expect_problem(fenced(api, a, sku), 412, "stale-fencing-token")
    assert (problem["resource"], problem["fencing_token"], problem["last_fencing_token"]) == (sku.resource, a["fencing_token"], b["fencing_token"])
    (item,) = api.history(resource=sku.resource, event="write_rejected")
    assert (item["fencing_token"], item["owner"], item["detail"]["operations"]) == (a["fencing_token"], "a", ["select inventory"])


def test_fenced_read_when_it_fails_then_the_fence_is_as_before(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    expect_problem(fenced(api, lease, sku, stock="eq.x"), 422, "unprocessable")
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(1,)]
    assert fenced(api, lease, sku).status == 200


def test_fenced_read_when_of_rows_beyond_the_lease_then_read_as_they_are(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str]) -> None:
    other = stock_up(stack, fresh("sku"), 4)
    answer = fenced(api, api.take(sku.resource), other)
    assert answer.json() == [{"stock": 4}]
    assert stack.query("select fencing.fence(%s)", (other.resource,)) == [(1,)]


def test_fenced_read_when_the_lease_is_forged_then_403(api: Api, sku: Sku) -> None:
    expect_problem(api.get("/v1/tables/inventory", {"Fencing-Lease": "forged"}), 403, "lease-not-authentic")


def test_fenced_reads_when_writers_contend_then_no_older_write_lands_behind_one(stack: Stack, api: Api, sku: Sku) -> None:
    """Holders in turn; each reads fenced and writes what it read less one. Whoever was overtaken writes nothing."""
    sold: list[int] = []
    lock = threading.Lock()

    def holder() -> None:
        for _ in range(6):
            lease = api.take(sku.resource, ttl_ms=150, wait_ms=10_000)
            answer = fenced(api, lease, sku)
            if answer.status != 200 or not answer.json()[0]["stock"]:
                continue
            stock = answer.json()[0]["stock"]
            let_pass(0.1 if len(sold) % 2 else 0.2, "beyond the lease, now and then")
            written = api.write(lease, {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": stock - 1}})
            if written.status == 200:
                with lock:
                    sold.append(stock)

    threads = [threading.Thread(target=holder) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(sold)) == len(sold), f"the same piece was sold twice: {sorted(sold)}"
    assert sku.stock() == 10 - len(sold)
