#!/usr/bin/python3
"""Runs several workloads on a stack of `fencegate dev --gateways 2` while its servers fail, then checks the results.

    tests/bench/soak.py --stack DIR/stack.json [--seconds 200] [--seed 1] [--fencegate build/release/fencegate]

Jobs, jobs in one call and callers that sleep past the end of their lease run at the same time.
Every 1 to 5 s one fault: a Redis node is killed (the stack restarts it) or stopped, sessions of PostgreSQL
are terminated, PostgreSQL or a gateway is stopped for a moment.
`fencegate bench` compares the sales with PostgreSQL, and in the end `fencegate verify` replays the history.
Exit code 0: both succeed. Calls may fail, but only with 503.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import time
from typing import Any, Callable

from writes import bench_command, bench_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOADS = {"job": (8, 20, []), "sale": (8, 3, []), "late": (6, 4, ["--ttl", "400ms"])}
TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate' "
    "order by random() limit 3"
)


class Faults:
    """Injects faults. Reads the stack's file each time, because a restarted process has another pid."""

    def __init__(self, stack: pathlib.Path, generator: random.Random) -> None:
        self.stack, self.generator = stack, generator
        self.injections: list[Callable[[], None]] = [
            self.kill_node,
            self.suspend_node,
            self.terminate_sessions,
            self.suspend_postgres,
            self.suspend_gateway,
        ]

    def read_stack(self) -> dict[str, Any]:
        return json.loads(self.stack.read_text())

    def inject_one(self) -> str:
        fault = self.generator.choice(self.injections)
        try:
            fault()
        except ProcessLookupError:
            return f"{fault.__name__}, which was down"
        return fault.__name__

    def suspend(self, pids: list[int], seconds: float) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def kill_node(self) -> None:
        os.kill(self.generator.choice(self.read_stack()["redis"])["pid"], signal.SIGKILL)

    def suspend_node(self) -> None:
        self.suspend([self.generator.choice(self.read_stack()["redis"])["pid"]], self.generator.uniform(0.3, 3))

    def suspend_gateway(self) -> None:
        self.suspend([self.generator.choice(self.read_stack()["gateways"])["pid"]], self.generator.uniform(0.2, 1.5))

    def suspend_postgres(self) -> None:
        pid = self.read_stack()["postgres"]["pid"]
        self.suspend(
            [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()],
            self.generator.uniform(0.2, 1),
        )

    def terminate_sessions(self) -> None:
        postgres = self.read_stack()["postgres"]
        subprocess.run(
            [
                "psql",
                "-qAt",
                "-h",
                postgres["host"],
                "-p",
                str(postgres["port"]),
                "-U",
                postgres["superuser"],
                "-d",
                postgres["database"],
                "-c",
                TERMINATE,
            ],
            check=True,
            capture_output=True,
        )


def has_only_503(line: dict[str, Any]) -> bool:
    failed = sum(statuses.get("503", 0) for statuses in line["statuses"].values())
    promises = ("overlaps", "tokens_fallen", "articles_that_differ", "clients_without_answer")
    return line["operations"] > 0 and line["errors"] <= failed and not any(line[name] for name in promises)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fencegate", type=pathlib.Path, default=ROOT / "build/release/fencegate")
    arguments = parser.parse_args()
    stack = json.loads(arguments.stack.read_text())
    running = {
        work: subprocess.Popen(
            [
                *bench_command(arguments.fencegate, stack, work, clients, articles),
                *("--time", f"{arguments.seconds}s", "--seed", str(arguments.seed)),
                *more,
            ],
            env=bench_environment(stack),
            stdout=subprocess.PIPE,
            text=True,
        )
        for work, (clients, articles, more) in WORKLOADS.items()
    }
    faults = Faults(arguments.stack, random.Random(arguments.seed))
    end = time.monotonic() + arguments.seconds - 5
    while time.monotonic() < end:
        time.sleep(faults.generator.uniform(1, 4))
        print(faults.inject_one(), flush=True)
    succeeded = True
    for process in running.values():
        line = process.communicate(timeout=60)[0]
        print(line, end="")
        succeeded = has_only_503(json.loads(line)) and succeeded
    time.sleep(3)  # until the last leases have expired and are in the history
    data = arguments.stack.parent
    replayed = subprocess.run(
        [arguments.fencegate, "verify", "--config", data / "gateway-1.yaml"],
        env={**os.environ, "PGPASSFILE": str(data / "pgpass")},
    )
    raise SystemExit(0 if succeeded and replayed.returncode == 0 else 1)


if __name__ == "__main__":
    main()
