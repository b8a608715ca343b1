"""Signed digests of the history: made by gateways, offered, kept outside, and compared by `fencegate verify`."""

from __future__ import annotations

import fcntl
import hashlib
import json
from contextlib import suppress

import psycopg2
import pytest
from support.api import expect_problem
from support.certificates import make_digest_key
from support.cluster import Gateway
from support.digests import ADD, INTERVAL_MS, TAMPER, Digests, digests, made, row_of  # noqa: F401 (fixtures)
from support.polling import eventually, pause, remains
from support.verified import verify


def test_digests_of_unchanged_history_are_proved(made: Digests) -> None:
    report = made.verify()
    assert report["verdict"] == "proved", report
    assert report["digests"]["compared"] == len(made.lines()) >= 3
    assert report["digests"]["rows"] >= 3 and report["digests"]["lost"] == 0
    entries = [json.loads(line) for line in made.lines()]
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    for before, entry in zip(made.lines(), entries[1:]):
        text = before[: before.rindex(',"signature":')] + "}"
        assert entry["previous"] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "change, says",
    [
        ("update fencing.history set owner = 'another' where resource = 'a/2'", "were changed"),
        ("update fencing.history set detail = '{}' where resource = 'a/2'", "were changed"),
        ("update fencing.history set at = at + interval '1 us' where resource = 'a/2'", "were changed"),
        ("delete from fencing.history where resource = 'a/2'", "are gone"),
        (
            "insert into fencing.history (id, event) select id, 'request_denied' from fencing.history "
            "where resource = 'a/2'",
            "there",
        ),
    ],
)
def test_superuser_who_changes_rows_is_found(made: Digests, change: str, says: str) -> None:
    """The first range with a difference is named; nothing else in the database shows it."""
    number = made.digest_of(row_of(made, "a/2"))
    made.query(TAMPER.format(change))
    (finding,) = made.findings()
    assert finding.startswith(f"digest {number} of ") and says in finding, finding


def test_superuser_who_reorders_rows_is_found(made: Digests) -> None:
    first, last = row_of(made, "a/1"), row_of(made, "a/3")
    numbers = [made.digest_of(first), made.digest_of(last)]
    made.query(
        TAMPER.format(
            f"update fencing.history set id = -1 where id = {first}; update fencing.history set id = {first} "
            f"where id = {last}; update fencing.history set id = {last} where id = -1"
        )
    )
    found = made.findings()
    assert [finding.split()[1] for finding in found] == [str(number) for number in numbers], found


def test_rows_below_the_first_digest_are_found(made: Digests) -> None:
    made.query("insert into fencing.history (id, event) values (-5, 'request_denied')")
    (finding,) = made.findings()
    assert "that no digest can have" in finding


def test_owner_who_replaces_all_digests_is_found(digests: Digests) -> None:
    """Without the key it can have gateways sign other rows anew; the file has the digests from before."""
    with digests.cluster.serving(digests.settings()) as gateway:
        digests.add("a/1")
        digests.add("a/2")
        digests.query(TAMPER.format("update fencing.history set owner = 'another' where resource = 'a/1'"))
        digests.query(
            TAMPER.format("delete from fencing.history_digest")
            .replace("fencing.history disable", "fencing.history_digest disable")
            .replace("fencing.history enable", "fencing.history_digest enable")
        )
        eventually(lambda: json.loads(digests.lines()[-1])["number"] == 1, goal="a new first digest")
        assert "were set back" in gateway.log.read_text()
    found = digests.findings()
    assert found and all("were set back" in finding for finding in found), found
    assert found[0].startswith("digest 1 of ")


def test_owner_who_deletes_the_last_digests_is_found(made: Digests) -> None:
    made.query("alter table fencing.history_digest disable trigger history_append_only")
    made.query("delete from fencing.history_digest where number > 1")
    found = made.findings()
    assert len(found) == len(made.lines()) - 1 and all("were set back" in finding for finding in found)


def test_row_without_digest_can_be_changed(made: Digests) -> None:
    made.query(ADD, ("a/4", "an owner", "now"))
    made.query(TAMPER.format("update fencing.history set owner = 'another' where resource = 'a/4'"))
    with made.cluster.serving(made.settings()):
        made.add("a/5")
    assert made.findings() == []


def test_digests_lost_by_failover_are_counted(made: Digests) -> None:
    """Rows and digests of the end are gone, and the storage generation has changed since."""
    last = json.loads(made.lines()[-1])
    made.query(TAMPER.format(f"delete from fencing.history where id > {last['history']['after']}"))
    made.query("alter table fencing.history_digest disable trigger history_append_only")
    made.query("delete from fencing.history_digest where number = %s", (last["number"],))
    assert "were set back" in made.findings()[0]
    with made.cluster.serving(made.settings()):
        add = "insert into fencing.history (event, detail) values ('storage_generation_changed', %s)"
        made.query(add, ('{"floor": 0}',))
        made.add("a/4")
    report = made.verify()
    assert [f for f in report["findings"] if f["promise"] == "f"] == [] and report["digests"]["lost"] == 1


def test_failover_claimed_by_a_gateway_is_none(made: Digests) -> None:
    """A gateway's login can record lost writes, but not the change that lost them."""
    last = json.loads(made.lines()[-1])
    made.query(TAMPER.format(f"delete from fencing.history where id > {last['history']['after']}"))
    made.query("alter table fencing.history_digest disable trigger history_append_only")
    made.query("delete from fencing.history_digest where number = %s", (last["number"],))
    with made.cluster.serving(made.settings()):
        made.query(
            'select fencing.record_events(\'[{"event": "storage_generation_changed", "detail": {"lost_writes": []}}]\')'
        )
        made.add("a/4")
    assert any("were set back" in finding for finding in made.findings())


def test_owner_who_replaces_a_salt_is_found(made: Digests) -> None:
    made.query("alter table fencing.history_digest disable trigger history_append_only")
    made.query("update fencing.history_digest set salt = 'another' where number = 1")
    found = made.findings()
    assert found and all(finding.startswith("digest 1 of ") for finding in found)


def test_gateway_login_without_key_can_add_no_digest(digests: Digests) -> None:
    """What it adds is no digest: gateways log it and go on, and verify names it."""
    with digests.cluster.serving(digests.settings()) as gateway:
        digests.add("a/1")
        ((last,),) = digests.query("select entry from fencing.history_digest order by number desc limit 1")
        entry = json.loads(last)
        entry["number"], entry["history"]["to"] = entry["number"] + 1, 1 << 60
        digests.query(
            "select fencing.append_digest(%s, %s, %s, 'salt', 'salt')", (entry["number"], json.dumps(entry), "0" * 128)
        )
        digests.query(ADD, ("a/2", "an owner", "now"))
        eventually(lambda: "signed by no key of this gateway" in gateway.log.read_text(), goal="it is logged")
        eventually(lambda: digests.covered() < 1 << 60, goal="the next digest")
    found = digests.findings()
    assert any(f"digest {entry['number']} of the database: signed by none" in finding for finding in found), found
    assert all("signed by none" in finding for finding in found), found


def test_entries_of_a_login_without_key_delay_no_digest(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.add("a/1")
        row = digests.query(ADD + " returning id", ("a/2", "an owner", "now"))[0][0]

        def covered_despite_entries() -> bool:
            with suppress(psycopg2.errors.LockNotAvailable):  # the gateway makes a digest
                digests.query(
                    "select fencing.append_digest(fencing.begin_digest(), '{\"no\": 1}', '00', 'salt', 'salt')"
                )
            return any(json.loads(line).get("history", {"to": 0})["to"] >= row for line in digests.lines())

        eventually(covered_despite_entries, 30, interval=0.1, goal="a digest although entries are added all the time")
        assert digests.query("select count(*) > 2 from fencing.history_digest where signature = '00'") == [(True,)]


def test_thief_of_key_and_login_is_found_by_the_file(made: Digests) -> None:
    """It can sign a changed history, but not take back the digests that the file has."""
    made.query(TAMPER.format("update fencing.history set owner = 'another' where resource = 'a/2'"))
    made.query("alter table fencing.history_digest disable trigger history_append_only")
    made.query("delete from fencing.history_digest")
    with made.cluster.serving(made.settings(file="forged")):  # the thief's own program, with the stolen key
        eventually(lambda: made.lines("forged") != [], goal="a forged digest")
    assert made.findings(file="forged") == [], "alone the forged digests agree with the history"
    found = made.findings()
    assert found and "were set back" in found[0], found


def test_retention_is_told_apart_from_other_drops(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.query(
            "select fencing.make_history_partition(day) from unnest(array['2026-08-03', '2026-08-10', "
            "'2026-08-17', '2026-08-24']::timestamptz[]) day"
        )
        for day in ("2026-08-04", "2026-08-11", "2026-08-18", "2026-08-25"):
            digests.add(f"old/{day}", at=day)
        digests.query("select fencing.drop_week('20260810')")
        digests.add("a/1")
    report = digests.verify()
    assert report["digests"]["rows_dropped_by_retention"] == 1, report
    assert digests.findings() == []
    digests.query("drop table fencing.history_20260824")
    (finding,) = digests.findings()
    assert "the week 20260824 are gone: dropped by" in finding and "not by retention" in finding
    # Without the event, as where a superuser has disabled the event trigger.
    digests.query("alter event trigger fencing_refuse_drops disable")
    digests.query("drop table fencing.history_20260817")
    digests.query("alter event trigger fencing_refuse_drops enable always")
    gone = digests.findings()
    assert len(gone) == 2 and gone[0].endswith("rows of the week 20260817 are gone"), gone


def test_retention_that_is_only_claimed_is_found(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.query("select fencing.make_history_partition('2026-08-03')")
        digests.add("old/1", at="2026-08-04")
        digests.add("old/2", at="2026-08-04")
    digests.query("select fencing.record_guard_change('history_rotated', '{\"week\": \"20260803\"}')")
    digests.query(TAMPER.format("delete from fencing.history where resource = 'old/1'"))
    found = digests.findings()
    assert len(found) == 2 and "rows of the week 20260803 are there, which was dropped" in found[0]


def test_rows_of_half_a_week_are_no_retention(digests: Digests) -> None:
    """The rotation of a later week tells of an earlier one too, but then all rows of that are gone."""
    with digests.cluster.serving(digests.settings()):
        digests.query("select fencing.make_history_partition('2026-08-03')")
        digests.add("old/1", at="2026-08-04")
        digests.add("old/2", at="2026-08-04")
    digests.query("select fencing.record_guard_change('history_rotated', '{\"week\": \"20260810\"}')")
    digests.query(TAMPER.format("delete from fencing.history where resource = 'old/1'"))
    (finding,) = digests.findings()
    assert "of the week 20260803 are gone, and other rows of that week are there" in finding


def test_two_gateways_make_one_chain_and_both_files(digests: Digests) -> None:
    settings = [digests.settings(file=name) for name in ("digests", "second")]
    with digests.cluster.serving(settings[0]), digests.cluster.serving(settings[1]):
        for number in range(4):
            digests.add(f"a/{number}")
        eventually(lambda: digests.lines() == digests.lines("second"), goal="both files have all")
    assert digests.findings() == [] and digests.findings(file="second") == []


def test_two_gateways_append_to_one_file(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()), digests.cluster.serving(digests.settings()):
        for number in range(4):
            digests.add(f"a/{number}")
    numbers = [json.loads(line)["number"] for line in digests.lines()]
    assert numbers == list(range(1, len(numbers) + 1)) and digests.findings() == []


def test_renamed_file_is_continued_in_a_new_one(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.add("a/1")
        (digests.folder / "digests").rename(digests.folder / "digests.1")
        digests.add("a/2")
    with digests.cluster.serving(digests.settings()):
        digests.add("a/3")
    old, new = digests.lines("digests.1"), digests.lines()
    numbers = [json.loads(line)["number"] for line in old + new]
    assert numbers == list(range(1, len(numbers) + 1)) and old and new
    (digests.folder / "all").write_text("\n".join(old + new) + "\n")
    for file in ("digests.1", "digests", "all"):
        assert digests.findings(file=file) == [], file
    digests.query(TAMPER.format("update fencing.history set owner = 'another' where resource = 'a/1'"))
    assert len(digests.findings()) == 1, "the newest file is enough"


def test_emptied_file_gets_the_digests_that_follow(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.add("a/1")
        last = json.loads(digests.lines()[-1])["number"]
        (digests.folder / "digests").write_text("")
        digests.query(ADD, ("a/2", "an owner", "now"))
        eventually(digests.lines, 30, goal="a digest is in the file again")
    assert json.loads(digests.lines()[0])["number"] > last


def test_file_locked_by_others_is_logged_and_written_later(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()) as gateway:
        digests.add("a/1")
        with open(digests.folder / "digests") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            digests.query(ADD, ("a/2", "an owner", "now"))
            eventually(lambda: "digests: it can't be locked: " in gateway.log.read_text(), goal="the log says why")
            assert digests.covered() < row_of(digests, "a/2")
        digests.wait_for(row_of(digests, "a/2"))
    assert digests.findings() == []


def test_digest_is_due_by_the_age_of_the_last_one(digests: Digests) -> None:
    """Also after a restart; a replacement is no new digest, so that the next one is due."""
    hourly = digests.settings(digest_interval_ms=3_600_000)
    with digests.cluster.serving(hourly):
        digests.add("a/1")
    made = len(digests.lines())
    with digests.cluster.serving(hourly):
        digests.query(ADD, ("a/2", "an owner", "now"))
        remains(lambda: len(digests.lines()) == made, 3, goal="no digest is due")
        config = digests.cluster.gateway(hourly).config
        order = ("--conninfo", digests.cluster.conninfo(), "--name", "an owner", "--reason", "order 7")
        assert digests.cluster.call("erase", "--config", str(config), *order).returncode == 0
    with digests.cluster.serving(hourly):
        digests.wait_for(row_of(digests, "a/2"))
    assert digests.verify()["verdict"] == "proved"


def test_key_is_replaced_and_both_stay_valid(digests: Digests) -> None:
    make_digest_key(digests.folder, "second")
    with digests.cluster.serving(digests.settings()):
        digests.add("a/1")
    first = str(digests.folder / "first.pub")
    with digests.cluster.serving(digests.settings("second", digest_public_key_files=[first])):
        digests.add("a/2")
    assert len({json.loads(line)["key"] for line in digests.lines()}) == 2
    assert digests.findings(keys=("first", "second")) == []
    assert any("signed by none of the public keys" in finding for finding in digests.findings(keys=("second",)))


def test_open_transaction_delays_digest_and_loses_no_row(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()) as gateway:
        digests.add("a/1")
        session = digests.cluster.sql()
        session.autocommit = False
        session.cursor().execute(ADD, ("late/1", "an owner", "now"))
        digests.query(ADD, ("a/2", "an owner", "now"))
        row = row_of(digests, "a/2")
        pause(2 * INTERVAL_MS / 1_000, "two digests would be due")
        assert digests.covered() < row
        assert lag_of(gateway) > INTERVAL_MS / 1_000
        session.commit()
        session.close()
        digests.wait_for(row)
    assert digests.findings() == []


def lag_of(gateway: Gateway) -> float:
    text = gateway.api.get("/metrics").body.decode()
    (value,) = [
        line.split()[1] for line in text.splitlines() if line.startswith("fencegate_history_digest_lag_seconds")
    ]
    return float(value)


def test_many_rows_take_several_digests_and_changes_are_covered(digests: Digests) -> None:
    """Also rows that were there before the key."""
    digests.query("insert into fencing.history (event) select 'request_denied' from generate_series(1, 25000)")
    digests.query(
        "insert into fencing.row_change (relation, operation, direct) select 'public.t', 'truncate', true "
        "from generate_series(1, 12000)"
    )
    with digests.cluster.serving(digests.settings()):
        digests.wait_for(digests.query("select max(id) from fencing.history where event = 'request_denied'")[0][0])
    assert len(digests.lines()) >= 3
    report = digests.verify()
    assert report["verdict"] == "proved" and report["digests"]["rows"] >= 37_000
    digests.query(
        TAMPER.format("select")
        .replace("history disable", "row_change disable")
        .replace("select;", "update fencing.row_change set relation = 'public.u' where id = 11000;")
        .replace("history enable", "row_change enable")
    )
    (finding,) = digests.findings()
    assert finding.startswith("digest 2 of ") and "of row_change" in finding


def test_file_that_cannot_be_written_is_logged_and_lags(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings(file="missing/digests")) as gateway:
        eventually(lambda: "audit.digest_file: " in gateway.log.read_text(), goal="the log names the file")
        eventually(lambda: lag_of(gateway) > 2, goal="the lag grows")
        (digests.folder / "missing").mkdir()
        eventually(lambda: lag_of(gateway) < 2, goal="the digests are in the file")
    assert digests.lines("missing/digests") != []


def test_digests_are_paged_and_exported(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()) as gateway:
        for number in (1, 2, 3):
            digests.add(f"a/{number}")
        page = gateway.api.get("/v1/history/digests", limit=2)
        assert page.status == 200, page
        newest = page.json()
        assert [item["number"] for item in newest["items"]][0] >= 3 and len(newest["items"]) == 2
        rest = gateway.api.get("/v1/history/digests", limit=2, cursor=newest["next_cursor"]).json()
        assert rest["items"][0]["number"] == newest["items"][1]["number"] - 1
        lines = gateway.api.get("/v1/history/digests", order="asc", headers={"accept": "application/x-ndjson"})
        assert lines.body.decode().splitlines()[:3] == digests.lines()[:3]
        (digests.folder / "offered").write_bytes(lines.body)
        expect_problem(gateway.api.get("/v1/history/digests", resource="a/1"), 400, "invalid-request")
    assert digests.findings(file="offered") == []


def test_no_digest_is_made_without_key(digests: Digests) -> None:
    with digests.cluster.serving() as gateway:
        assert "digest_lag" not in gateway.api.get("/metrics").body.decode()
        assert gateway.api.get("/v1/history/digests").json() == {"items": [], "next_cursor": None}


def test_digest_keys_that_are_no_keys_are_faults(digests: Digests) -> None:
    (digests.folder / "first.key").write_text("no key")
    faulty = digests.settings(digest_public_key_files=[str(digests.folder / "first.key")])
    done = digests.cluster.run("check", digests.cluster.gateway(faulty).config)
    assert done.returncode == 78
    assert "audit.digest_key_file: has no readable private key of Ed25519" in done.stderr
    assert "audit.digest_public_key_files[0]: has no readable public key of Ed25519" in done.stderr


def test_verify_of_digests_that_cannot_run_says_why(digests: Digests) -> None:
    public = str(digests.folder / "first.pub")
    conninfo = digests.cluster.conninfo()
    for arguments, code, says in (
        (("--digests", "/nowhere", "--public-key", public), 2, "/nowhere can't be read"),
        (("--digests", public, "--public-key", "/nowhere"), 2, "/nowhere"),
        (("--digests", public, "--public-key", str(digests.folder / "first.key")), 2, "has no public key of Ed25519"),
        (("--digests", public), 64, "--public-key"),
        (("--public-key", public), 64, "--digests"),
    ):
        done = verify(conninfo, *arguments)
        assert done.returncode == code and says in done.stderr, (arguments, done)
