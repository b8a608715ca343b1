"""Why a call about leases failed: what ended the lease, and why nodes do not vote.
What `check` says of the restart of a node."""

from __future__ import annotations

import pytest
from support.api import Api, expect_problem
from support.cluster import Cluster, running
from support.polling import eventually
from support.stack import Stack


def cause_of_loss(api: Api, lease: dict) -> str:
    return expect_problem(api.release(lease), 410, "lease-lost")["detail"]


def test_lost_lease_says_whether_it_was_released_or_expired(api: Api, resource: str) -> None:
    released, expired, revoked = (
        api.must_acquire(f"{resource}/{kind}", ttl_ms=kept)
        for kind, kept in (("released", 10_000), ("expired", 100), ("revoked", 10_000))
    )
    api.must_release(released)
    assert api.revoke(f"{resource}/revoked").status == 204
    eventually(lambda: api.read_lease(expired).status == 410, goal="it has expired")
    causes = [cause_of_loss(api, lease) for lease in (released, expired, revoked)]
    assert "released before" in causes[0] and "has expired" in causes[1] and "was revoked" in causes[2], causes
    assert cause_of_loss(api, released) == causes[0]
    for lease, kind, end in (
        (released, "released", "was released"),
        (expired, "expired", "expired"),
        (revoked, "revoked", "was revoked"),
    ):
        said = f"; the latest one, with token {lease['fencing_token']}, {end} at "
        eventually(
            lambda kind=kind, said=said: said
            in expect_problem(api.revoke(f"{resource}/{kind}"), 404, "not-found")["detail"],
            goal=said,
        )
    for lease, cause in zip((released, revoked), (causes[0], causes[2])):
        assert (
            expect_problem(api.renew(lease), 410, "lease-lost")["detail"]
            == expect_problem(api.read_lease(lease), 410, "lease-lost")["detail"]
            == cause
        )


def test_released_hold_says_so_while_another_hold_lives(api: Api, resource: str) -> None:
    first = api.must_acquire(resource, ttl_ms=10_000, owner="worker")
    second = api.acquire(resource, ttl_ms=10_000, owner="worker").json()
    assert api.release(first).status == 200
    assert "released before" in expect_problem(api.read_lease(first), 410, "lease-lost")["detail"]
    assert api.read_lease(second).status == 200
    api.must_release(second)


def test_no_quorum_says_why_nodes_do_not_vote_and_for_how_long(stack: Stack) -> None:
    with running(stack, "causes", max_ttl_ms=60_000) as cluster:
        gateway = cluster.start_gateway()
        gateway.wait_until_all_vote()
        for node in cluster.nodes[:3]:
            node.restart_empty()  # two voting nodes are too few to copy the leases from
        cluster.nodes[3].kill()
        eventually(
            lambda: [node["state"] for node in gateway.nodes()] == ["quarantined"] * 3 + ["unreachable", "voting"],
            20,
            goal="one node votes",
        )
        for refused in (
            gateway.api.acquire("test/causes"),
            gateway.api.get("/readyz"),
            gateway.api.get("/readyz/leases"),
        ):
            nodes = expect_problem(refused, 503, "no-quorum")["nodes"]
            for node in nodes[:3]:
                assert "may have forgotten leases" in node["detail"] and 0 < node["quarantine_left_ms"] <= 60_000, node
            assert nodes[3]["detail"] and "quarantine_left_ms" not in nodes[3], nodes
            assert nodes[4].keys() == {"name", "answer"}, nodes


@pytest.mark.parametrize(
    "nodes, said",
    [
        (1, "quarantined for lease.max_ttl_ms (2000), and no lease is granted"),
        (3, "if 2 of the other 2 nodes vote meanwhile, else for up to lease.max_ttl_ms (2000)"),
        (5, "if 3 of the other 4 nodes vote meanwhile, else for up to lease.max_ttl_ms (2000)"),
    ],
)
def test_check_says_how_long_a_restarted_node_does_not_vote(cluster: Cluster, nodes: int, said: str) -> None:
    """These nodes do not sync every write."""
    settings = cluster.settings()
    del settings["redis"]["nodes"][nodes:]
    lines = [
        line
        for line in cluster.run("check", cluster.gateway(settings).config).stdout.splitlines()
        if "maxmemory-policy" in line
    ]
    assert len(lines) == nodes and all(said in line for line in lines), lines
