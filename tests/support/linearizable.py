"""Checks concurrent histories of fenced registers: the operations of the clients,
and the order of commits in PostgreSQL.

A register has a fence and a value.
A fenced read with a token not below the fence raises the fence and returns the value; a guarded write does the same
and sets the value. Both are refused below the fence and then change nothing. A seal raises the fence to token + 1.
An operation with an unknown outcome took effect at one moment after it was invoked, or never.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Sequence

STEPS_MAX = 2_000_000


class NotDecided(AssertionError):
    """The search takes more steps than allowed."""


@dataclass(frozen=True)
class Operation:
    """One operation of a client. `value` is what a read returned or a write set; no two writes set the same.
    Times are on one monotonic clock."""

    kind: str  # read, write, seal
    token: int
    invoked: float
    completed: float
    outcome: str  # done, refused, unknown
    value: str = ""
    base: str = ""  # the value that the writer had read

    def must_happen(self) -> bool:
        return self.outcome != "unknown"


State = tuple[int, str]  # fence, value


def step(operation: Operation, state: State) -> State | None:
    """Returns the state after the operation, or None if it is impossible in this state."""
    fence, value = state
    if operation.kind == "seal":
        return max(fence, operation.token + 1), value
    if operation.outcome == "refused":
        return state if operation.token < fence else None
    if operation.token < fence:
        return None
    if operation.kind == "read":
        return (operation.token, value) if operation.value == value else None
    return operation.token, operation.value


def linearizable(operations: Iterable[Operation], initial: State, steps_max: int = STEPS_MAX) -> bool:
    """Returns whether an order of the operations that respects real time explains every answer.

    Uses the search of Wing and Gong with Lowe's cache of configurations that were tried.
    """
    ops = sorted(operations, key=lambda each: each.invoked)
    ends = [each.completed if each.must_happen() else math.inf for each in ops]
    needed = sum(1 << number for number, each in enumerate(ops) if each.must_happen())
    tried: set[tuple[int, State]] = set()
    stack: list[tuple[int, int, State]] = [
        (0, 0, initial)
    ]  # bits of the operations that have happened, the first that has not, the state
    steps = 0
    while stack:
        happened, first, state = stack.pop()
        if happened & needed == needed:
            return True
        while happened >> first & 1:
            first += 1
        horizon = math.inf  # an operation comes after each one that had completed when it was invoked
        number = first
        while number < len(ops) and ops[number].invoked <= horizon:
            if not happened >> number & 1:
                horizon = min(horizon, ends[number])
                steps += 1
                if steps > steps_max:
                    raise NotDecided(f"{len(ops)} operations, more than {steps_max} steps")
                after = step(ops[number], state)
                key = (happened | 1 << number, after)
                if after is not None and key not in tried:
                    tried.add(key)  # type: ignore[arg-type]
                    stack.append((key[0], first, after))
            number += 1
        # An operation with an unknown outcome may never have happened: it is not among those needed.
    return False


@dataclass(frozen=True)
class Commit:
    """One accepted write in the log of PostgreSQL, which is in the order of commits."""

    token: int
    value: str


def faults_of(operations: Sequence[Operation], commits: Sequence[Commit], initial: str) -> list[str]:
    """Returns the violations of the guard's promises in the order of commits."""
    faults = []
    for earlier, later in zip(commits, commits[1:]):
        if later.token < earlier.token:
            faults.append(f"the token fell: {later} after {earlier}")
    writes = {operation.value: operation for operation in operations if operation.kind == "write"}
    before = initial
    for commit in commits:
        known = writes.get(commit.value)
        if known is None:
            faults.append(f"nobody wrote {commit}")
        elif known.base != before:
            faults.append(f"lost update: {known} had read {known.base}, and the last write was {before}")
        before = commit.value
    applied = [commit.value for commit in commits]
    for write in writes.values():
        count = applied.count(write.value)
        if (write.outcome == "done" and count != 1) or (write.outcome == "refused" and count != 0) or count > 1:
            faults.append(f"{write.outcome}, but applied {count} times: {write}")
    return faults
