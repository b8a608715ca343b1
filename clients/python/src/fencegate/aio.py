"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    Union,
)

import httpx

from ._lease import LeaseHandle, LeaseState, call_listener, log, now
from ._protocol import Call, Json, NoAnswer, Protocol, Request, Response, Result, check_every
from ._streams import LEASE_LOST, HistoryStream, Watch
from ._transport import FAILURES, LIMITS, Credential, Transport
from .errors import LeaseLost, ResourceLocked
from .models import Event, FollowFilters, HistoryFilters, WriteResult, history_filters

if TYPE_CHECKING:
    from typing_extensions import Unpack  # type checkers have it


class AsyncClient:
    """The calls of `Client` as coroutines, with the same arguments and errors. It is used in one event loop."""

    def __init__(
        self,
        url: Union[str, Sequence[str]],
        *,
        credential: Optional[Credential] = None,
        cert: Optional[str] = None,
        key: Optional[str] = None,
        ca: Optional[str] = None,
        cell: Optional[int] = None,
        request_timeout: float = 10.0,
        retry_for: float = 30.0,
    ) -> None:
        self._transport = Transport(url, credential, cert, key, ca, cell)
        self._protocol = Protocol(request_timeout, retry_for, self._transport.gateways)
        self._inherited: List[httpx.AsyncHTTPTransport] = []
        self._open_http()

    def _open_http(self) -> None:
        self._http = httpx.AsyncHTTPTransport(verify=self._transport.context, limits=LIMITS)
        self._process_id = os.getpid()
        self._tasks: Set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Closes the connections when the releases and cancellations that have begun are over,
        at the latest after `request_timeout`; a forked process closes its own alone.
        Leases that were not released are no longer renewed."""
        if self._process_id != os.getpid():
            self._transport.closed = True
            return
        await asyncio.shield(self._start(self._close(set(self._tasks))))

    async def _close(self, tasks: Set[asyncio.Task[None]]) -> None:
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._protocol.timeout)
            for task in late:
                task.cancel()
        self._transport.closed = True
        await self._http.aclose()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that a cancellation of its caller does not end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the event loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)
        return task

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def lease(
        self,
        *resources: str,
        wait: float = 0.0,
        ttl: Optional[float] = None,
        owner: Optional[str] = None,
        fence_on_grant: bool = False,
        seal: bool = False,
        any_of: Sequence[str] = (),
        mode: str = "exclusive",
        shared: Sequence[str] = (),
    ) -> Acquisition:
        """As `Client.lease`: `async with client.lease("jobs/nightly") as lease`,
        or `lease = await client.lease("jobs/nightly")`."""
        call = self._protocol.acquire(resources, wait, ttl, owner, fence_on_grant, any_of, mode, shared, seal)
        return Acquisition(self, call, seal)

    def adopt(self, lease_id: str, *, ttl: Optional[float] = None, seal: bool = False) -> Acquisition:
        """As `Client.adopt`; awaited, or entered by `async with`, as `lease`."""
        return Acquisition(self, self._protocol.adopt(lease_id, ttl), seal)

    async def run_once_per_tick(
        self,
        resource: str,
        every: float,
        work: Callable[[AsyncLease], Awaitable[object]],
        *,
        wait: float = 0.0,
        ttl: Optional[float] = None,
        seal: bool = False,
    ) -> bool:
        """As `Client.run_once_per_tick`; awaits what `work` returns."""
        check_every(every)
        try:
            lease = await self.lease(resource, wait=wait, ttl=ttl, fence_on_grant=True, seal=seal)
        except ResourceLocked:
            return False
        async with lease:
            if not await self._run(self._protocol.begin_tick(lease._state, every)):
                return False
            lease.check()
            await work(lease)
        return True

    async def one_shot_write(
        self,
        *operations: Json,
        resources: Sequence[str],
        wait: float = 0.0,
        ttl: Optional[float] = None,
        owner: Optional[str] = None,
        return_rows: bool = False,
        idempotency_key: Optional[str] = None,
        keep_outcome: bool = True,
    ) -> WriteResult:
        """As `Client.one_shot_write`."""
        return await self._run(
            self._protocol.one_shot_write(
                operations, resources, wait, ttl, owner, return_rows, idempotency_key, keep_outcome
            )
        )

    async def get(self, path: str, *, lease: Optional[LeaseHandle] = None, **query: Any) -> Any:
        """As `Client.get`."""
        return await self._run(self._protocol.get(path, query, lease))

    async def history(self, *, newest_first: bool = True, **filters: Unpack[HistoryFilters]) -> AsyncIterator[Event]:
        """As `Client.history`, for `async for`."""
        parameters = {**history_filters(filters, HistoryFilters), "order": "desc" if newest_first else "asc"}
        cursor: Optional[str] = None
        while True:
            events, cursor = await self._run(self._protocol.history_page(parameters, cursor))
            for item in events:
                yield item
            if cursor is None:
                return

    async def follow(
        self, *, after_id: Union[int, str, None] = None, **filters: Unpack[FollowFilters]
    ) -> AsyncIterator[Event]:
        """As `Client.follow`, for `async for`."""
        stream = HistoryStream(history_filters(filters, FollowFilters), after_id, self._transport.gateways)
        while True:
            events = self._follow(stream)
            try:
                async for item in events:
                    yield item
            finally:
                await events.aclose()
            await asyncio.sleep(stream.pause())

    async def _follow(self, stream: HistoryStream) -> AsyncGenerator[Event, None]:
        """As `Client._follow`."""
        http = httpx.AsyncHTTPTransport(verify=self._transport.context)
        try:
            sent = self._transport.begin(stream.request())
            try:
                answer = await http.handle_async_request(sent)
                try:
                    if answer.status_code != 200:
                        await answer.aread()
                        stream.refuse(self._transport.end(sent, answer))
                        return
                    assert isinstance(answer.stream, httpx.AsyncByteStream)
                    async for piece in answer.stream:
                        for item in stream.read(piece):
                            yield item
                finally:
                    await answer.aclose()
            except FAILURES as error:
                self._transport.fail(sent, error)
        except NoAnswer as failure:
            stream.fail(failure)
        finally:
            await http.aclose()

    def _begin(self, lease: AsyncLease) -> None:
        lease._start_tasks()

    async def _run(self, call: Call[Result]) -> Result:
        """Performs the steps of a call, and returns its result."""
        latest: Optional[Request] = None
        try:
            step = next(call)
            while True:
                latest = step if isinstance(step, Request) else latest
                try:
                    result: Optional[Response] = None
                    if isinstance(step, Request):
                        result = await self._send(step)
                    else:
                        await asyncio.sleep(step.seconds)
                except Exception as failure:
                    step = call.throw(failure)
                else:
                    step = call.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if latest and latest.cancelled_by:
                self._start(self._run(self._protocol.cancel(latest.cancelled_by)))
            raise

    async def _send(self, request: Request) -> Response:
        if self._process_id != os.getpid():  # as in Client
            self._inherited.append(self._http)
            self._open_http()
        is_connecting = False

        async def observe(event: str, _: Any) -> None:
            nonlocal is_connecting
            is_connecting = event.startswith("connection.")

        async def exchange() -> httpx.Response:
            answer = await self._http.handle_async_request(sent)
            try:
                await answer.aread()
            finally:
                await answer.aclose()
            return answer

        sent = self._transport.begin(request, observe)
        # Not asyncio.wait_for, which before Python 3.12 can lose a cancellation of the caller
        # that comes with the answer.
        answered = asyncio.ensure_future(exchange())
        # So that asyncio does not report a failure for which nobody waits any more.
        answered.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            if not (await asyncio.wait([answered], timeout=request.timeout))[0]:
                raise asyncio.TimeoutError
            return self._transport.end(sent, answered.result())
        except FAILURES as error:
            self._transport.fail(
                sent, httpx.ConnectTimeout("") if is_connecting and isinstance(error, asyncio.TimeoutError) else error
            )
        finally:
            answered.cancel()

    async def _watch(self, watch: Watch) -> Tuple[Optional[int], bool]:
        """Follows a lease by one stream, on a connection of its own. Returns the status of the answer,
        and whether the lease has ended."""
        sent = self._transport.begin(watch.request)
        http = httpx.AsyncHTTPTransport(verify=self._transport.context)
        try:
            answer = await http.handle_async_request(sent)
            try:
                assert isinstance(answer.stream, httpx.AsyncByteStream)
                if answer.status_code != 200:
                    return answer.status_code, answer.status_code == LEASE_LOST
                async for piece in answer.stream:
                    if watch.has_ended(piece):
                        return 200, True
                    if self._transport.closed:
                        break
                return 200, False
            finally:
                await answer.aclose()
        except FAILURES as error:
            self._transport.fail(sent, error)
        finally:
            await http.aclose()


class Acquisition:
    """A lease that is acquired when this is awaited, or entered by `async with`."""

    def __init__(self, client: AsyncClient, call: Call[LeaseState], seal: bool) -> None:
        self._client, self._call, self._seal = client, call, seal
        self._lease: Optional[AsyncLease] = None

    async def _acquire(self) -> AsyncLease:
        return AsyncLease(self._client, await self._client._run(self._call), self._seal)

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self._acquire().__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(kind, error, trace)


class AsyncLease(LeaseHandle):
    """A lease that a task renews, and another one watches. `lost` is set when it is lost."""

    def __init__(self, client: AsyncClient, state: LeaseState, seal: bool) -> None:
        super().__init__(state)
        self._client, self._seal = client, seal
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.lost = asyncio.Event()
        self.on_loss(lambda _: self.lost.set())
        self._releasing: Optional[asyncio.Task[None]] = None
        self._keeper: Optional[asyncio.Task[None]] = None
        self._watcher: Optional[asyncio.Task[None]] = None
        client._begin(self)

    def _start_tasks(self) -> None:
        self._keeper = self._loop.create_task(self._client._run(self._client._protocol.keep(self._state)))
        self._watcher = self._loop.create_task(self._watch())

    def on_loss(self, callback: Callable[[LeaseLost], None]) -> None:
        """As `Lease.on_loss`; the callback runs in the event loop, also if another thread notices the loss."""

        def notify(reason: LeaseLost) -> None:
            if threading.get_ident() == self._thread:
                callback(reason)
            else:
                self._loop.call_soon_threadsafe(call_listener, callback, reason)

        self._state.listen(notify)

    async def write(
        self,
        *operations: Json,
        return_rows: bool = False,
        require_live: bool = False,
        idempotency_key: Optional[str] = None,
        keep_outcome: bool = True,
        then_release: bool = False,
    ) -> WriteResult:
        """As `Lease.write`."""
        result = await self._client._run(
            self._client._protocol.write_under(
                self._state, operations, return_rows, require_live, idempotency_key, keep_outcome, then_release
            )
        )
        if then_release:
            self._is_sealing = not result.unsealed
            self._stop()
        return result

    def _stop(self) -> None:
        """Ends the renewals and the watch."""
        for task in (self._keeper, self._watcher):
            if task:
                task.cancel()

    async def release(self, seal: Optional[bool] = None) -> None:
        """As `Lease.release`. If the caller is cancelled, the release goes on: `AsyncClient.close` waits for its end,
        and a failure is a warning in the log."""
        self._stop()
        seal = self._seal if seal is None else seal
        if self._releasing:  # by an earlier call, whose outcome is also that of this one
            await asyncio.wait([self._releasing])
        if self._begin_release(seal):
            self._releasing = self._client._start(self._release(seal))
            try:
                await asyncio.shield(self._releasing)
            except asyncio.CancelledError:
                self._releasing.add_done_callback(self._log_outcome)
                raise

    async def _watch(self) -> None:
        """Lets the lease be renewed at once when a gateway says that it has ended: the answer to that is the proof."""
        watch = Watch(self._state)
        again = True
        while again and not self._state.is_over:
            status = None
            try:
                status, ended = await self._client._watch(watch)
                if ended and self._keeper:
                    self._keeper.cancel()
                    self._state.renew_at = now()
                    self._keeper = self._loop.create_task(self._client._run(self._client._protocol.keep(self._state)))
                    return
            except NoAnswer as failure:
                if failure.final:
                    return
            except Exception:  # of the function that returns the credential
                log.debug("the lease on %s is not watched", self._state.names, exc_info=True)
            again, seconds = watch.begin_again(status)
            await asyncio.sleep(seconds if again else 0)

    async def _release(self, seal: bool) -> None:
        with self._recorded_outcome():
            await self._client._run(self._client._protocol.release(self._state, seal))

    def _log_outcome(self, release: asyncio.Task[None]) -> None:
        failure = asyncio.CancelledError("the release was cancelled") if release.cancelled() else release.exception()
        if failure:
            self._log_release_failure(failure)

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Releases the lease, except in a forked process; raises LeaseLost if it was lost during the block,
        unless the block itself raised."""
        if self._is_forked():
            return
        seal = self._seals_at_end(self._seal)
        try:
            await self.release(seal)
        except Exception as failure:  # also that of the function that returns the credential
            if self._has_to_raise(failure, error, seal):
                raise
