"""No answer shows data that a crash of PostgreSQL could still lose: reads wait until everything
in their snapshot is on disk."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

import pytest

from support import processes
from support.api import Answer, Api, Call, expect_problem, lease_path
from support.polling import eventually, pause
from support.shop import Sku, create_sku
from support.stack import Stack, running

FLUSHERS = (
    "select pid from pg_stat_activity where backend_type = 'walwriter' "
    "or (application_name = 'fencegate' and query like '%pg_logical_emit_message%')"
)
PENDING = "select pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()"
SETTLE_SECONDS = 0.5


@pytest.fixture(scope="module")
def pair() -> Iterator[Stack]:
    """Two gateways, each of which has flushed once, so that its flush connection can be found."""
    with running("--gateways", "2") as made:
        for gateway in (0, 1):
            begin_one_shot(made, create_sku(made, f"warm-{gateway}"), gateway)
        eventually(lambda: len(made.query(FLUSHERS)) == 3, goal="both gateways have flushed")
        made.query(
            "create function stock_now(sku text) returns integer language sql stable as "
            "'select stock from public.inventory i where i.sku = stock_now.sku'; "
            "select fencing.expose_function('stock_now(text)')"
        )
        eventually(
            lambda: made.api().get("/v1/rpc/stock_now", sku="warm-0").status == 200,
            goal="the gateway knows the function",
        )
        yield made


def begin_one_shot(stack: Stack, sku: Sku, gateway: int = 0, key: str | None = None) -> Call:
    """Begins a one-shot write, whose commit does not wait for the disk itself."""
    body = {"lease": {"resource": sku.resource, "wait_ms": 5_000}, "operations": [sku.sell()]}
    return stack.api(gateway).begin("POST", "/v1/writes", body, {"Idempotency-Key": key} if key else None)


@contextmanager
def flush_suspended(stack: Stack) -> Iterator[Callable[[], None]]:
    """Suspends all flushes while the block lasts, so that asynchronous commits stay off the disk;
    yields a function that resumes them."""
    pids = [pid for (pid,) in stack.query(FLUSHERS)]
    assert len(pids) > 1
    resume = lambda: [os.kill(pid, signal.SIGCONT) for pid in pids if Path(f"/proc/{pid}").exists()]  # noqa: E731
    processes.signal_all(pids, signal.SIGSTOP)
    try:
        yield resume
    finally:
        resume()


def commit_off_disk(stack: Stack, sku: Sku, token: int) -> None:
    """Commits a write by direct SQL with synchronous_commit off, as a gateway's batches do: visible,
    in the history, and not on disk yet."""
    connection = stack.sql()
    try:
        connection.autocommit = False
        with connection.cursor() as cursor:
            cursor.execute("set local synchronous_commit = off; select fencing.enter(%s, %s)", (sku.resource, token))
            cursor.execute("update inventory set stock = stock - 1 where sku = %s", (sku.name,))
        connection.commit()
    finally:
        connection.close()


def is_on_disk(stack: Stack, position: str) -> bool:
    """Returns whether the WAL up to this position is on disk."""
    return stack.query("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (position,))[0][0]


def wait_until_log_is_flushed(stack: Stack) -> None:
    """Waits until no lease event is being recorded any more: its commit would flush all earlier ones."""
    seen: list[object] = []

    def quiet() -> bool:
        seen.append(stack.query("select max(id), pg_current_wal_insert_lsn() from fencing.history"))
        return len(seen) > 3 and seen[-1] == seen[-4] and stack.query(PENDING) == [(False,)]

    eventually(quiet, interval=0.1, goal="the WAL is quiet and flushed")


def read_row(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}")


def read_fenced(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}", headers={"Fencing-Lease": lease["lease_id"]})


def read_function(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/rpc/stock_now?sku={sku.name}")


def read_page(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/history?resource={sku.resource}")


def read_export(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/history?resource={sku.resource}", headers={"Accept": "text/csv"})


def read_summary(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/history/summary?resource_prefix={sku.resource}")


def read_resource(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/resources/{sku.resource.replace('/', '%2F')}")


def read_token(api: Api, sku: Sku, lease: dict) -> Call:
    return api.begin("GET", f"/v1/resources/{sku.resource.replace('/', '%2F')}?fencing_token={lease['fencing_token']}")


READS = [read_row, read_fenced, read_function, read_page, read_export, read_summary, read_resource, read_token]


@pytest.mark.parametrize("read", READS)
def test_read_of_unflushed_snapshot_waits(
    pair: Stack, unique_name: Callable[[str], str], read: Callable[..., Call]
) -> None:
    sku, api = create_sku(pair, unique_name("waits")), pair.api()
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    before = read(api, sku, lease).answer()
    assert eventually(
        lambda: waits_for_flush(pair, sku, lease, read, before), 60, goal="a commit that nothing else flushes meanwhile"
    )


def waits_for_flush(stack: Stack, sku: Sku, lease: dict, read: Callable[..., Call], before: Answer) -> bool:
    """Checks that the read waits for the flush. Returns False if PostgreSQL flushed the commit by itself,
    so that nothing was checked."""
    wait_until_log_is_flushed(stack)
    with flush_suspended(stack) as resume:
        commit_off_disk(stack, sku, lease["fencing_token"])
        ((committed,),) = stack.query("select pg_current_wal_insert_lsn()")
        pending_read = read(stack.api(), sku, lease)
        pause(SETTLE_SECONDS, "time for an answer that must not arrive")
        reported = pending_read.received
        if is_on_disk(stack, committed):
            resume()  # the read may wait for a flush that it asked for before
            pending_read.answer()
            return False
        if reported is not None:
            pytest.fail(f"answered with what a crash could lose: {reported}")
        resume()
        answer = pending_read.answer()
    if answer.status != 200 or answer.body == before.body:
        pytest.fail(f"the committed row must be in the answer once it is on disk: {answer}")
    return True


@pytest.mark.parametrize("read", [read for read in READS if read is not read_fenced])
def test_read_with_nothing_pending_waits_for_no_flush(
    pair: Stack, unique_name: Callable[[str], str], read: Callable[..., Call]
) -> None:
    sku, api = create_sku(pair, unique_name("idle")), pair.api()
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    read(api, sku, lease).answer()
    wait_until_log_is_flushed(pair)
    with flush_suspended(pair):
        assert read(api, sku, lease).answer(5).status == 200


@pytest.mark.parametrize("then", ["own lease", "release"])
def test_repeat_at_another_gateway_waits_for_flush(pair: Stack, unique_name: Callable[[str], str], then: str) -> None:
    sku, key = create_sku(pair, unique_name("kept")), unique_name("key")
    body = {"lease": {"resource": sku.resource, "wait_ms": 5_000}, "operations": [sku.sell()]}
    if then == "release":
        body = {
            "lease_id": pair.api().must_acquire(sku.resource)["lease_id"],
            "operations": [sku.sell()],
            "then": "release",
        }
    wait_until_log_is_flushed(pair)
    with flush_suspended(pair) as resume:
        first = pair.api(0).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
        eventually(lambda: sku.stock() == 9, 5, goal="it is committed")
        repeat = pair.api(1).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
        pause(SETTLE_SECONDS, "time for an answer that must not arrive")
        reported = repeat.received, first.received
        if pair.query(PENDING) == [(True,)]:
            assert reported == (None, None), f"answered with what a crash could lose: {reported}"
        else:
            assert then == "own lease", "the events of its own lease may have flushed it"
        resume()
        answers = [first.answer(), repeat.answer()]
    assert [answer.status for answer in answers] == [200, 200] and answers[0].body == answers[1].body
    assert answers[1].headers["Idempotency-Replayed"] == "true" and sku.stock() == 9


def test_seal_on_unflushed_fence_is_answered_after_flush(pair: Stack, unique_name: Callable[[str], str]) -> None:
    """The fence was raised by another, unflushed transaction."""
    sku, api = create_sku(pair, unique_name("seal")), pair.api()
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    wait_until_log_is_flushed(pair)
    with flush_suspended(pair):
        for further in range(1, 21):  # until a commit is not flushed by something else
            commit_off_disk(pair, sku, lease["fencing_token"] + further)
            ((committed,),) = pair.query("select pg_current_wal_insert_lsn()")
            if not is_on_disk(pair, committed):
                break
        assert not is_on_disk(pair, committed)
        assert api.call("DELETE", f"{lease_path(lease)}?seal=true").status == 204
        assert is_on_disk(pair, committed)


def crash_postgresql(stack: Stack) -> None:
    """Crashes PostgreSQL by killing a backend, as test_commit_flush does;
    unwritten WAL is lost although processes are suspended."""
    stopped = [pid for (pid,) in stack.query(FLUSHERS)]
    ((victim,),) = stack.query(
        "select pid from pg_stat_activity where application_name = 'fencegate' "
        "and query not like '%pg_logical_emit_message%' limit 1"
    )
    os.kill(victim, signal.SIGKILL)

    def has_pending_sigquit(pid: int) -> bool:
        pending = re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return pending is not None and bool(int(pending.group(1), 16) >> (signal.SIGQUIT - 1) & 1)

    eventually(lambda: all(has_pending_sigquit(pid) for pid in stopped), goal="the postmaster has sent SIGQUIT to all")


@pytest.mark.parametrize("read", [read_row, read_fenced, read_page])
def test_read_before_crash_shows_nothing_that_is_lost(
    own_stack: Stack, unique_name: Callable[[str], str], read: Callable[..., Call]
) -> None:
    begin_one_shot(own_stack, create_sku(own_stack, unique_name("warm"))).answer()
    assert eventually(
        lambda: read_shows_nothing_lost(own_stack, create_sku(own_stack, unique_name("crash")), read),
        120,
        goal="a crash that loses a commit",
    )


def read_shows_nothing_lost(stack: Stack, sku: Sku, read: Callable[..., Call]) -> bool:
    """Checks that a read before a crash shows nothing that is lost. Returns False if the crash lost nothing."""
    api = stack.api()
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    read(api, sku, lease).answer()
    wait_until_log_is_flushed(stack)
    pids = [pid for (pid,) in stack.query(FLUSHERS)]
    processes.signal_all(pids, signal.SIGSTOP)
    try:
        commit_off_disk(stack, sku, lease["fencing_token"])
        pending_read = read(api, sku, lease)
        pause(SETTLE_SECONDS, "time for an answer that must not arrive")
        crash_postgresql(stack)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    answer = pending_read.answer()
    eventually(lambda: stack.api().get("/readyz").status == 200, 20, goal="PostgreSQL is back")
    if sku.stock() != 10:
        return False
    if answer.status == 200:
        if answer.body != read(api, sku, lease).answer().body:
            pytest.fail(f"answered with what is lost: {answer}")
    elif answer.status != 503 or "outcome_unknown" in answer.json():
        pytest.fail(str(answer))
    return True


@contextmanager
def settings_of(stack: Stack, **settings: str) -> Iterator[None]:
    def apply(statement: str) -> None:
        for name, value in settings.items():
            stack.query(statement.format(name=name, value=value))
        stack.query("select pg_reload_conf()")

    apply("alter system set {name} = '{value}'")
    try:
        for name, value in settings.items():
            eventually(
                lambda name=name, value=value: stack.query(f"show {name}") == [(value,)], 5, goal=f"{name} is set"
            )
        yield
    finally:
        apply("alter system reset {name}")


def test_read_without_synchronous_standby_503_by_deadline(pair: Stack, unique_name: Callable[[str], str]) -> None:
    sku, api = create_sku(pair, unique_name("standby")), pair.api()
    lease = api.must_acquire(sku.resource, ttl_ms=60_000)
    wait_until_log_is_flushed(pair)
    with settings_of(pair, synchronous_standby_names="nobody"):
        commit_off_disk(pair, sku, lease["fencing_token"])
        began = time.monotonic()
        answer = api.get("/v1/tables/inventory", sku=f"eq.{sku.name}")
        assert answer.status == 503 and time.monotonic() - began < 12, answer
    eventually(
        lambda: api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200, goal="reads are answered again"
    )


def test_lease_with_a_seal_of_unknown_outcome_takes_no_hold(pair: Stack, unique_name: Callable[[str], str]) -> None:
    """The token may be sealed: writes of a further hold would be refused."""
    api, name = pair.api(), unique_name("sealed")
    lease = api.must_acquire(name, owner="same", ttl_ms=60_000)
    with settings_of(pair, synchronous_standby_names="nobody"):
        answer = api.call("DELETE", lease_path(lease) + "?seal=true")
    assert expect_problem(answer, 503, "storage-unavailable")["outcome_unknown"] is True
    sealed = [(lease["fencing_token"] + 1,)]
    eventually(lambda: pair.query("select fencing.fence(%s)", (name,)) == sealed, goal="the commit no longer waits")
    for member in (pair.api(0), pair.api(1)):
        expect_problem(member.acquire(name, owner="same", ttl_ms=60_000), 423, "resource-locked")


def test_read_confirmed_by_standbys_waits_for_no_flush(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    """With synchronous_commit = local commits do not wait for standbys,
    but the gateway still requires their confirmation.
    One gateway only: the flush of another one is a transaction too."""
    sku, api = create_sku(own_stack, unique_name("proven")), own_stack.api()
    wait_until_log_is_flushed(own_stack)
    with settings_of(own_stack, synchronous_commit="local", synchronous_standby_names="nobody"):
        assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200
        wait_until_log_is_flushed(own_stack)
        assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200
        with flush_suspended(own_stack):
            assert api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}").answer(5).status == 200
            commit_off_disk(own_stack, sku, 2)
            pending_read = api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}")
            pause(SETTLE_SECONDS, "time for an answer that must not arrive")
            assert pending_read.received is None, "a later transaction is visible that is not confirmed"
        assert pending_read.answer().json()[0]["stock"] == 9
