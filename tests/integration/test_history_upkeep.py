"""The partitions of the history: created ahead, dropped by age, without blocking writes."""

from __future__ import annotations

import threading
import time

import psycopg2
import pytest
from support.cluster import Cluster
from support.polling import eventually

PARTITIONS = "select count(*) from pg_inherits where inhparent = 'fencing.history'::regclass"
WRITE = "select fencing.begin_write(array[%s], 7, gen_random_uuid(), 'o', 'p', null, null)"
OLD = """select fencing.make_history_partition(now() - n * interval '7 days') from generate_series(4, 9) as t (n);
         insert into fencing.history (at, event) select now() - n * interval '1 day', 'lease_granted'
           from generate_series(0, 62) as t (n)"""

DROP_ONE_AHEAD = (
    "do $$ begin execute 'drop table fencing.history_' || to_char(date_trunc('week', now() + interval '49 days', "
    "'UTC') at time zone 'UTC', 'YYYYMMDD'); end $$"
)


@pytest.fixture
def query(cluster: Cluster):  # type: ignore[no-untyped-def]
    return lambda statement, arguments=(): cluster.query(statement, arguments)


def test_partitions_are_made_ahead_and_dropped_during_writes(  # type: ignore[no-untyped-def]
    cluster: Cluster, query
) -> None:
    query(OLD)
    query(DROP_ONE_AHEAD)
    written, stop = [0], threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        connection = cluster.sql()
        with connection.cursor() as cursor:
            cursor.execute("set lock_timeout = '1s'")  # of the time of a write, only waiting for a lock counts
            while not stop.is_set():
                try:
                    cursor.execute(WRITE, ("upkeep/1",))
                except psycopg2.errors.LockNotAvailable as blocked:
                    failures.append(blocked)
                    break
                written[0] += 1
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    settings = cluster.settings()
    settings["history"] = {"keep_days": 30}
    gateway = cluster.start_gateway(settings)
    try:
        eventually(
            lambda: query("select not exists (select from fencing.history where at < now() - interval '38 days')")
            == [(True,)],
            120,
            goal="old ones are gone",
        )
        eventually(
            lambda: query(
                "select to_regclass('fencing.history_' || to_char(date_trunc('week', now() + interval '49 days', "
                "'UTC') at time zone 'UTC', 'YYYYMMDD')) is not null"
            )
            == [(True,)],
            goal="the missing one is made",
        )
    finally:
        stop.set()
        writer.join()
        gateway.kill()
    assert (
        query("select count(*) from fencing.history where event = 'lease_granted' and at > now() - interval '29 days'")[
            0
        ][0]
        >= 29
    ), "the rest is kept"
    assert not failures and written[0] > 10, (failures, written)


def test_partition_missing_refuses_no_write_and_rows_move_later(query) -> None:  # type: ignore[no-untyped-def]
    query(
        "drop table fencing.history_"
        + query("select to_char(date_trunc('week', now(), 'UTC') at time zone 'UTC', 'YYYYMMDD')")[0][0]
    )
    query(WRITE, ("upkeep/2",))
    assert query("select resource from fencing.history_default where resource = 'upkeep/2'") == [("upkeep/2",)]
    assert query("select made from fencing.keep_history(0)")[0][0] >= 1
    assert query("select count(*) from fencing.history_default") == [(0,)]
    assert query("select resource from fencing.history where resource = 'upkeep/2'") == [("upkeep/2",)]


def test_partition_in_use_is_dropped_later_without_blocking(  # type: ignore[no-untyped-def]
    cluster: Cluster, query
) -> None:
    query(OLD)
    reader = cluster.sql()
    reader.autocommit = False
    query("select fencing.keep_history(0)")  # creates the partitions that are missing
    reader.cursor().execute("select count(*) from fencing.history")
    before = query(PARTITIONS)
    began = time.monotonic()
    ((dropped, remaining),) = query("select dropped, remaining from fencing.keep_history(30)")
    assert time.monotonic() - began < 5.0
    assert dropped == 0 and remaining >= 1 and query(PARTITIONS) == before
    reader.rollback()
    reader.close()
    ((dropped, remaining),) = query("select dropped, remaining from fencing.keep_history(30)")
    assert dropped == 1 and remaining >= 1


def test_a_call_that_creates_partitions_drops_none(query) -> None:  # type: ignore[no-untyped-def]
    """A created partition is locked before the history, a drop locks the history first:
    both in one transaction can deadlock with a reader."""
    query(OLD)
    query(DROP_ONE_AHEAD)
    ((made, dropped, remaining),) = query("select made, dropped, remaining from fencing.keep_history(30)")
    assert made >= 1 and dropped == 0 and remaining >= 1
    assert query("select made, dropped, remaining from fencing.keep_history(30)") == [(0, 1, remaining - 1)]


def test_rotation_locks_the_history_before_its_partitions(  # type: ignore[no-untyped-def]
    cluster: Cluster, query
) -> None:
    query(OLD)
    query(DROP_ONE_AHEAD)
    reader = cluster.sql()
    reader.autocommit = False
    reader.cursor().execute("set deadlock_timeout = '10ms'; lock table only fencing.history in access share mode")
    rotation = threading.Thread(target=lambda: query("select fencing.rotate_history('30 days')"))
    rotation.start()
    waits = "select exists (select from pg_locks l where not l.granted and l.relation = 'fencing.history'::regclass)"
    eventually(lambda: query(waits) == [(True,)], goal="the rotation waits for the reader")
    reader.cursor().execute("select count(*) from fencing.history")
    reader.rollback()
    reader.close()
    rotation.join()
    assert query("select not exists (select from fencing.history where at < now() - interval '38 days')") == [(True,)]


@pytest.mark.parametrize("days", [1, 6, -1])
def test_upkeep_of_less_than_a_week_is_refused(query, days: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        query("select fencing.keep_history(%s)", (days,))
