"""An installation that is repeated changes nothing but what is not as this version installs it.

test_install_under_load.py has what waits meanwhile.
"""
import psycopg2
import pytest
from test_catalogue import SCHEMA_FILES, SQL, rows, snapshot

ACTIVITY = """
    select fencing.append_events('00000000-0000-0000-0000-00000000000a', 1, null, '{lease_granted}', null, null, null,
        null, null, null, null, null);
    select *
      from fencing.begin_write('{inventory/sku-1}', 7, '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
    update inventory set stock = stock - 1 where sku = 'sku-1';
    select fencing.set_up_recorder();  -- that of the template leads to the template
    create table seen (id text); select fencing.protect('public.seen', $$'seen/' || id$$, 'observe');
"""
STATE = {
    "history": (
        "select id, at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, "
        "detail, tableoid::regclass::text from fencing.history order by id"
    ),
    "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'fencing' order by 1",
    "settings": "select * from fencing.settings order by 1",
    "protected": (
        "select relation, resource_expression, mode, check_function, protected_at from fencing.protected order by 1"
    ),
    "faults": "select fencing.guard_faults()",
    "recorder": "select fencing.recorder_fault()",
    "generation": "select current, floor from fencing.storage_generation_state()",
    "version": "select * from fencing.schema_version",
}
CHANGES = (
    "select detail ->> 'action', detail ->> 'version', detail ->> 'was', principal from fencing.history "
    "where event = 'guard_changed' and detail ->> 'action' = 'migrate' order by id"
)


def run(server, database, *texts):
    """Runs the texts in one transaction."""
    connection = server.connect(database, autocommit=False)
    with connection.cursor() as cursor:
        for text in texts:
            cursor.execute(text)
    connection.commit()
    connection.close()


def install_with_psql(server, database, files=(SQL / "install.sql",)):
    for file in files:
        assert server.psql(database, file, "-v", "ON_ERROR_STOP=1", "-o", "/dev/null") == (0, "")


def install_file_by_file(server, database):
    """As `fencegate migrate` does."""
    run(server, database, *[file.read_text() for file in SCHEMA_FILES])


@pytest.mark.parametrize("install", [install_with_psql, install_file_by_file])
def test_install_repeated_changes_nothing(server, database, install):
    run(server, database, ACTIVITY)
    before, found = snapshot(server, database), {name: rows(server, database, query) for name, query in STATE.items()}
    assert len(found["history"]) >= 3 and (found["faults"], found["recorder"], found["generation"]) == (
        [],
        [(None,)],
        [(True, 0)],
    )
    for _ in range(2):
        install(server, database)
        assert snapshot(server, database) == before
        for name, query in STATE.items():
            assert rows(server, database, query) == found[name], name


def test_install_repeated_with_example_changes_nothing(server, database):
    before = snapshot(server, database)
    for _ in range(2):
        install_with_psql(server, database, (SQL / "install.sql", SQL / "examples" / "shop.sql"))
    assert snapshot(server, database) == before


def test_install_that_changes_a_function_is_recorded(server):
    fresh = server.create("template0")
    install_file_by_file(server, fresh)
    assert rows(server, fresh, CHANGES) == [("migrate", "1", None, "postgres")]
    run(server, fresh, *[file.read_text().replace("(0, 140005)", "(0, 140004)") for file in SCHEMA_FILES])
    assert rows(server, fresh, CHANGES) == [("migrate", "1", None, "postgres"), ("migrate", "1", "1", "postgres")]
    assert rows(server, fresh, "select fencing.guard_faults()") == []
    server.drop(fresh)


def test_install_over_schema_of_later_version_is_refused(server, database):
    run(server, database, "insert into fencing.schema_version (version) values (2)")
    before = snapshot(server, database)
    with pytest.raises(psycopg2.Error) as refused:
        install_file_by_file(server, database)
    assert (
        refused.value.pgcode == "55000"
        and refused.value.diag.message_primary
        == "the schema fencing has version 2, and this program installs version 1"
    )
    assert snapshot(server, database) == before
