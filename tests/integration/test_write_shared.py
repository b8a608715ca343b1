"""Writes and fenced reads under leases that share resources: signed here with tokens of choice, or granted."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Callable, Iterable

import pytest
from support.api import Answer, Api, Json, expect_problem, resource_path
from support.polling import eventually
from support.shop import Sku, create_sku
from support.stack import Stack


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def sign(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> Callable[..., Json]:
    """Returns a lease on other resources and with another token, above that of the first lease by `later`."""
    given = api.must_acquire(unique_name("lease"))
    claims = given["lease_id"].split(".")[0]
    lines = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)).decode().split("\n")
    key = (stack.folder / "data" / "signing.key").read_bytes().strip()

    def made(later: int, resources: Iterable[str] = (), shared: Iterable[str] = ()) -> Json:
        token = given["fencing_token"] + later
        lines[2], lines[4] = str(token), "\t".join([*resources, *(["", *shared] if shared else [])])
        signed = base64url("\n".join(lines).encode())
        signature = base64url(hmac.new(key, signed.encode(), hashlib.sha256).digest())
        return {"lease_id": f"{signed}.{signature}", "fencing_token": token}

    return made


@pytest.fixture
def prices(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> Sku:
    """An article that the writes of the test only read."""
    return create_sku(stack, unique_name("a-price"))


def read_fenced(api: Api, lease: Json, sku: Sku) -> Answer:
    return api.get("/v1/tables/inventory", {"Fencing-Lease": lease["lease_id"]}, sku=f"eq.{sku.name}", select="stock")


def fences(stack: Stack, sku: Sku) -> tuple[Any, ...]:
    found = stack.query(
        "select last_fencing_token, last_read_token from fencing.guard where resource = %s", (sku.resource,)
    )
    return found[0]


WRITES: dict[str, Callable[[Api, Json, Sku], Answer]] = {
    "writes": lambda api, lease, sku: api.write(lease, sku.sell()),
    "update": lambda api, lease, sku: api.call(
        "PATCH", f"/v1/tables/inventory?sku=eq.{sku.name}", {"note": "x"}, {"Fencing-Lease": lease["lease_id"]}
    ),
    "insert": lambda api, lease, sku: api.call(
        "POST", "/rest/v1/inventory", {"sku": "x", "stock": 1}, {"Fencing-Lease": lease["lease_id"]}
    ),
    "delete": lambda api, lease, sku: api.call(
        "DELETE", f"/v1/tables/inventory?sku=eq.{sku.name}", None, {"Fencing-Lease": lease["lease_id"]}
    ),
    "function": lambda api, lease, sku: api.call(
        "POST",
        "/v1/rpc/place_order",
        {"order_id": 1, "sku": sku.name, "quantity": 1},
        {"Fencing-Lease": lease["lease_id"]},
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_write_under_shared_lease_403_before_anything_runs(
    stack: Stack, api: Api, sku: Sku, sign: Callable[..., Json], write: str
) -> None:
    before = fences(stack, sku)
    expect_problem(WRITES[write](api, sign(1, shared=[sku.resource]), sku), 403, "shared-lease")
    assert (fences(stack, sku), sku.stock()) == (before, 10)
    assert api.history(resource=sku.resource, event="write_rejected") == []


def test_shared_fenced_read_refuses_older_writers_alone(
    stack: Stack, api: Api, sku: Sku, sign: Callable[..., Json]
) -> None:
    first, older, newer = (sign(later, shared=[sku.resource]) for later in (2, 1, 4))
    written = fences(stack, sku)[0]
    assert read_fenced(api, first, sku).json() == [{"stock": 10}]
    assert fences(stack, sku) == (written, first["fencing_token"])
    (raised,) = api.history(resource=sku.resource, event="fence_raised")
    assert (raised["fencing_token"], raised["last_fencing_token"]) == (first["fencing_token"],) * 2
    assert raised["detail"]["mode"] == "shared" and raised["detail"]["last_read_token"] == first["fencing_token"]
    assert read_fenced(api, older, sku).status == 200
    assert fences(stack, sku)[1] == first["fencing_token"]
    problem = expect_problem(api.write(sign(1, [sku.resource]), sku.sell()), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == first["fencing_token"]
    state = api.get(f"/v1/resources/{sku.resource.replace('/', '%2F')}").json()
    assert (state["last_fencing_token"], state["last_read_token"]) == (first["fencing_token"],) * 2
    writer = sign(3, [sku.resource])
    api.must_write(writer, sku.sell())
    problem = expect_problem(read_fenced(api, first, sku), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == writer["fencing_token"]
    assert read_fenced(api, newer, sku).json() == [{"stock": 9}]


def test_write_reads_what_its_lease_shares(
    stack: Stack, api: Api, sku: Sku, prices: Sku, sign: Callable[..., Json]
) -> None:
    lease = sign(2, [sku.resource], [prices.resource])
    expect_problem(api.write(lease, prices.sell()), 403, "resource-not-covered")
    assert fences(stack, prices)[1] == 0, "a write that was refused has read nothing"
    written = api.must_write(lease, sku.sell())
    assert [fence["resource"] for fence in written["fences"]] == [sku.resource]
    (raised,) = api.history(resource=prices.resource, event="fence_raised")
    assert (raised["write_id"], raised["last_fencing_token"]) == (written["write_id"], lease["fencing_token"])
    expect_problem(api.write(sign(1, [prices.resource]), prices.sell()), 412, "stale-fencing-token")
    both = read_fenced(api, sign(3, [sku.resource], [prices.resource]), prices)
    assert both.json() == [{"stock": 10}]
    assert (fences(stack, sku)[0], fences(stack, prices)[1]) == (lease["fencing_token"] + 1,) * 2


@pytest.mark.parametrize("key", [None, "a-key"])
def test_write_whose_shared_part_is_stale_changes_nothing(
    stack: Stack, api: Api, sku: Sku, prices: Sku, sign: Callable[..., Json], key: str | None
) -> None:
    api.must_write(sign(2, [prices.resource]), prices.sell())
    stale, before = sign(1, [sku.resource], [prices.resource]), fences(stack, sku)
    body = {"lease_id": stale["lease_id"], "operations": [sku.sell()]}
    answer = api.call("POST", "/v1/writes", body, {"Idempotency-Key": f"{key}-{sku.name}"} if key else None)
    problem = expect_problem(answer, 412, "stale-fencing-token")
    assert (problem["resource"], problem["last_fencing_token"]) == (prices.resource, stale["fencing_token"] + 1)
    (rejected,) = api.history(resource=prices.resource, event="write_rejected")
    assert (rejected["write_id"], rejected["last_fencing_token"]) == (
        problem["write_id"],
        problem["last_fencing_token"],
    )
    assert (fences(stack, sku), sku.stock()) == (before, 10)
    assert api.history(resource=sku.resource) == []


# Under leases that were granted


def take_expired(api: Api, resource: str, **fields: Any) -> Json:
    lease = api.must_acquire(resource, ttl_ms=300, **fields)
    eventually(lambda: api.read_lease(lease).status == 410, goal="it expires")
    return lease


def test_granted_shared_reads_refuse_an_older_writer(api: Api, sku: Sku) -> None:
    writer = take_expired(api, sku.resource)
    readers = [api.must_acquire(sku.resource, mode="shared") for _ in range(2)]
    for reader in readers:
        assert read_fenced(api, reader, sku).json() == [{"stock": 10}]
    expect_problem(api.write(writer, sku.sell()), 412, "stale-fencing-token")
    assert sku.stock() == 10
    for reader in readers:
        api.must_release(reader)
    api.must_write(api.must_acquire(sku.resource), sku.sell())


def test_plain_read_beside_shared_lease_refuses_nobody(api: Api, sku: Sku) -> None:
    writer = take_expired(api, sku.resource)
    api.must_acquire(sku.resource, mode="shared")
    assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200
    api.must_write(writer, sku.sell())


def test_late_shared_reader_learns_that_it_is_late(api: Api, sku: Sku) -> None:
    reader = take_expired(api, sku.resource, mode="shared")
    assert read_fenced(api, reader, sku).status == 200, "nobody has written since"
    api.must_write(api.must_acquire(sku.resource), sku.sell())
    expect_problem(read_fenced(api, reader, sku), 412, "stale-fencing-token")


def test_fence_on_grant_of_shared_lease_raises_read_fence(api: Api, sku: Sku) -> None:
    older = take_expired(api, sku.resource)
    reader = api.must_acquire(sku.resource, mode="shared", fence_on_grant=True)
    state = api.get(resource_path(sku.resource)).json()
    assert state["last_read_token"] == reader["fencing_token"]
    expect_problem(api.write(older, sku.sell()), 412, "stale-fencing-token")
