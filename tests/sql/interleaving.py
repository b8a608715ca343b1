"""Runs two scripts of SQL steps in two real sessions, in every interleaving that keeps the order of each script.

A step that waits for a lock stays in progress while the other script continues;
the following steps run as soon as it is complete.
An error ends its script with a rollback.
"""
import itertools
import queue
import threading
import time

import psycopg2

WAIT_SECONDS_MAX = 20


def orders(first, second):
    """Yields every interleaving of two scripts with these numbers of steps, as tuples of 0 and 1."""
    for places in itertools.combinations(range(first + second), first):
        yield tuple(0 if place in places else 1 for place in range(first + second))


class StepSession:
    """A session with a thread of its own, which executes one step at a time."""

    def __init__(self, server, database, user, isolation=None):
        self.connection = server.connect(database, user, autocommit=False)
        if isolation:
            self.connection.set_session(isolation_level=isolation)
        self.pid = self.connection.info.backend_pid
        self.work, self.done = queue.Queue(), queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while (statement := self.work.get()) is not None:
            try:
                if statement == "commit":
                    self.connection.commit()
                    self.done.put(None)
                    continue
                with self.connection.cursor() as cursor:
                    cursor.execute(statement)
                    self.done.put(cursor.fetchall() if cursor.description else [])
            except psycopg2.Error as error:
                self.connection.rollback()
                self.done.put(error)

    def close(self):
        self.work.put(None)
        self.connection.close()


class Run:
    """One interleaving of two scripts. `outcomes[number]` are the answers to the steps of a script,
    the last one an error if it failed;
    `events` are (number, step, answer) in the order in which the steps were complete."""

    def __init__(self, sessions, scripts, order, observer):
        self.sessions, self.observer = sessions, observer
        self.outcomes, self.events = ([], []), []
        self.in_progress = [None, None]
        waiting = [list(scripts[0]), list(scripts[1])]
        self.failed = [False, False]
        due = [0, 0]
        for number in order:
            due[number] += 1
            self._advance(waiting, due)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while any(due) or any(self.in_progress):
            assert time.monotonic() < deadline, f"stuck in {order}: {self.events}"
            self._advance(waiting, due)

    def _advance(self, waiting, due):
        """Starts every step that is due and can run, until neither session makes progress."""
        progress = True
        while progress:
            progress = False
            for number, session in enumerate(self.sessions):
                if self.in_progress[number] is None and due[number]:
                    due[number] -= 1
                    step = waiting[number].pop(0)
                    if self.failed[number]:
                        progress = True
                        continue
                    self.in_progress[number] = step
                    session.work.put(step)
                if self.in_progress[number] is not None:
                    progress = self._await_step(number) or progress

    def _await_step(self, number):
        """Waits until the step is complete (returns true) or waits for the other session (returns false)."""
        session = self.sessions[number]
        while True:
            try:
                answer = session.done.get(timeout=0.002)
            except queue.Empty:
                with self.observer.cursor() as cursor:
                    cursor.execute("select pg_blocking_pids(%s)", (session.pid,))
                    if (
                        self.sessions[1 - number].pid in cursor.fetchone()[0]
                        and self.in_progress[1 - number] is None
                        and session.done.empty()
                    ):
                        return False
                continue
            self.events.append((number, self.in_progress[number], answer))
            self.outcomes[number].append(answer)
            self.failed[number] = isinstance(answer, Exception)
            self.in_progress[number] = None
            return True
