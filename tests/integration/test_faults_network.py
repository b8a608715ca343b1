"""The network between a gateway and its nodes: late, one-sided, torn, in pieces. Each test ends in recovery."""

from __future__ import annotations

import time
from typing import Callable, Iterator

import pytest
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.faults import CLEAN_ANSWERS, calling, counted_up_to, expect_exclusive, expect_growing, granted_again, holders, holders_under
from support.polling import eventually, let_pass
from support.tcp_gate import Gates, between, gates_before

NODE_TIMEOUT = 0.5


def serve_through(cluster: Cluster, gates: Gates) -> Gateway:
    settings = cluster.settings(ports=[gate.port for gate in gates.all])
    settings["redis"]["node_timeout_ms"] = int(1000 * NODE_TIMEOUT)
    made = cluster.gateway(settings)
    made.start()
    made.wait_until_whole()
    return made


@pytest.fixture(scope="module")
def line(cluster: Cluster) -> Iterator[Gates]:
    with gates_before([node.port for node in cluster.nodes]) as made:
        yield made


@pytest.fixture(scope="module")
def served(cluster: Cluster, line: Gates) -> Iterator[Gateway]:
    made = serve_through(cluster, line)
    yield made
    made.kill()


@pytest.fixture
def gates(line: Gates, served: Gateway) -> Iterator[Gates]:
    """All of them open, before the test and after it."""
    served.wait_until_whole()
    yield line
    line.heal()


@pytest.fixture
def far(served: Gateway) -> Api:
    """The gateway that reaches its nodes through the gates only."""
    return served.api


def nodes_by_epoch(gateway: Gateway) -> list[int]:
    """Their numbers; the one with the lowest epoch first."""
    epochs = [node["epoch"] for node in gateway.nodes()]
    return sorted(range(5), key=epochs.__getitem__)


def recovers(gates: Gates, gateway: Gateway, resource: str, above: int) -> None:
    """Healed, it grants within 15 s with a token above all before, and every node takes part again."""
    gates.heal()
    granted_again(gateway.api, resource, above)
    gateway.wait_until_whole(15)


def test_replies_when_two_nodes_send_them_after_the_node_timeout_then_grants_go_on_without_them(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str) -> None:
    """Proves that a slow minority costs neither an error nor its delay, and that what it executed late is taken back."""
    for gate in gates[:2]:
        gate.replies.delay = 1.6 * NODE_TIMEOUT
    tokens, seconds = [], []
    until = time.monotonic() + 5 * NODE_TIMEOUT  # over and over: in time, overdue, answered late, asked again
    while time.monotonic() < until:
        answer = far.ask(resource, ttl_ms=MAX_TTL_MS)
        assert answer.status == 201, answer
        tokens.append(answer.json()["fencing_token"])
        seconds.append(answer.seconds)
        far.give_back(answer.json())
        let_pass(0.01, "between two grants")
    assert len(tokens) >= 10 and tokens == sorted(set(tokens))
    assert sorted(seconds)[len(seconds) // 2] < NODE_TIMEOUT and max(seconds) < 1.6 * NODE_TIMEOUT + 1, seconds
    held = far.take(resource, ttl_ms=MAX_TTL_MS)
    expect_problem(far.ask(resource), 423, "resource-locked")
    far.give_back(held)
    eventually(lambda: holders(cluster.clients(), resource) == 0, 1.5, what="no node holds it, long before its ttl")
    recovers(gates, served, resource, held["fencing_token"])


@pytest.mark.parametrize("count", [3, 5])
def test_grant_when_its_replies_are_lost_then_503_with_what_each_answered_and_it_is_undone(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str, count: int) -> None:
    """Proves that a grant which the nodes executed and nobody heard of is called no grant, that its keys go by the undo
    and not by the ttl, and that its token is never given again."""
    nodes = cluster.clients()
    before = far.take(resource, ttl_ms=MAX_TTL_MS)
    far.give_back(before)
    for gate in gates[5 - count:]:
        gate.replies.swallow = True
    began = time.monotonic()
    answer = far.ask(resource, ttl_ms=MAX_TTL_MS)
    problem = expect_problem(answer, 503, "no-quorum")
    assert answer.seconds < NODE_TIMEOUT + 1
    answers = {node["name"]: node["answer"] for node in problem["nodes"]}
    assert answers == {node.name: "granted" if number < 5 - count else "timeout" for number, node in enumerate(cluster.nodes)}
    eventually(lambda: holders(nodes, resource) == 0, max(0.3, began + MAX_TTL_MS / 1000 - 0.2 - time.monotonic()), what="undone before the ttl")
    executed = counted_up_to(nodes, resource)
    assert executed > before["fencing_token"], "the nodes did not execute what was to be lost"
    recovers(gates, served, resource, executed)


def test_grant_when_its_replies_and_its_undo_are_lost_then_free_after_the_ttl_with_a_higher_token(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str) -> None:
    """Proves that keys which no undo can reach end with their ttl, whatever the gateway that wrote them believes."""
    nodes = cluster.clients()
    for gate in gates[2:]:
        gate.replies.swallow = True
    call = far.begin_ask(resource, ttl_ms=MAX_TTL_MS)
    eventually(lambda: holders(nodes, resource) == 5, NODE_TIMEOUT, every=0.005, what="executed on every node")
    for gate in gates[2:]:
        gate.requests.swallow = True
    expect_problem(call.answer(), 503, "no-quorum")
    eventually(lambda: holders(nodes[:2], resource) == 0, 1, what="undone where it could be")
    assert holders(nodes[2:], resource) == 3
    executed = counted_up_to(nodes, resource)
    gates.heal()
    lease = granted_again(far, resource, executed, within=MAX_TTL_MS / 1000 + 5)
    assert lease["fencing_token"] > executed
    served.wait_until_whole(15)


def test_renewal_when_its_replies_are_held_back_then_503_and_the_lease_is_still_the_holders(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str) -> None:
    """Requests pass, answers do not. Proves that nobody is told that his lease is lost while the nodes keep it, and that
    it is his without a gap once answers come again."""
    held = far.take(resource, ttl_ms=MAX_TTL_MS)
    for gate in gates[2:]:
        gate.replies.hold = True
    expect_problem(far.renew(held, MAX_TTL_MS), 503, "no-quorum")
    for gate in gates[2:]:
        gate.replies.hold = False
    renewed = eventually(lambda: (got := far.renew(held, MAX_TTL_MS)).status != 503 and got, 1, what="answers come")
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    expect_problem(far.ask(resource), 423, "resource-locked")
    far.give_back(held)
    recovers(gates, served, resource, held["fencing_token"])


def test_lease_when_two_slower_nodes_are_ahead_in_epochs_then_it_survives_the_loss_of_a_third(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str) -> None:
    """The two nodes that were let in last, and so have the highest epochs, answer in time but last. Proves that they come
    to hold leases under their token too, so that a lease granted by five nodes is not lost with one of them."""
    nodes = cluster.clients()
    by_epoch = nodes_by_epoch(served)
    for number in by_epoch[3:]:
        gates.all[number].replies.delay = 0.4 * NODE_TIMEOUT
    for _ in range(2):
        far.give_back(far.take(resource, ttl_ms=MAX_TTL_MS))
        eventually(lambda: holders(nodes, resource) == 0, 2, what="released everywhere")
    held = far.take(resource, ttl_ms=MAX_TTL_MS)
    eventually(lambda: holders_under(nodes, resource, held["fencing_token"]) == 5, 1, what="all five hold it under its token")
    gates.all[by_epoch[0]].black_hole()
    renewed = far.renew(held, MAX_TTL_MS)
    assert renewed.status == 200 and renewed.json()["fencing_token"] == held["fencing_token"], renewed
    far.give_back(held)
    recovers(gates, served, resource, held["fencing_token"])


@pytest.mark.parametrize("way, rule", [("replies", between(2_000, 30_000, 1)), ("requests", between(12_000, 60_000, 2))], ids=["replies", "requests"])
def test_connections_when_cut_in_the_middle_under_load_then_tokens_grow_and_nothing_stays(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, fresh: Callable[[str], str], way: str, rule: Callable[[], int]) -> None:
    """Every connection breaks after some thousand bytes, in the middle of a message, for seconds. Proves that torn
    replies, requests half sent and reconnects never give a token twice or a resource to two."""
    resources = [fresh("test/cut") for _ in range(3)]
    before = sum(gate.cuts for gate in gates.all)
    with calling([far, far], resources, ttl_ms=300, wait_ms=200) as callers:
        for gate in gates.all:
            getattr(gate, way).cut_after = rule
        let_pass(3, "connections break meanwhile")
        eventually(lambda: sum(gate.cuts for gate in gates.all) >= before + 30, 30, what="connections were cut")
        callers.more(5)
        gates.heal()
        callers.more(3)
    assert callers.statuses() <= CLEAN_ANSWERS, callers.statuses()
    expect_growing(callers.grants())
    expect_exclusive(callers.grants())
    for resource in resources:
        recovers(gates, served, resource, callers.highest(resource))
        eventually(lambda: holders(cluster.clients(), resource) == 0, MAX_TTL_MS / 1000 + 1, what="nothing is left")


def test_bytes_when_they_come_one_by_one_then_every_call_works(cluster: Cluster, gates: Gates, served: Gateway, far: Api, resource: str) -> None:
    """Proves that no message is taken for whole before it is: grants, renewals, refusals, and a connection's first words."""
    for gate in gates.all:
        gate.requests.slices = gate.replies.slices = True
    held = far.take(resource, ttl_ms=MAX_TTL_MS)
    assert far.renew(held, MAX_TTL_MS).status == 200
    assert far.look(held).status == 200
    waiter = far.begin_ask(resource, ttl_ms=MAX_TTL_MS, wait_ms=10_000)
    expect_problem(far.ask(resource), 423, "resource-locked")
    far.give_back(held)
    answer = waiter.answer()
    assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
    far.give_back(answer.json())
    known = gates.all[0].accepted
    gates.all[0].cut()
    eventually(lambda: gates.all[0].accepted > known, 5, what="it connects again")
    served.wait_until_whole(15)
    recovers(gates, served, resource, answer.json()["fencing_token"])


def test_node_when_it_flaps_then_no_errors_and_nobody_waits_for_it(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, fresh: Callable[[str], str]) -> None:
    """One node is there for 100 ms and gone for 100 ms. Proves that its coming and going costs no call its answer, and
    none of a hundred more than the node timeout."""
    resources = [fresh("test/flap") for _ in range(2)]
    flapping = gates.all[2]
    known = flapping.accepted
    with calling([far], resources, ttl_ms=1_000) as callers:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            flapping.refuse()
            flapping.cut()
            let_pass(0.1, "down for a moment")
            flapping.accept()
            let_pass(0.1, "up for a moment")
    assert flapping.accepted > known + 3, "it never came back"
    assert callers.statuses() == {201}, callers.statuses()
    assert {status for caller in callers.all for status in caller.releases} == {204}
    seconds = sorted(answer.seconds for answer in callers.answers())
    assert len(seconds) >= 100 and seconds[len(seconds) * 99 // 100] < NODE_TIMEOUT, seconds[-5:]
    expect_growing(callers.grants())
    for resource in resources:
        recovers(gates, served, resource, callers.highest(resource))


def test_gateways_when_each_reaches_other_three_nodes_then_both_grant_one_at_a_time(
        cluster: Cluster, gates: Gates, served: Gateway, far: Api, fresh: Callable[[str], str]) -> None:
    """Each gateway reaches three nodes, and only one of them is common to both: that with the lowest epoch, so that by its
    own count it could tell neither of the other's tokens. Proves that one common node is enough for tokens in real-time
    order and for one holder at a time."""
    resources = [fresh("test/split") for _ in range(2)]
    with gates_before([node.port for node in cluster.nodes]) as other_gates:
        other = serve_through(cluster, other_gates)
        try:
            _, *rest = nodes_by_epoch(served)
            for one, two in zip(rest[:2], rest[2:]):
                gates.all[one].black_hole()
                other_gates.all[two].black_hole()
            eventually(lambda: all([node["state"] for node in gateway.nodes()].count("voting") == 3 for gateway in (served, other)), 10,
                       what="each knows of three nodes")
            for turns in ([far, other.api] * 2, [other.api, far] * 2):  # before either can know the count by heart
                unheard, tokens = fresh("test/split"), []
                for api in turns:
                    lease = api.take(unheard, ttl_ms=1_000, wait_ms=2_000)
                    tokens.append(lease["fencing_token"])
                    api.give_back(lease)
                assert tokens == sorted(set(tokens)), "a later grant by the other gateway has a lower token"
            with calling([far, other.api], resources, ttl_ms=500, wait_ms=2_000, hold=0.002) as callers:
                callers.more(10, 30)
            assert callers.statuses() <= CLEAN_ANSWERS, callers.statuses()
            expect_growing(callers.grants())
            expect_exclusive(callers.grants())
            gates.heal()
            for resource in resources:
                recovers(other_gates, other, resource, callers.highest(resource))
                recovers(gates, served, resource, callers.highest(resource))
        finally:
            other.kill()
