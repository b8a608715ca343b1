#!/usr/bin/python3
"""Measures what one operation costs each server, on a running stack or on several builds in turn.

    tests/bench/sizing.py --stack DIR/stack.json [--operations pair hot write write-1 sale] [--rounds 3] [--seconds 5]
    [--fencegate build/release/fencegate] tests/bench/sizing.py old=/path/to/fencegate
    new=build/release/fencegate [--operations pair hot]

Each build has a stack of its own: one gateway over five nodes without fsync. They are loaded in turn, in the other
order in each second round.
Printed for each operation, as medians of the rounds: operations a second, CPU of the gateway, of PostgreSQL, of all
nodes together and of the clients, bytes of the write-ahead log, rows of the history, and bytes of a row with its
indexes.
What creating the articles costs is measured by a very short run and subtracted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
from typing import Any

from writes import ROOT, Bench, bench_command

sys.path.insert(0, str(ROOT / "tests"))

from support.stack import running as running_stack  # noqa: E402

OPERATIONS = {
    "pair": ("a lease: acquire and release", "pair", 64),
    "hot": ("the same on one resource for all callers", "hot", 64),
    "write": ("a write under a lease that is held", "write", 64),
    "write-1": ("the same by one caller", "write", 1),
    "sale": ("a write with a lease of its own", "sale", 64),
}
HISTORY = (
    "select (select count(*) from fencing.history), (select sum(pg_total_relation_size(relid)) "
    "from pg_partition_tree('fencing.history') where isleaf)"
)
PROCESSES = ("gateway", "server", "redis", "client")


class Sizes(Bench):
    def history(self) -> tuple[int, int]:
        ((rows, size),) = self.sql(self.postgres["database"], HISTORY)
        return int(rows), int(size)

    def run(self, work: str, clients: int, seconds: float) -> dict[str, float]:
        gateway, before = self.stack["gateways"][0]["pid"], self.history()
        command = bench_command(self.arguments.fencegate, self.stack, work, clients, 1000)
        command += ["--time", f"{round(seconds * 1000)}ms"]
        measured = self.run_and_measure(command, gateway)
        rows, size = self.history()
        return {
            "operations": measured["result"]["operations"],
            "p50": measured["result"]["work"][work]["p50_ms"],
            "rows": rows - before[0],
            "bytes": size - before[1],
            **{name: measured[name] for name in (*PROCESSES, "wal")},
        }

    def measure(self, work: str, clients: int) -> dict[str, float]:
        empty, full = self.run(work, clients, 0.3), self.run(work, clients, self.arguments.seconds)
        used = {name: full[name] - empty[name] for name in full}
        costs = {name: used[name] / used["operations"] for name in (*PROCESSES, "wal", "rows")}
        return {
            **costs,
            "rate": full["operations"] / self.arguments.seconds,
            "p50": full["p50"],
            "row": used["bytes"] / max(used["rows"], 1),
        }


def report(name: str, rounds: list[dict[str, float]]) -> str:
    cost = {key: statistics.median(measured[key] for measured in rounds) for key in rounds[0]}
    gateway, server, nodes, client = (cost[process] * 1e6 for process in PROCESSES)
    return (
        f"{name:52} {cost['rate']:7.0f}/s  CPU, "
        f"us: gateway {gateway:4.0f}  PostgreSQL {server:4.0f}  nodes {nodes:4.0f}  client {client:3.0f}  "
        f"WAL {cost['wal']:5.0f} B  history {cost['rows']:4.1f} rows of {cost['row']:4.0f} B"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path)
    parser.add_argument("builds", nargs="*", metavar="NAME=PROGRAM")
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--fencegate", type=pathlib.Path, default=ROOT / "build" / "release" / "fencegate")
    arguments = parser.parse_args()
    if bool(arguments.stack) == bool(arguments.builds):
        parser.error("either --stack or builds are needed")
    with contextlib.ExitStack() as cleanup:
        stacks = {"": arguments.stack}
        if arguments.builds:
            stacks = {}
            for build in arguments.builds:
                name, _, program = build.partition("=")
                if not os.access(program, os.X_OK):
                    parser.error(f"{build}: no program; give NAME=PROGRAM")
                os.environ["FENCEGATE_BINARY"] = program
                stacks[name] = cleanup.enter_context(running_stack("--appendfsync", "no")).data / "stack.json"
        benches = {}
        for name, stack in stacks.items():
            benches[name] = Sizes(argparse.Namespace(**{**vars(arguments), "stack": stack}))
            cleanup.callback(benches[name].close)
        for title, mode, clients in (OPERATIONS[operation] for operation in arguments.operations):
            measured: dict[str, list[dict[str, float]]] = {name: [] for name in benches}
            for number in range(arguments.rounds):
                for name in list(benches)[:: -1 if number % 2 else 1]:
                    measured[name].append(benches[name].measure(mode, clients))
            for name, rounds in measured.items():
                print(report(f"{name} {title}".strip(), rounds), flush=True)


if __name__ == "__main__":
    main()
