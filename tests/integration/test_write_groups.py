"""The same update of several writes becomes one statement. None of them reaches more by it than it would alone."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from support import processes
from support.api import Answer, Json, expect_problem
from support.polling import eventually, let_pass
from support.stack import Stack

TABLE = """
create table {name} (id text primary key, n integer not null default 0 check (n < 100), owner text);
select fencing.protect('{name}', $$'{name}/' || id$$);
select fencing.expose_table('{name}');
"""


class Rows:
    """A table of its own, with a row and a lease for each of some callers."""

    def __init__(self, stack: Stack, fresh: Callable[[str], str], count: int = 24) -> None:
        self.stack, self.name = stack, fresh("group").replace("-", "_")
        stack.query(TABLE.format(name=self.name))
        self.ids = [f"r{number:02}" for number in range(count)]
        self.leases: list[Json] = []
        api = stack.api()
        for one in self.ids:
            lease = api.take(f"{self.name}/{one}", ttl_ms=60_000)
            eventually(lambda: api.write(lease, {"insert": self.name, "values": {"id": one}}).status == 200, 10, what="the gateway knows the table")
            self.leases.append(lease)

    def update(self, number: int, **change: object) -> Json:
        return {"update": self.name, "where": {"id": self.ids[number]}, **(change or {"add": {"n": 1}})}

    def at_once(self, operations: list[Json]) -> list[Answer]:
        """They wait for PostgreSQL, which is stopped until the gateway has them all."""
        def call(number: int) -> Answer:
            with self.stack.api().connection() as connection:
                return connection.call("POST", "/v1/writes", {"lease_id": self.leases[number]["lease_id"], "operations": [operations[number]]})

        backends = self.stack.query("select pid from pg_stat_activity where application_name = 'fencegate'")
        try:
            processes.signal_all([pid for (pid,) in backends], signal.SIGSTOP)
            with ThreadPoolExecutor(len(operations)) as pool:
                answers = [pool.submit(call, number) for number in range(len(operations))]
                let_pass(0.5, "all calls have come while nothing is done")
                for (pid,) in backends:
                    os.kill(pid, signal.SIGCONT)
                return [answer.result() for answer in answers]
        finally:
            for (pid,) in backends:
                os.kill(pid, signal.SIGCONT)

    def table(self) -> dict[str, tuple[int, str | None]]:
        return {one: (n, owner) for one, n, owner in self.stack.query(f"select id, n, owner from {self.name}")}

    def statements(self) -> int:
        """How many statements have changed the table, by a trigger of the guard's own kind that counts them."""
        return self.stack.query(f"select calls from pg_stat_user_functions where funcname like 'check\\_%\\_{self.name[:30]}'")[0][0]


@pytest.fixture()
def rows(stack: Stack, fresh: Callable[[str], str]) -> Rows:
    return Rows(stack, fresh)


def test_updates_when_many_wait_then_few_statements_do_them_all(own_stack: Stack, fresh: Callable[[str], str]) -> None:
    own_stack.query("alter role fencegate set track_functions = 'pl'")
    own_stack.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate'")
    rows = Rows(own_stack, fresh)
    own_stack.query("select pg_stat_reset()")
    for round_number in range(10):
        assert {answer.status for answer in rows.at_once([rows.update(number) for number in range(24)])} == {200}
    assert set(rows.table().values()) == {(10, None)}
    assert 0 < eventually(rows.statements, 10) < 120, "240 updates"


def remove(rows: Rows, numbers: range) -> None:
    for number in numbers:
        answer = rows.stack.api().write(rows.leases[number], {"delete": rows.name, "where": {"id": rows.ids[number]}})
        assert answer.status == 200


@pytest.mark.parametrize("taken", [True, False], ids=["a neighbour's row becomes its own", "its own row becomes a neighbour's"])
def test_updates_when_a_row_changes_hands_with_a_neighbour_in_the_batch_then_they_are_refused(rows: Rows, taken: bool) -> None:
    # The second of a pair does nothing; but it has its resource open, in the same transaction if both are the same worker's, as every other pair is.
    for mine, other in ((4, 6), (5, 7), (10, 12), (11, 13), (14, 16), (15, 17)):  # not the first, who are alone, and pairs of one worker: its choice shows the parity
        remove(rows, range(mine, mine + 1) if taken else range(other, other + 1))
        before = rows.table()
        operations = [rows.update(number, set={"id": one}) for number, one in enumerate(rows.ids)]
        source, target = (other, mine) if taken else (mine, other)
        operations[mine] = rows.update(source, set={"id": rows.ids[target]})
        operations[other] = {"update": rows.name, "where": {"id": "nobody"}, "set": {"id": "nobody"}}
        answers = rows.at_once(operations)
        expect_problem(answers[mine], 403, "resource-not-covered")
        assert {answer.status for number, answer in enumerate(answers) if number != mine} == {200}
        assert rows.table() == before


def test_updates_when_some_miss_or_break_a_check_then_each_count_is_its_own(rows: Rows) -> None:
    operations = [rows.update(number) for number in range(24)]
    operations[2]["where"] = {"id": "nobody"}
    operations[7] = rows.update(7, add={"n": 1000})
    operations[9]["expect_rows"] = 1
    answers = rows.at_once(operations)
    expect_problem(answers[7], 409, "constraint-violation")
    good = {number: answer.json()["results"][0]["rows_affected"] for number, answer in enumerate(answers) if number != 7}
    assert good == {number: 0 if number == 2 else 1 for number in range(24) if number != 7}
    assert [n for _, (n, _) in sorted(rows.table().items())] == [0 if number in (2, 7) else 1 for number in range(24)]


def test_updates_when_the_table_got_a_trigger_that_tries_a_neighbours_row_then_it_does_not_reach_it(rows: Rows) -> None:
    # The gateway has read its catalogue before there was a trigger.
    assert {answer.status for answer in rows.at_once([rows.update(number) for number in range(24)])} == {200}
    rows.stack.query(f"""
        create function {rows.name}_reach() returns trigger language plpgsql set search_path = public, pg_temp as $$
        begin
          if new.owner = 'me' then
            update {rows.name} t set owner = 'somebody else' where t.id = 'r' || lpad(((substr(new.id, 2)::integer + 1) % 24)::text, 2, '0');
          end if;
          return null;
        exception when sqlstate 'FG403' then return null;
        end $$;
        create trigger reach after update on {rows.name} for each row execute function {rows.name}_reach()""")
    for _ in range(3):
        assert {answer.status for answer in rows.at_once([rows.update(number, set={"owner": "me"}) for number in range(24)])} == {200}
        assert {owner for _, owner in rows.table().values()} == {"me"}
