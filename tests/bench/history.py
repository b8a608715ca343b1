#!/usr/bin/python3
"""Measures how fast the history records lease events and the CPU that a row costs the server, without gateway and Redis.

    tests/bench/history.py --stack DIR/stack.json [--rows 200000] [--sql sql/install.sql]

Methods: `record_events` (one JSON document per batch), `append_events` (one array per column, each event once), and `copy` into the table by its owner,
as an upper bound: no role may do that in operation. Each method uses a database of its own, created by `--sql` and dropped afterwards. One connection
sends one batch at a time and commits it before the next. The CPU is that of the server process of this connection, from /proc.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import subprocess
import time
import uuid

import psycopg2
import psycopg2.extensions

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESOURCES = 10_000
APPEND = "select fencing.append_events(%s::uuid, %s, %s::bigint[], %s::text[], %s::text[], %s::bigint[], null, %s::text[], %s::text[], null, null, %s::jsonb[])"


def event(number: int) -> dict[str, object]:
    kind = ("lease_granted", "lease_released")[number % 2]
    return {"event": kind, "resource": f"pair/{number // 2 % RESOURCES}", "token": number // 2 + 1, "owner": f"client-{number // 2 % 16}", "principal": "dev",
            "detail": '{"ttl_ms":10000}' if number % 2 == 0 else None}


class Recorder:
    def __init__(self, cursor: psycopg2.extensions.cursor) -> None:
        self.cursor = cursor
        self.stream, self.sequence = str(uuid.uuid4()), 1

    def record_events(self, batch: list[dict[str, object]]) -> None:
        document = [{"event": e["event"], "at": "2026-11-21T10:00:00.123456Z", "resource": e["resource"], "fencing_token": e["token"], "owner": e["owner"],
                     "principal": e["principal"], **({"detail": json.loads(str(e["detail"]))} if e["detail"] else {})} for e in batch]
        self.cursor.execute("select fencing.record_events(%s::jsonb)", (json.dumps(document),))

    def append_events(self, batch: list[dict[str, object]]) -> None:
        now = time.time_ns() // 1000

        def column(name: str) -> list[object]:
            return [e[name] for e in batch]

        self.cursor.execute(APPEND, (self.stream, self.sequence, [now + at for at in range(len(batch))], column("event"), column("resource"), column("token"),
                                     column("owner"), column("principal"), column("detail")))
        assert self.cursor.fetchone() == (len(batch),)
        self.sequence += len(batch)

    def copy(self, batch: list[dict[str, object]]) -> None:
        lines = "".join(f"2026-11-21 10:00:00.123456+00\t{e['event']}\t{e['resource']}\t{e['token']}\t{e['owner']}\t{e['principal']}\t{e['detail'] or chr(92) + 'N'}\n"
                        for e in batch)
        self.cursor.copy_expert("copy fencing.history (at, event, resource, fencing_token, owner, principal, detail) from stdin", io.StringIO(lines))


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(arguments: argparse.Namespace, connect, method: str, size: int) -> str:
    admin = connect("postgres")
    name = f"history_bench_{os.getpid()}"
    admin.cursor().execute(f"create database {name}")
    try:
        with connect(name) as connection:
            parameters = connection.get_dsn_parameters()
            subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", parameters["host"], "-p", parameters["port"], "-U", parameters["user"], "-d", name, "-f", arguments.sql],
                           check=True, stdout=subprocess.DEVNULL)
            cursor = connection.cursor()
            pid = connection.get_backend_pid()
            events = [event(number) for number in range(arguments.rows)]
            record = getattr(Recorder(cursor), method)
            seconds, cpu = 0.0, cpu_seconds(pid)
            for first in range(0, arguments.rows, size):
                started_at = time.monotonic()
                record(events[first:first + size])
                seconds += time.monotonic() - started_at
            cpu = cpu_seconds(pid) - cpu
        connection.close()
    finally:
        admin.cursor().execute(f"drop database {name} with (force)")
        admin.close()
    return f"{method:14} {size:5} per batch  {arguments.rows / seconds:9.0f} rows/s  {cpu / arguments.rows * 1e6:6.1f} us of server CPU per row"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--sql", type=pathlib.Path, default=ROOT / "sql" / "install.sql")
    parser.add_argument("methods", nargs="*", default=["record_events:500", "append_events:10", "append_events:100", "append_events:500", "append_events:2000", "copy:2000"],
                        metavar="METHOD:BATCH")
    arguments = parser.parse_args()
    postgres = json.loads(arguments.stack.read_text())["postgres"]

    def connect(database: str) -> psycopg2.extensions.connection:
        connection = psycopg2.connect(host=postgres["host"], port=postgres["port"], dbname=database, user=postgres["superuser"])
        connection.autocommit = True
        return connection

    for method in arguments.methods:
        name, _, size = method.partition(":")
        print(measure(arguments, connect, name, int(size)), flush=True)


if __name__ == "__main__":
    main()
