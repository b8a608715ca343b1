"""text/event-stream as a client reads it: a thread that collects the events of one call, each with the time of its arrival."""

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
    at: float
    id: str = ""


class EventStream(threading.Thread):
    """A call whose answer is a stream of events, on a connection of its own."""

    def __init__(self, api: Api, body: Json, headers: dict[str, str] | None = None, method: str = "POST", path: str = "/v1/leases") -> None:
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
        self.hang_up()

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
            pass  # hung up, by whichever side
        finally:
            self.ended = True

    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def next(self, name: str, within: float = 10.0) -> Event:
        """The first event of this name that has come or comes within the time, unless the stream ends before."""

        def found() -> Event | None:
            ended = self.ended  # before the look: what came before the end has come
            event = next((event for event in self.events if event.name == name), None)
            if ended and event is None:
                raise RuntimeError(f"it ended without the event {name}; so far {self.names()}, refused: {self.refused}")
            return event

        return eventually(found, within, every=0.005, what=f"the event {name}")

    def granted(self, within: float = 10.0) -> Json:
        return self.next("granted", within).data

    def wait_for_end(self, within: float = 10.0) -> None:
        eventually(lambda: self.ended, within, every=0.005, what=f"the stream ends; so far {self.names()}")

    def hang_up(self) -> float:
        """Closes the connection without a word; gives the time of it."""
        at = time.monotonic()
        try:
            self.socket.shutdown(2)
        except OSError:
            pass
        self.join(5)
        self.connection.close()
        return at


def keep(api: Api, resource: str, headers: dict[str, str] | None = None, **more: object) -> EventStream:
    """A kept lease on one resource."""
    return EventStream(api, {"resource": resource, **more}, headers)


def is_free(api: Api, resource: str) -> bool:
    """Whether a lease on the resource is to be had at once; gives it back."""
    answer = api.ask(resource, ttl_ms=500)
    if answer.status == 201:
        api.give_back(answer.json())
    return answer.status == 201
