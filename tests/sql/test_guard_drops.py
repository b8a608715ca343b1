"""Drops of the guard and its parts: they are refused, and what is missing all the same is named and lets nothing in."""

import re

import pytest
from sessions import WITHOUT_EVENT_TRIGGERS
from test_catalogue import SCHEMA_FILES, SQL

DROPS_OF_THE_GUARD = [
    "drop schema fencing cascade",
    "drop schema if exists public, fencing cascade",
    "drop table fencing.guard cascade",
    "drop table fencing.history cascade",
    "drop table fencing.protected cascade",
    "drop function fencing.storage_floor(text, bigint)",
    "drop function fencing.refuse_openings() cascade",
    "drop function fencing_event_triggers.refuse_drop_of_guard() cascade",
    "drop table fencing_event_triggers.guard_is_dropped_only_after_its_event_triggers",
    "drop view fencing.api_catalog",
    "drop sequence fencing.history_id_seq cascade",
    "drop domain fencing.resource_name cascade",
    "alter table fencing.guard drop constraint guard_pkey",
    "alter table fencing.guard drop column entered_at",
    "drop trigger history_append_only on fencing.history",
    "drop function fencing.{}() cascade",
]


@pytest.mark.parametrize("change", DROPS_OF_THE_GUARD)
def test_drop_of_the_guard_is_refused(owner, change):
    ((check_function,),) = owner.run(
        "select check_function from fencing.protected where relation = 'inventory'::regclass"
    )
    error = owner.fails(change.format(check_function))
    assert error.pgcode == "55000" and "part of the guard" in str(error), error
    assert owner.sqlstate("update inventory set stock = 0 where sku = 'sku-1'") == "FG428"
    assert owner.run("select fencing.guard_faults()") == []


GIVE_GUARD_AWAY = """
create role guard_owner superuser;
do $$
declare
  item text;
begin
  for item in
    with schemas as (select oid from pg_namespace where nspname in ('fencing', 'fencing_event_triggers'))
    select format('schema %s', oid::regnamespace) from schemas
    union all select format('function %s', p.oid::regprocedure) from pg_proc p join schemas s on s.oid = p.pronamespace
    union all select format('table %s', c.oid::regclass) from pg_class c join schemas s on s.oid = c.relnamespace
               where c.relkind in ('r', 'p', 'v')
    union all select format('domain %s', t.oid::regtype) from pg_type t join schemas s on s.oid = t.typnamespace
               where t.typtype = 'd'
    union all select format('event trigger %I', e.evtname) from pg_event_trigger e
  loop
    execute format('alter %s owner to guard_owner', item);
  end loop;
end
$$;
"""


@pytest.mark.parametrize(
    "change",
    [
        "drop schema fencing, fencing_event_triggers cascade",
        "drop schema fencing_event_triggers, public, fencing cascade",
        "drop schema fencing_event_triggers cascade",
        "drop owned by guard_owner cascade",
        "do $$ begin drop schema fencing_event_triggers, fencing cascade; end $$",
        "drop extension plpgsql cascade",
        "alter extension plpgsql drop language plpgsql; drop language plpgsql cascade",
    ],
)
def test_drop_of_the_event_triggers_with_their_schema_is_refused(owner, change):
    owner.run("begin")
    if "owned" in change:
        owner.run(GIVE_GUARD_AWAY)
    owner.run("savepoint before")
    error = owner.fails(change)
    assert error.pgcode == "55006" and "guard_is_dropped_only_after_its_event_triggers" in str(error), error
    owner.run("rollback to before")
    assert owner.run("select count(*) from pg_event_trigger where evtname like 'fencing%'") == [(5,)]
    owner.run("rollback")


def test_other_schemas_are_dropped(logins, owner):
    """Also several in one transaction, by roles without privileges on the guard, and beside cursors of any name."""
    owner.run("create schema gone authorization test_app; create schema left_alone authorization test_app")
    app = logins()
    app.run("begin; declare fencing_hold_schemas cursor for select 1; drop schema gone; drop schema if exists gone")
    assert app.run("select name from pg_cursors") == []
    app.run("create temporary table own (); drop owned by test_app; commit")
    assert owner.run("select count(*) from pg_namespace where nspname in ('gone', 'left_alone')") == [(0,)]
    app.run("begin; savepoint before")
    assert app.sqlstate("drop schema nowhere") == "3F000"
    app.run("rollback to before; drop schema if exists nowhere; commit")


def test_parts_that_are_replaced_in_time_can_be_dropped(owner):
    owner.run(
        "create index by_owner on fencing.history (owner); drop index fencing.by_owner; "
        "create temporary table guard (id integer); drop table guard"
    )
    owner.run("select fencing.protect('inventory', $$'inventory/' || sku$$); select fencing.unprotect('orders')")
    owner.run("select fencing.make_history_partition('2020-01-06')")
    assert owner.run("select dropped from fencing.rotate_history('90 days')") == [(1,)]
    for file in SCHEMA_FILES:
        owner.run(file.read_text())
    assert owner.run("select fencing.guard_faults()") == []


def test_guard_is_removed_as_the_documents_say(owner):
    text = (SQL.parent / "docs/guard.md").read_text()
    owner.run(re.search(r"### Remove the guard\n.*?```sql\n(.*?)```", text, re.DOTALL)[1])
    assert owner.run("select count(*) from pg_namespace where nspname in ('fencing', 'fencing_event_triggers')") == [
        (0,)
    ]
    owner.run("update inventory set stock = 0 where sku = 'sku-1'")


@pytest.mark.parametrize(
    "change, named",
    [
        ("drop table fencing.guard cascade", "the table fencing.guard is missing"),
        ("drop view fencing.api_catalog", "the table fencing.api_catalog is missing"),
        ("alter table fencing.guard drop constraint guard_pkey", "the table fencing.guard is not the one"),
        ("alter table fencing.guard set unlogged", "the table fencing.guard is not the one"),
        ("create rule deaf as on update to fencing.guard do instead nothing", "the table fencing.guard is not the one"),
        ("drop schema fencing_event_triggers cascade", "refuse_drop_of_guard() is not the one"),
    ],
)
def test_missing_part_of_the_guard_is_named(owner, change, named):
    owner.run(WITHOUT_EVENT_TRIGGERS)
    before = set(owner.run("select fencing.guard_faults()"))
    owner.run(change)
    assert any(named in fault for fault, in set(owner.run("select fencing.guard_faults()")) - before)


def test_guard_table_made_anew_lets_nothing_in(owner):
    """Its fences are gone: a gateway has to set the floor above all tokens."""
    owner.run("select fencing.enter('inventory/sku-1', 9)")
    owner.run(WITHOUT_EVENT_TRIGGERS + "; drop table fencing.guard cascade")
    for file in SCHEMA_FILES:
        owner.run(file.read_text())
    assert owner.run("select fencing.guard_faults()") == []
    assert owner.sqlstate("select fencing.enter('inventory/sku-1', 8)") == "FG503"
    ((change, epoch),) = owner.run("select * from fencing.begin_generation_change(3)")
    owner.run("select fencing.finish_generation_change(%s, 'g', null)", change)
    assert owner.sqlstate("select fencing.enter('inventory/sku-1', 8)") == "FG412" and owner.run(
        "select fencing.fence('inventory/sku-1')"
    ) == [(epoch << 32,)]
