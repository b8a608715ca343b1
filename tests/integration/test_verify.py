"""`fencegate verify`: a history without faults is proved; in one that was changed,
the row that breaks a promise is named."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import psycopg2
import pytest
from support import processes
from support.api import Api, expect_problem
from support.cli import Terminal
from support.polling import eventually
from support.shop import Sku, create_sku
from support.stack import Stack


def verify(conninfo: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(processes.fencegate_binary()), "verify", "--conninfo", conninfo, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=processes.terminate_with_parent,
    )


@dataclass
class History:
    """A database with the history of three leases: tokens 10, 20 and 30 of `a/1`."""

    stack: Stack
    name: str

    def query(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self.stack.query(statement, arguments, dbname=self.name)

    def tamper(self, statement: str) -> None:
        """Changes the history as the owner, who can disable its triggers."""
        leaves = [
            leaf
            for (leaf,) in self.query(
                "select inhrelid::regclass::text from pg_inherits where inhparent = 'fencing.history'::regclass"
            )
        ]
        for leaf in leaves:
            self.query(f"alter table {leaf} disable trigger history_append_only")
        self.query(statement)

    def verify(self, *arguments: str) -> dict[str, Any]:
        done = verify(self.stack.conninfo(self.name), "--json", *arguments)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert (report["verdict"] == "proved") == (done.returncode == 0) == (report["broken"] == 0)
        return report

    def row(self, event: str, token: int, number: int = 0) -> int:
        return self.query(
            "select id from fencing.history where event = %s and fencing_token = %s order by id", (event, token)
        )[number][0]


NO_GRANT = "delete from fencing.history where event in ('lease_granted', 'lease_renewed') and fencing_token = {token}"
EVENTS = """
do $$
declare
  t timestamptz := now() - interval '1 hour';
begin
  for token in 10 .. 30 by 10 loop
    perform fencing.append_events(gen_random_uuid(), 1,
        array[extract(epoch from t) * 1e6, extract(epoch from t) * 1e6 + 3e6]::bigint[],
      '{lease_granted,lease_renewed}', '{a/1,a/1}', array[token, token]::bigint[], null, null, null, null, null,
      '{"{\\"ttl_ms\\": 10000}","{\\"ttl_ms\\": 10000}"}');
    for n in 1 .. 3 loop
      perform fencing.begin_write('{a/1}', token, gen_random_uuid(), 'o', 'p', null, null);
    end loop;
    if token > 10 then
      perform fencing.begin_write('{a/1}', token - 10, gen_random_uuid(), 'o', 'p', null, null);
    end if;
    perform fencing.append_events(gen_random_uuid(), 1, array[extract(epoch from t) * 1e6 + 5e6]::bigint[],
        '{lease_released}', '{a/1}', array[token]::bigint[],
      null, null, null, null, null, null);
    t := t + interval '10 minutes';
  end loop;
  perform fencing.raise_fences('{a/1}', 31, 'o', 'p', null, 'sealed');
end
$$;
"""


@pytest.fixture(scope="module")
def filled_database(stack: Stack) -> Iterator[str]:
    """A template database with a history."""
    name = f"lived_{uuid.uuid4().hex[:8]}"
    stack.query(f"create database {name}")
    subprocess.run(
        [str(processes.fencegate_binary()), "migrate", "--conninfo", stack.conninfo(name)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    stack.query(EVENTS, dbname=name)
    stack.end_sessions()  # a template must have none
    yield name
    stack.query(f"drop database {name} with (force)")


@pytest.fixture
def history(stack: Stack, filled_database: str) -> Iterator[History]:
    history_copy = History(stack, f"verify_{uuid.uuid4().hex[:8]}")
    stack.query(f"create database {history_copy.name} template {filled_database}")
    yield history_copy
    stack.query(f"drop database {history_copy.name} with (force)")


def test_history_without_fault_is_proved_and_counted(history: History) -> None:
    report = history.verify()
    assert report["verdict"] == "proved", report
    assert {
        name: report[name]
        for name in (
            "rows",
            "resources",
            "grants",
            "renewals",
            "ends",
            "writes",
            "refusals",
            "fences",
            "repairs",
            "overlaps",
        )
    } == {
        "rows": 21,
        "resources": 1,
        "grants": 3,
        "renewals": 3,
        "ends": 3,
        "writes": 9,
        "refusals": 2,
        "fences": 1,
        "repairs": 0,
        "overlaps": 0,
    }


def test_history_made_by_gateway_is_proved(stack: Stack, api: Api, sku: Sku) -> None:
    """The gateway wrote it, with a stale holder, a revoked lease and a repaired fence."""
    first = api.must_acquire(sku.resource, ttl_ms=1_000)
    api.must_write(first, sku.sell())
    second = api.must_acquire(sku.resource, wait_ms=3_000)
    api.must_write(second, sku.sell())
    expect_problem(api.write(first, sku.sell()), 412, "stale-fencing-token")
    path = f"/v1/resources/{sku.resource.replace('/', '%2F')}"
    assert api.call("DELETE", f"{path}/lease", {"reason": "a test"}).status == 204
    expect_problem(api.write(second, sku.sell()), 412, "stale-fencing-token")
    assert api.call("POST", f"{path}/fence", {"reason": "a test", "last_fencing_token": 1}).status == 200
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
        [str(processes.fencegate_binary()), "verify", "--conninfo", history.stack.conninfo(history.name)],
        {"TERM": "xterm"},
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
    piped = verify(history.stack.conninfo(history.name))
    assert "\x1b" not in piped.stdout and not any(line.startswith("  holds   b") for line in piped.stdout.splitlines())
    assert FORGED in [finding["resource"] for finding in history.verify()["findings"]]


def findings_of(report: dict[str, Any]) -> list[tuple[str, int]]:
    return [(finding["promise"], finding["id"]) for finding in report["findings"]]


def test_tokens_that_fall_between_grants_break_a(history: History) -> None:
    row = history.row("lease_granted", 30)
    history.tamper(f"update fencing.history set fencing_token = 15 where id = {row}")
    assert ("a", row) in findings_of(history.verify("--allow-missing-grants"))


def test_token_granted_twice_breaks_a(history: History) -> None:
    row = history.row("lease_granted", 30)
    history.tamper(f"update fencing.history set fencing_token = 20 where id = {row}")
    assert ("a", row) in findings_of(history.verify("--allow-missing-grants"))


def test_write_under_token_never_granted_breaks_b(history: History) -> None:
    row = history.row("write_applied", 20)
    history.tamper(NO_GRANT.format(token=20))
    report = history.verify()
    assert findings_of(report) == [("b", row)] and report["missing_grants"] == 1
    assert history.verify("--allow-missing-grants")["verdict"] == "proved"


def test_write_under_token_renewed_and_never_granted_is_proved(history: History) -> None:
    """A renewal shows that a majority held the lease; another gateway may have obtained it and not have recorded it."""
    history.tamper("delete from fencing.history where event = 'lease_granted' and fencing_token = 20")
    report = history.verify()
    assert (report["verdict"], report["missing_grants"], report["grants"]) == ("proved", 0, 2)


def test_grant_lost_by_failover_is_not_missing(history: History) -> None:
    """Before the change that follows the failover only other events are recorded, with later times."""
    history.tamper(NO_GRANT.format(token=30))
    history.query(
        """insert into fencing.history (at, event) values (now() + interval '1 minute', 'request_denied');
                     insert into fencing.history (event, detail)
                       values ('storage_generation_changed', '{"floor": 4294967296}')"""
    )
    report = history.verify("--to", "tomorrow")
    assert (report["verdict"], report["missing_grants"], report["lost_grants"]) == ("proved", 0, 1), report


def test_refusal_by_floor_whose_change_is_dropped_is_proved(history: History) -> None:
    """The retention dropped the row of the change; then an operator repaired the fence to below the floor."""
    history.query("update fencing.storage_generation set floor = 4294967296")
    history.query("select fencing.repair_fence('a/1', 12, 'op', null, 'by mistake too high')")
    history.query("select fencing.begin_write('{a/1}', 30, gen_random_uuid(), 'o', 'p', null, null)")
    report = history.verify()
    assert (report["verdict"], report["refusals"]) == ("proved", 3), report


def test_write_under_token_of_another_issuer_is_proved(history: History) -> None:
    history.query(
        "select fencing.begin_write('{zk/1}', 77, gen_random_uuid(), 'o', 'p', null, '{\"bare_token\": true}')"
    )
    report = history.verify()
    assert (report["verdict"], report["bare_writes"]) == ("proved", 1)


def test_write_below_earlier_one_breaks_b(history: History) -> None:
    row = history.row("write_applied", 20, 2)
    history.tamper(f"update fencing.history set fencing_token = 10, last_fencing_token = 10 where id = {row}")
    assert findings_of(history.verify()) == [("b", row)]


def test_write_before_its_grant_breaks_b(history: History) -> None:
    row = history.row("lease_granted", 30)
    history.tamper(f"update fencing.history set at = now() + interval '10 minutes' where id = {row}")
    first = history.row("write_applied", 30)
    assert findings_of(history.verify("--to", "tomorrow"))[0] == ("b", first)


def test_write_of_older_lease_after_newer_breaks_c(history: History) -> None:
    """Overlapping leases alone break no promise: the guard handles them."""
    history.tamper(
        """update fencing.history set detail = '{"ttl_ms": 3600000}'
             where event like 'lease_renewed' and fencing_token = 10;
           update fencing.history set at = at + interval '50 minutes'
             where event = 'lease_released' and fencing_token = 10"""
    )
    report = history.verify()
    assert (report["verdict"], report["overlaps"]) == ("proved", 1)
    row = history.row("write_applied", 20, 1)
    history.tamper(f"update fencing.history set fencing_token = 10, last_fencing_token = 10 where id = {row}")
    assert findings_of(history.verify()) == [("c", row)]


@pytest.mark.parametrize("change", ["fencing_token = 25", "fencing_token = 20", "last_fencing_token = null"])
def test_refusal_without_higher_fence_breaks_d(history: History, change: str) -> None:
    row = history.row("write_rejected", 10)
    history.tamper(f"update fencing.history set {change} where id = {row}")
    assert findings_of(history.verify()) == [("d", row)]


def test_lower_token_accepted_after_refusal_breaks_b(history: History) -> None:
    """The guard refuses by committed fences, so that either the refusal or the later write is wrong."""
    row = history.row("write_rejected", 10)
    history.tamper(f"update fencing.history set last_fencing_token = 33 where id = {row}")
    first = next(
        finding for finding in history.verify()["findings"] if finding["id"] == history.row("write_applied", 30)
    )
    assert first["promise"] == "b" and f"row {row} had raised the fence to 33" in first["detail"]


def test_refusal_by_fence_that_is_lower_now_breaks_e(history: History) -> None:
    history.query("select fencing.begin_write('{a/1}', 30, gen_random_uuid(), 'o', 'p', null, null)")
    row = history.row("write_rejected", 30)
    history.tamper(f"update fencing.history set last_fencing_token = 99 where id = {row}")
    assert findings_of(history.verify()) == [("e", row)]


def test_fence_that_falls_without_repair_breaks_e(history: History) -> None:
    history.query("select fencing.repair_fence('a/1', 12, 'op', null, 'by mistake too high')")
    assert history.verify()["verdict"] == "proved"
    row = history.row("fence_raised", 12)
    history.tamper(f"update fencing.history set detail = detail - 'repair' where id = {row}")
    assert ("e", row) in findings_of(history.verify())


def test_repair_without_reason_breaks_e(history: History) -> None:
    history.query("select fencing.repair_fence('a/1', 12, 'op', null, 'by mistake too high')")
    row = history.row("fence_raised", 12)
    history.tamper(f"update fencing.history set detail = detail - 'reason' where id = {row}")
    assert findings_of(history.verify()) == [("e", row)]


def test_fence_lowered_without_history_breaks_e(history: History) -> None:
    history.query("update fencing.guard set last_fencing_token = 12")
    assert findings_of(history.verify()) == [("e", history.row("fence_raised", 31))]


def test_newest_write_missing_breaks_e(history: History) -> None:
    """Only the fence shows that the newest event is missing."""
    history.query(
        "select fencing.begin_write('{a/1}', 40, gen_random_uuid(), 'o', 'p', null, '{\"bare_token\": true}')"
    )
    assert history.verify()["verdict"] == "proved"
    history.tamper("delete from fencing.history where event = 'write_applied' and fencing_token = 40")
    assert (
        findings_of(history.verify())
        == findings_of(history.verify("--to", "tomorrow"))
        == [("e", history.row("fence_raised", 31))]
    )


@pytest.mark.parametrize("event, promise", [("lease_granted", "a"), ("write_applied", "b"), ("fence_raised", "e")])
def test_row_without_resource_is_named(history: History, event: str, promise: str) -> None:
    row = history.query("select max(id) from fencing.history where event = %s", (event,))[0][0]
    history.tamper(f"update fencing.history set resource = null where id = {row}")
    assert (promise, row) in findings_of(history.verify("--allow-missing-grants"))


def test_row_with_invalid_resource_is_still_checked(history: History) -> None:
    history.query(
        """insert into fencing.history (event, resource, fencing_token, last_fencing_token)
                     select 'write_applied', r, n, n
                       from unnest(array[9, 8]) as t (n), unnest(array['ü/1', 'a/ü']) as r order by r, n desc"""
    )
    for prefix, count in (("", 2), ("ü", 1), ("ü/", 1), ("a/", 1), ("a/ü", 1), ("a/v", 0)):
        findings = history.verify("--allow-missing-grants", *(["--resource-prefix", prefix] if prefix else []))[
            "findings"
        ]
        assert str(findings).count("although row") == count, (prefix, findings)


@pytest.mark.parametrize("at", ["infinity", "tomorrow"])
def test_write_moved_into_future_breaks_b(history: History, at: str) -> None:
    row = history.row("write_applied", 20, 1)
    history.tamper(f"update fencing.history set at = '{at}', fencing_token = 3 where id = {row}")
    assert findings_of(history.verify()) == [("b", row)]
    assert history.verify("--resource-prefix", "b/")["verdict"] == "proved"


def test_write_moved_before_all_time_breaks_b(history: History) -> None:
    row = history.row("write_applied", 20, 1)
    history.tamper(f"update fencing.history set at = '-infinity' where id = {row}")
    assert ("b", row) in findings_of(history.verify())


@pytest.mark.parametrize("ttl", ["10.5", "1e300", "-1e300", '"long"'])
def test_lease_with_ttl_not_integer_leaves_rest_checked(history: History, ttl: str) -> None:
    history.tamper(
        f"""update fencing.history set detail = '{{"ttl_ms": {ttl}}}'
             where event = 'lease_granted' and fencing_token = 10"""
    )
    assert history.verify()["verdict"] == "proved"


def test_refusal_by_fence_below_earlier_one_breaks_e(history: History) -> None:
    row = history.row("write_rejected", 20)
    history.tamper(f"update fencing.history set fencing_token = 3, last_fencing_token = 4 where id = {row}")
    assert findings_of(history.verify()) == [("e", row)]


def test_refused_read_recorded_after_fence_rose_is_proved(history: History) -> None:
    """A fenced read rolls its transaction back, and with it the lock of the guard row,
    before it records the refusal."""
    history.query(
        """insert into fencing.history (event, resource, fencing_token, last_fencing_token, detail)
                     values ('write_rejected', 'a/1', 10, 20,
                         '{"error": "stale-fencing-token", "operations": ["read inventory"]}')"""
    )
    assert history.verify()["verdict"] == "proved"


def test_direct_sql_with_token_of_no_gateway_is_counted(history: History) -> None:
    history.query("select fencing.enter('a/1', 90)")
    history.query("select fencing.begin_write('{a/1}', 30, gen_random_uuid(), 'o', 'p', null, null)")
    report = history.verify()
    assert (report["verdict"], report["direct_writes"], report["missing_grants"], report["raised_by_direct_sql"]) == (
        "proved",
        1,
        0,
        0,
    )


def test_direct_sql_accepted_below_fence_breaks_b(history: History) -> None:
    history.query("select fencing.enter('a/1', 90)")
    row = history.row("write_applied", 90)
    history.tamper(f"update fencing.history set fencing_token = 12, last_fencing_token = 12 where id = {row}")
    history.query("update fencing.guard set last_fencing_token = 31")
    assert findings_of(history.verify()) == [("b", row)]


def test_direct_sql_fence_lowered_without_history_breaks_e(history: History) -> None:
    history.query("select fencing.enter('a/1', 90)")
    history.query("update fencing.guard set last_fencing_token = 31")
    assert findings_of(history.verify()) == [("e", history.row("write_applied", 90))]


def test_direct_sql_whose_row_is_missing_breaks_e(history: History) -> None:
    history.query("select fencing.enter('a/1', 90)")
    history.tamper("delete from fencing.history where event = 'write_applied' and fencing_token = 90")
    assert [promise for promise, _ in findings_of(history.verify())] == ["e"]


def test_refusal_by_fence_that_no_row_raised_is_counted(history: History) -> None:
    history.query("select fencing.enter('a/1', 90)")
    history.query("select fencing.begin_write('{a/1}', 30, gen_random_uuid(), 'o', 'p', null, null)")
    history.tamper("delete from fencing.history where event = 'write_applied' and fencing_token = 90")
    report = history.verify()
    assert (report["verdict"], report["raised_by_direct_sql"]) == ("proved", 1)


def test_refusal_by_uncommitted_fence_is_proved(history: History) -> None:
    """A transaction of direct SQL raises the fence and is then refused by it;
    the recorder keeps the refusal although the transaction rolls back."""
    history.query("select fencing.set_up_recorder()")
    with pytest.raises(psycopg2.Error) as refused:
        history.query(
            "do $$ begin perform fencing.enter('a/1', 90); perform fencing.enter('a/1', 91); "
            "perform fencing.enter('a/1', 90); end $$"
        )
    assert refused.value.pgcode == "FG412"
    assert history.query(
        "select last_fencing_token from fencing.history where event = 'write_rejected' and fencing_token = 90"
    ) == [(91,)]
    assert history.verify()["verdict"] == "proved"
    history.query(
        "select fencing.begin_write('{a/1}', 40, gen_random_uuid(), 'o', 'p', null, '{\"bare_token\": true}')"
    )
    assert history.verify()["verdict"] == "proved"


def test_findings_above_1000_are_counted_only(history: History) -> None:
    history.query(
        """insert into fencing.history (event, resource, fencing_token, last_fencing_token)
                     select 'write_rejected', 'a/1', 40, 31 from generate_series(1, 1200)"""
    )
    report = history.verify()
    assert (report["broken"], len(report["findings"]), report["findings_left_out"]) == (1_200, 1_000, 200)
    page = verify(history.stack.conninfo(history.name)).stdout
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
    report = history.verify("--from", history.query("select (now() - interval '45 minutes')::text")[0][0])
    assert report["grants"] == 1 and report["writes"] == 9 and report["verdict"] == "proved", report
    assert history.verify("--to", "yesterday")["rows"] == 0


def test_report_for_people_is_page_with_verdict(history: History) -> None:
    done = verify(history.stack.conninfo(history.name))
    assert done.returncode == 0 and done.stderr == "" and done.stdout.rstrip().endswith("Proved."), done
    assert done.stdout.count("\n") < 40
    row = history.row("write_rejected", 10)
    history.tamper(f"update fencing.history set fencing_token = 25 where id = {row}")
    done = verify(history.stack.conninfo(history.name))
    assert done.returncode == 1 and f"row {row}, a/1 (d)" in done.stdout and "BROKEN  d" in done.stdout


def test_report_without_rows_does_not_say_proved(history: History) -> None:
    done = verify(history.stack.conninfo(history.name), "--resource-prefix", "none/")
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
