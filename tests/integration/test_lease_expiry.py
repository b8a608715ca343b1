"""lease_expired: a lease that runs out with nobody giving it back leaves one, once, and no other lease does."""

from __future__ import annotations


from support.api import Api, Json, expect_problem
from support.polling import eventually, let_pass
from support.stack import Stack


def events(api: Api, resource: str) -> list[str]:
    return [item["event"] for item in api.history(resource=resource, order="asc")]


def expired(api: Api, resource: str, within: float = 10) -> Json:
    (item,) = eventually(lambda: api.history(resource=resource, event="lease_expired"), within, what="lease_expired is there")
    return item


def test_lease_when_it_runs_out_then_lease_expired_at_that_time(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, ttl_ms=400, owner="o")
    item = expired(here, resource)
    granted = here.history(resource=resource, event="lease_granted")[0]
    assert (item["fencing_token"], item["owner"], item["principal"]) == (lease["fencing_token"], "o", granted["principal"])
    assert item["trace_id"] == granted["trace_id"] and item["at"] > granted["at"]
    expect_problem(here.release(lease), 410, "lease-lost")
    let_pass(3, "a second event is given time to come")
    assert events(here, resource) == ["lease_granted", "lease_expired"]


def test_lease_when_on_several_resources_then_each_has_one(here: Api, resource: str) -> None:
    names = [f"{resource}/a", f"{resource}/b"]
    assert here.call("POST", "/v1/leases", {"resources": names, "ttl_ms": 300}).status == 201
    for name in names:
        expired(here, name)


def test_lease_when_released_here_or_there_then_none(here: Api, there: Api, resource: str) -> None:
    here.give_back(here.take(f"{resource}/here", ttl_ms=300))
    there.give_back(here.take(f"{resource}/there", ttl_ms=300))
    let_pass(4, "a lease_expired is given time to come: past the ttl and the interval of the search")
    assert events(here, f"{resource}/here") == events(here, f"{resource}/there") == ["lease_granted", "lease_released"]


def test_lease_when_renewed_at_another_gateway_then_only_after_that(here: Api, there: Api, resource: str) -> None:
    lease = here.take(resource, ttl_ms=500)
    assert there.renew(lease, ttl_ms=6_000).status == 200
    let_pass(4.5, "past the first ttl and the interval of the search")
    assert events(here, resource) == ["lease_granted", "lease_renewed"]
    expired(here, resource)
    assert events(here, resource) == ["lease_granted", "lease_renewed", "lease_expired"]


def test_lease_when_it_wrote_hundreds_of_times_and_runs_out_then_lease_expired(guarded_pair: Stack, here: Api, resource: str) -> None:
    """Its grant lies far behind its writes."""
    lease = here.take(resource, ttl_ms=2_000)
    eventually(lambda: events(here, resource) == ["lease_granted"], what="the grant is there")
    guarded_pair.query("insert into fencing.history (event, resource, fencing_token, last_fencing_token) select 'write_applied', %s, %s, %s from generate_series(1, 350)",
                       (resource, lease["fencing_token"], lease["fencing_token"]))
    assert expired(here, resource, 15)["fencing_token"] == lease["fencing_token"]
