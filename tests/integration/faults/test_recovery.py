"""PostgreSQL stops and returns: calls are refused meanwhile, work afterwards, and no write is applied twice."""

from __future__ import annotations

import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Callable, Iterator

from support import processes
from support.api import Answer, Api, Json, expect_problem, lease_path
from support.polling import eventually, remains
from support.postgres import GATEWAY_ROLE, running_site
from support.shop import create_sku
from support.stack import Stack


@contextmanager
def postgres_stopped(stack: Stack, number: int = signal.SIGINT) -> Iterator[None]:
    """Ends PostgreSQL (SIGINT: fast shutdown, SIGQUIT: crash) and suspends dev, which would restart it,
    while the block lasts."""
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

    eventually(back, 40, interval=0.1, goal="PostgreSQL is back and the gateway ready")


def test_release_with_seal_answers_503_only_if_the_hold_stays(
    own_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    """Two last holds, released at once while PostgreSQL is away: one that finds itself the last
    after its release can't seal any more."""
    seen = set()
    with postgres_stopped(own_stack):
        for turn in range(300):  # the second request must arrive within the first one's round trip to the nodes
            name = unique_name("seal")
            leases = [own_stack.api().acquire(name, owner="same", ttl_ms=20_000).json() for _ in range(2)]
            with ThreadPoolExecutor(2) as callers:
                answers = list(
                    callers.map(lambda lease: own_stack.api().call("DELETE", lease_path(lease) + "?seal=true"), leases)
                )
            still_held = [own_stack.api().read_lease(lease).status == 200 for lease in leases]
            assert still_held == [answer.status == 503 for answer in answers], (turn, answers)
            assert all(answer.json()["sealed"] is False for answer in answers if answer.status == 200), (turn, answers)
            seen.add(tuple(sorted(answer.status for answer in answers)))
            if seen >= {(200, 200)}:
                break
    assert (200, 200) in seen, seen

    def find_warnings() -> list[str]:
        lines = [
            line for log in (own_stack.data / "logs").glob("gateway*.log") for line in log.read_text().splitlines()
        ]
        # "may not have been" where the connection broke while the seal was under way
        return [
            line
            for line in lines
            if re.search(f" of {name} (was not|may not have been) sealed after the release of its lease: ", line)
        ]

    (warning,) = eventually(find_warnings, goal="the log has why nothing was sealed")
    assert "PostgreSQL" in warning and not any(lease["lease_id"] in warning for lease in leases), warning


def write_after_recovery(api: Api, lease: Json, operation: Json) -> Answer:
    """Repeats the write until its answer is not 503: each connection of the gateway reconnects within its back-off."""
    return eventually(
        lambda: (answer := api.write(lease, operation)).status != 503 and answer, 20, goal="PostgreSQL is reached again"
    )


def test_readiness_postgresql_stopped_503_until_it_returns(own_stack: Stack) -> None:
    api = own_stack.api()
    with postgres_stopped(own_stack):
        answer = eventually(lambda: (answer := api.get("/readyz")).status == 503 and answer, goal="not ready")
        assert expect_problem(answer, 503, "storage-unavailable")["detail"]
        assert api.get("/healthz").status == 200
    assert api.get("/readyz").status == 200


def test_readiness_postgresql_hanging_503_in_bounded_time(own_stack: Stack) -> None:
    api = own_stack.api()
    with own_stack.frozen(own_stack.postgres_pids()):
        answer = eventually(lambda: (answer := api.get("/readyz")).status == 503 and answer, 20, goal="not ready")
        assert answer.seconds < 15
        expect_problem(answer, 503, "storage-unavailable")
        assert api.get("/healthz").seconds < 1
    eventually(lambda: api.get("/readyz").status == 200, 30, goal="ready again")


def test_write_without_postgresql_503_and_nothing_changed(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = create_sku(own_stack, unique_name("away"), 10)
    lease = api.must_acquire(goods.resource, ttl_ms=60_000)
    with postgres_stopped(own_stack):
        for _ in range(2):
            answer = api.write(lease, goods.sell())
            expect_problem(answer, 503, "storage-unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.seconds < 12, "the request's deadline is 10 s"
    assert goods.stock() == 10
    assert write_after_recovery(api, lease, goods.sell()).status == 200
    assert goods.stock() == 9
    # Reads of the history use another connection, which reconnects too.
    eventually(lambda: api.get("/v1/history", limit=1).status == 200, 5)
    assert len(api.history(resource=goods.resource, event="write_applied")) == 1


def test_leases_without_postgresql_continue_and_are_recorded(own_stack: Stack, resource: str) -> None:
    api = own_stack.api()
    tokens = []
    with own_stack.frozen(own_stack.postgres_pids()):
        for _ in range(10):
            answer = api.acquire(resource)
            assert answer.status == 201 and answer.seconds < 5, answer
            tokens.append(answer.json()["fencing_token"])
            api.must_release(answer.json())
    eventually(
        lambda: len(api.history(resource=resource, event="lease_released")) == 10,
        20,
        goal="ten releases in the history",
    )
    assert [
        item["fencing_token"] for item in api.history(resource=resource, event="lease_granted", order="asc")
    ] == tokens


class Seller(threading.Thread):
    """Sells one piece after the other under its own lease until `stop`, and records the answers."""

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(daemon=True)
        self.goods = create_sku(stack, name, 1_000_000)
        self.api: Api = stack.api()
        self.lease = self.api.must_acquire(self.goods.resource, ttl_ms=60_000)
        self.answers: list[Answer] = []
        self.stop_requested = threading.Event()

    def run(self) -> None:
        while not self.stop_requested.is_set():
            self.answers.append(self.api.write(self.lease, self.goods.sell()))

    def stop(self) -> None:
        self.stop_requested.set()
        self.join(20)

    def accepted(self) -> int:
        return sum(answer.status == 200 for answer in self.answers)

    def unknown(self) -> int:
        return sum(answer.status == 503 and answer.json().get("outcome_unknown") is True for answer in self.answers)


def sell_while_postgresql_ends(stack: Stack, names: list[str], number: int) -> None:
    sellers = [Seller(stack, name) for name in names]
    try:
        for seller in sellers:
            seller.start()
        eventually(lambda: all(seller.accepted() > 20 for seller in sellers), 20, goal="all sell")
        with postgres_stopped(stack, number):
            eventually(
                lambda: all(any(answer.status == 503 for answer in seller.answers) for seller in sellers),
                20,
                goal="each is refused",
            )
            before = [seller.accepted() for seller in sellers]
        eventually(
            lambda: all(seller.accepted() > count + 20 for seller, count in zip(sellers, before)),
            30,
            goal="all sell again",
        )
    finally:
        for seller in sellers:
            seller.stop()
    for seller in sellers:
        for answer in seller.answers:
            if answer.status != 200:
                expect_problem(answer, 503, "storage-unavailable")
        sold = 1_000_000 - seller.goods.stock()
        assert seller.accepted() <= sold <= seller.accepted() + seller.unknown(), (seller.accepted(), seller.unknown())
        assert stack.query(
            "select count(*) from fencing.history where event = 'write_applied' and resource = %s",
            (seller.goods.resource,),
        ) == [(sold,)]


def test_writes_during_postgresql_restart_apply_at_most_once(
    own_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    sell_while_postgresql_ends(own_stack, [unique_name("restart") for _ in range(4)], signal.SIGINT)


def test_writes_during_postgresql_crash_apply_at_most_once(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    sell_while_postgresql_ends(own_stack, [unique_name("crash") for _ in range(4)], signal.SIGQUIT)


def test_fence_after_postgresql_crash_refuses_stale_write(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = create_sku(own_stack, unique_name("fence"), 10)
    old_holder = api.must_acquire(goods.resource, ttl_ms=200)
    new_holder = api.must_acquire(goods.resource, ttl_ms=60_000, wait_ms=2_000)
    api.must_write(new_holder, goods.sell())
    with postgres_stopped(own_stack, signal.SIGQUIT):
        pass
    expect_problem(write_after_recovery(api, old_holder, goods.sell()), 412, "stale-fencing-token")
    assert write_after_recovery(api, new_holder, goods.sell()).status == 200
    assert goods.stock() == 8


def test_backend_terminated_is_replaced_for_next_write(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    api = own_stack.api()
    goods = create_sku(own_stack, unique_name("terminated"), 100)
    lease = api.must_acquire(goods.resource, ttl_ms=60_000)
    for _ in range(5):
        own_stack.query(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and backend_type = 'client backend'"
        )
        eventually(lambda: api.write(lease, goods.sell()).status == 200, 20, goal="it writes again")


def test_work_goes_to_workers_that_are_connected() -> None:
    """A worker that can't connect refuses its work at once, and so always has the smallest load."""
    with running_site() as site:
        gateway, query = site.gateway(), site.server.query

        def is_ready() -> bool:
            return gateway.api.get("/readyz/writes").status == 200

        def find_first_worker() -> list[tuple[int]]:
            return query(
                """select pid from pg_stat_activity where application_name = 'fencegate'
                            and query like '%storage_generation_state()'
                            and query_start > now() - interval '1 second'
                            and backend_start < now() - interval '2 seconds'"""
            )

        (pid,) = eventually(find_first_worker, 15, goal="one worker of several without work is asked every second")[0]
        query(f"alter role {GATEWAY_ROLE} connection limit 1")
        assert query("select pg_terminate_backend(%s, 5000)", (pid,)) == [(True,)]
        eventually(
            lambda: b'\nfencegate_postgres_workers{state="away"} 1\n' in gateway.api.get("/metrics").body,
            goal="the worker finds that its connection is gone",
        )
        eventually(is_ready, goal="another worker answers")
        remains(is_ready, 2, goal="the worker without a connection gets no work")


def test_reads_wait_for_a_connection_that_is_there() -> None:
    """Connections that can't be made refuse reads at once: with one of three,
    two of three concurrent reads would fail."""
    with running_site() as site:
        gateway = site.gateway()

        def read(_: int) -> int:
            return gateway.api.get("/v1/history?limit=1").status

        assert read(0) == 200
        site.server.query(f"alter role {GATEWAY_ROLE} connection limit 1")
        with ThreadPoolExecutor(3) as callers:
            eventually(
                lambda: list(callers.map(read, range(30))) == [200] * 30,
                15,
                goal="all reads go to the connection that is there",
            )
