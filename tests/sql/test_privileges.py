"""The installation takes privileges that others have on the guard, and guard_faults() names those that come later."""

import pytest
from sessions import Login
from test_catalogue import SCHEMA_FILES

DEFAULTS = """alter default privileges {0} grant all on {1} to {2}"""


def test_install_revokes_default_privileges(server):
    fresh = server.create("template0")
    admin = Login(server, fresh, "postgres")
    for kind in ("tables", "sequences", "functions", "types", "schemas"):
        for grantee in (
            ("test_app with grant option", "fencing_writer", "fencing_auditor")
            if kind != "schemas"
            else ("test_app", "fencing_writer")
        ):
            admin.run(DEFAULTS.format("", kind, grantee))
    for file in SCHEMA_FILES:
        admin.run(file.read_text())
    admin.run("create table public.notes (name text); select fencing.protect('public.notes', 'name')")
    admin.run("select fencing.make_history_partition(now() + interval '200 days')")
    assert (
        admin.run("select * from fencing.granted_privileges() except select * from fencing.expected_privileges()") == []
    )
    assert admin.run("select fencing.guard_faults()") == []
    app = Login(server, fresh)
    for statement in (
        "update fencing.guard set last_fencing_token = 0",
        "select * from fencing.proof_key",
        "insert into fencing.settings values ('require_proof', 'off')",
        "select fencing.repair_fence('a/b', 1, 'p', null, 'r')",
        "select nextval('fencing.check_id_seq')",
        "create table fencing.mine ()",
        "select fencing_recorder.dblink_get_connections()",
    ):
        assert app.sqlstate(statement) == "42501", statement
    app.connection.close()
    admin.connection.close()
    server.drop(fresh)


@pytest.mark.parametrize(
    "grant, fault",
    [
        ("grant update on fencing.guard to test_app", "table fencing.guard: test_app has the privilege update"),
        (
            "grant select (outer_pad) on fencing.proof_key to public",
            "column fencing.proof_key (outer_pad): public has the privilege select",
        ),
        (
            "grant execute on function fencing.repair_fence(text, bigint, text, text, text, jsonb) to fencing_writer",
            "fencing.repair_fence(text,bigint,text,text,text,jsonb): fencing_writer has the privilege execute",
        ),
        (
            "grant execute on function fencing.enter(text, bigint, text) to fencing_writer with grant option",
            "fencing_writer has the privilege grant option for execute",
        ),
        (
            "grant usage on sequence fencing.history_id_seq to test_app",
            "sequence fencing.history_id_seq: test_app has the privilege usage",
        ),
        ("grant create on schema fencing to test_app", "schema fencing: test_app has the privilege create"),
        (
            "grant insert on fencing.history_default to test_app",
            "table fencing.history_default: test_app has the privilege insert",
        ),
        (
            "grant usage on type fencing.resource_name to public",
            "type fencing.resource_name: public has the privilege usage",
        ),
        (
            "grant usage on foreign server fencing_recorder to test_app",
            "foreign server fencing_recorder: test_app has the privilege usage",
        ),
        (
            "revoke select on fencing.guard from fencing_gateway",
            "table fencing.guard: fencing_gateway lacks the privilege select",
        ),
        ("alter table fencing.guard owner to test_app", "table fencing.guard belongs to test_app"),
        (
            "alter event trigger fencing_refuse_drops disable",
            "the event trigger fencing_refuse_drops is missing or not always on",
        ),
    ],
)
def test_guard_faults_names_unexpected_privilege(owner, grant, fault):
    owner.run(grant)
    output = [row[0] for row in owner.run("select fencing.guard_faults()")]
    assert any(fault in each for each in output), output
    if "owner" not in grant and "event" not in grant:
        owner.run("select fencing.apply_privileges()")
        assert owner.run("select fencing.guard_faults()") == []


def test_install_refuses_schema_of_another_owner(server):
    """A role that may create schemas could create tables with triggers where the installation expects its own."""
    fresh = server.create("template0")
    admin = Login(server, fresh, "postgres")
    admin.run(f"grant create on database {fresh} to test_app")
    app = Login(server, fresh)
    app.run("create schema fencing; create table fencing.guard (resource text, last_fencing_token bigint)")
    error = admin.fails(SCHEMA_FILES[0].read_text())
    assert error.pgcode == "42501" and "belongs to test_app" in str(error)
    app.connection.close()
    admin.connection.close()
    server.drop(fresh)
