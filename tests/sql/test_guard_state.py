"""guard_state() says of each table whether it is enforced, observed or open, since when and by whom,
and what the installation can't notice."""

import psycopg2
import pytest
from sessions import WITHOUT_EVENT_TRIGGERS

PROTECT = "select fencing.protect('inventory', $$'inventory/' || sku$$)"


def state(login):
    ((found,),) = login.run("select fencing.guard_state()")
    return found


def table(login, name="public.inventory"):
    """Returns the only entry of the table, or None."""
    found = [entry for entry in state(login)["tables"] if entry["table"] == name]
    assert len(found) <= 1, found
    return found[0] if found else None


def facts(login, name="public.inventory"):
    entry = table(login, name)
    return entry and (entry["state"], entry["reason"], entry["principal"])


def test_state_of_a_whole_guard(owner):
    found = state(owner)
    assert (found["faults"], found["limits"], found["compared_at"]) == ([], [], None)
    assert found["storage_generation"] == {"timeline": 1, "floor": 0}
    assert [
        (entry["table"], entry["state"], entry["reason"], entry["principal"], entry["faults"])
        for entry in found["tables"]
    ] == [(f"public.{name}", "enforced", None, "postgres", []) for name in ("inventory", "order_events", "orders")]
    assert owner.run(
        "select to_char(protected_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') from fencing.protected "
        "where relation = 'inventory'::regclass"
    ) == [(found["tables"][0]["since"],)]
    owner.run("select fencing.watch_guard()")
    assert state(owner)["compared_at"].endswith("Z")


def test_unprotected_and_observed_tables_are_shown(logins, owner):
    owner.run("create role case_operator superuser login")
    try:
        other = logins("case_operator")
        other.run("select fencing.unprotect('inventory')")
        assert (
            facts(owner) == ("open", "unprotected", "case_operator")
            and table(owner)["since"]
            and owner.run("select fencing.guard_faults()") == []
        )
        owner.run("select fencing.protect('inventory', $$'inventory/' || sku$$, 'observe')")
        assert facts(owner) == ("observed", None, "postgres")
        other.run(PROTECT)
        assert facts(owner) == ("enforced", None, "case_operator")
        assert state(owner)["faults"] == [], "what protect() makes belongs to the owner of the schema"
        other.run("select fencing.make_history_partition('2020-01-06'); select fencing.rotate_history('90000 days')")
        assert state(owner)["faults"] == []
    finally:
        other.connection.close()
        owner.run("drop role case_operator")


def test_table_that_needs_no_protection_any_more_is_not_open(owner):
    owner.run("select fencing.unprotect('inventory', for_good => true); select fencing.unprotect('orders')")
    assert facts(owner) is None and facts(owner, "public.orders") == ("open", "unprotected", "postgres")
    owner.run("select fencing.unprotect('orders', true)")
    assert facts(owner, "public.orders") is None
    assert owner.run(
        "select detail ->> 'relation', detail ->> 'was', detail ->> 'for_good' from fencing.history "
        "where event = 'guard_changed' order by id"
    ) == [("public.inventory", "enforce", "true"), ("public.orders", "enforce", None), ("public.orders", None, "true")]
    for call in ("fencing.unprotect('orders', true)", "fencing.unprotect('orders')"):
        assert owner.sqlstate(f"select {call}") == "42704"
    owner.run("select fencing.unprotect('order_events'); drop table order_events")
    assert state(owner)["tables"] == []


def test_table_with_a_fault_is_open(logins, owner):
    gateway = logins("test_gateway")
    gateway.run("select fencing.watch_guard()")
    owner.run("alter table inventory disable trigger user")
    entry = table(owner)
    assert facts(owner) == ("open", "fault", "postgres") and entry["since"] and entry["not_before"] is None
    assert entry["fault_count"] == len(entry["faults"]) == 7 and entry["faults"] == state(owner)["faults"]
    owner.run(PROTECT)
    assert facts(owner) == ("enforced", None, "postgres")
    # Found by a gateway, and before that.
    owner.run(WITHOUT_EVENT_TRIGGERS + "; alter table orders disable trigger user")
    assert facts(owner, "public.orders") == ("open", "fault", None) and table(owner, "public.orders")["since"] is None
    gateway.run("select fencing.watch_guard()")
    entry = table(gateway, "public.orders")
    assert facts(owner, "public.orders") == ("open", "fault", None) and entry["not_before"] < entry["since"]


def test_fault_of_a_partition_opens_its_table(owner):
    owner.run(
        "create table parts (id integer) partition by range (id); create table parts_1 partition of parts for values "
        "from (0) to (10); select fencing.protect('parts', $$'parts/' || id$$)"
    )
    owner.run("alter table parts_1 disable trigger fencing_check_truncate")
    assert facts(owner, "public.parts") == ("open", "fault", "postgres") and facts(owner, "public.parts_1") is None
    owner.run("create table part (id integer); select fencing.protect('part', $$'parts/' || id$$)")
    owner.run(
        "begin; select fencing.unprotect('part'); "
        "alter table parts attach partition part for values from (10) to (20); commit"
    )
    assert facts(owner, "public.part") is None
    owner.run("alter table parts detach partition part")
    assert facts(owner, "public.part") == ("open", "unprotected", "postgres")


def test_limits_of_the_installation_are_named(owner):
    owner.run(WITHOUT_EVENT_TRIGGERS)
    (limit,) = state(owner)["limits"]
    assert limit.startswith("event triggers are missing")
    owner.run("drop server fencing_recorder cascade")
    assert [text.split(":")[0] for text in state(owner)["limits"]] == [
        "event triggers are missing",
        "the recorder is not set up",
    ]


@pytest.mark.parametrize("user, allowed", [("test_gateway", True), ("test_auditor", True), ("test_app", False)])
def test_state_is_for_gateways_and_auditors(logins, user, allowed):
    login = logins(user)
    if allowed:
        assert len(state(login)["tables"]) == 3
    else:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            state(login)
