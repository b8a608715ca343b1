"""Redis nodes that forget without a restart, or restart without having synced: done by redis-cli's commands from outside."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import pytest
import redis
from support.api import Api
from support.cluster import MAX_TTL_MS, Cluster, Gateway, RedisServer
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack


@pytest.fixture(scope="module")
def synced(stack: Stack) -> Iterator[Cluster]:
    """Nodes that sync every write, with leases long enough for much to happen meanwhile."""
    with running_cluster(stack, "forgetting_synced", fsync="always", max_ttl_ms=6_000) as made:
        yield made


@pytest.fixture
def synced_gateway(synced: Cluster) -> Iterator[Gateway]:
    made = synced.gateway()
    made.start()
    made.wait_until_whole()
    yield made
    made.kill()


@pytest.fixture
def whole(gateway: Gateway) -> Gateway:
    gateway.wait_until_whole()
    return gateway


@pytest.fixture
def other(cluster: Cluster, whole: Gateway) -> Iterator[Gateway]:
    """A second gateway: it has heard of no token that the first one gave."""
    made = cluster.gateway()
    made.start()
    made.wait_until_whole()
    yield made
    made.kill()


@contextmanager
def copy_of(node: RedisServer) -> Iterator[RedisServer]:
    """Another server with what the node holds now."""
    copy = RedisServer(node.folder, f"copy-{time.monotonic_ns()}")
    copy.start()
    try:
        replicate(copy, node)
        yield copy
    finally:
        copy.kill()


def replicate(server: RedisServer, source: RedisServer) -> None:
    """SLAVEOF, and NO ONE as soon as the data are there."""
    client = server.client()
    client.slaveof("127.0.0.1", source.port)
    eventually(lambda: client.info("replication").get("master_link_status") == "up", 15, what="the data are copied")
    client.slaveof()


def token_of(answer: Any) -> int:
    return answer.json()["fencing_token"]


def next_token(api: Api, resource: str) -> int:
    """Of the first grant that comes."""
    return token_of(eventually(lambda: (got := api.ask(resource, ttl_ms=500, wait_ms=1_000)).status == 201 and got, 20, what="granted again"))


def nobody_else_gets(api: Api, resource: str, lease: dict[str, Any], asked_at: float) -> None:
    """Asks again and again until the lease, which was asked for at that time, may be over."""
    until = asked_at + lease["validity_ms"] / 1000
    asked = 0
    while time.monotonic() < until:
        answer = api.ask(resource, ttl_ms=500)
        assert answer.status in (423, 503) or time.monotonic() >= until, f"{answer} beside {lease}"
        asked += 1
    assert asked > 0


def states(gateway: Gateway) -> dict[str, str]:
    return {node["name"]: node["state"] for node in gateway.nodes()}


def changes_to(state: str, gateway: Gateway, node: RedisServer) -> int:
    """How often the gateway's log says that the node came to this state: a state may be over before it is looked at."""
    return sum(line.startswith(f"node {node.name}: ") and f"-> {state}" in line for line in node_lines(gateway, 0))


def epochs(gateway: Gateway) -> dict[str, int]:
    return {node["name"]: node["epoch"] for node in gateway.nodes()}


# Within one life


def test_tokens_when_nodes_go_back_by_slaveof_then_only_grow(cluster: Cluster, whole: Gateway, other: Gateway, resource: str) -> None:
    """Three nodes take over a copy of their own older data, record of the admission and all, under the same run id."""
    api, nodes = whole.api, cluster.nodes[:3]
    api.give_back(api.take(resource, ttl_ms=500))
    with copy_of(nodes[0]) as a, copy_of(nodes[1]) as b, copy_of(nodes[2]) as c:
        before = []
        for _ in range(5):
            lease = api.take(resource, ttl_ms=500)
            before.append(lease["fencing_token"])
            api.give_back(lease)
        for node, copy in zip(nodes, (a, b, c)):
            replicate(node, copy)
        with cluster.stack.frozen([node.pid for node in cluster.nodes[3:]]):
            after = [next_token(other.api, resource) for _ in range(3)]
        assert before + after == sorted({*before, *after})
    whole.wait_until_whole()


def test_node_when_it_was_a_replica_then_no_rival_gets_in(synced: Cluster, synced_gateway: Gateway, resource: str) -> None:
    """The lease stands on three nodes of five; one of them becomes a neighbour's replica for a moment."""
    api, nodes = synced_gateway.api, synced.nodes
    with synced.stack.frozen([node.pid for node in nodes[3:]]):
        asked_at = time.monotonic()
        lease = api.take(resource, ttl_ms=synced.max_ttl_ms)
    for node in nodes[3:]:
        node.client().delete(f"fg:lease:{resource}")  # what had waited in the socket
    quarantines = changes_to("quarantined", synced_gateway, nodes[2])
    replicate(nodes[2], nodes[3])
    nobody_else_gets(api, resource, lease, asked_at)
    eventually(lambda: changes_to("quarantined", synced_gateway, nodes[2]) > quarantines, 15, what="it sits out")
    synced_gateway.wait_until_whole()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
def test_lease_and_tokens_when_keys_were_evicted_then_hold(
        cluster: Cluster, whole: Gateway, other: Gateway, fresh: Callable[[str], str], policy: str) -> None:
    """Memory is short, the policy evicts until nothing is left, and all is put right before any gateway looks."""
    api, resource, held = whole.api, fresh("evicted"), fresh("held")
    before = api.take(resource, ttl_ms=500)
    api.give_back(before)
    asked_at = time.monotonic()
    lease = api.take(held, ttl_ms=MAX_TTL_MS)
    for node in cluster.clients()[:3]:
        node.config_set("maxmemory", 1)
        node.config_set("maxmemory-policy", policy)
        keys = "fg:lease:*" if policy == "volatile-lru" else "fg:[lt]*"
        with pytest.raises(redis.exceptions.ResponseError):  # still too much for the server itself
            for _ in range(200):
                node.set("foreign", "x", ex=1)
        assert node.info("stats")["evicted_keys"] > 0 and not node.keys(keys)
        node.config_set("maxmemory-policy", "noeviction")
        node.config_set("maxmemory", 0)
    with cluster.stack.frozen([node.pid for node in cluster.nodes[3:]]):
        nobody_else_gets(other.api, held, lease, asked_at)
        assert next_token(other.api, resource) > before["fencing_token"]
    whole.wait_until_whole()


def test_tokens_when_counts_were_reset_behind_a_loss_then_only_grow(cluster: Cluster, whole: Gateway, other: Gateway, resource: str) -> None:
    api = whole.api
    before = api.take(resource, ttl_ms=500)
    api.give_back(before)
    for node in cluster.clients():
        counters = node.keys("fg:token:*")
        for counter in counters:
            node.rename(counter, f"gone-{counter}")
        node.config_resetstat()
    assert next_token(other.api, resource) > before["fencing_token"]
    whole.wait_until_whole()


def test_node_when_it_forgot_then_sits_out_and_votes_under_a_new_epoch(cluster: Cluster, whole: Gateway) -> None:
    before = epochs(whole)
    node, forgot_at = cluster.nodes[0], time.monotonic()
    quarantines = changes_to("quarantined", whole, node)
    cluster.nodes[0].client().execute_command("SWAPDB", "1", "2")
    eventually(lambda: changes_to("quarantined", whole, node) > quarantines, 15, what="noticed without any traffic")
    whole.wait_until_whole()
    assert time.monotonic() - forgot_at > MAX_TTL_MS / 1000
    after = epochs(whole)
    assert after.pop("node-1") > max(before.values())
    assert all(after[name] == before[name] for name in after)
    events = whole.api.history(event="node_quarantined", limit=5)
    assert any("node-1" in str(event) for event in events), events


def test_nodes_when_a_harmless_setting_is_changed_then_all_vote_on(cluster: Cluster, whole: Gateway, resource: str) -> None:
    before = epochs(whole)
    quarantines = [changes_to("quarantined", whole, node) for node in cluster.nodes]
    for node in cluster.clients():
        node.config_set("slowlog-log-slower-than", 4_321)
    eventually(lambda: whole.api.ask(resource, ttl_ms=500, wait_ms=1_000).status == 201, 15, what="granted")
    whole.wait_until_whole()
    assert epochs(whole) == before and [changes_to("quarantined", whole, node) for node in cluster.nodes] == quarantines


# From one life to the next


def test_lease_when_nodes_stopped_to_sync_and_were_killed_then_no_rival_gets_in(synced: Cluster, synced_gateway: Gateway, resource: str) -> None:
    """CONFIG SET appendonly no: the file that is left says nothing of it."""
    api = synced_gateway.api
    for node in synced.clients()[:3]:
        node.config_set("appendonly", "no")

    def granted() -> tuple[float, dict[str, Any]] | None:
        asked_at = time.monotonic()
        answer = api.ask(resource, ttl_ms=synced.max_ttl_ms)
        return (asked_at, answer.json()) if answer.status == 201 else None

    asked_at, lease = eventually(granted, 10)
    for node in synced.nodes[:3]:
        node.kill()
    for node in synced.nodes[:3]:
        node.start()
    nobody_else_gets(api, resource, lease, asked_at)
    synced_gateway.wait_until_whole()


@pytest.mark.parametrize("setting, value", [("no-appendfsync-on-rewrite", "yes"), ("appendfsync", "everysec")])
def test_node_when_it_did_not_sync_for_a_while_then_sits_out_after_a_restart(synced: Cluster, synced_gateway: Gateway, setting: str, value: str) -> None:
    node, client = synced.nodes[0], synced.clients()[0]
    before = client.config_get(setting)[setting]
    client.config_set(setting, value)
    eventually(lambda: not synced_life(synced, node.name), 10, what="the register keeps that it does not sync")
    client.config_set(setting, before)
    synced_gateway.wait_until_whole()
    quarantines = changes_to("quarantined", synced_gateway, node)
    node.restart_empty()  # with its file
    eventually(lambda: changes_to("quarantined", synced_gateway, node) > quarantines, 15, what="it sits out")
    synced_gateway.wait_until_whole()
    assert synced_life(synced, node.name), "a new life"
    quarantines, losses = (changes_to(state, synced_gateway, node) for state in ("quarantined", "unreachable"))
    node.restart_empty()
    eventually(lambda: changes_to("unreachable", synced_gateway, node) > losses, 15, what="its end is noticed")
    synced_gateway.wait_until_whole()
    assert changes_to("quarantined", synced_gateway, node) == quarantines, "it synced as long as it voted: at once"


def test_node_when_its_new_file_is_not_whole_yet_then_it_counts_as_not_synced(synced: Cluster, synced_gateway: Gateway) -> None:
    """CONFIG SET appendonly no and yes: until the rewrite has ended a crash brings back the file of before."""
    node, client = synced.nodes[1], synced.clients()[1]
    for number in range(20):
        client.set(f"fg:token:{number}", 0, nx=True)
    client.config_set("rdb-key-save-delay", 1_000_000)  # so long the rewrite lasts a key
    client.config_set("appendonly", "no")
    client.config_set("appendonly", "yes")
    eventually(lambda: not synced_life(synced, node.name), 10, what="the register keeps that it does not sync")
    quarantines = changes_to("quarantined", synced_gateway, node)
    node.restart_empty()
    eventually(lambda: changes_to("quarantined", synced_gateway, node) > quarantines, 15, what="it sits out")
    synced_gateway.wait_until_whole()


def synced_life(cluster: Cluster, node: str) -> bool:
    return cluster.stack.query("select synced from fencing.node where name = %s", (node,), dbname=cluster.database)[0][0]


def test_epochs_when_a_node_crashes_again_and_again_then_one_a_life_that_voted(cluster: Cluster, resource: str) -> None:
    """Eight threads of a gateway and a second gateway see each life; only one that comes to vote costs an epoch."""
    settings = cluster.settings()
    settings["http"]["threads"] = 8
    made = [cluster.gateway(settings), cluster.gateway()]
    for each in made:
        each.start()
        each.wait_until_whole()
    try:
        before = drawn(cluster)
        voted = told_of(made[0], "node_readmitted", "node-1")
        for _ in range(4):
            quarantines = told_of(made[0], "node_quarantined", "node-1")
            cluster.nodes[0].restart_empty()
            eventually(lambda: told_of(made[0], "node_quarantined", "node-1") > quarantines, 15, what="its new life sits out")
        between = drawn(cluster) - before
        assert between <= told_of(made[0], "node_readmitted", "node-1") - voted, "a life that never came to vote has cost an epoch"
        for each in made:
            each.wait_until_whole()
        assert drawn(cluster) == before + between + 1
    finally:
        for each in made:
            each.kill()


def told_of(gateway: Gateway, event: str, node: str) -> int:
    """How many such events of the node the history has, from whichever gateway."""
    return sum(node in str(item) for item in gateway.api.history(event=event))


def drawn(cluster: Cluster) -> int:
    return cluster.stack.query("select epoch from fencing.cluster", dbname=cluster.database)[0][0]


# What an operator sees


def test_log_when_a_node_is_lost_and_comes_back_then_each_change_is_one_line(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["http"]["threads"] = 4
    settings["log"] = {"json": True}
    gateway = cluster.gateway(settings)
    gateway.start()
    gateway.wait_until_whole()
    try:
        at = len(gateway.log.read_text())
        cluster.nodes[1].restart_empty()
        lines = eventually(lambda: (got := node_lines(gateway, at)) and "-> voting" in got[-1] and any("-> quarantined" in line for line in got) and got, 20,
                           what="it has sat out and votes")
    finally:
        gateway.kill()
    changes = [line.split(": ")[1] for line in lines]
    assert all(line.startswith("node node-2: ") for line in lines), lines
    assert changes[0] == "voting -> unreachable", lines
    # Each line begins where the one before ended: one a gateway, not one a thread.
    assert all(before.split(" -> ")[1] == after.split(" -> ")[0] for before, after in zip(changes, changes[1:])), lines
    assert all(len(set(change.split(" -> "))) == 2 for change in changes), lines


def test_log_when_a_node_flaps_then_its_lines_are_limited(cluster: Cluster, whole: Gateway) -> None:
    for _ in range(12):
        cluster.nodes[4].kill()
        eventually(lambda: states(whole)["node-5"] == "unreachable", 5)
        cluster.nodes[4].start()
        eventually(lambda: states(whole)["node-5"] in ("quarantined", "voting"), 5)
    lines = [line for line in node_lines(whole, 0) if "node-5" in line]
    assert len(lines) == 12, lines
    whole.wait_until_whole()


def node_lines(gateway: Gateway, after: int) -> list[str]:
    """The log's messages about nodes."""
    found = []
    for line in gateway.log.read_text()[after:].splitlines():
        message = json.loads(line)["message"] if line.startswith("{") else line
        if "node node-" in message:
            found.append(message[message.index("node node-"):])
    return found
