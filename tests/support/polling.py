"""Waiting for something to become true, with a deadline in place of a sleep of the right length."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

Value = TypeVar("Value")


class NotInTime(AssertionError):
    """What was waited for did not come."""


def eventually(look: Callable[[], Value], within: float = 10.0, every: float = 0.02, what: str = "") -> Value:
    """Calls `look` until it gives something true and returns that.

    An AssertionError or OSError inside `look` counts as "not yet"; the last one is shown when the time is over.
    """
    deadline = time.monotonic() + within
    last: object = None
    while True:
        try:
            last = look()
            if last:
                return last
        except (AssertionError, OSError) as problem:
            last = problem
        if time.monotonic() >= deadline:
            raise NotInTime(f"not within {within} s: {what or look.__name__}; last seen: {last!r}")
        time.sleep(every)


def stays(look: Callable[[], bool], during: float, every: float = 0.05, what: str = "") -> None:
    """Fails as soon as `look` gives something false; for what must not change."""
    deadline = time.monotonic() + during
    while time.monotonic() < deadline:
        assert look(), f"did not stay so for {during} s: {what or look.__name__}"
        time.sleep(every)


def let_pass(seconds: float, reason: str) -> None:
    """Lets real time pass, where there is no event that could be awaited; the reason says what the time is for."""
    assert reason
    time.sleep(seconds)
