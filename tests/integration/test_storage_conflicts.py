"""Conflicting writers, through two gateways and by direct SQL: no call waits without limit,
and every refusal is safe to repeat."""

from __future__ import annotations

import contextlib
import threading
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterator

import psycopg2
import pytest

from support.api import Answer, Api, Json, expect_problem
from support.ledger import count_slower_than
from support.polling import eventually, pause
from support.postgres import Site, acquire_for_writes, running_site
from support.shop import Sku

CLIENTS = 16
FAILING = """
create or replace function fail_with(code text) returns integer
  language plpgsql as $$ begin raise exception using errcode = code; end $$;
select fencing.expose_function('fail_with(text)');
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site(max_ttl_ms=20_000, deadlock_timeout="200ms") as made:
        yield made


@pytest.fixture(scope="module")
def apis(site: Site) -> list[Api]:
    return [site.gateway(request_timeout_ms=5_000).api for _ in range(2)]


def expect_conflict(answer: Answer) -> Json:
    """Checks a write-conflict: nothing was changed, and Retry-After says when to repeat the write."""
    problem = expect_problem(answer, 409, "write-conflict")
    assert "Retry-After" in answer.headers and not problem.get("outcome_unknown")
    return problem


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_write_with_conflict_sqlstate_409_and_repeatable(site: Site, apis: list[Api], resource: str, code: str) -> None:
    site.server.query(FAILING)
    lease = acquire_for_writes(apis[0], resource)
    call = {"call": "fail_with", "args": {"code": code}}
    answer = eventually(
        lambda: (answer := apis[0].write(lease, call)).status != 422 and answer,
        5,
        goal="the gateway knows the function",
    )
    assert expect_conflict(answer)["sqlstate"] == code


class DirectWriter(threading.Thread):
    """A writer with its own connection that changes two rows in either order."""

    def __init__(self, site: Site, goods: list[Sku], token: int, reversed_order: bool) -> None:
        super().__init__(daemon=True)
        self.site, self.goods, self.token, self.reversed_order = site, goods, token, reversed_order
        self.sold: Counter = Counter()
        self.codes: Counter = Counter()
        self.stop_requested = threading.Event()

    def run(self) -> None:
        connection = self.site.server.sql()
        with connection.cursor() as cursor:
            number = 0
            while not self.stop_requested.wait(0.02):
                number += 1
                pair = [self.goods[number % len(self.goods)], self.goods[(number + 1) % len(self.goods)]]
                if self.reversed_order:
                    pair.reverse()
                try:
                    cursor.execute("begin; set local lock_timeout = '300ms'")
                    for sku in pair:
                        cursor.execute("select fencing.enter(%s, %s)", (sku.resource, self.token))
                        cursor.execute("update inventory set stock = stock - 1 where sku = %s", (sku.name,))
                    cursor.execute("commit")
                    self.sold.update(sku.name for sku in pair)
                except psycopg2.Error as problem:
                    self.codes[problem.pgcode] += 1
                    cursor.execute("rollback")
        connection.close()


def test_writers_of_same_rows_in_every_order_all_finish(
    site: Site, apis: list[Api], unique_name: Callable[[str], str]
) -> None:
    """Direct writers that enter resources one by one cause deadlocks.
    Calls to the gateway get at worst 409, none waits for long, and refused writes change nothing."""
    goods = sorted((site.create_sku(unique_name("order"), 1_000_000) for _ in range(6)), key=lambda sku: sku.name)
    lease = apis[0].post("/v1/leases", {"resources": [sku.resource for sku in goods], "ttl_ms": 2_000}).json()
    direct = [DirectWriter(site, goods, lease["fencing_token"], reversed_order) for reversed_order in (False, True)]
    sold: Counter = Counter()
    answers: list[Answer] = []
    mutex = threading.Lock()
    stop_requested = threading.Event()

    def work(number: int) -> None:
        turn = number
        with apis[number % 2].connection() as connection:
            while not stop_requested.is_set():
                turn += 1
                articles = [goods[(turn * (1 + number % 3) + offset) % len(goods)] for offset in range(1 + turn % 3)]
                if number // 2 % 2:
                    articles.reverse()
                operations = [sku.sell() for sku in articles]
                if turn % 7 == 0:
                    operations.append({"call": "fail_with", "args": {"code": "40001"}})
                answer = connection.post("/v1/writes", {"lease_id": lease["lease_id"], "operations": operations})
                with mutex:
                    answers.append(answer)
                    if answer.status == 200:
                        sold.update(sku.name for sku in articles)

    site.server.query(FAILING)
    for writer in direct:
        writer.start()
    with ThreadPoolExecutor(CLIENTS) as pool:
        at_work = [pool.submit(work, number) for number in range(CLIENTS)]
        try:
            eventually(
                lambda: any(task.done() for task in at_work)
                or (
                    sum(answer.status == 200 for answer in list(answers)) > 150
                    and all(writer.sold for writer in direct)
                ),
                60,
                interval=0.2,
                goal="all have sold, with conflicts",
            )
        finally:
            stop_requested.set()
        for task in at_work:
            task.result()
    for writer in direct:
        writer.stop_requested.set()
        writer.join(10)
        sold.update(writer.sold)
    tally = Counter(answer.status for answer in answers)
    print(
        dict(tally),
        f"longest {max(answer.seconds for answer in answers):.2f} s, direct",
        sum(sum(writer.sold.values()) for writer in direct),
        {code: count for writer in direct for code, count in writer.codes.items()},
    )
    for answer in answers:
        if answer.status != 200:
            expect_conflict(answer)
    assert all(count_slower_than(api, "10") == 0 for api in apis), "longer than the deadline"
    assert {sku.name: 1_000_000 - sku.stock() for sku in goods} == {sku.name: sold[sku.name] for sku in goods}


def test_row_locked_in_psql_delays_only_its_writers(
    site: Site, apis: list[Api], unique_name: Callable[[str], str]
) -> None:
    """Writers through both gateways, while one row is repeatedly locked for longer than lock_timeout."""
    goods = [site.create_sku(unique_name("held"), 1_000_000) for _ in range(8)]
    leases = [acquire_for_writes(apis[0], sku.resource) for sku in goods]
    held, free = goods[0], goods[1:]
    seconds: dict[str, list[float]] = {sku.name: [] for sku in goods}
    statuses: Counter = Counter()
    mutex = threading.Lock()
    stop_requested = threading.Event()

    def work(number: int) -> None:
        sku, lease = goods[number % 8], leases[number % 8]
        with apis[number // 8 % 2].connection() as connection:
            while not stop_requested.is_set():
                answer = connection.post("/v1/writes", {"lease_id": lease["lease_id"], "operations": [sku.sell()]})
                with mutex:
                    seconds[sku.name].append(answer.seconds)
                    statuses[sku.name, answer.status] += 1

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    connection = site.server.sql()
    with connection.cursor() as cursor:
        for _ in range(2):
            cursor.execute("begin")
            cursor.execute("select from inventory where sku = %s for update", (held.name,))
            pause(1.5, "longer than lock_timeout, which is 1 s")
            cursor.execute("commit")
            pause(0.3, "time for writes between two locks")
    connection.close()
    stop_requested.set()
    for thread in threads:
        thread.join(10)
    others = sorted(writer for sku in free for writer in seconds[sku.name])
    print(
        "held",
        max(seconds[held.name]),
        "others: median",
        others[len(others) // 2],
        "99 %",
        others[len(others) * 99 // 100],
        "longest",
        others[-1],
    )
    assert all(statuses[sku.name, 200] == len(seconds[sku.name]) for sku in free), statuses
    # Nearly all take less than lock_timeout,
    # which is how long they would wait for the locked row, and most of the time.
    assert others[len(others) * 9 // 10] < 0.9 and sum(took for took in others if took >= 0.9) < 0.4 * sum(others)
    assert {status for name, status in statuses if name == held.name} <= {200, 409} and max(seconds[held.name]) < 8


def test_locked_fence_delays_no_call_and_says_repeat(site: Site, apis: list[Api], resource: str) -> None:
    lease = apis[0].must_acquire(resource, ttl_ms=20_000, fence_on_grant=True)
    apis[0].must_release(lease)
    connection = site.server.sql()
    with connection.cursor() as cursor:
        cursor.execute("begin")
        cursor.execute("select from fencing.guard where resource = %s for update", (resource,))
        problem = expect_problem(
            apis[0].acquire(resource, ttl_ms=20_000, fence_on_grant=True), 503, "storage-unavailable"
        )
        assert problem["sqlstate"] == "55P03"
        path = f"/v1/resources/{urllib.parse.quote(resource, safe='')}"
        expect_conflict(apis[0].post(f"{path}/fence", {"reason": "test", "last_fencing_token": lease["fencing_token"]}))
        held = apis[0].must_acquire(resource, ttl_ms=20_000)
        expect_conflict(apis[0].call("DELETE", f"{path}/lease", {"reason": "test"}))
        assert apis[0].renew(held, ttl_ms=20_000).status == 200, "nothing was changed"
        cursor.execute("rollback")
    connection.close()
    assert apis[0].call("DELETE", f"{path}/lease", {"reason": "test"}).status == 204


@contextlib.contextmanager
def expect_no_waits_elsewhere(site: Site, api: Api, unique_name: Callable[[str], str]) -> Iterator[Callable[[], None]]:
    """Writes eight other resources before, during and after a lock, and checks that none waited for it: while the lock
    is held, for which the block calls what is yielded, each resource is written.

    A write that had to wait would take lock_timeout, 1 s, longer than those without the lock, and so would the next one
    of its resource.
    """
    goods = [site.create_sku(unique_name("elsewhere"), 1_000_000) for _ in range(8)]
    leases = [acquire_for_writes(api, sku.resource) for sku in goods]
    seconds: list[tuple[int, float]] = []
    stop_requested = threading.Event()

    def work(number: int) -> None:
        with api.connection() as connection:
            while not stop_requested.wait(0.02):
                answer = connection.post(
                    "/v1/writes", {"lease_id": leases[number]["lease_id"], "operations": [goods[number].sell()]}
                )
                seconds.append((number, answer.seconds if answer.status == 200 else float("inf")))

    def await_writes() -> None:
        least = Counter({number: 5 for number in range(len(goods))})
        eventually(lambda: Counter(number for number, _ in seconds) >= least, 60, goal="each resource is written")

    def hold_lock() -> None:
        pause(2.5, "the writes wait for the lock")
        await_writes()

    with ThreadPoolExecutor(len(goods)) as pool:
        at_work = [pool.submit(work, number) for number in range(len(goods))]
        try:
            await_writes()
            without = seconds[8:]  # the first of each resource reads what later ones know
            seconds.clear()
            yield hold_lock
            during = seconds[:]
            seconds.clear()
            await_writes()
            without += seconds[:]
        finally:
            stop_requested.set()
        for task in at_work:
            task.result()
    longest = max(took for _, took in without)
    slow = Counter(number for number, took in during if took >= 0.9 + longest)
    assert max(slow.values(), default=0) <= 1, (len(during), slow, longest, max(took for _, took in during))


def test_lock_wait_at_commit_delays_no_other_resource(
    site: Site, apis: list[Api], unique_name: Callable[[str], str]
) -> None:
    """A deferred foreign key waits for a lock when the batch is committed, and which write waits is not known."""
    site.server.query(
        """create table parents (id text primary key); create table children (id text primary key, parent text
                         references parents (id) deferrable initially deferred);
                         insert into parents values ('p'); select fencing.protect('children', $$'children/'
                             || id$$); select fencing.expose_table('children')"""
    )
    insert = {"insert": "children", "values": {"id": "warm", "parent": "p"}}
    eventually(
        lambda: apis[0].post("/v1/writes", {"lease": {"resource": "children/warm"}, "operations": [insert]}).status
        == 200,
        5,
        goal="the gateway knows the table",
    )
    connection = site.server.sql()
    with connection.cursor() as cursor, expect_no_waits_elsewhere(
        site, apis[0], unique_name
    ) as hold_lock, ThreadPoolExecutor(12) as pool:
        cursor.execute("begin")
        cursor.execute("select from parents where id = 'p' for update")
        answers = [
            pool.submit(
                apis[0].call,
                "POST",
                "/v1/writes",
                {
                    "lease": {"resource": f"children/{number}"},
                    "operations": [{"insert": "children", "values": {"id": str(number), "parent": "p"}}],
                },
            )
            for number in range(12)
        ]
        hold_lock()
        cursor.execute("commit")
        assert {answer.result().status for answer in answers} <= {200, 409, 503}
    connection.close()


def test_locked_fence_delays_no_write_of_other_resources(
    site: Site, apis: list[Api], unique_name: Callable[[str], str], resource: str
) -> None:
    connection = site.server.sql()
    apis[0].must_release(apis[0].must_acquire(resource, ttl_ms=20_000, fence_on_grant=True))
    with connection.cursor() as cursor, expect_no_waits_elsewhere(
        site, apis[0], unique_name
    ) as hold_lock, ThreadPoolExecutor(6) as pool:
        cursor.execute("begin")
        cursor.execute("select from fencing.guard where resource = %s for update", (resource,))
        answers = [
            pool.submit(apis[0].acquire, resource, ttl_ms=20_000, owner="o", fence_on_grant=True) for _ in range(6)
        ]
        hold_lock()
        cursor.execute("commit")
        assert {answer.result().status for answer in answers} <= {200, 201, 503}
    connection.close()
