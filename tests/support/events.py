"""A client of text/event-stream: a thread collects the events of one call, each with the time at which it arrived."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass

from support.api import Answer, Api, Json
from support.polling import eventually


@dataclass(frozen=True)
class Event:
    name: str
    data: Json
    received_at: float
    id: str = ""


class EventStream(threading.Thread):
    """A call whose answer is a stream of events, on its own connection. `refused` is the answer if it is no stream."""

    def __init__(
        self,
        api: Api,
        body: Json,
        headers: dict[str, str] | None = None,
        method: str = "POST",
        path: str = "/v1/leases",
    ) -> None:
        super().__init__(daemon=True)
        self.events: list[Event] = []
        self.refused: Answer | None = None
        self.head: http.client.HTTPResponse | None = None
        self.ended = False
        self.last_id = ""
        self.connection = api.connection()
        self.connection.wire.connect()
        self.socket = self.connection.wire.sock
        self.began = time.monotonic()
        self.connection.send(method, path, body, {"Accept": "text/event-stream", **(headers or {})})
        self.start()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def run(self) -> None:
        try:
            head = self.connection.wire.getresponse()
            if head.headers.get_content_type() != "text/event-stream":
                self.refused = Answer(head.status, head.headers, head.read(), time.monotonic() - self.began)
                return
            self.head = head
            name = last_id = ""
            while line := head.readline():
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "id":
                    last_id = self.last_id = value
                elif field == "event":
                    name = value
                elif field == "data":
                    self.events.append(Event(name, json.loads(value), time.monotonic(), last_id))
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # one side has closed the connection
        finally:
            self.ended = True

    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def wait_for(self, name: str, timeout: float = 10.0) -> Event:
        """Returns the first event of this name; waits for it, and fails if the stream ends without it."""

        def found() -> Event | None:
            ended = self.ended  # read first: events from before the end are in the list then
            event = next((event for event in self.events if event.name == name), None)
            if ended and event is None:
                raise RuntimeError(f"it ended without the event {name}; so far {self.names()}, refused: {self.refused}")
            return event

        return eventually(found, timeout, interval=0.005, goal=f"the event {name}")

    def wait_for_grant(self, timeout: float = 10.0) -> Json:
        return self.wait_for("granted", timeout).data

    def wait_for_end(self, timeout: float = 10.0) -> None:
        eventually(lambda: self.ended, timeout, interval=0.005, goal=f"the stream ends; so far {self.names()}")

    def disconnect(self) -> float:
        """Closes the connection and returns the time at which it began to."""
        at = time.monotonic()
        try:
            self.socket.shutdown(2)
        except OSError:
            pass
        self.join(5)
        self.connection.close()
        return at


def open_kept_lease(api: Api, resource: str, headers: dict[str, str] | None = None, **fields: object) -> EventStream:
    """Opens a stream that acquires and keeps a lease on one resource."""
    return EventStream(api, {"resource": resource, **fields}, headers)


def is_free(api: Api, resource: str) -> bool:
    """Returns whether a lease on the resource is granted at once; releases it."""
    answer = api.acquire(resource, ttl_ms=2_000)
    if answer.status == 201:
        api.must_release(answer.json())
    return answer.status == 201
