"""Delivery of lease events to the history: each arrives once and in its order,
whatever happens to PostgreSQL meanwhile."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from typing import Any, Iterator

import pytest
from support import processes
from support.api import Api, Json, expect_problem
from support.cluster import Cluster, Gateway
from support.polling import eventually, pause
from support.tcp_gate import Gate, open_gates, random_limits


@contextmanager
def gateway_behind_gate(cluster: Cluster, **audit: object) -> Iterator[tuple[Gateway, Gate]]:
    """Runs a gateway that connects to PostgreSQL through a gate."""
    postgres = cluster.stack.facts["postgres"]
    with open_gates([f"{postgres['host']}/.s.PGSQL.{postgres['port']}"]) as gates:
        settings: dict[str, Any] = cluster.settings()
        settings["postgres"]["conninfo"] = (
            f"host=127.0.0.1 port={gates.members[0].port} dbname={cluster.database} user={postgres['superuser']} "
            "sslmode=disable gssencmode=disable"
        )
        settings["audit"] = audit
        with cluster.serving(settings) as gateway:
            gateway.wait_until_all_vote()
            yield gateway, gates.members[0]


class Taker(threading.Thread):
    """Acquires and releases one lease after the other on its own connection, and records the tokens."""

    def __init__(self, api: Api, resource: str) -> None:
        super().__init__(daemon=True)
        self.api, self.resource = api, resource
        self.granted: list[int] = []
        self.released: list[int] = []
        self.others: Counter[int] = Counter()
        self.stop_requested = threading.Event()

    def run(self) -> None:
        try:
            with self.api.connection() as connection:
                while not self.stop_requested.is_set():
                    answer = connection.post("/v1/leases", {"resource": self.resource, "ttl_ms": 1_000})
                    if answer.status != 201:
                        self.others[answer.status] += 1
                        self.stop_requested.wait(0.05)
                        continue
                    token = answer.json()["fencing_token"]
                    self.granted.append(token)
                    if connection.call("DELETE", answer.headers["Location"]).status == 204:
                        self.released.append(token)
        except Exception:  # the gateway was stopped: the answers until then count
            pass


@contextmanager
def running_takers(api: Api, prefix: str, count: int = 8) -> Iterator[list[Taker]]:
    takers = [Taker(api, f"{prefix}/{number}") for number in range(count)]
    for taker in takers:
        taker.start()
    try:
        yield takers
    finally:
        for taker in takers:
            taker.stop_requested.set()
        for taker in takers:
            taker.join(20)


def count_in_history(cluster: Cluster, resource: str, event: str) -> Counter[int]:
    rows = cluster.query(
        "select fencing_token from fencing.history where resource = %s and event = %s order by id", (resource, event)
    )
    return Counter(token for (token,) in rows)


def check_each_once(cluster: Cluster, takers: list[Taker]) -> None:
    for taker in takers:
        assert taker.granted
        for event, promised in (("lease_granted", taker.granted), ("lease_released", taker.released)):
            found = count_in_history(cluster, taker.resource, event)
            assert not [token for token in promised if token not in found], f"{event}s of {taker.resource} are lost"
            assert not [
                token for token, count in found.items() if count > 1
            ], f"{event}s of {taker.resource} are there twice"


def test_events_over_broken_connections_arrive_once_each(cluster: Cluster) -> None:
    """Connections are reset in the middle of a batch, and after a batch was recorded but before its reply arrived.

    On a busy machine too few Redis nodes may answer in time: such a call is a 503
    and must leave no event of a grant or a release.
    """
    counted = (
        "select count(*) filter (where event = 'lease_granted'), count(*) filter (where event = 'lease_released'), "
        "count(distinct (event, resource, fencing_token)) filter (where event in ('lease_granted', 'lease_released')) "
        "from fencing.history where starts_with(resource, %s)"
    )
    with gateway_behind_gate(cluster, buffer_max=1_000_000) as (gateway, gate):
        gate.replies.cut_after = random_limits(600, 1_000, seed=1)
        gate.requests.cut_after = random_limits(2_000, 2_000_000, seed=2)
        granted = released = runs = 0
        while gate.cuts < 200 and runs < 6:
            runs += 1
            done = processes.run(
                [
                    str(processes.fencegate_binary()),
                    *"bench pair --json --clients 2 --time 8s --ttl 2s --url".split(),
                    gateway.api.url,
                    "--name",
                    f"cut_{runs}",
                ],
                stdin=subprocess.DEVNULL,
                timeout=60,
                preexec_fn=processes.terminate_with_parent,
            )
            assert done.stdout, done.stderr
            reported = json.loads(done.stdout)
            statuses = reported["statuses"]
            late = statuses["acquire"].get("503", 0) + statuses["release"].get("503", 0)
            assert reported["errors"] == late <= 20 and reported["overlaps"] == 0, done.stdout
            granted += statuses["acquire"]["201"]
            released += statuses["release"]["204"]
        cuts = gate.cuts
        gate.clear_faults()

        def count() -> tuple[Any, ...]:
            return cluster.query(counted, ("bench/cut_",))[0]

        eventually(lambda: sum(count()[:2]) >= granted + released, 40, interval=0.5, goal="the history has all events")
        assert gateway.stop() == 0, gateway.log.read_text()[-2000:]
    print(f"{cuts} cuts, {granted} granted, {released} released")
    assert count() == (granted, released, granted + released)
    assert cuts >= 100, cuts


def test_events_during_postgresql_outage_all_arrive_later(cluster: Cluster, resource: str) -> None:
    with gateway_behind_gate(cluster) as (gateway, gate):
        with running_takers(gateway.api, resource) as takers:
            eventually(lambda: all(taker.granted for taker in takers), 20, goal="each has a grant")
            gate.refuse()
            gate.cut()
            before = sum(len(taker.granted) for taker in takers)
            pause(5, "PostgreSQL is unreachable for as long")
            assert sum(len(taker.granted) for taker in takers) > before + 100, "leases go on"
            gate.clear_faults()
        assert all(set(taker.others) <= {410, 423, 503} for taker in takers), [taker.others for taker in takers]
        eventually(
            lambda: all(
                len(count_in_history(cluster, taker.resource, "lease_released")) >= len(taker.released)
                for taker in takers
            ),
            30,
            goal="the history has all events",
        )
        check_each_once(cluster, takers)


FAULT_OF_SERVER = """
    create function public.break_history() returns trigger language plpgsql as
        $$begin raise exception using errcode = 'XX000', message = 'a fault inside PostgreSQL'; end$$;
    create trigger break_history before insert on fencing.history for each statement
      execute function public.break_history()"""


def test_events_wait_while_postgresql_has_a_fault(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    cluster.query(FAULT_OF_SERVER)
    try:
        token = gateway.api.must_acquire(resource, ttl_ms=2_000)["fencing_token"]
        eventually(lambda: "fencing.append_events failed: XX000" in gateway.log.read_text(), goal="the fault is logged")
        pause(0.5, "the batch is sent again")
    finally:
        cluster.query("drop function public.break_history cascade")
    eventually(lambda: count_in_history(cluster, resource, "lease_granted") == {token: 1}, 15, goal="the event arrives")


def test_repair_without_answer_is_not_made_twice(cluster: Cluster, resource: str) -> None:
    path = f"/v1/resources/{resource.replace('/', '%2F')}/fence"

    def repairs() -> list[Any]:
        return cluster.query(
            "select fencing_token from fencing.history where resource = %s and event = 'fence_raised' order by id",
            (resource,),
        )

    with gateway_behind_gate(cluster) as (gateway, gate):
        # The first repair prepares the statement.
        assert gateway.api.post(path, {"reason": "a wrong token", "last_fencing_token": 6}).status == 200
        pause(0.5, "its connection is free again")
        gate.replies.stalled = True
        asked = gateway.api.begin("POST", path, {"reason": "a wrong token", "last_fencing_token": 7})
        eventually(lambda: len(repairs()) == 2, goal="the repair commits")
        gate.cut()
        gate.clear_faults()
        assert expect_problem(asked.answer(), 503, "storage-unavailable")["outcome_unknown"]
        pause(0.5, "another repair would commit")
        assert repairs() == [(6,), (7,)]


def test_events_before_gateway_stop_all_arrive(cluster: Cluster, resource: str) -> None:
    gateway = cluster.start_gateway()
    gateway.wait_until_all_vote()
    with running_takers(gateway.api, resource) as takers:
        eventually(lambda: all(len(taker.granted) > 50 for taker in takers), 30, goal="all take leases")
        assert gateway.stop() == 0, gateway.log.read_text()[-2000:]
    check_each_once(cluster, takers)


def test_buffer_full_with_refuse_stops_grants_and_loses_nothing(cluster: Cluster, resource: str) -> None:
    with gateway_behind_gate(cluster, buffer_max=1_000, on_full="refuse") as (gateway, gate):
        gate.refuse()
        gate.cut()
        with running_takers(gateway.api, resource) as takers:
            eventually(lambda: all(taker.others[503] > 2 for taker in takers), 30, goal="each is refused")
            expect_problem(gateway.api.acquire(resource), 503, "storage-unavailable")
            expect_problem(gateway.api.get("/readyz/leases"), 503, "storage-unavailable")
            gate.clear_faults()
            counts = [len(taker.granted) for taker in takers]
            eventually(
                lambda: all(len(taker.granted) > count for taker, count in zip(takers, counts)),
                20,
                goal="leases are granted again",
            )
        assert {503} <= {status for taker in takers for status in taker.others} <= {410, 423, 503}, [
            taker.others for taker in takers
        ]
        assert gateway.stop() == 0
        assert "events are lost" not in gateway.log.read_text()
        check_each_once(cluster, takers)


def test_buffer_full_with_drop_continues_and_drops_newest(cluster: Cluster, resource: str) -> None:
    with gateway_behind_gate(cluster, buffer_max=1_000, on_full="drop") as (gateway, gate):
        gate.refuse()
        gate.cut()
        with running_takers(gateway.api, resource) as takers:
            eventually(lambda: sum(len(taker.granted) for taker in takers) > 1_000, 30, goal="more events than fit")
        assert sum(taker.others.total() for taker in takers) <= 5, [taker.others for taker in takers]
        assert gateway.api.get("/readyz/leases").status == 200
        assert gateway.api.metric("fencegate_history_buffer_full") == 1
        gate.clear_faults()
        eventually(
            lambda: gateway.api.metric("fencegate_history_buffer_full") == 0, 20, goal="the buffer is no longer full"
        )
        eventually(
            lambda: sum(count_in_history(cluster, taker.resource, "lease_released").total() for taker in takers) > 100,
            20,
            goal="it writes again",
        )
        later = gateway.api.must_acquire(f"{resource}/later", ttl_ms=1_000)
        assert gateway.stop() == 0
        kept = 0
        for taker in takers:
            for event, promised in (("lease_granted", taker.granted), ("lease_released", taker.released)):
                found = count_in_history(cluster, taker.resource, event)
                assert list(found.elements()) == promised[: len(found)], "the oldest, each once"
                kept += len(found)
        assert 900 < kept <= 1_000
        assert count_in_history(cluster, f"{resource}/later", "lease_granted") == {later["fencing_token"]: 1}
        assert gateway.log.read_text().count("events are lost") == 1


def read_all_pages(api: Api, limit: int, **filters: object) -> list[Json]:
    items: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/v1/history", limit=limit, **filters, **cursor).json()
        items += page["items"]
        if not page["next_cursor"]:
            return items
        cursor = {"cursor": page["next_cursor"]}


@pytest.fixture
def slow_events(cluster: Cluster, gateway: Gateway) -> Iterator[Any]:
    """Blocks the recording of lease events until the fixture's value is called."""
    with cluster.sql() as connection:
        connection.autocommit = False
        with connection.cursor() as cursor:
            cursor.execute("lock table fencing.event_stream in exclusive mode")
        yield connection.commit
        connection.commit()
    connection.close()


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_late_events_are_ordered_grant_before_its_writes(
    cluster: Cluster, gateway: Gateway, slow_events: Any, resource: str, limit: int
) -> None:
    statement = "select fencing.begin_write(%s, %s, gen_random_uuid(), 'o', 'p', null, null)"
    expected = []
    for _ in range(3):
        lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
        for _ in range(2):
            cluster.query(statement, ([resource], lease["fencing_token"]))
        gateway.api.must_release(lease)
        expected += [
            (event, lease["fencing_token"])
            for event in ("lease_granted", "write_applied", "write_applied", "lease_released")
        ]
    assert [item["event"] for item in gateway.api.history(resource=resource)] == ["write_applied"] * 6
    slow_events()
    eventually(lambda: len(gateway.api.history(resource=resource)) == 12, goal="the events have come")
    ascending = read_all_pages(gateway.api, limit, resource=resource, order="asc")
    assert [(item["event"], item["fencing_token"]) for item in ascending] == expected
    assert read_all_pages(gateway.api, limit, resource=resource) == ascending[::-1]
    ids = [item["id"] for item in ascending]
    assert ids != sorted(ids), "the events came late, else the test checks nothing"
