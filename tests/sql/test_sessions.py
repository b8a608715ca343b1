"""Two sessions meet at the fence: every permutation that matters, with real waits seen through pg_blocking_pids."""
import threading
import time
import uuid

import psycopg2
import psycopg2.errors
import pytest

WAIT_SECONDS_MAX = 20
STALE, REQUIRED, NOT_COVERED = "FG412", "FG428", "FG403"


class Session:
    """A connection in a transaction of its own, which can run a statement in the background."""

    def __init__(self, server, database, user="test_app", isolation=None):
        self.connection = server.connect(database, user, autocommit=False)
        if isolation:
            self.connection.set_session(isolation_level=isolation)
        self.pid = self.connection.info.backend_pid
        self.thread = None
        self.error = None
        self.rows = None

    def run(self, statement, *arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall() if cursor.description else None

    def enter(self, resource, token):
        return self.run("select fencing.enter(%s, %s)", resource, token)[0][0]

    def sell(self, sku="sku-1"):
        self.run("update inventory set stock = stock - 1 where sku = %s", sku)

    def start(self, statement, *arguments):
        def work():
            try:
                self.rows = self.run(statement, *arguments)
            except psycopg2.Error as error:
                self.error = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def finish(self):
        self.thread.join(WAIT_SECONDS_MAX)
        assert not self.thread.is_alive(), "still waiting"
        if self.error:
            raise self.error
        return self.rows

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()


@pytest.fixture
def sessions(server, database):
    opened = []

    def make(**options):
        opened.append(Session(server, database, **options))
        return opened[-1]

    make.watch = server.connect(database)
    yield make
    for session in opened:
        session.connection.close()
    make.watch.close()


def wait_until_blocked(watch, waiter, by):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with watch.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("select pg_blocking_pids(%s)", (waiter.pid,))
            if by.pid in cursor.fetchone()[0]:
                return
            time.sleep(0.005)  # between two looks
    raise AssertionError("never waited")


def sqlstate_of(call):
    with pytest.raises(psycopg2.Error) as raised:
        call()
    return raised.value.pgcode


def ask(watch, statement):
    with watch.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_newer_token_waits_for_older_ones_commit(sessions):
    older, newer = sessions(), sessions()
    older.enter("inventory/sku-1", 4)
    older.sell()
    newer.start("select fencing.enter('inventory/sku-1', 5)")
    wait_until_blocked(sessions.watch, newer, older)
    older.commit()
    assert newer.finish() == [(4,)]
    newer.sell()
    newer.commit()
    assert ask(sessions.watch, "select stock from inventory where sku = 'sku-1'") == 8


def test_older_token_waiting_for_newer_one_is_refused_at_its_commit(sessions):
    newer, older = sessions(), sessions()
    newer.enter("inventory/sku-1", 5)
    newer.sell()
    older.start("select fencing.enter('inventory/sku-1', 4)")
    wait_until_blocked(sessions.watch, older, newer)
    newer.commit()
    assert sqlstate_of(older.finish) == STALE


def test_older_token_waiting_for_newer_one_passes_when_it_rolls_back(sessions):
    newer, older = sessions(), sessions()
    newer.enter("inventory/sku-1", 5)
    older.start("select fencing.enter('inventory/sku-1', 4)")
    wait_until_blocked(sessions.watch, older, newer)
    newer.rollback()
    assert older.finish() == [(1,)]


def test_both_first_on_a_resource_never_seen(sessions):
    newer, older = sessions(), sessions()
    newer.enter("never/seen", 5)
    older.start("select fencing.enter('never/seen', 4)")
    wait_until_blocked(sessions.watch, older, newer)
    newer.commit()
    assert sqlstate_of(older.finish) == STALE


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_snapshot_taken_before_newer_commit_then_older_fails(sessions, isolation):
    newer, older = sessions(), sessions(isolation=isolation)
    older.run("select 1 from inventory limit 1")
    newer.enter("inventory/sku-1", 5)
    newer.sell()
    newer.commit()
    assert sqlstate_of(lambda: older.enter("inventory/sku-1", 4)) == "40001"


def test_fenced_read_shuts_out_older_holder(sessions):
    reader, older = sessions(), sessions()
    reader.enter("inventory/sku-1", 5)
    reader.commit()
    assert sqlstate_of(lambda: older.enter("inventory/sku-1", 4)) == STALE


def test_what_one_session_entered_is_closed_to_another(sessions):
    holder, other = sessions(), sessions()
    holder.enter("inventory/sku-1", 5)
    assert sqlstate_of(other.sell) == REQUIRED
    other.rollback()
    other.enter("inventory/sku-2", 5)
    assert sqlstate_of(other.sell) == NOT_COVERED


def test_waiting_is_bounded_by_lock_timeout(sessions):
    holder, other = sessions(), sessions()
    holder.enter("inventory/sku-1", 5)
    other.run("set local lock_timeout = '20ms'")
    assert sqlstate_of(lambda: other.enter("inventory/sku-1", 6)) == "55P03"


def test_batches_that_overlap_in_any_order_never_deadlock(sessions, server, database):
    names = [f"meet/{n}" for n in range(8)]
    failures = []

    def work(seed):
        session = Session(server, database, user="test_gateway")
        try:
            for turn in range(40):
                order = names[seed:] + names[:seed] if turn % 2 else list(reversed(names))
                session.run("select fencing.begin_write(%s, 7, %s, null, null, null, null)", order[:5], str(uuid.uuid4()))
                session.commit()
        except psycopg2.Error as error:
            failures.append(error)
        finally:
            session.connection.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX * 2)
    assert failures == []
    assert ask(sessions.watch, "select count(*) from fencing.history where event = 'write_applied'") == 4 * 40 * 5


@pytest.mark.parametrize("call", [
    "select * from fencing.begin_write(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], 9, gen_random_uuid(), null, null, null, null)",
    """select * from fencing.begin_writes(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], '{9,9,9,9}', array(select gen_random_uuid() from generate_series(1, 4)),
                                          '{o,o,o,o}', '{p,p,p,p}', '{t,t,t,t}', '{null,null,null,null}')""",
    "select * from fencing.raise_fences(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], 9, null, null, null, null)",
], ids=["begin_write", "begin_writes", "raise_fences"])
@pytest.mark.parametrize("seen_before", [True, False])
def test_guards_when_several_are_taken_in_any_order_then_locked_by_their_names_bytes(sessions, call, seen_before):
    """Seen at the one on which it waits: what comes before in the order is locked by then, what comes behind is free."""
    names = ["lock/B", "lock/a", "lock/b", "lock/c"]
    if seen_before:  # in the table in an order of their own
        owner = sessions(user="postgres")
        for name in ["lock/b", "lock/c", "lock/B", "lock/a"]:
            owner.enter(name, 1)
        owner.commit()
    for place, name in enumerate(names):
        holder, taker = sessions(), sessions(user="test_gateway")
        holder.enter(name, 9)
        taker.start(call)
        wait_until_blocked(sessions.watch, taker, holder)
        for other_place, other in enumerate(names):
            if other_place != place:
                looker = sessions()
                looker.run("set local lock_timeout = '30ms'")
                if other_place < place:
                    assert sqlstate_of(lambda: looker.enter(other, 9)) == "55P03", f"{other} is not locked before {name}"
                else:
                    looker.enter(other, 9)
                looker.rollback()
        holder.rollback()
        taker.finish()
        taker.rollback()


def test_accepted_tokens_never_fall_in_commit_order(sessions, server, database):
    def work(seed):
        session = Session(server, database, user="test_gateway")
        for turn in range(60):
            token = 1 + (turn * 7 + seed * 13) % 60 + turn
            session.run("select fencing.begin_write('{hot/one}', %s, %s, null, null, null, null)", token, str(uuid.uuid4()))
            session.commit()
        session.connection.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX * 2)
    fell = """select count(*) from (select fencing_token < lag(fencing_token) over (order by id) as fell from fencing.history
              where event = 'write_applied') h where fell"""
    assert ask(sessions.watch, fell) == 0
    assert ask(sessions.watch, "select count(distinct event) from fencing.history") == 2
    assert ask(sessions.watch, "select max(fencing_token) = fencing.fence('hot/one') from fencing.history where event = 'write_applied'")


@pytest.mark.parametrize("seen_before", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_write_landed_waits_for_the_commit_under_way(sessions, seen_before, commits):
    writer, resolver = sessions(user="test_gateway"), sessions(user="test_gateway")
    resource = "inventory/sku-1" if seen_before else "never/seen"
    write_id = str(uuid.uuid4())
    writer.run("select fencing.begin_write(%s, 5, %s, null, null, null, null)", [resource], write_id)
    resolver.start("select fencing.write_landed(%s, %s)", write_id, resource)
    wait_until_blocked(sessions.watch, resolver, writer)
    writer.commit() if commits else writer.rollback()
    assert resolver.finish() == [(commits,)]


@pytest.mark.parametrize("call", [
    "select * from fencing.raise_fences('{inventory/sku-1}', 1, null, null, null, 'read at the fence as it is')",
    "select fencing.write_landed('00000000-0000-0000-0000-000000000001', 'inventory/sku-1')",
    "select * from fencing.begin_write('{inventory/sku-1,inventory/sku-2}', 9, '00000000-0000-0000-0000-000000000001', null, null, null, null)",
], ids=["raise_fences", "write_landed", "begin_write"])
def test_guard_stays_locked_until_the_end_though_nothing_was_raised(sessions, call):
    holder, other = sessions(user="test_gateway"), sessions()
    holder.run(call)
    other.start("select fencing.enter('inventory/sku-1', 9)")
    wait_until_blocked(sessions.watch, other, holder)
    holder.commit()
    other.finish()


def test_two_gateways_join_at_once_and_the_second_is_compared(sessions):
    first, second = sessions(user="test_gateway"), sessions(user="test_gateway")
    first.run("select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536)")
    second.start("select fencing.join_cluster('{n1,n2,n4}', 2, 30000, 65536)")
    wait_until_blocked(sessions.watch, second, first)
    first.commit()
    assert sqlstate_of(second.finish) == "FG500"


def test_two_draws_at_once_give_two_epochs(sessions):
    first, second = sessions(user="test_gateway"), sessions(user="test_gateway")
    first.run("select fencing.join_cluster('{n1}', 1, 30000, 65536)")
    first.commit()
    assert first.run("select * from fencing.draw_epoch('n1', 0)") == [(1, True)]
    second.start("select * from fencing.draw_epoch('n1', 0)")
    wait_until_blocked(sessions.watch, second, first)
    first.commit()
    assert second.finish() == [(2, False)]


def test_protect_waits_for_writers_and_then_binds_those_who_come_after(sessions):
    owner, writer = sessions(user="postgres"), sessions()
    owner.run("select fencing.unprotect('inventory')")
    owner.commit()
    writer.sell()
    owner.start("select fencing.protect('inventory', $$'inventory/' || sku$$)")
    wait_until_blocked(sessions.watch, owner, writer)
    writer.commit()
    owner.finish()
    owner.commit()
    assert sqlstate_of(writer.sell) == REQUIRED


APPEND = "select fencing.append_events('00000000-0000-0000-0000-00000000000a', %s, null, %s, null, null, null, null, null, null, null, null)"


@pytest.mark.parametrize("known", [False, True], ids=["new_stream", "known_stream"])
@pytest.mark.parametrize("ending, added", [("commit", 1), ("rollback", 3)])
def test_batch_sent_again_waits_for_the_first_and_adds_what_is_missing(sessions, known, ending, added):
    """The gateway's connection broke, the server has not noticed yet, and the batch comes again with one more event."""
    broken, again = sessions(user="test_gateway"), sessions(user="test_gateway")
    first = 1
    if known:
        again.run(APPEND, 1, ["lease_renewed"])
        again.commit()
        first = 2
    broken.run(APPEND, first, ["lease_granted", "lease_released"])
    again.start(APPEND, first, ["lease_granted", "lease_released", "lease_refused"])
    wait_until_blocked(sessions.watch, again, broken)
    getattr(broken, ending)()
    assert again.finish() == [(added,)]
    again.commit()
    assert ask(sessions.watch, "select array_agg(event::text order by id) from fencing.history where event <> 'lease_renewed'") == [
        "lease_granted", "lease_released", "lease_refused"]
