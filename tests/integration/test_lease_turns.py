"""The order of waiters: hand-over within one gateway, turns between two gateways,
and notification of waiters at another gateway."""

from __future__ import annotations

import collections
import statistics
import threading
import time
from typing import Callable, Iterator

import pytest
from support.api import Api, Call
from support.calls import expect_all_granted
from support.cluster import running as running_cluster
from support.events import EventStream
from support.polling import eventually, pause
from support.stack import Stack, lease_keys

HANDOFF_MAX = 16  # the default of lease.handoff_max
LONG_TTL_MS = 60_000  # longer than any test: such a lease does not expire


class Turns:
    """Concurrent callers that acquire and release one resource repeatedly."""

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
                answer = connection.post(
                    "/v1/leases", {"resource": self.resource, "ttl_ms": 20_000, "wait_ms": 20_000, "owner": name}
                )
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
        """Runs the callers until each has had `each` grants."""
        for thread in self.threads:
            thread.start()
        try:
            eventually(
                lambda: self.failed or min(self.counts.values()) >= each,
                120,
                goal=f"{each} turns each; so far {self.counts}",
            )
        finally:
            self.ended = True
            for thread in self.threads:
                thread.join(25)
        assert not self.failed
        assert self.tokens == sorted(set(self.tokens)), "two callers held it at once, or a token fell"


# One gateway


def test_waiters_of_one_gateway_have_even_turns(api_a: Api, resource: str) -> None:
    """A caller that waits again is queued after all other waiters,
    whether the lease is handed over or released for all gateways."""
    lease = api_a.must_acquire(resource, owner="caller-0")
    waiters = collections.deque(api_a.begin_wait(resource, owner=f"caller-{number}") for number in range(1, 6))
    turns = [lease]
    for _ in range(3 * HANDOFF_MAX):
        api_a.must_release(lease)
        answer = waiters.popleft().answer()
        assert answer.status == 201, answer
        waiters.append(api_a.begin_wait(resource, owner=lease["owner"]))
        lease = answer.json()
        turns.append(lease)
    assert [turn["owner"] for turn in turns] == [f"caller-{number % 6}" for number in range(len(turns))]
    tokens = [turn["fencing_token"] for turn in turns]
    assert tokens == sorted(set(tokens))
    for waiter in waiters:
        waiter.disconnect()
    api_a.must_release(lease)


def test_hand_over_records_release_before_next_grant(api_a: Api, resource: str) -> None:
    held = api_a.must_acquire(resource, owner="first")
    waiter = api_a.begin_wait(resource, owner="second")
    api_a.must_release(held)
    api_a.must_release(waiter.answer().json())
    items = eventually(
        lambda: len(found := api_a.history(resource=resource, order="asc")) >= 4 and found, goal="four events"
    )
    assert [
        (item["event"], item["owner"])
        for item in sorted(items, key=lambda item: (item["fencing_token"], item["event"] == "lease_released"))
    ] == [
        ("lease_granted", "first"),
        ("lease_released", "first"),
        ("lease_granted", "second"),
        ("lease_released", "second"),
    ]


def test_release_repeated_during_hand_over_keeps_waiter_lease(api_a: Api, resource: str) -> None:
    for _ in range(10):
        held = api_a.must_acquire(resource)
        waiter = api_a.begin_wait(resource)
        releases = [api_a.begin("DELETE", f"/v1/leases/{held['lease_id']}") for _ in range(3)]
        statuses = sorted(call.answer().status for call in releases)
        assert statuses[0] == 204 and set(statuses) <= {204, 410}, statuses
        lease = waiter.answer().json()
        assert api_a.read_lease(lease).status == 200
        api_a.must_release(lease)


def test_waiter_disconnected_during_hand_over_leaves_no_key(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    """While a majority of the nodes is suspended the hand-over takes so long that the waiter disconnects during it."""
    guarded_pair.wait_until_all_vote()
    nodes = guarded_pair.nodes()
    for silence in (0.02, 0.12, 0.35):  # before the gateway can notice, after, and after the node timeout
        name = unique_name("test/gone")
        held = api_a.must_acquire(name)
        lost = api_a.begin_wait(name, ttl_ms=LONG_TTL_MS)
        with guarded_pair.frozen(guarded_pair.node_pids()[:3]):
            release = api_a.begin("DELETE", f"/v1/leases/{held['lease_id']}")
            pause(0.01, "the waiter disconnects at different moments")
            lost.disconnect()
            pause(silence, "the nodes are suspended for different times")
        assert release.answer().status in (204, 503)
        assert lost.received is None
        eventually(lambda: not lease_keys(nodes, name), 5, goal=f"no key after a silence of {silence} s")
        api_a.must_release(api_a.must_acquire(name, wait_ms=2_000))


def test_waiter_disconnected_around_hand_over_leaves_no_key(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    """The race at many moments; the ttl is a minute, so that a leftover lease would be seen."""
    waiters: dict[str, Call] = {}
    for number in range(20):
        name = unique_name("test/gone")
        held = api_a.must_acquire(name)
        waiters[name] = api_a.begin_wait(name, ttl_ms=LONG_TTL_MS)
        release = api_a.begin("DELETE", f"/v1/leases/{held['lease_id']}")
        pause(0.0004 * (number % 7), "the waiter disconnects at different moments")
        waiters[name].disconnect()
        assert release.answer().status in (204, 503)
    not_received = [name for name, waiter in waiters.items() if waiter.received is None]
    nodes = guarded_pair.nodes()
    # One answer may have been sent at that very moment.
    eventually(
        lambda: sum(bool(lease_keys(nodes, name)) for name in not_received) <= 1,
        5,
        goal="leases that no caller received are released",
    )


# Two gateways


def test_gateways_with_waiters_both_get_turns(api_a: Api, api_b: Api, resource: str) -> None:
    turns = Turns(resource)
    for number in range(4):
        turns.add(api_a, f"here-{number}")
        turns.add(api_b, f"there-{number}")
    turns.run(each=10)


def release_delays(holder: Api, waiter: Api, resource: str, count: int) -> list[float]:
    """Returns the seconds from a release at one gateway to the answer to a waiter
    at the other, for several releases."""
    seconds = []
    for _ in range(count):
        held = holder.must_acquire(resource, wait_ms=2_000)
        call = waiter.begin_wait(resource)
        pause(0.4, "so long that its polling interval has grown")
        released = time.monotonic()
        holder.must_release(held)
        answer = call.answer()
        assert answer.status == 201, answer
        seconds.append(call.ended - released)
        waiter.must_release(answer.json())
    return seconds


def is_notified_quickly(holder: Api, waiter: Api, unique_name: Callable[[str], str]) -> bool:
    """Checks that releases reach the other gateway far sooner than its polling would;
    to be repeated on a busy machine."""
    taken = release_delays(holder, waiter, unique_name("test/notified"), 3)
    assert statistics.median(taken) < 0.08, taken
    return True


def test_waiter_is_notified_of_release_at_another_gateway(
    api_a: Api, api_b: Api, unique_name: Callable[[str], str]
) -> None:
    for holder, waiter in ((api_a, api_b), (api_b, api_a)):
        eventually(
            lambda: is_notified_quickly(holder, waiter, unique_name), 60, goal="three releases are notified at once"
        )


def test_waiter_without_messages_finds_release_by_polling(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str]
) -> None:
    resource = unique_name("test/cut")
    held = api_a.must_acquire(resource)
    call = api_b.begin_wait(resource)
    for node in guarded_pair.nodes():
        node.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    released = time.monotonic()
    api_a.must_release(held)
    answer = call.answer()
    assert answer.status == 201, answer
    assert (
        call.ended - released < 5
    ), "it polls four times a second; without polling it would wait until wait_ms is over"
    api_b.must_release(answer.json())
    eventually(lambda: is_notified_quickly(api_a, api_b, unique_name), 60, goal="messages arrive again")


# Several threads


@pytest.fixture(scope="module")
def threaded_apis(stack: Stack) -> Iterator[list[Api]]:
    """Two gateways with two threads each, so that resources of one lease belong to different shards."""
    with running_cluster(stack, "turns_threaded", max_ttl_ms=LONG_TTL_MS) as cluster:
        gateways = []
        for _ in range(2):
            settings = cluster.settings()
            settings["http"]["threads"] = 2
            gateways.append(cluster.start_gateway(settings))
        yield [gateway.api for gateway in gateways]
        for gateway in gateways:
            assert gateway.stop() == 0


@pytest.mark.parametrize("end", ["released", "revoked", "hung up"])
def test_end_of_lease_on_several_serves_waiters_of_each(
    threaded_apis: list[Api], unique_name: Callable[[str], str], end: str
) -> None:
    for number in range(8):
        api_a, api_b = threaded_apis[number % 2], threaded_apis[(number // 2) % 2]
        stem = unique_name("test/threads")
        names = [f"{stem}-{index}" for index in range(3)]
        kept = EventStream(api_a, {"resources": names, "ttl_ms": LONG_TTL_MS, "owner": "holder"})
        lease = kept.wait_for_grant()
        waiters = [
            api_b.begin("POST", "/v1/leases", {"resources": wanted, "wait_ms": 20_000, "ttl_ms": LONG_TTL_MS})
            for wanted in (names[:1], names[1:2], names[2:], names[1:])
        ]
        api_b.await_waiters(stem, len(waiters))
        if end == "released":
            api_b.must_release(lease)
        elif end == "revoked":
            api_b.must_revoke(names[number % 3])
        else:
            kept.disconnect()
        granted = expect_all_granted([(api_a, waiter) for waiter in waiters], 20)
        assert all(each["fencing_token"] > lease["fencing_token"] for each in granted), granted
        if end != "hung up":
            kept.wait_for_end()
            assert kept.names()[-1] == "lost"
            kept.disconnect()
