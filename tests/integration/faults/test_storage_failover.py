"""A standby takes over under load (`host=a,b target_session_attrs=read-write`), and no answered write is lost."""

from __future__ import annotations

import signal
import socket
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest

from support import processes
from support.api import Api, expect_problem
from support.ledger import check_outcomes, create_ledger, count_slower_than, running_writers
from support.polling import eventually, pause
from support.postgres import GATEWAY_ROLE, PostgresServer, Site, acquire_for_writes, running_site

DEADLINE = 3.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as made:
        yield made


@pytest.fixture(scope="module")
def standby(site: Site) -> Iterator[PostgresServer]:
    """A synchronous standby of the site's server."""
    made = PostgresServer(site.folder, "two")
    made.copy_from(site.server)
    made.start()
    site.server.configure("set synchronous_standby_names = 'two'")
    eventually(
        lambda: site.server.query("select sync_state from pg_stat_replication") == [("sync",)],
        goal="the standby follows",
    )
    yield made
    made.stop(signal.SIGQUIT)


@pytest.fixture(scope="module")
def apis(site: Site, standby: PostgresServer) -> list[Api]:
    """Two gateways whose conninfo names the standby first."""
    conninfo = (
        f"host=127.0.0.1,127.0.0.1 port={standby.port},{site.server.port} dbname={site.server.database} "
        f"user={GATEWAY_ROLE} "
        "target_session_attrs=read-write"
    )
    made = [site.gateway(conninfo, int(1000 * DEADLINE)).api for _ in range(2)]
    create_ledger(site, made)
    return made


def test_commit_without_synchronous_standby_is_not_reported(
    site: Site, standby: PostgresServer, apis: list[Api], unique_name: Callable[[str], str]
) -> None:
    """If the wait for the standby were cancelled, the write would be on the primary only,
    and a failover would lose it."""
    place = unique_name("place")
    lease = acquire_for_writes(apis[0], f"ledger/{place}")
    entry = {"insert": "ledger", "values": {"place": place, "entry": place}}
    with standby.frozen():
        problem = eventually(
            lambda: (reported := expect_problem(apis[0].write(lease, entry), 503, "storage-unavailable")).get(
                "outcome_unknown"
            )
            and reported,
            30,
            goal="a write reaches its commit before its deadline",
        )
        assert all(
            count_slower_than(api, "10") == 0 for api in apis
        ), "longer than the deadline of 3 s plus the time to end the statement"
        alone = apis[0].write(
            lease, entry, {"call": "place_order", "args": {"order_id": 1, "sku": "none", "quantity": 1}}
        )
        assert alone.status != 200
    eventually(
        lambda: len(apis[1].history(write_id=problem["write_id"], event="write_applied")) == 1,
        20,
        goal="the history has the write",
    )
    eventually(
        lambda: apis[0].write(lease, {"delete": "ledger", "where": {"place": place}}).status == 200,
        20,
        goal="it writes again",
    )


@contextmanager
def silent_listeners(ports: list[int]) -> Iterator[None]:
    """Listens on these ports and accepts connections without answering while the block lasts."""
    made = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        yield
    finally:
        for listener in made:
            listener.close()


def test_servers_silent_but_the_last_connects_to_last(
    site: Site, standby: PostgresServer, unique_name: Callable[[str], str]
) -> None:
    """Each server has libpq's connect_timeout of 2 s; the time for the first ones must not reduce that of the last.

    A write ends before its worker is connected. That worker keeps the connection, as the one that flushes does, so that
    few writes fail, however fast they follow each other.
    """
    silent = [processes.free_port() for _ in range(2)]
    gateway = site.gateway(
        f"host=127.0.0.1,127.0.0.1,127.0.0.1 port={silent[0]},{silent[1]},{site.server.port} "
        f"dbname={site.server.database} "
        f"user={GATEWAY_ROLE} target_session_attrs=read-write"
    )
    goods = site.create_sku(unique_name("found"))
    lease = acquire_for_writes(gateway.api, goods.resource)
    with silent_listeners(silent):
        site.server.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (GATEWAY_ROLE,))
        statuses: list[int] = []

        def is_written() -> bool:
            statuses.append(gateway.api.write(lease, goods.sell()).status)
            return statuses[-1] == 200

        eventually(is_written, 60, goal="the last server is found")
    assert len(statuses) <= 6, statuses
    gateway.kill()


def test_failover_under_load_loses_no_write(
    site: Site, standby: PostgresServer, apis: list[Api], unique_name: Callable[[str], str]
) -> None:
    with running_writers(apis, [unique_name("place") for _ in range(8)]) as writers:
        writers.wait_for_more(10)
        site.server.stop(signal.SIGKILL)
        before = writers.applied()
        pause(0.5, "the primary is gone, and the standby is not promoted yet")
        assert eventually(lambda: apis[0].get("/readyz").status == 503, 15, goal="a standby is not enough to be ready")
        assert standby.query("select pg_promote()") == [(True,)]
        eventually(lambda: writers.applied() > before, 30, goal="the new primary takes writes")
        writers.wait_for_more(5, 60)
    print(dict(check_outcomes(standby, apis, writers.entries())))
    assert all(api.get("/readyz").status == 200 for api in apis)
