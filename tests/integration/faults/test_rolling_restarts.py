"""Orderly restarts of nodes that sync every write, one at a time or three at once,
while a lease is held: the lease stays with its holder (docs/protocol.md, UPGRADE)."""

from __future__ import annotations

import itertools
from typing import Callable, Iterator

import pytest
from support.api import Api, Json, expect_problem
from support.cluster import Cluster, Gateway, RedisServer, two_gateways
from support.cluster import running as running_cluster
from support.events import open_kept_lease
from support.polling import eventually, pause
from support.stack import Stack

TTL_MS = 60_000


@pytest.fixture(scope="module")
def synced(stack: Stack) -> Iterator[Cluster]:
    """Nodes that sync every write, so that a restart loses nothing and needs no quarantine."""
    with running_cluster(stack, "rolling_restarts", fsync="always", max_ttl_ms=60_000) as made:
        yield made


@pytest.fixture(scope="module")
def gateways(synced: Cluster) -> Iterator[tuple[Gateway, Gateway]]:
    with two_gateways(synced) as made:
        yield made


def epochs_of(gateway: Gateway) -> dict[str, int]:
    """Returns the epochs of the nodes that vote."""
    return {node["name"]: node["epoch"] for node in gateway.nodes() if node["state"] == "voting"}


def restart(nodes: list[RedisServer], *gateways: Gateway) -> None:
    """Restarts the nodes in order, and waits until they vote at each gateway in their new life."""
    before = epochs_of(gateways[0])
    for node in nodes:
        node.restart_orderly()
    for gateway in gateways:
        eventually(
            lambda gateway=gateway: all(
                (now := epochs_of(gateway)).get(node.name, 0) > before[node.name] for node in nodes
            ),
            15,
            interval=0.005,
            goal=f"{[node.name for node in nodes]} vote again",
        )


def expect_held(api: Api, resource: str) -> None:
    """Checks that nobody else is granted the resource; a node that restarts may leave the answer open for a moment."""
    expect_problem(
        eventually(
            lambda: (answer := api.acquire(resource, owner="rival", ttl_ms=500)).status != 503 and answer,
            5,
            goal="an answer of a majority",
        ),
        423,
        "resource-locked",
    )


def expect_unchanged(api: Api, lease: Json) -> None:
    """Checks token, owner and hold of the lease as a majority has them now."""
    answer = api.read_lease(lease)
    assert answer.status == 200, answer
    assert {name: answer.json()[name] for name in ("lease_id", "fencing_token", "owner", "hold_count")} == {
        name: lease[name] for name in ("lease_id", "fencing_token", "owner", "hold_count")
    }


def test_kept_lease_survives_twenty_rolling_restarts(
    synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    """Between two renewals every node is restarted, so most renewals need an UPGRADE without a majority that counts."""
    api, rival = gateways[0].api, gateways[1].api
    with open_kept_lease(api, resource, owner="keeper", ttl_ms=6_000) as kept:
        lease = kept.wait_for_grant()
        for _ in range(20):
            for node in synced.nodes:
                restart([node], gateways[0])
                expect_held(rival, resource)
            assert set(kept.names()) <= {"granted", "renewed"}, kept.events[-1]
        renewals = kept.names().count("renewed")
        eventually(lambda: kept.names().count("renewed") > renewals, goal="it is still renewed")
        assert set(kept.names()) == {"granted", "renewed"} and {
            event.data["fencing_token"] for event in kept.events
        } == {lease["fencing_token"]}
        assert {event.data["lease_id"] for event in kept.events} == {lease["lease_id"]}
        expect_unchanged(api, lease)
    eventually(lambda: rival.acquire(resource, ttl_ms=500).status == 201, 5, goal="its release leaves nothing behind")


@pytest.mark.parametrize("count", [1, 2], ids=["one-gateway", "two-gateways-in-turn"])
def test_renewed_lease_survives_rolling_restarts(
    synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str, count: int
) -> None:
    in_turn = itertools.cycle(gateways[:count])
    lease = gateways[0].api.must_acquire(resource, owner="keeper", ttl_ms=TTL_MS)
    for _ in range(4):
        for node in synced.nodes:
            restart([node], *gateways)
            expect_held(gateways[1].api, resource)
            renewed = next(in_turn).api.renew(lease, ttl_ms=TTL_MS)
            assert renewed.status == 200 and renewed.json()["fencing_token"] == lease["fencing_token"], renewed
    expect_unchanged(gateways[0].api, lease)
    gateways[1].api.must_release(lease)


@pytest.mark.parametrize("count", [3, 5])
def test_lease_survives_restarts_between_two_renewals(
    synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str, count: int
) -> None:
    """Only the gateway that renewed last knows that the lease is valid,
    and so that nobody else was granted the resource since."""
    first, second = (gateway.api for gateway in gateways)
    lease = first.must_acquire(resource, owner="keeper", ttl_ms=2_000)
    assert first.renew(lease, ttl_ms=TTL_MS).status == 200
    pause(lease["validity_ms"] / 1000, "the validity of the grant; from now on only that of the renewal lasts")
    restart(synced.nodes[:count], *gateways)
    expect_problem(second.renew(lease, ttl_ms=TTL_MS), 503, "no-quorum")
    expect_held(second, resource)
    renewed = first.renew(lease, ttl_ms=TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == lease["fencing_token"], renewed
    assert second.renew(lease, ttl_ms=TTL_MS).status == 200, "a majority counts again"
    expect_unchanged(second, lease)
    first.must_release(lease)


def test_lease_over_after_restarts_is_not_renewed(
    synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    """Once its validity is over the gateway does not know whether somebody else had the resource meanwhile."""
    first, second = (gateway.api for gateway in gateways)
    lease = first.must_acquire(resource, ttl_ms=1_000)
    restart(synced.nodes[:3], gateways[0])
    eventually(
        lambda: second.acquire(resource, owner="rival", ttl_ms=TTL_MS).status == 201, goal="the lease has expired"
    )
    assert first.renew(lease, ttl_ms=TTL_MS).status in (410, 503)
    expect_problem(first.acquire(resource, owner="third"), 423, "resource-locked")


def test_several_resources_survive_rolling_restarts(
    synced: Cluster, gateways: tuple[Gateway, Gateway], unique_name: Callable[[str], str]
) -> None:
    names = [unique_name("test/rolling") for _ in range(3)]
    api = gateways[0].api
    lease = api.post("/v1/leases", {"resources": names, "owner": "keeper", "ttl_ms": TTL_MS}).json()
    for nodes in (synced.nodes[:1], synced.nodes[1:3], synced.nodes[2:]):
        restart(nodes, *gateways)
        assert (renewed := api.renew(lease, ttl_ms=TTL_MS)).status == 200 and renewed.json()["fencing_token"] == lease[
            "fencing_token"
        ], renewed
        for name in names:
            expect_held(gateways[1].api, name)
    api.must_release(lease)


def test_holds_survive_rolling_restarts(synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str) -> None:
    first, second = (gateway.api for gateway in gateways)
    one = first.must_acquire(resource, owner="keeper", ttl_ms=TTL_MS)
    two = second.acquire(resource, owner="keeper", ttl_ms=TTL_MS).json()
    assert (two["fencing_token"], two["hold_count"]) == (one["fencing_token"], 2)
    for node in synced.nodes:
        restart([node], *gateways)
        assert second.renew(two, ttl_ms=TTL_MS).status == 200
    assert first.renew(one, ttl_ms=TTL_MS).json()["hold_count"] == 2
    assert first.release(one).status == 200
    expect_held(first, resource)
    second.must_release(two)
    eventually(
        lambda: first.acquire(resource, owner="rival", ttl_ms=500).status == 201, 5, goal="free after its last hold"
    )


def test_shared_leases_survive_rolling_restarts(
    synced: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    """A kept lease, one that both gateways renew, and one that shares the resource beside an exclusive one."""
    first, second = (gateway.api for gateway in gateways)
    with open_kept_lease(first, resource, mode="shared", ttl_ms=6_000) as kept:
        kept.wait_for_grant()
        renewed = first.must_acquire(resource, mode="shared", ttl_ms=TTL_MS)
        mixed = second.must_acquire(f"{resource}/own", shared=[resource], ttl_ms=TTL_MS)
        for nodes in (synced.nodes[:1], synced.nodes[1:3], synced.nodes[2:]):
            restart(nodes, *gateways)
            for lease, api in ((renewed, second), (renewed, first), (mixed, second)):
                answer = api.renew(lease, ttl_ms=TTL_MS)
                assert answer.status == 200, answer
                assert answer.json()["fencing_token"] == lease["fencing_token"]
            expect_held(second, resource)
            expect_held(first, f"{resource}/own")
            assert first.acquire(resource, mode="shared", ttl_ms=500).status == 201, "others share it too"
        assert set(kept.names()) == {"granted", "renewed"}, kept.events[-1]
    for lease in (renewed, mixed):
        expect_held(first, resource)
        second.must_release(lease)
    eventually(lambda: first.acquire(resource, ttl_ms=500).status == 201, 5, goal="free after the last of them")
