"""Installs the packages of a lock file with npm, once for each version of the file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

INSTALL_TIMEOUT = 300


def run(command: list[str], folder: Path, timeout: float = 120, **environment: str) -> str:
    """Runs a command in a folder and returns its output; fails with the output unless the command succeeds."""
    done = subprocess.run(
        command,
        cwd=folder,
        timeout=timeout,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert (
        done.returncode == 0
    ), f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-12_000:]}\n{done.stderr[-6_000:]}"
    return done.stdout


def install(source: Path, folder: Path) -> None:
    """Copies package.json and package-lock.json of `source` to `folder`,
    and installs what they name unless that is installed there."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, installed = source / "package-lock.json", folder / "installed.json"
    shutil.copy(source / "package.json", folder)
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        shutil.copy(lock, folder)
        run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], folder, INSTALL_TIMEOUT)
        shutil.copy(lock, installed)
