"""The recipes docs/recipes/adopting-observe.md and docs/recipes/node-orms.md: their commands in a shell,
with knex and Prisma as npm has them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.documents import Shell, blocks_of, commands_of, faults_of
from support.stack import Stack, make_folder

ROOT = processes.repository()
PACKAGES = ROOT / "tests/clients/node_orms"


@pytest.fixture
def home(stack: Stack) -> Iterator[Path]:
    """A home folder like the repository, in which the stack is that of quickstart."""
    folder = make_folder()
    home = folder / "home"
    (home / "var").mkdir(parents=True)
    (home / "var/dev").symlink_to(stack.data)
    yield home
    shutil.rmtree(folder)


@pytest.fixture
def node_modules() -> Path:
    """The packages of the lock file, installed once into build.
    Their scripts, which would load programs from other sites, are not run."""
    folder = ROOT / "build/node_orms"
    lock = (PACKAGES / "package-lock.json").read_text()
    installed = folder / "installed.json"
    if not installed.exists() or installed.read_text() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PACKAGES / name, folder)
        done = processes.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        installed.write_text(lock)
    return folder / "node_modules"


def run_page(stack: Stack, home: Path, page: str, **variables: str) -> None:
    """Runs the blocks of a page in their order."""
    blocks = blocks_of(ROOT / page, ROOT)
    assert not faults_of(blocks)
    clean = {name: value for name, value in os.environ.items() if not re.match("(FENCEGATE|FENCING|PG)", name)}
    shell = Shell(home.parent, {**clean, **variables})
    try:
        for block in blocks:
            if block.directive == "file":
                (home / block.words).write_text(block.text)
            elif block.is_run:
                try:
                    for command in commands_of(block.text):
                        shell.run(command, lambda: None)
                except AssertionError as fault:
                    raise AssertionError(f"{block.where}: {fault}") from None
    finally:
        shell.end()


def test_recipe_adopting_observe_has_the_results_shown(stack: Stack, home: Path) -> None:
    run_page(stack, home, "docs/recipes/adopting-observe.md")


def version_of_node() -> tuple[int, ...]:
    return tuple(
        int(part) for part in processes.run(["node", "--version"], check=True).stdout.strip().lstrip("v").split(".")
    )


PRISMA_NEEDS = "Prisma 7 needs Node.js 20.19 or later; that of Debian 12 is 18"


@pytest.mark.skipif(version_of_node() < (20, 19), reason=PRISMA_NEEDS)
def test_recipe_node_orms_has_the_results_shown(stack: Stack, home: Path, node_modules: Path) -> None:
    (home / "node_modules").symlink_to(node_modules)
    # Prisma looks for a program that makes migrations, which no step here uses, and would load it from its own site.
    run_page(
        stack,
        home,
        "docs/recipes/node-orms.md",
        PRISMA_SCHEMA_ENGINE_BINARY="/bin/true",
        PRISMA_HIDE_UPDATE_MESSAGE="1",
        CHECKPOINT_DISABLE="1",
    )
