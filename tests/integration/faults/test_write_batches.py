"""Batches of writes in one transaction: each caller gets its own answer, whatever other writes of the batch do."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Callable, Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack

SLOW = """
create or replace function batch_sleep(seconds double precision) returns integer
  language plpgsql as $$ begin perform pg_sleep(seconds); return 1; end $$;
select fencing.expose_function('batch_sleep(double precision)');
create or replace function batch_setting(word text) returns text language sql
as $$ select coalesce(current_setting('batch.word', true), '') || set_config('batch.word', word, true) $$;
select fencing.expose_function('batch_setting(text)');
create table if not exists batch_slow (id text primary key, seconds double precision not null);
create or replace function batch_slow_row() returns trigger language plpgsql as $$ begin perform pg_sleep(new.seconds);
return new; end $$;
create or replace trigger batch_slow before insert on batch_slow for each row execute function batch_slow_row();
select fencing.protect('batch_slow', $$'batch-slow/' || id$$);
select fencing.expose_table('batch_slow');
create table if not exists batch_late (id text primary key, place integer,
    constraint batch_late_place unique (place) deferrable initially deferred);
select fencing.protect('batch_late', $$'batch-late/' || id$$);
select fencing.expose_table('batch_late');
create table if not exists batch_linked (id text primary key, other text);
create or replace function batch_link() returns trigger language plpgsql as $$ begin update public.batch_linked
  set other = new.id where id = new.other; return null; end $$;
drop trigger if exists batch_link on batch_linked;
create constraint trigger batch_link after insert on batch_linked deferrable initially deferred for each row
  execute function batch_link();
select fencing.protect('batch_linked', $$'batch-linked/' || id$$);
select fencing.expose_table('batch_linked');
"""


@pytest.fixture(scope="module")
def slow_tables(stack: Stack) -> None:
    """Tables and functions that delay other writes of the same batch."""
    stack.query(SLOW)
    api = stack.api()
    lease = api.must_acquire("batch/none")
    for operation in (
        {"call": "batch_sleep", "args": {"seconds": 0}},
        {"call": "batch_setting", "args": {"word": ""}},
        {"delete": "batch_slow", "where": {"id": "none"}},
        {"delete": "batch_late", "where": {"id": "none"}},
        {"delete": "batch_linked", "where": {"id": "none"}},
    ):
        eventually(lambda: api.write(lease, operation).status == 200, goal="the gateway knows the tables and functions")
    api.must_release(lease)


@dataclass
class Caller:
    """One write, and the check of its answer."""

    kind: str
    lease: Json
    operation: Json
    check: Callable[[Answer], None]
    answer: Answer | None = field(default=None)


def send_at_once(stack: Stack, callers: list[Caller], rows: bool = True) -> None:
    """Sends all writes at the same moment, each on an open connection, and checks each answer."""
    barrier = threading.Barrier(len(callers))

    def call(caller: Caller) -> None:
        with stack.api().connection() as connection:
            assert connection.call("GET", "/healthz").status == 200
            barrier.wait(30)
            caller.answer = connection.post(
                "/v1/writes",
                {
                    "lease_id": caller.lease["lease_id"],
                    "operations": [caller.operation],
                    **({"return": "rows"} if rows else {}),
                },
            )

    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(call, callers))
    for caller in callers:
        assert caller.answer is not None
        caller.check(caller.answer)


@contextmanager
def locked_row(stack: Stack, sku: Sku) -> Iterator[None]:
    """Locks the row in another transaction while the block lasts."""
    connection = stack.sql()
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("select from inventory where sku = %s for update", (sku.name,))
        yield
    finally:
        connection.rollback()
        connection.close()


def expect_problem_of(status: int, slug: str) -> Callable[[Answer], None]:
    return lambda answer: (expect_problem(answer, status, slug), None)[1]


def expect_success(answer: Answer) -> None:
    assert answer.status == 200, str(answer)


def expect_unapplied_for_lock(answer: Answer) -> None:
    """A statement that waits first behind another waiter and then for the row's lock has lock_timeout for each wait,
    so that on a slow machine statement_timeout may come first."""
    slug = "write-conflict" if answer.status == 409 else "storage-unavailable"
    assert expect_problem(answer, answer.status, slug).get("outcome_unknown") is not True
    assert answer.status in (409, 503), answer


class MixedBatch:
    """Writes that are sent at once, some of which fail in different ways."""

    def __init__(self, stack: Stack, unique_name: Callable[[str], str], rows: bool = True) -> None:
        self.stack, self.api, self.unique_name, self.rows = stack, stack.api(), unique_name, rows
        self.callers: list[Caller] = []
        self.good: list[Sku] = []
        self.untouched: list[Sku] = []

    def new_article(self, unchanged: bool = True) -> tuple[Sku, Json]:
        sku = create_sku(self.stack, self.unique_name("crowd"), 100)
        if unchanged:
            self.untouched.append(sku)
        return sku, self.api.must_acquire(sku.resource, ttl_ms=60_000)

    def add_sale(self) -> None:
        sku, lease = self.new_article(unchanged=False)
        self.good.append(sku)

        def check(answer: Answer) -> None:
            assert answer.status == 200, str(answer)
            (result,) = answer.json()["results"]
            assert result["rows_affected"] == 1
            if self.rows:
                (row,) = result["rows"]
                assert (row["sku"], row["stock"]) == (sku.name, 99)
            assert [fence["resource"] for fence in answer.json()["fences"]] == [sku.resource]

        self.callers.append(Caller("sells", lease, sku.sell(), check))

    def add_stale_write(self) -> None:
        sku = create_sku(self.stack, self.unique_name("crowd"), 100)
        old = self.api.must_acquire(sku.resource, ttl_ms=500)
        new = self.api.must_acquire(sku.resource, ttl_ms=60_000, wait_ms=5_000)
        self.api.must_write(new, {"update": "inventory", "where": {"sku": sku.name}, "set": {"note": "newer"}})
        self.untouched.append(sku)

        def check(answer: Answer) -> None:
            facts = expect_problem(answer, 412, "stale-fencing-token")
            assert facts["resource"] == sku.resource and facts["last_fencing_token"] == new["fencing_token"]

        self.callers.append(Caller("stale", old, sku.sell(), check))

    def add_constraint_violation(self) -> None:
        sku, lease = self.new_article()

        def check(answer: Answer) -> None:
            assert expect_problem(answer, 409, "constraint-violation")["constraint"] == "inventory_stock_check"

        self.callers.append(
            Caller(
                "constraint", lease, {"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -1000}}, check
            )
        )

    def add_wrong_expectation(self) -> None:
        sku, lease = self.new_article()
        self.callers.append(Caller("expectation", lease, sku.sell(1000), expect_problem_of(409, "expectation-failed")))

    def add_unknown_table(self) -> None:
        _, lease = self.new_article()
        self.callers.append(
            Caller(
                "unknown",
                lease,
                {"insert": "no_such_table", "values": {"id": 1}},
                expect_problem_of(422, "unprocessable"),
            )
        )

    def add_wrong_type(self) -> None:
        def pointed_at(answer: Answer) -> None:
            assert pointers_of(answer, 422, "unprocessable") == ["/operations/0/set/stock"]

        sku, lease = self.new_article()
        self.callers.append(
            Caller(
                "type", lease, {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": "many"}}, pointed_at
            )
        )

    def add_uncovered_write(self) -> None:
        _, lease = self.new_article()
        second, _ = self.new_article()
        self.callers.append(Caller("foreign", lease, second.sell(), expect_problem_of(403, "resource-not-covered")))

    def add_neighbour_write(self) -> None:
        """The writer that holds the row's resource is in the same batch, perhaps in the same transaction."""
        self.add_sale()
        _, lease = self.new_article()
        self.callers.append(
            Caller("foreign", lease, self.good[-1].sell(), expect_problem_of(403, "resource-not-covered"))
        )

    def add_slow_call(self, seconds: float) -> None:
        lease = self.api.must_acquire(self.unique_name("batch/slow"), ttl_ms=60_000)

        def check(answer: Answer) -> None:
            assert answer.status == 200 and answer.seconds >= seconds, str(answer)

        self.callers.append(Caller("slow call", lease, {"call": "batch_sleep", "args": {"seconds": seconds}}, check))

    def add_slow_insert(self, seconds: float) -> None:
        name = self.unique_name("slow")
        lease = self.api.must_acquire(f"batch-slow/{name}", ttl_ms=60_000)

        def check(answer: Answer) -> None:
            assert answer.status == 200 and answer.seconds >= seconds, str(answer)
            assert self.stack.query("select count(*) from batch_slow where id = %s", (name,)) == [(1,)]

        self.callers.append(
            Caller("slow row", lease, {"insert": "batch_slow", "values": {"id": name, "seconds": seconds}}, check)
        )

    def check_all(self) -> None:
        random.shuffle(self.callers)
        send_at_once(self.stack, self.callers, self.rows)
        for sku in self.untouched:
            assert sku.stock() == 100, sku
        applied = dict(
            self.stack.query(
                "select resource, count(*) from fencing.history where event = 'write_applied' "
                "and resource = any (%s) group by 1",
                ([sku.resource for sku in self.good],),
            )
        )
        assert applied == {sku.resource: 1 for sku in self.good}
        for caller in self.callers:
            if caller.kind in ("stale", "constraint", "expectation", "type", "foreign"):
                assert caller.answer is not None
                event = "write_rejected" if caller.kind in ("stale", "foreign") else "write_failed"
                items = self.api.history(write_id=caller.answer.json()["write_id"])
                assert [item["event"] for item in items] == [event], (caller, items)

    def slowest(self, kind: str) -> float:
        return max(
            caller.answer.seconds for caller in self.callers if caller.kind == kind and caller.answer is not None
        )


@pytest.mark.parametrize("rows", [True, False], ids=["rows returned", "one statement for several"])
def test_batch_of_64_mixed_writes_answers_each_by_itself(
    stack: Stack, api: Api, unique_name: Callable[[str], str], rows: bool
) -> None:
    for _ in range(3):
        batch = MixedBatch(stack, unique_name, rows)
        for _ in range(3):
            batch.add_stale_write()
            batch.add_constraint_violation()
            batch.add_wrong_expectation()
            batch.add_unknown_table()
            batch.add_wrong_type()
            batch.add_uncovered_write()
            batch.add_neighbour_write()
        while len(batch.callers) < 64:
            batch.add_sale()
        batch.check_all()


def test_batch_with_slow_or_blocked_writes_delays_others_little(
    stack: Stack, api: Api, slow_tables: None, unique_name: Callable[[str], str]
) -> None:
    """The answers must be right each time; the times only once, because the machine may be busy."""
    taken = []
    for _ in range(5):
        usual = MixedBatch(stack, unique_name)
        while len(usual.callers) < 64:
            usual.add_sale()
        usual.check_all()
        batch = MixedBatch(stack, unique_name)
        for _ in range(2):
            batch.add_slow_call(3)
            batch.add_slow_insert(3)
        blocked, lease = batch.new_article()
        for _ in range(2):  # both write the same row
            batch.callers.append(Caller("blocked", lease, blocked.sell(), expect_unapplied_for_lock))
        batch.add_constraint_violation()
        while len(batch.callers) < 64:
            batch.add_sale()
        with locked_row(stack, blocked):
            batch.check_all()
        taken.append((usual.slowest("sells"), batch.slowest("sells"), batch.slowest("blocked")))
        # 1.5 s: less than lock_timeout and than the slow writes
        if taken[-1][1] < taken[-1][0] + 1.5 and taken[-1][2] < 9:
            return
    pytest.fail(f"the slowest sale without and with slow writes, and the slowest blocked write, took {taken}")


def test_write_waits_for_lock_and_is_applied(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    answers: list[Answer] = []
    writer = threading.Thread(target=lambda: answers.append(api.write(lease, sku.sell())))
    with locked_row(stack, sku):
        writer.start()
        pause(0.7, "time for an answer that must not arrive")
        assert not answers
    writer.join(10)
    assert [answer.status for answer in answers] == [200] and sku.stock() == 9
    assert len(api.history(resource=sku.resource, event="write_applied")) == 1


def test_batch_deferred_constraint_refuses_only_its_write(
    stack: Stack, api: Api, slow_tables: None, unique_name: Callable[[str], str]
) -> None:
    base = random.randrange(10**9 // 100) * 100
    stack.query(
        "begin; select fencing.enter(%s, 1); insert into batch_late values (%s, %s); commit",
        (f"batch-late/first-{base}", f"first-{base}", base),
    )
    batch = MixedBatch(stack, unique_name)
    for place in range(30):
        name = unique_name("late")
        lease = api.must_acquire(f"batch-late/{name}", ttl_ms=60_000)

        def check(answer: Answer, place: int = place) -> None:
            if place == 0:
                assert expect_problem(answer, 409, "constraint-violation")["constraint"] == "batch_late_place"
            else:
                assert answer.status == 200, str(answer)

        batch.callers.append(
            Caller("late", lease, {"insert": "batch_late", "values": {"id": name, "place": base + place}}, check)
        )
    batch.check_all()
    assert stack.query("select count(*) from batch_late where place between %s and %s", (base, base + 99)) == [(30,)]


def test_batch_deferred_trigger_changes_only_own_resource(
    stack: Stack, api: Api, slow_tables: None, unique_name: Callable[[str], str]
) -> None:
    """Each write but the last has a deferred trigger that changes the row of the last,
    whose resource only that one has entered."""
    for _ in range(5):
        callers, name = list[Caller](), unique_name("linked")
        last = f"{name}-z"
        stack.query(
            "begin; select fencing.enter(%s, 1); insert into batch_linked values (%s, null); commit",
            (f"batch-linked/{last}", last),
        )
        for number in range(12):
            lease = api.must_acquire(f"batch-linked/{name}-{number}", ttl_ms=60_000)
            insert = {"insert": "batch_linked", "values": {"id": f"{name}-{number}", "other": last}}
            callers.append(Caller("linked", lease, insert, expect_problem_of(403, "resource-not-covered")))
        lease = api.must_acquire(f"batch-linked/{last}", ttl_ms=60_000)
        callers.append(
            Caller(
                "last",
                lease,
                {"update": "batch_linked", "where": {"id": last}, "set": {"other": "own"}},
                expect_success,
            )
        )
        send_at_once(stack, callers)
        assert stack.query("select id, other from batch_linked where id like %s", (f"{name}%",)) == [(last, "own")]


def test_batch_transaction_setting_is_not_seen_by_others(
    stack: Stack, api: Api, slow_tables: None, unique_name: Callable[[str], str]
) -> None:
    batch = MixedBatch(stack, unique_name)
    for number in range(32):
        lease = api.must_acquire(unique_name("batch/setting"), ttl_ms=60_000)

        def check(answer: Answer, word: str = f"w{number}") -> None:
            assert answer.status == 200 and answer.json()["results"] == [{"value": word}], str(answer)

        batch.callers.append(Caller("setting", lease, {"call": "batch_setting", "args": {"word": f"w{number}"}}, check))
    batch.check_all()
