"""Fencing tokens: every grant of a resource has a higher token than every grant before."""

from __future__ import annotations

import concurrent.futures
from typing import Callable

from support.api import Api, lease_path
from support.polling import eventually, pause
from support.stack import Stack


def test_tokens_of_200_grants_each_are_higher(api: Api, resource: str) -> None:
    last = 0
    with api.connection() as connection:
        for count in range(200):
            expires = count % 25 == 24
            answer = connection.call("POST", "/v1/leases", {"resource": resource, "ttl_ms": 100 if expires else 10_000, "wait_ms": 2_000})
            if expires and answer.status == 410:  # its validity was over before it could be answered
                continue
            assert answer.status == 201, answer
            lease = answer.json()
            assert lease["fencing_token"] > last, f"grant {count}"
            last = lease["fencing_token"]
            if not expires:
                assert connection.call("DELETE", lease_path(lease)).status == 204
    assert last < 2**53


def test_tokens_under_contention_grow_in_order_of_holding(api: Api, resource: str) -> None:
    """Each caller records the token while it holds the lease; since leases exclude each other, the records are in order."""
    notes: list[int] = []

    def contend(_: int) -> None:
        with api.connection() as connection:
            for _ in range(12):
                answer = connection.call("POST", "/v1/leases", {"resource": resource, "ttl_ms": 20_000, "wait_ms": 20_000})
                assert answer.status == 201, answer
                notes.append(answer.json()["fencing_token"])
                assert connection.call("DELETE", lease_path(answer.json())).status == 204

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(contend, range(8)))
    assert len(notes) == 96
    assert notes == sorted(set(notes))


def test_tokens_after_refused_request_still_grow(api: Api, resource: str) -> None:
    tokens = []
    for _ in range(10):
        lease = api.must_acquire(resource)
        assert api.acquire(resource).status == 423
        tokens.append(lease["fencing_token"])
        api.must_release(lease)
    assert tokens == sorted(set(tokens))


def test_token_after_disagreeing_counters_is_above_highest(stack: Stack, api: Api, resource: str) -> None:
    """Each node's counters are ahead of those of the node before it, as after attempts that reached only some nodes."""
    first = api.must_acquire(resource)["fencing_token"]
    nodes = stack.nodes()
    keys = [key for key in nodes[0].scan_iter(match="fg:token:*", count=1000) if int(nodes[0].get(key)) >= first]
    assert keys
    for ahead, node in enumerate(nodes):
        for key in keys:
            node.incrby(key, 1000 * ahead)
    for node in nodes:
        node.delete(f"fg:lease:{resource}")
    last = first
    for _ in range(10):
        lease = api.must_acquire(resource)
        assert lease["fencing_token"] > last
        last = lease["fencing_token"]
        api.must_release(lease)


def test_tokens_of_each_resource_grow(api: Api, unique_name: Callable[[str], str]) -> None:
    names = [unique_name("test/row") for _ in range(20)]
    seen: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(4):
        for name in names:
            lease = api.must_acquire(name)
            seen[name].append(lease["fencing_token"])
            api.must_release(lease)
    assert all(tokens == sorted(set(tokens)) for tokens in seen.values())


def test_token_in_history_equals_token_in_answer(api: Api, resource: str) -> None:
    reported = []
    for _ in range(10):
        lease = api.must_acquire(resource)
        reported.append(lease["fencing_token"])
        api.must_release(lease)
    eventually(lambda: len(api.history(resource=resource, event="lease_granted")) == 10, goal="ten grants in the history")
    assert [item["fencing_token"] for item in api.history(resource=resource, event="lease_granted", order="asc")] == reported


def test_tokens_after_expiry_follow_real_time(api: Api, resource: str) -> None:
    """A grant requested after another was complete has the higher token."""
    previous = api.must_acquire(resource, ttl_ms=100)
    for _ in range(10):
        pause(0.12, "past the ttl")
        lease = api.must_acquire(resource, ttl_ms=100, wait_ms=2_000)
        assert lease["fencing_token"] > previous["fencing_token"]
        previous = lease
