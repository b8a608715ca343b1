"""GET /v1/tables: PostgREST's grammar, what is refused, and reads that raise the fence."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterator

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack

ROWS = [("a", 1, "one"), ("b", 2, None), ("c", 3, "th,r(e)e"), ("d", None, "qu\"o'te"), ("e", 5, "%_*")]


@pytest.fixture(scope="module")
def things(stack: Stack) -> Iterator[Api]:
    stack.query(
        "create table things (id text primary key, n integer, words text, flag boolean, secret text default 's'); "
        "select fencing.expose_table('things', columns => '{id,n,words,flag}')"
    )
    for row in ROWS:
        stack.query("insert into things (id, n, words) values (%s, %s, %s)", row)
    stack.query("update things set flag = n > 2")
    api = stack.api()
    eventually(lambda: api.get("/v1/tables/things").status == 200, goal="the gateway knows the table")
    yield api
    stack.query("select fencing.hide('things'); drop table things")


def ids(answer: Answer) -> str:
    assert answer.status in (200, 206), answer
    return "".join(row["id"] for row in answer.json())


@pytest.mark.parametrize(
    "query, found",
    [
        ("n=eq.2", "b"),
        ("n=neq.2", "ace"),
        ("n=lt.2", "a"),
        ("n=lte.2", "ab"),
        ("n=gt.3", "e"),
        ("n=gte.3", "ce"),
        ("n=gte.2&n=lt.5", "bc"),
        ("n=in.(1,5)", "ae"),
        ("n=not.in.(1,5)", "bc"),
        ("n=in.()", ""),
        ("n=not.in.()", "abcde"),
        ("words=in.()", ""),
        ("n=is.null", "d"),
        ("n=not.is.null", "abce"),
        ("flag=is.true", "ce"),
        ("flag=is.false", "ab"),
        ("flag=is.unknown", "d"),
        ("n=not.eq.2", "ace"),
        ("words=like.*e", "acd"),
        ("words=ilike.ONE", "a"),
        ("words=eq.%25_*", "e"),
        ("words=like.*o*", "ad"),
        ('words=in.(one,"th,r(e)e","qu\\"o\'te")', "acd"),
        ("or=(n.eq.1,and(n.gt.2,n.lt.5))", "ac"),
        ("not.or=(n.eq.1,n.eq.2)", "ce"),
        ("and=(n.gt.1,n.not.eq.3)", "be"),
        ('or=(words.eq."th,r(e)e",id.in.(a,e))', "ace"),
        ('"id"=eq.a', "a"),
        ("words=eq.'; drop table things; --", ""),
        ("words=eq.null", ""),
        ("", "abcde"),
        ("&n=eq.1&&", "a"),
    ],
)
def test_rows_filtered_are_those_that_match(things: Api, query: str, found: str) -> None:
    encoded = query.replace(" ", "%20").replace("'", "%27").replace('"', "%22").replace("\\", "%5C")
    assert ids(things.get("/v1/tables/things?order=id" + ("&" + encoded if query else ""))) == found


@pytest.mark.parametrize(
    "order, found",
    [
        ("n", "abced"),
        ("n.desc", "decba"),
        ("n.desc.nullslast", "ecbad"),
        ("n.asc.nullsfirst", "dabce"),
        ("flag.desc.nullslast,id.desc", "ecbad"),
    ],
)
def test_rows_are_ordered_as_requested(things: Api, order: str, found: str) -> None:
    assert ids(things.get("/v1/tables/things", order=order)) == found


def test_columns_selected_have_requested_names(things: Api) -> None:
    answer = things.get("/v1/tables/things", select='n,"the text":words', id="eq.a")
    assert answer.body == b'[{"n":1,"the text":"one"}]'
    assert things.get("/v1/tables/things", id="eq.a").json() == [{"id": "a", "n": 1, "words": "one", "flag": False}]
    assert things.get("/v1/tables/things", id="eq.a", select="*").json() == [
        {"id": "a", "n": 1, "words": "one", "flag": False}
    ]


def test_page_has_content_range(things: Api) -> None:
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


def test_rows_above_limit_are_cut(stack: Stack, things: Api) -> None:
    stack.query("insert into things (id, n) select 'many-' || k, -1 from generate_series(1, 1200) as k")
    try:
        for asked in ({}, {"limit": 5000}):
            answer = things.get("/v1/tables/things", {"Prefer": "count=exact"}, n="eq.-1", **asked)
            assert (answer.status, len(answer.json()), answer.headers["Content-Range"]) == (206, 1000, "0-999/1200")
    finally:
        stack.query("delete from things where n = -1")


def test_query_malformed_400_names_each_parameter(things: Api) -> None:
    query = "n=fts.x&id=eq.%00&or=(n.eq.1&select=id,id&order=id.up&limit=-1&on_conflict=id"
    assert (
        sorted(pointers_of(things.get(f"/v1/tables/things?{query}")))
        == "id limit n on_conflict or order select".split()
    )
    assert pointers_of(things.get("/v1/tables/things?" + "&".join(["n=eq.1"] * 65))) == ["query"]


def test_column_unknown_or_hidden_422_names_parameter(things: Api) -> None:
    query = "nope=eq.1&select=secret&order=secret&or=(secret.eq.s)"
    assert sorted(pointers_of(things.get(f"/v1/tables/things?{query}"), 422, "unprocessable")) == [
        "nope",
        "or",
        "order",
        "select",
    ]


@pytest.mark.parametrize(
    "query, pointer", [("id=eq.a&n=eq.two", "n"), ("n=in.(1,x)", "n"), ("or=(id.eq.a,n.eq.x)", "or")]
)
def test_value_unreadable_422_names_parameter(things: Api, query: str, pointer: str) -> None:
    answer = things.get(f"/v1/tables/things?{query}")
    assert pointers_of(answer, 422, "unprocessable") == [pointer]
    assert "integer" in answer.json()["detail"] and answer.json()["sqlstate"] == "22P02", answer


@pytest.mark.parametrize(
    "accept, status", [("application/vnd.pgrst.array+json;nulls=kept", 406), ("text/csv, */*;q=0.1", 200)]
)
def test_rows_in_no_accepted_form_406(things: Api, accept: str, status: int) -> None:
    for path in ("/v1/tables/things", "/v1/rpc/nope"):
        answer = things.call("GET", path, None, {"Accept": accept})
        if status == 406:
            expect_problem(answer, 406, "not-acceptable")
        else:
            assert answer.status == (200 if "tables" in path else 404), answer


def test_table_unknown_or_not_readable_404(stack: Stack, things: Api) -> None:
    for name in ("nope", "pg_class", "things;", "public.things", "%22"):
        expect_problem(things.get(f"/v1/tables/{name}"), 404, "not-found")
    stack.query(
        "create table letter_box (id text); select fencing.expose_table('letter_box', operations => '{insert}')"
    )
    expect_problem(things.get("/v1/tables/letter_box"), 404, "not-found")
    stack.query("select fencing.hide('letter_box'); drop table letter_box")


def test_read_of_view_that_writes_is_refused(stack: Stack, things: Api) -> None:
    """A plain read runs in a read-only transaction."""
    stack.query(
        "create function sneak() returns integer language sql volatile security definer as $$ update public.things "
        "set words = 'sneaked' where id = 'a' returning 1 $$;"
        "create view sneaky as select sneak() as n; select fencing.expose_table('sneaky', operations => '{select}')"
    )
    answer = eventually(
        lambda: (lambda a: a if a.status != 404 else None)(things.get("/v1/tables/sneaky")),
        goal="the gateway knows the view",
    )
    assert "may not change anything" in expect_problem(answer, 422, "unprocessable")["detail"]
    assert things.get("/v1/tables/things", id="eq.a", select="words").json() == [{"words": "one"}]
    stack.query("select fencing.hide('sneaky'); drop view sneaky; drop function sneak()")


def test_read_too_slow_is_ended_and_delays_no_write(stack: Stack, api: Api, sku: Sku) -> None:
    stack.query(
        "create view slow as select pg_sleep(30)::text as n; "
        "select fencing.expose_table('slow', operations => '{select}')"
    )
    eventually(lambda: api.get("/v1/tables/slow", select="nope").status == 422, goal="the gateway knows the view")
    reads = [api.begin("GET", "/v1/tables/slow") for _ in range(3)]
    running = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
    eventually(lambda: stack.query(running) == [(3,)], 4, goal="as many reads run as one caller may have")
    api.must_write(api.must_acquire(sku.resource), sku.sell())
    assert all(read.is_alive() for read in reads), "a write waited for a read"
    for read in reads:
        assert read.answer(30).status == 503
    stack.query("select fencing.hide('slow'); drop view slow")


# Fenced reads


def read_fenced(api: Api, lease: dict[str, Any], sku: Sku, **filters: object) -> Answer:
    return api.get(
        "/v1/tables/inventory", {"Fencing-Lease": lease["lease_id"]}, sku=f"eq.{sku.name}", select="stock", **filters
    )


def test_fenced_read_under_newest_token_raises_fence(stack: Stack, api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=300, owner="a")
    b = api.must_acquire(sku.resource, wait_ms=3_000, owner="b")
    answer = read_fenced(api, b, sku)
    assert (answer.status, answer.json()) == (200, [{"stock": 10}])
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(b["fencing_token"],)]
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 10
    api.must_write(b, sku.sell())
    (raised,) = api.history(resource=sku.resource, event="fence_raised")
    assert (raised["fencing_token"], raised["detail"]["reason"]) == (b["fencing_token"], "fenced read")


def test_fenced_read_under_stale_token_412_and_recorded(api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=300, owner="a")
    b = api.must_acquire(sku.resource, wait_ms=3_000, owner="b")
    api.must_write(b, sku.sell())
    problem = expect_problem(read_fenced(api, a, sku), 412, "stale-fencing-token")
    assert (problem["resource"], problem["fencing_token"], problem["last_fencing_token"]) == (
        sku.resource,
        a["fencing_token"],
        b["fencing_token"],
    )
    (item,) = api.history(resource=sku.resource, event="write_rejected")
    assert (item["fencing_token"], item["owner"], item["detail"]["operations"]) == (
        a["fencing_token"],
        "a",
        ["select inventory"],
    )


def test_fenced_read_that_fails_leaves_fence(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    expect_problem(read_fenced(api, lease, sku, stock="eq.x"), 422, "unprocessable")
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(1,)]
    assert read_fenced(api, lease, sku).status == 200


def test_fenced_read_of_uncovered_rows_leaves_their_fence(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    other = create_sku(stack, unique_name("sku"), 4)
    answer = read_fenced(api, api.must_acquire(sku.resource), other)
    assert answer.json() == [{"stock": 4}]
    assert stack.query("select fencing.fence(%s)", (other.resource,)) == [(1,)]


def test_fenced_read_under_forged_lease_403(api: Api, sku: Sku) -> None:
    expect_problem(api.get("/v1/tables/inventory", {"Fencing-Lease": "forged"}), 403, "lease-not-authentic")


def test_fenced_reads_exclude_later_writes_of_older_holders(stack: Stack, api: Api, sku: Sku) -> None:
    """Each holder does a fenced read and writes the stock less one. A holder with an older token writes nothing."""
    sold: list[int] = []
    lock = threading.Lock()

    def holder() -> None:
        for _ in range(6):
            lease = api.must_acquire(sku.resource, ttl_ms=150, wait_ms=10_000)
            answer = read_fenced(api, lease, sku)
            if answer.status != 200 or not answer.json()[0]["stock"]:
                continue
            stock = answer.json()[0]["stock"]
            pause(0.1 if len(sold) % 2 else 0.2, "sometimes longer than the lease")
            written = api.write(lease, {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": stock - 1}})
            if written.status == 200:
                with lock:
                    sold.append(stock)

    threads = [threading.Thread(target=holder) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(sold)) == len(sold), f"the same piece was sold twice: {sorted(sold)}"
    assert sku.stock() == 10 - len(sold)
