#!/usr/bin/python3
"""medians.py results.jsonl   Prints the table of compare.sh: medians over the rounds,
and fencegate's rate as a multiple of each peer's."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from typing import Any

OURS = "fencegate"
# The peers' workloads and the work of `fencegate bench` that does the same: W1 acquire and release, W2 one hot lock,
# W3 the whole job, W4 the guarded write alone.
MODES = {"W1": "pair", "W2": "hot", "W3": "job", "W4": "write"}
TITLES = {
    "pair": "acquire + release, own resource",
    "hot": "one hot resource, hand-overs",
    "job": "acquire + guarded write + release",
    "sale": "the same in one call",
    "write": "guarded write alone",
}


def format_number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main(file: str) -> None:
    cells: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    with open(file) as lines:
        for line in lines:
            result = json.loads(line)
            cells[MODES.get(result["workload"], result["workload"]), result["row"], result["clients"]].append(result)

    def median(cell: tuple[str, str, int], member: str) -> float | None:
        values = [result[member] for result in cells.get(cell, []) if result.get(member) is not None]
        return statistics.median(values) if values else None

    for workload, title in TITLES.items():
        counts = sorted({clients for kind, _, clients in cells if kind == workload})
        names = list(dict.fromkeys(row for kind, row, _ in cells if kind == workload))
        print(f"\n{title}: operations per second (p50 / p99 ms), and fencegate's rate divided by the peer's\n")
        print("| | " + " | ".join(f"{clients} clients" for clients in counts) + " |\n|---|" + "---|" * len(counts))
        for name in names:
            row = []
            for clients in counts:
                cell = (workload, name, clients)
                rate, ours = median(cell, "ops_per_s"), median((workload, OURS, clients), "ops_per_s")
                text = (
                    f"{format_number(rate)} ({format_number(median(cell, 'p50_ms'))} / "
                    f"{format_number(median(cell, 'p99_ms'))})"
                )
                if name != OURS and rate and ours:
                    text += f" ×{ours / rate:.1f}"
                if errors := median(cell, "errors"):
                    text += f" e{math.ceil(errors)}"
                row.append(text)
            print(f"| {name} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
