"""The recipes for the shell in docs/recipes: their commands in a shell, and their scheduled commands on three machines
with different clocks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
import yaml
from support import processes
from support.documents import Block, Shell, blocks_of, commands_of, faults_of
from support.polling import eventually
from support.stack import Stack, make_folder

ROOT = processes.repository()
PAGES = ["docs/recipes/cron.md", "docs/recipes/leader-election.md", "docs/recipes/any-of.md"]


@pytest.fixture
def home(stack: Stack) -> Iterator[Path]:
    """A home folder with the scheduled command, which has a line in a log for each run."""
    folder = make_folder()
    (folder / "home").mkdir()
    (folder / "home" / "report").write_text(
        '#!/bin/sh\ntest -n "$FENCING_TOKEN" && echo report >> runs.log && echo report\n'
    )
    (folder / "home" / "report").chmod(0o755)
    yield folder / "home"
    shutil.rmtree(folder)


def variables_of(stack: Stack) -> dict[str, str]:
    postgres = stack.facts["postgres"]
    kept = {name: value for name, value in os.environ.items() if not re.match("FENCEGATE|FENCING|PG|FAKETIME", name)}
    return {
        **kept,
        "FENCEGATE_URL": stack.facts["http"],
        "PGHOST": postgres["host"],
        "PGPORT": str(postgres["port"]),
        "PGUSER": postgres["superuser"],
        "PGDATABASE": postgres["database"],
    }


def file_of(page: str, name: str) -> Block:
    return next(block for block in blocks_of(ROOT / page, ROOT) if block.directive == "file" and block.words == name)


@pytest.mark.parametrize("page", PAGES)
def test_recipe_commands_have_the_results_shown(stack: Stack, home: Path, page: str) -> None:
    blocks = blocks_of(ROOT / page, ROOT)
    assert not faults_of(blocks)
    shell = Shell(home.parent, variables_of(stack))
    try:
        for block in blocks:
            if block.directive == "file":
                (home / block.words).write_text(block.text)
            elif block.is_run:
                for command in commands_of(block.text):
                    shell.run(command, lambda: None)
    finally:
        shell.end()


def words_of_cron() -> list[str]:
    schedule = file_of("docs/recipes/cron.md", "report.cron").text.splitlines()[1].split(maxsplit=6)
    assert schedule[:5] == ["*/5", "*", "*", "*", "*"]
    return shlex.split(schedule[6])


def words_of_unit() -> list[str]:
    unit = file_of("docs/recipes/cron.md", "report.service").text
    return shlex.split(unit.split("ExecStart=")[1])


def words_of_job() -> list[str]:
    job = yaml.safe_load(file_of("docs/recipes/cron.md", "report.yaml").text)
    return job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]


@pytest.mark.parametrize(
    "words", [words_of_cron(), words_of_unit(), words_of_job()], ids=["cron", "systemd", "kubernetes"]
)
def test_scheduled_recipe_runs_tick_once_on_three_machines(
    stack: Stack, home: Path, words: list[str], request: pytest.FixtureRequest
) -> None:
    """Two machines start at the same time, one whose clock is late starts after both have ended."""
    assert words[0] == "fencegate" and "jobs/report" in words
    (home / "key").write_text("a-key-that-no-gateway-of-this-stack-checks\n")
    places = {
        "fencegate": str(processes.fencegate_binary()),
        "jobs/report": f"jobs/{request.node.callspec.id}-{os.getpid()}",
        **{name: str(home / "key") for name in ("/etc/report.key", "/etc/fencegate/report.key")},
    }
    command = [places.get(word, word) for word in words]

    def start(offset: str) -> subprocess.Popen:
        env = {**variables_of(stack), **processes.faketime_environment(), "FAKETIME": offset}
        return subprocess.Popen(
            command,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    first = [start("+0s"), start("-1s")]
    outputs = [process.communicate(timeout=30)[0] for process in first]
    late = start("-20s")
    outputs.append(late.communicate(timeout=30)[0])
    assert [process.returncode for process in (*first, late)] == [0, 0, 0], outputs
    assert sorted(outputs) == ["", "", "report\n"], "no machine but the one that ran it prints anything"
    assert (home / "runs.log").read_text() == "report\n"


def test_units_of_recipes_are_valid(home: Path) -> None:
    units = {
        name: file_of(page, name).text
        for page, name in ((PAGES[0], "report.timer"), (PAGES[0], "report.service"), (PAGES[1], "mailer.service"))
    }
    for name, text in units.items():
        (home / name).write_text(text.replace("ExecStart=fencegate", f"ExecStart={processes.fencegate_binary()}"))
    done = processes.run(["systemd-analyze", "verify", *(str(home / name) for name in units)])
    assert done.returncode == 0 and not [line for line in done.stderr.splitlines() if str(home) in line], done.stderr


def test_leader_recipe_successor_has_higher_term(stack: Stack, home: Path) -> None:
    (home / "mailer").write_text(file_of(PAGES[1], "mailer").text)
    (home / "mailer").chmod(0o755)
    (home / "key").write_text("a-key-that-no-gateway-of-this-stack-checks\n")
    words = shlex.split(
        next(
            line.removeprefix("ExecStart=")
            for line in file_of(PAGES[1], "mailer.service").text.splitlines()
            if line.startswith("ExecStart=")
        )
    )
    places = {"fencegate": str(processes.fencegate_binary()), "/etc/fencegate/mailer.key": str(home / "key")}
    members = [
        subprocess.Popen(
            [places.get(word, word) for word in words],
            cwd=home,
            env=variables_of(stack),
            stdin=subprocess.DEVNULL,
            stdout=(home / f"log-{number}").open("w"),
            preexec_fn=processes.terminate_with_parent,
        )
        for number in range(2)
    ]

    def terms() -> list[int]:
        return sorted(
            int(line.split()[-1]) for number in range(2) for line in (home / f"log-{number}").read_text().splitlines()
        )

    eventually(lambda: len(terms()) == 1, 15, goal="one leads")
    leader = next(number for number in range(2) if (home / f"log-{number}").read_text())
    members[leader].kill()
    eventually(lambda: len(terms()) == 2, 15, goal="the other leads")
    assert terms()[0] < terms()[1] and (home / f"log-{1 - leader}").read_text().endswith(f" {terms()[1]}\n")
    for member in members:
        member.terminate()
        member.wait(10)
