"""Patroni with synchronous_mode and three servers: whatever takes the primary away, no acknowledged write is lost."""

from __future__ import annotations

import time
from typing import Iterator

import pytest

from support.patroni import LONG, PatroniSite, running_patroni_site
from support.polling import eventually
from support.sales import running_sellers

from observer import Observer


@pytest.fixture(scope="module")
def site() -> Iterator[PatroniSite]:
    with running_patroni_site(3, synchronous=True) as made:
        made.start_gateways()
        yield made


def test_switchover_loses_no_write(site: PatroniSite) -> None:
    with Observer(site) as observer:
        with running_sellers([site.api], observer.skus) as sellers:
            sellers.wait_for_more(10)
            old, new = site.primary, site.synchronous_standby()
            assert new is not None
            began = time.monotonic()
            old.control("switchover", "--force", "--candidate", new.name)
            assert site.wait_for_primary(old) is new
            observer.wait_for_change()
            sellers.wait_for_more(10)
        observer.report("switchover", sellers, began)
        observer.check_lease_lives_on()
        observer.check(sellers)


def test_kill_of_primary_loses_no_write(site: PatroniSite) -> None:
    site.wait_for_standbys(2)
    with Observer(site) as observer:
        with running_sellers([site.api], observer.skus) as sellers:
            sellers.wait_for_more(10)
            old = site.primary
            began = time.monotonic()
            old.kill()
            site.wait_for_primary(old)
            observer.wait_for_change()
            sellers.wait_for_more(10)
        observer.report("kill -9 of the primary and its Patroni", sellers, began)
        observer.check_lease_lives_on()
        observer.check(sellers)
    old.start()
    site.wait_for_standbys(2)


def test_primary_cut_off_from_etcd_loses_no_write(site: PatroniSite) -> None:
    """Patroni without etcd demotes its server, and another one takes the leader key when it has expired."""
    site.wait_for_standbys(2)
    with Observer(site) as observer:
        with running_sellers([site.api], observer.skus) as sellers:
            sellers.wait_for_more(10)
            old = site.primary
            gate = site.gate_of(old)
            began = time.monotonic()
            gate.refuse()
            gate.cut()
            site.wait_for_primary(old)
            observer.wait_for_change()
            sellers.wait_for_more(10)
            eventually(lambda: old.in_recovery() is not False, LONG, goal="the old primary accepts no writes")
            gate.accept()
            eventually(lambda: old.in_recovery(), LONG, goal="the old primary is a standby")
            sellers.wait_for_more(5)
        observer.report("primary cut off from etcd", sellers, began)
        observer.check_lease_lives_on()
        observer.check(sellers)
