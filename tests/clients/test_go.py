"""The Go client: gofmt, go vet, the tests of tests/clients/go on two gateways with faults, its page's example."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Iterator

import pytest
from fault_site import KEYS, PASSWORD, FaultServer, running_site
from support import processes
from support.documents import blocks_of
from support.stack import Stack

ROOT = processes.repository()
CLIENT = ROOT / "clients/go"
TESTS = ROOT / "tests/clients/go"
CASES = sorted(
    case
    for file in TESTS.glob("*_test.go")
    for case in re.findall(r"^func (Test\w+)\(", file.read_text(), re.MULTILINE)
)
# Nothing is downloaded; Debian's golang-github-lib-pq-dev has the driver that the tests use.
ENVIRONMENT = {**os.environ, "GOPROXY": "off", "GOCACHE": str(ROOT / "build/go-cache")}


def run(*command: object, folder: Path, **variables: str) -> str:
    done = processes.run(
        [str(word) for word in command],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        timeout=600,
        preexec_fn=processes.terminate_with_parent,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


def outcomes_of(log: str) -> dict[str, str]:
    """Returns what became of each test in the output of `go test -json`: `pass`, or its own output."""
    printed: dict[str, list[str]] = {}
    outcomes = {}
    for line in log.splitlines():
        if not line.startswith("{"):
            continue
        event: dict[str, Any] = json.loads(line)
        name = event.get("Test", "")
        if event["Action"] == "output":
            printed.setdefault(name, []).append(event["Output"])
        elif event["Action"] in ("pass", "fail", "skip"):
            outcomes[name] = "pass" if event["Action"] == "pass" else "".join(printed.get(name, [])) or "it failed"
    return outcomes


@pytest.fixture(scope="module")
def outcomes(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    log = tmp_path_factory.mktemp("go") / "test.log"
    with running_site(stack, "go") as site, FaultServer(site) as server:
        settings = {
            "FENCEGATE_GATEWAYS": " ".join(site.addresses),
            "FENCEGATE_FAULTS": f"http://127.0.0.1:{server.server_port}/",
            "FENCEGATE_DATABASE": f"postgres://{site.user}:{PASSWORD}@{site.database}?sslmode=disable",
            **{f"FENCEGATE_KEY_{name.upper()}": key for name, key in KEYS.items()},
        }
        command = ["go", "test", "-race", "-json", "-count=1", "-timeout=1100s", "."]
        process = processes.start(command, log, cwd=TESTS, env={**ENVIRONMENT, **settings})
        server.serve_until_end(process, 1_200)
    text = log.read_text()
    assert '"Test":' in text, text[-4000:]
    assert "DATA RACE" not in text, text[-8000:]
    yield outcomes_of(text)


@pytest.mark.parametrize("case", CASES)
def test_go_case_passes(outcomes: dict[str, str], case: str) -> None:
    outcome = outcomes.get(case, "it was not run")
    assert outcome == "pass", outcome


def test_go_is_formatted_and_vetted() -> None:
    assert run("gofmt", "-l", CLIENT, TESTS, folder=ROOT) == ""
    run("go", "vet", "./...", folder=CLIENT)
    run("go", "vet", "./...", folder=TESTS)


def test_client_uses_the_standard_library_alone() -> None:
    assert run("go", "list", "-m", "all", folder=CLIENT).split() == ["fencegate"]


def test_exported_names_have_a_comment() -> None:
    found = []
    for path in CLIENT.glob("*.go"):
        lines = path.read_text().splitlines()
        for before, line in zip(["", *lines], lines):
            if re.match(r"(func|type) (\([^)]*\) )?[A-Z]", line) and not before.startswith("//"):
                if not line.startswith("func (detached)"):
                    found.append(f"{path.name}: {line}")
    assert not found


def test_first_example_of_readme_runs_as_pasted(stack: Stack, tmp_path: Path) -> None:
    blocks = {block.words: block for block in blocks_of(CLIENT / "README.md", ROOT) if block.directive == "file"}
    for name, block in blocks.items():
        text = block.text.replace("http://localhost:8080", stack.facts["http"]).replace("../clients/go", str(CLIENT))
        assert text != block.text
        (tmp_path / name).write_text(text)
    before = stack.query("select stock from inventory where sku = 'sku-1'")[0][0]
    shown = run("go", "run", ".", folder=tmp_path)
    assert re.fullmatch(r"token \d+: 1 piece sold\n", shown), shown
    assert stack.query("select stock from inventory where sku = 'sku-1'")[0][0] == before - 1
