"""gateway/quickstart, gateway/devstack/demo and config/install-packages on machines
with other locales and without packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import processes
from support.postgres import unprivileged
from support.stack import Stack, make_folder

ROOT = processes.repository()
# Debian's psql is a perl program, and perl warns on standard error where LANG names a locale that was not generated.
FOREIGN = {**{name: value for name, value in os.environ.items() if not name.startswith("LC_")}, "LANG": "xx_XX.UTF-8"}


def write_stub(folder: Path, name: str, script: str) -> None:
    """Writes a program that replaces a real one on the PATH."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_demo_with_missing_locale_succeeds(stack: Stack) -> None:
    warned = processes.run(["psql", "--version"], env=FOREIGN)
    assert "locale" in warned.stderr, "psql must warn, else this test checks nothing"
    done = processes.run(
        [str(ROOT / "gateway" / "devstack" / "demo"), str(stack.data / "stack.json")], env=FOREIGN, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    refusals = [line for line in done.stdout.splitlines() if line.startswith("psql<")]
    assert [line.split()[2] for line in refusals] == ["FG428:", "FG412:"]
    assert all("locale" not in line for line in refusals)


def test_demo_with_proxy_and_libpq_variables_succeeds(stack: Stack) -> None:
    """The stack is on this machine: neither a proxy nor another server of PostgreSQL is asked."""
    closed = f"http://127.0.0.1:{processes.free_port()}"
    environment = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    environment.update(
        http_proxy=closed, all_proxy=closed, PGSERVICE="nowhere", PGHOSTADDR="127.0.0.2", PGSSLMODE="require"
    )
    done = processes.run(
        [str(ROOT / "gateway" / "devstack" / "demo"), str(stack.data / "stack.json")], env=environment, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_quickstart(programs: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs it with the stubs in `programs` and every package installed."""
    write_stub(programs, "dpkg-query", 'case "$*" in *Provides*) exit 0;; esac; printf installed')
    env = {**FOREIGN, "PATH": f"{programs}:{os.environ['PATH']}"}
    return processes.run([str(ROOT / "gateway" / "quickstart"), "--once", *arguments], env=env, timeout=60)


def test_quickstart_failing_build_shows_the_end_of_its_log(tmp_path: Path) -> None:
    write_stub(tmp_path, "cmake", "case $1 in --preset) exit 0;; esac; echo no such header; exit 1")
    done = run_quickstart(tmp_path)
    assert done.returncode == 1 and "no such header" in done.stderr and "The build failed" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "This will" and "Step 1 of 4: packages" in lines


def test_quickstart_progress_has_count_rate_and_time_left(tmp_path: Path) -> None:
    """Feeds the function lines of ninja, one every half second, and lets it report each second and not each 15."""
    script = (
        f'. "{ROOT}/gateway/devstack/quickstart_functions.sh"; progress_interval=1; log={tmp_path}/log; '
        'for n in 0 0 0 0 $(seq 8); do echo "[$n/40] Building CXX object $n"; sleep 0.5; done | show_progress'
    )
    done = processes.run(["/bin/bash", "-c", script], env=FOREIGN, timeout=60)
    reports = [
        re.fullmatch(r"  (\d+) of 40 files, (\d+) a minute, about (\d+) (s|min) left", line)
        for line in done.stdout.splitlines()
    ]
    assert len(reports) >= 2 and all(reports), done.stdout + done.stderr
    for report in reports:
        assert report
        built, rate, left = (int(number) for number in report.groups()[:3])
        seconds_left = left * (60 if report[4] == "min" else 1)
        assert 0 <= seconds_left - (40 - built) * 60 / (rate + 1) and seconds_left <= (40 - built) * 60 / rate + 60
    assert (tmp_path / "log").read_text().count("Building") == 12 and not done.stderr


def test_quickstart_with_installed_version_builds_nothing(tmp_path: Path) -> None:
    write_stub(tmp_path, "cmake", "echo cmake was called; exit 1")
    (tmp_path / "fencegate").symlink_to(processes.fencegate_binary())
    done = run_quickstart(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"use {tmp_path}/fencegate" in done.stdout and "Step 2 of 4: nothing to build" in done.stdout
    assert "412" in done.stdout, "the example has run"


@pytest.mark.parametrize(
    ("version", "arguments"), [("0.0.1", []), (None, ["--build"])], ids=["another version", "--build"]
)
def test_quickstart_builds_beside_an_installed_program(
    tmp_path: Path, version: str | None, arguments: list[str]
) -> None:
    write_stub(tmp_path, "cmake", "case $1 in --preset) exit 0;; esac; echo cmake was called; exit 1")
    if version:
        write_stub(tmp_path, "fencegate", f"echo fencegate {version}")
    else:
        (tmp_path / "fencegate").symlink_to(processes.fencegate_binary())
    done = run_quickstart(tmp_path, *arguments)
    assert done.returncode == 1 and "cmake was called" in done.stderr


def test_packages_that_need_root_are_named_before_sudo() -> None:
    folder = make_folder()
    try:
        for name in ("install-packages", "debian-packages.txt"):
            shutil.copy(ROOT / "config" / name, folder / name)
        write_stub(folder, "dpkg-query", "exit 0")
        write_stub(folder, "sudo", "echo 'sudo asks'; exit 1")
        done = processes.run(
            [str(folder / "install-packages")],
            env={"PATH": f"{folder}:/usr/bin:/bin", "LANG": "xx_XX.UTF-8"},
            cwd=folder,
            timeout=30,
            **unprivileged(),
        )
    finally:
        shutil.rmtree(folder)
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert (
        done.stdout.splitlines()[0].startswith("Missing Debian packages: ")
        and "redis-server" in done.stdout.splitlines()[0]
    )
    assert (
        output.index("needs root") < output.index("sudo asks")
        if "sudo asks" in output
        else "could not install" in output
    )


def test_comparison_names_all_missing_packages(tmp_path: Path) -> None:
    (tmp_path / "psycopg2.py").write_text("raise ImportError")
    write_stub(tmp_path, "npm", "exit 0")
    done = processes.run(
        ["/bin/bash", str(ROOT / "tests" / "bench" / "compare.sh"), str(tmp_path)],
        timeout=30,
        env={"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 69
    assert done.stderr.rstrip().endswith(
        "apt-get install nodejs make jq g++ redis-server postgresql python3-psycopg2"
    ), done.stderr
