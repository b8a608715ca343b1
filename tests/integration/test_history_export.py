"""Export of the whole history as application/x-ndjson and text/csv, sent as fast as the caller reads."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import socket
from typing import Callable

import pytest
from support.api import Api, expect_problem, pointers_of
from support.polling import eventually, pause
from support.stack import Stack

ROWS = 25_000


@pytest.fixture(scope="module")
def many(stack: Stack) -> str:
    """A prefix with more events than 25 pages hold, eight for each millisecond,
    some with every character that CSV must quote."""
    prefix = f"whole/{random.randrange(10**9)}"
    stack.query(
        """insert into fencing.history (at, event, resource, fencing_token, owner, detail)
                   select now() - interval '1 hour' + (n / 8) * interval '1 ms',
                     'lease_granted', %s || '/r-' || n %% 7, n,
                          case when n %% 1000 = 0 then E'a "b", c\\r\\nd' else 'o' end, '{"ttl_ms": 5, "x": "y,z"}'
                     from generate_series(1, %s) as t (n)""",
        (prefix, ROWS),
    )
    return prefix


def lines_of(api: Api, **query: object) -> list[dict]:
    answer = api.get("/v1/history", {"Accept": "application/x-ndjson"}, **query)
    assert answer.status == 200 and answer.headers.get_content_type() == "application/x-ndjson", answer
    assert answer.body.endswith(b"\n") or not answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_ndjson_has_each_event_once_in_order(api: Api, many: str, order: str) -> None:
    items = lines_of(api, resource_prefix=many, order=order)
    tokens = [item["fencing_token"] for item in items]
    assert tokens == (list(range(1, ROWS + 1)) if order == "asc" else list(range(ROWS, 0, -1)))
    assert items[:3] == api.history(resource_prefix=many, order=order)[:3], "an item is the same in every form"


def test_ndjson_limit_is_respected(api: Api, many: str) -> None:
    for limit in (1, 1000, 1001, 2500):
        assert len(lines_of(api, resource_prefix=many, limit=limit)) == limit


def test_ndjson_without_match_is_empty(api: Api) -> None:
    assert lines_of(api, resource="nothing/there") == []


def test_csv_of_many_rows_follows_rfc_4180_with_header(api: Api, many: str) -> None:
    answer = api.get("/v1/history", {"Accept": "text/csv"}, resource_prefix=many, order="asc")
    assert answer.status == 200 and answer.headers.get_content_type() == "text/csv"
    text = answer.body.decode()
    assert text.endswith("\r\n")
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert [int(row["fencing_token"]) for row in rows] == list(range(1, ROWS + 1))
    assert rows[999]["owner"] == 'a "b", c\r\nd' and rows[0]["write_id"] == ""
    assert json.loads(rows[0]["detail"]) == {"ttl_ms": 5, "x": "y,z"}
    assert (
        list(rows[0])
        == "id at event resource fencing_token last_fencing_token owner principal write_id trace_id detail".split()
    )


def test_csv_split_at_any_separator_has_no_formula(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    """Spreadsheets split at the separator of their language;
    they evaluate a cell that begins with one of these signs."""
    name = unique_name("formulas")
    owners = [
        f"{begin}{sign}1+1{end}"
        for sign in "=+-@\uff1d"
        for begin in ("", "x;", "x|", "x\t", "x\n", "x\r\n", 'x;"', "x;\n", "x,")
        for end in ("", ";", '"', '";')
    ]
    stack.query(
        "insert into fencing.history (event, resource, owner, detail) select 'lease_granted', %s, o, "
        "jsonb_build_object('note', o)"
        " from unnest(%s::text[]) with ordinality as t (o, n) order by n",
        (name, owners),
    )
    text = api.get("/v1/history", {"Accept": "text/csv"}, resource=name, order="asc").body.decode()
    rows = {separator: list(csv.reader(io.StringIO(text, newline=""), delimiter=separator)) for separator in ",;|\t"}
    for found in rows.values():
        assert len(found) > len(owners)
        assert not [
            cell for row in found for cell in row if cell.lstrip("\t\r\n").startswith(("=", "+", "-", "@", "\uff1d"))
        ]
    written = [re.sub(r"(^|(?<=[;|\t\r\n]))'", "", row[6]) for row in rows[","][1:]]
    assert written == owners, "a reader can remove the apostrophes again"


def test_export_while_events_are_added_repeats_misses_nothing(stack: Stack, api: Api, many: str) -> None:
    with api.connection() as connection:
        connection.send(
            "GET", f"/v1/history?resource_prefix={many}/&order=asc", headers={"Accept": "application/x-ndjson"}
        )
        answer = connection.wire.getresponse()
        body = answer.read(100_000)
        stack.query(
            "insert into fencing.history (event, resource, fencing_token) select 'lease_granted', %s, 0 "
            "from generate_series(1, 3000)",
            (f"{many}/late",),
        )
        body += answer.read()
    tokens = [json.loads(line)["fencing_token"] for line in body.splitlines()]
    assert [token for token in tokens if token] == list(range(1, ROWS + 1))


def test_export_to_slow_reader_uses_constant_memory(stack: Stack, api: Api, many: str) -> None:
    """Eight callers that read nothing: the gateway keeps one page for each and not the whole answer of 8 MB."""
    pid = stack.read()["gateways"][0]["pid"]

    def resident() -> int:
        return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096

    lines_of(api, resource_prefix=many)
    before = resident()
    connections = [api.connection() for _ in range(8)]
    for connection in connections:
        connection.wire.connect()
        connection.wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.send(
            "GET", f"/v1/history?resource_prefix={many}/r&order=asc", headers={"Accept": "application/x-ndjson"}
        )
    pause(1.5, "an answer that nobody reads fills the buffers")
    assert resident() - before < 24 << 20, "8 pages of 0.4 MB and what the allocator makes of them, not 8 answers"
    for connection in connections[1:]:
        connection.close()
    assert len(connections[0].wire.getresponse().read().splitlines()) == ROWS
    connections[0].close()


def test_export_stops_reading_when_caller_disconnects(
    stack: Stack, api: Api, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("whole")
    stack.query(
        "insert into fencing.history (event, resource, fencing_token) select 'lease_granted', %s, n "
        "from generate_series(1, 120000) as t (n)",
        (name,),
    )

    def pages_begun_since(moment: object) -> int:
        return int(
            stack.query(
                "select count(*) from pg_stat_activity where application_name = 'fencegate' and query_start > %s"
                " and query like '%%from fencing.history%%order by%%'",
                (moment,),
            )[0][0]
        )

    ((began,),) = stack.query("select clock_timestamp()")
    read_whole = api.begin("GET", f"/v1/history?resource={name}&order=asc", headers={"Accept": "text/csv"})
    eventually(lambda: pages_begun_since(began) > 0, interval=0.001, goal="a page is seen while it is read")
    assert read_whole.answer().status == 200
    connection = api.connection()
    connection.send("GET", f"/v1/history?resource={name}&order=asc", headers={"Accept": "text/csv"})
    connection.wire.getresponse().read(1000)
    connection.close()
    pause(0.1, "the gateway notices that the caller has disconnected")
    ((later,),) = stack.query("select clock_timestamp()")
    for _ in range(20):  # the whole export takes longer
        pause(0.02, "the whole export would take longer")
        assert pages_begun_since(later) == 0


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/csv"])
def test_export_with_wrong_query_400_before_any_body(api: Api, accept: str) -> None:
    assert pointers_of(api.get("/v1/history", {"Accept": accept}, limit=0, colour="red")) == ["colour", "limit"]


def test_history_of_another_type_406(api: Api) -> None:
    expect_problem(api.get("/v1/history", {"Accept": "application/xml"}), 406, "not-acceptable")


# Counts by event and time


def test_summary_counts_by_event_and_bucket(stack: Stack, api: Api) -> None:
    prefix = f"summary/{random.randrange(10**9)}"
    stack.query(
        """insert into fencing.history (at, event, resource)
                   select '2026-06-01T10:00:00Z'::timestamptz + n * interval '100 ms',
                   case when n %% 4 = 0 then 'write_applied' else 'lease_granted' end, %s
                     from generate_series(0, 599) as t (n)""",
        (f"{prefix}/a",),
    )
    stack.query(
        "insert into fencing.history (at, event, resource) values ('2026-06-01T10:00:00Z', 'lease_granted', "
        "'summary/of-others')"
    )
    asked = {
        "from": "2026-06-01T10:00:00Z",
        "to": "2026-06-01T10:00:45Z",
        "bucket_ms": 10_000,
        "resource_prefix": prefix,
    }
    summary = api.get("/v1/history/summary", **asked).json()
    assert [bucket["at"] for bucket in summary["buckets"]] == [
        f"2026-06-01T10:00:{second:02}.000Z" for second in (0, 10, 20, 30, 40)
    ]
    assert [bucket["counts"] for bucket in summary["buckets"]] == [{"lease_granted": 75, "write_applied": 25}] * 4 + [
        {"lease_granted": 37, "write_applied": 13}
    ]
    assert summary["totals"] == {"lease_granted": 337, "write_applied": 113}
    assert (summary["from"], summary["to"], summary["bucket_ms"]) == (
        "2026-06-01T10:00:00.000Z",
        "2026-06-01T10:00:45.000Z",
        10_000,
    )
    days = {**asked, "from": "2026-06-01T00:00:00+05:00", "to": "2026-06-02T00:00:00+05:00", "bucket_ms": 86_400_000}
    (day,) = api.get("/v1/history/summary", **days).json()["buckets"]
    assert day["at"] == "2026-05-31T19:00:00.000Z" and sum(day["counts"].values()) == 600


def test_summary_default_is_last_hour_by_minute(api: Api, many: str) -> None:
    summary = api.get("/v1/history/summary").json()
    assert summary["bucket_ms"] == 60_000 and 0 < len(summary["buckets"]) <= 61


def test_summary_with_wrong_query_400_names_each_parameter(api: Api) -> None:
    assert pointers_of(api.get("/v1/history/summary", bucket_ms=1)) == ["bucket_ms"]
    assert sorted(pointers_of(api.get("/v1/history/summary", bucket_ms=0, to="soon", limit=5))) == [
        "bucket_ms",
        "limit",
        "to",
    ]


@pytest.mark.parametrize(
    "owner", ["=1+1", "+1", "-1", "@sum(a1)", "'quoted", '="a",b', "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20sum(a1)"]
)
def test_csv_formula_cell_is_prefixed_with_apostrophe(api: Api, resource: str, owner: str) -> None:
    api.must_release(api.must_acquire(resource, owner=owner))
    rows = eventually(
        lambda: list(
            csv.DictReader(io.StringIO(api.get("/v1/history", {"Accept": "text/csv"}, resource=resource).body.decode()))
        )
    )
    assert {row["owner"] for row in rows} == {"'" + owner}
    assert {item["owner"] for item in api.history(resource=resource)} == {owner}
