"""Whose turn it is: hand-over within one gateway, turns between two, and how a release at one reaches those who wait at the other."""

from __future__ import annotations

import collections
import statistics
import threading
import time
from typing import Callable, Iterator

import pytest
import redis
from support.api import Api, Call
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.events import EventStream
from support.polling import eventually, let_pass, stays
from support.stack import Stack, lease_keys

HANDOFF_MAX = 16  # lease.handoff_max, as it is where nobody sets it
LONG_TTL_MS = 60_000  # no test lasts as long: where such a lease has ended, it was ended


class Turns:
    """Callers that take the resource and give it back, again and again, all at once."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.counts: dict[str, int] = {}
        self.tokens: list[int] = []
        self.ended = False
        self.failed: list[str] = []
        self.threads: list[threading.Thread] = []

    def add(self, api: Api, name: str) -> None:
        self.counts[name] = 0
        self.threads.append(threading.Thread(target=self._work, args=(api, name), daemon=True))

    def _work(self, api: Api, name: str) -> None:
        with api.connection() as connection:
            while not self.ended:
                answer = connection.call("POST", "/v1/leases", {"resource": self.resource, "ttl_ms": 20_000, "wait_ms": 20_000, "owner": name})
                if answer.status != 201:
                    self.failed.append(f"{name}: {answer}")
                    return
                lease = answer.json()
                self.counts[name] += 1
                self.tokens.append(lease["fencing_token"])
                released = connection.call("DELETE", f"/v1/leases/{lease['lease_id']}")
                if released.status != 204:
                    self.failed.append(f"{name}: {released}")
                    return

    def run(self, each: int) -> None:
        """Until each caller has had so many turns."""
        for thread in self.threads:
            thread.start()
        try:
            eventually(lambda: self.failed or min(self.counts.values()) >= each, 120, what=f"{each} turns each; so far {self.counts}")
        finally:
            self.ended = True
            for thread in self.threads:
                thread.join(25)
        assert not self.failed
        assert self.tokens == sorted(set(self.tokens)), "two held it at once, or a token went back"


# one gateway


def test_waiters_when_of_one_gateway_then_turns_are_even(here: Api, resource: str) -> None:
    """Who comes back has its place behind all who wait already, across hand-overs and releases for all: the turns go round."""
    lease = here.take(resource, owner="caller-0")
    waiters = collections.deque(here.begin_wait(resource, owner=f"caller-{number}") for number in range(1, 6))
    turns = [lease]
    for _ in range(3 * HANDOFF_MAX):
        here.give_back(lease)
        answer = waiters.popleft().answer()
        assert answer.status == 201, answer
        waiters.append(here.begin_wait(resource, owner=lease["owner"]))
        lease = answer.json()
        turns.append(lease)
    assert [turn["owner"] for turn in turns] == [f"caller-{number % 6}" for number in range(len(turns))]
    tokens = [turn["fencing_token"] for turn in turns]
    assert tokens == sorted(set(tokens))
    for waiter in waiters:
        waiter.hang_up()
    here.give_back(lease)


def test_waiters_when_many_take_turns_at_once_then_each_gets_its_turns(here: Api, resource: str) -> None:
    turns = Turns(resource)
    for number in range(6):
        turns.add(here, f"caller-{number}")
    turns.run(each=25)


def test_waiters_when_served_one_after_another_then_in_order(here: Api, resource: str) -> None:
    held = here.take(resource)
    waiters = [here.begin_wait(resource, owner=f"waiter-{number}") for number in range(5)]
    lease = held
    for number, waiter in enumerate(waiters):
        here.give_back(lease)
        answer = waiter.answer()
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
        assert lease["hold_count"] == 1 and lease["lease_id"] != held["lease_id"]
        assert here.release(held).status == 410
        assert all(later.is_alive() for later in waiters[number + 1:]), "two were served at once"
    here.give_back(lease)


def test_lease_when_handed_over_then_the_history_has_its_end_before_the_next_begin(here: Api, resource: str) -> None:
    held = here.take(resource, owner="first")
    waiter = here.begin_wait(resource, owner="second")
    here.give_back(held)
    here.give_back(waiter.answer().json())
    items = eventually(lambda: len(found := here.history(resource=resource, order="asc")) >= 4 and found, what="four events")
    assert [(item["event"], item["owner"]) for item in sorted(items, key=lambda item: (item["fencing_token"], item["event"] == "lease_released"))] == \
        [("lease_granted", "first"), ("lease_released", "first"), ("lease_granted", "second"), ("lease_released", "second")]


def test_lease_when_released_twice_at_once_while_one_waits_then_the_waiter_keeps_what_it_got(here: Api, resource: str) -> None:
    for _ in range(10):
        held = here.take(resource)
        waiter = here.begin_wait(resource)
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
        lost = here.begin_wait(name, ttl_ms=LONG_TTL_MS)
        with guarded_pair.frozen(guarded_pair.node_pids()[:3]):
            release = here.begin("DELETE", f"/v1/leases/{held['lease_id']}")
            let_pass(0.01, "the moment at which it hangs up is what is tested")
            lost.hang_up()
            let_pass(silence, "how long the nodes are silent is what is tested")
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
        waiters[name] = here.begin_wait(name, ttl_ms=LONG_TTL_MS)
        release = here.begin("DELETE", f"/v1/leases/{held['lease_id']}")
        let_pass(0.0004 * (number % 7), "the moment is what is tested")
        waiters[name].hang_up()
        assert release.answer().status in (204, 503)
    not_received = [name for name, waiter in waiters.items() if waiter.got is None]
    nodes = guarded_pair.nodes()
    # One answer may have been on its way in that very moment.
    eventually(lambda: sum(bool(lease_keys(nodes, name)) for name in not_received) <= 1, 5, what="what nobody received is released")


def test_waiter_when_it_hung_up_before_the_release_then_the_next_gets_it(guarded_pair: Stack, here: Api, resource: str) -> None:
    held = here.take(resource)
    lost = here.begin_wait(resource, ttl_ms=LONG_TTL_MS)
    second = here.begin_wait(resource, owner="second")
    lost.hang_up()
    here.await_waiters(resource, 1)
    here.give_back(held)
    answer = second.answer()
    assert answer.status == 201 and answer.json()["owner"] == "second", answer
    here.give_back(answer.json())
    stays(lambda: not lease_keys(guarded_pair.nodes(), resource), 0.5, what="nobody else takes it")


# two gateways


def test_gateways_when_both_have_waiters_then_both_get_turns(here: Api, there: Api, resource: str) -> None:
    turns = Turns(resource)
    for number in range(4):
        turns.add(here, f"here-{number}")
        turns.add(there, f"there-{number}")
    turns.run(each=10)


class Told:
    """Hears what the nodes tell the gateway with this mark: that a lease has ended for all who wait."""

    def __init__(self, nodes: list[redis.Redis], mark: str) -> None:
        self.subscriptions = [node.pubsub() for node in nodes]
        for subscription in self.subscriptions:
            subscription.subscribe(f"fg:wake:{mark}")
            assert subscription.get_message(timeout=5)["type"] == "subscribe"

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        for subscription in self.subscriptions:
            subscription.close()

    def has_been(self) -> bool:
        """Whether any node has told it since this was asked last. What a node published before now is there before its PONG."""
        told = False
        for subscription in self.subscriptions:
            subscription.ping()
            while (message := subscription.get_message(timeout=5))["type"] != "pong":
                told = True
        return told


def marks_on(node: redis.Redis, resource: str) -> set[str]:
    """The marks of the gateways at which callers wait, as the lease on the node has them."""
    return set((node.get(f"fg:lease:{resource}") or "").split("\1")[1:])


def test_gateway_when_it_has_handed_over_often_then_the_other_gets_its_turn(guarded_pair: Stack, here: Api, there: Api, resource: str) -> None:
    """One gateway with always a waiter of its own: after handoff_max hand-overs at the latest it releases for all, and the other, which is told of it, is served."""
    guarded_pair.wait_until_whole()
    nodes = guarded_pair.nodes()
    lease = here.take(resource)
    other = there.begin_wait(resource, wait_ms=30_000)
    mark = eventually(lambda: next(iter(set.intersection(*(marks_on(node, resource) for node in nodes))), None), what="it has left its mark")
    with Told(nodes, mark) as told:
        own = collections.deque(here.begin_wait(resource, wait_ms=30_000) for _ in range(2))
        turns, releases_for_all = 1, 0
        while True:
            eventually(lambda: sum(mark in marks_on(node, resource) for node in nodes) >= 3, 10, what="the other waits for the end of this lease")
            assert not told.has_been()
            here.give_back(lease)
            eventually(lambda: not other.is_alive() or not own[0].is_alive(), 15, what="the next is served")
            if told.has_been():
                releases_for_all += 1
                turns = 0
            assert turns <= HANDOFF_MAX, f"handed over {turns} times while another waited"
            if not other.is_alive():
                break
            lease = own.popleft().answer().json()
            own.append(here.begin_wait(resource, wait_ms=30_000))
            turns += 1
    answer = other.answer()
    assert answer.status == 201 and releases_for_all > 0, answer
    for waiter in own:
        waiter.hang_up()
    there.give_back(answer.json())


def delays(holder: Api, waiter: Api, resource: str, count: int) -> list[float]:
    """Seconds from a release at one gateway to the answer of who waits at another."""
    out = []
    for _ in range(count):
        held = holder.take(resource, wait_ms=2_000)
        call = waiter.begin_wait(resource)
        let_pass(0.4, "so long that it no longer looks by itself often")
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
        eventually(lambda: quick(holder, waiter, fresh), 60, what="three releases, told at once")


def test_waiter_when_the_messages_are_cut_off_then_it_finds_out_by_itself_soon(
        guarded_pair: Stack, here: Api, there: Api, fresh: Callable[[str], str]) -> None:
    taken = []
    for _ in range(3):
        resource = fresh("test/cut")
        held = here.take(resource)
        call = there.begin_wait(resource)
        let_pass(0.3, "so long that it no longer looks by itself often")
        for node in guarded_pair.nodes():
            node.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        released = time.monotonic()
        here.give_back(held)
        answer = call.answer()
        assert answer.status == 201, answer
        taken.append(call.ended - released)
        there.give_back(answer.json())
    assert max(taken) < 5, taken  # it looks by itself four times a second; nothing else would have it look before the wait is over
    eventually(lambda: quick(here, there, fresh), 60, what="messages come again")


@pytest.fixture(scope="module")
def without_hand_over(cluster: Cluster) -> Iterator[Gateway]:
    made = cluster.gateway(cluster.settings(handoff_max=0))
    made.start()
    yield made
    assert made.stop() == 0


def test_waiters_when_hand_over_is_off_then_still_served_in_order(without_hand_over: Gateway, resource: str) -> None:
    api = without_hand_over.api
    lease = api.take(resource, ttl_ms=2_000)
    waiters = [api.begin_wait(resource, ttl_ms=2_000, owner=f"waiter-{number}") for number in range(4)]
    for number, waiter in enumerate(waiters):
        api.give_back(lease)
        answer = waiter.answer()
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
    api.give_back(lease)


# several threads


@pytest.fixture(scope="module")
def threaded(stack: Stack) -> Iterator[list[Api]]:
    """Two gateways with two threads each: resources of one lease belong to different ones."""
    with running_cluster(stack, "turns_threaded", max_ttl_ms=LONG_TTL_MS) as cluster:
        gateways = []
        for _ in range(2):
            settings = cluster.settings()
            settings["http"]["threads"] = 2
            gateways.append(cluster.gateway(settings))
            gateways[-1].start()
        yield [gateway.api for gateway in gateways]
        for gateway in gateways:
            assert gateway.stop() == 0


@pytest.mark.parametrize("end", ["released", "revoked", "hung up"])
def test_lease_on_several_when_it_ends_then_who_waits_for_any_of_them_is_served_wherever_it_waits(
        threaded: list[Api], fresh: Callable[[str], str], end: str) -> None:
    for number in range(8):
        here, there = threaded[number % 2], threaded[(number // 2) % 2]
        stem = fresh("test/threads")
        names = [f"{stem}-{index}" for index in range(3)]
        kept = EventStream(here, {"resources": names, "ttl_ms": LONG_TTL_MS, "owner": "holder"})
        lease = kept.granted()
        waiters = [there.begin("POST", "/v1/leases", {"resources": wanted, "wait_ms": 20_000, "ttl_ms": LONG_TTL_MS})
                   for wanted in (names[:1], names[1:2], names[2:], names[1:])]
        there.await_waiters(stem, len(waiters))
        if end == "released":
            there.give_back(lease)
        elif end == "revoked":
            path = f"/v1/resources/{names[number % 3].replace('/', '%2F')}/lease"
            assert there.call("DELETE", path, {"reason": "it hangs"}).status == 204
        else:
            kept.hang_up()
        while waiters:  # in whichever order: two of them want the same
            served = eventually(lambda: next((waiter for waiter in waiters if not waiter.is_alive()), None), 20, what="the next is served")
            answer = served.answer()
            assert answer.status == 201 and answer.json()["fencing_token"] > lease["fencing_token"], answer
            here.give_back(answer.json())
            waiters.remove(served)
        if end != "hung up":
            kept.wait_for_end()
            assert kept.names()[-1] == "lost"
            kept.hang_up()


def test_waiters_when_half_of_them_hang_up_then_the_rest_is_served_in_order(threaded: list[Api], resource: str) -> None:
    api = threaded[0]
    lease = api.take(resource, ttl_ms=LONG_TTL_MS)
    waiters = [api.begin_wait(resource, ttl_ms=LONG_TTL_MS, owner=f"waiter-{number}") for number in range(12)]
    for waiter in waiters[::2]:
        waiter.hang_up()
    api.await_waiters(resource, 6)
    for number in range(1, 12, 2):
        api.give_back(lease)
        answer = waiters[number].answer()
        lease = answer.json()
        assert answer.status == 201 and lease["owner"] == f"waiter-{number}", answer
    api.give_back(lease)
