"""The guard: a write with a stale token, without a lease or outside its lease is never applied."""

from __future__ import annotations

from typing import Any, Callable

import psycopg2
import psycopg2.errorcodes
import pytest
from support.api import Api, expect_problem
from support.polling import eventually
from support.shop import Sku, create_sku
from support.stack import Stack


def acquire_after(api: Api, lease: dict[str, Any]) -> dict[str, Any]:
    """Returns the next holder's lease, once the given one has expired."""
    return api.must_acquire(lease["resource"], wait_ms=lease["ttl_ms"] + 2_000)


def test_stale_write_after_newer_write_412_and_nothing_changed(stack: Stack, api: Api, sku: Sku) -> None:
    """A pauses until its lease has expired, B acquires it and sells three, A continues."""
    a = api.must_acquire(sku.resource, ttl_ms=300, owner="a")
    b = acquire_after(api, a)
    api.must_write(b, sku.sell(3))
    problem = expect_problem(api.write(a, sku.sell(10)), 412, "stale-fencing-token")
    assert problem["resource"] == sku.resource
    assert problem["fencing_token"] == a["fencing_token"]
    assert problem["last_fencing_token"] == b["fencing_token"]
    assert a["fencing_token"] < b["fencing_token"]
    assert sku.stock() == 7
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(b["fencing_token"],)]
    api.must_write(b, sku.sell())
    assert sku.stock() == 6


def test_stale_write_refused_is_in_history(api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=300, owner="a-who-paused")
    b = acquire_after(api, a)
    api.must_write(b, sku.sell())
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    (item,) = eventually(
        lambda: api.history(resource=sku.resource, event="write_rejected"), goal="the refusal is in the history"
    )
    assert (item["fencing_token"], item["last_fencing_token"]) == (a["fencing_token"], b["fencing_token"])
    assert (item["owner"], item["principal"], item["resource"]) == ("a-who-paused", "dev", sku.resource)


def test_stale_write_repeated_412_each_time(api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=200)
    b = acquire_after(api, a)
    api.must_write(b, sku.sell())
    for _ in range(10):
        expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 9
    eventually(
        lambda: len(api.history(resource=sku.resource, event="write_rejected")) == 10,
        goal="each refusal is in the history",
    )


def test_stale_write_that_would_fail_anyway_still_412(api: Api, sku: Sku) -> None:
    """The guard is checked first: the answer does not depend on rows that the caller may not change."""
    a = api.must_acquire(sku.resource, ttl_ms=200)
    b = acquire_after(api, a)
    api.must_write(b, sku.sell())
    expect_problem(api.write(a, sku.sell(11)), 412, "stale-fencing-token")


def test_stale_write_after_newer_lease_released_still_412(api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=200)
    b = acquire_after(api, a)
    api.must_write(b, sku.sell())
    api.must_release(b)
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 9


def test_stale_write_after_fence_raised_by_direct_sql_412(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    stack.query("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"] + 1))
    problem = expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == lease["fencing_token"] + 1
    assert sku.stock() == 10


def test_stale_and_current_writes_at_once_get_own_answers(
    stack: Stack, api: Api, unique_name: Callable[[str], str]
) -> None:
    goods = [create_sku(stack, unique_name("mixed"), 100) for _ in range(6)]
    old = [api.must_acquire(item.resource, ttl_ms=300) for item in goods]
    new = [acquire_after(api, lease) for lease in old]
    for lease, item in zip(new, goods):
        api.must_write(lease, item.sell())
    calls = [
        (kind, api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [item.sell()]}))
        for _ in range(5)
        for item, pair in zip(goods, zip(old, new))
        for kind, lease in zip((412, 200), pair)
    ]
    assert [(kind, call.answer().status) for kind, call in calls] == [(kind, kind) for kind, _ in calls]
    assert [item.stock() for item in goods] == [94] * 6


def test_write_without_lease_428_and_nothing_changed(api: Api, sku: Sku) -> None:
    expect_problem(api.post("/v1/writes", {"operations": [sku.sell()]}), 428, "fencing-required")
    assert sku.stock() == 10


@pytest.mark.parametrize(
    "operation",
    [
        {"update": "inventory", "add": {"stock": -1}},
        {"update": "inventory", "set": {"note": "mine"}},
        {"delete": "inventory"},
    ],
    ids=["add", "set", "delete"],
)
def test_row_outside_lease_403_and_nothing_changed(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str], operation: dict[str, Any]
) -> None:
    other_sku = create_sku(stack, unique_name("other"))
    answer = api.write(api.must_acquire(other_sku.resource), {**operation, "where": {"sku": sku.name}})
    assert expect_problem(answer, 403, "resource-not-covered")["resource"] == sku.resource
    assert sku.row() == {"stock": 10, "note": None}


def test_insert_outside_lease_403(stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]) -> None:
    name = unique_name("new")
    answer = api.write(
        api.must_acquire(sku.resource), {"insert": "inventory", "values": {"sku": name, "stock": 1, "initial_stock": 1}}
    )
    assert expect_problem(answer, 403, "resource-not-covered")["resource"] == f"inventory/{name}"
    assert stack.query("select from inventory where sku = %s", (name,)) == []


def test_rows_partly_covered_403_and_none_is_changed(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    other_sku = create_sku(stack, unique_name("other"))
    operation = {"update": "inventory", "where": {"sku": {"in": [sku.name, other_sku.name]}}, "add": {"stock": -1}}
    expect_problem(api.write(api.must_acquire(sku.resource), operation), 403, "resource-not-covered")
    assert (sku.stock(), other_sku.stock()) == (10, 10)


def test_row_moved_to_another_resource_403_and_stays(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    moved = unique_name("moved")
    for resource in (sku.resource, f"inventory/{moved}"):
        answer = api.write(
            api.must_acquire(resource), {"update": "inventory", "where": {"sku": sku.name}, "set": {"sku": moved}}
        )
        expect_problem(answer, 403, "resource-not-covered")
    assert sku.stock() == 10
    assert stack.query("select from inventory where sku = %s", (moved,)) == []


def test_covered_writes_do_not_admit_uncovered_ones(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    """Writes that share a transaction must not be admitted to each other's resources."""
    goods = [create_sku(stack, unique_name("beside"), 100) for _ in range(6)]
    leases = [api.must_acquire(item.resource) for item in goods]
    calls = []
    for _ in range(6):
        for position, lease in enumerate(leases):
            own, other_sku = goods[position], goods[(position + 1) % len(goods)]
            for wanted, item in ((200, own), (403, other_sku)):
                calls.append(
                    (
                        wanted,
                        api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [item.sell()]}),
                    )
                )
    assert [call.answer().status for _, call in calls] == [wanted for wanted, _ in calls]
    assert [item.stock() for item in goods] == [94] * 6


def test_write_under_ended_lease_passes_without_newer_token(api: Api, sku: Sku) -> None:
    """As documented, the fence refuses older tokens only:
    a holder whose lease has ended may still have the newest one."""
    lease = api.must_acquire(sku.resource, ttl_ms=200)
    eventually(lambda: api.read_lease(lease).status == 410, 2, goal="the lease runs out")
    api.must_write(lease, sku.sell())
    assert sku.stock() == 9


def test_require_live_with_valid_lease_writes(api: Api, sku: Sku) -> None:
    api.must_write(api.must_acquire(sku.resource), sku.sell(), require_live=True)
    assert sku.stock() == 9


@pytest.mark.parametrize("end", ["expiry", "release"])
def test_require_live_with_ended_lease_410_nothing_changed(api: Api, sku: Sku, end: str) -> None:
    lease = api.must_acquire(sku.resource, ttl_ms=200 if end == "expiry" else 20_000)
    if end == "release":
        api.must_release(lease)
    eventually(lambda: api.read_lease(lease).status == 410, 2, goal="the lease has ended")
    expect_problem(api.write(lease, sku.sell(), require_live=True), 410, "lease-lost")
    assert sku.stock() == 10


def test_fence_on_grant_refuses_older_tokens_before_first_write(stack: Stack, api: Api, sku: Sku) -> None:
    old = api.must_acquire(sku.resource, ttl_ms=200)
    new = api.must_acquire(sku.resource, wait_ms=2_000, fence_on_grant=True)
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(new["fencing_token"],)]
    expect_problem(api.write(old, sku.sell()), 412, "stale-fencing-token")
    eventually(
        lambda: [
            item
            for item in api.history(resource=sku.resource, event="fence_raised")
            if item["last_fencing_token"] == new["fencing_token"]
        ],
        goal="fence_raised is in the history",
    )
    api.must_write(new, sku.sell())
    assert sku.stock() == 9


def test_grant_without_fence_on_grant_leaves_fence(stack: Stack, api: Api, sku: Sku) -> None:
    (before,) = stack.query("select fencing.fence(%s)", (sku.resource,))
    api.must_release(api.must_acquire(sku.resource))
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [before]


def test_lease_in_header_equals_lease_in_body(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    answer = api.post("/v1/writes", {"operations": [sku.sell()]}, {"Fencing-Lease": lease["lease_id"]})
    assert answer.status == 200, answer
    assert sku.stock() == 9


# Direct SQL


@pytest.mark.parametrize(
    "statement",
    [
        "update inventory set stock = stock - 1 where sku = %(sku)s",
        "delete from inventory where sku = %(sku)s",
        "insert into inventory (sku, stock, initial_stock) values (%(sku)s || '-2', 1, 1)",
        (
            "insert into inventory (sku, stock, initial_stock) values (%(sku)s, 1, 1) "
            "on conflict (sku) do update set stock = 0"
        ),
        "with gone as (delete from inventory where sku = %(sku)s returning *) select * from gone",
        (
            "merge into inventory i using (values (%(sku)s)) v (sku) "
            "on i.sku = v.sku when matched then update set stock = 0"
        ),
    ],
    ids=["update", "delete", "insert", "upsert", "with", "merge"],
)
def test_direct_sql_without_enter_fg428_and_recorded(stack: Stack, api: Api, sku: Sku, statement: str) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        stack.query(statement, {"sku": sku.name})  # type: ignore[arg-type]
    assert refused.value.pgcode == "FG428"
    assert sku.stock() == 10
    recorded = [
        item
        for item in eventually(
            lambda: api.history(resource_prefix=sku.resource, event="write_rejected"), goal="it is in the history"
        )
    ]
    assert len(recorded) == 1
    assert recorded[0]["principal"] == stack.facts["postgres"]["superuser"]


def test_direct_sql_with_stale_token_fg412_and_recorded(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    api.must_write(lease, sku.sell())
    with pytest.raises(psycopg2.Error) as refused:
        stack.query("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"] - 1))
    assert refused.value.pgcode == "FG412"
    (item,) = eventually(
        lambda: api.history(resource=sku.resource, event="write_rejected"), goal="it is in the history"
    )
    assert (item["fencing_token"], item["last_fencing_token"]) == (lease["fencing_token"] - 1, lease["fencing_token"])


def test_direct_sql_that_entered_another_resource_fg403(stack: Stack, sku: Sku, api: Api) -> None:
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as refused:
        cursor.execute("select fencing.enter('inventory/another', 1)")
        cursor.execute("update inventory set stock = 0 where sku = %s", (sku.name,))
    connection.close()
    assert refused.value.pgcode == "FG403"
    assert sku.stock() == 10


def test_direct_sql_that_entered_with_lease_may_write(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"]))
        cursor.execute("update inventory set stock = stock - 4 where sku = %s", (sku.name,))
    connection.commit()
    connection.close()
    assert sku.stock() == 6


def test_truncate_is_refused(stack: Stack, api: Api, sku: Sku) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        stack.query("truncate inventory cascade")
    assert refused.value.pgcode.startswith("FG")
    assert sku.stock() == 10
