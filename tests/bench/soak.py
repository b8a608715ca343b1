#!/usr/bin/python3
"""Everything at once on a stack of `fencegate dev --gateways 2`, while its servers fail all the time; then what must hold is checked.

    tests/bench/soak.py --stack DIR/stack.json [--seconds 200] [--seed 1] [--load build/release/load] [--fencegate build/release/fencegate]

Jobs, orders, jobs in one call and callers that sleep past their lease run beside each other. Meanwhile Redis nodes are killed (the stack starts them again)
or stopped, sessions of PostgreSQL terminated, PostgreSQL and gateways stopped for a moment, one fault every 1 to 5 s. In the end verify.py counts what was sold, and
`fencegate verify` replays the history. Exit code 0: all of it holds. A call may have failed (the lines of `load` tell how many), but only with 503.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = {
    "job": ["--clients", "8", "--skus", "20"],
    "order": ["--clients", "4", "--skus", "10"],
    "shot": ["--clients", "8", "--skus", "3"],
    "stale": ["--clients", "6", "--skus", "4", "--ttl-ms", "400"],
}
TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate' order by random() limit 3"


class Faults:
    """What goes wrong; the stack's file is read each time, for what was started again has another pid."""

    def __init__(self, stack: pathlib.Path, chance: random.Random) -> None:
        self.stack, self.chance = stack, chance
        self.all: list[Callable[[], None]] = [self.node_killed, self.node_stopped, self.sessions_terminated, self.postgres_stopped, self.gateway_stopped]

    def facts(self) -> dict[str, Any]:
        return json.loads(self.stack.read_text())

    def one(self) -> str:
        fault = self.chance.choice(self.all)
        try:
            fault()
        except ProcessLookupError:
            return f"{fault.__name__}, which was down"
        return fault.__name__

    def stopped(self, pids: list[int], seconds: float) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def node_killed(self) -> None:
        os.kill(self.chance.choice(self.facts()["redis"])["pid"], signal.SIGKILL)

    def node_stopped(self) -> None:
        self.stopped([self.chance.choice(self.facts()["redis"])["pid"]], self.chance.uniform(0.3, 3))

    def gateway_stopped(self) -> None:
        self.stopped([self.chance.choice(self.facts()["gateways"])["pid"]], self.chance.uniform(0.2, 1.5))

    def postgres_stopped(self) -> None:
        pid = self.facts()["postgres"]["pid"]
        self.stopped([int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()], self.chance.uniform(0.2, 1))

    def sessions_terminated(self) -> None:
        postgres = self.facts()["postgres"]
        subprocess.run(["psql", "-qAt", "-h", postgres["host"], "-p", str(postgres["port"]), "-U", postgres["superuser"], "-d", postgres["database"], "-c", TERMINATE],
                       check=True, capture_output=True)


def only_503(line: dict[str, Any]) -> bool:
    failed = sum(statuses.get("503", 0) for statuses in line["statuses"].values())
    return line["errors"] <= failed and line["overlaps"] == line["tokens_fallen"] == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=pathlib.Path, default=ROOT / "build/release/load")
    parser.add_argument("--fencegate", type=pathlib.Path, default=ROOT / "build/release/fencegate")
    given = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    running = {mode: subprocess.Popen([given.load, "--stack", given.stack, "--mode", mode, "--seconds", str(given.seconds), "--prefix", f"soak-{mode}-{given.seed}-",
                                       "--sales", folder / mode, *more], stdout=subprocess.PIPE, text=True) for mode, more in WORK.items()}
    faults = Faults(given.stack, random.Random(given.seed))
    end = time.monotonic() + given.seconds - 5
    while time.monotonic() < end:
        time.sleep(faults.chance.uniform(1, 4))
        print(faults.one(), flush=True)
    holds = True
    for mode, process in running.items():
        people, line = process.communicate(timeout=60)[0].splitlines()[:2]
        print(people)
        holds = only_503(json.loads(line)) and holds
        counted = subprocess.run([ROOT / "tests/bench/verify.py", "--stack", given.stack, "--sales", folder / mode], text=True, capture_output=True)
        print(counted.stdout, end="")
        holds = counted.returncode == 0 and holds
    time.sleep(3)  # until the last leases of those who slept are over and in the history
    data = given.stack.parent
    replayed = subprocess.run([given.fencegate, "verify", "--config", data / "gateway-1.yaml"], env={**os.environ, "PGPASSFILE": str(data / "pgpass")})
    raise SystemExit(0 if holds and replayed.returncode == 0 else 1)


if __name__ == "__main__":
    main()
