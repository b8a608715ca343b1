"""What differs between the versions of PostgreSQL. `tests/run postgres` runs this file on each;
server_fault.sql has those on which the installation is refused."""

import psycopg2
import pytest
from test_catalogue import SCHEMA_FILES, rows


def test_install_on_a_server_with_a_fault_is_refused(server):
    fresh = server.create("template0")
    connection = server.connect(fresh, autocommit=False)
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as refused:
        for file in SCHEMA_FILES:
            cursor.execute(file.read_text().replace("(0, 140005)", "(0, 990000)"))
    connection.close()
    assert refused.value.pgcode == "0A000" and refused.value.diag.message_primary.endswith(
        "; upgrade it to 99.0 or later"
    ), refused.value
    assert rows(server, fresh, "select to_regnamespace('fencing')") == [(None,)]
    server.drop(fresh)


@pytest.mark.parametrize(
    "kind, name, code",
    [
        ("table", "fencing.settings", "r"),
        ("sequence", "fencing.history_id_seq", "s"),
        ("schema", "fencing", "n"),
        ("function", "fencing.fence_all(text)", "f"),
    ],
)
def test_every_privilege_of_this_server_is_named_and_taken(owner, kind, name, code):
    """PostgreSQL 17 has one more for tables, maintain."""
    privileges = [
        p.lower()
        for p, in owner.run(f"select privilege_type from aclexplode(acldefault('{code}', 'postgres'::regrole))")
    ]
    for privilege in privileges:
        owner.run(f"grant {privilege} on {kind} {name} to test_app")
    faults = {fault for fault, in owner.run("select fencing.guard_faults()")}
    assert {
        (
            f"{kind} {name}: test_app has the privilege {privilege}, which is for nobody but the owner; "
            "fencegate migrate takes it"
        )
        for privilege in privileges
    } == faults
    owner.run("select fencing.apply_privileges()")
    assert owner.run("select fencing.guard_faults()") == []


def test_refusal_of_the_installing_role_is_recorded(owner):
    """From PostgreSQL 16 on, a role that is no superuser and has created fencing_gateway is a member
    of it, but no gateway."""
    assert owner.sqlstate("update public.inventory set stock = 0 where sku = 'sku-1'") == "FG428"
    assert owner.run("select principal from fencing.history where event = 'write_rejected'") == [("postgres",)]
