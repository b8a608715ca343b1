"""The client for programs with threads."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Sequence, Tuple, Type, Union

import httpx

from ._lease import LeaseHandle, LeaseState, log, now
from ._protocol import Call, Json, NoAnswer, Protocol, Request, Response, Result, check_every
from ._streams import LEASE_LOST, HistoryStream, Watch
from ._transport import FAILURES, LIMITS, Credential, Transport
from .errors import ResourceLocked
from .models import Event, FollowFilters, HistoryFilters, WriteResult, history_filters

if TYPE_CHECKING:
    from typing_extensions import Unpack  # type checkers have it


class Client:
    """Calls to one or several gateways of one cluster. Its methods may be called in any thread,
    and in a forked process, which has connections of its own.

    url: http://HOST[:PORT] or https://HOST[:PORT]; of several the next one is used after a failure.
    credential: an API key or a JSON Web Token, or a function that returns the current one.
    Calls raise what the function raises; a write that may have taken effect raises OutcomeUnknown from it.
    cert, key, ca: files in PEM form: the client's certificate and its key,
    and the authorities of the gateway's certificate in place of the system's.
    cell: the cell for which all requests are, 0 to 65535 (the header Fencing-Cell).
    A gateway of another cell refuses them (MisdirectedRequest);
    a proxy before several cells needs it for what names no resource, such as the look-up of a write_id.
    request_timeout: the seconds that one request may take, beyond its wait for a lease.
    retry_for: for how many seconds, beyond its wait for a lease, a call is repeated while its failures are temporary.
    """

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
        self._inherited: List[httpx.HTTPTransport] = []
        self._open_http()

    def _open_http(self) -> None:
        self._http = httpx.HTTPTransport(verify=self._transport.context, limits=LIMITS)
        self._process_id = os.getpid()

    def close(self) -> None:
        """Closes the connections; a forked process closes its own alone.
        Leases that were not released are no longer renewed."""
        self._transport.closed = True
        if self._process_id == os.getpid():
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    ) -> Lease:
        """Acquires a lease on one or several resources, and renews it in the background until it is released:
        `with client.lease("jobs/nightly") as lease`.

        wait: for how many seconds to wait for the resources; math.inf: without limit. ttl: in seconds;
        else the gateway's default.
        owner: leases of the same principal and owner on the same resources share one token;
        without an owner a lease is exclusive.
        fence_on_grant: every older token is refused from the grant on. seal: the release also seals the token,
        so that nothing can be written under it afterwards.
        any_of: in place of resources; the lease is on the first of them that is free, which `resources` says.
        mode: "shared": any number of leases have the resources together, to read, while none has them as exclusive.
        shared: resources that the lease shares so, beside its exclusive ones.
        Errors: ResourceLocked if another holds a resource after `wait`; other ProblemErrors; ConnectionFailed.
        """
        call = self._protocol.acquire(resources, wait, ttl, owner, fence_on_grant, any_of, mode, shared, seal)
        return Lease(self, self._run(call), seal)

    def adopt(self, lease_id: str, *, ttl: Optional[float] = None, seal: bool = False) -> Lease:
        """Goes on with a lease that another process has acquired: renews it at once, and until it is released.

        lease_id: of the other process, which no longer uses its lease, and does not release it. ttl, seal: as for
        `lease`. Errors: LeaseLost if the lease is over; other ProblemErrors; ConnectionFailed.
        """
        return Lease(self, self._run(self._protocol.adopt(lease_id, ttl)), seal)

    def run_once_per_tick(
        self,
        resource: str,
        every: float,
        work: Callable[[Lease], object],
        *,
        wait: float = 0.0,
        ttl: Optional[float] = None,
        seal: bool = False,
    ) -> bool:
        """Runs `work` under a lease on the resource, once in each tick of a schedule over all machines, as
        `fencegate lock --every` does. Returns whether it was run here: not while another caller holds the resource,
        or if a start less than half of `every` ago is recorded. A recorded start counts, also if `work` then fails.

        every: the period of the schedule in seconds, at least 1. wait, ttl, seal: as for `lease`.
        Errors: those of `lease` and of the history, after which nothing was run; LeaseLost; what `work` raises.
        """
        check_every(every)
        try:
            lease = self.lease(resource, wait=wait, ttl=ttl, fence_on_grant=True, seal=seal)
        except ResourceLocked:
            return False
        with lease:
            if not self._run(self._protocol.begin_tick(lease._state, every)):
                return False
            lease.check()
            work(lease)
        return True

    def one_shot_write(
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
        """A one-shot write: acquires a lease, writes in one transaction, seals the token and releases, in one call.

        operations: objects with `update`, `insert`, `delete` or `call` as in the HTTP contract.
        wait: at most the gateway's lease.max_wait_ms. return_rows: return the rows.
        idempotency_key: one is made if none is given; it is kept over retries, so that the write takes effect once.
        With keep_outcome=False there is none: the call is repeated only if it cannot have taken effect.
        Errors: ProblemErrors; OutcomeUnknown; ConnectionFailed if nothing was changed.
        """
        return self._run(
            self._protocol.one_shot_write(
                operations, resources, wait, ttl, owner, return_rows, idempotency_key, keep_outcome
            )
        )

    def get(self, path: str, *, lease: Optional[LeaseHandle] = None, **query: Any) -> Any:
        """Reads a table, a function, a resource or the nodes: `client.get("/v1/tables/inventory", sku="eq.sku-1")`.
        With a lease it is a fenced read."""
        return self._run(self._protocol.get(path, query, lease))

    def history(self, *, newest_first: bool = True, **filters: Unpack[HistoryFilters]) -> Iterator[Event]:
        """Yields the events of the history to which all given filters apply, page by page."""
        parameters = {**history_filters(filters, HistoryFilters), "order": "desc" if newest_first else "asc"}
        cursor: Optional[str] = None
        while True:
            events, cursor = self._run(self._protocol.history_page(parameters, cursor))
            yield from events
            if cursor is None:
                return

    def follow(self, *, after_id: Union[int, str, None] = None, **filters: Unpack[FollowFilters]) -> Iterator[Event]:
        """Yields the new events of the history to which all given filters apply, each once and in the order of id,
        also across broken connections and at another gateway; it has no end.

        after_id: begins after the event with this id; 0: with the oldest one; without it: with the next new one.
        In a cell other than 0 it is "CELL~ID".
        Errors: the ProblemError of a gateway that refuses; ConnectionFailed if no certificate is trusted.
        """
        stream = HistoryStream(history_filters(filters, FollowFilters), after_id, self._transport.gateways)
        while True:
            yield from self._follow(stream)
            time.sleep(stream.pause())

    def _follow(self, stream: HistoryStream) -> Iterator[Event]:
        """Yields the events of one stream, on a connection of its own, until it breaks."""
        http = httpx.HTTPTransport(verify=self._transport.context)
        try:
            sent = self._transport.begin(stream.request())
            try:
                with closing(http.handle_request(sent)) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        stream.refuse(self._transport.end(sent, answer))
                        return
                    assert isinstance(answer.stream, httpx.SyncByteStream)
                    for piece in answer.stream:
                        yield from stream.read(piece)
            except FAILURES as error:
                self._transport.fail(sent, error)
        except NoAnswer as failure:
            stream.fail(failure)
        finally:
            http.close()

    def _begin(self, lease: Lease) -> None:
        lease._start_threads()

    def _run(
        self,
        call: Call[Result],
        pause: Callable[[float], object] = time.sleep,
        send: Optional[Callable[[Request], Response]] = None,
    ) -> Result:
        """Performs the steps of a call, and returns its result."""
        send = send or self._send
        latest: Optional[Request] = None
        try:
            step = next(call)
            while True:
                latest = step if isinstance(step, Request) else latest
                try:
                    result = send(step) if isinstance(step, Request) else pause(step.seconds)
                except Exception as failure:
                    step = call.throw(failure)
                else:
                    step = call.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except Exception:
            raise
        except BaseException:  # such as KeyboardInterrupt
            if latest and latest.cancelled_by:
                self._run(self._protocol.cancel(latest.cancelled_by))
            raise

    def _send(self, request: Request) -> Response:
        if self._process_id != os.getpid():
            # On the connections that a forked process shares with its parent it would read answers to its parent. They
            # are not closed either: a TLS connection would tell the gateway its end.
            self._inherited.append(self._http)
            self._open_http()
        sent = self._transport.begin(request)
        until = now() + request.timeout
        try:
            answer = self._http.handle_request(sent)
            with closing(answer):
                assert isinstance(answer.stream, httpx.SyncByteStream)
                answer.stream = TimedStream(answer.stream, until)
                answer.read()
        except FAILURES as error:
            self._transport.fail(sent, error)
        return self._transport.end(sent, answer)

    def _watch(self, watch: Watch, is_wanted: Callable[[], bool]) -> Tuple[Optional[int], bool]:
        """Follows a lease by one stream, on a connection of its own, while `is_wanted`.
        Returns the status of the answer, and whether the lease has ended."""
        sent = self._transport.begin(watch.request)
        http = httpx.HTTPTransport(verify=self._transport.context)
        try:
            answer = http.handle_request(sent)
            with closing(answer):
                assert isinstance(answer.stream, httpx.SyncByteStream)
                if answer.status_code != 200:
                    return answer.status_code, answer.status_code == LEASE_LOST
                for piece in answer.stream:
                    if watch.has_ended(piece):
                        return 200, True
                    if self._transport.closed or not is_wanted():
                        break
                return 200, False
        except FAILURES as error:
            self._transport.fail(sent, error)
        finally:
            http.close()


class TimedStream(httpx.SyncByteStream):
    """A body that has to arrive until a point in time. The time-outs of httpx are those of single reads:
    they do not limit a body that arrives byte by byte, nor such a header."""

    def __init__(self, stream: httpx.SyncByteStream, until: float) -> None:
        self._stream, self._until = stream, until

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            if now() > self._until:
                raise httpx.ReadTimeout("the answer takes too long")
            yield part

    def close(self) -> None:
        self._stream.close()


class Stopped(BaseException):
    """Ends the thread of a lease that was released."""


class Lease(LeaseHandle):
    """A lease that a thread renews, and another one watches. `lost` is set when it is lost."""

    def __init__(self, client: Client, state: LeaseState, seal: bool) -> None:
        super().__init__(state)
        self._client, self._seal = client, seal
        self.lost = threading.Event()
        self._stopped = False
        self._wake = threading.Event()  # ends a pause of the renewals
        state.listen(lambda _: self.lost.set())
        client._begin(self)

    def _start_threads(self) -> None:
        threading.Thread(target=self._keep, name="fencegate lease", daemon=True).start()
        threading.Thread(target=self._watch, name="fencegate watch", daemon=True).start()

    def write(
        self,
        *operations: Json,
        return_rows: bool = False,
        require_live: bool = False,
        idempotency_key: Optional[str] = None,
        keep_outcome: bool = True,
        then_release: bool = False,
    ) -> WriteResult:
        """Writes under this lease, in one transaction; the arguments are those of `Client.one_shot_write`.
        require_live: the gateway asks the nodes first whether the lease is live.
        then_release: seals the token in the same transaction and then releases the lease. If other holds of the same
        owner remain, only this hold is released, and nothing is sealed. Until the result is known no loss is reported.
        """
        result = self._client._run(
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
        self._stopped = True
        self._wake.set()

    def release(self, seal: Optional[bool] = None) -> None:
        """Ends the lease. A further call has the outcome of the first one,
        and raises if it should seal the token and the first one did not.

        Errors: LeaseLost if the lease was lost before; those of the call.
        """
        self._stop()
        seal = self._seal if seal is None else seal
        if self._begin_release(seal):
            with self._recorded_outcome():
                self._client._run(self._client._protocol.release(self._state, seal))

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Releases the lease, except in a forked process; raises LeaseLost if it was lost during the block,
        unless the block itself raised."""
        if self._is_forked():
            return
        seal = self._seals_at_end(self._seal)
        try:
            self.release(seal)
        except Exception as failure:  # also that of the function that returns the credential
            if self._has_to_raise(failure, error, seal):
                raise

    def _keep(self) -> None:
        try:
            self._client._run(self._client._protocol.keep(self._state), self._pause, self._send)
        except Stopped:
            pass

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        if self._stopped:
            raise Stopped
        self._wake.clear()

    def _watch(self) -> None:
        """Lets the lease be renewed at once when a gateway says that it has ended: the answer to that is the proof."""
        watch = Watch(self._state)
        again = True
        while again and self._is_held():
            status = None
            try:
                status, ended = self._client._watch(watch, self._is_held)
                if ended:
                    self._wake.set()
                    return
            except NoAnswer as failure:
                if failure.final:
                    return
            except Exception:  # of the function that returns the credential
                log.debug("the lease on %s is not watched", self._state.names, exc_info=True)
            again, seconds = watch.begin_again(status)
            time.sleep(seconds if again else 0)

    def _is_held(self) -> bool:
        return not (self._stopped or self._state.is_over)

    def _send(self, request: Request) -> Response:
        """Sends a renewal. The time-outs of httpx are those of single steps,
        so a timer observes the end of the validity."""
        watch = threading.Timer(self.remaining(), self._state.lose_if_over)
        watch.daemon = True
        watch.start()
        try:
            return self._client._send(request)
        finally:
            watch.cancel()
