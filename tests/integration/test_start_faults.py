"""Wrong connection strings and credentials: `check`, `migrate` and `serve` name what is wrong, and never a password."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from support import processes
from support.api import expect_problem
from support.cluster import Cluster, Gateway
from support.polling import eventually, remains

USAGE, UNAVAILABLE, BAD_CONFIG = 64, 69, 78
COMMANDS = ("check", "migrate", "serve")


def run_with(cluster: Cluster, command: str, change: Callable[[dict[str, Any]], object]) -> subprocess.CompletedProcess:
    settings = cluster.settings()
    change(settings)
    file = cluster.folder / "start-faults.yaml"
    file.write_text(json.dumps(settings))
    return cluster.run(command, file, timeout=30)


# The connection string


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "conninfo, named",
    [
        ("host=127.0.0.1 prot=1", 'invalid connection option "prot"'),
        ("passwrd=hunter2", 'invalid connection option "passwrd"'),
        ("postgresql://u:hunter2@h/d?prot=1", 'invalid URI query parameter: "prot"'),
        ("port=none", "the port is not a number"),
        ("host=h passfile=database.pass", "passfile has to be an absolute file name"),
        ("postgresql://h/d?sslrootcert=ca.pem", "sslrootcert has to be an absolute file name"),
    ],
    ids=["option", "password", "uri", "port", "file", "uri-file"],
)
def test_conninfo_invalid_exits_78_and_names_option(cluster: Cluster, command: str, conninfo: str, named: str) -> None:
    done = run_with(cluster, command, lambda settings: settings["postgres"].update(conninfo=conninfo))
    assert done.returncode == BAD_CONFIG and "postgres.conninfo: " in done.stderr and named in done.stderr, done
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_server_not_reached_exits_69_and_is_named(cluster: Cluster, command: str) -> None:
    port = processes.free_port()
    done = run_with(
        cluster,
        command,
        lambda settings: settings["postgres"].update(conninfo=f"host=127.0.0.1 port={port} user=u password=hunter2"),
    )
    shown = (done.stdout + done.stderr).replace("\\", "")  # the log is JSON
    assert done.returncode == UNAVAILABLE and f'"127.0.0.1", port {port} failed: Connection refused' in shown, done
    assert "hunter2" not in done.stdout + done.stderr
    done = run_with(
        cluster,
        command,
        lambda settings: settings["postgres"].update(conninfo="postgresql://u:hunter2@nowhere.invalid/d"),
    )
    shown = (done.stdout + done.stderr).replace("\\", "")
    assert done.returncode == UNAVAILABLE and 'could not translate host name "nowhere.invalid"' in shown, done
    assert "hunter2" not in done.stdout + done.stderr


def test_port_in_use_exits_69_and_says_what_to_do(cluster: Cluster, gateway: Gateway) -> None:
    done = run_with(cluster, "serve", lambda settings: settings["http"].update(port=gateway.api.port))
    assert (
        done.returncode == UNAVAILABLE
        and "Address already in use; another process listens there: stop it, or change http.port" in done.stdout
    ), done


@pytest.mark.parametrize(
    "conninfo",
    [
        *(
            "postgresql://u:a/hunter@h/d postgresql://u:a@b:hunter@h/d postgresql://u:a@hunter@h/d "
            "postgresql://u:1/hunter@127.0.0.1/d postgresql://u:hunter%zz@h/d postgresql://u:hunter[@[::1/d"
        ).split(),
        "password=my hunter",
        "password=my hunter=2 host=h",
        "password='hunter host=h",
    ],
)
def test_conninfo_error_contains_no_part_of_password(cluster: Cluster, conninfo: str) -> None:
    for command in COMMANDS:
        done = run_with(cluster, command, lambda settings: settings["postgres"].update(conninfo=conninfo))
        assert done.returncode in (UNAVAILABLE, BAD_CONFIG) and "hunter" not in done.stdout + done.stderr, done
    for command in ("migrate", "verify"):
        done = cluster.call(command, "--conninfo", conninfo)
        assert done.returncode != 0 and done.stderr and "hunter" not in done.stdout + done.stderr, done


def test_conninfo_argument_invalid_exits_64_and_names_option(cluster: Cluster) -> None:
    for command in ("migrate", "verify"):
        done = cluster.call(command, "--conninfo", "host=127.0.0.1 prot=1")
        assert (
            done.returncode == USAGE
            and "--conninfo" in done.stderr
            and 'invalid connection option "prot"' in done.stderr
        ), done


# The nodes' credentials


@pytest.fixture
def with_user(cluster: Cluster) -> Iterator[Callable[..., dict[str, Any]]]:
    """Returns settings in which the third node has a username and a password, and restores the node's users."""

    def make(username: str, password: str) -> dict[str, Any]:
        settings = cluster.settings()
        (cluster.folder / "third.password").write_text(password)
        settings["redis"]["nodes"][2].update(username=username, password_file=str(cluster.folder / "third.password"))
        return settings

    yield make
    cluster.nodes[2].client().execute_command("ACL", "DELUSER", "foo")


def expect_node_refused(cluster: Cluster, settings: dict[str, Any], reason: str, repair: Callable[[], object]) -> None:
    """Checks that `check` names the third node and the reason, that the node does not vote in `serve`, which says why,
    and that it votes after the repair."""
    gateway: Gateway = cluster.gateway(settings)
    checked = cluster.run("check", gateway.config)
    (line,) = [line for line in checked.stdout.splitlines() if line.startswith("FAULT")]
    assert checked.returncode == UNAVAILABLE and "redis.nodes[2]" in line and reason in line, checked

    def is_refused() -> bool:
        node = gateway.nodes()[2]
        return node["state"] == "misconfigured" and reason in node["detail"]

    try:
        gateway.start()
        eventually(lambda: [node["state"] for node in gateway.nodes()].count("voting") == 4, goal="the others vote")
        eventually(is_refused, goal="it is named")
        remains(is_refused, 1.5, goal="it does not vote")
        repair()
        gateway.wait_until_all_vote()
    finally:
        gateway.kill()
    assert cluster.run("check", gateway.config).returncode == 0


def test_node_refusing_password_is_named_and_does_not_vote(
    cluster: Cluster, with_user: Callable[..., dict[str, Any]]
) -> None:
    """The default user of the node is open: without its own user the gateway could work,
    but not with the rights that the operator meant."""
    repair = (
        lambda: cluster.nodes[2].client().execute_command("ACL", "SETUSER", "foo", "on", ">right", "~*", "&*", "+@all")
    )  # noqa: E731
    expect_node_refused(cluster, with_user("foo", "right"), "WRONGPASS", repair)


def test_node_refusing_scripts_is_named_and_does_not_vote(
    cluster: Cluster, with_user: Callable[..., dict[str, Any]]
) -> None:
    node = cluster.nodes[2].client()
    node.execute_command("ACL", "SETUSER", "foo", "on", ">right", "~*", "&*", "+@all", "-eval")
    expect_node_refused(
        cluster, with_user("foo", "right"), "NOPERM", lambda: node.execute_command("ACL", "SETUSER", "foo", "+eval")
    )


def test_node_refusing_claim_is_named_and_does_not_vote(
    cluster: Cluster, with_user: Callable[..., dict[str, Any]]
) -> None:
    """Only a server without data gets a claim, so `check`, which writes nothing, cannot find this."""
    cluster.nodes[2].restart_empty()
    node = cluster.nodes[2].client()
    node.execute_command("ACL", "SETUSER", "foo", "on", ">right", "~*", "&*", "+@all", "-hsetnx")
    with cluster.serving(with_user("foo", "right")) as gateway:
        eventually(
            lambda: gateway.nodes()[2]["state"] == "misconfigured" and "'hsetnx'" in gateway.nodes()[2]["detail"],
            goal="the node is refused",
        )
        node.execute_command("ACL", "SETUSER", "foo", "+hsetnx")
        gateway.wait_until_all_vote()


def test_nodes_refusing_getrange_are_named_and_answer_503(cluster: Cluster) -> None:
    """The scripts read leases with GETRANGE.
    A majority that refuses it must not look like one on which every resource is locked."""
    settings, nodes = cluster.settings(), [node.client() for node in cluster.nodes[:3]]
    (cluster.folder / "foo.password").write_text("right")
    for node, address in zip(nodes, settings["redis"]["nodes"]):
        node.execute_command("ACL", "SETUSER", "foo", "on", ">right", "~*", "&*", "+@all", "-getrange")
        address.update(username="foo", password_file=str(cluster.folder / "foo.password"))
    gateway = cluster.gateway(settings)
    is_named = lambda node: node["state"] == "misconfigured" and node["detail"].startswith(
        "refuses commands: "
    )  # noqa: E731
    try:
        gateway.start()
        gateway.wait_until_all_vote()  # admitting a node needs no GETRANGE
        expect_problem(gateway.api.acquire("test/getrange"), 503, "no-quorum")
        # A refused node is asked again, and votes until the next command.
        eventually(
            lambda: gateway.api.acquire("test/getrange").status == 503
            and [is_named(node) for node in gateway.nodes()] == [True] * 3 + [False] * 2,
            goal="the nodes are named",
        )
        for node in cluster.nodes[:3]:
            assert re.search(
                f'"node":"{node.name}","old_state":"voting","new_state":"misconfigured","detail":"refuses commands: ',
                gateway.log.read_text(),
            )
        for node in nodes:
            node.execute_command("ACL", "SETUSER", "foo", "+getrange")
        eventually(lambda: gateway.api.acquire("test/getrange").status == 201, goal="the nodes grant")
    finally:
        gateway.kill()
        for node in nodes:
            node.execute_command("ACL", "DELUSER", "foo")


def test_node_with_username_without_password_exits_78(cluster: Cluster) -> None:
    for command in COMMANDS:
        done = run_with(cluster, command, lambda settings: settings["redis"]["nodes"][2].update(username="foo"))
        assert done.returncode == BAD_CONFIG and "redis.nodes[2].username: " in done.stderr, done


@pytest.mark.parametrize(
    "value, fault",
    [
        ("65536", "65536 is not between 0 and 65535"),
        ("-1", "-1 is not between 0 and 65535"),
        ("eu", '"eu" is not an integer between 0 and 65535'),
    ],
)
def test_cell_out_of_bounds_exits_78(cluster: Cluster, tmp_path: Path, value: str, fault: str) -> None:
    file = tmp_path / "faulty.yaml"
    file.write_text(json.dumps({**cluster.settings(), "cell": value}))
    refused = cluster.run("serve", file)
    assert refused.returncode == 78 and f"cell: {fault}" in refused.stdout + refused.stderr
