"""What the fault tests share: callers that take and give back under load, and the judges of what they were answered."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator

import redis

from support import processes
from support.api import Answer, Api, Json
from support.cluster import Cluster
from support.polling import eventually, let_pass

CLEAN_ANSWERS = {201, 423, 503}


@dataclass(frozen=True)
class Grant:
    """Times on the test's monotonic clock. It was valid at least from `ended` to `until`."""

    resource: str
    token: int
    began: float
    ended: float
    until: float


class Caller(threading.Thread):
    """Takes one resource again and again, holds it for a moment and gives it back, on a connection that it keeps."""

    def __init__(self, api: Api, resource: str, ttl_ms: int, wait_ms: int, hold: float) -> None:
        super().__init__(daemon=True)
        self.api, self.resource, self.hold = api, resource, hold
        self.body = {"resource": resource, "ttl_ms": ttl_ms, "wait_ms": wait_ms}
        self.answers: list[Answer] = []
        self.grants: list[Grant] = []
        self.releases: list[int] = []
        self.failed: Exception | None = None
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            with self.api.connection() as connection:
                while not self.enough.is_set():
                    began = time.monotonic()
                    answer = connection.call("POST", "/v1/leases", self.body)
                    ended = time.monotonic()
                    self.answers.append(answer)
                    if answer.status != 201:
                        self.enough.wait(0.005)
                        continue
                    if self.hold:
                        let_pass(self.hold, "it is held")
                    lease = answer.json()
                    until = min(time.monotonic(), began + lease["validity_ms"] / 1000)
                    self.grants.append(Grant(self.resource, lease["fencing_token"], began, ended, until))
                    self.releases.append(connection.call("DELETE", answer.headers["Location"]).status)
        except Exception as problem:  # shown by calling()
            self.failed = problem


class Callers:
    """Several callers at once; what they were answered, all together."""

    def __init__(self, apis: list[Api], resources: list[str], ttl_ms: int, wait_ms: int, hold: float) -> None:
        self.all = [Caller(api, resource, ttl_ms, wait_ms, hold) for resource in resources for api in apis]

    def grants(self, resource: str | None = None) -> list[Grant]:
        return [grant for caller in self.all for grant in list(caller.grants) if resource in (None, grant.resource)]

    def answers(self) -> list[Answer]:
        return [answer for caller in self.all for answer in list(caller.answers)]

    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers()}

    def highest(self, resource: str) -> int:
        return max((grant.token for grant in self.grants(resource)), default=0)

    def more(self, count: int, within: float = 20.0) -> None:
        """Waits until each caller has that many grants more."""
        before = [len(caller.grants) for caller in self.all]
        eventually(lambda: all(caller.failed or len(caller.grants) >= had + count for caller, had in zip(self.all, before)), within,
                   what=f"each caller has {count} more grants")

    def stop(self) -> None:
        for caller in self.all:
            caller.enough.set()
        for caller in self.all:
            caller.join(30)
            assert not caller.is_alive(), "a call has no answer"
            if caller.failed:
                raise caller.failed


@contextmanager
def calling(apis: list[Api], resources: list[str], ttl_ms: int = 500, wait_ms: int = 0, hold: float = 0.0) -> Iterator[Callers]:
    """Callers at work while the block lasts; each API has one for each resource."""
    made = Callers(apis, resources, ttl_ms, wait_ms, hold)
    try:
        for caller in made.all:
            caller.start()
        yield made
    finally:
        made.stop()


def expect_growing(grants: list[Grant]) -> None:
    """Tokens of a resource are unique, and a grant asked for after another was answered has the higher one."""
    for resource in {grant.resource for grant in grants}:
        of_one = [grant for grant in grants if grant.resource == resource]
        tokens = [grant.token for grant in of_one]
        assert len(set(tokens)) == len(tokens), f"a token twice for {resource}"
        by_end = sorted(of_one, key=lambda grant: grant.ended)
        highest, done = 0, 0
        for grant in sorted(of_one, key=lambda grant: grant.began):
            while by_end[done].ended < grant.began:
                highest = max(highest, by_end[done].token)
                done += 1
            assert grant.token > highest, f"{grant} after {highest} was answered"


def expect_exclusive(grants: list[Grant]) -> None:
    """No two leases of a resource were valid at the same time."""
    for resource in {grant.resource for grant in grants}:
        held = sorted((grant for grant in grants if grant.resource == resource and grant.until > grant.ended), key=lambda grant: grant.ended)
        for one, next_one in zip(held, held[1:]):
            assert one.until <= next_one.ended, f"{one} and {next_one} at once"


def granted_again(api: Api, resource: str, above: int, within: float = 15.0, give_back: bool = True) -> Json:
    """Recovery: a lease within the bound, with a token higher than every one before."""

    def granted() -> Json:
        answer = api.ask(resource, ttl_ms=1_000, wait_ms=200)
        assert answer.status in CLEAN_ANSWERS, answer
        return answer.json() if answer.status == 201 else None

    lease = eventually(granted, within, what=f"{resource} is granted again")
    assert lease["fencing_token"] > above, f"{lease} after {above}"
    if give_back:
        api.give_back(lease)
    return lease


def take_on_all(api: Api, nodes: list[redis.Redis], resource: str, ttl_ms: int) -> Json:
    """A lease that all five nodes hold under its token, so that it survives the loss of any two; `valid_until` is by the test's own clock.

    The first grants of a resource may leave a node out whose count is ahead of the others.
    """

    def whole() -> Json:
        lease = api.take(resource, ttl_ms=ttl_ms)
        for _ in range(20):  # late nodes are brought to the token in the background
            if holders_under(nodes, resource, lease["fencing_token"]) == len(nodes):
                asked = time.monotonic()
                renewed = api.renew(lease, ttl_ms).json()
                renewed["valid_until"] = asked + renewed["validity_ms"] / 1000
                eventually(lambda: {str(value).split()[2] for value in lease_on(nodes, resource)} == {"1"}, ttl_ms / 1000, every=0.005,
                           what="the renewal has reached all")
                return renewed
            let_pass(0.005, "between two looks")
        api.give_back(lease)
        return None

    return eventually(whole, 15, what="all five nodes hold it")


def nobody_else_gets(api: Api, resource: str, until: float) -> int:
    """Asks until the moment comes; gives how often it was refused."""
    refused = 0
    while time.monotonic() < until:
        answer = api.ask(resource, ttl_ms=1_000)
        if time.monotonic() >= until:  # it may have been granted after the end
            if answer.status == 201:
                api.give_back(answer.json())
            break
        assert answer.status in (423, 503), f"{answer} while another holds it"
        refused += 1
        let_pass(0.01, "between two calls")
    return refused


# The nodes, looked at from behind


def lease_on(nodes: list[redis.Redis], resource: str) -> list[str | None]:
    """What each node holds for the resource."""
    return [node.get(f"fg:lease:{resource}") for node in nodes]


def holders(nodes: list[redis.Redis], resource: str) -> int:
    return sum(value is not None for value in lease_on(nodes, resource))


def holders_under(nodes: list[redis.Redis], resource: str, token: int) -> int:
    """How many nodes hold it under this token: those alone count for the holder."""
    return sum(value is not None and int(value.split()[1]) == token for value in lease_on(nodes, resource))


def counter_of(resource: str) -> str:
    """The key of the counter in which the resource counts."""
    number = 0xCBF29CE484222325  # FNV-1a of 64 bits
    for byte in resource.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return f"fg:token:{number % 65_536}"


def count_out_of_step(nodes: list[redis.Redis], resource: str) -> None:
    """Each node's counter past those of the nodes before it, as failed attempts would leave them: the next grant has to confirm."""
    key = counter_of(resource)
    highest = max(int(node.hget("fg:node", "base")) for node in nodes)
    for further, node in enumerate(nodes, 1):
        node.set(key, max(highest, int(node.get(key) or 0)) + 10 * further)


def counted_up_to(nodes: list[redis.Redis], resource: str) -> int:
    """The highest count that a majority of all nodes has reached for the resource, answered to anybody or not: no grant
    that was ever complete has a higher token, and every grant from now on must have one."""
    key = counter_of(resource)
    return sorted(int(node.get(key) or 0) for node in nodes)[len(nodes) // 2]


def open_shop(cluster: Cluster, stem: str, stock: int = 10) -> str:
    """The shop example in the cluster's own database, with one article of the test's own; gives its name."""
    cluster.stack.query((processes.repository() / "sql" / "examples" / "shop.sql").read_text(), dbname=cluster.database)
    cluster.stack.query("select shop_stock(%s, 1, %s)", (f"{stem}-", stock), dbname=cluster.database)
    return f"{stem}-1"


def stock_of(cluster: Cluster, sku: str) -> int:
    return cluster.stack.query("select stock from inventory where sku = %s", (sku,), dbname=cluster.database)[0][0]


def sale(sku: str, count: int = 1) -> Json:
    return {"update": "inventory", "where": {"sku": sku}, "add": {"stock": -count}, "expect_rows": 1}
