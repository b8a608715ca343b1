"""Each hold of a re-entrant lease by its own lease_id: on different majorities, released twice, released with a seal."""

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
from support.tcp_gate import Gates, gates_before

TTL_MS = 20_000


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    """Nodes whose leases outlive the time that others of them are away."""
    with running(stack, f"hold_ids_{uuid.uuid4().hex[:6]}", max_ttl_ms=60_000) as made:
        yield made


@pytest.fixture(scope="module")
def gates(cluster: Cluster) -> Iterator[Gates]:
    with gates_before([node.port for node in cluster.nodes]) as made:
        yield made


@pytest.fixture(scope="module")
def behind_gates(cluster: Cluster, gates: Gates) -> Iterator[Gateway]:
    made = cluster.gateway(cluster.settings(ports=[gate.port for gate in gates.all]))
    made.start()
    made.wait_until_whole()
    yield made
    made.kill()


@contextmanager
def away(gates: Gates, gateway: Gateway, numbers: range) -> Iterator[None]:
    """The gateway cannot reach these nodes; afterwards all five vote again."""
    for number in numbers:
        gates.all[number].refuse()
        gates.all[number].cut()
    eventually(lambda: all(gateway.nodes()[number]["state"] == "unreachable" for number in numbers), 10, what="the nodes are away")
    yield
    for number in numbers:
        gates.all[number].accept()
    gateway.wait_until_whole(15)


def hold(api: Api, resource: str, owner: str = "same", ttl_ms: int = TTL_MS) -> Any:
    answer = api.ask(resource, owner=owner, ttl_ms=ttl_ms)
    assert answer.status in (200, 201), answer
    return answer.json()


def close_marks(stack: Stack, resource: str) -> list[str]:
    """The last line of the lease, CLOSE's mark, on each node."""
    return [node.get(f"fg:lease:{resource}").split("\1")[0].split("\n")[-1] for node in stack.nodes()]


def sealing(api: Api, lease: Any) -> Any:
    return api.call("DELETE", lease_path(lease) + "?seal=true")


def test_holds_on_other_majorities_when_two_released_then_third_stands(cluster: Cluster, gates: Gates, behind_gates: Gateway, resource: str) -> None:
    api = behind_gates.api
    first = hold(api, resource)
    with away(gates, behind_gates, range(3, 5)):
        second = hold(api, resource)
    with away(gates, behind_gates, range(0, 2)):
        third = hold(api, resource)
    assert len({lease["lease_id"] for lease in (first, second, third)}) == 3
    assert {lease["fencing_token"] for lease in (first, second, third)} == {first["fencing_token"]}
    for lease, left in ((first, 2), (second, 1), (second, 1), (first, 1)):
        answer = api.release(lease)
        assert (answer.status, answer.json()["hold_count"]) == (200, left), answer
    for _ in range(5):
        expect_problem(api.ask(resource, owner="rival", ttl_ms=TTL_MS), 423, "resource-locked")
    assert api.look(third).status == 200
    assert api.renew(third, TTL_MS).status == 200
    assert api.release(third).status == 204
    assert api.ask(resource, owner="rival", ttl_ms=TTL_MS).json()["fencing_token"] > third["fencing_token"]


def test_release_when_nodes_were_away_then_repeated_until_they_answer(cluster: Cluster, gates: Gates, behind_gates: Gateway, resource: str) -> None:
    api = behind_gates.api
    lease = hold(api, resource)
    eventually(lambda: len(lease_keys(cluster.clients(), resource)) == 5, what="the grant is on every node")
    with away(gates, behind_gates, range(3, 5)):
        assert api.release(lease).status == 204
        assert len(lease_keys(cluster.clients(), resource)) == 2
    eventually(lambda: not lease_keys(cluster.clients(), resource), 2, what="the release reaches the nodes that were away")


def test_release_twice_when_others_hold_then_only_its_own_goes(here: Api, there: Api, resource: str) -> None:
    first, second = hold(here, resource), hold(there, resource)
    for api in (here, there, here):
        answer = api.release(second)
        assert (answer.status, answer.json()["hold_count"]) == (200, 1), answer
    expect_problem(here.look(second), 410, "lease-lost")
    expect_problem(here.renew(second), 410, "lease-lost")
    assert here.look(first).json()["hold_count"] == 1
    here.give_back(first)
    expect_problem(here.release(second), 410, "lease-lost")


def test_holds_when_as_many_as_allowed_then_409_and_a_release_makes_room(here: Api, resource: str) -> None:
    with here.connection() as line:
        def ask() -> Any:
            return line.call("POST", "/v1/leases", {"resource": resource, "owner": "same", "ttl_ms": 20_000})

        holds = [ask().json() for _ in range(64)]
        assert holds[-1]["hold_count"] == 64
        refused = expect_problem(ask(), 409, "renewals-exhausted")
        assert "64 holds" in refused["detail"] and "renewal" not in refused["title"], refused
        assert here.release(holds[5]).json()["hold_count"] == 63
        assert ask().json()["hold_count"] == 64


def test_holds_when_taken_and_released_often_then_the_lease_stays_small(guarded_pair: Stack, here: Api, resource: str) -> None:
    """Tombstones have a limit: the oldest are dropped."""
    lease = here.take(resource, owner="same", ttl_ms=30_000)
    with here.connection() as line:
        for _ in range(150):
            inner = line.call("POST", "/v1/leases", {"resource": resource, "owner": "same", "ttl_ms": 20_000}).json()
            assert line.call("DELETE", lease_path(inner)).json()["hold_count"] == 1
    assert all(node.strlen(f"fg:lease:{resource}") < 2_000 for node in guarded_pair.nodes())
    assert here.look(lease).json()["hold_count"] == 1
    here.give_back(lease)


@pytest.mark.parametrize("how", ["release", "then"])
def test_seal_when_other_holds_are_left_then_not_sealed_and_said_so(stack: Stack, api: Api, sku: Any, how: str) -> None:
    first, second = hold(api, sku.resource), hold(api, sku.resource)
    if how == "release":
        answer = sealing(api, first)
    else:
        answer = api.write(first, sku.sell(1), then="release")
    assert answer.status == 200, answer
    assert (answer.json()["sealed"], answer.json()["hold_count"]) == (False, 1)
    assert api.write(second, sku.sell(1)).status == 200, "its token is not shut out"
    assert hold(api, sku.resource)["hold_count"] == 2, "and the lease is open to further holds"


@pytest.mark.parametrize("how", ["release", "then"])
def test_seal_when_it_is_the_last_hold_then_its_token_is_shut_out(stack: Stack, api: Api, sku: Any, how: str) -> None:
    first, second = hold(api, sku.resource), hold(api, sku.resource)
    api.release(first)
    if how == "release":
        assert sealing(api, second).status == 204
    else:
        done = api.wrote(second, sku.sell(1), then="release")
        assert done["released"] is True and "sealed" not in done
    expect_problem(api.write(second, sku.sell(1)), 412, "stale-fencing-token")


def test_seals_when_two_last_holds_end_at_once_then_sealed(stack: Stack, api: Api, sku: Any) -> None:
    """Neither is the last one when it looks; whichever proves to be seals behind its release."""
    for turn in range(8):
        leases = [hold(api, sku.resource) for _ in range(2)]
        with ThreadPoolExecutor(2) as callers:
            answers = list(callers.map(lambda lease: sealing(stack.api(), lease), leases))
        assert all(answer.status in (200, 204) for answer in answers), answers
        assert stack.query(f"select fencing.fence('{sku.resource}')")[0][0] == leases[0]["fencing_token"] + 1, (turn, answers)


def test_writes_when_two_last_holds_are_given_back_at_once_then_sealed(stack: Stack, api: Api, sku: Any) -> None:
    """Neither write finds itself the last one; behind which release the last hold went, that one seals."""
    for turn in range(8):
        leases = [hold(api, sku.resource) for _ in range(2)]
        note = {"update": "inventory", "where": {"sku": sku.name}, "set": {"note": f"turn {turn}"}}
        with ThreadPoolExecutor(2) as callers:
            answers = list(callers.map(lambda lease: stack.api().write(lease, note, then="release"), leases))
        assert [answer.status for answer in answers] == [200, 200], answers
        assert stack.query(f"select fencing.fence('{sku.resource}')")[0][0] == leases[0]["fencing_token"] + 1, (turn, answers)
        assert any(answer.json()["released"] and "sealed" not in answer.json() for answer in answers), (turn, answers)


def test_owner_when_a_silent_node_may_have_its_lease_then_503(behind_gates: Gateway, gates: Gates, resource: str) -> None:
    """Three nodes have the lease. While one of them is away nobody can tell whether a majority has; it is not another's."""
    with away(gates, behind_gates, range(3, 5)):
        first = hold(behind_gates.api, resource)
    with away(gates, behind_gates, range(2, 3)):
        refused = expect_problem(behind_gates.api.ask(resource, owner="same", ttl_ms=TTL_MS), 503, "no-quorum")
        assert [node["answer"] for node in refused["nodes"]].count("held by the caller") == 2, refused
        expect_problem(behind_gates.api.ask(resource, owner="other"), 423, "resource-locked")
    assert hold(behind_gates.api, resource)["hold_count"] == 2
    assert behind_gates.api.release(first).json()["hold_count"] == 1


def test_seal_when_the_write_fails_then_the_lease_takes_holds_again(stack: Stack, api: Api, sku: Any) -> None:
    lease = hold(api, sku.resource)
    failed = api.write(lease, {**sku.sell(1), "expect_rows": 7}, then="release")
    expect_problem(failed, 409, "expectation-failed")

    def another() -> Any:
        answer = api.ask(sku.resource, owner="same", ttl_ms=TTL_MS)
        return answer.json() if answer.status == 200 else None

    assert eventually(another, 2, what="another hold is given")["hold_count"] == 2


def test_hold_when_the_lease_is_closed_then_it_waits_as_for_anothers(stack: Stack, api: Api, sku: Any) -> None:
    """The write of the sealing release waits for a row that somebody else has locked."""
    lease = hold(api, sku.resource)
    sql = stack.sql()
    sql.autocommit = False
    sql.cursor().execute("select stock from inventory where sku = %s for update", [sku.name])
    writing = api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [sku.sell(1)], "then": "release"})
    eventually(lambda: all(close_marks(stack, sku.resource)), 5, what="every node has the mark")
    expect_problem(api.ask(sku.resource, owner="same", ttl_ms=TTL_MS), 423, "resource-locked")
    waiting = api.begin_ask(sku.resource, owner="same", ttl_ms=TTL_MS, wait_ms=10_000)
    sql.close()
    assert writing.answer().json()["released"] is True
    granted = waiting.answer()
    assert granted.status == 201 and granted.json()["fencing_token"] > lease["fencing_token"], granted
