"""Processes that stop, die and come back with other data: gateways, holders, nodes. Each test ends in recovery."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.cluster import running as running_cluster
from support.faults import count_out_of_step, counted_up_to, granted_again, holders, lease_on, nobody_else_gets, open_shop, sale, stock_of, take_on_all
from support.polling import eventually, stays
from support.stack import Stack
from support.tcp_gate import Gates, gates_before

LONG_MS = 10_000  # a node timeout that no test reaches


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP while the block lasts."""
    processes.signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.signal_all(pids, signal.SIGCONT)


@pytest.fixture(scope="module")
def line(cluster: Cluster) -> Iterator[Gates]:
    with gates_before([node.port for node in cluster.nodes]) as made:
        yield made


@pytest.fixture(scope="module")
def patient(cluster: Cluster, line: Gates) -> Iterator[Gateway]:
    """A gateway behind gates that waits long for its nodes, so that a test can keep a request under way for as long as it wants."""
    settings = cluster.settings(ports=[gate.port for gate in line.all])
    settings["redis"].update(node_timeout_ms=LONG_MS, node_dead_after_ms=LONG_MS)
    made = cluster.gateway(settings)
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def steady(cluster: Cluster) -> Iterator[Gateway]:
    """The other gateway, to which nothing happens."""
    made = cluster.gateway()
    made.start()
    yield made
    made.kill()


@pytest.fixture
def gates(line: Gates, patient: Gateway, steady: Gateway) -> Iterator[Gates]:
    """All of them open, before the test and after it."""
    patient.wait_until_whole()
    steady.wait_until_whole()
    yield line
    line.heal()


def nonce_of(value: str | None) -> str | None:
    return value.split()[0] if value else None


# A gateway that stops


@pytest.mark.parametrize("rounds", [1, 2])
def test_gateway_when_stopped_past_the_ttl_with_a_grant_under_way_then_it_grants_nothing_that_is_over(
        cluster: Cluster, gates: Gates, patient: Gateway, steady: Gateway, resource: str, rounds: int) -> None:
    """All five nodes say yes, and the gateway reads it when the time is over and another holds the resource. Proves that
    validity is tested last (one round: the nodes' counts agree, the grant is complete), that no node confirms what it has
    given to another (two rounds), and that the undo of the dead grant leaves the next holder alone."""
    nodes = cluster.clients()
    if rounds == 1:
        patient.api.give_back(take_on_all(patient.api, nodes, resource, MAX_TTL_MS))
        eventually(lambda: holders(nodes, resource) == 0, what="released everywhere")
    else:
        count_out_of_step(nodes, resource)
    for gate in gates.all:
        gate.replies.hold = True
    call = patient.api.begin_ask(resource, ttl_ms=500)
    eventually(lambda: holders(nodes, resource) == 5, what="executed on every node")
    with stopped(patient.pid):
        for gate in gates.all:
            gate.replies.hold = False
        eventually(lambda: holders(nodes, resource) == 0, what="it ran out")
        executed = counted_up_to(nodes, resource)
        after = steady.api.take(resource, ttl_ms=MAX_TTL_MS)
        assert after["fencing_token"] > executed
    if rounds == 1:
        expect_problem(call.answer(), 503, "no-quorum")
    else:
        expect_problem(call.answer(), 423, "resource-locked")
    assert steady.api.look(after).status == 200
    assert holders(nodes, resource) == 5
    steady.api.give_back(after)
    granted_again(patient.api, resource, after["fencing_token"])


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_gateway_when_stopped_past_the_ttl_with_a_release_under_way_then_the_next_holder_keeps_his_lease(
        cluster: Cluster, gates: Gates, patient: Gateway, steady: Gateway, resource: str, way: str) -> None:
    """A release that reaches the nodes (requests) or is answered (replies) when another holds the resource. Proves that
    it takes nothing from him and that no answer to it claims a lease that is over."""
    nodes = cluster.clients()
    held = patient.api.take(resource, ttl_ms=500)
    for gate in gates.all:
        getattr(gate, way).hold = True
    passed = sum(gate.requests.passed for gate in gates.all)
    release = patient.api.begin("DELETE", f"/v1/leases/{held['lease_id']}")
    release.join(0.1)
    assert release.is_alive(), release.got
    if way == "replies":
        eventually(lambda: sum(gate.requests.passed for gate in gates.all) > passed, what="the nodes were asked")
    with stopped(patient.pid):
        eventually(lambda: holders(nodes, resource) == 0, what="released, or it ran out")
        after = steady.api.take(resource, ttl_ms=MAX_TTL_MS)
        for gate in gates.all:
            getattr(gate, way).hold = False
    answer = release.answer()
    if way == "requests":
        expect_problem(answer, 410, "lease-lost")
    else:
        assert answer.status == 204, answer
    expect_problem(patient.api.look(held), 410, "lease-lost")
    expect_problem(patient.api.renew(held, 500), 410, "lease-lost")
    assert steady.api.look(after).status == 200
    assert holders(nodes, resource) == 5
    assert after["fencing_token"] > held["fencing_token"]
    steady.api.give_back(after)
    granted_again(patient.api, resource, after["fencing_token"])


def test_write_when_its_gateway_was_stopped_past_the_ttl_then_412_and_only_the_newer_one_landed(
        cluster: Cluster, fresh: Callable[[str], str]) -> None:
    """The write lies in the stopped gateway's socket while the lease ends and the next holder sells. Proves that the
    guard, not the gateway's own idea of time, decides."""
    sku = open_shop(cluster, fresh("stopped"))
    resource = f"inventory/{sku}"
    one, other = cluster.gateway(), cluster.gateway()
    try:
        one.start()
        other.start()
        old = one.api.take(resource, ttl_ms=500)
        with stopped(one.pid):
            write = one.api.begin("POST", "/v1/writes", {"lease_id": old["lease_id"], "operations": [sale(sku, 3)]})
            new = other.api.take(resource, ttl_ms=MAX_TTL_MS, wait_ms=5_000)
            other.api.wrote(new, sale(sku, 2))
        refused = expect_problem(write.answer(), 412, "stale-fencing-token")
        assert (refused["fencing_token"], refused["last_fencing_token"]) == (old["fencing_token"], new["fencing_token"])
        assert stock_of(cluster, sku) == 8
        other.api.give_back(new)
        again = granted_again(one.api, resource, new["fencing_token"], give_back=False)
        one.api.wrote(again, sale(sku))
        assert stock_of(cluster, sku) == 7
    finally:
        one.kill()
        other.kill()


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from support.api import Api
from support.faults import sale
api = Api(sys.argv[2])
lease = api.take(sys.argv[3], ttl_ms=500)
print(lease["fencing_token"], flush=True)
sys.stdin.readline()
answer = api.write(lease, sale(sys.argv[4], 3))
print(answer.status, answer.json().get("type"), flush=True)
"""


def test_holder_when_its_process_is_stopped_past_its_ttl_then_its_write_is_refused(
        cluster: Cluster, gateway: Gateway, fresh: Callable[[str], str]) -> None:
    """A holder that pauses and knows nothing of it when it goes on. Proves the promise for a real process and SIGSTOP."""
    sku = open_shop(cluster, fresh("paused"))
    resource = f"inventory/{sku}"
    eventually(lambda: gateway.api.get("/readyz").status == 200)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(processes.repository() / "tests"), gateway.api.url, resource, sku],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=processes.ended_with_parent)
    try:
        assert holder.stdin and holder.stdout
        token = int(holder.stdout.readline())
        with stopped(holder.pid):
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            new = gateway.api.take(resource, ttl_ms=MAX_TTL_MS, wait_ms=5_000)
            assert new["fencing_token"] > token
            eventually(lambda: gateway.api.write(new, sale(sku, 2)).status == 200, 10, what="the shop is known, and it sells")
        assert holder.stdout.readline().split() == ["412", "/problems/stale-fencing-token"]
        assert holder.wait(10) == 0
    finally:
        holder.kill()
        holder.wait()
    assert stock_of(cluster, sku) == 8
    gateway.api.give_back(new)
    granted_again(gateway.api, resource, new["fencing_token"])


def test_gateway_when_killed_with_waiters_and_leases_then_they_run_out_and_the_other_gateway_grants(
        cluster: Cluster, steady: Gateway, fresh: Callable[[str], str]) -> None:
    """Proves that a queue dies with its gateway, that what it held lasts as long as its ttl and not longer, and that the
    other gateway's waiters are served then."""
    nodes = cluster.clients()
    resources = [fresh("test/orphan") for _ in range(3)]
    doomed = cluster.gateway()
    doomed.start()
    began = time.monotonic()
    held = {resource: doomed.api.take(resource, ttl_ms=MAX_TTL_MS, owner="orphan") for resource in resources}
    lost = [doomed.api.begin_ask(resource, wait_ms=20_000, owner="lost") for resource in resources for _ in range(2)]
    waiting = {resource: steady.api.begin_ask(resource, ttl_ms=MAX_TTL_MS, wait_ms=20_000, owner="heir") for resource in resources}
    waiting[resources[0]].join(0.2)
    assert all(call.is_alive() for call in [*lost, *waiting.values()])
    doomed.kill()
    for call in lost:
        with pytest.raises(OSError):
            call.answer()
    for resource, call in waiting.items():
        answer = call.answer()
        assert answer.status == 201 and answer.json()["owner"] == "heir", answer
        assert answer.json()["fencing_token"] > held[resource]["fencing_token"]
        assert MAX_TTL_MS / 1000 - 0.2 < call.ended - began < MAX_TTL_MS / 1000 + 3, "not before the ttl is over, and soon then"
        steady.api.give_back(answer.json())
        stays(lambda: holders(nodes, resource) == 0, 0.1, what="nobody takes it for a waiter who is gone")
        granted_again(steady.api, resource, answer.json()["fencing_token"])


# Nodes that stop


def test_nodes_when_two_stopped_and_go_on_after_the_ttl_then_their_late_commands_revive_nothing(
        cluster: Cluster, steady: Gateway, resource: str) -> None:
    """A grant's request lies in two stopped nodes until its lease is over and another holds the resource. Proves that the
    lease which it then writes there counts for nothing, is not renewed, and runs out."""
    steady.wait_until_whole()
    api, nodes = steady.api, cluster.clients()
    with stopped(*(node.pid for node in cluster.nodes[:2])):
        old = api.take(resource, ttl_ms=500)
        written = nonce_of(lease_on(nodes[2:], resource)[0])
        assert written
        eventually(lambda: holders(nodes[2:], resource) == 0, what="it ran out")
        new = api.take(resource, ttl_ms=MAX_TTL_MS)
    eventually(lambda: any(nonce_of(value) == written for value in lease_on(nodes[:2], resource)), 2, every=0.005, what="the late command ran")
    expect_problem(api.look(old), 410, "lease-lost")
    expect_problem(api.renew(old, 500), 410, "lease-lost")
    assert api.renew(new, MAX_TTL_MS).json()["fencing_token"] == new["fencing_token"] > old["fencing_token"]
    expect_problem(api.ask(resource), 423, "resource-locked")
    eventually(lambda: written not in map(nonce_of, lease_on(nodes, resource)), 2.5, what="the late lease ran out")
    api.release(new)  # its own time may be over by now
    granted_again(api, resource, counted_up_to(nodes, resource))
    steady.wait_until_whole(15)


def test_nodes_when_three_stopped_and_the_gateway_died_then_their_late_grant_runs_out_by_itself(
        cluster: Cluster, steady: Gateway, resource: str) -> None:
    """A majority executes a grant when its gateway is dead: nobody will ever undo it. Proves that it blocks for its ttl
    and no longer, and that its token is passed over."""
    steady.wait_until_whole()
    nodes = cluster.clients()
    settings = cluster.settings()
    settings["redis"].update(node_timeout_ms=LONG_MS, node_dead_after_ms=LONG_MS)
    doomed = cluster.gateway(settings)
    doomed.start()
    doomed.wait_until_whole()
    with stopped(*(node.pid for node in cluster.nodes[:3])):
        call = doomed.api.begin_ask(resource, ttl_ms=MAX_TTL_MS)
        eventually(lambda: holders(nodes[3:], resource) == 2, what="the others have executed it")
        doomed.kill()
    with pytest.raises(OSError):
        call.answer()
    eventually(lambda: holders(nodes[:3], resource) == 3, what="the late grant was executed by all three")
    late = counted_up_to(nodes, resource)
    granted_again(steady.api, resource, late, within=MAX_TTL_MS / 1000 + 5)
    steady.wait_until_whole(15)


# Nodes that die together


@pytest.mark.parametrize("data, fsync", [("kept", "everysec"), ("kept", "always"), ("older", "everysec"), ("older", "always"), ("none", None)])
def test_everything_when_killed_and_the_nodes_come_back_with_other_data_then_tokens_only_grow(
        stack: Stack, fresh: Callable[[str], str], resource: str, data: str, fsync: str | None) -> None:
    """kill -9 of all five nodes and of the gateway, so that no memory of a hint helps; the nodes start with their data, a
    copy from before the last grants, or none. Proves that tokens rest on the epochs in PostgreSQL, and that a held lease
    is waited for wherever Redis' own word on its persistence is true (a copy put back under `always` is a lie that only
    the token survives)."""
    with running_cluster(stack, fresh("fg").replace("-", "_"), max_ttl_ms=1_500, fsync=fsync) as cluster:
        nodes = cluster.nodes
        first = cluster.gateway()
        first.start()
        first.wait_until_whole()
        for _ in range(3):
            first.api.give_back(first.api.take(resource, ttl_ms=1_000))
        copies = {node.name: cluster.folder / f"{node.name}.copy" for node in nodes}
        if data == "older":
            for node in nodes:
                shutil.copytree(node.folder, copies[node.name])
        for _ in range(3):
            first.api.give_back(first.api.take(resource, ttl_ms=1_000))
        asked = time.monotonic()
        held = first.api.take(resource, ttl_ms=1_500)
        until = asked + held["validity_ms"] / 1000
        first.kill()
        for node in nodes:
            node.kill()
        for node in nodes:
            if data == "older":
                shutil.rmtree(node.folder)
                shutil.copytree(copies[node.name], node.folder)
            node.start()
        if data != "none":
            kept = counted_up_to(cluster.clients(), resource)
            assert (kept == held["fencing_token"]) == (data == "kept") and kept > 0, "the data are not those that the test wants"
        second = cluster.gateway()
        second.start(wait=False)
        eventually(lambda: processes.accepts(second.api.port), 10, what="it listens")
        if (data, fsync) != ("older", "always"):
            nobody_else_gets(second.api, resource, until)
        granted_again(second.api, resource, held["fencing_token"])
        second.wait_until_whole(15)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nodes_when_flushed_while_a_lease_is_held_then_nobody_else_gets_it_before_its_end(
        cluster: Cluster, steady: Gateway, resource: str, count: int) -> None:
    """FLUSHALL on a minority, a majority and all. Proves that wiped nodes sit out until what they forgot is over, also for
    a gateway that never heard of the resource's tokens, and that tokens go on above them."""
    steady.wait_until_whole()
    other = cluster.gateway()
    other.start()
    try:
        other.wait_until_whole()
        held = take_on_all(steady.api, cluster.clients(), resource, MAX_TTL_MS)
        until = held["valid_until"]
        for node in cluster.clients()[:count]:
            node.flushall()
        assert nobody_else_gets(other.api, resource, until - 0.5 * MAX_TTL_MS / 1000) > 3
        renewed = steady.api.renew(held, MAX_TTL_MS)
        if count < 3:
            assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
            until = time.monotonic() + renewed.json()["validity_ms"] / 1000 - renewed.seconds
        else:
            assert renewed.status in (410, 503), renewed
        nobody_else_gets(other.api, resource, until)
        granted_again(other.api, resource, held["fencing_token"])
        other.wait_until_whole(15)
    finally:
        other.kill()
