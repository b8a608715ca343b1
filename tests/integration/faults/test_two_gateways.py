"""Writes through two gateways: one is killed, connections to PostgreSQL end, and both write in opposite orders."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterator

import pytest
from support.api import Answer, Api, Json, expect_problem
from support.keyed import is_replay, make_tables
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack
from support.stack import running as running_stack


@pytest.fixture(scope="module")
def pair() -> Iterator[Stack]:
    """Two gateways, of which tests kill the first; dev restarts it."""
    with running_stack("--gateways", "2") as made:
        make_tables(made)
        yield made


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def test_repeat_while_first_runs_409_and_outcome_survives_kill(
    pair: Stack, key: str, unique_name: Callable[[str], str]
) -> None:
    """The gateway is killed while PostgreSQL commits, before the answer."""
    row = unique_name("killed")
    insert = {"insert": "keyed", "values": {"id": row, "seconds": 4}}
    lease = pair.api(1).must_acquire(f"keyed/{row}", ttl_ms=30_000)
    body = {"lease_id": lease["lease_id"], "operations": [insert], "return": "rows"}
    first = pair.api(0).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
    eventually(
        lambda: pair.query("select 1 from pg_stat_activity where wait_event = 'PgSleep'"),
        interval=0.01,
        goal="it commits",
    )
    for gateway in (0, 1):
        busy = pair.api(gateway).post("/v1/writes", body, {"Idempotency-Key": key})
        expect_problem(busy, 409, "idempotency-in-progress")
        assert int(busy.headers["Retry-After"]) >= 1
    os.kill(pair.read()["gateways"][0]["pid"], signal.SIGKILL)
    with pytest.raises(Exception):
        first.answer()
    other = pair.api(1)
    eventually(
        lambda: other.post("/v1/writes", body, {"Idempotency-Key": key}).status == 200, 15, goal="the outcome is there"
    )
    again = other.post("/v1/writes", body, {"Idempotency-Key": key})
    assert is_replay(again) and again.json()["results"][0]["rows"][0]["id"] == row
    assert pair.query(
        "select count(*) from fencing.history where resource = %s and event = 'write_applied'", (f"keyed/{row}",)
    ) == [(1,)]
    assert pair.query("select count(*) from keyed where id = %s", (row,)) == [(1,)]
    eventually(lambda: pair.api(0).get("/readyz").status == 200, 30, goal="the gateway is back")


def test_repeat_after_kill_before_commit_is_applied_once(
    pair: Stack, key: str, unique_name: Callable[[str], str]
) -> None:
    sku = create_sku(pair, unique_name("sku"))
    other = pair.sql()
    other.autocommit = False
    with other.cursor() as cursor:
        cursor.execute("select from inventory where sku = %s for update", (sku.name,))
    lease = pair.api(1).must_acquire(sku.resource, ttl_ms=30_000)
    body = {"lease_id": lease["lease_id"], "operations": [sku.sell()]}
    first = pair.api(0).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
    eventually(
        lambda: pair.query(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inventory%'"
        ),
        5,
        goal="it waits",
    )
    os.kill(pair.read()["gateways"][0]["pid"], signal.SIGKILL)
    with pytest.raises(Exception):
        first.answer()
    other.rollback()
    other.close()
    eventually(
        lambda: pair.api(1).post("/v1/writes", body, {"Idempotency-Key": key}).status == 200,
        15,
        goal="the other gateway applies it",
    )
    pause(0.5, "time for a second sale")
    assert sku.stock() == 9
    eventually(lambda: pair.api(0).get("/readyz").status == 200, 30, goal="the gateway is back")


def send_until_answered(apis: list[Api], body: Json, key: str, seed: int, until: float) -> Answer:
    """Repeats the call at either gateway until the outcome is known, as a careful caller does."""
    rng = random.Random(seed)
    while time.monotonic() < until:
        try:
            answer = rng.choice(apis).post("/v1/writes", body, {"Idempotency-Key": key})
        except OSError:
            pause(0.02, "before the call is repeated")
            continue
        except Exception:  # http.client's, for an answer cut short
            continue
        if answer.status == 200:
            return answer
        assert answer.status in (409, 423, 503), str(answer)
        if answer.status == 409:
            assert answer.json()["type"] in ("/problems/idempotency-in-progress", "/problems/write-conflict"), str(
                answer
            )
        pause(0.02 * rng.random(), "before the call is repeated")
    raise AssertionError(f"the outcome of {key} stayed unknown")


@pytest.mark.parametrize("killing", [False, True], ids=["quiet", "gateway_killed"])
def test_hundreds_of_keys_sent_three_times_apply_once_each(
    pair: Stack, unique_name: Callable[[str], str], killing: bool
) -> None:
    keys, copies = 200, 3
    skus = [create_sku(pair, unique_name("once"), 1000) for _ in range(20)]
    apis = [pair.api(0), pair.api(1)]
    leases = [apis[0].must_acquire(sku.resource, ttl_ms=60_000) for sku in skus[:10]]
    stem = unique_name("k")
    bodies = []
    for number in range(keys):
        sku = skus[number % len(skus)]
        lease: Json = (
            {"lease_id": leases[number % len(skus)]["lease_id"]}
            if number % len(skus) < 10
            else {"lease": {"resource": sku.resource, "ttl_ms": 3_000, "wait_ms": 10_000}}
        )
        bodies.append({**lease, "operations": [sku.sell()]})
    work = [(number, copy) for number in range(keys) for copy in range(copies)]
    random.Random(7).shuffle(work)
    until = time.monotonic() + 90
    killer = threading.Timer(0.7, lambda: os.kill(pair.read()["gateways"][0]["pid"], signal.SIGKILL))
    if killing:
        killer.start()
    with ThreadPoolExecutor(24) as pool:
        answers = list(
            pool.map(
                lambda job: (
                    job[0],
                    send_until_answered(apis, bodies[job[0]], f"{stem}-{job[0]}", job[0] * 10 + job[1], until),
                ),
                work,
            )
        )
    killer.cancel()
    outcomes: dict[int, set[str]] = {}
    for number, answer in answers:
        outcomes.setdefault(number, set()).add(answer.json()["write_id"])
    assert all(len(write_ids) == 1 for write_ids in outcomes.values()) and len(outcomes) == keys
    assert sum(1000 - sku.stock() for sku in skus) == keys
    assert pair.query("select count(*) from fencing.kept_outcome where key like %s", (f"{stem}-%",)) == [(keys,)]
    firsts = sum(not is_replay(answer) for _, answer in answers)
    assert firsts <= keys if killing else firsts == keys
    eventually(lambda: pair.api(0).get("/readyz").status == 200, 30, goal="the gateway is back")


class Sellers:
    """Threads that sell until the block ends, and counts of the answers by article."""

    def __init__(self, stack: Stack, names: list[str], threads: int) -> None:
        self.goods = [create_sku(stack, name, 1_000_000) for name in names]
        self.leases = {sku.name: stack.api().must_acquire(sku.resource, ttl_ms=60_000) for sku in self.goods}
        self.accepted = {sku.name: 0 for sku in self.goods}
        self.unknown = {sku.name: 0 for sku in self.goods}
        self.odd: list[Answer] = []
        self.stop_requested = threading.Event()
        self._mutex = threading.Lock()
        self.threads = [
            threading.Thread(target=self._sell, args=(stack, self.goods[number % len(self.goods)]), daemon=True)
            for number in range(threads)
        ]

    def _sell(self, stack: Stack, sku: Sku) -> None:
        with stack.api().connection() as connection:
            while not self.stop_requested.is_set():
                body = {"lease_id": self.leases[sku.name]["lease_id"], "operations": [sku.sell()]}
                answer = connection.post("/v1/writes", body)
                with self._mutex:
                    if answer.status == 200:
                        self.accepted[sku.name] += 1
                    elif answer.status == 503 and answer.json().get("outcome_unknown"):
                        self.unknown[sku.name] += 1
                    elif answer.status not in (503, 409):
                        self.odd.append(answer)

    def __enter__(self) -> "Sellers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_requested.set()
        for thread in self.threads:
            thread.join(30)

    def total(self) -> int:
        return sum(self.accepted.values())


def test_batch_killed_backends_lose_and_repeat_no_write(pair: Stack, unique_name: Callable[[str], str]) -> None:
    kills = 0
    with Sellers(pair, [unique_name("killed") for _ in range(16)], 32) as sellers:
        eventually(lambda: sellers.total() > 200, 20, goal="all sell")
        connection = pair.sql()
        with connection.cursor() as cursor:
            deadline = time.monotonic() + 120
            while kills < 200 and time.monotonic() < deadline:
                cursor.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate' "
                    "and state <> 'idle' "
                    "order by random() limit 1"
                )
                kills += len(cursor.fetchall())
                seen = sellers.total()
                eventually(lambda: sellers.total() > seen, 30, goal="a busy machine gets further than the kills")
                pause(random.random() * 0.02, "each kill is at another moment of a batch")
        connection.close()
        before = sellers.total()
        eventually(lambda: sellers.total() > before + 200, 30, goal="all sell again")
    assert kills >= 20 and not sellers.odd, (kills, sellers.odd[:3])
    for sku in sellers.goods:
        sold = 1_000_000 - sku.stock()
        assert sellers.accepted[sku.name] <= sold <= sellers.accepted[sku.name] + sellers.unknown[sku.name], sku
        assert pair.query(
            "select count(*), count(distinct write_id) from fencing.history where event = 'write_applied' "
            "and resource = %s",
            (sku.resource,),
        ) == [(sold, sold)]
    assert sum(sellers.unknown.values()) == 0, "PostgreSQL was reachable, so that every outcome could be found"


def test_gateways_writing_in_opposite_orders_do_not_deadlock(pair: Stack, unique_name: Callable[[str], str]) -> None:
    goods = sorted((create_sku(pair, unique_name("both"), 1_000_000) for _ in range(12)), key=lambda sku: sku.name)
    leases = [pair.api().must_acquire(sku.resource, ttl_ms=60_000) for sku in goods]
    pairs = [
        (create_sku(pair, unique_name("pair"), 1_000_000), create_sku(pair, unique_name("pair"), 1_000_000))
        for _ in range(4)
    ]
    both = [
        pair.api().post("/v1/leases", {"resources": [first.resource, second.resource], "ttl_ms": 60_000}).json()
        for first, second in pairs
    ]
    ((deadlocks,),) = pair.query("select deadlocks from pg_stat_database where datname = current_database()")
    tally: list[int] = []
    mutex = threading.Lock()

    def work(number: int) -> None:
        order = list(zip(leases, ([sku.sell()] for sku in goods))) + list(
            zip(both, ([first.sell(), second.sell()] for first, second in pairs))
        )
        if number % 2:
            order.reverse()
        with pair.api(number % 2).connection() as connection:
            for turn in range(12):
                for lease, operations in order[turn % 3 :]:
                    answer = connection.post("/v1/writes", {"lease_id": lease["lease_id"], "operations": operations})
                    with mutex:
                        tally.append(answer.status)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))
    assert set(tally) <= {200, 409} and tally.count(409) <= len(tally) / 100, {
        status: tally.count(status) for status in set(tally)
    }
    sold = sum(1_000_000 - sku.stock() for sku in goods) + sum(1_000_000 - first.stock() for first, _ in pairs)
    assert sold == tally.count(200)
    assert pair.query("select deadlocks from pg_stat_database where datname = current_database()") == [(deadlocks,)]
