"""Changes of a protected row that one psql session cannot show: under every setting of PostgreSQL,
and by a subscription's apply worker."""

import re

import psycopg2
import pytest
from sessions import fetch_value
from support.polling import eventually
from test_catalogue import PLAIN_FILES

CHANGE = "update public.inventory set stock = 0 where sku = 'sku-1'"
WAIT_SECONDS_MAX = 30


def values_of(kind, enum, lowest, highest, now):
    if kind == "bool":
        return ["on", "off"]
    if kind == "enum":
        return enum
    if kind == "string":
        return [now, "", "pg_temp", "fencing"]
    return [lowest, highest, "0", "1"]


def test_change_is_refused_under_any_caller_setting(server, database):
    """Whatever the setting does, the change fails and the row stays.
    Includes the guard's own settings and unknown ones."""
    owner, caller = server.connect(database), server.connect(database, "test_app", autocommit=False)
    with owner.cursor() as cursor:
        cursor.execute(
            "select name, vartype, enumvals, min_val, max_val, setting from pg_settings "
            "where context = 'user' order by name"
        )
        settings = [(name, value) for name, *about in cursor.fetchall() for value in values_of(*about)]
    settings += [
        (f"fencing.{name}", value)
        for name in ("write_id", "entered", "mode", "off", "require_proof", "recorder", "gateway")
        for value in ("", "on", "observe", "0", "1", "00000000-0000-0000-0000-000000000001")
    ]
    accepted = 0
    for name, value in settings:
        if caller.closed:  # some settings end the session
            caller = server.connect(database, "test_app", autocommit=False)
        with caller.cursor() as cursor:
            try:
                cursor.execute("set local statement_timeout = '20s'")
                cursor.execute("select set_config(%s, %s, true)", (name, value))
                accepted += 1
            except psycopg2.Error:  # a value that the setting does not accept
                if not caller.closed:
                    caller.rollback()
                continue
            with pytest.raises(psycopg2.Error):
                cursor.execute(CHANGE)
                pytest.fail(f"the change passes with {name} = {value}")
        if not caller.closed:
            caller.rollback()
    assert accepted > 300
    assert fetch_value(owner, "select stock from inventory where sku = 'sku-1'") == 10
    caller.close()
    owner.close()


def test_change_is_refused_under_granted_replication_role(server, database):
    """session_replication_role may be granted from PostgreSQL 15 on."""
    owner = server.connect(database)
    if owner.server_version < 150000:
        pytest.skip("GRANT SET came with PostgreSQL 15")
    owner.cursor().execute("grant set on parameter session_replication_role to test_app")
    caller = server.connect(database, "test_app")
    try:
        for role in ("replica", "local", "origin"):
            caller.cursor().execute(f"set session_replication_role = {role}")
            for statement in (
                CHANGE,
                "delete from inventory",
                "insert into orders values (1, 'sku-1', 1)",
                "truncate order_events",
            ):
                with pytest.raises(psycopg2.Error) as refused:
                    caller.cursor().execute(statement)
                assert refused.value.pgcode in ("FG428", "FG403")
    finally:
        owner.cursor().execute("revoke set on parameter session_replication_role from test_app")
        caller.close()
        owner.close()


@pytest.mark.parametrize("installed", [True, False], ids=["as_it_is", "without_the_setting"])
def test_plpgsql_extra_errors_refuses_no_covered_change(server, database, installed):
    """plpgsql.extra_errors = all raises errors of its own where a query for one row returns more.
    An installation sets it for checks that exist."""
    owner, caller = server.connect(database), server.connect(
        database, "test_app", autocommit=False, options="-c plpgsql.extra_errors=all"
    )
    if not installed:
        (name,) = [
            fetch_value(
                owner, "select check_function from fencing.protected where relation = 'public.inventory'::regclass"
            )
        ]
        owner.cursor().execute(f"alter function fencing.{name}() reset plpgsql.extra_errors")
        assert (
            fetch_value(owner, "select fencing.guard_faults()")
            == f"public.inventory: the function fencing.{name}() is not what this version of protect() makes; "
            "call it again"
        )
        for file in PLAIN_FILES:
            owner.cursor().execute(file.read_text())
    with caller.cursor() as cursor:
        cursor.execute(
            "select fencing.enter('{inventory/sku-1,inventory/sku-2,inventory/sku-n,inventory/sku-o}'::text[], 5)"
        )
        cursor.execute("update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2')")
        cursor.execute("insert into inventory (sku, stock, initial_stock) values ('sku-n', 1, 1), ('sku-o', 1, 1)")
        cursor.execute("delete from inventory where sku in ('sku-n', 'sku-o')")
        assert cursor.rowcount == 2
    caller.close()
    owner.close()


def test_install_under_plpgsql_extra_errors_works(server):
    fresh = server.create("template0")
    connection = server.connect(fresh, autocommit=False, options="-c plpgsql.extra_errors=all")
    for file in PLAIN_FILES:
        connection.cursor().execute(file.read_text())
    connection.commit()
    assert fetch_value(connection, "select count(*) from fencing.guard_faults()") == 0
    connection.close()
    server.drop(fresh)


@pytest.fixture
def subscription(server, database):
    """Two databases; the second subscribes to the first's `plain` and to the partitioned `parted`,
    which are protected there."""
    target_name = server.create("fence_base")
    source, target = server.connect(database), server.connect(target_name)
    target.cursor().execute(f"alter database {target_name} set log_min_messages = error")  # also of the apply worker
    tables = """create table plain (id integer primary key, hall text);
                create table parted (id integer primary key, hall text) partition by range (id);
                create table parted_1 partition of parted for values from (0) to (100);"""
    source.cursor().execute(tables + "create publication everything for table plain, parted")
    target.cursor().execute(
        tables + "select fencing.protect('plain', $$'hall/' || hall$$); "
        "select fencing.protect('parted', $$'hall/' || hall$$)"
    )
    fetch_value(source, "select pg_create_logical_replication_slot('everything', 'pgoutput')::text")
    target.cursor().execute(
        f"create subscription everything connection 'host={server.folder} dbname={database} user=postgres' "
        "publication everything "
        "with (create_slot = false, slot_name = 'everything', copy_data = false)"
    )
    yield source, target
    target.cursor().execute(
        "alter subscription everything disable; alter subscription everything set (slot_name = none); "
        "drop subscription everything"
    )
    active = "select count(*) from pg_replication_slots where active"
    eventually(lambda: not fetch_value(source, active), WAIT_SECONDS_MAX, goal="no slot is used")
    with source.cursor() as cursor:
        cursor.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    source.close()
    target.close()
    server.drop(target_name)


def test_subscription_is_checked_only_on_partitioned_tables(server, subscription):
    """As docs/guard.md says, the apply worker fires no statement triggers, but row triggers that are always enabled."""
    source, target = subscription
    source.cursor().execute("insert into plain values (1, 'a'); update plain set hall = 'b'")
    eventually(lambda: fetch_value(target, "select count(*) from plain where hall = 'b'") == 1, WAIT_SECONDS_MAX)
    source.cursor().execute("insert into parted values (1, 'a')")
    refused = r"fencing required: insert \w+ public\.parted_1 "  # nobody else inserts there
    eventually(lambda: re.search(refused, (server.folder / "log").read_text(errors="replace")), WAIT_SECONDS_MAX)
    assert fetch_value(target, "select count(*) from parted") == 0
