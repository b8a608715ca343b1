"""Redis nodes that hang, die and forget: what still works, what is refused, and that it heals."""

from __future__ import annotations

import signal
import time
from typing import Callable

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.polling import eventually, stays
from support.stack import Stack, lease_keys

NAMED_ANSWER = {"name", "answer"}


def take_and_release(api: Api, resource: str, times: int) -> tuple[list[int], list[float]]:
    """Tokens and the seconds that each grant took."""
    tokens, seconds = [], []
    for _ in range(times):
        answer = api.ask(resource, ttl_ms=MAX_TTL_MS)
        assert answer.status == 201, answer
        tokens.append(answer.json()["fencing_token"])
        seconds.append(answer.seconds)
        api.give_back(answer.json())
    return tokens, seconds


def whole(api: Api, resource: str, within: float) -> None:
    """Waits until all five nodes grant again."""

    def five() -> bool:
        answer = api.ask(resource, ttl_ms=MAX_TTL_MS, wait_ms=1_000)
        if answer.status != 201:
            return False
        lease = answer.json()
        count = eventually(lambda: api.look(lease), 1).json()["quorum"]["granted"]
        api.give_back(lease)
        return count == 5

    eventually(five, within, every=0.1, what="all five nodes grant")


# Nodes that hang: the process is there, the connection too, no answer comes.


@pytest.mark.parametrize("count", [1, 2])
def test_nodes_when_a_minority_hangs_then_grants_go_on_in_bounded_time(stack: Stack, api: Api, resource: str, count: int) -> None:
    stack.wait_until_whole()
    before = api.take(resource)
    api.give_back(before)
    with stack.frozen(stack.node_pids()[:count]):
        tokens, seconds = take_and_release(api, resource, 20)
        assert max(seconds) < 2, seconds
        assert sorted(seconds)[10] < 0.5, seconds
        expect_when_held = api.take(resource)
        expect_problem(api.ask(resource), 423, "resource-locked")
        assert api.renew(expect_when_held).status == 200
        assert api.look(expect_when_held).status == 200
        api.give_back(expect_when_held)
    assert [before["fencing_token"], *tokens] == sorted({before["fencing_token"], *tokens})
    whole(api, resource, 15)
    after, _ = take_and_release(api, resource, 5)
    assert after[0] > tokens[-1]


def test_nodes_when_three_hang_then_503_with_what_each_answered_and_soon(stack: Stack, api: Api, resource: str) -> None:
    before = api.take(resource)
    api.give_back(before)
    with stack.frozen(stack.node_pids()[2:]):
        for _ in range(3):
            answer = api.ask(resource, ttl_ms=5_000)
            problem = expect_problem(answer, 503, "no-quorum")
            assert answer.seconds < 3
            assert int(answer.headers["Retry-After"]) >= 1
            assert all(set(node) == NAMED_ANSWER for node in problem["nodes"])
            assert [node["name"] for node in problem["nodes"]] == [node["name"] for node in stack.facts["redis"]]
            assert all(isinstance(node["answer"], str) and node["answer"] for node in problem["nodes"])
            assert {node["answer"] for node in problem["nodes"][:2]}.isdisjoint({node["answer"] for node in problem["nodes"][2:]})
        eventually(lambda: not lease_keys(stack.nodes()[:2], resource), 3, what="the nodes that granted are cleaned up")
    eventually(lambda: api.get("/readyz").status == 200, 15, what="ready again")
    lease = eventually(lambda: (answer := api.ask(resource, wait_ms=1_000)).status == 201 and answer.json(), 15, what="granted again")
    assert lease["fencing_token"] > before["fencing_token"]
    api.give_back(lease)
    whole(api, resource, 15)


def test_readiness_when_three_hang_then_503_with_the_cause_and_back(stack: Stack, api: Api) -> None:
    with stack.frozen(stack.node_pids()[:3]):
        answer = eventually(lambda: (got := api.get("/readyz")).status == 503 and got, 15, what="not ready")
        assert expect_problem(answer, 503, "no-quorum")["detail"]
        assert api.get("/healthz").status == 200
    eventually(lambda: api.get("/readyz").status == 200, 15, what="ready again")


def test_lease_when_three_hang_then_no_call_claims_that_it_is_lost(stack: Stack, api: Api, resource: str) -> None:
    """No majority answers: nobody may say that the lease lives, and nobody that it does not."""
    lease = api.take(resource, ttl_ms=20_000)
    with stack.frozen(stack.node_pids()[:3]):
        for call in (api.look, api.renew, api.release):
            answer = call(lease)
            expect_problem(answer, 503, "no-quorum")
            assert answer.seconds < 3
    eventually(lambda: api.get("/readyz").status == 200, 15, what="ready again")
    assert api.get("/healthz").status == 200


def test_waiter_when_three_hang_meanwhile_then_503_not_silence(stack: Stack, api: Api, resource: str) -> None:
    stack.wait_until_whole()
    whole(api, f"{resource}-before", 15)
    held = api.take(resource, ttl_ms=500)
    waiter = api.begin_ask(resource, wait_ms=3_000)
    with stack.frozen(stack.node_pids()[:3]):
        answer = waiter.answer(8)
        assert answer.status in (423, 503), answer
    eventually(lambda: api.get("/readyz").status == 200, 15)
    assert eventually(lambda: (got := api.ask(resource, wait_ms=1_000)).status == 201 and got, 15).json()["fencing_token"] > held["fencing_token"]


def test_node_when_it_hangs_and_wakes_then_a_released_lease_does_not_come_back_to_block(stack: Stack, api: Api, resource: str) -> None:
    """Requests that a hanging node finds when it wakes were undone; a lease of theirs must not stay until its ttl."""
    stack.wait_until_whole()
    with stack.frozen(stack.node_pids()[:2]):
        for _ in range(5):
            api.give_back(api.take(resource, ttl_ms=60_000))
    whole(api, resource, 15)
    eventually(lambda: not lease_keys(stack.nodes(), resource), 5, what="no lease is left on any node")


# Nodes that lose their scripts


def test_scripts_when_flushed_on_every_node_then_nothing_is_noticed(stack: Stack, api: Api, resource: str) -> None:
    held = api.take(f"{resource}-held")
    for call in (lambda: api.ask(resource), lambda: api.renew(held), lambda: api.look(held), lambda: api.release(held)):
        for node in stack.nodes():
            node.script_flush()
        answer = call()
        assert answer.status in (200, 201, 204) and answer.seconds < 1, answer


# Nodes that die. The longest lease is 2 s here, which is how long a node sits out that may have forgotten.


def test_nodes_when_two_are_killed_then_grants_go_on_and_tokens_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    gateway.wait_until_whole()  # a majority makes it ready; two may be taken away only when all vote
    tokens, _ = take_and_release(gateway.api, resource, 5)
    for node in cluster.nodes[:2]:
        node.kill()
    more, seconds = take_and_release(gateway.api, resource, 20)
    assert max(seconds) < 2, seconds
    for node in cluster.nodes[:2]:
        node.start()
    whole(gateway.api, resource, 20)
    after, _ = take_and_release(gateway.api, resource, 5)
    assert tokens + more + after == sorted({*tokens, *more, *after})


def test_nodes_when_three_are_killed_then_503_and_after_their_restart_it_works_with_higher_tokens(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = take_and_release(gateway.api, resource, 5)
    for node in cluster.nodes[:3]:
        node.kill()
    answer = gateway.api.ask(resource)
    problem = expect_problem(answer, 503, "no-quorum")
    assert len(problem["nodes"]) == 5 and answer.seconds < 3
    for node in cluster.nodes[:3]:
        node.start()
    gateway.wait_until_ready()
    after, _ = take_and_release(gateway.api, resource, 5)
    assert tokens + after == sorted({*tokens, *after})


def test_nodes_when_each_in_turn_restarts_empty_then_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    """With counters on the nodes alone, the third restart would begin at 1 again."""
    gateway.wait_until_whole()  # one may be taken away from a bare majority only when the others vote
    last = 0
    for node in cluster.nodes:
        tokens, _ = take_and_release(gateway.api, resource, 4)
        node.restart_empty()
        more, _ = take_and_release(gateway.api, resource, 4)
        assert [last, *tokens, *more] == sorted({last, *tokens, *more}), f"after the restart of {node.name}"
        last = more[-1]
        whole(gateway.api, resource, 20)


def test_nodes_when_all_restart_empty_at_once_then_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = take_and_release(gateway.api, resource, 10)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    eventually(lambda: gateway.api.get("/readyz").status == 503, 5, what="it has noticed")
    gateway.wait_until_ready()
    after, _ = take_and_release(gateway.api, resource, 10)
    assert tokens + after == sorted({*tokens, *after})


def test_nodes_when_all_are_flushed_then_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = take_and_release(gateway.api, resource, 10)
    for node in cluster.clients():
        node.flushall()

    def granted() -> int:
        answer = gateway.api.ask(resource, ttl_ms=1_000, wait_ms=1_000)
        return answer.json()["fencing_token"] if answer.status == 201 else 0

    first = eventually(granted, 20, every=0.1, what="granted again")
    after = [first] + [eventually(granted, 5) for _ in range(3)]
    assert tokens + after == sorted({*tokens, *after})


def test_lease_when_held_while_a_minority_forgets_then_nobody_else_gets_it(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    """Two empty nodes and one hanging would make a majority with nobody to object, were the empty ones let vote at once."""
    asked = time.monotonic()
    held = gateway.api.take(resource, ttl_ms=2_000)
    granted_until = asked + held["validity_ms"] / 1000
    for node in cluster.nodes[:2]:
        node.restart_empty()
    processes.signal_all([cluster.nodes[2].pid], signal.SIGSTOP)
    try:
        while time.monotonic() < granted_until - 0.05:
            answer = gateway.api.ask(resource, ttl_ms=2_000)
            assert answer.status in (423, 503), f"{answer} while {held} is held"
    finally:
        processes.signal_all([cluster.nodes[2].pid], signal.SIGCONT)
    next_lease = eventually(lambda: (got := gateway.api.ask(resource, ttl_ms=1_000, wait_ms=1_000)).status == 201 and got, 15, what="granted again").json()
    assert next_lease["fencing_token"] > held["fencing_token"]


def test_gateway_when_killed_with_leases_out_then_the_next_one_waits_for_their_end(cluster: Cluster, resource: str) -> None:
    settings = cluster.settings()
    first = cluster.gateway(settings)
    first.start()
    held = first.api.take(resource, ttl_ms=2_000)
    first.kill()
    second = cluster.gateway(settings)
    second.start()
    answer = second.api.ask(resource, ttl_ms=1_000, wait_ms=5_000)
    assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
    assert second.stop() == 0


# dev restarts what dies


def test_node_of_dev_when_killed_then_it_comes_back_and_tokens_only_grow(own_stack: Stack, resource: str) -> None:
    api = own_stack.api()
    last = 0
    for index in range(2):
        tokens, _ = take_and_release(api, resource, 3)
        old = own_stack.kill_node(index)
        more, seconds = take_and_release(api, resource, 6)
        assert max(seconds) < 2
        assert [last, *tokens, *more] == sorted({last, *tokens, *more})
        last = more[-1]
        eventually(lambda: own_stack.node_pids()[index] != old and own_stack.nodes()[index].ping(), 10, what="the node is started again")
    assert take_and_release(api, resource, 3)[0][0] > last


def test_no_lease_key_without_an_end_when_all_this_was_done(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    api.take(fresh("test/ttl"))
    nodes = stack.nodes()
    stays(lambda: not [key for node in nodes for key in node.scan_iter(match="fg:lease:*", count=1000) if node.pttl(key) == -1], 0.3)


@pytest.mark.parametrize("kind", ["hash", "text"])
def test_key_when_it_is_no_lease_then_its_resource_is_taken_and_nobody_else_is_harmed(gateway: Gateway, cluster: Cluster, fresh: Callable[[str], str], kind: str) -> None:
    """Somebody's mistake: the key of a lease that holds something else, on every node, for ever."""
    gateway.wait_until_whole()
    api, name, other = gateway.api, fresh("no/lease"), fresh("other")
    for node in cluster.clients():
        node.hset(f"fg:lease:{name}", "a", "b") if kind == "hash" else node.set(f"fg:lease:{name}", "x")
    for _ in range(5):
        assert expect_problem(api.ask(name), 423, "resource-locked")["remaining_ms"] == MAX_TTL_MS
        expect_problem(api.call("POST", "/v1/leases", {"resources": [name, other]}), 423, "resource-locked")
        api.get("/v1/leases", resource_prefix="no/")
        api.get(f"/v1/resources/{name.replace('/', '%2F')}")
        take_and_release(api, other, 2)
    assert {node["state"] for node in gateway.nodes()} == {"voting"}
    for node in cluster.clients():
        node.delete(f"fg:lease:{name}")
    take_and_release(api, name, 1)


# What others wrote, and what a hand-over leaves behind.


@pytest.mark.parametrize("value", ["", "0" * 32, "x"], ids=["empty", "cut-off", "text"])
def test_leases_when_nodes_hold_a_foreign_value_then_others_are_granted(stack: Stack, api: Api, fresh: Callable[[str], str], value: str) -> None:
    """An empty value made the script fail, and with it every lease of the same call; the node lost its vote."""
    stack.wait_until_whole()
    odd = fresh("test/odd")
    for node in stack.nodes()[:3]:
        node.set(f"fg:lease:{odd}", value)
    try:
        calls = [api.begin_ask(name, ttl_ms=MAX_TTL_MS) for number in range(20) for name in (odd, fresh("test/other"))]
        answers = [call.answer() for call in calls]
        assert {answer.status for answer in answers[::2]} <= {423, 503}, [str(answer) for answer in answers]
        assert {answer.status for answer in answers[1::2]} <= {201, 503}, [str(answer) for answer in answers]
        # Nodes are late where the machine is busy, but not for all of them.
        assert {answer.status for answer in answers} >= {423, 201}, [str(answer) for answer in answers]
        assert [node["state"] for node in api.get("/v1/nodes").json()["nodes"]] == ["voting"] * 5
        assert odd not in str(api.get("/v1/leases", resource_prefix=odd).json()["items"])
    finally:
        for node in stack.nodes():
            node.delete(f"fg:lease:{odd}")
    assert api.ask(odd, ttl_ms=MAX_TTL_MS).status == 201


def test_hand_over_when_two_nodes_hang_then_the_old_lease_goes_there_too(stack: Stack, api: Api, resource: str, fresh: Callable[[str], str]) -> None:
    stack.wait_until_whole()
    held = api.take(resource, ttl_ms=20_000)
    eventually(lambda: len(lease_keys(stack.nodes(), resource)) == 5, what="the grant is on every node")
    hung = stack.nodes()[:2]
    with stack.frozen(stack.node_pids()[:2]):
        waiting = api.begin_ask(resource, ttl_ms=20_000, wait_ms=10_000)
        eventually(lambda: api.get("/v1/leases", resource_prefix=resource).json()["waiters"] == 1, what="one waits")
        take_and_release(api, fresh("test/other"), 3)  # from now on the two owe answers
        api.give_back(held)
        lease = waiting.answer().json()
    old = str(held["fencing_token"])
    eventually(lambda: all(f" {old} " not in (node.get(f"fg:lease:{resource}") or "") for node in hung), 5, what="the old lease is gone from the nodes that hung")
    assert api.look(lease).status == 200
    api.give_back(lease)
    whole(api, resource, 15)
