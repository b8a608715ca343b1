"""guard_changed is in the history whatever the size of a change,
and whatever gateways and other sessions do at the same time."""

import pytest
from test_catalogue import rows

CHANGES = (
    "select detail ->> 'action', detail ->> 'relation', principal from fencing.history "
    "where event = 'guard_changed' order by id"
)
FAULTS = (
    "select fault from fencing.history h cross join jsonb_array_elements_text(h.detail -> 'faults') fault "
    "where h.detail ->> 'action' = %s order by 1"
)
TRIGGERS = "select tgname from pg_trigger where tgrelid = 'inventory'::regclass and tgname ~ '^fencing_' order by 1"
FOUND, GONE = ("fault_found", "public.inventory", "postgres"), ("fault_gone", "public.inventory", "postgres")


def enable_all(session):
    for (name,) in session.run(TRIGGERS):
        session.run(f"alter table inventory enable always trigger {name}")


def compare_faults(gateway):
    gateway.run("select fencing.watch_guard()")
    gateway.commit()


def without_repeats(changes):
    return [change for place, change in enumerate(changes) if place == 0 or changes[place - 1] != change]


def is_noted(server, database):
    return rows(server, database, "select count(*) > 0 from fencing.known_fault") == [(True,)]


def assert_only_protect_ends_it(superuser, gateway, server, database):
    """That the checks are on again does not end the fault: what changed meanwhile was not checked."""
    compare_faults(gateway)
    altered = "select count(*) from fencing.known_fault where fault ~ '^public.inventory: its checks were altered'"
    assert rows(server, database, altered) == [(1,)]
    assert rows(server, database, "select count(*) from fencing.known_fault") == [(1,)]
    superuser.run("set transaction isolation level read committed")
    superuser.run("select fencing.protect('inventory', $$'inventory/' || sku$$)")
    superuser.commit()
    compare_faults(gateway)
    assert not is_noted(server, database)


def test_long_lists_of_faults_are_recorded_whole(sessions, server, database):
    owner = sessions(user="postgres")
    roles = [f"team_{number}" for number in range(4)]
    owner.run("; ".join(f"create role {role}" for role in roles))
    try:
        owner.run("; ".join(f"grant all on all tables in schema fencing to {role}" for role in roles))
        found = sorted(owner.run("select fencing.watch_guard()"))
        assert sum(len(fault) for fault, in found) > 65536
        owner.run("; ".join(f"revoke all on all tables in schema fencing from {role}" for role in roles))
        assert owner.run("select fencing.watch_guard()") == []
        owner.commit()
        assert {action for action, _, _ in rows(server, database, CHANGES)} == {"fault_found", "fault_gone"}
        assert rows(server, database, "select max(pg_column_size(detail)) < 65536 from fencing.history") == [(True,)]
        for action in ("fault_found", "fault_gone"):
            assert sorted(owner.run(FAULTS, action)) == found
    finally:
        owner.rollback()
        owner.run("; ".join(f"drop owned by {role}; drop role {role}" for role in roles))
        owner.commit()


def test_long_expression_is_cut_in_the_history(sessions, server, database):
    owner = sessions(user="postgres")
    expression = f"case when sku = '{'x' * 70_000}' then 'inventory/x' else 'inventory/' || sku end"
    owner.run("select fencing.protect('inventory', %s)", expression)
    owner.commit()
    ((detail,),) = rows(server, database, "select detail from fencing.history where event = 'guard_changed'")
    assert (detail["action"], detail["relation"], detail["mode"], detail["was"]) == (
        "protect",
        "public.inventory",
        "enforce",
        "enforce",
    )
    assert detail["resource_expression"] == expression[:2000] + f"... ({len(expression)} bytes)"


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_fault_made_and_mended_in_one_transaction_is_recorded(sessions, server, database, isolation):
    """A gateway compares the faults meanwhile, after the snapshot."""
    superuser, gateway = sessions(user="postgres", isolation=isolation), sessions(user="test_gateway")
    superuser.run("select count(*) from inventory")
    compare_faults(gateway)
    superuser.run("alter table inventory disable trigger user")
    superuser.run("update inventory set stock = 0")
    enable_all(superuser)
    superuser.commit()
    assert without_repeats(rows(server, database, CHANGES)) == [FOUND, GONE]
    assert_only_protect_ends_it(superuser, gateway, server, database)


def test_fault_is_recorded_while_a_gateway_compares(sessions, server, database):
    superuser, gateway = sessions(user="postgres"), sessions(user="test_gateway")
    gateway.run("select fencing.watch_guard()")
    superuser.run("set lock_timeout = '2s'; alter table inventory disable trigger user")
    superuser.commit()
    gateway.commit()
    enable_all(superuser)
    superuser.commit()
    assert without_repeats(rows(server, database, CHANGES)) == [FOUND, GONE]
    assert_only_protect_ends_it(superuser, gateway, server, database)


def test_fault_that_a_gateway_has_just_found_is_recorded_as_gone(sessions, server, database):
    """Made unseen; the gateway's transaction that finds it is still open, or was committed after the snapshot,
    when the checks are enabled."""
    superuser, gateway = sessions(user="postgres", isolation="repeatable read"), sessions(user="test_gateway")
    superuser.run(
        "alter event trigger fencing_refuse_openings disable; alter table inventory disable trigger user; "
        "alter event trigger fencing_refuse_openings enable always"
    )
    superuser.commit()
    superuser.run("select count(*) from inventory")
    assert len(gateway.run("select fencing.watch_guard()")) > 1
    gateway.commit()
    enable_all(superuser)
    superuser.commit()
    assert_only_protect_ends_it(superuser, gateway, server, database)
    assert {change[:2] for change in rows(server, database, CHANGES)} == {
        FOUND[:2],
        GONE[:2],
        ("protect", "public.inventory"),
    }
    assert set(superuser.run(FAULTS, "fault_found")) == set(superuser.run(FAULTS, "fault_gone"))


def test_commands_on_two_tables_do_not_wait_for_each_other(sessions, server, database):
    first, second = sessions(user="postgres"), sessions(user="postgres")
    first.run("alter table inventory disable trigger user")
    second.run("set lock_timeout = '2s'; alter table orders disable trigger user")
    second.commit()
    first.commit()
    assert sorted(rows(server, database, CHANGES)) == [FOUND, ("fault_found", "public.orders", "postgres")]


def test_fence_all_is_recorded_with_who_called_it(sessions, server, database):
    owner = sessions(user="postgres")
    owner.run("select fencing.fence_all('a snapshot was put back')")
    assert rows(server, database, CHANGES) == [], "not before the commit"
    owner.commit()
    recorded = (
        "select detail ->> 'action', detail ->> 'reason', principal from fencing.history where event = 'guard_changed'"
    )
    assert rows(server, database, recorded) == [("fence_all", "a snapshot was put back", "postgres")]
