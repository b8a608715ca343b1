"""The reason for it all: a write with an old token, with no lease, or beyond its lease does not land, whatever else went wrong."""

from __future__ import annotations

from typing import Any, Callable

import psycopg2
import psycopg2.errorcodes
import pytest
from support.api import Api, expect_problem
from support.polling import eventually
from support.shop import Sku, stock_up
from support.stack import Stack


def take_after(api: Api, lease: dict[str, Any]) -> dict[str, Any]:
    """The next holder's lease, once the given one has run out."""
    return api.take(lease["resource"], wait_ms=lease["ttl_ms"] + 2_000)


def test_stale_write_when_the_next_holder_has_written_then_412_and_nothing_changed(stack: Stack, api: Api, sku: Sku) -> None:
    """The story: A pauses past its lease, B sells three, A wakes."""
    a = api.take(sku.resource, ttl_ms=300, owner="a")
    b = take_after(api, a)
    api.wrote(b, sku.sell(3))
    problem = expect_problem(api.write(a, sku.sell(10)), 412, "stale-fencing-token")
    assert problem["resource"] == sku.resource
    assert problem["fencing_token"] == a["fencing_token"]
    assert problem["last_fencing_token"] == b["fencing_token"]
    assert a["fencing_token"] < b["fencing_token"]
    assert sku.stock() == 7
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(b["fencing_token"],)]
    api.wrote(b, sku.sell())
    assert sku.stock() == 6


def test_stale_write_when_refused_then_the_history_says_so(api: Api, sku: Sku) -> None:
    a = api.take(sku.resource, ttl_ms=300, owner="a-who-paused")
    b = take_after(api, a)
    api.wrote(b, sku.sell())
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    (item,) = eventually(lambda: api.history(resource=sku.resource, event="write_rejected"), what="the refusal is in the history")
    assert (item["fencing_token"], item["last_fencing_token"]) == (a["fencing_token"], b["fencing_token"])
    assert (item["owner"], item["principal"], item["resource"]) == ("a-who-paused", "dev", sku.resource)


def test_stale_write_when_repeated_then_412_each_time(api: Api, sku: Sku) -> None:
    a = api.take(sku.resource, ttl_ms=200)
    b = take_after(api, a)
    api.wrote(b, sku.sell())
    for _ in range(10):
        expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 9
    eventually(lambda: len(api.history(resource=sku.resource, event="write_rejected")) == 10, what="each refusal is in the history")


def test_stale_write_when_it_would_have_failed_anyway_then_still_412(api: Api, sku: Sku) -> None:
    """The guard speaks first: what the caller hears does not hang on the state that it must not touch."""
    a = api.take(sku.resource, ttl_ms=200)
    b = take_after(api, a)
    api.wrote(b, sku.sell())
    expect_problem(api.write(a, sku.sell(11)), 412, "stale-fencing-token")


def test_stale_write_when_the_new_lease_was_released_then_still_412(api: Api, sku: Sku) -> None:
    a = api.take(sku.resource, ttl_ms=200)
    b = take_after(api, a)
    api.wrote(b, sku.sell())
    api.give_back(b)
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 9


def test_stale_write_when_the_fence_was_raised_by_direct_sql_then_412(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    stack.query("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"] + 1))
    problem = expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == lease["fencing_token"] + 1
    assert sku.stock() == 10


def test_stale_and_good_writes_when_at_the_same_time_then_each_gets_its_own_answer(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    goods = [stock_up(stack, fresh("mixed"), 100) for _ in range(6)]
    old = [api.take(item.resource, ttl_ms=300) for item in goods]
    new = [take_after(api, lease) for lease in old]
    for lease, item in zip(new, goods):
        api.wrote(lease, item.sell())
    calls = [(kind, api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [item.sell()]}))
             for _ in range(5) for item, pair in zip(goods, zip(old, new)) for kind, lease in zip((412, 200), pair)]
    assert [(kind, call.answer().status) for kind, call in calls] == [(kind, kind) for kind, _ in calls]
    assert [item.stock() for item in goods] == [94] * 6


def test_write_when_no_lease_is_sent_then_428_and_nothing_changed(api: Api, sku: Sku) -> None:
    expect_problem(api.call("POST", "/v1/writes", {"operations": [sku.sell()]}), 428, "fencing-required")
    assert sku.stock() == 10


@pytest.mark.parametrize("operation", [
    {"update": "inventory", "add": {"stock": -1}},
    {"update": "inventory", "set": {"note": "mine"}},
    {"delete": "inventory"},
], ids=["add", "set", "delete"])
def test_row_when_outside_the_lease_then_403_and_nothing_changed(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str],
                                                                 operation: dict[str, Any]) -> None:
    other = stock_up(stack, fresh("other"))
    answer = api.write(api.take(other.resource), {**operation, "where": {"sku": sku.name}})
    assert expect_problem(answer, 403, "resource-not-covered")["resource"] == sku.resource
    assert sku.row() == {"stock": 10, "note": None}


def test_insert_when_outside_the_lease_then_403(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str]) -> None:
    name = fresh("new")
    answer = api.write(api.take(sku.resource), {"insert": "inventory", "values": {"sku": name, "stock": 1, "initial_stock": 1}})
    assert expect_problem(answer, 403, "resource-not-covered")["resource"] == f"inventory/{name}"
    assert stack.query("select from inventory where sku = %s", (name,)) == []


def test_rows_when_only_some_are_covered_then_403_and_none_is_changed(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str]) -> None:
    other = stock_up(stack, fresh("other"))
    operation = {"update": "inventory", "where": {"sku": {"in": [sku.name, other.name]}}, "add": {"stock": -1}}
    expect_problem(api.write(api.take(sku.resource), operation), 403, "resource-not-covered")
    assert (sku.stock(), other.stock()) == (10, 10)


def test_row_when_moved_to_another_resource_then_403_and_it_stays(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str]) -> None:
    moved = fresh("moved")
    for resource in (sku.resource, f"inventory/{moved}"):
        answer = api.write(api.take(resource), {"update": "inventory", "where": {"sku": sku.name}, "set": {"sku": moved}})
        expect_problem(answer, 403, "resource-not-covered")
    assert sku.stock() == 10
    assert stack.query("select from inventory where sku = %s", (moved,)) == []


def test_covered_and_uncovered_writes_when_at_the_same_time_then_one_does_not_open_the_other(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    """Writes that share a transaction with others must not be let into the others' resources."""
    goods = [stock_up(stack, fresh("beside"), 100) for _ in range(6)]
    leases = [api.take(item.resource) for item in goods]
    calls = []
    for _ in range(6):
        for position, lease in enumerate(leases):
            own, other = goods[position], goods[(position + 1) % len(goods)]
            for wanted, item in ((200, own), (403, other)):
                calls.append((wanted, api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [item.sell()]})))
    assert [call.answer().status for _, call in calls] == [wanted for wanted, _ in calls]
    assert [item.stock() for item in goods] == [94] * 6


def test_lease_that_ended_when_nobody_came_after_then_its_write_still_passes_the_fence(api: Api, sku: Sku) -> None:
    """What the contract promises and no more: the fence refuses older tokens; a holder whose lease ended may carry the newest."""
    lease = api.take(sku.resource, ttl_ms=200)
    eventually(lambda: api.look(lease).status == 410, 2, what="the lease runs out")
    api.wrote(lease, sku.sell())
    assert sku.stock() == 9


def test_require_live_when_the_lease_lives_then_written(api: Api, sku: Sku) -> None:
    api.wrote(api.take(sku.resource), sku.sell(), require_live=True)
    assert sku.stock() == 9


@pytest.mark.parametrize("end", ["expiry", "release"])
def test_require_live_when_the_lease_has_ended_then_410_and_nothing_changed(api: Api, sku: Sku, end: str) -> None:
    lease = api.take(sku.resource, ttl_ms=200)
    if end == "release":
        api.give_back(lease)
    eventually(lambda: api.look(lease).status == 410, 2, what="the lease has ended")
    expect_problem(api.write(lease, sku.sell(), require_live=True), 410, "lease-lost")
    assert sku.stock() == 10


def test_fence_on_grant_when_asked_for_then_older_tokens_are_refused_before_the_first_write(stack: Stack, api: Api, sku: Sku) -> None:
    old = api.take(sku.resource, ttl_ms=200)
    new = api.take(sku.resource, wait_ms=2_000, fence_on_grant=True)
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [(new["fencing_token"],)]
    expect_problem(api.write(old, sku.sell()), 412, "stale-fencing-token")
    eventually(lambda: [item for item in api.history(resource=sku.resource, event="fence_raised") if item["last_fencing_token"] == new["fencing_token"]],
               what="the raising is in the history")
    api.wrote(new, sku.sell())
    assert sku.stock() == 9


def test_fence_when_not_asked_for_then_a_grant_leaves_it(stack: Stack, api: Api, sku: Sku) -> None:
    (before,) = stack.query("select fencing.fence(%s)", (sku.resource,))
    api.give_back(api.take(sku.resource))
    assert stack.query("select fencing.fence(%s)", (sku.resource,)) == [before]


def test_lease_when_in_the_header_then_as_good_as_in_the_body(api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    answer = api.call("POST", "/v1/writes", {"operations": [sku.sell()]}, {"Fencing-Lease": lease["lease_id"]})
    assert answer.status == 200, answer
    assert sku.stock() == 9


# Those who skip the gateway


@pytest.mark.parametrize("statement", [
    "update inventory set stock = stock - 1 where sku = %(sku)s",
    "delete from inventory where sku = %(sku)s",
    "insert into inventory (sku, stock, initial_stock) values (%(sku)s || '-2', 1, 1)",
    "insert into inventory (sku, stock, initial_stock) values (%(sku)s, 1, 1) on conflict (sku) do update set stock = 0",
    "with gone as (delete from inventory where sku = %(sku)s returning *) select * from gone",
    "merge into inventory i using (values (%(sku)s)) v (sku) on i.sku = v.sku when matched then update set stock = 0",
], ids=["update", "delete", "insert", "upsert", "with", "merge"])
def test_direct_sql_when_it_did_not_enter_then_fg428_and_recorded(stack: Stack, api: Api, sku: Sku, statement: str) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        stack.query(statement, {"sku": sku.name})  # type: ignore[arg-type]
    assert refused.value.pgcode == "FG428"
    assert sku.stock() == 10
    recorded = [item for item in eventually(lambda: api.history(resource_prefix=sku.resource, event="write_rejected"), what="it is in the history")]
    assert len(recorded) == 1
    assert recorded[0]["principal"] == stack.facts["postgres"]["superuser"]


def test_direct_sql_when_its_token_is_stale_then_fg412_and_recorded(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    api.wrote(lease, sku.sell())
    with pytest.raises(psycopg2.Error) as refused:
        stack.query("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"] - 1))
    assert refused.value.pgcode == "FG412"
    (item,) = eventually(lambda: api.history(resource=sku.resource, event="write_rejected"), what="it is in the history")
    assert (item["fencing_token"], item["last_fencing_token"]) == (lease["fencing_token"] - 1, lease["fencing_token"])


def test_direct_sql_when_it_enters_another_resource_then_fg403(stack: Stack, sku: Sku, api: Api) -> None:
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as refused:
        cursor.execute("select fencing.enter('inventory/another', 1)")
        cursor.execute("update inventory set stock = 0 where sku = %s", (sku.name,))
    connection.close()
    assert refused.value.pgcode == "FG403"
    assert sku.stock() == 10


def test_direct_sql_when_it_enters_with_the_lease_then_it_may_write(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"]))
        cursor.execute("update inventory set stock = stock - 4 where sku = %s", (sku.name,))
    connection.commit()
    connection.close()
    assert sku.stock() == 6


def test_truncate_when_tried_then_refused(stack: Stack, api: Api, sku: Sku) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        stack.query("truncate inventory cascade")
    assert refused.value.pgcode.startswith("FG")
    assert sku.stock() == 10
