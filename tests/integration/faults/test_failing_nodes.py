"""Redis nodes that hang, end or lose data: what still works, what is refused, and that the cluster recovers."""

from __future__ import annotations

import time
from typing import Callable

import pytest
from support import processes
from support.api import Api, expect_problem
from support.cluster import MAX_TTL_MS, Cluster, Gateway, answers
from support.polling import eventually, remains
from support.stack import Stack, lease_keys

NAMED_ANSWER = {"name", "answer"}


def acquire_and_release(api: Api, resource: str, times: int) -> tuple[list[int], list[float]]:
    """Acquires and releases `times` times; returns the tokens, and the seconds that each grant took."""
    tokens, seconds = [], []
    for _ in range(times):
        answer = api.acquire(resource, ttl_ms=MAX_TTL_MS)
        assert answer.status == 201, answer
        tokens.append(answer.json()["fencing_token"])
        seconds.append(answer.seconds)
        api.must_release(answer.json())
    return tokens, seconds


def wait_until_five_grant(api: Api, resource: str, timeout: float) -> None:
    """Waits until all five nodes grant again."""

    def is_granted_by_five() -> bool:
        answer = api.acquire(resource, ttl_ms=MAX_TTL_MS, wait_ms=1_000)
        if answer.status != 201:
            return False
        lease = answer.json()
        count = eventually(lambda: api.read_lease(lease), 1).json()["quorum"]["granted"]
        api.must_release(lease)
        return count == 5

    eventually(is_granted_by_five, timeout, interval=0.1, goal="all five nodes grant")


# Nodes that hang: process and connections exist, but no answer comes.


@pytest.mark.parametrize("count", [1, 2])
def test_nodes_minority_hanging_shares_and_excludes(stack: Stack, api: Api, resource: str, count: int) -> None:
    stack.wait_until_all_vote()
    first = api.must_acquire(resource, mode="shared")
    with stack.frozen(stack.node_pids()[:count]):
        second = api.must_acquire(resource, mode="shared")
        expect_problem(api.acquire(resource), 423, "resource-locked")
        for lease in (first, second):
            assert api.renew(lease).status == 200
            api.must_release(lease)
        writer = api.must_acquire(resource)
        assert writer["fencing_token"] > max(first["fencing_token"], second["fencing_token"])
        expect_problem(api.acquire(resource, mode="shared"), 423, "resource-locked")
        api.must_release(writer)


@pytest.mark.parametrize("count", [1, 2])
def test_nodes_minority_hanging_grants_in_bounded_time(stack: Stack, api: Api, resource: str, count: int) -> None:
    stack.wait_until_all_vote()
    before = api.must_acquire(resource)
    api.must_release(before)
    with stack.frozen(stack.node_pids()[:count]):
        tokens, seconds = acquire_and_release(api, resource, 20)
        assert max(seconds) < 2, seconds
        assert sorted(seconds)[10] < 0.5, seconds
        held = api.must_acquire(resource)
        expect_problem(api.acquire(resource), 423, "resource-locked")
        assert api.renew(held).status == 200
        assert api.read_lease(held).status == 200
        api.must_release(held)
    assert [before["fencing_token"], *tokens] == sorted({before["fencing_token"], *tokens})
    wait_until_five_grant(api, resource, 15)
    after, _ = acquire_and_release(api, resource, 5)
    assert after[0] > tokens[-1]


def test_nodes_majority_hanging_503_with_answer_of_each(stack: Stack, api: Api, resource: str) -> None:
    before = api.must_acquire(resource)
    api.must_release(before)
    with stack.frozen(stack.node_pids()[2:]):
        for _ in range(3):
            answer = api.acquire(resource, ttl_ms=5_000)
            problem = expect_problem(answer, 503, "no-quorum")
            assert answer.seconds < 3
            assert int(answer.headers["Retry-After"]) >= 1
            assert all(set(node) == NAMED_ANSWER for node in problem["nodes"])
            assert [node["name"] for node in problem["nodes"]] == [node["name"] for node in stack.facts["redis"]]
            assert all(isinstance(node["answer"], str) and node["answer"] for node in problem["nodes"])
            assert {node["answer"] for node in problem["nodes"][:2]}.isdisjoint(
                {node["answer"] for node in problem["nodes"][2:]}
            )
        eventually(lambda: not lease_keys(stack.nodes()[:2], resource), 3, goal="the nodes that granted are cleaned up")
    eventually(lambda: api.get("/readyz").status == 200, 15, goal="ready again")
    lease = eventually(
        lambda: (answer := api.acquire(resource, wait_ms=1_000)).status == 201 and answer.json(),
        15,
        goal="granted again",
    )
    assert lease["fencing_token"] > before["fencing_token"]
    api.must_release(lease)
    wait_until_five_grant(api, resource, 15)


def test_readiness_majority_hanging_503_until_they_answer(stack: Stack, api: Api) -> None:
    with stack.frozen(stack.node_pids()[:3]):
        answer = eventually(lambda: (answer := api.get("/readyz")).status == 503 and answer, 15, goal="not ready")
        assert expect_problem(answer, 503, "no-quorum")["detail"]
        assert api.get("/healthz").status == 200
    eventually(lambda: api.get("/readyz").status == 200, 15, goal="ready again")


def test_lease_majority_hanging_is_not_reported_lost(stack: Stack, api: Api, resource: str) -> None:
    """Without answers of a majority nothing is known of the lease: no call may report it as held or as lost."""
    lease = api.must_acquire(resource, ttl_ms=20_000)
    with stack.frozen(stack.node_pids()[:3]):
        for call in (api.read_lease, api.renew, api.release):
            answer = call(lease)
            expect_problem(answer, 503, "no-quorum")
            assert answer.seconds < 3
    eventually(lambda: api.get("/readyz").status == 200, 15, goal="ready again")
    assert api.get("/healthz").status == 200


def test_waiter_majority_hanging_gets_answer_in_time(stack: Stack, api: Api, resource: str) -> None:
    stack.wait_until_all_vote()
    wait_until_five_grant(api, f"{resource}-before", 15)
    held = api.must_acquire(resource, ttl_ms=2_000)
    waiter = api.begin_acquire(resource, wait_ms=4_000)
    with stack.frozen(stack.node_pids()[:3]):
        answer = waiter.answer(12)
        assert answer.status in (423, 503), answer
    eventually(lambda: api.get("/readyz").status == 200, 15)
    assert (
        eventually(lambda: (answer := api.acquire(resource, wait_ms=1_000)).status == 201 and answer, 15).json()[
            "fencing_token"
        ]
        > held["fencing_token"]
    )


def test_node_resuming_does_not_restore_released_lease(stack: Stack, api: Api, resource: str) -> None:
    """A node that resumes executes requests that were undone meanwhile; their leases must not last until the ttl."""
    stack.wait_until_all_vote()
    with stack.frozen(stack.node_pids()[:2]):
        for _ in range(5):
            api.must_release(api.must_acquire(resource, ttl_ms=60_000))
    wait_until_five_grant(api, resource, 15)
    eventually(lambda: not lease_keys(stack.nodes(), resource), 5, goal="no lease is left on any node")


# Nodes that lose their scripts


def test_scripts_flushed_on_every_node_are_loaded_again(stack: Stack, api: Api, resource: str) -> None:
    held = api.must_acquire(f"{resource}-held")
    for call in (
        lambda: api.acquire(resource),
        lambda: api.renew(held),
        lambda: api.read_lease(held),
        lambda: api.release(held),
    ):
        for node in stack.nodes():
            node.script_flush()
        answer = call()
        assert answer.status in (200, 201, 204) and answer.seconds < 3, answer


# Nodes that end. max_ttl_ms is 2 s here, which is also how long a node is quarantined.


def test_nodes_two_killed_grants_continue_and_tokens_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    gateway.wait_until_all_vote()  # two nodes may be stopped only when all vote
    tokens, _ = acquire_and_release(gateway.api, resource, 5)
    for node in cluster.nodes[:2]:
        node.kill()
    later_tokens, seconds = acquire_and_release(gateway.api, resource, 20)
    assert max(seconds) < 2, seconds
    for node in cluster.nodes[:2]:
        node.start()
    wait_until_five_grant(gateway.api, resource, 20)
    after, _ = acquire_and_release(gateway.api, resource, 5)
    assert tokens + later_tokens + after == sorted({*tokens, *later_tokens, *after})


def test_nodes_three_killed_503_and_higher_tokens_later(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = acquire_and_release(gateway.api, resource, 5)
    for node in cluster.nodes[:3]:
        node.kill()
    answer = gateway.api.acquire(resource)
    problem = expect_problem(answer, 503, "no-quorum")
    assert len(problem["nodes"]) == 5 and answer.seconds < 3
    for node in cluster.nodes[:3]:
        node.start()
    gateway.wait_until_ready()
    after, _ = acquire_and_release(gateway.api, resource, 5)
    assert tokens + after == sorted({*tokens, *after})


def test_nodes_restarted_empty_in_turn_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    """With counters on the nodes alone and no epochs, tokens would begin at 1 again after the third restart."""
    gateway.wait_until_all_vote()  # a node may be stopped only when all vote
    last = 0
    for node in cluster.nodes:
        tokens, _ = acquire_and_release(gateway.api, resource, 4)
        node.restart_empty()
        later_tokens, _ = acquire_and_release(gateway.api, resource, 4)
        assert [last, *tokens, *later_tokens] == sorted(
            {last, *tokens, *later_tokens}
        ), f"after the restart of {node.name}"
        last = later_tokens[-1]
        wait_until_five_grant(gateway.api, resource, 20)


def test_nodes_restarted_empty_at_once_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = acquire_and_release(gateway.api, resource, 10)
    for node in cluster.nodes:
        node.kill()
    eventually(lambda: gateway.api.get("/readyz").status == 503, 15, goal="the gateway notices")
    for node in cluster.nodes:
        node.start()
    gateway.wait_until_ready()
    after, _ = acquire_and_release(gateway.api, resource, 10)
    assert tokens + after == sorted({*tokens, *after})


def test_nodes_flushed_tokens_only_grow(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    tokens, _ = acquire_and_release(gateway.api, resource, 10)
    for node in cluster.clients():
        node.flushall()

    def granted() -> int:
        answer = gateway.api.acquire(resource, ttl_ms=1_000, wait_ms=1_000)
        return answer.json()["fencing_token"] if answer.status == 201 else 0

    first = eventually(granted, 20, interval=0.1, goal="granted again")
    after = [first] + [eventually(granted, 5) for _ in range(3)]
    assert tokens + after == sorted({*tokens, *after})


def test_lease_forgotten_by_minority_stays_exclusive(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    """If the two empty nodes voted at once, they and a hanging third one would be a majority that knows of no lease."""
    asked = time.monotonic()
    held = gateway.api.must_acquire(resource, ttl_ms=2_000)
    granted_until = asked + held["validity_ms"] / 1000
    for node in cluster.nodes[:2]:
        node.restart_empty()
    with processes.suspended([cluster.nodes[2].pid]):
        while time.monotonic() < granted_until - 0.05:
            answer = gateway.api.acquire(resource, ttl_ms=2_000)
            assert answer.status in (423, 503), f"{answer} while {held} is held"
    next_lease = eventually(
        lambda: (answer := gateway.api.acquire(resource, ttl_ms=1_000, wait_ms=1_000)).status == 201 and answer,
        15,
        goal="granted again",
    ).json()
    assert next_lease["fencing_token"] > held["fencing_token"]


def test_gateway_killed_next_waits_for_end_of_its_leases(cluster: Cluster, resource: str) -> None:
    second, held = cluster.successor_of_killed(resource, ttl_ms=2_000)
    answer = second.api.acquire(resource, ttl_ms=1_000, wait_ms=5_000)
    assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
    assert second.stop() == 0


# Nodes that dev restarts


def test_dev_killed_node_is_restarted_and_tokens_only_grow(own_stack: Stack, resource: str) -> None:
    api = own_stack.api()
    last = 0
    for index in range(2):
        tokens, _ = acquire_and_release(api, resource, 3)
        old = own_stack.kill_node(index)
        later_tokens, seconds = acquire_and_release(api, resource, 6)
        assert max(seconds) < 2
        assert [last, *tokens, *later_tokens] == sorted({last, *tokens, *later_tokens})
        last = later_tokens[-1]
        eventually(
            lambda: own_stack.node_pids()[index] != old and answers(own_stack.nodes()[index]),
            goal="the node is started again",
        )
    assert acquire_and_release(api, resource, 3)[0][0] > last


def test_lease_keys_always_have_ttl(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    api.must_acquire(unique_name("test/ttl"))
    nodes = stack.nodes()
    remains(
        lambda: not [
            key for node in nodes for key in node.scan_iter(match="fg:lease:*", count=1000) if node.pttl(key) == -1
        ],
        0.3,
    )


@pytest.mark.parametrize("kind", ["hash", "text"])
def test_foreign_type_in_lease_key_harms_no_other_resource(
    gateway: Gateway, cluster: Cluster, unique_name: Callable[[str], str], kind: str
) -> None:
    """The key of a lease has a value of another type, on every node and without a ttl."""
    gateway.wait_until_all_vote()
    api, name, other_name = gateway.api, unique_name("no/lease"), unique_name("other")
    for node in cluster.clients():
        node.hset(f"fg:lease:{name}", "a", "b") if kind == "hash" else node.set(f"fg:lease:{name}", "x")
    for _ in range(5):
        assert expect_problem(api.acquire(name), 423, "resource-locked")["remaining_ms"] == MAX_TTL_MS
        expect_problem(api.post("/v1/leases", {"resources": [name, other_name]}), 423, "resource-locked")
        api.get("/v1/leases", resource_prefix="no/")
        api.get(f"/v1/resources/{name.replace('/', '%2F')}")
        acquire_and_release(api, other_name, 2)
    assert {node["state"] for node in gateway.nodes()} == {"voting"}
    for node in cluster.clients():
        node.delete(f"fg:lease:{name}")
    acquire_and_release(api, name, 1)


# Foreign values, and hand-over with hanging nodes


@pytest.mark.parametrize("value", ["", "0" * 32, "x"], ids=["empty", "cut-off", "text"])
def test_foreign_value_in_lease_key_allows_other_grants(
    stack: Stack, api: Api, unique_name: Callable[[str], str], value: str
) -> None:
    """An empty value once made the script fail for every lease of the same script call, and the node stopped voting."""
    stack.wait_until_all_vote()
    odd = unique_name("test/odd")
    for node in stack.nodes()[:3]:
        node.set(f"fg:lease:{odd}", value)
    try:
        calls = [
            api.begin_acquire(name, ttl_ms=MAX_TTL_MS)
            for number in range(20)
            for name in (odd, unique_name("test/other"))
        ]
        answers = [call.answer() for call in calls]
        assert {answer.status for answer in answers[::2]} <= {423, 503}, [str(answer) for answer in answers]
        assert {answer.status for answer in answers[1::2]} <= {201, 503}, [str(answer) for answer in answers]
        # On a busy machine nodes may be late, but not for every call.
        assert {answer.status for answer in answers} >= {423, 201}, [str(answer) for answer in answers]
        assert [node["state"] for node in api.get("/v1/nodes").json()["nodes"]] == ["voting"] * 5
        assert odd not in str(api.get("/v1/leases", resource_prefix=odd).json()["items"])
    finally:
        for node in stack.nodes():
            node.delete(f"fg:lease:{odd}")
    assert api.acquire(odd, ttl_ms=MAX_TTL_MS).status == 201


def test_hand_over_replaces_old_lease_on_hanging_nodes(
    stack: Stack, api: Api, resource: str, unique_name: Callable[[str], str]
) -> None:
    stack.wait_until_all_vote()
    held = api.must_acquire(resource, ttl_ms=20_000)
    eventually(lambda: len(lease_keys(stack.nodes(), resource)) == 5, goal="the grant is on every node")
    hung = stack.nodes()[:2]
    with stack.frozen(stack.node_pids()[:2]):
        waiting = api.begin_acquire(resource, ttl_ms=20_000, wait_ms=10_000)
        eventually(lambda: api.get("/v1/leases", resource_prefix=resource).json()["waiters"] == 1, goal="one waits")
        acquire_and_release(api, unique_name("test/other"), 3)  # from now on the two nodes have unanswered requests
        api.must_release(held)
        lease = waiting.answer().json()
    old = str(held["fencing_token"])
    eventually(
        lambda: all(f" {old} " not in (node.get(f"fg:lease:{resource}") or "") for node in hung),
        5,
        goal="the old lease is gone from the nodes that hung",
    )
    assert api.read_lease(lease).status == 200
    api.must_release(lease)
    wait_until_five_grant(api, resource, 15)
