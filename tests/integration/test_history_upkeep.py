"""The history's partitions: made ahead, dropped by age, and never in the way of a write."""

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
         insert into fencing.history (at, event) select now() - n * interval '1 day', 'lease_granted' from generate_series(0, 62) as t (n)"""


@pytest.fixture
def query(cluster: Cluster):  # type: ignore[no-untyped-def]
    return lambda statement, arguments=(): cluster.stack.query(statement, arguments, dbname=cluster.database)


def test_partitions_when_a_gateway_runs_then_made_ahead_and_old_ones_dropped_while_writes_go_on(cluster: Cluster, query) -> None:  # type: ignore[no-untyped-def]
    query(OLD)
    query("drop table fencing.history_" + query("select to_char(date_trunc('week', now() + interval '49 days', 'UTC') at time zone 'UTC', 'YYYYMMDD')")[0][0])
    slowest, stop = [0.0], threading.Event()

    def write() -> None:
        connection = cluster.stack.sql(dbname=cluster.database)
        with connection.cursor() as cursor:
            while not stop.is_set():
                began = time.monotonic()
                cursor.execute(WRITE, ("upkeep/1",))
                slowest[0] = max(slowest[0], time.monotonic() - began)
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    settings = cluster.settings()
    settings["history"] = {"keep_days": 30}
    gateway = cluster.gateway(settings)
    gateway.start()
    try:
        eventually(lambda: query("select not exists (select from fencing.history where at < now() - interval '38 days')") == [(True,)], 120, what="old ones are gone")
        eventually(lambda: query("select to_regclass('fencing.history_' || to_char(date_trunc('week', now() + interval '49 days', 'UTC') at time zone 'UTC', 'YYYYMMDD')) is not null")
                   == [(True,)], 10, what="the missing one is made")
    finally:
        stop.set()
        writer.join()
        gateway.kill()
    assert query("select count(*) from fencing.history where event = 'lease_granted' and at > now() - interval '29 days'")[0][0] >= 29, "the rest is kept"
    assert slowest[0] < 1.0


def test_partition_when_it_is_missing_then_no_write_is_refused_and_its_rows_are_moved_on(query) -> None:  # type: ignore[no-untyped-def]
    query("drop table fencing.history_" + query("select to_char(date_trunc('week', now(), 'UTC') at time zone 'UTC', 'YYYYMMDD')")[0][0])
    query(WRITE, ("upkeep/2",))
    assert query("select resource from fencing.history_default where resource = 'upkeep/2'") == [("upkeep/2",)]
    assert query("select made from fencing.keep_history(0)")[0][0] >= 1
    assert query("select count(*) from fencing.history_default") == [(0,)]
    assert query("select resource from fencing.history where resource = 'upkeep/2'") == [("upkeep/2",)]


def test_partition_when_somebody_reads_it_then_it_is_left_for_later_and_writes_wait_a_moment_at_most(cluster: Cluster, query) -> None:  # type: ignore[no-untyped-def]
    query(OLD)
    reader = cluster.stack.sql(dbname=cluster.database)
    reader.autocommit = False
    query("select fencing.keep_history(0)")  # what is to be made is made
    reader.cursor().execute("select count(*) from fencing.history")
    before = query(PARTITIONS)
    began = time.monotonic()
    ((dropped, remaining),) = query("select dropped, remaining from fencing.keep_history(30)")
    assert time.monotonic() - began < 1.0
    assert dropped == 0 and remaining >= 1 and query(PARTITIONS) == before
    reader.rollback()
    reader.close()
    ((dropped, remaining),) = query("select dropped, remaining from fencing.keep_history(30)")
    assert dropped == 1 and remaining >= 1


@pytest.mark.parametrize("days", [1, 6, -1])
def test_upkeep_when_told_to_keep_less_than_a_week_then_refused(query, days: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        query("select fencing.keep_history(%s)", (days,))
