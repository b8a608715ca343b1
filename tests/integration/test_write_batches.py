"""Many callers, one transaction: each gets its own answer, whatever its neighbours in the batch do."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import pytest

from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.polling import eventually, let_pass
from support.shop import Sku, stock_up
from support.stack import Stack
from support.stack import running as running_stack

SLOW = """
create or replace function batch_sleep(seconds double precision) returns integer language plpgsql as $$ begin perform pg_sleep(seconds); return 1; end $$;
select fencing.expose_function('batch_sleep(double precision)');
create or replace function batch_setting(word text) returns text language sql
as $$ select coalesce(current_setting('batch.word', true), '') || set_config('batch.word', word, true) $$;
select fencing.expose_function('batch_setting(text)');
create table if not exists batch_slow (id text primary key, seconds double precision not null);
create or replace function batch_slow_row() returns trigger language plpgsql as $$ begin perform pg_sleep(new.seconds); return new; end $$;
create or replace trigger batch_slow before insert on batch_slow for each row execute function batch_slow_row();
select fencing.protect('batch_slow', $$'batch-slow/' || id$$);
select fencing.expose_table('batch_slow');
create table if not exists batch_late (id text primary key, place integer, constraint batch_late_place unique (place) deferrable initially deferred);
select fencing.protect('batch_late', $$'batch-late/' || id$$);
select fencing.expose_table('batch_late');
"""


@pytest.fixture(scope="module")
def slow(stack: Stack) -> None:
    """Tables and functions that try the patience of their neighbours."""
    stack.query(SLOW)
    api = stack.api()
    lease = api.take("batch/none")
    for operation in ({"call": "batch_sleep", "args": {"seconds": 0}}, {"call": "batch_setting", "args": {"word": ""}},
                      {"delete": "batch_slow", "where": {"id": "none"}}, {"delete": "batch_late", "where": {"id": "none"}}):
        eventually(lambda: api.write(lease, operation).status == 200, 10, what="the gateway knows what is new")
    api.give_back(lease)


@dataclass
class Caller:
    """One write, and what is to become of it."""

    kind: str
    lease: Json
    operation: Json
    judge: Callable[[Answer], None]
    answer: Answer | None = field(default=None)


def at_once(stack: Stack, callers: list[Caller], rows: bool = True) -> None:
    """All of them at the same moment, each on a connection that is open already; then each judges its answer."""
    together = threading.Barrier(len(callers))

    def call(caller: Caller) -> None:
        with stack.api().connection() as connection:
            assert connection.call("GET", "/healthz").status == 200
            together.wait(30)
            caller.answer = connection.call("POST", "/v1/writes", {"lease_id": caller.lease["lease_id"], "operations": [caller.operation],
                                                                   **({"return": "rows"} if rows else {})})

    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(call, callers))
    for caller in callers:
        assert caller.answer is not None
        caller.judge(caller.answer)


@contextmanager
def locked_row(stack: Stack, sku: Sku) -> Iterator[None]:
    """Somebody with psql has the row and does not let go."""
    connection = stack.sql()
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("select from inventory where sku = %s for update", (sku.name,))
        yield
    finally:
        connection.rollback()
        connection.close()


def problem(status: int, slug: str) -> Callable[[Answer], None]:
    return lambda answer: (expect_problem(answer, status, slug), None)[1]


class Crowd:
    """Sixty-four writes of which some fail in every way there is."""

    def __init__(self, stack: Stack, fresh: Callable[[str], str], rows: bool = True) -> None:
        self.stack, self.api, self.fresh, self.rows = stack, stack.api(), fresh, rows
        self.callers: list[Caller] = []
        self.good: list[Sku] = []
        self.untouched: list[Sku] = []

    def article(self, unharmed: bool = True) -> tuple[Sku, Json]:
        sku = stock_up(self.stack, self.fresh("crowd"), 100)
        if unharmed:
            self.untouched.append(sku)
        return sku, self.api.take(sku.resource, ttl_ms=60_000)

    def sells(self) -> None:
        sku, lease = self.article(unharmed=False)
        self.good.append(sku)

        def judge(answer: Answer) -> None:
            assert answer.status == 200, str(answer)
            (result,) = answer.json()["results"]
            assert result["rows_affected"] == 1
            if self.rows:
                (row,) = result["rows"]
                assert (row["sku"], row["stock"]) == (sku.name, 99)
            assert [fence["resource"] for fence in answer.json()["fences"]] == [sku.resource]

        self.callers.append(Caller("sells", lease, sku.sell(), judge))

    def stale(self) -> None:
        sku = stock_up(self.stack, self.fresh("crowd"), 100)
        old = self.api.take(sku.resource, ttl_ms=500)
        new = self.api.take(sku.resource, ttl_ms=60_000, wait_ms=5_000)
        self.api.wrote(new, {"update": "inventory", "where": {"sku": sku.name}, "set": {"note": "newer"}})
        self.untouched.append(sku)

        def judge(answer: Answer) -> None:
            facts = expect_problem(answer, 412, "stale-fencing-token")
            assert facts["resource"] == sku.resource and facts["last_fencing_token"] == new["fencing_token"]

        self.callers.append(Caller("stale", old, sku.sell(), judge))

    def breaks_a_constraint(self) -> None:
        sku, lease = self.article()

        def judge(answer: Answer) -> None:
            assert expect_problem(answer, 409, "constraint-violation")["constraint"] == "inventory_stock_check"

        self.callers.append(Caller("constraint", lease, {"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -1000}}, judge))

    def expects_another_count(self) -> None:
        sku, lease = self.article()
        self.callers.append(Caller("expectation", lease, sku.sell(1000), problem(409, "expectation-failed")))

    def names_no_table(self) -> None:
        _, lease = self.article()
        self.callers.append(Caller("unknown", lease, {"insert": "no_such_table", "values": {"id": 1}}, problem(422, "unprocessable")))

    def brings_a_wrong_type(self) -> None:
        def pointed_at(answer: Answer) -> None:
            assert pointers_of(answer, 422, "unprocessable") == ["/operations/0/set/stock"]

        sku, lease = self.article()
        self.callers.append(Caller("type", lease, {"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": "many"}}, pointed_at))

    def touches_foreign_rows(self) -> None:
        _, lease = self.article()
        other, _ = self.article()
        self.callers.append(Caller("foreign", lease, other.sell(), problem(403, "resource-not-covered")))

    def sells_a_neighbours(self) -> None:
        """The row's own writer is among the callers too, perhaps in the same transaction."""
        self.sells()
        _, lease = self.article()
        self.callers.append(Caller("foreign", lease, self.good[-1].sell(), problem(403, "resource-not-covered")))

    def calls_slowly(self, seconds: float) -> None:
        lease = self.api.take(self.fresh("batch/slow"), ttl_ms=60_000)

        def judge(answer: Answer) -> None:
            assert answer.status == 200 and answer.seconds >= seconds, str(answer)

        self.callers.append(Caller("slow call", lease, {"call": "batch_sleep", "args": {"seconds": seconds}}, judge))

    def inserts_slowly(self, seconds: float) -> None:
        name = self.fresh("slow")
        lease = self.api.take(f"batch-slow/{name}", ttl_ms=60_000)

        def judge(answer: Answer) -> None:
            assert answer.status == 200 and answer.seconds >= seconds, str(answer)
            assert self.stack.query("select count(*) from batch_slow where id = %s", (name,)) == [(1,)]

        self.callers.append(Caller("slow row", lease, {"insert": "batch_slow", "values": {"id": name, "seconds": seconds}}, judge))

    def judge_all(self) -> None:
        random.shuffle(self.callers)
        at_once(self.stack, self.callers, self.rows)
        for sku in self.untouched:
            assert sku.stock() == 100, sku
        applied = dict(self.stack.query("select resource, count(*) from fencing.history where event = 'write_applied' and resource = any (%s) group by 1",
                                        ([sku.resource for sku in self.good],)))
        assert applied == {sku.resource: 1 for sku in self.good}
        for caller in self.callers:
            if caller.kind in ("stale", "constraint", "expectation", "type", "foreign"):
                assert caller.answer is not None
                event = "write_rejected" if caller.kind in ("stale", "foreign") else "write_failed"
                items = self.api.history(write_id=caller.answer.json()["write_id"])
                assert [item["event"] for item in items] == [event], (caller, items)

    def slowest(self, kind: str) -> float:
        return max(caller.answer.seconds for caller in self.callers if caller.kind == kind and caller.answer is not None)


@pytest.mark.parametrize("rows", [True, False], ids=["rows returned", "one statement for several"])
def test_writes_when_64_at_once_fail_in_every_way_then_each_gets_its_own_answer(stack: Stack, api: Api, fresh: Callable[[str], str], rows: bool) -> None:
    for _ in range(3):
        crowd = Crowd(stack, fresh, rows)
        for _ in range(3):
            crowd.stale()
            crowd.breaks_a_constraint()
            crowd.expects_another_count()
            crowd.names_no_table()
            crowd.brings_a_wrong_type()
            crowd.touches_foreign_rows()
            crowd.sells_a_neighbours()
        while len(crowd.callers) < 64:
            crowd.sells()
        crowd.judge_all()


def test_writes_when_neighbours_are_slow_or_blocked_then_the_others_wait_a_bounded_time(
        stack: Stack, api: Api, slow: None, fresh: Callable[[str], str]) -> None:
    crowd = Crowd(stack, fresh)
    for _ in range(2):
        crowd.calls_slowly(3)
        crowd.inserts_slowly(3)
    blocked, lease = crowd.article()
    for _ in range(2):  # both want the same row
        crowd.callers.append(Caller("blocked", lease, blocked.sell(), problem(409, "write-conflict")))
    crowd.breaks_a_constraint()
    while len(crowd.callers) < 64:
        crowd.sells()
    with locked_row(stack, blocked):
        crowd.judge_all()
    assert crowd.slowest("sells") < 1.8, "less than lock_timeout, and than any of the slow ones"
    assert crowd.slowest("blocked") < 9


def test_write_when_a_lock_comes_free_in_time_then_it_lands_after_all(stack: Stack, api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource, ttl_ms=60_000)
    answers: list[Answer] = []
    writer = threading.Thread(target=lambda: answers.append(api.write(lease, sku.sell())))
    with locked_row(stack, sku):
        writer.start()
        let_pass(0.7, "an answer that must not come is given time to come")
        assert not answers
    writer.join(10)
    assert [answer.status for answer in answers] == [200] and sku.stock() == 9
    assert len(api.history(resource=sku.resource, event="write_applied")) == 1


def test_deferred_constraint_when_one_of_many_breaks_it_then_it_alone_is_refused(
        stack: Stack, api: Api, slow: None, fresh: Callable[[str], str]) -> None:
    base = random.randrange(10**9 // 100) * 100
    stack.query("begin; select fencing.enter(%s, 1); insert into batch_late values (%s, %s); commit",
                (f"batch-late/first-{base}", f"first-{base}", base))
    crowd = Crowd(stack, fresh)
    for place in range(30):
        name = fresh("late")
        lease = api.take(f"batch-late/{name}", ttl_ms=60_000)

        def judge(answer: Answer, place: int = place) -> None:
            if place == 0:
                assert expect_problem(answer, 409, "constraint-violation")["constraint"] == "batch_late_place"
            else:
                assert answer.status == 200, str(answer)

        crowd.callers.append(Caller("late", lease, {"insert": "batch_late", "values": {"id": name, "place": base + place}}, judge))
    crowd.judge_all()
    assert stack.query("select count(*) from batch_late where place between %s and %s", (base, base + 99)) == [(30,)]


def test_functions_when_they_set_something_for_their_transaction_then_no_neighbour_sees_it(
        stack: Stack, api: Api, slow: None, fresh: Callable[[str], str]) -> None:
    crowd = Crowd(stack, fresh)
    for number in range(32):
        lease = api.take(fresh("batch/setting"), ttl_ms=60_000)

        def judge(answer: Answer, word: str = f"w{number}") -> None:
            assert answer.status == 200 and answer.json()["results"] == [{"value": word}], str(answer)

        crowd.callers.append(Caller("setting", lease, {"call": "batch_setting", "args": {"word": f"w{number}"}}, judge))
    crowd.judge_all()


class Shoppers:
    """Threads that sell until told to stop; tallies by article."""

    def __init__(self, stack: Stack, names: list[str], threads: int) -> None:
        self.goods = [stock_up(stack, name, 1_000_000) for name in names]
        self.leases = {sku.name: stack.api().take(sku.resource, ttl_ms=60_000) for sku in self.goods}
        self.accepted = {sku.name: 0 for sku in self.goods}
        self.unknown = {sku.name: 0 for sku in self.goods}
        self.odd: list[Answer] = []
        self.enough = threading.Event()
        self._mutex = threading.Lock()
        self.threads = [threading.Thread(target=self._sell, args=(stack, self.goods[number % len(self.goods)]), daemon=True) for number in range(threads)]

    def _sell(self, stack: Stack, sku: Sku) -> None:
        with stack.api().connection() as connection:
            while not self.enough.is_set():
                body = {"lease_id": self.leases[sku.name]["lease_id"], "operations": [sku.sell()]}
                answer = connection.call("POST", "/v1/writes", body)
                with self._mutex:
                    if answer.status == 200:
                        self.accepted[sku.name] += 1
                    elif answer.status == 503 and answer.json().get("outcome_unknown"):
                        self.unknown[sku.name] += 1
                    elif answer.status not in (503, 409):
                        self.odd.append(answer)

    def __enter__(self) -> "Shoppers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.enough.set()
        for thread in self.threads:
            thread.join(30)

    def total(self) -> int:
        return sum(self.accepted.values())


def test_backends_when_killed_in_the_middle_of_batches_then_no_write_is_lost_and_none_counted_twice(
        own_stack: Stack, fresh: Callable[[str], str]) -> None:
    kills = 0
    with Shoppers(own_stack, [fresh("killed") for _ in range(16)], 32) as shoppers:
        eventually(lambda: shoppers.total() > 200, 20, what="all sell")
        connection = own_stack.sql()
        with connection.cursor() as cursor:
            deadline = time.monotonic() + 60
            while kills < 300 and time.monotonic() < deadline:
                cursor.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate' and state <> 'idle' "
                               "order by random() limit 1")
                kills += len(cursor.fetchall())
                let_pass(random.random() * 0.02, "at another moment of a batch each time")
        connection.close()
        before = shoppers.total()
        eventually(lambda: shoppers.total() > before + 200, 30, what="all sell again")
    assert kills >= 200 and not shoppers.odd, (kills, shoppers.odd[:3])
    for sku in shoppers.goods:
        sold = 1_000_000 - sku.stock()
        assert shoppers.accepted[sku.name] <= sold <= shoppers.accepted[sku.name] + shoppers.unknown[sku.name], sku
        assert own_stack.query("select count(*), count(distinct write_id) from fencing.history where event = 'write_applied' and resource = %s",
                               (sku.resource,)) == [(sold, sold)]
    assert sum(shoppers.unknown.values()) == 0, "PostgreSQL was there to be asked"


@pytest.fixture(scope="module")
def two_gateways() -> Iterator[Stack]:
    with running_stack("--gateways", "2") as made:
        yield made


def test_gateways_when_two_write_the_same_rows_in_opposite_orders_then_none_deadlocks(two_gateways: Stack, fresh: Callable[[str], str]) -> None:
    goods = sorted((stock_up(two_gateways, fresh("both"), 1_000_000) for _ in range(12)), key=lambda sku: sku.name)
    leases = [two_gateways.api().take(sku.resource, ttl_ms=60_000) for sku in goods]
    pairs = [(stock_up(two_gateways, fresh("pair"), 1_000_000), stock_up(two_gateways, fresh("pair"), 1_000_000)) for _ in range(4)]
    both = [two_gateways.api().call("POST", "/v1/leases", {"resources": [one.resource, other.resource], "ttl_ms": 60_000}).json() for one, other in pairs]
    ((deadlocks,),) = two_gateways.query("select deadlocks from pg_stat_database where datname = current_database()")
    tally: list[int] = []
    mutex = threading.Lock()

    def work(number: int) -> None:
        order = list(zip(leases, ([sku.sell()] for sku in goods))) + list(zip(both, ([one.sell(), other.sell()] for one, other in pairs)))
        if number % 2:
            order.reverse()
        with two_gateways.api(number % 2).connection() as connection:
            for turn in range(12):
                for lease, operations in order[turn % 3:]:
                    answer = connection.call("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": operations})
                    with mutex:
                        tally.append(answer.status)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))
    assert set(tally) <= {200, 409} and tally.count(409) <= len(tally) / 100, {status: tally.count(status) for status in set(tally)}
    sold = sum(1_000_000 - sku.stock() for sku in goods) + sum(1_000_000 - one.stock() for one, _ in pairs)
    assert sold == tally.count(200)
    assert two_gateways.query("select deadlocks from pg_stat_database where datname = current_database()") == [(deadlocks,)]
