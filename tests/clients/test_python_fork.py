"""The Python client in forked processes, which share the connections of their parent,
and in tasks that are cancelled while they release a lease."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any, Callable

import anyio
import pytest
from python_clients import Reply, answering, fencegate, problem
from support.polling import eventually

LEASE = {"lease_id": "L", "resource": "a", "fencing_token": 7, "ttl_ms": 60_000, "served_ms": 0, "validity_ms": 60_000}
PROCESSES, CALLS = 4, 20


# Forked processes


def in_child(work: Callable[[], bool]) -> int:
    """Performs the work in a forked process, which ends with status 0 if it returns true. Returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        status = 0 if work() else 1
    finally:
        os._exit(status)


def call_sync(client: Any, name: str) -> bool:
    return all(client.get(f"/{name}/{number}") == [f"/{name}/{number}"] for number in range(CALLS))


def call_async(client: Any, name: str) -> bool:
    async def call() -> bool:
        return all([await client.get(f"/{name}/{number}") == [f"/{name}/{number}"] for number in range(CALLS)])

    return asyncio.run(call())


@pytest.mark.parametrize(
    "kind, call", [(fencegate.Client, call_sync), (fencegate.AsyncClient, call_async)], ids=["sync", "async"]
)
def test_forked_processes_have_connections_of_their_own(kind: Any, call: Callable[[Any, str], bool]) -> None:
    """A client that the parent has used, as one of a module that is loaded before workers are forked.
    Each answer names the path of its request."""
    ports: dict[str, set[int]] = {}

    def on_request(_: str, path: str, port: int) -> Reply:
        ports.setdefault(path.split("/")[1], set()).add(port)
        time.sleep(0.002)  # so that the requests of several processes are under way together
        return Reply(200, [path])

    with answering(on_request) as (url, _):
        client = kind(url, request_timeout=5, retry_for=0)
        assert call(client, "parent")
        children = [in_child(lambda: call(client, f"child-{number}")) for number in range(PROCESSES)]
        own = call(client, "parent") if kind is fencegate.Client else True  # the other client is used in one event loop
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * PROCESSES and own
    assert len(set().union(*ports.values())) == sum(len(each) for each in ports.values()) == PROCESSES + 1, ports


def test_client_closed_in_forked_process_stays_open_in_parent() -> None:
    ports: set[int] = set()

    def on_request(_: str, path: str, port: int) -> Reply:
        ports.add(port)
        return Reply(200, [path])

    with answering(on_request) as (url, _), fencegate.Client(url, request_timeout=5, retry_for=0) as client:
        closed: list[int] = []
        client._http.close = lambda: closed.append(os.getpid())  # type: ignore[method-assign]

        def close() -> bool:
            client.close()
            return not closed

        client.get("/before")
        assert os.waitstatus_to_exitcode(os.waitpid(in_child(close), 0)[1]) == 0
        client.get("/after")
        assert len(ports) == 1


# Cancelled tasks


def test_release_goes_on_after_a_second_cancellation() -> None:
    """The second one comes while the release pauses before its second attempt."""
    refused = threading.Event()

    def on_request(method: str, *_: Any) -> Reply:
        if method == "POST":
            return Reply(201, LEASE)
        if refused.is_set():
            return Reply(204)
        refused.set()
        return Reply(503, problem("overloaded", 503), {"Retry-After": "1"})

    async def run(url: str) -> None:
        held = asyncio.Event()

        async def work(client: Any) -> None:
            async with client.lease("a"):
                held.set()
                await asyncio.Event().wait()

        async with fencegate.AsyncClient(url) as client:
            task = asyncio.create_task(work(client))
            await held.wait()
            task.cancel()
            await asyncio.to_thread(eventually, refused.is_set)
            for _ in range(3):
                task.cancel()
                await asyncio.wait([task], timeout=0.05)
            assert task.cancelled()

    with answering(on_request) as (url, requests):
        asyncio.run(run(url))
        assert [method for method, _ in requests] == ["POST", "DELETE", "DELETE"]


@pytest.mark.parametrize("status", [204, 403])
def test_cancel_scope_releases_or_logs_a_warning(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """A cancel scope of anyio, as of Starlette, cancels each await until its end."""

    async def run(url: str) -> None:
        client = fencegate.AsyncClient(url)
        with anyio.CancelScope() as scope:
            async with client.lease("a"):
                scope.cancel()
                await anyio.sleep(10)
        await client.close()

    with answering(
        lambda method, *_: Reply(201, LEASE)
        if method == "POST"
        else Reply(status, problem("forbidden", 403) if status == 403 else None)
    ) as (url, requests):
        asyncio.run(run(url))
        assert [method for method, _ in requests] == ["POST", "DELETE"]
    assert ("was not released" in caplog.text) == (status == 403)


def test_second_release_waits_for_the_first() -> None:
    """A cancelled block releases once more at its end."""
    asked, answer = threading.Event(), threading.Event()

    def on_request(method: str, *_: Any) -> Reply:
        if method == "POST":
            return Reply(201, LEASE)
        asked.set()
        assert answer.wait(10)
        return Reply(204)

    async def run(url: str) -> None:
        async with fencegate.AsyncClient(url) as client:
            lease = await client.lease("a", seal=True)
            first = asyncio.create_task(lease.release())
            await asyncio.to_thread(asked.wait, 10)
            first.cancel()
            second = asyncio.create_task(lease.release())
            await asyncio.wait([first, second], timeout=0.2)
            assert first.cancelled() and not second.done()
            answer.set()
            await second

    with answering(on_request) as (url, requests):
        asyncio.run(run(url))
        assert [method for method, _ in requests] == ["POST", "DELETE"]


def test_close_waits_for_a_release_no_longer_than_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def run(url: str) -> float:
        client = fencegate.AsyncClient(url, request_timeout=0.3)
        lease = await client.lease("a")
        release = asyncio.create_task(lease.release())
        await asyncio.sleep(0.05)
        release.cancel()
        began = time.monotonic()
        await client.close()
        return time.monotonic() - began

    unavailable = Reply(503, problem("overloaded", 503), {"Retry-After": "1"})
    with answering(lambda method, *_: Reply(201, LEASE) if method == "POST" else unavailable) as (url, _):
        assert asyncio.run(run(url)) < 5, "the release is repeated for the rest of the lease, a minute"
    assert "was not released" in caplog.text


def test_close_in_a_cancel_scope_ends_after_the_release() -> None:
    async def run(url: str) -> None:
        with anyio.CancelScope() as scope:
            async with fencegate.AsyncClient(url) as client, client.lease("a"):
                scope.cancel()
                await anyio.sleep(10)
        await asyncio.to_thread(eventually, lambda: not client._tasks)

    with answering(lambda method, *_: Reply(201, LEASE) if method == "POST" else Reply(204)) as (url, requests):
        asyncio.run(run(url))
        assert [method for method, _ in requests] == ["POST", "DELETE"]


def test_release_that_ends_with_the_loop_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio.run cancels all tasks at its end; nothing waits for the client to be closed."""

    async def run(url: str) -> None:
        with anyio.CancelScope() as scope:
            async with fencegate.AsyncClient(url).lease("a"):
                scope.cancel()
                await anyio.sleep(10)

    with answering(lambda *_: Reply(201, LEASE)) as (url, _):
        asyncio.run(run(url))
    assert "was not released, and ends with its ttl" in caplog.text
