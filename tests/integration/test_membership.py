"""Which nodes a cluster has: their order does not matter, and one is replaced as docs/operations.md says."""

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
        made.gateways[0].wait_until_whole()
        yield made


def test_gateway_when_the_nodes_stand_in_another_order_then_starts(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["redis"]["nodes"].reverse()
    other = cluster.gateway(settings)
    other.start()
    held = cluster.gateways[0].api.take("order/1", ttl_ms=2_000)
    assert other.api.ask("order/1").status == 423
    other.api.give_back(held)
    other.stop()


def test_node_when_replaced_as_documented_then_votes_under_a_new_epoch_and_tokens_grow(cluster: Cluster) -> None:
    """Two gateways, restarted one after the other; a lease can be taken at any moment, and every token is higher."""
    first = cluster.gateways[0]
    second = cluster.gateway()
    second.start()
    second.wait_until_whole()
    tokens = [first.api.take("replaced/1", ttl_ms=200)["fencing_token"]]

    def next_token(api: Api) -> None:
        tokens.append(api.take("replaced/1", ttl_ms=200, wait_ms=10_000)["fencing_token"])

    old = cluster.nodes[2]
    old.kill()
    next_token(first.api)
    fresh = RedisServer(cluster.folder, "node-3-again")
    fresh.name = old.name
    cluster.nodes[2] = fresh
    fresh.start()
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
        gateway.wait_until_whole(within=30 + MAX_TTL_MS / 1_000)
        next_token(gateway.api)
    epochs = [node["epoch"] for node in first.nodes()]
    assert max(epochs) == next(node["epoch"] for node in first.nodes() if node["name"] == old.name)
    assert tokens == sorted(set(tokens)), "never equal, never lower"
