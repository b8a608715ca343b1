"""A standby takes over under load: `host=a,b target_session_attrs=read-write`, and no write that was answered is lost."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest

from support import processes
from support.api import Api, expect_problem
from support.ledger import judge, open_ledger, slower_than, writing
from support.polling import eventually, let_pass
from support.postgres import GATEWAY_ROLE, PostgresServer, Site, kept, running_site

DEADLINE = 3.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site() as made:
        yield made


@pytest.fixture(scope="module")
def standby(site: Site) -> Iterator[PostgresServer]:
    """A synchronous one."""
    made = PostgresServer(site.folder, "two")
    made.copy_from(site.server)
    made.start()
    site.server.configure("set synchronous_standby_names = 'two'")
    eventually(lambda: site.server.query("select sync_state from pg_stat_replication") == [("sync",)], 10, what="the standby follows")
    yield made
    made.stop(signal.SIGQUIT)


@pytest.fixture(scope="module")
def apis(site: Site, standby: PostgresServer) -> list[Api]:
    """The standby stands first: a gateway that took what answers first would end up there."""
    conninfo = (f"host=127.0.0.1,127.0.0.1 port={standby.port},{site.server.port} dbname={site.server.database} user={GATEWAY_ROLE} "
                "target_session_attrs=read-write")
    made = [site.gateway(conninfo, int(1000 * DEADLINE)).api for _ in range(2)]
    open_ledger(site, made)
    return made


def test_commit_when_the_synchronous_standby_is_silent_then_it_is_not_called_a_success(
        site: Site, standby: PostgresServer, apis: list[Api], fresh: Callable[[str], str]) -> None:
    """Were the wait ended, the write would be there on the primary alone, and a failover would undo what was answered."""
    place = fresh("place")
    lease = kept(apis[0], f"ledger/{place}")
    entry = {"insert": "ledger", "values": {"place": place, "entry": place}}
    with standby.frozen():
        problem = eventually(lambda: (told := expect_problem(apis[0].write(lease, entry), 503, "storage-unavailable")).get("outcome_unknown") and told, 30,
                             what="a write comes as far as its commit before its deadline")
        assert all(slower_than(api, "5") == 0 for api in apis), "longer than the deadline of 3 s, and what its end may take"
        alone = apis[0].write(lease, entry, {"call": "place_order", "args": {"order_id": 1, "sku": "none", "quantity": 1}})
        assert alone.status != 200
    eventually(lambda: len(apis[1].history(write_id=problem["write_id"], event="write_applied")) == 1, 5, what="the history tells that it landed")
    eventually(lambda: apis[0].write(lease, {"delete": "ledger", "where": {"place": place}}).status == 200, 5, what="it writes again")


@contextmanager
def silent_listeners(ports: list[int]) -> Iterator[None]:
    """They take connections, and that is all."""
    made = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        yield
    finally:
        for one in made:
            one.close()


def test_servers_when_all_but_the_last_are_silent_then_that_one_is_found(site: Site, standby: PostgresServer, fresh: Callable[[str], str]) -> None:
    """Each has libpq's connect_timeout of 2 s; what is spent on the first ones must not count against the last."""
    silent = [processes.free_port() for _ in range(2)]
    gateway = site.gateway(f"host=127.0.0.1,127.0.0.1,127.0.0.1 port={silent[0]},{silent[1]},{site.server.port} dbname={site.server.database} "
                           f"user={GATEWAY_ROLE} target_session_attrs=read-write")
    goods = site.goods(fresh("found"))
    lease = kept(gateway.api, goods.resource)
    with silent_listeners(silent):
        site.server.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (GATEWAY_ROLE,))
        eventually(lambda: gateway.api.write(lease, goods.sell()).status == 200, 60, what="the last server is found")
    gateway.kill()


def test_primary_when_it_is_killed_and_the_standby_promoted_under_load_then_nothing_is_lost(
        site: Site, standby: PostgresServer, apis: list[Api], fresh: Callable[[str], str]) -> None:
    with writing(apis, [fresh("place") for _ in range(8)]) as writers:
        writers.more(10)
        site.server.stop(signal.SIGKILL)
        before = writers.applied()
        let_pass(0.5, "the primary is gone, and the standby is not promoted yet")
        assert eventually(lambda: apis[0].get("/readyz").status == 503, 3, what="a standby is not enough to be ready")
        assert standby.query("select pg_promote()") == [(True,)]
        began = time.monotonic()
        eventually(lambda: writers.applied() > before, 10, what="the new primary takes writes")
        writers.more(5)
        recovered = time.monotonic() - began
    tally = judge(standby, apis, writers.entries())
    print(dict(tally), f"all write {recovered:.2f} s after the promotion")
    assert recovered < 8
    assert all(api.get("/readyz").status == 200 for api in apis)
