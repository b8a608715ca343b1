"""Fixtures of the tests of the clients: real gateways, Redis nodes and PostgreSQL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stack import Stack  # noqa: E402
from support.stack import running as running_stack  # noqa: E402


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack that the tests share. A test that stops a part of it starts that part again."""
    with running_stack() as made:
        yield made
