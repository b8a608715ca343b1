"""The calls of the HTTP contract without input or output: generators that yield what is to be done, and get its result.

A driver (`client.py` with threads, `aio.py` with asyncio) sends each `Request` and returns its `Response`,
or throws `NoAnswer` or another failure; for a `Pause` it waits.
So retries, validity and the meaning of answers are here once for both.
"""

from __future__ import annotations

import json
import math
import random
import re
import secrets
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Generator, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Type, TypeVar, Union
from urllib.parse import quote, urlencode
from uuid import UUID

from ._lease import LeaseHandle, LeaseState, describe_lease, describe_sharing, log, milliseconds, names_of, now
from .errors import (
    ConnectionFailed,
    ConstraintViolation,
    ExpectationFailed,
    FencegateError,
    LeaseLost,
    OutcomeUnknown,
    ProblemError,
    ResourceLocked,
    ResourceNotCovered,
    SharedLease,
    StaleFencingToken,
    UnexpectedAnswer,
    Unprocessable,
)
from .models import Event, WriteResult

Json = Mapping[str, Any]
Result = TypeVar("Result")

BACKOFF_FIRST, BACKOFF_MAX = 0.05, 2.0
RETRY_AFTER_MAX = 3600.0  # a larger value of the header is read as this
EARLY_ANSWER_PAUSE = 0.5  # between two requests for a lease if the gateway lets no call wait
# How long a write may stay invisible after PostgreSQL answers again: its server process may still be committing.
LATE_COMMIT_SECONDS = 2.0
RENEWAL_PAUSE_MIN = 0.1  # between two calls to renew a lease
# A renewal that takes longer than this part of the ttl, and half a second, is repeated,
# at the next gateway if there are several.
ATTEMPTS_PER_TTL, ATTEMPT_SECONDS_MIN = 4, 0.5
# How long a request that was given up is tried to be cancelled; a third of it for one attempt,
# so that other gateways can be asked.
CANCELLATION_SECONDS = 3.0
PAGE_SIZE = 1000
IDEMPOTENCY_KEY = re.compile("[!-~]{1,64}")
# With one of these a gateway answers a write that was tried before only if no attempt took effect:
# they come after the search for a kept outcome.
CONCLUSIVE = (ConstraintViolation, ExpectationFailed, ResourceNotCovered, SharedLease, StaleFencingToken, Unprocessable)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    timeout: float  # seconds until the answer
    body: Optional[Json] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # What a driver sends (Protocol.cancel) if its caller no longer waits for the call.
    cancelled_by: Optional[Request] = None

    def content(self) -> Optional[bytes]:
        return None if self.body is None else json.dumps(self.body, default=encode, allow_nan=False).encode()


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes
    next_gateway: bool = False  # whether the next request goes to another gateway


@dataclass(frozen=True)
class Pause:
    seconds: float


class NoAnswer(Exception):
    """The connection failed, or the time was over.

    `sent` is False if the gateway cannot have read the request, `final` says that a repeat is useless.
    `untrusted` is the number of the gateway if its certificate is not trusted; another gateway may have one that is.
    """

    def __init__(self, reason: str, sent: bool, final: bool = False, untrusted: Optional[int] = None) -> None:
        super().__init__(reason)
        self.sent, self.final, self.untrusted = sent, final, untrusted


@dataclass
class Attempts:
    """What is known of the attempts of a call.
    A caller that passes its own has it also after an exception of the function that returns the credential."""

    count: int = 0
    maybe_executed: bool = False
    unavailable: bool = False  # whether an attempt was answered 503
    write_id: Optional[str] = None  # the latest one of an attempt that may have been executed
    untrusted: Set[int] = field(default_factory=set)  # the gateways whose certificates are not trusted


Call = Generator[Union[Request, Pause], Any, Result]


@dataclass(frozen=True)
class Answer:
    document: Json
    sent_at: float
    replayed: bool
    status: int


def encode(value: Any) -> str:
    """Encodes a value that JSON has no type for as text that PostgreSQL reads: dates, times, intervals, UUIDs,
    Decimals and IP addresses. Raises TypeError for any other."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, timedelta, IPv4Address, IPv6Address, IPv4Network, IPv6Network)):
        return str(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot be sent; convert it to a text or a number")


def encode_parameter(value: Any) -> str:
    """Encodes the value of a query parameter."""
    return str(value) if isinstance(value, (str, int, float)) else encode(value)


def hide_lease_ids(text: str) -> str:
    """Removes the lease ids, which are secrets, from a text that names paths."""
    return re.sub(r"(/v1/leases/)[\w.~%-]+", r"\1…", text)


def path_with(path: str, query: Mapping[str, Any]) -> str:
    text = urlencode({name: encode_parameter(value) for name, value in query.items() if value is not None})
    return f"{path}?{text}" if text else path


def read_problem(response: Response) -> Union[ProblemError, UnexpectedAnswer]:
    """Returns the exception for an answer without success."""
    try:
        retry_after = min(max(0.0, float(response.headers["retry-after"])), RETRY_AFTER_MAX)
    except (KeyError, ValueError):
        retry_after = None
    try:
        document = json.loads(response.content)
        if not document["type"].startswith("/problems/"):
            raise ValueError("a problem of a proxy")
        slug = document["type"].rpartition("/")[2]
        detail = document["detail"]
    except (ValueError, TypeError, KeyError, AttributeError):
        return UnexpectedAnswer(
            response.status, hide_lease_ids(response.content.decode(errors="replace"))[:200], retry_after
        )
    return ProblemError.classes.get(slug, ProblemError)(detail, document, retry_after)


def is_refusal(failure: Exception) -> bool:
    """Whether a gateway has answered that the call cannot succeed later."""
    return isinstance(failure, ProblemError) and failure.retry_after is None and (failure.status or 0) < 500


@contextmanager
def reading(answer: Answer) -> Iterator[None]:
    """Raises UnexpectedAnswer if the block does not find in the answer what a gateway answers.
    A proxy may answer any request with success."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise UnexpectedAnswer(answer.status, "it is not what a gateway answers") from fault


def lease_path(lease_id: str) -> str:
    return f"/v1/leases/{quote(lease_id, safe='-._~')}"


@dataclass(frozen=True)
class Protocol:
    """`timeout`: the seconds for which one request may take beyond its wait.
    `retry_for`: how long a call is repeated while failures are temporary.

    `gateways`: how many gateways the client has.
    """

    timeout: float
    retry_for: float
    gateways: int = 1

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError("request_timeout: has to be greater than 0")
        if not self.retry_for >= 0:
            raise ValueError("retry_for: has to be at least 0")

    def call(
        self,
        request: Request,
        until: Optional[float] = None,
        repeatable: bool = True,
        also: Tuple[Type[ProblemError], ...] = (),
        also_if_maybe_executed: Tuple[Type[ProblemError], ...] = (),
        urgent: bool = False,
        attempts: Optional[Attempts] = None,
    ) -> Call[Answer]:
        """Sends a request until it is answered, or until a repeat is useless or would begin too late;
        then raises the failure.

        Repeats begin within `retry_for` seconds and what the request itself may wait; or before the time `until`,
        at which also the last attempt ends.
        The pauses grow and are random ("full jitter"), after at least what Retry-After says.
        Those of an `urgent` call are shorter where no attempt would be possible after them,
        and not delayed by the Retry-After of another gateway.
        A call that is not `repeatable` is repeated only if no attempt can have taken effect.
        Failures of the classes `also` count as temporary, those of `also_if_maybe_executed` only
        if an attempt may have taken effect. Untrusted certificates make a repeat useless once each gateway has shown
        one. What the function that returns the credential raises is passed on.
        """
        repeat_until = now() + request.timeout - self.timeout + self.retry_for if until is None else until
        attempts = Attempts() if attempts is None else attempts
        while True:
            sent_at = now()
            retry_after = 0.0
            try:
                response: Response = (
                    yield request
                    if until is None
                    else replace(request, timeout=max(0.001, min(request.timeout, until - sent_at)))
                )
            except NoAnswer as failure:
                if failure.untrusted is not None:
                    attempts.untrusted.add(failure.untrusted)
                error: Union[ConnectionFailed, UnexpectedAnswer, ProblemError] = ConnectionFailed(str(failure))
                error.maybe_executed, error.temporary = (
                    failure.sent,
                    not failure.final and len(attempts.untrusted) < self.gateways,
                )
            else:
                try:
                    if 200 <= response.status < 300:
                        return Answer(
                            read_success(response),
                            sent_at,
                            response.headers.get("idempotency-replayed") == "true",
                            response.status,
                        )
                    error = read_problem(response)
                except UnexpectedAnswer as unreadable:
                    error = unreadable
                if not (urgent and response.next_gateway):
                    retry_after = error.retry_after or 0.0
            attempts.maybe_executed = error.maybe_executed = attempts.maybe_executed or error.maybe_executed
            attempts.write_id = error.write_id = error.write_id or attempts.write_id
            attempts.unavailable = attempts.unavailable or isinstance(error, ProblemError) and error.status == 503
            temporary = (
                error.temporary
                or isinstance(error, also)
                or (attempts.maybe_executed and isinstance(error, also_if_maybe_executed))
            )
            pause = retry_after + random.uniform(0, min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** min(attempts.count, 16)))
            attempts.count += 1
            left = repeat_until - now()
            if urgent and left > BACKOFF_FIRST:
                pause = min(pause, max(left - ATTEMPT_SECONDS_MIN, left / 2))
            if not temporary or (attempts.maybe_executed and not repeatable) or pause >= left:
                raise error
            yield Pause(pause)

    # Leases

    def acquire(
        self,
        resources: Sequence[str],
        wait: float,
        ttl: Optional[float],
        owner: Optional[str],
        fence_on_grant: bool,
        any_of: Sequence[str] = (),
        mode: str = "exclusive",
        shared: Sequence[str] = (),
        seal: bool = False,
    ) -> Call[LeaseState]:
        """Acquires a lease, and waits up to `wait` seconds for it.

        All requests have one Idempotency-Key,
        so that a repeat neither gets a second hold nor loses its place in the queue.
        """
        body = {**describe_lease(resources, ttl, owner, any_of), **describe_sharing(mode, shared, seal)}
        if fence_on_grant:
            body["fence_on_grant"] = True
        key = {"Idempotency-Key": f"lease-{secrets.token_hex(16)}"}
        began, wait_now = now(), 0.0  # how long a call may wait is in the answer to the first one
        while True:
            sent_at = now()
            wanted = {**body, "wait_ms": milliseconds(wait_now)}
            cancellation = Request(
                "POST", "/v1/leases/cancel", min(self.timeout, CANCELLATION_SECONDS / 3), wanted, key
            )
            try:
                answer = yield from self.call(
                    Request("POST", "/v1/leases", self.timeout + wait_now, wanted, key, cancellation), also=(LeaseLost,)
                )
            except ResourceLocked as locked:
                left = began + wait - now()
                if left <= 0 or "nodes" in locked.document:
                    raise
                answered_early = now() - sent_at < wait_now / 2
                wait_now = min(left, locked.document.get("max_wait_ms", 0) / 1000)
                if answered_early or wait_now == 0:
                    yield Pause(min(left, random.uniform(0, EARLY_ANSWER_PAUSE)))
                continue
            with reading(answer):
                state = LeaseState(answer.document, answer.sent_at)
                wanted_names = [{name} for name in any_of] or [set(resources)]
                if set(state.resources) not in wanted_names or (state.mode, set(state.shared)) != (mode, set(shared)):
                    raise ValueError("another lease")
            if state.remaining() > 0:
                return state
            # The answer arrived after the end of the lease.
            if now() - began > wait + self.retry_for:
                state.check()

    def adopt(self, lease_id: str, ttl: Optional[float]) -> Call[LeaseState]:
        """Renews a lease of another process. Raises LeaseLost if it is over."""
        body: Json = {} if ttl is None else {"ttl_ms": milliseconds(ttl)}
        answer = yield from self.call(Request("POST", f"{lease_path(lease_id)}/renew", self.timeout, body))
        with reading(answer):
            state = LeaseState(answer.document, answer.sent_at)
        state.check()
        return state

    def begin_tick(self, state: LeaseState, every: float) -> Call[bool]:
        """Records that the work of a tick starts now, unless the last start belongs to the same tick.
        The starts are the events fence_raised of RESOURCE@tick. Returns whether this call has recorded the start."""
        resource, token, record = state.names, state.fencing_token, f"{state.names}@tick"
        own = yield from self._raised_fences(resource, token_min=token, token_max=token)
        if not own:
            raise FencegateError(f"the history does not have the fence of {resource}: the tick cannot be decided")
        before = (yield from self._raised_fences(record))[:1]
        if before and abs(own[0].at - before[0].at).total_seconds() < every / 2:
            return False
        try:
            started = yield from self.acquire([record], 0.0, None, None, True)
        except ResourceLocked:
            return False
        try:
            yield from self.release(started, False)
        except Exception as failure:  # it ends with its ttl
            log.warning("the lease on %s was not released: %s", record, failure)
        # Another caller that held the lease meanwhile may have recorded its start between the two.
        token = started.fencing_token
        after = yield from self._raised_fences(record, token_max=token)
        return [each.fencing_token for each in after[:2]] == [token, *(each.fencing_token for each in before)]

    def _raised_fences(self, resource: str, **tokens: int) -> Call[List[Event]]:
        """Returns the newest raised fences of a resource, the newest first."""
        filters: Json = {"resource": resource, "event": "fence_raised", **tokens}
        return (yield from self.history_page(filters, None, 2))[0]

    def cancel(self, cancellation: Request) -> Call[None]:
        """Ends the wait of a request that was given up, and releases what it was granted. A failure is only logged."""
        try:
            yield from self.call(cancellation, until=now() + CANCELLATION_SECONDS, urgent=True)
        except Exception as failure:  # also one of the function that returns the credential
            log.warning(
                "a request for a lease was given up and not cancelled; "
                "if it was granted, the lease ends with its ttl: %s",
                failure,
            )

    def renew(self, state: LeaseState) -> Call[None]:
        timeout = min(self.timeout, max(ATTEMPT_SECONDS_MIN, state.ttl_ms / 1000 / ATTEMPTS_PER_TTL))
        request = Request("POST", f"{lease_path(state.lease_id)}/renew", timeout, {"ttl_ms": state.ttl_ms})
        try:
            answer = yield from self.call(request, until=state.valid_until, urgent=True)
        except LeaseLost as lost:
            state.lose(lost)
            raise
        with reading(answer):
            # The lease_id may differ, because a gateway may sign it with another key.
            names = state.resources, state.mode, state.shared
            if (answer.document["fencing_token"], names_of(answer.document)) != (state.fencing_token, names):
                raise ValueError("another lease")
            state.count_from(answer.document, answer.sent_at)

    def keep(self, state: LeaseState) -> Call[None]:
        """Renews the lease until it is released or lost.

        A renewal that fails is tried again after half of the remaining validity,
        whatever the failure is: the function that returns the credential, or the certificate of a gateway,
        may be in order again. Not if a gateway has refused it for good.
        """
        while not state.is_over:
            yield Pause(max(0.0, state.renew_at - now()))
            if state.is_over:
                return
            try:
                yield from self.renew(state)
            except Exception as failure:  # also one of the function that returns the credential
                state.renewal_failure = failure
                left = state.remaining()
                yield Pause(left if is_refusal(failure) else min(left, max(left / 2, RENEWAL_PAUSE_MIN)))
                state.lose_if_over()

    def release(self, state: LeaseState, seal: bool) -> Call[None]:
        """Releases the hold. LeaseLost if it was lost before. Without a seal it is tried only
        while the lease would last anyway; with one, the token is sealed unless it raises."""
        until = None if seal else max(state.valid_until, now() + BACKOFF_FIRST)
        attempts = Attempts()
        try:
            answer = yield from self.call(
                Request("DELETE", lease_path(state.lease_id) + ("?seal=true" if seal else ""), self.timeout),
                until,
                attempts=attempts,
            )
        except LeaseLost as lost:
            # If an earlier attempt was not answered, it has released the lease, and sealed before;
            # or, where the validity is over, the lease may have ended without it.
            # After 503 a gateway goes on with a release that too few nodes have answered;
            # one that seals has not begun then.
            if not (lost.maybe_executed or attempts.unavailable and not seal) or (seal and now() >= state.valid_until):
                raise
            return
        if answer.status == 204:
            return
        with reading(answer):
            is_unsealed = answer.document["hold_count"] == 0 and answer.document.get("sealed") is False
        if seal and is_unsealed:
            raise FencegateError(f"the lease on {state.names} was released, and its token was not sealed")

    # Writes

    def write_under(
        self,
        state: LeaseState,
        operations: Sequence[Json],
        return_rows: bool,
        require_live: bool,
        key: Optional[str],
        keep_outcome: bool,
        then_release: bool,
    ) -> Call[WriteResult]:
        """A guarded write under a lease."""
        members: Json = {
            "lease_id": state.lease_id,
            **({"require_live": True} if require_live else {}),
            **({"then": "release"} if then_release else {}),
        }
        call = self._under(state, self._write(operations, members, return_rows, key, keep_outcome))
        with state.releasing_write() if then_release else nullcontext():
            return (yield from call)

    def _under(self, state: LeaseState, call: Call[Result]) -> Call[Result]:
        """Performs a call under a lease, which counts as lost if the gateway says that it is, or refuses its token;
        then its hold is released."""
        state.check()
        try:
            return (yield from call)
        except (LeaseLost, OutcomeUnknown, StaleFencingToken) as failure:
            refused = failure.__cause__ if isinstance(failure, OutcomeUnknown) else failure
            if isinstance(refused, (LeaseLost, StaleFencingToken)):
                state.lose(LeaseLost(f"the lease on {state.names} is lost: {refused}"))
            if isinstance(refused, StaleFencingToken):
                # The nodes may still have the lease, which would block the next one until its ttl.
                try:
                    yield Request("DELETE", lease_path(state.lease_id), self.timeout)
                except Exception:  # then it ends with its ttl
                    pass
            raise

    def one_shot_write(
        self,
        operations: Sequence[Json],
        resources: Sequence[str],
        wait: float,
        ttl: Optional[float],
        owner: Optional[str],
        return_rows: bool,
        key: Optional[str],
        keep_outcome: bool,
    ) -> Call[WriteResult]:
        """A write with a lease of its own, in one call."""
        lease = {**describe_lease(resources, ttl, owner), "wait_ms": milliseconds(wait)}
        return (yield from self._write(operations, {"lease": lease}, return_rows, key, keep_outcome, wait))

    def _write(
        self,
        operations: Sequence[Json],
        members: Json,
        return_rows: bool,
        key: Optional[str],
        keep_outcome: bool,
        wait: float = 0.0,
    ) -> Call[WriteResult]:
        """Repeats the write with its key until the outcome is known.
        If that cannot be had, searches the history for the write_id."""
        if not operations:
            raise ValueError("operations: name at least one")
        if key is not None and not keep_outcome:
            raise ValueError("keep_outcome: a write with an idempotency_key has its outcome kept")
        if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
            raise ValueError("idempotency_key: has to be 1 to 64 visible ASCII characters")
        key = key or (f"write-{secrets.token_hex(16)}" if keep_outcome else None)
        body = {**members, "operations": list(operations), "return": "rows" if return_rows else "minimal"}
        request = Request(
            "POST", "/v1/writes", self.timeout + wait, body, {} if key is None else {"Idempotency-Key": key}
        )
        attempts = Attempts()
        try:
            # A one-shot write whose outcome is unknown leaves its lease, which locks the repeat out until it ends.
            answer = yield from self.call(
                request, repeatable=key is not None, also_if_maybe_executed=(ResourceLocked,), attempts=attempts
            )
            attempts.maybe_executed = True  # also if the answer cannot be read
            with reading(answer):
                return WriteResult.from_answer(answer.document, answer.replayed)
        except Exception as failure:  # also one of the function that returns the credential, before a repeat
            if not attempts.maybe_executed or isinstance(failure, CONCLUSIVE):
                raise
            applied = (yield from self.find_applied(attempts.write_id)) if attempts.write_id else None
            if applied is None:
                raise OutcomeUnknown(attempts.write_id, key) from failure
            return applied

    def find_applied(self, write_id: str) -> Call[Optional[WriteResult]]:
        """Searches the history for a write; None if it cannot be read, or has no sign of the write."""
        until = None
        while until is None or now() < until:
            try:
                events, _ = yield from self.history_page({"write_id": write_id}, None)
            except Exception:  # also one of the function that returns the credential
                return None
            if any(event.event == "write_applied" for event in events):
                return WriteResult(write_id, [], None)
            until = until or now() + LATE_COMMIT_SECONDS
            yield Pause(random.uniform(0, EARLY_ANSWER_PAUSE))
        return None

    # Reads

    def get(self, path: str, query: Mapping[str, Any], lease: Optional[LeaseHandle] = None) -> Call[Any]:
        """Reads anything of the contract that is JSON; with a lease a fenced read."""
        call = self._read(path, query, {} if lease is None else {"Fencing-Lease": lease.lease_id})
        answer = yield from (call if lease is None else self._under(lease._state, call))
        return answer.document

    def _read(self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]) -> Call[Answer]:
        return self.call(Request("GET", path_with(path, query), self.timeout, headers=headers))

    def history_page(
        self, filters: Mapping[str, Any], cursor: Optional[str], limit: int = PAGE_SIZE
    ) -> Call[Tuple[List[Event], Optional[str]]]:
        """Returns the events of a page and the cursor of the next one."""
        answer = yield from self._read("/v1/history", {**filters, "limit": limit, "cursor": cursor}, {})
        with reading(answer):
            return [Event.from_item(item) for item in answer.document["items"]], answer.document["next_cursor"]


def check_every(every: float) -> None:
    if not 1 <= every < math.inf:
        raise ValueError("every: has to be at least 1 s")


def read_success(response: Response) -> Any:
    """Returns the document of an answer with success; numbers with a fraction are Decimal, so that no digit is lost."""
    if not response.content:
        return {}
    try:
        return json.loads(response.content, parse_float=Decimal)
    except ValueError:
        raise UnexpectedAnswer(response.status, "it is not JSON") from None
