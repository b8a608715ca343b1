"""The gateways' password at the nodes: a refused one is named, its file is read again for each connection,
and it is replaced while calls go on."""

from __future__ import annotations

import re
from typing import Any, Iterator

import pytest
import redis
from support.api import expect_problem
from support.calls import Load
from support.cluster import Cluster, Gateway, RedisServer, running
from support.polling import eventually
from support.stack import Stack

RIGHTS = ["~fg:*", "&fg:*", "+@all"]


def client(node: RedisServer) -> redis.Redis:
    return redis.Redis(
        "127.0.0.1", node.port, username="admin", password="admin", decode_responses=True, socket_timeout=5
    )


@pytest.fixture
def closed(stack: Stack) -> Iterator[Cluster]:
    """Five nodes without a default user, whose user `gateway` has the password `hunter-1`."""
    with running(stack, "node_passwords", max_ttl_ms=60_000) as cluster:
        for node in cluster.nodes:
            default = node.client()
            for user, *rules in (
                ("admin", ">admin", "~*", "&*", "+@all"),
                ("gateway", ">hunter-1", *RIGHTS),
                ("default", "off"),
            ):
                default.execute_command("ACL", "SETUSER", user, *([] if user == "default" else ["on"]), *rules)
        yield cluster


def write_password(cluster: Cluster, password: str) -> None:
    new = cluster.folder / "redis.password.new"
    new.write_text(f"{password}\n")
    new.rename(cluster.folder / "redis.password")


def settings(cluster: Cluster, password: str) -> dict[str, Any]:
    write_password(cluster, password)
    made = cluster.settings()
    for node in made["redis"]["nodes"]:
        node.update(username="gateway", password_file=str(cluster.folder / "redis.password"))
    return made


def details(gateway: Gateway) -> set[tuple[str, str]]:
    return {(node["state"], node["detail"]) for node in gateway.nodes()}


def wait_until_named(gateway: Gateway, detail: str, log_from: int = 0) -> None:
    eventually(lambda: details(gateway) == {("misconfigured", detail)}, 20, goal=f"every node is shown as: {detail}")
    for path in ("/readyz", "/readyz/leases"):
        nodes = expect_problem(gateway.api.get(path), 503, "no-quorum")["nodes"]
        assert {(node["answer"], node["detail"]) for node in nodes} == {("misconfigured", detail)}, nodes
    log = gateway.log.read_text()[log_from:]
    assert len(re.findall(f'"new_state":"misconfigured","detail":"{re.escape(detail)}', log)) >= 5, log[-4000:]


WRONG = "refuses the credentials: WRONGPASS invalid username-password pair or user is disabled."


def test_refused_password_is_named_at_start_and_later(closed: Cluster) -> None:
    gateway = closed.gateway(settings(closed, "hunter-0"))
    gateway.start(wait=False)
    wait_until_named(gateway, WRONG)
    checked = closed.run("check", gateway.config)
    assert len(re.findall(rf"FAULT .*: {re.escape(WRONG)}\n", checked.stdout)) == 5, checked.stdout
    write_password(closed, "hunter-1")
    gateway.wait_until_all_vote()  # without a reload
    logged = len(gateway.log.read_text())
    for node in closed.nodes:
        client(node).execute_command("ACL", "SETUSER", "gateway", "<hunter-1", ">hunter-2")
        client(node).execute_command("CLIENT", "KILL", "USER", "gateway")
    wait_until_named(gateway, WRONG, logged)
    assert "hunter" not in gateway.log.read_text()


def test_missing_password_is_named(closed: Cluster) -> None:
    gateway = closed.gateway(closed.settings())
    gateway.start(wait=False)
    wait_until_named(gateway, "refuses commands: NOAUTH Authentication required.")
    assert closed.run("check", gateway.config).stdout.count("NOAUTH Authentication required.") == 5


def test_password_file_that_is_gone_is_named(closed: Cluster) -> None:
    gateway = closed.start_gateway(settings(closed, "hunter-1"))
    gateway.wait_until_all_vote()
    file = closed.folder / "redis.password"
    file.unlink()
    for node in closed.nodes:
        client(node).execute_command("CLIENT", "KILL", "USER", "gateway")
    wait_until_named(gateway, f"its password can't be read: cannot read {file}: No such file or directory")
    write_password(closed, "hunter-1")
    gateway.wait_until_all_vote()


def test_subscriptions_are_made_again_with_changed_password(closed: Cluster) -> None:
    """Waiters are notified over connections of their own."""
    gateway = closed.start_gateway(settings(closed, "hunter-1"))
    subscribed = lambda: min(
        len(client(node).execute_command("PUBSUB", "CHANNELS", "fg:wake:*")) for node in closed.nodes
    )  # noqa: E731
    shards = eventually(subscribed, 20, goal="it has subscribed at every node")
    write_password(closed, "hunter-2")
    for node in closed.nodes:
        client(node).execute_command("ACL", "SETUSER", "gateway", "<hunter-1", ">hunter-2")
        client(node).execute_command("CLIENT", "KILL", "USER", "gateway")
    eventually(lambda: subscribed() >= shards, 20, goal="it has subscribed again")


def test_password_is_replaced_without_refused_call(closed: Cluster) -> None:
    """By ACL SETUSER; tests/integration/test_recipes.py does it by the nodes' files,
    as docs/operations/credentials.md says."""
    gateway = closed.start_gateway(settings(closed, "hunter-1"))
    gateway.wait_until_all_vote()
    held = gateway.api.must_acquire("test/held", ttl_ms=60_000)
    marks = lambda node: client(node).hget("fg:node", "marks")  # noqa: E731

    def on_each_node(*rules: str, cut: bool = False) -> None:
        for node in closed.nodes:
            before = marks(node)
            client(node).execute_command("ACL", "SETUSER", "gateway", *rules)
            eventually(lambda node=node, before=before: marks(node) != before, 20, goal="its settings were inspected")
            if cut:
                client(node).execute_command("CLIENT", "KILL", "USER", "gateway")
                eventually(
                    lambda node=node: any(each["user"] == "gateway" for each in client(node).client_list()),
                    20,
                    goal="it is connected again",
                )
            gateway.wait_until_all_vote()

    with Load(gateway.api) as load:
        on_each_node(">hunter-2")
        write_password(closed, "hunter-2")
        on_each_node("<hunter-1", cut=True)
        reached = load.calls
        eventually(lambda: load.calls > reached, goal="calls go on")
    assert not load.refused, [str(answer) for answer in load.refused]
    assert gateway.api.renew(held, ttl_ms=60_000).status == 200
