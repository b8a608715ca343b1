"""Virtual generated columns, which PostgreSQL 18 has: triggers do not have their values,
so that a resource expression over one would name the resource of another row."""

import pytest

EXPRESSION = "coalesce(class, 'std') || '/' || id"


def make_column_virtual(owner, table, column):
    """Gives the table a virtual column; on an older server an ordinary one with the mark in the catalogue
    that PostgreSQL 18 sets."""
    if owner.connection.server_version >= 180000:
        owner.run(
            f"alter table {table} add column {column} text generated always as (case when vip then 'vip' end) virtual"
        )
    else:
        owner.run(f"alter table {table} add column {column} text; set allow_system_table_mods = on")
        owner.run(
            "update pg_attribute set attgenerated = 'v' where attrelid = %s::regclass and attname = %s",
            table,
            column.strip('"'),
        )


@pytest.mark.parametrize("partitions", ["", "partition by range (id)"], ids=["ordinary", "partitioned"])
def test_resource_expression_over_virtual_column_is_refused(owner, partitions):
    owner.run(f"create table public.member (id integer, vip boolean, class_id text) {partitions}")
    make_column_virtual(owner, "public.member", "class")
    error = owner.fails("select fencing.protect('public.member', %s)", EXPRESSION)
    assert error.pgcode == "22023" and "the column class is virtual, and triggers do not have its value" in str(
        error
    ), error
    owner.run("select fencing.protect('public.member', %s)", "coalesce(class_id, 'class') || '/' || id")
    assert owner.run("select fencing.guard_faults()") == []


@pytest.mark.parametrize("column", ["class", '"Class (a)"'])
def test_column_that_became_virtual_is_a_guard_fault(owner, column):
    owner.run(f"create table public.member (id integer, vip boolean, {column} text)")
    owner.run("select fencing.protect('public.member', %s)", EXPRESSION.replace("class", column))
    owner.run(f"alter table public.member drop column {column}")
    make_column_virtual(owner, "public.member", column)
    name = column.strip('"')
    assert owner.run("select fencing.guard_faults()") == [
        (
            f"public.member: its resource expression uses the virtual column {name}, "
            "whose value triggers do not have; protect() it by another expression",
        )
    ]
