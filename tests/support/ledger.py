"""Writes that can be counted one by one: what each was answered against what the table and the history hold."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator

from support.api import Answer, Api, Json, expect_problem
from support.polling import eventually
from support.postgres import PostgresServer, Site

# No key: a write that lands twice shows.
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
        return self.answer.json()["write_id"]


class Writer(threading.Thread):
    """Writes entry after entry on one lease."""

    def __init__(self, name: str, api: Api, place: str, lease: Json) -> None:
        super().__init__(daemon=True)
        self.label, self.api, self.place, self.lease = name, api, place, lease
        self.entries: list[Entry] = []
        self.failed: Exception | None = None
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            with self.api.connection() as connection:
                while not self.enough.is_set():
                    name = f"{self.label}-{len(self.entries)}"
                    body = {"lease_id": self.lease["lease_id"], "operations": [{"insert": "ledger", "values": {"place": self.place, "entry": name}}]}
                    self.entries.append(Entry(self.place, name, connection.call("POST", "/v1/writes", body)))
                    if self.entries[-1].answer.status != 200:
                        self.enough.wait(0.02)
        except Exception as problem:  # shown by stop()
            self.failed = problem

    def applied(self) -> int:
        return sum(entry.applied for entry in list(self.entries))


class Writers:
    """Each of the gateways has one writer for each place; those of a place share its lease."""

    def __init__(self, apis: list[Api], places: list[str]) -> None:
        self.apis, self.all = apis, []
        for place in places:
            lease = apis[0].take(f"ledger/{place}", ttl_ms=2_000, wait_ms=3_000)
            self.all += [Writer(f"{place}-{number}", api, place, lease) for number, api in enumerate(apis)]

    def entries(self) -> list[Entry]:
        return [entry for writer in self.all for entry in list(writer.entries)]

    def applied(self) -> int:
        return sum(writer.applied() for writer in self.all)

    def more(self, count: int, within: float = 15.0) -> None:
        """Waits until each writer has landed that many more."""
        before = [writer.applied() for writer in self.all]
        eventually(lambda: all(writer.failed or writer.applied() >= had + count for writer, had in zip(self.all, before)), within,
                   what=f"each writer lands {count} more")

    def stop(self) -> None:
        for writer in self.all:
            writer.enough.set()
        for writer in self.all:
            writer.join(30)
            assert not writer.is_alive(), "a write has no answer"
            if writer.failed:
                raise writer.failed


@contextmanager
def writing(apis: list[Api], places: list[str]) -> Iterator[Writers]:
    made = Writers(apis, places)
    try:
        for writer in made.all:
            writer.start()
        yield made
    finally:
        made.stop()


def open_ledger(site: Site, apis: list[Api]) -> None:
    site.server.query(LEDGER)
    lease = apis[0].take("ledger/none", ttl_ms=500)
    for api in apis:
        eventually(lambda: api.write(lease, {"delete": "ledger", "where": {"place": "none"}}).status == 200, 10, what="the gateway knows the ledger")


def judge(server: PostgresServer, apis: list[Api], entries: list[Entry]) -> Counter:
    """Every 200 is in table and history exactly once, every definite refusal in neither; where the outcome was unknown, both
    agree, and the history says so when it is asked by write_id. Gives how many there were of each kind."""
    rows = Counter(name for (name,) in server.query("select entry from ledger where place = any (%s)", (list({one.place for one in entries}),)))
    history = Counter(str(write_id) for (write_id,) in server.query("select write_id from fencing.history where event = 'write_applied'"))
    wrong, tally = [], Counter()
    for number, entry in enumerate(entries):
        found = (rows.pop(entry.name, 0), history[entry.write_id])
        if entry.applied:
            tally["applied"] += 1
            right = found == (1, 1)
        elif entry.unknown:
            tally["unknown, landed" if found[0] else "unknown, did not land"] += 1
            said = apis[number % len(apis)].history(write_id=entry.write_id, event="write_applied")
            right = found in ((0, 0), (1, 1)) and len(said) == found[0]
        else:
            tally["refused"] += 1
            expect_problem(entry.answer, entry.answer.status, {503: "storage-unavailable", 409: "write-conflict"}[entry.answer.status])
            right = found == (0, 0)
        if not right:
            wrong.append((entry.name, str(entry.answer), found))
    assert not wrong, f"{len(wrong)} of {len(entries)}, such as {wrong[:3]}"
    assert not rows, f"entries that nobody wrote: {rows}"
    return tally


def slower_than(api: Api, seconds: str) -> int:
    """How many writes took the gateway longer by its own clock; `seconds` as the histogram has it."""
    text = api.get("/metrics").body.decode()

    def counted(kind: str) -> int:
        lines = [line for line in text.splitlines() if line.startswith(f"fencegate_http_request_seconds_{kind}") and 'route="/v1/writes"' in line]
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if kind == "count" or f'le="{seconds}"' in line)

    assert counted("count") > 0
    return counted("count") - counted("bucket")
