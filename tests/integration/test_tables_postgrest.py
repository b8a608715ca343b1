"""What PostgREST's clients may ask of tables and functions, on both addresses: one row, CSV, counts,
limits of the rows that change, embedding."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.cluster import Cluster
from support.polling import eventually
from support.stack import Stack

ALL = "shelves/all"
OBJECT = "application/vnd.pgrst.object+json"
TABLES = """
create table shelves (id integer primary key, place text, note text);
create table books (id integer primary key, shelf integer references shelves, next integer references books,
    title text default 'untitled');
insert into shelves values (1, 'hall', null), (2, 'hall', null), (3, 'attic', null), (4, 'yard', null),
  (5, 'yard', null);
insert into books select g, 1 + g % 2, nullif(g, 1) - 1, 'book ' || g from generate_series(1, 1200) as g;
create function mark_shelves(wanted text) returns setof shelves language sql
  set search_path = public, pg_temp as $$ update shelves set note = 'marked' where place = wanted returning * $$;
select fencing.protect('shelves', $$'shelves/all'::text$$);
select fencing.expose_table('shelves');
select fencing.expose_table('books', operations => '{select}', columns => '{id,shelf,next,title}');
select fencing.expose_function('mark_shelves(text)');
analyze books;
"""


@pytest.fixture(scope="module")
def shelves(stack: Stack) -> Iterator[Api]:
    stack.query(TABLES)
    api = stack.api()
    eventually(
        lambda: api.get("/rest/v1/books?limit=1").status == 200
        and api.get("/v1/rpc/mark_shelves?wanted=x").status == 428,
        goal="the gateway knows the tables",
    )
    yield api
    stack.query(
        "select fencing.hide(n) from unnest('{shelves,books,mark_shelves}'::text[]) as n; "
        "select fencing.unprotect('shelves');"
        "drop function mark_shelves(text); drop table books; drop table shelves"
    )


@pytest.fixture
def lease(shelves: Api) -> Iterator[Json]:
    held = shelves.must_acquire(ALL, wait_ms=10_000)
    yield held
    shelves.release(held)


def notes(stack: Stack) -> list[tuple[Any, ...]]:
    return stack.query("select id, note from shelves order by id")


UNTOUCHED = [(number, None) for number in range(1, 6)]
HALL = {
    "patch": ("PATCH", "/rest/v1/shelves?place=eq.hall", {"note": "x"}),
    "delete": ("DELETE", "/v1/tables/shelves?place=eq.yard", None),
    "post": ("POST", "/rest/v1/shelves", [{"id": 8, "place": "hall"}, {"id": 9, "place": "hall"}]),
    "upsert": ("POST", "/rest/v1/shelves?columns=id,note", [{"id": 1, "note": "x"}, {"id": 9, "note": "x"}]),
    "rpc": ("POST", "/rest/v1/rpc/mark_shelves", {"wanted": "hall"}),
}


@pytest.mark.parametrize(
    "headers, status, slug, code",
    [
        ({"Accept": OBJECT}, 406, "not-acceptable", "PGRST116"),
        ({"Prefer": "max-affected=1"}, 400, "invalid-request", "PGRST124"),
    ],
)
@pytest.mark.parametrize("kind", HALL)
def test_write_of_too_many_rows_is_undone_and_recorded(
    stack: Stack, shelves: Api, lease: Json, kind: str, headers: dict[str, str], status: int, slug: str, code: str
) -> None:
    method, path, body = HALL[kind]
    more = "resolution=merge-duplicates" if kind == "upsert" else "return=representation"
    prefer = ", ".join(part for part in (headers.get("Prefer"), more) if part)
    problem = expect_problem(
        shelves.call(method, path, body, {**headers, "Prefer": prefer, "Fencing-Lease": lease["lease_id"]}),
        status,
        slug,
    )
    assert (problem["code"], problem["rows_affected"], problem["message"]) == (code, 2, problem["detail"])
    assert notes(stack) == UNTOUCHED
    (item,) = shelves.history(write_id=problem["write_id"])
    assert (item["event"], item["detail"]["error"]) == ("write_failed", "expectation-failed"), item


def test_rows_of_function_beyond_limit_count_as_affected(stack: Stack, shelves: Api, lease: Json) -> None:
    headers = {"Prefer": "max-affected=1, count=exact", "Fencing-Lease": lease["lease_id"]}
    assert (
        expect_problem(
            shelves.post("/rest/v1/rpc/mark_shelves?limit=1", {"wanted": "hall"}, headers), 400, "invalid-request"
        )["rows_affected"]
        == 2
    )
    assert notes(stack) == UNTOUCHED


def test_single_writes_that_share_a_batch_are_judged_alone(stack: Stack, shelves: Api, lease: Json) -> None:
    """Ten writes at once, every second of which has to be undone."""
    headers = {"Accept": OBJECT, "Fencing-Lease": lease["lease_id"], "Prefer": "max-affected=3"}
    calls = [
        shelves.begin(
            "PATCH", f"/rest/v1/shelves?{'place=eq.hall' if i % 2 else 'id=eq.3'}", {"note": f"n{i}"}, headers
        )
        for i in range(10)
    ]
    assert [call.answer().status for call in calls] == [204, 406] * 5
    (first, second, third, *_) = notes(stack)
    assert (first, second) == ((1, None), (2, None)) and third[1] in {f"n{i}" for i in range(0, 10, 2)}
    shelves.must_write(lease, {"update": "shelves", "where": {"id": 3}, "set": {"note": None}})


def test_key_covers_form_of_answer_and_keeps_refusal(stack: Stack, shelves: Api, lease: Json) -> None:
    def change(key: str, accept: str) -> Answer:
        return shelves.call(
            "PATCH",
            "/rest/v1/shelves?place=eq.attic&select=id,note",
            {"note": None},
            {
                "Accept": accept,
                "Fencing-Lease": lease["lease_id"],
                "Idempotency-Key": key,
                "Prefer": "return=representation",
            },
        )

    as_csv = change("form-1", "text/csv")
    assert (as_csv.status, as_csv.headers.get_content_type(), as_csv.body) == (200, "text/csv", b"id,note\n3,")
    again = change("form-1", "text/csv")
    assert (again.body, again.headers["Idempotency-Replayed"]) == (as_csv.body, "true")
    expect_problem(change("form-1", "application/json"), 422, "idempotency-mismatch")
    path, headers = "/rest/v1/shelves?place=eq.cellar", {
        "Accept": OBJECT,
        "Fencing-Lease": lease["lease_id"],
        "Idempotency-Key": "form-2",
    }
    for replayed in (None, "true"):
        answer = shelves.call("PATCH", path, {"note": "x"}, headers)
        assert expect_problem(answer, 406, "not-acceptable")["details"] == "The result contains 0 rows"
        assert answer.headers["Idempotency-Replayed"] == replayed


def test_count_estimated_is_exact_up_to_most_rows(shelves: Api) -> None:
    def count(kind: str, query: str = "") -> str:
        answer = shelves.get(f"/rest/v1/books?select=id&limit=1{query}", {"Prefer": f"count={kind}"})
        assert answer.headers["Preference-Applied"] == f"count={kind}"
        return answer.headers["Content-Range"]

    assert count("exact") == "0-0/1200"
    assert count("estimated", "&id=lte.700") == "0-0/700"
    assert count("planned") == "0-0/1200", "the table was analyzed"
    assert count("estimated") == "0-0/1200"
    with_fence = shelves.get(
        "/rest/v1/books?limit=1", {"Prefer": "count=planned", "Fencing-Resource": "shelves/other", "Fencing-Token": "1"}
    )
    assert with_fence.status == 206 and with_fence.headers["Content-Range"] == "0-0/1200"


def test_embedded_rows_are_limited_and_of_exposed_columns(stack: Stack, shelves: Api) -> None:
    first = shelves.get("/rest/v1/shelves?id=eq.1&select=id,books(id)&books.order=id").json()
    assert len(first[0]["books"]) == 600
    for query, found in (
        ("books.limit=2&books.order=id.desc", [1200, 1198]),
        ("books.limit=5000&books.id=lt.5", [2, 4]),
        ("books.offset=598&books.order=id", [1198, 1200]),
    ):
        answer = shelves.get(f"/rest/v1/shelves?id=eq.1&select=books(id)&{query}").json()
        assert [book["id"] for book in answer[0]["books"]] == found
    assert shelves.get("/rest/v1/books?id=eq.5&select=id,following:books!next(id)").json() == [
        {"id": 5, "following": {"id": 4}}
    ]
    expect_problem(shelves.get("/rest/v1/books?select=id,books(id)"), 422, "unprocessable")
    stack.query("select fencing.expose_table('books', operations => '{select}', columns => '{id,title}')")
    eventually(
        lambda: shelves.get("/rest/v1/shelves?select=id,books(id)").status == 422,
        goal="the foreign key is not usable without its column",
    )
    stack.query("select fencing.expose_table('books', operations => '{select}', columns => '{id,shelf,next,title}')")
    eventually(
        lambda: shelves.get("/rest/v1/shelves?select=id,books(id)").status == 200,
        goal="the foreign key is usable again",
    )


def test_embedding_beyond_limits_is_refused_by_name(shelves: Api) -> None:
    assert pointers_of(shelves.get("/rest/v1/shelves?select=a(b(c(d(e(f)))))")) == ["select"]


def test_embedded_table_needs_right_of_caller(cluster: Cluster) -> None:
    from test_rights import credential, key_of

    cluster.query(
        "create table parents (id integer primary key); "
        "create table children (id integer primary key, parent integer references parents);"
        "insert into parents values (1); insert into children values (5, 1); select fencing.expose_table('parents'); "
        "select fencing.expose_table('children')"
    )
    settings = cluster.settings()
    settings["auth"] = {
        "api_keys": [
            credential("reader", key_of(name), scopes=["writes"], **rights)
            for name, rights in (("both", {}), ("one", {"exposed": ["parents"]}))
        ]
    }
    with cluster.serving(settings) as gateway:
        path = "/rest/v1/parents?select=id,children(id)"
        answer = eventually(
            lambda: (got := gateway.api.with_key(key_of("both")).get(path)).status == 200 and got,
            goal="the gateway knows the tables",
        )
        assert answer.json() == [{"id": 1, "children": [{"id": 5}]}]
        assert "children" in expect_problem(gateway.api.with_key(key_of("one")).get(path), 403, "forbidden")["detail"]


def test_every_problem_has_members_of_postgrest(shelves: Api) -> None:
    problem = expect_problem(shelves.post("/v1/leases", {"ttl_ms": 1}), 400, "invalid-request")
    assert (problem["message"], problem["code"]) == (problem["detail"], "invalid-request")
    assert "/ttl_ms" in problem["details"] and problem["hint"]
    assert expect_problem(shelves.get("/rest/v1/nothing"), 404, "not-found")["code"] == "PGRST205"
    assert expect_problem(shelves.get("/rest/v1/a/b/c"), 404, "not-found")["details"] is None


def test_nulls_are_stripped_and_form_is_named(shelves: Api) -> None:
    path = "/rest/v1/shelves?id=eq.1&select=id,note,books(id,next)&books.id=eq.2"
    for accept, body in (
        ("application/vnd.pgrst.array+json;nulls=stripped", b'[{"id":1,"books":[{"id":2,"next":1}]}]'),
        (f"{OBJECT};nulls=stripped", b'{"id":1,"books":[{"id":2,"next":1}]}'),
        (OBJECT, b'{"id":1,"note":null,"books":[{"id":2,"next":1}]}'),
    ):
        answer = shelves.get(path, {"Accept": accept})
        assert (answer.body, answer.headers["Content-Type"]) == (body, accept.replace(";", "; ") + "; charset=utf-8")
