"""Faulty bodies of POST /v1/writes, one of each kind;
tests/unit/api_requests_test.cpp and pg_write_sql_test.cpp have the others."""

from __future__ import annotations

from typing import Any

import pytest
from support.api import Api, expect_problem, pointers_of
from support.shop import Sample, Sku


@pytest.mark.parametrize(
    "name, escaped",
    [('stock" = 0; drop table inventory; --',) * 2, ("a/b~", "a~1b~0"), ("STOCK",) * 2, ("ctid",) * 2],
    ids=["sql", "pointer", "case", "system"],
)
def test_column_unknown_422_pointing_at_it(api: Api, sku: Sku, name: str, escaped: str) -> None:
    lease = api.must_acquire(sku.resource)
    condition = {"sku": sku.name}
    for operation, pointer in [
        ({"update": "inventory", "where": condition, "set": {name: 0}}, "set/"),
        ({"update": "inventory", "where": condition, "add": {name: 1}}, "add/"),
        ({"update": "inventory", "where": {**condition, name: 0}, "set": {"stock": 0}}, "where/"),
        ({"delete": "inventory", "where": {name: {"gte": 0}}}, "where/"),
        ({"insert": "inventory", "values": {"sku": "x", name: 0}}, "values/"),
    ]:
        expected = f"/operations/0/{pointer}{escaped}" + ("/gte" if "delete" in operation else "")
        assert pointers_of(api.write(lease, operation), 422, "unprocessable") == [expected]
    assert sku.row() == {"stock": 10, "note": None}


def test_table_or_function_not_exposed_422_pointing_at_it(api: Api, sample: Sample, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    for name in ("pg_class", "guard", "hidden_samples", "place_order", 'inventory"; drop table inventory; --'):
        for verb, rest in (
            ("update", {"where": {"sku": sku.name}, "set": {"note": "x"}}),
            ("delete", {"where": {"sku": sku.name}}),
            ("insert", {"values": {"sku": "x"}}),
        ):
            assert pointers_of(api.write(lease, {verb: name, **rest}), 422, "unprocessable") == [
                f"/operations/0/{verb}"
            ]
    for name in ("pg_sleep", "fencing.enter", "inventory", "now()"):
        assert pointers_of(api.write(lease, {"call": name, "args": {}}), 422, "unprocessable") == ["/operations/0/call"]
    read_only = {"delete": "order_events", "where": {"order_id": 1}}
    assert pointers_of(api.write(lease, sku.sell(), read_only), 422, "unprocessable") == ["/operations/1/delete"]
    assert sku.stock() == 10


def test_argument_unknown_or_missing_422(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    unknown = {"call": "sample_double", "args": {"id": sample.name, "nope": 1}}
    assert pointers_of(api.write(lease, unknown), 422, "unprocessable") == ["/operations/0/args/nope"]
    assert pointers_of(api.write(lease, {"call": "sample_double", "args": {"times": 3}}), 422, "unprocessable") == [
        "/operations/0/args"
    ]
    assert sample.value("small") == 5


def test_body_malformed_400_pointing_at_each_fault(api: Api, sku: Sku) -> None:
    """PostgreSQL has no character U+0000: the gateway refuses it instead of truncating the text."""
    lease = api.must_acquire(sku.resource)
    assert pointers_of(api.write(lease, {**sku.sell(), "set": {"note": "nul\u0000"}})) == ["/operations/0/set/note"]
    assert pointers_of(api.write(lease, *[sku.sell(0)] * 65)) == ["/operations"]
    faulty: list[Any] = [
        sku.sell(),
        {"update": "inventory", "where": {"stock": {"in": []}}, "set": [1], "expect_rows": "1"},
        {"delete": "inventory"},
        {"truncate": "inventory"},
    ]
    answer = api.write(lease, *faulty, **{"return": "everything", "require_live": 1, "colour": "red"})
    assert (
        sorted(pointers_of(answer))
        == (
            "/colour /operations/1/expect_rows /operations/1/set /operations/1/where/stock/in "
            "/operations/2/where /operations/3 /require_live /return"
        ).split()
    )
    assert sku.stock() == 10


def test_lease_id_null_400_says_what_to_do(api: Api, sku: Sku) -> None:
    answer = api.post("/v1/writes", {"lease_id": None, "operations": [sku.sell()]})
    assert pointers_of(answer) == ["/lease_id"] and "leave the field out" in answer.json()["detail"], answer


@pytest.mark.parametrize("lease_id", ["null", "None", "undefined"])
def test_lease_id_of_a_refusal_403_says_so(api: Api, sku: Sku, lease_id: str) -> None:
    """What programs make of the member that an answer does not have."""
    answer = api.post("/v1/writes", {"lease_id": lease_id, "operations": [sku.sell()]})
    assert (
        "Send the lease_id of the answer that granted the lease"
        in expect_problem(answer, 403, "lease-not-authentic")["detail"]
    )
