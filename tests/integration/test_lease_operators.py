"""Calls of an operator: the list of leases, revoking a lease, repairing a fence."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of, resource_path
from support.polling import eventually, remains
from support.shop import Sku, create_sku
from support.stack import Stack, lease_keys

NameMaker = Callable[[str], str]


@pytest.fixture
def auditor(guarded_pair: Stack) -> Api:
    return guarded_pair.api(1, "auditor")


@pytest.fixture
def goods(guarded_pair: Stack, api_a: Api, unique_name: NameMaker) -> Sku:
    return create_sku(guarded_pair, unique_name("sku-operated"), 10)


def list_leases(api: Api, **query: object) -> list[Any]:
    """Returns the items of all pages."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        answer = api.get("/v1/leases", **query, **({"cursor": cursor} if cursor else {}))
        assert answer.status == 200, answer
        page = answer.json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def repair(api: Api, resource: str, to: object, reason: object = "a wrong token") -> Answer:
    return api.post(resource_path(resource, "fence"), {"reason": reason, "last_fencing_token": to})


def fence_of(stack: Stack, resource: str) -> int:
    rows = stack.query("select last_fencing_token from fencing.guard where resource = %s", (resource,))
    return rows[0][0] if rows else 0


# The list of leases


def test_list_has_holder_token_and_time_but_no_lease_id(
    api_a: Api, orders: Api, auditor: Api, unique_name: NameMaker
) -> None:
    stem = unique_name("test/listed")
    lease = orders.must_acquire(f"{stem}/b", owner="orders-1", ttl_ms=20_000)
    api_a.must_acquire(f"{stem}/a", ttl_ms=30_000)
    again = orders.acquire(f"{stem}/b", owner="orders-1", ttl_ms=20_000)
    assert again.status == 200
    assert orders.renew(lease).status == 200
    answer = auditor.get("/v1/leases", resource_prefix=stem)
    assert (
        answer.status == 200
        and "lease_id" not in answer.body.decode()
        and lease["lease_id"].split(".")[0] not in answer.body.decode()
    )
    first, second = answer.json()["items"]
    assert (first["resource"], first["owner"], first["principal"], first["hold_count"], first["renewals"]) == (
        f"{stem}/a",
        None,
        "admin",
        1,
        0,
    )
    assert (second["resource"], second["owner"], second["principal"], second["hold_count"], second["renewals"]) == (
        f"{stem}/b",
        "orders-1",
        "orders",
        2,
        1,
    )
    assert second["fencing_token"] == lease["fencing_token"]
    assert 0 < second["remaining_ms"] <= 20_000 < first["remaining_ms"] <= 30_000
    for item in (first, second):
        assert set(item) == set(
            "resource fencing_token owner principal hold_count renewals granted_at remaining_ms quorum".split()
        )
        assert item["quorum"]["nodes"] == 5 and item["quorum"]["granted"] >= 3
        assert item["granted_at"].endswith("Z")
    orders.release(lease)
    orders.must_release(again.json())
    assert [item["resource"] for item in list_leases(auditor, resource_prefix=stem)] == [f"{stem}/a"]


def test_list_with_prefix_has_only_names_with_prefix(api_a: Api, auditor: Api, unique_name: NameMaker) -> None:
    stem = unique_name("test/prefix")
    names = [f"{stem}", f"{stem}-1", f"{stem}/1", f"{stem}/10", f"{stem}/2", f"{stem}A"]
    for name in names:
        api_a.must_acquire(name)

    def found(prefix: str) -> list[str]:
        return [item["resource"] for item in list_leases(auditor, resource_prefix=prefix)]

    assert found(stem) == sorted(names)
    assert found(f"{stem}/") == [f"{stem}/1", f"{stem}/10", f"{stem}/2"]
    assert found(f"{stem}/1") == [f"{stem}/1", f"{stem}/10"]
    assert found(f"{stem}/3") == []
    assert set(found("")) >= set(names)


def test_list_has_each_resource_of_lease(api_a: Api, auditor: Api, unique_name: NameMaker) -> None:
    stem = unique_name("test/many")
    lease = api_a.post("/v1/leases", {"resources": [f"{stem}/{n}" for n in range(3)], "ttl_ms": 20_000}).json()
    items = list_leases(auditor, resource_prefix=stem)
    assert [item["resource"] for item in items] == [f"{stem}/{n}" for n in range(3)]
    assert {item["fencing_token"] for item in items} == {lease["fencing_token"]}


def test_list_counts_waiters_of_all_gateways_by_resource(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker
) -> None:
    stem = unique_name("test/queue")
    first, second, free = f"{stem}/1", f"{stem}/2", f"{stem}/3"
    for name in (first, second):
        api_a.must_acquire(name)
    calls = [api_a.begin_acquire(first, wait_ms=20_000) for _ in range(2)]
    calls.append(api_a.begin("POST", "/v1/leases", {"resources": [free, second, first], "wait_ms": 20_000}))
    calls.append(api_b.begin_acquire(second, wait_ms=20_000))

    def waiting(api: Api, prefix: str = stem) -> tuple[list[int], list[tuple[str, int]]]:
        page = api.get("/v1/leases", resource_prefix=prefix, limit=1).json()
        counts = [each["waiters"] for each in page["waiting_gateways"]]
        assert page["waiting_complete"] and page["waiters"] == sum(counts), page
        return counts, [(entry["resource"], entry["waiters"]) for entry in page["waiting"]]

    # Ordered by the number of waiters, then by name.
    of_all = [(first, 3), (second, 2), (free, 1)]
    eventually(lambda: waiting(api_a) == ([3, 1], of_all), 8, goal="three wait here, one of them for all")
    eventually(lambda: waiting(api_b) == ([1, 5], of_all), 8, goal="one waits there, the others for five resources")
    assert waiting(api_a, free) == ([1], [(free, 1)]) and waiting(api_b, free) == ([0, 1], [(free, 1)])
    assert waiting(api_a, f"{stem}/none") == ([0], [])
    for call in calls:
        call.disconnect()
    eventually(
        lambda: waiting(api_a) == ([0], []) and waiting(api_b) == ([0], []),
        8,
        goal="disconnected callers have left the queue",
    )
    newest = "select max(at) from fencing.waiting"
    before = guarded_pair.query(newest)
    remains(lambda: guarded_pair.query(newest) == before, 3, 0.2, goal="nothing is stored while nobody waits")


def test_list_of_250_leases_pages_each_once_in_order(
    api_a: Api, api_b: Api, auditor: Api, unique_name: NameMaker
) -> None:
    stem = unique_name("test/page")
    names = [f"{stem}/{number:03}" for number in range(250)]

    def take_share(share: list[str]) -> None:
        with api_a.connection() as connection:
            for name in share:
                assert connection.post("/v1/leases", {"resource": name, "ttl_ms": 60_000}).status == 201

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(take_share, [names[start::4] for start in range(4)]))
    for limit in (249, 250, 251, 1_000, 100, 37):
        assert [item["resource"] for item in list_leases(auditor, resource_prefix=stem, limit=limit)] == names, limit
    page = api_b.get("/v1/leases", resource_prefix=stem, limit=250).json()
    assert len(page["items"]) == 250 and page["next_cursor"] is None
    page = api_b.get("/v1/leases", resource_prefix=stem).json()
    assert len(page["items"]) == 100 and page["next_cursor"]
    page = api_b.get("/v1/leases", resource_prefix=stem, limit=1).json()
    assert [item["resource"] for item in page["items"]] == names[:1]


def test_list_while_leases_change_has_lasting_ones_once(api_a: Api, auditor: Api, unique_name: NameMaker) -> None:
    stem = unique_name("test/moving")
    stay = [f"{stem}/{number:02}" for number in range(0, 40, 2)]
    for name in stay:
        api_a.must_acquire(name, ttl_ms=60_000)
    ended = False

    def come_and_go() -> None:
        number = 1
        while not ended:
            api_a.must_release(api_a.must_acquire(f"{stem}/{number:02}"))
            number = (number + 2) % 40

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        moving = pool.submit(come_and_go)
        try:
            for _ in range(10):
                found = [item["resource"] for item in list_leases(auditor, resource_prefix=stem, limit=7)]
                assert [name for name in found if name in stay] == stay
        finally:
            ended = True
        moving.result(10)


def test_list_requested_by_many_is_served_or_429(api_a: Api, auditor: Api, unique_name: NameMaker) -> None:
    stem = unique_name("test/rush")
    api_a.must_acquire(f"{stem}/1")
    calls = [auditor.begin("GET", f"/v1/leases?resource_prefix={stem}") for _ in range(12)]
    answers = [call.answer() for call in calls]
    served = [answer for answer in answers if answer.status == 200]
    assert served and all([item["resource"] for item in answer.json()["items"]] == [f"{stem}/1"] for answer in served)
    for answer in answers:
        if answer.status != 200:
            expect_problem(answer, 429, "too-many-requests")
            assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"resource_prefix": "a//"}, "resource_prefix"),
        ({"resource_prefix": "x" * 201}, "resource_prefix"),
        ({"resource_prefix": "a\n"}, "resource_prefix"),
        ({"cursor": "a b"}, "cursor"),
        ({"cursor": "a?"}, "cursor"),
        ({"order": "desc"}, "order"),
    ],
)
def test_list_with_wrong_query_400_names_parameter(auditor: Api, query: dict[str, object], pointer: str) -> None:
    assert pointers_of(auditor.get("/v1/leases", **query)) == [pointer]


def test_list_without_scope_history_403(guarded_pair: Stack, orders: Api) -> None:
    expect_problem(orders.get("/v1/leases"), 403, "forbidden")
    expect_problem(orders.with_key(None).get("/v1/leases"), 401, "unauthenticated")


# Revocation


def test_revocation_204_and_holder_can_no_longer_write(guarded_pair: Stack, api_a: Api, api_b: Api, goods: Sku) -> None:
    lease = api_a.must_acquire(goods.resource, ttl_ms=60_000)
    api_a.must_write(lease, goods.sell())
    answer = api_b.revoke(goods.resource, reason="the holder hangs")
    assert (answer.status, answer.body) == (204, b""), answer
    for call in (api_a.read_lease, api_a.renew, api_a.release):
        expect_problem(call(lease), 410, "lease-lost")
    problem = expect_problem(api_a.write(lease, goods.sell()), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == fence_of(guarded_pair, goods.resource) == lease["fencing_token"] + 1
    assert goods.stock() == 9
    eventually(lambda: not lease_keys(guarded_pair.nodes(), goods.resource), goal="no key of it is left")
    newer = api_a.must_acquire(goods.resource)
    api_a.must_write(newer, goods.sell())
    assert goods.stock() == 8


def test_revocation_is_in_history_with_principal_and_reason(api_a: Api, goods: Sku, orders: Api) -> None:
    lease = orders.must_acquire(goods.resource, owner="orders-1")
    assert api_a.revoke(goods.resource, reason="the holder h\u00e4ngt \U0001f511").status == 204
    revoked = eventually(
        lambda: (found := api_a.history(resource=goods.resource, event="lease_revoked")) and found,
        goal="it is in the history",
    )
    assert [(item["principal"], item["fencing_token"]) for item in revoked] == [("admin", lease["fencing_token"])]
    assert "the holder h\u00e4ngt \U0001f511" in str(revoked[0]["detail"])
    raised = api_a.history(resource=goods.resource, event="fence_raised")
    assert [(item["principal"], item["last_fencing_token"]) for item in raised] == [
        ("admin", lease["fencing_token"] + 1)
    ]
    assert not api_a.history(resource=goods.resource, event="lease_released")


def test_revocation_ends_every_hold(api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="same")
    assert api_a.acquire(resource, owner="same").status == 200
    api_a.must_revoke(resource)
    expect_problem(api_a.read_lease(lease), 410, "lease-lost")
    assert api_a.must_acquire(resource)["fencing_token"] > lease["fencing_token"]


def test_revocation_by_one_resource_seals_all_of_lease(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: NameMaker
) -> None:
    names = sorted(unique_name("test/revoked") for _ in range(3))
    for number, api in enumerate((api_a, api_b, api_a)):
        lease = api_a.post("/v1/leases", {"resources": names, "ttl_ms": 20_000}).json()
        api.must_revoke(names[number])
        expect_problem(api_a.read_lease(lease), 410, "lease-lost")
        assert {fence_of(guarded_pair, name) for name in names} == {lease["fencing_token"] + 1}
        for name in names:
            api_a.must_release(api_a.must_acquire(name))


def test_revocation_serves_next_waiter(api_a: Api, api_b: Api, resource: str) -> None:
    for operator, waiter in ((api_a, api_a), (api_a, api_b), (api_b, api_a)):
        lease = api_a.must_acquire(resource, ttl_ms=60_000)
        call = waiter.begin_acquire(resource, wait_ms=10_000)
        waiter.await_waiters(resource, 1)
        revoked = time.monotonic()
        operator.must_revoke(resource)
        answer = call.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        assert call.ended - revoked < 5, "it had to wait for the lease to expire"
        api_a.must_release(answer.json())


def test_revocation_without_holder_404(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    expect_problem(api_a.revoke(resource), 404, "not-found")
    api_a.must_release(api_a.must_acquire(resource))
    expect_problem(api_a.revoke(resource, expected_token=5), 404, "not-found")
    assert fence_of(guarded_pair, resource) == 0


def test_revocation_with_another_expected_token_409(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource)
    for wrong in (lease["fencing_token"] - 1, lease["fencing_token"] + 1, 1, 2**53):
        problem = expect_problem(api_a.revoke(resource, expected_token=wrong), 409, "expectation-failed")
        assert problem["fencing_token"] == lease["fencing_token"]
    assert api_a.read_lease(lease).status == 200
    assert fence_of(guarded_pair, resource) == 0
    assert api_a.revoke(resource, expected_token=lease["fencing_token"]).status == 204


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/reason"]),
        ({"reason": ""}, ["/reason"]),
        ({"reason": 5}, ["/reason"]),
        ({"reason": None}, ["/reason"]),
        ({"reason": "x" * 501}, ["/reason"]),
        ({"reason": "   "}, ["/reason"]),
        ({"reason": "a", "expected_token": 0}, ["/expected_token"]),
        ({"reason": "a", "expected_token": "5"}, ["/expected_token"]),
        ({"reason": "a", "expected_token": 2**53 + 1}, ["/expected_token"]),
        ({"reason": "a", "token": 1}, ["/token"]),
    ],
)
def test_revocation_with_wrong_body_400_and_lease_stays(
    api_a: Api, resource: str, body: dict[str, object], pointers: list[str]
) -> None:
    lease = api_a.must_acquire(resource)
    assert pointers_of(api_a.call("DELETE", resource_path(resource, "lease"), body)) == pointers
    assert api_a.read_lease(lease).status == 200


def test_revocation_without_body_is_refused_and_lease_stays(api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource)
    answer = api_a.call("DELETE", resource_path(resource, "lease"))
    assert answer.status in (400, 415), answer
    assert api_a.read_lease(lease).status == 200


@pytest.mark.parametrize("name", ["a//b", "/a", "a/", "\u0084", "x" * 201, "a\tb"])
def test_operator_with_invalid_resource_400(api_a: Api, name: str) -> None:
    assert pointers_of(api_a.revoke(name)) == ["resource"]
    assert pointers_of(repair(api_a, name, 1)) == ["resource"]


def test_operator_without_scope_403_and_nothing_changed(
    guarded_pair: Stack, api_a: Api, orders: Api, auditor: Api, resource: str
) -> None:
    lease = orders.must_acquire(resource)
    for api in (orders, auditor):
        expect_problem(api.revoke(resource), 403, "forbidden")
        expect_problem(repair(api, resource, 1), 403, "forbidden")
    expect_problem(api_a.with_key(None).revoke(resource), 401, "unauthenticated")
    assert orders.read_lease(lease).status == 200
    assert fence_of(guarded_pair, resource) == 0


# The fence


def test_fence_raised_by_wrong_token_is_repaired(guarded_pair: Stack, api_a: Api, goods: Sku) -> None:
    lease = api_a.must_acquire(goods.resource)
    assert repair(api_a, goods.resource, 2**53 - 1, "somebody entered a wrong token").status == 200
    expect_problem(api_a.write(lease, goods.sell()), 412, "stale-fencing-token")
    answer = repair(api_a, goods.resource, lease["fencing_token"], "down again")
    assert answer.status == 200 and answer.json() == {
        "resource": goods.resource,
        "last_fencing_token": lease["fencing_token"],
    }, answer
    api_a.must_write(lease, goods.sell())
    assert goods.stock() == 9


def test_fence_repair_is_in_history_with_reason(guarded_pair: Stack, api_a: Api, resource: str) -> None:
    for to, found in ((5_000, 0), (70, 5_000), (0, 70), (2**53, 0)):
        answer = repair(api_a, resource, to, f"to {to}")
        assert answer.json() == {"resource": resource, "last_fencing_token": to}, answer
        assert fence_of(guarded_pair, resource) == to
        item = api_a.history(resource=resource, event="fence_raised", limit=1)[0]
        assert item["last_fencing_token"] == to and item["principal"] == "admin"
        facts = {"repair": True, "found_token": found, "reason": f"to {to}"}
        assert item["detail"].items() >= facts.items()


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"last_fencing_token": 1}, ["/reason"]),
        ({"reason": "a"}, ["/last_fencing_token"]),
        ({"reason": "a", "last_fencing_token": -1}, ["/last_fencing_token"]),
        ({"reason": "a", "last_fencing_token": 2**53 + 1}, ["/last_fencing_token"]),
        ({"reason": "a", "last_fencing_token": "1"}, ["/last_fencing_token"]),
        ({"reason": "a", "last_fencing_token": 1.5}, ["/last_fencing_token"]),
        ({"reason": " \t", "last_fencing_token": 1}, ["/reason"]),
        ({}, ["/reason", "/last_fencing_token"]),
    ],
)
def test_fence_repair_with_wrong_body_400_and_fence_stays(
    guarded_pair: Stack, api_a: Api, resource: str, body: dict[str, object], pointers: list[str]
) -> None:
    assert pointers_of(api_a.post(resource_path(resource, "fence"), body)) == pointers
    assert fence_of(guarded_pair, resource) == 0


@pytest.mark.parametrize(
    ("method", "part"), [("GET", "lease"), ("POST", "lease"), ("GET", "fence"), ("DELETE", "fence"), ("PUT", "fence")]
)
def test_operator_path_with_other_method_405(api_a: Api, resource: str, method: str, part: str) -> None:
    answer = api_a.call(method, resource_path(resource, part), {"reason": "a"})
    expect_problem(answer, 405, "method-not-allowed")
    assert answer.headers["Allow"]
