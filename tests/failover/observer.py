"""What every test of a failover checks: writes, lost writes, tokens from before, and the history."""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from typing import Any, Callable

import psycopg2

from support.api import Answer, Json, expect_problem
from support.cluster import Cluster
from support.patroni import LONG, TTL, PatroniSite
from support.polling import eventually
from support.sales import CAUSE, Sellers, check_sales, enter_refusal, generation_changes, named_lost_writes

EPOCH = 2**32
LEASE_TTL_MS = 20_000


def available(call: Callable[[], Answer]) -> Answer:
    """Repeats a call while the answer is 503, as it may be for a while after a failover,
    and returns the first other answer."""
    return eventually(lambda: (answer := call()).status != 503 and answer, LONG, goal="the answer is not 503")


class Observer:
    """Holds and renews a lease while the block lasts, and checks afterwards what became of writes and tokens.
    Prints the logs if the block fails."""

    def __init__(self, site: PatroniSite) -> None:
        self.site = site
        self.skus = site.create_skus(
            *(f"{name}-{uuid.uuid4().hex[:6]}" for name in ("a", "b", "c"))
        )  # those that are sold under load
        self.sku = site.create_skus(f"held-{uuid.uuid4().hex[:6]}")[0]  # the one that only the observer sells
        self.floor = max(self.floors(), default=0)
        self.named_before = named_lost_writes(generation_changes(site.query))
        self.counted_before = site.lost_writes_total()
        self.lease = self.acquire()
        self.write(self.lease)
        self.stop_requested = threading.Event()
        self.renewing = threading.Thread(target=self.keep_renewing, daemon=True)

    def __enter__(self) -> "Observer":
        self.renewing.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop_requested.set()
        self.renewing.join(60)
        if kind is not None:
            self.site.print_logs()

    def keep_renewing(self) -> None:
        while not self.stop_requested.wait(3.0):
            try:
                self.site.api.renew(self.lease, LEASE_TTL_MS)
            except (
                AssertionError,
                OSError,
                http.client.HTTPException,
            ):  # HAProxy's own answer, while no gateway is ready for leases
                pass

    def acquire(self) -> Json:
        return self.site.api.must_acquire(self.sku.resource, ttl_ms=LEASE_TTL_MS, wait_ms=LEASE_TTL_MS)

    def write(self, lease: Json) -> None:
        """Sells a piece that no check counts."""
        answer = available(lambda: self.site.api.write(lease, self.sku.sell()))
        assert answer.status == 200, answer

    def floors(self) -> list[int]:
        return [change["floor"] for change in generation_changes(self.site.query) if "floor" in change]

    def wait_for_change(self) -> int:
        """Waits until the floor is above that from before, and returns it."""

        def changed() -> int:
            try:
                floor = max(self.floors(), default=0)
            except psycopg2.Error:  # the primary was replaced meanwhile
                return 0
            return floor if floor > self.floor else 0

        self.floor = eventually(changed, LONG, interval=0.1, goal="the storage generation is changed")
        return self.floor

    def report(self, event: str, sellers: Sellers, began: float) -> None:
        print(f"\n{event}: no write was acknowledged for {sellers.longest_gap(began):.1f} s (Patroni's ttl: {TTL} s)")

    def check(self, sellers: Sellers, loses_writes: bool = False, names_all: bool = True) -> None:
        """Call it when the sellers have stopped.
        `names_all` is false where the gateways no longer remember all acknowledged writes."""
        self.floor = max(self.floors())
        sales = sellers.sales()
        tally, gone = check_sales(self.site.query, sellers.skus, sales)
        print({kind: tally[kind] for kind in sorted(tally)})
        assert bool(gone) == loses_writes
        if names_all:

            def all_named() -> bool:
                named = self.named_lost_writes()
                assert (
                    named == gone
                ), f"{len(named - gone)} are named and not lost, {len(gone - named)} are lost and not named"
                return True

            eventually(all_named, 40, goal=f"the history names exactly the {len(gone)} lost writes")
            assert self.site.lost_writes_total() - self.counted_before == len(gone)
        else:
            assert self.named_lost_writes() <= gone
        self.check_old_tokens(sellers)
        self.check_new_tokens(sellers)
        self.print_verdict()

    def named_lost_writes(self) -> set[str]:
        return named_lost_writes(generation_changes(self.site.query)) - self.named_before

    def check_old_tokens(self, sellers: Sellers) -> None:
        """Every token from before is refused, at each gateway and in direct SQL."""
        assert self.floor % EPOCH == 0
        for gateway in self.site.gateways:
            refused = available(lambda: gateway.api.write(self.lease, self.sku.sell()))
            problem = expect_problem(refused, 412, "stale-fencing-token")
            assert problem["cause"] == CAUSE and problem["last_fencing_token"] == self.floor, problem
        connection = self.site.sql()
        assert enter_refusal(connection, self.sku.resource, self.lease["fencing_token"]) == ("FG412", CAUSE)
        older = {(sale.sku, sale.token) for sale in sellers.sales() if sale.token < self.floor}
        assert older
        for sku, token in sorted(older, key=lambda pair: -pair[1])[:10]:
            assert enter_refusal(connection, f"inventory/{sku}", token)[0] == "FG412"
        connection.close()

    def check_new_tokens(self, sellers: Sellers) -> None:
        """The tokens of new leases are above the floor."""
        assert any(sale.token > self.floor and sale.acknowledged for sale in sellers.sales())
        self.stop_requested.set()
        self.renewing.join(60)
        available(lambda: self.site.api.release(self.lease))
        lease = self.acquire()
        assert lease["fencing_token"] > self.floor
        self.write(lease)

    def check_lease_lives_on(self) -> None:
        """The lease from before is renewed with its token, although that token is refused."""
        renewed = available(lambda: self.site.api.renew(self.lease, LEASE_TTL_MS))
        assert renewed.status == 200 and renewed.json()["fencing_token"] == self.lease["fencing_token"], renewed

    def print_verdict(self) -> None:
        done = Cluster.call("verify", "--conninfo", self.site.conninfo(), "--json")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        print(
            f"verify: {report['verdict']}, {report['broken']} broken"
            + ("" if done.returncode == 0 else f"\n{done.stdout[:3000]}")
        )
