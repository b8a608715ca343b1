"""Writes that share a transaction leave its wait for the disk to others; nobody hears of a write before the disk has it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest

from support import processes
from support.api import Answer, Json
from support.polling import eventually, let_pass
from support.shop import Sku, stock_up
from support.stack import Stack

WAITER = "select pid from pg_stat_activity where application_name = 'fencegate' and query like '%pg_logical_emit_message%'"


class Sellers:
    """Callers that sell one piece each of an article of their own, again and again or once: under a lease that they keep, or under one for each."""

    def __init__(self, stack: Stack, fresh: Callable[[str], str], count: int, one_shot: bool = False) -> None:
        self.stack = stack
        self.goods = [stock_up(stack, fresh("flush"), 1_000_000) for _ in range(count)]
        self.under: list[Json] = [{"lease": {"resource": sku.resource, "wait_ms": 10_000, "ttl_ms": 10_000}} if one_shot
                                  else {"lease_id": stack.api().take(sku.resource, ttl_ms=60_000)["lease_id"]} for sku in self.goods]
        self.answers: list[tuple[Sku, Answer]] = []
        self._mutex = threading.Lock()
        self._enough = threading.Event()

    def sold(self) -> int:
        return sum(1_000_000 - sku.stock() for sku in self.goods)

    def tally(self, sku: Sku, known: bool = True) -> int:
        with self._mutex:
            return sum(1 for whose, answer in self.answers if whose == sku and (answer.status == 200 if known else self.is_unknown(answer)))

    @staticmethod
    def is_unknown(answer: Answer) -> bool:
        return answer.status == 503 and bool(answer.json().get("outcome_unknown"))

    @contextmanager
    def at_work(self, times: int | None = None) -> Iterator[None]:
        def sell(sku: Sku, under: Json) -> None:
            done = 0
            with self.stack.api().connection() as connection:
                while not self._enough.is_set() and done != times:
                    answer = connection.call("POST", "/v1/writes", {**under, "operations": [sku.sell()]})
                    done += 1
                    with self._mutex:
                        self.answers.append((sku, answer))

        self._enough.clear()
        threads = [threading.Thread(target=sell, args=one, daemon=True) for one in zip(self.goods, self.under)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            if times is None:
                self._enough.set()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads)


@contextmanager
def nobody_making_sure_of_the_disk(stack: Stack) -> Iterator[Callable[[], None]]:
    """Gives what ends it."""
    ((waiter,),) = stack.query(WAITER)
    processes.signal_all([waiter], signal.SIGSTOP)
    try:
        yield lambda: os.kill(waiter, signal.SIGCONT)
    finally:
        os.kill(waiter, signal.SIGCONT)


def test_writes_when_the_commit_is_not_on_disk_yet_then_none_of_them_is_answered(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, fresh, 32)
    with sellers.at_work(times=10):
        pass
    assert {answer.status for _, answer in sellers.answers} == {200}
    sellers.answers.clear()
    with nobody_making_sure_of_the_disk(own_stack) as resume, sellers.at_work(times=1):
        eventually(lambda: sellers.sold() == 32 * 11, 10, what="all are committed")
        let_pass(0.5, "answers that must not come are given time to come")
        # A write that found itself alone has waited for the disk by itself.
        assert len(sellers.answers) < 16, "they were answered although nobody has made sure of the disk"
        resume()
    assert [answer.status for _, answer in sellers.answers] == [200] * 32 and sellers.sold() == 32 * 11


def test_one_shot_when_committed_and_not_on_disk_yet_then_next_holder_is_let_in_and_its_caller_waits(
        own_stack: Stack, fresh: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, fresh, 1, one_shot=True)
    ((sku,), api) = sellers.goods, own_stack.api()
    with sellers.at_work(times=1):
        pass
    with nobody_making_sure_of_the_disk(own_stack) as resume, sellers.at_work(times=1):
        eventually(lambda: sku.stock() == 999_998, 10, what="it is committed")
        next_one = api.take(sku.resource, wait_ms=2_000)
        let_pass(0.3, "answers that must not come are given time to come")
        assert len(sellers.answers) == 1, "its caller was told although nobody has made sure of the disk"
        resume()
    assert [answer.status for _, answer in sellers.answers] == [200, 200] and sellers.answers[1][1].json()["released"] is True
    assert next_one["fencing_token"] > sellers.answers[1][1].json()["fencing_token"]


def test_write_when_then_release_and_not_on_disk_yet_then_its_lease_is_still_held(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, fresh, 1)
    ((sku,), api) = sellers.goods, own_stack.api()
    sellers.under[0]["then"] = "release"
    with nobody_making_sure_of_the_disk(own_stack) as resume, sellers.at_work(times=1):
        eventually(lambda: sku.stock() == 999_999, 10, what="it is committed")
        let_pass(0.3, "answers that must not come are given time to come")
        assert not sellers.answers and api.ask(sku.resource).status == 423, "a write that a crash takes back leaves the lease as it was"
        resume()
    assert [answer.status for _, answer in sellers.answers] == [200]
    api.give_back(api.take(sku.resource, wait_ms=2_000))


def test_one_shot_when_nobody_can_make_sure_of_the_disk_then_503_by_its_deadline_and_its_outcome_unknown(
        own_stack: Stack, fresh: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, fresh, 1, one_shot=True)
    with sellers.at_work(times=1):
        pass
    with nobody_making_sure_of_the_disk(own_stack), sellers.at_work(times=1):
        pass
    (_, told) = sellers.answers[1]
    assert told.status == 503 and told.json()["outcome_unknown"] is True and told.json()["write_id"], told.text
    eventually(lambda: sellers.sold() == 2, 5, what="the write that was committed is there")


@pytest.mark.parametrize("one_shot", [False, True])
def test_answered_writes_when_the_server_crashes_then_each_of_them_is_there(own_stack: Stack, fresh: Callable[[str], str], one_shot: bool) -> None:
    sellers = Sellers(own_stack, fresh, 32, one_shot)

    def accepted() -> int:
        return sum(sellers.tally(sku) for sku in sellers.goods)

    def they_sell() -> None:
        before = accepted()
        eventually(lambda: accepted() > before + 300, 60, what="they sell")

    with sellers.at_work():
        for _ in range(4):
            they_sell()
            # One backend killed so makes PostgreSQL throw away its memory, and with it whatever of the log was not written.
            ((victim,),) = own_stack.query("select pid from pg_stat_activity where application_name = 'fencegate' order by random() limit 1")
            os.kill(victim, signal.SIGKILL)
        they_sell()
    assert {answer.status for _, answer in sellers.answers} <= {200, 409, 503}
    for sku in sellers.goods:
        sold, known = 1_000_000 - sku.stock(), sellers.tally(sku)
        assert known <= sold <= known + sellers.tally(sku, known=False), (sku, known, sold)
        assert own_stack.query("select count(*), count(distinct write_id) from fencing.history where event = 'write_applied' and resource = %s",
                               (sku.resource,)) == [(sold, sold)]
