"""What calls return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, List, Mapping, Optional, Sequence, TypedDict


@dataclass(frozen=True)
class Fence:
    """The fence of a resource after a write under `fencing_token`."""

    resource: str
    fencing_token: int
    last_fencing_token: int


@dataclass(frozen=True)
class WriteResult:
    """A write that has taken effect.

    `results` has one object for each operation: `rows_affected` and `rows`, or `value`.
    It is None if the answer was lost and the history shows that the write has taken effect.
    `replayed`: it is the outcome of an earlier call with the same Idempotency-Key.
    `rows_left_out`: that outcome was kept without its rows and values, because they were too large,
    so that each `value` is None.
    `released`: the write has released its lease. `unsealed`: the token of the lease that it released is not sealed:
    other holds remain, or the seal had to follow the release and may have failed.
    """

    write_id: str
    fences: Sequence[Fence]
    results: Optional[List[Mapping[str, Any]]]
    replayed: bool = False
    rows_left_out: bool = False
    released: bool = False
    unsealed: bool = False

    @staticmethod
    def from_answer(document: Mapping[str, Any], replayed: bool) -> WriteResult:
        fences = [
            Fence(item["resource"], item["fencing_token"], item["last_fencing_token"]) for item in document["fences"]
        ]
        return WriteResult(
            document["write_id"],
            fences,
            document["results"],
            replayed,
            document.get("rows_left_out") is True,
            document.get("released") is True,
            document.get("sealed") is False,
        )


class FollowFilters(TypedDict, total=False):
    """The filters of `follow`, all of which have to match an event."""

    resource: Optional[str]
    resource_prefix: Optional[str]
    event: Optional[str]
    owner: Optional[str]
    principal: Optional[str]
    write_id: Optional[str]
    token_min: Optional[int]
    token_max: Optional[int]
    trace_id: Optional[str]


class HistoryFilters(FollowFilters, total=False):
    """The filters of `history`, all of which have to match an event. Times have a time zone."""

    since: Optional[datetime]
    until: Optional[datetime]


def history_filters(given: Mapping[str, Any], known: type) -> Mapping[str, Any]:
    """Returns the parameters of a request for the history from arguments, which are those of a TypedDict."""
    for name, value in given.items():
        if name not in known.__annotations__:
            raise TypeError(f"{name}: there is no such filter")
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name} has no time zone")
    return {{"since": "from", "until": "to"}.get(name, name): value for name, value in given.items()}


@dataclass(frozen=True)
class Event:
    """One row of the history."""

    id: int
    at: datetime
    event: str
    resource: Optional[str]
    fencing_token: Optional[int]
    last_fencing_token: Optional[int]
    owner: Optional[str]
    principal: Optional[str]
    write_id: Optional[str]
    trace_id: Optional[str]
    detail: Mapping[str, Any]

    @staticmethod
    def from_item(item: Mapping[str, Any]) -> Event:
        at = datetime.fromisoformat(item["at"].replace("Z", "+00:00"))
        members = {
            name: item.get(name)
            for name in (
                "resource",
                "fencing_token",
                "last_fencing_token",
                "owner",
                "principal",
                "write_id",
                "trace_id",
            )
        }
        return Event(id=item["id"], at=at, event=item["event"], detail=item.get("detail") or {}, **members)
