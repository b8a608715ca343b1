"""Shared leases: any number of leases share a resource, or one has it as exclusive."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any, Callable

import pytest
from support.api import Api, Json, expect_problem, lease_path, pointers_of, resource_path
from support.cli import Cli, first_line
from support.events import EventStream, open_kept_lease
from support.polling import eventually
from support.stack import Stack, lease_keys

NameMaker = Callable[[str], str]


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def share(api: Api, resource: str, **fields: Any) -> Json:
    return api.must_acquire(resource, mode="shared", **fields)


def shown(api: Api, resource: str) -> Json:
    answer = api.get(resource_path(resource))
    assert answer.status == 200, answer
    return answer.json()


def shared_tokens(api: Api, resource: str) -> list[int]:
    """Returns the tokens of the leases that share the resource, as the nodes have them now."""
    return sorted(lease["fencing_token"] for lease in shown(api, resource).get("shared_leases", []))


# Who may hold a resource together


def test_shared_readers_together_exclude_a_writer(api_a: Api, api_b: Api, orders: Api, resource: str) -> None:
    readers = [share(api_a, resource), share(api_b, resource), share(orders, resource)]
    assert len({reader["lease_id"] for reader in readers}) == 3
    for reader in readers:
        assert (reader["resource"], reader["mode"], reader["hold_count"]) == (resource, "shared", 1)
        assert "shared" not in reader and "resources" not in reader
    expect_problem(api_b.acquire(resource), 423, "resource-locked")
    for reader, api in zip(readers, (api_b, api_a, orders)):  # not the first two where they were granted
        expect_problem(api_b.acquire(resource), 423, "resource-locked")
        api.must_release(reader)
    writer = api_b.must_acquire(resource)
    assert "mode" not in writer
    assert writer["fencing_token"] > max(reader["fencing_token"] for reader in readers)
    expect_problem(api_a.acquire(resource, mode="shared"), 423, "resource-locked")
    api_b.must_release(writer)
    assert share(api_a, resource)["fencing_token"] > writer["fencing_token"]


@pytest.mark.parametrize("at", ["same", "other"])
def test_shared_requests_wait_behind_a_waiting_writer(api_a: Api, api_b: Api, resource: str, at: str) -> None:
    reader = share(api_a, resource)
    writer = api_a.begin_wait(resource)
    late_api = api_a if at == "same" else api_b
    expect_problem(late_api.acquire(resource, mode="shared"), 423, "resource-locked")
    late = late_api.begin_acquire(resource, mode="shared", ttl_ms=20_000, wait_ms=20_000)
    eventually(lambda: late_api.waiters(resource) == (2 if at == "same" else 1), goal="it waits")
    api_a.must_release(reader)
    written = writer.answer().json()
    assert "mode" not in written and late.is_alive(), "the writer is served first"
    api_a.must_release(written)
    assert late.answer().json()["fencing_token"] > written["fencing_token"]


def test_shared_waiters_are_granted_together(api_a: Api, api_b: Api, resource: str) -> None:
    writer = api_a.must_acquire(resource)
    waiting = [api_a.begin_wait(resource, mode="shared") for _ in range(2)]
    waiting += [api_b.begin_acquire(resource, mode="shared", ttl_ms=20_000, wait_ms=20_000)]
    api_b.await_waiters(resource, 1)
    api_a.must_release(writer)
    granted = [call.answer().json() for call in waiting]
    assert all(lease["fencing_token"] > writer["fencing_token"] for lease in granted)
    assert shared_tokens(api_a, resource) == sorted(lease["fencing_token"] for lease in granted)


def test_shared_and_exclusive_in_one_lease_all_or_none(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker
) -> None:
    order, price, tax = unique_name("orders/7"), unique_name("prices/eu"), unique_name("taxes/eu")
    lease = api_a.must_acquire(order, shared=[tax, price])
    assert (lease["resource"], lease["shared"]) == (order, sorted([price, tax])) and "mode" not in lease
    assert api_b.read_lease(lease).json()["shared"] == lease["shared"]
    reader = share(api_b, price)
    expect_problem(api_b.acquire(order, mode="shared"), 423, "resource-locked")
    expect_problem(api_b.acquire(tax), 423, "resource-locked")
    other = unique_name("orders/8")
    assert api_b.acquire(other, shared=[price, tax], ttl_ms=500).status == 201, "both share them"
    third = unique_name("orders/9")
    expect_problem(api_b.acquire(third, shared=[order]), 423, "resource-locked")
    assert not lease_keys(guarded_pair.nodes(), third), "all or none"
    api_b.must_release(reader)
    assert api_a.renew(lease).json()["shared"] == lease["shared"]
    api_a.must_release(lease)
    eventually(lambda: api_b.acquire(tax, ttl_ms=1_000).status == 201, goal="nothing of it is left")


def test_shared_and_exclusive_names_wait_as_one(api_a: Api, unique_name: NameMaker) -> None:
    order, price = unique_name("orders/7"), unique_name("prices/eu")
    writer = api_a.must_acquire(price)
    waiting = api_a.begin_wait(order, shared=[price])
    api_a.must_release(writer)
    assert waiting.answer().json()["fencing_token"] > writer["fencing_token"]


# Requests


@pytest.mark.parametrize(
    "body, pointer",
    [
        ({"resource": "a", "mode": "both"}, "/mode"),
        ({"resource": "a", "mode": "shared", "shared": ["b"]}, "/shared"),
        ({"resource": "a", "shared": []}, "/shared"),
        ({"resource": "a", "shared": ["b", "a"]}, "/shared/1"),
        ({"resource": "a", "shared": ["b", "b"]}, "/shared/1"),
        ({"resources": [f"r{n}" for n in range(60)], "shared": [f"s{n}" for n in range(5)]}, "/shared"),
        ({"any_of": ["a", "b"], "mode": "shared"}, "/any_of"),
        ({"any_of": ["a", "b"], "shared": ["c"]}, "/any_of"),
        ({"shared": ["a"]}, "/resource"),
    ],
)
def test_shared_request_faulty_then_field_is_named(api_a: Api, body: Json, pointer: str) -> None:
    for path in ("/v1/leases", "/v1/leases/cancel"):
        assert pointers_of(api_a.post(path, body, new_key())) == [pointer]


def test_shared_names_need_their_rights(guarded_pair: Stack, api_a: Api, resource: str, unique_name: NameMaker) -> None:
    auditor = guarded_pair.api(0, "auditor")  # has the scope history only
    for fields in ({"mode": "shared"}, {"shared": [unique_name("prices/eu")]}):
        expect_problem(auditor.acquire(resource, **fields), 403, "forbidden")


def test_shared_several_names_are_one_shared_lease(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    names = sorted(unique_name("prices/eu") for _ in range(3))
    leases = []
    for api in (api_a, api_b):
        answer = api.post("/v1/leases", {"resources": names, "mode": "shared", "ttl_ms": 20_000})
        assert answer.status == 201, answer
        leases.append(answer.json())
    for lease in leases:
        assert (lease["resources"], lease["mode"]) == (names, "shared") and "resource" not in lease
    expect_problem(api_a.acquire(names[2]), 423, "resource-locked")
    seen = shown(api_a, names[1])
    assert seen["shared_leases_total"] == 2
    assert all((each["resource"], each["resources"]) == (names[1], names) for each in seen["shared_leases"])


# What can be done with one


def test_shared_lease_is_renewed_and_read(api_a: Api, api_b: Api, resource: str) -> None:
    lease, other = share(api_a, resource, ttl_ms=5_000), share(api_b, resource)
    for api in (api_a, api_b):
        renewed = api.renew(lease, ttl_ms=20_000).json()
        assert (renewed["mode"], renewed["fencing_token"]) == ("shared", lease["fencing_token"])
        assert renewed["validity_ms"] > 10_000
        assert api.read_lease(lease).json()["mode"] == "shared"
    api_a.must_release(lease)
    expect_problem(api_b.renew(lease), 410, "lease-lost")
    assert api_a.renew(other).status == 200


def test_shared_lease_expires_alone_and_is_recorded(api_a: Api, api_b: Api, resource: str) -> None:
    lease, other = share(api_a, resource, ttl_ms=700), share(api_a, resource)
    eventually(lambda: api_b.read_lease(lease).status == 410, goal="it expires")
    assert api_b.read_lease(other).status == 200
    expired = eventually(
        lambda: api_b.history(resource=resource, event="lease_expired"), 20, goal="the history has its end"
    )
    grants = {event["detail"]["grant"] for event in api_b.history(resource=resource, event="lease_granted")}
    assert len(expired) == 1 and len(grants) == 2
    assert expired[0]["fencing_token"] == lease["fencing_token"]
    assert expired[0]["detail"]["mode"] == "shared" and expired[0]["detail"]["grant"] in grants


def test_shared_lease_expires_before_an_exclusive_successor(api_a: Api, resource: str) -> None:
    lease = share(api_a, resource, ttl_ms=700)
    api_a.must_acquire(resource, wait_ms=10_000, ttl_ms=60_000)
    (expired,) = eventually(
        lambda: api_a.history(resource=resource, event="lease_expired"), 20, goal="the history has its end"
    )
    assert (expired["fencing_token"], expired["detail"]["mode"]) == (lease["fencing_token"], "shared")


def test_shared_lease_of_owner_has_holds(api_a: Api, api_b: Api, resource: str) -> None:
    first = share(api_a, resource, owner="same")
    other = share(api_a, resource, owner="other")
    answer = api_b.acquire(resource, mode="shared", owner="same", ttl_ms=20_000)
    assert answer.status == 200, answer
    again = answer.json()
    assert (again["hold_count"], again["fencing_token"]) == (2, first["fencing_token"])
    left = api_a.release(first)
    assert (left.status, left.json()["hold_count"], left.json()["mode"]) == (200, 1, "shared")
    expect_problem(api_a.acquire(resource, owner="same"), 423, "resource-locked")
    api_b.must_release(again)
    assert api_a.read_lease(other).status == 200


def test_shared_kept_lease_has_mode_and_ends_with_stream(api_a: Api, resource: str) -> None:
    other = share(api_a, resource)
    with open_kept_lease(api_a, resource, mode="shared", ttl_ms=3_000) as kept:
        assert kept.wait_for_grant()["mode"] == "shared"
        assert kept.wait_for("renewed").data["mode"] == "shared"
        kept.disconnect()
    eventually(lambda: shared_tokens(api_a, resource) == [other["fencing_token"]], goal="only the other is left")


def test_shared_lease_is_watched_to_its_end(api_a: Api, api_b: Api, resource: str) -> None:
    lease, other = share(api_a, resource), share(api_a, resource)
    with EventStream(api_b, None, method="GET", path=lease_path(lease)) as watching:
        assert watching.wait_for("held").data["mode"] == "shared"
        api_a.must_release(other)
        api_a.must_release(lease)
        assert watching.wait_for("released").data["lease_id"] == lease["lease_id"]
        assert watching.names() == ["held", "released"]


def test_shared_lease_repeated_with_key_is_the_same(api_a: Api, api_b: Api, resource: str) -> None:
    key, body = new_key(), {"resource": resource, "mode": "shared", "ttl_ms": 20_000}
    share(api_a, resource)
    first = api_a.post("/v1/leases", body, key)
    for api in (api_a, api_b):
        again = api.post("/v1/leases", body, key)
        assert again.headers["Idempotency-Replayed"] == "true", again
        assert again.json()["lease_id"] == first.json()["lease_id"]
    assert shown(api_a, resource)["shared_leases_total"] == 2


@pytest.mark.parametrize("fields", [{"mode": "shared"}, {"shared": ["PRICE"]}], ids=["shared", "both"])
def test_shared_request_is_cancelled(
    api_a: Api, api_b: Api, resource: str, unique_name: NameMaker, fields: dict[str, Any]
) -> None:
    if "shared" in fields:
        fields = {"shared": [unique_name("prices/eu")]}
    key, body = new_key(), {"resource": resource, "ttl_ms": 20_000, **fields}
    lease = api_a.post("/v1/leases", body, key).json()
    assert api_b.post("/v1/leases/cancel", body, key).status == 204
    assert api_a.read_lease(lease).status == 410
    key, writer = new_key(), api_a.must_acquire(resource)
    waiting = api_a.begin("POST", "/v1/leases", {**body, "wait_ms": 20_000}, key)
    api_a.await_waiters(resource, 1)
    assert api_a.post("/v1/leases/cancel", {**body, "wait_ms": 20_000}, key).status == 204
    expect_problem(waiting.answer(), 422, "idempotency-mismatch")
    api_a.must_release(writer)


def test_shared_lease_is_not_sealed(api_a: Api, unique_name: NameMaker) -> None:
    order, price = unique_name("orders/7"), unique_name("prices/eu")
    reader = share(api_a, price)
    assert pointers_of(api_a.call("DELETE", f"{lease_path(reader)}?seal=true")) == ["seal"]
    assert api_a.read_lease(reader).status == 200, "nothing was released"
    lease = api_a.must_acquire(order, shared=[price])
    assert api_a.call("DELETE", f"{lease_path(lease)}?seal=true").status == 204
    assert shown(api_a, order)["last_fencing_token"] == lease["fencing_token"] + 1
    assert shown(api_a, price)["last_fencing_token"] == 0


# What others see


def test_shared_leases_are_listed_each(api_a: Api, orders: Api, unique_name: NameMaker) -> None:
    stem = unique_name("test/listed")
    names = [f"{stem}/{name}" for name in "abc"]
    api_a.must_acquire(names[0], shared=[names[1]])
    for _ in range(3):
        share(orders, names[1], owner=uuid.uuid4().hex)
    api_a.must_acquire(names[2])
    pages, cursor = [], None
    while cursor is not None or not pages:
        answer = api_a.get("/v1/leases", resource_prefix=stem, limit=2, **({"cursor": cursor} if cursor else {}))
        pages.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        assert len(pages) < 10
    items = [item for page in pages for item in page]
    assert sorted((item["resource"], item.get("mode")) for item in items) == [
        (names[0], None),
        *[(names[1], "shared")] * 4,
        (names[2], None),
    ]
    assert len({item["grant"] for item in items if "mode" in item}) == 4
    assert sorted(item["principal"] for item in items if "mode" in item) == ["admin", "orders", "orders", "orders"]


def test_shared_leases_of_resource_are_shown(api_a: Api, orders: Api, unique_name: NameMaker) -> None:
    order, price = unique_name("orders/7"), unique_name("prices/eu")
    assert "shared_leases" not in shown(api_a, price)
    lease, reader = api_a.must_acquire(order, shared=[price]), share(orders, price, owner="reader")
    seen = shown(api_a, price)
    assert (seen["lease_state"], seen["lease"], seen["shared_leases_total"]) == ("held", None, 2)
    by_principal = {each["principal"]: each for each in seen["shared_leases"]}
    mixed, alone = by_principal["admin"], by_principal["orders"]
    assert (mixed["resource"], mixed["mode"], mixed["resources"], mixed["shared"]) == (
        price,
        "shared",
        [order],
        [price],
    )
    assert (alone["owner"], alone["fencing_token"]) == ("reader", reader["fencing_token"])
    assert "resources" not in alone
    of_order = shown(api_a, order)["lease"]
    assert (of_order["resource"], of_order["resources"], of_order["shared"]) == (order, [order], [price])
    assert "mode" not in of_order
    refused = expect_problem(api_a.acquire(price), 423, "resource-locked")
    assert refused["fencing_token"] in (lease["fencing_token"], reader["fencing_token"])
    timeline = api_a.get(resource_path(price), fencing_token=reader["fencing_token"]).json()
    assert timeline["end"] == "live"


def test_shared_more_than_100_then_counted(api_a: Api, resource: str) -> None:
    for number in range(101):
        share(api_a, resource, owner=f"reader-{number}", ttl_ms=60_000)
    seen = shown(api_a, resource)
    assert (len(seen["shared_leases"]), seen["shared_leases_total"]) == (100, 101)
    api_a.must_revoke(resource)
    eventually(lambda: api_a.must_acquire(resource, ttl_ms=500), goal="all were revoked")


def test_shared_lease_events_have_mode_and_grant(api_a: Api, unique_name: NameMaker) -> None:
    order, price = unique_name("orders/7"), unique_name("prices/eu")
    lease = api_a.must_acquire(order, shared=[price])
    expect_problem(api_a.acquire(order, mode="shared"), 423, "resource-locked")
    api_a.renew(lease)
    api_a.must_release(lease)

    def events_of(resource: str) -> dict[str, Json]:
        return {event["event"]: event["detail"] or {} for event in api_a.history(resource=resource)}

    wanted = {"lease_granted", "lease_renewed", "lease_released"}
    of_price = eventually(lambda: (got := events_of(price)).keys() >= wanted and got, goal="its events")
    assert {detail["mode"] for detail in of_price.values()} == {"shared"}
    assert len({detail["grant"] for detail in of_price.values()}) == 1
    of_order = eventually(lambda: (got := events_of(order)).keys() >= wanted and got, goal="its events")
    assert all("mode" not in of_order[event] for event in wanted)
    refused = of_order["lease_refused"]
    assert refused["mode"] == "shared" and "grant" not in refused


def test_shared_leases_count_in_metrics(api: Api, resource: str) -> None:
    def count(name: str) -> float:
        text = api.get("/metrics").body.decode()
        return sum(map(float, re.findall(rf"^distributed_lock_{name}_total{{.*}} (\S+)$", text, re.MULTILINE)))

    before = [count("grants"), count("renewals")]
    api.renew(share(api, resource))
    assert [count("grants"), count("renewals")] == [before[0] + 1, before[1] + 1]


# Operators


def test_shared_leases_revoked_all_or_by_token(api_a: Api, api_b: Api, unique_name: NameMaker) -> None:
    order, price = unique_name("orders/7"), unique_name("prices/eu")
    first = share(api_a, price)
    second = api_b.must_acquire(order, shared=[price])
    assert first["fencing_token"] != second["fencing_token"]
    answer = api_b.revoke(price, expected_token=max(first["fencing_token"], second["fencing_token"]) + 1)
    expect_problem(answer, 409, "expectation-failed")
    assert api_b.revoke(price, expected_token=first["fencing_token"]).status == 204
    expect_problem(api_a.read_lease(first), 410, "lease-lost")
    assert api_a.read_lease(second).status == 200
    third = share(api_a, price)
    api_b.must_revoke(price)
    for lease in (second, third):
        expect_problem(api_a.read_lease(lease), 410, "lease-lost")
    assert shown(api_a, order)["last_fencing_token"] == second["fencing_token"] + 1, "it may not write any more"
    assert shown(api_a, price)["last_fencing_token"] == 0
    expect_problem(api_b.revoke(price), 404, "not-found")
    api_b.must_release(api_b.must_acquire(price))
    revoked = eventually(
        lambda: len(found := api_a.history(resource=price, event="lease_revoked")) == 3 and found, goal="the events"
    )
    assert all(event["detail"]["mode"] == "shared" and event["detail"]["holder"] for event in revoked)


# The command line


def test_lock_shared_runs_beside_others(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    reader = share(api_a, resource)
    mark, end = tmp_path / "mark", tmp_path / "end"
    script = f'echo "$FENCING_RESOURCE $FENCING_TOKEN" > {mark}; until [ -e {end} ]; do sleep 0.05; done'
    with cli.begin("lock", "--shared", resource, "--", "sh", "-c", script) as running:
        name, token = first_line(mark).split()
        assert name == resource and int(token) in shared_tokens(api_a, resource)
        assert shown(api_a, resource)["shared_leases_total"] == 2
        assert cli.run("leases", "--prefix", resource).stdout.count('"mode":"shared"') == 2
        assert cli.run("lock", "-n", resource, "--", "true").returncode == 75
        end.touch()
        assert running.wait(15) == 0
    assert shared_tokens(api_a, resource) == [reader["fencing_token"]]


def test_lock_with_shared_names_takes_all(cli: Cli, api_a: Api, unique_name: NameMaker) -> None:
    order, price, tax = unique_name("orders/7"), unique_name("prices/eu"), unique_name("taxes/eu")
    arguments = ["lock", "-n", "--with-shared", price, "--with-shared", tax, order, "--"]
    reader = share(api_a, price)
    ran = cli.run(*arguments, "sh", "-c", 'echo "$FENCING_RESOURCE"')
    assert (ran.returncode, ran.stdout.strip()) == (0, order), ran
    granted = eventually(lambda: api_a.history(resource=tax, event="lease_granted"), goal="the grant")
    assert granted[0]["detail"]["mode"] == "shared"
    api_a.must_release(reader)
    api_a.must_acquire(tax)
    assert cli.run(*arguments, "true").returncode == 75


@pytest.mark.parametrize(
    "arguments",
    [
        ["--shared", "--with-shared", "b", "a"],
        ["--shared", "--any-of", "a", "b"],
        ["--any-of", "--with-shared", "c", "a", "b"],
        ["--shared", "--seal", "a"],
        ["--shared", "--every", "1m", "a"],
    ],
)
def test_lock_shared_refuses_options_that_need_exclusive(cli: Cli, arguments: list[str]) -> None:
    assert cli.run("lock", "-n", *arguments, "--", "true").returncode == 64
