"""An installation on a running system waits for no writer, and no writer waits for it."""
import time
import uuid

import psycopg2
import pytest
from test_catalogue import SCHEMA_FILES, rows


def begin_write(cursor, resource, token=5):
    cursor.execute(
        "select accepted from fencing.begin_write(%s, %s, %s, 'o', 'p', 't', null)",
        ([resource], token, str(uuid.uuid4())),
    )
    assert cursor.fetchone() == (True,)


def run_usual_statements(cursor):
    """Runs the usual statements: a write of a gateway, one of an application, events, reads."""
    begin_write(cursor, "inventory/sku-1")
    cursor.execute("update inventory set stock = stock - 1 where sku = 'sku-1'")
    cursor.execute("select set_config('fencing.write_id', '', true), fencing.enter('inventory/sku-2', 5)")
    cursor.execute("update inventory set stock = stock - 1 where sku = 'sku-2'")
    cursor.execute(
        "select fencing.append_events(%s, 1, null, '{lease_granted}', null, null, null, null, null, null, null, null)",
        (str(uuid.uuid4()),),
    )
    cursor.execute("select count(*) from fencing.history")
    cursor.execute("select fencing.fence('inventory/sku-1'), fencing.schema_version()")
    cursor.execute("select * from fencing.raise_fences('{inventory/sku-3}', 5, null, null, null, 'test')")


def install(cursor):
    for file in SCHEMA_FILES:
        cursor.execute("set local lock_timeout = '500ms'")
        try:
            cursor.execute(file.read_text())
        except psycopg2.errors.LockNotAvailable as error:
            pytest.fail(f"{file.name} waits: {error}")


def test_install_does_not_wait_for_open_write_transactions(server, database):
    writer, installer = server.connect(database, autocommit=False), server.connect(database, autocommit=False)
    with writer.cursor() as cursor, installer.cursor() as installing:
        run_usual_statements(cursor)
        install(installing)
        installer.commit()
        run_usual_statements(cursor)
        writer.commit()
    writer.close()
    installer.close()


def test_writers_do_not_wait_for_an_open_installation(server, database):
    writer, installer = server.connect(database, autocommit=False), server.connect(database, autocommit=False)
    with writer.cursor() as cursor, installer.cursor() as installing:
        install(installing)
        for attempt in range(2):
            cursor.execute("set local lock_timeout = '500ms'")
            run_usual_statements(cursor)
            writer.commit()
        installer.commit()
        run_usual_statements(cursor)
        writer.commit()
    writer.close()
    installer.close()


def test_writers_do_not_wait_for_a_new_history_partition(server, database):
    """Only readers of the whole history wait, because attaching a partition locks the default one."""
    owner = server.connect(database)
    with owner.cursor() as cursor:
        cursor.execute(
            "select max(relid::regclass::text) from pg_partition_tree('fencing.history') "
            "where relid::regclass::text ~ '[0-9]$'"
        )
        last = cursor.fetchone()[0]
        cursor.execute(f"drop table {last}")
    writer, installer = server.connect(database, autocommit=False), server.connect(database, autocommit=False)
    with writer.cursor() as cursor, installer.cursor() as installing:
        begin_write(cursor, "inventory/sku-1")
        install(installing)
        writer.commit()
        cursor.execute("set local lock_timeout = '500ms'")
        begin_write(cursor, "inventory/sku-1")
        cursor.execute("update inventory set stock = stock - 1 where sku = 'sku-1'")
        writer.commit()
        installer.commit()
    assert rows(server, database, f"select to_regclass('{last}') is not null") == [(True,)]
    for connection in (writer, installer, owner):
        connection.close()


def test_install_repeated_locks_tables_only_as_comment_does(server, database):
    """COMMENT takes ShareUpdateExclusive, which blocks second_cursor installations, but neither readers nor writers.
    Only the view is replaced."""
    installer = server.connect(database, autocommit=False)
    with installer.cursor() as cursor:
        install(cursor)
        cursor.execute(
            """select l.mode, l.relation::regclass::text from pg_locks l join pg_class c on c.oid = l.relation
                           where l.pid = pg_backend_pid() and c.relnamespace = 'fencing'::regnamespace
                             and c.oid <> 'fencing.api_catalog'::regclass
                             and l.mode in ('ShareLock', 'ShareRowExclusiveLock',
                                 'ExclusiveLock', 'AccessExclusiveLock')"""
        )
        assert cursor.fetchall() == []
    installer.rollback()
    installer.close()


RECORDED = """
    create table busy (id integer primary key, v text) partition by list (id);
    create table stale (id integer primary key, v text);
    create table broken (id integer primary key, v text);
    select fencing.protect(t, $$'resource/' || id::text$$, 'observe'), fencing.record_changes(t)
      from unnest('{busy,broken,stale}'::regclass[]) as t;
    do $$ declare name name; begin
      for name in select evtname from pg_event_trigger where evtname ~ '^fencing_' loop
        execute format('alter event trigger %I disable', name);
      end loop;
    end $$;
    create table busy_1 partition of busy for values in (1);
    alter table stale add later text;
    alter table broken add later text;
    create function fencing.record_0_x() returns integer language sql as 'select 1';
    update fencing.recorded_table set find_function = 'record_0_x' where relation = 'broken'::regclass;
"""


def test_install_renews_recorders_that_it_can(server, database):
    owner, writer = server.connect(database), server.connect(database, autocommit=False)
    installer = server.connect(database, autocommit=False)
    with owner.cursor() as cursor, writer.cursor() as writing, installer.cursor() as installing:
        cursor.execute(RECORDED)
        writing.execute("insert into busy_1 values (1, 'v')")
        install(installing)
        installer.commit()
        writer.commit()
        cursor.execute("insert into stale values (1, 'v', 'later')")
        cursor.execute("select new ->> 'later' from fencing.row_change where relation = 'public.stale'")
        assert cursor.fetchone() == ("later",)
        faults = " ".join(fault for (fault,) in rows(server, database, "select fencing.guard_faults()"))
        assert "public.busy_1: the trigger fencing_record_truncate is missing" in faults
        assert "public.broken: the function fencing.record_0_x()" in faults and "public.stale" not in faults
        cursor.execute("select fencing.complete_partitions()")
        assert not [fault for (fault,) in rows(server, database, "select fencing.guard_faults()") if "busy" in fault]
    for connection in (owner, writer, installer):
        connection.close()


def test_install_concurrent_waits_for_the_first(server, database):
    first, second = server.connect(database, autocommit=False), server.connect(database, autocommit=False)
    with first.cursor() as cursor, second.cursor() as second_cursor:
        install(cursor)
        second_cursor.execute("set local lock_timeout = '50ms'")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            second_cursor.execute(SCHEMA_FILES[0].read_text())
        second.rollback()
        first.commit()
        began = time.monotonic()
        install(second_cursor)
        second.commit()
        assert time.monotonic() - began < 20
    assert rows(server, database, "select count(*) from fencing.schema_version") == [(1,)]
    first.close()
    second.close()
