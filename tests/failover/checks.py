"""What every test of a failover checks afterwards."""

from __future__ import annotations

import json

from support.api import Json, expect_problem
from support.cluster import Cluster
from support.patroni import LONG, TTL, PatroniSite
from support.polling import eventually
from support.sales import CAUSE, Sellers, check_sales, enter_refusal, generation_changes, named_lost_writes

EPOCH = 2**32
HELD = "held"  # an article that only the observer sells


class Observer:
    """Holds a lease from before the failover, and checks afterwards what became of writes and tokens."""

    def __init__(self, site: PatroniSite) -> None:
        self.site = site
        self.sku = site.create_skus(HELD)[0]
        self.lease = self.acquire()
        self.site.api.must_write(self.lease, self.sku.sell())

    def acquire(self) -> Json:
        return self.site.api.must_acquire(self.sku.resource, ttl_ms=20_000, wait_ms=20_000)

    def floors(self) -> list[int]:
        return [change["floor"] for change in generation_changes(self.site.query) if "floor" in change]

    def wait_for_changes(self, count: int) -> int:
        """Waits until the generation was changed `count` times, and returns the floor."""
        return eventually(lambda: len(found := self.floors()) >= count and found[-1], LONG, interval=0.1, goal=f"{count} changes of the storage generation")

    def report(self, event: str, sellers: Sellers, began: float) -> None:
        print(f"\n{event}: no write was acknowledged for {sellers.longest_gap(began):.1f} s (Patroni's ttl: {TTL} s)")

    def check_old_token(self) -> None:
        """The token from before is refused by the gateways and in direct SQL; the lease itself lives on unless it has expired."""
        token = self.lease["fencing_token"]
        for gateway in self.site.gateways:
            answer = eventually(lambda: (a := gateway.api.write(self.lease, self.sku.sell())).status != 503 and a, LONG, goal="the gateway lets writes in")
            if answer.status != 410:  # the lease is over
                problem = expect_problem(answer, 412, "stale-fencing-token")
                assert problem["cause"] == CAUSE and problem["last_fencing_token"] > token, problem
        assert enter_refusal(self.site.sql(), self.sku.resource, token) == ("FG412", CAUSE)

    def check(self, sellers: Sellers, loses_writes: bool) -> None:
        """Call it when the sellers have stopped."""
        site, sales = self.site, sellers.sales()
        tally, gone = check_sales(site.query, sellers.skus, sales)
        print(dict(tally))
        assert bool(gone) == loses_writes
        self.check_old_token()
        changes = generation_changes(site.query)
        eventually(lambda: named_lost_writes(generation_changes(site.query)) == gone, LONG, goal=f"the history names exactly {len(gone)} lost writes")
        changes = generation_changes(site.query)
        assert sum(change["lost_write_count"] for change in changes) == len(gone)
        assert site.lost_writes_total() == len(gone)
        floor = self.floors()[-1]
        assert floor % EPOCH == 0
        connection = site.sql()
        before = {(sale.sku, sale.token) for sale in sales if sale.token < floor}
        after = [sale for sale in sales if sale.token >= floor and sale.acknowledged]
        assert before and after
        for sku, token in sorted(before, key=lambda pair: -pair[1])[:10]:
            assert enter_refusal(connection, f"inventory/{sku}", token)[0] == "FG412"
        site.api.release(self.lease)
        lease = self.acquire()
        assert lease["fencing_token"] > floor
        site.api.must_write(lease, self.sku.sell())
        self.print_verdict()

    def print_verdict(self) -> None:
        done = Cluster.call("verify", "--conninfo", self.site.conninfo(), "--json")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report = json.loads(done.stdout)
        print(f"verify: {report['verdict']}, {report['broken']} broken" + ("" if done.returncode == 0 else f"\n{done.stdout[:3000]}"))
