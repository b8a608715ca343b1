"""Holds of a re-entrant lease, each with its own lease_id: on different majorities,
released twice, released with a seal."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
from support.api import Api, expect_problem, lease_path
from support.cluster import Cluster, Gateway, running
from support.polling import eventually
from support.stack import Stack, lease_keys
from support.tcp_gate import Gates, open_gates

TTL_MS = 20_000


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    """Nodes with a max_ttl_ms longer than the time for which a test makes some of them unreachable."""
    with running(stack, f"hold_ids_{uuid.uuid4().hex[:6]}", max_ttl_ms=60_000) as made:
        yield made


@pytest.fixture(scope="module")
def gates(cluster: Cluster) -> Iterator[Gates]:
    with open_gates([node.port for node in cluster.nodes]) as made:
        yield made


@pytest.fixture(scope="module")
def behind_gates(cluster: Cluster, gates: Gates) -> Iterator[Gateway]:
    with cluster.serving(cluster.settings(ports=[gate.port for gate in gates.members])) as made:
        made.wait_until_all_vote()
        yield made


@contextmanager
def unreachable(gates: Gates, gateway: Gateway, numbers: range) -> Iterator[None]:
    """Makes these nodes unreachable for the gateway while the block lasts; afterwards all five vote again."""
    for number in numbers:
        gates.members[number].refuse()
        gates.members[number].cut()
    eventually(
        lambda: all(gateway.nodes()[number]["state"] == "unreachable" for number in numbers),
        goal="the nodes are unreachable",
    )
    yield
    for number in numbers:
        gates.members[number].accept()
    gateway.wait_until_all_vote(15)


def acquire_hold(api: Api, resource: str, owner: str = "same", ttl_ms: int = TTL_MS) -> Any:
    answer = api.acquire(resource, owner=owner, ttl_ms=ttl_ms)
    assert answer.status in (200, 201), answer
    return answer.json()


def close_marks(stack: Stack, resource: str) -> list[str]:
    """Returns the CLOSE mark, the last line of the lease, on each node."""
    return [node.get(f"fg:lease:{resource}").split("\1")[0].split("\n")[-1] for node in stack.nodes()]


def release_with_seal(api: Api, lease: Any) -> Any:
    return api.call("DELETE", lease_path(lease) + "?seal=true")


def test_holds_on_other_majorities_survive_two_releases(
    cluster: Cluster, gates: Gates, behind_gates: Gateway, resource: str
) -> None:
    api = behind_gates.api
    first = acquire_hold(api, resource)
    with unreachable(gates, behind_gates, range(3, 5)):
        second = acquire_hold(api, resource)
    with unreachable(gates, behind_gates, range(0, 2)):
        third = acquire_hold(api, resource)
    assert len({lease["lease_id"] for lease in (first, second, third)}) == 3
    assert {lease["fencing_token"] for lease in (first, second, third)} == {first["fencing_token"]}
    for lease, left in ((first, 2), (second, 1), (second, 1), (first, 1)):
        answer = api.release(lease)
        assert (answer.status, answer.json()["hold_count"]) == (200, left), answer
    for _ in range(5):
        expect_problem(api.acquire(resource, owner="rival", ttl_ms=TTL_MS), 423, "resource-locked")
    assert api.read_lease(third).status == 200
    assert api.renew(third, TTL_MS).status == 200
    assert api.release(third).status == 204
    assert api.acquire(resource, owner="rival", ttl_ms=TTL_MS).json()["fencing_token"] > third["fencing_token"]


def test_release_is_repeated_until_absent_nodes_answer(
    cluster: Cluster, gates: Gates, behind_gates: Gateway, resource: str
) -> None:
    api = behind_gates.api
    lease = acquire_hold(api, resource)
    eventually(lambda: len(lease_keys(cluster.clients(), resource)) == 5, goal="the grant is on every node")
    with unreachable(gates, behind_gates, range(3, 5)):
        assert api.release(lease).status == 204
        assert len(lease_keys(cluster.clients(), resource)) == 2
    eventually(
        lambda: not lease_keys(cluster.clients(), resource),
        2,
        goal="the release reaches the nodes that were unreachable",
    )


def test_release_repeated_removes_only_its_own_hold(api_a: Api, api_b: Api, resource: str) -> None:
    first, second = acquire_hold(api_a, resource), acquire_hold(api_b, resource)
    for api in (api_a, api_b, api_a):
        answer = api.release(second)
        assert (answer.status, answer.json()["hold_count"]) == (200, 1), answer
    expect_problem(api_a.read_lease(second), 410, "lease-lost")
    expect_problem(api_a.renew(second), 410, "lease-lost")
    assert api_a.read_lease(first).json()["hold_count"] == 1
    api_a.must_release(first)
    expect_problem(api_a.release(second), 410, "lease-lost")


def test_holds_at_limit_409_until_one_is_released(api_a: Api, resource: str) -> None:
    with api_a.connection() as connection:

        def ask() -> Any:
            return connection.post("/v1/leases", {"resource": resource, "owner": "same", "ttl_ms": 20_000})

        holds = [ask().json() for _ in range(64)]
        assert holds[-1]["hold_count"] == 64
        refused = expect_problem(ask(), 409, "renewals-exhausted")
        assert "64 holds" in refused["detail"] and "renewal" not in refused["title"], refused
        assert api_a.release(holds[5]).json()["hold_count"] == 63
        assert ask().json()["hold_count"] == 64


def test_holds_taken_and_released_keep_lease_small(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    """The number of tombstones is limited: the oldest are dropped."""
    lease = api_a.must_acquire(resource, owner="same", ttl_ms=30_000)
    with api_a.connection() as connection:
        for _ in range(150):
            inner = connection.post("/v1/leases", {"resource": resource, "owner": "same", "ttl_ms": 20_000}).json()
            assert connection.call("DELETE", lease_path(inner)).json()["hold_count"] == 1
    assert all(node.strlen(f"fg:lease:{resource}") < 2_000 for node in guarded_pair.nodes())
    assert api_a.read_lease(lease).json()["hold_count"] == 1
    api_a.must_release(lease)


@pytest.mark.parametrize("release_by", ["release", "then"])
def test_seal_with_other_holds_left_is_refused_and_reported(stack: Stack, api: Api, sku: Any, release_by: str) -> None:
    first, second = acquire_hold(api, sku.resource), acquire_hold(api, sku.resource)
    if release_by == "release":
        answer = release_with_seal(api, first)
    else:
        answer = api.write(first, sku.sell(1), then="release")
    assert answer.status == 200, answer
    assert (answer.json()["sealed"], answer.json()["hold_count"]) == (False, 1)
    assert api.write(second, sku.sell(1)).status == 200, "its token is not stale"
    assert acquire_hold(api, sku.resource)["hold_count"] == 2, "and the lease is open to further holds"


@pytest.mark.parametrize("release_by", ["release", "then"])
def test_seal_with_last_hold_makes_token_stale(stack: Stack, api: Api, sku: Any, release_by: str) -> None:
    first, second = acquire_hold(api, sku.resource), acquire_hold(api, sku.resource)
    api.release(first)
    if release_by == "release":
        assert release_with_seal(api, second).status == 204
    else:
        done = api.must_write(second, sku.sell(1), then="release")
        assert done["released"] is True and "sealed" not in done
    expect_problem(api.write(second, sku.sell(1)), 412, "stale-fencing-token")


def test_seals_of_two_last_holds_at_once_raise_fence(stack: Stack, api: Api, sku: Any) -> None:
    """Neither release finds itself the last one beforehand; the one that was the last seals after its release."""
    for turn in range(8):
        leases = [acquire_hold(api, sku.resource) for _ in range(2)]
        with ThreadPoolExecutor(2) as callers:
            answers = list(callers.map(lambda lease: release_with_seal(stack.api(), lease), leases))
        assert all(answer.status in (200, 204) for answer in answers), answers
        assert stack.query(f"select fencing.fence('{sku.resource}')")[0][0] == leases[0]["fencing_token"] + 1, (
            turn,
            answers,
        )


def test_writes_releasing_two_last_holds_at_once_raise_fence(stack: Stack, api: Api, sku: Any) -> None:
    """Neither write finds itself the last one beforehand; the one whose release removed the last hold seals."""
    for turn in range(8):
        leases = [acquire_hold(api, sku.resource) for _ in range(2)]
        note = {"update": "inventory", "where": {"sku": sku.name}, "set": {"note": f"turn {turn}"}}
        with ThreadPoolExecutor(2) as callers:
            answers = list(callers.map(lambda lease: stack.api().write(lease, note, then="release"), leases))
        assert [answer.status for answer in answers] == [200, 200], answers
        assert stack.query(f"select fencing.fence('{sku.resource}')")[0][0] == leases[0]["fencing_token"] + 1, (
            turn,
            answers,
        )
        assert any(answer.json()["released"] and "sealed" not in answer.json() for answer in answers), (turn, answers)


def test_owner_with_silent_node_in_its_majority_503(behind_gates: Gateway, gates: Gates, resource: str) -> None:
    """Three nodes have the lease. While one of them is unreachable it is unknown whether a majority has it,
    and it is not the lease of another owner."""
    with unreachable(gates, behind_gates, range(3, 5)):
        first = acquire_hold(behind_gates.api, resource)
    with unreachable(gates, behind_gates, range(2, 3)):
        refused = expect_problem(behind_gates.api.acquire(resource, owner="same", ttl_ms=TTL_MS), 503, "no-quorum")
        assert [node["answer"] for node in refused["nodes"]].count("held by the caller") == 2, refused
        expect_problem(behind_gates.api.acquire(resource, owner="other"), 423, "resource-locked")
    assert acquire_hold(behind_gates.api, resource)["hold_count"] == 2
    assert behind_gates.api.release(first).json()["hold_count"] == 1


def test_seal_with_failed_write_allows_holds_again(stack: Stack, api: Api, sku: Any) -> None:
    lease = acquire_hold(api, sku.resource)
    failed = api.write(lease, {**sku.sell(1), "expect_rows": 7}, then="release")
    expect_problem(failed, 409, "expectation-failed")

    def another() -> Any:
        answer = api.acquire(sku.resource, owner="same", ttl_ms=TTL_MS)
        return answer.json() if answer.status == 200 else None

    assert eventually(another, 2, goal="another hold is given")["hold_count"] == 2


def test_hold_of_closed_lease_waits_like_another_owner(stack: Stack, api: Api, sku: Any) -> None:
    """The write of the sealing release waits for a row that another transaction has locked."""
    lease = acquire_hold(api, sku.resource)
    sql = stack.sql()
    sql.autocommit = False
    sql.cursor().execute("select stock from inventory where sku = %s for update", [sku.name])
    writing = api.begin(
        "POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [sku.sell(1)], "then": "release"}
    )
    eventually(lambda: all(close_marks(stack, sku.resource)), 5, goal="every node has the mark")
    expect_problem(api.acquire(sku.resource, owner="same", ttl_ms=TTL_MS), 423, "resource-locked")
    waiting = api.begin_acquire(sku.resource, owner="same", ttl_ms=TTL_MS, wait_ms=10_000)
    sql.close()
    assert writing.answer().json()["released"] is True
    granted = waiting.answer()
    assert granted.status == 201 and granted.json()["fencing_token"] > lease["fencing_token"], granted
