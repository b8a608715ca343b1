"""The clients do what docs/client.md says: the scenarios of conformance/scenarios.py with each client's driver."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from conformance.run import run_all
from conformance.scenarios import SCENARIOS
from support import processes
from test_typescript import package  # noqa: F401

ROOT = processes.repository()
DRIVERS = ROOT / "tests/clients/conformance/drivers"
KINDS = ["go", "java", "python", "python_async", "typescript"]


def line_of(scenario: dict[str, Any]) -> str:
    """Writes a scenario for the driver in Java."""
    commands = [",".join(f"{name}={value}" for name, value in each.items()) for each in scenario["commands"]]
    return "\t".join([" ".join(scenario["urls"]), str(scenario["retry_for_ms"]), *commands])


def go(folder: Path, _: pytest.FixtureRequest) -> list[str]:
    environment = {**os.environ, "GOPROXY": "off", "GOCACHE": str(ROOT / "build/go-cache")}
    done = processes.run(
        ["go", "build", "-race", "-o", str(folder / "driver"), "."], cwd=DRIVERS / "go", env=environment
    )
    assert done.returncode == 0, done.stderr
    return [str(folder / "driver")]


def java(folder: Path, _: pytest.FixtureRequest) -> list[str]:
    sources = [DRIVERS / "Driver.java", *(ROOT / "clients/java/client/src/main/java").rglob("*.java")]
    done = processes.run(["javac", "-d", str(folder), *map(str, sources)])
    assert done.returncode == 0, done.stderr
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", str(folder), "Driver"]


def typescript(folder: Path, request: pytest.FixtureRequest) -> list[str]:
    built = request.getfixturevalue("package")
    (folder / "node_modules/@fencegate").mkdir(parents=True)
    (folder / "node_modules/@fencegate/client").symlink_to(built)
    (folder / "driver.mjs").write_text((DRIVERS / "driver.mjs").read_text())
    return ["node", str(folder / "driver.mjs")]


COMMANDS: dict[str, Callable[[Path, pytest.FixtureRequest], list[str]]] = {
    "go": go,
    "java": java,
    "python": lambda *_: [sys.executable, str(DRIVERS / "driver.py"), "sync"],
    "python_async": lambda *_: [sys.executable, str(DRIVERS / "driver.py"), "async"],
    "typescript": typescript,
}


@pytest.fixture(scope="module", params=KINDS)
def faults(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each scenario has found in a client."""
    kind: str = request.param
    command = COMMANDS[kind](tmp_path_factory.mktemp(kind), request)
    return run_all(command, line_of) if kind == "java" else run_all(command)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_client_does_what_it_must(faults: dict[str, list[str]], scenario: str) -> None:
    assert not faults[scenario]


PAGE = (ROOT / "docs/client.md").read_text()
SOURCES = {"go": "*.go", "java": "client/src/main/java/fencegate/client/*.java", "python": "src/fencegate/*.py"}


def test_page_has_the_rules_of_the_scenarios() -> None:
    assert {scenario.rule for scenario in SCENARIOS.values()} <= set(re.findall(r"^## (.*)$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("client", [*SOURCES, "typescript"])
def test_clients_have_the_names_of_the_page(client: str) -> None:
    names = re.findall(r"`(\w+)`", PAGE.partition("## Names\n")[2].partition(";")[0])
    sources = "".join(path.read_text() for path in (ROOT / "clients" / client).glob(SOURCES.get(client, "src/*.ts")))
    assert len(names) > 10
    for name in names:
        if client == "go":
            name = {"leaseId": "LeaseID"}.get(name, name[0].upper() + name[1:])
        elif client == "python":
            name = re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name)
        elif client == "java" and name == "oneShotWrite":
            name = "oneShot"
        assert re.search(rf"\b{name}(Ms)?\b", sources), name
