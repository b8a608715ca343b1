"""Helpers of the fault tests: callers that acquire and release under load, and checks of the answers they got."""

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
from support.polling import eventually, pause

EXPECTED_STATUSES = {
    201,
    410,
    423,
    503,
}  # 410: the validity was over before the grant could be answered, as on a busy machine


@dataclass(frozen=True)
class Grant:
    """A granted lease. Times are on the test's monotonic clock;
    the lease was valid at least from `ended` to `until`."""

    resource: str
    token: int
    began: float
    ended: float
    until: float


class Caller(threading.Thread):
    """Acquires and releases one resource again and again, on one connection."""

    def __init__(self, api: Api, resource: str, ttl_ms: int, wait_ms: int, hold: float) -> None:
        super().__init__(daemon=True)
        self.api, self.resource, self.hold = api, resource, hold
        self.body = {"resource": resource, "ttl_ms": ttl_ms, "wait_ms": wait_ms}
        self.answers: list[Answer] = []
        self.grants: list[Grant] = []
        self.releases: list[int] = []
        self.failed: Exception | None = None
        self.stop_requested = threading.Event()

    def run(self) -> None:
        try:
            with self.api.connection() as connection:
                while not self.stop_requested.is_set():
                    began = time.monotonic()
                    answer = connection.post("/v1/leases", self.body)
                    ended = time.monotonic()
                    self.answers.append(answer)
                    if answer.status != 201:
                        self.stop_requested.wait(0.005)
                        continue
                    if self.hold:
                        pause(self.hold, "it is held")
                    lease = answer.json()
                    until = min(time.monotonic(), began + lease["validity_ms"] / 1000)
                    self.grants.append(Grant(self.resource, lease["fencing_token"], began, ended, until))
                    self.releases.append(connection.call("DELETE", answer.headers["Location"]).status)
        except Exception as problem:  # raised again by Callers.stop()
            self.failed = problem


class Callers:
    """Several callers at once, and the answers of all of them."""

    def __init__(self, apis: list[Api], resources: list[str], ttl_ms: int, wait_ms: int, hold: float) -> None:
        self.members = [Caller(api, resource, ttl_ms, wait_ms, hold) for resource in resources for api in apis]

    def grants(self, resource: str | None = None) -> list[Grant]:
        return [grant for caller in self.members for grant in list(caller.grants) if resource in (None, grant.resource)]

    def answers(self) -> list[Answer]:
        return [answer for caller in self.members for answer in list(caller.answers)]

    def statuses(self) -> set[int]:
        return {answer.status for answer in self.answers()}

    def highest_token(self, resource: str) -> int:
        return max((grant.token for grant in self.grants(resource)), default=0)

    def wait_for_more(self, count: int, timeout: float = 60.0) -> None:
        """Waits until each caller has got `count` more grants."""
        before = [len(caller.grants) for caller in self.members]
        eventually(
            lambda: all(
                caller.failed or len(caller.grants) >= had + count for caller, had in zip(self.members, before)
            ),
            timeout,
            goal=f"each caller has {count} more grants",
        )

    def stop(self) -> None:
        for caller in self.members:
            caller.stop_requested.set()
        for caller in self.members:
            caller.join(30)
            assert not caller.is_alive(), "a call has no answer"
            if caller.failed:
                raise caller.failed


@contextmanager
def running_callers(
    apis: list[Api], resources: list[str], ttl_ms: int = 500, wait_ms: int = 0, hold: float = 0.0
) -> Iterator[Callers]:
    """Runs callers while the block lasts: one for each API and resource."""
    callers = Callers(apis, resources, ttl_ms, wait_ms, hold)
    try:
        for caller in callers.members:
            caller.start()
        yield callers
    finally:
        callers.stop()


def expect_growing(grants: list[Grant]) -> None:
    """Checks that tokens of a resource are unique,
    and that a grant requested after another was answered has a higher one."""
    for resource in {grant.resource for grant in grants}:
        own_grants = [grant for grant in grants if grant.resource == resource]
        tokens = [grant.token for grant in own_grants]
        assert len(set(tokens)) == len(tokens), f"one token in two grants of {resource}"
        by_end = sorted(own_grants, key=lambda grant: grant.ended)
        highest_token, done = 0, 0
        for grant in sorted(own_grants, key=lambda grant: grant.began):
            while by_end[done].ended < grant.began:
                highest_token = max(highest_token, by_end[done].token)
                done += 1
            assert grant.token > highest_token, f"{grant} after {highest_token} was answered"


def expect_exclusive(grants: list[Grant]) -> None:
    """Checks that no two leases of a resource were valid at the same time."""
    for resource in {grant.resource for grant in grants}:
        valid = sorted(
            (grant for grant in grants if grant.resource == resource and grant.until > grant.ended),
            key=lambda grant: grant.ended,
        )
        for earlier, later in zip(valid, valid[1:]):
            assert earlier.until <= later.ended, f"{earlier} and {later} at once"


def wait_for_grant_above(api: Api, resource: str, above: int, timeout: float = 15.0, release: bool = True) -> Json:
    """Waits until the resource is granted again, and checks that the token is above `above`. Returns the lease;
    releases it unless `release` is False."""

    def granted() -> Json:
        answer = api.acquire(resource, ttl_ms=1_000, wait_ms=200)
        assert answer.status in EXPECTED_STATUSES, answer
        return answer.json() if answer.status == 201 else None

    lease = eventually(granted, timeout, goal=f"{resource} is granted again")
    assert lease["fencing_token"] > above, f"{lease} after {above}"
    if release:
        api.must_release(lease)
    return lease


def acquire_on_all_nodes(api: Api, nodes: list[redis.Redis], resource: str, ttl_ms: int) -> Json:
    """Returns a lease that all five nodes hold with its token, so that it survives the loss of any two;
    `valid_until` is on the test's monotonic clock.

    A node whose counter is ahead of the others may be missing from the first grants of a resource.
    """

    def acquired_on_all() -> Json:
        lease = api.must_acquire(resource, ttl_ms=ttl_ms)
        for _ in range(20):  # late nodes are brought to the token in the background
            if count_holders_of_token(nodes, resource, lease["fencing_token"]) == len(nodes):
                asked = time.monotonic()
                renewed = api.renew(lease, ttl_ms).json()
                renewed["valid_until"] = asked + renewed["validity_ms"] / 1000
                eventually(
                    lambda: {str(value).split()[2] for value in lease_values(nodes, resource)} == {"1"},
                    ttl_ms / 1000,
                    interval=0.005,
                    goal="the renewal has reached all",
                )
                return renewed
            pause(0.005, "between two reads")
        api.must_release(lease)
        return None

    return eventually(acquired_on_all, 15, goal="all five nodes hold it")


def expect_exclusive_until(api: Api, resource: str, until: float) -> int:
    """Tries to acquire the resource until the time `until`, checks that each attempt is refused,
    and returns their number."""
    refused = 0
    while time.monotonic() < until:
        answer = api.acquire(resource, ttl_ms=1_000)
        if time.monotonic() >= until:  # it may have been granted after the end
            if answer.status == 201:
                api.must_release(answer.json())
            break
        assert answer.status in (423, 503), f"{answer} while another holds the resource"
        refused += 1
        pause(0.01, "between two calls")
    return refused


# The state of the nodes


def lease_values(nodes: list[redis.Redis], resource: str) -> list[str | None]:
    """Returns the value of the lease key on each node."""
    return [node.get(f"fg:lease:{resource}") for node in nodes]


def count_holders(nodes: list[redis.Redis], resource: str) -> int:
    return sum(value is not None for value in lease_values(nodes, resource))


def count_holders_of_token(nodes: list[redis.Redis], resource: str, token: int) -> int:
    """Returns the number of nodes whose lease has this token; only they count for the holder."""
    return sum(value is not None and int(value.split()[1]) == token for value in lease_values(nodes, resource))


def counter_key(resource: str) -> str:
    """Returns the key of the resource's counter."""
    number = 0xCBF29CE484222325  # FNV-1a of 64 bits
    for byte in resource.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return f"fg:token:{number % 65_536}"


def set_counters_apart(nodes: list[redis.Redis], resource: str) -> None:
    """Sets each node's counter above those of the nodes before it, as failed attempts would,
    so that the next grant needs CONFIRM."""
    key = counter_key(resource)
    highest_token = max(int(node.hget("fg:node", "base")) for node in nodes)
    for number, node in enumerate(nodes, 1):
        node.set(key, max(highest_token, int(node.get(key) or 0)) + 10 * number)


def majority_counter(nodes: list[redis.Redis], resource: str) -> int:
    """Returns the highest counter value that a majority of the nodes has reached for the resource.

    No completed grant has a higher token, and every later grant must have one.
    """
    key = counter_key(resource)
    return sorted(int(node.get(key) or 0) for node in nodes)[len(nodes) // 2]


def install_shop(cluster: Cluster, stem: str, stock: int = 10) -> str:
    """Installs the shop example in the cluster's database, with one article for the test; returns its name."""
    cluster.query((processes.repository() / "sql" / "examples" / "shop.sql").read_text())
    cluster.query("select shop_stock(%s, 1, %s)", (f"{stem}-", stock))
    return f"{stem}-1"


def read_stock(cluster: Cluster, sku: str) -> int:
    return cluster.query("select stock from inventory where sku = %s", (sku,))[0][0]


def sale_operation(sku: str, count: int = 1) -> Json:
    return {"update": "inventory", "where": {"sku": sku}, "add": {"stock": -count}, "expect_rows": 1}
