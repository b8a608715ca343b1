"""Wall clocks that jump by an hour: on nodes, which expire leases by them, and on a gateway,
which must not depend on its own."""

from __future__ import annotations

import os
import shutil
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway, RedisServer
from support.cluster import running as running_cluster
from support.faults import (
    wait_for_grant_above,
    count_holders,
    lease_values,
    expect_exclusive_until,
    install_shop,
    sale_operation,
    read_stock,
    acquire_on_all_nodes,
)
from support.polling import eventually
from support.stack import Stack

HOUR = 3_600


class Clock:
    """The wall clock of one process, set by libfaketime while the process runs. The monotonic clock stays correct."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set_offset(0)

    def set_offset(self, offset_s: int) -> None:
        new_file = self.file.with_suffix(".new")
        new_file.write_text(f"{offset_s:+d}\n")
        os.replace(new_file, self.file)  # the process never reads a half-written file

    def environment(self) -> dict[str, str]:
        return {**processes.faketime_environment(), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1"}


def clock_of(node: RedisServer) -> Clock:
    return Clock(node.folder.parent / f"{node.name}.clock")


@pytest.fixture(scope="module")
def clock_cluster(stack: Stack) -> Iterator[Cluster]:
    """A cluster whose nodes have clocks that a test can set, and data that survives a restart."""
    made = Cluster(stack, f"clocks_{os.getpid()}", fsync="everysec")
    for node in made.nodes:
        node.environment = clock_of(node).environment()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def module_gateway(clock_cluster: Cluster) -> Iterator[Gateway]:
    with clock_cluster.serving() as made:
        yield made


@pytest.fixture
def clocks(clock_cluster: Cluster, module_gateway: Gateway) -> Iterator[list[Clock]]:
    """The clock of each node. Before and after the test all clocks are correct, and every node votes."""
    made = [clock_of(node) for node in clock_cluster.nodes]
    module_gateway.wait_until_all_vote()
    for node, began in zip(clock_cluster.clients(), [time.time()] * 5):
        assert abs(node.time()[0] - began) < 60, "the node's clock is not correct"
    yield made
    for clock in made:
        clock.set_offset(0)


def expect_clock_offset(cluster: Cluster, offset_s: int, count: int) -> None:
    """Checks that the first `count` nodes have a clock with this offset."""
    for node in cluster.clients()[:count]:
        assert abs(node.time()[0] - time.time() - offset_s) < 60


def test_clocks_of_two_nodes_forward_lease_stays_exclusive(
    clock_cluster: Cluster, module_gateway: Gateway, clocks: list[Clock], resource: str
) -> None:
    """The jump expires the lease on a minority only: nobody else is granted,
    the holder renews, and the renewal restores the lease where it expired early."""
    api, nodes = module_gateway.api, clock_cluster.clients()
    held = acquire_on_all_nodes(api, nodes, resource, MAX_TTL_MS)
    for clock in clocks[:2]:
        clock.set_offset(HOUR)
    expect_clock_offset(clock_cluster, HOUR, 2)
    assert count_holders(nodes[:2], resource) == 0, "the jump must expire the lease there"
    assert count_holders(nodes[2:], resource) == 3
    expect_problem(api.acquire(resource), 423, "resource-locked")
    asked = time.monotonic()
    renewed = api.renew(held, MAX_TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    until = asked + renewed.json()["validity_ms"] / 1000
    eventually(lambda: count_holders(nodes, resource) == 5, 1, goal="the lease is restored on the nodes that lost it")
    assert expect_exclusive_until(api, resource, until) > 3
    for clock in clocks:
        clock.set_offset(0)
    wait_for_grant_above(api, resource, held["fencing_token"], timeout=MAX_TTL_MS / 1000 + 10)
    module_gateway.wait_until_all_vote(10)


def test_clocks_of_two_nodes_back_leases_end_in_time(
    clock_cluster: Cluster, module_gateway: Gateway, clocks: list[Clock], resource: str
) -> None:
    """Two nodes would keep a lease for an hour too long. They neither delay other callers nor extend the expired lease,
    and keep it for its ttl at most."""
    api, nodes = module_gateway.api, clock_cluster.clients()
    asked = time.monotonic()
    held = api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    until = asked + held["validity_ms"] / 1000
    eventually(lambda: count_holders(nodes, resource) == 5, interval=0.005, goal="every node has the lease")
    for clock in clocks[:2]:
        clock.set_offset(-HOUR)
    expect_clock_offset(clock_cluster, -HOUR, 2)
    stuck = lease_values(nodes[:2], resource)
    assert all(stuck) and min(node.pttl(f"fg:lease:{resource}") for node in nodes[:2]) > HOUR * 900
    expect_exclusive_until(api, resource, until)
    assert (
        max(node.pttl(f"fg:lease:{resource}") for node in nodes) <= MAX_TTL_MS
    ), "the first attempt of another caller corrects it"
    after = wait_for_grant_above(api, resource, held["fencing_token"], timeout=5, release=False)
    expect_problem(api.read_lease(held), 410, "lease-lost")
    expect_problem(api.renew(held, 1_000), 410, "lease-lost")
    api.must_release(after)
    for clock in clocks:
        clock.set_offset(0)
    eventually(lambda: count_holders(nodes, resource) == 0, 3, goal="the correct clock expires it")
    wait_for_grant_above(api, resource, after["fencing_token"])


def test_clocks_of_three_nodes_back_lease_ends_within_its_ttl(
    clock_cluster: Cluster, module_gateway: Gateway, clocks: list[Clock], resource: str
) -> None:
    """The holder is gone. Without the correction, a majority would keep its lease for an hour."""
    api, nodes = module_gateway.api, clock_cluster.clients()
    held = acquire_on_all_nodes(api, nodes, resource, MAX_TTL_MS)
    for clock in clocks[:3]:
        clock.set_offset(-HOUR)
    expect_clock_offset(clock_cluster, -HOUR, 3)
    assert min(node.pttl(f"fg:lease:{resource}") for node in nodes[:3]) > HOUR * 900
    (shown,) = api.get("/v1/leases", resource_prefix=resource).json()["items"]
    assert 0 < shown["remaining_ms"] <= MAX_TTL_MS
    assert max(node.pttl(f"fg:lease:{resource}") for node in nodes[:3]) <= MAX_TTL_MS, "a listing has read it"
    renewed = api.renew(held, MAX_TTL_MS)
    assert renewed.status == 200, renewed
    for clock in clocks[:3]:
        clock.set_offset(-2 * HOUR)
    expect_clock_offset(clock_cluster, -2 * HOUR, 3)
    asked, until = time.monotonic(), time.monotonic() + renewed.json()["validity_ms"] / 1000
    problem = expect_problem(api.acquire(resource), 423, "resource-locked")
    assert problem["remaining_ms"] <= MAX_TTL_MS
    assert time.monotonic() < until, "too slow: the lease may have ended by itself"
    wait_for_grant_above(api, resource, held["fencing_token"], timeout=MAX_TTL_MS / 1000 + 10)
    assert time.monotonic() - asked > (until - asked) / 2, "the correction does not end it early"


def test_clocks_of_all_nodes_forward_guard_refuses_older_holder(
    clock_cluster: Cluster, module_gateway: Gateway, clocks: list[Clock], unique_name: Callable[[str], str]
) -> None:
    """A lease does not survive this, as documented. Tokens still grow, and the guard refuses the older holder."""
    sku = install_shop(clock_cluster, unique_name("jump"))
    resource, api = f"inventory/{sku}", module_gateway.api
    asked = time.monotonic()
    held = api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    until = asked + held["validity_ms"] / 1000
    for clock in clocks:
        clock.set_offset(HOUR)
    expect_clock_offset(clock_cluster, HOUR, 5)
    usurper = api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    assert time.monotonic() < until, "too slow: the lease may have expired by itself"
    assert usurper["fencing_token"] > held["fencing_token"]
    eventually(
        lambda: api.write(usurper, sale_operation(sku, 2)).status == 200, goal="the gateway knows the shop and sells"
    )
    refused = expect_problem(api.write(held, sale_operation(sku, 3)), 412, "stale-fencing-token")
    assert (refused["fencing_token"], refused["last_fencing_token"]) == (
        held["fencing_token"],
        usurper["fencing_token"],
    )
    expect_problem(api.renew(held, MAX_TTL_MS), 410, "lease-lost")
    assert read_stock(clock_cluster, sku) == 8
    for clock in clocks:
        clock.set_offset(0)
    api.release(usurper)
    wait_for_grant_above(api, resource, usurper["fencing_token"])


# A node that restarts and whose clock is then set, as when a machine boots and synchronizes its clock.


@pytest.mark.parametrize("offset_s", [0, HOUR], ids=["true", "forward"])
def test_clocks_forward_on_older_data_nodes_stay_quarantined(
    stack: Stack, unique_name: Callable[[str], str], resource: str, offset_s: int
) -> None:
    """A majority loses a held lease, and its clocks are set forward during quarantine.
    The nodes are quarantined (true), for a time that is measured by a monotonic clock (forward)."""
    with running_cluster(stack, unique_name("fg").replace("-", "_"), max_ttl_ms=7_000, fsync="everysec") as cluster:
        clocks = [clock_of(node) for node in cluster.nodes]
        for node, clock in zip(cluster.nodes, clocks):
            node.kill()
            node.environment = clock.environment()
            node.start()
        first, second = cluster.gateway(), cluster.gateway()
        first.start()
        first.wait_until_all_vote()
        second.start()
        second.wait_until_all_vote()
        for node in cluster.nodes[:3]:
            shutil.copytree(node.folder, cluster.folder / f"{node.name}.copy")
        asked = time.monotonic()
        held = first.api.must_acquire(resource, ttl_ms=7_000)
        until = asked + held["validity_ms"] / 1000
        for number, node in enumerate(cluster.nodes[:3]):
            node.kill()
            shutil.rmtree(node.folder)
            shutil.copytree(cluster.folder / f"{node.name}.copy", node.folder)
            node.start()
            clocks[number].set_offset(offset_s)
        expect_clock_offset(cluster, offset_s, 3)
        assert time.monotonic() < until - 1, "too slow: the lease has nearly expired"
        expect_exclusive_until(second.api, resource, until)
        wait_for_grant_above(second.api, resource, held["fencing_token"])
        second.wait_until_all_vote()


def test_clock_of_restarted_node_back_node_votes_after_max_ttl(
    clock_cluster: Cluster, module_gateway: Gateway, clocks: list[Clock], resource: str
) -> None:
    """A clock that is set back does not extend the quarantine."""
    before = module_gateway.api.must_acquire(resource, ttl_ms=500)
    module_gateway.api.must_release(before)
    node = clock_cluster.nodes[0]
    node.kill()
    node.start()
    clocks[0].set_offset(-HOUR)
    eventually(lambda: module_gateway.nodes()[0]["state"] == "quarantined", 5, interval=0.005, goal="it is quarantined")
    wait_for_grant_above(module_gateway.api, resource, before["fencing_token"])
    try:
        eventually(
            lambda: module_gateway.nodes()[0]["state"] == "voting",
            2 * MAX_TTL_MS / 1000,
            interval=0.05,
            goal="it votes again",
        )
    finally:
        clocks[0].set_offset(0)
        module_gateway.wait_until_all_vote()
    wait_for_grant_above(module_gateway.api, resource, before["fencing_token"])


# The clock of a gateway


def date_of(api: Api) -> float:
    return parsedate_to_datetime(str(api.get("/healthz").headers["Date"])).timestamp()


@pytest.mark.parametrize("offset_s", [HOUR, -HOUR], ids=["forward", "back"])
def test_clock_of_gateway_jumping_changes_no_validity_or_wait(cluster: Cluster, resource: str, offset_s: int) -> None:
    """Only the times shown in answers come from the wall clock: not the validity,
    the end or the token of a lease, nor how long a caller waits."""
    gateway = cluster.gateway()
    clock = Clock(cluster.folder / f"{gateway.config.stem}.clock")
    gateway.environment = clock.environment()
    try:
        gateway.start()
        gateway.wait_until_all_vote()
        api = gateway.api
        asked = time.monotonic()
        held = api.must_acquire(resource, ttl_ms=2_000)
        waiter = api.begin_acquire(resource, ttl_ms=1_500, wait_ms=10_000)
        hopeless = api.begin_acquire(resource, ttl_ms=1_500, wait_ms=600)
        waiter.join(0.1)
        assert waiter.is_alive() and hopeless.is_alive()
        clock.set_offset(offset_s)
        eventually(lambda: abs(date_of(api) - time.time() - offset_s) < 60, 1.2, goal="its clock has jumped")
        looked = api.read_lease(held)
        assert looked.status == 200 and 0 < looked.json()["validity_ms"] <= 2_000, looked
        expect_problem(hopeless.answer(), 423, "resource-locked")
        assert 0.5 < hopeless.ended - hopeless.began < 5
        answer = waiter.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
        assert 1.95 < waiter.ended - asked < 6, "neither before the lease is over nor long after"
        assert 0 < answer.json()["validity_ms"] < 1_500
        expect_problem(api.read_lease(held), 410, "lease-lost")
        api.release(answer.json())  # it may have expired by now
        clock.set_offset(0)
        wait_for_grant_above(api, resource, answer.json()["fencing_token"])
    finally:
        gateway.kill()


@pytest.mark.parametrize("offset_s", [HOUR, -HOUR], ids=["forward", "back"])
def test_clock_of_gateway_jumping_does_not_prevent_renewal(cluster: Cluster, resource: str, offset_s: int) -> None:
    """The lease is held for less than a second while the clock jumps by an hour:
    max_hold_ms is counted by a monotonic clock."""
    gateway = cluster.gateway(cluster.settings(max_hold_ms=HOUR * 1000))
    clock = Clock(cluster.folder / f"{gateway.config.stem}.clock")
    gateway.environment = clock.environment()
    try:
        gateway.start()
        held = gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
        clock.set_offset(offset_s)
        renewed = gateway.api.renew(held, MAX_TTL_MS)
        assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
        gateway.api.must_release(held)
        clock.set_offset(0)
        wait_for_grant_above(gateway.api, resource, held["fencing_token"])
    finally:
        gateway.kill()
