"""The same update of several writes becomes one statement. None of them reaches more by it than it would alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from support.api import Answer, Json, expect_problem
from support.polling import eventually
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
        together = threading.Barrier(len(operations))

        def call(number: int) -> Answer:
            with self.stack.api().connection() as connection:
                assert connection.call("GET", "/healthz").status == 200
                together.wait(30)
                return connection.call("POST", "/v1/writes", {"lease_id": self.leases[number]["lease_id"], "operations": [operations[number]]})

        with ThreadPoolExecutor(len(operations)) as pool:
            return list(pool.map(call, range(len(operations))))

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
    assert 0 < eventually(rows.statements, 10) < 200, "240 updates"


def test_updates_when_one_moves_its_row_to_a_neighbours_resource_then_it_alone_is_refused(rows: Rows) -> None:
    for turn in range(5):
        operations = [rows.update(number, set={"id": one}) for number, one in enumerate(rows.ids)]
        operations[3]["set"] = {"id": "r04x"}
        answers = rows.at_once(operations)
        expect_problem(answers[3], 403, "resource-not-covered")
        assert [answer.status for answer in answers[:3] + answers[4:]] == [200] * 23
    assert sorted(rows.table()) == rows.ids


def test_updates_when_two_trade_their_rows_then_both_are_refused(rows: Rows) -> None:
    for _ in range(5):
        operations = [rows.update(number, set={"id": f"{one}"}) for number, one in enumerate(rows.ids)]
        operations[5] = {"update": rows.name, "where": {"id": rows.ids[6]}, "set": {"id": rows.ids[5] + "x"}}
        operations[6] = {"update": rows.name, "where": {"id": rows.ids[5]}, "set": {"id": rows.ids[6] + "x"}}
        answers = rows.at_once(operations)
        for number in (5, 6):
            expect_problem(answers[number], 403, "resource-not-covered")
        assert [answer.status for answer in answers[:5] + answers[7:]] == [200] * 22
    assert sorted(rows.table()) == rows.ids


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


def test_updates_when_the_table_got_a_trigger_that_reaches_a_neighbours_row_then_all_are_refused(rows: Rows) -> None:
    # The gateway has read its catalogue before there was a trigger.
    assert {answer.status for answer in rows.at_once([rows.update(number) for number in range(24)])} == {200}
    rows.stack.query(f"""
        create function {rows.name}_reach() returns trigger language plpgsql as $$
        begin
          if new.owner = 'me' then
            update {rows.name} t set owner = 'somebody else' where t.id = 'r' || lpad(((substr(new.id, 2)::integer + 1) % 24)::text, 2, '0');
          end if;
          return null;
        end $$;
        create trigger reach after update on {rows.name} for each row execute function {rows.name}_reach();
        alter function {rows.name}_reach() set search_path = public, pg_temp""")
    for _ in range(3):
        for answer in rows.at_once([rows.update(number, set={"owner": "me"}) for number in range(24)]):
            expect_problem(answer, 403, "resource-not-covered")
    assert {owner for _, owner in rows.table().values()} == {None}
