"""Connections of the tests: a Login, whose statements are committed one by one, and a Session with transactions."""

import threading

import psycopg2
import pytest
from support.polling import eventually

WAIT_SECONDS_MAX = 20
WITHOUT_EVENT_TRIGGERS = "; ".join(
    f"alter event trigger fencing_refuse_{name} disable" for name in ("openings", "drops", "drop_of_guard")
)
WITHOUT_EVENT_TRIGGERS += "; alter event trigger fencing_hold_schemas disable"


class Login:
    """A connection with functions that return the SQLSTATE of a failed statement."""

    def __init__(self, server, database, user="test_app", **more):
        self.connection = server.connect(database, user, **more)

    def run(self, statement, *arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchall() if cursor.description else None

    def fails(self, statement, *arguments):
        with pytest.raises(psycopg2.Error) as failed:
            self.run(statement, *arguments)
        return failed.value

    def sqlstate(self, statement, *arguments):
        return self.fails(statement, *arguments).pgcode


class Session:
    """A connection with a transaction, which can run a statement in the background."""

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


class Sessions:
    """Opens sessions; `observer` is a connection that takes no part in the test."""

    def __init__(self, server, database):
        self.server, self.database = server, database
        self.opened = []
        self.observer = server.connect(database)

    def __call__(self, **options):
        self.opened.append(Session(self.server, self.database, **options))
        return self.opened[-1]


def wait_until_blocked(observer, waiter, blocker):
    def is_blocked():
        cursor.execute("select pg_blocking_pids(%s)", (waiter.pid,))
        return blocker.pid in cursor.fetchone()[0]

    with observer.cursor() as cursor:
        eventually(is_blocked, WAIT_SECONDS_MAX, 0.005, goal="it waits for the other session")


def sqlstate_of(call, *arguments):
    with pytest.raises(psycopg2.Error) as refused:
        call(*arguments)
    return refused.value.pgcode


def fetch_value(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]
