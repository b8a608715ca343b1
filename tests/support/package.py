"""Helpers of the package tests: CMake's commands as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from support import processes

LOCKCORE = processes.repository() / "lockcore"
EXAMPLE = LOCKCORE / "example"
# mismatched-new-delete: g++ 12 takes Asio's coroutine frames for mismatched.
WARNINGS = "-Wall -Wextra -Wpedantic -Wshadow -Werror -Wno-mismatched-new-delete"


def run(*command: object, **options: object) -> str:
    """Runs a command and returns its standard output; fails with all output if the command fails."""
    words = [str(part) for part in command]
    done = processes.run(words, timeout=600, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_folder() -> Path:
    """Returns the folder of the build under test."""
    return processes.fencegate_binary().parent


def compiler_flags() -> str:
    """Returns the warnings, and the sanitizers of the build under test: what is linked
    to its library needs the same."""
    cache = (build_folder() / "CMakeCache.txt").read_text()
    sanitizers = re.search(r"^FENCEGATE_SANITIZE:\w+=(.+)$", cache, re.MULTILINE)
    return WARNINGS + (f" -fsanitize={sanitizers.group(1)} -Wno-maybe-uninitialized -Wno-tsan" if sanitizers else "")


def configure(source: Path, build: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return processes.run(
        ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *arguments],
        timeout=120,
        env={**os.environ, **environment},
    )


def built_against(prefix: Path, source: Path, build: Path) -> Path:
    """Configures and builds a project that finds lockcore with find_package. Returns the build folder."""
    done = configure(source, build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={compiler_flags()}")
    assert done.returncode == 0, done.stdout + done.stderr
    run("cmake", "--build", build)
    return build
