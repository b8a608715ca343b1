"""Writes with an Idempotency-Key, and a table whose commits take as long as a test wants."""

from __future__ import annotations

from support.api import Answer, Api, Json
from support.polling import eventually
from support.stack import Stack

SLOW_COMMIT = """
create table if not exists keyed (id text primary key, seconds double precision not null default 0, place integer,
                                  constraint keyed_place unique (place) deferrable initially deferred, filling text);
create or replace function keyed_sleep() returns trigger language plpgsql as $$ begin perform pg_sleep(new.seconds);
return null; end $$;
drop trigger if exists keyed_sleep on keyed;
create constraint trigger keyed_sleep after insert on keyed deferrable initially deferred
  for each row when (new.seconds > 0)
  execute function keyed_sleep();
select fencing.protect('keyed', $$'keyed/' || id$$);
select fencing.expose_table('keyed');
create or replace function keyed_add(id text) returns text language sql
  set search_path = public, pg_temp as $$ insert into keyed (id) values ($1) returning id $$;
select fencing.expose_function('keyed_add(text)');
"""


def make_tables(stack: Stack) -> None:
    stack.query(SLOW_COMMIT)
    for gateway in range(len(stack.facts["gateways"])):
        api = stack.api(gateway)
        for operation in ({"delete": "keyed", "where": {"id": "none"}}, {"call": "keyed_add", "args": {"id": "none"}}):
            eventually(
                lambda: write(api, "keyed/none", {"delete": "keyed", "where": {"id": "none"}}, operation).status == 200,
                goal="the gateway knows the table and the function",
            )


def write(api: Api, resource: str, *operations: Json, key: str | None = None, **fields: object) -> Answer:
    """Sends a one-shot write."""
    body = {
        "lease": {"resource": resource, "ttl_ms": 10_000, "wait_ms": 10_000},
        "operations": list(operations),
        **fields,
    }
    return api.post("/v1/writes", body, {"Idempotency-Key": key} if key else None)


def is_replay(answer: Answer) -> bool:
    return answer.headers["Idempotency-Replayed"] == "true"
