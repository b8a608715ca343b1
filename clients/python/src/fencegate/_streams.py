"""What streams of events say: those that watch a lease, and those that follow the history. No input or output."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any, Iterator, Mapping, Optional, Set, Tuple, Union

from ._lease import LeaseState
from ._protocol import NoAnswer, Request, Response, lease_path, path_with, read_problem
from .errors import ConnectionFailed, UnexpectedAnswer
from .models import Event

WATCH_SILENCE = 30.0  # a watch is broken if it is silent for longer: a gateway sends something each 10 s
WATCH_PAUSE_FIRST, WATCH_PAUSE_MAX = (
    0.5,
    60.0,
)  # before a watch that broke, or was refused because of a limit, is begun again
TOO_MANY_REQUESTS, LEASE_LOST = 429, 410
LINE_BYTES_MAX = 4096  # of what a watch keeps of a line
EVENT_BYTES_MAX = 16 * 2**20  # of a line of the history


class Watch:
    """What a stream of events says about the end of a lease."""

    def __init__(self, state: LeaseState) -> None:
        self.request = Request(
            "GET", lease_path(state.lease_id), WATCH_SILENCE, headers={"Accept": "text/event-stream"}
        )
        self.pause = WATCH_PAUSE_FIRST
        self._line = b""

    def has_ended(self, piece: bytes) -> bool:
        """Reads the next piece of the stream. Whether the lease has ended, as far as this gateway knows."""
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = rest[:LINE_BYTES_MAX]
        events = [line.rstrip() for line in lines if line.startswith(b"event: ")]
        if events:  # a proxy may answer with success too, and has none
            self.pause = WATCH_PAUSE_FIRST
        return b"event: lost" in events or b"event: released" in events

    def begin_again(self, status: Optional[int]) -> Tuple[bool, float]:
        """Whether a watch that was answered by `status` (None: not), or that broke,
        is begun again, and the pause before."""
        pause = WATCH_PAUSE_MAX if status == TOO_MANY_REQUESTS else self.pause
        self.pause, self._line = min(2 * self.pause, WATCH_PAUSE_MAX), b""
        return status is None or status < 400 or status == TOO_MANY_REQUESTS or status >= 500, random.uniform(
            pause / 2, pause
        )


class HistoryStream:
    """What the streams that follow the history say: the events, and where the next stream goes on."""

    def __init__(self, filters: Mapping[str, Any], after_id: Union[int, str, None], gateways: int) -> None:
        self._path = path_with("/v1/history/stream", filters)
        self._position = None if after_id is None else str(after_id)
        if self._position is not None and not re.fullmatch("[!-~]+", self._position):
            raise ValueError("after_id: has to be the id of an event of the stream")
        self._gateways = gateways
        self._untrusted: Set[int] = set()
        self._retry_after = 0.0
        self._begin()

    def _begin(self) -> None:
        self._rest, self._id, self._data = bytearray(), self._position, b""

    def request(self) -> Request:
        self._begin()
        position = {} if self._position is None else {"Last-Event-ID": self._position}
        return Request("GET", self._path, WATCH_SILENCE, headers={"Accept": "text/event-stream", **position})

    def read(self, piece: bytes) -> Iterator[Event]:
        """Reads the next piece of a stream."""
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0], self._rest = bytes(self._rest) + lines[0], bytearray()
        self._rest += rest
        if len(self._rest) > EVENT_BYTES_MAX:
            raise UnexpectedAnswer(200, f"a line of the stream is larger than {EVENT_BYTES_MAX} bytes")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b": ")
            if name == b"id":
                self._id = value.decode()
            elif name == b"data":
                self._data = value
            elif line.rstrip() == b"":
                self._position, data, self._data = self._id, self._data, b""
                self._retry_after, self._untrusted = 0.0, set()
                if data:
                    yield Event.from_item(json.loads(data, parse_float=Decimal))

    def refuse(self, response: Response) -> None:
        """Raises what an answer without a stream says, unless the stream can be opened later."""
        error = read_problem(response)
        if response.status >= 300 and response.status < 500 and response.status != TOO_MANY_REQUESTS:
            raise error
        self._retry_after = error.retry_after or 0.0

    def fail(self, failure: NoAnswer) -> None:
        """Raises ConnectionFailed if a repeat is useless."""
        if failure.untrusted is not None:
            self._untrusted.add(failure.untrusted)
        if failure.final or len(self._untrusted) == self._gateways:
            raise ConnectionFailed(str(failure)) from failure
        self._retry_after = 0.0

    def pause(self) -> float:
        """Returns the seconds before the next stream is requested."""
        return self._retry_after + random.uniform(WATCH_PAUSE_FIRST / 2, WATCH_PAUSE_FIRST * 1.5)
