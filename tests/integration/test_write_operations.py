"""POST /v1/writes: update, insert, delete and call, and their results."""

from __future__ import annotations

import random
import uuid
from typing import Any, Callable

import pytest
from support.api import Api, expect_problem, pointers_of
from support.shop import Sample, Sku, create_sku
from support.stack import Stack


def order_number() -> int:
    return random.randrange(10**9, 10**15)


def test_update_200_has_every_member_of_contract(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    answer = api.write(
        lease,
        {
            "update": "inventory",
            "where": {"sku": sku.name, "stock": {"gte": 3}},
            "add": {"stock": -3},
            "set": {"note": "sold"},
            "expect_rows": 1,
        },
        **{"return": "rows"},
    )
    assert answer.status == 200, answer
    body = answer.json()
    assert set(body) == {"applied", "write_id", "fences", "results"}
    assert body["applied"] is True
    assert str(uuid.UUID(body["write_id"])) == body["write_id"]
    token = lease["fencing_token"]
    assert body["fences"] == [{"resource": sku.resource, "fencing_token": token, "last_fencing_token": token}]
    (result,) = body["results"]
    assert result["rows_affected"] == 1
    (row,) = result["rows"]
    assert (row["sku"], row["stock"], row["note"]) == (sku.name, 7, "sold")
    assert sku.row() == {"stock": 7, "note": "sold"}


def test_rows_not_requested_are_only_counted(api: Api, sku: Sku) -> None:
    body = api.must_write(api.must_acquire(sku.resource), sku.sell(2))
    assert body["results"] == [{"rows_affected": 1}]
    assert sku.stock() == 8


def test_fence_after_write_equals_token(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    api.must_write(lease, sku.sell())
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(lease["fencing_token"],)]


def test_update_without_match_200_and_no_rows(api: Api, sku: Sku) -> None:
    body = api.must_write(
        api.must_acquire(sku.resource),
        {"update": "inventory", "where": {"sku": sku.name, "stock": {"gte": 11}}, "add": {"stock": -11}},
        **{"return": "rows"},
    )
    assert body["results"] == [{"rows_affected": 0, "rows": []}]
    assert sku.stock() == 10


def test_insert_covered_has_row_with_defaults(stack: Stack, api: Api, sku: Sku) -> None:
    number = order_number()
    body = api.must_write(
        api.must_acquire(f"orders/{number}"),
        {"insert": "orders", "values": {"id": number, "sku": sku.name, "quantity": 3}},
        **{"return": "rows"},
    )
    (result,) = body["results"]
    assert result["rows_affected"] == 1
    assert (result["rows"][0]["id"], result["rows"][0]["status"]) == (number, "placed")
    assert stack.query("select sku, quantity, status from orders where id = %s", (number,)) == [(sku.name, 3, "placed")]


def test_delete_covered_returns_row(stack: Stack, api: Api, sku: Sku) -> None:
    body = api.must_write(
        api.must_acquire(sku.resource),
        {"delete": "inventory", "where": {"sku": sku.name}, "expect_rows": 1},
        **{"return": "rows"},
    )
    (result,) = body["results"]
    assert result["rows_affected"] == 1 and result["rows"][0]["sku"] == sku.name
    assert stack.query("select from inventory where sku = %s", (sku.name,)) == []


def test_call_of_exposed_function_returns_value(api: Api, sample: Sample) -> None:
    body = api.must_write(
        api.must_acquire(sample.resource), {"call": "sample_double", "args": {"id": sample.name, "times": 7}}
    )
    assert body["results"] == [{"value": 35}]
    assert sample.value("small") == 35


def test_call_may_omit_argument_with_default(api: Api, sample: Sample) -> None:
    assert api.must_write(api.must_acquire(sample.resource), {"call": "sample_double", "args": {"id": sample.name}})[
        "results"
    ] == [{"value": 10}]


def test_call_returning_rows_returns_all(api: Api, resource: str) -> None:
    (result,) = api.must_write(api.must_acquire(resource), {"call": "shop_check", "args": {}})["results"]
    (row,) = result["value"]
    assert set(row) == {"skus", "sold", "ordered", "below_zero", "mismatched", "holds"}


def test_call_that_touches_uncovered_row_403_and_undone(stack: Stack, api: Api, sku: Sku) -> None:
    """place_order inserts the order before it changes the stock."""
    number = order_number()
    answer = api.write(
        api.must_acquire(sku.resource),
        {"call": "place_order", "args": {"order_id": number, "sku": sku.name, "quantity": 1}},
    )
    assert expect_problem(answer, 403, "resource-not-covered")["resource"] == f"orders/{number}"
    assert stack.query("select from orders where id = %s", (number,)) == []
    assert sku.stock() == 10


@pytest.mark.parametrize(
    "comparison, matches",
    [
        ({"small": 5}, True),
        ({"small": 6}, False),
        ({"small": {"eq": 5}}, True),
        ({"small": {"eq": 4}}, False),
        ({"small": {"neq": 4}}, True),
        ({"small": {"neq": 5}}, False),
        ({"small": {"lt": 6}}, True),
        ({"small": {"lt": 5}}, False),
        ({"small": {"lte": 5}}, True),
        ({"small": {"lte": 4}}, False),
        ({"small": {"gt": 4}}, True),
        ({"small": {"gt": 5}}, False),
        ({"small": {"gte": 5}}, True),
        ({"small": {"gte": 6}}, False),
        ({"small": {"gt": 1, "lt": 9}}, True),
        ({"small": {"gt": 5, "lt": 9}}, False),
        ({"small": {"in": [1, 5, 9]}}, True),
        ({"small": {"in": [1, 9]}}, False),
        ({"words": {"in": ["a", "it's", "c,d", 'e"f', "{g}"]}}, True),
        ({"words": {"in": ["its"]}}, False),
        ({"big": {"is": None}}, True),
        ({"small": {"is": None}}, False),
        ({"flag": {"is": True}}, True),
        ({"flag": {"is": False}}, False),
        ({"flag": True}, True),
        ({"flag": False}, False),
        ({"words": "it's"}, True),
        ({"words": {"gt": "a"}}, True),
        ({"small": 5, "words": "it's"}, True),
        ({"small": 5, "words": "other"}, False),
        ({"exact": {"gte": 0.1, "lte": 0.1}}, True),
    ],
)
def test_where_operators_compare_as_documented(
    api: Api, sample: Sample, comparison: dict[str, Any], matches: bool
) -> None:
    lease = api.must_acquire(sample.resource)
    api.must_write(lease, sample.set(words="it's", flag=True, exact="0.1"))
    body = api.must_write(
        lease, {"update": "samples", "where": {"id": sample.name, **comparison}, "set": {"words": "found"}}
    )
    assert body["results"][0]["rows_affected"] == int(matches)
    assert sample.value("words") == ("found" if matches else "it's")


def test_add_to_null_stays_null(api: Api, sample: Sample) -> None:
    api.must_write(
        api.must_acquire(sample.resource), {"update": "samples", "where": sample.key_condition, "add": {"big": 1}}
    )
    assert sample.value("big") is None


def test_add_to_several_columns_is_computed_in_database(api: Api, sample: Sample) -> None:
    lease = api.must_acquire(sample.resource)
    api.must_write(lease, sample.set(big=2**62, exact="0.1"))
    api.must_write(
        lease,
        {"update": "samples", "where": sample.key_condition, "add": {"big": 2**61, "exact": "0.2", "small": -6}},
    )
    assert sample.value("big") == 2**62 + 2**61
    assert str(sample.value("exact")) == "0.3"
    assert sample.value("small") == -1


@pytest.mark.parametrize("expected", [0, 2, 1000])
def test_expect_rows_of_another_count_409_and_undone(api: Api, sku: Sku, expected: int) -> None:
    answer = api.write(api.must_acquire(sku.resource), {**sku.sell(), "expect_rows": expected})
    expect_problem(answer, 409, "expectation-failed")
    assert sku.stock() == 10


def test_expect_rows_0_with_none_found_200(api: Api, sku: Sku) -> None:
    operation = {"update": "inventory", "where": {"sku": sku.name, "stock": 99}, "set": {"note": "x"}, "expect_rows": 0}
    assert api.must_write(api.must_acquire(sku.resource), operation)["results"][0]["rows_affected"] == 0


def test_delete_with_another_expected_count_keeps_row(api: Api, sku: Sku) -> None:
    expect_problem(
        api.write(
            api.must_acquire(sku.resource), {"delete": "inventory", "where": {"sku": sku.name}, "expect_rows": 2}
        ),
        409,
        "expectation-failed",
    )
    assert sku.stock() == 10


def test_version_in_where_outdated_409(api: Api, sku: Sku) -> None:
    """Optimistic locking as the contract describes it."""
    lease = api.must_acquire(sku.resource)
    sell_seen = {"update": "inventory", "where": {"sku": sku.name, "stock": 10}, "add": {"stock": -1}, "expect_rows": 1}
    api.must_write(lease, sell_seen)
    expect_problem(api.write(lease, sell_seen), 409, "expectation-failed")
    assert sku.stock() == 9


def test_check_constraint_broken_409_with_sqlstate_and_name(stack: Stack, api: Api, sku: Sku) -> None:
    problem = expect_problem(
        api.write(
            api.must_acquire(sku.resource), {"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -11}}
        ),
        409,
        "constraint-violation",
    )
    assert problem["sqlstate"] == "23514"
    assert stack.query(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = %s", (problem["constraint"],)
    ) == [("CHECK ((stock >= 0))",)]
    assert sku.stock() == 10


def test_unique_constraint_broken_409_with_sqlstate_and_name(api: Api, sku: Sku) -> None:
    problem = expect_problem(
        api.write(
            api.must_acquire(sku.resource),
            {"insert": "inventory", "values": {"sku": sku.name, "stock": 1, "initial_stock": 1}},
        ),
        409,
        "constraint-violation",
    )
    assert (problem["sqlstate"], problem["constraint"]) == ("23505", "inventory_pkey")


def test_foreign_key_broken_409_with_sqlstate_and_name(api: Api) -> None:
    number = order_number()
    problem = expect_problem(
        api.write(
            api.must_acquire(f"orders/{number}"),
            {"insert": "orders", "values": {"id": number, "sku": "no-such", "quantity": 1}},
        ),
        409,
        "constraint-violation",
    )
    assert (problem["sqlstate"], problem["constraint"]) == ("23503", "orders_sku_fkey")


def test_not_null_broken_409_with_sqlstate(api: Api, sku: Sku) -> None:
    problem = expect_problem(
        api.write(
            api.must_acquire(sku.resource), {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": None}}
        ),
        409,
        "constraint-violation",
    )
    assert problem["sqlstate"] == "23502" and 'column "stock"' in problem["detail"]
    assert [error["pointer"] for error in problem["errors"]] == ["/operations/0/set/stock"]
    assert sku.stock() == 10


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_retryable_conflict_409_write_conflict(api: Api, samples_table: None, resource: str, code: str) -> None:
    expect_problem(
        api.write(api.must_acquire(resource), {"call": "sample_fail", "args": {"code": code}}), 409, "write-conflict"
    )


@pytest.mark.parametrize("code", ["XX000", "P0001", "F0000", "25000"])
def test_call_refused_by_function_422_with_its_message(api: Api, samples_table: None, resource: str, code: str) -> None:
    answer = api.write(api.must_acquire(resource), {"call": "sample_fail", "args": {"code": code}})
    assert pointers_of(answer, 422, "unprocessable") == ["/operations/0"]
    assert (answer.json()["sqlstate"], answer.json()["detail"]) == (code, "as asked")


def test_operations_return_results_in_order(api: Api, sample: Sample) -> None:
    body = api.must_write(
        api.must_acquire(sample.resource),
        sample.set(words="one"),
        {"call": "sample_double", "args": {"id": sample.name}},
        {"delete": "samples", "where": sample.key_condition},
        sample.insert(words="again"),
        **{"return": "rows"},
    )
    updated, called, deleted, inserted = body["results"]
    assert updated["rows"][0]["words"] == "one" and updated["rows"][0]["small"] == 5
    assert called == {"value": 10}
    assert deleted["rows"][0]["small"] == 10
    assert inserted["rows"][0]["words"] == "again"
    assert (sample.value("words"), sample.value("small")) == ("again", 5)


@pytest.mark.parametrize(
    "last, status, slug",
    [
        (
            {"update": "samples", "where": {"small": 6}, "set": {"words": "x"}, "expect_rows": 1},
            409,
            "expectation-failed",
        ),
        ({"call": "sample_fail", "args": {"code": "23514"}}, 409, "constraint-violation"),
        ({"insert": "samples", "values": {"id": "uncovered"}}, 403, "resource-not-covered"),
        ({"update": "samples", "where": {"nope": 1}, "set": {"words": "x"}}, 422, "unprocessable"),
        ({"update": "samples", "where": {"small": "six"}, "set": {"words": "x"}}, 422, "unprocessable"),
        ({"call": "sample_fail", "args": {"code": "22012"}}, 422, "unprocessable"),
    ],
    ids=["expectation", "constraint", "uncovered", "column", "type", "data"],
)
def test_operations_with_last_failing_are_all_undone(
    api: Api, sample: Sample, last: dict[str, Any], status: int, slug: str
) -> None:
    lease = api.must_acquire(sample.resource)
    expect_problem(api.write(lease, sample.set(small=77, words="never"), sample.set(big=1), last), status, slug)
    assert (sample.value("small"), sample.value("words"), sample.value("big")) == (5, None, None)
    api.must_write(lease, sample.set(small=6))  # the lease is still usable


def test_operations_50_run_in_one_call(api: Api, sample: Sample) -> None:
    body = api.must_write(
        api.must_acquire(sample.resource),
        *[{"update": "samples", "where": sample.key_condition, "add": {"small": 1}}] * 50,
    )
    assert [result["rows_affected"] for result in body["results"]] == [1] * 50
    assert sample.value("small") == 55


def test_writes_under_one_lease_all_pass(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    with api.connection() as connection:
        for _ in range(10):
            answer = connection.post("/v1/writes", {"lease_id": lease["lease_id"], "operations": [sku.sell()]})
            assert answer.status == 200, answer
    assert sku.stock() == 0


def test_stock_sold_by_many_is_never_exceeded(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    few = create_sku(stack, unique_name("few"), 7)
    lease = api.must_acquire(few.resource)
    calls = [
        api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [few.sell()]}) for _ in range(20)
    ]
    statuses = sorted(call.answer().status for call in calls)
    assert statuses == [200] * 7 + [409] * 13
    assert few.stock() == 0
