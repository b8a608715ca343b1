"""A scenario of the suite, and the commands, outcomes and answers that several of them have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Optional
from urllib.parse import parse_qsl

from .scripted_gateway import LEASE_ID, Answer, Asked, problem

Script = dict[str, list[Answer]]
Count = Callable[[int], bool]


def at_least(number: int) -> Count:
    return lambda found: found >= number


def between(least: int, most: int) -> Count:
    return lambda found: least <= found <= most


@dataclass(frozen=True)
class Scenario:
    """`rule` is the heading in docs/client.md. `outcomes` are those of the
    commands: a part of each, where a function says whether a value is right.
    `requests`: how often each call has come, by the number of the gateway where there are two.
    `one_key`: calls whose requests all have the same Idempotency-Key.
    `waits`: the wait_ms of each acquisition. `names`: the members of each acquisition and cancellation that say what
    the lease is on; `resources` of one name is `resource`.
    `pause_ms`: the least time between the first two requests.
    `unreachable`: the client has the address of nothing. `after`: the Last-Event-ID of each stream of the history.
    `queries`: the parameters of each request for the history. `then`: that of each write.
    `fenced`: the resource of each acquisition, which has fence_on_grant."""

    rule: str
    commands: list[dict[str, Any]]
    outcomes: list[dict[str, Any]]
    scripts: list[Script] = field(default_factory=list)
    requests: dict[Any, Any] = field(default_factory=dict)
    one_key: tuple[str, ...] = ()
    waits: Optional[list[int]] = None
    names: Optional[dict[str, Any]] = None
    pause_ms: int = 0
    retry_for_ms: int = 10_000
    unreachable: bool = False
    after: Optional[list[Optional[str]]] = None
    queries: Optional[list[dict[str, str]]] = None
    then: Optional[list[Optional[str]]] = None
    fenced: Optional[list[str]] = None

    def faults(self, found: list[dict[str, Any]], asked: list[Asked]) -> list[str]:
        """Returns what is not as expected."""
        faults = []
        if len(found) != len(self.outcomes):
            faults.append(f"{len(found)} outcomes, not {len(self.outcomes)}")
        for number, (outcome, expected) in enumerate(zip(found, self.outcomes)):
            for name, value in expected.items():
                got = outcome.get(name)
                if not (value(got) if callable(value) else got == value):
                    faults.append(f"outcome {number + 1}: {name} is {got!r} in {outcome}")
        for call, count in self.requests.items():
            name, gateway = call if isinstance(call, tuple) else (call, None)
            number = sum(each.call == name and gateway in (None, each.gateway) for each in asked)
            if not (count(number) if callable(count) else number == count):
                faults.append(f"{number} requests {call}")
        keys = {each.key for each in asked if each.call in self.one_key}
        if self.one_key and (len(keys) != 1 or None in keys):
            faults.append(f"the keys are {keys}")
        waits = [(each.body or {}).get("wait_ms") for each in asked if each.call == "acquire"]
        if self.waits is not None and waits != self.waits:
            faults.append(f"wait_ms was {waits}")
        names = [names_in(each.body) for each in asked if each.call in ("acquire", "cancel")]
        if self.names is not None and names != [self.names] * len(names):
            faults.append(f"the names are {names}")
        after = [each.after for each in asked if each.call == "follow"]
        if self.after is not None and after != self.after:
            faults.append(f"Last-Event-ID was {after}")
        queries = [dict(parse_qsl(each.query)) for each in asked if each.call == "history"]
        if self.queries is not None and queries != self.queries:
            faults.append(f"the queries are {queries}")
        grants = [(each.body, each.body.get("fence_on_grant")) for each in asked if each.call == "acquire"]
        if self.fenced is not None and [
            (name["resource"] if "resource" in name else name["resources"][0], fence) for name, fence in grants
        ] != [(name, True) for name in self.fenced]:
            faults.append(f"the acquisitions are {grants}")
        then = [each.body.get("then") for each in asked if each.call == "write"]
        if self.then is not None and then != self.then:
            faults.append(f"then was {then}")
        if self.pause_ms and (asked[1].at - asked[0].at) * 1000 < self.pause_ms:
            faults.append(f"the second request came {asked[1].at - asked[0].at} s after the first")
        return faults


def names_in(body: dict[str, Any]) -> dict[str, Any]:
    found = {name: body[name] for name in ("resource", "resources", "any_of", "mode", "shared") if name in body}
    if len(found.get("resources", ())) == 1:
        found["resource"] = found.pop("resources")[0]
    return found


# Commands and outcomes

ACQUIRE = {"do": "acquire"}
ADOPT = {"do": "adopt", "lease_id": LEASE_ID}
RELEASE = {"do": "release"}
CHECK = {"do": "check"}
WRITE = {"do": "write"}
ONE_SHOT = {"do": "one_shot_write", "key": "k"}
HISTORY = {"do": "history"}
TICK = {"do": "run_once_per_tick", "every_ms": 20_000}
LAST_WRITE = {"do": "write", "then_release": True}
SEALING = [{"do": "acquire", "seal": True}, {"do": "release", "seal": True}]
OK = {"ok": True}
HELD, LOST = OK, {"error": "lost"}


def sleep(ms: int) -> dict[str, Any]:
    return {"do": "sleep", "ms": ms}


def await_loss(within_ms: int) -> dict[str, Any]:
    return {"do": "await_loss", "within_ms": within_ms}


def refused(slug: str) -> dict[str, Any]:
    return {"error": "refused", "slug": slug}


OVER = problem(410, "lease-lost")
STALE = problem(412, "stale-fencing-token")
UNKNOWN = problem(503, "storage-unavailable", outcome_unknown=True, write_id="W")
LOCKED = problem(423, "resource-locked", retry_after=1, max_wait_ms=200, remaining_ms=9_000)
MAINTENANCE = Answer(200, {"status": "maintenance"})
