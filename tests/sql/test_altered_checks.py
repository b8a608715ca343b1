"""Checks that the owner of a table disabled and enabled again, where no event trigger saw it."""

import pytest
from test_catalogue import SCHEMA_FILES

EVENT_TRIGGERS = ("refuse_openings", "refuse_drops", "refuse_drop_of_guard", "hold_schemas", "release_schemas")
FAULTS = "select f from fencing.guard_faults() f where f !~ '^the event trigger'"
ALTERED = (
    "public.{}: its checks were altered since protect(), as if they were disabled and enabled again: "
    "rows may have changed unchecked; call protect() again"
)
DISABLE = "alter table public.{} disable trigger user"


@pytest.fixture
def unseen(owner):
    """The session of the owner of the schema and of the tables, without event triggers, as on a managed service."""
    for name in EVENT_TRIGGERS:
        owner.run(f"drop event trigger if exists fencing_{name}")
    owner.run("create table public.parts (id integer, place text) partition by range (id)")
    owner.run("create table public.parts_1 partition of public.parts for values from (0) to (10)")
    owner.run("select fencing.protect('public.parts', $$'parts/' || place$$), fencing.watch_guard()")
    assert owner.run(FAULTS) == []
    return owner


def enable(session, table):
    triggers = "select tgname from pg_trigger where tgrelid = %s::regclass and tgname ~ '^fencing_'"
    for (name,) in session.run(triggers, f"public.{table}"):
        session.run(f"alter table public.{table} enable always trigger {name}")


def add_row_unchecked(session, table):
    session.run("begin; " + DISABLE.format(table))
    session.run(
        "update inventory set stock = 0 where sku = 'sku-1'"
        if table == "inventory"
        else f"insert into public.{table} values (7, 'a')"
    )
    enable(session, table)
    session.run("commit")


def changes(session):
    return session.run(
        """
        select detail ->> 'action', detail ->> 'relation', principal is null, detail ? 'not_before',
               (detail -> 'faults') ->> 0
          from fencing.history
         where event = 'guard_changed' and detail ->> 'action' ~ '^(fault|protect)' order by id"""
    )


@pytest.mark.parametrize(
    "table, names", [("inventory", ["inventory"]), ("parts_1", ["parts_1"]), ("parts", ["parts", "parts_1"])]
)
def test_checks_disabled_and_enabled_again_are_named(unseen, table, names):
    add_row_unchecked(unseen, table)
    expected = [ALTERED.format(name) for name in names]
    assert unseen.run(FAULTS) == [(fault,) for fault in expected]
    root = "inventory" if table == "inventory" else "parts"
    state = f"""select t ->> 'state', t ->> 'reason', t -> 'faults'
                  from jsonb_array_elements(fencing.guard_state() -> 'tables') t
                 where t ->> 'table' = 'public.{root}'"""
    assert unseen.run(state) == [("open", "fault", expected)]
    before = len(changes(unseen))
    unseen.run("select fencing.watch_guard()")
    assert changes(unseen)[before:] == [
        ("fault_found", f"public.{name}", True, True, ALTERED.format(name)) for name in names
    ]
    for file in SCHEMA_FILES:
        unseen.run(file.read_text())
    assert set(unseen.run(FAULTS)) >= {(fault,) for fault in expected}, "an installation does not hide it"
    unseen.run(
        f"""select fencing.protect(p.relation, p.resource_expression)
                     from fencing.protected p where p.relation = 'public.{root}'::regclass"""
    )
    unseen.run("select fencing.watch_guard()")
    assert unseen.run(FAULTS) == [] and unseen.run(state) == [("enforced", None, [])]
    assert {change[:2] for change in changes(unseen)[before + len(names) :] if change[1]} == {
        ("protect", f"public.{root}"),
        *(("fault_gone", f"public.{name}") for name in names),
    }


def test_protect_records_what_no_gateway_has_compared(unseen):
    add_row_unchecked(unseen, "parts_1")
    before = len(changes(unseen))
    unseen.run("select fencing.protect('public.parts', $$'parts/' || place$$)")
    assert changes(unseen)[before:][0] == ("fault_found", "public.parts_1", True, True, ALTERED.format("parts_1"))
    assert ("protect", "public.parts") in {change[:2] for change in changes(unseen)[before:]}
    assert unseen.run(FAULTS) == []


def test_fault_without_comparison_is_not_older_than_protect(unseen):
    unseen.run("update fencing.fault_check set checked_at = null")
    add_row_unchecked(unseen, "inventory")
    [(protected,)] = unseen.run("select protected_at from fencing.protected where relation = 'inventory'::regclass")
    unseen.run("select fencing.protect('inventory', $$'inventory/' || sku$$)")
    found = """
        select (detail ->> 'not_before')::timestamptz from fencing.history
         where detail ->> 'action' = 'fault_found' and detail ->> 'relation' = 'public.inventory'"""
    assert unseen.run(found) == [(protected,)]


RENAMED = """
alter trigger fencing_verify_insert on public.inventory rename to other;
alter trigger other on public.inventory rename to fencing_verify_insert"""
MADE_ANEW = """
drop trigger fencing_check_truncate on public.inventory;
create trigger fencing_check_truncate before truncate on public.inventory
    for each statement execute function fencing.check_truncate('enforce');
alter table public.inventory enable always trigger fencing_check_truncate"""


@pytest.mark.parametrize("change", [RENAMED, MADE_ANEW], ids=["renamed", "made_anew"])
def test_check_renamed_or_made_anew_is_named(unseen, change):
    unseen.run(change)
    assert unseen.run(FAULTS) == [(ALTERED.format("inventory"),)]


def test_check_of_a_partition_that_a_gateway_made_anew_is_named(unseen):
    unseen.run("drop trigger fencing_check_truncate on public.parts_1; select fencing.watch_guard()")
    assert unseen.run(FAULTS) == [(ALTERED.format("parts_1"),)]


def test_partitions_that_come_and_go_are_no_fault(unseen):
    unseen.run("create table public.parts_2 partition of public.parts for values from (10) to (20)")
    unseen.run("select fencing.watch_guard()")
    for change in (
        "alter table public.parts detach partition public.parts_1",
        "alter table public.parts attach partition public.parts_1 for values from (0) to (10)",
        "alter table public.parts detach partition public.parts_1;"
        "drop trigger fencing_check_truncate on public.parts_1;"
        "alter table public.parts attach partition public.parts_1 for values from (0) to (10);"
        "select fencing.watch_guard()",
        "drop table public.parts_2;"
        "create table public.parts_2 partition of public.parts for values from (10) to (20);"
        "select fencing.watch_guard()",
    ):
        unseen.run(change)
        assert unseen.run(FAULTS) == [], change
    for partition in ("parts_1", "parts_2"):  # the new checks are known
        unseen.run(DISABLE.format(partition))
        enable(unseen, partition)
    assert unseen.run(FAULTS) == [(ALTERED.format(name),) for name in ("parts_1", "parts_2")]


def test_partition_alone_after_it_was_detached_is_protected(unseen):
    unseen.run("alter table public.parts detach partition public.parts_1")
    unseen.run("select fencing.protect('public.parts_1', $$'parts/' || place$$)")
    assert unseen.run(FAULTS) == []
    unseen.run("select fencing.unprotect('public.parts_1', true)")
    unseen.run("alter table public.parts attach partition public.parts_1 for values from (0) to (10)")
    unseen.run("select fencing.watch_guard()")
    assert unseen.run(FAULTS) == []


def test_changes_of_the_table_are_no_fault(unseen):
    unseen.run("alter table public.inventory add column extra integer default 1")
    unseen.run("alter table public.inventory alter column extra type bigint; create index on public.inventory (extra)")
    enable(unseen, "inventory")  # they are on already
    unseen.run("vacuum (freeze) pg_trigger")
    unseen.run("vacuum full pg_trigger")
    unseen.run("alter table public.parts add column note text; alter table public.orders rename to orders_2024")
    for file in SCHEMA_FILES:
        unseen.run(file.read_text())
    assert [fault for fault, in unseen.run(FAULTS) if "altered" in fault] == []


def test_other_server_with_the_same_numbers_is_no_fault(unseen):
    """As after pg_upgrade, which keeps the numbers of tables but makes triggers anew."""
    unseen.run(
        """update fencing.recorded_check
                     set system_identifier = system_identifier - 1, trigger_id = trigger_id::bigint + 1"""
    )
    assert unseen.run(FAULTS) == []
    unseen.run("select fencing.watch_guard()")
    known = """select count(*) from fencing.recorded_check r
                 join pg_trigger t on t.oid = r.trigger_id and t.xmin = r.row_version"""
    assert unseen.run(known) == [(27,)]
    add_row_unchecked(unseen, "inventory")
    assert unseen.run(FAULTS) == [(ALTERED.format("inventory"),)]
