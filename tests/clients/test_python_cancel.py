"""The Python client gives up a request for a lease: a task is cancelled,
or a call interrupted, and no lease is left."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import Any, Iterator

import pytest
from python_clients import clients, fencegate, url_of
from support.api import Api
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import Gate, open_gates


@pytest.fixture
def api(stack: Stack) -> Api:
    return stack.api()


@pytest.fixture
def gate(api: Api) -> Iterator[Gate]:
    """A proxy before the gateway."""
    with open_gates([api.port]) as made:
        yield made.members[0]


def grants(api: Api, resource: str) -> int:
    return len(api.history(resource=resource, event="lease_granted"))


def test_task_cancelled_while_it_acquires_leaves_no_lease(api: Api, gate: Gate) -> None:
    async def is_free(client: Any, resource: str) -> None:
        async with client.lease(resource, wait=20.0):  # less than the ttl of a lease that was left
            pass

    async def cancel_at_any_moment() -> None:
        async with fencegate.AsyncClient(api.url) as client:
            for number in range(40):
                task = asyncio.ensure_future(client.lease(f"python/given-up-{number}", ttl=60.0).__aenter__())
                await asyncio.sleep(0.0005 * number)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await (await task).release()
                await is_free(client, f"python/given-up-{number}")

    async def cancel_after_the_grant() -> None:
        async with fencegate.AsyncClient(url_of(gate)) as client:
            gate.replies.stalled = True
            task = asyncio.ensure_future(client.lease("python/given-up", ttl=60.0).__aenter__())
            await asyncio.to_thread(eventually, lambda: grants(api, "python/given-up") == 1)
            task.cancel()
            await asyncio.wait([task], timeout=5.0)
            assert task.cancelled(), "it does not wait for the gateway"
            gate.replies.stalled = False
        assert api.acquire("python/given-up").status == 201, "closing the client waits for the cancellation"

    asyncio.run(cancel_at_any_moment())
    asyncio.run(cancel_after_the_grant())


def test_interrupted_call_leaves_no_lease(api: Api, gate: Gate) -> None:
    def interrupt(connections: int) -> None:
        eventually(lambda: grants(api, "python/interrupted") == 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        eventually(lambda: gate.accepted > connections, goal="the client cancels its request on another connection")
        gate.replies.stalled = False

    with clients("sync", url_of(gate)) as client:
        gate.replies.stalled = True
        handler = signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # which a process in the background of a shell does not have
        threading.Thread(target=interrupt, args=(gate.accepted + 1,)).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                client.lease("python/interrupted", ttl=60.0)
        finally:
            signal.signal(signal.SIGINT, handler)
        assert api.acquire("python/interrupted").status == 201
