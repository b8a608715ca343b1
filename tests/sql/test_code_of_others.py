"""Code that others have made must not run as a superuser or with the gateway's rights,
and no setting or state of a table may open it."""

import pytest

ESCALATE = """create function app.escalate(value text) returns boolean language plpgsql as $$
  begin
    execute 'alter role test_app superuser';
    return true;
  exception when others then
    return true;
  end $$"""
RESET_ROLE = """create function app.escalate(value text) returns boolean language plpgsql as $$
  begin
    execute 'reset role';
    execute 'alter role test_app superuser';
    return true;
  exception when others then
    return true;
  end $$"""


@pytest.fixture(autouse=True)
def app_is_no_superuser_afterwards(owner):
    yield
    assert owner.run("select rolsuper from pg_roles where rolname = 'test_app'") == [(False,)]


@pytest.fixture
def app(logins, owner):
    owner.run("create schema app authorization test_app")
    return logins()


@pytest.mark.parametrize("attack", [ESCALATE, RESET_ROLE], ids=["as it is", "reset role"])
@pytest.mark.parametrize(
    "expression",
    [
        "case when tags = '{vip}' then 'vip/' else 'std/' end || id",
        "case when 'x'::app.tag = 'x' then 'a/' else 'b/' end || id",
    ],
)
def test_parsing_an_expression_runs_with_the_table_owners_rights(owner, app, attack, expression):
    app.run(attack)
    app.run(
        "create domain app.tag as text check (app.escalate(value)); "
        "create table app.orders (id integer primary key, tags app.tag[])"
    )
    owner.run("select fencing.protect('app.orders', %s)", expression)
    assert owner.run("select rolsuper from pg_roles where rolname = 'test_app'") == [(False,)]
    assert owner.run("select count(*) from pg_namespace where nspname like 'fencing_probe%'") == [(0,)]


@pytest.mark.parametrize(
    "column",
    [
        "note app.label",
        "note app.label[]",
        "n integer check (app.is_good(n))",
        "n integer default app.number()",
        "n integer, exclude (app.same(n) with =)",
        "n integer generated always as (app.same(0)) stored",
        "n public.numbered",
        "n public.cast_to_label",
        "n public.compared",
        "n integer) partition by list ((app.same(n))",
    ],
)
def test_code_of_a_third_role_in_a_table_is_refused_and_named(owner, app, column):
    app.run("create domain app.label as text check (value <> '')")
    app.run("create function app.is_good(n integer) returns boolean language sql immutable as 'select true'")
    app.run("create function app.number() returns integer language sql immutable as 'select 1'")
    app.run("create function app.same(n integer) returns integer language sql immutable as 'select n'")
    app.run("create function app.equal(a integer, b integer) returns boolean language sql immutable as 'select a = b'")
    owner.run(
        "create operator public.=== (function = app.equal, leftarg = integer, rightarg = integer); "
        "create domain public.numbered as integer default app.number()"
    )
    owner.run(
        "create domain public.cast_to_label as text check (value::app.label <> 'x'); "
        "create domain public.compared as integer check (value operator(public.===) value)"
    )
    owner.run(f"create table public.notes (id integer, {column})")
    for call in ("fencing.protect('public.notes', $$'notes/' || id$$)", "fencing.expose_table('public.notes')"):
        error = owner.fails(f"select {call}")
        assert error.pgcode == "42501" and "belongs to test_app" in str(error), error
    assert owner.run("select fencing.guard_faults()") == []


@pytest.mark.parametrize(
    "query",
    [
        "select app.total(stock) as n from public.inventory",
        "select public.total(stock) as n from public.inventory",
        "select * from app.shown",
        "select * from public.middle",
        "select * from app.own",
        "select * from public.secured",
    ],
)
def test_code_of_a_third_role_below_a_view_is_refused_and_named(owner, app, query):
    app.run(
        "create function app.add(a bigint, b bigint) returns bigint language sql immutable as 'select a + b'; "
        "create aggregate app.total(bigint) (sfunc = app.add, stype = bigint)"
    )
    app.run(
        "create table app.own (id integer); create view app.shown as select 1 as n; "
        "grant usage on schema app to public; grant select on app.shown to public"
    )
    owner.run(
        "create aggregate public.total(bigint) (sfunc = app.add, stype = bigint); "
        "create view public.middle as select * from app.shown"
    )
    owner.run(
        "create table public.secured (id integer); alter table secured enable row level security; "
        "create policy shown on secured using (exists (select from app.shown where n = id))"
    )
    owner.run(
        "create view public.listed as select stock as n from public.inventory; "
        "select fencing.expose_table('public.listed', operations => '{select}')"
    )
    assert owner.run("select fencing.guard_faults()") == []
    owner.run(f"drop view public.listed; create view public.listed as {query}")
    error = owner.fails("select fencing.expose_table('public.listed')")
    assert error.pgcode == "42501" and "belongs to test_app" in str(error), error
    owner.run("update fencing.exposed set relation = 'public.listed' where name = 'listed'")
    assert [
        fault
        for fault, in owner.run("select fencing.guard_faults()")
        if fault.startswith("public.listed: ") and "belongs to test_app" in fault
    ]


PROTECT_PARTS, EXPOSE_PARTS = (
    "fencing.protect('public.parts', $$'parts/' || id$$)",
    "fencing.expose_table('public.parts')",
)


@pytest.mark.parametrize("call", [PROTECT_PARTS, EXPOSE_PARTS], ids=["protect", "expose_table"])
@pytest.mark.parametrize(
    "change",
    ["alter table public.parts_1 add check (app.is_good(id))", "alter table public.parts_1 owner to test_app"],
    ids=["constraint", "owner"],
)
def test_partition_of_a_third_role_is_refused_and_named(owner, app, call, change):
    app.run("create function app.is_good(n integer) returns boolean language sql immutable as 'select true'")
    owner.run(
        "create table public.parts (id integer) partition by range (id); "
        "create table parts_1 partition of parts for values from (0) to (10)"
    )
    owner.run(f"select {call}")
    assert owner.run("select fencing.guard_faults()") == []
    owner.run(change)
    assert [
        fault
        for fault, in owner.run("select fencing.guard_faults()")
        if fault.startswith("public.parts: ") and "belongs to test_app" in fault
    ]
    error = owner.fails(f"select {call}")
    assert error.pgcode == "42501" and "belongs to test_app" in str(error), error


def test_unlogged_partition_is_refused_by_expose_and_attach(owner):
    owner.run(
        "create table public.parts (id integer) partition by range (id); "
        "create unlogged table parts_1 partition of parts for values from (0) to (10); "
        "create unlogged table parts_2 (id integer)"
    )
    for call in (PROTECT_PARTS, EXPOSE_PARTS):
        error = owner.fails(f"select {call}")
        assert error.pgcode == "42809" and "unlogged" in str(error), error
    owner.run(f"alter table parts_1 set logged; select {PROTECT_PARTS}")
    for attempt in (
        "alter table parts attach partition parts_2 for values from (10) to (20)",
        "create unlogged table parts_3 partition of parts for values from (20) to (30)",
    ):
        error = owner.fails(attempt)
        assert error.pgcode == "55000" and "is unlogged" in str(error), (attempt, error)


def test_code_that_a_protected_table_gets_later_is_named(owner, app):
    app.run("create function app.is_good(n bigint) returns boolean language sql as 'select true'")
    owner.run("alter table public.inventory add constraint good check (app.is_good(stock))")
    assert [
        fault
        for fault, in owner.run("select fencing.guard_faults()")
        if "function app.is_good(" in fault and "belongs to test_app" in fault
    ]


@pytest.mark.parametrize("expression, name", [("k", "x"), ("'nk/' || k", "nk/x")])
def test_row_without_a_resource_stays_closed_without_array_nulls(owner, logins, expression, name):
    owner.run(
        "create table public.keyed (id integer primary key, k text, v integer); insert into keyed values (1, 'x'); "
        "grant select, insert, update on keyed to test_app"
    )
    owner.run("select fencing.protect('public.keyed', %s)", expression)
    app = logins()
    app.run("set array_nulls = off")
    for resource in ("NULL", "null"):
        app.run("begin")
        app.run("select fencing.enter(array[%s, %s], 1)", resource, name)
        assert app.sqlstate("update public.keyed set k = null where id = 1") == "FG403"
        app.run("rollback; begin")
        app.run("select fencing.enter(%s, 1)", resource)
        assert app.sqlstate("insert into public.keyed values (2, null), (3, null)") == "FG403"
        app.run("rollback")


def test_quoting_of_identifiers_does_not_change_a_resource(owner, logins):
    owner.run(
        "create table public.named (name text, v integer); insert into named values ('x'); "
        "grant select, update on named to test_app"
    )
    for setting in ("off", "on"):
        owner.run(
            f"set quote_all_identifiers = {setting}; "
            "select fencing.protect('public.named', $$'q/' || quote_ident(name)$$)"
        )
    assert owner.run("select relation_name from fencing.protected where relation = 'public.named'::regclass") == [
        ("public.named",)
    ]
    app = logins()
    app.run("""set quote_all_identifiers = on; begin; select fencing.enter('q/x', 1)""")
    app.run("update public.named set v = 1; commit")
    assert owner.run("select v from public.named") == [(1,)]


def test_unlogged_tables_are_refused_and_named(owner):
    owner.run("create unlogged table public.fast (id integer primary key)")
    for call in ("fencing.protect('public.fast', $$'fast/' || id$$)", "fencing.expose_table('public.fast')"):
        error = owner.fails(f"select {call}")
        assert error.pgcode == "42809" and "unlogged" in str(error), error
    owner.run("select fencing.expose_table('public.fast', operations => '{select}')")
    owner.run(
        "create table public.slow (id integer primary key); select fencing.protect('public.slow', $$'slow/' || id$$)"
    )
    error = owner.fails("alter table public.slow set unlogged")
    assert error.pgcode == "55000" and "public.slow is unlogged" in str(error), error
    owner.run("alter event trigger fencing_refuse_openings disable; alter table public.slow set unlogged")
    assert [
        fault for fault, in owner.run("select fencing.guard_faults()") if fault.startswith("public.slow is unlogged")
    ]


def test_openings_by_schemas_views_and_extensions_are_refused(owner):
    owner.run(
        "create schema app; create table app.stock (id integer primary key, n integer); create schema other; "
        "create table other.stock (id integer); create table app.s2 (id integer)"
    )
    owner.run("select fencing.protect('app.stock', $$'stock/' || id$$)")
    for attempt in (
        "create schema s1 create table child () inherits (app.stock)",
        "alter schema app rename to app_old; alter schema other rename to app",
        "alter table app.stock rename to stock_old; create view app.stock as select * from app.stock_old",
        "alter table app.stock rename to stock_old; alter index app.s2 rename to stock",
        "create extension citext schema other; alter extension citext add table other.stock; "
        "alter table app.stock rename to stock_old; alter extension citext set schema app",
        "create extension citext; alter trigger fencing_verify_update on app.stock depends on extension citext; "
        "drop extension citext",
    ):
        error = owner.fails(f"do $do$ begin execute $$ {attempt.replace('; ', ' $$; execute $$ ')} $$; end $do$")
        assert error.pgcode == "55000" and "this would open a protected table" in str(error), (attempt, error)
    assert owner.run("select fencing.guard_faults()") == []


def test_protect_takes_columns_of_every_name(owner):
    owner.run(
        "create table public.odd (n integer, probe text, other text, fencing_row text, result integer, "
        "expression integer)"
    )
    for column in ("n", "probe", "other", "fencing_row", "result", "expression"):
        owner.run("select fencing.protect('public.odd', %s)", f"'odd/' || {column}")


def test_events_of_a_gateway_have_possible_times_and_tokens(logins, owner):
    gateway = logins("test_gateway")
    for at in ("infinity", "-infinity", "0044-03-15 BC", "9999-01-01"):
        gateway.run(
            "select fencing.record_events(jsonb_build_array(jsonb_build_object('event', 'lease_granted', 'resource', "
            "'odd/time', 'at', %s, 'fencing_token', -5, 'last_fencing_token', 9223372036854775807)))",
            at,
        )
    gateway.run(
        "select fencing.append_events(gen_random_uuid(), 1, array[9223372036854775807], array['lease_granted'], "
        "array['odd/time'], array[-1], array[-1], array[null], array[null], array[null], array[null]::uuid[], "
        "array[null]::jsonb[])"
    )
    rows = owner.run(
        "select at between now() - interval '1 minute' and now() + interval '1 minute', fencing_token, "
        "last_fencing_token from fencing.history where resource = 'odd/time'"
    )
    assert rows == [(True, None, None)] * 5
    assert gateway.sqlstate("select fencing.draw_epoch('redis-1', repeat('l', 1000), true, 0)") == "22023"


def test_one_call_creates_few_partitions(logins, owner):
    gateway = logins("test_gateway")
    gateway.run(
        "select fencing.record_events(jsonb_agg(jsonb_build_object('event', 'lease_granted', 'at', "
        "now() - n * interval '7 days'))) from generate_series(1, 400) as t (n)"
    )
    made = [gateway.run("select made from fencing.keep_history(0)")[0][0] for _ in range(2)]
    assert max(made) <= 29 and min(made) > 0, made
