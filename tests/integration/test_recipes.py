"""The recipes of docs/operations, run from the blocks of its pages: a trial on one machine
by the printed configurations, then its nodes, program and database are replaced."""

from __future__ import annotations

import os
import re
import shutil
import signal
from typing import Any, Iterator

import pytest
import redis
from support import processes
from support.api import Api
from support.calls import Load
from support.documents import Shell, blocks_of, commands_of
from support.polling import eventually
from support.postgres import PostgresServer
from support.stack import make_folder

ROOT = processes.repository()
PAGES = sorted((ROOT / "docs/operations").glob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks_of(page, ROOT) if block.directive == "recipe"]
RECIPES = {
    "deploy",
    "restart nodes",
    "upgrade",
    "back up",
    "restore",
    "replace a node",
    "add a password",
    "remove a password",
}
# A supervisor of one gateway.
SYSTEMCTL = """#!/bin/sh
stop() {
    if read -r pid < gateway.pid; then kill "$pid"; tail --pid="$pid" -f /dev/null; fi 2> /dev/null
    rm -f gateway.pid
}
start() {
    setsid fencegate serve --config fencegate.yaml >> gateway.log 2>&1 < /dev/null & echo $! > gateway.pid
    until /usr/bin/curl -sf localhost:8080/readyz > /dev/null; do
        kill -0 "$(cat gateway.pid)" || exit 1
        sleep 0.1
    done
}
case $1 in stop) stop ;; start) start ;; restart) stop; start ;; *) exit 64 ;; esac
"""


def free_ports(count: int) -> int:
    """Returns the first of several consecutive free ports."""
    return next(
        first
        for first in iter(processes.free_port, 0)
        if not any(processes.accepts(first + number) for number in range(count))
    )


class Trial:
    """The machine of the pages: a folder with `config`, a PostgreSQL in place of that at the socket,
    another in place of db-2, and free ports."""

    def __init__(self) -> None:
        self.folder = make_folder()
        self.home = self.folder / "home"
        self.home.mkdir()
        (self.home / "config").symlink_to(ROOT / "config")
        self.servers = [PostgresServer(self.folder, name) for name in ("db-1", "db-2")]
        self.http, self.redis = processes.free_port(), free_ports(6)
        old, new = (f"host=127.0.0.1 port={server.port}" for server in self.servers)
        # What differs from the pages on this machine. The ports of the nodes are 6379 to 6384.
        self.places = {
            "host=/run/postgresql": old,
            "host=db-2": new,
            "user=postgres": "user=owner",
            "ROLE postgres": "ROLE owner",
            "localhost:8080": f"127.0.0.1:{self.http}",
            "6378": str(self.redis - 1),
            **{str(6379 + number): str(self.redis + number) for number in range(6)},
        }
        self.api = Api(f"http://127.0.0.1:{self.http}")
        self.shell: Shell | None = None

    def localize(self, text: str) -> str:
        for theirs, ours in self.places.items():
            text = text.replace(theirs, ours)
        return text

    def start(self) -> None:
        for server in self.servers:
            server.init_data(shares_identifier=False)  # the data are moved from one to the other
            server.start()
        self.old.query("create database shop")
        # The operator's changes to the printed configuration: the addresses.
        (self.home / "config").unlink()
        (self.home / "config").mkdir()
        for name in ("redis-node.conf", "fencegate.yaml"):
            text = self.localize((ROOT / "config" / name).read_text())
            (self.home / "config" / name).write_text(re.sub("(?m)^  port: 8080 ", f"  port: {self.http} ", text))
        clean = {
            name: value for name, value in os.environ.items() if not re.match("(FENCEGATE|FENCING|PG|REDIS)", name)
        }
        self.shell = Shell(self.folder, {**clean, "FENCEGATE_URL": self.api.url})
        (self.folder / "programs" / "systemctl").write_text(self.localize(SYSTEMCTL))
        (self.folder / "programs" / "systemctl").chmod(0o755)

    @property
    def old(self) -> PostgresServer:
        return self.servers[0]

    @property
    def new(self) -> PostgresServer:
        return self.servers[1]

    def run(self, text: str) -> None:
        assert self.shell
        for command in commands_of(self.localize(text)):
            self.shell.run(command, lambda: None)

    def follow(self, recipe: str) -> None:
        """Runs the blocks of the recipe."""
        for block in (block for block in BLOCKS if block.words == recipe):
            try:
                self.run(block.text)
            except AssertionError as fault:
                raise AssertionError(f"{block.where}: {fault}") from None

    def sell(self) -> dict[str, Any]:
        """Sells one piece of sku-1 under a lease of its own and returns the lease."""
        lease = self.api.must_acquire("inventory/sku-1")
        assert (
            self.api.write(
                lease, {"update": "inventory", "where": {"sku": "sku-1"}, "add": {"stock": -1}, "expect_rows": 1}
            ).status
            == 200
        )
        self.api.must_release(lease)
        return lease

    def states(self) -> set[str]:
        return {node["state"] for node in self.api.get("/v1/nodes").json()["nodes"]}

    def remove(self) -> None:
        if self.shell:
            self.shell.end()
        for server in self.servers:
            server.stop(signal.SIGQUIT)
        left = processes.pids_in_folder(self.folder)
        processes.signal_all(left, signal.SIGKILL)
        processes.wait_until_gone(left)
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """A deployed system whose gateway runs."""
    made = Trial()
    try:
        made.start()
        made.follow("deploy")
        made.run(
            "fencegate migrate --with-example --conninfo 'host=/run/postgresql dbname=shop user=postgres'\n"
            "systemctl start fencegate\n"
        )
        eventually(lambda: made.states() == {"voting"}, 30, goal="every node votes")
        yield made
    finally:
        made.remove()


def test_recipes_of_pages_are_those_that_are_run() -> None:
    assert {block.words for block in BLOCKS} == RECIPES


def test_recipe_deploy_serves_leases_and_writes(trial: Trial) -> None:
    assert trial.sell()["fencing_token"] >= 2**32
    assert all((trial.home / f"node-{number}" / "appendonlydir").is_dir() for number in range(1, 6))
    assert trial.old.query("select rolsuper, rolcanlogin from pg_roles where rolname = 'fencegate'") == [(False, True)]
    assert trial.old.query(
        "select member::regrole::text from pg_auth_members where roleid = 'fencing_gateway'::regrole"
    ) == [("fencegate",)]


def test_role_of_configuration_may_not_migrate_and_is_told_how(trial: Trial) -> None:
    before = trial.old.query("select max(id) from fencing.history where event = 'guard_changed'", dbname="shop")
    done = processes.run(
        [str(processes.fencegate_binary()), "migrate", "--config", str(trial.home / "fencegate.yaml")], timeout=60
    )
    assert done.returncode == 1 and "The role fencegate may not install the schema" in done.stderr, done
    assert "--conninfo" in done.stderr and "--gateway-role" in done.stderr, done
    assert trial.old.query("select max(id) from fencing.history where event = 'guard_changed'", dbname="shop") == before


def test_recipe_restart_nodes_keeps_leases(trial: Trial) -> None:
    lease = trial.api.must_acquire("jobs/long", ttl_ms=60_000)
    trial.follow("restart nodes")
    assert trial.api.renew(lease, ttl_ms=60_000).status == 200
    trial.api.must_release(lease)


def test_recipe_replaces_password_of_nodes_without_refused_call(trial: Trial) -> None:
    process, password = trial.home / "gateway.pid", trial.home / "redis.password"
    before = process.read_text(), password.read_text()
    with Load(trial.api) as load:
        for recipe in ("add a password", "restart nodes", "remove a password", "restart nodes"):
            trial.follow(recipe)
            eventually(lambda reached=load.calls: load.calls > reached, goal="calls go on")
    assert not load.refused, [str(answer) for answer in load.refused]
    assert process.read_text() == before[0] and password.read_text() != before[1]
    for node in range(5):
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGPASS"):
            redis.Redis("127.0.0.1", trial.redis + node, username="gateway", password=before[1].strip()).ping()


@pytest.mark.parametrize("recipe", ["restart nodes", "replace a node"])
def test_recipe_without_key_stops_before_a_node(trial: Trial, recipe: str) -> None:
    """A wait for nodes that the caller may not list would not end."""
    config, pid = trial.home / "fencegate.yaml", int((trial.home / "gateway.pid").read_text())
    keyless = config.read_text()
    try:
        config.write_text(
            re.sub(
                "(?m)^  api_keys: .*",
                f"  api_keys: [{{principal: p, scopes: [operate], key_sha256: {'0' * 64}}}]",
                keyless,
            )
        )
        os.kill(pid, signal.SIGHUP)
        eventually(lambda: trial.api.get("/v1/nodes").status == 401, goal="the gateway wants a key")
        with pytest.raises(AssertionError, match="FENCEGATE_API_KEY or --api-key-file"):
            trial.follow(recipe)
    finally:
        config.write_text(keyless)
        trial.run("systemctl restart fencegate\n")
    eventually(lambda: trial.states() == {"voting"}, 30, goal="every node votes")


def test_recipe_upgrade_installs_schema_and_replaces_gateway(trial: Trial) -> None:
    """With the same program, as there is one version: what changed by hand is put back, and leases and data stay."""
    lease = trial.api.must_acquire("jobs/upgrade", ttl_ms=60_000)
    stock = trial.old.query("select * from inventory order by sku", dbname="shop")
    trial.old.query(
        "create or replace function fencing.server_fault(server_version integer) returns text language sql immutable "
        "set search_path = pg_catalog, pg_temp as 'select null::text'",
        dbname="shop",
    )
    process = (trial.home / "gateway.pid").read_text()
    trial.follow("upgrade")
    assert trial.old.query("select fencing.guard_faults()", dbname="shop") == []
    assert trial.old.query("select * from inventory order by sku", dbname="shop") == stock
    assert (trial.home / "gateway.pid").read_text() != process
    assert trial.api.renew(lease, ttl_ms=60_000).status == 200
    trial.api.must_release(lease)
    trial.sell()


def state_of(server: PostgresServer, last: int) -> list[Any]:
    """Returns fences, stock, and the history up to an id."""
    return [
        server.query(statement, dbname="shop")
        for statement in (
            "select resource, last_fencing_token from fencing.guard order by resource",
            "select * from inventory order by sku",
            f"select h::text from fencing.history h where id <= {last} order by id",
            "select relation_name, resource_expression, mode from fencing.protected order by 1",
            "select node_names, quorum, max_ttl_ms from fencing.cluster",
        )
    ]


def test_recipe_restore_keeps_guard_and_raises_register(trial: Trial) -> None:
    lease = trial.sell()
    released = "select count(*) from fencing.history where event = 'lease_released' and fencing_token = %s"
    eventually(
        lambda: trial.old.query(released, (lease["fencing_token"],), dbname="shop") == [(1,)],
        goal="the history has the release",
    )
    trial.follow("back up")
    [(last,)] = trial.old.query("select max(id) from fencing.history", dbname="shop")
    before = state_of(trial.old, last)
    lost = trial.sell()  # after the backup
    stale = trial.api.must_acquire("inventory/sku-2")
    [(epoch,)] = trial.old.query("select epoch from fencing.cluster", dbname="shop")
    trial.follow("restore")
    after = state_of(trial.new, last)
    assert after == before
    assert trial.new.query("select fencing.guard_faults()", dbname="shop") == []
    assert trial.new.query("select epoch > %s from fencing.cluster", (epoch,), dbname="shop") == [(True,)]
    late = trial.api.write(stale, {"update": "inventory", "where": {"sku": "sku-2"}, "add": {"stock": -1}})
    assert late.status == 412 and late.json()["cause"] == "storage-generation-changed", late
    assert trial.sell()["fencing_token"] > max(lost["fencing_token"], stale["fencing_token"])
    with pytest.raises(Exception, match="fencing required"):
        trial.new.query("update inventory set stock = 0", dbname="shop")
    refused = "select count(*) from fencing.history where event = 'write_rejected' and principal = 'owner'"
    assert trial.new.query(refused, dbname="shop") == [(1,)] and trial.old.query(refused, dbname="shop") == [(0,)]


def test_recipe_replace_a_node_makes_new_one_vote(trial: Trial) -> None:
    trial.follow("replace a node")
    ports = {
        node["name"]: node.get("port") or node.get("address") for node in trial.api.get("/v1/nodes").json()["nodes"]
    }
    assert str(trial.redis + 5) in str(ports["redis-3"]), ports
    eventually(lambda: trial.states() == {"voting"}, 30, goal="every node votes")
    trial.sell()
