"""The judge of concurrent histories: fenced registers, as clients saw them and as PostgreSQL committed them.

A register has a fence and a value. A fenced read with a token not below the fence raises the fence and gives the value;
a guarded write does the same and sets the value; both are refused below the fence and change nothing then. Sealing raises
the fence past a token. An operation whose outcome is unknown took effect at one moment after it was invoked, or never.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Sequence

STEPS_MAX = 2_000_000


class NotDecided(AssertionError):
    """The search would take too long."""


@dataclass(frozen=True)
class Operation:
    """`value` is what a read gave or a write set, and no two writes set the same. Times on one monotonic clock."""

    kind: str  # read, write, seal
    token: int
    invoked: float
    completed: float
    outcome: str  # done, refused, unknown
    value: str = ""
    base: str = ""  # what the writer had read

    def must_happen(self) -> bool:
        return self.outcome != "unknown"


State = tuple[int, str]  # fence, value


def step(operation: Operation, state: State) -> State | None:
    """The state after it; None where it can't have happened in this state."""
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
    """Whether some order of the operations that keeps real time explains every answer (Wing and Gong's search, with Lowe's
    memory of what has been tried)."""
    ops = sorted(operations, key=lambda one: one.invoked)
    ends = [one.completed if one.must_happen() else math.inf for one in ops]
    needed = sum(1 << number for number, one in enumerate(ops) if one.must_happen())
    tried: set[tuple[int, State]] = set()
    stack: list[tuple[int, int, State]] = [(0, 0, initial)]  # what has happened, the first that has not, the state
    steps = 0
    while stack:
        happened, first, state = stack.pop()
        if happened & needed == needed:
            return True
        while happened >> first & 1:
            first += 1
        horizon = math.inf  # nothing may come before what ended before it began
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
        # An operation of which nobody knows may be one that never was: nothing to do, it is simply not needed.
    return False


@dataclass(frozen=True)
class Commit:
    """One accepted write as PostgreSQL's history has it, in the order of commits."""

    token: int
    value: str


def faults_of(operations: Sequence[Operation], commits: Sequence[Commit], initial: str) -> list[str]:
    """What the guard's promises say against the order of commits; empty where they hold."""
    faults = []
    for one, other in zip(commits, commits[1:]):
        if other.token < one.token:
            faults.append(f"the token fell: {other} after {one}")
    writes = {one.value: one for one in operations if one.kind == "write"}
    before = initial
    for commit in commits:
        known = writes.get(commit.value)
        if known is None:
            faults.append(f"nobody wrote {commit}")
        elif known.base != before:
            faults.append(f"lost update: {known} had read {known.base}, and the last write was {before}")
        before = commit.value
    landed = [commit.value for commit in commits]
    for one in writes.values():
        count = landed.count(one.value)
        if (one.outcome == "done" and count != 1) or (one.outcome == "refused" and count != 0) or count > 1:
            faults.append(f"{one.outcome}, but landed {count} times: {one}")
    return faults

