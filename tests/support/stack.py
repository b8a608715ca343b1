"""Runs the embedded stack (`fencegate dev`) and gives access to its gateways, nodes and database."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ContextManager, Iterable, Iterator

import psycopg2
import psycopg2.extensions
import redis
from support import processes
from support.api import Api
from support.initdb import init_data, installed_programs
from support.polling import eventually
from support.rows import rows_of

READY_WITHIN = 180.0  # it takes 3 s on an idle machine
# Those of gateway/devstack/postgres.cpp.
INITDB_ARGUMENTS = (
    "--username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --data-checksums --no-instructions".split()
)
SESSIONS_MAX = 3  # those of the stack's own database and of a module's two clusters


def make_folder() -> Path:
    """Makes a folder with a short path, because a socket's path may have 107 bytes, that all users can read,
    because PostgreSQL may run as another user."""
    folder = Path(tempfile.mkdtemp(prefix="fg-"))
    folder.chmod(0o755)
    return folder


class Stack:
    """One `fencegate dev`. It may be started again after `stop`: the data stays until `remove`."""

    def __init__(self, *arguments: str) -> None:
        self.folder = make_folder()
        self.data = self.folder / "data"
        self.log = self.folder / "dev.log"
        self.arguments = arguments
        self.prefix: list[str] = []  # a command that runs `fencegate dev`, such as nohup
        self.process: subprocess.Popen | None = None
        self.facts: dict[str, Any] = {}
        self.sessions: dict[Any, psycopg2.extensions.connection] = {}  # by the parameters of sql()

    # Start and stop

    def start(self, timeout: float = READY_WITHIN) -> float:
        """Starts the stack, waits until it is ready, and returns the seconds that took."""
        began, wall = time.monotonic(), time.time_ns()
        self.process = processes.start(
            [
                *self.prefix,
                str(processes.fencegate_binary()),
                "dev",
                "--data-dir",
                str(self.data),
                "--http",
                "127.0.0.1:0",
                *self.arguments,
            ],
            self.log,
        )
        try:
            eventually(
                lambda: self._is_fresh(wall) and self._is_ready(),
                timeout,
                goal=f"the stack is ready\n{self.log_tail()}",
            )
        except BaseException:
            print(self.log_tail())
            self.kill()
            raise
        return time.monotonic() - began

    def _is_fresh(self, started_ns: int) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"fencegate dev ended with {self.process.returncode}:\n{self.log_tail()}")
        file = self.data / "stack.json"
        return file.exists() and file.stat().st_mtime_ns >= started_ns

    def _is_ready(self) -> bool:
        self.facts = self.read()
        return all(
            Api(gateway["http"], self.key("admin"), 5).get("/readyz").status == 200
            for gateway in self.facts["gateways"]
        )

    def wait_until_all_vote(self, timeout: float = 30.0) -> None:
        """Waits until every node votes; the stack is ready once a majority does."""

        def all_vote() -> bool:
            answers = [
                self.api(number).get("/v1/nodes").json()["nodes"] for number in range(len(self.facts["gateways"]))
            ]
            return all(node["state"] == "voting" for nodes in answers for node in nodes)

        eventually(all_vote, timeout, interval=0.1, goal="every node votes")

    def read(self) -> dict[str, Any]:
        """Returns the content of stack.json."""
        return json.loads((self.data / "stack.json").read_text())

    def log_tail(self, lines: int = 40) -> str:
        """Returns the last lines of the output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def process_ids(self) -> set[int]:
        """Returns the ids of all processes of this stack."""
        found = processes.pids_in_folder(self.data)
        return found | ({self.process.pid} | processes.descendants(self.process.pid) if self.process else set())

    def stop(self, signal_number: int = signal.SIGTERM, timeout: float = 30.0) -> int:
        assert self.process is not None
        self.end_sessions()
        process, self.process = self.process, None
        return processes.stop(process, timeout, signal_number)

    def kill(self) -> None:
        """Kills all processes at once."""
        self.end_sessions()
        everything = self.process_ids()
        processes.signal_all(everything, signal.SIGKILL)
        if self.process:
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        """Stops the stack if it runs, checks that no process is left, and deletes its data."""
        remaining: set[int] = set()
        try:
            if self.process:
                self.resume_all()
                self.stop()
            remaining = processes.pids_in_folder(self.data)
        finally:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not remaining, f"processes {remaining} were left behind"

    def resume_all(self) -> None:
        processes.signal_all(self.process_ids(), signal.SIGCONT)

    # Access

    def key(self, name: str) -> str | None:
        return self.facts.get("api_keys", {}).get(name)

    def api(self, gateway: int = 0, key: str = "admin") -> Api:
        return Api(self.facts["gateways"][gateway]["http"], self.key(key))

    def sql(self, **parameters: object) -> psycopg2.extensions.connection:
        """Opens a superuser's connection to PostgreSQL in autocommit mode."""
        postgres = self.facts["postgres"]
        connection = psycopg2.connect(
            host=postgres["host"],
            port=postgres["port"],
            user=postgres["superuser"],
            **{"dbname": postgres["database"], **parameters},
        )
        connection.autocommit = True
        return connection

    def query(self, statement: str, arguments: tuple[object, ...] = (), **parameters: object) -> list[tuple[Any, ...]]:
        """Runs one statement. The main thread keeps its sessions, because a new one costs the server 10 ms of CPU."""
        key = tuple(sorted(parameters.items())) if threading.current_thread() is threading.main_thread() else None
        connection = self.take_session(key) or self.sql(**parameters)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                rows = rows_of(cursor)
        except BaseException:
            connection.close()
            raise
        if key is None or connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE:
            connection.close()
        else:
            self.sessions[key] = connection
            if len(self.sessions) > SESSIONS_MAX:  # the one that was not used for the longest time
                self.sessions.pop(next(iter(self.sessions))).close()
        return rows

    def take_session(self, key: Any) -> psycopg2.extensions.connection | None:
        """Returns a kept session in the state of a new one; None if there is none, or if it has ended meanwhile."""
        kept = self.sessions.pop(key, None)
        if kept is None:
            return None
        try:
            kept.cursor().execute("discard all")
            return kept
        except psycopg2.Error:
            kept.close()
            return None

    def end_sessions(self) -> None:
        """Closes the connections that query() has kept."""
        while self.sessions:
            self.sessions.popitem()[1].close()

    def conninfo(self, database: str | None = None) -> str:
        postgres = self.facts["postgres"]
        return (
            f"host={postgres['host']} port={postgres['port']} dbname={database or postgres['database']} "
            f"user={postgres['superuser']}"
        )

    def nodes(self) -> list[redis.Redis]:
        return [
            redis.Redis(node["host"], node["port"], decode_responses=True, socket_timeout=5)
            for node in self.facts["redis"]
        ]

    def node_pids(self) -> list[int]:
        return [node["pid"] for node in self.read()["redis"]]

    def postgres_pids(self) -> set[int]:
        """Returns the ids of the postmaster and its processes."""
        postmaster = self.read()["postgres"]["pid"]
        return {postmaster} | processes.descendants(postmaster)

    @staticmethod
    def frozen(pids: Iterable[int]) -> ContextManager[None]:
        return processes.suspended(pids)

    def kill_node(self, index: int) -> int:
        """Kills a node with SIGKILL and returns the id of its process."""
        pid = self.node_pids()[index]
        os.kill(pid, signal.SIGKILL)
        return pid


def keys_of(nodes: list[redis.Redis], pattern: str) -> list[tuple[int, str]]:
    """Returns (index of the node, key) of every key that matches."""
    return [(index, key) for index, node in enumerate(nodes) for key in node.scan_iter(match=pattern, count=1000)]


def lease_keys(nodes: list[redis.Redis], resource: str) -> list[tuple[int, str]]:
    return [(index, f"fg:lease:{resource}") for index, node in enumerate(nodes) if node.exists(f"fg:lease:{resource}")]


@contextmanager
def running(*arguments: str) -> Iterator[Stack]:
    """Runs a stack while the block lasts. Its PostgreSQL's data are a copy of what initdb has made,
    which takes less time."""
    stack = Stack(*arguments)
    try:
        stack.data.mkdir()
        init_data(installed_programs(), stack.data / "postgres", *INITDB_ARGUMENTS)
        stack.start()
        stack.wait_until_all_vote()
        yield stack
    finally:
        stack.remove()
