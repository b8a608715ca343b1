"""What is exposed, changed and hidden shows in gateways that run, at once or within a bound."""

from __future__ import annotations

import os
import signal
from typing import Callable

import pytest
from support.api import Api
from support.polling import eventually, let_pass
from support.stack import Stack

AT_ONCE = 0.6  # a notification; what is unknown or refused is looked up once a second, the rest every two
BOUND = 3.5    # alter table tells nobody: the catalogue is read every 2 s


@pytest.fixture
def name(stack: Stack, fresh: Callable[[str], str]) -> str:
    made = fresh("t").replace("-", "_")
    stack.query(f"create table {made} (id text primary key, n integer); insert into {made} values ('a', 1)")
    return made


def status(api: Api, name: str) -> int:
    return api.get(f"/v1/tables/{name}").status


def test_table_when_exposed_and_hidden_then_known_at_once(stack: Stack, api: Api, name: str) -> None:
    for _ in range(3):
        stack.query(f"select fencing.expose_table('{name}')")
        eventually(lambda: status(api, name) == 200, AT_ONCE, what="the table is served")
        stack.query(f"select fencing.hide('{name}')")
        eventually(lambda: status(api, name) == 404, AT_ONCE, what="the table is gone")


def test_table_when_exposed_and_rolled_back_then_unknown(stack: Stack, api: Api, name: str) -> None:
    connection = stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute(f"select fencing.expose_table('{name}')")
    connection.rollback()
    connection.close()
    let_pass(0.3, "a notification that must not come is given time to come")
    assert status(api, name) == 404


def test_operations_and_columns_when_exposed_anew_then_known_at_once(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"select fencing.expose_table('{name}')")
    eventually(lambda: api.get(f"/v1/tables/{name}").status == 200, AT_ONCE, what="the table is served")
    stack.query(f"select fencing.expose_table('{name}', columns => '{{id}}')")
    eventually(lambda: api.get(f"/v1/tables/{name}").body == b'[{"id":"a"}]', AT_ONCE, what="the column is hidden")
    stack.query(f"select fencing.expose_table('{name}', operations => '{{insert}}')")
    eventually(lambda: status(api, name) == 404, AT_ONCE, what="reading is over")


def test_function_when_exposed_and_replaced_then_known(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"create function f_{name}(a integer) returns integer language sql immutable as 'select a'; select fencing.expose_function('f_{name}(integer)')")
    eventually(lambda: api.get(f"/v1/rpc/f_{name}?a=1").body == b"1", AT_ONCE, what="the function is served")
    stack.query(f"create or replace function f_{name}(a integer) returns integer language sql volatile as 'select a'")
    eventually(lambda: api.get(f"/v1/rpc/f_{name}?a=1").status == 428, BOUND, what="it is known to be volatile")


def test_column_when_added_changed_or_dropped_then_seen_within_the_bound(stack: Stack, api: Api, name: str) -> None:
    stack.query(f"select fencing.protect('{name}', $$'{name}/all'::text$$); select fencing.expose_table('{name}')")
    eventually(lambda: status(api, name) == 200, AT_ONCE, what="the table is served")
    lease = api.take(f"{name}/all")
    write = {"update": name, "where": {"id": "a"}, "set": {"n": 2}}
    api.wrote(lease, write)
    stack.query(f"alter table {name} add column extra text default 'x'")
    eventually(lambda: api.get(f"/v1/tables/{name}").json() == [{"id": "a", "n": 2, "extra": "x"}], BOUND, what="the new column is read")
    api.wrote(lease, {"update": name, "where": {"id": "a"}, "set": {"extra": "y"}})
    # The same statement as before, which the sessions have prepared for an integer.
    stack.query(f"alter table {name} alter column n type text")
    text = {"update": name, "where": {"id": "a"}, "set": {"n": "two"}}
    eventually(lambda: api.write(lease, text).status == 200, BOUND, what="the new type is written")
    for _ in range(12):  # every session, not one of them
        assert api.write(lease, text).status == 200
        assert api.get(f"/v1/tables/{name}", n="eq.two", select="n").body == b'[{"n":"two"}]'
    stack.query(f"alter table {name} drop column extra")
    eventually(lambda: api.get(f"/v1/tables/{name}").json() == [{"id": "a", "n": "two"}], BOUND, what="the column is gone")


def test_column_when_its_type_takes_more_than_before_then_what_fits_now_is_not_refused(stack: Stack, api: Api, name: str) -> None:
    """The prepared statement still reads its value as what the column was; a gateway looks the type up before it blames the caller."""
    stack.query(f"select fencing.protect('{name}', $$'{name}/all'::text$$); select fencing.expose_table('{name}')")
    eventually(lambda: status(api, name) == 200, AT_ONCE, what="the table is served")
    lease = api.take(f"{name}/all")
    write = {"update": name, "where": {"id": "a"}, "set": {"n": 2}}
    api.wrote(lease, write)
    listens = "select now() - state_change < '0.1 s' from pg_stat_activity where application_name = 'fencegate' and query like 'select name, kind, target%' order by state_change desc limit 1"
    eventually(lambda: stack.query(listens) == [(True,)], 5, every=0.02, what="the catalogue has just been read")
    stack.query(f"alter table {name} alter column n type bigint")
    let_pass(1.1, "it is looked up at most once a second, and read anew in another second by itself")
    assert api.write(lease, {**write, "set": {"n": 2**40}}).status == 200
    assert api.get(f"/v1/tables/{name}", n=f"eq.{2**40}", select="n").json() == [{"n": 2**40}]


def test_catalogue_when_postgresql_restarts_then_read_anew_and_listened_to(own_stack: Stack) -> None:
    api = own_stack.api()
    own_stack.query("create table later (id text)")
    for with_signal in (signal.SIGKILL, signal.SIGINT):
        os.kill(own_stack.read()["postgres"]["pid"], with_signal)
        eventually(lambda: api.get("/readyz").status == 503, 20, what="PostgreSQL is away")
        eventually(lambda: api.get("/readyz").status == 200, 60, what="PostgreSQL is back")
        own_stack.query("select fencing.expose_table('later')")
        eventually(lambda: status(api, "later") == 200, 10, what="the table is served")
        let_pass(2.5, "listening again by now")
        own_stack.query("select fencing.hide('later')")
        eventually(lambda: status(api, "later") == 404, AT_ONCE, what="the gateway listens again")


def test_catalogue_when_the_listener_is_killed_then_another_takes_its_place(stack: Stack, api: Api, name: str) -> None:
    killed = stack.query("select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'fencegate' and query like 'select name, kind, target%'")
    assert killed[0][0] >= 1
    stack.query(f"select fencing.expose_table('{name}')")
    eventually(lambda: status(api, name) == 200, 5, what="the table is served")
