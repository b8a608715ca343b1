"""The gateway in memory of the Python client: the same contract as a real one, and what only it can do."""

from __future__ import annotations

import asyncio
import datetime
import math
import time
import uuid
from contextlib import closing, contextmanager
from typing import Any, Iterator

import pytest
from python_clients import Site, both, clients, errors, fencegate
from support.stack import Stack

OPERATION = {"update": "inventory", "where": {"sku": "sku-1"}, "set": {"note": "counted"}, "expect_rows": 1}


class Waiting:
    """An AsyncClient or AsyncLease of a gateway in memory, with calls that wait for their result."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.client, self.loop = client, loop

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            return await getattr(self.client, name)(*arguments, **options)

        def run(*arguments: Any, **options: Any) -> Any:
            found = self.loop.run_until_complete(call(*arguments, **options))
            return Waiting(found, self.loop) if name in ("lease", "adopt") else found

        value = getattr(self.client, name)
        calls = ("lease", "adopt", "write", "one_shot_write", "get", "release", "run_once_per_tick")
        return run if name in calls else value


@contextmanager
def in_memory(kind: str) -> Iterator[tuple[Any, Any]]:
    from fencegate.testing import TestGateway

    with TestGateway() as gateway, closing(asyncio.new_event_loop()) as loop:
        yield gateway, gateway.client() if kind == "sync" else Waiting(gateway.async_client(), loop)


@pytest.fixture(params=["real-sync", "real-async", "memory-sync", "memory-async"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    where, kind = request.param.split("-")
    if where == "memory":
        with in_memory(kind) as (_, made):
            yield made
    else:
        stack: Stack = request.getfixturevalue("stack")
        with clients(kind, stack.facts["http"]) as made:
            yield made


def new_resource() -> str:
    return f"python/{uuid.uuid4().hex}"


# The contract


def test_leases_are_exclusive_and_tokens_grow(client: Any) -> None:
    name = new_resource()
    first = client.lease(name, ttl=20)
    assert first.resources == (name,) and 0 < first.remaining() <= 20
    with pytest.raises(errors.ResourceLocked) as locked:
        client.lease(name, wait=0.3)
    assert 0 < locked.value.document["remaining_ms"] <= 20_000
    first.release()
    first.release()
    with pytest.raises(errors.LeaseLost):
        first.check()
    second = client.lease(name, wait=5)
    assert second.fencing_token > first.fencing_token
    second.release()


def test_owner_gets_further_holds_of_one_token(client: Any) -> None:
    name = new_resource()
    first, second = (client.lease(name, owner="worker", ttl=20) for _ in range(2))
    assert first.fencing_token == second.fencing_token and first.lease_id != second.lease_id
    first.release()
    second.check()
    second.release()


def test_any_of_gives_each_caller_another_resource(client: Any) -> None:
    names = [new_resource() for _ in range(2)]
    leases = [client.lease(any_of=names, owner="worker", ttl=20) for _ in names]
    assert sorted(lease.resources[0] for lease in leases) == sorted(names)
    with pytest.raises(errors.ResourceLocked):
        client.lease(any_of=names, owner="worker", wait=0.3)
    leases[1].release()
    again = client.lease(any_of=names, wait=5)
    assert again.resources == leases[1].resources and again.fencing_token > leases[1].fencing_token
    for lease in (leases[0], again):
        lease.release()


def test_readers_share_a_resource_and_exclude_its_writer(client: Any) -> None:
    name, other = new_resource(), new_resource()
    older = client.lease(name, ttl=20)
    client.adopt(older.lease_id).release()
    reader = client.lease(name, mode="shared", ttl=20, fence_on_grant=True, wait=5)
    both_kinds = client.lease(other, shared=[name], ttl=20)
    assert (reader.resources, reader.mode, reader.shared) == ((name,), "shared", ())
    assert (both_kinds.resources, both_kinds.mode, both_kinds.shared) == ((other,), "exclusive", (name,))
    for wanted in ({"any_of": [name, other]}, {"resources": [name]}):
        with pytest.raises(errors.ResourceLocked):
            client.lease(*wanted.pop("resources", []), **wanted)
    with pytest.raises((errors.StaleFencingToken, errors.LeaseLost)):  # it may know the end of its lease
        older.write(OPERATION)
    with pytest.raises(errors.SharedLease):
        reader.write(OPERATION)
    for lease in (reader, both_kinds):
        lease.check()
        lease.release()
    writer = client.lease(name, wait=5)
    assert writer.fencing_token > reader.fencing_token
    with pytest.raises(errors.ResourceLocked):
        client.lease(name, mode="shared")
    writer.release()


def test_sharing_that_cannot_be_is_refused_by_name(client: Any) -> None:
    for options, named in (
        ({"mode": "shared", "seal": True}, "seal"),
        ({"mode": "read"}, "mode"),
        ({"shared": "a"}, "shared"),
    ):
        with pytest.raises(ValueError, match=named):
            client.lease(new_resource(), **options)


def test_write_is_applied_once_for_its_key(client: Any) -> None:
    key = uuid.uuid4().hex
    options = {"resources": ["inventory/sku-1"], "wait": 1.0, "idempotency_key": key}
    first, again = (client.one_shot_write(OPERATION, **options) for _ in range(2))
    assert (first.replayed, again.replayed) == (False, True) and first.write_id == again.write_id
    assert first.results[0]["rows_affected"] == 1 and first.fences[0].resource == "inventory/sku-1"
    with pytest.raises(errors.IdempotencyMismatch):
        client.one_shot_write({**OPERATION, "set": {"note": "other"}}, **options)
    lease = client.lease("inventory/sku-1", wait=5)
    written = lease.write(OPERATION)
    assert written.fences[0].fencing_token == lease.fencing_token > first.fences[0].fencing_token
    with pytest.raises(errors.ResourceLocked):
        client.one_shot_write(OPERATION, resources=["inventory/sku-1"])
    assert lease.write(OPERATION, then_release=True).released
    lease.release()
    client.lease("inventory/sku-1", wait=5).release()


def count_runs(client: Any, resource: str, every: float, **options: Any) -> tuple[bool, int]:
    """Runs work once per tick; returns what the call returned, and the number of runs."""
    tokens: list[int] = []

    def work(lease: Any) -> None:
        lease.check()
        tokens.append(lease.fencing_token)

    async def work_later(lease: Any) -> None:
        work(lease)

    inner = getattr(client, "client", client)
    given = work_later if isinstance(inner, fencegate.AsyncClient) else work
    return client.run_once_per_tick(resource, every, given, **options), len(tokens)


def test_work_is_run_once_in_a_tick(client: Any) -> None:
    name = new_resource()
    assert [count_runs(client, name, 3_600) for _ in range(2)] == [(True, 1), (False, 0)]
    held = client.lease(name, wait=5)
    assert count_runs(client, name, 1) == (False, 0)
    held.release()
    client.lease(f"{name}@tick").release()


def test_tick_with_wrong_period_is_refused_by_name(client: Any) -> None:
    for every in (0.9, math.inf, math.nan):
        with pytest.raises(ValueError, match="every"):
            count_runs(client, new_resource(), every)


# What only the gateway in memory can do


@both
def test_next_tick_begins_half_of_its_period_later(kind: str) -> None:
    with in_memory(kind) as (gateway, client):
        assert count_runs(client, "a", 600) == (True, 1)
        gateway.advance(299)
        assert count_runs(client, "a", 600) == (False, 0)
        gateway.advance(1)
        assert count_runs(client, "a", 600) == (True, 1)
        held = client.lease("a")
        gateway.advance(600)
        assert count_runs(client, "a", 600) == (False, 0)
        held.release()
        client.lease("a", ttl=1)
        gateway.renews = False
        assert count_runs(client, "a", 600, wait=2) == (True, 1), "it waits for the end of the lease"


@both
def test_clock_renews_leases_and_lets_them_end(kind: str) -> None:
    began = time.monotonic()
    with in_memory(kind) as (gateway, client):
        lease = client.lease("a", ttl=30)
        gateway.advance(3_600)
        lease.check()
        gateway.renews = False
        gateway.advance(31)
        assert lease.lost.is_set() and lease.remaining() == 0
        with pytest.raises(errors.LeaseLost):
            lease.check()
        assert client.lease("a", wait=math.inf).fencing_token == 2
    assert time.monotonic() - began < 5


@both
def test_lease_is_lost_when_the_test_says_so(kind: str) -> None:
    reasons: list[Any] = []
    with in_memory(kind) as (gateway, client):
        lease = client.lease("a", "b")
        lease.on_loss(reasons.append)
        gateway.lose("b")
        assert lease.lost.is_set() and isinstance(reasons[0], errors.LeaseLost) and reasons[0].status == 410
        with pytest.raises(errors.LeaseLost):
            lease.write(OPERATION)
        assert not gateway.writes
        client.lease("a").check()


@both
def test_writes_are_refused_as_the_test_says(kind: str) -> None:
    with in_memory(kind) as (gateway, client):
        gateway.refuse_write("expectation-failed", 409, rows_affected=0)
        with pytest.raises(errors.ExpectationFailed) as refused:
            client.one_shot_write(OPERATION, resources=["a"])
        assert refused.value.document["rows_affected"] == 0 and not gateway.writes
        lease = client.lease("a")
        gateway.raise_fence("a")
        with pytest.raises(errors.StaleFencingToken):
            lease.write(OPERATION)
        assert lease.lost.is_set()
        client.lease("a").write(OPERATION, idempotency_key="k")
        assert [(each.fencing_token, each.idempotency_key) for each in gateway.writes] == [(4, "k")]


@both
def test_fenced_read_refuses_older_writers_and_late_readers(kind: str) -> None:
    with in_memory(kind) as (gateway, client):
        gateway.reads["/v1/tables/inventory"] = []
        older = client.lease("a")
        client.adopt(older.lease_id).release()
        reader = client.lease("b", shared=["a"])
        assert client.get("/v1/tables/inventory", lease=reader) == []
        with pytest.raises(errors.StaleFencingToken):
            older.write(OPERATION)
        gateway.raise_fence("a")
        with pytest.raises(errors.StaleFencingToken):
            client.get("/v1/tables/inventory", lease=reader)
        assert not gateway.writes and reader.lost.is_set()


def test_reads_and_history_are_those_of_the_test() -> None:
    with in_memory("sync") as (gateway, client):
        gateway.reads["/v1/tables/inventory"] = [{"stock": 3}]
        gateway.results = lambda operation: {"rows_affected": 2}
        with client.lease("a") as lease:
            assert client.get("/v1/tables/inventory", lease=lease, sku="eq.1") == [{"stock": 3}]
            assert lease.write(OPERATION).results == [{"rows_affected": 2}]
        events = [event.event for event in client.history(resource="a", newest_first=False)]
        assert events == ["lease_granted", "write_applied", "lease_released"]
        with pytest.raises(errors.NotFound):
            client.get("/v1/nodes")


def test_wrong_filter_of_history_is_refused_by_name() -> None:
    began = datetime.datetime(2026, 1, 1)
    with in_memory("sync") as (_, client):
        for filters, error in (({"resurce": "a"}, TypeError), ({"since": began}, ValueError)):
            with pytest.raises(error, match=next(iter(filters))):
                list(client.history(**filters))
        with pytest.raises(TypeError, match="since"):
            next(client.follow(since=began))
        client.lease("a").release()
        filters = {"since": began.replace(tzinfo=datetime.timezone.utc), "token_max": 1, "owner": None}
        assert [event.event for event in client.history(**filters)] == ["lease_released", "lease_granted"]


def test_clock_is_the_real_one_again_afterwards() -> None:
    from fencegate import _lease

    with in_memory("sync") as (gateway, _):
        before = _lease.now()
        gateway.advance(5)
        assert _lease.now() == before + 5
    assert abs(_lease.now() - _lease.real_time()) < 1
