"""`fencegate verify` of a history that was changed: the row that breaks a promise is named."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg2
import pytest
from support.verified import History

IN_A_DAY = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()
NO_GRANT = "delete from fencing.history where event in ('lease_granted', 'lease_renewed') and fencing_token = {token}"


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
    report = history.verify("--to", IN_A_DAY)
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
    assert findings_of(history.verify("--to", IN_A_DAY))[0] == ("b", first)


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
        == findings_of(history.verify("--to", IN_A_DAY))
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


READ = "select fencing.raise_read_fences('{a/1}', 40, 'o', 'p', null, 'fenced read')"


def test_shared_leases_and_their_reads_are_proved(history: History) -> None:
    """Two leases have one token. A write is refused by their reads too, a read by the last writer alone."""
    history.query("select fencing.set_up_recorder()")
    for _ in range(2):
        history.query(
            "insert into fencing.history (event, resource, fencing_token, detail) "
            """values ('lease_granted', 'a/1', 40, '{"ttl_ms": 60000, "mode": "shared"}')"""
        )
    history.query(READ)
    history.query("select fencing.begin_write('{a/1}', 35, gen_random_uuid(), 'o', 'p', null, null)")
    with pytest.raises(psycopg2.Error) as refused:
        history.query("select fencing.enter_shared('a/1', 30)")
    assert refused.value.pgcode == "FG412"
    history.query("select fencing.enter_shared('a/1', 35)")
    assert history.query(
        "select fencing_token, last_fencing_token from fencing.history where event = 'write_rejected' order by id desc "
        "limit 2"
    ) == [(30, 31), (35, 40)]
    report = history.verify()
    assert (report["verdict"], report["raised_by_direct_sql"]) == ("proved", 0), report


def test_shared_token_granted_to_exclusive_lease_breaks_a(history: History) -> None:
    for mode in ('"mode": "shared", ', ""):
        history.query(
            "insert into fencing.history (event, resource, fencing_token, detail) "
            f"""values ('lease_granted', 'a/1', 40, '{{{mode}"ttl_ms": 60000}}')"""
        )
    assert findings_of(history.verify()) == [("a", history.row("lease_granted", 40, 1))]


def test_write_below_shared_read_breaks_b(history: History) -> None:
    history.query(READ)
    history.query("update fencing.guard set last_read_token = 0")
    history.query("select fencing.enter('a/1', 35)")
    found = findings_of(history.verify())
    assert sorted(found) == [("b", history.row("write_applied", 35)), ("e", history.row("fence_raised", 40))]
