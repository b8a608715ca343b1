"""The pages about the Python client: their programs and commands are run, next to a stack;
and the package is typed and complete."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Iterator

import pytest
from python_clients import PACKAGE, ROOT
from support import processes
from support.documents import Shell, blocks_of, commands_of, faults_of
from support.stack import Stack, make_folder

PAGES = [
    "clients/python/README.md",
    "docs/recipes/inventory.md",
    "docs/recipes/order-workers.md",
    "docs/recipes/python-frameworks.md",
    "docs/recipes/sqlalchemy.md",
    "docs/testing.md",
]


@pytest.fixture
def home(stack: Stack) -> Iterator[Path]:
    """A home folder like the repository, in which the stack is that of quickstart."""
    folder = make_folder()
    (folder / "home/var").mkdir(parents=True)
    (folder / "home/var/dev").symlink_to(stack.data)
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.mark.parametrize("page", PAGES)
def test_python_page_has_the_results_shown(stack: Stack, home: Path, page: str) -> None:
    blocks = blocks_of(ROOT / page, ROOT)
    assert not faults_of(blocks)
    kept = {name: value for name, value in os.environ.items() if not re.match("FENCEGATE|FENCING|PG|PYTHON", name)}
    shell = Shell(home.parent, {**kept, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONDONTWRITEBYTECODE": "1"})
    (home.parent / "programs/python3").symlink_to(sys.executable)
    try:
        for block in blocks:
            if block.directive == "file":
                (home / block.words).write_text(block.text.replace("http://localhost:8080", stack.facts["http"]))
            elif block.is_run:
                try:
                    for command in commands_of(block.text):
                        shell.run(command, lambda: None)
                except AssertionError as fault:
                    raise AssertionError(f"{block.where}: {fault}") from None
    finally:
        shell.end()


def test_python_package_is_typed_strictly() -> None:
    done = processes.run(["mypy", "--cache-dir", str(ROOT / "build/mypy")], cwd=PACKAGE, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_package_contains_all_modules(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "package", ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta; print(build_meta.build_wheel('wheel'))"
    done = processes.run([sys.executable, "-c", build], cwd=tmp_path / "package", timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "package/wheel" / done.stdout.splitlines()[-1]) as wheel:
        names = set(wheel.namelist())
        [metadata] = [wheel.read(name).decode() for name in names if name.endswith("METADATA")]
    assert {
        f"fencegate/{path.name}" for path in (PACKAGE / "src/fencegate").iterdir() if path.is_file()
    } <= names and "fencegate/py.typed" in names
    assert "Requires-Dist: httpx" in metadata and "Requires-Python: >=3.9" in metadata
    version = re.search(r"project\(fencegate VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert version and f"\nVersion: {version[1]}\n" in metadata
