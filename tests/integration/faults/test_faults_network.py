"""Network faults between a gateway and its nodes: delay, loss in one direction, resets, single bytes.
Each test ends with recovery."""

from __future__ import annotations

import time
from typing import Callable, Iterator

import pytest
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.faults import (
    EXPECTED_STATUSES,
    running_callers,
    majority_counter,
    expect_exclusive,
    expect_growing,
    wait_for_grant_above,
    count_holders,
    count_holders_of_token,
)
from support.polling import eventually, pause
from support.tcp_gate import Gates, random_limits, open_gates

NODE_TIMEOUT = 0.8


def serve_through(cluster: Cluster, gates: Gates) -> Gateway:
    settings = cluster.settings(ports=[gate.port for gate in gates.members])
    settings["redis"]["node_timeout_ms"] = int(1000 * NODE_TIMEOUT)
    gateway = cluster.start_gateway(settings)
    gateway.wait_until_all_vote()
    return gateway


@pytest.fixture(scope="module")
def module_gates(cluster: Cluster) -> Iterator[Gates]:
    with open_gates([node.port for node in cluster.nodes]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def module_gateway(cluster: Cluster, module_gates: Gates) -> Iterator[Gateway]:
    gateway = serve_through(cluster, module_gates)
    yield gateway
    gateway.kill()


@pytest.fixture
def gates(module_gates: Gates, module_gateway: Gateway) -> Iterator[Gates]:
    """The gates, without faults before the test and after it."""
    module_gateway.wait_until_all_vote()
    yield module_gates
    module_gates.clear_faults()


@pytest.fixture
def gated_api(module_gateway: Gateway) -> Api:
    """The API of the gateway that reaches its nodes through the gates."""
    return module_gateway.api


def nodes_by_epoch(gateway: Gateway) -> list[int]:
    """Returns the numbers of the nodes, ordered by epoch."""
    epochs = [node["epoch"] for node in gateway.nodes()]
    return sorted(range(5), key=epochs.__getitem__)


def expect_recovery(gates: Gates, gateway: Gateway, resource: str, above: int) -> None:
    """Clears the faults and checks that the resource is granted within 15 s with a token above `above`,
    and that every node votes."""
    gates.clear_faults()
    wait_for_grant_above(gateway.api, resource, above)
    gateway.wait_until_all_vote(15)


def test_replies_of_two_nodes_late_do_not_slow_grants(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str
) -> None:
    """A slow minority causes neither errors nor its delay, and what it executed late is released."""
    for gate in gates[:2]:
        gate.replies.delay = 1.6 * NODE_TIMEOUT
    tokens, seconds = [], []
    until = time.monotonic() + 5 * NODE_TIMEOUT  # each node is in time, overdue, late and asked again several times
    while time.monotonic() < until:
        answer = gated_api.acquire(resource, ttl_ms=MAX_TTL_MS)
        assert answer.status == 201, answer
        tokens.append(answer.json()["fencing_token"])
        seconds.append(answer.seconds)
        gated_api.must_release(answer.json())
        pause(0.01, "between two grants")
    assert len(tokens) >= 10 and tokens == sorted(set(tokens))
    assert sorted(seconds)[len(seconds) // 2] < NODE_TIMEOUT and max(seconds) < 1.6 * NODE_TIMEOUT + 1, seconds
    held = gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    expect_problem(gated_api.acquire(resource), 423, "resource-locked")
    gated_api.must_release(held)
    eventually(
        lambda: count_holders(cluster.clients(), resource) == 0, 1.5, goal="no node holds it, long before its ttl"
    )
    expect_recovery(gates, module_gateway, resource, held["fencing_token"])


@pytest.mark.parametrize("count", [3, 5])
def test_replies_of_grant_lost_503_and_grant_is_undone(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str, count: int
) -> None:
    """A grant that the nodes executed and whose replies were lost is not reported as granted.
    Its keys are removed by the undo, not by the ttl, and its token is never granted again."""
    nodes = cluster.clients()
    before = gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    gated_api.must_release(before)
    for gate in gates[5 - count :]:
        gate.replies.discard = True
    began = time.monotonic()
    answer = gated_api.acquire(resource, ttl_ms=MAX_TTL_MS)
    problem = expect_problem(answer, 503, "no-quorum")
    assert answer.seconds < NODE_TIMEOUT + 1
    answers = {node["name"]: node["answer"] for node in problem["nodes"]}
    assert answers == {
        node.name: "granted" if number < 5 - count else "timeout" for number, node in enumerate(cluster.nodes)
    }
    eventually(
        lambda: count_holders(nodes, resource) == 0,
        max(0.3, began + MAX_TTL_MS / 1000 - 0.2 - time.monotonic()),
        goal="undone before the ttl",
    )
    executed = majority_counter(nodes, resource)
    assert executed > before["fencing_token"], "the nodes did not execute the grant"
    expect_recovery(gates, module_gateway, resource, executed)


def test_replies_and_undo_lost_resource_is_free_after_ttl(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str
) -> None:
    """Keys that no undo can reach expire with their ttl."""
    nodes = cluster.clients()
    for gate in gates[2:]:
        gate.replies.discard = True
    call = gated_api.begin_acquire(resource, ttl_ms=MAX_TTL_MS)
    eventually(lambda: count_holders(nodes, resource) == 5, NODE_TIMEOUT, interval=0.005, goal="executed on every node")
    for gate in gates[2:]:
        gate.requests.discard = True
    expect_problem(call.answer(), 503, "no-quorum")
    eventually(lambda: count_holders(nodes[:2], resource) == 0, 1, goal="undone where it could be")
    assert count_holders(nodes[2:], resource) == 3
    executed = majority_counter(nodes, resource)
    gates.clear_faults()
    lease = wait_for_grant_above(gated_api, resource, executed, timeout=MAX_TTL_MS / 1000 + 5)
    assert lease["fencing_token"] > executed
    module_gateway.wait_until_all_vote(15)


def test_replies_of_renewal_delayed_503_and_holder_keeps_lease(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str
) -> None:
    """Requests arrive, replies do not. The lease is not reported lost while the nodes have it,
    and the holder still has it once replies arrive again."""
    held = gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    for gate in gates[2:]:
        gate.replies.stalled = True
    expect_problem(gated_api.renew(held, MAX_TTL_MS), 503, "no-quorum")
    for gate in gates[2:]:
        gate.replies.stalled = False
    renewed = eventually(
        lambda: (answer := gated_api.renew(held, MAX_TTL_MS)).status != 503 and answer, 1, goal="replies arrive"
    )
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    expect_problem(gated_api.acquire(resource), 423, "resource-locked")
    gated_api.must_release(held)
    expect_recovery(gates, module_gateway, resource, held["fencing_token"])


def test_slow_nodes_ahead_in_epoch_lease_survives_lost_node(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str
) -> None:
    """The two nodes with the highest epochs answer in time but last.
    They too come to hold leases with the granted token, so that a lease on five nodes is not lost with one of them."""
    nodes = cluster.clients()
    by_epoch = nodes_by_epoch(module_gateway)
    for number in by_epoch[3:]:
        gates.members[number].replies.delay = 0.4 * NODE_TIMEOUT
    for _ in range(2):
        gated_api.must_release(gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS))
        eventually(lambda: count_holders(nodes, resource) == 0, 2, goal="released everywhere")
    held = gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    eventually(
        lambda: count_holders_of_token(nodes, resource, held["fencing_token"]) == 5,
        1,
        goal="all five hold it under its token",
    )
    gates.members[by_epoch[0]].black_hole()
    renewed = gated_api.renew(held, MAX_TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    gated_api.must_release(held)
    expect_recovery(gates, module_gateway, resource, held["fencing_token"])


@pytest.mark.parametrize(
    "way, rule",
    [("replies", random_limits(2_000, 30_000, 1)), ("requests", random_limits(12_000, 60_000, 2))],
    ids=["replies", "requests"],
)
def test_connections_cut_under_load_tokens_grow_and_no_key_stays(
    cluster: Cluster,
    gates: Gates,
    module_gateway: Gateway,
    gated_api: Api,
    unique_name: Callable[[str], str],
    way: str,
    rule: Callable[[], int],
) -> None:
    """For seconds every connection breaks after some thousand bytes, in the middle of a message.
    Incomplete replies and requests and reconnects never grant one token twice or one resource to two holders."""
    resources = [unique_name("test/cut") for _ in range(3)]
    before = sum(gate.cuts for gate in gates.members)
    with running_callers([gated_api, gated_api], resources, ttl_ms=300, wait_ms=200) as callers:
        for gate in gates.members:
            getattr(gate, way).cut_after = rule
        pause(3, "connections break meanwhile")
        eventually(lambda: sum(gate.cuts for gate in gates.members) >= before + 30, 30, goal="connections were cut")
        callers.wait_for_more(5)
        gates.clear_faults()
        callers.wait_for_more(3)
    assert callers.statuses() <= EXPECTED_STATUSES, callers.statuses()
    expect_growing(callers.grants())
    expect_exclusive(callers.grants())
    for resource in resources:
        expect_recovery(gates, module_gateway, resource, callers.highest_token(resource))
        eventually(
            lambda: count_holders(cluster.clients(), resource) == 0, MAX_TTL_MS / 1000 + 1, goal="nothing is left"
        )


def test_messages_sent_byte_by_byte_are_all_understood(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, resource: str
) -> None:
    """No message is parsed before it is complete: grants, renewals, refusals,
    and the first messages of a connection."""
    for gate in gates.members:
        gate.requests.single_bytes = gate.replies.single_bytes = True
    held = gated_api.must_acquire(resource, ttl_ms=MAX_TTL_MS)
    assert gated_api.renew(held, MAX_TTL_MS).status == 200
    assert gated_api.read_lease(held).status == 200
    waiter = gated_api.begin_acquire(resource, ttl_ms=MAX_TTL_MS, wait_ms=10_000)
    expect_problem(gated_api.acquire(resource), 423, "resource-locked")
    assert gated_api.renew(held, MAX_TTL_MS).status == 200
    gated_api.must_release(held)
    answer = waiter.answer()
    assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
    gated_api.must_release(answer.json())
    known = gates.members[0].accepted
    gates.members[0].cut()
    eventually(lambda: gates.members[0].accepted > known, 5, goal="it connects again")
    module_gateway.wait_until_all_vote(15)
    expect_recovery(gates, module_gateway, resource, answer.json()["fencing_token"])


def test_silent_subscription_is_opened_again_and_others_stay(
    cluster: Cluster, gates: Gates, module_gateway: Gateway
) -> None:
    """A network that loses everything without a reset, as a firewall that forgot the connection,
    ends no socket. The subscription to ends of leases, on which nothing arrives for hours otherwise, notices it;
    subscriptions to nodes that answer stay.
    """

    def subscribers(number: int) -> set[str]:
        return {client["id"] for client in cluster.clients()[number].client_list(_type="pubsub")}

    before = eventually(
        lambda: all(found := [subscribers(number) for number in range(5)]) and found,
        goal="each node has a subscription",
    )
    gates.members[0].replies.stalled = True
    eventually(lambda: before[0] - subscribers(0), 15, goal="the silent subscription ends")
    assert [before[number] - subscribers(number) for number in range(1, 5)] == [set()] * 4
    gates.clear_faults()
    eventually(lambda: len(subscribers(0)) == len(before[0]), 15, goal="it is opened again")
    module_gateway.wait_until_all_vote(15)


def test_node_flapping_causes_neither_errors_nor_waits(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, unique_name: Callable[[str], str]
) -> None:
    """One node is reachable for 100 ms and unreachable for 100 ms in turn.
    No call fails, and 99 % take less than the node timeout."""
    resources = [unique_name("test/flap") for _ in range(2)]
    flapping = gates.members[2]
    known = flapping.accepted
    with running_callers([gated_api], resources, ttl_ms=MAX_TTL_MS) as callers:
        until = time.monotonic() + 4
        while time.monotonic() < until or (len(callers.answers()) < 300 and time.monotonic() < until + 30):
            flapping.refuse()
            flapping.cut()
            pause(0.1, "down for a moment")
            flapping.accept()
            pause(0.1, "up for a moment")
    assert flapping.accepted > known + 3, "it never connected again"
    assert callers.statuses() == {201}, callers.statuses()
    assert {status for caller in callers.members for status in caller.releases} == {204}
    seconds = [answer.seconds for answer in callers.answers()]
    slow = [each for each in seconds if each >= NODE_TIMEOUT]
    assert len(seconds) >= 300 and len(slow) <= max(4, len(seconds) // 100), (len(seconds), slow)
    expect_growing(callers.grants())
    for resource in resources:
        expect_recovery(gates, module_gateway, resource, callers.highest_token(resource))


def test_gateways_with_one_common_node_grant_to_one_holder(
    cluster: Cluster, gates: Gates, module_gateway: Gateway, gated_api: Api, unique_name: Callable[[str], str]
) -> None:
    """Each gateway reaches three nodes, and only one of them is common to both: that with the lowest epoch,
    whose own counter is below the tokens of both.
    One common node is enough for tokens in real-time order and for one holder at a time."""
    resources = [unique_name("test/split") for _ in range(2)]
    with open_gates([node.port for node in cluster.nodes]) as other_gates:
        other_gateway = serve_through(cluster, other_gates)
        try:
            _, *other_nodes = nodes_by_epoch(module_gateway)
            for first, second in zip(other_nodes[:2], other_nodes[2:]):
                gates.members[first].black_hole()
                other_gates.members[second].black_hole()
            eventually(
                lambda: all(
                    [node["state"] for node in gateway.nodes()].count("voting") == 3
                    for gateway in (module_gateway, other_gateway)
                ),
                goal="each has three voting nodes",
            )
            for turns in (
                [gated_api, other_gateway.api] * 2,
                [other_gateway.api, gated_api] * 2,
            ):  # for a new resource each time, of which neither gateway has observed a token
                new_resource, tokens = unique_name("test/split"), []
                for api in turns:
                    lease = api.must_acquire(new_resource, ttl_ms=1_000, wait_ms=2_000)
                    tokens.append(lease["fencing_token"])
                    api.must_release(lease)
                assert tokens == sorted(set(tokens)), "a later grant by the other gateway has a lower token"
            with running_callers(
                [gated_api, other_gateway.api], resources, ttl_ms=500, wait_ms=2_000, hold=0.002
            ) as callers:
                callers.wait_for_more(10, 30)
            assert callers.statuses() <= EXPECTED_STATUSES, callers.statuses()
            expect_growing(callers.grants())
            expect_exclusive(callers.grants())
            gates.clear_faults()
            for resource in resources:
                expect_recovery(other_gates, other_gateway, resource, callers.highest_token(resource))
                expect_recovery(gates, module_gateway, resource, callers.highest_token(resource))
        finally:
            other_gateway.kill()
