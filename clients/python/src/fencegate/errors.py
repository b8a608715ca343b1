"""The exceptions of the client: one class for each kind of problem of a gateway, and for each SQLSTATE of the guard."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Mapping, Optional, Type


REPEATED = (409, 429, 503)  # of a gateway, if Retry-After says that a repeat can help


class FencegateError(Exception):
    """Every exception of this package is one of these."""

    temporary: bool = False  # whether the same call, with its key, can succeed later
    maybe_executed: bool = False  # whether this attempt of the call, or an earlier one, may have taken effect
    write_id: Optional[str] = None  # of a write that may have taken effect: the latest one that a gateway named


class ConnectionFailed(FencegateError):
    """No gateway answered: the connection failed, or the time was over."""

    temporary = True


class UnexpectedAnswer(FencegateError):
    """An answer that is not from a gateway but, for example, from a proxy. `status` is its HTTP status."""

    def __init__(self, status: int, detail: str, retry_after: Optional[float] = None) -> None:
        super().__init__(f"HTTP status {status}: {detail}")
        self.status = status
        self.retry_after = retry_after  # seconds after which a repeat can succeed
        self.temporary = status < 300 or status == 429 or status >= 500
        self.maybe_executed = (
            status < 300 or status >= 500
        )  # a proxy's error does not say whether a gateway has the call


class OutcomeUnknown(FencegateError):
    """A write may or may not have taken effect, and it could not be found out in time.

    `write_id` is the latest one that a gateway named, None if no answer arrived.
    The write with the same `idempotency_key` and content can be repeated until it is answered: it takes effect once.
    The cause (`__cause__`) is the last failure, such as the exception of the function that returns the credential.
    """

    maybe_executed = True

    def __init__(self, write_id: Optional[str], idempotency_key: Optional[str]) -> None:
        super().__init__(
            f"it is not known whether the write took effect (write_id {write_id}, Idempotency-Key {idempotency_key})"
        )
        self.write_id, self.idempotency_key = write_id, idempotency_key


# Problems of a gateway


class ProblemError(FencegateError):
    """A problem document (RFC 9457) of a gateway. `document` has all its members;
    a kind that this version of the client does not know is of this class."""

    slug: ClassVar[str] = ""
    classes: ClassVar[Dict[str, Type[ProblemError]]] = {}

    def __init__(
        self, detail: str, document: Optional[Mapping[str, Any]] = None, retry_after: Optional[float] = None
    ) -> None:
        super().__init__(detail)
        self.document: Mapping[str, Any] = document or {}
        self.retry_after = retry_after  # seconds after which a repeat can succeed
        self.maybe_executed = self.document.get("outcome_unknown") is True
        self.temporary = self.maybe_executed or (retry_after is not None and self.status in REPEATED)
        self.write_id = self.document.get("write_id") if self.maybe_executed else None

    def __init_subclass__(cls) -> None:
        cls.classes[cls.slug] = cls

    @property
    def status(self) -> Optional[int]:
        """The HTTP status; None if the client itself has found the problem."""
        return self.document.get("status")

    @property
    def request_id(self) -> Optional[str]:
        """The id by which the gateway's log has the request."""
        return self.document.get("request_id")


class InvalidRequest(ProblemError):
    slug = "invalid-request"


class Unauthenticated(ProblemError):
    slug = "unauthenticated"


class Forbidden(ProblemError):
    slug = "forbidden"


class ResourceNotCovered(ProblemError):
    slug = "resource-not-covered"


class SharedLease(ProblemError):
    """A write needs a resource that its lease does not only share."""

    slug = "shared-lease"


class LeaseNotAuthentic(ProblemError):
    slug = "lease-not-authentic"


class MisdirectedRequest(ProblemError):
    slug = "misdirected-request"


class NotFound(ProblemError):
    slug = "not-found"


class MethodNotAllowed(ProblemError):
    slug = "method-not-allowed"


class NotAcceptable(ProblemError):
    slug = "not-acceptable"


class TooLarge(ProblemError):
    slug = "too-large"


class HeaderTooLarge(ProblemError):
    slug = "header-too-large"


class UnsupportedMediaType(ProblemError):
    slug = "unsupported-media-type"


class ExpectationFailed(ProblemError):
    slug = "expectation-failed"


class ConstraintViolation(ProblemError):
    slug = "constraint-violation"


class IdempotencyInProgress(ProblemError):
    slug = "idempotency-in-progress"


class RenewalsExhausted(ProblemError):
    slug = "renewals-exhausted"


class WriteConflict(ProblemError):
    slug = "write-conflict"


class LeaseLost(ProblemError):
    """The lease is over: a gateway said so, or its validity has passed on the client's own clock."""

    slug = "lease-lost"


class StaleFencingToken(ProblemError):
    slug = "stale-fencing-token"


class FencingRequired(ProblemError):
    slug = "fencing-required"


class Unprocessable(ProblemError):
    slug = "unprocessable"


class IdempotencyMismatch(ProblemError):
    slug = "idempotency-mismatch"


class ResourceLocked(ProblemError):
    slug = "resource-locked"


class TooManyRequests(ProblemError):
    slug = "too-many-requests"


class TooManyWaiters(ProblemError):
    slug = "too-many-waiters"


class NoQuorum(ProblemError):
    slug = "no-quorum"


class StorageUnavailable(ProblemError):
    slug = "storage-unavailable"


class Overloaded(ProblemError):
    slug = "overloaded"


class ShuttingDown(ProblemError):
    slug = "shutting-down"


class InternalFault(ProblemError):
    slug = "internal-error"


# Refusals of the guard inside PostgreSQL


class GuardError(FencegateError):
    """A refusal of the guard, raised by `fenced`. `detail` has the members of its DETAIL;
    the driver's exception is the cause (`__cause__`)."""

    sqlstate: str = ""
    classes: ClassVar[Dict[str, Type[GuardError]]] = {}

    def __init__(
        self, message: str, sqlstate: str, detail: Optional[Mapping[str, Any]] = None, hint: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.sqlstate, self.detail, self.hint = sqlstate, detail or {}, hint

    def __init_subclass__(cls) -> None:
        cls.classes[cls.sqlstate] = cls


class ProofRefused(GuardError):
    """The database requires a proof and got none, or the proof is not valid for the token and the resource."""

    sqlstate = "FG401"


class ChangeNotCovered(GuardError):
    """A row belongs to a resource that the transaction has not entered."""

    sqlstate = "FG403"


class TokenRefused(GuardError):
    """The token is lower than the fence: a newer holder is active. Nothing was changed."""

    sqlstate = "FG412"


class EnterRequired(GuardError):
    """The transaction has not entered any resource."""

    sqlstate = "FG428"


class WriterRoleMissing(GuardError):
    """The login of the connection is no member of `fencing_writer`, so it may not use the schema `fencing`."""

    sqlstate = "42501"


class GuardMisconfigured(GuardError):
    """The configuration of the gateways and that of the guard differ, or no epoch is left."""

    sqlstate = "FG500"


class StorageGenerationChanged(GuardError):
    """PostgreSQL was promoted or restored, and no gateway has finished the change yet. Nothing was changed;
    repeat the transaction."""

    sqlstate = "FG503"
    temporary = True
