"""A cluster whose processes the test starts and stops: five Redis servers,
a database on the stack's PostgreSQL, and `fencegate serve`.

Unlike `fencegate dev`, nothing restarts a process that ends. max_ttl_ms is small, so that quarantine is short.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import redis
from support import processes
from support.api import Api
from support.polling import eventually
from support.stack import Stack, make_folder

MAX_TTL_MS = 2_000
MIGRATED_DATABASE = "fencegate_migrated"  # a database with the schema, of which each cluster gets a copy
SIGNING_KEY = "a signing key of a test, long enough to be one"


def answers(node: redis.Redis) -> bool:
    """Returns whether a node that was started listens and has read its data."""
    try:
        return bool(node.ping())
    except redis.exceptions.ConnectionError:
        return False


def credential(principal: str, key: str, *scopes: str) -> dict[str, Any]:
    """Returns an entry of auth.api_keys; without scopes it has those of a caller that writes."""
    return {
        "principal": principal,
        "key_sha256": hashlib.sha256(key.encode()).hexdigest(),
        "scopes": list(scopes or ("leases", "writes", "history")),
    }


def credentials(keys: dict[str, str], *scopes: str) -> dict[str, Any]:
    """Returns a section `auth` with the keys of these principals."""
    return {"api_keys": [credential(principal, key, *scopes) for principal, key in keys.items()]}


class RedisServer:
    """One node. It loses its data when it restarts, unless `fsync` (an appendfsync policy) is set before the start.
    start("without") has no append-only file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.port = name, processes.free_port()
        self.folder = folder / name
        self.folder.mkdir()
        self.process: subprocess.Popen | None = None
        self.fsync: str | None = None
        self.environment: dict[str, str] = {}

    def start(self, fsync: str | None = None) -> None:
        self.launch(fsync)
        self.wait_until_ready()

    def launch(self, fsync: str | None = None) -> None:
        """Starts the process and does not wait for it."""
        fsync = fsync or self.fsync
        persistence = (
            ["--appendonly", "yes", "--appendfsync", fsync] if fsync and fsync != "without" else ["--appendonly", "no"]
        )
        self.process = processes.start(
            [
                *"redis-server --bind 127.0.0.1 --port".split(),
                str(self.port),
                "--dir",
                str(self.folder),
                "--save",
                "",
                "--repl-diskless-sync-delay",
                "0",
                *persistence,
            ],
            self.folder / "log",
            env={**os.environ, **self.environment},
        )

    def wait_until_ready(self) -> None:
        eventually(lambda: answers(self.client()), 15, goal=f"{self.name} answers")

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart_empty(self) -> None:
        self.kill()
        self.start()

    def restart_orderly(self) -> None:
        """Restarts it as an operator does; with `fsync` it has all its data again."""
        assert self.process is not None
        processes.stop(self.process)
        self.start()

    def client(self) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port, decode_responses=True, socket_timeout=5)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class Gateway:
    """One process of `fencegate serve`."""

    def __init__(self, folder: Path, name: str, settings: dict[str, Any], tls: ssl.SSLContext | None = None) -> None:
        self.config = folder / f"{name}.yaml"
        self.log = folder / f"{name}.log"
        self.write_config(settings)
        self.arguments: list[str] = []
        self.api = Api(f"{'https' if tls else 'http'}://127.0.0.1:{settings['http']['port']}", tls=tls)
        self.process: subprocess.Popen | None = None
        self.environment: dict[str, str] = {}

    def start(self, wait: bool = True) -> None:
        self.process = processes.start(
            [str(processes.fencegate_binary()), "serve", "--config", str(self.config), *self.arguments],
            self.log,
            env={**os.environ, **self.environment},
        )
        if wait:
            self.wait_until_ready()

    def write_config(self, settings: dict[str, Any]) -> None:
        self.config.write_text(json.dumps(settings))  # JSON is YAML

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        try:
            eventually(self._is_ready, timeout, goal="the gateway is ready")
        except BaseException:
            print(self.log.read_text()[-4000:])
            raise

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"fencegate serve ended with {self.process.returncode}")
        return self.api.get("/readyz").status == 200

    def wait_until_all_vote(self, timeout: float = 30.0) -> None:
        """Waits until every node votes; a gateway is ready once a majority does."""
        eventually(
            lambda: {node["state"] for node in self.nodes()} == {"voting"},
            timeout,
            interval=0.05,
            goal="every node votes",
        )

    def nodes(self) -> list[dict[str, Any]]:
        return self.api.get("/v1/nodes").json()["nodes"]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, timeout: float = 20.0) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        return processes.stop(process, timeout)

    def kill(self) -> None:
        if self.process:
            code = self.process.poll()
            if code is not None:
                print(f"fencegate serve had ended already, with {code}:\n{self.log.read_text()[-4000:]}")
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class Cluster:
    """Five nodes, a database, and gateways that use them."""

    def __init__(
        self,
        stack: Stack,
        database: str,
        max_ttl_ms: int = MAX_TTL_MS,
        fsync: str | None = None,
        owner: str | None = None,
    ) -> None:
        self.stack, self.database, self.max_ttl_ms = stack, database, max_ttl_ms
        self.owner = owner  # of the database, who installs the guard; None: the superuser
        self.folder = make_folder()
        self.nodes = [RedisServer(self.folder, f"node-{number}") for number in range(1, 6)]
        for node in self.nodes:
            node.fsync = fsync
        self.gateways: list[Gateway] = []
        self.key_file = self.folder / "signing.key"
        self.key_file.write_text(SIGNING_KEY)

    def settings(self, ports: list[int] | None = None, **lease: object) -> dict[str, Any]:
        """Returns a valid configuration. `lease` overrides keys of its section `lease`;
        `ports` replace those of the nodes."""
        ports = ports or [node.port for node in self.nodes]
        return {
            "http": {"address": "127.0.0.1", "port": processes.free_port(), "shutdown_grace_ms": 0},
            "redis": {
                "node_timeout_ms": 1_000,  # so long that a busy machine does not make a node late
                "nodes": [
                    {"name": node.name, "host": "127.0.0.1", "port": port} for node, port in zip(self.nodes, ports)
                ],
            },
            "lease": {
                "signing_key_file": str(self.key_file),
                "max_ttl_ms": self.max_ttl_ms,
                "default_ttl_ms": min(2_000, self.max_ttl_ms),
                **lease,
            },
            "postgres": {"conninfo": self.stack.conninfo(self.database)},
        }

    def start(self) -> None:
        """Starts the nodes and creates the database with its schema."""
        for node in self.nodes:
            node.launch()
        self.create_database()
        for node in self.nodes:
            node.wait_until_ready()

    def create_database(self) -> None:
        """Copies the database that the server's first cluster has migrated, in a tenth of the time of a migration."""
        if not self.stack.query("select from pg_database where datname = %s", (MIGRATED_DATABASE,)):
            self.stack.query(f'create database "fencegate_unmigrated" {self.owned()}')
            self.migrate("fencegate_unmigrated")
            self.stack.query(f'alter database "fencegate_unmigrated" rename to "{MIGRATED_DATABASE}"')
        self.stack.query(
            f'create database "{self.database}" template "{MIGRATED_DATABASE}" {self.copied_by_file()} {self.owned()}'
        )
        # The copied recorder connects to the other database.
        owner = {"user": self.owner} if self.owner else {}
        assert self.stack.query("select fencing.set_up_recorder()", dbname=self.database, **owner) == [(None,)]

    def query(self, statement: str, arguments: tuple[object, ...] = (), **parameters: object) -> list[tuple[Any, ...]]:
        return self.stack.query(statement, arguments, dbname=self.database, **parameters)

    def sql(self, **parameters: object) -> Any:
        return self.stack.sql(dbname=self.database, **parameters)

    def conninfo(self) -> str:
        return self.stack.conninfo(self.database)

    def copied_by_file(self) -> str:
        """Returns the strategy that takes a third of the processor time of the default one;
        before PostgreSQL 15 it is the only one, without a name."""
        return (
            "strategy file_copy"
            if self.stack.query("select current_setting('server_version_num')::int >= 150000") == [(True,)]
            else ""
        )

    def owned(self) -> str:
        return f'owner "{self.owner}"' if self.owner else ""

    def gateway(self, settings: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None) -> Gateway:
        """Returns another gateway that is not started yet. `tls` is for calls to it if it has http.tls."""
        gateway = Gateway(self.folder, f"gateway-{len(self.gateways) + 1}", settings or self.settings(), tls)
        self.gateways.append(gateway)
        return gateway

    def start_gateway(self, settings: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None) -> Gateway:
        """Starts another gateway, which runs until it is killed or the cluster is removed."""
        gateway = self.gateway(settings, tls)
        gateway.start()
        return gateway

    @contextmanager
    def serving(self, settings: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Gateway]:
        """Runs another gateway while the block lasts."""
        gateway = self.gateway(settings, tls)
        try:
            gateway.start()
            yield gateway
        finally:
            gateway.kill()

    def successor_of_killed(self, resource: str, ttl_ms: int) -> tuple[Gateway, Any]:
        """Kills a gateway that has granted a lease on the resource.
        Returns another one, which has the same settings and is started, and the lease."""
        settings = self.settings()
        first, second = self.gateway(settings), self.gateway(settings)
        first.start()
        held = first.api.must_acquire(resource, ttl_ms=ttl_ms)
        first.kill()
        second.start()
        return second, held

    def run(self, command: str, config: Path, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess:
        """Runs `migrate`, `check` or another command that ends by itself."""
        return self.call(command, "--config", str(config), *arguments, timeout=timeout)

    @staticmethod
    def call(*arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess:
        return processes.run_fencegate(*arguments, timeout=timeout)

    def migrate(self, database: str | None = None) -> None:
        file = self.folder / "migrate.yaml"
        file.write_text(
            json.dumps({**self.settings(), "postgres": {"conninfo": self.stack.conninfo(database or self.database)}})
        )
        done = self.run("migrate", file)
        assert done.returncode == 0, done.stdout + done.stderr

    def clients(self) -> list[redis.Redis]:
        return [node.client() for node in self.nodes]

    def remove(self) -> None:
        for gateway in self.gateways:
            gateway.kill()
        for node in self.nodes:
            node.kill()
        self.stack.query(f'drop database if exists "{self.database}" with (force)')
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def two_gateways(
    cluster: Cluster, settings: Callable[[Cluster], dict[str, Any]] = Cluster.settings
) -> Iterator[tuple[Gateway, Gateway]]:
    """Runs two gateways at which every node votes."""
    made = cluster.gateway(settings(cluster)), cluster.gateway(settings(cluster))
    try:
        for gateway in made:
            gateway.start()
            gateway.wait_until_all_vote()
        yield made
    finally:
        for gateway in made:
            gateway.kill()


@contextmanager
def running(stack: Stack, database: str, **options: Any) -> Iterator[Cluster]:
    """Runs a cluster with a migrated database and without a gateway while the block lasts."""
    cluster = Cluster(stack, database, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
