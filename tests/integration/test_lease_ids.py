"""lease_id: opaque, sufficient, and not to be made by anyone but a gateway."""

from __future__ import annotations

import base64
from typing import Callable

import pytest
from support.api import Api, expect_problem, lease_path
from support.cluster import Cluster
from support.shop import Sku

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def refused_everywhere(api: Api, lease_id: str) -> None:
    forged = {"lease_id": lease_id}
    for call in (api.look, api.release, api.renew):
        expect_problem(call(forged), 403, "lease-not-authentic")
    expect_problem(api.write(forged, {"delete": "inventory", "where": {"sku": "none"}}), 403, "lease-not-authentic")


def another(character: str) -> str:
    return ALPHABET[(ALPHABET.index(character) + 1) % 64] if character in ALPHABET else "A"


def test_lease_id_when_any_one_character_is_changed_then_403(api: Api, resource: str) -> None:
    lease = api.take(resource)
    lease_id = lease["lease_id"]
    accepted = []
    with api.connection() as connection:
        for position, character in enumerate(lease_id):
            changed = lease_id[:position] + another(character) + lease_id[position + 1:]
            answer = connection.call("GET", lease_path(changed))
            if answer.status != 403:
                accepted.append((position, answer.status))
    assert not accepted
    assert api.look(lease).status == 200


def test_lease_id_when_its_last_character_is_any_other_then_403(api: Api, resource: str) -> None:
    """An encoding with spare bits at the end would let several texts stand for one lease."""
    lease_id = api.take(resource)["lease_id"]
    for character in ALPHABET.replace(lease_id[-1], ""):
        expect_problem(api.call("GET", lease_path(lease_id[:-1] + character)), 403, "lease-not-authentic")


@pytest.mark.parametrize("forge", [
    lambda lease_id: lease_id[:-1],
    lambda lease_id: lease_id[1:],
    lambda lease_id: lease_id + "A",
    lambda lease_id: lease_id + "=",
    lambda lease_id: lease_id[:len(lease_id) // 2],
    lambda lease_id: lease_id.swapcase(),
    lambda lease_id: lease_id[::-1],
    lambda lease_id: lease_id + lease_id,
    lambda lease_id: "x",
    lambda lease_id: "A" * len(lease_id),
    lambda lease_id: "../../etc/passwd",
    lambda lease_id: "a\u00e9\u2603",
    lambda lease_id: "A" * 4000,
    lambda lease_id: base64.urlsafe_b64encode(b'{"resource":"inventory/sku-1","fencing_token":9007199254740991}').decode().rstrip("="),
], ids=["cut-at-the-end", "cut-at-the-start", "longer", "padded", "half", "other-case", "reversed", "twice", "short", "all-a", "path", "unicode",
        "very-long", "made-up"])
def test_lease_id_when_forged_then_403_on_every_call(api: Api, resource: str, forge: Callable[[str], str]) -> None:
    lease = api.take(resource)
    refused_everywhere(api, forge(lease["lease_id"]))
    assert api.look(lease).status == 200


def test_lease_id_when_parts_of_two_are_joined_then_403(api: Api, fresh: Callable[[str], str]) -> None:
    """The claims of one lease with the seal of the other, wherever the border is."""
    one, two = (api.take(fresh("test/joined"))["lease_id"] for _ in range(2))
    assert len(one) == len(two)
    with api.connection() as connection:
        for border in range(1, len(one)):
            joined = one[:border] + two[border:]
            if joined not in (one, two):
                assert connection.call("GET", lease_path(joined)).status == 403, border


def test_lease_id_when_made_with_another_clusters_key_then_403(api: Api, cluster: Cluster, fresh: Callable[[str], str], sku: Sku) -> None:
    """The other gateway knows the resource by the same name, and its token is as good: only the key differs."""
    gateway = cluster.gateway()
    gateway.start()
    foreign = gateway.api.take(sku.resource, ttl_ms=2_000)
    refused_everywhere(api, foreign["lease_id"])
    expect_problem(api.write(foreign, sku.sell()), 403, "lease-not-authentic")
    assert sku.stock() == 10
    assert gateway.stop() == 0


def test_lease_id_when_the_gateway_was_killed_then_its_successor_serves_it(cluster: Cluster, resource: str) -> None:
    settings = cluster.settings()
    first = cluster.gateway(settings)
    first.start()
    lease = first.api.take(resource, ttl_ms=2_000)
    first.kill()
    second = cluster.gateway(settings)
    second.start()
    renewed = second.api.renew(lease, ttl_ms=2_000)
    assert renewed.status == 200, f"{renewed}; the start must not take 2 s"
    assert renewed.json()["fencing_token"] == lease["fencing_token"]
    second.api.give_back(lease)
    assert second.stop() == 0


def test_lease_ids_when_the_same_resource_is_granted_again_then_never_the_same(api: Api, resource: str) -> None:
    seen = set()
    for _ in range(20):
        lease = api.take(resource)
        seen.add(lease["lease_id"])
        api.give_back(lease)
    assert len(seen) == 20


def test_lease_id_when_put_into_a_path_then_needs_no_escaping(api: Api, fresh: Callable[[str], str]) -> None:
    for _ in range(20):
        assert set(api.take(fresh("test/alphabet"), owner="ö/ä?#%")["lease_id"]) <= set(ALPHABET + ".~")
