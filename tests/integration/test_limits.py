"""The limits of addresses and principals (the section `limits`), and the shares of a principal."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any, Callable, TypeVar

import pytest
from support.api import Answer, Api, Connection, expect_problem
from support.calls import expect_all_granted
from support.cluster import Cluster, Gateway, credentials
from support.events import EventStream
from support.polling import eventually, pause
from support.wire import Wire, request

KEYS = {name: f"the key of {name}, which is long" for name in ("first", "second")}
CLUSTER_MAX_TTL_MS = 20_000  # so long that a lease outlives the requests of a test on a busy machine
Value = TypeVar("Value")


class SourceApi(Api):
    """Calls from another loopback address."""

    def __init__(self, api: Api, source: str, key: str | None = None) -> None:
        super().__init__(api.url, key)
        self.source = source

    def connection(self) -> Connection:
        made = super().connection()
        # The library has it, its stub does not.
        made.wire.source_address = (self.source, 0)  # type: ignore[attr-defined]
        return made


@pytest.fixture
def make(start_gateway: Callable[..., Gateway]) -> Callable[..., Gateway]:
    """Returns a function that starts a gateway with the principals `first` and `second`, and with these limits."""
    auth = credentials(KEYS)
    return lambda limits=None, **sections: start_gateway(
        auth=auth, **({"limits": limits} if limits else {}), **sections
    )


def apis(gateway: Gateway) -> tuple[Api, Api]:
    return gateway.api.with_key(KEYS["first"]), gateway.api.with_key(KEYS["second"])


def refusals(gateway: Gateway, limit: str) -> int:
    return int(gateway.api.metric(f'fencegate_limit_refusals_total{{limit="{limit}"}}'))


def within_a_second(calls: Callable[[], Value]) -> Value:
    """Returns the result of calls that took less than a second,
    so that a bucket with one request per second got none back; repeats calls that took longer."""
    for _ in range(20):
        began = time.monotonic()
        result = calls()
        if time.monotonic() - began < 1:
            return result
        pause(4, "the bucket is full again")
    pytest.fail("the calls always took longer than a second")


def fields(answer: Answer) -> tuple[str | None, str | None]:
    return answer.headers["RateLimit-Policy"], answer.headers["RateLimit"]


# Requests


def test_principal_above_rate_429_and_others_unaffected(make: Callable[..., Gateway]) -> None:
    gateway = make({"principal": {"requests_per_second": 1, "requests_burst": 3}})
    first, second = apis(gateway)
    with first.connection() as connection:
        answers = within_a_second(lambda: [connection.call("GET", "/v1/history?limit=1") for _ in range(4)])
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert fields(answers[0]) == ('"principal";q=3;w=3', '"principal";r=2;t=1')
    assert fields(answers[3]) == ('"principal";q=3;w=3', '"principal";r=0;t=3')
    expect_problem(answers[3], 429, "too-many-requests")
    assert answers[3].headers["Retry-After"] == "1"
    assert second.get("/v1/history", limit=1).status == 200
    assert refusals(gateway, "principal_rate") >= 1
    eventually(
        lambda: first.get("/v1/history", limit=1).status == 200, 5, interval=0.2, goal="a request after a second"
    )


def test_principal_with_own_entry_has_its_own_rate(make: Callable[..., Gateway]) -> None:
    gateway = make(
        {
            "principal": {"requests_per_second": 1, "requests_burst": 2},
            "principals": [{"principal": "second", "requests_per_second": 100_000}],
        }
    )
    first, second = apis(gateway)
    assert within_a_second(lambda: [first.get("/v1/history", limit=1).status for _ in range(3)]) == [200, 200, 429]
    answers = [second.get("/v1/history", limit=1) for _ in range(10)]
    assert {answer.status for answer in answers} == {200}
    assert fields(answers[0])[0] == '"principal";q=2;w=1', "the burst is that of all principals"


def test_limits_absent_then_no_fields(make: Callable[..., Gateway]) -> None:
    answer = apis(make())[0].get("/v1/history", limit=1)
    assert answer.status == 200 and fields(answer) == (None, None)


def test_address_above_rate_429_before_authentication(make: Callable[..., Gateway]) -> None:
    gateway = make({"address": {"requests_per_second": 1, "requests_burst": 2}})
    stranger = SourceApi(gateway.api, "127.0.0.2", "a key of nobody")
    caller = SourceApi(gateway.api, "127.0.0.2", KEYS["first"])
    *strange, refused = within_a_second(
        lambda: [*(stranger.get("/v1/history") for _ in range(3)), caller.get("/metrics")]
    )
    assert [answer.status for answer in strange] == [401, 401, 429]
    expect_problem(refused, 429, "too-many-requests")
    assert fields(refused)[0] == '"address";q=2;w=2' and refused.headers["Retry-After"] == "1"
    assert SourceApi(gateway.api, "127.0.0.2").get("/healthz").status == 200, "a probe"
    assert (
        SourceApi(gateway.api, "127.0.0.3", KEYS["first"]).get("/v1/history", limit=1).status == 200
    ), "another address"
    assert SourceApi(gateway.api, "127.0.0.4").get("/metrics").status == 200
    eventually(lambda: refusals(gateway, "address_rate") >= 2, 5, interval=0.5, goal="the refusals are counted")


def test_address_and_principal_limits_are_one_field(make: Callable[..., Gateway]) -> None:
    gateway = make(
        {"address": {"requests_per_second": 50, "requests_burst": 200}, "principal": {"requests_per_second": 100}}
    )
    answer = SourceApi(gateway.api, "127.0.0.2", KEYS["first"]).get("/v1/history", limit=1)
    assert fields(answer) == ('"address";q=200;w=4, "principal";q=100;w=1', '"address";r=199;t=1, "principal";r=99;t=1')


def test_requests_of_lease_have_a_rate_of_their_own(make: Callable[..., Gateway], resource: str) -> None:
    rate = {"requests_per_second": 1, "requests_burst": 3}
    gateway = make({"address": rate, "principal": rate})
    caller = SourceApi(gateway.api, "127.0.0.2", KEYS["first"])

    def use_lease() -> list[int]:
        lease = caller.must_acquire(f"{resource}/{time.monotonic_ns()}")
        others = [caller.get("/v1/history", limit=1) for _ in range(3)]
        uses = [use(lease) for use in (caller.renew, caller.read_lease, caller.release, caller.release)]
        return [answer.status for answer in (*others[1:], *uses)]

    assert within_a_second(use_lease) == [200, 429, 200, 200, 204, 429]


def test_connection_of_refused_address_is_delayed(make: Callable[..., Gateway]) -> None:
    gateway = make({"address": {"requests_per_second": 1, "requests_burst": 1}})
    with SourceApi(gateway.api, "127.0.0.2").connection() as connection:

        def ask_twice() -> tuple[list[int], float]:
            first = connection.call("GET", "/openapi.json").status
            began = time.monotonic()
            return [first, connection.call("GET", "/openapi.json").status], began

        statuses, began = within_a_second(ask_twice)
        late = connection.call("GET", "/healthz")
        assert statuses == [200, 429] and late.status == 200 and time.monotonic() - began > 0.4


def test_connection_of_refused_address_ends_at_stop(make: Callable[..., Gateway]) -> None:
    gateway = make({"address": {"requests_per_second": 1, "requests_burst": 1}}, http={"shutdown_grace_ms": 0})
    with SourceApi(gateway.api, "127.0.0.2").connection() as connection:
        assert within_a_second(lambda: [connection.call("GET", "/openapi.json").status for _ in range(2)]) == [200, 429]
        began = time.monotonic()
        assert gateway.stop() == 0 and time.monotonic() - began < 4, "callers have 5 s"


@pytest.mark.parametrize(
    "sent, status",
    [
        (b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"G@T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 100_000, 431),
        (b"GET /v1/history HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
    ],
    ids=["body", "method", "head", "chunk"],
)
def test_input_that_is_refused_counts_for_address(make: Callable[..., Gateway], sent: bytes, status: int) -> None:
    gateway = make({"address": {"requests_per_second": 1, "requests_burst": 3}})

    def send_five() -> list[Any]:
        answers = []
        for _ in range(5):
            with Wire("127.0.0.1", gateway.api.port) as wire:
                wire.send(sent)
                answers.append(wire.receive())
                assert wire.is_closed()
        return answers

    answers = within_a_second(send_five)
    assert (
        answers[0].status == status
        and answers[-1].status == 429
        and {answer.status for answer in answers} == {status, 429}
    )
    assert [answer.headers["ratelimit-policy"] for answer in answers] == 5 * ['"address";q=3;w=3']
    assert answers[-1].headers["retry-after"] == "1"
    assert gateway.api.get("/healthz").status == 200


def test_request_that_arrives_in_pieces_counts_once(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make({"principal": {"requests_per_second": 1, "requests_burst": 3}})
    body = json.dumps({"resource": resource, "ttl_ms": 1_000}).encode()
    whole = request("POST", "/v1/leases", body, f"X-Api-Key: {KEYS['first']}")
    with Wire("127.0.0.1", gateway.api.port) as wire:
        for end in (len(whole) - 20, len(whole) - 10, len(whole)):
            wire.send(whole[max(0, end - 10) if end > len(whole) - 20 else 0 : end])
            pause(0.05, "the pieces arrive one by one")
        answer = wire.receive()
    assert answer.status == 201 and answer.headers["ratelimit"] == '"principal";r=2;t=1'


# Failed authentications


def test_guessing_keys_is_bounded_for_its_address(make: Callable[..., Gateway]) -> None:
    gateway = make({"address": {"failed_authentications_per_minute": 3}})
    known = SourceApi(gateway.api, "127.0.0.2", KEYS["first"])
    assert known.get("/v1/history", limit=1).status == 200
    guesses = [SourceApi(gateway.api, "127.0.0.2", f"guess {number}").get("/v1/history") for number in range(5)]
    assert [answer.status for answer in guesses] == [401, 401, 401, 429, 429]
    expect_problem(guesses[4], 429, "too-many-requests")
    assert 10 <= int(guesses[4].headers["Retry-After"]) <= 20
    assert (
        SourceApi(gateway.api, "127.0.0.2", KEYS["second"]).get("/v1/history", limit=1).status == 429
    ), "a right key is not checked"
    assert known.get("/v1/history", limit=1).status == 200, "it was valid here before"
    assert (
        SourceApi(gateway.api, "127.0.0.3", KEYS["second"]).get("/v1/history", limit=1).status == 200
    ), "another address"
    assert refusals(gateway, "failed_authentications") == 3


def test_spellings_of_a_key_leave_the_keys_of_others_known(make: Callable[..., Gateway]) -> None:
    gateway = make({"address": {"failed_authentications_per_minute": 3}})
    known = SourceApi(gateway.api, "127.0.0.4", KEYS["first"])
    assert known.get("/v1/history", limit=1).status == 200
    other = SourceApi(gateway.api, "127.0.0.4")
    with other.connection() as connection:
        for spaces in range(1, 300):
            assert (
                connection.call(
                    "GET", "/v1/leases/x", headers={"Authorization": "Bearer" + " " * spaces + KEYS["second"]}
                ).status
                != 401
            )
    assert [
        SourceApi(gateway.api, "127.0.0.4", f"guess {number}").get("/v1/history").status for number in range(4)
    ] == [401, 401, 401, 429]
    assert known.get("/v1/history", limit=1).status == 200, "it was valid here before"
    assert (
        other.get("/v1/history", limit=1, headers={"X-Api-Key": KEYS["second"]}).status == 200
    ), "in another header it is the same"


# What a principal has several of


def test_leases_above_limit_429_until_one_ends(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make({"principal": {"leases_max": 2}})
    first, second = apis(gateway)
    lease, other = first.must_acquire(f"{resource}/1", ttl_ms=20_000, owner="x"), first.must_acquire(
        f"{resource}/2", ttl_ms=20_000
    )
    refused = first.acquire(f"{resource}/3", ttl_ms=20_000)
    expect_problem(refused, 429, "too-many-requests")
    further = first.acquire(f"{resource}/1", ttl_ms=20_000, owner="x")
    assert further.status == 200, "a further hold of a lease"
    assert first.acquire(f"{resource}/2", ttl_ms=20_000).status == 423
    second.must_release(second.must_acquire(f"{resource}/3", ttl_ms=20_000))
    operation = {"update": "nothing", "where": {"id": 1}, "set": {"n": 1}}
    expect_problem(
        first.post("/v1/writes", {"lease": {"resource": f"{resource}/4"}, "operations": [operation]}),
        429,
        "too-many-requests",
    )
    first.must_release(other)
    first.must_acquire(f"{resource}/2", ttl_ms=1_000)
    eventually(
        lambda: first.acquire(f"{resource}/3", ttl_ms=1_000).status == 201,
        interval=0.1,
        goal="the short lease has expired",
    )
    for hold in (lease, further.json()):
        first.release(hold)
    assert first.acquire(f"{resource}/5", ttl_ms=1_000).status == 201
    assert refusals(gateway, "leases") >= 2


def test_any_of_counts_as_one_lease(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make({"principal": {"leases_max": 2}})
    first, _ = apis(gateway)
    body = {"any_of": [f"{resource}/{number}" for number in range(4)], "ttl_ms": 20_000}
    leases = [first.post("/v1/leases", body) for _ in range(2)]
    assert [lease.status for lease in leases] == [201, 201]
    expect_problem(first.post("/v1/leases", body), 429, "too-many-requests")
    first.must_release(leases[0].json())
    assert first.post("/v1/leases", body).status == 201


def test_call_waiting_for_held_lease_counts_when_that_ends(make: Callable[..., Gateway], resource: str) -> None:
    """Otherwise the principal acquires another lease in the moment in which its ttl is over, and has two."""
    gateway = make({"principal": {"leases_max": 1}})
    first, _ = apis(gateway)
    first.must_acquire(f"{resource}/held", ttl_ms=2_000, owner="a")
    waiting = first.begin_wait(f"{resource}/held", ttl_ms=20_000, owner="b")
    while waiting.is_alive():
        expect_problem(first.acquire(f"{resource}/other", ttl_ms=1_000), 429, "too-many-requests")
        pause(0.02, "so that the ttl ends between two calls")
    assert waiting.answer().status == 201
    expect_problem(first.acquire(f"{resource}/other", ttl_ms=1_000), 429, "too-many-requests")


def test_listings_of_one_principal_do_not_starve_another(make: Callable[..., Gateway]) -> None:
    gateway = make()
    first, second = apis(gateway)
    ended = threading.Event()
    statuses: set[int] = set()

    def list_without_pause() -> None:
        while not ended.is_set():
            statuses.add(first.get("/v1/leases", limit=1000).status)

    threads = [threading.Thread(target=list_without_pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        answers = [second.get("/v1/leases", limit=1) for _ in range(50)]
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert [answer.status for answer in answers] == 50 * [200] and max(answer.seconds for answer in answers) < 2
    assert statuses <= {200, 429}


def test_waiters_above_limit_429_for_that_principal(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make({"principals": [{"principal": "first", "waiters_max": 1}]})
    first, second = apis(gateway)
    held = second.must_acquire(resource, ttl_ms=20_000)
    waiting = first.begin_wait(resource, ttl_ms=20_000)
    refused = first.acquire(resource, ttl_ms=1_000, wait_ms=5_000)
    expect_problem(refused, 429, "too-many-waiters")
    other = second.begin_wait(resource, ttl_ms=20_000)
    second.must_release(held)
    expect_all_granted([(first, waiting), (second, other)])
    assert refusals(gateway, "waiters") == 1
    assert first.acquire(f"{resource}/free", ttl_ms=1_000, wait_ms=5_000).status == 201, "it does not wait"


def test_waiters_without_limit_leave_a_quarter_to_others(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make(lease={"waiters_max": 4}, http={"threads": 1})
    first, second = apis(gateway)
    held = second.must_acquire(resource, ttl_ms=20_000)
    waiting = [(first, first.begin_wait(resource, ttl_ms=20_000)) for _ in range(3)]
    expect_problem(first.acquire(resource, ttl_ms=1_000, wait_ms=5_000), 429, "too-many-waiters")
    waiting.append((second, second.begin_wait(resource, ttl_ms=20_000)))
    expect_problem(second.acquire(resource, ttl_ms=1_000, wait_ms=5_000), 429, "too-many-waiters")
    second.must_release(held)
    expect_all_granted(waiting)


def test_streams_above_limit_429_until_one_is_closed(make: Callable[..., Gateway], resource: str) -> None:
    gateway = make({"principal": {"streams_max": 2}})
    first, second = apis(gateway)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(EventStream(first, {"resource": resource, "ttl_ms": 10_000}))
        kept.wait_for_grant()
        followed = stack.enter_context(EventStream(first, None, method="GET", path="/v1/history/stream"))
        eventually(lambda: followed.head, goal="the stream has begun")
        expect_problem(first.get("/v1/history/stream", {"Accept": "text/event-stream"}), 429, "too-many-requests")
        expect_problem(
            first.post("/v1/leases", {"resource": f"{resource}/2"}, {"Accept": "text/event-stream"}),
            429,
            "too-many-requests",
        )
        with EventStream(second, {"resource": f"{resource}/3", "ttl_ms": 10_000}) as other:
            other.wait_for_grant()
        assert refusals(gateway, "streams") == 2
        kept.disconnect()

        def begin_another() -> bool:
            with EventStream(first, {"resource": f"{resource}/4", "ttl_ms": 1_000}) as again:
                eventually(lambda: again.head or again.refused)
                return again.refused is None

        eventually(begin_another, goal="the place of the closed stream is free")


def test_requests_without_answer_leave_connections_to_others(
    make: Callable[..., Gateway], cluster: Cluster, resource: str
) -> None:
    """Eight connections, of which one principal may use six for requests without an answer, five of them to wait;
    the seventh request is refused, and its connection can be used."""
    gateway = make(http={"connections_max": 8}, postgres={"lock_timeout_ms": 20_000, "statement_timeout_ms": 30_000})
    first, second = apis(gateway)
    held = second.must_acquire(resource, ttl_ms=20_000)
    waiting = [(first, first.begin_acquire(resource, ttl_ms=20_000, wait_ms=20_000)) for _ in range(5)]
    second.await_waiters(resource, 5)
    locking = cluster.sql()
    locking.autocommit = False
    with contextlib.closing(locking):
        locking.cursor().execute("lock table fencing.guard in access exclusive mode")
        reading = first.begin("GET", "/v1/resources/locked")
        eventually(
            lambda: cluster.query("select 1 from pg_locks where relation = 'fencing.guard'::regclass and not granted")
        )
        expect_problem(first.get("/v1/leases", limit=1), 429, "too-many-requests")
        assert second.get("/v1/leases", limit=1).status == 200
        assert refusals(gateway, "requests") == 1
        locking.rollback()
    assert reading.answer().status in (200, 404)
    second.must_release(held)
    expect_all_granted(waiting)
    assert first.get("/v1/leases", limit=1).status == 200


@pytest.mark.parametrize(
    "http, waiters_max",
    [({"connections_per_address_max": 20}, 15), ({"connections_max": 20, "connections_per_address_max": 0}, 12)],
    ids=["address", "principal"],
)
def test_waiters_leave_connections_to_renewals_and_releases(
    make: Callable[..., Gateway], resource: str, http: dict[str, int], waiters_max: int
) -> None:
    """More callers than the address may have connections, or the principal requests, wait;
    the holder of another lease is the same principal at the same address."""
    gateway = make(http=http)
    first, second = apis(gateway)
    lease = first.must_acquire(f"{resource}/another", ttl_ms=20_000)
    held = second.must_acquire(resource, ttl_ms=20_000)
    calls = []
    for number in range(25):
        calls.append((first, first.begin_acquire(resource, ttl_ms=20_000, wait_ms=20_000)))
        if number < waiters_max:
            first.await_waiters(resource, number + 1)
    eventually(
        lambda: sum(call.received is not None for _, call in calls) == 25 - waiters_max, goal="the others are refused"
    )
    for _, call in calls[waiters_max:]:
        expect_problem(call.answer(), 429, "too-many-waiters")
    expect_problem(
        first.post("/v1/leases", {"resource": f"{resource}/kept"}, {"Accept": "text/event-stream"}),
        429,
        "too-many-requests",
    )
    expect_problem(first.get("/v1/history/stream", {"Accept": "text/event-stream"}), 429, "too-many-requests")
    renewed = first.renew(lease)
    assert renewed.status == 200, renewed
    assert first.acquire(f"{resource}/free", ttl_ms=1_000, wait_ms=5_000).status == 201, "it does not wait"
    first.must_release(lease)
    second.must_release(held)
    expect_all_granted(calls[:waiters_max])
