"""After a promotion, a restore or a replacement of PostgreSQL every token given
before is refused (docs/guard.md, Storage generation)."""

from __future__ import annotations

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import psycopg2
import pytest
from support import processes
from support.api import Answer, Api, Json, expect_problem
from support.cluster import Cluster, Gateway
from support.events import EventStream
from support.polling import eventually, pause
from support.postgres import GATEWAY_ROLE, PostgresServer, Site

CAUSE = "storage-generation-changed"
EPOCH = 2**32


class Failover:
    """A site whose gateway finds the server that accepts writes among `servers`,
    of which all but the first are asynchronous standbys."""

    def __init__(self, site: Site, standbys: int) -> None:
        self.site, self.servers = site, [site.server]
        for name in ["two", "three"][:standbys]:
            made = PostgresServer(site.folder, name)
            made.copy_from(site.server)
            made.start()
            self.servers.append(made)
        eventually(
            lambda: len(site.server.query("select pid from pg_stat_replication where state = 'streaming'")) == standbys,
            goal="the standbys follow",
        )

    def gateway(self, *servers: PostgresServer, **timeouts: int) -> Gateway:
        used = servers or tuple(self.servers)
        hosts, ports = ",".join("127.0.0.1" for _ in used), ",".join(str(s.port) for s in used)
        return self.site.gateway(
            f"host={hosts} port={ports} dbname={self.site.server.database} user={GATEWAY_ROLE} "
            "target_session_attrs=read-write",
            **timeouts,
        )

    def wait_for_replay(self, standby: PostgresServer) -> None:
        end = self.site.server.query("select pg_current_wal_lsn()")[0][0]
        eventually(
            lambda: standby.query("select pg_last_wal_replay_lsn() >= %s", (end,)) == [(True,)],
            goal="the standby has replayed everything",
        )

    def cut_off(self, standby: PostgresServer) -> None:
        """What the primary commits from now on does not reach the standby."""
        self.wait_for_replay(standby)
        standby.configure("set primary_conninfo = ''")
        eventually(
            lambda: standby.query("select pid from pg_stat_wal_receiver") == [], goal="the standby receives nothing"
        )

    @staticmethod
    def promote(server: PostgresServer) -> None:
        assert server.query("select pg_promote()") == [(True,)]


@pytest.fixture
def failover() -> Iterator[Callable[..., Failover]]:
    site, made = Site(max_ttl_ms=60_000), list[Failover]()
    try:
        site.start()

        def make(standbys: int = 1) -> Failover:
            made.append(Failover(site, standbys))
            return made[0]

        yield make
    finally:
        for server in made[0].servers[1:] if made else []:
            if server.process:
                server.stop(signal.SIGQUIT)
        site.remove()


def enter(connection: Any, resource: str, token: int) -> str:
    """Returns the SQLSTATE and the cause with which the guard refuses the token; empty if it lets it in."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("select fencing.enter(%s, %s)", (resource, token))
        return ""
    except psycopg2.Error as refused:
        return f"{refused.pgcode} {json.loads(refused.diag.message_detail)['cause']}"


def write_when_let_in(api: Api, lease: Json, operation: Json) -> Json:
    """Returns the answer to the first write that is neither refused because of the change nor
    because PostgreSQL is away."""
    answer = eventually(
        lambda: (a := api.write(lease, operation)).status != 503 and a, 20, goal="the gateway lets writes in again"
    )
    return expect_problem(answer, 412, "stale-fencing-token") if answer.status == 412 else answer.json()


def write_under_new_lease(api: Api, resource: str, operation: Json) -> Json:
    """Writes under a lease whose token is above the floor, which leases have once the gateway has read the new floor.
    Returns the lease."""

    def written() -> Json:
        lease = api.must_acquire(resource)
        if api.write(lease, operation).status == 200:
            return lease
        api.must_release(lease)
        return None

    return eventually(written, goal="a new lease has a token above the floor")


def checked(made: Failover, gateway: Gateway) -> str:
    """Returns the output of `fencegate check`."""
    return made.site.cluster.run("check", gateway.config).stdout


def verify(site: Site) -> Json:
    done = Cluster.call("verify", "--json", "--conninfo", site.server.conninfo())
    return json.loads(done.stdout)


def test_promotion_refuses_older_tokens_and_leases_live_on(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    lease = gateway.api.must_acquire(sku.resource, ttl_ms=60_000)
    gateway.api.must_write(lease, sku.sell())
    made.wait_for_replay(two)
    opened_on_standby = two.sql()
    opened_on_standby.cursor().execute("select 1")
    one.stop(signal.SIGKILL)
    gateway.process.send_signal(signal.SIGSTOP)  # nobody makes the change yet
    made.promote(two)
    token = lease["fencing_token"]
    for connection in (opened_on_standby, two.sql()):
        assert enter(connection, sku.resource, token) == f"FG503 {CAUSE}"
        assert enter(connection, sku.resource, token + EPOCH) == f"FG503 {CAUSE}"
    gateway.process.send_signal(signal.SIGCONT)
    refused = write_when_let_in(gateway.api, lease, sku.sell())
    assert refused["cause"] == CAUSE and refused["last_fencing_token"] % EPOCH == 0, refused
    for connection in (opened_on_standby, two.sql()):
        assert enter(connection, sku.resource, token) == f"FG412 {CAUSE}"
    renewed = gateway.api.renew(lease)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == token, renewed
    gateway.api.must_release(lease)
    newer = write_under_new_lease(gateway.api, sku.resource, sku.sell())
    assert newer["fencing_token"] > refused["last_fencing_token"]
    changes = gateway.api.history(event="storage_generation_changed")
    assert [c["detail"]["floor"] for c in changes] == [refused["last_fencing_token"]], changes
    assert two.query("select stock from inventory where sku = %s", (sku.name,)) == [(98,)]


def test_lost_writes_are_named(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    lease = gateway.api.must_acquire(sku.resource)
    kept = gateway.api.must_write(lease, sku.sell())["write_id"]
    made.cut_off(two)
    lost = [gateway.api.must_write(lease, sku.sell())["write_id"] for _ in range(3)]
    one.stop(signal.SIGKILL)
    made.promote(two)
    assert write_when_let_in(gateway.api, lease, sku.sell())["cause"] == CAUSE
    change = eventually(
        lambda: gateway.api.history(event="storage_generation_changed"), goal="the history has the change"
    )[0]["detail"]
    assert (
        sorted(change["lost_writes"]) == sorted(lost)
        and change["lost_write_count"] == 3
        and kept not in change["lost_writes"]
    )
    assert b"\nfencegate_lost_writes_total 3\n" in gateway.api.get("/metrics").body
    log = gateway.log.read_text()
    assert all(write_id in log for write_id in lost) and kept not in log
    assert two.query("select stock from inventory where sku = %s", (sku.name,)) == [(99,)]


def test_revocation_that_was_lost_still_holds(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    lease = gateway.api.must_acquire(sku.resource)
    made.cut_off(two)
    gateway.api.must_revoke(sku.resource)
    one.stop(signal.SIGKILL)
    made.promote(two)
    assert two.query(
        "select last_fencing_token <= %s from fencing.guard where resource = %s", (lease["fencing_token"], sku.resource)
    ) == [(True,)], "the seal is lost"
    assert write_when_let_in(gateway.api, lease, sku.sell())["cause"] == CAUSE


def test_second_promotion_of_a_standby_that_missed_the_first(failover: Callable[..., Failover]) -> None:
    """The second floor is above every token given after the first,
    although the second database never had the first change."""
    made = failover(2)
    one, two, three = made.servers
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    made.wait_for_replay(two)
    made.wait_for_replay(three)
    three.stop(signal.SIGINT)
    one.stop(signal.SIGKILL)
    made.promote(two)
    between = eventually(
        lambda: (a := gateway.api.acquire(sku.resource, ttl_ms=20_000)).status == 201
        and a.json()["fencing_token"] > EPOCH * 1_024
        and a.json()
        or (a.status == 201 and gateway.api.must_release(a.json())),
        20,
        goal="a token above the first floor",
    )
    gateway.api.must_write(between, sku.sell())
    two.stop(signal.SIGKILL)
    three.start()
    made.promote(three)
    refused = write_when_let_in(gateway.api, between, sku.sell())
    assert refused["cause"] == CAUSE and refused["last_fencing_token"] > between["fencing_token"]


def test_gateway_on_a_replaced_primary_lets_nothing_in(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    old = made.gateway(one)
    sku = made.site.create_sku("a", 100)
    made.wait_for_replay(two)
    made.promote(two)
    new = made.gateway(two)
    eventually(lambda: new.api.call("GET", "/readyz").status == 200, 20, goal="the change is made")
    eventually(
        lambda: (a := old.api.call("GET", "/readyz/writes")).status == 503 and a.json().get("cause") == CAUSE,
        20,
        goal="the old one notices",
    )
    lease = new.api.must_acquire(sku.resource)
    assert expect_problem(old.api.write(lease, sku.sell()), 503, "storage-unavailable")["cause"] == CAUSE
    new.api.must_write(lease, sku.sell())


def test_session_replaced_within_write_keeps_no_outcome(failover: Callable[..., Failover]) -> None:
    """A gateway that sees a change of the generation renews its connections,
    also in the middle of a transaction of several round trips."""
    made = failover(0)
    server, sku = made.site.server, made.site.create_sku("a", 100)
    server.query(
        """create function sell_slowly(sold text) returns void language plpgsql as $$ begin
                      perform pg_sleep(4); update public.inventory set stock = stock - 1 where sku = sold; end $$;
                    select fencing.expose_function('sell_slowly(text)')"""
    )
    gateway = made.gateway(request_timeout_ms=10_000, statement_timeout_ms=8_000)
    body = {
        "lease": {"resource": sku.resource, "wait_ms": 5_000},
        "operations": [{"call": "sell_slowly", "args": {"sold": sku.name}}],
    }

    def sell() -> Answer:
        return gateway.api.post("/v1/writes", body, {"Idempotency-Key": "slow-sale"})

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sell)
        eventually(
            lambda: server.query("select pid from pg_stat_activity where wait_event = 'PgSleep'"),
            15,
            interval=0.02,
            goal="the function runs",
        )
        server.query("update fencing.storage_generation set timeline = 1000")
        answer = first.result()
    assert answer.status == 503 and "outcome_unknown" not in answer.json(), answer
    assert server.query("select key from fencing.kept_outcome") == [], "the write was rolled back"
    again = eventually(lambda: (a := sell()).status != 503 and a, 40, goal="the gateway lets writes in again")
    assert again.status == 200 and again.headers["Idempotency-Replayed"] is None, again
    assert server.query("select stock from inventory where sku = %s", (sku.name,)) == [(99,)]


def test_history_stream_goes_on_after_lost_events(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.gateway()
    made.cut_off(two)
    with EventStream(
        gateway.api, None, method="GET", path="/v1/history/stream?event=write_failed,storage_generation_changed"
    ) as stream:
        eventually(lambda: stream.last_id, 5, goal="the stream begins")
        one.query(
            "insert into fencing.history (event, resource) select 'write_failed', 'a' from generate_series(1, 500)"
        )
        eventually(lambda: len(stream.events) == 500, goal="the stream has the events that are going to be lost")
        last = int(stream.events[-1].id)
        one.stop(signal.SIGKILL)
        made.promote(two)
        change = stream.wait_for("storage_generation_changed", 20)
        assert last < change.data["detail"]["floor"] < int(change.id) < 2**53, change
        two.query("insert into fencing.history (event, resource) values ('write_failed', 'after')")
        eventually(
            lambda: stream.events[-1].data.get("resource") == "after", goal="the stream has the event that follows"
        )


def test_history_stream_goes_on_when_ids_go_back(failover: Callable[..., Failover]) -> None:
    """Between a promotion and the change of the generation the ids are lower."""
    made = failover(0)
    server, gateway = made.site.server, made.gateway()
    with EventStream(gateway.api, None, method="GET", path="/v1/history/stream?event=write_failed") as stream:
        eventually(lambda: stream.last_id, 5, goal="the stream begins")
        for last_id in (5000, 4000):
            server.query(f"select setval('fencing.history_id_seq', {last_id})")
            pause(0.5, "the gateway reads the last id every 100 ms")
            server.query("insert into fencing.history (event, resource) values ('write_failed', %s)", (str(last_id),))
            eventually(
                lambda: [event.data["resource"] for event in stream.events][-1:] == [str(last_id)],
                goal="the stream has the event",
            )


def test_fence_all_refuses_all_tokens(failover: Callable[..., Failover]) -> None:
    made = failover(0)
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    lease = gateway.api.must_acquire(sku.resource, ttl_ms=60_000)
    gateway.api.must_write(lease, sku.sell())
    done = Cluster.call(
        "fence-all", "--conninfo", made.site.server.conninfo(), "--reason", "snapshot of 09:00 put back"
    )
    assert done.returncode == 0, done.stderr
    done_without_right = Cluster.call(
        "fence-all", "--conninfo", made.site.server.conninfo(user=GATEWAY_ROLE), "--reason", "in doubt"
    )
    assert (
        done_without_right.returncode == 1
        and "give --conninfo of a superuser, or of the role that installed the schema" in done_without_right.stderr
    ), done_without_right.stderr
    refused = write_when_let_in(gateway.api, lease, sku.sell())
    assert refused["cause"] == CAUSE and str(refused["last_fencing_token"]) in done.stdout
    change = gateway.api.history(event="storage_generation_changed")[0]["detail"]
    assert change["reason"] == "snapshot of 09:00 put back" and change["lost_writes"] == []
    assert gateway.api.renew(lease).status == 200
    gateway.api.must_release(lease)
    write_under_new_lease(gateway.api, sku.resource, sku.sell())
    report = verify(made.site)
    assert (report["verdict"], report["generation_changes"], report["lost_grants"]) == ("proved", 1, 0), report
    row = made.site.server.query(
        "insert into fencing.history (event, resource, fencing_token, last_fencing_token) "
        "values ('write_applied', 'inventory/b', %s, %s) returning id",
        (lease["fencing_token"], lease["fencing_token"]),
    )[0][0]
    report = verify(made.site)
    assert any(f["id"] == row and "below the floor" in f["detail"] for f in report["findings"]), report


def test_fence_all_without_gateway_lets_nothing_in(failover: Callable[..., Failover]) -> None:
    made = failover(0)
    sku = made.site.create_sku("a", 100)
    with subprocess.Popen(
        [
            str(processes.fencegate_binary()),
            "fence-all",
            "--conninfo",
            made.site.server.conninfo(),
            "--reason",
            "in doubt",
        ],
        stdout=subprocess.PIPE,
    ) as waiting:
        eventually(lambda: enter(made.site.server.sql(), sku.resource, 1) == f"FG503 {CAUSE}", goal="nothing is let in")
        gateway = made.gateway()
        assert waiting.wait(20) == 0
    eventually(lambda: enter(made.site.server.sql(), sku.resource, 1) == f"FG412 {CAUSE}", goal="the floor is set")
    write_under_new_lease(gateway.api, sku.resource, sku.sell())


def test_change_waits_for_a_majority_of_the_nodes(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.gateway()
    sku = made.site.create_sku("a", 100)
    made.wait_for_replay(two)
    for node in made.site.cluster.nodes[:3]:
        node.process.send_signal(signal.SIGSTOP)
    one.stop(signal.SIGKILL)
    made.promote(two)
    eventually(
        lambda: "waits until a majority of the nodes votes" in gateway.log.read_text(), 20, goal="the gateway waits"
    )
    assert enter(two.sql(), sku.resource, 2**52) == f"FG503 {CAUSE}"
    assert b"\nfencegate_storage_generation_current 0\n" in gateway.api.get("/metrics").body
    assert "FAULT storage generation: PostgreSQL is " in checked(made, gateway)
    for node in made.site.cluster.nodes[:3]:
        node.process.send_signal(signal.SIGCONT)
    eventually(lambda: enter(two.sql(), sku.resource, 1) == f"FG412 {CAUSE}", 20, goal="the floor is set")
    counted = b"\nfencegate_storage_generation_changes_total 1\n"
    eventually(
        lambda: counted in (text := gateway.api.get("/metrics").body)
        and b"\nfencegate_storage_generation_current 1\n" in text,
        goal="the metrics have the change",
    )
    output = checked(made, gateway)
    assert "ok    storage generation: " in output and "WARNING: no synchronous standby" in output
    two.configure("set synchronous_standby_names = 'three'")
    eventually(
        lambda: "commits wait for a synchronous standby" in checked(made, gateway), goal="check sees the setting"
    )


def test_gateway_and_check_tell_a_standby(failover: Callable[..., Failover]) -> None:
    made = failover()
    one, two = made.servers
    gateway = made.site.gateway(
        f"host=127.0.0.1,127.0.0.1 port={one.port},{two.port} dbname={made.site.server.database} user={GATEWAY_ROLE}"
    )
    sku = made.site.create_sku("a", 100)
    made.wait_for_replay(two)
    one.stop(signal.SIGKILL)
    detail = eventually(
        lambda: (found := gateway.api.get("/readyz/writes").json().get("detail")) and "standby" in found and found,
        goal="the gateway names the standby",
    )
    assert "can't be reached" not in detail
    assert "PostgreSQL is read-only (a standby, or default_transaction_read_only is on): name the primary" in checked(
        made, gateway
    )
    made.promote(two)
    eventually(lambda: gateway.api.get("/readyz/writes").status == 200, 20, goal="the promoted server is used")
    write_under_new_lease(gateway.api, sku.resource, sku.sell())
