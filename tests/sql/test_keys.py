"""Two sessions with one key: what one has claimed, the other neither gets nor waits for."""
import psycopg2.errors
import pytest
from test_sessions import Session

A = "decode(repeat('aa', 32), 'hex')"
CLAIM = f"select state, outcome from fencing.claim_keys('{{p}}', '{{k}}', array[{A}])"
KEEP = f"select fencing.keep_outcomes('{{p}}', '{{k}}', array[{A}], '{{done}}', 60000)"


@pytest.fixture
def two(server, database):
    made = [Session(server, database, "test_gateway") for _ in range(2)]
    yield made
    for session in made:
        session.connection.close()


def test_claimed_by_one_then_running_for_the_other_until_it_commits(two):
    first, second = two
    assert first.run(CLAIM) == [("new", None)]
    first.run(KEEP)
    assert second.run(CLAIM) == [("running", None)]
    assert second.run(CLAIM) == [("running", None)], "asking does not claim"
    first.commit()
    assert second.run(CLAIM) == [("kept", "done")], "in the same transaction, for it reads committed"


def test_claimed_by_one_that_rolls_back_then_new_for_the_other(two):
    first, second = two
    first.run(CLAIM)
    first.run(KEEP)
    first.rollback()
    assert second.run(CLAIM) == [("new", None)]


def test_refusal_rolled_back_to_a_savepoint_then_key_still_claimed(two):
    first, second = two
    first.run(CLAIM)
    first.run("savepoint claimed")
    first.run(KEEP)
    first.run("rollback to savepoint claimed")
    assert second.run(CLAIM) == [("running", None)]
    first.run(KEEP)
    first.commit()
    assert second.run(CLAIM) == [("kept", "done")]


def test_snapshot_from_before_the_first_commit_then_nothing_is_done_twice(server, database):
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


def test_sweeping_while_a_row_is_locked_then_passed_over(server, database, two):
    first, second = two
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
