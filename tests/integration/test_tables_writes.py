"""POST, PATCH and DELETE on /v1/tables: guarded writes with PostgREST's interface,
under a lease or a token of another issuer."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sample, Sku, create_sku
from support.stack import Stack

ALL = "bins/all"


@pytest.fixture(scope="module")
def bins(stack: Stack) -> Iterator[Api]:
    """A table whose rows all belong to one resource."""
    stack.query(
        "create table bins (id text primary key, n integer default 7 check (n < 1000), words text, "
        "made bigint generated always as identity);"
        f"select fencing.protect('bins', $$'{ALL}'::text$$); select fencing.expose_table('bins')"
    )
    api = stack.api()
    eventually(lambda: api.get("/v1/tables/bins").status == 200, goal="the gateway knows the table")
    yield api
    stack.query("select fencing.hide('bins'); select fencing.unprotect('bins'); drop table bins")


@pytest.fixture
def lease(stack: Stack, bins: Api) -> Iterator[Json]:
    held = bins.must_acquire(ALL, wait_ms=10_000)
    yield held
    send(bins, held, "DELETE", "/v1/tables/bins?id=not.is.null")
    bins.release(held)


def send(api: Api, lease: Json | None, method: str, path: str, body: Json = None, prefer: str = "") -> Answer:
    headers = {"Fencing-Lease": lease["lease_id"]} if lease else {}
    if prefer:
        headers["Prefer"] = prefer
    return api.call(method, path, body, headers)


def rows(stack: Stack) -> list[tuple[Any, ...]]:
    return stack.query("select id, n, words from bins order by id")


def test_post_of_one_row_201_without_body(stack: Stack, bins: Api, lease: Json) -> None:
    answer = send(bins, lease, "POST", "/v1/tables/bins", {"id": "a", "words": "it's"})
    assert (answer.status, answer.body, answer.headers["Content-Range"]) == (201, b"", "*/1")
    assert rows(stack) == [("a", 7, "it's")]
    (item,) = bins.history(write_id=answer.headers["Fencing-Write-Id"])
    assert (item["event"], item["resource"], item["fencing_token"]) == ("write_applied", ALL, lease["fencing_token"])


def test_post_with_representation_returns_made_rows(bins: Api, lease: Json) -> None:
    answer = send(
        bins,
        lease,
        "POST",
        "/v1/tables/bins?select=id,count:n",
        [{"id": "b", "n": 2}, {"id": "a", "n": 1}],
        "return=representation",
    )
    assert (answer.status, answer.body) == (201, b'[{"id":"b","count":2},{"id":"a","count":1}]')
    assert answer.headers["Preference-Applied"] == "return=representation"


def test_post_with_one_row_refused_inserts_none(stack: Stack, bins: Api, lease: Json) -> None:
    problem = expect_problem(
        send(bins, lease, "POST", "/v1/tables/bins", [{"id": "a", "n": 1}, {"id": "b", "n": 1000}]),
        409,
        "constraint-violation",
    )
    assert problem["constraint"] == "bins_n_check"
    assert rows(stack) == []


def test_post_of_most_rows_inserts_all_and_one_more_is_refused(stack: Stack, bins: Api, lease: Json) -> None:
    many = [{"id": f"row-{i:04}", "n": i % 1000, "words": None} for i in range(1000)]
    assert send(bins, lease, "POST", "/v1/tables/bins", many).headers["Content-Range"] == "*/1000"
    assert len(rows(stack)) == 1000
    assert pointers_of(send(bins, lease, "POST", "/v1/tables/bins", [*many, {"id": "x", "n": 1, "words": None}])) == [
        ""
    ]


def test_patch_changes_filtered_rows_204(stack: Stack, bins: Api, lease: Json) -> None:
    send(bins, lease, "POST", "/v1/tables/bins", [{"id": i, "n": n} for i, n in zip("abc", (1, 2, 3))])
    answer = send(bins, lease, "PATCH", "/v1/tables/bins?n=gte.2&id=in.(b,c,d)", {"words": "x"})
    assert (answer.status, answer.body, answer.headers["Content-Range"]) == (204, b"", "*/2")
    assert rows(stack) == [("a", 1, None), ("b", 2, "x"), ("c", 3, "x")]
    answer = send(
        bins,
        lease,
        "PATCH",
        "/v1/tables/bins?or=(id.eq.a,n.eq.3)&select=id,words",
        {"words": "y"},
        "return=representation",
    )
    assert answer.status == 200 and sorted(row["id"] for row in answer.json()) == ["a", "c"]
    nobody = send(bins, lease, "PATCH", "/v1/tables/bins?id=eq.nobody", {"words": "y"}, "return=representation")
    assert (nobody.status, nobody.body) == (200, b"[]")


def test_delete_removes_filtered_rows(stack: Stack, bins: Api, lease: Json) -> None:
    send(bins, lease, "POST", "/v1/tables/bins", [{"id": i, "n": 1} for i in "abc"])
    assert send(bins, lease, "DELETE", "/v1/tables/bins?id=not.eq.a").status == 204
    answer = send(bins, lease, "DELETE", "/v1/tables/bins?id=eq.a&select=id", prefer="return=representation")
    assert (answer.status, answer.body) == (200, b'[{"id":"a"}]')
    assert rows(stack) == []


def test_upsert_merges_or_ignores_duplicates(stack: Stack, bins: Api, lease: Json) -> None:
    send(bins, lease, "POST", "/v1/tables/bins", {"id": "a", "n": 1, "words": "first"})
    both = [{"id": "a", "n": 2}, {"id": "b", "n": 2}]
    answer = send(
        bins,
        lease,
        "POST",
        "/v1/tables/bins?on_conflict=id&select=id",
        both,
        "resolution=ignore-duplicates,return=representation",
    )
    assert (answer.status, answer.body) == (201, b'[{"id":"b"}]')
    answer = send(bins, lease, "POST", "/v1/tables/bins?on_conflict=id", both, "resolution=merge-duplicates")
    assert (answer.status, answer.headers["Preference-Applied"]) == (201, "resolution=merge-duplicates")
    assert rows(stack) == [("a", 2, "first"), ("b", 2, None)]
    send(bins, lease, "POST", "/v1/tables/bins?on_conflict=id", {"id": "a", "n": 3}, "resolution=merge-duplicates")
    assert rows(stack)[0] == ("a", 3, "first")
    expect_problem(send(bins, lease, "POST", "/v1/tables/bins", {"id": "a"}), 409, "constraint-violation")
    assert pointers_of(
        send(bins, lease, "POST", "/v1/tables/bins?on_conflict=no", both, "resolution=merge-duplicates"),
        422,
        "unprocessable",
    ) == ["on_conflict"]
    assert (
        send(bins, lease, "POST", "/v1/tables/bins", both, "resolution=merge-duplicates").status == 201
    )  # by the primary key
    assert rows(stack)[0] == ("a", 2, "first")


def test_change_with_rows_too_large_for_answer_is_undone(stack: Stack, bins: Api, lease: Json) -> None:
    stack.query(
        "create table wide as select g as id, repeat('x', 1000000) as filling, 0 as n from generate_series(1, 70) "
        "as g; create function wide_all() returns setof wide language sql stable"
        " set search_path = public, pg_temp as 'select * from wide'; select fencing.expose_table('wide'); "
        "select fencing.expose_function('wide_all()')"
    )
    eventually(lambda: bins.get("/v1/tables/wide?limit=1").status == 200, goal="the gateway knows the table")
    path = "/v1/tables/wide?id=gt.0"

    def in_time(request: Callable[[], Answer]) -> Answer:
        """Repeats the call on 503: 70 MB may take PostgreSQL longer than statement_timeout,
        and then nothing was changed."""
        return eventually(
            lambda: (answer := request()).status != 503 and answer, 60, goal="PostgreSQL finishes in time"
        )

    problem = expect_problem(
        in_time(lambda: send(bins, lease, "PATCH", path, {"n": 1}, "return=representation")), 422, "unprocessable"
    )
    assert problem["sqlstate"] == "54000" and "fewer rows" in problem["detail"]
    both = {"update": "wide", "where": {"id": 1}, "set": {"n": 1}}, {"call": "wide_all"}
    expect_problem(in_time(lambda: bins.write(lease, *both)), 422, "unprocessable")
    assert stack.query("select max(n) from wide") == [(0,)]
    assert (
        len(in_time(lambda: send(bins, lease, "PATCH", path + "&select=id", {"n": 1}, "return=representation")).json())
        == 70
    )
    assert in_time(lambda: send(bins, lease, "PATCH", path, {"n": 2})).status == 204
    stack.query(
        "select fencing.hide('wide'); select fencing.hide('wide_all'); drop function wide_all(); drop table wide"
    )


def test_change_without_condition_is_refused(stack: Stack, bins: Api, lease: Json) -> None:
    send(bins, lease, "POST", "/v1/tables/bins", {"id": "a"})
    assert (
        pointers_of(send(bins, lease, "PATCH", "/v1/tables/bins", {"n": 1}))
        == pointers_of(send(bins, lease, "DELETE", "/v1/tables/bins"))
        == ["query"]
    )
    assert pointers_of(send(bins, lease, "DELETE", "/v1/tables/bins?id=eq.a&limit=1")) == ["limit"]
    assert rows(stack) == [("a", 7, None)]


@pytest.mark.parametrize(
    "method, query, body, pointers",
    [
        ("POST", "", {"id": "a", "no/pe": 1}, ["/no~1pe"]),
        ("POST", "", [{"id": "a", "nope": 1}, {"id": "b", "nope": 2}], ["/0/nope"]),
        ("PATCH", "?nope=eq.1", {"nope": 1}, ["/nope", "nope"]),
        ("POST", "", [{"id": "a", "n": "x"}], ["/0/n"]),
        ("POST", "", [{"id": "a", "n": 1}, {"id": "b", "n": "x"}], [""]),
        ("PATCH", "?id=eq.a", {"n": "two"}, ["/n"]),
        ("DELETE", "?id=eq.a&n=in.(1,x)", None, ["n"]),
        ("POST", "?on_conflict=words", {"id": "a", "words": "x"}, ["on_conflict"]),
    ],
)
def test_write_with_unknown_name_or_unfit_value_422_names_it(
    bins: Api, lease: Json, method: str, query: str, body: Json, pointers: list[str]
) -> None:
    answer = send(
        bins,
        lease,
        method,
        f"/v1/tables/bins{query}",
        body,
        "resolution=merge-duplicates" if "on_conflict" in query else "",
    )
    assert sorted(pointers_of(answer, 422, "unprocessable")) == pointers
    assert "operation" not in answer.json(), answer


def test_write_to_unknown_or_unexposed_table_404(bins: Api, lease: Json) -> None:
    expect_problem(send(bins, lease, "POST", "/v1/tables/nope", {"id": "a"}), 404, "not-found")
    expect_problem(send(bins, lease, "DELETE", "/v1/tables/order_events?id=eq.1"), 404, "not-found")


def test_write_without_lease_428(stack: Stack, bins: Api) -> None:
    expect_problem(send(bins, None, "POST", "/v1/tables/bins", {"id": "a"}), 428, "fencing-required")
    expect_problem(send(bins, None, "PATCH", "/v1/tables/bins?id=eq.a", {"n": 1}), 428, "fencing-required")
    expect_problem(send(bins, None, "DELETE", "/v1/tables/bins?id=eq.a"), 428, "fencing-required")


def test_write_with_stale_or_uncovering_lease_changes_nothing(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=300)
    b = api.must_acquire(sku.resource, wait_ms=3_000)
    assert send(api, b, "PATCH", f"/v1/tables/inventory?sku=eq.{sku.name}", {"note": "b"}).status == 204
    problem = expect_problem(
        send(api, a, "PATCH", f"/v1/tables/inventory?sku=eq.{sku.name}", {"note": "a"}), 412, "stale-fencing-token"
    )
    assert (problem["fencing_token"], problem["last_fencing_token"], problem["resource"]) == (
        a["fencing_token"],
        b["fencing_token"],
        sku.resource,
    )
    assert "write_id" in problem
    other_sku = create_sku(stack, unique_name("sku"))
    expect_problem(
        send(api, b, "PATCH", f"/v1/tables/inventory?sku=eq.{other_sku.name}", {"note": "b"}),
        403,
        "resource-not-covered",
    )
    assert (sku.row()["note"], other_sku.row()["note"]) == ("b", None)


# Tokens of another issuer


def bare_token_headers(resource: str, token: object, **headers: str) -> dict[str, str]:
    return {"Fencing-Resource": resource, "Fencing-Token": str(token), **headers}


def test_bare_token_that_grows_writes_and_older_is_refused(stack: Stack, api: Api, sku: Sku) -> None:
    path = f"/v1/tables/inventory?sku=eq.{sku.name}"
    assert api.call("PATCH", path, {"note": "40"}, bare_token_headers(sku.resource, 40)).status == 204
    assert api.call("PATCH", path, {"note": "40 again"}, bare_token_headers(sku.resource, 40)).status == 204
    problem = expect_problem(
        api.call("PATCH", path, {"note": "39"}, bare_token_headers(sku.resource, 39)), 412, "stale-fencing-token"
    )
    assert (problem["fencing_token"], problem["last_fencing_token"]) == (39, 40)
    body = {"operations": [sku.sell()]}
    assert api.post("/v1/writes", body, bare_token_headers(sku.resource, 41)).json()["fences"] == [
        {"resource": sku.resource, "fencing_token": 41, "last_fencing_token": 41}
    ]
    expect_problem(api.post("/v1/writes", body, bare_token_headers(sku.resource, 40)), 412, "stale-fencing-token")
    assert api.get(
        "/v1/tables/inventory", bare_token_headers(sku.resource, 42), sku=f"eq.{sku.name}", select="stock,note"
    ).json() == [{"stock": 9, "note": "40 again"}]
    expect_problem(api.post("/v1/writes", body, bare_token_headers(sku.resource, 41)), 412, "stale-fencing-token")


def test_bare_token_of_several_resources_enters_all(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    other_sku = create_sku(stack, unique_name("sku"))
    answer = api.post(
        "/v1/writes",
        {"operations": [sku.sell(), other_sku.sell()]},
        bare_token_headers(f"{other_sku.resource}, {sku.resource}", 50),
    )
    assert answer.status == 200, answer
    assert stack.query("select fencing.fence(%s), fencing.fence(%s)", (sku.resource, other_sku.resource)) == [(50, 50)]


@pytest.mark.parametrize(
    "headers, pointers",
    [
        (bare_token_headers("", 1), ["Fencing-Resource"]),
        (bare_token_headers("a//b", 1), ["Fencing-Resource"]),
        (bare_token_headers("a,a", 1), ["Fencing-Resource"]),
        (bare_token_headers("a%2", 1), ["Fencing-Resource"]),
        (bare_token_headers(",".join(f"{i:0130}" for i in range(32)), 1), ["Fencing-Resource"]),
        (bare_token_headers(",".join(f"r{i}" for i in range(65)), 1), ["Fencing-Resource"]),
        (bare_token_headers("a", 0), ["Fencing-Token"]),
        (bare_token_headers("a", -1), ["Fencing-Token"]),
        (bare_token_headers("a", 2**53), ["Fencing-Token"]),
        (bare_token_headers("a", "1x"), ["Fencing-Token"]),
        ({"Fencing-Token": "1"}, ["Fencing-Resource"]),
        ({"Fencing-Resource": "a"}, ["Fencing-Token"]),
    ],
)
def test_bare_token_malformed_400_names_header(api: Api, headers: dict[str, str], pointers: list[str]) -> None:
    body = {"operations": [{"delete": "inventory", "where": {"sku": "none"}}]}
    assert pointers_of(api.post("/v1/writes", body, headers)) == pointers


def test_bare_token_with_lease_400(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    answer = api.call(
        "PATCH",
        f"/v1/tables/inventory?sku=eq.{sku.name}",
        {"note": "x"},
        bare_token_headers(sku.resource, 5, **{"Fencing-Lease": lease["lease_id"]}),
    )
    assert pointers_of(answer) == ["Fencing-Token"]


def test_bare_token_without_scope_403(guarded_pair: Stack) -> None:
    body = {"operations": [{"delete": "inventory", "where": {"sku": "none"}}]}
    for_orders = guarded_pair.api(0, "orders")
    expect_problem(for_orders.post("/v1/writes", body, bare_token_headers("inventory/none", 5)), 403, "forbidden")
    expect_problem(for_orders.get("/v1/tables/inventory", bare_token_headers("inventory/none", 5)), 403, "forbidden")
    assert guarded_pair.api(0).post("/v1/writes", body, bare_token_headers("inventory/none", 5)).status == 200
    expect_problem(guarded_pair.api(0, "auditor").get("/v1/tables/inventory"), 403, "forbidden")


def test_sample_written_by_either_interface_is_equal(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    assert (
        send(api, lease, "PATCH", f"/v1/tables/samples?id=eq.{sample.name}", {"small": 877, "doc": {"a": [1]}}).status
        == 204
    )
    assert (
        api.must_write(lease, sample.set(words="w"), **{"return": "rows"})["results"][0]["rows"]
        == api.get("/v1/tables/samples", id=f"eq.{sample.name}").json()
    )


# Idempotency-Key


@pytest.mark.parametrize(
    "method, path, body, status",
    [
        ("POST", "/v1/tables/bins", {"id": "keyed", "n": 5}, 201),
        ("PATCH", "/v1/tables/bins?id=eq.there", {"n": 6}, 204),
        ("DELETE", "/v1/tables/bins?id=eq.there", None, 204),
    ],
)
def test_key_repeated_first_answer_and_written_once(
    stack: Stack, bins: Api, lease: Json, method: str, path: str, body: Json, status: int
) -> None:
    send(bins, lease, "POST", "/v1/tables/bins", {"id": "there"})
    headers = {"Fencing-Lease": lease["lease_id"], "Idempotency-Key": f"key-{method}-{lease['fencing_token']}"}
    first, again = (bins.call(method, path, each, headers) for each in (body, body and dict(reversed(body.items()))))
    assert first.status == again.status == status, (first, again)
    assert first.headers["Idempotency-Replayed"] is None and again.headers["Idempotency-Replayed"] == "true"
    assert (
        first.headers["Fencing-Write-Id"] == again.headers["Fencing-Write-Id"]
        and first.headers["Content-Range"] == again.headers["Content-Range"]
    )
    assert len(bins.history(resource=ALL, token_min=lease["fencing_token"], event="write_applied")) == 2
    expect_problem(
        bins.call(method, path + ("&n=lt.999" if "?" in path else "?select=id"), body, headers),
        422,
        "idempotency-mismatch",
    )


def test_key_of_refused_write_repeats_refusal(bins: Api, lease: Json) -> None:
    headers = {"Fencing-Lease": lease["lease_id"], "Idempotency-Key": f"refused-{lease['fencing_token']}"}
    for replayed in (None, "true"):
        answer = bins.post("/v1/tables/bins", {"id": "x", "n": 1000}, headers)
        assert expect_problem(answer, 409, "constraint-violation")["sqlstate"] == "23514"
        assert answer.headers["Idempotency-Replayed"] == replayed
