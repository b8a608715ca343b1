"""The nodes of a cluster: their order does not matter, and one is replaced as docs/operations/nodes.md describes."""

from __future__ import annotations

import json
from typing import Iterator

import pytest
from support.api import Api
from support.cluster import MAX_TTL_MS, Cluster, RedisServer
from support.cluster import running as running_cluster
from support.stack import Stack


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    with running_cluster(stack, "membership") as made:
        made.gateway().start()
        made.gateways[0].wait_until_all_vote()
        yield made


def test_gateway_with_nodes_in_another_order_starts(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["redis"]["nodes"].reverse()
    other_gateway = cluster.start_gateway(settings)
    held = cluster.gateways[0].api.must_acquire("order/1", ttl_ms=2_000)
    assert other_gateway.api.acquire("order/1").status == 423
    other_gateway.api.must_release(held)
    other_gateway.stop()


def test_answer_bound_not_given_is_taken_from_the_cluster(cluster: Cluster) -> None:
    """The first gateway set its node_timeout_ms of 1000. One that gives another value is refused,
    and one that gives none is not."""
    without = cluster.settings()
    without["redis"]["node_timeout_ms"] = 200
    other_gateway = cluster.start_gateway(without)
    assert cluster.run("check", other_gateway.config).returncode == 0
    other_gateway.stop()
    differing = cluster.gateway(cluster.settings(answer_bound_ms=500))
    checked = cluster.run("check", differing.config)
    assert (
        checked.returncode == 69
        and "lease.answer_bound_ms differs: the cluster has 1000, this configuration 500" in checked.stdout
    )
    refused = cluster.run("serve", differing.config)
    assert (
        refused.returncode == 69
        and "lease.answer_bound_ms: answer_bound_ms differs: the cluster has 1000, this gateway 500"
        in refused.stdout + refused.stderr
    )


def test_node_timeout_above_answer_bound_is_warned_of(cluster: Cluster) -> None:
    settings = cluster.settings()
    warning = "WARNING: redis.node_timeout_ms is 1500, above lease.answer_bound_ms of the cluster, 1000: "
    for node_timeout_ms, warned in ((1_000, False), (1_500, True)):
        settings["redis"]["node_timeout_ms"] = node_timeout_ms
        gateway = cluster.gateway(settings)
        checked = cluster.run("check", gateway.config)
        assert checked.returncode == 0 and (warning in checked.stdout) == warned, checked
        gateway.start()
        assert (warning.removeprefix("WARNING: ") in gateway.log.read_text()) == warned
        gateway.stop()


def test_node_replaced_as_documented_votes_under_new_epoch(cluster: Cluster) -> None:
    """Two gateways, restarted one after the other; a lease can be taken at any moment, and every token is higher."""
    first = cluster.gateways[0]
    second = cluster.start_gateway()
    second.wait_until_all_vote()
    tokens = [first.api.must_acquire("replaced/1", ttl_ms=200)["fencing_token"]]

    def next_token(api: Api) -> None:
        tokens.append(api.must_acquire("replaced/1", ttl_ms=200, wait_ms=10_000)["fencing_token"])

    old = cluster.nodes[2]
    old.kill()
    next_token(first.api)
    replacement = RedisServer(cluster.folder, "node-3-again")
    replacement.name = old.name
    cluster.nodes[2] = replacement
    replacement.start()
    for gateway in (first, second):
        gateway.stop()
        next_token(second.api if gateway is first else first.api)
        settings = json.loads(gateway.config.read_text())
        settings["redis"]["nodes"] = cluster.settings()["redis"]["nodes"]
        gateway.config.write_text(json.dumps(settings))
        gateway.start()
        next_token(gateway.api)
    state = next(node for node in first.nodes() if node["name"] == old.name)
    assert state["state"] in ("quarantined", "voting")
    for gateway in (first, second):
        gateway.wait_until_all_vote(timeout=30 + MAX_TTL_MS / 1_000)
        next_token(gateway.api)
    epochs = [node["epoch"] for node in first.nodes()]
    assert max(epochs) == next(node["epoch"] for node in first.nodes() if node["name"] == old.name)
    assert tokens == sorted(set(tokens)), "never equal, never lower"
