"""Fixtures of the package tests: lockcore installed in a temporary prefix, as a user installs it,
and the Debian package of the program."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import processes  # noqa: E402
from support.cluster import RedisServer  # noqa: E402
from support.package import EXAMPLE, build_folder, built_against, run  # noqa: E402
from support.stack import make_folder  # noqa: E402


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder outside the tree, so that CMake finds nothing by accident."""
    created = make_folder()
    yield created
    shutil.rmtree(created, ignore_errors=True)


@pytest.fixture(scope="session")
def prefix(folder: Path) -> Path:
    """A prefix with only the library installed."""
    run("cmake", "--install", build_folder(), "--prefix", folder / "prefix", "--component", "lockcore")
    return folder / "prefix"


@pytest.fixture(scope="session")
def package(folder: Path) -> Path:
    """The Debian package of the program under test; its debug package is beside it."""
    run(processes.repository() / "config" / "make-package", "--build", build_folder(), folder / "debian")
    [made] = (folder / "debian").glob("fencegate_*.deb")
    return made


@pytest.fixture(scope="session")
def take_lease(folder: Path, prefix: Path) -> Path:
    """The example, built against the installed library."""
    return built_against(prefix, EXAMPLE, folder / "example") / "take_lease"


@pytest.fixture
def nodes(folder: Path, request: pytest.FixtureRequest) -> Iterator[list[RedisServer]]:
    """Five running nodes without data."""
    data = folder / request.node.name
    data.mkdir()
    servers = [RedisServer(data, f"node-{number}") for number in range(1, 6)]
    try:
        for node in servers:
            node.start()
        yield servers
    finally:
        for node in servers:
            node.kill()
