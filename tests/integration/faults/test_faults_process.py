"""Gateways, holders and nodes that are suspended, killed, or restarted with other data.
Each test ends with recovery."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.cluster import running as running_cluster
from support.faults import (
    acquire_on_all_nodes,
    count_holders,
    expect_exclusive_until,
    install_shop,
    lease_values,
    majority_counter,
    read_stock,
    sale_operation,
    set_counters_apart,
    wait_for_grant_above,
)
from support.polling import eventually, remains
from support.stack import Stack
from support.tcp_gate import Gates, open_gates

LONG_MS = 10_000  # a node timeout that no test reaches


@pytest.fixture(scope="module")
def module_gates(cluster: Cluster) -> Iterator[Gates]:
    with open_gates([node.port for node in cluster.nodes]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def slow_gateway(cluster: Cluster, module_gates: Gates) -> Iterator[Gateway]:
    """A gateway behind gates with a long node timeout, so that a test can delay a request as long as it needs."""
    settings = cluster.settings(ports=[gate.port for gate in module_gates.members])
    settings["redis"].update(node_timeout_ms=LONG_MS, node_dead_after_ms=LONG_MS)
    with cluster.serving(settings) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def other_gateway(cluster: Cluster) -> Iterator[Gateway]:
    """Another gateway, without faults."""
    with cluster.serving() as gateway:
        yield gateway


@pytest.fixture
def gates(module_gates: Gates, slow_gateway: Gateway, other_gateway: Gateway) -> Iterator[Gates]:
    """The gates, without faults before the test and after it."""
    slow_gateway.wait_until_all_vote()
    other_gateway.wait_until_all_vote()
    yield module_gates
    module_gates.clear_faults()


def nonce_of(value: str | None) -> str | None:
    return value.split()[0] if value else None


# A gateway that is suspended


@pytest.mark.parametrize("rounds", [1, 2])
def test_gateway_stopped_during_grant_grants_nothing_expired(
    cluster: Cluster, gates: Gates, slow_gateway: Gateway, other_gateway: Gateway, resource: str, rounds: int
) -> None:
    """All five nodes grant, and the gateway reads the replies when the lease has expired
    and another caller holds the resource.
    Validity is checked last (one round: counters agree and the grant is complete),
    no node confirms a lease that it has granted to another caller (two rounds),
    and the undo of the expired grant does not change the next lease."""
    nodes = cluster.clients()
    if rounds == 1:
        slow_gateway.api.must_release(acquire_on_all_nodes(slow_gateway.api, nodes, resource, MAX_TTL_MS))
        eventually(lambda: count_holders(nodes, resource) == 0, goal="released everywhere")
    else:
        set_counters_apart(nodes, resource)
    for gate in gates.members:
        gate.replies.stalled = True
    call = slow_gateway.api.begin_acquire(resource, ttl_ms=1_500)
    eventually(lambda: count_holders(nodes, resource) == 5, interval=0.005, goal="executed on every node")
    with processes.suspended([slow_gateway.pid]):
        for gate in gates.members:
            gate.replies.stalled = False
        eventually(lambda: count_holders(nodes, resource) == 0, goal="it expired")
        executed = majority_counter(nodes, resource)
        after = other_gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
        assert after["fencing_token"] > executed
    if rounds == 1:
        expect_problem(call.answer(), 503, "no-quorum")
    else:
        expect_problem(call.answer(), 423, "resource-locked")
    assert other_gateway.api.read_lease(after).status == 200
    assert count_holders(nodes, resource) == 5
    other_gateway.api.must_release(after)
    wait_for_grant_above(slow_gateway.api, resource, after["fencing_token"])


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_gateway_stopped_during_release_keeps_next_holder(
    cluster: Cluster, gates: Gates, slow_gateway: Gateway, other_gateway: Gateway, resource: str, way: str
) -> None:
    """A release that reaches the nodes (requests) or is answered (replies) when another caller
    holds the resource does not change that caller's lease, and its answer is true."""
    nodes = cluster.clients()
    held = slow_gateway.api.must_acquire(resource, ttl_ms=500)
    for gate in gates.members:
        getattr(gate, way).stalled = True
    passed = sum(gate.requests.passed for gate in gates.members)
    release = slow_gateway.api.begin("DELETE", f"/v1/leases/{held['lease_id']}")
    release.join(0.1)
    assert release.is_alive(), release.received
    if way == "replies":
        eventually(
            lambda: sum(gate.requests.passed for gate in gates.members) > passed,
            goal="the requests have reached the nodes",
        )
    with processes.suspended([slow_gateway.pid]):
        eventually(lambda: count_holders(nodes, resource) == 0, goal="it is released or expired")
        after = other_gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
        for gate in gates.members:
            getattr(gate, way).stalled = False
    answer = release.answer()
    if way == "requests":
        expect_problem(answer, 410, "lease-lost")
    else:
        assert answer.status == 204, answer
    expect_problem(slow_gateway.api.read_lease(held), 410, "lease-lost")
    expect_problem(slow_gateway.api.renew(held, 500), 410, "lease-lost")
    assert other_gateway.api.read_lease(after).status == 200
    assert count_holders(nodes, resource) == 5
    assert after["fencing_token"] > held["fencing_token"]
    other_gateway.api.must_release(after)
    wait_for_grant_above(slow_gateway.api, resource, after["fencing_token"])


def test_gateway_stopped_before_write_412_for_older_token(cluster: Cluster, unique_name: Callable[[str], str]) -> None:
    """The write waits in the socket of the suspended gateway while the lease ends and the next holder writes.
    The guard refuses it, whatever the gateway's clock says."""
    sku = install_shop(cluster, unique_name("stopped"))
    resource = f"inventory/{sku}"
    first_gateway, second_gateway = cluster.gateway(), cluster.gateway()
    try:
        first_gateway.start()
        second_gateway.start()
        old = first_gateway.api.must_acquire(resource, ttl_ms=500)
        with processes.suspended([first_gateway.pid]):
            write = first_gateway.api.begin(
                "POST", "/v1/writes", {"lease_id": old["lease_id"], "operations": [sale_operation(sku, 3)]}
            )
            new = second_gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS, wait_ms=5_000)
            second_gateway.api.must_write(new, sale_operation(sku, 2))
        refused = expect_problem(write.answer(), 412, "stale-fencing-token")
        assert (refused["fencing_token"], refused["last_fencing_token"]) == (old["fencing_token"], new["fencing_token"])
        assert read_stock(cluster, sku) == 8
        second_gateway.api.release(new)  # it may have expired by now
        again = wait_for_grant_above(first_gateway.api, resource, new["fencing_token"], release=False)
        first_gateway.api.must_write(again, sale_operation(sku))
        assert read_stock(cluster, sku) == 7
    finally:
        first_gateway.kill()
        second_gateway.kill()


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from support.api import Api
from support.faults import sale_operation
api = Api(sys.argv[2])
lease = api.must_acquire(sys.argv[3], ttl_ms=500)
print(lease["fencing_token"], flush=True)
sys.stdin.readline()
answer = api.write(lease, sale_operation(sys.argv[4], 3))
print(answer.status, answer.json().get("type"), flush=True)
"""


def test_holder_stopped_past_ttl_write_is_refused(
    cluster: Cluster, gateway: Gateway, unique_name: Callable[[str], str]
) -> None:
    """A real holder process that is suspended past its lease and does not notice: the guard refuses its write."""
    sku = install_shop(cluster, unique_name("paused"))
    resource = f"inventory/{sku}"
    eventually(lambda: gateway.api.get("/readyz").status == 200)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(processes.repository() / "tests"), gateway.api.url, resource, sku],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=processes.terminate_with_parent,
    )
    try:
        assert holder.stdin and holder.stdout
        token = int(holder.stdout.readline())
        with processes.suspended([holder.pid]):
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            new = gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS, wait_ms=5_000)
            assert new["fencing_token"] > token
            eventually(
                lambda: gateway.api.write(new, sale_operation(sku, 2)).status == 200,
                goal="the gateway knows the shop and sells",
            )
        assert holder.stdout.readline().split() == ["412", "/problems/stale-fencing-token"]
        assert holder.wait(10) == 0
    finally:
        holder.kill()
        holder.wait()
    assert read_stock(cluster, sku) == 8
    gateway.api.release(new)  # it may have expired by now
    wait_for_grant_above(gateway.api, resource, new["fencing_token"])


def test_gateway_killed_its_leases_expire_for_other_waiters(
    cluster: Cluster, other_gateway: Gateway, unique_name: Callable[[str], str]
) -> None:
    """The queue of a killed gateway is lost, its leases last until their ttl and not longer,
    and then the waiters of the other gateway are served."""
    nodes = cluster.clients()
    resources = [unique_name("test/orphan") for _ in range(3)]
    killed_gateway = cluster.start_gateway()
    began = time.monotonic()
    held = {
        resource: killed_gateway.api.must_acquire(resource, ttl_ms=MAX_TTL_MS, owner="orphan") for resource in resources
    }
    lost = [
        killed_gateway.api.begin_acquire(resource, wait_ms=20_000, owner="lost")
        for resource in resources
        for _ in range(2)
    ]
    waiting = {
        resource: other_gateway.api.begin_acquire(resource, ttl_ms=MAX_TTL_MS, wait_ms=20_000, owner="heir")
        for resource in resources
    }
    waiting[resources[0]].join(0.2)
    assert all(call.is_alive() for call in [*lost, *waiting.values()])
    killed_gateway.kill()
    for call in lost:
        with pytest.raises(OSError):
            call.answer()
    for resource, call in waiting.items():
        answer = call.answer()
        assert answer.status == 201 and answer.json()["owner"] == "heir", answer
        assert answer.json()["fencing_token"] > held[resource]["fencing_token"]
        assert (
            MAX_TTL_MS / 1000 - 0.2 < call.ended - began < MAX_TTL_MS / 1000 + 3
        ), "not before the ttl has passed, and soon after"
        other_gateway.api.must_release(answer.json())
        remains(
            lambda: count_holders(nodes, resource) == 0, 0.1, goal="it is not granted to a waiter of the killed gateway"
        )
        wait_for_grant_above(other_gateway.api, resource, answer.json()["fencing_token"])


# Nodes that are suspended


def test_nodes_resuming_after_ttl_restore_no_lease(cluster: Cluster, other_gateway: Gateway, resource: str) -> None:
    """A grant's request waits in two suspended nodes until its lease has expired and another caller holds the resource.
    The lease that it writes there then is neither valid nor renewed, and expires."""
    other_gateway.wait_until_all_vote()
    api, nodes = other_gateway.api, cluster.clients()
    with processes.suspended(node.pid for node in cluster.nodes[:2]):
        old = api.must_acquire(resource, ttl_ms=500)
        written = nonce_of(lease_values(nodes[2:], resource)[0])
        assert written
        eventually(lambda: count_holders(nodes[2:], resource) == 0, goal="it expired")
        new = api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    eventually(
        lambda: any(nonce_of(value) == written for value in lease_values(nodes[:2], resource)),
        2,
        interval=0.005,
        goal="the late command ran",
    )
    expect_problem(api.read_lease(old), 410, "lease-lost")
    expect_problem(api.renew(old, 500), 410, "lease-lost")
    assert api.renew(new, MAX_TTL_MS).json()["fencing_token"] == new["fencing_token"] > old["fencing_token"]
    expect_problem(api.acquire(resource), 423, "resource-locked")
    eventually(lambda: written not in map(nonce_of, lease_values(nodes, resource)), 2.5, goal="the late lease expired")
    api.release(new)  # it may have expired by now
    wait_for_grant_above(api, resource, majority_counter(nodes, resource))
    other_gateway.wait_until_all_vote(15)


def test_late_grant_of_dead_gateway_expires(cluster: Cluster, other_gateway: Gateway, resource: str) -> None:
    """A majority executes a grant after its gateway was killed, so that nothing undoes it.
    It blocks the resource for its ttl and no longer, and the next token is above its own."""
    other_gateway.wait_until_all_vote()
    nodes = cluster.clients()
    settings = cluster.settings()
    settings["redis"].update(node_timeout_ms=LONG_MS, node_dead_after_ms=LONG_MS)
    killed_gateway = cluster.start_gateway(settings)
    killed_gateway.wait_until_all_vote()
    with processes.suspended(node.pid for node in cluster.nodes[:3]):
        call = killed_gateway.api.begin_acquire(resource, ttl_ms=MAX_TTL_MS)
        eventually(lambda: count_holders(nodes[3:], resource) == 2, goal="the others have executed it")
        killed_gateway.kill()
    with pytest.raises(OSError):
        call.answer()
    eventually(lambda: count_holders(nodes[:3], resource) == 3, goal="the late grant was executed by all three")
    late = majority_counter(nodes, resource)
    wait_for_grant_above(other_gateway.api, resource, late, timeout=MAX_TTL_MS / 1000 + 5)
    other_gateway.wait_until_all_vote(15)


# Nodes that are killed together


@pytest.mark.parametrize(
    "data, fsync",
    [("kept", "everysec"), ("kept", "always"), ("older", "everysec"), ("older", "always"), ("none", None)],
)
def test_all_killed_and_data_replaced_tokens_only_grow(
    stack: Stack, unique_name: Callable[[str], str], resource: str, data: str, fsync: str | None
) -> None:
    """SIGKILL of all five nodes and of the gateway, so that no process remembers a token.
    The nodes start with their data, a copy from before the last grants, or none.
    Tokens grow because of the epochs in PostgreSQL, and the end of a held lease is waited for if Redis' settings
    of persistence are true (with an older copy under appendfsync always they are not: there only tokens are safe).
    """
    with running_cluster(stack, unique_name("fg").replace("-", "_"), max_ttl_ms=1_500, fsync=fsync) as cluster:
        nodes = cluster.nodes
        first = cluster.start_gateway()
        first.wait_until_all_vote()
        for _ in range(3):
            first.api.must_release(first.api.must_acquire(resource, ttl_ms=1_000))
        copies = {node.name: cluster.folder / f"{node.name}.copy" for node in nodes}
        if data == "older":
            for node in nodes:
                shutil.copytree(node.folder, copies[node.name])
        for _ in range(3):
            first.api.must_release(first.api.must_acquire(resource, ttl_ms=1_000))
        asked = time.monotonic()
        held = first.api.must_acquire(resource, ttl_ms=1_500)
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
            kept = majority_counter(cluster.clients(), resource)
            assert (kept == held["fencing_token"]) == (
                data == "kept"
            ) and kept > 0, "the nodes do not have the data that the test needs"
        second = cluster.gateway()
        second.start(wait=False)
        eventually(lambda: processes.accepts(second.api.port), goal="it listens")
        if (data, fsync) != ("older", "always"):
            expect_exclusive_until(second.api, resource, until)
        wait_for_grant_above(second.api, resource, held["fencing_token"])
        second.wait_until_all_vote(15)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nodes_flushed_held_lease_stays_exclusive(
    cluster: Cluster, other_gateway: Gateway, resource: str, count: int
) -> None:
    """FLUSHALL on a minority, a majority and all.
    Flushed nodes are quarantined until the leases they lost have expired, also for a gateway that has observed no token
    of the resource, and later tokens are higher."""
    other_gateway.wait_until_all_vote()
    with cluster.serving() as second_gateway:
        second_gateway.wait_until_all_vote()
        held = acquire_on_all_nodes(other_gateway.api, cluster.clients(), resource, MAX_TTL_MS)
        until = held["valid_until"]
        for node in cluster.clients()[:count]:
            node.flushall()
        assert expect_exclusive_until(second_gateway.api, resource, until - 0.5 * MAX_TTL_MS / 1000) > 3
        asked = time.monotonic()
        renewed = other_gateway.api.renew(held, MAX_TTL_MS)
        if count < 3:
            assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
            until = asked + renewed.json()["validity_ms"] / 1000
        else:
            assert renewed.status in (410, 503), renewed
        expect_exclusive_until(second_gateway.api, resource, until)
        wait_for_grant_above(second_gateway.api, resource, held["fencing_token"])
        second_gateway.wait_until_all_vote(15)
