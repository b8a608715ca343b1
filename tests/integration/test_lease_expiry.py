"""The event lease_expired: recorded once for a lease that expires without a release, and for no other lease."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

from support.api import Api, Json, expect_problem
from support.polling import eventually, pause
from support.stack import Stack


def event_names(api: Api, resource: str) -> list[str]:
    return [item["event"] for item in api.history(resource=resource, order="asc")]


def wait_for_expired(api: Api, resource: str, timeout: float = 10) -> Json:
    (item,) = eventually(
        lambda: api.history(resource=resource, event="lease_expired"), timeout, goal="lease_expired is there"
    )
    return item


def seconds_between(earlier: Json, later: Json) -> float:
    return (
        dt.datetime.fromisoformat(later["at"].replace("Z", "+00:00"))
        - dt.datetime.fromisoformat(earlier["at"].replace("Z", "+00:00"))
    ).total_seconds()


def test_expiry_is_recorded_once_unless_released_or_renewed(api_a: Api, api_b: Api, resource: str) -> None:
    several, released = [f"{resource}/a", f"{resource}/b"], [f"{resource}/here", f"{resource}/there"]
    lease = api_a.must_acquire(resource, ttl_ms=400, owner="o")
    assert api_a.post("/v1/leases", {"resources": several, "ttl_ms": 300}).status == 201
    for api, name in zip((api_a, api_b), released):
        api.must_release(api_a.must_acquire(name, ttl_ms=300))
    renewed = api_a.must_acquire(f"{resource}/renewed", ttl_ms=500)
    assert api_b.renew(renewed, ttl_ms=5_000).status == 200

    item = wait_for_expired(api_a, resource)
    granted = api_a.history(resource=resource, event="lease_granted")[0]
    assert (item["fencing_token"], item["owner"], item["principal"]) == (
        lease["fencing_token"],
        "o",
        granted["principal"],
    )
    assert item["trace_id"] == granted["trace_id"] and item["at"] > granted["at"]
    expect_problem(api_a.release(lease), 410, "lease-lost")
    for name in several:
        wait_for_expired(api_a, name)
    late = wait_for_expired(api_a, renewed["resource"], 15)
    assert seconds_between(api_a.history(resource=renewed["resource"], event="lease_renewed")[0], late) > 4.5
    pause(1.5, "time for a second event, also of the gateway that renewed it")
    assert event_names(api_a, resource) == ["lease_granted", "lease_expired"]
    assert event_names(api_a, renewed["resource"]) == ["lease_granted", "lease_renewed", "lease_expired"]
    assert {tuple(event_names(api_a, name)) for name in released} == {("lease_granted", "lease_released")}


def test_expiry_after_hundreds_of_writes_is_recorded(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    """The event of the grant is hundreds of events before the expiry."""
    lease = api_a.must_acquire(resource, ttl_ms=2_000)
    eventually(lambda: event_names(api_a, resource) == ["lease_granted"], goal="the grant is there")
    guarded_pair.query(
        "insert into fencing.history (event, resource, fencing_token, last_fencing_token) select 'write_applied', %s, "
        "%s, %s from generate_series(1, 350)",
        (resource, lease["fencing_token"], lease["fencing_token"]),
    )
    assert wait_for_expired(api_a, resource, 15)["fencing_token"] == lease["fencing_token"]


def test_expiry_of_many_leases_is_recorded_together(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    """The history is asked for many leases by one statement:
    for each of its own they would fall behind where many expire."""
    count = 1_000

    def committed() -> int:
        pause(1.5, "sessions report their transactions once a second")
        return int(
            guarded_pair.query("select xact_commit from pg_stat_database where datname = current_database()")[0][0]
        )

    def recorded() -> int:
        return int(
            guarded_pair.query(
                "select count(*) from fencing.history where starts_with(resource, %s) and event = 'lease_expired'",
                (f"{resource}/",),
            )[0][0]
        )

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: api_a.must_acquire(f"{resource}/{number}", ttl_ms=6_000), range(count)))
    before = committed()
    eventually(lambda: recorded() == count, 60, interval=0.5, goal="all are there")
    transactions = committed() - before
    print(f"{count} leases expired, {transactions} transactions")
    assert transactions < count
