"""Fencing tokens: every grant of a resource has a higher token than every grant before."""

from __future__ import annotations

from support.api import Api, lease_path
from support.polling import eventually
from support.stack import Stack


def test_tokens_of_200_grants_each_are_higher(api: Api, resource: str) -> None:
    last = 0
    with api.connection() as connection:
        for count in range(200):
            expires = count % 25 == 24
            answer = connection.post(
                "/v1/leases", {"resource": resource, "ttl_ms": 100 if expires else 10_000, "wait_ms": 2_000}
            )
            if expires and answer.status == 410:  # its validity was over before it could be answered
                continue
            assert answer.status == 201, answer
            lease = answer.json()
            assert lease["fencing_token"] > last, f"grant {count}"
            last = lease["fencing_token"]
            if not expires:
                assert connection.call("DELETE", lease_path(lease)).status == 204
    assert last < 2**53


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


def test_token_in_history_equals_token_in_answer(api: Api, resource: str) -> None:
    reported = []
    for _ in range(10):
        lease = api.must_acquire(resource)
        reported.append(lease["fencing_token"])
        api.must_release(lease)
    eventually(
        lambda: len(api.history(resource=resource, event="lease_granted")) == 10, goal="ten grants in the history"
    )
    assert [
        item["fencing_token"] for item in api.history(resource=resource, event="lease_granted", order="asc")
    ] == reported
