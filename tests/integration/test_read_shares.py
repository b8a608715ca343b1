"""Slow reads hold up neither cheap ones nor writes: patterns are bounded, and callers share the connections that read."""

from __future__ import annotations

import statistics
import threading
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest

from support.api import Answer, Api, pointers_of
from support.polling import eventually, let_pass
from support.shop import stock_up
from support.stack import Stack, running

ROWS = 150_000


@pytest.fixture(scope="module")
def busy() -> Iterator[Stack]:
    """Two principals, a history that takes a while to read through, and a function that takes a while by itself."""
    with running("--auth") as made:
        made.query("create function slow_read(seconds double precision) returns integer language plpgsql stable as "
                   "$$ begin perform pg_catalog.pg_sleep(seconds); return 1; end $$; select fencing.expose_function('slow_read(double precision)'); "
                   "create table long_texts (id text primary key, words text); insert into long_texts values ('a', repeat('a', 100000)); "
                   "select fencing.expose_table('long_texts')")
        made.query("insert into fencing.history (at, event, resource, fencing_token, owner) "
                   "select now() - n * interval '10 milliseconds', 'lease_granted', 'bulk/' || mod(n, 1000), n, 'o' from generate_series(1, %s) as n", (ROWS,))
        made.query("analyze fencing.history")
        api = made.api()
        eventually(lambda: api.get("/v1/rpc/slow_read", seconds=0).status == 200, 10, what="the gateway knows the function")
        eventually(lambda: api.get("/v1/tables/long_texts", id="eq.a", select="id").status == 200, 10, what="and the table")
        yield made


@contextmanager
def at_work(count: int, call: Callable[[], Answer]) -> Iterator[list[int]]:
    """So many callers call again and again for as long as the block lasts, as Retry-After asks them to. Gives the answers' statuses."""
    enough, statuses = threading.Event(), []

    def work() -> None:
        while not enough.is_set():
            answer = call()
            statuses.append(answer.status)
            enough.wait(float(answer.headers["Retry-After"] or 0))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(statuses) > 0, 30, what="they are at work")
        yield statuses
    finally:
        enough.set()
        for thread in threads:
            thread.join(30)


def p99(api: Api, path: str, times: int = 60, **query: object) -> float:
    seconds = []
    for _ in range(times):
        answer = api.get(path, **query)
        assert answer.status == 200, answer
        seconds.append(answer.seconds)
    return statistics.quantiles(seconds, n=100)[98]


# patterns

@pytest.mark.parametrize("name, value", [("words", "like.%" + "a" * 512), ("words", "ilike.*" + "a" * 512), ("words", "not.like.%" + "a" * 512),
                                         ("or", "(id.eq.a,words.like.%" + "a" * 512 + ")"), ("words", "like." + "*a" * 6_000)],
                         ids=["like", "ilike", "not", "group", "wildcards"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_pattern_when_too_long_then_400_by_its_parameter(busy: Stack, name: str, value: str, method: str) -> None:
    body = {"words": "x"} if method == "PATCH" else None
    answer = busy.api().call(method, f"/v1/tables/long_texts?{name}={value.replace('%', '%25')}", body)
    assert pointers_of(answer) == [name]


def test_patterns_when_many_then_their_sum_is_bounded(busy: Stack) -> None:
    """Each of them is short, and every row is compared with each."""
    query = "&".join(f"words=like.%25{'a' * 50}b" for _ in range(20))
    assert pointers_of(busy.api().get(f"/v1/tables/long_texts?{query}")) == ["words"]


def test_pattern_when_wildcards_repeat_then_they_count_once(busy: Stack) -> None:
    api = busy.api()
    for value in ("*" * 5_000 + "a" + "*" * 5_000, "a" * 511 + "*"):
        answer = api.get(f"/v1/tables/long_texts?select=id&words=like.{value}")
        assert answer.status == 200 and [row["id"] for row in answer.json()] == ["a"], answer
    assert api.get("/v1/tables/long_texts", select="id", words="like.%\\%%").json() == []


def test_page_when_beside_bad_patterns_then_prompt(busy: Stack) -> None:
    """The worst that a pattern may be, in as many calls as once blocked every read."""
    api, others = busy.api(), busy.api(0, "orders")
    worst = "like.%" + "a" * 509 + "b"
    with at_work(8, lambda: others.get("/v1/tables/long_texts", words=worst)) as statuses:
        assert p99(api, "/v1/history", limit=1) < 1.0
        assert p99(api, "/v1/tables/long_texts", id="eq.a", select="id") < 1.5
    assert set(statuses) == {200}


# shares

def test_page_when_beside_summaries_then_prompt(busy: Stack) -> None:
    api = busy.api()
    query = {"from": "2020-01-01T00:00:00Z", "bucket_ms": 3_600_000 * 24 * 30}
    with at_work(20, lambda: api.get("/v1/history/summary", **query)) as statuses:
        slowest = p99(api, "/v1/history", limit=1)
    assert slowest < 1.0 and 200 in statuses and set(statuses) <= {200, 429, 503}, (slowest, statuses)


@pytest.mark.parametrize("query", [{"event": "node_quarantined"}, {"owner": "nobody"}])
def test_page_when_beside_searches_then_prompt(busy: Stack, query: dict[str, str]) -> None:
    api = busy.api()
    with at_work(20, lambda: api.get("/v1/history", **query)) as statuses:
        assert p99(api, "/v1/history", limit=1) < 1.0
    assert set(statuses) <= {200, 429, 503}


def test_expensive_reads_when_too_many_wait_then_429(busy: Stack) -> None:
    """The first of a principal runs, sixteen wait. Held up by a lock on the history's partitions, all of them stay."""
    api = busy.api(0, "auditor")
    connection = busy.sql()
    connection.autocommit = False
    try:
        connection.cursor().execute("lock table fencing.history in access exclusive mode")
        calls = [api.begin("GET", "/v1/history/summary?bucket_ms=60000") for _ in range(20)]
        eventually(lambda: sum(call.got is not None for call in calls) == 3, 5, what="three are refused")
        refused = [call.got for call in calls if call.got]
        assert {answer.status for answer in refused} == {429} and all(answer.headers["Retry-After"] for answer in refused)
    finally:
        connection.rollback()
        connection.close()
    assert sorted(call.answer().status for call in calls) == [200] * 17 + [429] * 3


def test_reads_when_one_principal_has_its_share_then_others_are_prompt(busy: Stack) -> None:
    greedy, api = busy.api(0, "orders"), busy.api()
    sku = stock_up(busy, "shares")
    calls = [greedy.begin("GET", "/v1/rpc/slow_read?seconds=0.3") for _ in range(8)]
    let_pass(0.2, "all reads that may run at once have begun")
    assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").seconds < 1.0, "another principal's read"
    lease = api.take(sku.resource)
    assert api.write(lease, sku.sell()).seconds < 1.0 and api.get("/readyz").seconds < 1.0
    api.give_back(lease)
    answers = [call.answer() for call in calls]
    assert [answer.status for answer in answers] == [200] * 8, str(answers[-1])
    ended = sorted(call.ended - call.began for call in calls)
    assert ended[3] > 1.5 * ended[2], f"three of four connections, in turns: {ended}"
