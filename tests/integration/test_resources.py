"""GET /v1/resources/{resource}: what is known of a resource, and the story of one token."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from support.api import Api, Json, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack


def look(api: Api, resource: str, **query: object) -> Any:
    return api.get(f"/v1/resources/{urllib.parse.quote(resource, safe='')}", **query)


def story(api: Api, resource: str, token: int, end: str, within: float = 10) -> Json:
    """Once it says how it ended; lease events come a moment late."""

    def told() -> Json:
        answer = look(api, resource, fencing_token=token)
        return answer.json() if answer.status == 200 and answer.json()["end"] == end and answer.json()["granted_at"] else None

    return eventually(told, within, what=f"token {token} is {end}")


def test_resource_when_held_and_written_then_fence_lease_counts_and_last_events(api: Api, sku: Sku) -> None:
    lease = api.take(sku.resource, owner="o")
    api.wrote(lease, sku.sell())
    eventually(lambda: len(api.history(resource=sku.resource)) == 2)
    got = look(api, sku.resource).json()
    assert (got["resource"], got["last_fencing_token"], got["lease_state"]) == (sku.resource, lease["fencing_token"], "held")
    assert (got["lease"]["fencing_token"], got["lease"]["owner"], got["lease"]["resource"]) == (lease["fencing_token"], "o", sku.resource)
    assert "lease_id" not in str(got)
    assert got["counts"] == {"lease_granted": 1, "write_applied": 1} and got["counts_complete"] is True
    assert got["last_events"] == api.history(resource=sku.resource)
    api.give_back(lease)
    got = look(api, sku.resource).json()
    assert (got["lease_state"], got["lease"]) == ("free", None)


def test_resource_when_nobody_has_heard_of_it_then_it_is_free_and_empty(api: Api, resource: str) -> None:
    got = look(api, resource).json()
    assert got == {"resource": resource, "last_fencing_token": 0, "lease_state": "free", "lease": None, "counts": {}, "counts_complete": True, "last_events": []}


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_resource_when_its_key_has_another_value_then_all_say_so(guarded_pair: Stack, here: Api, resource: str, nodes: int) -> None:
    """On a minority it is in nobody's way. What somebody else wrote stays as it is."""
    key = f"fg:lease:{resource}"
    revoke = lambda: here.call("DELETE", f"/v1/resources/{urllib.parse.quote(resource, safe='')}/lease", {"reason": "a test"})  # noqa: E731
    for node in guarded_pair.nodes()[:nodes]:
        node.set(key, "no lease")
    if nodes == 2:
        assert look(here, resource).json()["lease_state"] == "free"
        expect_problem(revoke(), 404, "not-found")
        here.give_back(here.take(resource))
    else:
        seen = look(here, resource).json()
        assert (seen["lease_state"], seen["lease"]) == ("occupied", None)
        assert [node["answer"] for node in seen["nodes"]].count("occupied by another value") == nodes, seen
        asked, revoked = here.ask(resource), revoke()
        assert f"on {nodes} of 5 nodes" in expect_problem(revoked, 423, "resource-locked")["detail"]
        assert "no lease" in expect_problem(asked, 423, "resource-locked")["detail"] and len(asked.json()["nodes"]) == 5
        assert revoked.headers["Retry-After"] is None
    assert [node.get(key) for node in guarded_pair.nodes()[:nodes]] == ["no lease"] * nodes
    for node in guarded_pair.nodes():
        node.delete(key)
    assert here.ask(resource).status == 201


def test_resource_when_of_a_lease_on_several_then_it_is_the_one_asked_for(api: Api, resource: str) -> None:
    answer = api.call("POST", "/v1/leases", {"resources": [f"{resource}/a", f"{resource}/b"], "ttl_ms": 5000})
    assert answer.status == 201
    assert look(api, f"{resource}/b").json()["lease"]["resource"] == f"{resource}/b"


def test_token_when_its_lease_lives_and_ends_then_its_story(api: Api, sku: Sku) -> None:
    trace = {"traceparent": f"00-{7:032x}-{1:016x}-01"}
    lease = api.call("POST", "/v1/leases", {"resource": sku.resource, "ttl_ms": 20_000, "owner": "o"}, trace).json()
    token = lease["fencing_token"]
    assert story(api, sku.resource, token, "live")["ended_at"] is None
    api.renew(lease)
    api.wrote(lease, sku.sell())
    api.wrote(lease, sku.sell())
    api.give_back(lease)
    next_one = api.take(sku.resource)
    api.wrote(next_one, sku.sell())
    expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    told = story(api, sku.resource, token, "released")
    assert told["held_by"] == {"principal": "dev", "owner": "o", "trace_id": f"{7:032x}"}
    assert (told["renewals"], told["writes_applied"], told["writes_rejected"], told["writes_failed"]) == (1, 2, 1, 0)
    assert told["granted_at"] < told["ended_at"] and told["complete"] is True
    assert [event["event"] for event in told["events"]] == ["lease_granted", "lease_renewed", "write_applied", "write_applied", "lease_released", "write_rejected"]
    assert {event["fencing_token"] for event in told["events"]} == {token}


def test_token_when_an_operator_took_its_lease_then_the_reason(api: Api, resource: str) -> None:
    lease = api.take(resource)
    assert api.call("DELETE", f"/v1/resources/{urllib.parse.quote(resource, safe='')}/lease", {"reason": "it hangs"}).status == 204
    assert story(api, resource, lease["fencing_token"], "revoked")["end_detail"]["reason"] == "it hangs"


def add_life(stack: Stack, resource: str, writes: int) -> None:
    """A lease of a minute that began a minute and a half ago, its writes, and nothing else."""
    stack.query("""insert into fencing.history (at, event, resource, fencing_token, detail)
                   select now() - interval '90 s' + n * interval '1 ms', case n when 0 then 'lease_granted' else 'write_applied' end, %s, 7, case n when 0 then '{"ttl_ms": 60000}'::jsonb end
                     from generate_series(0, %s) as t (n)""", (resource, writes))


def test_token_when_it_has_thousands_of_events_then_all_are_counted_and_its_end_is_told(api: Api, stack: Stack, resource: str) -> None:
    add_life(stack, resource, 2_500)
    told = look(api, resource, fencing_token=7).json()
    assert (told["end"], told["writes_applied"]) == ("ran_out", 2_500)
    stack.query("insert into fencing.history (event, resource, fencing_token) values ('lease_released', %s, 7)", (resource,))
    told = look(api, resource, fencing_token=7).json()
    assert (told["end"], told["writes_applied"], len(told["events"]), told["complete"]) == ("released", 2_500, 1_000, False)


def test_token_when_its_time_is_not_over_and_nobody_holds_it_then_its_end_is_unknown(api: Api, stack: Stack, resource: str) -> None:
    """Its release is on its way into the history, or the nodes lost it."""
    add_life(stack, resource, 1)
    stack.query("insert into fencing.history (event, resource, fencing_token, detail) values ('lease_renewed', %s, 7, '{\"ttl_ms\": 60000}')", (resource,))
    told = look(api, resource, fencing_token=7).json()
    assert (told["end"], told["ended_at"], told["complete"]) == ("unknown", None, True)


def test_token_when_there_is_none_such_then_404(api: Api, resource: str) -> None:
    expect_problem(look(api, resource, fencing_token=7), 404, "not-found")


@pytest.mark.parametrize("query, pointer", [({"fencing_token": 0}, "fencing_token"), ({"fencing_token": "x"}, "fencing_token"), ({"limit": 1}, "limit")])
def test_resource_when_the_query_is_wrong_then_400(api: Api, resource: str, query: dict[str, Any], pointer: str) -> None:
    assert pointers_of(look(api, resource, **query)) == [pointer]


def test_resource_when_its_name_is_none_then_400(api: Api) -> None:
    assert pointers_of(look(api, "a//b")) == ["resource"]
