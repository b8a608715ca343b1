"""Attacks by a login without privileges on the guard: code that runs as the owner, large texts, locks of its tables."""

import json

import pytest
from test_catalogue import SCHEMA_FILES

EVIL = """create or replace function app.{0} returns text language plpgsql {1} as $$
          begin execute 'alter role test_app superuser'; return 'x';
          exception when others then raise exception 'ran as %: %', current_user, sqlerrm; end $$"""
HARMLESS = "create or replace function app.{0} returns text language sql immutable as $$ select 'x'::text $$"


@pytest.fixture
def app_schema(logins, owner):
    owner.run("create schema app authorization test_app")
    app = logins()
    app.run("create type app.mood as (n integer)")
    for function in ("slug(text)", "mood_text(app.mood)"):
        app.run(HARMLESS.format(function))
    app.run("create cast (app.mood as text) with function app.mood_text(app.mood)")
    app.run("create operator app.@@@ (rightarg = text, function = app.slug)")
    return app


@pytest.mark.parametrize(
    "expression, named",
    [
        ("app.slug(name)", "function app.slug(pg_catalog.text)"),
        ("feeling::text", "function app.mood_text(app.mood)"),
        ("operator(app.@@@) name", "operator app.@@@(NONE,pg_catalog.text)"),
        ("'a/' || (feeling is null)::text", "type app.mood"),
    ],
)
def test_protect_refuses_expression_using_objects_of_others(owner, app_schema, expression, named):
    owner.run("create table public.notes (name text, feeling app.mood)")
    app_schema.run(EVIL.format("slug(text)", "immutable"))
    error = owner.fails("select fencing.protect('public.notes', %s)", expression)
    assert error.pgcode == "22023" and "belongs to test_app" in str(error) and "ran as" not in str(error), error
    assert (
        owner.run("select count(*) from fencing.protected") == [(3,)]
        and owner.run("select fencing.guard_faults()") == []
    )


@pytest.mark.parametrize(
    "constraint, named",
    [
        ("app.slug(value) <> ''", "function app.slug(pg_catalog.text)"),
        ("(operator(app.@@@) value) <> ''", "function app.slug(pg_catalog.text)"),
    ],
)
def test_protect_refuses_domain_check_using_objects_of_others(owner, app_schema, constraint, named):
    owner.run(
        f"create domain public.label as text check ({constraint}); create domain public.tag as public.label; "
        "create table public.notes (name public.tag)"
    )
    error = owner.fails("select fencing.protect('public.notes', 'name::text')")
    assert error.pgcode == "22023" and f"{named} belongs to test_app" in str(error), error


@pytest.mark.parametrize(
    "replaced, named",
    [
        (
            "function fencing.verify_change() returns trigger language plpgsql security definer "
            "set search_path = pg_catalog, pg_temp as 'begin return null; end'",
            "verify_change()",
        ),
        (
            "function fencing.check_truncate() returns trigger language plpgsql security definer "
            "set search_path = pg_catalog, pg_temp as 'begin return null; end'",
            "check_truncate()",
        ),
        (
            "function fencing.refuse_change(relation oid, operation text, resource text) returns void "
            "language plpgsql set search_path = pg_catalog, pg_temp as 'begin end'",
            "refuse_change(oid,text,text)",
        ),
        (
            "function fencing.refuse_openings() returns event_trigger language plpgsql security definer "
            "set search_path = pg_catalog, pg_temp as 'begin end'",
            "refuse_openings()",
        ),
        (
            "function fencing.enter(resource text, fencing_token bigint, proof text default null) returns bigint "
            "language sql set search_path = pg_catalog, pg_temp as 'select 0::bigint'",
            "enter(text,bigint,text)",
        ),
    ],
)
def test_guard_faults_names_a_replaced_function(owner, replaced, named):
    owner.run("create or replace " + replaced)
    ((fault,),) = owner.run("select fencing.guard_faults()")
    assert (
        fault
        == f"the function fencing.{named} is not the one that this version installs; fencegate migrate puts it back"
    )


@pytest.mark.parametrize(
    "change",
    [
        "alter function fencing.verify_change() security invoker",
        "alter function fencing.verify_change() set search_path = public",
        "alter function fencing.verify_change() rename to verified",
    ],
)
def test_guard_faults_names_an_altered_function(owner, change):
    owner.run(change)
    output = [row[0] for row in owner.run("select fencing.guard_faults()")]
    assert any("the function fencing.verify_change() is not the one" in each for each in output), output


@pytest.mark.parametrize(
    "expression, function", [("'a/' || app.slug(name)", "slug(text)"), ("'a/' || feeling::text", "mood_text(app.mood)")]
)
@pytest.mark.parametrize("parted", [False, True], ids=["ordinary", "partitioned"])
def test_expression_changed_by_table_owner_runs_as_the_writer(owner, app_schema, expression, function, parted):
    app_schema.run(
        "create table app.notes (name text, feeling app.mood, id integer)"
        + (" partition by list (id); create table app.notes_1 partition of app.notes default" if parted else "")
    )
    owner.run("select fencing.protect('app.notes', %s)", expression)
    app_schema.run(EVIL.format(function, "volatile"))
    error = app_schema.fails("insert into app.notes values ('n', row(1), 1)")
    assert "ran as test_app" in str(error), error
    assert owner.run("select rolsuper from pg_roles where rolname = 'test_app'") == [(False,)]


def test_guard_faults_names_expression_object_with_new_owner(owner, app_schema):
    owner.run(
        "create function public.slug(text) returns text language sql immutable as $$ select $1 $$; "
        "create table public.notes (name text)"
    )
    owner.run("select fencing.protect('public.notes', $$'a/' || public.slug(name)$$)")
    assert owner.run("select expression_objects from fencing.protected where relation = 'public.notes'::regclass") == [
        (["function public.slug(pg_catalog.text)"],)
    ]
    owner.run(
        "grant create on schema public to test_app; alter function public.slug(text) owner to test_app; "
        "revoke create on schema public from test_app"
    )
    ((fault,),) = owner.run("select fencing.guard_faults()")
    assert (
        "public.notes: its resource expression uses function public.slug(pg_catalog.text), which belongs to test_app"
        in fault
    )


def test_check_refuses_despite_forged_setting(owner, logins):
    """The first trigger passes the resources to the second in a setting that any role may change:
    it is set for each statement, and reset afterwards."""
    app = logins()
    app.run("set fencing.changed = '{}'")
    assert app.sqlstate("update inventory set stock = 0 where sku = 'sku-1'") == "FG428"
    app.run("begin")
    app.run("select fencing.enter('inventory/sku-1', 5)")
    app.run("update inventory set stock = 5 where sku = 'sku-1'")
    assert app.run("select current_setting('fencing.changed')") == [("",)]
    app.run("set local fencing.changed = '{inventory/sku-1}'")
    assert app.sqlstate("update inventory set stock = 0 where sku in ('sku-1', E'sku-2')") == "FG403"
    app.run("rollback")


@pytest.mark.parametrize(
    "type, value, setting, text",
    [
        ("float8", "1.25", "extra_float_digits = -14", "{}::text"),
        ("real", "1.1", "extra_float_digits = -5", "{}::text"),
        ("bytea", "'\\x41'", "bytea_output = escape", "{}::text"),
        ("bytea", "'\\xdeadbeef'", "xmlbinary = hex", "xmlelement(name a, {})::text"),
    ],
)
def test_row_is_refused_despite_setting_that_changes_its_text(owner, logins, type, value, setting, text):
    of_row, of_value = text.format("k"), text.format(f"{value}::{type}")
    owner.run(
        f"create table keyed (k {type} primary key, v int); grant select, insert, update on keyed to test_app; "
        f"select fencing.protect('keyed', $$'k/' || md5({of_row})$$)"
    )
    owner.run(f"""select fencing.enter('k/' || md5({of_value}), 5); insert into keyed values ({value}, 1)""")
    app = logins(autocommit=False)
    app.run(f"set {setting}")
    app.run(f"select fencing.enter('k/' || md5({of_value}), 6)")
    assert app.sqlstate("update keyed set v = 666") == "FG403"


def test_trigger_sorting_between_the_checks_is_refused(owner):
    owner.run(
        "create function public.forge() returns trigger language plpgsql "
        "as $$begin perform set_config('fencing.changed', '{}', true); return null; end$$"
    )
    between = (
        "create trigger fencing_d after insert or update or delete on inventory "
        "for each statement execute function public.forge()"
    )
    assert owner.sqlstate(between) == "55000"
    owner.run("create table plain (id int primary key); alter event trigger fencing_refuse_openings disable")
    owner.run(between)
    assert any(
        "fencing_d runs between the checks" in fault for (fault,) in owner.run("select * from fencing.guard_faults()")
    )
    owner.run("drop trigger fencing_d on inventory; alter event trigger fencing_refuse_openings enable always")
    owner.run(between.replace("inventory", "plain"))
    assert owner.sqlstate("select fencing.protect('plain', $$'plain/' || id::text$$)") == "55000"


def test_protect_tries_the_expression_with_the_owners_rights(owner, server, database):
    owner.run(
        """create role towner login; create schema tw authorization towner; set role towner;
                 create function tw.vol() returns text
                   language plpgsql volatile as $$begin execute 'alter role towner superuser'; return 'x/'; end$$;
                 create function tw.prefix() returns text
                   language plpgsql immutable as $$begin return (select tw.vol()); end$$;
                 create table tw.t (id int primary key); reset role"""
    )
    try:
        assert "permission denied" in str(
            owner.fails("select fencing.protect('tw.t', 'tw.prefix() || id::text')")
        ).replace("must be superuser", "permission denied")
        assert owner.run("select rolsuper, current_user::text from pg_roles where rolname = 'towner'") == [
            (False, "postgres")
        ]
    finally:
        owner.run("drop schema tw cascade; drop role towner")


def test_refusal_of_13_kb_resource_is_recorded_shortened(server, logins, owner):
    app = logins()
    before = (server.folder / "log").stat().st_size
    error = app.fails("insert into inventory values (%s, 1, 1)", "x" * 13_000)
    shown = "inventory/" + "x" * 190 + "... (13010 bytes)"
    assert error.pgcode == "FG403" and json.loads(error.diag.message_detail)["resource"] == shown
    assert owner.run("select event, resource, principal from fencing.history") == [
        ("write_rejected", shown, "test_app")
    ]
    app.fails("insert into inventory select 'y' || n || repeat('x', 1000000), 1, 1 from generate_series(1, 3) as t (n)")
    owner.run("drop user mapping for current_user server fencing_recorder")
    app.fails("insert into inventory values (repeat('x', 4000000), 1, 1)")
    assert (server.folder / "log").stat().st_size - before < 20_000


def test_observe_mode_with_13_kb_resource_lets_statement_pass(owner, logins):
    owner.run(
        "select fencing.protect('public.inventory', $$'inventory/' || sku$$, 'observe'); "
        "alter table inventory drop constraint inventory_pkey cascade"
    )
    logins().run("insert into inventory values (%s, 1, 1)", "x" * 13_000)
    assert owner.run("select resource from fencing.history where event <> 'guard_changed'") == [
        ("inventory/" + "x" * 190 + "... (13010 bytes)",)
    ]


def test_enter_keeps_64_characters_of_a_32_mb_setting(owner, logins):
    app = logins()
    app.run("select set_config('fencing.write_id', repeat('w', 33554432), false)")
    app.run("begin")
    app.run("select fencing.enter('inventory/sku-1', 5)")
    app.run("update inventory set stock = 5 where sku = 'sku-1'")
    app.run("commit")
    assert owner.run("select length(entered_for) from fencing.guard where resource = 'inventory/sku-1'") == [(64,)]


LONG = "l" * 9_000


@pytest.mark.parametrize(
    "call",
    [
        "select fencing.begin_write('{a/b}', 5, gen_random_uuid(), %s, %s, %s, %s)",
        "select fencing.begin_write('{a/b,a/c}', 5, gen_random_uuid(), %s, %s, %s, %s)",
        (
            "select fencing.begin_writes('{a/b}', '{5}', array[gen_random_uuid()], array[%s], array[%s], array[%s], "
            "array[%s]::jsonb[])"
        ),
        (
            "select fencing.append_events(gen_random_uuid(), 1, null, '{lease_granted}', null, null, null, array[%s], "
            "array[%s], array[%s], null, array[%s]::jsonb[])"
        ),
    ],
)
def test_event_with_long_texts_is_stored_shortened(logins, owner, call):
    logins("test_gateway").run(call, LONG, LONG, LONG, json.dumps({"d": LONG * 10}))
    shown = "l" * 200 + "... (9000 bytes)"
    for row in owner.run(
        "select owner, principal, trace_id, (select array_agg(k) from jsonb_object_keys(detail) k) from fencing.history"
    ):
        assert row == (shown, shown, shown, ["left_out_bytes"])


def test_key_locked_by_another_login_can_be_claimed(logins, server, database):
    """Any login can take the advisory lock of a key; it counts only if a gateway's login holds it."""
    claim = "select state from fencing.claim_keys('{p}', '{k}', array[decode(repeat('aa', 32), 'hex')])"
    app, first, second = logins(), logins("test_gateway"), logins("test_gateway")
    app.run("select pg_advisory_lock(hashtextextended(E'p\\nk', 0))")
    first.run("begin")
    assert first.run(claim) == [("new",)]
    first.run("rollback")
    app.run("select pg_advisory_unlock_all()")
    first.run("begin")
    assert first.run(claim) == [("new",)]
    assert second.run(claim) == [("running",)]
    first.run("rollback")


def test_login_without_a_role_locks_no_table_of_the_guard(logins, owner):
    """PostgreSQL locks the tables that a statement names before it checks the privileges on them,
    but after those on their schema: who may use the schema waits for the lock."""
    owner.run("drop role if exists case_stranger; create role case_stranger login")
    tables = ("guard", "history", "storage_generation", "settings")
    owner.run(f"begin; lock table {', '.join(f'fencing.{table}' for table in tables)} in access exclusive mode")
    for user, code in (("case_stranger", "42501"), ("test_app", "55P03")):
        login = logins(user)
        login.run("set lock_timeout = '100ms'")
        for table in tables:
            for statement in (
                f"prepare p as insert into fencing.{table} default values",
                f"prepare p as select from fencing.{table} for update",
            ):
                assert login.sqlstate(statement) == code, (user, statement)
        login.connection.close()
    owner.run("rollback; drop role case_stranger")


def test_upkeep_and_install_ignore_advisory_locks_of_others(logins, owner):
    app = logins()
    app.run(
        "select pg_advisory_lock(hashtextextended(name, 0)) "
        "from unnest('{fencing.install,fencing.keep_history}'::text[]) as t (name)"
    )
    last = owner.run(
        "select max(relid::regclass::text) from pg_partition_tree('fencing.history') "
        "where relid::regclass::text ~ '[0-9]$'"
    )[0][0]
    owner.run(f"drop table {last}")
    assert logins("test_gateway").run("select made from fencing.keep_history(0)") == [(1,)]
    owner.run("set lock_timeout = '500ms'")
    for file in SCHEMA_FILES:
        owner.run(f"begin; {file.read_text()}; commit")
    for table in ("schema_version", "settings", "event_stream"):
        assert app.sqlstate(f"do $$ begin lock table fencing.{table} in share update exclusive mode; end $$") == "42501"


def test_keep_history_drops_nothing_below_the_owners_minimum(logins, owner):
    owner.run("select fencing.make_history_partition(now() - interval '60 days')")
    owner.run("insert into fencing.settings values ('history_keep_days_min', '365')")
    gateway = logins("test_gateway")
    assert gateway.run("select dropped, remaining from fencing.keep_history(7)") == [(0, 0)]
    owner.run("update fencing.settings set value = '30' where key = 'history_keep_days_min'")
    assert gateway.run("select dropped, remaining from fencing.keep_history(7)") == [(1, 0)]
    assert (
        owner.sqlstate("update fencing.settings set value = 'for ever' where key = 'history_keep_days_min'") == "23514"
    )
