"""Runs the scenarios with the driver of a client: `python3 -m conformance.run COMMAND…` in tests/clients.
docs/client.md says what a driver does."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from .scenario import Scenario
from .scenarios import SCENARIOS
from .scripted_gateway import serving

TIME = 60
AT_ONCE = 6


class Driver:
    """A process of a driver."""

    def __init__(self, command: list[str], write: Callable[[dict[str, Any]], str]) -> None:
        self.write = write
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, scenario: Scenario) -> list[str]:
        """Returns what is not as expected."""
        assert self.process.stdin and self.process.stdout
        with socket.socket() as closed, serving(scenario.scripts) as gateways:
            closed.bind(("127.0.0.1", 0))  # nothing listens there
            urls = [f"http://127.0.0.1:{closed.getsockname()[1]}"] if scenario.unreachable else gateways.urls
            given = {"urls": urls, "retry_for_ms": scenario.retry_for_ms, "commands": scenario.commands}
            watch = threading.Timer(TIME, self.process.kill)
            watch.start()
            try:
                self.process.stdin.write(self.write(given) + "\n")
                self.process.stdin.flush()
                outcomes = json.loads(self.process.stdout.readline())
            except (OSError, ValueError) as failure:
                return [f"the driver gives no outcomes: {failure}"]
            finally:
                watch.cancel()
            return scenario.faults(outcomes, gateways.asked.copy())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def run_all(command: list[str], write: Callable[[dict[str, Any]], str] = json.dumps) -> dict[str, list[str]]:
    """Returns the faults of each scenario. `write` makes the line of a scenario."""
    local = threading.local()
    drivers: list[Driver] = []

    def begin() -> None:
        local.driver = Driver(command, write)
        drivers.append(local.driver)

    try:
        with ThreadPoolExecutor(AT_ONCE, initializer=begin) as threads:
            return dict(zip(SCENARIOS, threads.map(lambda each: local.driver.run(each), SCENARIOS.values())))
    finally:
        for driver in drivers:
            driver.close()


if __name__ == "__main__":
    found = run_all(sys.argv[1:])
    for name, faults in found.items():
        print("ok  " if not faults else "FAIL", name, *faults, sep="  ")
    sys.exit(any(found.values()))
