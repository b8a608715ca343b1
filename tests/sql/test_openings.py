"""Changes that open a protected table are refused or seen by protect(), and only those are refused."""

import threading

import psycopg2
import pytest
from sessions import WITHOUT_EVENT_TRIGGERS
from support.polling import eventually
from test_catalogue import SCHEMA_FILES

WAIT_SECONDS_MAX = 30


@pytest.mark.parametrize(
    "change, sqlstate",
    [("alter table public.late set unlogged", "42809"), ("alter table public.late inherit public.parent", "0A000")],
)
def test_protect_sees_what_was_committed_while_it_waited(logins, owner, change, sqlstate):
    owner.run(f"create table public.late (id integer); create table public.parent (id integer)")
    owner.run("begin")
    owner.run(change)
    other = logins("postgres")
    failures = []

    def protect():
        try:
            other.run("select fencing.protect('public.late', $$'late/' || id$$)")
        except psycopg2.Error as error:
            failures.append(error.pgcode)

    thread = threading.Thread(target=protect)
    thread.start()
    observer, pid = logins("postgres"), other.connection.info.backend_pid
    waits = "select pid from pg_locks where pid = %s and not granted"
    eventually(lambda: observer.run(waits, pid), WAIT_SECONDS_MAX, goal="it waits")
    owner.run("commit")
    thread.join()
    assert failures == [sqlstate]


def test_old_event_trigger_is_named_and_replaced(owner):
    owner.run("drop event trigger fencing_refuse_openings")
    owner.run(
        "create event trigger fencing_refuse_openings on ddl_command_end when tag "
        "in ('ALTER TABLE') execute function fencing.refuse_openings()"
    )
    owner.run("alter event trigger fencing_refuse_openings enable always")
    assert [
        fault
        for fault, in owner.run("select fencing.guard_faults()")
        if "the event trigger fencing_refuse_openings" in fault
    ]
    for file in SCHEMA_FILES:
        owner.run(file.read_text())
    assert owner.run("select fencing.guard_faults()") == []


def test_owner_alters_a_table_with_faults(logins, owner):
    """What was opened while the event trigger was off, or by a superuser,
    does not prevent changes that open nothing."""
    owner.run(
        "create table public.kept (id integer); alter table kept owner to test_app; "
        "select fencing.protect('public.kept', $$'kept/' || id$$)"
    )
    ((name,),) = owner.run("select check_function from fencing.protected where relation = 'public.kept'::regclass")
    owner.run(
        f"create or replace function fencing.{name}() returns trigger language plpgsql as 'begin return null; end'"
    )
    owner.run(
        "create function public.own() returns trigger language plpgsql as 'begin return null; end'; "
        "alter function public.own() owner to test_app; alter event trigger fencing_refuse_openings disable"
    )
    for trigger in ("fencing_d", "fencing_e"):
        owner.run(f"create trigger {trigger} after insert on public.kept for each row execute function public.own()")
    owner.run("alter event trigger fencing_refuse_openings enable always")
    app = logins()
    for change in (
        "alter table public.kept add column note text",
        "drop trigger fencing_d on public.kept",
        "alter trigger fencing_e on public.kept rename to own",
    ):
        app.run(change)
    for attempt in (
        "alter table public.kept disable trigger all",
        "alter table public.kept enable replica trigger fencing_check_insert",
    ):
        error = app.fails(attempt)
        assert error.pgcode == "55000" and "is not always on" in str(error), error


def test_partition_with_trigger_between_checks_is_not_attached(owner):
    owner.run(
        "create table public.parts (id integer) partition by range (id); create table public.parts_1 (id integer); "
        "create table public.parts_2 (id integer)"
    )
    owner.run(
        "create function public.own() returns trigger language plpgsql as 'begin return null; end'; "
        "create trigger fencing_d after insert on parts_1 for each row execute function own()"
    )
    owner.run("select fencing.protect('public.parts', $$'parts/' || id$$)")
    error = owner.fails("alter table parts attach partition parts_1 for values from (0) to (10)")
    assert error.pgcode == "55000" and "fencing_d runs between the checks" in str(error), error
    owner.run("alter table parts attach partition parts_2 for values from (10) to (20)")


def test_former_name_of_a_protected_table_stays_reserved(owner):
    owner.run("create table public.swap_a (id integer); select fencing.protect('swap_a', $$'swap/' || id$$)")
    owner.run("alter table swap_a rename to swap_a_old; select fencing.protect('swap_a_old', $$'swap/' || id$$)")
    owner.run("select fencing.protect('swap_a_old', $$'swap/' || id$$)")
    changes = (
        "select detail ->> 'relation', detail ->> 'renamed_from' from fencing.history "
        "where detail ->> 'action' = 'protect' order by id"
    )
    assert owner.run(changes)[-3:] == [
        ("public.swap_a", None),
        ("public.swap_a_old", "public.swap_a"),
        ("public.swap_a_old", None),
    ]
    error = owner.fails("create table public.swap_a (id integer)")
    assert error.pgcode == "55000" and "which is now public.swap_a_old" in str(error), error
    assert owner.run("select fencing.guard_faults()") == []
    # As where no superuser installed the guard: the fault is named, also to gateways.
    create = (
        "alter event trigger fencing_refuse_openings disable; create table public.{0} (id integer); "
        "alter event trigger fencing_refuse_openings enable always"
    )
    owner.run(create.format("swap_a"))
    ((fault,),) = owner.run("select fencing.guard_faults()")
    assert fault.startswith("public.swap_a: a table of this name was protected, which is now public.swap_a_old"), fault
    assert owner.run("select fencing.watch_guard()") == [(fault,)]
    assert owner.run("select detail ->> 'relation' from fencing.history where detail ->> 'action' = 'fault_found'") == [
        ("public.swap_a",)
    ]
    owner.run("select fencing.protect('swap_a', $$'swap/' || id$$)")
    assert owner.run("select fencing.watch_guard()") == []
    # unprotect() of either table frees the names.
    owner.run("select fencing.unprotect('swap_a')")
    assert owner.run("select fencing.guard_faults()") == []
    owner.run(
        "alter table swap_a_old rename to swap_b; select fencing.protect('swap_b', $$'swap/' || id$$); "
        "select fencing.unprotect('swap_b'); create table public.swap_a_old (id integer)"
    )
    assert owner.run("select fencing.guard_faults()") == [] and owner.run("select * from fencing.former_name") == []


def test_protected_table_takes_the_name_of_another(owner):
    """The usual way to replace a table: nothing is refused, and nothing stays reserved."""
    for name in ("live", "next"):
        owner.run(f"create table public.{name} (id integer); select fencing.protect('{name}', $$'live/' || id$$)")
    owner.run("begin; alter table live rename to before; alter table next rename to live; commit")
    for name in ("before", "live"):
        owner.run(f"select fencing.protect('{name}', $$'live/' || id$$)")
    assert owner.run("select fencing.guard_faults()") == []


COUNTED = (
    "begin; set local track_functions = 'all'; {}; "
    "select f.funcname, f.calls from pg_stat_xact_user_functions f where f.schemaname = 'fencing'"
)


def calls_of(owner, statement):
    """Returns how often each function of the schema was called."""
    calls = dict(owner.run(COUNTED.format(statement)))
    owner.run("rollback")
    return calls


def make_partitions(owner, table, count):
    owner.run(f"create table public.{table} (id integer, place integer) partition by range (place)")
    owner.run(
        f"do $$ begin for n in 1..{count} loop execute format('create table public.{table}_%1$s partition of "
        f"public.{table} for values from (%1$s) to (%2$s)', n, n + 1); end loop; end $$"
    )


@pytest.mark.parametrize(
    "change",
    [
        "create temporary table scratch (id integer)",
        "create table public.plain (id integer)",
        "alter table public.other add note text",
        "select fencing.protect('public.parts', $$'parts/' || id$$)",
    ],
    ids=["temporary", "create", "alter", "protect"],
)
def test_other_tables_are_changed_without_a_search_for_faults(owner, change):
    owner.run("create table public.other (id integer)")
    make_partitions(owner, "parts", 3)
    calls = calls_of(owner, change)
    assert calls["refuse_openings"] > 0 and "table_faults" not in calls, calls


def test_calls_of_table_faults_do_not_grow_with_partitions(owner):
    make_partitions(owner, "parts", 30)
    owner.run("select fencing.protect('public.parts', $$'parts/' || id$$)")
    roots = 4  # the example has three
    calls = calls_of(owner, "select * from fencing.table_faults()")
    assert calls["triggers_between"] == 1 and calls["expected_triggers"] <= roots + 2, calls


def test_temporary_child_of_a_protected_table_is_refused(logins, owner):
    owner.run(
        "create table public.kept (id integer); alter table kept owner to test_app; "
        "select fencing.protect('public.kept', $$'kept/' || id$$)"
    )
    error = logins().fails("create temporary table child () inherits (public.kept)")
    assert error.pgcode == "55000" and "inherits from it" in str(error), error


def test_each_table_with_a_fault_is_among_those_searched(owner):
    """The event triggers search for faults only if can_have_faults() is true of what a command has changed."""
    for table in ("child_of", "below", "renamed", "twice", "dropped", "open"):
        owner.run(f"create table public.{table} (id integer); select fencing.protect('{table}', $$'{table}/' || id$$)")
    owner.run(
        "create table public.parts (id integer, place integer) partition by range (place); "
        "create table parts_1 partition of parts for values from (1) to (9) partition by range (place)"
    )
    owner.run(
        "create table parts_1_1 partition of parts_1 for values from (1) to (2); "
        "select fencing.protect('parts', $$'parts/' || id$$); create table public.parent (id integer)"
    )
    owner.run(
        "create function public.own() returns trigger language plpgsql as 'begin return null; end'; "
        "create table public.near (id integer)"
    )
    assert owner.run("select fencing.guard_faults()") == []
    owner.run("alter event trigger fencing_refuse_openings disable; alter event trigger fencing_refuse_drops disable")
    owner.run(
        "create temporary table child () inherits (child_of); alter table below inherit parent; "
        "alter table renamed rename to renamed_since; create table public.renamed (id integer)"
    )
    owner.run(
        "alter table twice rename to twice_since; select fencing.protect('twice_since', $$'twice/' || id$$); "
        "create view public.twice as select 1 as id; drop table dropped; create table public.dropped (id integer)"
    )
    owner.run(
        "create table parts_1_2 partition of parts_1 for values from (2) to (3); alter table parts_1_1 set unlogged; "
        "drop trigger fencing_check_insert on open; alter table open disable trigger fencing_verify_update"
    )
    owner.run("create trigger fencing_d after insert on parts_1_2 for each row execute function own()")
    found = owner.run("select distinct about from fencing.table_faults()")
    assert len(found) == 6, found
    named = owner.run(
        "select o.id::regclass::text, fencing.can_have_faults(array[o.id]) from fencing.table_faults() f cross "
        "join unnest(array[f.relation, f.other]) as o (id) join pg_class c on c.oid = o.id"
    )
    assert named and all(possible for _, possible in named), named
    assert owner.run(
        "select fencing.can_have_faults(array['public.near'::regclass::oid, null]), fencing.can_have_faults('{}')"
    ) == [(False, False)]
    owner.run(
        "select fencing.watch_guard(); alter table open rename to opened_since; "
        "alter table parts_1 detach partition parts_1_2"
    )
    assert owner.run("select fencing.can_have_faults(array['public.parts_1_2'::regclass::oid])") == [
        (True,)
    ], "so that the end of its faults is recorded"


def test_foreign_partition_is_refused_and_named(logins, owner):
    owner.run(
        "create extension if not exists postgres_fdw; create server elsewhere foreign data wrapper postgres_fdw; "
        "create table public.base (id integer not null)"
    )
    owner.run("create table public.split (id integer not null) partition by range (id)")
    owner.run(
        "create foreign table public.far partition of public.split for values from (1) "
        "to (9) server elsewhere options (table_name 'base')"
    )
    with pytest.raises(psycopg2.Error) as refused:
        owner.run("select fencing.protect('public.split', $$'split/' || id::text$$)")
    assert refused.value.pgcode == "42809"
    owner.run("alter table public.split detach partition public.far")
    owner.run("select fencing.protect('public.split', $$'split/' || id::text$$)")
    with pytest.raises(psycopg2.Error) as refused:
        owner.run("alter table public.split attach partition public.far for values from (1) to (9)")
    assert refused.value.pgcode == "55000"
    owner.run(
        "drop event trigger fencing_refuse_openings; "
        "alter table public.split attach partition public.far for values from (1) to (9)"
    )
    assert any("far is a foreign table" in fault for (fault,) in owner.run("select fencing.guard_faults()"))
    # One that was attached without the event trigger prevents neither other changes nor that it is detached.
    owner.run(
        "create foreign table public.further partition of public.split for values from (11) "
        "to (19) server elsewhere options (table_name 'base')"
    )
    owner.run("select fencing.watch_guard()")
    owner.run(
        "create event trigger fencing_refuse_openings on ddl_command_end execute function fencing.refuse_openings()"
    )
    owner.run(
        "alter table public.split add column note text; alter table public.split detach partition public.far; "
        "alter table public.split detach partition public.further"
    )


def make_owners_parts(owner):
    owner.run(
        "create table public.parts (id integer, place text) partition by range (id); "
        "create table parts_1 partition of parts for values from (0) to (10); "
        "grant create on schema public to test_app"
    )
    owner.run(
        "alter table parts owner to test_app; alter table parts_1 owner to test_app; "
        "select fencing.protect('parts', $$'parts/' || place$$)"
    )


def test_partitions_that_the_owner_makes_get_all_checks(logins, owner):
    make_owners_parts(owner)
    app = logins()
    owner.run("alter default privileges for role test_app grant all on tables to test_gateway")
    app.run(
        "create table public.parts_2 partition of parts for values from (10) to (20); "
        "create table public.parts_3 (id integer, place text); "
        "alter table parts attach partition parts_3 for values from (20) to (30)"
    )
    app.run(
        "create table public.parts_4 partition of parts for values from (30) to (40) partition by range (id); "
        "create table public.parts_5 partition of parts_4 for values from (30) to (40)"
    )
    for partition, number in (("parts_1", 5), ("parts_2", 15), ("parts_3", 25), ("parts_4", 35), ("parts_5", 35)):
        assert app.sqlstate(f"truncate {partition}") == "FG403", partition
        assert app.sqlstate(f"insert into {partition} values ({number}, 'a')") == "FG428", partition
    owner.run("set session_replication_role = replica")
    assert (
        owner.sqlstate("truncate parts_5") == "FG403"
        and owner.sqlstate("insert into parts_2 values (12, 'a')") == "FG428"
    )
    owner.run("reset session_replication_role")
    assert owner.run("select fencing.guard_faults()") == []
    assert owner.run("select detail ->> 'action' from fencing.history where event = 'guard_changed' order by id") == [
        ("protect",)
    ]
    app.run("alter table parts detach partition parts_3; drop table parts_3; drop table parts_2")
    assert owner.run("select fencing.guard_faults()") == []


def test_new_owner_of_a_partitioned_table_makes_partitions(logins, owner):
    make_owners_parts(owner)
    owner.run(
        "grant create on schema public to test_auditor; alter table parts owner to test_auditor; "
        "alter table parts_1 owner to test_auditor"
    )
    assert owner.run("select fencing.guard_faults()") == []
    assert logins().sqlstate("create table public.parts_2 partition of parts for values from (10) to (20)") == "42501"
    logins("test_auditor").run("create table public.parts_2 partition of parts for values from (10) to (20)")
    assert owner.run("select fencing.guard_faults()") == []
    granted = (
        "select count(*) from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = 'fencing'::regnamespace "
        "and p.proname ~ '^(check_[0-9]|verify_change)' and a.grantee <> p.proowner"
    )
    assert owner.run(granted) == [(2,)]
    owner.run("select fencing.unprotect('parts')")
    assert owner.run(granted) == [(0,)] and owner.run("select fencing.guard_faults()") == []


def test_partition_without_event_triggers_is_completed_later(logins, owner):
    make_owners_parts(owner)
    owner.run(WITHOUT_EVENT_TRIGGERS)
    faults = "select f from fencing.guard_faults() f where f !~ '^the event trigger'"
    app, writer = logins(), logins()
    app.run("create table public.parts_2 partition of parts for values from (10) to (20)")
    assert [fault for fault, in owner.run(faults) if "parts_2: the trigger fencing_check_truncate is missing" in fault]
    writer.run("begin; lock table parts_2 in row exclusive mode")
    gateway = logins("test_gateway")
    assert any(
        "parts_2" in fault for fault, in gateway.run("select fencing.watch_guard()")
    ), "a writer is not waited for"
    writer.run("rollback")
    assert not any("parts_2" in fault for fault, in gateway.run("select fencing.watch_guard()"))
    assert owner.run(faults) == [] and app.sqlstate("truncate parts_2") == "FG403"
