"""Group flush: writes commit without waiting for the disk, and no write is answered before its commit is on disk."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Answer, Json
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack

WAITER = (
    "select pid from pg_stat_activity where application_name = 'fencegate' and query like '%pg_logical_emit_message%'"
)


class Sellers:
    """Callers that each sell pieces of one article, repeatedly or once,
    under one lease or with a one-shot write each."""

    def __init__(self, stack: Stack, unique_name: Callable[[str], str], count: int, one_shot: bool = False) -> None:
        self.stack = stack
        self.goods = [create_sku(stack, unique_name("flush"), 1_000_000) for _ in range(count)]
        self.lease_members: list[Json] = [
            {"lease": {"resource": sku.resource, "wait_ms": 10_000, "ttl_ms": 10_000}}
            if one_shot
            else {"lease_id": stack.api().must_acquire(sku.resource, ttl_ms=60_000)["lease_id"]}
            for sku in self.goods
        ]
        self.answers: list[tuple[Sku, Answer]] = []
        self._mutex = threading.Lock()
        self._stop_requested = threading.Event()

    def sold(self) -> int:
        return sum(1_000_000 - sku.stock() for sku in self.goods)

    def tally(self, sku: Sku, known: bool = True) -> int:
        with self._mutex:
            return sum(
                1
                for seller, answer in self.answers
                if seller == sku and (answer.status == 200 if known else self.is_unknown(answer))
            )

    @staticmethod
    def is_unknown(answer: Answer) -> bool:
        return answer.status == 503 and bool(answer.json().get("outcome_unknown"))

    @contextmanager
    def selling(self, times: int | None = None) -> Iterator[None]:
        def sell(sku: Sku, lease_members: Json) -> None:
            done = 0
            with self.stack.api().connection() as connection:
                while not self._stop_requested.is_set() and done != times:
                    answer = connection.post("/v1/writes", {**lease_members, "operations": [sku.sell()]})
                    done += 1
                    with self._mutex:
                        self.answers.append((sku, answer))

        self._stop_requested.clear()
        threads = [
            threading.Thread(target=sell, args=arguments, daemon=True)
            for arguments in zip(self.goods, self.lease_members)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            if times is None:
                self._stop_requested.set()
            for thread in threads:
                thread.join(90)
            assert not any(thread.is_alive() for thread in threads)


@contextmanager
def flush_suspended(stack: Stack) -> Iterator[Callable[[], None]]:
    """Suspends the gateway's flush while the block lasts; yields a function that resumes it."""
    sellers = Sellers(stack, lambda name: f"{name}-{uuid.uuid4().hex}", 1, one_shot=True)

    def find_waiter() -> object:
        with sellers.selling(times=1):
            pass
        rows = stack.query(WAITER)  # none after a connection that was new has looked a write up
        return len(rows) == 1 and rows[0]

    (waiter,) = eventually(find_waiter, 30, goal="one connection flushes")
    with processes.suspended([waiter]):
        yield lambda: os.kill(waiter, signal.SIGCONT)


def test_unflushed_writes_are_not_answered(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, unique_name, 32)
    with sellers.selling(times=10):
        pass
    assert {answer.status for _, answer in sellers.answers} == {200}
    sellers.answers.clear()
    with flush_suspended(own_stack) as resume, sellers.selling(times=1):
        eventually(lambda: sellers.sold() == 32 * 11, goal="all are committed")
        pause(0.5, "time for answers that must not arrive")
        # A write that was alone has waited for the disk itself.
        assert len(sellers.answers) < 32, "they were answered although nothing was flushed"
        resume()
    assert [answer.status for _, answer in sellers.answers] == [200] * 32 and sellers.sold() == 32 * 11


def test_unflushed_one_shot_frees_resource_but_caller_waits(
    own_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    sellers = Sellers(own_stack, unique_name, 1, one_shot=True)
    ((sku,), api) = sellers.goods, own_stack.api()
    with flush_suspended(own_stack) as resume, sellers.selling(times=1):
        eventually(lambda: sku.stock() == 999_999, goal="it is committed")
        next_one = api.must_acquire(sku.resource, wait_ms=2_000)
        pause(0.3, "time for answers that must not arrive")
        assert not sellers.answers, "its caller was answered although nothing was flushed"
        resume()
    ((_, answer),) = sellers.answers
    assert answer.status == 200 and answer.json()["released"] is True
    assert next_one["fencing_token"] > answer.json()["fencing_token"]


def test_unflushed_then_release_keeps_lease_held(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    sellers = Sellers(own_stack, unique_name, 1)
    ((sku,), api) = sellers.goods, own_stack.api()
    sellers.lease_members[0]["then"] = "release"
    with flush_suspended(own_stack) as resume, sellers.selling(times=1):
        eventually(lambda: sku.stock() == 999_999, goal="it is committed")
        pause(0.3, "time for answers that must not arrive")
        assert (
            not sellers.answers and api.acquire(sku.resource).status == 423
        ), "a crash that loses the write must leave the lease as it was"
        resume()
    assert [answer.status for _, answer in sellers.answers] == [200]
    api.must_release(api.must_acquire(sku.resource, wait_ms=2_000))


def test_unflushable_one_shot_503_outcome_unknown_by_deadline(
    own_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    sellers = Sellers(own_stack, unique_name, 1, one_shot=True)
    sellers.lease_members[0]["lease"]["wait_ms"] = 0  # the time to wait is added to the deadline
    with flush_suspended(own_stack), sellers.selling(times=1):
        pass
    ((_, reported),) = sellers.answers
    assert (
        reported.status == 503 and reported.json()["outcome_unknown"] is True and reported.json()["write_id"]
    ), reported
    eventually(lambda: sellers.sold() == 1, 30, goal="the write that was committed is there")


@pytest.mark.parametrize("one_shot", [False, True])
def test_crash_of_server_keeps_every_answered_write(
    own_stack: Stack, unique_name: Callable[[str], str], one_shot: bool
) -> None:
    sellers = Sellers(own_stack, unique_name, 32, one_shot)

    def accepted() -> int:
        return sum(answer.status == 200 for _, answer in list(sellers.answers))

    def wait_for_sales() -> None:
        before = accepted()
        eventually(lambda: accepted() > before + 100, 60, goal="they sell")

    def kill_backend() -> bool:
        ((victim,),) = own_stack.query(
            "select pid from pg_stat_activity where application_name = 'fencegate' order by random() limit 1"
        )
        os.kill(victim, signal.SIGKILL)  # an OSError if the gateway has closed the connection meanwhile
        return True

    with sellers.selling():
        for _ in range(4):
            wait_for_sales()
            # After SIGKILL of a backend PostgreSQL restarts, and WAL that was not written is lost.
            eventually(kill_backend, goal="a backend is killed")
        wait_for_sales()
    assert {answer.status for _, answer in sellers.answers} <= {200, 409, 503}
    for sku in sellers.goods:
        sold, known = 1_000_000 - sku.stock(), sellers.tally(sku)
        assert known <= sold <= known + sellers.tally(sku, known=False), (sku, known, sold)
        assert own_stack.query(
            "select count(*), count(distinct write_id) from fencing.history where event = 'write_applied' "
            "and resource = %s",
            (sku.resource,),
        ) == [(sold, sold)]


def test_writes_are_known_where_markers_are_not_allowed(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    """The first flush finds out; the writes that wait for it are looked up."""
    sellers = Sellers(own_stack, unique_name, 6, one_shot=True)
    own_stack.query("revoke execute on function pg_catalog.pg_logical_emit_message(boolean, text, text) from public")
    with sellers.selling(times=2):
        pass
    assert [answer.status for _, answer in sellers.answers] == [200] * 12 and sellers.sold() == 12
    assert max(answer.seconds for _, answer in sellers.answers) < 5
