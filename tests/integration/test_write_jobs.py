"""Writes that release their lease (`then: release`), and one-shot writes, which acquire a lease of their own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest
from support.api import Answer, Api, Call, Json, expect_problem, pointers_of
from support.cluster import Cluster, credential
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack, lease_keys


def send_one_shot(
    api: Api, resource: str | list[str], *operations: Json, headers: dict[str, str] | None = None, **lease: object
) -> Answer:
    """Sends a one-shot write and returns the answer."""
    names = {"resource": resource} if isinstance(resource, str) else {"resources": resource}
    return api.post("/v1/writes", {"lease": {**names, **lease}, "operations": list(operations)}, headers)


def begin_one_shot(api: Api, resource: str, *operations: Json, **lease: object) -> Call:
    return api.begin("POST", "/v1/writes", {"lease": {"resource": resource, **lease}, "operations": list(operations)})


def fence_of(stack: Stack, resource: str) -> int:
    return stack.query("select fencing.fence(%s)", (resource,))[0][0]


def seal_events(stack: Stack, resource: str) -> list[tuple]:
    return stack.query(
        "select last_fencing_token, write_id::text from fencing.history where event = 'fence_raised' "
        "and resource = %s order by id",
        (resource,),
    )


# `then: release`


def test_then_release_seals_releases_and_serves_waiter(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    waiter = api.begin_acquire(sku.resource, ttl_ms=5_000, wait_ms=10_000)
    done = api.must_write(lease, sku.sell(), then="release")
    assert done["released"] is True and "hold_count" not in done
    token = lease["fencing_token"]
    assert done["fences"] == [{"resource": sku.resource, "fencing_token": token, "last_fencing_token": token + 1}]
    assert waiter.answer().status == 201
    assert seal_events(stack, sku.resource) == [(token + 1, done["write_id"])]
    expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    expect_problem(api.read_lease(lease), 410, "lease-lost")
    assert sku.stock() == 9


def test_then_release_with_failed_operation_keeps_lease(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    expect_problem(api.write(lease, sku.sell(), sku.sell(1000), then="release"), 409, "expectation-failed")
    assert api.read_lease(lease).status == 200
    assert seal_events(stack, sku.resource) == []
    api.must_write(lease, sku.sell(), then="release")
    assert sku.stock() == 9


def test_then_release_on_several_resources_seals_each(
    stack: Stack, api: Api, unique_name: Callable[[str], str]
) -> None:
    skus = [create_sku(stack, unique_name("many")) for _ in range(3)]
    answer = api.post("/v1/leases", {"resources": [sku.resource for sku in skus], "ttl_ms": 10_000})
    assert answer.status == 201, str(answer)
    done = api.must_write(answer.json(), *(sku.sell() for sku in skus), then="release")
    token = answer.json()["fencing_token"]
    assert {fence["last_fencing_token"] for fence in done["fences"]} == {token + 1}
    assert [fence_of(stack, sku.resource) for sku in skus] == [token + 1] * 3


def test_then_release_with_holds_left_seals_with_last(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, owner="worker-1")
    other = api.acquire(sku.resource, owner="worker-1").json()
    assert other["hold_count"] == 2
    first = api.must_write(lease, sku.sell(), then="release")
    assert (first["released"], first["sealed"], first["hold_count"]) == (False, False, 1)
    assert seal_events(stack, sku.resource) == []
    second = api.must_write(other, sku.sell(), then="release")
    assert second["released"] is True and "sealed" not in second
    assert len(seal_events(stack, sku.resource)) == 1
    assert sku.stock() == 8


def test_then_release_of_expired_lease_is_applied(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, ttl_ms=200)
    eventually(lambda: api.read_lease(lease).status == 410, 5, goal="the lease is over")
    assert api.must_write(lease, sku.sell(), then="release")["released"] is True


# One-shot writes


def test_one_shot_on_free_resource_writes_seals_and_releases(stack: Stack, api: Api, sku: Sku) -> None:
    answer = send_one_shot(api, sku.resource, sku.sell(), ttl_ms=5_000)
    assert answer.status == 200, str(answer)
    done = answer.json()
    assert done["released"] is True and done["results"] == [{"rows_affected": 1}]
    assert done["fences"][0]["last_fencing_token"] == done["fencing_token"] + 1 == fence_of(stack, sku.resource)
    assert lease_keys(stack.nodes(), sku.resource) == []
    assert api.must_acquire(sku.resource)["fencing_token"] > done["fencing_token"]
    assert sku.stock() == 9


def test_one_shot_on_locked_resource_423_or_waits(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    locked = expect_problem(send_one_shot(api, sku.resource, sku.sell()), 423, "resource-locked")
    assert locked["remaining_ms"] > 0 and locked["max_wait_ms"] == api.acquire(sku.resource).json()["max_wait_ms"]
    waiting = begin_one_shot(api, sku.resource, sku.sell(), wait_ms=10_000)
    api.await_waiters(sku.resource, 1)
    assert sku.stock() == 10
    api.must_release(lease)
    answer = waiting.answer()
    assert answer.status == 200 and answer.json()["fencing_token"] > lease["fencing_token"], str(answer)
    assert sku.stock() == 9


@pytest.mark.parametrize(
    "operation, status, slug",
    [
        ({"update": "inventory", "where": {"sku": "?"}, "add": {"stock": -1000}}, 409, "constraint-violation"),
        (
            {"update": "inventory", "where": {"sku": "another"}, "add": {"stock": 1}, "expect_rows": 1},
            409,
            "expectation-failed",
        ),
        ({"insert": "nothing", "values": {}}, 422, "unprocessable"),
        ({"insert": "orders", "values": {"id": 1, "sku": "?", "quantity": 1}}, 403, "resource-not-covered"),
    ],
)
def test_one_shot_with_refused_write_releases_without_seal(
    stack: Stack, api: Api, sku: Sku, operation: Json, status: int, slug: str
) -> None:
    text = {
        member: value if not isinstance(value, dict) else {k: sku.name if v == "?" else v for k, v in value.items()}
        for member, value in operation.items()
    }
    expect_problem(send_one_shot(api, sku.resource, text, ttl_ms=20_000), status, slug)
    assert lease_keys(stack.nodes(), sku.resource) == []
    assert seal_events(stack, sku.resource) == []
    assert sku.stock() == 10


def test_one_shot_with_faulty_body_points_below_lease(api: Api, sku: Sku) -> None:
    assert pointers_of(send_one_shot(api, "a//b", sku.sell(), ttl_ms=1, wait_ms=-1)) == [
        "/lease/resource",
        "/lease/ttl_ms",
        "/lease/wait_ms",
    ]
    lease = api.must_acquire(sku.resource)
    both = api.post(
        "/v1/writes", {"lease_id": lease["lease_id"], "lease": {"resource": sku.resource}, "operations": [sku.sell()]}
    )
    assert pointers_of(both) == ["/lease"]


def test_one_shot_of_holder_keeps_hold_and_seals_nothing(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, owner="worker-2")
    done = send_one_shot(api, sku.resource, sku.sell(), owner="worker-2").json()
    assert (done["fencing_token"], done["released"], done["hold_count"]) == (lease["fencing_token"], False, 1)
    assert seal_events(stack, sku.resource) == []
    api.must_write(lease, sku.sell(), then="release")


def test_one_shot_of_disconnected_waiter_writes_nothing(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    waiting = begin_one_shot(api, sku.resource, sku.sell(), wait_ms=10_000)
    api.await_waiters(sku.resource, 1)
    waiting.disconnect()
    api.await_waiters(sku.resource, 0)
    api.must_release(lease)
    pause(0.5, "time for a write that must not happen")
    assert sku.stock() == 10
    assert lease_keys(stack.nodes(), sku.resource) == []


def test_one_shot_of_caller_disconnected_while_writing_applies(stack: Stack, api: Api, sku: Sku) -> None:
    other = stack.sql()
    other.autocommit = False
    with other.cursor() as cursor:
        cursor.execute("select from inventory where sku = %s for update", (sku.name,))
    writing = begin_one_shot(api, sku.resource, sku.sell(), ttl_ms=20_000)
    eventually(
        lambda: stack.query(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inventory%'"
        ),
        5,
        goal="it waits",
    )
    writing.disconnect()
    other.rollback()
    other.close()
    eventually(lambda: sku.stock() == 9, goal="the write is applied")
    eventually(lambda: lease_keys(stack.nodes(), sku.resource) == [], goal="the lease is released")


def test_one_shot_with_silent_postgresql_503_and_released(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    api, sku = own_stack.api(), create_sku(own_stack, unique_name("away"))
    with own_stack.frozen(own_stack.postgres_pids()):
        answer = send_one_shot(api, sku.resource, sku.sell(), ttl_ms=60_000)
        problem = expect_problem(answer, 503, "storage-unavailable")
        assert not problem.get("outcome_unknown")
        eventually(lambda: lease_keys(own_stack.nodes(), sku.resource) == [], goal="the lease is released")
    eventually(lambda: api.get("/readyz").status == 200, 30, goal="ready again")
    assert send_one_shot(api, sku.resource, sku.sell()).status == 200
    eventually(lambda: sku.stock() == 9, goal="exactly one write is applied")


def test_one_shot_without_scope_403(cluster: Cluster) -> None:
    keys = {name: f"key of {name}, long enough".replace(" ", "-") for name in ("all", "writer", "leaser")}
    scopes = {"all": ["leases", "writes"], "writer": ["writes"], "leaser": ["leases"]}
    settings = cluster.settings()
    settings["auth"] = {"api_keys": [credential(name, key, *scopes[name]) for name, key in keys.items()]}
    with cluster.serving(settings) as gateway:
        operation = {"insert": "nothing", "values": {}}
        resource = f"scopes/{time.time_ns()}"
        expect_problem(send_one_shot(gateway.api.with_key(keys["all"]), resource, operation), 422, "unprocessable")
        assert (
            "leases"
            in expect_problem(
                send_one_shot(gateway.api.with_key(keys["writer"]), resource, operation), 403, "forbidden"
            )["detail"]
        )
        assert (
            "writes"
            in expect_problem(
                send_one_shot(gateway.api.with_key(keys["leaser"]), resource, operation), 403, "forbidden"
            )["detail"]
        )


def test_one_shots_at_two_gateways_sell_once_each(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str]
) -> None:
    sku = create_sku(guarded_pair, unique_name("crowd"), 1000)
    callers, each = 12, 15

    def sell(number: int) -> list[int]:
        api, tokens = (api_a, api_b)[number % 2], []
        with api.connection() as connection:
            for _ in range(each):
                answer = connection.post(
                    "/v1/writes",
                    {
                        "lease": {"resource": sku.resource, "ttl_ms": 5_000, "wait_ms": 20_000},
                        "operations": [sku.sell()],
                    },
                )
                assert answer.status == 200, str(answer)
                tokens.append(answer.json()["fencing_token"])
        return tokens

    with ThreadPoolExecutor(callers) as pool:
        tokens = [token for reported in pool.map(sell, range(callers)) for token in reported]
    assert len(tokens) == callers * each
    assert sku.stock() == 1000 - callers * each
    assert lease_keys(guarded_pair.nodes(), sku.resource) == []


# Several resources


def new_order_number(unique_name: Callable[[str], str]) -> int:
    return int(unique_name("o")[2:], 16) % 2**52


def test_place_order_with_covering_lease_places_order(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    number = new_order_number(unique_name)
    place = {"call": "place_order", "args": {"order_id": number, "sku": sku.name, "quantity": 3}}
    answer = send_one_shot(api, [sku.resource, f"orders/{number}"], place)
    assert answer.status == 200, str(answer)
    assert answer.json()["results"] == [{"value": number}]
    assert len(answer.json()["fences"]) == 2
    assert sku.stock() == 7
    assert stack.query("select quantity from orders where id = %s", (number,)) == [(3,)]
    assert api.post("/v1/leases", {"resources": [sku.resource, f"orders/{number}"]}).status == 201


@pytest.mark.parametrize("covered", ["article", "order"])
def test_place_order_half_covered_403_and_nothing_changed(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str], covered: str
) -> None:
    number = new_order_number(unique_name)
    lease = api.must_acquire(sku.resource if covered == "article" else f"orders/{number}")
    place = {"call": "place_order", "args": {"order_id": number, "sku": sku.name, "quantity": 3}}
    problem = expect_problem(api.write(lease, place), 403, "resource-not-covered")
    assert problem["resource"] == (f"orders/{number}" if covered == "article" else sku.resource)
    assert sku.stock() == 10 and stack.query("select 1 from orders where id = %s", (number,)) == []
