"""An older base backup takes the place of the servers, and everything restarts."""

from __future__ import annotations

import shutil
import signal
import time

from support import processes
from support.patroni import LONG, SCOPE, running_patroni_site
from support.polling import eventually
from support.sales import CAUSE, enter_refusal, running_sellers

from observer import Observer


def test_restore_of_older_backup_names_the_lost_writes() -> None:
    """The backup is older than the last promotion, so that the restored server has the same timeline
    as the one that it replaces."""
    with running_patroni_site(2, synchronous=False) as site:
        gateways = site.start_gateways()
        with Observer(site) as observer:
            with running_sellers([site.api], observer.skus) as sellers:
                sellers.wait_for_more(5)
                old = site.primary
                backup = old.folder / "backup"
                old.run(
                    "pg_basebackup",
                    f"--pgdata={backup}",
                    "--checkpoint=fast",
                    "--no-sync",
                    "--wal-method=stream",
                    f"--dbname=host=127.0.0.1 port={old.port} user=owner",
                )
                backed_up_at = time.monotonic()
                old.control("switchover", "--force")
                new = site.wait_for_primary(old)
                observer.wait_for_change()
                timeline = new.query("select fencing.live_timeline()")
                sellers.wait_for_more(5)
                processes.signal_all([gateway.pid for gateway in gateways], signal.SIGSTOP)
                began = time.monotonic()
                for member in site.members:
                    member.kill()
                    shutil.rmtree(member.data)
                backup.rename(old.data)
                old.control("remove", SCOPE, answers=f"{SCOPE}\nYes I am aware\n{new.name}\n")
                old.start()
                site.wait_for_primary()
                eventually(lambda: old.query("select fencing.live_timeline()") == timeline, LONG, goal="it is promoted")
                for token in (observer.lease["fencing_token"], observer.floor + 1, 2**52):
                    assert enter_refusal(old.sql(), observer.sku.resource, token) == ("FG503", CAUSE)
                processes.signal_all([gateway.pid for gateway in gateways], signal.SIGCONT)
                observer.wait_for_change()
                seconds = time.monotonic() - backed_up_at
                sellers.wait_for_more(5)
            observer.report(f"restore of a backup from {began - backed_up_at:.1f} s before", sellers, began)
            observer.check(sellers, loses_writes=True, names_all=seconds < 50)  # gateways remember a minute


def test_restart_of_everything_loses_no_write() -> None:
    with running_patroni_site(2, synchronous=True) as site:
        site.start_gateways()
        timeline = site.query("select fencing.live_timeline()")
        with Observer(site) as observer:
            with running_sellers([site.api], observer.skus) as sellers:
                sellers.wait_for_more(10)
                began = time.monotonic()
                site.kill_everything()
                site.restart_everything()
                sellers.wait_for_more(10)
            assert (
                site.query("select fencing.live_timeline()") != timeline
            ), "Patroni promotes the server that it starts as the primary"
            observer.wait_for_change()
            observer.report("restart of everything", sellers, began)
            observer.check(sellers)
