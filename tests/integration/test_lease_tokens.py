"""Fencing tokens: every grant of a resource has a higher one than every grant before."""

from __future__ import annotations

import concurrent.futures
from typing import Callable

from support.api import Api, lease_path
from support.polling import eventually, let_pass
from support.stack import Stack


def test_tokens_when_granted_200_times_then_each_is_higher(api: Api, resource: str) -> None:
    last = 0
    with api.connection() as connection:
        for count in range(200):
            expires = count % 25 == 24
            answer = connection.call("POST", "/v1/leases", {"resource": resource, "ttl_ms": 100 if expires else 10_000, "wait_ms": 2_000})
            assert answer.status == 201, answer
            lease = answer.json()
            assert lease["fencing_token"] > last, f"grant {count}"
            last = lease["fencing_token"]
            if not expires:
                assert connection.call("DELETE", lease_path(lease)).status == 204
    assert last < 2**53


def test_tokens_when_many_contend_then_they_grow_in_order_of_holding(api: Api, resource: str) -> None:
    """Each caller notes the token while it holds the lease; since holds exclude each other, the notes are in order."""
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


def test_tokens_when_a_grant_did_not_come_about_then_the_next_is_still_higher(api: Api, resource: str) -> None:
    tokens = []
    for _ in range(10):
        lease = api.take(resource)
        assert api.ask(resource).status == 423
        tokens.append(lease["fencing_token"])
        api.give_back(lease)
    assert tokens == sorted(set(tokens))


def test_counters_when_they_disagree_then_the_next_token_is_above_the_highest(stack: Stack, api: Api, resource: str) -> None:
    """One node's counters run ahead, as after grants that the others never saw; the token must pass the ones given with its help."""
    first = api.take(resource)["fencing_token"]
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
        lease = api.take(resource)
        assert lease["fencing_token"] > last
        last = lease["fencing_token"]
        api.give_back(lease)


def test_tokens_when_resources_differ_then_each_has_its_own_growing_row(api: Api, fresh: Callable[[str], str]) -> None:
    names = [fresh("test/row") for _ in range(20)]
    seen: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(4):
        for name in names:
            lease = api.take(name)
            seen[name].append(lease["fencing_token"])
            api.give_back(lease)
    assert all(tokens == sorted(set(tokens)) for tokens in seen.values())


def test_token_when_the_history_tells_then_the_same_as_the_caller_was_told(api: Api, resource: str) -> None:
    told = []
    for _ in range(10):
        lease = api.take(resource)
        told.append(lease["fencing_token"])
        api.give_back(lease)
    eventually(lambda: len(api.history(resource=resource, event="lease_granted")) == 10, what="ten grants in the history")
    assert [item["fencing_token"] for item in api.history(resource=resource, event="lease_granted", order="asc")] == told


def test_lease_when_given_again_after_expiry_then_real_time_and_tokens_agree(api: Api, resource: str) -> None:
    """A grant asked for after another was complete has the higher token."""
    previous = api.take(resource, ttl_ms=100)
    for _ in range(10):
        let_pass(0.12, "past the ttl")
        lease = api.take(resource, ttl_ms=100, wait_ms=2_000)
        assert lease["fencing_token"] > previous["fencing_token"]
        previous = lease
