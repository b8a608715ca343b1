"""`fencegate verify`: a history without faults is proved; reports, and who may read the history."""

from __future__ import annotations

import json
from typing import Callable

from support import processes
from support.api import Api, expect_problem, resource_path
from support.cli import Terminal
from support.polling import eventually
from support.shop import Sku, create_sku
from support.stack import Stack
from support.verified import History, verify


def test_history_without_fault_is_proved_and_counted(history: History) -> None:
    report = history.verify()
    assert report["verdict"] == "proved", report
    counts = dict(
        rows=21, resources=1, grants=3, renewals=3, ends=3, writes=9, refusals=2, fences=1, repairs=0, overlaps=0
    )
    assert {name: report[name] for name in counts} == counts


def test_history_made_by_gateway_is_proved(stack: Stack, api: Api, sku: Sku) -> None:
    """The gateway wrote it, with a stale holder, a revoked lease and a repaired fence."""
    first = api.must_acquire(sku.resource, ttl_ms=1_000)
    api.must_write(first, sku.sell())
    second = api.must_acquire(sku.resource, wait_ms=3_000)
    api.must_write(second, sku.sell())
    expect_problem(api.write(first, sku.sell()), 412, "stale-fencing-token")
    api.must_revoke(sku.resource)
    expect_problem(api.write(second, sku.sell()), 412, "stale-fencing-token")
    assert api.post(resource_path(sku.resource, "fence"), {"reason": "a test", "last_fencing_token": 1}).status == 200
    api.must_write(second, sku.sell())
    third = api.must_acquire(sku.resource)
    api.must_write(third, sku.sell())
    done = verify(stack.conninfo(), "--json", "--resource-prefix", sku.resource)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "proved"), done.stdout
    assert (report["writes"], report["refusals"], report["repairs"], report["missing_grants"]) == (4, 2, 1, 0)


def test_refusals_for_other_reasons_than_staleness_are_proved(
    stack: Stack, api: Api, sku: Sku, unique_name: Callable[[str], str]
) -> None:
    """Writes of an uncovered row, and functions that raise the guard's SQLSTATEs."""
    lease = api.must_acquire(sku.resource)
    api.must_write(lease, sku.sell())
    expect_problem(api.write(lease, create_sku(stack, unique_name("sku")).sell()), 403, "resource-not-covered")
    for code in ("FG412", "FG403", "FG500"):
        name = f"raises_{code.lower()}"
        stack.query(
            f"create or replace function {name}() returns void language plpgsql as $$ begin raise exception 'no' "
            f"using errcode = '{code}'; end $$; "
            f"grant execute on function {name}() to fencing_gateway; select fencing.expose_function('{name}()')"
        )
        eventually(
            lambda: b"is exposed" not in api.write(lease, {"call": name, "args": {}}).body,
            goal="the gateway knows the function",
        )
    rows = stack.query(
        "select detail ->> 'sqlstate' from fencing.history where resource = %s and event = 'write_rejected' "
        "and fencing_token is not null",
        (sku.resource,),
    )
    assert {code for (code,) in rows} == {"FG403", "FG412", "FG500"}
    done = verify(stack.conninfo(), "--json", "--resource-prefix", sku.resource)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["refusals"]) == (0, "proved", 0), done.stdout


FORGED = "~\x1b]0;forged\x07\x1b[2J\n  holds   b  forged\u202e\u009b2J" + 50 * "\u00e9"


def test_hostile_names_do_not_control_the_terminal(history: History) -> None:
    """In the progress, which ends with the last resource, and in the findings; a name forges no line of the report."""
    history.query(
        "insert into fencing.history (event, resource, fencing_token, owner, principal) "
        "values ('write_applied', %s, 7, 'o', 'p')",
        (FORGED,),
    )
    terminal = Terminal(
        [str(processes.fencegate_binary()), "verify", "--conninfo", history.conninfo], {"TERM": "xterm"}
    )
    assert terminal.end() == 1
    progress, report = terminal.shown.split("fencegate verify: the history")
    assert (
        "~?]0;forged??[2J?  holds   b  forged" in progress
        and "~?]0;forged??[2J?  holds   b  forged??2J\u00e9" in report
    ), terminal.shown
    assert not set(terminal.shown.replace("\x1b[K", "")) & set("\x1b\x07\u202e\u009b"), terminal.shown
    assert [
        line.split()[0]
        for line in report.splitlines()
        if line.endswith("with a granted token, never lower than one before it")
    ] == ["BROKEN"]
    assert not any(line.startswith("  holds   b") for line in report.splitlines())
    piped = verify(history.conninfo)
    assert "\x1b" not in piped.stdout and not any(line.startswith("  holds   b") for line in piped.stdout.splitlines())
    assert FORGED in [finding["resource"] for finding in history.verify()["findings"]]


def test_findings_above_1000_are_counted_only(history: History) -> None:
    history.query(
        """insert into fencing.history (event, resource, fencing_token, last_fencing_token)
                     select 'write_rejected', 'a/1', 40, 31 from generate_series(1, 1200)"""
    )
    report = history.verify()
    assert (report["broken"], len(report["findings"]), report["findings_left_out"]) == (1_200, 1_000, 200)
    page = verify(history.conninfo).stdout
    assert page.count("(d): ") == 6 and "and 1194 more" in page


def test_rows_with_unsteady_clock_keep_order(history: History) -> None:
    """The history has more than one chunk;
    times of writes that vary by milliseconds do not change the order of commits."""
    history.query(
        """
        insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, detail)
        select now() - interval '2 hours' + n * interval '1 ms' - (n %% 7) * interval '5 ms',
          case n %% 10 when 0 then 'lease_granted' else 'write_applied' end, 'many/' || n / 100,
               n / 10, case n %% 10 when 0 then null else n / 10 end, case n %% 10
                 when 0 then '{"ttl_ms": 5}'::jsonb end from generate_series(0, 29999) as t (n) order by n""".replace(
            "%%", "%"
        )
    )
    history.query(
        "insert into fencing.guard (resource, last_fencing_token) select 'many/' || n, 10 * n + 9 "
        "from generate_series(0, 299) as t (n)"
    )
    report = history.verify("--resource-prefix", "many/")
    assert (report["verdict"], report["rows"], report["resources"], report["writes"]) == (
        "proved",
        30_000,
        300,
        27_000,
    ), report


def test_times_limit_the_rows_checked(history: History) -> None:
    before_last = "select (max(at) - interval '5 minutes')::text from fencing.history where event = 'lease_granted'"
    report = history.verify("--from", history.query(before_last)[0][0])
    assert report["grants"] == 1 and report["writes"] == 9 and report["verdict"] == "proved", report
    assert history.verify("--to", "yesterday")["rows"] == 0


def test_report_for_people_is_page_with_verdict(history: History) -> None:
    done = verify(history.conninfo)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.rstrip().endswith("Proved."), done
    assert done.stdout.count("\n") < 40
    row = history.row("write_rejected", 10)
    history.tamper(f"update fencing.history set fencing_token = 25 where id = {row}")
    done = verify(history.conninfo)
    assert done.returncode == 1 and f"row {row}, a/1 (d)" in done.stdout and "BROKEN  d" in done.stdout


def test_report_without_rows_does_not_say_proved(history: History) -> None:
    done = verify(history.conninfo, "--resource-prefix", "none/")
    assert done.returncode == 0 and done.stdout.rstrip().endswith("the selected part has no row of a resource."), done


def test_verify_needs_only_role_of_auditor(history: History, stack: Stack) -> None:
    stack.query("drop role if exists some_auditor; create role some_auditor login in role fencing_auditor")
    conninfo = stack.conninfo(history.name).replace(f"user={stack.facts['postgres']['superuser']}", "user=some_auditor")
    assert "some_auditor" in conninfo
    done = verify(conninfo)
    assert done.returncode == 0, done
    stack.query("revoke fencing_auditor from some_auditor")
    done = verify(conninfo)
    assert done.returncode == 2 and "grant it the role fencing_auditor" in done.stderr, done
    stack.query("drop role some_auditor")


def test_verify_that_can_not_run_exits_2(history: History, stack: Stack) -> None:
    assert verify("host=127.0.0.1 port=1 dbname=x").returncode == 2
    assert verify(stack.conninfo("postgres")).returncode == 2
