"""The recorder of refusals: which server it leads to, and that it waits for no standby."""
import threading
import time

import psycopg2
from conftest import Server
from test_catalogue import rows
from test_guard_attacks import Login, logins, owner  # noqa: F401 (fixtures)

CHANGE = "update inventory set stock = 0 where sku = 'sku-1'"
REFUSALS = "select count(*) from fencing.history where event = 'write_rejected'"
OPTIONS = (
    "select o.option_value from pg_foreign_server s, pg_options_to_table(s.srvoptions) o "
    "where s.srvname = 'fencing_recorder' and o.option_name = 'options'"
)
WAIT_SECONDS_MAX = 20


def test_copy_of_a_server_records_nothing_in_the_original(server, database, owner):  # noqa: F811
    copy = Server(primary=server)
    try:
        rows(copy, database, "select pg_promote()")
        connections = [Login(copy, database), Login(copy, database, "postgres")]
        app, admin = connections
        app.run("set datestyle = 'sql, dmy'; set timezone = 'Asia/Kolkata'")
        assert app.sqlstate(CHANGE) == "FG428"
        assert owner.run(REFUSALS) == [(0,)]
        ((fault,),) = admin.run("select fencing.recorder_fault()")
        assert fault.startswith(f"the recorder of {database} leads to another server"), fault
        # The statement of sql/README.md for a recorder that can't log in.
        admin.run("drop server fencing_recorder cascade")
        assert admin.run("select fencing.set_up_recorder()") == [(None,)]
        assert admin.run("select fencing.recorder_fault()") == [(None,)]
        assert app.sqlstate(CHANGE) == "FG428"
        assert admin.run(REFUSALS) == [(1,)] and owner.run(REFUSALS) == [(0,)]
        for each in connections:
            each.connection.close()
    finally:
        copy.stop()


def test_recorder_of_another_port_is_named_and_corrected(logins, owner):  # noqa: F811
    """What else the operator has set stays."""
    owner.run("alter server fencing_recorder options (set port '1', set connect_timeout '3')")
    ((fault,),) = owner.run("select fencing.recorder_fault()")
    assert (
        fault == "the foreign server fencing_recorder leads to port 1, "
        "and this server listens on port 5432: run `fencegate migrate` as postgres"
    )
    assert owner.run("select fencing.set_up_recorder()") == [(None,)]
    assert logins().sqlstate(CHANGE) == "FG428"
    assert owner.run("select fencing.recorder_fault()") == [(None,)] and owner.run(REFUSALS) == [(1,)]
    assert owner.run(
        "select 'connect_timeout=3' = any (srvoptions) from pg_foreign_server where srvname = 'fencing_recorder'"
    ) == [(True,)]


def test_recorder_with_other_settings_keeps_them(owner):  # noqa: F811
    assert owner.run(OPTIONS) == [("-c statement_timeout=2000 -c lock_timeout=1000 -c synchronous_commit=local",)]
    for found in ("-c statement_timeout=900", "-c synchronous_commit=off"):
        owner.run(f"alter server fencing_recorder options (set options '{found}')")
        assert owner.run("select fencing.set_up_recorder(), fencing.recorder_fault()") == [(None, None)]
        assert owner.run(OPTIONS) == [(found,)]


def test_refusal_waits_for_no_synchronous_standby(logins, owner):  # noqa: F811
    app, writer = logins(), logins("postgres")
    owner.run("create table public.probe (id integer)")
    ended = threading.Event()
    sqlstates = []

    def commit():
        while not ended.is_set():
            writer.run("insert into public.probe values (1)")

    def refuse():
        try:
            app.run(CHANGE)
        except psycopg2.Error as error:
            sqlstates.append(error.pgcode)

    threads = [threading.Thread(target=commit, daemon=True), threading.Thread(target=refuse, daemon=True)]
    owner.run("alter system set synchronous_standby_names = 'none_that_exists'")
    owner.run("select pg_reload_conf()")
    try:
        threads[0].start()
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (
            owner.run(
                "select pid from pg_stat_activity where wait_event = 'SyncRep' and pid = %s",
                writer.connection.info.backend_pid,
            )
            == []
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # between two looks
        threads[1].start()
        threads[1].join(WAIT_SECONDS_MAX)
        assert sqlstates == ["FG428"] and owner.run(REFUSALS) == [(1,)]
    finally:
        ended.set()
        owner.run("alter system reset synchronous_standby_names")
        owner.run("select pg_reload_conf()")
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)


def test_refusal_cut_off_by_the_callers_timeout_is_logged(server, database, logins, owner):  # noqa: F811
    """The caller's statement_timeout ends the wait for the recorder, which waits for the lock of another session."""
    owner.run(f"alter database {database} set log_min_messages = warning")  # PostgreSQL's default
    app, blocker = logins(), logins("postgres")
    blocker.run("begin; lock table fencing.history in share mode")
    app.run("set statement_timeout = '900ms'; set application_name = 'cut_off'")
    assert app.sqlstate(CHANGE) == "FG428"
    blocker.run("rollback")
    assert app.connection.notices == [] and owner.run(REFUSALS) == [(0,)]
    log = (server.folder / "log").read_text()
    assert [
        line
        for line in log.splitlines()
        if "WARNING:  fencing: a refusal could not be recorded (57014 " in line and '"cut_off"' in line
    ], log
    assert app.run("show client_min_messages") == [("notice",)]
