"""Two real gateways behind proxies, and the faults that tests in other languages ask for by name over HTTP."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
import uuid
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Iterator

from support import processes
from support.cluster import Cluster, credential
from support.cluster import running as running_cluster
from support.faults import install_shop
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import open_gates

KEYS = {name: f"the key of {name}, which is long" for name in ("worker", "blind", "limited")}
PASSWORD = "fencing"
LAST_CHUNK = b"0\r\n\r\n"


def is_watch(request: bytes) -> bool:
    """Whether a request is for the stream by which a client watches a lease."""
    return request.startswith(b"GET /v1/leases/") and b"\r\naccept: text/event-stream\r\n" in request.lower()


class Site:
    """Two gateways with a proxy before each, and the faults that a test can ask for by name over HTTP.

    The faults of connections spare the streams by which the client watches its leases: they are for its calls.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        """`name` begins the names of the articles, of which there are 60 with 10 pieces each."""
        self.cluster = cluster
        self.passed = 0
        self.gateways = [cluster.gateway(self._settings()) for _ in range(2)]
        for gateway in self.gateways:
            gateway.start()
        self.gates = open_gates([gateway.api.port for gateway in self.gateways])
        self.gate_set = self.gates.__enter__()
        for gate in self.gate_set.members:
            gate.exempts = is_watch
        install_shop(cluster, name, 10)
        cluster.query("select shop_stock(%s, 60, 10)", (f"{name}-",))
        cluster.stack.query(f"create role {cluster.database} superuser login password '{PASSWORD}'")

    def _settings(self) -> dict[str, Any]:
        settings = self.cluster.settings(max_ttl_ms=self.cluster.max_ttl_ms, max_wait_ms=600)
        scopes = {
            "worker": ["leases", "writes", "history", "operate"],
            "blind": ["leases", "writes"],
            "limited": ["leases"],
        }
        settings["auth"] = {"api_keys": [credential(name, key, *scopes[name]) for name, key in KEYS.items()]}
        settings["limits"] = {"principals": [{"principal": "limited", "requests_per_second": 2, "requests_burst": 1}]}
        settings["postgres"].update(statement_timeout_ms=1_000, lock_timeout_ms=500)
        return settings

    def apply(self, fault: str, *arguments: str) -> None:
        """Calls the function of that name."""
        before = self.gate_set.members[0].replies.passed
        getattr(self, fault)(*arguments)
        if fault != "await_reply":
            self.passed = before

    # The faults. A test that uses one calls `recover` at its end.

    def cut_reply(self) -> None:
        """The first gateway's next connection is reset when it answers;
        on connections that are open the next answer is lost."""
        replies = itertools.chain([0], itertools.repeat(1 << 40))
        self.gate_set.members[0].replies.cut_after = lambda: next(replies)

    def cut_connections(self) -> None:
        self.gate_set.members[0].cut()

    def delay_replies(self) -> None:
        self.gate_set.members[0].replies.delay = 0.6

    def kill_gateway(self) -> None:
        self.gateways[0].kill()

    def pause_gateway(self) -> None:
        os.kill(self.gateways[0].pid, signal.SIGSTOP)

    def pause_nodes(self) -> None:
        processes.signal_all([node.pid for node in self.cluster.nodes[:3]], signal.SIGSTOP)

    def hold_commits(self) -> None:
        """A commit waits for a standby that does not exist."""
        self._configure("set synchronous_standby_names = 'nobody'")
        eventually(self._is_commit_held, 15, goal="a commit waits")

    def _is_commit_held(self) -> bool:
        with closing(self.cluster.stack.sql()) as connection, connection.cursor() as cursor:
            end_of_wait = threading.Timer(0.1, connection.cancel)
            end_of_wait.start()
            began = time.monotonic()
            cursor.execute("select pg_logical_emit_message(true, '', '')")
            end_of_wait.cancel()
            return time.monotonic() - began >= 0.1

    def await_reply(self) -> None:
        """Waits until the first gateway has answered something since the latest fault."""
        replies = self.gate_set.members[0].replies
        eventually(lambda: replies.passed > self.passed, 15, goal="the gateway answers")

    def await_watch(self, lease_id: str) -> None:
        """Waits until the lease is watched."""
        eventually(lambda: self._is_watched(lease_id), 15, goal="the lease is watched")

    def await_no_watch(self, lease_id: str) -> None:
        """Waits until the lease is not watched."""
        eventually(lambda: not self._is_watched(lease_id), 15, goal="the lease is not watched")

    def _is_watched(self, lease_id: str) -> bool:
        links = [link for gate in self.gate_set.members for link in gate.links.copy()]
        return any(
            is_watch(link.latest_request)
            and lease_id.encode() in link.latest_request
            and not link.latest_reply.endswith(LAST_CHUNK)  # a client keeps the connection of a stream that has ended
            for link in links
        )

    def recover(self) -> None:
        self._configure("reset synchronous_standby_names")
        processes.signal_all([node.pid for node in self.cluster.nodes], signal.SIGCONT)
        self.gate_set.clear_faults()
        if self.gateways[0].process is None:
            self.gateways[0].start()
        os.kill(self.gateways[0].pid, signal.SIGCONT)
        for gateway in self.gateways:
            gateway.wait_until_ready()

    def _configure(self, change: str) -> None:
        self.cluster.stack.query(f"alter system {change}")
        self.cluster.stack.query("select pg_reload_conf()")

    def close(self) -> None:
        self.recover()
        self.gates.__exit__(None, None, None)
        self.cluster.stack.query(f"drop role {self.cluster.database}")

    @property
    def addresses(self) -> list[str]:
        return [f"http://127.0.0.1:{gate.port}" for gate in self.gate_set.members]

    @property
    def database(self) -> str:
        """The address of the database without a scheme and parameters."""
        return f"127.0.0.1:{self.cluster.stack.facts['postgres']['port']}/{self.cluster.database}"

    @property
    def user(self) -> str:
        """A superuser of the database, whose password is PASSWORD."""
        return self.cluster.database


class FaultServer(HTTPServer):
    """Calls the fault NAME for each `POST /NAME` or `POST /NAME/ARGUMENT`.

    It serves in the thread of the test, with which the gateways that a fault starts would end.
    """

    timeout = 0.1

    def __init__(self, site: Site) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    site.apply(*self.path[1:].split("/"))
                    self.send_response(204)
                except Exception as problem:  # the test that asked for it fails
                    self.send_response(500)
                    print(f"{self.path}: {problem!r}")
                self.send_header(
                    "Connection", "close"
                )  # else a client may use the connection again, which ends after each answer
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def serve_until_end(self, process: subprocess.Popen, seconds: float) -> None:
        """Serves until the process has ended, which is killed if it takes longer."""
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            self.handle_request()
        process.kill()  # without effect if it has ended
        process.wait()


@contextmanager
def running_site(stack: Stack, name: str) -> Iterator[Site]:
    """Runs a cluster with two gateways while the block lasts."""
    with running_cluster(stack, f"{name}_{uuid.uuid4().hex[:6]}", max_ttl_ms=60_000) as cluster:
        made = Site(cluster, name)
        try:
            yield made
        finally:
            made.close()
