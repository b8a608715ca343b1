"""The shop example: articles to sell, inserted and counted by direct SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support.stack import Stack

SETUP_TOKEN = 1  # below every token of a gateway, which begin at 2^32


@dataclass(frozen=True)
class Sku:
    """One row of inventory."""

    name: str
    stack: Stack

    @property
    def resource(self) -> str:
        return f"inventory/{self.name}"

    def row(self) -> dict[str, Any]:
        rows = self.stack.query("select stock, note from inventory where sku = %s", (self.name,))
        assert len(rows) == 1, f"{self.name}: {rows}"
        return {"stock": rows[0][0], "note": rows[0][1]}

    def stock(self) -> int:
        return self.row()["stock"]

    def sell(self, count: int = 1) -> dict[str, Any]:
        """Returns the operation that sells `count` pieces."""
        return {
            "update": "inventory",
            "where": {"sku": self.name, "stock": {"gte": count}},
            "add": {"stock": -count},
            "expect_rows": 1,
        }


def create_sku(stack: Stack, name: str, stock: int = 10) -> Sku:
    """Inserts an article as the owner and without enter(), so that the history has no event of it."""
    # Several statements of one message are one transaction, in which the guard's row counts as entered.
    stack.query(
        "insert into fencing.guard (resource, last_fencing_token, entered_xid, entered_at) "
        "values (%s, %s, pg_current_xact_id(), now());"
        "insert into inventory (sku, stock, initial_stock) values (%s, %s, %s)",
        (f"inventory/{name}", SETUP_TOKEN, name, stock, stock),
    )
    return Sku(name, stack)


# A table with a column for every type of JSON value, and functions that return their arguments.
SAMPLES = """
create table samples (
  id text primary key check (id ~ '^[a-z0-9-]+$'),
  small integer default 5,
  big bigint,
  exact numeric,
  rounded double precision,
  words text,
  flag boolean,
  at timestamptz,
  day date,
  tag uuid,
  doc jsonb,
  "odd ""name"" é" text,
  constraint samples_small_is_small check (small < 1000)
);
select fencing.protect('samples', $$'samples/' || id$$);
select fencing.expose_table('samples');
create table hidden_samples (id text primary key);
create function sample_echo(small integer, big bigint, exact numeric, words text, flag boolean, doc jsonb) returns jsonb
language sql as $$
  select jsonb_build_object('small', small, 'big', big, 'exact', exact, 'words', words, 'flag', flag, 'doc', doc) $$;
select fencing.expose_function('sample_echo(integer, bigint, numeric, text, boolean, jsonb)');
create function sample_double(id text, times integer default 2) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare changed integer;
begin
  update samples s set small = s.small * times where s.id = sample_double.id returning s.small into changed;
  return changed;
end $$;
select fencing.expose_function('sample_double(text, integer)');
create function sample_fail(code text) returns void
language plpgsql as $$ begin raise exception using errcode = code, message = 'as asked'; end $$;
select fencing.expose_function('sample_fail(text)');
"""


@dataclass(frozen=True)
class Sample:
    """One row of samples."""

    name: str
    stack: Stack

    @property
    def resource(self) -> str:
        return f"samples/{self.name}"

    @property
    def key_condition(self) -> dict[str, str]:
        return {"id": self.name}

    def insert(self, **values: Any) -> dict[str, Any]:
        return {"insert": "samples", "values": {"id": self.name, **values}}

    def set(self, **values: Any) -> dict[str, Any]:
        return {"update": "samples", "where": self.key_condition, "set": values, "expect_rows": 1}

    def value(self, column: str) -> Any:
        quoted = column.replace('"', '""')
        return self.stack.query(f'select "{quoted}" from samples where id = %s', (self.name,))[0][0]

    def exists(self) -> bool:
        return bool(self.stack.query("select from samples where id = %s", (self.name,)))
