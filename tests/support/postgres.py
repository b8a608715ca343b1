"""PostgreSQL servers that a test stops, kills, suspends, fills up, or copies to a standby that takes over."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import psycopg2
import psycopg2.extensions
from support import processes
from support.api import Api
from support.base_backup import copy_server
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.initdb import init_data, programs, unprivileged
from support.polling import eventually
from support.rows import rows_of
from support.shop import Sku, create_sku
from support.stack import make_folder

DATABASE = "site"
GATEWAY_ROLE = "site_gateway"
# The role owner installs the guard: a superuser, or with FENCING_INSTALLER=createrole a role
# that has CREATEROLE alone and owns the database.
OWNER = "owner"
SUPERUSER = "superuser" if os.environ.get("FENCING_INSTALLER") == "createrole" else OWNER


class PostgresServer:
    """One server. Cluster and create_sku accept it in place of a Stack."""

    def __init__(self, folder: Path, name: str, **settings: object) -> None:
        self.name, self.port, self.settings = name, processes.free_port(), settings
        self.folder = folder / name
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.data, self.log = self.folder / "data", folder / f"{name}.log"
        self.process: subprocess.Popen | None = None
        self.database = "postgres"

    def run(self, *command: str) -> None:
        done = processes.run(
            [str(programs() / command[0]), *command[1:]], timeout=60, cwd=self.folder, **unprivileged()
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def init_data(self, shares_identifier: bool = True) -> None:
        """Makes the data folder; support.initdb says when a server needs a system identifier of its own."""
        init_data(
            programs(),
            self.data,
            f"--username={SUPERUSER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            shares_identifier=shares_identifier,
        )

    def copy_from(self, primary: "PostgresServer") -> None:
        """Makes this server a streaming replica of `primary` whose application_name is its own name."""
        connection = primary.sql(dbname="postgres")
        copy_server(
            connection,
            primary.data,
            self.data,
            f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name={self.name}",
        )
        connection.close()
        self.database = primary.database

    def start(self, wait: bool = True) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 60,
            "shared_buffers": "32MB",
            **self.settings,
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        self.process = processes.start(
            [str(programs() / "postgres"), "-D", str(self.data), *options], self.log, cwd=self.folder, **unprivileged()
        )
        if wait:
            eventually(self.answers, 30, goal=f"{self.name} answers; see {self.log}")

    def answers(self) -> bool:
        try:
            return self.query("select 1", dbname="postgres") == [(1,)]
        except psycopg2.OperationalError:
            return False

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """Stops the server. SIGQUIT: at once, as after a crash. SIGINT: orderly. SIGKILL: as when the machine fails."""
        if self.process:
            all_pids = self.suspend() if number == signal.SIGKILL else self.pids()
            processes.signal_all(all_pids if number == signal.SIGKILL else {self.process.pid}, number)
            processes.signal_all(all_pids, signal.SIGCONT)
            self.process.wait(30)
            processes.wait_until_gone(all_pids, 30)
            self.process = None

    @contextmanager
    def stopped(self, number: int = signal.SIGQUIT) -> Iterator[None]:
        self.stop(number)
        try:
            yield
        finally:
            self.start()

    def pids(self) -> set[int]:
        assert self.process is not None
        return {self.process.pid} | processes.descendants(self.process.pid)

    def suspend(self, title_part: str = "") -> set[int]:
        """Stops the processes whose title has `title_part`,
        also those that the server starts meanwhile, and returns them."""
        pids = set[int]()
        while new := {pid for pid in self.pids() - pids if title_part in processes.command_line(pid)}:
            processes.signal_all(new, signal.SIGSTOP)
            pids |= new
        return pids

    @contextmanager
    def frozen(self, title_part: str = "") -> Iterator[None]:
        """Suspends the processes while the block lasts, so that connections stay open without answers: all of them,
        or those whose title has `title_part`."""
        pids = self.suspend(title_part)
        try:
            yield
        finally:
            processes.signal_all(pids, signal.SIGCONT)

    def sql(self, **parameters: object) -> psycopg2.extensions.connection:
        connection = psycopg2.connect(
            **{
                "host": "127.0.0.1",
                "port": self.port,
                "user": SUPERUSER,
                "dbname": self.database,
                "connect_timeout": 5,
                **parameters,
            }
        )
        connection.autocommit = True
        return connection

    def query(self, statement: str, arguments: tuple[object, ...] = (), **parameters: object) -> list[tuple[Any, ...]]:
        connection = self.sql(**parameters)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return rows_of(cursor)
        finally:
            connection.close()

    def conninfo(self, database: str | None = None, user: str = OWNER) -> str:
        return f"host=127.0.0.1 port={self.port} dbname={database or self.database} user={user}"

    def configure(self, setting: str) -> None:
        """Runs ALTER SYSTEM and reloads the configuration."""
        for statement in (f"alter system {setting}", "select pg_reload_conf()"):
            self.query(statement, options="-c default_transaction_read_only=off")


class Site:
    """A PostgreSQL server, five nodes, the shop, and gateways whose database role has only the privileges they need."""

    def __init__(self, max_ttl_ms: int = MAX_TTL_MS, **settings: object) -> None:
        self.folder = make_folder()
        self.server = PostgresServer(self.folder, "one", **settings)
        self.cluster = Cluster(self.server, DATABASE, max_ttl_ms, owner=OWNER)  # type: ignore[arg-type]

    def start(self) -> None:
        self.server.init_data()
        self.server.start()
        if SUPERUSER != OWNER:
            self.server.query(f"create role {OWNER} login createrole")
            recorder = re.search(
                "create schema fencing_recorder;[^`]*", (processes.repository() / "sql/README.md").read_text()
            )
            self.server.query(recorder[0].replace("OWNER", OWNER), dbname="template1")
        self.cluster.start()
        self.server.database = DATABASE
        self.server.query((processes.repository() / "sql" / "examples" / "shop.sql").read_text(), user=OWNER)
        self.server.query(f"create role {GATEWAY_ROLE} login in role fencing_gateway")

    def conninfo(self) -> str:
        return self.server.conninfo(user=GATEWAY_ROLE)

    def gateway(
        self, conninfo: str = "", request_timeout_ms: int = 3_000, statement_timeout_ms: int = 2_000
    ) -> Gateway:
        """Starts and returns another gateway."""
        settings = self.cluster.settings()
        settings["http"]["request_timeout_ms"] = request_timeout_ms
        settings["postgres"] = {
            "conninfo": conninfo or self.conninfo(),
            "connections": 4,
            "statement_timeout_ms": statement_timeout_ms,
            "lock_timeout_ms": 1_000,
        }
        settings["lease"]["max_ttl_ms"] = self.cluster.max_ttl_ms
        gateway = self.cluster.start_gateway(settings)
        gateway.wait_until_all_vote()
        return gateway

    def create_sku(self, name: str, stock: int = 1_000) -> Sku:
        return create_sku(self.server, name, stock)  # type: ignore[arg-type]

    def remove(self) -> None:
        for gateway in self.cluster.gateways:
            gateway.kill()
        for node in self.cluster.nodes:
            node.kill()
        if self.server.process:
            self.server.stop(signal.SIGQUIT)
        shutil.rmtree(self.cluster.folder, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_site(max_ttl_ms: int = MAX_TTL_MS, **settings: object) -> Iterator[Site]:
    site = Site(max_ttl_ms, **settings)
    try:
        site.start()
        yield site
    finally:
        site.remove()


def acquire_for_writes(api: Api, resource: str, ttl_ms: int = 2_000) -> Any:
    """Returns a lease to write under. Its token stays valid for the guard after the lease has ended,
    until a newer token is used."""
    return api.must_acquire(resource, ttl_ms=ttl_ms, wait_ms=3_000)
