"""wait_ms: who gets the resource next, when, and what is left of a caller that gives up."""

from __future__ import annotations

import time

import pytest
from support.api import Api, expect_problem
from support.polling import eventually, let_pass, stays
from support.stack import Stack, lease_keys


def test_waiter_when_the_holder_releases_then_it_gets_the_resource(api: Api, resource: str) -> None:
    held = api.take(resource)
    waiter = api.begin_wait(resource)
    released = time.monotonic()
    api.give_back(held)
    answer = waiter.answer()
    assert answer.status == 201, answer
    assert waiter.ended - released < 5, "nothing but the release lets it have it: the lease lasts for 20 s"
    assert answer.json()["fencing_token"] > held["fencing_token"]


def test_waiter_when_the_lease_runs_out_then_it_gets_the_resource(api: Api, resource: str) -> None:
    held = api.take(resource, ttl_ms=800)
    began = time.monotonic()
    answer = api.ask(resource, wait_ms=5_000)
    waited = time.monotonic() - began
    assert answer.status == 201, answer
    assert 0.4 < waited < 2
    assert answer.json()["fencing_token"] > held["fencing_token"]


def test_waiter_when_nobody_holds_it_then_it_does_not_wait(api: Api, resource: str) -> None:
    answer = api.ask(resource, wait_ms=10_000)
    assert answer.status == 201 and answer.seconds < 1, answer


def test_waiter_when_its_time_is_over_then_423_with_its_place(api: Api, resource: str) -> None:
    api.take(resource, ttl_ms=20_000)
    answer = api.ask(resource, wait_ms=500)
    problem = expect_problem(answer, 423, "resource-locked")
    assert 0.5 <= answer.seconds < 1.5
    assert problem["queue_position"] == 1
    assert 15_000 < problem["remaining_ms"] <= 20_000
    assert int(answer.headers["Retry-After"]) >= 1


def test_waiter_when_its_time_is_over_then_it_leaves_no_place_behind(stack: Stack, api: Api, resource: str) -> None:
    held = api.take(resource)
    expect_problem(api.ask(resource, wait_ms=200), 423, "resource-locked")
    api.give_back(held)
    stays(lambda: not lease_keys(stack.nodes(), resource), 0.5, what="nobody takes it")
    api.give_back(api.take(resource))


def test_waiters_when_several_wait_then_served_in_order_of_arrival(api: Api, resource: str) -> None:
    held = api.take(resource)
    waiters = [api.begin_wait(resource, owner=f"waiter-{number}") for number in range(6)]
    api.give_back(held)
    tokens = [held["fencing_token"]]
    for number, waiter in enumerate(waiters):
        answer = waiter.answer()
        assert answer.status == 201, answer
        lease = answer.json()
        assert lease["owner"] == f"waiter-{number}"
        assert not [later for later in waiters[number + 1:] if not later.is_alive()], "two were served at once"
        tokens.append(lease["fencing_token"])
        api.give_back(lease)
    assert tokens == sorted(set(tokens))


def test_waiters_when_one_in_the_middle_gives_up_then_the_rest_keep_their_order(api: Api, resource: str) -> None:
    held = api.take(resource)
    first, second, third = (api.begin_wait(resource, owner=owner) for owner in ("first", "second", "third"))
    second.hang_up()
    api.give_back(held)
    for waiter, owner in ((first, "first"), (third, "third")):
        answer = waiter.answer()
        assert answer.status == 201 and answer.json()["owner"] == owner, answer
        api.give_back(answer.json())
    assert api.ask(resource).status == 201


def test_places_when_several_wait_in_vain_then_each_is_told_its_own(api: Api, resource: str) -> None:
    api.take(resource)
    waiters = [api.begin_wait(resource, wait_ms=1_000 + 700 * number) for number in (2, 1, 0)]
    places = [expect_problem(waiter.answer(), 423, "resource-locked")["queue_position"] for waiter in reversed(waiters)]
    assert places == [3, 2, 1]


def test_caller_when_it_hangs_up_while_waiting_then_nothing_of_it_remains(stack: Stack, api: Api, resource: str) -> None:
    held = api.take(resource, owner="holder")
    lost = api.begin_wait(resource, owner="gone")
    lost.hang_up()
    api.await_waiters(resource, 0)
    api.give_back(held)
    stays(lambda: not lease_keys(stack.nodes(), resource), 1, what="no key of the caller that went away")
    api.give_back(api.take(resource, owner="next"))
    eventually(lambda: len(api.history(resource=resource, event="lease_granted")) == 2, what="the grants are in the history")
    assert {item["owner"] for item in api.history(resource=resource, event="lease_granted")} == {"holder", "next"}


def test_caller_when_it_hangs_up_in_the_moment_of_the_grant_then_the_resource_does_not_stay_locked(stack: Stack, api: Api, resource: str) -> None:
    """Hung up, and released at once, many times: the gateway may hand the lease over before it looks whether the caller is still there.
    The resource must be free soon, not after a ttl of 60 s."""
    for _ in range(15):
        held = api.take(resource)
        lost = api.begin_wait(resource, ttl_ms=60_000)
        lost.hang_up()
        release = api.begin("DELETE", f"/v1/leases/{held['lease_id']}")
        assert release.answer().status == 204
        freed = api.ask(resource, wait_ms=3_000)
        if freed.status != 201:
            granted = api.history(resource=resource, event="lease_granted", limit=1)
            pytest.fail(f"locked by a caller that is gone: {freed}, last grant {granted}")
        api.give_back(freed.json())


def test_waiting_when_a_lease_is_renewed_meanwhile_then_the_waiter_goes_on_waiting(api: Api, resource: str) -> None:
    held = api.take(resource, ttl_ms=700)
    waiter = api.begin_wait(resource)
    for _ in range(5):
        answer = api.renew(held, ttl_ms=700)
        assert answer.status == 200, answer
        let_pass(0.25, "more than a third of the ttl")
        assert waiter.is_alive(), f"served while the lease was held: {waiter.got}"
    api.give_back(held)
    assert waiter.answer().status == 201


def test_token_of_a_waiter_when_granted_then_its_validity_counts_from_the_grant(api: Api, resource: str) -> None:
    held = api.take(resource)
    waiter = api.begin_wait(resource, ttl_ms=3_000)
    let_pass(1, "the wait must be long against the allowance for drift")
    api.give_back(held)
    assert waiter.answer().json()["validity_ms"] > 2_700
