"""Writers of a table in which each write is one row, and a check of each answer against the table and the history."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator

from support.api import Answer, Api, Json, expect_problem
from support.polling import eventually
from support.postgres import PostgresServer, Site

# Without a primary key, so that a write that is applied twice has two rows.
LEDGER = """
create table ledger (place text not null, entry text not null);
create index ledger_entry on ledger (entry);
select fencing.protect('ledger', $$'ledger/' || place$$);
select fencing.expose_table('ledger');
"""


@dataclass(frozen=True)
class Entry:
    place: str
    name: str
    answer: Answer

    @property
    def applied(self) -> bool:
        return self.answer.status == 200

    @property
    def unknown(self) -> bool:
        return self.answer.status != 200 and self.answer.json().get("outcome_unknown") is True

    @property
    def write_id(self) -> str:
        """Empty if the gateway refused the write before it was made."""
        return self.answer.json().get("write_id", "")


class PlaceLease:
    """The lease under which the writers of a place write. Its token is refused after a promotion;
    the first writer to see that takes a new lease."""

    def __init__(self, api: Api, place: str) -> None:
        self.api, self.place, self.lock = api, place, threading.Lock()
        self.lease = self.acquire()

    def acquire(self) -> Json:
        return self.api.must_acquire(f"ledger/{self.place}", ttl_ms=2_000, wait_ms=3_000)

    def replace(self, refused: Json) -> None:
        with self.lock:
            if self.lease is refused:
                self.lease = self.acquire()


class Writer(threading.Thread):
    """Writes entry after entry under the lease of its place."""

    def __init__(self, name: str, api: Api, place: PlaceLease) -> None:
        super().__init__(daemon=True)
        self.label, self.api, self.place = name, api, place
        self.entries: list[Entry] = []
        self.failed: Exception | None = None
        self.stop_requested = threading.Event()

    def run(self) -> None:
        try:
            with self.api.connection() as connection:
                while not self.stop_requested.is_set():
                    name, lease = f"{self.label}-{len(self.entries)}", self.place.lease
                    body = {
                        "lease_id": lease["lease_id"],
                        "operations": [{"insert": "ledger", "values": {"place": self.place.place, "entry": name}}],
                    }
                    self.entries.append(Entry(self.place.place, name, connection.post("/v1/writes", body)))
                    if self.entries[-1].answer.status == 412:
                        self.place.replace(lease)
                    elif self.entries[-1].answer.status != 200:
                        self.stop_requested.wait(0.02)
        except Exception as problem:  # raised again by Writers.stop()
            self.failed = problem

    def applied(self) -> int:
        return sum(entry.applied for entry in list(self.entries))


class Writers:
    """One writer for each gateway and place; the writers of a place share its lease."""

    def __init__(self, apis: list[Api], places: list[str]) -> None:
        self.apis, self.members = apis, []
        for place in places:
            shared = PlaceLease(apis[0], place)
            self.members += [Writer(f"{place}-{number}", api, shared) for number, api in enumerate(apis)]

    def entries(self) -> list[Entry]:
        return [entry for writer in self.members for entry in list(writer.entries)]

    def applied(self) -> int:
        return sum(writer.applied() for writer in self.members)

    def wait_for_more(self, count: int, timeout: float = 60.0) -> None:
        """Waits until `count` more writes of each writer are applied."""
        before = [writer.applied() for writer in self.members]
        eventually(
            lambda: all(writer.failed or writer.applied() >= had + count for writer, had in zip(self.members, before)),
            timeout,
            goal=f"{count} more writes of each writer are applied",
        )

    def stop(self) -> None:
        for writer in self.members:
            writer.stop_requested.set()
        for writer in self.members:
            writer.join(30)
            assert not writer.is_alive(), "a write has no answer"
            if writer.failed:
                raise writer.failed


@contextmanager
def running_writers(apis: list[Api], places: list[str]) -> Iterator[Writers]:
    writers = Writers(apis, places)
    try:
        for writer in writers.members:
            writer.start()
        yield writers
    finally:
        writers.stop()


def create_ledger(site: Site, apis: list[Api]) -> None:
    site.server.query(LEDGER)
    lease = apis[0].must_acquire("ledger/none", ttl_ms=500)
    for api in apis:
        eventually(
            lambda: api.write(lease, {"delete": "ledger", "where": {"place": "none"}}).status == 200,
            goal="the gateway knows the ledger",
        )


def check_outcomes(server: PostgresServer, apis: list[Api], entries: list[Entry]) -> Counter:
    """Checks that the answers are true, and returns how many there are of each kind.

    A write answered with 200 is in table and history exactly once, a refused one in neither.
    Where the outcome was unknown, table and history agree, and GET /v1/history?write_id=… returns the same.
    """
    rows = Counter(
        name
        for (name,) in server.query(
            "select entry from ledger where place = any (%s)", (list({entry.place for entry in entries}),)
        )
    )
    history = Counter(
        str(write_id)
        for (write_id,) in server.query("select write_id from fencing.history where event = 'write_applied'")
    )
    failures, tally = [], Counter()
    for number, entry in enumerate(entries):
        found = (rows.pop(entry.name, 0), history[entry.write_id])
        if entry.applied:
            tally["applied"] += 1
            correct = found == (1, 1)
        elif entry.unknown:
            tally["unknown, applied" if found[0] else "unknown, not applied"] += 1
            recorded = apis[number % len(apis)].history(write_id=entry.write_id, event="write_applied")
            correct = found in ((0, 0), (1, 1)) and len(recorded) == found[0]
        else:
            tally["refused"] += 1
            expect_problem(
                entry.answer,
                entry.answer.status,
                {503: "storage-unavailable", 409: "write-conflict", 412: "stale-fencing-token"}[entry.answer.status],
            )
            correct = found == (0, 0)
        if not correct:
            failures.append((entry.name, str(entry.answer), found))
    assert not failures, f"{len(failures)} of {len(entries)}, such as {failures[:3]}"
    assert not rows, f"entries that nobody wrote: {rows}"
    return tally


def count_slower_than(api: Api, seconds: str) -> int:
    """Returns how many writes took the gateway longer than `seconds`, a bucket of its histogram."""
    text = api.get("/metrics").body.decode()

    def counted(kind: str) -> int:
        lines = [
            line
            for line in text.splitlines()
            if line.startswith(f"fencegate_http_request_seconds_{kind}") and 'route="/v1/writes"' in line
        ]
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if kind == "count" or f'le="{seconds}"' in line)

    assert counted("count") > 0
    return counted("count") - counted("bucket")
