"""PostgreSQL goes away and comes back: refused meanwhile, right afterwards, and nothing counted twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterator

from support import processes
from support.api import Answer, Api, Json, expect_problem
from support.polling import eventually
from support.shop import stock_up
from support.stack import Stack


@contextmanager
def postgres_away(stack: Stack, number: int = signal.SIGINT) -> Iterator[None]:
    """Ends PostgreSQL (SIGINT: a fast shutdown, SIGQUIT: a crash) and holds back dev, which would start it again, until the block ends."""
    assert stack.process is not None
    postmaster = stack.read()["postgres"]["pid"]
    everyone = stack.postgres_pids()
    with stack.frozen({stack.process.pid}):
        os.kill(postmaster, number)
        processes.wait_until_gone(everyone, 20)
        yield

    def back() -> bool:
        stack.facts = stack.read()
        return stack.facts["postgres"]["pid"] != postmaster and stack.api().get("/readyz").status == 200

    eventually(back, 40, every=0.1, what="PostgreSQL is back and the gateway ready")


def write_once_back(api: Api, lease: Json, operation: Json) -> Answer:
    """The first answer that is not 503: each of the gateway's connections comes back by itself, within its back-off."""
    return eventually(lambda: (got := api.write(lease, operation)).status != 503 and got, 5, what="PostgreSQL is reached again")


def test_readiness_when_postgresql_stops_then_503_with_the_cause_and_back_to_200(own_stack: Stack) -> None:
    api = own_stack.api()
    with postgres_away(own_stack):
        answer = eventually(lambda: (got := api.get("/readyz")).status == 503 and got, 10, what="not ready")
        assert expect_problem(answer, 503, "storage-unavailable")["detail"]
        assert api.get("/healthz").status == 200
    assert api.get("/readyz").status == 200


def test_readiness_when_postgresql_hangs_then_503_in_bounded_time_and_back(own_stack: Stack) -> None:
    api = own_stack.api()
    with own_stack.frozen(own_stack.postgres_pids()):
        answer = eventually(lambda: (got := api.get("/readyz")).status == 503 and got, 20, what="not ready")
        assert answer.seconds < 15
        expect_problem(answer, 503, "storage-unavailable")
        assert api.get("/healthz").seconds < 1
    eventually(lambda: api.get("/readyz").status == 200, 30, what="ready again")


def test_write_when_postgresql_is_away_then_503_with_retry_after_and_nothing_changed(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = stock_up(own_stack, fresh("away"), 10)
    lease = api.take(goods.resource, ttl_ms=60_000)
    with postgres_away(own_stack):
        for _ in range(2):
            answer = api.write(lease, goods.sell())
            expect_problem(answer, 503, "storage-unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.seconds < 12, "the request's deadline is 10 s"
    assert goods.stock() == 10
    assert write_once_back(api, lease, goods.sell()).status == 200
    assert goods.stock() == 9
    # What reads the history has a connection of its own, which comes back by itself too.
    eventually(lambda: api.get("/v1/history", limit=1).status == 200, 5)
    assert len(api.history(resource=goods.resource, event="write_applied")) == 1


def test_leases_when_postgresql_is_away_then_they_go_on_and_reach_the_history_later(own_stack: Stack, resource: str) -> None:
    api = own_stack.api()
    tokens = []
    with own_stack.frozen(own_stack.postgres_pids()):
        for _ in range(10):
            answer = api.ask(resource)
            assert answer.status == 201 and answer.seconds < 1, answer
            tokens.append(answer.json()["fencing_token"])
            api.give_back(answer.json())
    eventually(lambda: len(api.history(resource=resource, event="lease_released")) == 10, 20, what="ten releases in the history")
    assert [item["fencing_token"] for item in api.history(resource=resource, event="lease_granted", order="asc")] == tokens


class Seller(threading.Thread):
    """Sells one by one on a lease of its own until told to stop, and remembers what each answer said."""

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(daemon=True)
        self.goods = stock_up(stack, name, 1_000_000)
        self.api: Api = stack.api()
        self.lease = self.api.take(self.goods.resource, ttl_ms=60_000)
        self.answers: list[Answer] = []
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            self.answers.append(self.api.write(self.lease, self.goods.sell()))

    def stop(self) -> None:
        self.enough.set()
        self.join(20)

    def accepted(self) -> int:
        return sum(answer.status == 200 for answer in self.answers)

    def unknown(self) -> int:
        return sum(answer.status == 503 and answer.json().get("outcome_unknown") is True for answer in self.answers)


def killed_while_selling(stack: Stack, names: list[str], number: int) -> None:
    sellers = [Seller(stack, name) for name in names]
    try:
        for seller in sellers:
            seller.start()
        eventually(lambda: all(seller.accepted() > 20 for seller in sellers), 20, what="all sell")
        with postgres_away(stack, number):
            eventually(lambda: all(any(answer.status == 503 for answer in seller.answers) for seller in sellers), 20, what="each is refused")
            before = [seller.accepted() for seller in sellers]
        eventually(lambda: all(seller.accepted() > count + 20 for seller, count in zip(sellers, before)), 30, what="all sell again")
    finally:
        for seller in sellers:
            seller.stop()
    for seller in sellers:
        for answer in seller.answers:
            if answer.status != 200:
                expect_problem(answer, 503, "storage-unavailable")
        sold = 1_000_000 - seller.goods.stock()
        assert seller.accepted() <= sold <= seller.accepted() + seller.unknown(), (seller.accepted(), seller.unknown())
        assert stack.query("select count(*) from fencing.history where event = 'write_applied' and resource = %s", (seller.goods.resource,)) == [(sold,)]


def test_writes_when_postgresql_restarts_in_the_middle_then_each_landed_once_or_not_at_all(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    killed_while_selling(own_stack, [fresh("restart") for _ in range(4)], signal.SIGINT)


def test_writes_when_postgresql_crashes_in_the_middle_then_each_landed_once_or_not_at_all(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    killed_while_selling(own_stack, [fresh("crash") for _ in range(4)], signal.SIGQUIT)


def test_fence_when_postgresql_crashed_then_the_stale_write_is_still_refused(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = stock_up(own_stack, fresh("fence"), 10)
    old_holder = api.take(goods.resource, ttl_ms=200)
    new_holder = api.take(goods.resource, ttl_ms=60_000, wait_ms=2_000)
    api.wrote(new_holder, goods.sell())
    with postgres_away(own_stack, signal.SIGQUIT):
        pass
    expect_problem(write_once_back(api, old_holder, goods.sell()), 412, "stale-fencing-token")
    assert write_once_back(api, new_holder, goods.sell()).status == 200
    assert goods.stock() == 8


def test_backend_when_one_is_terminated_then_the_next_write_works(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = stock_up(own_stack, fresh("terminated"), 100)
    lease = api.take(goods.resource, ttl_ms=60_000)
    for _ in range(5):
        own_stack.query("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")
        began = time.monotonic()
        eventually(lambda: api.write(lease, goods.sell()).status == 200, 5, what="it writes again")
        assert time.monotonic() - began < 5
