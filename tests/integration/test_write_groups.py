"""Equal updates of several writes become one statement, and none of them can change more rows than it could alone."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from support import processes
from support.api import Answer, Json, expect_problem
from support.polling import eventually, pause
from support.stack import Stack

TABLE = """
create table {name} (id text primary key, n integer not null default 0 check (n < 100), owner text);
select fencing.protect('{name}', $$'{name}/' || id$$);
select fencing.expose_table('{name}');
"""


class Rows:
    """A table with a row and a lease for each caller."""

    def __init__(self, stack: Stack, unique_name: Callable[[str], str], count: int = 24) -> None:
        self.stack, self.name = stack, unique_name("group").replace("-", "_")
        stack.query(TABLE.format(name=self.name))
        self.ids = [f"r{number:02}" for number in range(count)]
        self.leases: list[Json] = []
        api = stack.api()
        for row_id in self.ids:
            lease = api.must_acquire(f"{self.name}/{row_id}", ttl_ms=60_000)
            eventually(
                lambda: api.write(lease, {"insert": self.name, "values": {"id": row_id}}).status == 200,
                goal="the gateway knows the table",
            )
            self.leases.append(lease)

    def update(self, number: int, **change: object) -> Json:
        return {"update": self.name, "where": {"id": self.ids[number]}, **(change or {"add": {"n": 1}})}

    def at_once(self, operations: list[Json]) -> list[Answer]:
        """Sends all writes while PostgreSQL is suspended, so that the gateway queues them,
        and returns their answers."""

        def call(number: int) -> Answer:
            with self.stack.api().connection() as connection:
                return connection.post(
                    "/v1/writes", {"lease_id": self.leases[number]["lease_id"], "operations": [operations[number]]}
                )

        backends = self.stack.query("select pid from pg_stat_activity where application_name = 'fencegate'")
        try:
            processes.signal_all([pid for (pid,) in backends], signal.SIGSTOP)
            with ThreadPoolExecutor(len(operations)) as pool:
                answers = [pool.submit(call, number) for number in range(len(operations))]
                pause(0.5, "all calls are queued while PostgreSQL is suspended")
                for (pid,) in backends:
                    os.kill(pid, signal.SIGCONT)
                return [answer.result() for answer in answers]
        finally:
            for (pid,) in backends:
                os.kill(pid, signal.SIGCONT)

    def table(self) -> dict[str, tuple[int, str | None]]:
        return {row_id: (n, owner) for row_id, n, owner in self.stack.query(f"select id, n, owner from {self.name}")}

    def statements(self) -> int:
        """Returns how many statements have changed the table, counted by the calls of the guard's trigger function."""
        return self.stack.query(
            f"select calls from pg_stat_user_functions where funcname like 'check\\_%\\_{self.name[:30]}'"
        )[0][0]


@pytest.fixture()
def rows(stack: Stack, unique_name: Callable[[str], str]) -> Rows:
    return Rows(stack, unique_name)


def test_updates_that_wait_share_few_statements(own_stack: Stack, unique_name: Callable[[str], str]) -> None:
    own_stack.query("alter role fencegate set track_functions = 'pl'")
    own_stack.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencegate'")
    rows = Rows(own_stack, unique_name)
    own_stack.query("select pg_stat_reset()")
    for round_number in range(10):
        assert {answer.status for answer in rows.at_once([rows.update(number) for number in range(24)])} == {200}
    assert set(rows.table().values()) == {(10, None)}
    assert 0 < eventually(rows.statements) < 120, "240 updates"


def remove(rows: Rows, numbers: range) -> None:
    for number in numbers:
        answer = rows.stack.api().write(rows.leases[number], {"delete": rows.name, "where": {"id": rows.ids[number]}})
        assert answer.status == 200


@pytest.mark.parametrize(
    "taken", [True, False], ids=["a neighbour's row becomes its own", "its own row becomes a neighbour's"]
)
def test_updates_that_move_rows_to_each_other_are_refused(rows: Rows, taken: bool) -> None:
    # The second of a pair changes nothing, but has entered its resource,
    # in the same transaction if both went to the same worker, as for every other pair.
    for own, neighbour in (
        (4, 6),
        (5, 7),
        (10, 12),
        (11, 13),
        (14, 16),
        (15, 17),
    ):  # not the first ones, which are not batched; both parities, since workers are chosen in turn
        remove(rows, range(own, own + 1) if taken else range(neighbour, neighbour + 1))
        before = rows.table()
        operations = [rows.update(number, set={"id": row_id}) for number, row_id in enumerate(rows.ids)]
        source, target = (neighbour, own) if taken else (own, neighbour)
        operations[own] = rows.update(source, set={"id": rows.ids[target]})
        operations[neighbour] = {"update": rows.name, "where": {"id": "nobody"}, "set": {"id": "nobody"}}
        answers = rows.at_once(operations)
        expect_problem(answers[own], 403, "resource-not-covered")
        assert {answer.status for number, answer in enumerate(answers) if number != own} == {200}
        assert rows.table() == before


def test_updates_that_miss_or_fail_have_counts_of_their_own(rows: Rows) -> None:
    operations = [rows.update(number) for number in range(24)]
    operations[2]["where"] = {"id": "nobody"}
    operations[7] = rows.update(7, add={"n": 1000})
    operations[9]["expect_rows"] = 1
    answers = rows.at_once(operations)
    expect_problem(answers[7], 409, "constraint-violation")
    good = {
        number: answer.json()["results"][0]["rows_affected"] for number, answer in enumerate(answers) if number != 7
    }
    assert good == {number: 0 if number == 2 else 1 for number in range(24) if number != 7}
    assert [n for _, (n, _) in sorted(rows.table().items())] == [0 if number in (2, 7) else 1 for number in range(24)]


def test_updates_with_trigger_do_not_reach_row_of_neighbour(rows: Rows) -> None:
    # The gateway has read its catalogue before the trigger exists.
    assert {answer.status for answer in rows.at_once([rows.update(number) for number in range(24)])} == {200}
    rows.stack.query(
        f"""
        create function {rows.name}_reach() returns trigger language plpgsql set search_path = public, pg_temp as $$
        begin
          if new.owner = 'me' then
            update {rows.name} t set owner = 'somebody else'
              where t.id = 'r' || lpad(((substr(new.id, 2)::integer + 1) % 24)::text, 2, '0');
          end if;
          return null;
        exception when sqlstate 'FG403' then return null;
        end $$;
        create trigger reach after update on {rows.name} for each row execute function {rows.name}_reach()"""
    )
    for _ in range(3):
        assert {
            answer.status for answer in rows.at_once([rows.update(number, set={"owner": "me"}) for number in range(24)])
        } == {200}
        assert {owner for _, owner in rows.table().values()} == {"me"}
