"""Leases with fencing tokens, guarded writes and their history: the client of fencegate.
`fencegate.errors` has all exceptions."""

from .aio import AsyncClient, AsyncLease
from .client import Client, Lease
from .errors import (
    ConnectionFailed,
    FencegateError,
    GuardError,
    LeaseLost,
    OutcomeUnknown,
    ProblemError,
    ResourceLocked,
    StaleFencingToken,
    TokenRefused,
)
from .models import Event, Fence, WriteResult
from .sql import async_fenced, fenced, guard_error_of

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "Client",
    "ConnectionFailed",
    "Event",
    "FencegateError",
    "Fence",
    "GuardError",
    "Lease",
    "LeaseLost",
    "OutcomeUnknown",
    "ProblemError",
    "ResourceLocked",
    "StaleFencingToken",
    "TokenRefused",
    "WriteResult",
    "async_fenced",
    "fenced",
    "guard_error_of",
]
