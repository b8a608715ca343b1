"""`fencegate erase`: names of a person leave the history, and its digests stay valid."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import contextmanager
from typing import Iterator

import pytest
from support import processes
from support.certificates import make_digest_key
from support.digests import ADD, TAMPER, Digests, digests, made, row_of  # noqa: F401 (fixtures)
from support.polling import eventually

NAMES = ("--name", "an owner", "--reason", "order 7")


def arguments_of(digests: Digests, key: str = "first", **audit: object) -> list[str]:
    config = digests.cluster.gateway(digests.settings(key, **audit)).config
    return ["erase", "--config", str(config), "--conninfo", digests.cluster.conninfo()]


def erase(digests: Digests, *arguments: str, key: str = "first", **audit: object) -> subprocess.CompletedProcess:
    return digests.cluster.call(*arguments_of(digests, key, **audit), *(arguments or NAMES), timeout=120)


def owners(digests: Digests) -> list[str]:
    rows = digests.query("select owner from fencing.history where resource like 'a/%' order by id")
    return [owner for owner, in rows]


def events(digests: Digests) -> list[tuple[str, dict]]:
    return digests.query("select principal, detail from fencing.history where event = 'person_erased' order by id")


def test_names_are_erased_and_digests_stay_valid(made: Digests) -> None:
    """In rows with digests and in those without; gateways continue, and their file has the replacements."""
    made.query(ADD, ("a/4", "an owner", "now"))
    done = erase(made)
    assert done.returncode == 0, done
    pseudonym = done.stdout.split()[2].rstrip(".")
    assert owners(made) == [pseudonym] * 4
    assert (
        "Replaced in 4 rows of the history and of changes" in done.stdout and "3 digests were replaced" in done.stdout
    )
    report = made.verify()
    assert report["verdict"] == "proved", report
    assert report["digests"]["replaced"] == 3 and report["digests"]["rows"] >= 3
    assert {(e["pseudonym"], e["principal"], e["reason"]) for e in report["digests"]["erasures"]} == {
        (pseudonym, "postgres", "order 7")
    }
    with made.cluster.serving(made.settings()):
        made.add("a/5", "another")
        eventually(lambda: sum('"replaces":' in line for line in made.lines()) == 3, goal="the file has them")
        made.add("a/6", "another")
    assert made.verify()["verdict"] == "proved"
    assert made.query("select count(*) from fencing.history h where strpos(h::text, 'an owner') > 0") == [(0,)]
    assert "an owner" not in "".join(made.lines())


def test_erasure_is_an_event_without_the_name(made: Digests) -> None:
    with made.cluster.serving(made.settings()) as gateway:
        assert erase(made).returncode == 0
        items = gateway.api.get("/v1/history", event="person_erased").json()["items"]
    assert len(items) == 3 and items[0]["principal"] == "postgres" and items[0]["resource"] is None
    for _, detail in events(made):
        assert detail["reason"] == "order 7" and detail["history_rows"] == 1 and detail["change_rows"] == 0
    assert "an owner" not in json.dumps(items)


def test_second_name_in_the_same_rows_is_erased_later(made: Digests) -> None:
    made.query(ADD, ("a/4", "joe", "now"))
    with made.cluster.serving(made.settings()):
        made.query(ADD, ("a/5", "an owner", "now"))
        made.add("a/6", "joe")
    assert erase(made).returncode == 0
    assert erase(made, "--name", "joe", "--name", "no one", "--reason", "order 8").returncode == 0
    again = erase(made)
    assert again.returncode == 0 and "in 0 rows" in again.stdout and "; 0 digests were replaced" in again.stdout
    assert all(owner.startswith("erased-") for owner in owners(made)) and len(set(owners(made))) == 2
    assert made.verify()["verdict"] == "proved"
    empty = made.query(
        "select d.number from fencing.history_digest d where erasable_salt <> '' and exists "
        "(select from fencing.history_digest r where r.number > d.number and r.replaces in (d.number, d.replaces))"
    )
    assert empty == [], "a salt of rows with the old names is left"


def test_rows_that_a_digest_denies_are_not_erased(made: Digests) -> None:
    """What was changed before stays as it is, so that no replacement hides it."""
    number = made.digest_of(row_of(made, "a/2"))
    made.query(TAMPER.format("update fencing.history set detail = '{}' where resource = 'a/2'"))
    done = erase(made)
    assert done.returncode == 1 and f"the rows of digest {number} are not those that it has" in done.stderr, done
    assert owners(made)[0].startswith("erased-") and owners(made)[1:] == ["an owner", "an owner"]
    (finding,) = made.findings()
    assert finding.startswith(f"digest {number} of ")


def test_replaced_rows_that_are_changed_later_are_found(made: Digests) -> None:
    assert erase(made).returncode == 0
    first, second = (made.digest_of(row_of(made, name)) for name in ("a/1", "a/2"))
    made.query(TAMPER.format("update fencing.history set fencing_token = 9 where resource = 'a/1'"))
    made.query(TAMPER.format("update fencing.history set owner = 'another' where resource = 'a/2'"))
    found = made.findings()
    assert any(finding.startswith(f"digest {first} of ") and "were changed" in finding for finding in found), found
    last = made.query("select number from fencing.history_digest where replaces = %s", (second,))[0][0]
    assert any(finding.startswith(f"digest {last} of ") and "were changed" in finding for finding in found), found


def test_owner_without_key_cannot_replace_a_digest(made: Digests) -> None:
    """It can erase names; without a signature that looks like any other change."""
    number = made.digest_of(row_of(made, "a/1"))
    entry = made.query("select entry from fencing.history_digest where number = %s", (number,))[0][0]
    forged = {**json.loads(entry), "number": len(made.lines()) + 1}
    made.query(
        "begin; select fencing.erase_names('{an owner}', 'erased-00000000', 'none', 0, 1 << 60, 0, 1 << 60); "
        "select fencing.replace_digest(%s, %s, %s, 'a', 'b', %s); commit",
        (forged["number"], json.dumps(forged), "0" * 128, number),
    )
    found = made.findings()
    assert any(f"digest {forged['number']} of the database: signed by none" in finding for finding in found), found
    assert any(f.startswith(f"digest {number} of ") and "its erasable_salt is gone" in f for f in found), found
    assert sum("were changed" in finding for finding in found) == 2, found
    refused = erase(made)
    assert refused.returncode == 1, refused


def test_wrong_key_erases_nothing(made: Digests) -> None:
    """Neither does one that has not signed the last digests, or some in between."""
    make_digest_key(made.folder, "second")

    def is_refused(key: str, says: str) -> None:
        done = erase(made, key=key)
        assert done.returncode == 1 and says in done.stderr and "none of the keys of --config" in done.stderr, done
        assert set(owners(made)) == {"an owner"} and made.findings(keys=("first", "second")) == []

    is_refused("second", "the last digest is")
    with made.cluster.serving(made.settings("second", digest_public_key_files=[str(made.folder / "first.pub")])):
        made.add("a/4")
    is_refused("first", "the last digest is")
    is_refused("second", "the digest before digest ")
    without = made.cluster.call("erase", "--conninfo", made.cluster.conninfo(), *NAMES)
    assert without.returncode == 1 and "audit.digest_key_file is needed" in without.stderr, without


@contextmanager
def locked(digests: Digests, statement: str) -> Iterator[None]:
    session = digests.cluster.sql()
    session.autocommit = False
    session.cursor().execute(statement)
    try:
        yield
    finally:
        session.rollback()
        session.close()


def begin_blocked(digests: Digests, query: str, *arguments: str) -> subprocess.Popen:
    """Starts the program, and waits until its query waits for a lock."""
    process = processes.begin_fencegate(*arguments)
    waiting = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and strpos(query, %s) > 0)"
    eventually(lambda: digests.query(waiting, (query,)) == [(True,)], goal=f"{query} waits for a lock")
    return process


LOCK_SECOND_ROW = "select from fencing.history where resource = 'a/2' for update"


def test_erasure_killed_in_the_middle_is_continued(made: Digests) -> None:
    with locked(made, LOCK_SECOND_ROW):
        process = begin_blocked(made, "erase_names", *arguments_of(made), *NAMES)
        process.kill()
        process.wait()
    assert [owner == "an owner" for owner in owners(made)] == [False, True, True]
    assert made.findings() == []
    assert erase(made).returncode == 0
    assert all(owner.startswith("erased-") for owner in owners(made)) and made.findings() == []


def test_beside_an_erasure_verify_proves_and_another_is_refused(made: Digests) -> None:
    with locked(made, LOCK_SECOND_ROW):
        process = begin_blocked(made, "erase_names", *arguments_of(made), *NAMES)
        assert [owner == "an owner" for owner in owners(made)] == [False, True, True]
        report = made.verify()
        assert report["verdict"] == "proved" and report["digests"]["replaced"] == 1, report
        second = erase(made)
        assert second.returncode == 1 and "another fencegate erase runs in this database" in second.stderr, second
    assert process.wait(60) == 0, process.communicate()
    assert len(set(owners(made))) == 1 and made.verify()["digests"]["replaced"] == 3


def test_verify_that_an_erasure_overtakes_asks_to_be_repeated(made: Digests) -> None:
    """It has read the digests, and then finds rows that newer ones have."""
    arguments = ("verify", "--conninfo", made.cluster.conninfo(), "--digests", str(made.folder / "digests"))
    with locked(made, "lock table fencing.row_change in access exclusive mode"):
        checker = begin_blocked(made, "row_change", *arguments, "--public-key", str(made.folder / "first.pub"))
        checker.send_signal(signal.SIGSTOP)
    try:
        assert erase(made).returncode == 0
    finally:
        checker.send_signal(signal.SIGCONT)
    _, said = checker.communicate(timeout=60)
    assert checker.returncode == 2 and "names were erased during the check: run it again" in said, said
    assert made.findings() == []


def test_legal_hold_refuses_and_keeps_all_rows(made: Digests) -> None:
    made.query("insert into fencing.settings values ('legal_hold', 'case 17')")
    done = erase(made)
    assert done.returncode == 1 and "nothing is erased or dropped under the legal hold: case 17" in done.stderr, done
    assert owners(made) == ["an owner"] * 3 and events(made) == []


def test_erased_rows_that_retention_drops_are_proved(digests: Digests) -> None:
    with digests.cluster.serving(digests.settings()):
        digests.query("select fencing.make_history_partition('2026-08-03')")
        digests.query(ADD, ("a/1", "an owner", "2026-08-04"))
        digests.add("a/2")
        assert erase(digests).returncode == 0
        digests.query("select fencing.drop_week('20260803')")
        digests.add("a/3", "another")
        digests.query(ADD, ("a/4", "an owner", "now"))
        digests.add("a/5", "another")
    report = digests.verify()
    assert report["verdict"] == "proved" and report["digests"]["rows_dropped_by_retention"] == 1, report
    assert erase(digests, "--name", owners(digests)[0], "--reason", "order 8").returncode == 0
    assert digests.findings() == []


def test_values_are_erased_beside_running_gateways(digests: Digests) -> None:
    """Values of changed rows, also masked ones, kept outcomes and origins of direct SQL."""
    digests.query(
        "create table person (id bigint primary key, name text, city text); "
        "select fencing.protect('person', '''p/'' || id');"
        "select fencing.record_changes('person', masked => '{city}')"
    )
    with digests.cluster.serving(digests.settings()):
        digests.query(
            "begin; set local application_name = 'of jane'; select fencing.enter('p/1', 2); "
            "insert into person values (1, 'jane', 'york'); commit"
        )
        digests.add("a/1")
        done = erase(digests, *"--name jane --name york --reason".split(), "order 7", "--name", "of jane")
        assert done.returncode == 0, done
        digests.add("a/2")
    pseudonym = done.stdout.split()[2].rstrip(".")
    ((new, application),) = digests.query("select new, application from fencing.row_change")
    assert new == {"id": "1", "name": pseudonym, "city": {"masked": pseudonym}} and application == pseudonym
    assert digests.query("select exists (select from fencing.history where detail->>'application' = 'of jane')") == [
        (False,)
    ]
    assert digests.findings() == []


def test_what_is_left_is_named(digests: Digests) -> None:
    """Without digests a login is enough. Longer texts stay, and are counted."""
    digests.query(ADD, ("of/an owner", "an owner's", "now"))
    digests.query(ADD, ("a/1", "an owner", "now"))
    digests.query("insert into fencing.kept_outcome values ('an owner', 'k', '', '{}', '2030-01-01T00:00Z')")
    digests.query("insert into fencing.kept_outcome values ('p', 'of an owner', '', '{}', '2030-01-01T00:00Z')")
    digests.query("insert into fencing.known_fault (fault) values ('an owner owns it')")
    for resource in ("a/1", "a/2"):
        digests.query(
            "insert into fencing.guard (resource, last_fencing_token, entered_by) values (%s, 1, 'an owner')",
            (resource,),
        )
    with locked(digests, "select from fencing.guard where resource = 'a/2' for update"):
        done = digests.cluster.call("erase", "--conninfo", digests.cluster.conninfo(), *NAMES)
    assert done.returncode == 0 and owners(digests)[0].startswith("erased-"), done
    for table, first in (
        ("history", row_of(digests, "of/an owner")),
        ("guard", "a/2"),
        ("kept_outcome", "of an owner"),
        ("known_fault", digests.query("select max(id) from fencing.known_fault")[0][0]),
    ):
        (line,) = [line for line in done.stdout.splitlines() if f"1 rows of {table} still have one of the nam" in line]
        assert line.endswith(f"the first is {first}."), line
    assert "1 kept outcomes have one of the names as their principal until 2030-01-01T00:00:00Z" in done.stdout


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (("--name", "jane"), 64, "--reason"),
        (("--reason", "order"), 64, "--name"),
        (("--name", "", "--reason", "order"), 64, "--name"),
        (("--name", "jane", "--reason", "order of jane"), 1, "reason: 1 to 2,000 bytes, without the names"),
        (("--name", "x" * 9000, "--reason", "order"), 1, "names: 1 to 100"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_faulty_order_is_refused(digests: Digests, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = digests.cluster.call("erase", "--conninfo", digests.cluster.conninfo(), *arguments)
    assert done.returncode == code and says in done.stderr, done
