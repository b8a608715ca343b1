"""POST /v1/leases/{lease_id}/renew: extends a lease under the same token, and never restores a lost one."""

from __future__ import annotations

import pytest
from support.api import Api, expect_problem, lease_path, pointers_of
from support.cluster import Cluster
from support.polling import eventually, pause, NotInTime
from support.stack import Stack, lease_keys


def test_renewal_keeps_token_and_extends_lease(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=5_000)
    answer = api.renew(lease, ttl_ms=15_000)
    assert answer.status == 200, answer
    renewed = answer.json()
    assert renewed["fencing_token"] == lease["fencing_token"]
    assert renewed["resource"] == resource
    assert renewed["ttl_ms"] == 15_000
    assert 12_000 < renewed["validity_ms"] <= 14_848
    assert renewed["renewals_left"] == lease["renewals_left"] - 1
    eventually(
        lambda: sum(node.pttl(f"fg:lease:{resource}") > 12_000 for node in stack.nodes()) >= 3,
        goal="a majority has the new time",
    )


def test_renewal_with_shorter_ttl_does_not_shorten_lease(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=20_000)
    renewed = api.renew(lease, ttl_ms=2_000).json()
    assert renewed["ttl_ms"] == 2_000 and 0 < renewed["validity_ms"] <= 1_978
    assert sum(node.pttl(f"fg:lease:{resource}") > 12_000 for node in stack.nodes()) >= 3


def test_renewal_does_not_restore_lease_lost_by_majority(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource)
    nodes = stack.nodes()
    eventually(lambda: len(lease_keys(nodes, resource)) == 5, goal="the grant is on every node")
    for node in nodes[:3]:
        node.delete(f"fg:lease:{resource}")
    expect_problem(api.renew(lease), 410, "lease-lost")
    assert not lease_keys(nodes[:3], resource)


def acquire_on_all_nodes(stack: Stack, api: Api, resource: str) -> dict:
    """Returns a lease whose token is on every node. A first grant may have it on a majority only,
    because counters disagree."""

    def lease_or_release() -> dict | None:
        lease = api.must_acquire(resource)
        try:
            eventually(
                lambda: all(
                    str(lease["fencing_token"]) in (node.get(f"fg:lease:{resource}") or "") for node in stack.nodes()
                ),
                0.3,
            )
            return lease
        except NotInTime:
            api.must_release(lease)
            return None

    return eventually(lease_or_release, goal="a lease on all five")


def test_renewal_restores_lease_lost_by_minority(stack: Stack, api: Api, resource: str) -> None:
    stack.wait_until_all_vote()
    lease = acquire_on_all_nodes(stack, api, resource)
    nodes = stack.nodes()
    for node in nodes[:2]:
        node.delete(f"fg:lease:{resource}")
    answer = api.renew(lease)
    assert answer.status == 200, answer
    assert answer.json()["fencing_token"] == lease["fencing_token"]
    eventually(lambda: len(lease_keys(nodes, resource)) == 5, goal="the lease is back on every node")


@pytest.mark.parametrize("ttl_ms", [0, -1, 99, 3_600_000, "1000", 1.5, None, True, [], 2**70])
def test_renewal_with_wrong_ttl_400_and_lease_stays(api: Api, resource: str, ttl_ms: object) -> None:
    lease = api.must_acquire(resource)
    assert pointers_of(api.post(f"{lease_path(lease)}/renew", {"ttl_ms": ttl_ms})) == ["/ttl_ms"]
    assert api.read_lease(lease).json()["renewals_left"] == lease["renewals_left"]


def test_renewals_exhausted_409_and_lease_lives_until_its_end(cluster: Cluster, resource: str) -> None:
    gateway = cluster.start_gateway(cluster.settings(max_renewals=2, max_hold_ms=2_000))
    lease = gateway.api.must_acquire(resource, ttl_ms=1_500)
    assert lease["renewals_left"] == 2
    pause(0.02, "the lease is held for as long, so that the longest ttl exceeds max_hold_ms")
    expect_problem(gateway.api.renew(lease, ttl_ms=2_000), 409, "renewals-exhausted")
    assert [gateway.api.renew(lease, ttl_ms=500).json()["renewals_left"] for _ in range(2)] == [1, 0]
    expect_problem(gateway.api.renew(lease, ttl_ms=500), 409, "renewals-exhausted")
    assert gateway.api.read_lease(lease).status == 200
    assert gateway.stop() == 0
