"""The same request repeated under an Idempotency-Key."""

from __future__ import annotations

import uuid
from typing import Any, Callable

import pytest
from support.api import Answer, Api, expect_problem, pointers_of
from support.polling import let_pass, stays

Fresh = Callable[[str], str]


def ask_with_key(api: Api, key: str, body: dict[str, Any]) -> Answer:
    return api.call("POST", "/v1/leases", body, {"Idempotency-Key": key})


def test_key_when_sent_again_then_the_same_lease_and_no_second_hold(here: Api, there: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        body = {"resource": resource, "ttl_ms": 20_000, **owner}
        key = uuid.uuid4().hex
        first = ask_with_key(here, key, body)
        assert first.status == 201 and first.headers["Idempotency-Replayed"] is None, first
        lease = first.json()
        for api in (here, there, here):
            answer = ask_with_key(api, key, body)
            assert answer.status in (200, 201) and answer.headers["Idempotency-Replayed"] == "true", answer
            repeated = answer.json()
            for member in ("lease_id", "fencing_token", "hold_count", "resource", "owner"):
                assert repeated[member] == lease[member], member
            assert 0 < repeated["validity_ms"] < 20_000
        there.give_back(lease)


def test_key_when_the_wait_differs_then_still_the_same_request(here: Api, resource: str) -> None:
    """How long a caller is ready to wait changes nothing about what it gets."""
    key = uuid.uuid4().hex
    lease = ask_with_key(here, key, {"resource": resource, "wait_ms": 0}).json()
    answer = ask_with_key(here, key, {"resource": resource, "wait_ms": 2_000})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer


def test_key_when_the_ttl_differs_then_422(here: Api, there: Api, resource: str) -> None:
    for owner in ({}, {"owner": "same"}):
        key = uuid.uuid4().hex
        lease = ask_with_key(here, key, {"resource": resource, "ttl_ms": 20_000, **owner}).json()
        for api in (here, there):
            expect_problem(ask_with_key(api, key, {"resource": resource, "ttl_ms": 19_000, **owner}), 422, "idempotency-mismatch")
        assert here.look(lease).json()["hold_count"] == 1
        here.give_back(lease)


def test_key_when_the_lease_was_released_then_a_new_lease(here: Api, there: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 2_000}
    tokens = []
    for api in (here, there, here):
        answer = ask_with_key(api, key, body)
        assert answer.status == 201 and answer.headers["Idempotency-Replayed"] is None, answer
        tokens.append(answer.json()["fencing_token"])
        api.give_back(answer.json())
    assert tokens == sorted(set(tokens))


def test_key_when_its_hold_was_given_back_then_422_says_so(here: Api, resource: str) -> None:
    """Other holds keep the lease, and with it the key."""
    body = {"resource": resource, "ttl_ms": 20_000, "owner": "same"}
    key = uuid.uuid4().hex
    first, other = ask_with_key(here, key, body).json(), here.ask(**body).json()
    assert here.release(first).json()["hold_count"] == 1
    problem = expect_problem(ask_with_key(here, key, body), 422, "idempotency-mismatch")
    assert "given back" in problem["detail"] and "another request" not in problem["title"] + problem["detail"], problem
    here.give_back(other)
    assert ask_with_key(here, key, body).status == 201, "the key went with the lease"


def test_key_when_of_another_principal_then_its_own(here: Api, orders: Api, resource: str) -> None:
    key = uuid.uuid4().hex
    assert ask_with_key(here, key, {"resource": resource}).status == 201
    expect_problem(ask_with_key(orders, key, {"resource": resource}), 423, "resource-locked")


def test_key_when_another_then_another_hold_and_each_is_repeated_by_its_own(here: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000, "owner": "same"}
    keys = [uuid.uuid4().hex for _ in range(4)]
    for count, key in enumerate(keys, 1):
        answer = ask_with_key(here, key, body)
        assert answer.status == (201 if count == 1 else 200) and answer.json()["hold_count"] == count, answer
    for key in keys:
        answer = ask_with_key(here, key, body)
        assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["hold_count"] == len(keys), answer


def test_key_when_others_wait_for_the_resource_then_still_the_same_lease_at_once(here: Api, there: Api, resource: str) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 5_000}
    lease = ask_with_key(here, key, body).json()
    waiters = [api.begin_ask(resource, wait_ms=10_000, ttl_ms=20_000) for api in (here, there)]
    for api in (here, there):
        api.await_waiters(resource, 1)
    for api in (here, there):
        answer = ask_with_key(api, key, body)
        assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer
        assert answer.seconds < 3
    for waiter in waiters:
        waiter.hang_up()
    here.give_back(lease)


@pytest.mark.parametrize("held_first", [False, True], ids=["free", "waiting"])
def test_keys_when_equal_and_at_once_then_one_lease(here: Api, there: Api, resource: str, held_first: bool) -> None:
    key, body = uuid.uuid4().hex, {"resource": resource, "ttl_ms": 20_000, "wait_ms": 10_000}
    held = here.take(resource) if held_first else None
    calls = [api.begin("POST", "/v1/leases", body, {"Idempotency-Key": key}) for api in (here, there) * 4]
    if held:
        let_pass(0.3, "those that wait have their places")
        here.give_back(held)
    answers = [call.answer() for call in calls]
    assert {answer.status for answer in answers} <= {200, 201}, [str(answer) for answer in answers]
    assert len({answer.json()["lease_id"] for answer in answers}) == 1
    assert [answer.headers["Idempotency-Replayed"] for answer in answers].count(None) == 1
    lease = answers[0].json()
    assert here.look(lease).json()["hold_count"] == 1
    here.give_back(lease)
    stays(lambda: here.look(lease).status == 410, 0.2)


def test_key_when_the_lease_has_several_resources_then_the_same_lease(here: Api, there: Api, fresh: Fresh) -> None:
    resources = [fresh("test/several") for _ in range(3)]
    key = uuid.uuid4().hex
    lease = ask_with_key(here, key, {"resources": resources}).json()
    answer = ask_with_key(there, key, {"resources": resources[::-1]})
    assert answer.headers["Idempotency-Replayed"] == "true" and answer.json()["lease_id"] == lease["lease_id"], answer
    here.give_back(lease)


@pytest.mark.parametrize("key", ["", "x" * 65, "a b", "\u00e4", "a\tb"])
def test_key_when_wrong_then_400_naming_the_header(here: Api, resource: str, key: str) -> None:
    answer = here.call("POST", "/v1/leases", {"resource": resource}, {"Idempotency-Key": key.encode().decode("latin-1")})
    assert pointers_of(answer) == ["Idempotency-Key"]
    assert here.ask(resource).status == 201


def test_key_when_as_long_as_allowed_then_taken_to_the_last_letter(here: Api, resource: str) -> None:
    body = {"resource": resource, "ttl_ms": 20_000}
    assert ask_with_key(here, "k" * 64, body).status == 201
    assert ask_with_key(here, "k" * 64, body).headers["Idempotency-Replayed"] == "true"
    expect_problem(ask_with_key(here, "k" * 63 + "l", body), 423, "resource-locked")
