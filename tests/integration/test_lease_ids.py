"""lease_id: opaque, sufficient for every call, and impossible to forge."""

from __future__ import annotations

import base64
import uuid
from typing import Callable

import pytest
from support.api import Answer, Api, Connection, expect_problem, lease_path
from support.cluster import Cluster
from support.cluster import running as running_cluster
from support.shop import Sku
from support.stack import Stack

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def expect_refused_everywhere(api: Api, lease_id: str) -> None:
    forged = {"lease_id": lease_id}
    for call in (api.read_lease, api.release, api.renew):
        expect_problem(call(forged), 403, "lease-not-authentic")
    expect_problem(api.write(forged, {"delete": "inventory", "where": {"sku": "none"}}), 403, "lease-not-authentic")


def flip(lease_id: str, bit: int) -> str:
    """Returns the text with one bit changed: a character below 256, which UTF-8 may give two bytes."""
    position = bit // 8
    return lease_id[:position] + chr(ord(lease_id[position]) ^ 1 << bit % 8) + lease_id[position + 1 :]


UPDATE = {"update": "inventory", "where": {"sku": "none"}, "add": {"stock": 1}}
USES: dict[str, Callable[[Connection, str], Answer]] = {
    "read": lambda to, lease_id: to.call("GET", lease_path(lease_id)),
    "renew": lambda to, lease_id: to.post(f"{lease_path(lease_id)}/renew", {"ttl_ms": 1_000}),
    "release": lambda to, lease_id: to.call("DELETE", lease_path(lease_id)),
    "release-and-seal": lambda to, lease_id: to.call("DELETE", f"{lease_path(lease_id)}?seal=true"),
    "write": lambda to, lease_id: to.post("/v1/writes", {"lease_id": lease_id, "operations": [UPDATE]}),
    "write-by-header": lambda to, lease_id: to.post("/v1/writes", {"operations": [UPDATE]}, header(lease_id)),
    "table-read": lambda to, lease_id: to.call("GET", "/v1/tables/inventory?sku=eq.none", None, header(lease_id)),
    "table-write": lambda to, lease_id: to.call(
        "PATCH", "/v1/tables/inventory?sku=eq.none", {"note": "x"}, header(lease_id)
    ),
    "function": lambda to, lease_id: to.post(
        "/v1/rpc/place_order", {"order_id": 1, "sku": "none", "quantity": 1}, header(lease_id)
    ),
}


def header(lease_id: str) -> dict[str, str]:
    return {"Fencing-Lease": lease_id}


@pytest.mark.parametrize("use", USES)
def test_lease_id_with_any_bit_flipped_is_refused(api: Api, resource: str, use: str) -> None:
    """Each byte by one bit, of `read` all eight. A field value with a control character is no HTTP,
    and is refused as a whole."""
    lease = api.must_acquire(resource, ttl_ms=60_000)
    lease_id = lease["lease_id"]
    for bit in range(len(lease_id) * 8) if use == "read" else range(0, len(lease_id) * 8 - 8, 9):
        forged = flip(lease_id, bit)
        in_header = use in ("write-by-header", "table-read", "table-write", "function")
        if in_header and set(forged) & set("\r\n"):  # which would end the field
            continue
        with api.connection() as connection:
            answer = USES[use](connection, forged)
        if in_header and not (forged.isascii() and forged.isprintable()) and answer.status == 400:
            continue
        expect_problem(answer, 403, "lease-not-authentic")
    assert api.read_lease(lease).status == 200, "the lease stays as it was"


@pytest.mark.parametrize(
    "forge",
    [
        lambda lease_id: lease_id[:-1],
        lambda lease_id: lease_id[1:],
        lambda lease_id: lease_id + "A",
        lambda lease_id: lease_id + "=",
        lambda lease_id: lease_id[: len(lease_id) // 2],
        lambda lease_id: lease_id.swapcase(),
        lambda lease_id: lease_id[::-1],
        lambda lease_id: lease_id + lease_id,
        lambda lease_id: lease_id.replace(".", "=."),
        lambda lease_id: lease_id.replace(".", ".."),
        lambda lease_id: lease_id.replace(".", ""),
        lambda lease_id: "." + lease_id,
        lambda lease_id: lease_id + "." + lease_id.split(".")[1],
        lambda lease_id: lease_id + "\n",
        lambda lease_id: " " + lease_id,
        lambda lease_id: "".join(f"%{ord(character):02x}" for character in lease_id),
        lambda lease_id: "x",
        lambda lease_id: "A" * len(lease_id),
        lambda lease_id: "../../etc/passwd",
        lambda lease_id: "a\u00e9\u2603",
        lambda lease_id: "A" * 4000,
        lambda lease_id: base64.urlsafe_b64encode(b'{"resource":"inventory/sku-1","fencing_token":9007199254740991}')
        .decode()
        .rstrip("="),
    ],
    ids=(
        "cut-at-the-end cut-at-the-start longer padded half other-case reversed twice claims-padded "
        "two-dots no-dot dot-in-front signature-twice line-end blank-in-front encoded-twice short all-a "
        "path unicode very-long made-up"
    ).split(),
)
def test_lease_id_forged_403_on_every_call(api: Api, resource: str, forge: Callable[[str], str]) -> None:
    lease = api.must_acquire(resource)
    expect_refused_everywhere(api, forge(lease["lease_id"]))
    assert api.read_lease(lease).status == 200


def test_lease_id_joined_from_two_403(api: Api, unique_name: Callable[[str], str]) -> None:
    """The claims of one lease with the signature of another, split at any position."""
    first, second = (api.must_acquire(unique_name("test/joined"))["lease_id"] for _ in range(2))
    assert len(first) == len(second)
    with api.connection() as connection:
        for border in range(1, len(first)):
            joined = first[:border] + second[border:]
            if joined not in (first, second):
                assert connection.call("GET", lease_path(joined)).status == 403, border


def test_lease_id_signed_with_key_of_another_cluster_403(
    api: Api, cluster: Cluster, unique_name: Callable[[str], str], sku: Sku
) -> None:
    """The lease of the other cluster has the same resource and a valid token: only the signing key differs."""
    gateway = cluster.start_gateway()
    foreign = gateway.api.must_acquire(sku.resource, ttl_ms=2_000)
    expect_refused_everywhere(api, foreign["lease_id"])
    expect_problem(api.write(foreign, sku.sell()), 403, "lease-not-authentic")
    assert sku.stock() == 10
    assert gateway.stop() == 0


def test_lease_id_in_the_other_base64_alphabet_403(api: Api, unique_name: Callable[[str], str]) -> None:
    for _ in range(20):
        lease_id = api.must_acquire(unique_name("test/base64"))["lease_id"]
        if set(lease_id) & set("-_"):
            break
    for old, new in (("-", "+"), ("_", "/")):
        if old in lease_id:
            expect_refused_everywhere(api, lease_id.replace(old, new))
    assert set(lease_id) & set("-_")


def test_lease_id_of_cluster_with_same_key_only_writes(stack: Stack, api: Api, cluster: Cluster, sku: Sku) -> None:
    """Two clusters by mistake have one key (SECURITY.md, Known limits): the nodes know no such lease,
    but the guard compares tokens alone."""
    gateway = cluster.start_gateway(cluster.settings(signing_key_file=str(stack.data / "signing.key")))
    foreign = gateway.api.must_acquire(sku.resource, ttl_ms=2_000)
    for call in (api.read_lease, api.release, api.renew):
        expect_problem(call(foreign), 410, "lease-lost")
    expect_problem(api.write(foreign, sku.sell(), require_live=True), 410, "lease-lost")
    assert sku.stock() == 10
    api.must_write(foreign, sku.sell())
    assert gateway.stop() == 0


def test_lease_id_of_another_principal_needs_operate(api_a: Api, orders: Api, resource: str) -> None:
    """Another tenant with a key and scopes of its own, who has got hold of the lease_id."""
    lease = api_a.must_acquire(resource)
    for call in (orders.read_lease, orders.renew, orders.release):
        expect_problem(call(lease), 403, "forbidden")
    expect_problem(orders.write(lease, UPDATE), 403, "forbidden")
    assert api_a.read_lease(lease).status == 200
    own = orders.must_acquire(resource + "/own")
    assert api_a.read_lease(own).status == 200, "admin has the scope operate"


def test_lease_id_of_killed_gateway_is_served_by_successor(stack: Stack, resource: str) -> None:
    with running_cluster(
        stack, f"successor_{uuid.uuid4().hex[:6]}", max_ttl_ms=20_000
    ) as cluster:  # longer than a start takes
        second, lease = cluster.successor_of_killed(resource, ttl_ms=20_000)
        renewed = second.api.renew(lease, ttl_ms=20_000)
        assert renewed.status == 200, renewed
        assert renewed.json()["fencing_token"] == lease["fencing_token"]
        second.api.must_release(lease)
        assert second.stop() == 0


def test_lease_ids_of_repeated_grants_differ(api: Api, resource: str) -> None:
    seen = set()
    for _ in range(20):
        lease = api.must_acquire(resource)
        seen.add(lease["lease_id"])
        api.must_release(lease)
    assert len(seen) == 20


def test_lease_id_needs_no_escaping_in_path(api: Api, unique_name: Callable[[str], str]) -> None:
    for _ in range(20):
        assert set(api.must_acquire(unique_name("test/alphabet"), owner="ö/ä?#%")["lease_id"]) <= set(ALPHABET + ".~")
