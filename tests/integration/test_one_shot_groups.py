"""One-shot writes of one holder that wait for the same resources: they share a lease and a transaction."""

from __future__ import annotations

import uuid
from typing import Callable

from support.api import Api, Call, Json, expect_problem
from support.cluster import Cluster, credential
from support.faults import install_shop
from support.shop import Sku, create_sku
from support.stack import Stack, lease_keys

CLUSTER_MAX_TTL_MS = 20_000


def begin_one_shots(api: Api, sku: Sku, number: int, *operations: Json, **lease: object) -> list[Call]:
    """Sends one-shot writes one after the other, each when the one before waits; they sell one piece by default."""
    calls = []
    for _ in range(number):
        before = api.waiters(sku.resource)
        fields = {"resource": sku.resource, "wait_ms": 20_000, "ttl_ms": 10_000, **lease}
        calls.append(api.begin("POST", "/v1/writes", {"lease": fields, "operations": list(operations) or [sku.sell()]}))
        api.await_waiters(sku.resource, before + 1)
    return calls


def events_of(stack: Stack, sku: Sku, event: str) -> list[tuple]:
    return stack.query(
        "select fencing_token, write_id::text, owner from fencing.history where event = %s and resource = %s "
        "order by id",
        (event, sku.resource),
    )


def test_waiting_one_shots_share_one_lease(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    sku = create_sku(stack, unique_name("crowd"), 1000)
    lease = api.must_acquire(sku.resource)
    calls = begin_one_shots(api, sku, 20)
    api.must_release(lease)
    answers = [call.answer() for call in calls]
    assert {answer.status for answer in answers} == {200}, str(answers[0])
    done = [answer.json() for answer in answers]
    (token,) = {each["fencing_token"] for each in done}
    assert token > lease["fencing_token"]
    for each in done:
        assert each["released"] is True and "sealed" not in each and each["results"] == [{"rows_affected": 1}]
        assert each["fences"] == [{"resource": sku.resource, "fencing_token": token, "last_fencing_token": token + 1}]
    assert sku.stock() == 980
    # The history has each write, in the order of arrival, and one lease and one seal.
    ids = [each["write_id"] for each in done]
    assert [write_id for _, write_id, _ in events_of(stack, sku, "write_applied")] == ids and len(set(ids)) == 20
    assert len(events_of(stack, sku, "fence_raised")) == 1
    assert lease_keys(stack.nodes(), sku.resource) == []
    later = api.post("/v1/writes", {"lease": {"resource": sku.resource}, "operations": [sku.sell()]})
    assert later.json()["fencing_token"] > token


def test_one_refused_in_a_group_keeps_its_own_answer(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    sku = create_sku(stack, unique_name("crowd"), 3)
    lease = api.must_acquire(sku.resource)
    refused = {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": None}}
    calls = begin_one_shots(api, sku, 2)
    calls += begin_one_shots(api, sku, 1, refused)
    calls += begin_one_shots(api, sku, 3)
    api.must_release(lease)
    answers = [call.answer() for call in calls]
    assert [answer.status for answer in answers] == [200, 200, 409, 200, 409, 409]
    expect_problem(answers[2], 409, "constraint-violation")
    expect_problem(answers[5], 409, "expectation-failed")
    assert sku.stock() == 0
    applied = [answers[i].json() for i in (0, 1, 3)]
    assert len({each["fencing_token"] for each in applied}) == 1
    assert all(each["released"] and "sealed" not in each for each in applied)
    assert [write_id for _, write_id, _ in events_of(stack, sku, "write_applied")] == [e["write_id"] for e in applied]
    failed = [write_id for _, write_id, _ in events_of(stack, sku, "write_failed")]
    assert sorted(failed) == sorted(answers[i].json()["write_id"] for i in (2, 4, 5))
    (seal,) = events_of(stack, sku, "fence_raised")
    assert seal[0] == applied[0]["fencing_token"]


def test_sold_out_group_is_refused_and_recorded_each(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    sku, other = create_sku(stack, unique_name("sold"), 0), create_sku(stack, unique_name("left"), 10)
    lease, other_lease = api.must_acquire(sku.resource), api.must_acquire(other.resource)
    calls, sales = begin_one_shots(api, sku, 6), begin_one_shots(api, other, 3)
    api.must_release(lease)
    api.must_release(other_lease)
    problems = [expect_problem(call.answer(), 409, "expectation-failed") for call in calls]
    for problem in problems:
        assert (problem["expected_rows"], problem["rows_affected"], problem["operation"]) == (1, 0, 0)
    failed = [write_id for _, write_id, _ in events_of(stack, sku, "write_failed")]
    assert failed == [problem["write_id"] for problem in problems]
    assert events_of(stack, sku, "write_applied") == events_of(stack, sku, "fence_raised") == []
    assert {call.answer().status for call in sales} == {200} and other.stock() == 7
    assert lease_keys(stack.nodes(), sku.resource) == []


def test_group_with_keys_repeats_get_their_outcomes(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    sku = create_sku(stack, unique_name("keyed"), 1000)
    lease = api.must_acquire(sku.resource)
    body = {"lease": {"resource": sku.resource, "wait_ms": 20_000}, "operations": [sku.sell()]}
    keys = [str(uuid.uuid4()) for _ in range(4)]
    calls = []
    for number, key in enumerate(keys):
        calls.append(api.begin("POST", "/v1/writes", body, {"Idempotency-Key": key}))
        api.await_waiters(sku.resource, number + 1)
    api.must_release(lease)
    first = [call.answer().json() for call in calls]
    assert len({each["fencing_token"] for each in first}) == 1
    for key, before in zip(keys, first):
        again = api.post("/v1/writes", body, {"Idempotency-Key": key})
        assert again.status == 200 and again.headers["idempotency-replayed"] == "true"
        assert again.json()["write_id"] == before["write_id"]
    assert sku.stock() == 996


def test_owners_and_several_resources_have_their_own_groups(
    stack: Stack, api: Api, unique_name: Callable[[str], str]
) -> None:
    sku, other = create_sku(stack, unique_name("own"), 100), create_sku(stack, unique_name("own"), 100)
    lease = api.must_acquire(sku.resource)
    names = {"resource": sku.resource}
    both = {"resources": sorted([sku.resource, other.resource])}
    wanted = [{**names, "owner": "a"}, {**names, "owner": "b"}, {**names, "owner": "a"}, {**names, "owner": "b"}]
    calls = []
    for fields in wanted:
        calls.append(
            api.begin("POST", "/v1/writes", {"lease": {"wait_ms": 20_000, **fields}, "operations": [sku.sell()]})
        )
        api.await_waiters(sku.resource, len(calls))
    api.must_release(lease)
    tokens = [call.answer().json()["fencing_token"] for call in calls]
    assert tokens[0] == tokens[2] < tokens[1] == tokens[3]
    lease = api.post("/v1/leases", {**both, "ttl_ms": 20_000}).json()
    calls = []
    for _ in range(5):
        body = {"lease": {"wait_ms": 20_000, **both}, "operations": [sku.sell(), other.sell()]}
        calls.append(api.begin("POST", "/v1/writes", body))
        api.await_waiters(both["resources"][0], len(calls))
    api.must_release(lease)
    done = [call.answer().json() for call in calls]
    assert len({each["fencing_token"] for each in done}) == 1
    assert {fence["last_fencing_token"] - fence["fencing_token"] for each in done for fence in each["fences"]} == {1}
    assert (sku.stock(), other.stock()) == (91, 95)


def test_principals_take_turns_in_order_of_arrival(cluster: Cluster) -> None:
    names = ("north", "east", "south", "west")
    keys = {name: f"key-of-{name}-long-enough" for name in names}
    settings = cluster.settings()
    settings["auth"] = {
        "api_keys": [credential(name, key, "leases", "writes", "operate", "history") for name, key in keys.items()]
    }
    sku = Sku(install_shop(cluster, "turns", 1000), cluster)  # type: ignore[arg-type]
    with cluster.serving(settings) as gateway:
        apis = [gateway.api.with_key(keys[name]) for name in names]
        before = sku.stock()
        lease = apis[0].must_acquire(sku.resource)
        calls: list[list[Call]] = [[] for _ in names]
        # The first one sends many writes before any other: they are one place in the queue.
        calls[0] += begin_one_shots(apis[0], sku, 8)
        for index in (1, 2, 3, 0, 1, 2, 3):
            calls[index] += begin_one_shots(apis[index], sku, 1)
        apis[0].must_release(lease)
        tokens = [{call.answer().json()["fencing_token"] for call in sent} for sent in calls]
        assert [len(each) for each in tokens] == [1] * 4
        order = [each.pop() for each in tokens]
        assert order == sorted(order), "each in the order of its first write"
        assert sku.stock() == before - 15
