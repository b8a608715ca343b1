"""Two sessions with one key: a key that one has claimed, the other neither gets nor waits for."""

import psycopg2.errors
import pytest
from sessions import Session

A = "decode(repeat('aa', 32), 'hex')"
CLAIM = f"select state, outcome from fencing.claim_keys('{{p}}', '{{k}}', array[{A}])"
KEEP = f"select fencing.keep_outcomes('{{p}}', '{{k}}', array[{A}], '{{done}}', 60000)"


@pytest.fixture
def session_pair(server, database):
    made = [Session(server, database, "test_gateway") for _ in range(2)]
    yield made
    for session in made:
        session.connection.close()


def test_claimed_key_is_running_for_others_until_commit(session_pair):
    first, second = session_pair
    assert first.run(CLAIM) == [("new", None)]
    first.run(KEEP)
    assert second.run(CLAIM) == [("running", None)]
    assert second.run(CLAIM) == [("running", None)], "a call that finds the key running does not claim it"
    first.commit()
    assert second.run(CLAIM) == [
        ("kept", "done")
    ], "also in the same transaction, because its isolation level is read committed"


def test_claimed_key_is_new_for_others_after_rollback(session_pair):
    first, second = session_pair
    first.run(CLAIM)
    first.run(KEEP)
    first.rollback()
    assert second.run(CLAIM) == [("new", None)]


def test_claimed_key_survives_rollback_to_a_later_savepoint(session_pair):
    first, second = session_pair
    first.run(CLAIM)
    first.run("savepoint claimed")
    first.run(KEEP)
    first.run("rollback to savepoint claimed")
    assert second.run(CLAIM) == [("running", None)]
    first.run(KEEP)
    first.commit()
    assert second.run(CLAIM) == [("kept", "done")]


def test_keep_outcomes_with_old_snapshot_fails_to_serialize(server, database):
    old = Session(server, database, "test_gateway", isolation="REPEATABLE READ")
    other = Session(server, database, "test_gateway")
    old.run("select 1")
    other.run(CLAIM)
    other.run(KEEP)
    other.commit()
    assert old.run(CLAIM) == [("new", None)], "its snapshot does not show it"
    with pytest.raises(psycopg2.errors.SerializationFailure):
        old.run(KEEP)
    old.connection.close()
    other.connection.close()


def test_forget_outcomes_skips_locked_rows(server, database, session_pair):
    first, second = session_pair
    first.run(f"select fencing.keep_outcomes('{{p,p}}', '{{x,y}}', array[{A}, {A}], '{{1,2}}', -1000)")
    first.commit()
    holder = server.connect(database, autocommit=False)
    with holder.cursor() as cursor:
        cursor.execute("select from fencing.kept_outcome where key = 'x' for update")
    assert second.run("select fencing.forget_outcomes(10)") == [(1,)]
    second.commit()
    holder.rollback()
    holder.close()
    assert second.run("select fencing.forget_outcomes(10)") == [(1,)]
    second.commit()
