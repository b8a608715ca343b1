"""Whose turn it is: hand-over within one gateway, turns between two, and how a release at one reaches those who wait at the other."""

from __future__ import annotations

import collections
import statistics
import threading
import time
from typing import Callable, Iterator

import pytest
from support.api import Api, Call
from support.cluster import Cluster, Gateway
from support.events import EventStream
from support.polling import eventually, stays
from support.stack import Stack, lease_keys

SETTLE = 0.15  # time for a request on loopback to take its place and to be refused once, on a slow machine


def waiting(api: Api, resource: str, **more: object) -> Call:
    call = api.begin_ask(resource, **{"wait_ms": 20_000, "ttl_ms": 20_000, **more})
    time.sleep(SETTLE)
    assert call.is_alive(), f"it did not wait: {call.got}"
    return call


class Turns:
    """Callers that take the resource, hold it for a moment and give it back, again and again, and who got it in which order."""

    def __init__(self, resource: str, hold: float = 0.0) -> None:
        self.resource, self.hold = resource, hold
        self.served: list[str] = []
        self.tokens: list[int] = []
        self.ended = False
        self.failed: list[str] = []
        self.threads: list[threading.Thread] = []

    def add(self, api: Api, name: str) -> None:
        self.threads.append(threading.Thread(target=self._work, args=(api, name), daemon=True))

    def _work(self, api: Api, name: str) -> None:
        with api.connection() as connection:
            while not self.ended:
                answer = connection.call("POST", "/v1/leases", {"resource": self.resource, "ttl_ms": 20_000, "wait_ms": 20_000, "owner": name})
                if answer.status != 201:
                    self.failed.append(f"{name}: {answer}")
                    return
                lease = answer.json()
                self.served.append(name)
                self.tokens.append(lease["fencing_token"])
                time.sleep(self.hold)
                released = connection.call("DELETE", f"/v1/leases/{lease['lease_id']}")
                if released.status != 204:
                    self.failed.append(f"{name}: {released}")
                    return

    def run(self, until: int, within: float) -> None:
        """Until so many turns were taken in all."""
        for thread in self.threads:
            thread.start()
        try:
            eventually(lambda: self.failed or len(self.served) >= until, within, what=f"{until} turns; so far {len(self.served)}")
        finally:
            self.ended = True
            for thread in self.threads:
                thread.join(25)
        assert not self.failed
        assert self.tokens == sorted(set(self.tokens)), "two held it at once, or a token went back"


# one gateway


def test_waiters_when_of_one_gateway_then_turns_are_even(here: Api, resource: str) -> None:
    turns = Turns(resource)
    for number in range(6):
        turns.add(here, f"caller-{number}")
    turns.run(until=180, within=40)
    settled = turns.served[30:180]  # from when all were there
    counts = collections.Counter(settled)
    assert len(counts) == 6 and max(counts.values()) - min(counts.values()) <= 4, counts
    assert all(abs(count - 25) <= 2 for count in counts.values()), counts


def test_waiters_when_served_one_after_another_then_in_order_and_each_at_once(here: Api, resource: str) -> None:
    held = here.take(resource)
    waiters = [waiting(here, resource, owner=f"waiter-{number}") for number in range(5)]
    lease, gaps = held, []
    for number, waiter in enumerate(waiters):
        released = time.monotonic()
        here.give_back(lease)
        answer = waiter.answer()
        gaps.append(waiter.ended - released)
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
        assert lease["hold_count"] == 1 and lease["lease_id"] != held["lease_id"]
        assert here.release(held).status == 410
    assert sorted(gaps)[1] < 0.1, gaps  # most of them are late where the machine is busy
    here.give_back(lease)


def test_lease_when_handed_over_then_the_history_has_its_end_before_the_next_begin(here: Api, resource: str) -> None:
    held = here.take(resource, owner="first")
    waiter = waiting(here, resource, owner="second")
    here.give_back(held)
    here.give_back(waiter.answer().json())
    items = eventually(lambda: len(found := here.history(resource=resource, order="asc")) >= 4 and found, what="four events")
    assert [(item["event"], item["owner"]) for item in sorted(items, key=lambda item: (item["fencing_token"], item["event"] == "lease_released"))] == \
        [("lease_granted", "first"), ("lease_released", "first"), ("lease_granted", "second"), ("lease_released", "second")]


def test_lease_when_released_twice_at_once_while_one_waits_then_the_waiter_keeps_what_it_got(here: Api, resource: str) -> None:
    for _ in range(10):
        held = here.take(resource)
        waiter = here.begin_ask(resource, wait_ms=10_000, ttl_ms=20_000)
        time.sleep(0.05)
        releases = [here.begin("DELETE", f"/v1/leases/{held['lease_id']}") for _ in range(3)]
        statuses = sorted(call.answer().status for call in releases)
        assert statuses[0] == 204 and set(statuses) <= {204, 410}, statuses
        lease = waiter.answer().json()
        assert here.look(lease).status == 200
        here.give_back(lease)


def test_waiter_when_it_hangs_up_while_it_is_handed_the_lease_then_nothing_stays(guarded_pair: Stack, here: Api, fresh: Callable[[str], str]) -> None:
    """With a majority of the nodes silent the hand-over takes long enough for the waiter to go away in its middle."""
    guarded_pair.wait_until_whole()
    nodes = guarded_pair.nodes()
    for silence in (0.02, 0.12, 0.35):  # before the gateway can know, after, and past the time that it gives a node
        name = fresh("test/gone")
        held = here.take(name)
        lost = waiting(here, name, ttl_ms=60_000)
        with guarded_pair.frozen(guarded_pair.node_pids()[:3]):
            release = here.begin("DELETE", f"/v1/leases/{held['lease_id']}")
            time.sleep(0.01)
            lost.hang_up()
            time.sleep(silence)
        assert release.answer().status in (204, 503)
        assert lost.got is None
        eventually(lambda: not lease_keys(nodes, name), 5, what=f"no key after a silence of {silence} s")
        here.give_back(here.take(name, wait_ms=2_000))


def test_waiter_when_it_hangs_up_around_the_hand_over_then_only_what_it_received_stays(guarded_pair: Stack, here: Api, fresh: Callable[[str], str]) -> None:
    """The race at many moments; the lease is asked for a minute, so what stays would be seen."""
    waiters: dict[str, Call] = {}
    for number in range(20):
        name = fresh("test/gone")
        held = here.take(name)
        waiters[name] = here.begin_ask(name, wait_ms=10_000, ttl_ms=60_000)
        time.sleep(0.05)
        release = here.begin("DELETE", f"/v1/leases/{held['lease_id']}")
        time.sleep(0.0004 * (number % 7))
        waiters[name].hang_up()
        assert release.answer().status in (204, 503)
    not_received = [name for name, waiter in waiters.items() if waiter.got is None]
    nodes = guarded_pair.nodes()
    # One answer may have been on its way in that very moment.
    eventually(lambda: sum(bool(lease_keys(nodes, name)) for name in not_received) <= 1, 5, what="what nobody received is released")


def test_waiter_when_it_hung_up_before_the_release_then_the_next_gets_it(guarded_pair: Stack, here: Api, resource: str) -> None:
    held = here.take(resource)
    lost = waiting(here, resource, ttl_ms=60_000)
    second = waiting(here, resource, owner="second")
    lost.hang_up()
    time.sleep(SETTLE)
    here.give_back(held)
    answer = second.answer()
    assert answer.status == 201 and answer.json()["owner"] == "second", answer
    here.give_back(answer.json())
    stays(lambda: not lease_keys(guarded_pair.nodes(), resource), 0.5, what="nobody else takes it")


# two gateways


def test_gateways_when_both_have_waiters_then_both_get_turns(here: Api, there: Api, resource: str) -> None:
    turns = Turns(resource, hold=0.002)
    for number in range(4):
        turns.add(here, f"here-{number}")
        turns.add(there, f"there-{number}")
    turns.run(until=240, within=60)
    sides = collections.Counter(name.split("-")[0] for name in turns.served)
    assert min(sides["here"], sides["there"]) >= 40, sides
    callers = collections.Counter(turns.served)
    assert len(callers) == 8 and min(callers.values()) >= 5, callers


def test_gateway_when_it_has_handed_over_often_then_the_other_gets_its_turn(here: Api, there: Api, resource: str) -> None:
    """One gateway with always a waiter of its own must not keep the resource from the other for longer than handoff_max turns, and a few."""
    turns = Turns(resource)
    for number in range(3):
        turns.add(here, f"here-{number}")
    turns.add(there, "there")
    turns.run(until=200, within=60)
    longest = longest_run(turns.served, "here")
    assert longest <= 4 * 16, f"{longest} turns running at one gateway while another waited"


def longest_run(served: list[str], of: str) -> int:
    longest = run = 0
    for name in served:
        run = run + 1 if name.startswith(of) else 0
        longest = max(longest, run)
    return longest


def delays(holder: Api, waiter: Api, resource: str, count: int) -> list[float]:
    """Seconds from a release at one gateway to the answer of who waits at another."""
    out = []
    for _ in range(count):
        held = holder.take(resource, wait_ms=2_000)
        call = waiting(waiter, resource)
        time.sleep(0.4)  # so long that it no longer looks by itself often
        released = time.monotonic()
        holder.give_back(held)
        answer = call.answer()
        assert answer.status == 201, answer
        out.append(call.ended - released)
        waiter.give_back(answer.json())
    return out


def quick(holder: Api, waiter: Api, fresh: Callable[[str], str]) -> bool:
    """Whether a few releases reach the other gateway far sooner than it would look by itself. A busy machine is asked again."""
    taken = delays(holder, waiter, fresh("test/told"), 3)
    assert statistics.median(taken) < 0.08, taken
    return True


def test_waiter_when_the_release_is_at_another_gateway_then_told_at_once(here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    for holder, waiter in ((here, there), (there, here)):
        eventually(lambda: quick(holder, waiter, fresh), 20, what="three releases, told at once")


def test_waiter_when_the_messages_are_cut_off_then_it_finds_out_by_itself_soon(
        guarded_pair: Stack, here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    taken = []
    for _ in range(3):
        resource = fresh("test/cut")
        held = here.take(resource)
        call = waiting(there, resource)
        time.sleep(0.3)
        for node in guarded_pair.nodes():
            node.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        released = time.monotonic()
        here.give_back(held)
        answer = call.answer()
        assert answer.status == 201, answer
        taken.append(call.ended - released)
        there.give_back(answer.json())
    assert max(taken) < 3 and statistics.median(taken) < 0.8, taken
    eventually(lambda: quick(here, there, fresh), 20, what="messages come again")


@pytest.fixture(scope="module")
def without_hand_over(cluster: Cluster) -> Iterator[Gateway]:
    made = cluster.gateway(cluster.settings(handoff_max=0))
    made.start()
    yield made
    assert made.stop() == 0


def test_waiters_when_hand_over_is_off_then_still_served_in_order(without_hand_over: Gateway, resource: str) -> None:
    api = without_hand_over.api
    lease = api.take(resource, ttl_ms=2_000)
    waiters = [waiting(api, resource, ttl_ms=2_000, owner=f"waiter-{number}") for number in range(4)]
    for number, waiter in enumerate(waiters):
        api.give_back(lease)
        answer = waiter.answer()
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
    api.give_back(lease)


# several threads


@pytest.fixture(scope="module")
def threaded(cluster: Cluster) -> Iterator[list[Api]]:
    """Two gateways with two threads each: resources of one lease belong to different ones."""
    made = []
    for _ in range(2):
        settings = cluster.settings()
        settings["http"]["threads"] = 2
        made.append(cluster.gateway(settings))
        made[-1].start()
    yield [gateway.api for gateway in made]
    for gateway in made:
        assert gateway.stop() == 0


@pytest.mark.parametrize("end", ["released", "revoked", "hung up"])
def test_lease_on_several_when_it_ends_then_who_waits_for_any_of_them_is_served_wherever_it_waits(
        threaded: list[Api], fresh: Callable[[str], str], end: str) -> None:
    for number in range(8):
        here, there = threaded[number % 2], threaded[(number // 2) % 2]
        names = [fresh("test/threads") for _ in range(3)]
        kept = EventStream(here, {"resources": names, "ttl_ms": 2_000, "owner": "holder"})
        lease = kept.granted()
        waiters = [there.begin("POST", "/v1/leases", {"resources": wanted, "wait_ms": 10_000, "ttl_ms": 2_000})
                   for wanted in (names[:1], names[1:2], names[2:], names[1:])]
        time.sleep(SETTLE)
        assert all(waiter.is_alive() for waiter in waiters)
        began = time.monotonic()
        if end == "released":
            there.give_back(lease)
        elif end == "revoked":
            path = f"/v1/resources/{names[number % 3].replace('/', '%2F')}/lease"
            assert there.call("DELETE", path, {"reason": "it hangs"}).status == 204
        else:
            kept.hang_up()
        while waiters:  # in whichever order: two of them want the same
            served = eventually(lambda: next((waiter for waiter in waiters if not waiter.is_alive()), None), 12, what="the next is served")
            answer = served.answer()
            assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
            here.give_back(answer.json())
            waiters.remove(served)
        assert time.monotonic() - began < 1.8, "they had to wait for the lease to run out"
        if end != "hung up":
            kept.wait_for_end()
            assert kept.names()[-1] == "lost"
            kept.hang_up()


def test_waiters_when_half_of_them_hang_up_then_the_rest_is_served_in_order(threaded: list[Api], resource: str) -> None:
    api = threaded[0]
    lease = api.take(resource, ttl_ms=2_000)
    waiters = []
    for number in range(12):
        waiters.append(api.begin_ask(resource, wait_ms=15_000, ttl_ms=2_000, owner=f"waiter-{number}"))
        time.sleep(0.02)
    time.sleep(SETTLE)
    for waiter in waiters[::2]:
        waiter.hang_up()
    time.sleep(SETTLE)
    for number in range(1, 12, 2):
        api.release(lease)  # it may have run out on a slow machine
        answer = waiters[number].answer()
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
    api.give_back(lease)
