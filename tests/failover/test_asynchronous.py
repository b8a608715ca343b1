"""Patroni without synchronous_mode and two servers: acknowledged writes are lost, and exactly they are named."""

from __future__ import annotations

import signal
import time
from typing import Iterator

import pytest

from support import processes
from support.api import expect_problem
from support.patroni import LONG, PatroniSite, running_patroni_site
from support.polling import eventually
from support.postgres import GATEWAY_ROLE
from support.sales import CAUSE, running_sellers
from support.tcp_gate import open_gates

from observer import Observer


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
    """Patroni hangs and its server goes on. One gateway reaches only the new primary, the other stays with the old one."""
    old = site.primary
    new = next(member for member in site.members if member is not old)
    with open_gates([old.port]) as gates:
        before, after = site.start_gateways(site.conninfo(user=GATEWAY_ROLE, ports=[old.port, new.port]),
                                            site.conninfo(user=GATEWAY_ROLE, ports=[gates.members[0].port, new.port]))
        with Observer(site) as observer:
            with running_sellers([before.api, after.api], observer.skus) as sellers:
                sellers.wait_for_more(10)
                of_before = [member for member in sellers.members if member.api is before.api]
                of_after = [member for member in sellers.members if member.api is after.api]
                began = time.monotonic()
                assert old.process
                processes.signal_all([old.process.pid], signal.SIGSTOP)
                gates.members[0].refuse()
                gates.members[0].cut()
                site.wait_for_primary(old)
                sellers.wait_for_more(5, members=of_before)
                observer.wait_for_change()
                changed_at = time.monotonic()
                problem = eventually(lambda: (a := before.api.get("/readyz/writes")).status == 503 and a, LONG, goal="the other gateway notices").json()
                assert problem["cause"] == CAUSE
                count = sum(member.acknowledged() for member in of_before)
                last = max(sale.at for member in of_before for sale in list(member.sales) if sale.acknowledged)
                sellers.wait_for_more(10, members=of_after)
                assert sum(member.acknowledged() for member in of_before) <= count + len(of_before), "only writes that had begun"
                assert old.in_recovery() is False, "the old primary still accepts writes"
                expect_problem(before.api.write(observer.lease, observer.sku.sell()), 503, "storage-unavailable")
                processes.signal_all([old.process.pid], signal.SIGCONT)
                eventually(lambda: old.in_recovery(), LONG, goal="the old primary is a standby")
                sellers.wait_for_more(5)
            print(f"\nthe gateway at the old primary refuses writes {max(0.0, last - changed_at):.1f} s after the change")
            observer.report("Patroni of the primary hangs", sellers, began)
            observer.check_lease_lives_on()
            observer.check(sellers, loses_writes=True)
