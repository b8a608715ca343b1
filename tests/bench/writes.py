#!/usr/bin/python3
"""Measures guarded writes and the same write as plain SQL, in turn: the ratio of their rates,
and the CPU of each process.

    tests/bench/writes.py --stack DIR/stack.json [--rounds 3] [--seconds 3]
    [--fencegate build/release/fencegate] [case …]

Plain SQL ("by hand"): pgbench with prepared statements against the stack's own server, over its socket as the gateway;
one statement that tests a token in the row, changes it and adds a row to a log. It has no lease,
no fence that outlives the row and no indexed history. The CPU is that of whole processes, from /proc;
PostgreSQL's is the sum over all its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any, Callable

import psycopg2
import psycopg2.extensions

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = """
create table article (id integer primary key, stock bigint not null, last_fencing_token bigint not null default 0,
    changed_at timestamptz not null default now());
insert into article select n, 1000000000 from generate_series(1, 1000) n;
create table log (id bigserial primary key, article integer not null, fencing_token bigint not null,
    holder text not null, accepted boolean not null,
                  at timestamptz not null default now());
"""
BY_HAND = """\\set id random(1, {articles})
with changed as (update article set stock = stock - 1, last_fencing_token = 1, changed_at = now()
    where id = :id and last_fencing_token <= 1 returning id)
insert into log (article, fencing_token, holder, accepted) select :id, 1, 'bench', exists (select from changed);
"""


@dataclass(frozen=True)
class Case:
    """One row of the report: the number of clients and the workload on both sides."""

    clients: int
    work: str
    articles: int

    def __str__(self) -> str:
        rows = "one row for all" if self.articles == 1 else "any row"
        return f"{self.work}, {self.clients} clients (by hand: {rows})"


CASES = {
    "write-64": Case(64, "write", 1000),
    "write-16": Case(16, "write", 1000),
    "write-1": Case(1, "write", 1000),
    "job-64": Case(64, "job", 1000),
    "sale-64": Case(64, "sale", 1000),
    "hot-64": Case(64, "sale", 1),
}


def bench_command(program: pathlib.Path, stack: dict[str, Any], work: str, clients: int, articles: int) -> list[str]:
    """Returns the command that drives the gateways of a stack without a warm-up, and prints JSON."""
    postgres = stack["postgres"]
    conninfo = " ".join(
        f"{name}={postgres[key]}"
        for name, key in (("host", "host"), ("port", "port"), ("dbname", "database"), ("user", "superuser"))
    )
    urls = ",".join(gateway["http"] for gateway in stack["gateways"])
    options = f"--clients {clients} --articles {articles} --warm-up 0 --json --url".split()
    return [str(program), "bench", work, *options, urls, "--conninfo", conninfo]


def bench_environment(stack: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, "FENCEGATE_API_KEY": stack.get("api_keys", {}).get("orders", "")}


def cpu_of(pid: int, include_ended_children: bool = False) -> float:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended, and its CPU time counts for its parent
        return 0.0
    return sum(int(field) for field in fields[11 : 15 if include_ended_children else 13]) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.stack: dict[str, Any] = json.loads(arguments.stack.read_text())
        self.arguments, self.postgres = arguments, self.stack["postgres"]
        self.database = f"by_hand_{os.getpid()}"
        self.folder = tempfile.TemporaryDirectory()
        self.sql("postgres", f"create database {self.database}")
        self.sql(self.database, TABLES)

    def close(self) -> None:
        self.sql("postgres", f"drop database {self.database} with (force)")
        self.folder.cleanup()

    def sql(self, database: str, text: str) -> list[tuple[Any, ...]]:
        connection: psycopg2.extensions.connection = psycopg2.connect(
            host=self.postgres["host"], port=self.postgres["port"], dbname=database, user=self.postgres["superuser"]
        )
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def server_cpu(self) -> float:
        postmaster = self.postgres["pid"]
        return sum(map(cpu_of, children(postmaster))) + cpu_of(postmaster, include_ended_children=True)

    def commits(self) -> tuple[int, float]:
        ((commits, wal),) = self.sql(
            "postgres",
            "select (select xact_commit from pg_stat_database where datname = 'fencegate'), (select wal_bytes "
            "from pg_stat_wal)",
        )
        return int(commits), float(wal)

    def measure_by_hand(self, case: Case) -> dict[str, float]:
        script, prefix = pathlib.Path(self.folder.name, "by_hand.sql"), pathlib.Path(self.folder.name, "latency")
        script.write_text(BY_HAND.format(articles=case.articles))
        command = [
            "pgbench",
            "-h",
            self.postgres["host"],
            "-p",
            str(self.postgres["port"]),
            "-U",
            self.postgres["superuser"],
            "-n",
            "-M",
            "prepared",
            "-f",
            script,
            "-c",
            str(case.clients),
            "-j",
            str(min(case.clients, 2)),
            "-T",
            str(self.arguments.seconds),
            "-l",
            "--log-prefix",
            prefix,
            self.database,
        ]
        server, client = self.server_cpu(), resource.getrusage(resource.RUSAGE_CHILDREN)
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        server, ended = self.server_cpu() - server, resource.getrusage(resource.RUSAGE_CHILDREN)
        times = []
        for file in pathlib.Path(self.folder.name).glob("latency.*"):
            times += [int(line.split()[2]) for line in file.read_text().splitlines()]
            file.unlink()
        return {
            "rate": float(re.search(r"tps = ([\d.]+)", out)[1]),
            "p50": statistics.median(times) / 1e3,
            "server": server / len(times) * 1e6,
            "client": (ended.ru_utime + ended.ru_stime - client.ru_utime - client.ru_stime) / len(times) * 1e6,
        }

    def measure_gateway(self, case: Case) -> dict[str, float]:
        gateway = self.stack["gateways"][0]["pid"]
        arguments = self.arguments
        command = bench_command(arguments.fencegate, self.stack, case.work, case.clients, case.articles)
        # The CPU before the first write, for creating the articles, is measured by a very short run and subtracted.
        empty = self.run_and_measure([*command, "--time", "50ms"], gateway)
        full = self.run_and_measure([*command, "--time", f"{arguments.seconds}s"], gateway)
        count, skipped = full["result"]["operations"], empty["result"]["operations"]
        cpu_us = {
            key: (full[key] - empty[key]) / (count - skipped) * 1e6 for key in ("gateway", "server", "client", "redis")
        }
        return {
            "rate": full["result"]["operations_per_s"],
            "p50": full["result"]["work"][case.work]["p50_ms"],
            **cpu_us,
            "batch": (count - skipped) / max(full["commits"] - empty["commits"], 1),
            "wal": (full["wal"] - empty["wal"]) / (count - skipped),
        }

    def run_and_measure(self, command: list[Any], gateway: int) -> dict[str, Any]:
        nodes = [node["pid"] for node in self.stack["redis"]]
        before = (
            self.server_cpu(),
            cpu_of(gateway),
            sum(map(cpu_of, nodes)),
            resource.getrusage(resource.RUSAGE_CHILDREN),
            self.commits(),
        )
        done = subprocess.run(command, env=bench_environment(self.stack), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        commits, wal = self.commits()
        return {
            "result": json.loads(done.stdout),
            "server": self.server_cpu() - before[0],
            "gateway": cpu_of(gateway) - before[1],
            "redis": sum(map(cpu_of, nodes)) - before[2],
            "client": client.ru_utime + client.ru_stime - before[3].ru_utime - before[3].ru_stime,
            "commits": commits - before[4][0],
            "wal": wal - before[4][1],
        }


def add_and_take_medians(measure: Callable[[], dict[str, float]], results: list[dict[str, float]]) -> dict[str, float]:
    results.append(measure())
    return {key: statistics.median(result[key] for result in results) for key in results[0]}


def report(name: str, values: dict[str, float]) -> str:
    parts = [
        (
            f"  {name:8} {values['rate']:8.0f}/s  p50 {values['p50']:7.2f} ms  CPU per write, "
            f"us: PostgreSQL {values['server']:5.0f}  client {values['client']:4.0f}"
        )
    ]
    if "gateway" in values:
        parts.append(
            f"  gateway {values['gateway']:4.0f}  Redis {values['redis']:4.0f}  writes per commit "
            f"{values['batch']:5.1f}  WAL {values['wal']:6.0f} B"
        )
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--fencegate", type=pathlib.Path, default=ROOT / "build" / "release" / "fencegate")
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case", help=", ".join(CASES))
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    bench = Bench(arguments)
    try:
        for case in (CASES[name] for name in arguments.cases):
            by_hand_results: list[dict[str, float]] = []
            gateway_results: list[dict[str, float]] = []
            for _ in range(arguments.rounds):
                by_hand = add_and_take_medians(lambda: bench.measure_by_hand(case), by_hand_results)
                gateway = add_and_take_medians(lambda: bench.measure_gateway(case), gateway_results)
            print(case)
            print(report("by hand", by_hand))
            print(report("gateway", gateway))
            print(
                f"  rate x{gateway['rate'] / by_hand['rate']:.2f}, p50 x{gateway['p50'] / by_hand['p50']:.2f}",
                flush=True,
            )
    finally:
        bench.close()


if __name__ == "__main__":
    main()
