"""An upgrade brings a database of an older version up to date and keeps its history."""
import pathlib

import pytest
from test_catalogue import SCHEMA_FILES, SQL, rows, snapshot

HERE = pathlib.Path(__file__).resolve().parent
OLD = sorted((HERE / "versions").glob("*.sql"), key=lambda path: int(path.stem))

ACTIVITY = """
    insert into fencing.history (at, event, owner) select now() - n * interval '10 days', 'lease_granted', 'old-' || n from generate_series(1, 5) as t (n);
    select fencing.record_events('[{"event": "lease_released", "resource": "a/b", "fencing_token": 34, "owner": "o", "trace_id": "t", "detail": {"x": 1}}]');
    select * from fencing.begin_write('{inventory/sku-1}', 7, '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
    update inventory set stock = stock - 1 where sku = 'sku-1';
"""
OBSERVED = "create table seen (id text); select fencing.protect('public.seen', $$'seen/' || id$$, 'observe')"
HISTORY = """select id, at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail, tableoid::regclass::text
  from fencing.history where event <> 'guard_changed' order by id"""
CHANGES = "select detail ->> 'action', detail ->> 'relation', detail ->> 'mode' from fencing.history where event = 'guard_changed' order by id"
INDEXES = "select indexname, indexdef from pg_indexes where schemaname = 'fencing' order by 1"


def run(server, database, *texts):
    connection = server.connect(database, autocommit=False)
    with connection.cursor() as cursor:
        for text in texts:
            cursor.execute(text)
    connection.commit()
    connection.close()


@pytest.fixture(params=OLD, ids=[path.stem for path in OLD])
def old(server, request):
    """A database of that version with some events and writes."""
    name = server.create("template0")
    run(server, name, request.param.read_text(), (SQL / "examples" / "shop.sql").read_text())
    assert rows(server, name, "select fencing.schema_version()") == [(int(request.param.stem),)]
    run(server, name, ACTIVITY, OBSERVED)
    if int(request.param.stem) < 4:
        run(server, name, "insert into fencing.settings values ('recorder', 'dbname=old password=secret')")
    yield name
    server.drop(name)


@pytest.fixture
def new(server):
    """A new database with the same events and writes."""
    name = server.create("template0")
    run(server, name, *[file.read_text() for file in SCHEMA_FILES], (SQL / "examples" / "shop.sql").read_text())
    run(server, name, ACTIVITY, OBSERVED)
    yield name
    server.drop(name)


def upgrade_with_psql(server, database):
    assert server.psql(database, SQL / "install.sql", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null") == (0, "")


def upgrade_file_by_file(server, database):
    """As `fencegate migrate` does."""
    run(server, database, *[file.read_text() for file in SCHEMA_FILES])


@pytest.mark.parametrize("upgrade", [upgrade_with_psql, upgrade_file_by_file])
def test_upgrade_equals_new_install_and_keeps_history(server, old, new, upgrade):
    before = rows(server, old, HISTORY)
    assert len(before) >= 7
    for _ in range(2):
        upgrade(server, old)
        assert rows(server, old, HISTORY) == before
        assert snapshot(server, old) == snapshot(server, new)
        assert rows(server, old, INDEXES) == rows(server, new, INDEXES)
        assert rows(server, old, "select * from fencing.settings") == [], "the setting with the recorder's password is deleted"
        assert rows(server, old, "select fencing.recorder_fault()") == [(None,)]
        assert rows(server, old, "select fencing.guard_faults()") == []
        assert rows(server, old, "select current, floor from fencing.storage_generation_state()") == [(True, 0)]
    run(server, old, "select fencing.add_proof_key(sha256('a key')), fencing.require_proof(true); select fencing.require_proof(false)")
    run(server, old, """
        select fencing.append_events('00000000-0000-0000-0000-00000000000a', 1, null, '{lease_granted}', null, null, null, null, null, null, null, null)""", ACTIVITY)
    assert len(rows(server, old, HISTORY)) == len(before) + 8


def test_upgrade_records_itself_and_what_was_protected(server, old):
    """Protected tables are in the history from the upgrade on, with the time since when they are protected; a repeated installation changes nothing."""
    protected = {(relation.removeprefix("public."), mode) for relation, mode in rows(server, old, "select relation::text, mode from fencing.protected")}
    was = rows(server, old, "select max(version) from fencing.schema_version")[0][0]
    recorded = rows(server, old, CHANGES) if was >= 5 else []
    upgrade_with_psql(server, old)
    changes = rows(server, old, CHANGES)
    assert changes[:len(recorded)] == recorded
    if was >= 5:  # that version has recorded the tables itself
        assert changes[len(recorded):] == [("migrate", None, None)]
        return
    assert [change for change in changes if change[0] == "migrate"] == [("migrate", None, None)]
    assert {(relation.removeprefix("public."), mode) for action, relation, mode in changes if action == "protect"} == protected and protected
    facts = rows(server, old, "select (detail ->> 'was')::integer, (detail ->> 'version')::integer, principal from fencing.history where detail ->> 'action' = 'migrate'")
    assert facts == [(was, 7, "postgres")]
    assert rows(server, old, """select count(*) from fencing.history h join fencing.protected p on h.detail ->> 'relation' = p.relation_name
                                 where (h.detail ->> 'since')::timestamptz <= h.at and h.principal = p.protected_by""") == [(len(protected),)]
    upgrade_with_psql(server, old)
    assert rows(server, old, CHANGES) == changes


@pytest.mark.parametrize("old", OLD[3:], ids=[path.stem for path in OLD[3:]], indirect=True)
def test_upgrade_from_4_waits_for_no_writer(server, old):
    """A transaction that has written to the history stays open meanwhile, and goes on under the new version."""
    writer = server.connect(old, autocommit=False)
    cursor = writer.cursor()
    cursor.execute("select accepted from fencing.begin_write('{inventory/sku-1}', 8, gen_random_uuid(), 'o', 'p', 't', null)")
    assert cursor.fetchall() == [(True,)]
    run(server, old, "set lock_timeout = '2s'", *[file.read_text() for file in SCHEMA_FILES])
    cursor.execute("update inventory set stock = stock - 1 where sku = 'sku-1'; select fencing.record_events('[{\"event\": \"request_denied\"}]')")
    writer.commit()
    writer.close()
    assert rows(server, old, "select count(*) from fencing.history where event = 'request_denied'") == [(1,)]


@pytest.mark.parametrize("old", OLD[:3], ids=[path.stem for path in OLD[:3]], indirect=True)
def test_table_that_keeps_its_old_checks_can_be_altered(server, old):
    run(server, old, "create schema app authorization test_app; create table app.kept (id integer primary key); alter table app.kept owner to test_app",
        "create function public.prefix() returns text language sql immutable as $$select 'kept/'$$; alter function public.prefix() owner to test_gateway; select fencing.protect('app.kept', 'public.prefix() || id')",
        "create function app.own() returns trigger language plpgsql as 'begin return null; end'; alter function app.own() owner to test_app",
        "create trigger fencing_d after insert on app.kept for each row execute function app.own(); create trigger fencing_e after insert on app.kept for each row execute function app.own()")
    code, output = server.psql(old, SQL / "install.sql", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    assert code == 0 and "app.kept keeps the checks of an earlier version" in output
    assert [fault for fault, in rows(server, old, "select fencing.guard_faults()") if fault.startswith("app.kept: ")]
    connection = server.connect(old, "test_app")
    for change in ("alter table app.kept add column note text", "drop trigger fencing_d on app.kept", "alter trigger fencing_e on app.kept rename to own"):
        connection.cursor().execute(change)
    connection.close()
    run(server, old, "alter function public.prefix() owner to test_app; select fencing.protect('app.kept', 'public.prefix() || id')")
    assert rows(server, old, "select fencing.guard_faults()") == []
