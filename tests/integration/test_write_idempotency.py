"""Idempotency-Key on writes: a repeated call is applied once and always gets the same answer,
whatever fails in between."""

from __future__ import annotations

import random
import uuid
from typing import Any, Callable

import pytest
from support.api import Answer, Api, Json, expect_problem, pointers_of
from support.cluster import Cluster
from support.keyed import SLOW_COMMIT, is_replay, make_tables, write
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack


@pytest.fixture(scope="module")
def keyed(stack: Stack) -> None:
    make_tables(stack)


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def kept_members(answer: Answer) -> Any:
    """Returns the parts that must be equal in every answer to one key."""
    return answer.status, {name: value for name, value in answer.json().items() if name != "request_id"}


# The same outcome


def test_repeated_write_same_answer_and_applied_once(api: Api, sku: Sku, key: str) -> None:
    first = write(api, sku.resource, sku.sell(), key=key, **{"return": "rows"})
    assert first.status == 200 and not is_replay(first), str(first)
    for _ in range(3):
        again = write(api, sku.resource, sku.sell(), key=key, **{"return": "rows"})
        assert is_replay(again) and again.body == first.body
    assert sku.stock() == 9


def test_repeated_write_that_releases_same_answer(api: Api, sku: Sku, key: str) -> None:
    lease = api.must_acquire(sku.resource)
    body = {"lease_id": lease["lease_id"], "operations": [sku.sell()], "then": "release", "require_live": True}
    answers = [api.post("/v1/writes", body, {"Idempotency-Key": key}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3, [str(answer) for answer in answers]
    assert len({answer.body for answer in answers}) == 1 and [is_replay(answer) for answer in answers] == [
        False,
        True,
        True,
    ]
    assert sku.stock() == 9


def test_repeated_write_releases_no_second_hold(api: Api, sku: Sku, key: str) -> None:
    lease = api.must_acquire(sku.resource, owner="keyed")
    others = [api.acquire(sku.resource, owner="keyed").json() for _ in range(2)]
    body = {"lease_id": lease["lease_id"], "operations": [sku.sell()], "then": "release"}
    answers = [api.post("/v1/writes", body, {"Idempotency-Key": key}) for _ in range(3)]
    assert [(answer.json()["released"], answer.json()["sealed"]) for answer in answers] == [(False, False)] * 3
    assert api.read_lease(others[0]).json()["hold_count"] == 2
    assert sku.stock() == 9


@pytest.mark.parametrize(
    "name, status, slug",
    [
        ("expectation", 409, "expectation-failed"),
        ("constraint", 409, "constraint-violation"),
        ("deferred", 409, "constraint-violation"),
        ("value", 422, "unprocessable"),
    ],
)
def test_repeated_refused_write_same_refusal(
    stack: Stack,
    api: Api,
    sku: Sku,
    keyed: None,
    key: str,
    unique_name: Callable[[str], str],
    name: str,
    status: int,
    slug: str,
) -> None:
    row, place = unique_name("row"), random.randrange(2**31)
    assert write(api, f"keyed/{row}", {"insert": "keyed", "values": {"id": row, "place": place}}).status == 200
    resource, operations = {
        "expectation": (sku.resource, [sku.sell(11)]),
        "constraint": (sku.resource, [{"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -11}}]),
        "deferred": (f"keyed/{row}-2", [{"insert": "keyed", "values": {"id": f"{row}-2", "place": place}}]),
        "value": (sku.resource, [{"update": "inventory", "where": {"sku": sku.name}, "set": {"stock": "many"}}]),
    }[name]
    first = write(api, resource, *operations, key=key)
    expect_problem(first, status, slug)
    write(api, sku.resource, {"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": 5}})
    write(api, f"keyed/{row}", {"delete": "keyed", "where": {"id": row}})
    again = write(api, resource, *operations, key=key)
    expect_problem(again, status, slug)
    assert is_replay(again) and kept_members(again) == kept_members(first)
    assert sku.stock() == 15
    recorded = api.history(write_id=first.json()["write_id"])
    assert [item["event"] for item in recorded if item["event"] != "write_replayed"] in (
        ["write_failed"],
        ["write_rejected"],
    ), "recorded once, in the transaction of the key"


def test_repeated_stale_write_runs_under_newer_lease(api: Api, sku: Sku, key: str) -> None:
    """The lease is not part of what the key identifies, and a stale refusal is not kept."""
    old = api.must_acquire(sku.resource, ttl_ms=300)
    newer = api.must_acquire(sku.resource, wait_ms=5_000, ttl_ms=500)
    api.must_write(newer, sku.sell())
    newest = api.must_acquire(sku.resource, wait_ms=5_000)

    def note(lease: Json) -> Answer:
        return api.call(
            "PATCH",
            f"/v1/tables/inventory?sku=eq.{sku.name}",
            {"note": "noted"},
            {"Idempotency-Key": key, "Fencing-Lease": lease["lease_id"]},
        )

    for _ in range(2):
        refused = note(old)
        expect_problem(refused, 412, "stale-fencing-token")
        assert not is_replay(refused)
    done = note(newest)
    assert done.status == 204 and not is_replay(done) and sku.row()["note"] == "noted", done
    assert is_replay(note(old)) and is_replay(
        note(newest)
    ), "the outcome is kept, under whichever lease the call is repeated"


def test_repeated_uncovered_write_runs_under_wider_lease(
    api: Api, sku: Sku, stack: Stack, key: str, unique_name: Callable[[str], str]
) -> None:
    other = create_sku(stack, unique_name("other"))

    def note(lease: Json) -> Answer:
        return api.call(
            "PATCH",
            f"/v1/tables/inventory?sku=in.({sku.name},{other.name})",
            {"note": "noted"},
            {"Idempotency-Key": key, "Fencing-Lease": lease["lease_id"]},
        )

    narrow = api.must_acquire(sku.resource)
    refused = note(narrow)
    expect_problem(refused, 403, "resource-not-covered")
    api.must_release(narrow)
    wide = api.post("/v1/leases", {"resources": [sku.resource, other.resource]}).json()
    done = note(wide)
    assert done.status == 204 and not is_replay(done) and other.row()["note"] == "noted", done


def test_repeated_write_after_missing_table_runs_again(
    stack: Stack, api: Api, sku: Sku, key: str, unique_name: Callable[[str], str]
) -> None:
    """As during a migration: a missing table is neither a fault of the request nor of the data,
    and the refusal is not kept."""
    missing, name = (unique_name(stem).replace("-", "_") for stem in ("missing", "counts"))
    stack.query(
        f"create function {name}() returns bigint language plpgsql as $$ begin return (select count(*) "
        f"from public.{missing}); end $$; select fencing.expose_function('{name}()')"
    )
    eventually(
        lambda: write(api, sku.resource, {"call": name}).json().get("sqlstate") == "42P01",
        goal="the gateway knows the function",
    )
    expect_problem(write(api, sku.resource, {"call": name}, key=key), 422, "unprocessable")
    stack.query(f"create table {missing} (); grant select on {missing} to fencing_gateway")
    again = write(api, sku.resource, {"call": name}, key=key)
    assert again.status == 200 and not is_replay(again), str(again)
    assert is_replay(write(api, sku.resource, {"call": name}, key=key))
    stack.query(f"select fencing.hide('{name}'); drop function {name}(); drop table {missing}")


def test_repeated_write_after_conflict_runs_again(stack: Stack, api: Api, sku: Sku, key: str) -> None:
    other = stack.sql()
    other.autocommit = False
    with other.cursor() as cursor:
        cursor.execute("select from inventory where sku = %s for update", (sku.name,))
    expect_problem(write(api, sku.resource, sku.sell(), key=key), 409, "write-conflict")
    other.rollback()
    other.close()
    again = write(api, sku.resource, sku.sell(), key=key)
    assert again.status == 200 and not is_replay(again), str(again)
    assert sku.stock() == 9


def test_repeated_write_after_locked_resource_runs(api: Api, sku: Sku, key: str) -> None:
    lease = api.must_acquire(sku.resource)
    body = {"lease": {"resource": sku.resource}, "operations": [sku.sell()]}
    expect_problem(api.post("/v1/writes", body, {"Idempotency-Key": key}), 423, "resource-locked")
    api.must_release(lease)
    answer = api.post("/v1/writes", body, {"Idempotency-Key": key})
    assert answer.status == 200 and not is_replay(answer)


def test_repeated_write_with_large_answer_omits_rows(
    api: Api, keyed: None, key: str, unique_name: Callable[[str], str]
) -> None:
    row = unique_name("large")
    insert = {"insert": "keyed", "values": {"id": row, "filling": "x" * 70_000}}
    first = write(api, f"keyed/{row}", insert, key=key, **{"return": "rows"})
    assert first.status == 200 and len(first.body) > 70_000 and "rows_left_out" not in first.json()
    again = write(api, f"keyed/{row}", insert, key=key, **{"return": "rows"})
    assert is_replay(again) and again.json()["rows_left_out"] is True
    assert again.json()["write_id"] == first.json()["write_id"] and again.json()["results"] == [{"rows_affected": 1}]


def test_repeated_function_call_same_value(api: Api, keyed: None, key: str, unique_name: Callable[[str], str]) -> None:
    row = unique_name("call")
    answers = [write(api, f"keyed/{row}", {"call": "keyed_add", "args": {"id": row}}, key=key) for _ in range(2)]
    assert [answer.json()["results"] for answer in answers] == [[{"value": row}]] * 2
    assert is_replay(answers[1])


# Another request, another caller


def test_key_of_another_request_422_and_nothing_done(api: Api, sku: Sku, key: str) -> None:
    assert write(api, sku.resource, sku.sell(), key=key).status == 200
    for _ in range(2):
        expect_problem(write(api, sku.resource, sku.sell(2), key=key), 422, "idempotency-mismatch")
    lease = api.must_acquire(sku.resource)
    other = api.post(
        "/v1/writes", {"lease_id": lease["lease_id"], "operations": [sku.sell()]}, {"Idempotency-Key": key}
    )
    expect_problem(other, 422, "idempotency-mismatch")
    assert sku.stock() == 9


def test_repeated_write_under_another_lease_same_outcome(api: Api, sku: Sku, key: str) -> None:
    """The lease is not part of what the key identifies, neither in the body nor in the header."""

    def sell(lease: Json, count: int = 1, in_header: bool = False) -> Answer:
        body = {"operations": [sku.sell(count)], "return": "rows"}
        if in_header:
            return api.post("/v1/writes", body, {"Idempotency-Key": key, "Fencing-Lease": lease["lease_id"]})
        return api.post("/v1/writes", {"lease_id": lease["lease_id"], **body}, {"Idempotency-Key": key})

    old = api.must_acquire(sku.resource)
    first = sell(old)
    assert first.status == 200 and not is_replay(first), str(first)
    api.must_release(old)
    newer = api.must_acquire(sku.resource)
    for again in (sell(newer), sell(newer, in_header=True), sell(old)):
        assert is_replay(again) and again.body == first.body, str(again)
    expect_problem(sell(newer, 2), 422, "idempotency-mismatch")
    assert sku.stock() == 9


def test_repeated_one_shot_with_other_deadlines_same_outcome(api: Api, sku: Sku, key: str) -> None:
    def sell(**lease: object) -> Answer:
        return api.post(
            "/v1/writes",
            {"lease": {"resource": sku.resource, **lease}, "operations": [sku.sell()]},
            {"Idempotency-Key": key},
        )

    first = sell(ttl_ms=5_000)
    assert first.status == 200, str(first)
    for again in (sell(ttl_ms=6_000, wait_ms=1_000), sell(), sell(owner="another process")):
        assert is_replay(again) and again.body == first.body, str(again)
    assert sku.stock() == 9


def test_repeated_write_in_another_order_same_outcome(
    api: Api, sku: Sku, unique_name: Callable[[str], str], key: str
) -> None:
    other = unique_name("other")
    body = {
        "lease": {"resources": [sku.resource, other], "wait_ms": 2_000, "owner": "pod-1"},
        "operations": [sku.sell()],
    }
    reversed_body = {
        "operations": [dict(reversed(sku.sell().items()))],
        "lease": {"owner": "pod-2", "resources": [other, sku.resource]},
    }
    first, again = (api.post("/v1/writes", each, {"Idempotency-Key": key}) for each in (body, reversed_body))
    assert first.status == 200 and is_replay(again) and again.body == first.body, str(again)
    expect_problem(write(api, sku.resource, sku.sell(), key=key), 422, "idempotency-mismatch")
    assert sku.stock() == 9


def test_repeated_write_that_releases_seals_newer_lease(api: Api, sku: Sku, key: str) -> None:
    """The first call sealed the token of another lease; the repeated one must seal its own."""
    for number in range(2):
        lease = api.must_acquire(sku.resource)
        done = api.post(
            "/v1/writes",
            {"lease_id": lease["lease_id"], "operations": [sku.sell()], "then": "release"},
            {"Idempotency-Key": key},
        )
        assert (done.status, is_replay(done), done.json()["released"]) == (
            200,
            number == 1,
            True,
        ) and "sealed" not in done.json(), str(done)
        expect_problem(api.write(lease, sku.sell()), 412, "stale-fencing-token")
        expect_problem(api.read_lease(lease), 410, "lease-lost")
    assert sku.stock() == 9


def test_key_of_another_principal_is_separate(guarded_pair: Stack, unique_name: Callable[[str], str], key: str) -> None:
    sku = create_sku(guarded_pair, unique_name("sku"))
    for principal in ("admin", "orders"):
        answer = write(guarded_pair.api(0, principal), sku.resource, sku.sell(), key=key)
        assert answer.status == 200 and not is_replay(answer), str(answer)
    assert sku.stock() == 8


def test_key_malformed_400(api: Api, sku: Sku) -> None:
    for bad in ("", "k" * 65, "two words"):
        assert pointers_of(write(api, sku.resource, sku.sell(), key=bad or " ")) == ["Idempotency-Key"]


def test_kept_outcomes_are_accessible_to_no_role(stack: Stack) -> None:
    for role in ("fencing_writer", "fencing_auditor", "fencing_gateway"):
        granted = stack.query(
            "select has_table_privilege(%s, 'fencing.kept_outcome', 'select, insert, update, delete, truncate')",
            (role,),
        )
        assert granted == [(False,)], role


# Expiry of a key


def test_key_expired_is_deleted_and_usable_again(cluster: Cluster, key: str) -> None:
    settings = cluster.settings()
    settings["writes"] = {"idempotency_ttl_ms": 3_000}
    cluster.query(SLOW_COMMIT)
    gateway = cluster.start_gateway(settings)
    gateway.wait_until_all_vote()

    def kept() -> int:
        return cluster.query("select count(*) from fencing.kept_outcome")[0][0]

    def call() -> Answer:
        body = {
            "lease": {"resource": "keyed/a", "ttl_ms": 1_000},
            "operations": [{"delete": "keyed", "where": {"id": "a"}}],
        }
        return gateway.api.post("/v1/writes", body, {"Idempotency-Key": key})

    try:
        assert not is_replay(call()) and is_replay(call())
        pause(3.1, "the key's time")
        assert not is_replay(call()), "the key has expired, deleted or not"
        # Many expired keys: deleted in batches, skipping locked rows.
        cluster.query(
            """insert into fencing.kept_outcome select 'p', n::text, decode(repeat('00', 32), 'hex'), '{}',
                                 now() - interval '1 hour'
                                 from generate_series(1, 3000) n"""
        )
        holder = cluster.sql()
        holder.autocommit = False
        with holder.cursor() as cursor:
            cursor.execute("select from fencing.kept_outcome where principal = 'p' and key = '1' for update")
        eventually(lambda: kept() == 1, 20, goal="all but the locked one are deleted")
        holder.rollback()
        holder.close()
        eventually(lambda: kept() == 0, 20, goal="the last one is deleted")
    finally:
        gateway.kill()
