"""Patroni promotes a standby under load: by an operator's switchover, and after the primary was killed."""

from __future__ import annotations

import time

from support.patroni import running_patroni_site
from support.sales import running_sellers

from checks import Observer


def test_switchover_synchronous_loses_no_write() -> None:
    with running_patroni_site(3, synchronous=True) as site:
        site.start_gateways()
        observer = Observer(site)
        skus = site.create_skus("a", "b", "c")
        with running_sellers([site.api], skus) as sellers:
            sellers.wait_for_more(10)
            old, new = site.primary, site.synchronous_standby()
            began = time.monotonic()
            old.control("switchover", "--force", "--candidate", new.name)
            assert site.wait_for_primary(old) is new
            observer.wait_for_changes(1)
            sellers.wait_for_more(10)
        observer.report("switchover", sellers, began)
        observer.check(sellers, loses_writes=False)
