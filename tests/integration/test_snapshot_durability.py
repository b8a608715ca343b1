"""No answer tells of what a crash of PostgreSQL can still take back: reads wait until all that their snapshot shows is on disk."""

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
from support.api import Answer, Api, Call, lease_path
from support.polling import eventually, let_pass
from support.shop import Sku, stock_up
from support.stack import Stack, running

FLUSHERS = ("select pid from pg_stat_activity where backend_type = 'walwriter' "
            "or (application_name = 'fencegate' and query like '%pg_logical_emit_message%')")
PENDING = "select pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()"
NOTHING_COMES = 0.5


@pytest.fixture(scope="module")
def two() -> Iterator[Stack]:
    """Two gateways, each of which has flushed once, so that its connection for it is known."""
    with running("--gateways", "2") as made:
        for gateway in (0, 1):
            write_once(made, stock_up(made, f"warm-{gateway}"), gateway)
        eventually(lambda: len(made.query(FLUSHERS)) == 3, 10, what="both gateways have flushed")
        made.query("create function stock_now(sku text) returns integer language sql stable as "
                   "'select stock from public.inventory i where i.sku = stock_now.sku'; select fencing.expose_function('stock_now(text)')")
        eventually(lambda: made.api().get("/v1/rpc/stock_now", sku="warm-0").status == 200, 10, what="the gateway knows the function")
        yield made


def write_once(stack: Stack, sku: Sku, gateway: int = 0, key: str | None = None) -> Call:
    """A job in one call: its commit leaves the wait for the disk to the flush."""
    body = {"lease": {"resource": sku.resource, "wait_ms": 5_000}, "operations": [sku.sell()]}
    return stack.api(gateway).begin("POST", "/v1/writes", body, {"Idempotency-Key": key} if key else None)


@contextmanager
def nobody_flushing(stack: Stack) -> Iterator[Callable[[], None]]:
    """What was committed without a wait for the disk stays off it. Gives what ends that."""
    pids = [pid for (pid,) in stack.query(FLUSHERS)]
    assert len(pids) > 1
    resume = lambda: [os.kill(pid, signal.SIGCONT) for pid in pids if Path(f"/proc/{pid}").exists()]  # noqa: E731
    processes.signal_all(pids, signal.SIGSTOP)
    try:
        yield resume
    finally:
        resume()


def commit_off_disk(stack: Stack, sku: Sku, token: int) -> None:
    """By direct SQL, as a gateway's shared transactions do: visible, with its rows of the history, and not on disk yet."""
    connection = stack.sql()
    try:
        connection.autocommit = False
        with connection.cursor() as cursor:
            cursor.execute("set local synchronous_commit = off; select fencing.enter(%s, %s)", (sku.resource, token))
            cursor.execute("update inventory set stock = stock - 1 where sku = %s", (sku.name,))
        connection.commit()
    finally:
        connection.close()


def on_disk(stack: Stack, position: str) -> bool:
    """Whether all that the log has before this position is on the disk."""
    return stack.query("select pg_current_wal_flush_lsn() >= %s::pg_lsn", (position,))[0][0]


def settle(stack: Stack) -> None:
    """Until no event of a lease is on its way to the history any more: its commit would bring everything to the disk."""
    seen: list[object] = []

    def quiet() -> bool:
        seen.append(stack.query("select max(id), pg_current_wal_insert_lsn() from fencing.history"))
        return len(seen) > 3 and seen[-1] == seen[-4] and stack.query(PENDING) == [(False,)]

    eventually(quiet, 10, every=0.1, what="nothing is on its way to the log")


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
def test_read_when_its_snapshot_is_off_disk_then_it_waits(two: Stack, fresh: Callable[[str], str], read: Callable[..., Call]) -> None:
    sku, api = stock_up(two, fresh("waits")), two.api()
    lease = api.take(sku.resource, ttl_ms=60_000)
    before = read(api, sku, lease).answer()
    assert eventually(lambda: waits_for_the_disk(two, sku, lease, read, before), 60, what="a commit that nothing else brings to the disk meanwhile")


def waits_for_the_disk(stack: Stack, sku: Sku, lease: dict, read: Callable[..., Call], before: Answer) -> bool:
    """False where something else has brought the commit to the disk: PostgreSQL's own work may do that at any time, and then nothing is proven."""
    settle(stack)
    with nobody_flushing(stack) as resume:
        commit_off_disk(stack, sku, lease["fencing_token"])
        ((committed,),) = stack.query("select pg_current_wal_insert_lsn()")
        under_way = read(stack.api(), sku, lease)
        let_pass(NOTHING_COMES, "an answer that must not come is given time to come")
        told = under_way.got
        if on_disk(stack, committed):
            under_way.answer()
            return False
        if told is not None:
            pytest.fail(f"told of what a crash takes back: {told}")
        resume()
        answer = under_way.answer()
    if answer.status != 200 or answer.body == before.body:
        pytest.fail(f"what was committed is told once it is on disk: {answer}")
    return True


@pytest.mark.parametrize("read", [read for read in READS if read is not read_fenced])
def test_read_when_nothing_is_pending_then_no_flush_is_waited_for(two: Stack, fresh: Callable[[str], str], read: Callable[..., Call]) -> None:
    sku, api = stock_up(two, fresh("idle")), two.api()
    lease = api.take(sku.resource, ttl_ms=60_000)
    read(api, sku, lease).answer()
    settle(two)
    with nobody_flushing(two):
        assert read(api, sku, lease).answer(5).status == 200


@pytest.mark.parametrize("then", ["own lease", "release"])
def test_repeat_elsewhere_when_outcome_is_off_disk_then_it_waits(two: Stack, fresh: Callable[[str], str], then: str) -> None:
    sku, key = stock_up(two, fresh("kept")), fresh("key")
    body = {"lease": {"resource": sku.resource, "wait_ms": 5_000}, "operations": [sku.sell()]}
    if then == "release":
        body = {"lease_id": two.api().take(sku.resource)["lease_id"], "operations": [sku.sell()], "then": "release"}
    settle(two)
    with nobody_flushing(two) as resume:
        first = two.api(0).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
        eventually(lambda: sku.stock() == 9, 5, what="it is committed")
        repeat = two.api(1).begin("POST", "/v1/writes", body, {"Idempotency-Key": key})
        let_pass(NOTHING_COMES, "an answer that must not come is given time to come")
        told = repeat.got, first.got
        if two.query(PENDING) == [(True,)]:
            assert told == (None, None), f"told of what a crash takes back: {told}"
        else:
            assert then == "own lease", "the events of its own lease may have brought it to the disk"
        resume()
        answers = [first.answer(), repeat.answer()]
    assert [answer.status for answer in answers] == [200, 200] and answers[0].body == answers[1].body
    assert answers[1].headers["Idempotency-Replayed"] == "true" and sku.stock() == 9


def test_seal_when_the_fence_is_off_disk_then_answered_behind_it(two: Stack, fresh: Callable[[str], str]) -> None:
    """A fence that somebody else has raised already."""
    sku, api = stock_up(two, fresh("seal")), two.api()
    lease = api.take(sku.resource, ttl_ms=60_000)
    settle(two)
    with nobody_flushing(two):
        for further in range(1, 21):  # until nothing else has brought it to the disk
            commit_off_disk(two, sku, lease["fencing_token"] + further)
            ((committed,),) = two.query("select pg_current_wal_insert_lsn()")
            if not on_disk(two, committed):
                break
        assert not on_disk(two, committed)
        assert api.call("DELETE", f"{lease_path(lease)}?seal=true").status == 204
        assert on_disk(two, committed)


def crash(stack: Stack) -> None:
    """As in test_commit_flush: what was not written of the log is lost with PostgreSQL's memory, though processes are stopped."""
    stopped = [pid for (pid,) in stack.query(FLUSHERS)]
    ((victim,),) = stack.query("select pid from pg_stat_activity where application_name = 'fencegate' and query not like '%pg_logical_emit_message%' limit 1")
    os.kill(victim, signal.SIGKILL)

    def told_to_quit(pid: int) -> bool:
        pending = re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return pending is not None and bool(int(pending.group(1), 16) >> (signal.SIGQUIT - 1) & 1)

    eventually(lambda: all(told_to_quit(pid) for pid in stopped), 10, what="the postmaster tells everybody to quit")


@pytest.mark.parametrize("read", [read_row, read_fenced, read_page])
def test_read_when_the_server_crashes_then_nothing_lost_was_told(own_stack: Stack, fresh: Callable[[str], str], read: Callable[..., Call]) -> None:
    write_once(own_stack, stock_up(own_stack, fresh("warm"))).answer()
    assert eventually(lambda: told_nothing_that_the_crash_took(own_stack, stock_up(own_stack, fresh("crash")), read), 120, what="a crash that loses a commit")


def told_nothing_that_the_crash_took(stack: Stack, sku: Sku, read: Callable[..., Call]) -> bool:
    """False where something else had brought the commit to the disk, and the crash took nothing."""
    api = stack.api()
    lease = api.take(sku.resource, ttl_ms=60_000)
    read(api, sku, lease).answer()
    settle(stack)
    pids = [pid for (pid,) in stack.query(FLUSHERS)]
    processes.signal_all(pids, signal.SIGSTOP)
    try:
        commit_off_disk(stack, sku, lease["fencing_token"])
        under_way = read(api, sku, lease)
        let_pass(NOTHING_COMES, "an answer that must not come is given time to come")
        crash(stack)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    answer = under_way.answer()
    eventually(lambda: stack.api().get("/readyz").status == 200, 20, what="PostgreSQL is back")
    if sku.stock() != 10:
        return False
    if answer.status == 200:
        if answer.body != read(api, sku, lease).answer().body:
            pytest.fail(f"told of what is gone: {answer}")
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
            eventually(lambda name=name, value=value: stack.query(f"show {name}") == [(value,)], 5, what=f"{name} is set")
        yield
    finally:
        apply("alter system reset {name}")


def test_read_when_no_standby_has_it_then_503_by_its_deadline(two: Stack, fresh: Callable[[str], str]) -> None:
    sku, api = stock_up(two, fresh("standby")), two.api()
    lease = api.take(sku.resource, ttl_ms=60_000)
    settle(two)
    with settings_of(two, synchronous_standby_names="nobody"):
        commit_off_disk(two, sku, lease["fencing_token"])
        began = time.monotonic()
        answer = api.get("/v1/tables/inventory", sku=f"eq.{sku.name}")
        assert answer.status == 503 and time.monotonic() - began < 12, answer
    eventually(lambda: api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200, 10, what="reads are answered again")


def test_read_when_standbys_have_all_of_it_then_no_flush_is_waited_for(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    """synchronous_commit = local: a commit is as good as confirmed, but the gateway goes by the names of the standbys. One gateway: the
    commits by which another makes sure are transactions too."""
    sku, api = stock_up(own_stack, fresh("proven")), own_stack.api()
    settle(own_stack)
    with settings_of(own_stack, synchronous_commit="local", synchronous_standby_names="nobody"):
        assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200
        settle(own_stack)
        assert api.get("/v1/tables/inventory", sku=f"eq.{sku.name}").status == 200
        with nobody_flushing(own_stack):
            assert api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}").answer(5).status == 200
            commit_off_disk(own_stack, sku, 2)
            under_way = api.begin("GET", f"/v1/tables/inventory?sku=eq.{sku.name}")
            let_pass(NOTHING_COMES, "an answer that must not come is given time to come")
            assert under_way.got is None, "a later transaction is visible, which nobody has confirmed"
        assert under_way.answer().json()[0]["stock"] == 9
