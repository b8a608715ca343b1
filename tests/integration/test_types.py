"""Values of every type, written through each path and read again: PostgreSQL stores the same as with psql's literal,
and what was read can be written back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Iterator

import pytest
from support.api import Answer, Api
from support.polling import eventually
from support.stack import Stack

LEASED = "kinds/all"


@dataclass(frozen=True)
class Kind:
    """The type of a column and values for it, each as the JSON that is sent and as the literal for psql."""

    type: str
    values: list[tuple[str, str]]

    @property
    def column(self) -> str:
        return re.sub(r"\W+", "_", self.type).strip("_") + ("_array" * self.type.count("[]"))


def text(*values: str) -> list[tuple[str, str]]:
    """Returns values whose JSON is a string of the literal."""
    return [(json.dumps(value), value) for value in values]


def digits(*values: str) -> list[tuple[str, str]]:
    """Returns values whose JSON is a number with the text of the literal."""
    return [(value, value) for value in values]


NASTY = [
    "",
    " ",
    "'",
    '"',
    "\\",
    "'; drop table kinds; --",
    "$1",
    "{a,b}",
    "(1,2)",
    "NULL",
    "null",
    "Grüße 日本語 🔑 \u202e",
    "\n\t\r\x01",
    "x" * 70_000,
]

KINDS = [
    Kind("smallint", digits("-32768", "32767")),
    Kind("integer", digits("2147483647", "-2147483648") + [("1.0", "1"), ("2e3", "2000")]),
    Kind(
        "bigint", digits("9223372036854775807", "-9223372036854775808", "9007199254740993") + text("9007199254740993")
    ),
    Kind(
        "numeric",
        digits(
            *(
                "12345678901234567890.12345678901234567890 1.50 10.00 -0.000000000000000000001 "
                "123456789012345678901234567890 0.1"
            ).split()
        )
        + text("NaN", "Infinity", "-Infinity", "1.50")
        + [("1e-30", "1e-30"), ("1E+40", "1e40")],
    ),
    Kind("numeric(12,2)", digits("10.50", "9999999999.99")),
    Kind("real", digits("1.1", "3.4028235e38") + text("NaN", "-Infinity")),
    Kind(
        "double precision",
        digits("0.30000000000000004", "1.7976931348623157e308", "5e-324", "-0", "1e22") + text("NaN", "Infinity"),
    ),
    Kind("money", text("1234.56", "-0.01") + digits("92233720368547758.07")),
    Kind("text", text(*NASTY)),
    Kind("character varying(5)", text("ab", "äöüß€")),
    Kind("character(5)", text("ab")),
    Kind('"char"', text("x")),
    Kind("name", text("a_name")),
    Kind("bytea", text("\\x", "\\x00ff5c27", "\\xdeadbeef")),
    Kind("boolean", [("true", "true"), ("false", "false")]),
    Kind("date", text("2026-02-28", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31")),
    Kind("time without time zone", text("23:59:59.999999", "24:00:00")),
    Kind("time with time zone", text("23:59:59.999999-11:30")),
    Kind("timestamp without time zone", text("2026-11-21 10:00:09.894123", "infinity", "0044-03-15 10:00:00 BC")),
    Kind(
        "timestamp with time zone",
        text(
            "2026-11-21T10:00:09.894123+02:00", "-infinity", "2026-11-21T10:00:09Z", "294276-12-31 23:59:59.999999+00"
        ),
    ),
    Kind("interval", text("1 year 2 mons -3 days 04:05:06.789", "-1 days", "PT36H", "00:00:00.000001")),
    Kind("uuid", text("0f0e0d0c-0b0a-0908-0706-050403020100")),
    Kind("inet", text("192.168.0.1/24", "::1", "fe80::1/64")),
    Kind("cidr", text("10.0.0.0/8")),
    Kind("macaddr", text("08:00:2b:01:02:03")),
    Kind("json", [('{"b": 1.50, "a": [null, "\\u00e9"]}', '{"b":1.50,"a":[null,"é"]}'), ('"a text"', '"a text"')]),
    Kind(
        "jsonb",
        [
            (
                '{"a": [1, 1.50, 12345678901234567890.1, null, {"b": "ü\'\\""}]}',
                '{"a": [1, 1.50, 12345678901234567890.1, null, {"b": "ü\'\\""}]}',
            ),
            ("[]", "[]"),
            ('"text"', '"text"'),
            ("1.10", "1.10"),
            ("1e400", "1e400"),
            ("false", "false"),
        ],
    ),
    Kind("xml", text('<a b="c">é&amp;</a>')),
    Kind("tsvector", text("'a':1 'b c':2A")),
    Kind("tsquery", text("'a' & !'b'")),
    Kind("bit(3)", text("101")),
    Kind("bit varying", text("10101", "")),
    Kind("point", text("(1.5,-2)")),
    Kind("box", text("(2,3),(0,1)")),
    Kind("pg_lsn", text("16/B374D848")),
    Kind("int4range", text("[1,5)", "empty", "(,3)")),
    Kind("numrange", text("[1.50,2.5]")),
    Kind("tstzrange", text('["2026-11-21 10:00:00+00","2026-11-22 10:00:00+00")')),
    Kind("int4multirange", text("{[1,5),[7,9)}")),
    Kind(
        "integer[]",
        [("[1, null, 3]", "{1,NULL,3}"), ("[]", "{}"), ("[[1,2],[3,4]]", "{{1,2},{3,4}}"), ('"{5,6}"', "{5,6}")],
    ),
    Kind("numeric[]", [('[1.50, "NaN", 12345678901234567890.1]', "{1.50,NaN,12345678901234567890.1}")]),
    Kind(
        "text[]",
        [
            (
                '["a,b", "q\\"uo\'te", "NULL", null, "", "{}", "back\\\\slash", " "]',
                '{"a,b","q\\"uo\'te","NULL",NULL,"","{}","back\\\\slash"," "}',
            ),
            ('[[["a","b"],["c",null]]]', "{{{a,b},{c,NULL}}}"),
        ],
    ),
    Kind("jsonb[]", [('[{"a": 1.50}, "s", 3]', '{"{\\"a\\": 1.50}","\\"s\\"","3"}')]),
    Kind("bytea[]", [('["\\\\x00ff", null]', '{"\\\\x00ff",NULL}')]),
    Kind("timestamp with time zone[]", [('["2026-11-21T10:00:09Z"]', '{"2026-11-21 10:00:09+00"}')]),
    Kind("public.mood", text("sad", "so so")),
    Kind("public.mood[]", [('["sad", null, "so so"]', '{sad,NULL,"so so"}')]),
    Kind("public.amount", digits("12.50", "3", "10.00")),
    Kind(
        "public.document",
        [('"a text"', '"a text"'), ('{"a": 1.50}', '{"a": 1.50}'), ("[1, null]", "[1, null]"), ("10.00", "10.00")],
    ),
    Kind("public.home", [('{"street": "x", "no": 1, "prices": [1.50], "mood": "so so"}', '(x,1,{1.50},"so so")')]),
    Kind("public.grid", [("[[1,2],[3,4]]", "{{1,2},{3,4}}")]),
    Kind(
        "public.place",
        [
            (
                '{"street": "a \\"b\\", (c)", "no": 9007199254740993, "prices": [1.50, null], "mood": "sad"}',
                '("a ""b"", (c)",9007199254740993,"{1.50,NULL}",sad)',
            ),
            ('{"street": null, "no": null, "prices": null, "mood": null}', "(,,,)"),
        ],
    ),
    Kind(
        "public.place[]",
        [('[{"street": "x", "no": 1, "prices": [1.50], "mood": "so so"}, null]', '{"(x,1,{1.50},\\"so so\\")",NULL}')],
    ),
]

CASES = [(kind, *value) for kind in KINDS for value in [*kind.values, ("null", "")]]
NAMES = [f"{kind.column}-{sent[:24]}" for kind, sent, _ in CASES]


@pytest.fixture(scope="module")
def kinds(stack: Stack) -> Iterator[Api]:
    """A table with a column of each type, and a gateway that knows it."""
    stack.query(
        "create type mood as enum ('sad', 'so so'); create domain amount as numeric check (value > 0); "
        "create domain grid as integer[];"
        "create type place as (street text, no bigint, prices numeric[], mood mood);"
        "create domain document as jsonb; create domain home as place check ((value).no > 0)"
    )
    stack.query(
        "create table kinds (id text primary key, " + ", ".join(f'"{kind.column}" {kind.type}' for kind in KINDS) + ")"
    )
    stack.query(f"select fencing.protect('kinds', $$'{LEASED}'::text$$); select fencing.expose_table('kinds')")
    api = stack.api()
    eventually(lambda: api.get("/v1/tables/kinds").status == 200, goal="the gateway knows the table")
    yield api
    stack.query(
        "select fencing.hide('kinds'); select fencing.unprotect('kinds'); drop table kinds; drop domain home; "
        "drop type place; drop domain grid, amount, document; drop type mood"
    )


@pytest.fixture(scope="module")
def lease(kinds: Api) -> Iterator[dict[str, str]]:
    held = kinds.must_acquire(LEASED, ttl_ms=60_000)
    yield held
    kinds.release(held)


@pytest.fixture(autouse=True)
def empty_again(kinds: Api, lease: dict[str, str]) -> Iterator[None]:
    yield
    send(kinds, lease, "DELETE", "/v1/tables/kinds?id=not.is.null", "{}")


def send(api: Api, lease: dict[str, str], method: str, path: str, raw: str) -> Answer:
    answer = api.call(method, path, raw=raw.encode(), headers={"Fencing-Lease": lease["lease_id"]})
    assert answer.status in (200, 201, 204), answer
    return answer


def raw_value(api: Api, column: str, row: str) -> str:
    """Returns the JSON text of one value."""
    answer = api.get("/v1/tables/kinds", select=column, id=f"eq.{row}")
    assert answer.status == 200, answer
    prefix = f'[{{"{column}":'
    words = answer.body.decode()
    assert words.startswith(prefix) and words.endswith("}]"), words
    return words[len(prefix) : -2]


@pytest.mark.parametrize("kind, sent, literal", CASES, ids=NAMES)
def test_value_written_by_each_path_matches_psql(
    stack: Stack, kinds: Api, lease: dict[str, str], kind: Kind, sent: str, literal: str
) -> None:
    column = kind.column
    send(kinds, lease, "POST", "/v1/tables/kinds", f'{{"id": "posted", "{column}": {sent}}}')
    send(
        kinds,
        lease,
        "POST",
        "/v1/tables/kinds",
        f'[{{"id": "row-1", "{column}": {sent}}}, {{"id": "row-2", "{column}": null}}, '
        f'{{"id": "patched", "{column}": null}}]',
    )
    send(kinds, lease, "PATCH", "/v1/tables/kinds?id=eq.patched", f'{{"{column}": {sent}}}')
    send(
        kinds,
        lease,
        "POST",
        "/v1/writes",
        f'{{"operations": [{{"insert": "kinds", "values": {{"id": "written", "{column}": {sent}}}}}]}}',
    )
    read = raw_value(kinds, column, "posted")
    send(kinds, lease, "PATCH", "/v1/tables/kinds?id=eq.row-2", f'{{"{column}": {read}}}')

    rows = dict(stack.query(f'select id, "{column}"::text from kinds'))
    wanted = None if sent == "null" else stack.query(f"select (%s::{kind.type})::text", (literal,))[0][0]
    if kind.type == "json" and wanted is not None:  # its text is kept except for white space
        rows, wanted = {name: json.loads(value) for name, value in rows.items()}, json.loads(wanted)
    assert rows == dict.fromkeys(["posted", "row-1", "patched", "written", "row-2"], wanted), f"read as {read}"
    assert (read == "null") == (sent == "null")


# PostgreSQL has no equality of these with a text.
INCOMPARABLE = ("json", "xml", "point", "box", "public.place", "public.home")


@pytest.mark.parametrize("kind", [k for k in KINDS if k.type not in INCOMPARABLE], ids=lambda k: k.column)
def test_value_is_found_by_its_text(stack: Stack, kinds: Api, lease: dict[str, str], kind: Kind) -> None:
    sent, _ = kind.values[0]
    send(kinds, lease, "POST", "/v1/tables/kinds", f'{{"id": "sought", "{kind.column}": {sent}}}')
    ((stored,),) = stack.query(f'select "{kind.column}"::text from kinds')
    answer = kinds.get("/v1/tables/kinds", **{"select": "id", kind.column: f"eq.{stored}"})
    assert answer.status == 200 and answer.json() == [{"id": "sought"}], answer


@pytest.mark.parametrize(
    "kind, sent",
    [
        ("character varying(5)", '"abcdef"'),
        ("smallint", "32768"),
        ("integer", "1.5"),
        ("bit(3)", '"1010"'),
        ("public.amount", "-1"),
        ("public.mood", '"glad"'),
        ("date", '"2026-02-30"'),
        ("uuid", '"x"'),
        ("public.place", '{"no": "x"}'),
        ("integer[]", '[{"a": 1}]'),
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_value_that_does_not_fit_is_refused_not_cut(
    stack: Stack, kinds: Api, lease: dict[str, str], kind: str, sent: str, rows: int
) -> None:
    column = Kind(kind, []).column
    body = ", ".join(f'{{"id": "bad-{i}", "{column}": {sent}}}' for i in range(rows))
    answer = kinds.post("/v1/tables/kinds", raw=f"[{body}]".encode(), headers={"Fencing-Lease": lease["lease_id"]})
    assert answer.status in (409, 422), answer
    assert stack.query("select from kinds") == []


@pytest.mark.parametrize("added, total", [("-2.50", "10.00"), ('"-2.50"', "10.00"), ("0", "12.50")])
def test_sum_in_domain_column_is_checked_as_sum(kinds: Api, lease: dict[str, str], added: str, total: str) -> None:
    """The added value need not be a value of the domain."""
    send(kinds, lease, "POST", "/v1/tables/kinds", '{"id": "sum", "public_amount": 12.50}')
    add = f'{{"operations": [{{"update": "kinds", "where": {{"id": "sum"}}, "add": {{"public_amount": {added}}}}}]}}'
    send(kinds, lease, "POST", "/v1/writes", add)
    assert raw_value(kinds, "public_amount", "sum") == total
    refused = kinds.post(
        "/v1/writes", raw=add.replace(added, "-100").encode(), headers={"Fencing-Lease": lease["lease_id"]}
    )
    assert refused.status == 409 and refused.json()["constraint"] == "amount_check"
