"""The load generator in small: it runs, its answers agree with PostgreSQL, and the check can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import processes
from support.stack import Stack
from support.stack import running as running_stack

BENCH = processes.repository() / "tests" / "bench"


def load_binary() -> Path:
    """Returns the load generator of the build under test."""
    build = next(parent for parent in processes.fencegate_binary().parents if (parent / "CMakeCache.txt").exists())
    found = [path for path in build.rglob("load") if path.is_file()]
    assert found, f"no load below {build}"
    return found[0]


def run_load(stack: Stack, mode: str, *options: str) -> dict[str, Any]:
    done = processes.run(
        [
            str(load_binary()),
            "--stack",
            str(stack.data / "stack.json"),
            "--mode",
            mode,
            *"--clients 8 --seconds 2 --warm-seconds 0.2 --sales".split(),
            str(stack.folder / f"{mode}.json"),
            *options,
        ],
        stdin=subprocess.DEVNULL,
        timeout=120,
        preexec_fn=processes.terminate_with_parent,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def run_verify(stack: Stack, sales: Path) -> tuple[int, dict[str, Any], str]:
    done = processes.run(
        [sys.executable, str(BENCH / "verify.py"), "--stack", str(stack.data / "stack.json"), "--sales", str(sales)],
        stdin=subprocess.DEVNULL,
        timeout=120,
        preexec_fn=processes.terminate_with_parent,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}, done.stderr


@pytest.mark.parametrize(
    "mode, options, operation",
    [
        ("pair", (), "pairs"),
        ("hot", (), "pairs"),
        ("write", (), "writes"),
        ("job", ("--skus", "50"), "jobs"),
        ("shot", ("--skus", "50"), "jobs"),
        ("shot", ("--skus", "50", "--keyed", "1"), "jobs"),
        ("order", ("--skus", "20"), "orders"),
    ],
)
def test_load_of_each_mode_has_no_errors_and_verifies(
    own_stack: Stack, mode: str, options: tuple[str, ...], operation: str
) -> None:
    report = run_load(own_stack, mode, *options)
    assert report["ops"] > 0 and report["errors"] == report["overlaps"] == report["tokens_fallen"] == 0
    assert report[f"{operation}_per_s"] > 0 and 0 < report["p50_ms"] <= report["p99_ms"] <= report["max_ms"]
    code, verdict, errors = run_verify(own_stack, own_stack.folder / f"{mode}.json")
    assert code == 0, errors
    assert verdict["holds"] and verdict["granted"] > 0
    if mode in ("job", "shot", "order", "write"):
        assert verdict["sold"] >= report["ops"]
    if mode == "order":
        assert verdict["ordered"] == verdict["sold"]


def test_load_past_leases_412_and_nothing_sold_twice(own_stack: Stack) -> None:
    report = run_load(own_stack, "stale", "--skus", "3", "--ttl-ms", "200", "--pause-share", "0.3")
    assert report["errors"] == 0
    assert report["statuses"]["write"]["412"] >= 1, report
    assert report["statuses"]["write"]["200"] > report["statuses"]["write"]["412"] / 10
    code, verdict, errors = run_verify(own_stack, own_stack.folder / "stale.json")
    assert code == 0, errors
    assert verdict["rejected"] == report["statuses"]["write"]["412"]


@pytest.fixture(scope="module")
def tampered_stack() -> Iterator[Stack]:
    """A stack on which stock was sold, for tests that falsify it afterwards."""
    with running_stack() as made:
        run_load(made, "job", "--skus", "5")
        yield made


@pytest.mark.parametrize(
    "statement, complaint",
    [
        (
            "select fencing.enter('inventory/' || sku, 9007199254740991); "
            "update inventory set stock = stock - 1 where sku = '{sku}'",
            "sold",
        ),
        (
            "insert into fencing.history (event, resource, fencing_token) "
            "values ('lease_granted', 'inventory/{sku}', 1)",
            "and then 1",
        ),
        (
            "insert into fencing.history (event, resource, fencing_token) "
            "values ('write_applied', 'inventory/{sku}', 1)",
            "and then with 1",
        ),
    ],
    ids=["stock", "granted", "written"],
)
def test_verify_reports_each_falsification(tampered_stack: Stack, statement: str, complaint: str) -> None:
    sales = tampered_stack.folder / "job.json"
    sku = json.loads(sales.read_text())["skus"][0]["sku"]
    statement = statement.replace("'inventory/' || sku", f"'inventory/{sku}'").format(sku=sku)
    connection = tampered_stack.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.commit()
    connection.close()
    code, verdict, errors = run_verify(tampered_stack, sales)
    assert code == 1 and not verdict["holds"]
    assert complaint in errors
