"""Two scripts of SQL steps, run by two real sessions in every order that keeps each script's own: what a scheduler could do, done one after the other.

A step that waits for a lock stays under way and the other script goes on; the steps behind it follow as soon as it is through.
An error ends its script with a rollback.
"""
import itertools
import queue
import threading
import time

import psycopg2

WAIT_SECONDS_MAX = 20


def orders(first, second):
    """Every way to merge so many steps of two scripts: tuples of 0 and 1."""
    for places in itertools.combinations(range(first + second), first):
        yield tuple(0 if place in places else 1 for place in range(first + second))


class Party:
    """A session with a thread of its own, which does one step at a time."""

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
    """One order of the steps of two scripts. `outcomes[party]` are the answers to its steps, the last one an error where it failed;
    `events` are (party, step, answer) in the order in which the steps were through."""

    def __init__(self, parties, scripts, order, watch):
        self.parties, self.watch = parties, watch
        self.outcomes, self.events = ([], []), []
        self.under_way = [None, None]
        waiting = [list(scripts[0]), list(scripts[1])]
        self.failed = [False, False]
        due = [0, 0]
        for turn in order:
            due[turn] += 1
            self._advance(waiting, due)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while any(due) or any(self.under_way):
            assert time.monotonic() < deadline, f"stuck in {order}: {self.events}"
            self._advance(waiting, due)

    def _advance(self, waiting, due):
        """Starts whatever is due and free to run, until neither session moves."""
        moved = True
        while moved:
            moved = False
            for number, party in enumerate(self.parties):
                if self.under_way[number] is None and due[number]:
                    due[number] -= 1
                    step = waiting[number].pop(0)
                    if self.failed[number]:
                        moved = True
                        continue
                    self.under_way[number] = step
                    party.work.put(step)
                if self.under_way[number] is not None:
                    moved = self._settle(number) or moved

    def _settle(self, number):
        """Waits until the step is through (true) or seen to wait for the other session (false)."""
        party = self.parties[number]
        while True:
            try:
                answer = party.done.get(timeout=0.002)
            except queue.Empty:
                with self.watch.cursor() as cursor:
                    cursor.execute("select pg_blocking_pids(%s)", (party.pid,))
                    if self.parties[1 - number].pid in cursor.fetchone()[0] and self.under_way[1 - number] is None and party.done.empty():
                        return False
                continue
            self.events.append((number, self.under_way[number], answer))
            self.outcomes[number].append(answer)
            self.failed[number] = isinstance(answer, Exception)
            self.under_way[number] = None
            return True
