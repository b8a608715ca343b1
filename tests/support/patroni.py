"""PostgreSQL servers that Patroni replaces by each other, with etcd, and two gateways behind HAProxy.
Everything listens on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import psycopg2
from support import processes
from support.api import Api
from support.cluster import Cluster, Gateway
from support.polling import eventually
from support.postgres import DATABASE, GATEWAY_ROLE, PostgresServer, programs, unprivileged
from support.sales import SALES_TABLE
from support.shop import Sku, create_sku
from support.stack import make_folder
from support.tcp_gate import Gate, Gates

SCOPE = "shop"
TTL = 10  # seconds that a leader key lives without an update; at least loop_wait + 2 × retry_timeout
LONG = 90.0  # seconds for anything that takes a second or ten, because the machine may be busy
NO_POSTGRESQL = 69  # exit code of a gateway that cannot reach PostgreSQL when it starts


class Etcd:
    """The store of the leader key: one process, whose data stays when it restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "etcd", folder / "etcd.log"
        make_owned_folder(self.folder)
        self.port, self.peer_port = processes.free_port(), processes.free_port()
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        self.process = processes.start(
            [
                "etcd",
                "--name=etcd",
                f"--data-dir={self.folder}/data",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=etcd={peer}",
                "--logger=zap",
            ],
            self.log,
            cwd=self.folder,
            **unprivileged(),
        )
        eventually(
            lambda: get_json(self.port, "/health")["health"] == "true", LONG, goal=f"etcd answers; see {self.log}"
        )

    def kill(self) -> None:
        kill(self.process)
        self.process = None


class Member(PostgresServer):
    """One Patroni and the server that it starts, which stays when Patroni is killed.
    `etcd_port` is a gate before etcd that only this member uses."""

    def __init__(self, folder: Path, name: str, etcd_port: int, synchronous: bool) -> None:
        super().__init__(folder, name)
        self.database = DATABASE
        self.rest_port = processes.free_port()
        self.config = self.folder / "patroni.yaml"
        self.suspended = False
        trusted = ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        bootstrap = {
            "dcs": {
                "ttl": TTL,
                "loop_wait": 1,
                "retry_timeout": 4,
                "maximum_lag_on_failover": 100_000_000,
                "synchronous_mode": synchronous,
                "postgresql": {
                    "use_pg_rewind": True,
                    "parameters": {
                        "max_connections": 60,
                        "shared_buffers": "32MB",
                        "dynamic_shared_memory_type": "mmap",
                    },
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, {"auth": "trust"}, "no-sync"],
        }
        self.config.write_text(
            json.dumps(
                {
                    "scope": SCOPE,
                    "name": name,
                    "restapi": {
                        "listen": f"127.0.0.1:{self.rest_port}",
                        "connect_address": f"127.0.0.1:{self.rest_port}",
                    },
                    "etcd3": {
                        "proxy": f"http://127.0.0.1:{etcd_port}"
                    },  # a proxy, so that it never learns etcd's own port
                    "bootstrap": bootstrap,
                    "postgresql": {
                        "listen": f"127.0.0.1:{self.port}",
                        "connect_address": f"127.0.0.1:{self.port}",
                        "data_dir": str(self.data),
                        "bin_dir": str(programs()),
                        "pgpass": str(self.folder / "pgpass"),
                        "pg_hba": trusted,
                        "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                        "authentication": {
                            "superuser": {"username": "owner"},
                            "replication": {"username": "replicator"},
                        },
                        "parameters": {"unix_socket_directories": ""},
                    },
                }
            )
        )  # JSON is YAML

    def start(self, wait: bool = False) -> None:
        self.process = processes.start(["patroni", str(self.config)], self.log, cwd=self.folder, **unprivileged())
        if wait:
            eventually(self.answers, LONG, goal=f"{self.name} answers; see {self.log}")

    def server_pids(self) -> set[int]:
        """Returns the processes of the server, which are no children of Patroni."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError):
            return set()
        return {pid} | processes.descendants(pid) if processes.is_alive(pid) else set()

    def kill(self) -> None:
        """Ends Patroni and the server as when the machine fails."""
        kill(self.process)
        self.process = None
        pids = self.server_pids()
        processes.signal_all(pids, signal.SIGKILL)
        processes.wait_until_gone(pids, LONG)

    def suspend(self) -> None:
        """Stops Patroni with SIGSTOP. Its server goes on, although the leader key expires."""
        assert self.process
        processes.signal_all([self.process.pid], signal.SIGSTOP)
        self.suspended = True

    def restart_patroni(self) -> None:
        """Replaces a suspended Patroni, which demotes the server if there is another primary.

        A Patroni 3.0 that continues after SIGCONT may overwrite the leader key of the new primary in etcd.
        """
        kill(self.process)
        self.start()
        self.suspended = False

    def is_primary(self) -> bool:
        """Returns whether this member has the leader key, by its Patroni, and its server accepts writes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}/primary", timeout=5) as answer:
                return answer.status == 200 and self.in_recovery() is False
        except (OSError, urllib.error.URLError):
            return False

    def in_recovery(self) -> bool | None:
        """Returns whether the server is a standby; None if it does not answer."""
        try:
            return self.query("select pg_is_in_recovery()", dbname="postgres")[0][0]
        except psycopg2.Error:
            return None

    def control(self, *arguments: str, answers: str = "") -> None:
        done = processes.run(
            ["patronictl", "-c", str(self.config), *arguments],
            input=answers,
            timeout=LONG,
            cwd=self.folder,
            **unprivileged(),
        )
        assert done.returncode == 0, done.stdout + done.stderr


class PatroniSite:
    """A Patroni cluster of one to three members, five Redis servers that sync every write, the shop,
    and HAProxy before the gateways."""

    def __init__(self, members: int, synchronous: bool) -> None:
        self.folder = make_folder()
        self.synchronous = synchronous
        self.etcd = Etcd(self.folder)
        self.gates = Gates([self.etcd.port] * members)
        self.members = [
            Member(self.folder, f"pg-{number}", gate.port, synchronous) for number, gate in enumerate(self.gates[:], 1)
        ]
        self.cluster = Cluster(self, DATABASE, max_ttl_ms=20_000, fsync="always")  # type: ignore[arg-type]
        self.balancer: subprocess.Popen | None = None
        self.api = Api(f"http://127.0.0.1:{processes.free_port()}")

    # The databases

    def start(self) -> None:
        self.etcd.start()
        for node in self.cluster.nodes:
            node.launch()
        for member in self.members:
            member.start()
        primary = self.wait_for_primary()
        primary.query(f'create database "{DATABASE}"', dbname="postgres")
        self.cluster.migrate()
        self.query((processes.repository() / "sql" / "examples" / "shop.sql").read_text() + SALES_TABLE)
        self.query(f"create role {GATEWAY_ROLE} login in role fencing_gateway")
        self.wait_for_standbys(len(self.members) - 1)

    def running(self) -> list[Member]:
        """Returns the members whose Patroni runs."""
        return [member for member in self.members if member.process and not member.suspended]

    @property
    def primary(self) -> Member:
        return self.wait_for_primary()

    def wait_for_primary(self, *others_than: Member) -> Member:
        return eventually(
            lambda: next((m for m in self.running() if m not in others_than and m.is_primary()), None),
            LONG,
            interval=0.1,
            goal=f"a member is the primary; see {self.folder}/*.log",
        )

    def wait_for_standbys(self, count: int) -> None:
        """Waits until `count` standbys follow the primary, one of them synchronously if the cluster is synchronous."""

        def follow() -> bool:
            states = self.primary.query(
                "select sync_state from pg_stat_replication where state = 'streaming' and application_name like 'pg-%'",
                dbname="postgres",
            )
            return len(states) == count and (
                not self.synchronous or ("sync",) in states and self.synchronous_standby() is not None
            )

        eventually(follow, LONG, interval=0.1, goal=f"{count} standbys follow; see {self.folder}/*.log")

    def synchronous_standby(self) -> Member | None:
        """Returns the member that Patroni would promote."""
        roles = {item["name"]: item["role"] for item in get_json(self.running()[0].rest_port, "/cluster")["members"]}
        return next((member for member in self.members if roles.get(member.name) == "sync_standby"), None)

    def query(self, statement: str, arguments: tuple[object, ...] = (), **parameters: object) -> list[tuple[Any, ...]]:
        return self.primary.query(statement, arguments, **parameters)

    def sql(self) -> Any:
        return self.primary.sql()

    def conninfo(self, database: str | None = None, user: str = "owner", ports: list[int] | None = None) -> str:
        ports = ports or [member.port for member in self.members]
        return (
            f"host={','.join('127.0.0.1' for _ in ports)} port={','.join(map(str, ports))} "
            f"dbname={database or DATABASE} user={user} "
            "target_session_attrs=read-write"
        )

    def gate_of(self, member: Member) -> Gate:
        """Returns the gate through which only this member's Patroni reaches etcd."""
        return self.gates[:][self.members.index(member)]

    def create_skus(self, *names: str, stock: int = 100_000) -> list[Sku]:
        return [create_sku(self, name, stock) for name in names]  # type: ignore[arg-type]

    def hold_back_replication(self) -> None:
        """What the primary commits from now on reaches no standby."""
        senders = {pid for (pid,) in self.primary.query("select pid from pg_stat_replication", dbname="postgres")}
        assert senders
        processes.signal_all(senders, signal.SIGSTOP)

    # The gateways

    def start_gateways(self, *conninfos: str) -> list[Gateway]:
        """Starts a gateway for each connection string (two that name all members if there is none given),
        and HAProxy before them."""
        for conninfo in conninfos or [self.conninfo(user=GATEWAY_ROLE)] * 2:
            settings = self.cluster.settings()
            settings["http"]["request_timeout_ms"] = 3_000
            settings["postgres"] = {
                "conninfo": conninfo,
                "connections": 4,
                "statement_timeout_ms": 2_000,
                "lock_timeout_ms": 1_000,
            }
            self.cluster.gateway(settings).start()
        for gateway in self.gateways:
            gateway.wait_until_all_vote(LONG)
        self.start_balancer()
        return self.gateways

    @property
    def gateways(self) -> list[Gateway]:
        return self.cluster.gateways

    def start_balancer(self) -> None:
        """HAProxy balances by connection and asks whether leases can be had,
        as docs/operations/load-balancer.md advises."""
        config = self.folder / "haproxy.cfg"
        servers = "".join(f"  server {gateway.config.stem} 127.0.0.1:{gateway.api.port}\n" for gateway in self.gateways)
        config.write_text(
            f"""defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  option redispatch
listen gateways
  bind 127.0.0.1:{self.api.port}
  balance roundrobin
  option httpchk GET /readyz/leases
  default-server check inter 500ms fall 2 rise 1
{servers}"""
        )
        program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert program, "there is no haproxy"
        self.balancer = processes.start([program, "-db", "-f", str(config)], self.folder / "haproxy.log")
        eventually(lambda: self.api.get("/readyz/leases").status == 200, LONG, goal="HAProxy passes requests on")

    def lost_writes_total(self) -> int:
        """Returns the sum of the gateways' fencegate_lost_writes_total."""
        lines = [line for gateway in self.gateways for line in gateway.api.get("/metrics").body.decode().splitlines()]
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("fencegate_lost_writes_total "))

    # Everything

    def kill_everything(self) -> None:
        """Ends every process at once, as a power failure does."""
        for gateway in self.gateways:
            gateway.kill()
        for member in self.members:
            member.kill()
        self.etcd.kill()
        for node in self.cluster.nodes:
            node.kill()

    def restart_everything(self) -> None:
        """Starts everything that kill_everything ended, all at once, and waits until both gateways are ready."""
        self.etcd.start()
        for node in self.cluster.nodes:
            node.launch()
        for member in self.members:
            member.start()
        for gateway in self.gateways:
            gateway.start(wait=False)

        def all_ready() -> bool:
            for gateway in self.gateways:
                if gateway.process and gateway.process.poll() == NO_POSTGRESQL:  # a service manager starts it again
                    gateway.start(wait=False)
            return all(gateway.api.get("/readyz").status == 200 for gateway in self.gateways)

        eventually(all_ready, LONG, interval=0.2, goal=f"the gateways are ready; see {self.folder}/*.log")

    def remove(self) -> None:
        kill(self.balancer)
        self.kill_everything()
        self.gates.close()
        shutil.rmtree(self.cluster.folder, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def print_logs(self) -> None:
        for log in [*self.folder.glob("*.log"), *(gateway.log for gateway in self.gateways)]:
            if log.stem != "etcd":
                lines = [line for line in log.read_text(errors="replace").splitlines() if '"message":"http' not in line]
                print("\n".join([f"--- the end of {log}", *lines[-60:]]))


@contextmanager
def running_patroni_site(members: int, synchronous: bool) -> Iterator[PatroniSite]:
    site = PatroniSite(members, synchronous)
    try:
        site.start()
        yield site
    except BaseException:
        site.print_logs()
        raise
    finally:
        site.remove()


def make_owned_folder(folder: Path) -> None:
    """Makes a folder that belongs to the user as whom the servers run."""
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")


def kill(process: subprocess.Popen | None) -> None:
    if process:
        process.kill()
        process.wait()


def get_json(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.load(answer)
