#!/usr/bin/python3
"""Measures the server CPU, in microseconds per row, that the guard's trigger adds to plain SQL:
runs the same statements on a table with and without it, in turn; and what record_changes() adds to that.
Then what entering a resource costs, and a row that observe mode records.

    tests/bench/trigger.py "host=/run/postgresql dbname=shop user=postgres" [rounds]

Needs the schema fencing and a superuser; creates and drops a schema of its own. Prints medians of the rounds.
Exit code 1 if the trigger adds more than BOUND_US to a row.
"""
from __future__ import annotations

import io
import statistics
import sys
import time
from pathlib import Path

import psycopg2
import psycopg2.extensions

BOUND_US = 25.0
ROWS, SINGLES = 1_000, 2_000
UNPROTECT = """
    select fencing.stop_recording(c.oid) from fencing.recorded_table r join pg_class c on c.oid = r.relation
     where c.relnamespace = to_regnamespace('bench_trigger');
    select fencing.unprotect(p.relation) from fencing.protected p where p.relation_name like 'bench_trigger.%'"""
SETUP = (
    UNPROTECT
    + """;
    drop schema if exists bench_trigger cascade;
    create schema bench_trigger;
    set search_path = bench_trigger, public;
    create table plain (id integer primary key, n integer not null default 0) with (fillfactor = 50);
    create table guarded (like plain including all);
    create table recorded (like plain including all);
    create table observed (like plain including all);
    insert into observed select generate_series(1, 100);  -- as many as are recorded in one transaction
    create table plain_parts (id integer primary key, n integer not null default 0) partition by range (id);
    create table plain_parts_1 partition of plain_parts for values from (0) to (10000000) with (fillfactor = 50);
    create table guarded_parts (id integer primary key, n integer not null default 0) partition by range (id);
    create table guarded_parts_1 partition of guarded_parts for values from (0) to (10000000) with (fillfactor = 50);
    create table recorded_parts (id integer primary key, n integer not null default 0) partition by range (id);
    create table recorded_parts_1 partition of recorded_parts for values from (0) to (10000000) with (fillfactor = 50);
    select fencing.protect(t, $$'bench/' || (id % 1000)::text$$), fencing.record_changes(t)
      from unnest('{recorded,recorded_parts}'::regclass[]) t;
    select fencing.protect('guarded', $$'bench/' || (id % 1000)::text$$),
      fencing.protect('observed', $$'bench/observed-' || id::text$$, 'observe'),
        fencing.protect('guarded_parts', $$'bench/' || (id % 1000)::text$$);
"""
)
FILL = """
    do $$ begin for i in 0..999 loop perform fencing.enter('bench/' || i, 1); end loop; end $$;
    insert into {0} select i from generate_series(0, 999) as t (i)
"""


def loop(statement: str) -> str:
    return f"do $$ begin for i in 1..{SINGLES} loop {statement}; end loop; end $$"


# Title, statement and number of rows that it changes.
STATEMENTS = {
    "update, one row a statement": (loop("update {0} set n = n + 1 where id = i % 1000"), SINGLES),
    "update, 1,000 rows a statement": ("update {0} set n = n + 1 where id < 1000", ROWS),
    "insert, one row a statement": (loop("insert into {0} values (1000 + i)"), SINGLES),
    "insert, 1,000 rows a statement": ("insert into {0} select 1000 + i from generate_series(1, 1000) as t (i)", ROWS),
    "delete, 1,000 rows a statement": ("delete from {0} where id < 1000", ROWS),
    "copy, 10,000 rows": ("copy", 10 * ROWS),
}
CALLS = {
    "enter, one resource": (loop("perform fencing.enter('bench/new-' || i, 1)"), SINGLES),
    "a row that observe mode records": ("update observed set n = n + 1", 100),
}


def server_cpu_seconds(connection: psycopg2.extensions.connection) -> float:
    """CPU seconds of the server process, so that other load on the machine matters little;
    wall-clock time if the server runs on another machine."""
    try:
        return int(Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return time.perf_counter()


def measure(connection: psycopg2.extensions.connection, table: str, statement: str, rows: int) -> float:
    """Microseconds per row, without begin, fencing.enter and rollback."""
    with connection.cursor() as cursor:
        cursor.execute("set search_path = bench_trigger, public;" + FILL.format(table))
        lines = io.StringIO("".join(f"{number}\n" for number in range(1_000, 1_000 + rows)))
        before = server_cpu_seconds(connection)
        if statement == "copy":
            cursor.copy_expert(f"copy {table} (id) from stdin", lines)
        else:
            cursor.execute(statement.format(table))
        seconds = server_cpu_seconds(connection) - before
    connection.rollback()
    return seconds * 1e6 / rows


def main() -> int:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    connection = psycopg2.connect(sys.argv[1])
    with connection.cursor() as cursor:
        cursor.execute(SETUP)
    connection.commit()
    worst = 0.0
    for plain, guarded in (
        ("plain", "guarded"),
        ("plain_parts", "guarded_parts"),
        ("guarded", "recorded"),
        ("guarded_parts", "recorded_parts"),
    ):
        for name, (statement, rows) in STATEMENTS.items():
            times: dict[str, list[float]] = {plain: [], guarded: []}
            for _ in range(rounds):
                for table in (plain, guarded):
                    times[table].append(measure(connection, table, statement, rows))
            unguarded, protected = statistics.median(times[plain]), statistics.median(times[guarded])
            if plain.startswith("plain"):
                worst = max(worst, protected - unguarded)
            print(
                f"{guarded:14} {name:32} {plain} {unguarded:7.1f} us per row, "
                f"{guarded} {protected:7.1f}: {protected - unguarded:6.1f} more",
                flush=True,
            )
    for name, (statement, rows) in CALLS.items():
        print(
            f"{name:46} "
            f"{statistics.median(measure(connection, 'plain', statement, rows) for _ in range(rounds)):7.1f} us",
            flush=True,
        )
    with connection.cursor() as cursor:
        cursor.execute(f"{UNPROTECT}; drop schema bench_trigger cascade")
    connection.commit()
    print(f"at most {worst:.1f} us more per row; the bound is {BOUND_US:.0f}")
    return 0 if worst <= BOUND_US else 1


if __name__ == "__main__":
    sys.exit(main())
