"""Running gateways see tables and functions that are exposed, changed or hidden, at once or within a bound."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from typing import Callable

import pytest
from support.api import Api
from support.polling import eventually, pause
from support.stack import Stack

AT_ONCE = 1.0  # where a notification is sent
# A listener reads the catalogue after it has begun to listen.
LISTENERS = (
    "select count(*) from pg_stat_activity where application_name = 'fencegate' "
    "and query like 'select name, kind, target%'"
)
BOUND = 6.0  # where none is sent, as for ALTER TABLE: the catalogue is read at least every 2 s


@pytest.fixture
def name(stack: Stack, unique_name: Callable[[str], str]) -> str:
    table = unique_name("t").replace("-", "_")
    stack.query(f"create table {table} (id text primary key, n integer); insert into {table} values ('a', 1)")
    return table


def table_status(api: Api, name: str) -> int:
    return api.get(f"/v1/tables/{name}").status


def test_catalogue_exposed_and_hidden_tables_are_known_at_once(stack: Stack, api: Api, name: str) -> None:
    for _ in range(3):
        stack.query(f"select fencing.expose_table('{name}')")
        eventually(lambda: table_status(api, name) == 200, AT_ONCE, goal="the table is served")
        stack.query(f"select fencing.hide('{name}')")
        eventually(lambda: table_status(api, name) == 404, AT_ONCE, goal="the table is gone")


def test_catalogue_hidden_and_exposed_again_is_served_at_once(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"select fencing.expose_table('{name}')")
    eventually(lambda: table_status(api, name) == 200, BOUND, goal="the table is served")
    pause(4.5, "four unknown names may be looked up at once: a name that is gone is unknown too")
    for _ in range(2):
        stack.query(f"select fencing.hide('{name}')")
        eventually(lambda: table_status(api, name) == 404, BOUND, interval=0.002, goal="the table is gone")
        stack.query(f"select fencing.expose_table('{name}')")
        assert table_status(api, name) == 200


def test_catalogue_rolled_back_exposure_stays_unknown(stack: Stack, api: Api, name: str) -> None:
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute(f"select fencing.expose_table('{name}')")
    connection.rollback()
    connection.close()
    pause(0.3, "time for a notification that must not arrive")
    assert table_status(api, name) == 404


def test_catalogue_reexposed_columns_and_operations_are_known(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"select fencing.expose_table('{name}')")
    eventually(lambda: api.get(f"/v1/tables/{name}").status == 200, BOUND, goal="the table is served")
    stack.query(f"select fencing.expose_table('{name}', columns => '{{id}}')")
    eventually(lambda: api.get(f"/v1/tables/{name}").body == b'[{"id":"a"}]', AT_ONCE, goal="the column is hidden")
    stack.query(f"select fencing.expose_table('{name}', operations => '{{insert}}')")
    eventually(lambda: table_status(api, name) == 404, AT_ONCE, goal="reading is over")


def test_catalogue_exposed_and_replaced_function_is_known(stack: Stack, api: Api, name: str) -> None:
    stack.query(
        f"create function f_{name}(a integer) returns integer language sql immutable as 'select a'; "
        f"select fencing.expose_function('f_{name}(integer)')"
    )
    eventually(lambda: api.get(f"/v1/rpc/f_{name}?a=1").body == b"1", BOUND, goal="the function is served")
    stack.query(f"create or replace function f_{name}(a integer) returns integer language sql volatile as 'select a'")
    eventually(lambda: api.get(f"/v1/rpc/f_{name}?a=1").status == 428, BOUND, goal="it is known to be volatile")


def test_catalogue_altered_column_is_seen_within_bound(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"select fencing.protect('{name}', $$'{name}/all'::text$$); select fencing.expose_table('{name}')")
    eventually(lambda: table_status(api, name) == 200, BOUND, goal="the table is served")
    lease = api.must_acquire(f"{name}/all")
    write = {"update": name, "where": {"id": "a"}, "set": {"n": 2}}
    api.must_write(lease, write)
    stack.query(f"alter table {name} add column extra text default 'x'")
    eventually(
        lambda: api.get(f"/v1/tables/{name}").json() == [{"id": "a", "n": 2, "extra": "x"}],
        BOUND,
        goal="the new column is read",
    )
    api.must_write(lease, {"update": name, "where": {"id": "a"}, "set": {"extra": "y"}})
    # The sessions have prepared the same statement for an integer.
    stack.query(f"alter table {name} alter column n type text")
    text = {"update": name, "where": {"id": "a"}, "set": {"n": "two"}}
    eventually(lambda: api.write(lease, text).status == 200, BOUND, goal="the new type is written")
    for _ in range(12):  # every session, not one of them
        assert api.write(lease, text).status == 200
        assert api.get(f"/v1/tables/{name}", n="eq.two", select="n").body == b'[{"n":"two"}]'
    stack.query(f"alter table {name} drop column extra")
    eventually(
        lambda: api.get(f"/v1/tables/{name}").json() == [{"id": "a", "n": "two"}], BOUND, goal="the column is gone"
    )


def test_catalogue_widened_column_type_accepts_new_values(stack: Stack, api: Api, name: str) -> None:
    """The prepared statement still has the old type; a gateway reads the type again before it refuses the value."""
    stack.query(f"select fencing.protect('{name}', $$'{name}/all'::text$$); select fencing.expose_table('{name}')")
    eventually(lambda: table_status(api, name) == 200, BOUND, goal="the table is served")
    lease = api.must_acquire(f"{name}/all")
    write = {"update": name, "where": {"id": "a"}, "set": {"n": 2}}
    api.must_write(lease, write)
    listens = (
        "select now() - state_change < '0.1 s' from pg_stat_activity where application_name = 'fencegate' "
        "and query like 'select name, kind, target%' order by state_change desc limit 1"
    )
    eventually(lambda: stack.query(listens) == [(True,)], 20, interval=0.02, goal="the catalogue has just been read")
    stack.query(f"alter table {name} alter column n type bigint")
    pause(1.1, "longer than a second, the interval at which it reads a type again at most")
    assert api.write(lease, {**write, "set": {"n": 2**40}}).status == 200
    assert api.get(f"/v1/tables/{name}", n=f"eq.{2**40}", select="n").json() == [{"n": 2**40}]


def test_catalogue_is_reloaded_after_postgresql_restart(own_stack: Stack) -> None:
    api = own_stack.api()
    own_stack.query("create table later (id text)")
    for signal_number in (signal.SIGKILL, signal.SIGINT):
        os.kill(own_stack.read()["postgres"]["pid"], signal_number)
        eventually(lambda: api.get("/readyz").status == 503, 20, goal="PostgreSQL is away")
        eventually(lambda: api.get("/readyz").status == 200, 60, goal="PostgreSQL is back")
        own_stack.query("select fencing.expose_table('later')")
        eventually(lambda: table_status(api, "later") == 200, goal="the table is served")
        eventually(lambda: own_stack.query(LISTENERS) == [(1,)], goal="the gateway listens again")
        own_stack.query("select fencing.hide('later')")
        eventually(lambda: table_status(api, "later") == 404, AT_ONCE, goal="the gateway is notified")


def test_catalogue_killed_listener_is_replaced(stack: Stack, api: Api, name: str) -> None:
    killed = stack.query(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'fencegate' "
        "and query like 'select name, kind, target%'"
    )
    assert killed[0][0] >= 1
    stack.query(f"select fencing.expose_table('{name}')")
    eventually(lambda: table_status(api, name) == 200, 5, goal="the table is served")


def test_catalogue_endless_notifications_read_ten_times_a_second(stack: Stack, api: Api, name: str) -> None:
    def scans() -> int:
        ((count,),) = stack.query(
            "select seq_scan + coalesce(idx_scan, 0) from pg_stat_user_tables where relid = 'fencing.exposed'::regclass"
        )
        return int(count)

    stack.query(f"select fencing.expose_table('{name}')")
    pause(5, "at least two readings without a notification, and the second in which a session reports its counts")
    before = scans()
    pause(5, "two to three readings")
    quiet = scans() - before
    assert quiet > 0
    before = scans()
    until = time.monotonic() + 3
    sent = 0
    with closing(stack.sql()) as connection, connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute(f"notify fencing_catalog, '{sent}'")
            sent += 1
            pause(0.002, "a flood")
    pause(3, "the last counts are reported")
    assert sent > 100
    # Ten readings at once and thirty and some more, each with the scans of a third to a half of the quiet ones.
    assert scans() - before <= 50 * quiet / 2, (sent, quiet)
    assert table_status(api, name) == 200
    stack.query(f"select fencing.hide('{name}')")
