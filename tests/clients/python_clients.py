"""What the tests of the Python client share: both clients behind one synchronous interface, and the gateways that they call."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from typing import Any, Coroutine, Iterator

from support import processes

ROOT = processes.repository()
PACKAGE = ROOT / "clients/python"
sys.path.insert(0, str(PACKAGE / "src"))

import fencegate  # noqa: E402
from fencegate import errors  # noqa: E402

__all__ = ["PACKAGE", "ROOT", "AsyncFacade", "clients", "errors", "fencegate"]


class LeaseFacade:
    """An AsyncLease whose coroutines are run in the event loop of the client."""

    def __init__(self, client: "AsyncFacade", acquisition: Any) -> None:
        self._client = client
        self.lease = client.run(acquisition.__aenter__())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lease, name)

    def write(self, *operations: Any, **options: Any) -> Any:
        return self._client.run(self.lease.write(*operations, **options))

    def release(self, **options: Any) -> None:
        self._client.run(self.lease.release(**options))

    def __enter__(self) -> "LeaseFacade":
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.run(self.lease.__aexit__(*error))


class AsyncFacade:
    """An AsyncClient with the interface of Client; its event loop has a thread of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = fencegate.AsyncClient(*arguments, **options)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def lease(self, *resources: str, **options: Any) -> LeaseFacade:
        async def begin() -> Any:
            return self.client.lease(*resources, **options)

        return LeaseFacade(self, self.run(begin()))

    def write(self, *operations: Any, **options: Any) -> Any:
        return self.run(self.client.write(*operations, **options))

    def get(self, path: str, **options: Any) -> Any:
        return self.run(self.client.get(path, **options))

    def history(self, **filters: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [event async for event in self.client.history(**filters)]

        return self.run(collect())

    def close(self) -> None:
        self.run(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


@contextmanager
def clients(kind: str, *arguments: Any, **options: Any) -> Iterator[Any]:
    """Opens a Client or an AsyncClient while the block lasts."""
    client = fencegate.Client(*arguments, **options) if kind == "sync" else AsyncFacade(*arguments, **options)
    try:
        yield client
    finally:
        client.close()
