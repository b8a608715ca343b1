"""A whole job in one call or two: writes that release their lease, and writes that take one of their own."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from support.api import Answer, Api, Call, Json, expect_problem, pointers_of
from support.cluster import Cluster
from support.polling import eventually, let_pass
from support.shop import Sku, stock_up
from support.stack import Stack, lease_keys


def one_shot(api: Api, resource: str | list[str], *operations: Json, headers: dict[str, str] | None = None, **lease: object) -> Answer:
    """The answer to a write with a lease of its own."""
    names = {"resource": resource} if isinstance(resource, str) else {"resources": resource}
    return api.call("POST", "/v1/writes", {"lease": {**names, **lease}, "operations": list(operations)}, headers)


def begin_one_shot(api: Api, resource: str, *operations: Json, **lease: object) -> Call:
    return api.begin("POST", "/v1/writes", {"lease": {"resource": resource, **lease}, "operations": list(operations)})


def fence_of(stack: Stack, resource: str) -> int:
    return stack.query("select fencing.fence(%s)", (resource,))[0][0]


def seals(stack: Stack, resource: str) -> list[tuple]:
    return stack.query("select last_fencing_token, write_id::text from fencing.history where event = 'fence_raised' and resource = %s order by id",
                       (resource,))


# then: release

def test_write_when_then_release_then_sealed_released_and_next_waiter_served(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    waiter = api.begin_ask(sku.resource, ttl_ms=5_000, wait_ms=10_000)
    done = api.wrote(lease, sku.sell(), then="release")
    assert done["released"] is True and "hold_count" not in done
    token = lease["fencing_token"]
    assert done["fences"] == [{"resource": sku.resource, "fencing_token": token, "last_fencing_token": token + 1}]
    assert waiter.answer().status == 201
    assert seals(stack, sku.resource) == [(token + 1, done["write_id"])]
    expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    expect_problem(api.look(lease), 410, "lease-lost")
    assert sku.stock() == 9


def test_write_when_then_release_and_operation_fails_then_lease_as_it_was(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    expect_problem(api.write(lease, sku.sell(), sku.sell(1000), then="release"), 409, "expectation-failed")
    assert api.look(lease).status == 200
    assert seals(stack, sku.resource) == []
    api.wrote(lease, sku.sell(), then="release")
    assert sku.stock() == 9


def test_write_when_then_release_on_several_resources_then_each_is_sealed(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    skus = [stock_up(stack, fresh("many")) for _ in range(3)]
    answer = api.call("POST", "/v1/leases", {"resources": [sku.resource for sku in skus], "ttl_ms": 10_000})
    assert answer.status == 201, str(answer)
    done = api.wrote(answer.json(), *(sku.sell() for sku in skus), then="release")
    token = answer.json()["fencing_token"]
    assert {fence["last_fencing_token"] for fence in done["fences"]} == {token + 1}
    assert [fence_of(stack, sku.resource) for sku in skus] == [token + 1] * 3


def test_write_when_then_release_with_holds_left_then_one_given_back_and_sealed_with_the_last(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource, owner="worker-1")
    other = api.ask(sku.resource, owner="worker-1").json()
    assert other["hold_count"] == 2
    first = api.wrote(lease, sku.sell(), then="release")
    assert (first["released"], first["sealed"], first["hold_count"]) == (False, False, 1)
    assert seals(stack, sku.resource) == []
    second = api.wrote(other, sku.sell(), then="release")
    assert second["released"] is True and "sealed" not in second
    assert len(seals(stack, sku.resource)) == 1
    assert sku.stock() == 8


def test_write_when_then_release_and_lease_has_run_out_then_written_and_over(api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource, ttl_ms=200)
    eventually(lambda: api.look(lease).status == 410, 5, what="the lease is over")
    assert api.wrote(lease, sku.sell(), then="release")["released"] is True


# a lease of its own

def test_one_shot_when_free_then_written_sealed_and_free_again(stack: Stack, api: Api, sku: Sku) -> None:
    answer = one_shot(api, sku.resource, sku.sell(), ttl_ms=5_000)
    assert answer.status == 200, str(answer)
    done = answer.json()
    assert done["released"] is True and done["results"] == [{"rows_affected": 1}]
    assert done["fences"][0]["last_fencing_token"] == done["fencing_token"] + 1 == fence_of(stack, sku.resource)
    assert lease_keys(stack.nodes(), sku.resource) == []
    assert api.take(sku.resource)["fencing_token"] > done["fencing_token"]
    assert sku.stock() == 9


def test_one_shot_when_locked_then_423_or_waits_for_its_turn(api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    locked = expect_problem(one_shot(api, sku.resource, sku.sell()), 423, "resource-locked")
    assert locked["remaining_ms"] > 0
    waiting = begin_one_shot(api, sku.resource, sku.sell(), wait_ms=10_000)
    api.await_waiters(sku.resource, 1)
    assert sku.stock() == 10
    api.give_back(lease)
    answer = waiting.answer()
    assert answer.status == 200 and answer.json()["fencing_token"] > lease["fencing_token"], str(answer)
    assert sku.stock() == 9


@pytest.mark.parametrize("operation, status, slug", [
    ({"update": "inventory", "where": {"sku": "?"}, "add": {"stock": -1000}}, 409, "constraint-violation"),
    ({"update": "inventory", "where": {"sku": "another"}, "add": {"stock": 1}, "expect_rows": 1}, 409, "expectation-failed"),
    ({"insert": "nothing", "values": {}}, 422, "unprocessable"),
    ({"insert": "orders", "values": {"id": 1, "sku": "?", "quantity": 1}}, 403, "resource-not-covered"),
])
def test_one_shot_when_write_is_refused_then_released_and_not_sealed(stack: Stack, api: Api, sku: Sku, operation: Json, status: int, slug: str) -> None:
    text = {member: value if not isinstance(value, dict) else {k: sku.name if v == "?" else v for k, v in value.items()}
            for member, value in operation.items()}
    expect_problem(one_shot(api, sku.resource, text, ttl_ms=20_000), status, slug)
    assert lease_keys(stack.nodes(), sku.resource) == []
    assert seals(stack, sku.resource) == []
    assert sku.stock() == 10


def test_one_shot_when_body_is_faulty_then_pointers_below_lease(api: Api, sku: Sku) -> None:
    assert pointers_of(one_shot(api, "a//b", sku.sell(), ttl_ms=1, wait_ms=-1)) == ["/lease/resource", "/lease/ttl_ms", "/lease/wait_ms"]
    lease = api.take(sku.resource)
    both = api.call("POST", "/v1/writes", {"lease_id": lease["lease_id"], "lease": {"resource": sku.resource}, "operations": [sku.sell()]})
    assert pointers_of(both) == ["/lease"]


def test_one_shot_when_owner_holds_it_then_its_token_is_not_sealed_and_hold_stays(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource, owner="worker-2")
    done = one_shot(api, sku.resource, sku.sell(), owner="worker-2").json()
    assert (done["fencing_token"], done["released"], done["hold_count"]) == (lease["fencing_token"], False, 1)
    assert seals(stack, sku.resource) == []
    api.wrote(lease, sku.sell(), then="release")


def test_one_shot_when_caller_hangs_up_while_it_waits_then_nothing_written_and_nothing_held(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource)
    waiting = begin_one_shot(api, sku.resource, sku.sell(), wait_ms=10_000)
    api.await_waiters(sku.resource, 1)
    waiting.hang_up()
    api.await_waiters(sku.resource, 0)
    api.give_back(lease)
    let_pass(0.5, "a write that must not come is given time to come")
    assert sku.stock() == 10
    assert lease_keys(stack.nodes(), sku.resource) == []


def test_one_shot_when_caller_hangs_up_during_write_then_written_and_released(stack: Stack, api: Api, sku: Sku) -> None:
    other = stack.sql()
    other.autocommit = False
    with other.cursor() as cursor:
        cursor.execute("select from inventory where sku = %s for update", (sku.name,))
    writing = begin_one_shot(api, sku.resource, sku.sell(), ttl_ms=20_000)
    eventually(lambda: stack.query("select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inventory%'"), 5, what="it waits")
    writing.hang_up()
    other.rollback()
    other.close()
    eventually(lambda: sku.stock() == 9, 10, what="the write landed")
    eventually(lambda: lease_keys(stack.nodes(), sku.resource) == [], 10, what="the lease is released")


def test_one_shot_when_postgres_is_silent_then_503_and_released(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    api, sku = own_stack.api(), stock_up(own_stack, fresh("away"))
    with own_stack.frozen(own_stack.postgres_pids()):
        answer = one_shot(api, sku.resource, sku.sell(), ttl_ms=60_000)
        problem = expect_problem(answer, 503, "storage-unavailable")
        assert not problem.get("outcome_unknown")
        eventually(lambda: lease_keys(own_stack.nodes(), sku.resource) == [], 10, what="the lease is released")
    eventually(lambda: api.get("/readyz").status == 200, 30, what="ready again")
    assert one_shot(api, sku.resource, sku.sell()).status == 200
    eventually(lambda: sku.stock() == 9, 10, what="one write landed, and no other")


def test_one_shot_when_scope_is_missing_then_403(cluster: Cluster) -> None:
    keys = {name: f"key of {name}, long enough".replace(" ", "-") for name in ("all", "writer", "leaser")}
    scopes = {"all": ["leases", "writes"], "writer": ["writes"], "leaser": ["leases"]}
    settings = cluster.settings()
    settings["auth"] = {"api_keys": [{"principal": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": scopes[name]}
                                     for name, key in keys.items()]}
    gateway = cluster.gateway(settings)
    gateway.start()
    try:
        operation = {"insert": "nothing", "values": {}}
        resource = f"scopes/{time.time_ns()}"
        expect_problem(one_shot(gateway.api.with_key(keys["all"]), resource, operation), 422, "unprocessable")
        assert "leases" in expect_problem(one_shot(gateway.api.with_key(keys["writer"]), resource, operation), 403, "forbidden")["detail"]
        assert "writes" in expect_problem(one_shot(gateway.api.with_key(keys["leaser"]), resource, operation), 403, "forbidden")["detail"]
    finally:
        gateway.kill()


def test_one_shots_when_many_at_two_gateways_then_each_sells_once(guarded_pair: Stack, here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    sku = stock_up(guarded_pair, fresh("crowd"), 1000)
    callers, each = 12, 15

    def sell(number: int) -> list[int]:
        api, tokens = (here, there)[number % 2], []
        with api.connection() as connection:
            for _ in range(each):
                answer = connection.call("POST", "/v1/writes", {"lease": {"resource": sku.resource, "ttl_ms": 5_000, "wait_ms": 20_000},
                                                               "operations": [sku.sell()]})
                assert answer.status == 200, str(answer)
                tokens.append(answer.json()["fencing_token"])
        return tokens

    with ThreadPoolExecutor(callers) as pool:
        tokens = [token for told in pool.map(sell, range(callers)) for token in told]
    assert len(set(tokens)) == callers * each, "every write had a lease of its own"
    assert sku.stock() == 1000 - callers * each
    assert lease_keys(guarded_pair.nodes(), sku.resource) == []


# several resources

def order(fresh: Callable[[str], str]) -> int:
    return int(fresh("o")[2:], 16) % 2**52


def test_place_order_when_lease_covers_article_and_order_then_placed(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str]) -> None:
    number = order(fresh)
    place = {"call": "place_order", "args": {"order_id": number, "sku": sku.name, "quantity": 3}}
    answer = one_shot(api, [sku.resource, f"orders/{number}"], place)
    assert answer.status == 200, str(answer)
    assert answer.json()["results"] == [{"value": number}]
    assert len(answer.json()["fences"]) == 2
    assert sku.stock() == 7
    assert stack.query("select quantity from orders where id = %s", (number,)) == [(3,)]
    assert api.call("POST", "/v1/leases", {"resources": [sku.resource, f"orders/{number}"]}).status == 201


@pytest.mark.parametrize("covered", ["article", "order"])
def test_place_order_when_lease_covers_one_of_two_then_403_and_nothing_changed(stack: Stack, api: Api, sku: Sku, fresh: Callable[[str], str],
                                                                               covered: str) -> None:
    number = order(fresh)
    lease = api.take(sku.resource if covered == "article" else f"orders/{number}")
    place = {"call": "place_order", "args": {"order_id": number, "sku": sku.name, "quantity": 3}}
    problem = expect_problem(api.write(lease, place), 403, "resource-not-covered")
    assert problem["resource"] == (f"orders/{number}" if covered == "article" else sku.resource)
    assert sku.stock() == 10 and stack.query("select 1 from orders where id = %s", (number,)) == []
