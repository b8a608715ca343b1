"""GET /v1/resources/{resource}: the state of a resource, and the timeline of one token."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from support.api import Api, Json, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack


def get_resource(api: Api, resource: str, **query: object) -> Any:
    return api.get(f"/v1/resources/{urllib.parse.quote(resource, safe='')}", **query)


def token_timeline(api: Api, resource: str, token: int, end: str, timeout: float = 10) -> Json:
    """Waits until the timeline of the token has this end, and returns it;
    lease events are recorded shortly after their answers."""

    def reported() -> Json:
        answer = get_resource(api, resource, fencing_token=token)
        return (
            answer.json()
            if answer.status == 200 and answer.json()["end"] == end and answer.json()["granted_at"]
            else None
        )

    return eventually(reported, timeout, goal=f"token {token} is {end}")


def test_resource_has_fence_lease_counts_and_last_events(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, owner="o")
    api.must_write(lease, sku.sell())
    eventually(lambda: len(api.history(resource=sku.resource)) == 2)
    body = get_resource(api, sku.resource).json()
    assert (body["resource"], body["last_fencing_token"], body["lease_state"]) == (
        sku.resource,
        lease["fencing_token"],
        "held",
    )
    assert (body["lease"]["fencing_token"], body["lease"]["owner"], body["lease"]["resource"]) == (
        lease["fencing_token"],
        "o",
        sku.resource,
    )
    assert "lease_id" not in str(body)
    assert body["counts"] == {"lease_granted": 1, "write_applied": 1} and body["counts_complete"] is True
    assert body["last_events"] == api.history(resource=sku.resource)
    api.must_release(lease)
    body = get_resource(api, sku.resource).json()
    assert (body["lease_state"], body["lease"]) == ("free", None)


def test_resource_never_used_is_free_and_empty(api: Api, resource: str) -> None:
    body = get_resource(api, resource).json()
    assert body == {
        "resource": resource,
        "last_fencing_token": 0,
        "last_read_token": 0,
        "lease_state": "free",
        "lease": None,
        "counts": {},
        "counts_complete": True,
        "last_events": [],
    }


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_resource_with_foreign_value_is_occupied_if_majority(
    guarded_pair: Stack, api_a: Api, resource: str, nodes: int
) -> None:
    """On a minority the foreign value does not matter. The gateway never changes it."""
    key = f"fg:lease:{resource}"
    for node in guarded_pair.nodes()[:nodes]:
        node.set(key, "no lease")
    if nodes == 2:
        assert get_resource(api_a, resource).json()["lease_state"] == "free"
        expect_problem(api_a.revoke(resource), 404, "not-found")
        api_a.must_release(api_a.must_acquire(resource))
    else:
        seen = get_resource(api_a, resource).json()
        assert (seen["lease_state"], seen["lease"]) == ("occupied", None)
        assert [node["answer"] for node in seen["nodes"]].count("occupied by another value") == nodes, seen
        asked, revoked = api_a.acquire(resource), api_a.revoke(resource)
        assert f"on {nodes} of 5 nodes" in expect_problem(revoked, 423, "resource-locked")["detail"]
        assert "no lease" in expect_problem(asked, 423, "resource-locked")["detail"] and len(asked.json()["nodes"]) == 5
        assert revoked.headers["Retry-After"] is None
    assert [node.get(key) for node in guarded_pair.nodes()[:nodes]] == ["no lease"] * nodes
    for node in guarded_pair.nodes():
        node.delete(key)
    assert api_a.acquire(resource).status == 201


def test_large_foreign_value_delays_no_lease_on_another_resource(
    guarded_pair: Stack, api_a: Api, resource: str
) -> None:
    nodes = guarded_pair.nodes()[:3]
    for node in nodes:
        node.setrange(f"fg:lease:{resource}", 30_000_000, "x")
    try:
        for turn in range(3):
            asked = api_a.begin("POST", "/v1/leases", {"resource": resource})
            other = api_a.acquire(f"{resource}/other/{turn}")
            assert other.status == 201 and other.seconds < 1, other
            assert expect_problem(asked.answer(), 423, "resource-locked")
            assert get_resource(api_a, resource).json()["lease_state"] == "occupied"
    finally:
        for node in nodes:
            node.delete(f"fg:lease:{resource}")


def test_resource_of_lease_on_several_is_the_requested_one(api: Api, resource: str) -> None:
    answer = api.post("/v1/leases", {"resources": [f"{resource}/a", f"{resource}/b"], "ttl_ms": 5000})
    assert answer.status == 201
    assert get_resource(api, f"{resource}/b").json()["lease"]["resource"] == f"{resource}/b"


def test_token_timeline_of_released_lease_is_complete(api: Api, sku: Sku) -> None:
    trace = {"traceparent": f"00-{7:032x}-{1:016x}-01"}
    lease = api.post("/v1/leases", {"resource": sku.resource, "ttl_ms": 20_000, "owner": "o"}, trace).json()
    token = lease["fencing_token"]
    assert token_timeline(api, sku.resource, token, "live")["ended_at"] is None
    api.renew(lease)
    api.must_write(lease, sku.sell())
    api.must_write(lease, sku.sell())
    api.must_release(lease)
    next_one = api.must_acquire(sku.resource)
    api.must_write(next_one, sku.sell())
    expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
    reported = token_timeline(api, sku.resource, token, "released")
    assert reported["held_by"] == {"principal": "dev", "owner": "o", "trace_id": f"{7:032x}"}
    assert (
        reported["renewals"],
        reported["writes_applied"],
        reported["writes_rejected"],
        reported["writes_failed"],
    ) == (1, 2, 1, 0)
    assert reported["granted_at"] < reported["ended_at"] and reported["complete"] is True
    assert [
        event["event"] for event in reported["events"]
    ] == "lease_granted lease_renewed write_applied write_applied lease_released write_rejected".split()
    assert {event["fencing_token"] for event in reported["events"]} == {token}


def test_token_timeline_of_revoked_lease_has_reason(api: Api, resource: str) -> None:
    lease = api.must_acquire(resource)
    assert api.revoke(resource, reason="it hangs").status == 204
    assert token_timeline(api, resource, lease["fencing_token"], "revoked")["end_detail"]["reason"] == "it hangs"


def add_events(stack: Stack, resource: str, writes: int) -> None:
    """Inserts the events of a lease of a minute that began 90 s ago: the grant and its writes."""
    stack.query(
        """insert into fencing.history (at, event, resource, fencing_token, detail)
                   select now() - interval '90 s' + n * interval '1 ms', case n when 0 then 'lease_granted'
                     else 'write_applied' end, %s, 7, case n when 0 then '{"ttl_ms": 60000}'::jsonb end
                     from generate_series(0, %s) as t (n)""",
        (resource, writes),
    )


def test_token_timeline_of_thousands_of_events_counts_all(api: Api, stack: Stack, resource: str) -> None:
    add_events(stack, resource, 2_500)
    reported = get_resource(api, resource, fencing_token=7).json()
    assert (reported["end"], reported["writes_applied"]) == ("ran_out", 2_500)
    stack.query(
        "insert into fencing.history (event, resource, fencing_token) values ('lease_released', %s, 7)", (resource,)
    )
    reported = get_resource(api, resource, fencing_token=7).json()
    assert (reported["end"], reported["writes_applied"], len(reported["events"]), reported["complete"]) == (
        "released",
        2_500,
        1_000,
        False,
    )


def test_token_timeline_before_its_end_is_unknown(api: Api, stack: Stack, resource: str) -> None:
    """Its release is not recorded yet, or the nodes lost it."""
    add_events(stack, resource, 1)
    stack.query(
        "insert into fencing.history (event, resource, fencing_token, detail) "
        "values ('lease_renewed', %s, 7, '{\"ttl_ms\": 60000}')",
        (resource,),
    )
    reported = get_resource(api, resource, fencing_token=7).json()
    assert (reported["end"], reported["ended_at"], reported["complete"]) == ("unknown", None, True)


def test_token_timeline_without_grant_has_holder_of_renewal(api: Api, stack: Stack, resource: str) -> None:
    stack.query(
        """insert into fencing.history (at, event, resource, fencing_token, principal, owner, detail)
                   values (now() - interval '90 s', 'lease_renewed', %s, 7, 'p', 'o', '{"ttl_ms": 60000}')""",
        (resource,),
    )
    reported = get_resource(api, resource, fencing_token=7).json()
    assert (reported["held_by"], reported["granted_at"], reported["end"]) == (
        {"principal": "p", "owner": "o", "trace_id": None},
        None,
        "ran_out",
    )


def test_token_timeline_of_unknown_token_404(api: Api, resource: str) -> None:
    expect_problem(get_resource(api, resource, fencing_token=7), 404, "not-found")


@pytest.mark.parametrize(
    "query, pointer",
    [({"fencing_token": 0}, "fencing_token"), ({"fencing_token": "x"}, "fencing_token"), ({"limit": 1}, "limit")],
)
def test_resource_with_wrong_query_400(api: Api, resource: str, query: dict[str, Any], pointer: str) -> None:
    assert pointers_of(get_resource(api, resource, **query)) == [pointer]


def test_resource_with_invalid_name_400(api: Api) -> None:
    assert pointers_of(get_resource(api, "a//b")) == ["resource"]
