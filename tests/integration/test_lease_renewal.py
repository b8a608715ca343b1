"""POST /v1/leases/{lease_id}/renew: longer, under the same token, and never back from the dead."""

from __future__ import annotations

import time

import pytest
from support.api import Api, expect_problem, lease_path, pointers_of
from support.cluster import Cluster
from support.polling import eventually, let_pass, NotInTime, stays
from support.stack import Stack, lease_keys


def run_out(api: Api, lease: dict) -> None:
    eventually(lambda: api.look(lease).status == 410, lease["ttl_ms"] / 1000 + 2, what="the lease runs out")


def test_lease_when_renewed_then_same_token_and_longer(api: Api, resource: str) -> None:
    lease = api.take(resource, ttl_ms=1_000)
    answer = api.renew(lease, ttl_ms=15_000)
    assert answer.status == 200, answer
    renewed = answer.json()
    assert renewed["fencing_token"] == lease["fencing_token"]
    assert renewed["resource"] == resource
    assert renewed["ttl_ms"] == 15_000
    assert 14_000 < renewed["validity_ms"] <= 14_848
    assert renewed["renewals_left"] == lease["renewals_left"] - 1


def test_lease_when_renewed_then_it_outlives_its_first_ttl(stack: Stack, api: Api, resource: str) -> None:
    lease = api.take(resource, ttl_ms=500)
    renewed = api.renew(lease, ttl_ms=20_000).json()
    let_pass(0.8, "past the first ttl")
    for known in (lease, renewed):
        assert api.look(known).status == 200
    expect_problem(api.ask(resource), 423, "resource-locked")
    eventually(lambda: sum(node.pttl(f"fg:lease:{resource}") > 15_000 for node in stack.nodes()) >= 3, what="a majority has the new time")
    api.give_back(renewed)
    assert api.ask(resource).status == 201


def test_lease_when_renewed_shorter_then_it_ends_sooner_or_at_least_not_before_it_said(api: Api, resource: str) -> None:
    lease = api.take(resource, ttl_ms=20_000)
    renewed = api.renew(lease, ttl_ms=1_000).json()
    assert 0 < renewed["validity_ms"] <= 988
    stays(lambda: api.ask(resource).status == 423, renewed["validity_ms"] / 1000 - 0.1, what="held for as long as it said")


def test_lease_when_renewed_many_times_then_always_the_same_token(api: Api, resource: str) -> None:
    lease = api.take(resource, ttl_ms=2_000)
    left = lease["renewals_left"]
    for count in range(1, 31):
        renewed = api.renew(lease, ttl_ms=2_000).json()
        assert (renewed["fencing_token"], renewed["renewals_left"]) == (lease["fencing_token"], left - count)


def test_lost_lease_when_renewed_then_410_and_nothing_comes_back(stack: Stack, api: Api, resource: str) -> None:
    lease = api.take(resource, ttl_ms=200)
    run_out(api, lease)
    expect_problem(api.renew(lease), 410, "lease-lost")
    nodes = stack.nodes()
    eventually(lambda: not lease_keys(nodes, resource), 10, what="the nodes' keys outlast its validity by the allowance for drift")
    stays(lambda: not lease_keys(nodes, resource), 0.3, what="nothing comes back")


def test_lost_lease_when_renewed_after_another_took_it_then_410_and_the_other_keeps_it(api: Api, resource: str) -> None:
    old = api.take(resource, ttl_ms=200)
    run_out(api, old)
    new = api.take(resource, ttl_ms=2_000)
    expect_problem(api.renew(old, ttl_ms=60_000), 410, "lease-lost")
    seen = api.look(new).json()
    assert seen["fencing_token"] == new["fencing_token"] and seen["validity_ms"] < 2_000


def test_released_lease_when_renewed_then_410(api: Api, resource: str) -> None:
    lease = api.take(resource)
    api.give_back(lease)
    expect_problem(api.renew(lease), 410, "lease-lost")
    assert api.ask(resource).status == 201


def test_lease_when_a_majority_of_nodes_lost_it_then_renewing_does_not_revive_it(stack: Stack, api: Api, resource: str) -> None:
    lease = api.take(resource)
    nodes = stack.nodes()
    eventually(lambda: len(lease_keys(nodes, resource)) == 5, what="the grant is on every node")
    for node in nodes[:3]:
        node.delete(f"fg:lease:{resource}")
    expect_problem(api.renew(lease), 410, "lease-lost")
    assert not lease_keys(nodes[:3], resource)


def take_on_all_five(stack: Stack, api: Api, resource: str) -> dict:
    """A lease whose token stands on every node, which takes counters that agree: those of a first grant may not, a majority is enough for it."""

    def lease_or_release() -> dict | None:
        lease = api.take(resource)
        try:
            eventually(lambda: all(str(lease["fencing_token"]) in (node.get(f"fg:lease:{resource}") or "") for node in stack.nodes()), 0.3)
            return lease
        except NotInTime:
            api.give_back(lease)
            return None

    return eventually(lease_or_release, 10, what="a lease on all five")


def test_lease_when_a_minority_lost_it_then_it_is_renewed_and_put_back(stack: Stack, api: Api, resource: str) -> None:
    stack.wait_until_whole()
    lease = take_on_all_five(stack, api, resource)
    nodes = stack.nodes()
    for node in nodes[:2]:
        node.delete(f"fg:lease:{resource}")
    answer = api.renew(lease)
    assert answer.status == 200, answer
    assert answer.json()["fencing_token"] == lease["fencing_token"]
    eventually(lambda: len(lease_keys(nodes, resource)) == 5, what="the lease is back on every node")


@pytest.mark.parametrize("ttl_ms", [0, -1, 99, 3_600_000, "1000", 1.5, None, True, [], 2**70])
def test_renewal_when_the_ttl_is_wrong_then_400_and_the_lease_stays(api: Api, resource: str, ttl_ms: object) -> None:
    lease = api.take(resource)
    assert pointers_of(api.call("POST", f"{lease_path(lease)}/renew", {"ttl_ms": ttl_ms})) == ["/ttl_ms"]
    assert api.look(lease).json()["renewals_left"] == lease["renewals_left"]


def test_renewals_when_used_up_then_409_and_the_lease_lives_until_it_ends(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_renewals=2))
    gateway.start()
    lease = gateway.api.take(resource, ttl_ms=1_500)
    assert lease["renewals_left"] == 2
    assert [gateway.api.renew(lease, ttl_ms=1_500).json()["renewals_left"] for _ in range(2)] == [1, 0]
    expect_problem(gateway.api.renew(lease, ttl_ms=1_500), 409, "renewals-exhausted")
    assert gateway.api.look(lease).status == 200
    assert gateway.stop() == 0


def test_hold_when_as_long_as_allowed_then_409(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_hold_ms=2_500))
    gateway.start()
    lease = gateway.api.take(resource, ttl_ms=1_500)

    def refused() -> bool:
        answer = gateway.api.renew(lease, ttl_ms=1_500)
        if answer.status == 200:
            return False
        expect_problem(answer, 409, "renewals-exhausted")
        return True

    began = time.monotonic()
    eventually(refused, 4, every=0.2, what="held as long as it may be")
    assert time.monotonic() - began > 0.5
    assert gateway.stop() == 0
