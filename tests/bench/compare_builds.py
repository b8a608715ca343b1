#!/usr/bin/python3
"""Compares builds of fencegate on the lease path in one run, by what one operation of `load` costs.

    tests/bench/compare_builds.py old=/path/to/fencegate new=build/release/fencegate [--mode hot] [--rounds 6] [--seconds 3] [--clients 32] [--load build/release/load]

Each build has a stack of its own: one gateway over five nodes without fsync. They are loaded in turn, in the other order in each second round. Printed for each round, and as medians: operations a
second, and for one operation the CPU of the gateway and of the five nodes, the calls of scripts on all nodes, the time of these scripts, and the reads of all nodes. Fewer calls and reads
than before mean larger batches.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stack import Stack  # noqa: E402
from support.stack import running as running_stack  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
COLUMNS = ["operations/s", "gateway µs", "nodes µs", "script calls", "in scripts µs", "reads"]


def cpu_of(pids: list[int]) -> float:
    """Returns seconds."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def counters(stack: Stack) -> list[float]:
    """Returns the CPU of the gateway and of the nodes in µs, and of all nodes: script calls, µs in scripts, reads."""
    facts = stack.read()
    calls = script_time = reads = 0
    for node in facts["redis"]:
        with redis.Redis("127.0.0.1", node["port"]) as client:
            commands = client.info("commandstats")
            reads += client.info("stats")["total_reads_processed"]
        for name in ("cmdstat_evalsha", "cmdstat_eval"):
            calls += commands.get(name, {}).get("calls", 0)
            script_time += commands.get(name, {}).get("usec", 0)
    cpu = [cpu_of([process["pid"] for process in facts[kind]]) * 1e6 for kind in ("gateways", "redis")]
    return [*cpu, calls, script_time, reads]


def measure(stack: Stack, options: argparse.Namespace) -> list[float]:
    before = counters(stack)
    load = [str(options.load), "--stack", str(stack.data / "stack.json"), "--mode", options.mode, "--clients", str(options.clients), "--seconds", str(options.seconds)]
    printed = subprocess.run(load, check=True, capture_output=True, text=True).stdout
    rate = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))["pairs_per_s"]
    return [rate, *((late - early) / (rate * options.seconds) for early, late in zip(before, counters(stack)))]


def show(name: str, row: list[float]) -> None:
    print(f"{name:12}", *(f"{value:14.2f}" for value in row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--mode", default="pair", choices=["pair", "hot"])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--load", type=Path, default=ROOT / "build/release/load")
    options = parser.parse_args()
    with contextlib.ExitStack() as cleanup:
        stacks: dict[str, Stack] = {}
        for build in options.builds:
            name, _, program = build.partition("=")
            if not os.access(program, os.X_OK):
                parser.error(f"{build}: no program; give NAME=PROGRAM")
            os.environ["FENCEGATE_BINARY"] = program
            stacks[name] = cleanup.enter_context(running_stack("--appendfsync", "no"))
        rows: dict[str, list[list[float]]] = {name: [] for name in stacks}
        print(" " * 12, *(f"{column:>14}" for column in COLUMNS))
        for number in range(options.rounds):
            for name in list(stacks)[:: -1 if number % 2 else 1]:
                rows[name].append(measure(stacks[name], options))
                show(name, rows[name][-1])
        print("medians")
        for name, measured in rows.items():
            show(name, [statistics.median(column) for column in zip(*measured)])


if __name__ == "__main__":
    main()
