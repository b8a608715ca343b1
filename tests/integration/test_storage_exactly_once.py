"""Hundreds of faults in the middle of commits, under load through two gateways: each write ends in the truth, and only once."""

from __future__ import annotations

import os
import random
import signal
from typing import Callable, Iterator

import psycopg2
import pytest

from support.api import Api
from support.ledger import Writers, judge, open_ledger, slower_than, writing
from support.polling import eventually, let_pass
from support.postgres import GATEWAY_ROLE, Site, running_site
from support.tcp_gate import Gate, Gates, between, gates_before

DEADLINE = 3.0
PLACES = 9  # and two writers each


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as made:
        yield made


@pytest.fixture(scope="module")
def line(site: Site) -> Iterator[Gates]:
    """A network of its own for each gateway."""
    with gates_before([site.server.port, site.server.port]) as made:
        yield made


@pytest.fixture(scope="module")
def apis(site: Site, line: Gates) -> list[Api]:
    made = [site.gateway(f"host=127.0.0.1 port={gate.port} dbname={site.server.database} user={GATEWAY_ROLE}", int(1000 * DEADLINE)).api
            for gate in line.all]
    open_ledger(site, made)
    return made


@pytest.fixture
def places(fresh: Callable[[str], str]) -> list[str]:
    return [fresh("place") for _ in range(PLACES)]


def survived(site: Site, apis: list[Api], writers: Writers) -> None:
    tally = judge(site.server, apis, writers.entries())
    print(dict(tally))
    assert tally["applied"] > 100
    assert all(slower_than(api, "5") == 0 for api in apis), "longer than the deadline of 3 s, and what its end may take"


def test_connections_when_cut_hundreds_of_times_in_the_middle_then_each_write_ends_in_the_truth(
        site: Site, line: Gates, apis: list[Api], places: list[str]) -> None:
    """Cut by time, and after some hundred bytes of one direction: a request that PostgreSQL never saw whole, an answer
    that the gateway never got, COMMIT and its answer among them."""
    before = sum(gate.cuts for gate in line.all)

    def cuts() -> int:
        return sum(gate.cuts for gate in line.all) - before

    with writing(apis, places) as writers:
        writers.more(3)
        for number in range(40):
            line.all[number % 2].cut()
            let_pass(0.03, "writes go on between two faults")
        for seed, way in enumerate(["replies", "requests"]):
            target = cuts() + 130
            for gate in line.all:
                getattr(gate, way).cut_after = between(3_000, 20_000, seed)
            while (reached := cuts()) < target:  # however long a busy machine takes for all of them
                eventually(lambda: cuts() > reached, 25, what=f"{way} are cut")
            line.heal()
            writers.more(2)
    assert cuts() >= 300
    survived(site, apis, writers)


def one_answer_lost(gate: Gate) -> None:
    """What PostgreSQL does, it does; what it answers, nobody hears."""
    gate.replies.hold = True
    let_pass(0.02, "PostgreSQL answers meanwhile")
    gate.cut()
    gate.replies.hold = False


def test_answers_when_lost_while_the_server_goes_on_then_what_landed_is_called_so(
        site: Site, line: Gates, apis: list[Api], places: list[str]) -> None:
    """Here commits do land whose answer is lost: proves that they are found by write_id and neither repeated nor denied."""
    with writing(apis, places) as writers:
        writers.more(3)
        for number in range(60):
            one_answer_lost(line.all[number % 2])
            let_pass(0.03, "writes go on between two faults")
        line.heal()
        writers.more(2)
    survived(site, apis, writers)
    said = "".join(gateway.log.read_text() for gateway in site.cluster.gateways)
    assert "; it landed" in said, "no commit lost its answer: the test did not reach what it is for"


def test_backends_when_terminated_in_the_middle_then_each_write_ends_in_the_truth(site: Site, apis: list[Api], places: list[str]) -> None:
    ended = 0
    with writing(apis, places) as writers:
        writers.more(3)
        connection = site.server.sql()
        with connection.cursor() as cursor:
            for _ in range(120):
                cursor.execute("select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity where application_name = 'fencegate' "
                               "and state <> 'idle' order by random() limit 2) as victims")
                ended += cursor.fetchone()[0]
                let_pass(0.02, "writes go on between two faults")
        connection.close()
        writers.more(2)
    assert ended >= 60, ended
    survived(site, apis, writers)


def kill_one_backend(site: Site) -> None:
    """kill -9: the server throws out everybody and recovers."""
    try:
        rows = site.server.query("select pid from pg_stat_activity where application_name = 'fencegate' order by state = 'idle', random() limit 1")
        for (pid,) in rows:
            os.kill(pid, signal.SIGKILL)
    except (psycopg2.OperationalError, ProcessLookupError):
        pass  # it recovers still


def test_server_when_it_crashes_and_restarts_over_and_over_then_each_write_ends_in_the_truth(site: Site, apis: list[Api], places: list[str]) -> None:
    """Backends killed with -9, of which each takes the whole server down, and immediate stops, thirty in all."""
    chance = random.Random(7)
    site.server.configure("set fsync = off")  # no disk fails here; recovery is quicker
    with writing(apis, places) as writers:
        writers.more(3)
        for number in range(30):
            if number % 6 == 5:
                with site.server.away(signal.SIGQUIT):
                    pass
            else:
                kill_one_backend(site)
            let_pass(0.2 + 0.4 * chance.random(), "the server is up or recovers for a while")
            eventually(site.server.answers, 15, what="the server is back")
        writers.more(2)
    survived(site, apis, writers)
