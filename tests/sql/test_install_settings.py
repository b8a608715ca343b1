"""The guard is installed, works and names no fault whatever settings the database has, and whatever encoding."""
import os
import pathlib
import re
import subprocess

import pytest
from test_catalogue import SCHEMA_FILES
from test_install_again import install_file_by_file

SETTINGS = {
    "datestyle": "'SQL, DMY'",
    "timezone": "'Asia/Shanghai'",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "escape_string_warning": "off",
    "default_transaction_isolation": "serializable",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
}


def install(server, database, **environment):
    """By psql."""
    done = subprocess.run(
        [
            server.client("psql"),
            *"-X -q -v ON_ERROR_STOP=1 -o".split(),
            os.devnull,
            "-d",
            database,
            "-f",
            SCHEMA_FILES[0].parent.parent / "install.sql",
        ],
        env={
            "PATH": os.environ["PATH"],
            "PGHOST": str(server.folder),
            "PGUSER": "postgres",
            "PGOPTIONS": "-c client_min_messages=warning",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def empty(server):
    """An empty database with SETTINGS."""
    name = server.create("template0")
    admin = server.connect("postgres")
    for setting, value in SETTINGS.items():
        admin.cursor().execute(f"alter database {name} set {setting} = {value}")
    admin.close()
    yield name
    server.drop(name)


def run(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("way", [install, install_file_by_file])
def test_guard_installed_under_other_settings_is_complete(server, empty, way):
    way(server, empty)
    inside, outside = server.connect(empty), server.connect(
        empty,
        options=" ".join(
            f"-c {name}={value}"
            for name, value in {
                "datestyle": "ISO",
                "timezone": "UTC",
                "standard_conforming_strings": "on",
                "quote_all_identifiers": "off",
                "default_transaction_isolation": "read\\ committed",
            }.items()
        ),
    )
    for connection in (inside, outside):
        run(connection, "set default_transaction_isolation = 'read committed'")
        run(
            connection,
            "create table goods (id text); "
            "select fencing.protect('goods', $$'goods/' || regexp_replace(id, E'\\\\D', '', 'g')$$)",
        )
        assert run(connection, "select fencing.guard_faults()") == []
        assert run(connection, "select fencing.watch_guard()") == []
        run(connection, "select fencing.add_proof_key(decode(repeat('ab', 32), 'hex'))")
        run(connection, "begin; select fencing.enter('goods/7', 3); insert into goods values ('a7'); commit")
        run(connection, "select fencing.unprotect('goods'); drop table goods")
    bounds = run(
        outside,
        "select pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = 'fencing.history'::regclass and c.relname <> 'history_default'",
    )
    assert len(bounds) > 8 and all(
        re.search(r"\('\d+-\d\d-\d\d 00:00:00\+00'\) TO \('\d+-\d\d-\d\d 00:00:00\+00'\)", bound) for (bound,) in bounds
    ), bounds
    assert (
        run(inside, "select fencing.make_history_partition('2030-01-28')")
        == run(outside, "select fencing.make_history_partition('2030-02-04')")
        == [(True,)]
    )
    inside.close()
    outside.close()


def test_guard_is_installed_in_database_of_another_encoding(server):
    admin = server.connect("postgres")
    admin.cursor().execute("create database latin encoding latin1 locale 'C' template template0")
    admin.close()
    try:
        install(server, "latin", PGCLIENTENCODING="UTF8")
    finally:
        server.drop("latin")


def test_owner_whose_name_needs_quotes_installs_and_protects(server):
    admin = server.connect("postgres")
    admin.cursor().execute('create role "Guard Owner" superuser login; create role "App-1"')
    name = server.create("template0")
    try:
        for _ in range(2):
            install(server, name, PGUSER="Guard Owner")
        owner = server.connect(name, "Guard Owner")
        run(owner, 'create table "Goods" (id text); alter table "Goods" owner to "App-1"')
        run(owner, """select fencing.protect('public."Goods"', $$'goods/' || id$$)""")
        assert run(owner, "select fencing.guard_faults()") == run(owner, "select fencing.watch_guard()") == []
        run(owner, "alter function fencing.fence(text) owner to postgres")
        assert "function fencing.fence(text) belongs to postgres, not to the owner of the schema" in {
            fault for fault, in run(owner, "select fencing.guard_faults()")
        }
        owner.close()
    finally:
        server.drop(name)
        (login,) = run(
            admin, "select rolname from pg_roles where rolname ~ '^fencing_recorder_' order by oid desc limit 1"
        )[0]
        admin.cursor().execute(f'drop role if exists {login}; drop role "Guard Owner"; drop role "App-1"')
        admin.close()


def test_schema_is_ascii():
    for file in SCHEMA_FILES[0].parent.parent.rglob("*.sql"):
        assert pathlib.Path(file).read_bytes().isascii(), file
