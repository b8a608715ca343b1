#!/usr/bin/python3
"""medians.py results.jsonl   the table of compare.sh: medians over the rounds, and each peer's share of fencegate's rate."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from typing import Any

OURS = "fencegate"
# The peers' names for what our modes do: W1 take and release, W2 one hot lock, W3 the whole job, W4 the guarded write alone.
SAME = {"W1": "pair", "W2": "hot", "W3": "job", "W4": "write"}
TITLES = {"pair": "take + release, own resource", "hot": "one hot resource, hand-overs", "job": "take + guarded write + release", "shot": "the same in one call", "write": "guarded write alone"}


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main(file: str) -> None:
    cells: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    with open(file) as lines:
        for line in lines:
            got = json.loads(line)
            cells[SAME.get(got["workload"], got["workload"]), got["row"], got["clients"]].append(got)

    def median(cell: tuple[str, str, int], member: str) -> float | None:
        values = [got[member] for got in cells.get(cell, []) if got.get(member) is not None]
        return statistics.median(values) if values else None

    for workload, title in TITLES.items():
        counts = sorted({clients for kind, _, clients in cells if kind == workload})
        names = list(dict.fromkeys(row for kind, row, _ in cells if kind == workload))
        print(f"\n{title}: operations a second (p50 / p99 ms), and times as many as the peer\n")
        print("| | " + " | ".join(f"{clients} clients" for clients in counts) + " |\n|---|" + "---|" * len(counts))
        for name in names:
            row = []
            for clients in counts:
                cell = (workload, name, clients)
                rate, ours = median(cell, "ops_per_s"), median((workload, OURS, clients), "ops_per_s")
                text = f"{number(rate)} ({number(median(cell, 'p50_ms'))} / {number(median(cell, 'p99_ms'))})"
                if name != OURS and rate and ours:
                    text += f" ×{ours / rate:.1f}"
                if errors := median(cell, "errors"):
                    text += f" e{math.ceil(errors)}"
                row.append(text)
            print(f"| {name} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
