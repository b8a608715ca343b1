"""`fencegate bench`: it runs each work, its results agree with PostgreSQL and the history, and its check can fail."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest
from support import processes
from support.polling import eventually
from support.stack import Stack

TABLES = "select relname from pg_class where relname like 'fencegate_bench_%' and relkind = 'r'"


def command_of(stack: Stack, *arguments: str) -> list[str]:
    facts = json.loads((stack.data / "stack.json").read_text())
    command = [str(processes.fencegate_binary()), "bench", "--json", *arguments]
    for option, value in {
        "--url": facts["http"],
        "--conninfo": facts["postgres"]["conninfo"],
        "--clients": "8",
        "--time": "1s",
        "--warm-up": "100ms",
        "--articles": "20",
    }.items():
        if option not in arguments:
            command += [option, value]
    return command


def run_bench(stack: Stack, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = processes.run(
        command_of(stack, *arguments), stdin=subprocess.DEVNULL, timeout=120, preexec_fn=processes.terminate_with_parent
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.mark.parametrize("work", ["pair", "hot", "write", "job", "sale"])
def test_each_work_has_no_errors_and_sells_what_is_gone(own_stack: Stack, work: str) -> None:
    code, report, errors = run_bench(own_stack, work, "--name", work)
    assert code == 0, errors
    measured = report["work"][work]
    assert measured["operations"] > 0 and measured["per_s"] > 0
    assert (
        0 < measured["p50_ms"] <= measured["p90_ms"] <= measured["p99_ms"] <= measured["p999_ms"] <= measured["max_ms"]
    )
    applied = own_stack.query(
        "select count(*) from fencing.history where event = 'write_applied' and resource like %s", (f"bench/{work}/%",)
    )
    assert applied == [(report["sold"],)]
    assert (report["sold"] >= measured["operations"]) == (work not in ("pair", "hot"))
    assert own_stack.query(TABLES) == []


def test_work_is_mixed_by_its_shares(own_stack: Stack) -> None:
    code, report, errors = run_bench(own_stack, "pair=3", "sale", "--keyed", "--seed", "1")
    assert code == 0, errors
    pairs, sales = (report["work"][work]["operations"] for work in ("pair", "sale"))
    assert 1.5 * sales < pairs < 6 * sales
    assert report["operations"] == pairs + sales


def test_sales_after_a_lease_are_refused_and_change_nothing(own_stack: Stack) -> None:
    code, report, errors = run_bench(own_stack, "late", "--ttl", "200ms", "--articles", "2", "--time", "3s")
    assert code == 0, errors
    assert report["statuses"]["write"]["412"] >= 1
    assert report["articles_that_differ"] == 0


def test_sold_out_articles_are_unexpected_answers(own_stack: Stack) -> None:
    code, report, _ = run_bench(own_stack, "sale", "--stock", "1")
    assert code == 1 and not report["good"]
    assert report["sold"] == 20 and report["errors"] == report["statuses"]["write"]["409"]


def test_stock_that_somebody_else_changed_is_named(own_stack: Stack) -> None:
    with subprocess.Popen(
        command_of(own_stack, "pair", "write", "--name", "changed", "--time", "3s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=processes.terminate_with_parent,
    ) as process:
        eventually(lambda: own_stack.query(TABLES), 20, goal="the table is there")
        own_stack.query(
            "do $$ begin perform fencing.enter('bench/changed/3', 9007199254740991); "
            "update fencegate_bench_changed set stock = stock - 1 where id = 3; end $$"
        )
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["articles_that_differ"] == 1
    assert "article 3: 1 pieces are gone, 0 were sold" in errors


def test_bench_that_is_interrupted_reports_and_drops_its_table(own_stack: Stack) -> None:
    with subprocess.Popen(
        command_of(own_stack, "job", "--time", "1h"),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=processes.terminate_with_parent,
    ) as process:
        eventually(lambda: own_stack.query(TABLES), 20, goal="the table is there")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert json.loads(out)["articles_that_differ"] == 0
    assert own_stack.query(TABLES) == []


@pytest.mark.parametrize(
    "arguments, code, complaint",
    [
        (("swim",), 64, "there is no work swim"),
        (("pair=0",), 64, "a number from 1 to 1000"),
        (("pair", "--name", "A b"), 64, "lower case letters"),
        (("job", "--conninfo", "host=127.0.0.1 port=1 dbname=none"), 69, "connection"),
        (("pair", "--url", "http://127.0.0.1:1"), 69, "127.0.0.1:1"),
    ],
    ids=["work", "share", "name", "postgres", "gateway"],
)
def test_wrong_arguments_are_named(own_stack: Stack, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    found, _, errors = run_bench(own_stack, *arguments)
    assert found == code
    assert complaint in errors


def test_sale_without_postgres_is_refused(own_stack: Stack) -> None:
    done = processes.run([str(processes.fencegate_binary()), "bench", "sale"], timeout=30)
    assert done.returncode == 64 and "--conninfo" in done.stderr
