"""Waits until something becomes true, with a deadline; a sleep of a guessed length would be slow or fail at random."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

Value = TypeVar("Value")


class NotInTime(AssertionError):
    """The condition did not become true before the deadline."""


def eventually(
    condition: Callable[[], Value], timeout: float = 10.0, interval: float | None = None, goal: str = ""
) -> Value:
    """Calls `condition` until it returns something true, and returns that. `goal` says in an error what was waited for.

    The pauses between the calls are `interval`, or a tenth of the time that has passed,
    10 to 200 ms: the tests that wait leave the processors to the others.
    An AssertionError or OSError inside `condition` counts as "not yet"; the last one is shown when the time is over.
    """
    began = time.monotonic()
    deadline = began + timeout
    last: object = None
    while True:
        try:
            last = condition()
            if last:
                return last
        except (AssertionError, OSError) as problem:
            last = problem
        if time.monotonic() >= deadline:
            raise NotInTime(f"not within {timeout} s: {goal or condition.__name__}; last seen: {last!r}")
        time.sleep(interval or min(max(0.01, (time.monotonic() - began) / 10), 0.2))


def remains(condition: Callable[[], bool], seconds: float, interval: float = 0.05, goal: str = "") -> None:
    """Fails as soon as `condition` returns something false; for what must not change."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition(), f"did not remain so for {seconds} s: {goal or condition.__name__}"
        time.sleep(interval)


def pause(seconds: float, reason: str) -> None:
    """Lets real time pass where there is no event to wait for; the reason says what the time is for."""
    assert reason
    time.sleep(seconds)
