"""Every kind of change of a table while it is read and written: no 500, nothing is executed twice,
the new shape is soon there."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Iterator

import psycopg2
import pytest

from support.api import Answer, Api, Json
from support.polling import eventually, pause
from support.stack import Stack
from support.stack import running as running_stack

BOUND = 6.0  # the catalogue is read at least every 2 s
ROWS = 6
# A caller may have to repeat these: a lock, a lease that another call has,
# an outdated plan of a function that was executed.
REPEATED = set(
    (
        "/problems/write-conflict /problems/resource-locked /problems/stale-fencing-token "
        "/problems/lease-lost /problems/storage-unavailable"
    ).split()
)

TYPES = """
create type shape_mood as enum ('sad', 'ok', 'old'); create domain shape_code as text check (value <> '');
create type shape_pair as (a integer, b text);
"""
TABLE = """
create table shape (id integer primary key, n integer not null default 0, m shape_mood not null default 'ok', a text,
    b varchar(20), c citext,
                    code shape_code, pair shape_pair, list shape_mood[]);
"""
PLACES = """
select fencing.protect('shape', $$'shape/' || id$$); select fencing.expose_table('shape');
"""
# A plan of this function keeps the type of its variable for as long as the session lives.
FUNCTIONS = """
create function shape_count(mood shape_mood) returns bigint language plpgsql stable set search_path = public, pg_temp as
  $$ declare wanted shape_mood := mood; begin return (select count(*) from shape where m = wanted); end $$;
create function shape_add(row_id integer, mood shape_mood) returns integer language plpgsql
  set search_path = public, pg_temp as
  $$ declare wanted shape_mood := mood; begin update shape set n = n + 1, m = wanted where id = row_id;
  return row_id; end $$;
select fencing.expose_function('shape_count(shape_mood)');
select fencing.expose_function('shape_add(integer, shape_mood)');
"""
VIEW = (
    "create view shape_view as select m from shape; "
    "select fencing.expose_table('shape_view', operations => '{select}');"
)
DROP_CODE = (
    "select fencing.hide('shape_view'); drop view shape_view; "
    "select fencing.hide('shape_count'), fencing.hide('shape_add'); drop function shape_count, shape_add;"
)
MAKE_CODE = f"{FUNCTIONS} {VIEW}"
PROTECT = "select fencing.protect('shape', $$'shape/' || id$$);"
AS_TEXT = "alter table shape alter column m drop default, alter column m type text, alter column list type text[];"
AS_MOOD = (
    "alter table shape alter column m type shape_mood using m::shape_mood, "
    "alter column list type shape_mood[] using list::shape_mood[], alter column m set default 'ok';"
)

# Each text is one transaction. What another kind would miss is put back by the last text of its list.
CHANGES = {
    "columns_added_and_dropped": [
        "alter table shape add column extra text default 'x'",
        "alter table shape add column must integer not null default 7",
        "alter table shape add column place bigint generated always as identity",
        "alter table shape add column doubled integer generated always as (n * 2) stored",
        "alter table shape alter column doubled drop expression",
        "alter table shape alter column place drop identity",
        "alter table shape drop column extra, drop column must, drop column place, drop column doubled",
    ],
    "drop_and_add_column": [
        (
            "alter table shape drop column a; alter table shape add column a integer; "
            "alter table shape drop column a; alter table shape add column a text"
        )
    ],
    "column_renamed": ["alter table shape rename column b to bb", "alter table shape rename column bb to b"],
    "type_text": ["alter table shape alter column b type citext", "alter table shape alter column b type varchar(20)"],
    "type_number": [
        "alter table shape alter column n type bigint",
        "alter table shape alter column n type integer",
        "alter table shape alter column n type numeric",
        "alter table shape alter column n type integer",
    ],
    "type_of_key": [
        f"alter table shape alter column id type bigint; {PROTECT}",
        f"alter table shape alter column id type integer; {PROTECT}",
    ],
    "collation": ['alter table shape alter column a type text collate "C"'],
    "defaults": [
        (
            "alter table shape alter column a set default 'd', alter column n drop default; "
            "alter table shape alter column n set default 0"
        )
    ],
    "not_null": ["alter table shape alter column n drop not null", "alter table shape alter column n set not null"],
    "statistics_and_storage": [
        (
            "alter table shape alter column a set statistics 50, alter column a set storage external, "
            "alter column a set (n_distinct = -1)"
        )
    ],
    "constraint": [
        (
            "alter table shape add constraint small check (n < 1000000) not valid; "
            "alter table shape validate constraint small"
        ),
        "alter table shape rename constraint small to rather_small",
        "alter table shape drop constraint rather_small",
    ],
    "unique_index": [
        (
            "create unique index shape_unique on shape (id, n); "
            "alter table shape add constraint shape_unique unique using index shape_unique"
        ),
        "alter table shape drop constraint shape_unique",
    ],
    "replica_identity": ["alter table shape replica identity full; alter table shape replica identity default"],
    "key_made_anew": ["alter table shape drop constraint shape_pkey; alter table shape add primary key (id)"],
    "cluster": ["alter table shape cluster on shape_pkey; cluster shape; alter table shape set without cluster"],
    "storage_parameters": ["alter table shape set (fillfactor = 70); alter table shape reset (fillfactor)"],
    "tablespace": ["alter table shape set tablespace pg_default"],
    "row_security": [
        (
            "create policy everyone on shape using (true) with check (true); "
            "alter table shape enable row level security, force row level security"
        ),
        "alter table shape disable row level security, no force row level security; drop policy everyone on shape",
    ],
    "trigger": [
        (
            "create function shape_touch() returns trigger language plpgsql as $$ begin new.a := new.m; return new; "
            "end $$; create trigger touch before update on shape for each row execute function shape_touch()"
        ),
        "alter table shape disable trigger touch",
        "drop trigger touch on shape; drop function shape_touch()",
    ],
    "rename_table": [
        (
            "alter table shape rename to shape_renamed; select fencing.protect('shape_renamed', $$'shape/' || id$$); "
            f"alter table shape_renamed rename to shape; {PROTECT}"
        )
    ],
    "schema": [
        (
            "create schema if not exists elsewhere; grant usage on schema elsewhere to fencing_gateway; "
            f"alter table shape set schema elsewhere; alter table elsewhere.shape set schema public; {PROTECT}"
        )
    ],
    "composite_type": [
        "alter type shape_pair add attribute c text; alter type shape_pair rename attribute a to aa",
        "alter type shape_pair drop attribute c; alter type shape_pair rename attribute aa to a",
    ],
    "composite_made_anew": [
        (
            "alter table shape alter column pair type text; drop type shape_pair; create type shape_pair "
            "as (a integer, b text); alter table shape alter column pair type shape_pair using null"
        )
    ],
    "domain": [
        (
            "alter domain shape_code add check (length(value) < 100); alter domain shape_code set default 'x'; "
            "alter domain shape_code drop default"
        )
    ],
    "domain_made_anew": [
        (
            "alter table shape alter column code type text; drop domain shape_code; create domain shape_code "
            "as text check (value <> ''); alter table shape alter column code type shape_code"
        )
    ],
    "enum_value_renamed": [
        "alter type shape_mood rename value 'sad' to 'blue'; alter type shape_mood rename value 'blue' to 'sad'"
    ],
    "enum_value_added": ["alter type shape_mood add value 'new'"],
    "enum_replaced": [
        (
            f"{DROP_CODE} {AS_TEXT} drop type shape_mood; create type shape_mood as enum ('sad', 'ok', 'old'); "
            f"{AS_MOOD} {MAKE_CODE}"
        )
    ],
    "enum_replaced_by_rename": [
        f"alter type shape_mood rename to shape_mood_old; create type shape_mood as enum ('sad', 'ok'); {DROP_CODE}"
        "alter table shape alter column m drop default, alter column m type shape_mood using m::text::shape_mood, "
        "alter column list type shape_mood[] using list::text::shape_mood[], alter column m set default 'ok';"
        f"{MAKE_CODE}"
    ],
    "function_made_anew": [f"{DROP_CODE} {MAKE_CODE}"],
    "extension_moved": [
        (
            "create schema if not exists elsewhere; grant usage on schema elsewhere to fencing_gateway; "
            "alter extension citext set schema elsewhere"
        ),
        "alter extension citext set schema public",
    ],
    "extension_made_anew": [
        (
            "alter table shape alter column c type text; drop extension citext; create extension citext; "
            "alter table shape alter column c type citext"
        )
    ],
    "extension_dropped_with_column": [
        "drop extension citext cascade; create extension citext; alter table shape add column c citext"
    ],
    "table_made_anew": [
        f"{DROP_CODE} select fencing.hide('shape'); select fencing.unprotect('shape'); "
        "create temporary table kept on commit drop as select id, n, m::text as m, a from shape; drop table shape;"
        f"drop type shape_mood, shape_pair; drop domain shape_code; {TYPES} {TABLE} insert into shape (id, n, m, a) "
        f"select id, n, m::shape_mood, a from kept; {PLACES} {MAKE_CODE}"
    ],
}


KINDS = ("write", "patch", "call", "read", "read_view", "count")


class Load:
    """Threads that read and write rows of their own without a pause."""

    def __init__(self, api: Api) -> None:
        self.api, self.stop = api, threading.Event()
        self.lock = threading.Lock()
        self.done: dict[str, int] = {}
        self.wrong: list[str] = []
        self.threads = [
            threading.Thread(target=self.repeat, args=(getattr(self, kind), number + 1))
            for number, kind in enumerate(KINDS)
        ]

    def repeat(self, kind, row: int) -> None:
        while not self.stop.is_set():
            try:
                answer: Answer = kind(row)
            except Exception as failure:  # reported by the test
                answer = None
                with self.lock:
                    self.wrong.append(f"{kind.__name__}: {failure!r}")
            if answer is None:
                continue
            good = answer.status < 300
            with self.lock:
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + good
                if not good and (answer.json()["type"] not in REPEATED or answer.json().get("outcome_unknown")):
                    self.wrong.append(f"{kind.__name__}: {answer}")

    def one_shot(self, row: int, operation: Json) -> Answer:
        return self.api.post(
            "/v1/writes",
            {"lease": {"resource": f"shape/{row}", "wait_ms": 2000}, "return": "rows", "operations": [operation]},
        )

    def write(self, row: int) -> Answer:
        return self.one_shot(
            row, {"update": "shape", "where": {"id": row}, "add": {"n": 1}, "set": {"m": "ok", "code": "x"}}
        )

    def call(self, row: int) -> Answer:
        return self.one_shot(row, {"call": "shape_add", "args": {"row_id": row, "mood": "ok"}})

    def patch(self, row: int) -> Answer | None:
        granted = self.api.acquire(f"shape/{row}", wait_ms=2000)
        if granted.status != 201:
            return None
        answer = self.api.call(
            "PATCH",
            f"/rest/v1/shape?id=eq.{row}&m=eq.ok&select=*",
            {"a": "x", "m": "ok"},
            {"Fencing-Lease": granted.json()["lease_id"], "Prefer": "return=representation"},
        )
        self.api.release(granted.json())
        return answer

    def read(self, row: int) -> Answer:
        return self.api.get("/rest/v1/shape?select=*&order=id&m=eq.ok&list=is.null")

    def read_view(self, row: int) -> Answer:
        return self.api.get("/rest/v1/shape_view?select=*&m=in.(ok,sad)")

    def count(self, row: int) -> Answer:
        return self.api.get("/rest/v1/rpc/shape_count?mood=ok")

    def counts(self) -> dict[str, int]:
        with self.lock:
            return dict(self.done)

    @contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self.threads:
            thread.start()
        try:
            yield self
        finally:
            self.stop.set()
            for thread in self.threads:
                thread.join()


@pytest.fixture(scope="module")
def shape() -> Iterator[Stack]:
    """A stack of its own, because extensions are made anew."""
    with running_stack() as stack:
        stack.query(
            f"create extension citext; {TYPES} {TABLE} insert into shape (id) select generate_series(1, {ROWS}); "
            f"{PLACES} {MAKE_CODE}"
        )
        yield stack


@pytest.fixture(scope="module")
def load(shape: Stack) -> Iterator[Load]:
    api = shape.api()
    eventually(
        lambda: api.get("/rest/v1/rpc/shape_count?mood=ok").body == str(ROWS).encode(),
        BOUND,
        goal="the functions are served",
    )
    with Load(api).running() as made:
        yield made


def change(stack: Stack, statements: str) -> None:
    """Commits the change; again where a write and the change waited for each other."""
    for _ in range(20):
        try:
            stack.query(f"begin; {statements}; commit")
            return
        except (psycopg2.errors.DeadlockDetected, psycopg2.errors.LockNotAvailable):
            pause(0.05, "before the change is tried again")
    raise AssertionError("the change could not be made")


def names_in_database(stack: Stack) -> set[str]:
    return {
        name
        for (name,) in stack.query(
            "select attname from pg_attribute where attrelid = 'shape'::regclass and attnum > 0 and not attisdropped"
        )
    }


@pytest.mark.parametrize("kind", CHANGES)
def test_change_under_load_has_no_500_and_new_shape_soon(shape: Stack, load: Load, kind: str) -> None:
    for statements in CHANGES[kind]:
        change(shape, statements)
        api = shape.api()
        eventually(
            lambda: set(api.get("/rest/v1/shape?limit=1").json()[0]) == names_in_database(shape),
            BOUND,
            goal="the new columns are read",
        )
        before = load.counts()
        for name in KINDS:  # each session, with many of each
            eventually(
                lambda: load.wrong or load.counts().get(name, 0) >= before.get(name, 0) + 10, 60, goal=f"{name} goes on"
            )
        with load.lock:
            wrong, load.wrong = load.wrong, []
        assert not wrong, (statements, len(wrong), wrong[:5])


def test_changes_under_load_executed_nothing_twice(shape: Stack, load: Load) -> None:
    eventually(lambda: all(load.counts().get(name) for name in KINDS), 60, goal="each kind was executed")
    load.stop.set()
    for thread in load.threads:
        thread.join()
    counts = load.counts()
    assert shape.query("select id, n::bigint from shape where id in (1, 3) order by id") == [
        (1, counts["write"]),
        (3, counts["call"]),
    ]


def test_type_changed_in_partitioned_table_is_written_by_all(shape: Stack) -> None:
    """The plan of a check keeps the type of the column for as long as its session lives."""
    api = shape.api()
    shape.query(
        "create table ranged (id integer, code integer, n integer) partition by range (id); "
        "create table ranged_low partition of ranged for values from (0) to (10);"
        "insert into ranged values (1, 7, 0); select fencing.protect('ranged', $$'ranged/' || code$$); "
        "select fencing.expose_table('ranged', columns => '{id,n}')"
    )

    def write() -> Answer:
        return api.post(
            "/v1/writes",
            {
                "lease": {"resource": "ranged/7", "wait_ms": 2000},
                "return": "rows",
                "operations": [{"update": "ranged", "where": {"id": 1}, "add": {"n": 1}}],
            },
        )

    eventually(lambda: write().status == 200, BOUND, goal="the table is served")
    written = shape.query("select n from ranged")[0][0]
    for kind in ("bigint", "integer", "numeric"):
        for _ in range(12):  # each session
            assert write().status == 200
        shape.query(f"alter table ranged alter column code type {kind}")
    for _ in range(12):
        assert write().status == 200
    assert shape.query("select n from ranged") == [(written + 48,)]
