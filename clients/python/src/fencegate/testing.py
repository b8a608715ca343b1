"""Gateways in memory, for the tests of services that use a client."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import (
    Any,
    AsyncGenerator,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)
from urllib.parse import parse_qsl, unquote, urlsplit

from . import _lease
from ._lease import LeaseState
from ._protocol import Call, Json, Pause, Protocol, Request, Response, Result
from ._streams import HistoryStream
from .aio import AsyncClient, AsyncLease
from .client import Client, Lease
from .models import Event

TTL_MS = 30_000
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)  # the time of the history at first


class Written(NamedTuple):
    """A write that was applied."""

    resources: Tuple[str, ...]
    fencing_token: int
    operations: Sequence[Json]
    idempotency_key: Optional[str]


class Grant(NamedTuple):
    lease_id: str
    resources: Tuple[str, ...]
    mode: str
    shared: Tuple[str, ...]
    fencing_token: int
    owner: Optional[str]
    ttl: float
    ends_at: float

    @property
    def names(self) -> Tuple[Tuple[str, ...], str, Tuple[str, ...]]:
        return self.resources, self.mode, self.shared

    @property
    def read(self) -> Tuple[str, ...]:
        """What the lease shares, so that it may only be read."""
        return self.resources if self.mode == "shared" else self.shared

    @property
    def written(self) -> Tuple[str, ...]:
        return () if self.mode == "shared" else self.resources

    def excludes(self, other: Grant) -> bool:
        everything = {*other.resources, *other.shared}
        return bool(everything & set(self.written) or {*self.resources, *self.shared} & set(other.written))


class TestGateway:
    """A gateway in memory, with a clock that the test moves, also for all clients of this process:
    `with TestGateway() as gateway: service = Service(gateway.client())`.

    Leases are exclusive or shared and have growing tokens; a write needs a live lease that is not only shared, and is
    applied once for its key.
    Operations are recorded and change no rows: `results` says what they lead to.
    A call that waits moves the clock and takes no time.
    """

    __test__ = False  # it is no test of pytest

    def __init__(self) -> None:
        self.writes: List[Written] = []
        """The writes that were applied."""
        self.results: Callable[[Json], Json] = lambda operation: (
            {"value": None} if "call" in operation else {"rows_affected": operation.get("expect_rows", 1), "rows": []}
        )
        """What an operation leads to; the test may replace it."""
        self.reads: Dict[str, Any] = {}
        """What `get` returns for a path."""
        self.renews = True
        """Whether leases are renewed while the clock moves."""
        self._protocol = Protocol(10.0, 30.0)
        self._time = self._began = _lease.real_time()
        self._token = self._holds = 0
        self._grants: Dict[str, Grant] = {}
        self._fences: Dict[str, int] = {}
        self._read_fences: Dict[str, int] = {}
        self._kept: Dict[str, Tuple[Any, Json]] = {}
        self._refusals: List[Tuple[str, int, Mapping[str, Any]]] = []
        self._events: List[Dict[str, Any]] = []
        self._held: List[LeaseState] = []

    def __enter__(self) -> TestGateway:
        _lease.clock = lambda: self._time
        return self

    def __exit__(self, *_: object) -> None:
        _lease.clock = _lease.real_time

    def client(self) -> Client:
        """Returns a client of this gateway."""
        return _TestClient(self)

    def async_client(self) -> AsyncClient:
        """Returns a client of this gateway for asyncio."""
        return _AsyncTestClient(self)

    def advance(self, seconds: float) -> None:
        """Moves the clock. Leases are renewed meanwhile unless `renews` is False, and lost at their end otherwise."""
        end = self._time + seconds
        while True:
            self._held = [state for state in self._held if not state.is_over]
            due = min(self._held, key=lambda state: self._due_at(state), default=None)
            if due is None or self._due_at(due) > end:
                break
            self._time = max(self._time, self._due_at(due))
            if self.renews:
                self.perform(self._protocol.renew(due), _ignore)
            due.lose_if_over()
        self._time = end

    def lose(self, resource: str) -> None:
        """Lets the lease on a resource be lost now, as if an operator had revoked it."""
        for state in [state for state in self._held if resource in state.resources]:
            self._end(state.lease_id)
            self.perform(self._protocol.renew(state), _ignore)

    def raise_fence(self, resource: str) -> None:
        """Lets a newer holder write, so that the next write under the present lease is refused as stale."""
        self._token += 1
        self._fences[resource] = self._token

    def refuse_write(self, slug: str, status: int, **members: Any) -> None:
        """Lets the next write be refused by this problem, for example `"expectation-failed", 409, rows_affected=0`."""
        self._refusals.append((slug, status, members))

    def perform(self, call: Call[Result], on_failure: Optional[Callable[[Exception], None]] = None) -> Optional[Result]:
        """Performs the steps of a call at once."""
        try:
            step = next(call)
            while True:
                if isinstance(step, Pause):
                    self.advance(step.seconds)
                    step = call.send(None)
                else:
                    step = call.send(self._answer(step))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except Exception as failure:
            if on_failure is None:
                raise
            on_failure(failure)
            return None

    def _due_at(self, state: LeaseState) -> float:
        return min(state.renew_at, state.valid_until) if self.renews else state.valid_until

    def _answer(self, request: Request) -> Response:
        target = urlsplit(request.path)
        body = json.loads(request.content() or b"null")
        query = dict(parse_qsl(target.query))
        key = request.headers.get("Idempotency-Key")
        if target.path == "/v1/leases":
            return self._acquire(body)
        if target.path == "/v1/writes":
            return self._write(body, key)
        if target.path == "/v1/history":
            items = [each for each in self._events if _matches(each, query)]
            return _answer_of(
                200, {"items": items if query.get("order") == "asc" else items[::-1], "next_cursor": None}
            )
        if target.path.startswith("/v1/leases/"):
            lease_id = unquote(target.path.split("/")[3])
            grant = self._live(lease_id)
            if grant is None:
                return _problem("lease-lost", 410)
            if request.method == "DELETE":
                self._end(lease_id)
                self._record("lease_released", grant)
                return Response(204, {}, b"")
            return self._grant(grant._replace(ends_at=self._time + grant.ttl))
        fenced_by = request.headers.get("Fencing-Lease")
        if fenced_by:
            reader = self._grants.get(fenced_by)
            if reader and self._is_stale(reader):
                return _problem("stale-fencing-token", 412)
            if reader is None or self._live(fenced_by) is None:
                return _problem("lease-lost", 410)
            self._raise_fences(reader)
        if target.path not in self.reads:
            return _problem("not-found", 404)
        return _answer_of(200, self.reads[target.path])

    def _acquire(self, body: Json) -> Response:
        if "any_of" in body:  # the first that is free; never a further hold
            held_names = {
                name
                for held in self._grants.values()
                if self._live(held.lease_id)
                for name in (*held.resources, *held.shared)
            }
            free = [name for name in body["any_of"] if name not in held_names]
            body = {**body, "resource": (free or body["any_of"])[0]}
            if not free:
                body.pop("owner", None)
        owner, ttl = body.get("owner"), body.get("ttl_ms", TTL_MS) / 1000
        lease_id = f"lease-{self._holds + 1}"
        grant = Grant(lease_id, *_lease.names_of(body), self._token + 1, owner, ttl, self._time + ttl)
        for held in self._grants.values():
            if self._live(held.lease_id) is None:
                continue
            if owner is not None and (held.owner, held.names) == (owner, grant.names):
                grant = grant._replace(fencing_token=held.fencing_token)  # a further hold
            elif grant.excludes(held):
                remaining = round((held.ends_at - self._time) * 1000)
                return _problem("resource-locked", 423, remaining_ms=remaining, max_wait_ms=0)
        self._token = max(grant.fencing_token, self._token)
        self._holds += 1
        self._record("lease_granted", grant)
        if body.get("fence_on_grant"):
            self._raise_fences(grant)
            self._record("fence_raised", grant)
        return self._grant(grant)

    def _is_stale(self, grant: Grant) -> bool:
        token = grant.fencing_token
        return any(self._fences.get(name, 0) > token for name in (*grant.written, *grant.read)) or any(
            self._read_fences.get(name, 0) > token for name in grant.written
        )

    def _raise_fences(self, grant: Grant) -> None:
        """Raises the fences of what the lease may write, and the read fences of what it shares."""
        token = grant.fencing_token
        self._fences.update(dict.fromkeys(grant.written, token))
        self._read_fences.update({name: max(token, self._read_fences.get(name, 0)) for name in grant.read})

    def _grant(self, grant: Grant) -> Response:
        self._grants[grant.lease_id] = grant
        ms = round(grant.ttl * 1000)
        resources = list(grant.resources)
        names: Json = {"resource": resources[0]} if len(resources) == 1 else {"resources": resources}
        if grant.mode == "shared":
            names = {**names, "mode": "shared"}
        if grant.shared:
            names = {**names, "shared": list(grant.shared)}
        times = {"ttl_ms": ms, "validity_ms": ms, "served_ms": 0}
        token = {"lease_id": grant.lease_id, "fencing_token": grant.fencing_token, "owner": grant.owner}
        return _answer_of(201, {**names, **times, **token})

    def _write(self, body: Json, key: Optional[str]) -> Response:
        if key in self._kept:
            operations, kept = self._kept[key or ""]
            if operations != body["operations"]:
                return _problem("idempotency-mismatch", 422)
            return _answer_of(200, kept, {"idempotency-replayed": "true"})
        if "lease" in body:
            granted = self._acquire(body["lease"])
            if granted.status != 201:
                return granted
            grant = self._grants[json.loads(granted.content)["lease_id"]]
        else:
            found = self._grants.get(body["lease_id"])
            if found is None:
                return _problem("lease-lost", 410)
            grant = found
        try:
            if not grant.written:
                return _problem("shared-lease", 403)
            if self._is_stale(grant):
                return _problem("stale-fencing-token", 412)
            if self._live(grant.lease_id) is None:
                return _problem("lease-lost", 410)
            if self._refusals:
                slug, status, members = self._refusals.pop(0)
                return _problem(slug, status, **members)
            return self._apply(grant, body, key)
        finally:
            if "lease" in body:
                self._end(grant.lease_id)

    def _apply(self, grant: Grant, body: Json, key: Optional[str]) -> Response:
        operations = body["operations"]
        self.writes.append(Written(grant.resources, grant.fencing_token, operations, key))
        self._raise_fences(grant)
        token = grant.fencing_token
        fences = [{"resource": name, "fencing_token": token, "last_fencing_token": token} for name in grant.written]
        write_id = f"write-{len(self.writes)}"
        self._record("write_applied", grant, write_id)
        results = [self.results(operation) for operation in operations]
        document = {"applied": True, "write_id": write_id, "fences": fences, "results": results}
        if "then" in body:
            self._end(grant.lease_id)
            document["released"] = True
        if key:
            self._kept[key] = (operations, document)
        return _answer_of(200, document)

    def _live(self, lease_id: str) -> Optional[Grant]:
        grant = self._grants.get(lease_id)
        return grant if grant and grant.ends_at > self._time else None

    def _end(self, lease_id: str) -> None:
        """Ends a lease, whose token the fences still know."""
        self._grants[lease_id] = self._grants[lease_id]._replace(ends_at=self._time)

    def _record(self, event: str, grant: Grant, write_id: Optional[str] = None) -> None:
        for resource in grant.resources if event == "write_applied" else (*grant.resources, *grant.shared):
            at = (BEGIN + timedelta(seconds=self._time - self._began)).isoformat()
            item = {"id": len(self._events) + 1, "at": at, "event": event, "resource": resource}
            token = {"fencing_token": grant.fencing_token, "owner": grant.owner, "write_id": write_id}
            self._events.append({**item, **token})


FILTERS = {"resource", "event", "owner", "write_id"}


def _matches(event: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    tokens = int(query.get("token_min", 0)), int(query.get("token_max", event["fencing_token"]))
    return tokens[0] <= event["fencing_token"] <= tokens[1] and all(
        event.get(name) == query[name] for name in FILTERS & set(query)
    )


def _answer_of(status: int, document: Any, headers: Optional[Mapping[str, str]] = None) -> Response:
    return Response(status, headers or {}, json.dumps(document).encode())


def _problem(slug: str, status: int, **members: Any) -> Response:
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "request_id": "test", **members}
    return _answer_of(status, {"detail": f"{slug}, by the test's gateway.", **document})


def _ignore(_: Exception) -> None:
    pass


NO_STREAM = _problem("not-found", 404)


class _TestClient(Client):
    def __init__(self, gateway: TestGateway) -> None:
        super().__init__("http://in-memory")
        self._gateway = gateway

    def _run(self, call: Call[Result], *_: Any) -> Result:
        return self._gateway.perform(call)  # type: ignore[return-value]

    def _follow(self, stream: HistoryStream) -> Iterator[Event]:
        stream.refuse(NO_STREAM)
        yield from ()

    def _begin(self, lease: Lease) -> None:
        self._gateway._held.append(lease._state)


class _AsyncTestClient(AsyncClient):
    def __init__(self, gateway: TestGateway) -> None:
        super().__init__("http://in-memory")
        self._gateway = gateway

    async def _run(self, call: Call[Result]) -> Result:
        return self._gateway.perform(call)  # type: ignore[return-value]

    async def _follow(self, stream: HistoryStream) -> AsyncGenerator[Event, None]:
        stream.refuse(NO_STREAM)
        events: List[Event] = []
        for event in events:
            yield event

    def _begin(self, lease: AsyncLease) -> None:
        self._gateway._held.append(lease._state)
