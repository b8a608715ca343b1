"""Fixtures of the tests of the clients: real gateways, Redis nodes and PostgreSQL."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from python_clients import Site  # noqa: E402
from support.stack import Stack, make_folder  # noqa: E402
from support.stack import running as running_stack  # noqa: E402

# The longest ones begin first, so that none of them runs alone at the end.
LONGEST = "test_java test_typescript test_conformance test_go".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack that the tests share. A test that stops a part of it starts that part again."""
    with running_stack() as made:
        yield made


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Site]:
    """What the tests of the Python client start; a module may have another."""
    made = Site(stack, make_folder())
    yield made
    for gateway in made.started:
        gateway.kill()
    shutil.rmtree(made.folder)
