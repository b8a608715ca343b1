"""PostgreSQL goes away and comes back: refused meanwhile, right afterwards, and nothing counted twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Callable

from support.api import Answer, Api, expect_problem
from support.polling import eventually
from support.shop import stock_up
from support.stack import Stack


def stop_postgres(stack: Stack, number: int = signal.SIGINT) -> int:
    """Ends the postmaster (SIGINT: a fast shutdown); dev starts it again. Gives its id."""
    pid = stack.read()["postgres"]["pid"]
    os.kill(pid, number)
    return pid


def wait_for_postgres(stack: Stack, old: int) -> None:
    def back() -> bool:
        stack.facts = stack.read()
        return stack.facts["postgres"]["pid"] != old and stack.api().get("/readyz").status == 200

    eventually(back, 40, every=0.1, what="PostgreSQL is back and the gateway ready")


def test_readiness_when_postgresql_stops_then_503_with_the_cause_and_back_to_200(own_stack: Stack) -> None:
    api = own_stack.api()
    old = stop_postgres(own_stack)
    answer = eventually(lambda: (got := api.get("/readyz")).status == 503 and got, 10, what="not ready")
    assert expect_problem(answer, 503, "storage-unavailable")["detail"]
    assert api.get("/healthz").status == 200
    wait_for_postgres(own_stack, old)


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
    old = stop_postgres(own_stack)
    answer = eventually(lambda: (got := api.write(lease, goods.sell())).status != 200 and got, 10, what="a write fails")
    expect_problem(answer, 503, "storage-unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    wait_for_postgres(own_stack, old)
    sold = 10 - goods.stock()
    assert sold == len(api.history(resource=goods.resource, event="write_applied"))
    api.wrote(lease, goods.sell())
    assert 10 - goods.stock() == sold + 1


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

    def accepted(self) -> int:
        return sum(answer.status == 200 for answer in self.answers)

    def unknown(self) -> int:
        return sum(answer.status == 503 and answer.json().get("outcome_unknown") is True for answer in self.answers)


def killed_while_selling(stack: Stack, names: list[str], number: int) -> None:
    sellers = [Seller(stack, name) for name in names]
    for seller in sellers:
        seller.start()
    eventually(lambda: all(seller.accepted() > 20 for seller in sellers), 20, what="all sell")
    before = [seller.accepted() for seller in sellers]
    old = stop_postgres(stack, number)
    eventually(lambda: any(answer.status == 503 for seller in sellers for answer in seller.answers), 10, what="writes are refused")
    wait_for_postgres(stack, old)
    eventually(lambda: all(seller.accepted() > count + 20 for seller, count in zip(sellers, before)), 30, what="all sell again")
    for seller in sellers:
        seller.enough.set()
    for seller in sellers:
        seller.join(20)
        assert {answer.status for answer in seller.answers} <= {200, 503}, {str(answer) for answer in seller.answers if answer.status not in (200, 503)}
        for answer in seller.answers:
            if answer.status == 503:
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
    wait_for_postgres(own_stack, stop_postgres(own_stack, signal.SIGQUIT))
    expect_problem(api.write(old_holder, goods.sell()), 412, "stale-fencing-token")
    api.wrote(new_holder, goods.sell())
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
