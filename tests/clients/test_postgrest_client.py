"""PostgREST's own client, @supabase/postgrest-js, unchanged, on /rest/v1: every type of call that it has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
from support.polling import eventually
from support.stack import Stack

HERE = Path(__file__).resolve().parent / "postgrest"
INSTALLED = Path(__file__).resolve().parents[2] / "build/clients/postgrest"
RESOURCE = "postgrest/all"
CALLS_MIN = 230  # so that a list that is not read to its end is noticed

Line = dict[str, Any]


def install() -> None:
    """Installs the client in the version of the lock file, beside a copy of the calls,
    unless it is installed already."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    marker, lock = INSTALLED / "installed.json", HERE / "package-lock.json"
    for file in HERE.iterdir():
        shutil.copy(file, INSTALLED)
    if marker.exists() and marker.read_bytes() == lock.read_bytes():
        return
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=INSTALLED, check=True, timeout=120)
    shutil.copy(lock, marker)


@pytest.fixture(scope="module")
def lines(stack: Stack) -> Iterator[list[Line]]:
    """What each call has done: its name, whether it has to be refused, and what went wrong."""
    install()
    api = stack.api()
    stack.query((HERE / "tables.sql").read_text())
    eventually(lambda: api.get("/rest/v1/rpc/order_count").status == 200, goal="the gateway knows the functions")
    lease = api.must_acquire(RESOURCE, ttl_ms=60_000)
    environment = {**os.environ, "FENCEGATE_URL": api.url, "FENCING_LEASE": lease["lease_id"]}
    done = subprocess.run(
        ["node", "calls.mjs"], cwd=INSTALLED, env=environment, stdout=subprocess.PIPE, text=True, timeout=120
    )
    api.must_release(lease)
    assert done.returncode == 0, done.stdout[-2000:]
    yield [json.loads(line) for line in done.stdout.splitlines()]
    stack.query((HERE / "drop.sql").read_text())


def failures(lines: list[Line], refused: bool) -> list[str]:
    chosen = [line for line in lines if line["refused"] == refused]
    failed = [f"{line['name']}: {line['failure']}" for line in chosen if "failure" in line]
    print(
        f"{len(chosen) - len(failed)} of {len(chosen)} calls are {'refused by name' if refused else 'answered'} "
        "as they have to be"
    )
    return failed


def test_client_calls_that_are_supported_work(lines: list[Line]) -> None:
    assert not failures(lines, refused=False)


def test_client_calls_that_are_not_are_refused_by_name(lines: list[Line]) -> None:
    assert not failures(lines, refused=True)


def test_client_calls_are_all_made_once(lines: list[Line]) -> None:
    names = [line["name"] for line in lines]
    assert len(names) == len(set(names)) >= CALLS_MIN
