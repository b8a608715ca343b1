"""The state of a lease: what it names, until when it is valid, and who is informed when it is lost.
No input or output."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .errors import FencegateError, LeaseLost

log = logging.getLogger("fencegate")

RENEWALS_PER_TTL = 3
# CLOCK_BOOTTIME also counts the time for which the machine is suspended; where there is none, the monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def real_time() -> float:
    """Returns the seconds of a clock that cannot be set."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


clock = real_time  # fencegate.testing replaces it


def now() -> float:
    return clock()


def names_of(document: Mapping[str, Any]) -> Tuple[Tuple[str, ...], str, Tuple[str, ...]]:
    """Returns the resources of a lease, the mode in which it has them, and those that it shares beside them."""
    resources = tuple(document.get("resources") or [document["resource"]])
    return resources, document.get("mode", "exclusive"), tuple(document.get("shared", ()))


def milliseconds(seconds: float) -> int:
    return math.ceil(round(seconds * 1000, 3))


def describe_lease(
    resources: Sequence[str], ttl: Optional[float], owner: Optional[str], any_of: Sequence[str] = ()
) -> Mapping[str, Any]:
    if isinstance(resources, str) or isinstance(any_of, str) or bool(resources) == bool(any_of):
        raise ValueError("resources: name at least one, in a list, or any_of")
    names: Mapping[str, Any] = {"any_of": list(any_of)} if any_of else {"resources": list(resources)}
    if len(resources) == 1:
        names = {"resource": resources[0]}
    return {
        **names,
        **({} if ttl is None else {"ttl_ms": milliseconds(ttl)}),
        **({} if owner is None else {"owner": owner}),
    }


def describe_sharing(mode: str, shared: Sequence[str], seal: bool) -> Mapping[str, Any]:
    if mode not in ("exclusive", "shared"):
        raise ValueError("mode: has to be exclusive or shared")
    if isinstance(shared, str):
        raise ValueError("shared: name the resources in a list")
    if seal and mode == "shared":
        raise ValueError("seal: a lease that only shares its resources has nothing to seal")
    return {**({"mode": mode} if mode == "shared" else {}), **({"shared": list(shared)} if shared else {})}


class LeaseState:
    """One hold of a lease. Its methods may be called in any thread.

    `sent_at` is when the request was sent whose answer is `document`: from then on the lease is valid
    for `served_ms` + `validity_ms`, whatever was paused meanwhile.
    """

    def __init__(self, document: Mapping[str, Any], sent_at: float) -> None:
        self.lease_id: str = document["lease_id"]
        self.resources, self.mode, self.shared = names_of(document)
        self.fencing_token: int = document["fencing_token"]
        self.owner: Optional[str] = document.get("owner")
        self.ttl_ms: int = document["ttl_ms"]
        self.released = False
        self.lost_because: Optional[LeaseLost] = None
        self.renewal_failure: Optional[Exception] = None  # of the latest renewal
        self.valid_until = self.renew_at = 0.0
        self._lock = threading.Lock()
        self._listeners: List[Callable[[LeaseLost], None]] = []
        # The writes that release the lease and have no result yet, and the loss that was found meanwhile:
        # what a renewal finds may be the effect of such a write.
        self._releasing_writes = 0
        self._pending_loss: Optional[LeaseLost] = None
        self.count_from(document, sent_at)

    def count_from(self, document: Mapping[str, Any], sent_at: float) -> None:
        """Sets the validity to that of a grant or renewal."""
        self.valid_until = sent_at + (document["served_ms"] + document["validity_ms"]) / 1000
        self.renewal_failure = None
        # A repeated request gets what is left of the validity, which may be much shorter than the ttl.
        self.renew_at = sent_at + min(self.ttl_ms / 1000, self.valid_until - sent_at) / RENEWALS_PER_TTL

    def remaining(self) -> float:
        """Returns the seconds for which the lease is still valid; 0 once it is over."""
        if self.is_over:
            return 0.0
        return max(0.0, self.valid_until - now())

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid now."""
        if self.released:
            raise LeaseLost(f"the lease on {self.names} was released")
        self.lose_if_over()
        loss = self.lost_because or self._pending_loss
        if loss:
            raise loss

    def lose_if_over(self) -> None:
        if not self.released and self.remaining() == 0.0:
            cause = self.renewal_failure
            self.lose(
                LeaseLost(
                    f"the validity of the lease on {self.names} is over"
                    + (f", which could not be renewed: {cause}" if cause else "")
                )
            )

    def lose(self, reason: LeaseLost) -> None:
        """Records that the lease is lost, and calls the listeners; once, and only later if a write that releases
        the lease has no result yet."""
        with self._lock:
            if self.released or self.lost_because:
                return
            if self._releasing_writes:
                self._pending_loss = self._pending_loss or reason
                return
            self.lost_because = reason
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            call_listener(listener, reason)

    def listen(self, listener: Callable[[LeaseLost], None]) -> None:
        """Calls the listener with the reason when the lease is lost; at once if it is lost already."""
        with self._lock:
            reason = self.lost_because
            if reason is None:
                self._listeners.append(listener)
        if reason is not None:
            call_listener(listener, reason)

    def end(self) -> bool:
        """Marks the lease as released; False if it was before."""
        with self._lock:
            was, self.released = self.released, True
            self._listeners = []
        return not was

    @contextmanager
    def releasing_write(self) -> Iterator[None]:
        """Performs a write that releases the lease, which has failed if the block raises."""
        with self._lock:
            self._releasing_writes += 1
        applied = False
        try:
            yield
            applied = True
        finally:
            with self._lock:
                self._releasing_writes -= 1
                self.released = self.released or applied and self.lost_because is None
                loss = None if self._releasing_writes else self._pending_loss
            if loss:
                self.lose(loss)

    @property
    def is_over(self) -> bool:
        return self.released or self.lost_because is not None or self._pending_loss is not None

    @property
    def names(self) -> str:
        return ", ".join(self.resources)


def call_listener(listener: Callable[[LeaseLost], None], reason: LeaseLost) -> None:
    try:
        listener(reason)
    except Exception:
        log.exception("a listener for the loss of a lease failed")


class LeaseHandle:
    """What the leases of both clients have in common."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state
        self._process_id = os.getpid()
        self._is_sealing: Optional[bool] = None  # None: no release was asked for
        self._release_failure: Optional[Exception] = None

    @property
    def lease_id(self) -> str:
        """The signed string that proves the grant.
        A secret: with a credential of the same principal it allows writes under the lease."""
        return self._state.lease_id

    @property
    def resources(self) -> Tuple[str, ...]:
        return self._state.resources

    @property
    def mode(self) -> str:
        """How the lease has its `resources`: "exclusive", or "shared" with others that read."""
        return self._state.mode

    @property
    def shared(self) -> Tuple[str, ...]:
        """What the lease shares with others, beside its exclusive `resources`."""
        return self._state.shared

    @property
    def fencing_token(self) -> int:
        return self._state.fencing_token

    @property
    def owner(self) -> Optional[str]:
        return self._state.owner

    def remaining(self) -> float:
        """Returns the seconds for which the lease is still valid, if it is not renewed again; 0 once it is over."""
        return self._state.remaining()

    def check(self) -> None:
        """Raises LeaseLost unless the lease is valid now, by this machine's clock; asks no gateway.
        Call it before each step that the guard does not check."""
        self._state.check()

    def on_loss(self, callback: Callable[[LeaseLost], None]) -> None:
        """Calls `callback` with the reason when the lease is lost; at once if it is lost already.
        It must not block: it delays the renewals of the lease."""
        self._state.listen(callback)

    def _begin_release(self, seal: bool) -> bool:
        """Returns whether a gateway has to be asked to release the lease; False if it was released before.

        Raises LeaseLost if the lease was lost; otherwise the failure of an earlier release,
        and an exception if that one did not seal the token as this one should.
        """
        self._state.lose_if_over()
        if self._state.end():
            self._is_sealing = seal
            self._release_failure = self._state.lost_because
            if self._release_failure is None:
                if seal:  # what a further call raises until the outcome is known
                    self._release_failure = FencegateError(
                        f"it is not known whether the token of the lease on {self._state.names} is sealed"
                    )
                return True
        if self._release_failure:
            raise self._release_failure
        if seal and not self._is_sealing:
            raise FencegateError(f"the lease on {self._state.names} was released before, and its token was not sealed")
        return False

    @contextmanager
    def _recorded_outcome(self) -> Iterator[None]:
        """Keeps the outcome of the release that the block performs, for further calls."""
        try:
            yield
        except Exception as failure:
            self._release_failure = failure
            raise
        self._release_failure = None

    def _seals_at_end(self, seal: bool) -> bool:
        """Whether the end of a block seals the token: as an earlier release in the block,
        else as the lease was acquired."""
        return seal if self._is_sealing is None else self._is_sealing

    def _is_forked(self) -> bool:
        """Whether this process is not the one that acquired the lease, and renews and releases it."""
        return os.getpid() != self._process_id

    def _has_to_raise(self, failure: Exception, error: Optional[BaseException], seal: bool) -> bool:
        """Whether the end of a block raises that the release failed: not in place of the block's own error,
        and not if the lease only lasts until its ttl."""
        if error is None and (seal or isinstance(failure, LeaseLost)):
            return True
        self._log_release_failure(failure)
        return False

    def _log_release_failure(self, failure: BaseException) -> None:
        if isinstance(failure, LeaseLost):
            log.warning("the lease on %s was lost before it was released: %s", self._state.names, failure)
        else:
            log.warning("the lease on %s was not released, and ends with its ttl: %s", self._state.names, failure)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._state.names} token {self.fencing_token}, "
            f"valid for {self.remaining():.1f} s>"
        )
