"""gateway/quickstart, gateway/devstack/demo and config/install-packages on machines with other locales and without packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

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
    warned = subprocess.run(["psql", "--version"], env=FOREIGN, capture_output=True, text=True)
    assert "locale" in warned.stderr, "psql must warn, else this test checks nothing"
    done = subprocess.run([str(ROOT / "gateway" / "devstack" / "demo"), str(stack.data / "stack.json")], env=FOREIGN, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    refusals = [line for line in done.stdout.splitlines() if line.startswith("psql<")]
    assert [line.split()[2] for line in refusals] == ["FG428:", "FG412:"]
    assert all("locale" not in line for line in refusals)


def test_demo_with_proxy_and_libpq_variables_succeeds(stack: Stack) -> None:
    """The stack is on this machine: neither a proxy nor another server of PostgreSQL is asked."""
    closed = f"http://127.0.0.1:{processes.free_port()}"
    environment = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    environment.update(http_proxy=closed, all_proxy=closed, PGSERVICE="nowhere", PGHOSTADDR="127.0.0.2", PGSSLMODE="require")
    done = subprocess.run([str(ROOT / "gateway" / "devstack" / "demo"), str(stack.data / "stack.json")], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_quickstart_build_shows_steps_and_progress(tmp_path: Path) -> None:
    """Uses a cmake that prints progress, compiles nothing and fails."""
    write_stub(tmp_path, "cmake", 'case $1 in --preset) exit 0;; esac; for n in $(seq 40); do echo "[$n/40] Building CXX object $n"; done; echo no such header; exit 1')
    write_stub(tmp_path, "dpkg-query", f'case "$*" in *Provides*) exit 0;; esac; printf installed')
    env = {**FOREIGN, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([str(ROOT / "gateway" / "quickstart"), "--once"], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "no such header" in done.stderr and "The build failed" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "This will" and "Step 1 of 4: packages" in lines
    counts = [line.strip() for line in lines if line.endswith("of 40 files")]
    assert counts == [f"{n} of 40 files" for n in range(4, 41, 4)]


def test_packages_that_need_root_are_named_before_sudo() -> None:
    folder = make_folder()
    try:
        for name in ("install-packages", "debian-packages.txt"):
            shutil.copy(ROOT / "config" / name, folder / name)
        write_stub(folder, "dpkg-query", "exit 0")
        write_stub(folder, "sudo", "echo 'sudo asks'; exit 1")
        done = subprocess.run([str(folder / "install-packages")], env={"PATH": f"{folder}:/usr/bin:/bin", "LANG": "xx_XX.UTF-8"}, cwd=folder,
                              capture_output=True, text=True, timeout=30, **unprivileged())
    finally:
        shutil.rmtree(folder)
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert done.stdout.splitlines()[0].startswith("Missing Debian packages: ") and "redis-server" in done.stdout.splitlines()[0]
    assert output.index("needs root") < output.index("sudo asks") if "sudo asks" in output else "could not install" in output


def test_comparison_names_all_missing_packages(tmp_path: Path) -> None:
    (tmp_path / "psycopg2.py").write_text("raise ImportError")
    write_stub(tmp_path, "npm", "exit 0")
    done = subprocess.run(["/bin/bash", str(ROOT / "tests" / "bench" / "compare.sh"), str(tmp_path)], capture_output=True, text=True, timeout=30,
                          env={"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 69
    assert done.stderr.rstrip().endswith("apt-get install nodejs make g++ redis-server postgresql python3-psycopg2"), done.stderr
