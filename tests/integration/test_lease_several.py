"""A lease on several resources: all or none."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import random
import time
import uuid
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually, pause
from support.shop import create_sku
from support.stack import Stack, lease_keys

NameMaker = Callable[[str], str]


def unique_names(unique_name: NameMaker, count: int, stem: str = "test/several") -> list[str]:
    return sorted(unique_name(f"{stem}-{number:02}") for number in range(count))


def request_all(api: Api, resources: list[str], ttl_ms: int = 20_000, **fields: Any) -> Answer:
    return api.post("/v1/leases", {"resources": resources, "ttl_ms": ttl_ms, **fields})


def acquire_all(api: Api, resources: list[str], **fields: Any) -> Any:
    answer = request_all(api, resources, **fields)
    assert answer.status == 201, f"no lease on {resources}: {answer}"
    return answer.json()


@pytest.mark.parametrize("count", [2, 3, 64])
def test_resources_several_have_one_lease_with_one_token(
    guarded_pair: Stack, api_a: Api, unique_name: NameMaker, count: int
) -> None:
    resources = unique_names(unique_name, count)
    lease = acquire_all(api_a, resources)
    assert sorted(lease["resources"]) == resources and "resource" not in lease
    assert api_a.read_lease(lease).json()["resources"] == lease["resources"]
    nodes = guarded_pair.nodes()
    for resource in resources:
        expect_problem(api_a.acquire(resource), 423, "resource-locked")
        eventually(lambda: len(lease_keys(nodes, resource)) >= 3, goal="held by a majority")
        reported = api_a.get(f"/v1/resources/{resource.replace('/', '%2F')}").json()["lease"]
        assert (
            reported["resource"] == resource and sorted(reported["resources"]) == resources
        ), "the lease names all its resources"
    assert api_a.renew(lease).json()["fencing_token"] == lease["fencing_token"]
    api_a.must_release(lease)
    eventually(
        lambda: not [key for resource in resources for key in lease_keys(nodes, resource)], goal="release frees all"
    )
    for resource in resources:
        assert api_a.must_acquire(resource)["fencing_token"] > lease["fencing_token"]


def test_resources_list_of_one_equals_resource(api_a: Api, resource: str) -> None:
    lease = acquire_all(api_a, [resource])
    assert lease["resource"] == resource and "resources" not in lease
    api_a.must_release(lease)


def test_token_of_several_resources_is_newer_than_each_before(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    resources = unique_names(unique_name, 4)
    highest = 0
    for number, resource in enumerate(resources):
        for _ in range(1 + 3 * number):
            lease = api_a.must_acquire(resource)
            highest = max(highest, lease["fencing_token"])
            api_a.must_release(lease)
    for api in (api_a, api_b, api_a):
        lease = acquire_all(api, resources)
        assert lease["fencing_token"] > highest
        highest = lease["fencing_token"]
        api.must_release(lease)
    assert all(api_a.must_acquire(resource)["fencing_token"] > highest for resource in resources)


def test_resources_with_one_held_423_and_rest_stays_free(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker
) -> None:
    resources = unique_names(unique_name, 5)
    nodes = guarded_pair.nodes()
    for position in (0, 2, 4):
        held = api_a.must_acquire(resources[position], ttl_ms=30_000)
        rest = [resource for resource in resources if resource != resources[position]]
        for api, wait_ms in ((api_a, 0), (api_b, 0), (api_a, 300)):
            problem = expect_problem(request_all(api, resources, wait_ms=wait_ms), 423, "resource-locked")
            assert 0 < problem["remaining_ms"] <= 30_000
            eventually(
                lambda: not [key for resource in rest for key in lease_keys(nodes, resource)],
                2,
                goal="nothing is left on any node",
            )
        for resource in rest:
            api_a.must_release(api_a.must_acquire(resource))
        api_a.must_release(held)


def test_resources_in_another_order_add_hold(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    resources = unique_names(unique_name, 3)
    lease = acquire_all(api_a, resources, owner="same")
    for api, order in zip(itertools.cycle((api_a, api_b)), itertools.permutations(resources)):
        answer = request_all(api, list(order), owner="same")
        assert answer.status == 200 and answer.json()["fencing_token"] == lease["fencing_token"], answer
        assert answer.json()["hold_count"] == 2
        assert api_a.release(answer.json()).json()["hold_count"] == 1
    api_a.must_release(lease)


def test_owner_of_other_resources_than_asked_for_423(api_a: Api, unique_name: NameMaker) -> None:
    """A hold needs the same set of resources; a subset or a superset is another lease."""
    resources = unique_names(unique_name, 3)
    lease = acquire_all(api_a, resources[:2], owner="same")
    for wrong in (resources[:1], resources[1:2], resources, resources[1:]):
        expect_problem(request_all(api_a, wrong, owner="same"), 423, "resource-locked")
    assert api_a.read_lease(lease).json()["hold_count"] == 1


def test_overlapping_sets_exclude_each_other_and_all_proceed(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    """Sets {a, b}, {b, c}, {c, a} and {b}: each holder marks its resources with its number,
    and must not find the mark of another holder."""
    a, b, c = unique_names(unique_name, 3)
    sets = [[a, b], [b, c], [c, a], [b]]
    held: dict[str, int] = {}
    faults: list[str] = []
    tokens: dict[str, list[int]] = {a: [], b: [], c: []}
    chance = random.Random(7)

    def contend(number: int) -> int:
        own_set, api = sets[number % len(sets)], (api_a, api_b)[number % 2]
        order = chance.sample(own_set, len(own_set))
        for _ in range(8):
            lease = acquire_all(api, order, wait_ms=30_000)
            for resource in own_set:
                other = held.setdefault(resource, number)
                if other != number:
                    faults.append(f"{number} and {other} both hold {resource}")
                tokens[resource].append(lease["fencing_token"])
            pause(0.002, "it is held for a moment")
            for resource in own_set:
                held.pop(resource, None)
            api.must_release(lease)
        return number

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(contend, range(8))) == list(range(8))
    assert not faults
    assert time.monotonic() - began < 120, "64 leases took too long: the callers hinder each other"
    assert all(noted == sorted(set(noted)) for noted in tokens.values())


def test_write_to_two_resources_needs_lease_on_both(guarded_pair: Stack, api_a: Api, unique_name: NameMaker) -> None:
    goods = create_sku(guarded_pair, unique_name("sku-several"), 10)
    order_id = uuid.uuid4().int % 2**62
    order = {"call": "place_order", "args": {"order_id": order_id, "sku": goods.name, "quantity": 3}}
    only_goods = api_a.must_acquire(goods.resource)
    expect_problem(api_a.write(only_goods, order), 403, "resource-not-covered")
    api_a.must_release(only_goods)

    lease = acquire_all(api_a, [goods.resource, f"orders/{order_id}"])
    written = api_a.must_write(lease, order)
    assert written["results"] == [{"value": order_id}]
    assert {fence["resource"]: fence["last_fencing_token"] for fence in written["fences"]} == {
        goods.resource: lease["fencing_token"],
        f"orders/{order_id}": lease["fencing_token"],
    }
    assert goods.stock() == 7
    api_a.must_release(lease)

    newer = api_a.must_acquire(goods.resource)
    api_a.must_write(newer, goods.sell())
    problem = expect_problem(
        api_a.write(lease, {**order, "args": {**order["args"], "order_id": order_id}}), 412, "stale-fencing-token"
    )
    assert problem["resource"] == goods.resource
    assert goods.stock() == 6


@pytest.mark.parametrize(
    ("resources", "pointers"),
    [
        ([], ["/resources"]),
        ([f"test/n{n}" for n in range(65)], ["/resources"]),
        ([f"{n:064}" for n in range(63)] + ["x" * 65], ["/resources"]),
        (["test/a", "test/a"], ["/resources/1"]),
        (["test/a", "b//c", 7], ["/resources/1", "/resources/2"]),
        ("test/a", ["/resources"]),
        (None, ["/resources"]),
        ({"a": 1}, ["/resources"]),
        ([["test/a"], "test/b"], ["/resources/0"]),
    ],
)
def test_resources_wrong_400_pointing_at_each(api_a: Api, resources: object, pointers: list[str]) -> None:
    assert pointers_of(api_a.post("/v1/leases", {"resources": resources})) == pointers


def test_resources_of_most_bytes_lease_id_fits_every_call(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker
) -> None:
    resources = [f"{name}/{'x' * (63 - len(name))}" for name in unique_names(unique_name, 64)]
    assert {len(name) for name in resources} == {64}
    lease = acquire_all(api_a, resources, owner="\u00e4" * 64)
    assert api_b.read_lease(lease).json()["resources"] == lease["resources"]
    assert api_b.renew(lease).status == 200
    update = {"update": "inventory", "where": {"sku": "none"}, "set": {"note": "x"}}
    for headers in ({}, {"Fencing-Lease": lease["lease_id"]}):
        body = {"operations": [update], **({} if headers else {"lease_id": lease["lease_id"]})}
        assert api_b.post("/v1/writes", body, headers).status == 200
    again = request_all(api_b, resources[::-1], owner="\u00e4" * 64).json()
    assert again["hold_count"] == 2
    assert api_a.release(lease).status == 200
    api_a.must_release(again)
    eventually(
        lambda: not [key for resource in resources for key in lease_keys(guarded_pair.nodes(), resource)],
        goal="all are free",
    )


def test_waiter_for_several_is_served_when_last_is_released(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    resources = unique_names(unique_name, 3)
    for holder in (api_a, api_b):
        held = holder.must_acquire(resources[-1])
        waiter = api_a.begin("POST", "/v1/leases", {"resources": resources, "wait_ms": 10_000, "ttl_ms": 20_000})
        api_a.await_waiters(resources[-1], 1)
        released = time.monotonic()
        holder.must_release(held)
        answer = waiter.answer()
        assert answer.status == 201, answer
        assert waiter.ended - released < 5
        api_a.must_release(answer.json())


def test_waiter_for_several_is_served_and_blocks_nobody(api_a: Api, unique_name: NameMaker) -> None:
    """At one gateway, hand-over keeps `second` busy, and the waiter for both is the head of the queue of `first`."""
    first, second = unique_names(unique_name, 2)
    turns: collections.Counter[str] = collections.Counter()
    ended = False

    def contend(name: str, resources: list[str]) -> None:
        while not ended:
            lease = acquire_all(api_a, resources, wait_ms=30_000)
            turns[name] += 1
            api_a.must_release(lease)

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        callers = [pool.submit(contend, "second", [second]) for _ in range(3)] + [
            pool.submit(contend, "first", [first]) for _ in range(3)
        ]
        callers.append(pool.submit(contend, "both", [first, second]))
        try:
            eventually(lambda: turns["both"] >= 5, 60, goal=f"five turns with both; so far {turns}")
        finally:
            ended = True
        for caller in callers:
            caller.result(30)
    assert turns["first"] >= 5
