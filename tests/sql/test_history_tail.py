"""history_tail(): a transaction that may still commit rows is among the writers of every call until it ends,
whatever happens to the server."""

import os
import signal

import psycopg2
import pytest
from conftest import SQL, Server
from support.polling import eventually
from test_catalogue import rows

ADD = "insert into fencing.history (event, resource) values ('lease_granted', 'a/1')"
TAIL = "select last_id, writers from fencing.history_tail()"
WAIT_SECONDS_MAX = 20


@pytest.fixture
def own_server():
    """A server of its own, which the test makes crash, with the guard in the database postgres."""
    made = Server()
    try:
        code, output = made.psql("postgres", SQL / "install.sql", "-v", "ON_ERROR_STOP=1", "-o", os.devnull)
        assert code == 0, output
        yield made
    finally:
        made.stop()


def answers(call):
    try:
        call()
    except psycopg2.Error:
        return False
    return True


def crash(server):
    """Kills a server process, so that the server recovers without a new postmaster,
    and waits until it answers again."""
    victim, witness = server.connect("postgres"), server.connect("postgres")
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    eventually(lambda: not answers(lambda: witness.cursor().execute("select 1")), WAIT_SECONDS_MAX)
    eventually(lambda: answers(lambda: rows(server, "postgres", "select 1")), WAIT_SECONDS_MAX)


def test_prepared_writer_keeps_a_name_through_a_crash(own_server):
    connection = own_server.connect("postgres", autocommit=False)
    connection.cursor().execute(ADD)
    ((last_id, before),) = rows(own_server, "postgres", TAIL)
    assert before
    connection.cursor().execute("prepare transaction 'kept'")
    connection.close()
    ((_, prepared),) = rows(own_server, "postgres", TAIL)
    crash(own_server)
    ((_, after),) = rows(own_server, "postgres", TAIL)
    assert set(before) & set(prepared) & set(after), (before, prepared, after)
    own_server.connect("postgres").cursor().execute("commit prepared 'kept'")
    ((end, writers),) = rows(own_server, "postgres", TAIL)
    assert writers == [] and end >= last_id
