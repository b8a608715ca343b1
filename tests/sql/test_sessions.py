"""Two sessions enter one resource, with real lock waits that pg_blocking_pids shows."""

import threading
import uuid

import psycopg2
import pytest
from sessions import Session, fetch_value, sqlstate_of, wait_until_blocked

WAIT_SECONDS_MAX = 20
STALE, REQUIRED, NOT_COVERED = "FG412", "FG428", "FG403"


def test_enter_newer_token_waits_for_older_commit(sessions):
    older, newer = sessions(), sessions()
    older.enter("inventory/sku-1", 4)
    older.sell()
    newer.start("select fencing.enter('inventory/sku-1', 5)")
    wait_until_blocked(sessions.observer, newer, older)
    older.commit()
    assert newer.finish() == [(4,)]
    newer.sell()
    newer.commit()
    assert fetch_value(sessions.observer, "select stock from inventory where sku = 'sku-1'") == 8


def test_enter_older_token_is_refused_after_newer_commit(sessions):
    newer, older = sessions(), sessions()
    newer.enter("inventory/sku-1", 5)
    newer.sell()
    older.start("select fencing.enter('inventory/sku-1', 4)")
    wait_until_blocked(sessions.observer, older, newer)
    newer.commit()
    assert sqlstate_of(older.finish) == STALE


def test_enter_older_token_passes_after_newer_rollback(sessions):
    newer, older = sessions(), sessions()
    newer.enter("inventory/sku-1", 5)
    older.start("select fencing.enter('inventory/sku-1', 4)")
    wait_until_blocked(sessions.observer, older, newer)
    newer.rollback()
    assert older.finish() == [(1,)]


def test_enter_new_resource_concurrently_orders_by_commit(sessions):
    newer, older = sessions(), sessions()
    newer.enter("never/seen", 5)
    older.start("select fencing.enter('never/seen', 4)")
    wait_until_blocked(sessions.observer, older, newer)
    newer.commit()
    assert sqlstate_of(older.finish) == STALE


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_enter_with_old_snapshot_fails_to_serialize(sessions, isolation):
    newer, older = sessions(), sessions(isolation=isolation)
    older.run("select 1 from inventory limit 1")
    newer.enter("inventory/sku-1", 5)
    newer.sell()
    newer.commit()
    assert sqlstate_of(lambda: older.enter("inventory/sku-1", 4)) == "40001"


def test_fenced_read_refuses_older_holder(sessions):
    reader, older = sessions(), sessions()
    reader.enter("inventory/sku-1", 5)
    reader.commit()
    assert sqlstate_of(lambda: older.enter("inventory/sku-1", 4)) == STALE


def test_enter_opens_nothing_for_another_session(sessions):
    holder, other = sessions(), sessions()
    holder.enter("inventory/sku-1", 5)
    assert sqlstate_of(other.sell) == REQUIRED
    other.rollback()
    other.enter("inventory/sku-2", 5)
    assert sqlstate_of(other.sell) == NOT_COVERED


def test_enter_wait_is_bounded_by_lock_timeout(sessions):
    holder, other = sessions(), sessions()
    holder.enter("inventory/sku-1", 5)
    other.run("set local lock_timeout = '20ms'")
    assert sqlstate_of(lambda: other.enter("inventory/sku-1", 6)) == "55P03"


def test_begin_write_batches_that_overlap_never_deadlock(sessions, server, database):
    names = [f"meet/{n}" for n in range(8)]
    failures = []

    def work(seed):
        session = Session(server, database, user="test_gateway")
        try:
            for turn in range(40):
                order = names[seed:] + names[:seed] if turn % 2 else list(reversed(names))
                session.run(
                    "select fencing.begin_write(%s, 7, %s, null, null, null, null)", order[:5], str(uuid.uuid4())
                )
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
    assert (
        fetch_value(sessions.observer, "select count(*) from fencing.history where event = 'write_applied'")
        == 4 * 40 * 5
    )


@pytest.mark.parametrize(
    "call",
    [
        (
            "select * from fencing.begin_write(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], 9, gen_random_uuid(), "
            "null, null, null, null)"
        ),
        """select * from fencing.begin_writes(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], '{9,9,9,9}',
                                          array(select gen_random_uuid() from generate_series(1, 4)),
                                          '{o,o,o,o}', '{p,p,p,p}', '{t,t,t,t}', '{null,null,null,null}')""",
        "select * from fencing.raise_fences(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], 9, null, null, null, null)",
        (
            "select * from fencing.raise_read_fences(array['lock/c', 'lock/a', 'lock/B', 'lock/b'], 9, null, null, "
            "null, null)"
        ),
    ],
    ids=["begin_write", "begin_writes", "raise_fences", "raise_read_fences"],
)
@pytest.mark.parametrize("seen_before", [True, False])
def test_guards_are_locked_in_byte_order_of_their_names(sessions, call, seen_before):
    """While the call waits for one guard row, the rows before it in the order are locked,
    and the rows after it are free."""
    names = ["lock/B", "lock/a", "lock/b", "lock/c"]
    if seen_before:  # inserted in another order
        owner = sessions(user="postgres")
        for name in ["lock/b", "lock/c", "lock/B", "lock/a"]:
            owner.enter(name, 1)
        owner.commit()
    for position, name in enumerate(names):
        holder, writer = sessions(), sessions(user="test_gateway")
        holder.enter(name, 9)
        writer.start(call)
        wait_until_blocked(sessions.observer, writer, holder)
        for other_position, other in enumerate(names):
            if other_position != position:
                checker = sessions()
                checker.run("set local lock_timeout = '30ms'")
                if other_position < position:
                    assert (
                        sqlstate_of(lambda: checker.enter(other, 9)) == "55P03"
                    ), f"{other} is not locked before {name}"
                else:
                    checker.enter(other, 9)
                checker.rollback()
        holder.rollback()
        writer.finish()
        writer.rollback()


def test_accepted_tokens_never_decrease_in_commit_order(sessions, server, database):
    def work(seed):
        session = Session(server, database, user="test_gateway")
        for turn in range(60):
            token = 1 + (turn * 7 + seed * 13) % 60 + turn
            session.run(
                "select fencing.begin_write('{hot/one}', %s, %s, null, null, null, null)", token, str(uuid.uuid4())
            )
            session.commit()
        session.connection.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX * 2)
    decreases = """select count(*)
              from (select fencing_token < lag(fencing_token) over (order by id) as fell from fencing.history
              where event = 'write_applied') h where fell"""
    assert fetch_value(sessions.observer, decreases) == 0
    assert fetch_value(sessions.observer, "select count(distinct event) from fencing.history") == 2
    assert fetch_value(
        sessions.observer,
        "select max(fencing_token) = fencing.fence('hot/one') from fencing.history where event = 'write_applied'",
    )


@pytest.mark.parametrize("seen_before", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_write_landed_waits_for_a_commit_in_progress(sessions, seen_before, commits):
    writer, resolver = sessions(user="test_gateway"), sessions(user="test_gateway")
    resource = "inventory/sku-1" if seen_before else "never/seen"
    write_id = str(uuid.uuid4())
    writer.run("select fencing.begin_write(%s, 5, %s, null, null, null, null)", [resource], write_id)
    resolver.start("select fencing.write_landed(%s, %s)", write_id, resource)
    wait_until_blocked(sessions.observer, resolver, writer)
    writer.commit() if commits else writer.rollback()
    assert resolver.finish() == [(commits,)]


@pytest.mark.parametrize(
    "call",
    [
        "select * from fencing.raise_fences('{inventory/sku-1}', 1, null, null, null, 'read at the fence as it is')",
        "select * from fencing.raise_read_fences('{inventory/sku-1}', 1, null, null, null, 'as it is')",
        "select fencing.write_landed('00000000-0000-0000-0000-000000000001', 'inventory/sku-1')",
        (
            "select * from fencing.begin_write('{inventory/sku-1,inventory/sku-2}', 9, "
            "'00000000-0000-0000-0000-000000000001', null, null, null, null)"
        ),
    ],
    ids=["raise_fences", "raise_read_fences", "write_landed", "begin_write"],
)
def test_guard_stays_locked_even_if_no_fence_was_raised(sessions, call):
    holder, other = sessions(user="test_gateway"), sessions()
    holder.run(call)
    other.start("select fencing.enter('inventory/sku-1', 9)")
    wait_until_blocked(sessions.observer, other, holder)
    holder.commit()
    other.finish()


def test_join_cluster_concurrently_compares_the_second(sessions):
    first, second = sessions(user="test_gateway"), sessions(user="test_gateway")
    first.run("select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0)")
    second.start("select fencing.join_cluster('{n1,n2,n4}', 2, 30000, 65536, 500, 0)")
    wait_until_blocked(sessions.observer, second, first)
    first.commit()
    assert sqlstate_of(second.finish) == "FG500"


def test_draw_epoch_concurrently_gives_two_epochs(sessions):
    first, second = sessions(user="test_gateway"), sessions(user="test_gateway")
    first.run("select fencing.join_cluster('{n1}', 1, 30000, 65536, 500, 0)")
    first.commit()
    assert first.run("select * from fencing.draw_epoch('n1', 'a life', true, 0)") == [(1, False)]
    second.start("select * from fencing.draw_epoch('n1', 'another life', true, 0)")
    wait_until_blocked(sessions.observer, second, first)
    first.commit()
    assert second.finish() == [(2, False)]


def test_protect_waits_for_writers_and_checks_later_ones(sessions):
    owner, writer = sessions(user="postgres"), sessions()
    owner.run("select fencing.unprotect('inventory')")
    owner.commit()
    writer.sell()
    owner.start("select fencing.protect('inventory', $$'inventory/' || sku$$)")
    wait_until_blocked(sessions.observer, owner, writer)
    writer.commit()
    owner.finish()
    owner.commit()
    assert sqlstate_of(writer.sell) == REQUIRED


APPEND = (
    "select fencing.append_events('00000000-0000-0000-0000-00000000000a', %s, null, %s, null, null, null, null, null, "
    "null, null, null)"
)


@pytest.mark.parametrize("known", [False, True], ids=["new_stream", "known_stream"])
@pytest.mark.parametrize("ending, added", [("commit", 1), ("rollback", 3)])
def test_append_events_repeated_adds_only_missing_events(sessions, known, ending, added):
    """The gateway's connection broke, the server has not detected that yet,
    and the gateway sends the batch again with one more event."""
    broken, again = sessions(user="test_gateway"), sessions(user="test_gateway")
    first = 1
    if known:
        again.run(APPEND, 1, ["lease_renewed"])
        again.commit()
        first = 2
    broken.run(APPEND, first, ["lease_granted", "lease_released"])
    again.start(APPEND, first, ["lease_granted", "lease_released", "lease_refused"])
    wait_until_blocked(sessions.observer, again, broken)
    getattr(broken, ending)()
    assert again.finish() == [(added,)]
    again.commit()
    assert fetch_value(
        sessions.observer,
        "select array_agg(event::text order by id) from fencing.history where event <> 'lease_renewed'",
    ) == ["lease_granted", "lease_released", "lease_refused"]


def test_changed_column_type_is_written_after_protect_again(server, database, sessions):
    """PL/pgSQL keeps the types of a row in its plans: sessions that wrote before fail, and never write unchecked,
    until protect() makes another check function."""
    owner = server.connect(database)
    owner.cursor().execute(
        "create table parts (id integer, place integer) partition by range (place); "
        "create table parts_1 partition of parts default; select fencing.protect('parts', $$'parts/' || id$$)"
    )
    owner.cursor().execute("grant select, insert, update on parts to test_app")
    writer = sessions()

    def write(place):
        writer.enter("parts/1", 5)
        writer.run("insert into parts values (1, %s); update parts set place = place + 1", place)
        writer.commit()

    write(1)
    owner.cursor().execute("alter table parts alter id type bigint")
    assert sqlstate_of(lambda: write(2)) == "42804"
    writer.rollback()
    new = sessions()
    new.enter("parts/1", 5)
    new.run("update parts set place = 0")
    new.rollback()
    owner.cursor().execute("select fencing.protect('parts', $$'parts/' || id$$)")
    write(3)
    owner.cursor().execute(
        "alter table parts alter id type numeric; select fencing.protect('parts', $$'parts/' || id$$)"
    )
    write(4)
    assert sqlstate_of(lambda: writer.run("update parts set place = 0")) == REQUIRED
    owner.close()
