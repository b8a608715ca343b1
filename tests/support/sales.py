"""Clients that take leases and sell articles, and checks that what was sold is gone from the stock, exactly once."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import psycopg2

from support.api import Answer, Api, Connection, Json, lease_path
from support.polling import eventually
from support.shop import Sku

CAUSE = "storage-generation-changed"
# Each write sells one piece and adds one row, which belongs to the same resource as the article.
SALES_TABLE = """
create table sales (sku text not null, entry text not null);
create index sales_entry on sales (entry);
select fencing.protect('sales', $$'inventory/' || sku$$);
select fencing.expose_table('sales');
"""


class BalancedConnection(Connection):
    """A connection to a balancer, whose own answers are HTML and not described by openapi.json."""

    def receive(self) -> Answer:
        began = time.monotonic()
        response = self.wire.getresponse()
        if response.headers.get_content_type() == "text/html":
            raise http.client.HTTPException(f"{response.status} of the balancer")
        body = response.read()
        return Answer(response.status, response.msg, body, time.monotonic() - began)


@dataclass(frozen=True)
class Sale:
    sku: str
    entry: str
    token: int
    answer: Answer | None  # None: the connection ended before the answer
    at: float

    @property
    def acknowledged(self) -> bool:
        return self.answer is not None and self.answer.status == 200

    @property
    def unknown(self) -> bool:
        return self.answer is None or (self.answer.status != 200 and self.answer.json().get("outcome_unknown") is True)

    @property
    def write_id(self) -> str:
        assert self.answer is not None
        return self.answer.json()["write_id"]


class Seller(threading.Thread):
    """Takes a lease, sells some pieces, releases it, and begins again.
    What is refused is not repeated; a new lease is taken."""

    SALES_PER_LEASE = 5

    def __init__(self, name: str, api: Api, sku: Sku) -> None:
        super().__init__(daemon=True)
        self.label, self.api, self.sku = name, api, sku
        self.connection = BalancedConnection(api.host, api.port, api.headers, 20.0)
        self.sales: list[Sale] = []
        self.failed: Exception | None = None
        self.stop_requested = threading.Event()

    def run(self) -> None:
        try:
            with self.connection:
                while not self.stop_requested.is_set():
                    self.sell_under_lease()
        except Exception as problem:  # raised again by Sellers.stop()
            self.failed = problem

    def sell_under_lease(self) -> None:
        acquired = self.call("POST", "/v1/leases", {"resource": self.sku.resource, "ttl_ms": 3_000, "wait_ms": 1_000})
        if acquired is None or acquired.status != 201:
            self.stop_requested.wait(0.1)
            return
        lease = acquired.json()
        for _ in range(self.SALES_PER_LEASE):
            entry = f"{self.label}-{len(self.sales)}"
            operations = [self.sku.sell(), {"insert": "sales", "values": {"sku": self.sku.name, "entry": entry}}]
            answer = self.call("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": operations})
            self.sales.append(Sale(self.sku.name, entry, lease["fencing_token"], answer, time.monotonic()))
            self.stop_requested.wait(0.01 if self.sales[-1].acknowledged else 0.1)
            if not self.sales[-1].acknowledged:
                break
        self.call("DELETE", lease_path(lease))

    def call(self, method: str, path: str, body: Json = None) -> Answer | None:
        """Returns None if the connection fails before the answer."""
        try:
            return self.connection.call(method, path, body)
        except (OSError, http.client.HTTPException):
            self.connection.close()
            return None

    def acknowledged(self) -> int:
        return sum(sale.acknowledged for sale in list(self.sales))


class Sellers:
    """Two sellers for each article, so that they compete for its lease."""

    def __init__(self, apis: list[Api], skus: list[Sku]) -> None:
        self.skus = skus
        self.members = [
            Seller(f"{sku.name}-{number}", apis[number % len(apis)], sku) for sku in skus for number in range(2)
        ]

    def sales(self) -> list[Sale]:
        return [sale for member in self.members for sale in list(member.sales)]

    def wait_for_more(self, count: int, timeout: float = 90.0, members: list[Seller] | None = None) -> None:
        """Waits until each of the sellers, or of `members`, has `count` more acknowledged sales."""
        members = members or self.members
        before = [member.acknowledged() for member in members]
        eventually(
            lambda: all(member.failed or member.acknowledged() >= had + count for member, had in zip(members, before)),
            timeout,
            interval=0.05,
            goal=f"each seller sells {count} more; "
            f"the last answers were {[str(m.sales[-1].answer) for m in members if m.sales]}",
        )

    def longest_gap(self, since: float) -> float:
        """Returns the longest time after `since` in which no sale was acknowledged."""
        times = [since, *sorted(sale.at for sale in self.sales() if sale.acknowledged and sale.at > since)]
        return max(later - earlier for earlier, later in zip(times, times[1:]))

    def stop(self) -> None:
        for member in self.members:
            member.stop_requested.set()
        for member in self.members:
            member.join(60)
            assert not member.is_alive(), "a call has no answer"
            if member.failed:
                raise member.failed


@contextmanager
def running_sellers(apis: list[Api], skus: list[Sku]) -> Iterator[Sellers]:
    sellers = Sellers(apis, skus)
    try:
        for member in sellers.members:
            member.start()
        yield sellers
    finally:
        sellers.stop()


def check_sales(
    query: Callable[..., list[tuple[Any, ...]]], skus: list[Sku], sales: list[Sale]
) -> tuple[Counter, set[str]]:
    """Returns how many sales there are of each kind, and the write ids that were acknowledged and are gone.

    Checks that what a refused write would have changed is unchanged, that no sale counts twice, that stock,
    sales and history agree, and that the tokens of each resource only grow in the history.
    """
    names = [sku.name for sku in skus]
    rows = Counter(entry for (entry,) in query("select entry from sales where sku = any (%s)", (names,)))
    applied = query(
        "select resource, fencing_token, write_id from fencing.history where event = 'write_applied' "
        "and resource = any (%s) order by id",
        ([sku.resource for sku in skus],),
    )
    recorded = Counter(str(write_id) for _, _, write_id in applied)
    stocks = dict(query("select sku, initial_stock - stock from inventory where sku = any (%s)", (names,)))
    sold = Counter(dict(query("select sku, count(*) from sales where sku = any (%s) group by sku", (names,))))
    assert {name: sold[name] for name in names} == stocks, "what was sold is gone from the stock"
    events = Counter(resource for resource, _, _ in applied)
    assert {sku.name: events[sku.resource] for sku in skus} == stocks, "each sale has one row in the history"
    tally, failures, gone = Counter(), [], set()
    for sale in sales:
        found = rows.pop(sale.entry, 0)
        if sale.acknowledged and found == recorded[sale.write_id] == 0:
            tally["lost"] += 1
            gone.add(sale.write_id)
        elif sale.acknowledged:
            tally["acknowledged"] += 1
            if (found, recorded[sale.write_id]) != (1, 1):
                failures.append((sale, found))
        elif sale.unknown:
            tally["unknown, applied" if found else "unknown, not applied"] += 1
            if found > 1:
                failures.append((sale, found))
        else:
            assert sale.answer is not None
            tally[f"refused {sale.answer.status}"] += 1
            if found:
                failures.append((sale, found))
    assert (
        not failures
    ), f"{len(failures)} of {len(sales)}, such as {[(s.entry, str(s.answer), found) for s, found in failures[:3]]}"
    assert not rows, f"sales that nobody made: {rows}"
    for sku in skus:
        tokens = [token for resource, token, _ in applied if resource == sku.resource]
        assert tokens == sorted(tokens), f"tokens of {sku.resource} do not only grow"
    return tally, gone


def generation_changes(query: Callable[..., list[tuple[Any, ...]]]) -> list[Json]:
    """Returns the details of the changes of the storage generation, the oldest first;
    `floor` is only in those that set it."""
    return [
        detail
        for (detail,) in query(
            "select detail from fencing.history where event = 'storage_generation_changed' order by id"
        )
    ]


def named_lost_writes(changes: list[Json]) -> set[str]:
    return {write_id for change in changes for write_id in change["lost_writes"]}


def enter_refusal(connection: Any, resource: str, token: int) -> tuple[str, str]:
    """Returns the SQLSTATE and the cause with which the guard refuses the token in direct SQL;
    ("", "") if it lets it in."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("select fencing.enter(%s, %s)", (resource, token))
        return "", ""
    except psycopg2.Error as refused:
        return refused.pgcode, json.loads(refused.diag.message_detail or "{}").get("cause", "")
