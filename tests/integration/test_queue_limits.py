"""The limits of queues over HTTP: callers that wait for leases (lease.waiters_max),
and calls that wait for PostgreSQL (postgres.queue_max)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Callable, Iterator

import pytest
from support.api import Answer, Api, Call, expect_problem
from support.cluster import Cluster, Gateway, credentials
from support.polling import eventually, pause

CLUSTER_MAX_TTL_MS = 20_000  # so long that a lease outlives the requests of a test on a busy machine
WAITERS_MAX, QUEUE_MAX = 2, 4
PRINCIPALS = ("orders", "reports", "others", "more")
TABLE = (
    "create table stored (id text primary key, n integer not null); insert into stored values ('a', 0); "
    "select fencing.protect('stored', $$'stored/' || id$$); select fencing.expose_table('stored')"
)


@pytest.fixture(scope="module")
def narrow(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with one thread, one connection of each kind and short queues, and with four principals."""
    cluster.query(TABLE)
    settings = cluster.settings(waiters_max=WAITERS_MAX, max_ttl_ms=cluster.max_ttl_ms)
    settings["http"]["threads"] = 1
    settings["postgres"].update(connections=1, queue_max=QUEUE_MAX, lock_timeout_ms=20_000, statement_timeout_ms=30_000)
    settings["auth"] = credentials({name: key_of(name) for name in PRINCIPALS})
    with cluster.serving(settings) as gateway:
        yield gateway


def key_of(principal: str) -> str:
    return f"the key of {principal}"


@contextmanager
def locked_table(cluster: Cluster) -> Iterator[Callable[[], set[int]]]:
    """Locks the table, so that no statement about it ends.
    Yields a function that returns the process ids of the connections that wait for it."""
    connection = cluster.sql()
    connection.autocommit = False
    try:
        connection.cursor().execute("lock table stored in access exclusive mode")
        yield lambda: {
            pid
            for (pid,) in cluster.query("select pid from pg_locks where relation = 'stored'::regclass and not granted")
        }
    finally:
        connection.rollback()
        connection.close()


def refused(calls: list[Call]) -> list[Answer]:
    return [call.received for call in calls if call.received]


def test_waiters_above_limit_429_until_one_has_left(narrow: Gateway, resource: str) -> None:
    api = narrow.api.with_key(key_of("orders"))
    held = api.must_acquire(resource, ttl_ms=20_000)
    others = [f"{resource}/{number}" for number in range(WAITERS_MAX)]
    leases = [api.must_acquire(name, ttl_ms=20_000) for name in others]
    waiting = [api.begin_wait(name, ttl_ms=20_000, owner="waiter") for name in others]
    answer = api.acquire(resource, ttl_ms=2_000, wait_ms=5_000, owner="too many")
    expect_problem(answer, 429, "too-many-waiters")
    assert int(answer.headers["Retry-After"]) >= 1 and answer.seconds < 4, "it waits for 5 s if it is not refused"
    assert api.acquire(resource, ttl_ms=2_000, wait_ms=0, owner="no waiter").status == 423
    api.must_release(leases[0])
    assert waiting[0].answer().status == 201
    last = api.begin_wait(resource, ttl_ms=20_000, owner="in its place")
    for lease in (held, leases[1]):
        api.must_release(lease)
    assert last.answer().status == 201 and waiting[1].answer().status == 201


def test_reads_above_half_of_queue_429_above_queue_503(cluster: Cluster, narrow: Gateway) -> None:
    """One read runs, QUEUE_MAX wait, at most half of them of one principal."""
    first, second, third = (narrow.api.with_key(key_of(name)) for name in PRINCIPALS[:3])
    path = "/v1/tables/stored?id=eq.a"
    eventually(lambda: first.get(path).status == 200, goal="the gateway knows the table")
    with locked_table(cluster) as waiting:
        calls = [first.begin("GET", path)]
        eventually(lambda: len(waiting()) == 1, goal="the first read runs")
        calls += [first.begin("GET", path) for _ in range(QUEUE_MAX // 2 + 1)]
        eventually(lambda: len(refused(calls)) == 1, 5, goal="one read of the first principal is refused")
        expect_problem(refused(calls)[0], 429, "too-many-requests")
        more = [second.begin("GET", path) for _ in range(QUEUE_MAX // 2 + 1)]
        eventually(lambda: len(refused(more)) == 1, 5, goal="one read of the second principal is refused")
        expect_problem(refused(more)[0], 503, "overloaded")
        answer = third.get(path)
        expect_problem(answer, 503, "overloaded")
        assert int(answer.headers["Retry-After"]) >= 1
        assert len(waiting()) == 1 and len(refused(calls + more)) == 2
    statuses = [call.answer().status for call in calls + more]
    assert statuses[0] == 200 and statuses.count(429) == 1
    assert set(statuses) <= {
        200,
        429,
        503,
    }, statuses  # as many as may wait for rows can exceed the half that may wait for the disk


def test_writes_above_share_429_above_queue_503_no_effect(cluster: Cluster, narrow: Gateway) -> None:
    """QUEUE_MAX writes wait, at most half of them of one principal."""
    orders, reports = (narrow.api.with_key(key_of(name)) for name in PRINCIPALS[:2])
    others = [narrow.api.with_key(key_of(name)) for name in PRINCIPALS[2:]]
    operation = {"update": "stored", "where": {"id": "a"}, "add": {"n": 1}, "expect_rows": 1}

    def body_of(api: Api, resource: str) -> dict[str, object]:
        return {"lease_id": api.must_acquire(resource, ttl_ms=2_000)["lease_id"], "operations": [operation]}

    body = body_of(orders, "stored/a")
    eventually(lambda: orders.post("/v1/writes", body).status == 200, goal="the gateway knows the table")
    before = cluster.query("select n from stored")[0][0]
    foreign = body_of(reports, "stored/b"), [
        (api, body_of(api, f"stored/{number}")) for number, api in enumerate(others)
    ]
    with locked_table(cluster) as waiting:
        calls = [orders.begin("POST", "/v1/writes", body)]
        first = eventually(waiting, goal="the first write runs")
        eventually(lambda: waiting() - first, goal="the first write waits for the lock in a connection of such writes")
        calls += [orders.begin("POST", "/v1/writes", body) for _ in range(10 * QUEUE_MAX)]
        eventually(lambda: refused(calls), 5, goal="some are refused")
        for answer in refused(calls):
            expect_problem(answer, 429, "too-many-requests")
            assert int(answer.headers["Retry-After"]) >= 1
        more = [reports.begin("POST", "/v1/writes", foreign[0]) for _ in range(QUEUE_MAX // 2)]
        pause(0.2, "they wait")
        assert not refused(more), "another principal's writes have places"
        last = [api.begin("POST", "/v1/writes", own) for api, own in foreign[1] for _ in range(QUEUE_MAX)]
        eventually(
            lambda: any(answer.status == 503 for answer in refused(last)),
            5,
            goal="the whole queue is full before each principal has its share",
        )
    answers = [call.answer() for call in calls]
    executed = [answer for answer in answers if answer.status == 200]
    assert executed and {answer.status for answer in answers} <= {200, 429, 503}
    assert {call.answer().status for call in more} <= {
        403,
        503,
    }, "they have no lease of the row, or were refused when they had waited for a lock"
    assert cluster.query("select n from stored")[0][0] == before + len(executed)
