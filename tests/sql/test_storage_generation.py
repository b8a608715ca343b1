"""The storage generation: promotions of real standbys, dumps, and transactions that are open while it changes."""

import json
import os
import pathlib
import re
import subprocess

import psycopg2
import pytest
from conftest import Server
from sessions import Session, sqlstate_of, wait_until_blocked
from test_catalogue import rows

SQL = pathlib.Path(__file__).resolve().parent.parent.parent / "sql"
CHANGED, STALE, SERIALIZATION, LOCK_TIMEOUT, READ_ONLY = "FG503", "FG412", "40001", "55P03", "25006"
WRITE = "gen_random_uuid(), 'o', 'p', 't', null"
LETS_IN = {  # each with the floor's row lock or a token as its only difference
    "enter": ("test_app", "select fencing.enter('inventory/sku-1', {token})"),
    "begin_write": (
        "test_gateway",
        f"select * from fencing.begin_write('{{{{inventory/sku-1}}}}', {{token}}, {WRITE})",
    ),
    "begin_write_many": (
        "test_gateway",
        f"select * from fencing.begin_write('{{{{inventory/sku-1,inventory/sku-2}}}}', {{token}}, {WRITE})",
    ),
    "begin_writes": (
        "test_gateway",
        "select * from fencing.begin_writes('{{inventory/sku-1,inventory/sku-2}}', array[{token}, {token}]::bigint[], "
        "array[gen_random_uuid(), gen_random_uuid()], '{{o,o}}', '{{p,p}}', '{{t,t}}', array[null, null]::jsonb[])",
    ),
    "enter_shared": ("test_app", "select fencing.enter_shared('inventory/sku-1', {token})"),
    "raise_read_fences": (
        "test_gateway",
        "select * from fencing.raise_read_fences('{{inventory/sku-1}}', {token}, 'o', 'p', 't', 'fenced read')",
    ),
    "raise_fences": (
        "test_gateway",
        "select * from fencing.raise_fences('{{inventory/sku-1}}', {token}, 'o', 'p', 't', 'fenced read')",
    ),
}
DRAWS = {
    "draw_epoch": ("test_gateway", "select * from fencing.draw_epoch('n1', 'a life', true, 0)"),
    "draw_epoch_of_no_life": ("test_gateway", "select * from fencing.draw_epoch('n1', '', true, 0)"),
}
ALL = {**LETS_IN, **DRAWS}


def join(session):
    session.run("select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0)")
    session.commit()


def change_generation(session, seen=0):
    """Changes the generation as a gateway does, without nodes. Returns the floor."""
    change, _ = session.run("select change_id, epoch from fencing.begin_generation_change(%s)", seen)[0]
    session.commit()
    finished, floor = session.run("select * from fencing.finish_generation_change(%s, 'g1', '[]')", change)[0]
    session.commit()
    assert finished
    return floor


def state(server, database):
    return rows(
        server,
        database,
        "select current, timeline, live_timeline, floor, system_identifier = live_system_identifier "
        "from fencing.storage_generation_state()",
    )[0]


@pytest.mark.parametrize("name", ALL)
def test_fence_all_waits_for_a_transaction_that_was_let_in(sessions, name):
    user, call = ALL[name]
    owner, caller = sessions(user="postgres"), sessions(user=user)
    join(owner)
    caller.run(call.format(token=5))
    owner.run("set lock_timeout = '50ms'")
    assert sqlstate_of(owner.run, "select fencing.fence_all('a test')") == LOCK_TIMEOUT
    owner.rollback()
    caller.commit()
    owner.run("select fencing.fence_all('a test')")
    owner.commit()
    assert sqlstate_of(caller.run, call.format(token=6)) == CHANGED


@pytest.mark.parametrize("name", ALL)
def test_call_that_waited_for_fence_all_is_refused(sessions, name):
    user, call = ALL[name]
    owner, caller = sessions(user="postgres"), sessions(user=user)
    join(owner)
    caller.run(call.format(token=5))  # with cached plans
    caller.commit()
    owner.run("select fencing.fence_all('a test')")
    caller.start(call.format(token=6))
    wait_until_blocked(sessions.observer, caller, owner)
    owner.commit()
    assert sqlstate_of(caller.finish) == CHANGED


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_snapshot_from_before_the_change_is_refused(sessions, level, name):
    """Above read committed the snapshot shows the generation as it was: the transaction is repeated."""
    user, call = ALL[name]
    owner, caller = sessions(user="postgres"), sessions(user=user, isolation=level.upper())
    join(owner)
    caller.run("select 1")  # takes the snapshot
    owner.run("select fencing.fence_all('a test')")
    owner.commit()
    assert sqlstate_of(caller.run, call.format(token=6)) == SERIALIZATION
    caller.rollback()
    assert sqlstate_of(caller.run, call.format(token=6)) == CHANGED
    caller.rollback()
    caller.run("select 1")
    floor = change_generation(owner)
    assert sqlstate_of(caller.run, call.format(token=6)) == SERIALIZATION
    caller.rollback()
    caller.run(call.format(token=floor + 1))


def test_prepared_transaction_is_waited_for_and_still_commits(sessions):
    owner, writer = sessions(user="postgres"), sessions()
    writer.run("begin")
    writer.enter("inventory/sku-1", 5)
    writer.sell()
    writer.run("prepare transaction 'let_in'")
    writer.commit()
    owner.run("set lock_timeout = '50ms'")
    assert sqlstate_of(owner.run, "select fencing.fence_all('a test')") == LOCK_TIMEOUT
    owner.rollback()
    owner.connection.autocommit = True
    owner.run("commit prepared 'let_in'")
    owner.run("select fencing.fence_all('a test')")
    assert sqlstate_of(writer.enter, "inventory/sku-1", 5) == CHANGED


def test_dump_and_writers_do_not_wait_for_each_other(sessions):
    """A dump holds access share on every table until it ends."""
    dump, writer, owner = sessions(user="postgres"), sessions(), sessions(user="postgres")
    dump.run("lock table fencing.storage_generation in access share mode")
    writer.run("set lock_timeout = '1s'")
    writer.enter("inventory/sku-1", 5)
    writer.commit()
    owner.run("set lock_timeout = '1s'")
    owner.run("select fencing.fence_all('a test')")
    owner.commit()
    assert change_generation(owner) > 0


def test_writers_do_not_wait_for_each_other(sessions):
    first, second = sessions(isolation="REPEATABLE READ"), sessions(isolation="REPEATABLE READ")
    second.run("set lock_timeout = '1s'")
    first.enter("inventory/sku-1", 5)
    second.enter("inventory/sku-2", 5)
    third = sessions(user="test_gateway")
    third.run("set lock_timeout = '1s'")
    third.run(LETS_IN["begin_writes"][1].format(token=5).replace("sku-1", "sku-3").replace("sku-2", "sku-4"))


def test_two_gateways_make_one_change(sessions):
    """Both begin it concurrently, the second after the first has committed; one of them finishes it."""
    owner, one, two = sessions(user="postgres"), sessions(user="test_gateway"), sessions(user="test_gateway")
    join(owner)
    owner.run("update fencing.storage_generation set timeline = 1000")
    owner.commit()
    begun = one.run("select * from fencing.begin_generation_change(7)")
    two.start("select * from fencing.begin_generation_change(9)")
    wait_until_blocked(sessions.observer, two, one)
    one.commit()
    assert two.finish() == begun == [(begun[0][0], 7 + 1024)]
    two.commit()
    finish = "select * from fencing.finish_generation_change(%s, 'g', '[]')"
    one_finished = one.run(finish, begun[0][0])
    two.start(finish, begun[0][0])
    wait_until_blocked(sessions.observer, two, one)
    one.commit()
    floor = (7 + 1024) << 32
    assert one_finished == [(True, floor)] and two.finish() == [(False, floor)]
    two.commit()
    assert owner.run("select count(*) from fencing.history where event = 'storage_generation_changed'") == [(1,)]


def test_begin_waits_for_nobody_while_the_generation_is_current(sessions):
    """Gateways call it in each new connection; a transaction above read committed locks the row."""
    writer, gateway = sessions(isolation="REPEATABLE READ"), sessions(user="test_gateway")
    writer.enter("inventory/sku-1", 5)
    gateway.run("set lock_timeout = '1s'")
    gateway.run("set transaction read only")
    assert gateway.run("select * from fencing.begin_generation_change(0)") == []


def test_begin_that_rolls_back_leaves_nothing(sessions):
    owner, gateway = sessions(user="postgres"), sessions(user="test_gateway")
    join(owner)
    owner.run("select fencing.fence_all('a test')")
    owner.commit()
    rolled_back = gateway.run("select * from fencing.begin_generation_change(0)")[0][0]
    gateway.rollback()
    assert gateway.run("select finished from fencing.finish_generation_change(%s, 'g', '[]')", rolled_back) == [
        (False,)
    ]
    gateway.commit()
    assert change_generation(gateway) == 1024 << 32


def test_refusal_below_the_floor_waits_for_the_resource(sessions):
    """Refusals are recorded in the order of the lock, so that none names a lower fence than a row
    before it in the history."""
    owner, writer, late, gateway = sessions(user="postgres"), sessions(), sessions(), sessions(user="test_gateway")
    join(owner)
    owner.run("select fencing.fence_all('a test')")
    owner.commit()
    floor = change_generation(gateway)
    writer.enter("inventory/sku-1", floor + 2)
    writer.commit()
    writer.enter("inventory/sku-1", floor + 5)
    late.start("select fencing.enter('inventory/sku-1', 5)")
    wait_until_blocked(sessions.observer, late, writer)
    writer.commit()
    with pytest.raises(psycopg2.Error) as refused:
        late.finish()
    assert refused.value.pgcode == STALE and json.loads(refused.value.diag.message_detail) == {
        "resource": "inventory/sku-1",
        "fencing_token": 5,
        "last_fencing_token": floor + 5,
    }


def test_finish_waits_for_those_let_in_under_another_system(sessions):
    """After a load of a dump the timeline can be equal,
    so transactions are let in until a gateway compares the system identifier."""
    owner, writer, late, gateway = sessions(user="postgres"), sessions(), sessions(), sessions(user="test_gateway")
    owner.run("update fencing.storage_generation set system_identifier = 12")
    owner.commit()
    writer.enter("inventory/sku-1", 5)
    change, _ = gateway.run("select change_id, epoch from fencing.begin_generation_change(0)")[0]
    gateway.commit()
    assert sqlstate_of(late.enter, "inventory/sku-2", 5) == CHANGED
    late.rollback()
    gateway.start("select finished from fencing.finish_generation_change(%s, 'g', '[]')", change)
    wait_until_blocked(sessions.observer, gateway, writer)
    writer.sell()
    writer.commit()
    assert gateway.finish() == [(True,)]
    gateway.commit()
    assert sqlstate_of(writer.enter, "inventory/sku-1", 5) == STALE


def test_finish_does_not_wait_for_writers_after_a_promotion(sessions):
    """A prepared transaction of the old primary may stay open for long; the timeline refuses every other."""
    owner, writer, gateway = sessions(user="postgres"), sessions(), sessions(user="test_gateway")
    writer.enter("inventory/sku-1", 5)
    owner.run("update fencing.storage_generation set timeline = 1000")
    owner.commit()
    gateway.run("set lock_timeout = '1s'")
    gateway.commit()
    assert change_generation(gateway) > 0


def test_storage_floor_is_called_once_per_call(sessions):
    for name, (user, call) in ALL.items():
        owner = sessions(user="postgres")
        if name == "enter":
            join(owner)
        owner.run("set track_functions = 'all'")
        owner.run(call.format(token=5))
        counted = owner.run(
            "select funcname, calls from pg_stat_xact_user_functions where schemaname = 'fencing' "
            "and funcname = 'storage_floor'"
        )
        assert counted == [("storage_floor", 2 if name == "draw_epoch" else 1)], name  # once more by next_epoch
        owner.rollback()


def test_installation_again_keeps_the_generation(server, database):
    rows(server, database, "update fencing.storage_generation set timeline = 1000, floor = 5::bigint << 32 returning 1")
    before = rows(server, database, "select * from fencing.storage_generation")
    assert server.psql(database, SQL / "install.sql", "-v", "ON_ERROR_STOP=1", "-o", os.devnull) == (0, "")
    assert rows(server, database, "select * from fencing.storage_generation") == before


@pytest.fixture
def standby(server, database):
    """A streaming standby that has everything of `database`."""
    second = Server(primary=server)
    yield second
    second.stop()


def wait_for_replay(server, standby):
    position = rows(server, "postgres", "select pg_current_wal_lsn()")[0][0]
    connection = standby.connect("postgres")
    with connection.cursor() as cursor:
        for _ in range(2000):
            cursor.execute(f"select pg_last_wal_replay_lsn() >= '{position}'::pg_lsn, pg_sleep(0.01)")
            if cursor.fetchone()[0]:
                break
        else:
            raise AssertionError("the standby does not catch up")
    connection.close()


def test_promotion_is_noticed_in_sessions_opened_before(server, database, standby):
    """Sessions that were opened on the standby, with plans cached there; then the change,
    and a second promotion from the same state."""
    writer, gateway = Session(server, database), Session(server, database, user="test_gateway")
    join(gateway)
    writer.enter("inventory/sku-1", 9)
    writer.sell()
    writer.commit()
    writer.run("begin")
    writer.enter("inventory/sku-3", 9)
    writer.run("prepare transaction 'of_the_old_primary'")
    writer.commit()
    wait_for_replay(server, standby)
    opened = {name: Session(standby, database, user=user) for name, (user, _) in ALL.items()}
    for name, (_, call) in ALL.items():
        assert sqlstate_of(opened[name].run, call.format(token=9)) == READ_ONLY, name
        opened[name].rollback()
    assert state(standby, database) == (False, 1, None, 0, True)
    read_only = Session(standby, database)
    read_only.run("select 1")  # a transaction that began before the promotion
    assert rows(standby, "postgres", "select pg_promote()") == [(True,)]

    assert state(standby, database) == (False, 1, 2, 0, True)
    for name, (_, call) in ALL.items():
        assert sqlstate_of(opened[name].run, call.format(token=9)) == CHANGED, name
        opened[name].rollback()
    assert sqlstate_of(read_only.enter, "inventory/sku-1", 9) in (CHANGED, READ_ONLY)
    read_only.rollback()
    assert opened["enter"].run("select fencing.fence('inventory/sku-1')") == [(9,)]
    opened["enter"].commit()
    # The change does not wait for the prepared transaction, which still commits.
    floor = change_generation(opened["begin_write"])
    assert state(standby, database) == (True, 2, 2, floor, True)
    assert rows(
        standby,
        database,
        "select detail -> 'from' ->> 'timeline', detail -> 'to' ->> 'timeline' from fencing.history "
        "where event = 'storage_generation_changed'",
    ) == [("1", "2")]
    writer_after = opened["enter"]
    assert sqlstate_of(writer_after.enter, "inventory/sku-1", 9) == STALE
    writer_after.rollback()
    assert writer_after.enter("inventory/sku-1", floor + 1) == floor
    writer_after.sell()
    writer_after.commit()
    rows_after = Session(standby, database, user="postgres")
    rows_after.connection.autocommit = True
    rows_after.run("rollback prepared 'of_the_old_primary'")
    # The old primary, if it still runs, does not know of it: not promised.
    assert state(server, database) == (True, 1, 1, 0, True)
    for session in (*opened.values(), read_only, rows_after, writer, gateway):
        session.connection.close()
    admin = server.connect(database)
    admin.cursor().execute("rollback prepared 'of_the_old_primary'")
    admin.close()


def test_dump_loaded_elsewhere_is_refused_after_fence_all(server, database):
    """The timeline is equal there; fence_all right after the load refuses everything at once."""
    other = Server(shares_identifier=False)
    try:
        admin = other.connect("postgres")
        for role in ("fencing_gateway", "fencing_writer", "fencing_auditor", "fencing_recorder"):
            admin.cursor().execute(f"create role {role}")
        for role in ("test_gateway", "test_app", "test_auditor"):
            admin.cursor().execute(f"create role {role} login")
        admin.cursor().execute("grant fencing_gateway to test_gateway; grant fencing_writer to test_app")
        admin.cursor().execute("create database loaded")
        admin.close()
        dump = server.dump(database)
        subprocess.run(
            [other.client("psql"), "-h", other.folder, "-U", "postgres", "-X", "-q", "-o", os.devnull, "-d", "loaded"],
            input=dump,
            text=True,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        assert state(other, "loaded") == (False, 1, 1, 0, False)
        writer = Session(other, "loaded")
        writer.enter("inventory/sku-1", 9)  # not promised
        writer.rollback()
        owner = Session(other, "loaded", user="postgres")
        owner.run("select fencing.fence_all('a dump was loaded')")
        owner.commit()
        assert sqlstate_of(writer.enter, "inventory/sku-1", 9) == CHANGED
        writer.rollback()
        gateway = Session(other, "loaded", user="test_gateway")
        floor = change_generation(gateway, seen=40)
        assert floor == (40 + 1024) << 32 and state(other, "loaded") == (True, 1, 1, floor, True)
        assert rows(
            other,
            "loaded",
            "select detail ->> 'reason', detail -> 'from' <> detail -> 'to' from fencing.history "
            "where event = 'storage_generation_changed'",
        ) == [("a dump was loaded", True)]
        assert sqlstate_of(writer.enter, "inventory/sku-1", 9) == STALE
        for session in (writer, owner, gateway):
            session.connection.close()
    finally:
        other.stop()


def test_lost_writes_are_looked_up_by_the_index(server, database):
    """Also before the history was analyzed: each write by the index of write_id, and by no other."""
    connection = server.connect(database)
    cursor = connection.cursor()
    cursor.execute(
        "insert into fencing.history (event, resource, fencing_token, last_fencing_token, write_id) "
        "select 'write_applied', 'a/b', 5, 5, gen_random_uuid() from generate_series(1, 20000)"
    )
    cursor.execute("select prosrc from pg_proc where oid = 'fencing.find_lost_writes'::regproc")
    statement = (
        re.sub(r"--.*", "", cursor.fetchone()[0])
        .strip()
        .rstrip(";")
        .replace("$1", "array[gen_random_uuid(), gen_random_uuid()]")
    )
    for _ in range(2):
        cursor.execute("explain (costs off) " + statement)
        plan = "\n".join(line for line, in cursor.fetchall())
        used = set(re.findall(r"Index Scan (?:using|on) (\w+)", plan))
        assert used and all(index.endswith("_write_id_idx") for index in used), plan
        cursor.execute("analyze fencing.history")
    cursor.execute(
        "select count(*) from fencing.find_lost_writes((select array_agg(write_id) || gen_random_uuid() "
        "from fencing.history where write_id is not null))"
    )
    assert cursor.fetchall() == [(1,)]
    connection.close()
