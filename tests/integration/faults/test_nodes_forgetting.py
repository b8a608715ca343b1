"""Redis nodes that lose data without a restart, or restart without having synced,
through commands of another client."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import pytest
import redis
from support.api import Api
from support.cluster import MAX_TTL_MS, Cluster, Gateway, RedisServer
from support.cluster import running as running_cluster
from support.polling import eventually, pause
from support.stack import Stack


@pytest.fixture(scope="module")
def synced(stack: Stack) -> Iterator[Cluster]:
    """Nodes that sync every write, with a max_ttl_ms that is longer than the faults of a test."""
    with running_cluster(stack, "forgetting_synced", fsync="always", max_ttl_ms=6_000) as made:
        yield made


@pytest.fixture
def synced_gateway(synced: Cluster) -> Iterator[Gateway]:
    with synced.serving() as made:
        made.wait_until_all_vote()
        yield made


@pytest.fixture
def other_gateway(cluster: Cluster, ready_gateway: Gateway) -> Iterator[Gateway]:
    """A second gateway, which has observed no token of the first one."""
    with cluster.serving() as made:
        made.wait_until_all_vote()
        yield made


@contextmanager
def copy_of(node: RedisServer) -> Iterator[RedisServer]:
    """Runs another server with a copy of the node's data."""
    copy = RedisServer(node.folder, f"copy-{time.monotonic_ns()}")
    copy.start()
    try:
        replicate(copy, node)
        yield copy
    finally:
        copy.kill()


def replicate(server: RedisServer, source: RedisServer) -> None:
    """Makes the server a replica of `source` until the data is copied."""
    client = server.client()
    client.slaveof("127.0.0.1", source.port)
    eventually(lambda: client.info("replication").get("master_link_status") == "up", 15, goal="the data are copied")
    client.slaveof()


def token_of(answer: Any) -> int:
    return answer.json()["fencing_token"]


def wait_for_token(api: Api, resource: str) -> int:
    """Waits for a grant and returns its token."""
    return token_of(
        eventually(
            lambda: (found := api.acquire(resource, ttl_ms=500, wait_ms=1_000)).status == 201 and found,
            20,
            goal="granted again",
        )
    )


def expect_exclusive_until(api: Api, resource: str, lease: dict[str, Any], asked_at: float) -> None:
    """Checks that every attempt is refused until the validity of the lease,
    which was requested at `asked_at`, may be over."""
    until = asked_at + lease["validity_ms"] / 1000
    asked = 0
    while time.monotonic() < until:
        answer = api.acquire(resource, ttl_ms=500)
        assert answer.status in (423, 503) or time.monotonic() >= until, f"{answer} beside {lease}"
        asked += 1
    assert asked > 0


def states_of(gateway: Gateway) -> dict[str, str]:
    return {node["name"]: node["state"] for node in gateway.nodes()}


def count_changes_to(state: str, gateway: Gateway, node: RedisServer) -> int:
    """Returns how often the gateway's log has a change of the node to this state;
    a state may be too short to be polled."""
    return sum(line.startswith(f"{node.name}: ") and f"-> {state}" in line for line in node_messages(gateway, 0))


def epochs_of(gateway: Gateway) -> dict[str, int]:
    return {node["name"]: node["epoch"] for node in gateway.nodes()}


# Losses without a restart


def test_tokens_after_slaveof_to_older_data_only_grow(
    cluster: Cluster, ready_gateway: Gateway, other_gateway: Gateway, resource: str
) -> None:
    """Three nodes get a copy of their own older data, with fg:node, under the same run id."""
    api, nodes = ready_gateway.api, cluster.nodes[:3]
    api.must_release(api.must_acquire(resource, ttl_ms=500))
    with copy_of(nodes[0]) as a, copy_of(nodes[1]) as b, copy_of(nodes[2]) as c:
        before = []
        for _ in range(5):
            lease = api.must_acquire(resource, ttl_ms=500)
            before.append(lease["fencing_token"])
            api.must_release(lease)
        for node, copy in zip(nodes, (a, b, c)):
            replicate(node, copy)
        with cluster.stack.frozen([node.pid for node in cluster.nodes[3:]]):
            after = [wait_for_token(other_gateway.api, resource) for _ in range(3)]
        assert before + after == sorted({*before, *after})
    ready_gateway.wait_until_all_vote()


def test_node_that_was_replica_admits_no_rival(synced: Cluster, synced_gateway: Gateway, resource: str) -> None:
    """The lease is on three nodes of five; one of them becomes a replica of another node for a moment."""
    api, nodes = synced_gateway.api, synced.nodes
    with synced.stack.frozen([node.pid for node in nodes[3:]]):
        asked_at = time.monotonic()
        lease = api.must_acquire(resource, ttl_ms=synced.max_ttl_ms)
    for node in nodes[3:]:
        node.client().delete(f"fg:lease:{resource}")  # the grant that had waited in the socket
    quarantines = count_changes_to("quarantined", synced_gateway, nodes[2])
    replicate(nodes[2], nodes[3])
    expect_exclusive_until(api, resource, lease, asked_at)
    eventually(
        lambda: count_changes_to("quarantined", synced_gateway, nodes[2]) > quarantines, 15, goal="it is quarantined"
    )
    synced_gateway.wait_until_all_vote()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
def test_lease_and_tokens_survive_evicted_keys(
    cluster: Cluster, ready_gateway: Gateway, other_gateway: Gateway, unique_name: Callable[[str], str], policy: str
) -> None:
    """A low maxmemory evicts all keys, and the settings are restored before a gateway checks the node."""
    api, resource, held = ready_gateway.api, unique_name("evicted"), unique_name("held")
    before = api.must_acquire(resource, ttl_ms=500)
    api.must_release(before)
    asked_at = time.monotonic()
    lease = api.must_acquire(held, ttl_ms=MAX_TTL_MS)
    for node in cluster.clients()[:3]:
        node.config_set("maxmemory", 1)
        node.config_set("maxmemory-policy", policy)
        keys = "fg:lease:*" if policy == "volatile-lru" else "fg:[lt]*"
        with pytest.raises(redis.exceptions.ResponseError):  # even an empty server needs more memory
            for _ in range(200):
                node.set("foreign", "x", ex=1)
        assert node.info("stats")["evicted_keys"] > 0 and not node.keys(keys)
        node.config_set("maxmemory-policy", "noeviction")
        node.config_set("maxmemory", 0)
    pause(0.02, "a node compares its settings once in 10 ms")
    with cluster.stack.frozen([node.pid for node in cluster.nodes[3:]]):
        expect_exclusive_until(other_gateway.api, held, lease, asked_at)
        assert wait_for_token(other_gateway.api, resource) > before["fencing_token"]
    ready_gateway.wait_until_all_vote()


def test_tokens_after_loss_and_reset_counts_only_grow(
    cluster: Cluster, ready_gateway: Gateway, other_gateway: Gateway, resource: str
) -> None:
    api = ready_gateway.api
    before = api.must_acquire(resource, ttl_ms=500)
    api.must_release(before)
    for node in cluster.clients():
        counters = node.keys("fg:token:*")
        for counter in counters:
            node.rename(counter, f"gone-{counter}")
        node.config_resetstat()
    pause(0.02, "a node compares its counts once in 10 ms")
    assert wait_for_token(other_gateway.api, resource) > before["fencing_token"]
    ready_gateway.wait_until_all_vote()


def test_node_that_forgot_is_quarantined_and_gets_new_epoch(cluster: Cluster, ready_gateway: Gateway) -> None:
    before = epochs_of(ready_gateway)
    node, forgot_at = cluster.nodes[0], time.monotonic()
    quarantines = count_changes_to("quarantined", ready_gateway, node)
    cluster.nodes[0].client().execute_command("SWAPDB", "1", "2")
    eventually(
        lambda: count_changes_to("quarantined", ready_gateway, node) > quarantines,
        15,
        goal="noticed without any traffic",
    )
    ready_gateway.wait_until_all_vote()
    assert time.monotonic() - forgot_at > 1, "the bound of answers, which is the cluster's node_timeout_ms"
    after = epochs_of(ready_gateway)
    assert after.pop("node-1") > max(before.values())
    assert all(after[name] == before[name] for name in after)
    events = ready_gateway.api.history(event="node_quarantined", limit=5)
    assert any("node-1" in str(event) for event in events), events


def test_nodes_with_harmless_setting_changed_keep_voting(
    cluster: Cluster, ready_gateway: Gateway, resource: str
) -> None:
    before = epochs_of(ready_gateway)
    quarantines = [count_changes_to("quarantined", ready_gateway, node) for node in cluster.nodes]
    for node in cluster.clients():
        node.config_set("slowlog-log-slower-than", 4_321)
    eventually(lambda: ready_gateway.api.acquire(resource, ttl_ms=500, wait_ms=1_000).status == 201, 15, goal="granted")
    ready_gateway.wait_until_all_vote()
    assert (
        epochs_of(ready_gateway) == before
        and [count_changes_to("quarantined", ready_gateway, node) for node in cluster.nodes] == quarantines
    )


# Losses with a restart


def test_lease_on_killed_nodes_without_sync_admits_no_rival(
    synced: Cluster, synced_gateway: Gateway, resource: str
) -> None:
    """CONFIG SET appendonly no: after the restart nothing shows that writes were not synced."""
    api = synced_gateway.api
    for node in synced.clients()[:3]:
        node.config_set("appendonly", "no")

    def granted() -> tuple[float, dict[str, Any]] | None:
        asked_at = time.monotonic()
        answer = api.acquire(resource, ttl_ms=synced.max_ttl_ms)
        return (asked_at, answer.json()) if answer.status == 201 else None

    asked_at, lease = eventually(granted)
    for node in synced.nodes[:3]:
        node.kill()
    for node in synced.nodes[:3]:
        node.start()
    expect_exclusive_until(api, resource, lease, asked_at)
    synced_gateway.wait_until_all_vote()


def test_older_file_with_sync_switched_on_later_admits_no_rival(
    synced: Cluster, synced_gateway: Gateway, resource: str
) -> None:
    """The nodes start with an older RDB file of the same life; Redis' own way to an append-only file makes them look as
    if they had always synced."""
    api, nodes = synced_gateway.api, synced.nodes[:3]
    for client in synced.clients()[:3]:
        client.save()
    asked_at = time.monotonic()
    lease = api.must_acquire(resource, ttl_ms=synced.max_ttl_ms)
    quarantines = {node.name: count_changes_to("quarantined", synced_gateway, node) for node in nodes}
    for node in nodes:
        node.kill()
        shutil.rmtree(node.folder / "appendonlydir")
        node.start("without")
    for node in nodes:
        eventually(
            lambda node=node: count_changes_to("quarantined", synced_gateway, node) > quarantines[node.name],
            5,
            goal="it is quarantined",
        )
        node.client().config_set("appendfsync", "always")
        node.client().config_set("appendonly", "yes")
    expect_exclusive_until(api, resource, lease, asked_at)
    synced_gateway.wait_until_all_vote()
    for node in nodes:
        (node.folder / "dump.rdb").unlink(missing_ok=True)


def test_second_restart_does_not_end_the_quarantine(synced: Cluster, synced_gateway: Gateway) -> None:
    """The node has loaded an older file and has written it to a new append-only file: restarted again,
    nothing of it shows that."""
    node = synced.nodes[0]
    node.client().save()
    quarantines = count_changes_to("quarantined", synced_gateway, node)
    node.kill()
    shutil.rmtree(node.folder / "appendonlydir")
    node.start("without")
    node.client().config_set("appendfsync", "always")
    node.client().config_set("appendonly", "yes")
    eventually(
        lambda: count_changes_to("quarantined", synced_gateway, node) == quarantines + 1, 5, goal="it is quarantined"
    )
    eventually(
        lambda: node.client().info("persistence")["aof_rewrite_in_progress"] == 0,
        5,
        goal="the append-only file is written",
    )
    node.kill()
    node.start()
    synced_gateway.wait_until_all_vote()
    assert count_changes_to("quarantined", synced_gateway, node) == quarantines + 2
    (node.folder / "dump.rdb").unlink(missing_ok=True)


@pytest.mark.parametrize("setting, value", [("no-appendfsync-on-rewrite", "yes"), ("appendfsync", "everysec")])
def test_node_without_sync_is_quarantined_after_restart(
    synced: Cluster, synced_gateway: Gateway, setting: str, value: str
) -> None:
    node, client = synced.nodes[0], synced.clients()[0]
    before = client.config_get(setting)[setting]
    client.config_set(setting, value)
    eventually(lambda: not is_synced_life(synced, node.name), goal="the register records that it does not sync")
    client.config_set(setting, before)
    synced_gateway.wait_until_all_vote()
    quarantines = count_changes_to("quarantined", synced_gateway, node)
    node.restart_empty()  # with its append-only file
    eventually(
        lambda: count_changes_to("quarantined", synced_gateway, node) > quarantines, 15, goal="it is quarantined"
    )
    synced_gateway.wait_until_all_vote()
    assert is_synced_life(synced, node.name), "a new life"
    quarantines, losses = (count_changes_to(state, synced_gateway, node) for state in ("quarantined", "unreachable"))
    node.restart_empty()
    eventually(lambda: count_changes_to("unreachable", synced_gateway, node) > losses, 15, goal="its end is noticed")
    synced_gateway.wait_until_all_vote()
    assert (
        count_changes_to("quarantined", synced_gateway, node) == quarantines
    ), "it synced as long as it voted, and needs no quarantine"


def test_node_with_unfinished_rewrite_counts_as_not_synced(synced: Cluster, synced_gateway: Gateway) -> None:
    """CONFIG SET appendonly no and yes: until the rewrite has ended, a crash restores the older file."""
    node, client = synced.nodes[1], synced.clients()[1]
    for number in range(20):
        client.set(f"fg:token:{number}", 0, nx=True)
    client.config_set("rdb-key-save-delay", 1_000_000)  # microseconds that the rewrite takes for each key
    client.config_set("appendonly", "no")
    client.config_set("appendonly", "yes")
    eventually(lambda: not is_synced_life(synced, node.name), goal="the register records that it does not sync")
    quarantines = count_changes_to("quarantined", synced_gateway, node)
    node.restart_empty()
    eventually(
        lambda: count_changes_to("quarantined", synced_gateway, node) > quarantines, 15, goal="it is quarantined"
    )
    synced_gateway.wait_until_all_vote()


def is_synced_life(cluster: Cluster, node: str) -> bool:
    return cluster.query("select synced from fencing.node where name = %s", (node,))[0][0]


def test_epochs_are_drawn_only_for_lives_that_vote(cluster: Cluster, resource: str) -> None:
    """Eight threads of one gateway and a second gateway see each life; only a life that votes uses an epoch."""
    settings = cluster.settings()
    settings["http"]["threads"] = 8
    made = [cluster.gateway(settings), cluster.gateway()]
    for member in made:
        member.start()
        member.wait_until_all_vote()
    try:
        before = read_epoch(cluster)
        voted = count_history_events(made[0], "node_readmitted", "node-1")
        for _ in range(4):
            quarantines = count_history_events(made[0], "node_quarantined", "node-1")
            cluster.nodes[0].restart_empty()
            eventually(
                lambda: count_history_events(made[0], "node_quarantined", "node-1") > quarantines,
                15,
                goal="its new life is quarantined",
            )
        between = read_epoch(cluster) - before
        assert (
            between <= count_history_events(made[0], "node_readmitted", "node-1") - voted
        ), "a life that never voted has used an epoch"
        for member in made:
            member.wait_until_all_vote()
        assert read_epoch(cluster) == before + between + 1
    finally:
        for member in made:
            member.kill()


def count_history_events(gateway: Gateway, event: str, node: str) -> int:
    """Returns the number of such events of the node in the history, from all gateways."""
    return sum(node in str(item) for item in gateway.api.history(event=event))


def read_epoch(cluster: Cluster) -> int:
    return cluster.query("select epoch from fencing.cluster")[0][0]


# The log


def test_log_of_lost_node_has_one_line_for_each_change(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["http"]["threads"] = 4
    settings["log"] = {"json": True}
    gateway = cluster.start_gateway(settings)
    gateway.wait_until_all_vote()
    try:
        at = len(gateway.log.read_text())
        cluster.nodes[1].restart_empty()
        lines = eventually(
            lambda: (found := node_messages(gateway, at))
            and "-> voting" in found[-1]
            and any("-> quarantined" in line for line in found)
            and found,
            20,
            goal="it was quarantined and votes",
        )
    finally:
        gateway.kill()
    changes = [line.split(": ")[1] for line in lines]
    assert all(line.startswith("node-2: ") for line in lines), lines
    assert changes[0] == "voting -> unreachable", lines
    # Each change begins with the state in which the one before ended:
    # one line for the gateway, not one for each thread.
    assert all(before.split(" -> ")[1] == after.split(" -> ")[0] for before, after in zip(changes, changes[1:])), lines
    assert all(len(set(change.split(" -> "))) == 2 for change in changes), lines


def test_log_of_flapping_node_is_limited(cluster: Cluster, ready_gateway: Gateway) -> None:
    for _ in range(12):
        cluster.nodes[4].kill()
        eventually(lambda: states_of(ready_gateway)["node-5"] == "unreachable", 5)
        cluster.nodes[4].start()
        eventually(lambda: states_of(ready_gateway)["node-5"] in ("quarantined", "voting"), 5)
    lines = [line for line in node_messages(ready_gateway, 0) if "node-5" in line]
    assert len(lines) == 12, lines
    ready_gateway.wait_until_all_vote()


def node_messages(gateway: Gateway, after: int) -> list[str]:
    """Returns the changes of nodes' states in the log: `node-1: voting -> unreachable: detail`."""
    found = []
    for line in gateway.log.read_text()[after:].splitlines():
        fields = json.loads(line) if line.startswith("{") else {}
        if fields.get("message") == "node changed its state":
            found.append(
                f"{fields['node']}: {fields['old_state']} -> {fields['new_state']}: {fields.get('detail', '')}"
            )
    return found
