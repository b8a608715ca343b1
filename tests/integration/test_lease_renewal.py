"""POST /v1/leases/{lease_id}/renew: extends a lease under the same token, and never restores a lost one."""

from __future__ import annotations

import time

import pytest
from support.api import Api, expect_problem, lease_path, pointers_of
from support.cluster import Cluster
from support.faults import expect_exclusive_until
from support.polling import eventually, pause, NotInTime, remains
from support.stack import Stack, lease_keys


def wait_for_expiry(api: Api, lease: dict) -> None:
    eventually(lambda: api.read_lease(lease).status == 410, lease["ttl_ms"] / 1000 + 2, goal="the lease runs out")


def test_renewal_keeps_token_and_extends_lease(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=5_000)
    answer = api.renew(lease, ttl_ms=15_000)
    assert answer.status == 200, answer
    renewed = answer.json()
    assert renewed["fencing_token"] == lease["fencing_token"]
    assert renewed["resource"] == resource
    assert renewed["ttl_ms"] == 15_000
    assert 12_000 < renewed["validity_ms"] <= 14_848
    assert renewed["renewals_left"] == lease["renewals_left"] - 1


def test_renewal_outlives_first_ttl(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=2_000)
    renewed = api.renew(lease, ttl_ms=20_000).json()
    pause(2.3, "past the first ttl")
    for known in (lease, renewed):
        assert api.read_lease(known).status == 200
    expect_problem(api.acquire(resource), 423, "resource-locked")
    eventually(lambda: sum(node.pttl(f"fg:lease:{resource}") > 15_000 for node in stack.nodes()) >= 3, goal="a majority has the new time")
    api.must_release(renewed)
    assert api.acquire(resource).status == 201


def test_renewal_with_shorter_ttl_holds_for_its_validity(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=20_000)
    asked = time.monotonic()
    renewed = api.renew(lease, ttl_ms=2_000).json()
    assert 0 < renewed["validity_ms"] <= 1_978
    assert expect_exclusive_until(api, resource, asked + renewed["validity_ms"] / 1000) > 0, "held for its whole validity"


def test_renewals_keep_token(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=20_000)
    left = lease["renewals_left"]
    for count in range(1, 31):
        renewed = api.renew(lease, ttl_ms=20_000).json()
        assert (renewed["fencing_token"], renewed["renewals_left"]) == (lease["fencing_token"], left - count)


def test_renewal_of_lost_lease_410_and_restores_nothing(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource, ttl_ms=200)
    wait_for_expiry(api, lease)
    expect_problem(api.renew(lease, ttl_ms=500), 410, "lease-lost")  # a minority, where the key is still there, may extend it
    nodes = stack.nodes()
    eventually(lambda: not lease_keys(nodes, resource), 10, goal="the keys expire, later than the validity by the allowance for drift")
    remains(lambda: not lease_keys(nodes, resource), 0.3, goal="no key is written again")


def test_renewal_after_new_grant_410_and_new_lease_stays(api: Api, resource: str) -> None:
    old = api.must_acquire(resource, ttl_ms=200)
    wait_for_expiry(api, old)
    new = api.must_acquire(resource, ttl_ms=2_000)
    expect_problem(api.renew(old, ttl_ms=60_000), 410, "lease-lost")
    seen = api.read_lease(new).json()
    assert seen["fencing_token"] == new["fencing_token"] and seen["validity_ms"] < 2_000


def test_renewal_of_released_lease_410(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource)
    api.must_release(lease)
    expect_problem(api.renew(lease), 410, "lease-lost")
    assert api.acquire(resource).status == 201


def test_renewal_does_not_restore_lease_lost_by_majority(stack: Stack, api: Api, resource: str) -> None:
    lease = api.must_acquire(resource)
    nodes = stack.nodes()
    eventually(lambda: len(lease_keys(nodes, resource)) == 5, goal="the grant is on every node")
    for node in nodes[:3]:
        node.delete(f"fg:lease:{resource}")
    expect_problem(api.renew(lease), 410, "lease-lost")
    assert not lease_keys(nodes[:3], resource)


def acquire_on_all_nodes(stack: Stack, api: Api, resource: str) -> dict:
    """Returns a lease whose token is on every node. A first grant may have it on a majority only, because counters disagree."""

    def lease_or_release() -> dict | None:
        lease = api.must_acquire(resource)
        try:
            eventually(lambda: all(str(lease["fencing_token"]) in (node.get(f"fg:lease:{resource}") or "") for node in stack.nodes()), 0.3)
            return lease
        except NotInTime:
            api.must_release(lease)
            return None

    return eventually(lease_or_release, 10, goal="a lease on all five")


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
    assert pointers_of(api.call("POST", f"{lease_path(lease)}/renew", {"ttl_ms": ttl_ms})) == ["/ttl_ms"]
    assert api.read_lease(lease).json()["renewals_left"] == lease["renewals_left"]


def test_renewals_exhausted_409_and_lease_lives_until_its_end(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_renewals=2))
    gateway.start()
    lease = gateway.api.must_acquire(resource, ttl_ms=1_500)
    assert lease["renewals_left"] == 2
    assert [gateway.api.renew(lease, ttl_ms=1_500).json()["renewals_left"] for _ in range(2)] == [1, 0]
    expect_problem(gateway.api.renew(lease, ttl_ms=1_500), 409, "renewals-exhausted")
    assert gateway.api.read_lease(lease).status == 200
    assert gateway.stop() == 0


def test_renewal_beyond_max_hold_409(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_hold_ms=2_500))
    gateway.start()
    began = time.monotonic()
    lease = gateway.api.must_acquire(resource, ttl_ms=1_500)

    def refused() -> bool:
        answer = gateway.api.renew(lease, ttl_ms=1_500)
        if answer.status == 200:
            return False
        expect_problem(answer, 409, "renewals-exhausted")
        return True

    eventually(refused, 4, interval=0.2, goal="held as long as it may be")
    assert time.monotonic() - began > 0.5
    assert gateway.stop() == 0
