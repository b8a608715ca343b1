"""Clients of fenced registers: each acquires leases, reads a value, writes the next one,
and records every operation."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

import psycopg2

from support.api import Api, Json, lease_path
from support.linearizable import Commit, Operation
from support.polling import pause
from support.stack import Stack

INITIAL = "0"
# The log is written while the row is locked, so that it has the order of commits for each register,
# independently of the history.
REGISTERS = """
create table if not exists registers (name text primary key, value text not null, readers integer not null default 0);
create table if not exists bare_registers (name text primary key, value text not null);
create table if not exists register_log (id bigint generated always as identity primary key, relation text not null,
    name text not null,
                                         value text not null, fence bigint not null);
create or replace function log_register() returns trigger language plpgsql security definer
  set search_path = public, pg_temp as $$
begin
  insert into register_log (relation, name, value, fence)
    values (tg_table_name, new.name, new.value, fencing.fence('registers/' || new.name));
  return null;
end $$;
create or replace trigger log_register after update of value on registers for each row execute function log_register();
create or replace trigger log_register after update of value on bare_registers for each row
  execute function log_register();
select fencing.protect('registers', $$'registers/' || name$$);
select fencing.expose_table('registers');
"""


@dataclass(frozen=True)
class Behavior:
    """How often a client does what; shares are between 0 and 1."""

    ttl_ms: int = 250
    pause_share: float = 0.2  # waits past the end of its lease between read and write
    seal_share: float = 0.2  # releases its lease with a seal before it writes
    sql_share: float = 0.3  # reads by direct SQL


class Client(threading.Thread):
    """One client of one gateway that uses all registers in turn."""

    def __init__(
        self, number: int, api: Api, stack: Stack, names: list[str], behavior: Behavior, guarded: bool
    ) -> None:
        super().__init__(daemon=True)
        self.number, self.api, self.names, self.behavior, self.guarded = number, api, names, behavior, guarded
        self.rng = random.Random(number)
        self.database = stack.sql()
        self.operations: dict[str, list[Operation]] = {name: [] for name in names}
        self.stop_requested = threading.Event()
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            with self.api.connection() as self.connection:
                turn = 0
                while not self.stop_requested.is_set():
                    turn += 1
                    self.take_turn(self.names[(self.number + turn) % len(self.names)], f"{self.number}.{turn}")
        except Exception as problem:  # raised again by run_clients()
            self.failed = problem
        finally:
            self.database.close()

    def take_turn(self, name: str, mark: str) -> None:
        answer = self.connection.post(
            "/v1/leases", {"resource": f"registers/{name}", "ttl_ms": self.behavior.ttl_ms, "wait_ms": 2_000}
        )
        if answer.status != 201:
            assert answer.status in (410, 423, 503), answer
            return
        lease = answer.json()
        base = self.read(name, lease)
        if base is not None:
            if self.rng.random() < self.behavior.seal_share:
                self.seal(name, lease)
            elif self.rng.random() < self.behavior.pause_share:
                pause(self.behavior.ttl_ms / 1000 * (1 + self.rng.random()), "beyond the lease")
            self.write(name, lease, base, f"{int(base.split('/')[0]) + 1}/{mark}")
        self.connection.call("DELETE", lease_path(lease))

    def record(self, name: str, *fields: object) -> None:
        self.operations[name].append(Operation(*fields))  # type: ignore[arg-type]

    def read(self, name: str, lease: Json) -> str | None:
        token, began = lease["fencing_token"], time.monotonic()
        if not self.guarded:
            return self.query_unguarded(f"select value from bare_registers where name = '{name}'")
        if self.rng.random() < self.behavior.sql_share:
            outcome, value = self.read_by_sql(name, token)
        else:
            # The update makes it a fenced read.
            touch = {"update": "registers", "where": {"name": name}, "add": {"readers": 1}, "expect_rows": 1}
            answer = self.connection.post(
                "/v1/writes", {"lease_id": lease["lease_id"], "operations": [touch], "return": "rows"}
            )
            outcome, value = outcome_of(answer.status, answer.json())
            if outcome == "done":
                value = answer.json()["results"][0]["rows"][0]["value"]
        if outcome in ("done", "refused"):
            self.record(name, "read", token, began, time.monotonic(), outcome, value)
        elif outcome == "unknown":  # it may have raised the fence to its token, as a seal of the token below does
            self.record(name, "seal", token - 1, began, time.monotonic(), outcome)
        return value if outcome == "done" else None

    def read_by_sql(self, name: str, token: int) -> tuple[str, str]:
        with self.database.cursor() as cursor:
            try:
                cursor.execute("begin")
                cursor.execute("select fencing.enter(%s, %s)", (f"registers/{name}", token))
                cursor.execute("select value from registers where name = %s", (name,))
                ((value,),) = cursor.fetchall()
                cursor.execute("commit")
                return "done", value
            except psycopg2.Error as problem:
                cursor.execute("rollback")
                return ("refused" if problem.pgcode == "FG412" else "nothing"), ""

    def write(self, name: str, lease: Json, base: str, value: str) -> None:
        token, began = lease["fencing_token"], time.monotonic()
        if not self.guarded:
            self.query_unguarded(f"update bare_registers set value = '{value}' where name = '{name}' returning value")
            self.record(name, "write", token, began, time.monotonic(), "done", value, base)
            return
        change = {"update": "registers", "where": {"name": name}, "set": {"value": value}, "expect_rows": 1}
        answer = self.connection.post("/v1/writes", {"lease_id": lease["lease_id"], "operations": [change]})
        outcome, _ = outcome_of(answer.status, answer.json())
        if outcome != "nothing":
            self.record(name, "write", token, began, time.monotonic(), outcome, value, base)

    def seal(self, name: str, lease: Json) -> None:
        began = time.monotonic()
        answer = self.connection.call("DELETE", f"{lease_path(lease)}?seal=true")
        # Where the nodes' answers are missing or the lease is over, the token may be sealed all the same.
        outcome = "done" if answer.status in (200, 204) else "unknown"
        self.record(name, "seal", lease["fencing_token"], began, time.monotonic(), outcome)

    def query_unguarded(self, statement: str) -> str:
        with self.database.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()[0]  # type: ignore[index]


def outcome_of(status: int, body: Json) -> tuple[str, str]:
    """Returns outcome and value. `nothing`: the operation had no effect, and tells nothing of the fence."""
    if status == 200:
        return "done", ""
    if status == 412:
        return "refused", ""
    assert status in (409, 503), body
    return ("unknown" if body.get("outcome_unknown") else "nothing"), ""


def run_clients(
    stack: Stack, names: list[str], clients: int, seconds: float, behavior: Behavior = Behavior(), guarded: bool = True
) -> dict[str, list[Operation]]:
    """Runs the clients for some time and returns their operations by register."""
    members = [
        Client(number, stack.api(number % len(stack.facts["gateways"])), stack, names, behavior, guarded)
        for number in range(clients)
    ]
    for client in members:
        client.start()
    pause(seconds, "the clients are at work")
    for client in members:
        client.stop_requested.set()
    for client in members:
        client.join(30)
        assert not client.is_alive(), "a call has no answer"
        if client.failed:
            raise client.failed
    return {name: [operation for client in members for operation in client.operations[name]] for name in names}


def create_registers(stack: Stack, names: list[str]) -> None:
    stack.query(REGISTERS)
    for name in names:
        stack.query(
            "begin; select fencing.enter(%s, 1); insert into registers (name, value) values (%s, %s); commit",
            (f"registers/{name}", name, INITIAL),
        )
        stack.query("insert into bare_registers values (%s, %s)", (name, INITIAL))


def commits_of(stack: Stack, name: str, relation: str = "registers") -> list[Commit]:
    rows = stack.query(
        "select fence, value from register_log where name = %s and relation = %s order by id", (name, relation)
    )
    return [Commit(*row) for row in rows]
