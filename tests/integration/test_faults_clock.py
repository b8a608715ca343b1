"""Wall clocks that jump by an hour: on nodes, which end leases by them, and on a gateway, which must not care."""

from __future__ import annotations

import os
import shutil
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway, RedisServer
from support.cluster import running as running_cluster
from support.faults import granted_again, holders, lease_on, nobody_else_gets, open_shop, sale, stock_of, take_on_all
from support.polling import eventually
from support.stack import Stack

HOUR = 3_600


class Clock:
    """The wall clock of one process, by libfaketime; it may jump while the process runs. Monotonic time stays true."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.show(0)

    def show(self, offset_s: int) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        os.replace(fresh, self.file)  # never seen half written

    def environment(self) -> dict[str, str]:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        # libc again, so that it serves malloc: jemalloc asks for the time while it starts, and libfaketime for memory while it does.
        return {"LD_PRELOAD": f"{library} libc.so.6", "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}


def clock_of(node: RedisServer) -> Clock:
    return Clock(node.folder.parent / f"{node.name}.clock")


@pytest.fixture(scope="module")
def clocked(stack: Stack) -> Iterator[Cluster]:
    """A cluster whose nodes live by clocks of their own, with data that survive a restart."""
    made = Cluster(stack, f"clocks_{os.getpid()}", fsync="everysec")
    for node in made.nodes:
        node.environment = clock_of(node).environment()
    try:
        made.start()
        made.migrate()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def served(clocked: Cluster) -> Iterator[Gateway]:
    made = clocked.gateway()
    made.start()
    yield made
    made.kill()


@pytest.fixture
def clocks(clocked: Cluster, served: Gateway) -> Iterator[list[Clock]]:
    """One for each node; all true before the test and after it, and every node votes."""
    made = [clock_of(node) for node in clocked.nodes]
    served.wait_until_whole()
    for node, began in zip(clocked.clients(), [time.time()] * 5):
        assert abs(node.time()[0] - began) < 60, "the node's clock is not true"
    yield made
    for clock in made:
        clock.show(0)


def jumped(cluster: Cluster, offset_s: int, count: int) -> None:
    """The nodes see it: else a test would prove nothing."""
    for node in cluster.clients()[:count]:
        assert abs(node.time()[0] - time.time() - offset_s) < 60


def test_nodes_when_the_clocks_of_two_jump_forward_then_they_alone_forget_and_the_lease_stays_exclusive(
        clocked: Cluster, served: Gateway, clocks: list[Clock], resource: str) -> None:
    """Proves that a minority's clocks cost a lease those nodes' keys and nothing else: nobody gets in, the holder renews,
    and the renewal puts the lease back where it ran out early."""
    api, nodes = served.api, clocked.clients()
    held = take_on_all(api, nodes, resource, MAX_TTL_MS)
    for clock in clocks[:2]:
        clock.show(HOUR)
    jumped(clocked, HOUR, 2)
    assert holders(nodes[:2], resource) == 0, "the jump ended the lease there"
    assert holders(nodes[2:], resource) == 3
    expect_problem(api.ask(resource), 423, "resource-locked")
    renewed = api.renew(held, MAX_TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    until = time.monotonic() + renewed.json()["validity_ms"] / 1000 - renewed.seconds
    eventually(lambda: holders(nodes, resource) == 5, 1, what="put back on the nodes that lost it")
    assert nobody_else_gets(api, resource, until) > 3
    for clock in clocks:
        clock.show(0)
    granted_again(api, resource, held["fencing_token"], within=MAX_TTL_MS / 1000 + 10)
    served.wait_until_whole(10)


def test_nodes_when_the_clocks_of_two_jump_back_then_leases_end_in_time_all_the_same(
        clocked: Cluster, served: Gateway, clocks: list[Clock], resource: str) -> None:
    """Two nodes keep a lease for an hour too long. Proves that they cannot hold anybody up, nor keep alive what is over."""
    api, nodes = served.api, clocked.clients()
    asked = time.monotonic()
    held = api.take(resource, ttl_ms=1_000)
    until = asked + held["validity_ms"] / 1000
    eventually(lambda: holders(nodes, resource) == 5, every=0.005, what="no node is late with it")
    for clock in clocks[:2]:
        clock.show(-HOUR)
    jumped(clocked, -HOUR, 2)
    stuck = lease_on(nodes[:2], resource)
    assert all(stuck) and min(node.pttl(f"fg:lease:{resource}") for node in nodes[:2]) > HOUR * 900
    nobody_else_gets(api, resource, until)
    after = granted_again(api, resource, held["fencing_token"], within=5, give_back=False)
    # Who waited has left a mark in it; the nonce in front says whose it is.
    assert [lease[:32] for lease in lease_on(nodes[:2], resource)] == [lease[:32] for lease in stuck], "they still hold the old one"
    expect_problem(api.look(held), 410, "lease-lost")
    expect_problem(api.renew(held, 1_000), 410, "lease-lost")
    api.give_back(after)
    for clock in clocks:
        clock.show(0)
    eventually(lambda: holders(nodes, resource) == 0, 3, what="the true time ends it")
    granted_again(api, resource, after["fencing_token"])


def test_nodes_when_all_clocks_jump_forward_then_exclusion_is_gone_and_the_guard_refuses_the_older_holder(
        clocked: Cluster, served: Gateway, clocks: list[Clock], fresh: Callable[[str], str]) -> None:
    """What no lease survives, as documented. Proves that tokens grow all the same, and that the data stay safe."""
    sku = open_shop(clocked, fresh("jump"))
    resource, api = f"inventory/{sku}", served.api
    asked = time.monotonic()
    held = api.take(resource, ttl_ms=MAX_TTL_MS)
    until = asked + held["validity_ms"] / 1000
    for clock in clocks:
        clock.show(HOUR)
    jumped(clocked, HOUR, 5)
    usurper = api.take(resource, ttl_ms=MAX_TTL_MS)
    assert time.monotonic() < until, "too slow to prove anything: it could have run out"
    assert usurper["fencing_token"] > held["fencing_token"]
    eventually(lambda: api.write(usurper, sale(sku, 2)).status == 200, 10, what="the shop is known, and it sells")
    refused = expect_problem(api.write(held, sale(sku, 3)), 412, "stale-fencing-token")
    assert (refused["fencing_token"], refused["last_fencing_token"]) == (held["fencing_token"], usurper["fencing_token"])
    expect_problem(api.renew(held, MAX_TTL_MS), 410, "lease-lost")
    assert stock_of(clocked, sku) == 8
    for clock in clocks:
        clock.show(0)
    api.release(usurper)
    granted_again(api, resource, usurper["fencing_token"])


# A node that was restarted, and whose clock is then set: what a machine's boot and its time service do.


@pytest.mark.parametrize("offset_s", [0, HOUR], ids=["true", "forward"])
def test_nodes_when_restarted_with_older_data_and_their_clocks_jump_then_they_sit_out_all_the_same(
        stack: Stack, fresh: Callable[[str], str], resource: str, offset_s: int) -> None:
    """A majority forgets a lease that is held, and its clocks are set forward while it sits out. Proves that it sits out
    (true clocks), and that this is measured by a clock that does not jump (forward)."""
    with running_cluster(stack, fresh("fg").replace("-", "_"), max_ttl_ms=4_000, fsync="everysec") as cluster:
        clocks = [clock_of(node) for node in cluster.nodes]
        for node, clock in zip(cluster.nodes, clocks):
            node.kill()
            node.environment = clock.environment()
            node.start()
        first, second = cluster.gateway(), cluster.gateway()
        first.start()
        first.wait_until_whole()
        second.start()
        second.wait_until_whole()
        for node in cluster.nodes[:3]:
            shutil.copytree(node.folder, cluster.folder / f"{node.name}.copy")
        asked = time.monotonic()
        held = first.api.take(resource, ttl_ms=4_000)
        until = asked + held["validity_ms"] / 1000
        for number, node in enumerate(cluster.nodes[:3]):
            node.kill()
            shutil.rmtree(node.folder)
            shutil.copytree(cluster.folder / f"{node.name}.copy", node.folder)
            node.start()
            clocks[number].show(offset_s)
        jumped(cluster, offset_s, 3)
        assert time.monotonic() < until - 1, "too slow to prove anything: it has nearly run out"
        nobody_else_gets(second.api, resource, until)
        granted_again(second.api, resource, held["fencing_token"])
        second.wait_until_whole()


def test_node_when_restarted_and_its_clock_jumps_back_then_it_votes_again_after_the_longest_lease(
        clocked: Cluster, served: Gateway, clocks: list[Clock], resource: str) -> None:
    """Proves that a clock set back does not keep a node out for as long as it was set back."""
    before = served.api.take(resource, ttl_ms=500)
    served.api.give_back(before)
    node = clocked.nodes[0]
    node.kill()
    node.start()
    clocks[0].show(-HOUR)
    eventually(lambda: served.nodes()[0]["state"] == "quarantined", 5, every=0.005, what="it sits out")
    granted_again(served.api, resource, before["fencing_token"])
    try:
        eventually(lambda: served.nodes()[0]["state"] == "voting", 2 * MAX_TTL_MS / 1000, every=0.05, what="it votes again")
    finally:
        clocks[0].show(0)
        served.wait_until_whole()
    granted_again(served.api, resource, before["fencing_token"])


# A gateway's clock


def date_of(api: Api) -> float:
    return parsedate_to_datetime(api.get("/healthz").headers["Date"]).timestamp()


@pytest.mark.parametrize("offset_s", [HOUR, -HOUR], ids=["forward", "back"])
def test_gateway_when_its_clock_jumps_then_validity_and_waiting_do_not_change(
        cluster: Cluster, resource: str, offset_s: int) -> None:
    """Proves that nothing in the life of a lease but its printed time of day comes from the wall clock: not its validity,
    not its end, not how long a caller waits, not its token."""
    gateway = cluster.gateway()
    clock = Clock(cluster.folder / f"{gateway.config.stem}.clock")
    gateway.environment = clock.environment()
    try:
        gateway.start()
        gateway.wait_until_whole()
        api = gateway.api
        held = api.take(resource, ttl_ms=2_000)
        began = time.monotonic()
        waiter = api.begin_ask(resource, ttl_ms=1_500, wait_ms=10_000)
        hopeless = api.begin_ask(resource, ttl_ms=1_500, wait_ms=600)
        waiter.join(0.1)
        assert waiter.is_alive() and hopeless.is_alive()
        clock.show(offset_s)
        eventually(lambda: abs(date_of(api) - time.time() - offset_s) < 60, 1.2, what="its clock has jumped")
        looked = api.look(held)
        assert looked.status == 200 and 0 < looked.json()["validity_ms"] <= 2_000, looked
        expect_problem(hopeless.answer(), 423, "resource-locked")
        assert 0.5 < hopeless.ended - hopeless.began < 5
        answer = waiter.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
        assert 1.9 < waiter.ended - began < 2 + 3, "neither before the lease is over nor long after"
        assert 1_000 < answer.json()["validity_ms"] < 1_500
        expect_problem(api.look(held), 410, "lease-lost")
        api.give_back(answer.json())
        clock.show(0)
        granted_again(api, resource, answer.json()["fencing_token"])
    finally:
        gateway.kill()


@pytest.mark.parametrize("offset_s", [HOUR, -HOUR], ids=["forward", "back"])
def test_renewal_when_the_gateways_clock_jumps_then_the_holder_keeps_his_lease(
        cluster: Cluster, resource: str, offset_s: int) -> None:
    """A lease held for less than a second, and a clock that says an hour. Proves that max_hold_ms is not counted by a
    clock that jumps."""
    gateway = cluster.gateway(cluster.settings(max_hold_ms=HOUR * 1000))
    clock = Clock(cluster.folder / f"{gateway.config.stem}.clock")
    gateway.environment = clock.environment()
    try:
        gateway.start()
        held = gateway.api.take(resource, ttl_ms=MAX_TTL_MS)
        clock.show(offset_s)
        renewed = gateway.api.renew(held, MAX_TTL_MS)
        assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
        gateway.api.give_back(held)
        clock.show(0)
        granted_again(gateway.api, resource, held["fencing_token"])
    finally:
        gateway.kill()
