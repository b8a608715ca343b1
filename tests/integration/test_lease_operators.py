"""What an operator sees and does: the live leases, taking one away, repairing a fence."""

from __future__ import annotations

import concurrent.futures
import time
import urllib.parse
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sku, stock_up
from support.stack import Stack, lease_keys

Fresh = Callable[[str], str]


@pytest.fixture
def auditor(guarded_pair: Stack) -> Api:
    return guarded_pair.api(1, "auditor")


@pytest.fixture
def goods(guarded_pair: Stack, here: Api, fresh: Fresh) -> Sku:
    return stock_up(guarded_pair, fresh("sku-operated"), 10)


def listed(api: Api, **query: object) -> list[Any]:
    """All pages."""
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


def resource_path(resource: str, what: str) -> str:
    return f"/v1/resources/{urllib.parse.quote(resource, safe='')}/{what}"


def revoke(api: Api, resource: str, reason: object = "stuck", **more: object) -> Answer:
    return api.call("DELETE", resource_path(resource, "lease"), {"reason": reason, **more})


def repair(api: Api, resource: str, to: object, reason: object = "a wrong token") -> Answer:
    return api.call("POST", resource_path(resource, "fence"), {"reason": reason, "last_fencing_token": to})


def fence_of(stack: Stack, resource: str) -> int:
    rows = stack.query("select last_fencing_token from fencing.guard where resource = %s", (resource,))
    return rows[0][0] if rows else 0


# the list


def test_list_when_leases_live_then_each_with_holder_token_and_time_but_no_lease_id(here: Api, orders: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/listed")
    lease = orders.take(f"{stem}/b", owner="orders-1", ttl_ms=20_000)
    here.take(f"{stem}/a", ttl_ms=30_000)
    again = orders.ask(f"{stem}/b", owner="orders-1", ttl_ms=20_000)
    assert again.status == 200
    assert orders.renew(lease).status == 200
    answer = auditor.get("/v1/leases", resource_prefix=stem)
    assert answer.status == 200 and "lease_id" not in answer.body.decode() and lease["lease_id"].split(".")[0] not in answer.body.decode()
    first, second = answer.json()["items"]
    assert (first["resource"], first["owner"], first["principal"], first["hold_count"], first["renewals"]) == (f"{stem}/a", None, "admin", 1, 0)
    assert (second["resource"], second["owner"], second["principal"], second["hold_count"], second["renewals"]) == (f"{stem}/b", "orders-1", "orders", 2, 1)
    assert second["fencing_token"] == lease["fencing_token"]
    assert 0 < second["remaining_ms"] <= 20_000 < first["remaining_ms"] <= 30_000
    for item in (first, second):
        assert set(item) == {"resource", "fencing_token", "owner", "principal", "hold_count", "renewals", "granted_at", "remaining_ms", "quorum"}
        assert item["quorum"]["nodes"] == 5 and item["quorum"]["granted"] >= 3
        assert item["granted_at"].endswith("Z")
    orders.release(lease)
    orders.give_back(again.json())
    assert [item["resource"] for item in listed(auditor, resource_prefix=stem)] == [f"{stem}/a"]


def test_list_when_a_prefix_is_given_then_only_names_that_begin_so(here: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/prefix")
    names = [f"{stem}", f"{stem}-1", f"{stem}/1", f"{stem}/10", f"{stem}/2", f"{stem}A"]
    for name in names:
        here.take(name)

    def found(prefix: str) -> list[str]:
        return [item["resource"] for item in listed(auditor, resource_prefix=prefix)]

    assert found(stem) == sorted(names)
    assert found(f"{stem}/") == [f"{stem}/1", f"{stem}/10", f"{stem}/2"]
    assert found(f"{stem}/1") == [f"{stem}/1", f"{stem}/10"]
    assert found(f"{stem}/3") == []
    assert set(found("")) >= set(names)


def test_list_when_a_lease_has_several_resources_then_each_of_them_is_there(here: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/many")
    lease = here.call("POST", "/v1/leases", {"resources": [f"{stem}/{n}" for n in range(3)], "ttl_ms": 20_000}).json()
    items = listed(auditor, resource_prefix=stem)
    assert [item["resource"] for item in items] == [f"{stem}/{n}" for n in range(3)]
    assert {item["fencing_token"] for item in items} == {lease["fencing_token"]}


def test_list_when_callers_wait_then_how_many_for_which_resource_at_this_gateway(here: Api, there: Api, fresh: Fresh) -> None:
    stem = fresh("test/queue")
    one, two, free = f"{stem}/1", f"{stem}/2", f"{stem}/3"
    for name in (one, two):
        here.take(name)
    calls = [here.begin_ask(one, wait_ms=20_000) for _ in range(2)]
    calls.append(here.begin("POST", "/v1/leases", {"resources": [free, two, one], "wait_ms": 20_000}))
    calls.append(there.begin_ask(two, wait_ms=20_000))

    def waiting(api: Api, prefix: str = stem) -> tuple[int, list[tuple[str, int]]]:
        page = api.get("/v1/leases", resource_prefix=prefix, limit=1).json()
        return page["waiters"], [(entry["resource"], entry["waiters"]) for entry in page["waiting"]]

    # Those waited for most first, and by name where they are even.
    eventually(lambda: waiting(here) == (3, [(one, 3), (two, 1), (free, 1)]), 5, what="three wait here, one of them for all")
    assert waiting(there) == (1, [(two, 1)])
    assert waiting(here, free) == (1, [(free, 1)])
    assert waiting(here, f"{stem}/none") == (0, [])
    for call in calls:
        call.hang_up()
    eventually(lambda: waiting(here) == (0, []) and waiting(there) == (0, []), 5, what="who hung up waits no more")


def test_list_when_250_leases_live_then_pages_have_each_once_in_order(here: Api, there: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/page")
    names = [f"{stem}/{number:03}" for number in range(250)]

    def take_share(share: list[str]) -> None:
        with here.connection() as connection:
            for name in share:
                assert connection.call("POST", "/v1/leases", {"resource": name, "ttl_ms": 60_000}).status == 201

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(take_share, [names[start::4] for start in range(4)]))
    for limit in (249, 250, 251, 1_000, 100, 37):
        assert [item["resource"] for item in listed(auditor, resource_prefix=stem, limit=limit)] == names, limit
    page = there.get("/v1/leases", resource_prefix=stem, limit=250).json()
    assert len(page["items"]) == 250 and page["next_cursor"] is None
    page = there.get("/v1/leases", resource_prefix=stem).json()
    assert len(page["items"]) == 100 and page["next_cursor"]
    page = there.get("/v1/leases", resource_prefix=stem, limit=1).json()
    assert [item["resource"] for item in page["items"]] == names[:1]


def test_list_when_leases_come_and_go_meanwhile_then_those_that_stay_are_each_listed_once(here: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/moving")
    stay = [f"{stem}/{number:02}" for number in range(0, 40, 2)]
    for name in stay:
        here.take(name, ttl_ms=60_000)
    ended = False

    def come_and_go() -> None:
        number = 1
        while not ended:
            here.give_back(here.take(f"{stem}/{number:02}"))
            number = (number + 2) % 40

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        moving = pool.submit(come_and_go)
        try:
            for _ in range(10):
                found = [item["resource"] for item in listed(auditor, resource_prefix=stem, limit=7)]
                assert [name for name in found if name in stay] == stay
        finally:
            ended = True
        moving.result(10)


def test_list_when_asked_by_many_at_once_then_listed_or_told_to_come_again(here: Api, auditor: Api, fresh: Fresh) -> None:
    stem = fresh("test/rush")
    here.take(f"{stem}/1")
    calls = [auditor.begin("GET", f"/v1/leases?resource_prefix={stem}") for _ in range(12)]
    answers = [call.answer() for call in calls]
    served = [answer for answer in answers if answer.status == 200]
    assert served and all([item["resource"] for item in answer.json()["items"]] == [f"{stem}/1"] for answer in served)
    for answer in answers:
        if answer.status != 200:
            expect_problem(answer, 429, "too-many-requests")
            assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("query", "pointer"), [
    ({"limit": 0}, "limit"), ({"limit": 1001}, "limit"), ({"limit": "ten"}, "limit"), ({"resource_prefix": "a*"}, "resource_prefix"), ({"resource_prefix": "x" * 201}, "resource_prefix"),
    ({"resource_prefix": "[a-z]"}, "resource_prefix"), ({"cursor": "a b"}, "cursor"), ({"cursor": "a?"}, "cursor"), ({"order": "desc"}, "order")])
def test_list_when_the_query_is_wrong_then_400_naming_it(auditor: Api, query: dict[str, object], pointer: str) -> None:
    assert pointers_of(auditor.get("/v1/leases", **query)) == [pointer]


def test_list_when_asked_without_the_scope_history_then_403(guarded_pair: Stack, orders: Api) -> None:
    expect_problem(orders.get("/v1/leases"), 403, "forbidden")
    expect_problem(orders.with_key(None).get("/v1/leases"), 401, "unauthenticated")


# taking one away


def test_lease_when_revoked_then_204_the_holder_is_out_and_can_write_no_more(guarded_pair: Stack, here: Api, there: Api, goods: Sku) -> None:
    lease = here.take(goods.resource, ttl_ms=60_000)
    here.wrote(lease, goods.sell())
    answer = revoke(there, goods.resource, "the holder hangs")
    assert (answer.status, answer.body) == (204, b""), answer
    for call in (here.look, here.renew, here.release):
        expect_problem(call(lease), 410, "lease-lost")
    problem = expect_problem(here.write(lease, goods.sell()), 412, "stale-fencing-token")
    assert problem["last_fencing_token"] == fence_of(guarded_pair, goods.resource) == lease["fencing_token"] + 1
    assert goods.stock() == 9
    eventually(lambda: not lease_keys(guarded_pair.nodes(), goods.resource), what="no key of it is left")
    newer = here.take(goods.resource)
    here.wrote(newer, goods.sell())
    assert goods.stock() == 8


def test_lease_when_revoked_then_the_history_says_by_whom_and_why(here: Api, goods: Sku, orders: Api) -> None:
    lease = orders.take(goods.resource, owner="orders-1")
    assert revoke(here, goods.resource, "the holder h\u00e4ngt \U0001f511").status == 204
    revoked = eventually(lambda: (found := here.history(resource=goods.resource, event="lease_revoked")) and found, what="it is in the history")
    assert [(item["principal"], item["fencing_token"]) for item in revoked] == [("admin", lease["fencing_token"])]
    assert "the holder h\u00e4ngt \U0001f511" in str(revoked[0]["detail"])
    raised = here.history(resource=goods.resource, event="fence_raised")
    assert [(item["principal"], item["last_fencing_token"]) for item in raised] == [("admin", lease["fencing_token"] + 1)]
    assert not here.history(resource=goods.resource, event="lease_released")


def test_lease_when_held_twice_then_revoking_takes_all_of_it(here: Api, resource: str) -> None:
    lease = here.take(resource, owner="same")
    assert here.ask(resource, owner="same").status == 200
    assert revoke(here, resource).status == 204
    expect_problem(here.look(lease), 410, "lease-lost")
    assert here.take(resource)["fencing_token"] > lease["fencing_token"]


def test_lease_when_it_has_several_resources_then_revoking_by_one_takes_and_seals_all(guarded_pair: Stack, here: Api, there: Api, fresh: Fresh) -> None:
    names = sorted(fresh("test/revoked") for _ in range(3))
    for number, api in enumerate((here, there, here)):
        lease = here.call("POST", "/v1/leases", {"resources": names, "ttl_ms": 20_000}).json()
        assert revoke(api, names[number]).status == 204
        expect_problem(here.look(lease), 410, "lease-lost")
        assert {fence_of(guarded_pair, name) for name in names} == {lease["fencing_token"] + 1}
        for name in names:
            here.give_back(here.take(name))


def test_lease_when_revoked_then_the_next_who_waits_has_it(here: Api, there: Api, resource: str) -> None:
    for operator, waiter in ((here, here), (here, there), (there, here)):
        lease = here.take(resource, ttl_ms=60_000)
        call = waiter.begin_ask(resource, wait_ms=10_000)
        waiter.await_waiters(resource, 1)
        revoked = time.monotonic()
        assert revoke(operator, resource).status == 204
        answer = call.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
        assert call.ended - revoked < 5, "it had to wait for the lease to run out"
        here.give_back(answer.json())


def test_revocation_when_nobody_holds_it_then_404(guarded_pair: Stack, here: Api, resource: str) -> None:
    expect_problem(revoke(here, resource), 404, "not-found")
    here.give_back(here.take(resource))
    expect_problem(revoke(here, resource, expected_token=5), 404, "not-found")
    assert fence_of(guarded_pair, resource) == 0


def test_revocation_when_another_token_is_expected_then_409_and_nothing_changed(guarded_pair: Stack, here: Api, resource: str) -> None:
    lease = here.take(resource)
    for wrong in (lease["fencing_token"] - 1, lease["fencing_token"] + 1, 1, 2**53):
        problem = expect_problem(revoke(here, resource, expected_token=wrong), 409, "expectation-failed")
        assert problem["fencing_token"] == lease["fencing_token"]
    assert here.look(lease).status == 200
    assert fence_of(guarded_pair, resource) == 0
    assert revoke(here, resource, expected_token=lease["fencing_token"]).status == 204


@pytest.mark.parametrize(("body", "pointers"), [
    ({}, ["/reason"]), ({"reason": ""}, ["/reason"]), ({"reason": 5}, ["/reason"]), ({"reason": None}, ["/reason"]), ({"reason": "x" * 501}, ["/reason"]), ({"reason": "   "}, ["/reason"]),
    ({"reason": "a", "expected_token": 0}, ["/expected_token"]), ({"reason": "a", "expected_token": "5"}, ["/expected_token"]), ({"reason": "a", "expected_token": 2**53 + 1}, ["/expected_token"]),
    ({"reason": "a", "token": 1}, ["/token"])])
def test_revocation_when_the_body_is_wrong_then_400_and_the_lease_stays(here: Api, resource: str, body: dict[str, object], pointers: list[str]) -> None:
    lease = here.take(resource)
    assert pointers_of(here.call("DELETE", resource_path(resource, "lease"), body)) == pointers
    assert here.look(lease).status == 200


def test_revocation_when_it_has_no_body_then_refused_and_the_lease_stays(here: Api, resource: str) -> None:
    lease = here.take(resource)
    answer = here.call("DELETE", resource_path(resource, "lease"))
    assert answer.status in (400, 415), answer
    assert here.look(lease).status == 200


@pytest.mark.parametrize("name", ["a//b", "/a", "a/", "\u00e4", "x" * 201, "a b"])
def test_resource_when_it_breaks_the_rule_then_400_for_an_operator_too(here: Api, name: str) -> None:
    assert pointers_of(revoke(here, name)) == ["resource"]
    assert pointers_of(repair(here, name, 1)) == ["resource"]


def test_operator_when_without_the_scope_operate_then_403_and_nothing_changed(guarded_pair: Stack, here: Api, orders: Api, auditor: Api, resource: str) -> None:
    lease = orders.take(resource)
    for api in (orders, auditor):
        expect_problem(revoke(api, resource), 403, "forbidden")
        expect_problem(repair(api, resource, 1), 403, "forbidden")
    expect_problem(revoke(here.with_key(None), resource), 401, "unauthenticated")
    assert orders.look(lease).status == 200
    assert fence_of(guarded_pair, resource) == 0


# the fence


def test_fence_when_a_wrong_token_pushed_it_up_then_repaired_and_writes_go_on(guarded_pair: Stack, here: Api, goods: Sku) -> None:
    lease = here.take(goods.resource)
    assert repair(here, goods.resource, 2**53 - 1, "somebody entered a wrong token").status == 200
    expect_problem(here.write(lease, goods.sell()), 412, "stale-fencing-token")
    answer = repair(here, goods.resource, lease["fencing_token"], "down again")
    assert answer.status == 200 and answer.json() == {"resource": goods.resource, "last_fencing_token": lease["fencing_token"]}, answer
    here.wrote(lease, goods.sell())
    assert goods.stock() == 9


def test_fence_when_repaired_then_always_in_the_history_with_the_reason(guarded_pair: Stack, here: Api, resource: str) -> None:
    for to, found in ((5_000, 0), (70, 5_000), (0, 70), (2**53, 0)):
        answer = repair(here, resource, to, f"to {to}")
        assert answer.json() == {"resource": resource, "last_fencing_token": to}, answer
        assert fence_of(guarded_pair, resource) == to
        item = here.history(resource=resource, event="fence_raised", limit=1)[0]
        assert item["last_fencing_token"] == to and item["principal"] == "admin"
        assert item["detail"] == {"repair": True, "found_token": found, "reason": f"to {to}"}


@pytest.mark.parametrize(("body", "pointers"), [
    ({"last_fencing_token": 1}, ["/reason"]), ({"reason": "a"}, ["/last_fencing_token"]), ({"reason": "a", "last_fencing_token": -1}, ["/last_fencing_token"]),
    ({"reason": "a", "last_fencing_token": 2**53 + 1}, ["/last_fencing_token"]), ({"reason": "a", "last_fencing_token": "1"}, ["/last_fencing_token"]),
    ({"reason": "a", "last_fencing_token": 1.5}, ["/last_fencing_token"]), ({"reason": " \t", "last_fencing_token": 1}, ["/reason"]), ({}, ["/reason", "/last_fencing_token"])])
def test_repair_when_the_body_is_wrong_then_400_and_the_fence_stays(guarded_pair: Stack, here: Api, resource: str, body: dict[str, object], pointers: list[str]) -> None:
    assert pointers_of(here.call("POST", resource_path(resource, "fence"), body)) == pointers
    assert fence_of(guarded_pair, resource) == 0


@pytest.mark.parametrize(("method", "what"), [("GET", "lease"), ("POST", "lease"), ("GET", "fence"), ("DELETE", "fence"), ("PUT", "fence")])
def test_address_when_the_method_is_another_then_405(here: Api, resource: str, method: str, what: str) -> None:
    answer = here.call(method, resource_path(resource, what), {"reason": "a"})
    expect_problem(answer, 405, "method-not-allowed")
    assert answer.headers["Allow"]
