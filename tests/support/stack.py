"""The embedded stack (`fencegate dev`) under test: started, reached from every side, and gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import psycopg2
import psycopg2.extensions
import redis

from support import processes
from support.api import Api
from support.polling import eventually

READY_WITHIN = 60.0


def make_folder() -> Path:
    """Short, because a socket's path may have 107 bytes, and open to all, because PostgreSQL may run as another user."""
    folder = Path(tempfile.mkdtemp(prefix="fg-"))
    folder.chmod(0o755)
    return folder


class Stack:
    """One `fencegate dev`. `start` may follow `stop`: the data stays until `remove`."""

    def __init__(self, *arguments: str) -> None:
        self.folder = make_folder()
        self.data = self.folder / "data"
        self.log = self.folder / "dev.log"
        self.arguments = arguments
        self.prefix: list[str] = []  # a program that becomes `fencegate dev`, such as nohup
        self.process: subprocess.Popen | None = None
        self.facts: dict[str, Any] = {}

    # life

    def start(self, within: float = READY_WITHIN) -> float:
        """Starts it and waits until it serves; gives the seconds that took."""
        began, wall = time.monotonic(), time.time_ns()
        self.process = processes.start([*self.prefix, str(processes.fencegate_binary()), "dev", "--data-dir", str(self.data), "--http", "127.0.0.1:0",
                                        *self.arguments], self.log)
        try:
            eventually(lambda: self._is_fresh(wall) and self._is_ready(), within, what=f"the stack is ready\n{self.words()}")
        except BaseException:
            print(self.words())
            self.kill()
            raise
        return time.monotonic() - began

    def _is_fresh(self, started_ns: int) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"fencegate dev ended with {self.process.returncode}:\n{self.words()}")
        file = self.data / "stack.json"
        return file.exists() and file.stat().st_mtime_ns >= started_ns

    def _is_ready(self) -> bool:
        self.facts = self.read()
        return all(Api(gateway["http"], self.key("admin"), 5).get("/readyz").status == 200 for gateway in self.facts["gateways"])

    def wait_until_whole(self, within: float = 30.0) -> None:
        """Ready is a majority; this waits for the rest of the nodes too, so that a test may take some away."""

        def all_vote() -> bool:
            answers = [self.api(number).get("/v1/nodes").json()["nodes"] for number in range(len(self.facts["gateways"]))]
            return all(node["state"] == "voting" for nodes in answers for node in nodes)

        eventually(all_vote, within, every=0.1, what="every node votes")

    def read(self) -> dict[str, Any]:
        """stack.json as it stands now."""
        return json.loads((self.data / "stack.json").read_text())

    def words(self, lines: int = 40) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def everything(self) -> set[int]:
        """The ids of all processes of this stack."""
        below = processes.working_below(self.data)
        return below | ({self.process.pid} | processes.descendants(self.process.pid) if self.process else set())

    def stop(self, with_signal: int = signal.SIGTERM, within: float = 30.0) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        return processes.stop(process, within, with_signal)

    def kill(self) -> None:
        """For the end of a test that went wrong: no questions asked."""
        everything = self.everything()
        processes.signal_all(everything, signal.SIGKILL)
        if self.process:
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        """Stops it if it runs, checks that no process is left, and deletes its data."""
        left: set[int] = set()
        try:
            if self.process:
                self.resume_everything()
                self.stop()
            left = processes.working_below(self.data)
        finally:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, f"processes {left} were left behind"

    def resume_everything(self) -> None:
        processes.signal_all(self.everything(), signal.SIGCONT)

    # its sides

    def key(self, name: str) -> str | None:
        return self.facts.get("api_keys", {}).get(name)

    def api(self, gateway: int = 0, key: str = "admin") -> Api:
        return Api(self.facts["gateways"][gateway]["http"], self.key(key))

    def sql(self, **more: object) -> psycopg2.extensions.connection:
        """A superuser's connection that skips the gateway; each statement its own transaction."""
        postgres = self.facts["postgres"]
        connection = psycopg2.connect(host=postgres["host"], port=postgres["port"], user=postgres["superuser"],
                                      **{"dbname": postgres["database"], **more})
        connection.autocommit = True
        return connection

    def query(self, statement: str, arguments: tuple[object, ...] = (), **more: object) -> list[tuple[Any, ...]]:
        connection = self.sql(**more)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def conninfo(self, database: str | None = None) -> str:
        postgres = self.facts["postgres"]
        return (f"host={postgres['host']} port={postgres['port']} dbname={database or postgres['database']} "
                f"user={postgres['superuser']}")

    def nodes(self) -> list[redis.Redis]:
        return [redis.Redis(node["host"], node["port"], decode_responses=True, socket_timeout=5) for node in self.facts["redis"]]

    def node_pids(self) -> list[int]:
        return [node["pid"] for node in self.read()["redis"]]

    def postgres_pids(self) -> set[int]:
        """The postmaster and every process of its own."""
        postmaster = self.read()["postgres"]["pid"]
        return {postmaster} | processes.descendants(postmaster)

    @contextmanager
    def frozen(self, pids: list[int] | set[int]) -> Iterator[None]:
        """SIGSTOP for as long as the block lasts: alive, connected, and silent."""
        processes.signal_all(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            processes.signal_all(pids, signal.SIGCONT)

    def kill_node(self, index: int) -> int:
        """kill -9; gives the id of the process that was."""
        pid = self.node_pids()[index]
        os.kill(pid, signal.SIGKILL)
        return pid


def keys_of(nodes: list[redis.Redis], pattern: str) -> list[tuple[int, str]]:
    """(node, key) of every key that matches, over all nodes."""
    return [(index, key) for index, node in enumerate(nodes) for key in node.scan_iter(match=pattern, count=1000)]


def lease_keys(nodes: list[redis.Redis], resource: str) -> list[tuple[int, str]]:
    return [(index, f"fg:lease:{resource}") for index, node in enumerate(nodes) if node.exists(f"fg:lease:{resource}")]


@contextmanager
def running(*arguments: str) -> Iterator[Stack]:
    """A stack of the test's own."""
    stack = Stack(*arguments)
    try:
        stack.start()
        stack.wait_until_whole()
        yield stack
    finally:
        stack.remove()
