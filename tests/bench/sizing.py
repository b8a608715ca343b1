#!/usr/bin/python3
"""Measures what one operation costs each server, for the table of sizes in docs/operations.md.

    tests/bench/sizing.py --stack DIR/stack.json [--rounds 3] [--seconds 5] [--load build/release/load]

Printed for each operation, as medians of the rounds: CPU of the gateway, of PostgreSQL and of all nodes together, bytes of the write-ahead log, rows of the history, and bytes of a row
with its indexes. What creating the articles costs is measured by a very short run and subtracted.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
from typing import Any

from writes import ROOT, Bench

OPERATIONS = {"a lease: acquire and release": ("pair", 64), "a write under a lease that is held": ("write", 64), "the same by one caller": ("write", 1),
              "a write with a lease of its own": ("shot", 64)}
HISTORY = """select (select count(*) from fencing.history), (select sum(pg_total_relation_size(relid)) from pg_partition_tree('fencing.history') where isleaf)"""


class Sizes(Bench):
    def history(self) -> tuple[int, int]:
        ((rows, size),) = self.sql(self.postgres["database"], HISTORY)
        return int(rows), int(size)

    def run(self, mode: str, clients: int, seconds: float) -> dict[str, float]:
        gateway, before = self.stack["gateways"][0]["pid"], self.history()
        command: list[Any] = [self.arguments.load, "--stack", self.arguments.stack, "--mode", mode, "--clients", str(clients), "--seconds", str(seconds), "--warm-seconds", "0",
                              "--skus", "1000"]
        measured = self.run_and_measure(command, gateway)
        rows, size = self.history()
        rate = next(value for name, value in measured["result"].items() if name.endswith("_per_s"))
        return {"operations": rate * seconds, "rows": rows - before[0], "bytes": size - before[1], **{name: measured[name] for name in ("gateway", "server", "redis", "wal")}}

    def measure(self, mode: str, clients: int) -> dict[str, float]:
        empty, full = self.run(mode, clients, 0.3), self.run(mode, clients, self.arguments.seconds)
        used = {name: full[name] - empty[name] for name in full}
        costs = {name: used[name] / used["operations"] for name in ("gateway", "server", "redis", "wal", "rows")}
        return {**costs, "row": used["bytes"] / max(used["rows"], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--load", type=pathlib.Path, default=ROOT / "build" / "release" / "load")
    bench = Sizes(parser.parse_args())
    try:
        for name, (mode, clients) in OPERATIONS.items():
            rounds = [bench.measure(mode, clients) for _ in range(bench.arguments.rounds)]
            cost = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
            print(f"{name:36}  gateway {cost['gateway'] * 1e6:4.0f} us  PostgreSQL {cost['server'] * 1e6:4.0f} us  nodes {cost['redis'] * 1e6:4.0f} us  "
                  f"WAL {cost['wal']:5.0f} B  history {cost['rows']:4.1f} rows of {cost['row']:4.0f} B", flush=True)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
