"""Redis nodes that an attacker has: one that answers what it likes, and leases that are changed on every node. Leases are not safe from that; the gateway and the data are."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support.api import expect_problem
from support.cluster import Cluster
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack

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


def test_lease_deleted_on_nodes_lets_no_older_write_pass(stack: Stack, api: object, sku: Sku) -> None:
    """An attacker who may write on all nodes can give a resource to two holders. The guard refuses the older one, once the newer one has written."""
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
