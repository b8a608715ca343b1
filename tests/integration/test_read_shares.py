"""Slow reads delay neither cheap reads nor writes: patterns are bounded,
and principals share the connections for reads."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from typing import Callable, Iterator

import pytest

from support.api import Answer, Api, pointers_of
from support.polling import eventually
from support.shop import create_sku
from support.stack import Stack, running

ROWS = 150_000


@pytest.fixture(scope="module")
def busy_stack() -> Iterator[Stack]:
    """A stack with several principals, a long history, and a function that waits for a lock."""
    with running("--auth") as made:
        made.query(
            "create function held_read() returns integer language plpgsql stable as "
            "$$ begin perform pg_catalog.pg_advisory_xact_lock_shared(7); return 1; end $$; "
            "select fencing.expose_function('held_read()'); "
            "create table long_texts (id text primary key, words text); "
            "insert into long_texts values ('a', repeat('a', 100000)); "
            "select fencing.expose_table('long_texts')"
        )
        made.query(
            "insert into fencing.history (at, event, resource, fencing_token, owner) "
            "select now() - n * interval '10 milliseconds', 'lease_granted', 'bulk/' || mod(n, 1000), n, 'o' "
            "from generate_series(1, %s) as n",
            (ROWS,),
        )
        made.query("analyze fencing.history")
        api = made.api()
        eventually(lambda: api.get("/v1/rpc/held_read").status == 200, goal="the gateway knows the function")
        eventually(
            lambda: api.get("/v1/tables/long_texts", id="eq.a", select="id").status == 200,
            goal="the gateway knows the table",
        )
        yield made


@contextmanager
def running_calls(count: int, call: Callable[[], Answer]) -> Iterator[list[int]]:
    """Runs `count` callers while the block lasts; they repeat the call and obey Retry-After.
    Yields the statuses of the answers."""
    stop_requested, statuses = threading.Event(), []

    def work() -> None:
        while not stop_requested.is_set():
            answer = call()
            statuses.append(answer.status)
            stop_requested.wait(float(answer.headers["Retry-After"] or 0))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(statuses) > 0, 30, goal="a call is answered")
        yield statuses
    finally:
        stop_requested.set()
        for thread in threads:
            thread.join(30)


def prompt(api: Api, path: str, **query: object) -> float:
    """Returns how long a read may take beside slow ones: a second, or on a busy machine ten times what it takes now."""
    return max(1.0, 10 * p90(api, path, 10, **query))


def p90(api: Api, path: str, times: int = 60, **query: object) -> float:
    seconds = []
    for _ in range(times):
        answer = api.get(path, **query)
        assert answer.status == 200, answer
        seconds.append(answer.seconds)
    return sorted(seconds)[times * 9 // 10]


# Patterns


@pytest.mark.parametrize(
    "name, value",
    [
        ("words", "like.%" + "a" * 512),
        ("words", "ilike.*" + "a" * 512),
        ("words", "not.like.%" + "a" * 512),
        ("or", "(id.eq.a,words.like.%" + "a" * 512 + ")"),
        ("words", "like." + "*a" * 6_000),
    ],
    ids=["like", "ilike", "not", "group", "wildcards"],
)
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_pattern_too_long_400_names_parameter(busy_stack: Stack, name: str, value: str, method: str) -> None:
    body = {"words": "x"} if method == "PATCH" else None
    answer = busy_stack.api().call(method, f"/v1/tables/long_texts?{name}={value.replace('%', '%25')}", body)
    assert pointers_of(answer) == [name]


def test_patterns_many_have_bounded_sum(busy_stack: Stack) -> None:
    """Each pattern is short, but every row is compared with all of them."""
    query = "&".join(f"words=like.%25{'a' * 50}b" for _ in range(20))
    assert pointers_of(busy_stack.api().get(f"/v1/tables/long_texts?{query}")) == ["words"]


def test_pattern_repeated_wildcards_count_once(busy_stack: Stack) -> None:
    api = busy_stack.api()
    for value in ("*" * 5_000 + "a" + "*" * 5_000, "a" * 511 + "*"):
        answer = api.get(f"/v1/tables/long_texts?select=id&words=like.{value}")
        assert answer.status == 200 and [row["id"] for row in answer.json()] == ["a"], answer
    assert api.get("/v1/tables/long_texts", select="id", words="like.%\\%%").json() == []


def test_page_beside_slow_patterns_is_prompt(busy_stack: Stack) -> None:
    """The slowest pattern that is allowed, in as many calls as could block every read."""
    api, others = busy_stack.api(), busy_stack.api(0, "orders")
    worst = "like.%" + "a" * 509 + "b"
    row = {"id": "eq.a", "select": "id"}
    page_within, row_within = prompt(api, "/v1/history", limit=1), prompt(api, "/v1/tables/long_texts", **row)
    with running_calls(8, lambda: others.get("/v1/tables/long_texts", words=worst)) as statuses:
        assert p90(api, "/v1/history", limit=1) < page_within
        assert p90(api, "/v1/tables/long_texts", **row) < row_within
    assert 200 in statuses and set(statuses) <= {
        200,
        503,
    }, statuses  # 503: longer than statement_timeout on a busy machine


# Shares


def test_page_beside_summaries_is_prompt(busy_stack: Stack) -> None:
    api = busy_stack.api()
    query = {"from": "2020-01-01T00:00:00Z", "bucket_ms": 3_600_000 * 24 * 30}
    within = prompt(api, "/v1/history", limit=1)
    with running_calls(20, lambda: api.get("/v1/history/summary", **query)) as statuses:
        slowest = p90(api, "/v1/history", limit=1)
    assert slowest < within and 200 in statuses and set(statuses) <= {200, 429, 503}, (slowest, statuses)


@pytest.mark.parametrize("query", [{"event": "node_quarantined"}, {"owner": "nobody"}])
def test_page_beside_searches_is_prompt(busy_stack: Stack, query: dict[str, str]) -> None:
    api = busy_stack.api()
    within = prompt(api, "/v1/history", limit=1)
    with running_calls(20, lambda: api.get("/v1/history", **query)) as statuses:
        assert p90(api, "/v1/history", limit=1) < within
    assert set(statuses) <= {200, 429, 503}


def test_expensive_reads_above_queue_limit_429(busy_stack: Stack) -> None:
    """One read of a principal runs and sixteen wait. A lock on the history keeps all of them from ending."""
    api = busy_stack.api(0, "auditor")
    connection = busy_stack.sql()
    connection.autocommit = False
    try:
        connection.cursor().execute("lock table fencing.history in access exclusive mode")
        calls = [api.begin("GET", "/v1/history/summary?bucket_ms=60000") for _ in range(20)]
        eventually(lambda: sum(call.received is not None for call in calls) == 3, 5, goal="three are refused")
        refused = [call.received for call in calls if call.received]
        assert {answer.status for answer in refused} == {429} and all(
            answer.headers["Retry-After"] for answer in refused
        )
    finally:
        connection.rollback()
        connection.close()
    statuses = [call.answer().status for call in calls]
    assert statuses.count(429) == 3 and set(statuses) <= {
        200,
        429,
        503,
    }, statuses  # 503: over the deadline while the table was locked


def test_reads_over_share_do_not_delay_other_principals(busy_stack: Stack) -> None:
    greedy, api = busy_stack.api(0, "orders"), busy_stack.api()
    sku = create_sku(busy_stack, "shares")

    def waiting() -> int:
        return busy_stack.query("select count(*) from pg_stat_activity where wait_event = 'advisory'")[0][0]

    with closing(busy_stack.sql()) as connection:
        connection.cursor().execute("select pg_advisory_lock(7)")
        calls = [greedy.begin("GET", "/v1/rpc/held_read") for _ in range(8)]
        eventually(lambda: waiting() == 3, 5, goal="all reads that may run at once have begun")
        assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200, "another principal's read"
        lease = api.must_acquire(sku.resource)
        assert api.write(lease, sku.sell()).status == 200 and api.get("/readyz").status == 200
        api.must_release(lease)
        assert waiting() == 3 and all(call.is_alive() for call in calls), "of four connections"
    answers = [call.answer() for call in calls]
    assert [answer.status for answer in answers] == [200] * 8, str(answers[-1])
