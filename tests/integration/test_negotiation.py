"""Accept, Prefer, profiles and conditional headers are checked first: a request with a header
that can not be honoured changes nothing."""

from __future__ import annotations

import urllib.parse
from typing import Callable, Iterable, Iterator

import pytest

from support.api import Answer, Api, lease_path, pointers_of
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack

PLAN = 'application/vnd.pgrst.plan+text; for="application/json"; options=;'
SINGLE = "application/vnd.pgrst.object+json"


@pytest.fixture(scope="module")
def rows(stack: Stack) -> Iterator[Callable[[], list[tuple[str, int]]]]:
    """Makes a table of five rows that all belong to one resource; yields a function that returns its rows."""
    stack.query(
        "create table negotiated (id text primary key, n integer); "
        "select fencing.protect('negotiated', $$'negotiated/' || left('all' || id, 3)$$); "
        "select fencing.expose_table('negotiated'); "
        "create function negotiated_empty() returns integer language sql "
        "as 'with gone as (delete from public.negotiated returning 1) select count(*)::integer from gone'; "
        "select fencing.expose_function('negotiated_empty()')"
    )
    api = stack.api()
    lease = api.must_acquire("negotiated/all", ttl_ms=60_000)
    insert = [{"insert": "negotiated", "values": {"id": name, "n": 1}} for name in "abcde"]
    eventually(lambda: api.write(lease, *insert).status == 200, goal="the gateway knows the table")
    api.must_release(lease)
    yield lambda: stack.query("select id, n from negotiated order by id")
    stack.query(
        "select fencing.hide('negotiated'); drop function negotiated_empty(); select fencing.unprotect('negotiated'); "
        "drop table negotiated"
    )


WRITES = {
    "delete": ("DELETE", "/v1/tables/negotiated?n=eq.1", None),
    "update": ("PATCH", "/v1/tables/negotiated?n=eq.1", {"n": 2}),
    "insert": ("POST", "/v1/tables/negotiated", {"id": "f", "n": 1}),
    "call": ("POST", "/v1/rpc/negotiated_empty", {}),
    "write": ("POST", "/v1/writes", {"operations": [{"delete": "negotiated", "where": {"n": 1}}]}),
}


@pytest.mark.parametrize(
    "headers, status, slug, pointer",
    [
        ({"Accept": PLAN}, 406, "not-acceptable", "Accept"),
        ({"Accept": 'application/x; a=", application/json, "'}, 406, "not-acceptable", "Accept"),
        ({"Accept-Profile": "other"}, 406, "not-acceptable", "Accept-Profile"),
        ({"Content-Profile": "other"}, 400, "invalid-request", "Content-Profile"),
        ({"Prefer": "max-affected=some"}, 400, "invalid-request", "Prefer"),
        ({"Prefer": "tx=rollback"}, 400, "invalid-request", "Prefer"),
        ({"Prefer": 'Timezone="Asia/Tokyo"'}, 400, "invalid-request", "Prefer"),
        ({"Prefer": "handling=strict, colour=red"}, 400, "invalid-request", "Prefer"),
        ({"If-Match": '"1"'}, 400, "invalid-request", "If-Match"),
        ({"If-Unmodified-Since": "Sat, 21 Nov 2026 10:00:00 GMT"}, 400, "invalid-request", "If-Unmodified-Since"),
        ({"Range": "0-0"}, 400, "invalid-request", "Range"),
    ],
)
def test_write_with_unsupported_header_runs_nothing(
    api: Api,
    rows: Callable[[], object],
    headers: dict[str, str],
    status: int,
    slug: str,
    pointer: str,
    kinds: Iterable[str] = WRITES,
) -> None:
    lease, before = api.must_acquire("negotiated/all", wait_ms=5_000), rows()
    for kind in kinds:
        method, path, body = WRITES[kind]
        answer = api.call(method, path, body, {**headers, "Fencing-Lease": lease["lease_id"]})
        assert pointers_of(answer, status, slug) == [pointer], kind
        assert rows() == before, f"changed by {kind}"
    api.must_release(lease)


@pytest.mark.parametrize(
    "headers, status, slug",
    [({"Accept": SINGLE}, 406, "not-acceptable"), ({"Prefer": "max-affected=0"}, 400, "invalid-request")],
)
def test_write_of_other_number_of_rows_runs_nothing(
    api: Api, rows: Callable[[], object], headers: dict[str, str], status: int, slug: str
) -> None:
    test_write_with_unsupported_header_runs_nothing(
        api, rows, headers, status, slug, *headers, kinds=("delete", "update", "write")
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept": "application/json", "Accept-Profile": "public", "Content-Profile": "public"},
        {"Prefer": "handling=strict, return=representation, count=exact, tx=commit"},
        {"Prefer": "handling=lenient, colour=red, count=planned"},
        {"Prefer": "handling=strict, count=planned, max-affected=1"},
        {"Accept": "text/csv"},
        {"Accept": f"{SINGLE};q=0.9, */*;q=0.1"},
    ],
)
def test_write_with_supported_headers_runs(
    api: Api, rows: Callable[[], list[tuple[str, int]]], headers: dict[str, str]
) -> None:
    lease = api.must_acquire("negotiated/all", wait_ms=5_000)
    ((_, before), *_) = rows()
    answer = api.call(
        "PATCH", "/v1/tables/negotiated?id=eq.a", {"n": before + 1}, {**headers, "Fencing-Lease": lease["lease_id"]}
    )
    api.must_release(lease)
    assert answer.status in (200, 204) and rows()[0] == ("a", before + 1), answer


READS = {
    "rows": "/v1/tables/inventory",
    "function": "/v1/rpc/shop_check",
    "history": "/v1/history",
    "changes": "/v1/changes",
    "summary": "/v1/history/summary",
    "digests": "/v1/history/digests",
    "leases": "/v1/leases",
    "resource": "/v1/resources/negotiated%2Fall",
    "nodes": "/v1/nodes",
}


@pytest.mark.parametrize("path", READS.values(), ids=READS)
def test_read_with_unsupported_header_is_refused(api: Api, path: str) -> None:
    def refused(headers: dict[str, str], *problem: object) -> bool:
        (name, *_) = headers
        return pointers_of(api.get(path, headers), *problem) == [name]

    assert refused({"Accept": PLAN}, 406, "not-acceptable")
    assert refused({"Accept-Profile": "other"}, 406, "not-acceptable")
    assert refused({"Prefer": "handling=strict, max-affected=1"})
    assert (
        api.get(path, {"Prefer": "max-affected=1, colour=red"}).status == 200
    ), "RFC 7240: unknown preferences are ignored"


def test_preferences_in_several_lines_are_all_read(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    with api.connection() as connection:
        wire = connection.wire
        wire.putrequest("PATCH", f"/v1/tables/inventory?sku=eq.{sku.name}")
        for name, value in [
            *connection.headers.items(),
            ("Fencing-Lease", lease["lease_id"]),
            ("Content-Type", "application/json"),
            ("Content-Length", "12"),
            ("Prefer", "return=minimal"),
            ("Prefer", "max-affected=0"),
        ]:
            wire.putheader(name, value)
        wire.endheaders(b'{"note":"x"}')
        response = wire.getresponse()
        answer = Answer(response.status, response.msg, response.read(), 0)
    assert pointers_of(answer) == ["Prefer"] and sku.row()["note"] is None


@pytest.mark.parametrize("call", ["take", "renew", "release"])
def test_lease_with_unacceptable_answer_is_unchanged(api: Api, resource: str, call: str) -> None:
    headers = {"Accept": "application/xml"}
    if call == "take":
        assert pointers_of(api.post("/v1/leases", {"resource": resource}, headers), 406, "not-acceptable") == ["Accept"]
        api.must_release(api.must_acquire(resource))
        return
    lease = api.must_acquire(resource)
    method, path = ("POST", f"{lease_path(lease)}/renew") if call == "renew" else ("DELETE", lease_path(lease))
    assert pointers_of(api.call(method, path, None, headers), 406, "not-acceptable") == ["Accept"]
    assert api.read_lease(lease).status == 200
    api.must_release(lease)


def test_query_parameters_that_no_call_has_are_refused(api: Api, resource: str) -> None:
    """Most harmful: expected_token belongs into the body of a revocation."""
    lease = api.must_acquire(resource)
    quoted = urllib.parse.quote(resource, safe="")
    calls = {
        "/v1/leases": ("POST", {"resource": resource + "/other"}),
        f"{lease_path(lease)}/renew": ("POST", None),
        lease_path(lease): ("GET", None),
        f"/v1/resources/{quoted}/lease": ("DELETE", {"reason": "r"}),
        f"/v1/resources/{quoted}/fence": ("POST", {"reason": "r", "last_fencing_token": 0}),
        "/v1/nodes": ("GET", None),
        f"/v1/resources/{quoted}": ("GET", None),
        "/v1/history/summary": ("GET", None),
        "/v1/writes": ("POST", {"operations": []}),
    }
    for path, (method, body) in calls.items():
        assert pointers_of(api.call(method, f"{path}?expected_token=1", body)) == ["expected_token"], path
    assert api.read_lease(lease).status == 200
    api.must_release(lease)


@pytest.mark.parametrize("header", [("If-Match", '"1"'), ("Prefer", "tx=rollback")])
def test_operators_calls_with_conditions_change_nothing(
    stack: Stack, api: Api, resource: str, header: tuple[str, str]
) -> None:
    lease = api.must_acquire(resource)
    quoted = urllib.parse.quote(resource, safe="")
    for method, path, body in (
        ("DELETE", f"/v1/resources/{quoted}/lease", {"reason": "r"}),
        ("POST", f"/v1/resources/{quoted}/fence", {"reason": "r", "last_fencing_token": 9}),
        ("DELETE", lease_path(lease), None),
        ("POST", f"{lease_path(lease)}/renew", None),
        ("POST", "/v1/leases", {"resource": resource + "/other"}),
    ):
        assert pointers_of(api.call(method, path, body, dict([header]))) == [header[0]], path
    assert api.read_lease(lease).status == 200 and stack.query("select fencing.fence(%s)", (resource,)) == [(0,)]
    api.must_release(lease)
