"""Hundreds of faults during commits, under load through two gateways: each write is applied at most once
and its outcome is reported truly."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Callable, Iterator

import psycopg2
import pytest

from support.api import Api
from support.ledger import Writers, check_outcomes, create_ledger, count_slower_than, running_writers
from support.polling import eventually, pause
from support.postgres import GATEWAY_ROLE, Site, running_site
from support.tcp_gate import Gate, Gates, random_limits, open_gates

DEADLINE = 3.0
PLACES = 9  # with two writers each


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as made:
        yield made


@pytest.fixture(scope="module")
def module_gates(site: Site) -> Iterator[Gates]:
    """A gate before PostgreSQL for each gateway."""
    with open_gates([site.server.port, site.server.port]) as made:
        yield made


@pytest.fixture(scope="module")
def apis(site: Site, module_gates: Gates) -> list[Api]:
    made = [
        site.gateway(
            f"host=127.0.0.1 port={gate.port} dbname={site.server.database} user={GATEWAY_ROLE}", int(1000 * DEADLINE)
        ).api
        for gate in module_gates.members
    ]
    create_ledger(site, made)
    return made


@pytest.fixture
def places(unique_name: Callable[[str], str]) -> list[str]:
    return [unique_name("place") for _ in range(PLACES)]


def expect_true_outcomes(site: Site, apis: list[Api], writers: Writers) -> None:
    tally = check_outcomes(site.server, apis, writers.entries())
    print(dict(tally))
    assert tally["applied"] > 100
    assert all(
        count_slower_than(api, "10") == 0 for api in apis
    ), "longer than the deadline of 3 s plus the time to end the statement"


def test_writes_over_cut_connections_have_true_outcomes(
    site: Site, module_gates: Gates, apis: list[Api], places: list[str]
) -> None:
    """Connections are reset at random times and after some thousand bytes of one direction: in the middle
    of requests and of replies, among them COMMIT and its reply."""
    before = sum(gate.cuts for gate in module_gates.members)

    def cuts() -> int:
        return sum(gate.cuts for gate in module_gates.members) - before

    with running_writers(apis, places) as writers:
        writers.wait_for_more(3)
        for number in range(40):
            module_gates.members[number % 2].cut()
            pause(0.03, "writes go on between two faults")
        for seed, way in enumerate(["replies", "requests"]):
            target = cuts() + 130
            for gate in module_gates.members:
                getattr(gate, way).cut_after = random_limits(3_000, 20_000, seed)
            while (reached := cuts()) < target:  # a busy machine may need long for all of them
                eventually(lambda: cuts() > reached, 25, goal=f"{way} are cut")
            module_gates.clear_faults()
            writers.wait_for_more(2)
    assert cuts() >= 300
    expect_true_outcomes(site, apis, writers)


def lose_one_answer(gate: Gate) -> None:
    """Delays PostgreSQL's replies and resets the connection, so that the replies are lost."""
    gate.replies.stalled = True
    pause(0.02, "PostgreSQL answers meanwhile")
    gate.cut()
    gate.replies.stalled = False


def test_writes_with_lost_answers_are_reported_as_applied(
    site: Site, module_gates: Gates, apis: list[Api], places: list[str]
) -> None:
    """Commits succeed whose reply is lost: they are found by write_id, neither repeated nor reported as failed."""
    with running_writers(apis, places) as writers:
        writers.wait_for_more(3)
        for number in range(60):
            lose_one_answer(module_gates.members[number % 2])
            pause(0.03, "writes go on between two faults")
        module_gates.clear_faults()
        writers.wait_for_more(2)
    expect_true_outcomes(site, apis, writers)
    log_text = "".join(gateway.log.read_text() for gateway in site.cluster.gateways)
    assert "; it was committed" in log_text, "no commit lost its reply: the test did not check anything"


def test_writes_on_terminated_backends_have_true_outcomes(site: Site, apis: list[Api], places: list[str]) -> None:
    ended = 0
    with running_writers(apis, places) as writers:
        writers.wait_for_more(3)
        connection = site.server.sql()
        with connection.cursor() as cursor:
            until = time.monotonic() + 30
            while ended < 100 and time.monotonic() < until:
                cursor.execute(
                    "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity "
                    "where application_name = 'fencegate' "
                    "and state <> 'idle' order by random() limit 2) as victims"
                )
                ended += cursor.fetchone()[0]
                pause(0.02, "writes go on between two faults")
        connection.close()
        writers.wait_for_more(2)
    assert ended >= 60, ended
    expect_true_outcomes(site, apis, writers)


def kill_one_backend(site: Site) -> None:
    """Kills a backend with SIGKILL: the server ends all sessions and recovers."""
    try:
        rows = site.server.query(
            "select pid from pg_stat_activity where application_name = 'fencegate' order by state = 'idle', "
            "random() limit 1"
        )
        for (pid,) in rows:
            os.kill(pid, signal.SIGKILL)
    except (psycopg2.OperationalError, ProcessLookupError):
        pass  # it is still recovering


def test_writes_across_server_crashes_have_true_outcomes(site: Site, apis: list[Api], places: list[str]) -> None:
    """Thirty crashes: backends killed with SIGKILL, which restart the whole server, and immediate shutdowns."""
    chance = random.Random(7)
    site.server.configure("set fsync = off")  # the disk does not fail in this test, and recovery is faster
    with running_writers(apis, places) as writers:
        writers.wait_for_more(3)
        for number in range(30):
            if number % 6 == 5:
                with site.server.stopped(signal.SIGQUIT):
                    pass
            else:
                kill_one_backend(site)
            pause(0.2 + 0.4 * chance.random(), "the server is up or recovers for a while")
            eventually(site.server.answers, 15, goal="the server is back")
        writers.wait_for_more(2)
    expect_true_outcomes(site, apis, writers)
