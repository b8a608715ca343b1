"""`fencegate verify`, and databases with a history that tests change as the owner of the guard can."""

from __future__ import annotations

import json
import subprocess
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator

from support.cluster import Cluster
from support.stack import Stack


def verify(conninfo: str, *arguments: str) -> subprocess.CompletedProcess:
    return Cluster.call("verify", "--conninfo", conninfo, *arguments, timeout=120)


@dataclass
class History:
    """A database with the history of three leases: tokens 10, 20 and 30 of `a/1`."""

    stack: Stack
    name: str

    @property
    def conninfo(self) -> str:
        return self.stack.conninfo(self.name)

    def query(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self.stack.query(statement, arguments, dbname=self.name)

    def tamper(self, statement: str) -> None:
        """Changes the history as the owner, who can disable its triggers."""
        leaves = [
            leaf
            for (leaf,) in self.query(
                "select inhrelid::regclass::text from pg_inherits where inhparent = 'fencing.history'::regclass"
            )
        ]
        for leaf in leaves:
            self.query(f"alter table {leaf} disable trigger history_append_only")
        self.query(statement)

    def verify(self, *arguments: str) -> dict[str, Any]:
        done = verify(self.conninfo, "--json", *arguments)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert (report["verdict"] == "proved") == (done.returncode == 0) == (report["broken"] == 0)
        return report

    def row(self, event: str, token: int, number: int = 0) -> int:
        return self.query(
            "select id from fencing.history where event = %s and fencing_token = %s order by id", (event, token)
        )[number][0]


EVENTS = """
do $$
declare
  t timestamptz := now() - interval '1 hour';
begin
  for token in 10 .. 30 by 10 loop
    perform fencing.append_events(gen_random_uuid(), 1,
        array[extract(epoch from t) * 1e6, extract(epoch from t) * 1e6 + 3e6]::bigint[],
      '{lease_granted,lease_renewed}', '{a/1,a/1}', array[token, token]::bigint[], null, null, null, null, null,
      '{"{\\"ttl_ms\\": 10000}","{\\"ttl_ms\\": 10000}"}');
    for n in 1 .. 3 loop
      perform fencing.begin_write('{a/1}', token, gen_random_uuid(), 'o', 'p', null, null);
    end loop;
    if token > 10 then
      perform fencing.begin_write('{a/1}', token - 10, gen_random_uuid(), 'o', 'p', null, null);
    end if;
    perform fencing.append_events(gen_random_uuid(), 1, array[extract(epoch from t) * 1e6 + 5e6]::bigint[],
        '{lease_released}', '{a/1}', array[token]::bigint[],
      null, null, null, null, null, null);
    t := t + interval '10 minutes';
  end loop;
  perform fencing.raise_fences('{a/1}', 31, 'o', 'p', null, 'sealed');
end
$$;
"""


@contextmanager
def filled_database(stack: Stack) -> Iterator[str]:
    """Makes a template database with a history."""
    name = f"lived_{uuid.uuid4().hex[:8]}"
    stack.query(f"create database {name}")
    assert Cluster.call("migrate", "--conninfo", stack.conninfo(name)).returncode == 0
    stack.query(EVENTS, dbname=name)
    stack.end_sessions()  # a template must have none
    yield name
    stack.query(f"drop database {name} with (force)")
