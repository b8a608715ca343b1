"""The recorder of refusals: which server it leads to, that it waits for no standby, and what its login may do."""

import collections
import json
import threading

import psycopg2
import pytest
from conftest import Server
from sessions import Login
from support.polling import eventually
from test_catalogue import rows

CHANGE = "update inventory set stock = 0 where sku = 'sku-1'"
REFUSALS = "select count(*) from fencing.history where event = 'write_rejected'"
OPTIONS = (
    "select o.option_value from pg_foreign_server s, pg_options_to_table(s.srvoptions) o "
    "where s.srvname = 'fencing_recorder' and o.option_name = 'options'"
)
WAIT_SECONDS_MAX = 20


def test_copy_of_a_server_records_nothing_in_the_original(server, database, owner):
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


def test_copy_of_a_database_records_nothing_in_the_original(server, database, logins, owner):
    """It has no recorder of its own until the guard is installed again."""
    owner.connection.close()
    copy = server.create(database)
    app, admin, original = Login(server, copy), Login(server, copy, "postgres"), logins("postgres")
    ((fault,),) = admin.run("select fencing.recorder_fault()")
    assert fault.startswith(f"the recorder of {copy} leads to the database {database} "), fault
    assert app.sqlstate(CHANGE) == "FG428"
    assert admin.run(REFUSALS) == [(0,)] and original.run(REFUSALS) == [(0,)]
    assert admin.run("select fencing.set_up_recorder()") == [(None,)]
    assert app.sqlstate(CHANGE) == "FG428"
    assert admin.run(REFUSALS) == [(1,)] and original.run(REFUSALS) == [(0,)]
    for each in (app, admin):
        each.connection.close()
    server.drop(copy)


def test_recorder_of_another_port_is_named_and_corrected(logins, owner):
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


def test_recorder_with_other_settings_keeps_them(owner):
    assert owner.run(OPTIONS) == [("-c statement_timeout=2000 -c lock_timeout=1000 -c synchronous_commit=local",)]
    for found in ("-c statement_timeout=900", "-c synchronous_commit=off"):
        owner.run(f"alter server fencing_recorder options (set options '{found}')")
        assert owner.run("select fencing.set_up_recorder(), fencing.recorder_fault()") == [(None, None)]
        assert owner.run(OPTIONS) == [(found,)]


def test_refusal_waits_for_no_synchronous_standby(logins, owner):
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
        waits = "select pid from pg_stat_activity where wait_event = 'SyncRep' and pid = %s"
        pid = writer.connection.info.backend_pid
        eventually(lambda: owner.run(waits, pid), WAIT_SECONDS_MAX, goal="it waits for the standby")
        threads[1].start()
        threads[1].join(WAIT_SECONDS_MAX)
        assert sqlstates == ["FG428"] and owner.run(REFUSALS) == [(1,)]
    finally:
        ended.set()
        owner.run("alter system reset synchronous_standby_names")
        owner.run("select pg_reload_conf()")
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)


def test_refusal_cut_off_by_the_callers_timeout_is_logged(server, database, logins, owner):
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


PRINTED = ("debug_print_parse", "debug_print_rewritten", "debug_print_plan")


@pytest.fixture
def recorder(owner):
    """Returns the recorder's login and password."""
    options = dict(
        owner.run(
            """select o.option_name, o.option_value from pg_user_mapping m
                                 join pg_foreign_server s on s.oid = m.umserver, pg_options_to_table(m.umoptions) o
                                 where s.srvname = 'fencing_recorder'"""
        )
    )
    assert len(options["password"]) == 64
    return options["user"], options["password"]


def as_bytes_in_plan(text):
    """Returns the form in which a as_bytes_in_plan plan shows a constant."""
    return " ".join(str(byte) for byte in text.encode())


def all_output(login, error):
    parts = (
        error.diag.message_primary,
        error.diag.message_detail,
        error.diag.message_hint,
        error.diag.context,
        error.diag.internal_query,
    )
    return "\n".join([*login.connection.notices, *[part or "" for part in parts]])


@pytest.mark.parametrize("works", [True, False], ids=["recorder_works", "recorder_fails"])
def test_refusal_with_printed_plans_shows_no_password(logins, owner, recorder, works):
    """A caller that sets client_min_messages receives the server's LOG messages, with as_bytes_in_plan plans."""
    if not works:
        owner.run("alter server fencing_recorder options (set host '/nowhere')")
    app = logins()
    app.connection.notices = collections.deque()  # a list keeps only the last fifty
    for name in PRINTED:
        app.run(f"set {name} = on")
    app.run("set client_min_messages = log")
    output = all_output(app, app.fails("update inventory set stock = 0 where sku = 'sku-1'"))
    assert (
        "PLANNEDSTMT" in output and as_bytes_in_plan("fencing_recorder") in output
    ), "plans were as_bytes_in_plan, that of the call among them"
    assert recorder[1] not in output and as_bytes_in_plan(recorder[1]) not in output
    assert owner.run("select count(*) from fencing.history where event = 'write_rejected'") == [(int(works),)]


@pytest.mark.parametrize("user", ["test_app", "test_gateway", "test_auditor"])
def test_recorder_password_is_unreadable_for_other_logins(logins, owner, recorder, user):
    login = logins(user)
    assert login.run("select umoptions from pg_user_mappings where srvname = 'fencing_recorder'") == [(None,)]
    for statement in (
        "select * from pg_user_mapping",
        "select * from fencing.settings",
        "select fencing_recorder.dblink('fencing_recorder', 'select 1')",
        "create user mapping for current_user server fencing_recorder",
        "select fencing.call_recorder('fencing_recorder', '{}')",
    ):
        assert login.sqlstate(statement) == "42501", statement


def test_recorder_login_can_only_add_refusals(server, logins, owner, recorder, database):
    login = logins(recorder[0], password=recorder[1])
    login.run(
        "select fencing.append_refusal(%s, pg_postmaster_start_time(), %s)",
        database,
        json.dumps(
            {
                "resource": "x" * 13_000,
                "event": "write_applied",
                "principal": "p" * 5_000,
                "detail": {"a": "d" * 200_000},
            }
        ),
    )
    ((event, resource, principal, detail),) = owner.run(
        "select event, resource, principal, detail from fencing.history"
    )
    assert (event, resource, principal) == (
        "write_rejected",
        "x" * 850 + "... (13000 bytes)",
        "p" * 200 + "... (5000 bytes)",
    ) and list(detail) == ["left_out_bytes"]
    for arguments in (
        "'another', pg_postmaster_start_time()",
        f"'{database}', pg_postmaster_start_time() - interval '1 us'",
        f"'{database}', null",
    ):
        assert login.sqlstate(f'select fencing.append_refusal({arguments}, \'{{"resource": "a/b"}}\')') == "22023"
    for call in (
        "fencing.repair_fence('a/b', 0, 'p', null, 'r')",
        "fencing.enter('a/b', 1)",
        "fencing.record_events('[]')",
        "fencing.keep_history(7)",
        "fencing.fence('a/b')",
        "fencing.guard_faults()",
    ):
        assert login.sqlstate(f"select {call}") == "42501", call
    for table in ("fencing.guard", "fencing.history", "fencing.proof_key", "public.inventory"):
        assert login.sqlstate(f"select * from {table}") == "42501", table
    assert owner.run(
        "select count(*) from pg_auth_members m join pg_roles r on r.oid = m.member where r.rolname = %s", recorder[0]
    ) == [(1,)]


def test_refusal_is_recorded_beside_dblink_of_the_same_name(server, logins, owner, database):
    owner.run(
        "drop extension dblink cascade; drop schema fencing_recorder; create extension dblink schema public; "
        "grant execute on function public.dblink_connect_u(text, text) to test_app"
    )
    assert owner.run("select fencing.set_up_recorder()") == [(None,)]
    app = logins()
    app.run("select dblink_connect_u('fencing_recorder', %s)", f"host={server.folder} dbname=postgres user=test_app")
    assert app.sqlstate("update inventory set stock = 0 where sku = 'sku-1'") == "FG428"
    assert owner.run("select count(*) from fencing.history where event = 'write_rejected'") == [(1,)]
