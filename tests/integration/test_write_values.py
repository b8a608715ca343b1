"""Values from JSON to PostgreSQL and back: exact to the last digit, and never interpreted as SQL."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from support.api import Api, pointers_of
from support.shop import Sample

NASTY = [
    "'; drop table samples; --",
    "' or '1'='1",
    '"; select 1; --',
    "$1",
    "$$x$$",
    "\\'; --",
    "\\",
    "'",
    '"',
    "''",
    "%s %d {}",
    "{a,b}",
    "(1,2)",
    "NULL",
    "null",
    "",
    " ",
    "\n\t\r",
    "a\u0000b".replace("\u0000", "\u0001"),
    "Grüße 日本語 🔑 \u202e",
    "e\u0301",
    "\U0010ffff",
    "x" * 100_000,
]


@pytest.mark.parametrize("number", [0, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_integer_beyond_double_precision_is_exact(api: Api, sample: Sample, number: int) -> None:
    body = api.must_write(api.must_acquire(sample.resource), sample.set(big=number), **{"return": "rows"})
    assert body["results"][0]["rows"][0]["big"] == number
    assert sample.value("big") == number


def test_integer_comparison_beyond_double_precision_is_exact(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    api.must_write(lease, sample.set(big=2**53 + 1))
    for number, rows in ((2**53, 0), (2**53 + 1, 1), (2**53 + 2, 0)):
        operation = {"update": "samples", "where": {"id": sample.name, "big": number}, "set": {"words": "hit"}}
        assert api.must_write(lease, operation)["results"][0]["rows_affected"] == rows


@pytest.mark.parametrize(
    "number", ["1.500", "-9223372036854775809", "1E-7", "12345678901234567890.123456789012345678901234567890"]
)
def test_decimal_beyond_double_precision_keeps_all_digits(api: Api, sample: Sample, number: str) -> None:
    lease = api.must_acquire(sample.resource)
    raw = json.dumps(
        {
            "lease_id": lease["lease_id"],
            "return": "rows",
            "operations": [sample.set(exact="NUMBER", doc={"deep": ["NUMBER"]})],
        }
    )
    answer = api.post("/v1/writes", raw=raw.replace('"NUMBER"', number).encode())
    assert answer.status == 200, answer
    row = answer.json()["results"][0]["rows"][0]
    kept = Decimal(number)
    assert (row["exact"], row["doc"]["deep"][0], sample.value("exact")) == (kept, kept, kept)
    assert Decimal(str(row["exact"])).as_tuple().digits == kept.as_tuple().digits or "E" in number


@pytest.mark.parametrize(
    "operation, pointer",
    [
        ({"update": "samples", "set": {"words": "x", "small": "x"}}, "/set/small"),
        ({"update": "samples", "set": {"small": True}}, "/set/small"),
        ({"update": "samples", "set": {"words": "$1", "day": "2026-02-30"}}, "/set/day"),
        ({"update": "samples", "add": {"big": "x"}}, "/add/big"),
        ({"update": "samples", "set": {"words": "x"}, "where": {"tag": "x"}}, "/where/tag"),
        ({"update": "samples", "set": {"words": "x"}, "where": {"small": {"gt": "x"}}}, "/where/small/gt"),
        ({"update": "samples", "set": {"words": "x"}, "where": {"small": {"in": [1, "x"]}}}, "/where/small/in"),
        ({"insert": "samples", "values": {"id": "a", "at": "soon"}}, "/values/at"),
        ({"delete": "samples", "where": {"id": "a", "flag": "x"}}, "/where/flag"),
        ({"call": "sample_double", "args": {"id": "a", "times": "x"}}, "/args/times"),
    ],
)
def test_value_unreadable_by_postgresql_422_points_at_it(
    api: Api, sample: Sample, operation: dict[str, Any], pointer: str
) -> None:
    first = sample.set(words="never")
    failing = (
        {**operation, "where": {**sample.key_condition, **operation.get("where", {})}}
        if "update" in operation
        else operation
    )
    lease = api.must_acquire(sample.resource)
    assert pointers_of(api.write(lease, failing), 422, "unprocessable") == [f"/operations/0{pointer}"]
    assert pointers_of(api.write(lease, first, failing), 422, "unprocessable") == [f"/operations/1{pointer}"]
    assert sample.value("words") is None


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_text_of_any_content_is_kept_exactly(api: Api, sample: Sample, text: str) -> None:
    lease = api.must_acquire(sample.resource)
    body = api.must_write(lease, sample.set(words=text), **{"return": "rows"})
    assert body["results"][0]["rows"][0]["words"] == text
    assert sample.value("words") == text
    found = api.must_write(
        lease, {"update": "samples", "where": {"words": text, "id": sample.name}, "set": {"flag": True}}
    )
    assert found["results"][0]["rows_affected"] == 1
    other = {
        "update": "samples",
        "where": {"id": sample.name, "words": {"in": [text + "x", "x" + text]}},
        "set": {"flag": False},
    }
    assert api.must_write(lease, other)["results"][0]["rows_affected"] == 0


@pytest.mark.parametrize(
    "column, value",
    [("at", "2026-11-21T10:00:09.894Z"), ("day", "2026-11-21"), ("tag", "0f0e0d0c-0b0a-0908-0706-050403020100")],
)
def test_value_of_time_date_or_uuid_is_accepted_as_text(api: Api, sample: Sample, column: str, value: str) -> None:
    lease = api.must_acquire(sample.resource)
    api.must_write(lease, sample.set(**{column: value}))
    found = api.must_write(
        lease, {"update": "samples", "where": {"id": sample.name, column: value}, "set": {"words": "hit"}}
    )
    assert found["results"][0]["rows_affected"] == 1


def test_column_name_that_needs_quotes_can_be_written(api: Api, sample: Sample) -> None:
    column = 'odd "name" é'
    lease = api.must_acquire(sample.resource)
    body = api.must_write(lease, sample.set(**{column: "kept"}), **{"return": "rows"})
    assert body["results"][0]["rows"][0][column] == "kept"
    assert sample.value(column) == "kept"


def test_call_arguments_of_every_type_are_kept(api: Api, sample: Sample) -> None:
    arguments = {
        "small": -7,
        "big": 2**63 - 1,
        "exact": "0.10",
        "words": 'it\'s "ü"',
        "flag": False,
        "doc": {"k": [None, "v"]},
    }
    (result,) = api.must_write(api.must_acquire(sample.resource), {"call": "sample_echo", "args": arguments})["results"]
    assert result["value"] == {**arguments, "exact": Decimal("0.10")}


def test_number_overflow_422_and_unchanged(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    api.must_write(lease, sample.set(big=2**63 - 1))
    answer = api.write(lease, {"update": "samples", "where": sample.key_condition, "add": {"big": 1}})
    assert answer.status == 422, answer
    assert sample.value("big") == 2**63 - 1
