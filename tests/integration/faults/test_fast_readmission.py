"""A node that forgot its leases votes again once it has a copy of those of the other nodes,
long before max_ttl_ms is over (docs/protocol.md, FAST READMISSION)."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest
from support.api import Json, expect_problem
from support.cluster import Cluster, Gateway, RedisServer, two_gateways
from support.cluster import running as running_cluster
from support.events import open_kept_lease
from support.polling import eventually, remains
from support.stack import Stack

MAX_TTL_MS = 60_000
ANSWER_BOUND_MS = 500


def settings_of(cluster: Cluster) -> Json:
    """Returns settings with the bound of answers that a production cluster has."""
    made = cluster.settings(answer_bound_ms=ANSWER_BOUND_MS)
    made["redis"]["node_timeout_ms"] = ANSWER_BOUND_MS
    return made


@pytest.fixture(scope="module")
def forgetful(stack: Stack) -> Iterator[Cluster]:
    """Nodes that lose everything at a restart, with a long max_ttl_ms."""
    with running_cluster(stack, "fast_readmission", max_ttl_ms=MAX_TTL_MS) as made:
        yield made


@pytest.fixture(scope="module")
def gateways(forgetful: Cluster) -> Iterator[tuple[Gateway, Gateway]]:
    with two_gateways(forgetful, settings_of) as made:
        yield made


def state_of(gateway: Gateway, node: RedisServer) -> Json:
    return next(found for found in gateway.nodes() if found["name"] == node.name)


def forget(nodes: list[RedisServer], *gateways: Gateway) -> float:
    """Restarts each node without its data; waits until it votes again at each gateway,
    and returns the longest time that this took."""
    longest = 0.0
    for node in nodes:
        before = state_of(gateways[0], node)["epoch"]
        began = time.monotonic()
        node.restart_empty()
        for gateway in gateways:
            eventually(
                lambda gateway=gateway: (now := state_of(gateway, node))["state"] == "voting" and now["epoch"] > before,
                30,
                interval=0.01,
                goal=f"{node.name} votes again",
            )
        longest = max(longest, time.monotonic() - began)
    return longest


@contextmanager
def without(cluster: Cluster, nodes: list[RedisServer], *gateways: Gateway) -> Iterator[None]:
    """Lets the nodes hang while the block lasts, so that the others must decide."""
    with cluster.stack.frozen([node.pid for node in nodes]):
        yield
    for gateway in gateways:
        gateway.wait_until_all_vote()


def expect_held(gateway: Gateway, resource: str) -> None:
    """Checks that a majority refuses the resource to somebody else."""
    expect_problem(
        eventually(
            lambda: (answer := gateway.api.acquire(resource, owner="rival", ttl_ms=500)).status != 503 and answer,
            goal="an answer of a majority",
        ),
        423,
        "resource-locked",
    )


def test_node_that_forgot_votes_after_bound_of_answers(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], unique_name: Callable[[str], str]
) -> None:
    leases = [gateways[0].api.must_acquire(unique_name("test/held"), ttl_ms=40_000) for _ in range(20)]
    seconds = forget(forgetful.nodes[:1], *gateways)
    assert ANSWER_BOUND_MS / 1000 < seconds < MAX_TTL_MS / 4_000, "long before max_ttl_ms is over"
    copied = forgetful.nodes[0].client()
    for lease in leases:
        assert 0 < copied.pttl(f"fg:lease:{lease['resource']}") <= 40_001
    for lease in leases:
        gateways[0].api.must_release(lease)
    eventually(
        lambda: not copied.exists(*[f"fg:lease:{lease['resource']}" for lease in leases]),
        5,
        goal="a release deletes the copy",
    )


def test_lease_is_exclusive_on_majority_of_copies(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    """The lease is on three nodes; two of them forget, and then the third one hangs: only the copies know of it."""
    nodes = forgetful.nodes
    with without(forgetful, nodes[3:], *gateways):
        lease = gateways[0].api.must_acquire(resource, owner="holder", ttl_ms=MAX_TTL_MS)
    for node in nodes[3:]:
        node.client().delete(f"fg:lease:{resource}")  # the request that had waited in the socket
    forget(nodes[:2], *gateways)
    with without(forgetful, nodes[2:3], *gateways):
        for gateway in gateways:
            answer = gateway.api.acquire(resource, owner="rival", ttl_ms=500)
            assert answer.status in (423, 503), answer
    gateways[0].api.must_release(lease)


@pytest.mark.parametrize("hung", [slice(1, 3), slice(3, 5)], ids=["first-two", "last-two"])
def test_copy_excludes_while_two_other_nodes_hang(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str, hung: slice
) -> None:
    lease = gateways[0].api.must_acquire(resource, owner="holder", ttl_ms=MAX_TTL_MS)
    forget(forgetful.nodes[:1], *gateways)
    with without(forgetful, forgetful.nodes[hung], *gateways):
        for gateway in gateways:
            expect_held(gateway, resource)
    renewed = gateways[1].api.renew(lease, ttl_ms=MAX_TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == lease["fencing_token"], renewed
    gateways[0].api.must_release(lease)


def test_lease_survives_each_node_forgetting_in_turn(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    """In the end no node has what it was granted: the lease lives on in copies, each of which an UPGRADE made count."""
    with open_kept_lease(gateways[0].api, resource, owner="keeper", ttl_ms=6_000) as kept:
        lease = kept.wait_for_grant()
        for node in forgetful.nodes:
            renewals = kept.names().count("renewed")
            forget([node], *gateways)
            expect_held(gateways[1], resource)
            eventually(lambda: kept.names().count("renewed") > renewals, goal="it is renewed")
        assert set(kept.names()) == {"granted", "renewed"} and {
            event.data["fencing_token"] for event in kept.events
        } == {lease["fencing_token"]}
        assert gateways[1].api.read_lease(lease).json()["owner"] == "keeper"


def test_copy_has_all_holds(forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str) -> None:
    first, second = (gateway.api for gateway in gateways)
    one = first.must_acquire(resource, owner="keeper", ttl_ms=MAX_TTL_MS)
    two = second.acquire(resource, owner="keeper", ttl_ms=MAX_TTL_MS).json()
    three = second.acquire(resource, owner="keeper", ttl_ms=MAX_TTL_MS).json()
    assert second.release(three).json()["hold_count"] == 2
    forget(forgetful.nodes[:1], *gateways)
    lines = forgetful.nodes[0].client().get(f"fg:lease:{resource}").split("\x01")[0].split("\n")
    assert len(lines[4].split(",")) == 2 and len(lines[5].split(",")) == 1, lines
    assert first.release(one).json()["hold_count"] == 1
    expect_held(gateways[0], resource)
    first.must_release(two)
    eventually(
        lambda: first.acquire(resource, owner="rival", ttl_ms=500).status == 201, 5, goal="free after its last hold"
    )


def test_copy_has_close_mark(forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str) -> None:
    """A lease that is being sealed takes no further hold, also where only copies of the mark are left."""
    api = gateways[0].api
    lease = api.must_acquire(resource, owner="keeper", ttl_ms=MAX_TTL_MS)
    mark = lines_of(forgetful.nodes[1], resource)[4].split(",")[0] + "0123456789abcdef"
    for node in forgetful.nodes[1:]:  # as CLOSE leaves it
        lines = lines_of(node, resource)
        lines[6] = mark
        node.client().set(f"fg:lease:{resource}", "\n".join(lines), keepttl=True)
    forget(forgetful.nodes[:1], *gateways)
    assert lines_of(forgetful.nodes[0], resource)[6] == mark
    with without(forgetful, forgetful.nodes[1:3], *gateways):
        assert api.acquire(resource, owner="keeper", ttl_ms=500).status in (423, 503)
    api.release(lease)


def lines_of(node: RedisServer, resource: str) -> list[str]:
    """Returns the lines of the lease on the node, without the marks of waiting gateways."""
    return (
        eventually(lambda: node.client().get(f"fg:lease:{resource}"), 5, goal="the lease is on the node")
        .split("\x01")[0]
        .split("\n")
    )


def nonce_on(node: RedisServer, resource: str) -> str:
    return lines_of(node, resource)[0].split()[0]


def put_other_lease(nodes: list[RedisServer], resource: str, other: str) -> None:
    """Gives the nodes the other resource's lease in the place of this one's."""
    for node in nodes:
        node.client().set(f"fg:lease:{resource}", "\n".join(lines_of(node, other)), px=MAX_TTL_MS)


def test_lease_survives_another_key_on_one_node(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str, unique_name: Callable[[str], str]
) -> None:
    """The key of one node, as a failed attempt leaves it,
    is no valid lease: of two nodes that forget each gets the lease of the others."""
    api = gateways[0].api
    other = unique_name("test/other")
    with open_kept_lease(api, resource, owner="keeper", ttl_ms=6_000) as kept:
        lease = kept.wait_for_grant()
        strange = api.must_acquire(other, ttl_ms=MAX_TTL_MS)
        put_other_lease(forgetful.nodes[1:2], resource, other)
        for node in (forgetful.nodes[0], forgetful.nodes[2]):
            renewals = kept.names().count("renewed")
            forget([node], *gateways)
            assert nonce_on(node, resource) == nonce_on(forgetful.nodes[4], resource)
            eventually(lambda: kept.names().count("renewed") > renewals, goal="it is renewed")
        assert set(kept.names()) == {"granted", "renewed"} and api.read_lease(lease).json()["owner"] == "keeper"
    api.must_release(strange)


def test_leases_that_may_both_be_valid_become_a_block(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str, unique_name: Callable[[str], str]
) -> None:
    """Two nodes have one lease and two another one; with the node that forgot each may have had a majority."""
    api = gateways[0].api
    other = unique_name("test/other")
    lease, strange = api.must_acquire(resource, ttl_ms=MAX_TTL_MS), api.must_acquire(other, ttl_ms=MAX_TTL_MS)
    put_other_lease(forgetful.nodes[1:3], resource, other)
    forget(forgetful.nodes[:1], *gateways)
    assert nonce_on(forgetful.nodes[0], resource) not in {nonce_on(node, resource) for node in forgetful.nodes[1:]}
    assert lines_of(forgetful.nodes[0], resource)[1:3] == ["", ""], "of nobody"
    expect_held(gateways[1], resource)
    for node in forgetful.nodes:
        node.client().delete(f"fg:lease:{resource}")
    for each in (lease, strange):
        api.release(each)


def test_data_lost_in_one_life_are_copied(forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str) -> None:
    """FLUSHALL: the run id stays."""
    lease = gateways[0].api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    node = forgetful.nodes[0]
    before = state_of(gateways[0], node)["epoch"]
    node.client().flushall()
    for gateway in gateways:
        eventually(
            lambda gateway=gateway: (now := state_of(gateway, node))["state"] == "voting" and now["epoch"] > before,
            15,
            goal="it votes again",
        )
    assert node.client().pttl(f"fg:lease:{resource}") > 30_000
    gateways[0].api.must_release(lease)


def test_two_voting_nodes_are_too_few_to_copy_from(stack: Stack, resource: str) -> None:
    """Three of five nodes forget at once: no set of the others need have a lease that those three had."""
    with running_cluster(stack, "fast_readmission_few", max_ttl_ms=6_000) as cluster:
        gateway = cluster.start_gateway(settings_of(cluster))
        gateway.wait_until_all_vote()
        began = time.monotonic()
        lease = gateway.api.must_acquire(resource, ttl_ms=6_000)
        for node in cluster.nodes[:3]:
            node.kill()
        for node in cluster.nodes[:3]:
            node.start()
        eventually(
            lambda: [state["state"] for state in gateway.nodes()] == ["quarantined"] * 3 + ["voting"] * 2,
            5,
            goal="they are quarantined",
        )
        left = [state["quarantine_left_ms"] for state in gateway.nodes()[:3]]
        remains(
            lambda: [state["state"] for state in gateway.nodes()] == ["quarantined"] * 3 + ["voting"] * 2
            and gateway.api.acquire(resource).status == 503,
            (min(left) - 1_500) / 1000,
        )
        gateway.wait_until_all_vote()
        assert time.monotonic() - began > 6
        eventually(
            lambda: gateway.api.acquire(resource, owner="rival", ttl_ms=500).status == 201,
            5,
            goal="the lease has expired",
        )
        assert gateway.api.renew(lease, ttl_ms=1_000).status == 410
        gateway.kill()


def test_shared_leases_survive_each_node_forgetting_in_turn(
    forgetful: Cluster, gateways: tuple[Gateway, Gateway], resource: str
) -> None:
    first, second = (gateway.api for gateway in gateways)
    readers = [api.must_acquire(resource, mode="shared", ttl_ms=MAX_TTL_MS) for api in (first, second, second)]
    mixed = first.must_acquire(f"{resource}/own", shared=[resource], ttl_ms=MAX_TTL_MS)
    for node in forgetful.nodes:
        forget([node], *gateways)
        expect_held(gateways[1], resource)
        for reader in (*readers, mixed):
            assert second.renew(reader, ttl_ms=MAX_TTL_MS).status == 200
    shown = first.get(f"/v1/resources/{resource.replace('/', '%2F')}").json()
    assert shown["shared_leases_total"] == 4
    for reader in (*readers, mixed):
        expect_held(gateways[0], resource)
        second.must_release(reader)
    writer = eventually(
        lambda: (answer := first.acquire(resource, ttl_ms=500)).status == 201 and answer.json(), 5, goal="it is free"
    )
    assert writer["fencing_token"] > max(reader["fencing_token"] for reader in (*readers, mixed))
