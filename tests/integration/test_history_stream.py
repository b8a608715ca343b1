"""GET /v1/history/stream: every committed event once, in the order of ids,
also if transactions commit in another order."""

from __future__ import annotations

import random
import threading
import urllib.parse
from typing import Any, Callable, Iterator

import pytest
from support.api import Api, expect_problem, pointers_of
from support.events import EventStream
from support.polling import eventually, pause
from support.stack import Stack

ADD = "insert into fencing.history (event, resource, fencing_token) values ('lease_granted', %s, %s)"


@pytest.fixture
def listen(api: Api) -> Any:
    """Opens streams, and closes them after the test: `listen(resource=…)`; `last_id` is sent as Last-Event-ID."""
    opened: list[EventStream] = []

    def begin(last_id: object = None, at: Api = api, **filters: object) -> EventStream:
        headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
        path = f"/v1/history/stream?{urllib.parse.urlencode(filters)}"
        opened.append(EventStream(at, None, headers, "GET", path))
        if opened[-1].refused is None:
            eventually(lambda: opened[-1].last_id or opened[-1].ended, 5, interval=0.005, goal="the stream begins")
        return opened[-1]

    yield begin
    for stream in opened:
        stream.disconnect()


@pytest.fixture(scope="module")
def quiet(stack: Stack) -> Iterator[EventStream]:
    """A stream without events, open for most of the module, because the gateway sends it something every 10 s only."""
    with EventStream(stack.api(), None, {}, "GET", "/v1/history/stream?resource=nobody/writes-this") as stream:
        eventually(lambda: stream.last_id, 5, interval=0.005, goal="the stream begins")
        yield stream


@pytest.fixture(scope="module")
def last_row(stack: Stack, quiet: EventStream) -> int:
    """The id of an event of another resource, committed since that stream began."""
    return stack.query(f"{ADD} returning id", ("test/another", 1))[0][0]


def tokens_of(stream: EventStream) -> list[int]:
    return [event.data["fencing_token"] for event in stream.events]


def test_stream_sends_events_of_lease_as_they_commit(
    api: Api, last_row: int, listen: Callable[..., EventStream], resource: str
) -> None:
    stream = listen(resource=resource)
    lease = api.must_acquire(resource, owner="o")
    api.must_release(lease)
    stream.wait_for("lease_released")
    assert stream.names() == ["lease_granted", "lease_released"]
    assert [event.data for event in stream.events] == api.history(
        resource=resource, order="asc"
    ), "the same items as in pages"
    assert [event.id for event in stream.events] == [str(event.data["id"]) for event in stream.events]


def test_stream_filters_select_events(stack: Stack, listen: Callable[..., EventStream], resource: str) -> None:
    stream, rest = listen(resource=resource, event="lease_released", token_min=5), listen(resource_prefix=resource)
    for token in range(10):
        stack.query(
            "insert into fencing.history (event, resource, fencing_token) values ('lease_granted', %s, %s), "
            "('lease_released', %s, %s)",
            (resource, token, resource, token),
        )
    eventually(lambda: len(rest.events) == 20, 5)
    eventually(lambda: tokens_of(stream) == [5, 6, 7, 8, 9], 5)


def test_stream_sends_late_commit_without_loss(
    stack: Stack, api: Api, listen: Callable[..., EventStream], resource: str
) -> None:
    """Ids are assigned before rows are committed: the row of token 1 has the lowest id and is committed last."""
    stream = listen(resource=resource)
    held = stack.sql()
    held.autocommit = False
    held.cursor().execute(ADD, (resource, 1))
    for token in (2, 3, 4):
        stack.query(ADD, (resource, token))
    eventually(lambda: len(api.history(resource=resource)) == 3, goal="the others are there")
    pause(1, "time for an event that must not arrive")
    assert tokens_of(stream) == [], "no later event may be sent before it"
    later_stream = listen(resource=resource)
    held.commit()
    held.close()
    eventually(lambda: len(stream.events) == 4, 5, goal="all have come")
    assert tokens_of(stream) == [1, 2, 3, 4]
    eventually(lambda: tokens_of(later_stream)[:1] == [1], 5, goal="it was committed after that stream had begun")


def test_stream_sends_rest_after_rollback(stack: Stack, listen: Callable[..., EventStream], resource: str) -> None:
    stream = listen(resource=resource)
    held = stack.sql()
    held.autocommit = False
    held.cursor().execute(ADD, (resource, 1))
    stack.query(ADD, (resource, 2))
    held.rollback()
    held.close()
    eventually(lambda: tokens_of(stream) == [2], 5)


def test_stream_resumed_under_load_sends_each_event_once(
    stack: Stack, api: Api, listen: Callable[..., EventStream], resource: str
) -> None:
    """Six writers with transactions of random length; one stream stays open,
    the other is closed and resumed repeatedly."""
    whole = listen(resource_prefix=resource)
    total, writers = 40, 6

    def write(number: int) -> None:
        connection = stack.sql()
        connection.autocommit = False
        rng = random.Random(number)
        for count in range(total):
            with connection.cursor() as cursor:
                cursor.execute(ADD, (f"{resource}/{number}", count))
                pause(rng.choice([0.001, 0.01, 0.3]), "transactions of different lengths")
                cursor.execute(ADD, (f"{resource}/{number}", total + count))
            connection.rollback() if rng.random() < 0.2 else connection.commit()
        connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    position: object = whole.last_id
    for thread in threads:
        thread.start()
    pieces: list[int] = []
    while any(thread.is_alive() for thread in threads) or len(pieces) < 1:
        part = listen(position, resource_prefix=resource)
        pause(random.random() * 0.3, "streams of different lengths")
        part.disconnect()
        pieces += [event.data["id"] for event in part.events]
        position = part.last_id or position
    for thread in threads:
        thread.join()
    (expected,) = zip(
        *stack.query("select id from fencing.history where starts_with(resource, %s) order by id", (resource,))
    )
    eventually(lambda: len(whole.events) >= len(expected), goal="the stream has sent all events")
    assert [event.data["id"] for event in whole.events] == list(expected)
    rest = listen(position, resource_prefix=resource)
    eventually(lambda: len(pieces) + len(rest.events) >= len(expected), 5)
    assert pieces + [event.data["id"] for event in rest.events] == list(expected)


def test_stream_resumed_far_behind_sends_all_since(
    stack: Stack, listen: Callable[..., EventStream], resource: str
) -> None:
    ((first,),) = stack.query(
        "insert into fencing.history (event, resource) values ('lease_granted', %s) returning id", (resource,)
    )
    stack.query(
        "insert into fencing.history (event, resource, fencing_token) select 'lease_renewed', %s, n "
        "from generate_series(1, 3500) as t (n)",
        (resource,),
    )
    stream = listen(first, resource=resource)
    eventually(lambda: len(stream.events) == 3500)
    assert tokens_of(stream) == list(range(1, 3501))


def test_stream_resumed_over_many_rows_without_match(
    stack: Stack, listen: Callable[..., EventStream], resource: str
) -> None:
    """It reads blocks of rows, however far apart their ids are, and sends matches in each of them."""
    rare, others = f"{resource}/rare", f"{resource}/others"
    stack.query(
        "insert into fencing.history (event, resource) select 'write_applied', %s from generate_series(1, 100)",
        (others,),
    )
    ((first,),) = stack.query(
        "insert into fencing.history (event, resource) values ('lease_granted', %s) returning id", (others,)
    )
    for token in (1, 2):
        stack.query(
            "insert into fencing.history (event, resource) select 'write_applied', %s from generate_series(1, 30000)",
            (others,),
        )
        stack.query(ADD, (rare, token))
        stack.query("select setval('fencing.history_id_seq', nextval('fencing.history_id_seq') + (1::bigint << 32))")
    stream = listen(first, resource_prefix=rare)
    eventually(lambda: tokens_of(stream) == [1, 2])
    stack.query(ADD, (rare, 3))
    eventually(lambda: tokens_of(stream) == [1, 2, 3])


def test_stream_without_match_advances_position(quiet: EventStream, last_row: int) -> None:
    eventually(lambda: int(quiet.last_id) >= last_row, 20, goal="a heartbeat with the position")
    assert quiet.events == []


@pytest.mark.parametrize("last_id", ["x", "", "900000000000000000"])
def test_stream_invalid_last_event_id_400(api: Api, last_id: str) -> None:
    assert pointers_of(api.get("/v1/history/stream", {"Last-Event-ID": last_id})) == ["Last-Event-ID"]


def test_stream_with_wrong_query_400_names_each_parameter(api: Api) -> None:
    assert sorted(pointers_of(api.get("/v1/history/stream", limit=5, event="x"))) == ["event", "limit"]


def test_stream_of_another_type_406(api: Api) -> None:
    expect_problem(api.get("/v1/history/stream", {"Accept": "application/json"}), 406, "not-acceptable")


def test_streams_above_limit_429_until_one_disconnects(
    api: Api, quiet: EventStream, listen: Callable[..., EventStream]
) -> None:
    quiet.disconnect()
    streams = [EventStream(api, None, {}, "GET", "/v1/history/stream?resource=nobody/writes-this") for _ in range(100)]
    try:
        eventually(lambda: all(stream.head for stream in streams), 20, goal="all have begun")
        expect_problem(api.get("/v1/history/stream", resource="a/b"), 429, "too-many-requests")
        streams[0].disconnect()
        eventually(lambda: listen(resource="a/b").refused is None, interval=0.3, goal="a stream is accepted again")
    finally:
        for stream in streams:
            stream.disconnect()
