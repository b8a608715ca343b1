"""What must hold for every object in the schema fencing, and for the files that make them."""
import pathlib
import re
import subprocess

import psycopg2
import pytest

SQL = pathlib.Path(__file__).resolve().parent.parent.parent / "sql"
SCHEMA_FILES = [*sorted((SQL / "migrations").glob("*.sql")), *sorted((SQL / "schema").glob("*.sql"))]
PLAIN_FILES = [*SCHEMA_FILES, *sorted((SQL / "examples").glob("*.sql"))]


def rows(server, database, statement):
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute(statement)
        found = cursor.fetchall()
    connection.close()
    return found


RULES = {
    "every function pins search_path": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace
           -- These have no settings, and all names in them are qualified: they are inlined, or run in every write.
           and proname not in ('is_resource', 'name_fault', 'bound_text', 'bound_detail', 'bound_time',
                               'bound_token', 'bounded_value', 'live_timeline', 'storage_floor', 'session_origin')
           and not coalesce(proconfig @> array['search_path=pg_catalog, pg_temp'], false)""",
    "every security definer function of the database pins search_path": """
        select oid::regprocedure from pg_proc where prosecdef
           -- fencing_recorder is the schema of dblink.
           and pronamespace::regnamespace::text not in ('pg_catalog', 'information_schema', 'fencing_recorder')
           and not coalesce(array_to_string(proconfig, ',') like '%search_path=%', false)""",
    # A plan that scans a table nevertheless has a cost of 1e10, for which PostgreSQL would compile it in each call.
    "every function that forbids scans of tables forbids compiling too": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace
           and proconfig @> '{enable_seqscan=off}' and not proconfig @> '{jit=off}'""",
    "no function is granted to public": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace
           and (proacl is null or exists (select from aclexplode(proacl) where grantee = 0))""",
    "no table, view or sequence is granted to public": """
        select c.oid::regclass from pg_class c, aclexplode(c.relacl) a
          where c.relnamespace = 'fencing'::regnamespace and a.grantee = 0""",
    "no domain is granted to public": """
        select t.oid::regtype from pg_type t where t.typnamespace = 'fencing'::regnamespace and t.typtype = 'd'
           and (t.typacl is null or exists (select from aclexplode(t.typacl) where grantee = 0))""",
    "no column is granted to public": """
        select attrelid::regclass, attname from pg_attribute, aclexplode(attacl) a where attrelid in
          (select oid from pg_class where relnamespace = 'fencing'::regnamespace) and a.grantee = 0""",
    "the schema is not granted to public": """
        select nspname from pg_namespace, aclexplode(nspacl) a where nspname = 'fencing' and a.grantee = 0""",
    "nobody but the owner may change a table": """
        select c.oid::regclass, a.grantee::regrole from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = 'fencing'::regnamespace and a.grantee <> c.relowner and a.privilege_type <> 'SELECT'""",
    "every function has a comment": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace
          and obj_description(oid, 'pg_proc') is null""",
    "every function's comment speaks of locks": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace
          and proname <> 'refuse_history_change'
           and obj_description(oid,
               'pg_proc') !~ 'Locks( until the end of the transaction| in the caller''s transaction)?:'""",
    "every table and view has a comment": """
        select oid::regclass from pg_class where relnamespace in ('fencing'::regnamespace, 'public'::regnamespace)
          and relkind in ('r', 'p', 'v')
           and obj_description(oid, 'pg_class') is null""",
    "every column has a comment": """
        select c.oid::regclass, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
         where c.relnamespace in ('fencing'::regnamespace, 'public'::regnamespace) and c.relkind in ('r', 'p', 'v')
           and not c.relispartition
           and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null""",
    "every sequence and domain has a comment": """
        select oid::regclass::text from pg_class where relnamespace = 'fencing'::regnamespace and relkind = 'S'
          and obj_description(oid, 'pg_class') is null
        union all select oid::regtype::text from pg_type where typnamespace = 'fencing'::regnamespace
          and typtype = 'd' and obj_description(oid, 'pg_type') is null""",
    "every role has a comment": """
        select rolname from pg_roles where rolname like 'fencing\\_%'
          and shobj_description(oid, 'pg_authid') is null""",
    "everything belongs to the owner of the schema": """
        with schema as (select oid, nspowner from pg_namespace where nspname = 'fencing')
        select c.oid::regclass::text from pg_class c join schema s on s.oid = c.relnamespace
          where c.relowner <> s.nspowner
        union all select p.oid::regprocedure::text from pg_proc p join schema s on s.oid = p.pronamespace
          where p.proowner <> s.nspowner
        union all select t.oid::regtype::text from pg_type t join schema s on s.oid = t.typnamespace
          where t.typowner <> s.nspowner""",
    "what changes something, or may answer differently twice in a statement, is volatile": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace and provolatile <> 'v'
           and proname !~ '^(check|find|keep)_body$'  -- a template, as text
           and prosrc ~* '\\m(insert into|update fencing|delete from|set_config|nextval|lock table|execute '
             'format|pg_notify|clock_timestamp|record_refusal)\\M'""",
    "what reads tables or settings is not immutable": """
        select oid::regprocedure from pg_proc where pronamespace = 'fencing'::regnamespace and provolatile = 'i'
          and proname !~ '^(check|find|keep)_body$'
           and prosrc ~* '\\m(from fencing|from pg_|current_setting|now\\(|session_user)'""",
    "what a role may call and that reads what the role may not is security definer": """
        select p.oid::regprocedure from pg_proc p, aclexplode(p.proacl) a where p.pronamespace = 'fencing'::regnamespace
          and a.grantee <> p.proowner
           and not p.prosecdef and p.prosrc ~* '\\m(from|into|update) fencing'""",
    "the roles can't log in": (
        "select rolname from pg_roles where rolname like 'fencing\\_%' and rolname !~ '^fencing_recorder_[0-9]+$' "
        "and (rolcanlogin or rolsuper or rolcreaterole)"
    ),
    "the guard has one index": """
        select indexrelid::regclass from pg_index where indrelid = 'fencing.guard'::regclass and not indisprimary""",
    "every trigger of the guard is always on": """
        select tgrelid::regclass, tgname from pg_trigger
          where (tgname like 'fencing\\_%' or tgname like 'history\\_%') and tgenabled <> 'A'""",
}


@pytest.mark.parametrize("rule", RULES, ids=[rule.replace(" ", "_") for rule in RULES])
def test_rule(server, database, rule):
    assert rows(server, database, RULES[rule]) == []


@pytest.mark.parametrize("user", ["test_gateway", "test_app", "test_auditor"])
def test_history_change_by_any_role_lacks_the_privilege(server, database, user):
    """The whole table, each partition, and the functions that create and drop partitions."""
    tables = [
        name
        for name, in rows(server, database, "select relid::regclass::text from pg_partition_tree('fencing.history')")
    ]
    assert len(tables) > 9
    connection = server.connect(database, user)
    with connection.cursor() as cursor:
        for table in tables:
            for statement in (
                f"update {table} set owner = 'me'",
                f"delete from {table}",
                f"truncate {table}",
                f"insert into {table} (id, at, event) values (1, now(), 'lease_granted')",
                f"drop table {table}",
                f"alter table {table} disable trigger all",
            ):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)
        for call in ("select fencing.rotate_history('1 second')", "select fencing.make_history_partition(now())"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(call)
    connection.close()


def test_files_are_plain_sql():
    for file in PLAIN_FILES:
        assert not re.search(r"^\s*\\", file.read_text(), flags=re.M), file.name


def test_install_includes_every_schema_file_in_order():
    listed = re.findall(r"^\\ir (\S+)$", (SQL / "install.sql").read_text(), flags=re.M)
    assert listed == [str(file.relative_to(SQL)) for file in SCHEMA_FILES]


def snapshot(server, database):
    """Returns everything that the installation created, except times."""
    return rows(
        server,
        database,
        """
        select 'function', oid::regprocedure::text, md5(pg_get_functiondef(oid) ||
            (select string_agg(a::text, ',' order by a::text)
                  from aclexplode(coalesce(proacl, acldefault('f', proowner))) a)) from pg_proc
              where pronamespace = 'fencing'::regnamespace
           and proname !~ '^check_[0-9]'
        union all select 'relation', oid::regclass::text, relkind::text ||
            (select string_agg(a::text, ',' order by a::text) from aclexplode(coalesce(relacl,
                  acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner))) a)
          from pg_class where relnamespace = 'fencing'::regnamespace
        union all select 'column', a.attrelid::regclass::text || '.' || a.attname, format_type(a.atttypid, a.atttypmod)
          || a.attnotnull::text
          from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'fencing'::regnamespace
            and a.attnum > 0 and not a.attisdropped
        union all select 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid)
          from pg_constraint where connamespace = 'fencing'::regnamespace
        union all select 'trigger', tgrelid::regclass::text || '.' || tgname, tgenabled::text from pg_trigger
          where tgname ~ '^(fencing|history)_'
        union all select 'row', 'version', version::text from fencing.schema_version
        union all select 'row', name, columns::text || arguments::text from fencing.api_catalog
        union all select 'guard', resource, last_fencing_token::text from fencing.guard
        union all select 'stock', sku, stock::text from public.inventory
        order by 1, 2, 3""",
    )


def test_install_without_psql_gives_the_same_schema(server, database):
    fresh = server.create("template0")
    connection = server.connect(fresh, autocommit=False)
    for file in [*SCHEMA_FILES, SQL / "examples" / "shop.sql"] * 2:
        with connection.cursor() as cursor:
            cursor.execute(file.read_text())
    connection.commit()
    connection.close()
    installed = snapshot(server, fresh)
    assert installed == snapshot(server, database)
    server.drop(fresh)


def test_dump_restored_is_protected_as_before(server, database):
    dump = server.dump(database)
    fresh = server.create("template0")
    subprocess.run(
        [
            server.client("psql"),
            "-h",
            server.folder,
            *"-U postgres -X -q -v ON_ERROR_STOP=1 -o /dev/null -d".split(),
            fresh,
        ],
        input=dump,
        check=True,
        text=True,
    )
    assert snapshot(server, fresh) == snapshot(server, database)
    assert rows(server, fresh, "select fencing.guard_faults()") == []
    known = """select count(*) from fencing.recorded_check r join pg_trigger t
                   on (t.tgrelid, t.tgname, t.oid) = (r.relation, r.name, r.trigger_id) and t.xmin = r.row_version"""
    assert rows(server, fresh, known) == [(0,)] and rows(server, fresh, "select fencing.watch_guard()") == []
    assert rows(server, fresh, known) == rows(server, database, known) != [(0,)]
    assert rows(server, fresh, "select fencing.guard_faults()") == []
    assert rows(server, fresh, "select count(*) from fencing.protected p join pg_class c on c.oid = p.relation") == [
        (3,)
    ]
    connection = server.connect(fresh)
    with connection.cursor() as cursor:
        with pytest.raises(psycopg2.Error) as refused:
            cursor.execute("update inventory set stock = 0 where sku = 'sku-1'")
        assert refused.value.pgcode == "FG428"
        cursor.execute(
            "select fencing.protect('public.inventory', $$'inventory/' || sku$$), fencing.unprotect('public.orders')"
        )
        cursor.execute(
            "select count(*) from pg_proc where pronamespace = 'fencing'::regnamespace and proname ~ '^check_[0-9]'"
        )
        assert cursor.fetchall() == [(2,)]
    connection.close()
    server.drop(fresh)


@pytest.mark.parametrize(
    "options", [["--single-transaction"], ["--exit-on-error"]], ids=["in_one_transaction", "step_by_step"]
)
def test_dump_replaces_an_older_copy(server, database, tmp_path, options):
    """As a copy for tests is made anew: `pg_restore --clean` drops everything first."""
    copy = server.create("template0")
    connection = ["-h", server.folder, "-U", "postgres"]
    dump = tmp_path / "dump"
    with dump.open("wb") as file:
        subprocess.run([server.dump_program(), *connection, "-Fc", database], check=True, stdout=file)
    for clean in ([], ["--clean", "--if-exists"]):
        subprocess.run([server.client("pg_restore"), *connection, *clean, *options, "-d", copy, dump], check=True)
    assert snapshot(server, copy) == snapshot(server, database)
    assert rows(server, copy, "select fencing.guard_faults()") == []
    server.drop(copy)


def test_install_by_an_owner_who_is_no_superuser_works(server):
    admin = server.connect("postgres")
    admin.cursor().execute("create role case_owner login createrole password 'case'")
    fresh = server.create("template0")
    admin.cursor().execute(f"alter database {fresh} owner to case_owner")
    admin.cursor().execute(
        "grant fencing_gateway, fencing_writer, fencing_auditor, fencing_recorder to case_owner with admin option"
    )
    connection = server.connect(fresh, "case_owner", autocommit=False, password="case")
    superuser = server.connect(fresh)
    superuser.cursor().execute("grant create on schema public to case_owner")
    superuser.close()
    with connection.cursor() as cursor:
        for file in [*SCHEMA_FILES, SQL / "examples" / "shop.sql"]:
            cursor.execute(file.read_text())
        connection.commit()
        cursor.execute("select fencing.guard_faults()")
        assert cursor.fetchall() == []
        cursor.execute("select fencing.recorder_fault()")
        assert "the extension dblink is missing" in cursor.fetchone()[0]
        connection.commit()
        superuser = server.connect(fresh)
        superuser.cursor().execute(
            re.search("create schema fencing_recorder;[^`]*", (SQL / "README.md").read_text())[0].replace(
                "OWNER", "case_owner"
            )
        )
        superuser.close()
        cursor.execute("select fencing.set_up_recorder()")
        assert cursor.fetchone() == (None,)
        cursor.execute(
            f"alter server fencing_recorder options (add host '{server.folder}')"
        )  # only superusers can read the folder of the socket
        connection.commit()
        cursor.execute("select fencing.recorder_fault()")
        assert cursor.fetchone() == (None,)
        connection.commit()
        cursor.execute("select fencing.enter('inventory/sku-1', 5)")
        cursor.execute("update inventory set stock = 9 where sku = 'sku-1'")
        cursor.execute(
            "select accepted from fencing.begin_write('{inventory/sku-1}', 4, gen_random_uuid(), 'o', 'p', null, null)"
        )
        assert cursor.fetchall() == [(False,)]
        connection.commit()
        superuser = server.connect(fresh)
        superuser.cursor().execute("create table public.theirs (id integer)")
        superuser.close()
        with pytest.raises(psycopg2.Error) as refused:
            cursor.execute("select fencing.protect('public.theirs', $$'theirs/' || id$$)")
        assert refused.value.pgcode == "42501" and "public.theirs belongs to postgres" in str(refused.value)
        assert refused.value.diag.message_hint == (
            "Call as case_owner, which installed the schema, "
            "and let it own the table: grant postgres to case_owner, or "
            "alter table ... owner to case_owner."
        )
    connection.close()
    server.drop(fresh)
    # From PostgreSQL 16 on, who grants a membership can't be dropped before it.
    (login,) = rows(
        server,
        "postgres",
        "select rolname from pg_roles where rolname ~ '^fencing_recorder_' order by oid desc limit 1",
    )[0]
    admin.cursor().execute(f"drop role {login}; drop role case_owner")
    admin.close()
