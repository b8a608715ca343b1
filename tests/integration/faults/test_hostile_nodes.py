"""Redis nodes that an attacker has: one that answers what it likes, and leases that are changed on every node.
Leases are not safe from that; the gateway and the data are."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support.api import expect_problem
from support.cluster import Cluster, Gateway
from support.faults import count_holders_of_token, counter_key
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack
from support.tcp_gate import open_gates

MEBIBYTE = 1 << 20
RSS_MAX = 256 * MEBIBYTE

PIECE = b"x" * 65536
# What the node sends after each piece of input that it reads.
BEHAVIOURS: dict[str, Callable[[], Iterator[bytes]]] = {
    "noise": lambda: iter([bytes(range(256)) * 16]),
    "nested": lambda: iter([b"*1\r\n" * 100_000]),
    "negative": lambda: iter([b"$-2\r\n", b"*-5\r\n", b":99999999999999999999\r\n"]),
    "huge-array": lambda: iter([b"*2147483647\r\n"]),
    "endless-text": lambda: endless(b"$2000000000\r\n"),
    "endless-line": lambda: endless(b"+"),
    "endless-array": lambda: endless(b"*2147483647\r\n", b":1\r\n" * 16384),
    "ok-to-everything": lambda: iter([b"+OK\r\n" * 64]),
    "unasked": lambda: iter([b"+OK\r\n" * 2000]),
    "no-message": lambda: iter([b"*1\r\n:1\r\n"]),
    "empty-message": lambda: iter([b"*0\r\n"]),
    "message-of-numbers": lambda: iter([b"*3\r\n:1\r\n:2\r\n:3\r\n"]),
    "subscribed-to-text": lambda: iter([b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n"]),
    "unsubscribed": lambda: iter([b"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"]),
    "errors": lambda: iter([b"-NOAUTH " + b"e" * 60_000 + b"\r\n"]),
}


def endless(begin: bytes, piece: bytes = PIECE) -> Iterator[bytes]:
    yield begin
    while True:
        yield piece


class HostileNode:
    """Accepts connections and answers each piece of input by the behaviour."""

    def __init__(self, behaviour: Callable[[], Iterator[bytes]]) -> None:
        self.behaviour, self.connections = behaviour, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.closing = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed
                return
            self.connections += 1
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(65536):
                    for piece in self.behaviour():
                        if self.closing.is_set():
                            return
                        connection.sendall(piece)
            except OSError:  # the gateway closed it
                pass

    def close(self) -> None:
        self.closing.set()
        self.listener.close()


def memory_peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_node_with_hostile_answers_changes_nothing(cluster: Cluster, resource: str, behaviour: str) -> None:
    """One of five. It does not vote, leases are granted by the others, and the gateway's memory stays small."""
    node = HostileNode(BEHAVIOURS[behaviour])
    gateway = cluster.gateway(cluster.settings([*(server.port for server in cluster.nodes[:4]), node.port]))
    try:
        gateway.start()
        eventually(lambda: node.connections > 3, 30, goal="the gateway connected several times")
        lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
        assert lease["quorum"]["granted"] <= 4
        assert gateway.api.release(lease).status in (204, 410)
        assert gateway.nodes()[4]["state"] in ("unreachable", "misconfigured")
        assert memory_peak(gateway.pid) < RSS_MAX
        assert gateway.stop() == 0
    finally:
        node.close()
        gateway.kill()


def test_listing_endless_on_one_node_is_finished_by_others(cluster: Cluster, resource: str) -> None:
    """The first node always names a further part: of its LIST replies, `0 CURSOR names`, the cursor is never 0."""
    with open_gates([node.port for node in cluster.nodes]) as gates:
        with cluster.serving(cluster.settings(ports=[gate.port for gate in gates.members])) as gateway:
            gateway.wait_until_all_vote()
            parts = 0

            def name_a_further_part(replies: bytes) -> bytes:
                nonlocal parts
                changed, count = re.subn(rb"(\r\n0 )0(?=[ \t\r])", rb"\g<1>7", replies)
                parts += count
                return changed

            gates.members[0].replies.rewrite = name_a_further_part
            listed = gateway.api.get("/v1/leases", resource_prefix=resource)
            assert listed.status == 200, listed
            assert parts > 10
            for gate in gates.members[:3]:
                gate.refuse()
                gate.cut()
            answers = {
                node["answer"] for node in expect_problem(gateway.api.get("/v1/leases"), 503, "no-quorum")["nodes"]
            }
            assert answers == {"listed", "no answer"}


def drawn_epoch(cluster: Cluster) -> int:
    return cluster.query("select epoch from fencing.cluster")[0][0]


def own_epoch(cluster: Cluster, node: int = 4) -> int:
    return int(cluster.nodes[node].client().hget("fg:node", "base")) >> 32


@pytest.mark.parametrize(
    "field, value",
    [
        ("floor", "2097150 8d24129b-c30d-4bd5-a91c-e108557b2a0f"),
        ("floor", "9223372036854775807 8d24129b-c30d-4bd5-a91c-e108557b2a0f"),
        ("base", str(2_097_150 << 32)),
    ],
)
def test_node_with_implausible_epoch_uses_up_no_epochs(
    cluster: Cluster, ready_gateway: Gateway, resource: str, field: str, value: str
) -> None:
    """It does not vote and says why; the others are admitted with the next epochs,
    also by a gateway that has seen nothing before."""
    redis, before = cluster.nodes[4].client(), drawn_epoch(cluster)
    correct = redis.hget("fg:node", field)
    redis.hset("fg:node", field, value)
    redis.client_kill_filter(_type="normal", skipme=True)
    try:
        eventually(lambda: ready_gateway.nodes()[4]["state"] == "misconfigured", 15, goal="the node does not vote")
        assert str(int(value.split()[0]) >> (32 if field == "base" else 0)) in ready_gateway.nodes()[4]["detail"]
        assert "its data are not of this cluster, or were changed by hand" in ready_gateway.nodes()[4]["detail"]
        cluster.nodes[0].restart_empty()
        eventually(lambda: ready_gateway.nodes()[0]["state"] == "voting", 15, goal="the restarted node is admitted")
        assert drawn_epoch(cluster) == before + 1
        assert ready_gateway.api.must_acquire(resource, ttl_ms=2_000)["fencing_token"] >> 32 == before + 1
        ready_gateway.stop()
        ready_gateway.start()
        cluster.nodes[1].restart_empty()
        eventually(
            lambda: ready_gateway.nodes()[1]["state"] == "voting" and own_epoch(cluster, 1) == before + 2,
            15,
            goal="the restarted node is admitted",
        )
        assert drawn_epoch(cluster) == before + 2
    finally:
        if correct is None:
            redis.hdel("fg:node", field)
        else:
            redis.hset("fg:node", field, correct)
    ready_gateway.wait_until_all_vote()


def test_node_with_implausible_epoch_that_restarts_draws_none(cluster: Cluster, ready_gateway: Gateway) -> None:
    node, before = cluster.nodes[4], drawn_epoch(cluster)
    ready_gateway.stop()
    node.restart_empty()
    node.client().hset("fg:node", mapping={"run": "an earlier process", "base": str(2_097_150 << 32)})
    ready_gateway.start()
    eventually(lambda: ready_gateway.nodes()[4]["state"] == "misconfigured", 15, goal="the node does not vote")
    assert drawn_epoch(cluster) == before
    node.client().delete("fg:node")
    ready_gateway.wait_until_all_vote()
    assert drawn_epoch(cluster) == before + 1


def test_counter_at_the_end_of_all_tokens_of_one_node_is_ignored(
    cluster: Cluster, ready_gateway: Gateway, resource: str
) -> None:
    """Each grant is as usual, no refused acquire uses up an epoch,
    and the node takes part again as soon as the value is gone."""
    redis, before = cluster.nodes[4].client(), drawn_epoch(cluster)
    highest = max(own_epoch(cluster, node) for node in range(5))
    for counter in (9_007_199_254_740_990, 9_007_199_254_740_991, (highest + 65_600) << 32):
        redis.set(counter_key(resource), counter)
        for _ in range(3):
            lease = ready_gateway.api.must_acquire(resource, ttl_ms=2_000)
            assert lease["fencing_token"] >> 32 == highest
            expect_problem(ready_gateway.api.acquire(resource), 423, "resource-locked")
            ready_gateway.api.must_release(lease)
    assert drawn_epoch(cluster) == before
    redis.delete(counter_key(resource))
    eventually(lambda: all_grant(cluster, ready_gateway, resource), goal="all nodes grant")
    assert drawn_epoch(cluster) == before


def all_grant(cluster: Cluster, gateway: Gateway, resource: str) -> bool:
    """Returns whether a new lease has its token on all nodes."""
    lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
    found = count_holders_of_token(cluster.clients(), resource, lease["fencing_token"])
    gateway.api.must_release(lease)
    return found == 5


def test_lease_deleted_on_nodes_lets_no_older_write_pass(stack: Stack, api: object, sku: Sku) -> None:
    """An attacker who may write on all nodes can give a resource to two holders. The guard refuses the older one,
    once the newer one has written."""
    first, second = stack.api(), stack.api()
    older = first.must_acquire(sku.resource)
    for node in stack.nodes():
        node.delete(f"fg:lease:{sku.resource}")
    newer = second.must_acquire(sku.resource)
    assert newer["fencing_token"] > older["fencing_token"]
    second.must_write(newer, sku.sell())
    expect_problem(first.write(older, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 9
    second.must_release(newer)
