"""Wrong bodies of POST /v1/writes, and unknown names in them."""

from __future__ import annotations

from typing import Any

import pytest
from support.api import Api, expect_problem, pointers_of
from support.shop import Sample, Sku
from support.stack import Stack

INJECTIONS = ["stock = 0 --", 'stock" = 0; drop table inventory; --', "stock; delete from orders", "stock'", "stock)", "inventory.stock", "public.inventory",
              "a/b", "a~b", "*", "STOCK", "ctid", "xmin", "tableoid", "st\u00f6ck", "x" * 70]


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


@pytest.mark.parametrize("name", INJECTIONS, ids=range(len(INJECTIONS)))
def test_column_unknown_422_pointing_at_it(api: Api, sku: Sku, name: str) -> None:
    lease = api.must_acquire(sku.resource)
    condition = {"sku": sku.name}
    for operation, pointer in [
        ({"update": "inventory", "where": condition, "set": {name: 0}}, f"/operations/0/set/{escaped(name)}"),
        ({"update": "inventory", "where": condition, "add": {name: 1}}, f"/operations/0/add/{escaped(name)}"),
        ({"update": "inventory", "where": {**condition, name: 0}, "set": {"stock": 0}}, f"/operations/0/where/{escaped(name)}"),
        ({"delete": "inventory", "where": {name: {"gte": 0}}}, f"/operations/0/where/{escaped(name)}"),
        ({"insert": "inventory", "values": {"sku": "x", name: 0}}, f"/operations/0/values/{escaped(name)}"),
    ]:
        (found,) = pointers_of(api.write(lease, operation), 422, "unprocessable")
        assert found == pointer or found == f"{pointer}/gte", (operation, found)
    assert sku.row() == {"stock": 10, "note": None}


@pytest.mark.parametrize("operation, pointer", [
    ({"update": "inventory", "where": {"sku": "x"}, "set": {"nul\u0000": 1}}, "/operations/0/set/nul\u0000"),
    ({"update": "inventory", "where": {"sku": "nul\u0000"}, "set": {"note": "x"}}, "/operations/0/where/sku"),
    ({"update": "inventory", "where": {"sku": "x"}, "set": {"note": "nul\u0000"}}, "/operations/0/set/note"),
    ({"insert": "nul\u0000", "values": {"sku": "x"}}, "/operations/0/insert"),
    ({"call": "nul\u0000", "args": {}}, "/operations/0/call"),
])
def test_text_with_u0000_400_pointing_at_it(api: Api, sku: Sku, operation: Any, pointer: str) -> None:
    """PostgreSQL has no character U+0000: the gateway refuses it instead of truncating the text."""
    assert pointers_of(api.write(api.must_acquire(sku.resource), operation)) == [pointer]


@pytest.mark.parametrize("name", ["nope", "pg_class", "guard", "fencing.guard", "public.inventory", "hidden_samples", "Inventory", "place_order", "shop_check",
                                  'inventory"; drop table inventory; --', "inventory where 1=1 --", "pg_catalog.pg_authid"])
def test_table_not_exposed_422_pointing_at_it(api: Api, sample: Sample, sku: Sku, name: str) -> None:
    lease = api.must_acquire(sku.resource)
    for verb, rest in (("update", {"where": {"sku": sku.name}, "set": {"note": "x"}}), ("delete", {"where": {"sku": sku.name}}),
                       ("insert", {"values": {"sku": "x"}})):
        assert pointers_of(api.write(lease, {verb: name, **rest}), 422, "unprocessable") == [f"/operations/0/{verb}"]
    assert sku.stock() == 10


@pytest.mark.parametrize("name", ["nope", "pg_sleep", "pg_read_file", "fencing.enter", "enter", "inventory", "shop_stock", "place_order(1", "now()"])
def test_function_not_exposed_422_pointing_at_it(api: Api, sku: Sku, name: str) -> None:
    assert pointers_of(api.write(api.must_acquire(sku.resource), {"call": name, "args": {}}), 422, "unprocessable") == ["/operations/0/call"]


def test_argument_unknown_or_missing_422(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    unknown = {"call": "sample_double", "args": {"id": sample.name, "nope": 1}}
    assert pointers_of(api.write(lease, unknown), 422, "unprocessable") == ["/operations/0/args/nope"]
    (pointer,) = pointers_of(api.write(lease, {"call": "sample_double", "args": {"times": 3}}), 422, "unprocessable")
    assert pointer in ("/operations/0/args", "/operations/0/args/id")
    assert sample.value("small") == 5


def test_operation_not_exposed_422(stack: Stack, api: Api, resource: str) -> None:
    """order_events is exposed for reading only."""
    (pointer,) = pointers_of(api.write(api.must_acquire(resource), {"delete": "order_events", "where": {"order_id": 1}}), 422, "unprocessable")
    assert pointer == "/operations/0/delete"


@pytest.mark.parametrize("operation", [
    {"update": "inventory", "set": {"stock": 0}},
    {"update": "inventory", "where": {}, "set": {"stock": 0}},
    {"delete": "inventory"},
    {"delete": "inventory", "where": {}},
], ids=["update", "update-empty", "delete", "delete-empty"])
def test_where_missing_or_empty_400_pointing_at_it(api: Api, sku: Sku, operation: dict[str, Any]) -> None:
    assert pointers_of(api.write(api.must_acquire(sku.resource), operation)) == ["/operations/0/where"]
    assert sku.stock() == 10


@pytest.mark.parametrize("operation, pointer", [
    ({"update": "inventory", "where": {"sku": "x"}}, "/operations/0"),
    ({"update": "inventory", "where": {"sku": "x"}, "set": {}}, "/operations/0"),
    ({"update": "inventory", "where": {"sku": "x"}, "set": {"stock": 1}, "add": {"stock": 1}}, "/operations/0/"),
    ({"update": 5, "where": {"sku": "x"}, "set": {"stock": 1}}, "/operations/0/update"),
    ({"update": "inventory", "where": [], "set": {"stock": 1}}, "/operations/0/where"),
    ({"update": "inventory", "where": "sku = 1", "set": {"stock": 1}}, "/operations/0/where"),
    ({"update": "inventory", "where": {"stock": {"like": 1}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"stock": {"gte": 1, "; drop": 2}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"stock": {"in": 5}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"stock": {"in": []}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"stock": {"is": 5}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"stock": {}}, "set": {"stock": 1}}, "/operations/0/where/stock"),
    ({"update": "inventory", "where": {"sku": "x"}, "set": [1]}, "/operations/0/set"),
    ({"update": "inventory", "where": {"sku": "x"}, "add": "1"}, "/operations/0/add"),
    ({"update": "inventory", "where": {"sku": "x"}, "add": {"stock": 1}, "expect_rows": -1}, "/operations/0/expect_rows"),
    ({"update": "inventory", "where": {"sku": "x"}, "add": {"stock": 1}, "expect_rows": "1"}, "/operations/0/expect_rows"),
    ({"insert": "inventory", "values": 5}, "/operations/0/values"),
    ({"call": "place_order", "args": [1]}, "/operations/0/args"),
    ({"call": ["place_order"]}, "/operations/0/call"),
    ({"update": "inventory", "delete": "inventory", "where": {"sku": "x"}, "set": {"stock": 1}}, "/operations/0"),
    ({"truncate": "inventory"}, "/operations/0"),
    ({"select": "inventory"}, "/operations/0"),
    ({}, "/operations/0"),
    (5, "/operations/0"),
    (None, "/operations/0"),
])
def test_operation_malformed_400_pointing_into_it(api: Api, sku: Sku, operation: Any, pointer: str) -> None:
    answer = api.write(api.must_acquire(sku.resource), operation)
    found = pointers_of(answer)
    assert found and all(each == pointer or each.startswith(pointer.rstrip("/") + "/") for each in found), answer
    assert sku.stock() == 10


@pytest.mark.parametrize("operation, pointer", [
    ({"update": "inventory", "where": {"sku": "x"}, "set": {"": 1}}, "/operations/0/set/"),
    ({"insert": "inventory", "values": {"": 1}}, "/operations/0/values/"),
    ({"delete": "inventory", "where": {"": 1}}, "/operations/0/where/"),
    ({"insert": "", "values": {}}, "/operations/0/insert"),
    ({"call": "", "args": {}}, "/operations/0/call"),
])
def test_name_empty_is_refused_pointing_at_it(api: Api, sku: Sku, operation: Any, pointer: str) -> None:
    """An empty name may be reported as malformed or as unknown."""
    answer = api.write(api.must_acquire(sku.resource), operation)
    assert answer.status in (400, 422), answer
    assert pointers_of(answer, answer.status, {400: "invalid-request", 422: "unprocessable"}[answer.status]) == [pointer]


def test_fault_in_later_operation_has_its_index(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    assert pointers_of(api.write(lease, sku.sell(), sku.sell(), {"delete": "inventory"})) == ["/operations/2/where"]
    assert pointers_of(api.write(lease, sku.sell(), {"insert": "nope", "values": {}}), 422, "unprocessable") == ["/operations/1/insert"]
    assert sku.stock() == 10


@pytest.mark.parametrize("operations", [[], None, {}, "x", 5])
def test_operations_empty_or_not_a_list_400(api: Api, sku: Sku, operations: Any) -> None:
    lease = api.must_acquire(sku.resource)
    assert pointers_of(api.call("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": operations})) == ["/operations"]


def test_operations_absent_400(api: Api, sku: Sku) -> None:
    assert pointers_of(api.call("POST", "/v1/writes", {"lease_id": api.must_acquire(sku.resource)["lease_id"]})) == ["/operations"]


def test_operations_too_many_400_and_none_is_done(api: Api, sku: Sku) -> None:
    assert pointers_of(api.write(api.must_acquire(sku.resource), *[sku.sell(0)] * 1_000)) == ["/operations"]


@pytest.mark.parametrize("wanted", ["everything", 5, True, None])
def test_return_unknown_400(api: Api, sku: Sku, wanted: Any) -> None:
    assert pointers_of(api.write(api.must_acquire(sku.resource), sku.sell(), **{"return": wanted})) == ["/return"]
    assert sku.stock() == 10


@pytest.mark.parametrize("lease_id", [5, None, {}, ["a"]])
def test_lease_id_not_a_string_400(api: Api, sku: Sku, lease_id: Any) -> None:
    answer = api.call("POST", "/v1/writes", {"lease_id": lease_id, "operations": [sku.sell()]})
    assert pointers_of(answer) == ["/lease_id"]
    assert ("leave the field out" in answer.json()["detail"]) == (lease_id is None), answer
    assert sku.stock() == 10


@pytest.mark.parametrize("lease_id", ["null", "None", "undefined"])
def test_lease_id_of_a_refusal_403_says_so(api: Api, sku: Sku, lease_id: str) -> None:
    """What programs make of the member that an answer does not have."""
    answer = api.call("POST", "/v1/writes", {"lease_id": lease_id, "operations": [sku.sell()]})
    assert "Send the lease_id of the answer that granted the lease" in expect_problem(answer, 403, "lease-not-authentic")["detail"]


def test_add_to_text_column_422_names_it(api: Api, sku: Sku) -> None:
    answer = api.write(api.must_acquire(sku.resource), {"update": "inventory", "where": {"sku": sku.name}, "add": {"note": "x"}})
    assert pointers_of(answer, 422, "unprocessable") == ["/operations/0/add/note"]
    assert "of type text; use `set`" in answer.json()["errors"][0]["detail"], answer


def test_tables_survive_all_malformed_requests(stack: Stack, api: Api) -> None:
    assert stack.query("select to_regclass('inventory') is not null and to_regclass('orders') is not null") == [(True,)]
