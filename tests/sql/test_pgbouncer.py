"""PgBouncer in transaction mode: clients share a server connection,
and a resource that one client has entered is not open to the next."""

import shutil
import signal
import subprocess
import time

import psycopg2
import pytest
from sessions import sqlstate_of

WAIT_SECONDS_MAX = 20
PORT = 6432
CHANGE = "update inventory set stock = stock - 1 where sku = 'sku-1'"


@pytest.fixture
def connect_through_pool(server, database):
    """Opens connections to a pool with one server connection."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "pgbouncer is missing: config/install-packages --tests"
    folder = server.folder / "bouncer"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "users").write_text('"test_app" ""\n"test_gateway" ""\n')
    (folder / "ini").write_text(
        f"""
[databases]
* = host={server.folder}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {PORT}
pool_mode = transaction
default_pool_size = 1
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
pidfile = {folder}/pid
"""
    )
    process = subprocess.Popen(
        [*server.as_user, program, "-q", str(folder / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    opened = []

    def make(user="test_app", autocommit=True):
        connection = psycopg2.connect(host=str(folder), port=PORT, dbname=database, user=user)
        connection.autocommit = autocommit
        opened.append(connection)
        return connection

    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            make()
            break
        except psycopg2.OperationalError:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)  # between two attempts
    yield make
    for connection in opened:
        connection.close()
    process.send_signal(signal.SIGTERM)
    process.wait(WAIT_SECONDS_MAX)
    shutil.rmtree(folder)


def run(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def test_pgbouncer_enter_opens_only_its_own_transaction(connect_through_pool):
    first, second = connect_through_pool(), connect_through_pool()
    assert run(first, "select pg_backend_pid()") == run(
        second, "select pg_backend_pid()"
    ), "one server connection for both"
    assert run(first, "begin; select fencing.enter('inventory/sku-1', 5)") == 1
    run(first, CHANGE)
    run(first, "commit")
    for connection in (first, second):
        assert sqlstate_of(run, connection, CHANGE) == "FG428"
    run(first, "begin; select fencing.enter('inventory/sku-1', 6)")
    run(first, "rollback")
    assert sqlstate_of(run, second, CHANGE) == "FG428"
    assert (
        run(first, "select fencing.enter('inventory/sku-1', 7)") == 5
    )  # a transaction of its own, which ends with the statement
    assert sqlstate_of(run, first, CHANGE) == "FG428"
    assert run(second, "select stock from inventory where sku = 'sku-1'") == 9


def test_pgbouncer_lost_client_leaves_nothing_open_or_changed(connect_through_pool):
    first, second = connect_through_pool(), connect_through_pool()
    run(first, "begin; select fencing.enter('inventory/sku-1', 6)")
    run(first, CHANGE)
    first.close()
    assert sqlstate_of(run, second, CHANGE) == "FG428"
    assert run(second, "select fencing.fence('inventory/sku-1')") == 1


def test_pgbouncer_leftover_settings_neither_open_nor_block(connect_through_pool):
    first, second = connect_through_pool(), connect_through_pool()
    for setting in ("fencing.write_id", "fencing.entered"):
        run(first, f"set {setting} = 'left behind'")
        assert run(second, f"show {setting}") == "left behind"
    assert sqlstate_of(run, second, CHANGE) == "FG428" or sqlstate_of(run, second, CHANGE) == "FG403"
    run(second, "begin; select fencing.enter('inventory/sku-1', 5)")
    run(second, CHANGE)
    run(second, "commit")


def test_pgbouncer_begin_write_opens_only_its_own_transaction(connect_through_pool):
    first, second = connect_through_pool("test_gateway"), connect_through_pool("test_gateway")
    begin = (
        "begin; "
        "select accepted from fencing.begin_write('{inventory/sku-1}', 5, gen_random_uuid(), null, null, null, null)"
    )
    assert run(first, begin)
    run(first, CHANGE)
    run(first, "commit")
    assert sqlstate_of(run, second, CHANGE) in ("FG428", "FG403")
    assert sqlstate_of(run, first, CHANGE) in ("FG428", "FG403")
