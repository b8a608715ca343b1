"""Patroni without synchronous_mode and two servers: acknowledged writes are lost, and exactly they are named."""

from __future__ import annotations

import time
from typing import Any, Iterator

import psycopg2
import pytest

from support.api import expect_problem
from support.patroni import LONG, PatroniSite, running_patroni_site
from support.polling import eventually, pause
from support.postgres import GATEWAY_ROLE
from support.sales import CAUSE, running_sellers
from support.tcp_gate import open_gates

from observer import Observer

LEAVES_WITHIN = 20.0  # the five seconds of docs/operations/failover.md, on a busy machine


@pytest.fixture
def site() -> Iterator[PatroniSite]:
    with running_patroni_site(2, synchronous=False) as made:
        yield made


def test_kill_of_primary_names_the_lost_writes(site: PatroniSite) -> None:
    site.start_gateways()
    with Observer(site) as observer:
        with running_sellers([site.api], observer.skus) as sellers:
            sellers.wait_for_more(10)
            old = site.primary
            site.hold_back_replication()
            sellers.wait_for_more(10)
            began = time.monotonic()
            old.kill()
            site.wait_for_primary(old)
            observer.wait_for_change()
            sellers.wait_for_more(10)
        observer.report("kill -9 of a primary with a late standby", sellers, began)
        observer.check_lease_lives_on()
        observer.check(sellers, loses_writes=True)
        old.start()
        eventually(lambda: old.in_recovery(), LONG, goal="the old primary is a standby, by pg_rewind")
        site.wait_for_standbys(1)


def test_primary_that_still_answers_is_refused_by_gateways(site: PatroniSite) -> None:
    """Patroni hangs and its server goes on. One gateway reaches only the new primary,
    the other stays with the old one."""
    old = site.primary
    new = next(member for member in site.members if member is not old)
    with open_gates([old.port]) as gates:
        before, after = site.start_gateways(
            site.conninfo(user=GATEWAY_ROLE, ports=[old.port, new.port]),
            site.conninfo(user=GATEWAY_ROLE, ports=[gates.members[0].port, new.port]),
        )
        with Observer(site) as observer:
            with running_sellers([before.api, after.api], observer.skus) as sellers:
                sellers.wait_for_more(10)
                of_before = [member for member in sellers.members if member.api is before.api]
                of_after = [member for member in sellers.members if member.api is after.api]
                began = time.monotonic()
                old.suspend()
                gates.members[0].refuse()
                gates.members[0].cut()
                site.wait_for_primary(old)
                sellers.wait_for_more(5, members=of_before)
                observer.wait_for_change()
                changed_at = time.monotonic()
                problem = eventually(
                    lambda: (a := before.api.get("/readyz/writes")).status == 503 and a,
                    LONG,
                    goal="the other gateway notices",
                ).json()
                assert problem["cause"] == CAUSE
                count = sum(member.acknowledged() for member in of_before)
                last = max(sale.at for member in of_before for sale in list(member.sales) if sale.acknowledged)
                sellers.wait_for_more(10, members=of_after)
                assert sum(member.acknowledged() for member in of_before) <= count + len(
                    of_before
                ), "only writes that had begun"
                assert old.in_recovery() is False, "the old primary still accepts writes"
                expect_problem(before.api.write(observer.lease, observer.sku.sell()), 503, "storage-unavailable")
                old.restart_patroni()
                eventually(lambda: old.in_recovery(), LONG, goal="the old primary is a standby")
                sellers.wait_for_more(5)
            print(
                f"\nthe gateway at the old primary refuses writes {max(0.0, last - changed_at):.1f} s after the change"
            )
            observer.report("Patroni of the primary hangs", sellers, began)
            observer.check_lease_lives_on()
            observer.check(sellers, loses_writes=True)


def test_gateway_with_connections_to_both_leaves_the_old_one(site: PatroniSite) -> None:
    """Patroni hangs and its server goes on. All connections of the gateway end but one that writes,
    and those that replace them reach the new primary."""
    old = site.primary
    new = next(member for member in site.members if member is not old)
    gateway = site.start_gateways(site.conninfo(user=GATEWAY_ROLE, ports=[new.port, old.port]))[0]

    def query_old(statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        try:
            return old.query(statement, arguments)
        except psycopg2.Error as problem:  # eventually() repeats after an AssertionError
            raise AssertionError("the old primary does not answer") from problem

    with Observer(site) as observer:
        with running_sellers([gateway.api], observer.skus) as sellers:
            sellers.wait_for_more(10)
            began = time.monotonic()
            old.suspend()
            site.wait_for_primary(old)
            [writing, *_] = eventually(
                lambda: query_old(
                    "select pid from pg_stat_activity where usename = %s and query = 'commit'", GATEWAY_ROLE
                ),
                20,
                interval=0.01,
                goal="a connection writes",
            )
            query_old(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s and pid <> %s",
                GATEWAY_ROLE,
                *writing,
            )
            observer.wait_for_change()
            changed_at = time.monotonic()

            def count() -> int:
                return query_old("select count(*) from sales")[0][0]

            def unchanged_for_a_second() -> bool:
                before = count()
                pause(1.0, "sellers write several times a second")
                return count() == before

            eventually(unchanged_for_a_second, LEAVES_WITHIN, goal="the gateway writes no more to the old primary")
            print(f"\nthe gateway has left the old primary {time.monotonic() - changed_at:.1f} s after the change")
            sellers.wait_for_more(10)
            old.restart_patroni()
            eventually(lambda: old.in_recovery(), LONG, goal="the old primary is a standby")
            sellers.wait_for_more(5)
        observer.report("connections to two primaries", sellers, began)
        observer.check_lease_lives_on()
        observer.check(sellers, loses_writes=True)
