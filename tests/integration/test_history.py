"""GET /v1/history: every event is recorded once and can be found."""

from __future__ import annotations

import base64
import datetime as dt
import random
from typing import Callable

import psycopg2
import pytest
from support.api import Api, Json, expect_problem, pointers_of
from support.polling import eventually
from support.shop import Sku
from support.stack import Stack

MEMBERS = set("id at event resource fencing_token last_fencing_token owner principal write_id detail".split())


def parse_time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


def wait_for_items(api: Api, count: int, **filters: object) -> list[Json]:
    """Returns the items, oldest first, once there are `count` of them;
    lease events are recorded shortly after their answers."""
    eventually(lambda: len(api.history(**filters)) >= count, goal=f"{count} events of {filters}")
    items = api.history(order="asc", **filters)
    assert len(items) == count, [(item["event"], item["fencing_token"]) for item in items]
    return items


@pytest.fixture(scope="module")
def busy(stack: Stack) -> str:
    """A prefix of resources with 60 events, of three owners and four traces."""
    api = stack.api()
    prefix = f"history/{random.randrange(10**9)}"
    for number in range(30):
        headers = {"traceparent": f"00-{number % 4 + 1:032x}-{1:016x}-01"}
        body = {"resource": f"{prefix}/r-{number % 5}", "ttl_ms": 10_000, "owner": f"owner-{number % 3}"}
        answer = api.post("/v1/leases", body, headers)
        assert answer.status == 201, answer
        assert api.call("DELETE", answer.headers["Location"], headers=headers).status == 204
    wait_for_items(api, 60, resource_prefix=prefix)
    return prefix


def test_history_of_lease_is_complete_and_in_order(api: Api, sku: Sku) -> None:
    a = api.must_acquire(sku.resource, ttl_ms=3_000, owner="a")
    expect_problem(api.acquire(sku.resource, owner="b"), 423, "resource-locked")
    assert api.renew(a, ttl_ms=3_000).status == 200
    b = api.must_acquire(sku.resource, wait_ms=10_000, owner="b")
    write = api.must_write(b, sku.sell())
    expect_problem(api.write(a, sku.sell()), 412, "stale-fencing-token")
    api.must_release(b)
    eventually(lambda: api.history(resource=sku.resource, event="lease_released"), goal="the release is there")
    items = [item for item in api.history(resource=sku.resource, order="asc") if item["event"] != "lease_expired"]
    x, y = a["fencing_token"], b["fencing_token"]
    assert [(item["event"], item["owner"]) for item in items] == [
        ("lease_granted", "a"),
        ("lease_refused", "b"),
        ("lease_renewed", "a"),
        ("lease_granted", "b"),
        ("write_applied", "b"),
        ("write_rejected", "a"),
        ("lease_released", "b"),
    ]
    assert [item["fencing_token"] for item in items if item["event"] != "lease_refused"] == [x, x, y, y, x, y]
    (applied,) = (item for item in items if item["event"] == "write_applied")
    assert (applied["write_id"], applied["last_fencing_token"]) == (write["write_id"], y)


def test_history_items_have_every_member_of_contract(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource, owner="looker")
    before = dt.datetime.now(dt.timezone.utc)
    api.must_write(lease, sku.sell())
    after = dt.datetime.now(dt.timezone.utc)
    items = wait_for_items(api, 2, resource=sku.resource)
    for item in items:
        assert MEMBERS <= set(item)
        assert isinstance(item["id"], int) and isinstance(item["fencing_token"], int)
        assert (item["resource"], item["principal"], item["owner"]) == (sku.resource, "dev", "looker")
    assert before - dt.timedelta(milliseconds=5) <= parse_time(items[-1]["at"]) <= after + dt.timedelta(milliseconds=5)
    assert items[-1]["at"].endswith("Z")


def test_history_has_write_once_it_is_answered(api: Api, sku: Sku) -> None:
    """The write and its event are in one transaction, so that the test need not wait."""
    lease = api.must_acquire(sku.resource)
    for count in range(1, 6):
        write = api.must_write(lease, sku.sell())
        (item,) = api.history(write_id=write["write_id"])
        assert (item["event"], item["resource"], item["fencing_token"]) == (
            "write_applied",
            sku.resource,
            lease["fencing_token"],
        )
        assert len(api.history(resource=sku.resource, event="write_applied")) == count


def test_history_has_no_write_that_was_undone(api: Api, sku: Sku) -> None:
    lease = api.must_acquire(sku.resource)
    expect_problem(api.write(lease, sku.sell(11)), 409, "expectation-failed")
    api.must_write(lease, sku.sell())
    assert len(api.history(resource=sku.resource, event="write_applied")) == 1


def test_order_is_newest_first_unless_asc(api: Api, busy: str) -> None:
    newest_first = [item["id"] for item in api.history(resource_prefix=busy)]
    assert newest_first == sorted(newest_first, reverse=True)
    assert [item["id"] for item in api.history(resource_prefix=busy, order="desc")] == newest_first
    assert [item["id"] for item in api.history(resource_prefix=busy, order="asc")] == newest_first[::-1]


def test_filter_resource_selects_exactly_that_name(api: Api, busy: str) -> None:
    items = api.history(resource=f"{busy}/r-2")
    assert len(items) == 12 and {item["resource"] for item in items} == {f"{busy}/r-2"}
    assert api.history(resource=f"{busy}/r-") == []
    assert api.history(resource=busy) == []


def test_filter_prefix_selects_names_without_patterns(api: Api, busy: str) -> None:
    assert len(api.history(resource_prefix=f"{busy}/r-2")) == 12
    assert len(api.history(resource_prefix=f"{busy}/")) == 60
    assert api.history(resource_prefix=f"{busy[:-1]}_/") == []
    assert api.history(resource_prefix=f"{busy}/%") == []
    assert api.history(resource_prefix=busy.replace("h", "H", 1)) == []


@pytest.mark.parametrize("event, count", [("lease_granted", 30), ("lease_released", 30), ("write_applied", 0)])
def test_filter_event_selects_only_that_type(api: Api, busy: str, event: str, count: int) -> None:
    items = api.history(resource_prefix=busy, event=event)
    assert len(items) == count and all(item["event"] == event for item in items)


def test_filter_owner_selects_only_that_owner(api: Api, busy: str) -> None:
    items = api.history(resource_prefix=busy, owner="owner-1")
    assert len(items) == 20 and {item["owner"] for item in items} == {"owner-1"}
    assert api.history(resource_prefix=busy, owner="owner") == []


def test_filter_principal_selects_only_that_principal(api: Api, busy: str) -> None:
    assert len(api.history(resource_prefix=busy, principal="dev")) == 60
    assert api.history(resource_prefix=busy, principal="nobody") == []


def test_filter_trace_selects_only_that_trace(api: Api, busy: str) -> None:
    items = api.history(resource_prefix=busy, trace_id=f"{2:032x}")
    assert len(items) == 16
    assert {int(item["resource"][-1]) for item in items} == {number % 5 for number in range(30) if number % 4 == 1}


def test_filter_tokens_includes_both_bounds(api: Api, busy: str) -> None:
    tokens = sorted({item["fencing_token"] for item in api.history(resource=f"{busy}/r-0")})
    assert len(tokens) == 6
    low, high = tokens[1], tokens[4]

    def between(**bounds: int) -> list[int]:
        return sorted({item["fencing_token"] for item in api.history(resource=f"{busy}/r-0", **bounds)})

    assert between(token_min=low, token_max=high) == tokens[1:5]
    assert between(token_min=low) == tokens[1:]
    assert between(token_max=high) == tokens[:5]
    assert between(token_min=low, token_max=low) == [low]
    assert between(token_min=2**53 - 1) == []


def test_filter_times_include_from_and_exclude_to(api: Api, busy: str) -> None:
    items = api.history(resource_prefix=busy, order="asc")
    middle = items[30]["at"]
    first_half = api.history(resource_prefix=busy, to=middle)
    second_half = api.history(resource_prefix=busy, **{"from": middle})
    assert {item["id"] for item in first_half} | {item["id"] for item in second_half} == {item["id"] for item in items}
    assert not {item["id"] for item in first_half} & {item["id"] for item in second_half}
    assert items[30]["id"] in {item["id"] for item in second_half}
    assert all(parse_time(item["at"]) < parse_time(middle) for item in first_half)
    far = {"from": "2200-01-01T00:00:00Z"}
    assert api.history(resource_prefix=busy, **far) == []


def test_filter_times_with_offset_select_the_same_events(api: Api, busy: str) -> None:
    middle = parse_time(api.history(resource_prefix=busy, order="asc")[30]["at"])
    shifted = middle.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))).isoformat()
    utc = middle.isoformat().replace("+00:00", "Z")
    assert api.history(resource_prefix=busy, to=shifted) == api.history(resource_prefix=busy, to=utc) != []


def test_filters_together_must_all_match(api: Api, busy: str) -> None:
    items = api.history(
        resource_prefix=busy, resource=f"{busy}/r-1", event="lease_granted", owner="owner-1", principal="dev"
    )
    assert {(item["resource"], item["event"], item["owner"]) for item in items} == {
        (f"{busy}/r-1", "lease_granted", "owner-1")
    }
    assert len(items) == 2


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 7, 60, 100])
def test_pages_have_each_item_once_in_order(api: Api, busy: str, order: str, limit: int) -> None:
    everything = [item["id"] for item in api.history(resource_prefix=busy, order=order)]
    seen: list[int] = []
    cursor: dict[str, str] = {}
    for _ in range(61):
        page = api.get("/v1/history", resource_prefix=busy, order=order, limit=limit, **cursor).json()
        assert len(page["items"]) <= limit
        seen += [item["id"] for item in page["items"]]
        if not page.get("next_cursor"):
            break
        assert page["items"], "a page with a cursor behind it is not empty"
        cursor = {"cursor": page["next_cursor"]}
    assert seen == everything


def test_pages_while_events_are_added_repeat_and_miss_nothing(api: Api, resource: str) -> None:
    for _ in range(10):
        api.must_release(api.must_acquire(resource))
    wait_for_items(api, 20, resource=resource)
    everything = [item["id"] for item in api.history(resource=resource)]
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/v1/history", resource=resource, limit=6, **cursor).json()
        seen += [item["id"] for item in page["items"]]
        api.must_release(api.must_acquire(resource))
        if not page.get("next_cursor"):
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == everything


def test_made_up_cursor_beyond_all_events_is_answered(api: Api, busy: str) -> None:
    for order, items in ("asc", 0), ("desc", 1):
        made_up = base64.urlsafe_b64encode(f"{order}:253402300799999999:1".encode()).decode().rstrip("=")
        page = api.get("/v1/history", event="lease_granted,lease_released", order=order, limit=1, cursor=made_up)
        assert (page.status, len(page.json()["items"])) == (200, items), page


def test_limit_default_is_100(api: Api, resource: str) -> None:
    with api.connection() as connection:
        for _ in range(51):
            answer = connection.post("/v1/leases", {"resource": resource, "ttl_ms": 10_000})
            assert connection.call("DELETE", answer.headers["Location"]).status == 204
    wait_for_items(api, 102, resource=resource)
    page = api.get("/v1/history", resource=resource).json()
    assert len(page["items"]) == 100 and page["next_cursor"]


def test_query_wrong_400_names_each_parameter(api: Api) -> None:
    query = {
        "limit": 1001,
        "order": "up",
        "from": "yesterday",
        "cursor": "forged",
        "write_id": "no-uuid",
        "token_min": 5,
        "token_max": 4,
        "owner": "",
        "event": "lease_stolen",
        "colour": "red",
        "resource": b"\xed\xa0\x80",
    }
    assert sorted(pointers_of(api.get("/v1/history", **query))) == sorted(query.keys() - {"token_max"})


@pytest.mark.parametrize("value", ["' or 1=1 --", "x'; drop table inventory; --", "%", "\\", "\u00fc"])
def test_filter_with_sql_text_is_a_value(api: Api, busy: str, value: str) -> None:
    assert api.history(resource_prefix=busy, owner=value) == []
    assert len(api.history(resource_prefix=busy)) == 60


def test_parameter_percent_encoded_is_decoded(api: Api, unique_name: Callable[[str], str]) -> None:
    name = unique_name("history/enc")
    api.must_acquire(name, owner="a b&c=d+ü")
    eventually(lambda: api.history(resource=name, owner="a b&c=d+ü"), goal="found by the owner's name")


def test_history_records_lease_refused_for_locked_resource(api: Api, resource: str) -> None:
    api.must_acquire(resource)
    for _ in range(3):
        expect_problem(api.acquire(resource, owner="refused"), 423, "resource-locked")
    items = eventually(
        lambda: [item for item in api.history(resource=resource, event="lease_refused") if item["owner"] == "refused"][
            2:
        ]
        and api.history(resource=resource, event="lease_refused"),
        goal="three refusals",
    )
    assert len(items) == 3


@pytest.mark.parametrize(
    "statement",
    ["update fencing.history set owner = 'forged'", "delete from fencing.history", "truncate fencing.history"],
)
def test_history_change_is_refused_even_for_superuser(stack: Stack, api: Api, busy: str, statement: str) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        stack.query(statement)
    assert len(api.history(resource_prefix=busy)) == 60


def test_history_has_epoch_of_each_admitted_node(api: Api) -> None:
    assert len(api.history(event="epoch_raised")) + len(api.history(event="node_readmitted")) >= 5


def test_resource_prefix_finds_names_beyond_ascii(api: Api, stack: Stack, resource: str) -> None:
    """Rows with a name that is no resource's are refused, and recorded under that name."""
    names = [f"{resource}/", f"{resource}/z", f"{resource}/\x7f", f"{resource}/épf", f"{resource}/🔒"]
    stack.query(
        "insert into fencing.history (event, resource) select 'write_rejected', r from unnest(%s) as r",
        ([*names, f"{resource}0"],),
    )
    assert [item["resource"] for item in api.history(resource_prefix=f"{resource}/", order="asc")] == names
    assert [item["resource"] for item in api.history(resource_prefix=f"{resource}/é")] == [f"{resource}/épf"]
    assert [item["resource"] for item in api.history(resource_prefix=f"{resource}/\x7f")] == [f"{resource}/\x7f"]
