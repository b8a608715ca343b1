#!/usr/bin/python3
"""Compares what operations cost with an earlier commit: rate, p50, and CPU of all servers.

    tests/bench/budget.py COMMIT [--operations pair hot …] [--rounds 4] [--seconds 3]
    [--fencegate build/release/fencegate]

Builds COMMIT in build/budget (once for each commit), runs both programs in turn as sizing.py does, and prints for each
operation the least CPU and time of the rounds, and what it costs now as a multiple of what it cost then. The exit code
is 1 where an operation costs more than 3 % more CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess

from sizing import Sizes, running_stack
from support import contract
from writes import ROOT

OPERATIONS = {
    f"{name}-{clients}": (mode, clients)
    for name, mode in (("pair", "pair"), ("hot", "hot"), ("write", "write"), ("job", "job"), ("sale", "sale"))
    for clients in (64, 1)
    if (name, clients) != ("hot", 1)
}
SERVERS = {"gateway": "gateway", "server": "PostgreSQL", "redis": "nodes"}
TOLERATED = 1.03


def build(commit: str) -> pathlib.Path:
    full = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True)
    folder = ROOT / "build" / "budget" / full.stdout.strip()
    if not folder.exists():
        subprocess.run(["git", "worktree", "add", "--detach", folder, commit], cwd=ROOT, check=True)
    subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["cmake", "--build", "--preset", "release", "--target", "fencegate"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder / "build" / "release" / "fencegate"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--fencegate", type=pathlib.Path, default=ROOT / "build" / "release" / "fencegate")
    arguments = parser.parse_args()
    contract.check = lambda method, target, answer: None  # openapi.json is that of this commit
    dearer = False
    with contextlib.ExitStack() as cleanup:
        benches = {}
        for name, program in (("then", build(arguments.commit)), ("now", arguments.fencegate)):
            os.environ["FENCEGATE_BINARY"] = str(program)
            stack = cleanup.enter_context(running_stack("--appendfsync", "no")).data / "stack.json"
            benches[name] = Sizes(argparse.Namespace(**{**vars(arguments), "stack": stack}))
            cleanup.callback(benches[name].close)
        for operation in arguments.operations:
            measured: dict[str, list[dict[str, float]]] = {name: [] for name in benches}
            for number in range(arguments.rounds):
                for name in list(benches)[:: -1 if number % 2 else 1]:
                    measured[name].append(benches[name].measure(*OPERATIONS[operation]))
            total = {}
            for name, rounds in measured.items():
                total[name] = min(sum(values[server] for server in SERVERS) for values in rounds) * 1e6
                cpu = "  ".join(f"{text} {min(v[key] for v in rounds) * 1e6:5.0f}" for key, text in SERVERS.items())
                print(
                    f"{operation:9} {name:4} {max(v['rate'] for v in rounds):7.0f}/s  "
                    f"p50 {min(v['p50'] for v in rounds):6.2f} ms  CPU {total[name]:5.0f} us: {cpu}"
                )
            ratio = total["now"] / total["then"]
            dearer = dearer or ratio > TOLERATED
            print(f"{operation:9} CPU x{ratio:.2f}{'  more than 3 % dearer' if ratio > TOLERATED else ''}", flush=True)
    return int(dearer)


if __name__ == "__main__":
    raise SystemExit(main())
