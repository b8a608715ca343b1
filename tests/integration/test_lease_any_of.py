"""any_of: a lease on one of several resources, on the first that is free."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
from support.api import Answer, Api, Call, expect_problem, pointers_of
from support.polling import eventually, remains
from support.stack import Stack, lease_keys


@pytest.fixture
def names(resource: str) -> list[str]:
    return [f"{resource}/{number}" for number in range(1, 5)]


def ask(api: Api, names: list[str], headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    return api.post("/v1/leases", {"any_of": names, "ttl_ms": 20_000, **fields}, headers)


def take(api: Api, names: list[str], **fields: Any) -> Any:
    answer = ask(api, names, **fields)
    assert answer.status == 201, answer
    return answer.json()


def begin_wait(api: Api, names: list[str], headers: dict[str, str] | None = None, **fields: Any) -> Call:
    """Begins to wait, and returns the call once it is in each of the queues."""
    before = {name: api.waiters(name) for name in names}
    call = api.begin("POST", "/v1/leases", {"any_of": names, "ttl_ms": 20_000, "wait_ms": 20_000, **fields}, headers)
    for name in names:
        api.await_waiters(name, before[name] + 1)
    return call


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def test_any_of_each_grant_is_another_until_all_are_held(api: Api, names: list[str]) -> None:
    leases = [take(api, names) for _ in names]
    assert sorted(lease["resource"] for lease in leases) == names
    problem = expect_problem(ask(api, names), 423, "resource-locked")
    assert 0 < problem["remaining_ms"] <= 20_000
    api.must_release(leases[2])
    assert take(api, names)["resource"] == leases[2]["resource"]


def test_any_of_refused_once_in_history(api: Api, names: list[str]) -> None:
    for _ in names:
        take(api, names)
    for wait_ms in (0, 200):
        expect_problem(ask(api, names, wait_ms=wait_ms), 423, "resource-locked")
    prefix = names[0].rsplit("/", 1)[0]

    def refused() -> int:
        return len([e for e in api.history(resource_prefix=prefix) if e["event"] == "lease_refused"])

    eventually(lambda: refused() == 2, goal="each request is refused once")
    remains(lambda: refused() == 2, 0.3, goal="each request is refused once")


def test_any_of_waiters_get_what_is_released_in_order(stack: Stack, api: Api, names: list[str]) -> None:
    leases = [take(api, names) for _ in names]
    waiting = [begin_wait(api, names, owner=f"waiter-{number}") for number in range(3)]
    for number, lease in enumerate((leases[3], leases[0], leases[2])):
        api.must_release(lease)
        granted = waiting[number].answer().json()
        assert (granted["owner"], granted["resource"]) == (f"waiter-{number}", lease["resource"])
        assert granted["fencing_token"] > lease["fencing_token"]
        assert all(later.is_alive() for later in waiting[number + 1 :]), "two were served at once"
    for name in names:
        api.await_waiters(name, 0)


def test_any_of_waits_behind_waiters_of_one_resource(api: Api, names: list[str]) -> None:
    leases = {lease["resource"]: lease for lease in (take(api, names) for _ in names)}
    first = api.begin_wait(names[1])
    second = begin_wait(api, names)
    api.must_release(leases[names[1]])
    assert first.answer().json()["resource"] == names[1] and second.is_alive()
    api.must_release(leases[names[0]])
    assert second.answer().json()["resource"] == names[0]


def test_any_of_second_grant_is_given_back_at_once(stack: Stack, api: Api, names: list[str]) -> None:
    for _ in range(5):
        leases = [take(api, names) for _ in names]
        waiting = begin_wait(api, names)
        releases = [api.begin("DELETE", f"/v1/leases/{lease['lease_id']}") for lease in leases]
        granted = waiting.answer().json()
        assert {release.answer().status for release in releases} == {204}
        others = [name for name in names if name != granted["resource"]]
        for name in others:
            api.must_release(api.must_acquire(name, wait_ms=1_000))
        eventually(lambda: not any(lease_keys(stack.nodes(), name) for name in others), goal="the others are free")
        api.must_release(granted)


def test_any_of_never_a_further_hold_of_owner(api: Api, names: list[str]) -> None:
    leases = [take(api, names, owner="worker") for _ in names]
    assert sorted(lease["resource"] for lease in leases) == names
    assert {lease["hold_count"] for lease in leases} == {1}
    expect_problem(ask(api, names, owner="worker", wait_ms=200), 423, "resource-locked")
    assert api.acquire(names[0], owner="worker").json()["hold_count"] == 2, "it is named"


def test_any_of_repeat_with_key_gets_same_lease(api_a: Api, api_b: Api, names: list[str]) -> None:
    for _ in range(4):  # begins at each resource once
        key = new_key()
        first = ask(api_a, names, key).json()
        for api in (api_a, api_b):
            again = ask(api, names, key)
            assert again.status == 201 and again.headers["Idempotency-Replayed"] == "true", again
            assert again.json()["lease_id"] == first["lease_id"]
        api_a.must_release(first)


def test_any_of_hang_up_leaves_every_queue(stack: Stack, api: Api, names: list[str]) -> None:
    leases = [take(api, names) for _ in names]
    for headers in (None, new_key()):
        begin_wait(api, names, headers).disconnect()
        for name in names:
            api.await_waiters(name, 0)
    for lease in leases:
        api.must_release(lease)
    remains(lambda: not any(lease_keys(stack.nodes(), name) for name in names), 0.5, goal="nothing is granted to those")


def test_any_of_cancel_ends_wait_and_releases_grant(api: Api, names: list[str]) -> None:
    key, body = new_key(), {"any_of": names, "ttl_ms": 20_000}
    lease = api.post("/v1/leases", body, key).json()
    assert api.post("/v1/leases/cancel", body, key).status == 204
    assert api.read_lease(lease).status == 410
    for name in names:
        api.must_acquire(name)
    key = new_key()
    waiting = begin_wait(api, names, key)
    assert api.post("/v1/leases/cancel", {**body, "wait_ms": 20_000}, key).status == 204
    expect_problem(waiting.answer(), 422, "idempotency-mismatch")
    for name in names:
        api.await_waiters(name, 0)


@pytest.mark.parametrize(
    "body, pointers",
    [
        ({"any_of": ["a"]}, ["/any_of"]),
        ({"any_of": [f"r{number}" for number in range(65)]}, ["/any_of"]),
        ({"any_of": ["a", "b", "a"]}, ["/any_of/2"]),
        ({"any_of": ["a", "b"], "resource": "c"}, ["/any_of"]),
        ({"any_of": ["a", "b"], "resources": ["c"]}, ["/any_of"]),
        ({"any_of": ["a", "b//c", 1]}, ["/any_of/1", "/any_of/2"]),
        ({"any_of": "a"}, ["/any_of"]),
    ],
)
def test_any_of_faulty_then_400_with_pointer(api: Api, body: Any, pointers: list[str]) -> None:
    assert pointers_of(api.post("/v1/leases", body)) == pointers


def test_any_of_many_callers_never_more_holders_than_resources(api_a: Api, api_b: Api, names: list[str]) -> None:
    holders: set[str] = set()
    lock, faults, served = threading.Lock(), [], []

    def work(number: int) -> None:
        api = (api_a, api_b)[number % 2]
        answer = ask(api, names, wait_ms=20_000)
        if answer.status != 201:
            return faults.append(str(answer))
        lease = answer.json()
        with lock:
            if lease["resource"] in holders:
                faults.append(f"{lease['resource']} has two holders")
            holders.add(lease["resource"])
        time.sleep(0.02)  # long enough for a second holder to show
        with lock:
            holders.remove(lease["resource"])
            served.append(number)
        api.must_release(lease)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and len(served) == 32, faults
    for name in names:
        assert api_a.waiters(name) == 0 == api_b.waiters(name)


def test_any_of_kept_lease_names_resource(api: Api, names: list[str]) -> None:
    held = [take(api, names) for _ in names[1:]]
    free = next(name for name in names if name not in {lease["resource"] for lease in held})
    call = api.begin("POST", "/v1/leases", {"any_of": names, "ttl_ms": 3_000}, {"Accept": "text/event-stream"})
    eventually(lambda: api.is_held(free), goal="it is held")
    call.disconnect()
    eventually(lambda: not api.is_held(free), goal="it is released when its caller hangs up")
