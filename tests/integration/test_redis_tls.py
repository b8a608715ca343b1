"""Connections to Redis nodes by TLS: leases, `check`, and each way in which a certificate is refused."""

from __future__ import annotations

import json
import shutil
from typing import Any, Iterator

import pytest
import redis

from support import processes
from support.certificates import Authority
from support.cluster import Cluster, RedisServer
from support.polling import eventually
from support.stack import Stack

UNAVAILABLE = 69


class TlsServer(RedisServer):
    """A node that is reached by TLS only and wants a certificate of its callers."""

    def __init__(self, plain: RedisServer, authority: Authority, alternative_names: str) -> None:
        self.__dict__.update(plain.__dict__)
        self.authority, self.own = authority, authority.issue(self.name, alternative_names)

    def launch(self, fsync: str | None = None) -> None:
        self.process = processes.start(
            [
                *"redis-server --bind 127.0.0.1 --port 0 --tls-port".split(),
                str(self.port),
                "--dir",
                str(self.folder),
                "--save",
                "",
                "--appendonly",
                "no",
                "--tls-cert-file",
                str(self.own.file),
                "--tls-key-file",
                str(self.own.key),
                "--tls-ca-cert-file",
                str(self.authority.file),
                "--tls-auth-clients",
                "yes",
            ],
            self.folder / "log",
        )

    def client(self) -> redis.Redis:
        return redis.Redis(
            "127.0.0.1",
            self.port,
            decode_responses=True,
            socket_timeout=5,
            ssl=True,
            ssl_ca_certs=str(self.authority.file),
            ssl_certfile=str(self.own.file),
            ssl_keyfile=str(self.own.key),
            ssl_check_hostname=False,
        )


class TlsCluster(Cluster):
    """Its fifth node's certificate names another host."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "redis_tls")
        self.authority = Authority(self.folder, "ca")
        self.own = self.authority.issue("gateway", "DNS:gateway")
        self.nodes = [
            TlsServer(node, self.authority, "IP:127.0.0.1" if node.name != "node-5" else "DNS:elsewhere.example")
            for node in self.nodes
        ]

    def settings(self, ports: list[int] | None = None, **lease: object) -> dict[str, Any]:
        settings = super().settings(ports, **lease)
        settings["redis"]["tls"] = {
            "ca_file": str(self.authority.file),
            "certificate_file": str(self.own.file),
            "key_file": str(self.own.key),
        }
        return settings


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[TlsCluster]:
    made = TlsCluster(stack)
    try:
        made.start()
        yield made
    finally:
        made.remove()


def states(cluster: TlsCluster) -> dict[str, str]:
    return {node["name"]: node["state"] for node in cluster.gateways[-1].nodes()}


def check(cluster: TlsCluster, settings: dict[str, Any]) -> tuple[int, str]:
    file = cluster.folder / "checked.yaml"
    file.write_text(json.dumps(settings))
    done = cluster.run("check", file)
    return done.returncode, done.stdout + done.stderr


def test_lease_over_tls_and_wrong_name_does_not_vote(cluster: TlsCluster) -> None:
    gateway = cluster.start_gateway()
    eventually(lambda: list(states(cluster).values()).count("voting") == 4, 20, goal="four nodes vote")
    eventually(
        lambda: (refused := gateway.nodes()[4])["state"] == "unreachable"
        and "certificate verify failed" in refused["detail"],
        goal="the fifth node is refused",
    )
    gateway.api.must_release(gateway.api.must_acquire("tls/a", ttl_ms=2_000))
    # A waiter learns of a release by a subscription, which is another connection to each node.
    held = gateway.api.must_acquire("tls/b", ttl_ms=2_000)
    waiter = gateway.api.begin_wait("tls/b", ttl_ms=2_000)
    gateway.api.must_release(held)
    assert waiter.answer().status == 201
    gateway.stop()


def test_check_names_the_fault_of_each_node(cluster: TlsCluster) -> None:
    code, shown = check(cluster, cluster.settings())
    assert code == UNAVAILABLE and shown.count("Redis 7") == 4 and "certificate verify failed" in shown, shown
    stranger = Authority(cluster.folder, "stranger")
    settings = cluster.settings()
    settings["redis"]["tls"]["ca_file"] = str(stranger.file)
    code, shown = check(cluster, settings)
    assert code == UNAVAILABLE and shown.count("certificate verify failed") == 5, shown
    settings = cluster.settings()
    del settings["redis"]["tls"]
    code, shown = check(cluster, settings)
    assert code == UNAVAILABLE and "Redis 7" not in shown, shown
    settings = cluster.settings()
    settings["redis"]["tls"] = {"ca_file": str(cluster.authority.file)}
    code, shown = check(cluster, settings)
    assert code == UNAVAILABLE and "Redis 7" not in shown, "the nodes want a certificate of their callers: " + shown


@pytest.mark.parametrize(
    "tls, fault",
    [
        ({"ca_file": "no such file"}, "redis.tls.ca_file: "),
        (
            {"certificate_file": "gateway.pem"},
            "redis.tls: certificate_file and key_file are given together or not at all",
        ),
        ({"ca_file": "/etc/passwd"}, "redis.tls.ca_file: has no readable certificate"),
        ({"ca": "ca.pem"}, "redis.tls.ca: "),
    ],
)
def test_faults_of_the_section_are_named(cluster: TlsCluster, tls: dict[str, str], fault: str) -> None:
    settings = cluster.settings()
    settings["redis"]["tls"] = tls
    code, shown = check(cluster, settings)
    assert code == 78 and fault in shown, shown


def test_renewed_certificates_need_no_restart(cluster: TlsCluster) -> None:
    """The nodes move to another authority, one after the other; the gateway reads its files for each new connection."""
    node = cluster.nodes[0]
    assert isinstance(node, TlsServer)
    gateway = cluster.start_gateway()
    eventually(lambda: states(cluster)["node-1"] == "voting", 20, goal="the node votes")
    second = Authority(cluster.folder, "second")
    both = cluster.folder / "both.pem"
    both.write_text(cluster.authority.file.read_text() + second.file.read_text())
    shutil.copy(both, cluster.authority.file)
    node.kill()
    node.own = second.issue("node-1-second", "IP:127.0.0.1")
    node.start()
    eventually(
        lambda: states(cluster)["node-1"] == "voting",
        20,
        goal="the node with a certificate of the second authority votes",
    )
    gateway.stop()
