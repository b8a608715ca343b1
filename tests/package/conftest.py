"""Fixtures of the package tests: lockcore as a user gets it, installed below a temporary prefix."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cluster import RedisServer  # noqa: E402
from support.package import EXAMPLE, build_folder, built_against, run  # noqa: E402
from support.stack import make_folder  # noqa: E402


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Outside the tree, so that nothing is found by accident."""
    made = make_folder()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def prefix(folder: Path) -> Path:
    """The library alone."""
    run("cmake", "--install", build_folder(), "--prefix", folder / "prefix", "--component", "lockcore")
    return folder / "prefix"


@pytest.fixture(scope="session")
def take_lease(folder: Path, prefix: Path) -> Path:
    """The example, built against the installed library."""
    return built_against(prefix, EXAMPLE, folder / "example") / "take_lease"


@pytest.fixture
def nodes(folder: Path, request: pytest.FixtureRequest) -> Iterator[list[RedisServer]]:
    """Five running nodes that know nothing."""
    home = folder / request.node.name
    home.mkdir()
    made = [RedisServer(home, f"node-{number}") for number in range(1, 6)]
    try:
        for node in made:
            node.start()
        yield made
    finally:
        for node in made:
            node.kill()
