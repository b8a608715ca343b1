"""config/redis-node.conf: gateways can work, operators can inspect,
and commands that could break a promise are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

import pytest
import redis
from support import processes
from support.cluster import Cluster, RedisServer
from support.polling import eventually
from support.stack import Stack

FILE = Path(__file__).resolve().parents[2] / "config" / "redis-node.conf"


class ConfiguredServer(RedisServer):
    """A server started with the file; the test changes only port, folder and passwords, and `changes` of lines."""

    changes: dict[str, str] = {}

    def launch(self, fsync: str | None = None) -> None:
        text = re.sub(r"(?m)^port .*", f"port {self.port}", FILE.read_text())
        text = re.sub(r"(?m)^dir .*", f"dir {self.folder}", text)
        text = text.replace(">CHANGE-ME-TOO", ">of-people").replace(">CHANGE-ME", ">of-gateways")
        for line, other in self.changes.items():
            assert f"\n{line}\n" in text
            text = text.replace(f"\n{line}\n", f"\n{other}\n")
        (self.folder / "redis.conf").write_text(text)
        self.process = processes.start(["redis-server", str(self.folder / "redis.conf")], self.folder / "log")

    def client(self, user: str = "operator", password: str = "of-people") -> redis.Redis:
        return redis.Redis(
            "127.0.0.1", self.port, username=user, password=password, decode_responses=True, socket_timeout=5
        )


@pytest.fixture(scope="module")
def configured(stack: Stack) -> Iterator[Cluster]:
    cluster = Cluster(stack, "redis_node_conf")
    for node in cluster.nodes:
        node.__class__ = ConfiguredServer
    (cluster.folder / "redis.password").write_text("of-gateways")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


def settings(cluster: Cluster) -> dict:
    made = cluster.settings()
    for node in made["redis"]["nodes"]:
        node.update(username="gateway", password_file=str(cluster.folder / "redis.password"))
    return made


def test_gateway_on_configured_nodes_serves_every_call(configured: Cluster, resource: str) -> None:
    gateway, other_gateway = configured.gateway(settings(configured)), configured.gateway(settings(configured))
    for each in (gateway, other_gateway):
        each.start()
        each.wait_until_all_vote()
    try:
        api = gateway.api
        lease = api.must_acquire(resource, ttl_ms=2_000, owner="worker")
        assert api.acquire(resource, ttl_ms=2_000, owner="worker").json()["hold_count"] == 2
        assert api.renew(lease, ttl_ms=2_000).status == api.read_lease(lease).status == 200
        assert [item["resource"] for item in api.get("/v1/leases", resource_prefix=resource).json()["items"]] == [
            resource
        ]
        waiter = other_gateway.api.begin_acquire(resource, ttl_ms=1_000, wait_ms=10_000)
        for _ in range(2):
            assert api.release(lease).status in (200, 204)
        assert waiter.answer().json()["fencing_token"] > lease["fencing_token"]
        checked = configured.run("check", gateway.config)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        node = configured.nodes[0]
        for each in (gateway, other_gateway):
            each.wait_until_all_vote()
        node.kill()
        node.start()
        gateway.wait_until_all_vote()
        assert not [
            entry for client in configured.clients() for entry in client.acl_log() if entry["username"] == "gateway"
        ]
    finally:
        gateway.kill()
        other_gateway.kill()


DENIED = (
    "SLAVEOF NO ONE; REPLICAOF 127.0.0.1 1; FAILOVER; SYNC; PSYNC ? -1; REPLCONF ACK 0; CLUSTER RESET; "
    "CONFIG SET maxmemory 1; CONFIG SET maxmemory-policy allkeys-lru; CONFIG SET appendonly no; "
    "CONFIG SET appendfsync no; CONFIG SET no-appendfsync-on-rewrite yes; CONFIG SET dir /tmp; "
    "CONFIG SET slowlog-log-slower-than 1; CONFIG RESETSTAT; CONFIG REWRITE; FLUSHALL; FLUSHDB; SWAPDB 0 1; "
    "DEBUG RELOAD; DEBUG LOADAOF; DEBUG CHANGE-REPL-ID; MODULE LOAD x.so; MODULE LOADEX x.so; MODULE UNLOAD x; "
    "DEL fg:node; DEL fg:token:1; UNLINK fg:token:1; SET fg:token:1 1; SET fg:lease:x 1; SETEX fg:lease:x 1 1; "
    "APPEND fg:lease:x 1; INCR fg:token:1; HSET fg:node run x; HDEL fg:node run; HSETNX fg:node claim x; "
    "GETSET fg:token:1 1; GETDEL fg:token:1; GETDEL fg:lease:x; GETEX fg:token:1 EX 1; SETRANGE fg:token:1 0 0; "
    "MSET fg:token:1 1; RESTORE fg:token:1 0 x; RESTORE-ASKING fg:token:1 0 x; MIGRATE 127.0.0.1 1 fg:token:1 0 1; "
    "MOVE fg:token:1 1; COPY fg:token:1 fg:token:2; COPY fg:lease:x fg:lease:y REPLACE; RENAME fg:token:1 x; "
    "RENAME fg:lease:x fg:lease:y; RENAMENX fg:token:1 x; EXPIRE fg:token:1 1; PEXPIRE fg:lease:x 1; "
    "EXPIREAT fg:token:1 1; PEXPIREAT fg:token:1 1; PERSIST fg:lease:x; SORT fg:node STORE fg:token:1; "
    "BITFIELD fg:token:1 SET u8 0 1; EVAL x 0; EVALSHA x 0; EVAL_RO x 0; FCALL x 0; SCRIPT LOAD x; FUNCTION LOAD x; "
    "FUNCTION FLUSH; FUNCTION RESTORE x; FUNCTION DELETE x; ACL SETUSER operator +@all; ACL DELUSER gateway; "
    "ACL LOAD; ACL SAVE; ACL LIST; ACL GETUSER gateway; PUBLISH fg:wake:x y; PFADD fg:token:1 x"
).split("; ")
ALLOWED = (
    "PING; INFO; INFO commandstats; CONFIG GET *; SLOWLOG GET; SLOWLOG RESET; LATENCY LATEST; LATENCY DOCTOR; "
    "CLIENT LIST; CLIENT KILL ID 999999; CLIENT ID; MEMORY USAGE fg:node; MEMORY STATS; MEMORY DOCTOR; COMMAND; "
    "ROLE; TIME; LASTSAVE; DBSIZE; SAVE; BGREWRITEAOF; GET fg:token:1; HGETALL fg:node; TYPE fg:node; "
    "TTL fg:lease:x; SCAN 0 MATCH fg:lease:*; KEYS fg:*; EXISTS fg:node; STRLEN fg:token:1; DUMP fg:node; "
    "DEL fg:lease:no/lease; UNLINK fg:lease:no/lease; ACL WHOAMI; ACL LOG; SCRIPT EXISTS x; SCRIPT FLUSH; "
    "FUNCTION LIST; MODULE LIST; PUBSUB CHANNELS; MULTI; SELECT 0"
).split("; ")


@pytest.mark.parametrize("command", DENIED)
def test_operator_command_that_breaks_promise_is_refused(configured: Cluster, command: str) -> None:
    arguments = command.split()
    node = configured.nodes[0]
    before = len(node.client().acl_log())
    with pytest.raises((redis.exceptions.NoPermissionError, redis.exceptions.ResponseError)) as refused:
        node.client().execute_command(*arguments)
    message = str(refused.value)
    # Errors of arity and commands that the file disables are reported before permissions are checked.
    assert "no permissions" in message or "not allowed" in message, message
    assert node.client().ping() and len(node.client().acl_log()) >= before


@pytest.mark.parametrize("command", ALLOWED)
def test_operator_command_that_only_reads_is_answered(configured: Cluster, command: str) -> None:
    client = redis.Redis(
        "127.0.0.1", configured.nodes[0].port, username="operator", password="of-people", socket_timeout=5
    )
    client.execute_command(*command.split())


def test_operator_shutdown_keeps_data_of_node(configured: Cluster) -> None:
    """Also what one script has written in several commands, which the append-only file has as a transaction."""
    node = configured.nodes[4]
    node.client("gateway", "of-gateways").eval(
        "redis.call('set', 'fg:token:65535', '7'); redis.call('set', 'fg:token:65534', '8')", 0
    )
    assert node.process is not None
    node.client().shutdown(nosave=True)
    node.process.wait(10)
    node.start()
    assert node.client().mget("fg:token:65535", "fg:token:65534") == ["7", "8"]


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "CONFIG SET maxmemory 1",
        "REPLICAOF NO ONE",
        "DEBUG RELOAD",
        "RENAME fg:token:1 x",
        "KEYS *",
        "SET other 1",
        "GET other",
        "SHUTDOWN",
        "ACL WHOAMI",
        "MIGRATE 127.0.0.1 1 fg:token:1 0 1",
    ],
)
def test_gateway_user_is_refused_commands_it_does_not_need(configured: Cluster, command: str) -> None:
    with pytest.raises(redis.exceptions.ResponseError) as refused:
        configured.nodes[0].client("gateway", "of-gateways").execute_command(*command.split())
    assert "no permissions" in str(refused.value) or "not allowed" in str(refused.value), refused.value


def test_node_dropping_transactions_is_quarantined_at_restart(configured: Cluster) -> None:
    """It drops the transactions of its append-only file, so that it forgets leases."""
    gateway, node = configured.gateway(settings(configured)), configured.nodes[1]
    assert isinstance(node, ConfiguredServer)
    quarantined = "select count(*) from fencing.history where event = 'node_quarantined'"
    count = lambda: configured.query(quarantined)[0][0]  # noqa: E731
    gateway.start()
    gateway.wait_until_all_vote()
    try:
        before = count()
        node.kill()
        node.start()
        gateway.wait_until_all_vote()
        assert count() == before, "by the file as it is printed it votes at once"
        node.changes = {"user default off ~* &* +@all": "user default off"}
        node.kill()
        node.start()
        eventually(lambda: count() > before, goal="the restarted node is quarantined")
        checked = configured.run("check", gateway.config)
        assert "its user default may not write" in checked.stdout, checked.stdout
        assert len(re.findall("may not write", checked.stdout)) == 1, checked.stdout
    finally:
        node.changes = {}
        node.kill()
        node.start()
        gateway.wait_until_all_vote()
        gateway.kill()


def test_default_user_is_refused_every_command(configured: Cluster) -> None:
    for password in (None, "", "of-people"):
        for user in (None, "default"):
            with pytest.raises(
                (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError),
                match="Authentication required|WRONGPASS|user is disabled",
            ):
                redis.Redis("127.0.0.1", configured.nodes[0].port, username=user, password=password).ping()
