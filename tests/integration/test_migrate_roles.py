"""`fencegate migrate` by a role that is no superuser: what it lacks is named."""

from __future__ import annotations

from contextlib import closing
from typing import Callable

import psycopg2
import pytest

from support.cluster import Cluster
from support.stack import Stack


@pytest.fixture
def installer(stack: Stack, unique_name: Callable[[str], str]) -> str:
    """A role that owns a database of its name; the guard's roles exist, made by another role."""
    name = unique_name("installer").replace("-", "_")
    stack.query(f"create role {name} login")
    stack.query(f"create database {name} owner {name}")
    return name


def conninfo(stack: Stack, role: str) -> str:
    postgres = stack.facts["postgres"]
    return f"host={postgres['host']} port={postgres['port']} dbname={role} user={role}"


def test_migrate_names_missing_admin_option_on_gateways_role(stack: Stack, installer: str) -> None:
    gateway = f"{installer}_gateway"
    stack.query(f"create role {gateway} login")
    done = Cluster.call("migrate", "--conninfo", conninfo(stack, installer), "--gateway-role", gateway)
    assert (
        done.returncode == 1
        and "ADMIN OPTION on fencing_gateway" in done.stderr
        and "may not install" not in done.stderr
    ), done
    stack.query(f"grant fencing_gateway to {installer} with admin option")
    done = Cluster.call("migrate", "--conninfo", conninfo(stack, installer), "--gateway-role", gateway)
    assert done.returncode == 0 and f"The role {gateway} is a member of fencing_gateway." in done.stdout, done
    assert "dblink" in done.stderr and 'of "The recorder" in sql/README.md' in done.stderr, "the recorder needs it"


def test_protect_of_another_roles_table_has_hint(stack: Stack, installer: str) -> None:
    assert Cluster.call("migrate", "--conninfo", conninfo(stack, installer)).returncode == 0
    stack.query("create table theirs (id text primary key)", dbname=installer)
    calls = ["fencing.protect('theirs', 'id')", "fencing.unprotect('theirs')", "fencing.expose_table('theirs')"]
    with closing(psycopg2.connect(conninfo(stack, installer))) as connection:
        connection.autocommit = True
        for call in calls:
            with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege) as refused:
                cursor.execute(f"select {call}")
            assert (
                f"Call as {installer}" in refused.value.diag.message_hint
                and "grant postgres to" in refused.value.diag.message_hint
            ), refused.value
        stack.query(f"alter table theirs owner to {installer}", dbname=installer)
        with connection.cursor() as cursor:
            for call in calls[::2]:
                cursor.execute(f"select {call}")


def test_migrate_says_what_the_recorder_lacks(stack: Stack, installer: str) -> None:
    stack.query(
        "create schema fencing_recorder; create extension dblink schema fencing_recorder; "
        f"grant usage on schema fencing_recorder to {installer};"
        f"grant usage on foreign data wrapper dblink_fdw to {installer}",
        dbname=installer,
    )
    done = Cluster.call("migrate", "--conninfo", conninfo(stack, installer))
    assert (
        done.returncode == 0 and "permission denied to create role" in done.stderr and "is missing" not in done.stderr
    ), done
    stack.query(f"alter role {installer} createrole")
    done = Cluster.call("migrate", "--conninfo", conninfo(stack, installer))
    assert done.returncode == 0 and done.stderr == "", done
