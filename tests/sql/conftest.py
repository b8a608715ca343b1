"""A temporary PostgreSQL for these tests: a cluster in a temporary folder,
reached only by a unix socket, ended by its process id.

Started as root, the server runs as the unprivileged user `postgres`.
The database `fence_base` holds the guard and the shop example, with an empty history; every test gets a copy of it,
with the login roles test_gateway, test_app and test_auditor.
"""
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import psycopg2
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from sessions import Login, Sessions  # noqa: E402
from support.base_backup import copy_server  # noqa: E402
from support.initdb import init_data, installed_programs, programs  # noqa: E402

# Deletes the rows that the installation of the example added to the history.
EMPTY_HISTORY = """
alter table fencing.history disable trigger history_append_only;
delete from fencing.history;
alter table fencing.history enable always trigger history_append_only;
alter sequence fencing.history_id_seq restart;
"""
HERE = pathlib.Path(__file__).resolve().parent
SQL = HERE.parent.parent / "sql"
SERVER_USER = "postgres"
STOP_SECONDS_MAX = 30
# The guard is installed by the role postgres: the superuser, or with FENCING_INSTALLER=createrole one
# that has CREATEROLE alone and owns the databases.
BY_SUPERUSER = os.environ.get("FENCING_INSTALLER") != "createrole"
SUPERUSER = "postgres" if BY_SUPERUSER else "superuser"
# Files, tests and cases that do what only a superuser may do, or show the event triggers,
# which only its installation creates.
NEED_SUPERUSER = set(
    """
    test_openings test_guard_drops test_virtual_columns
    test_dump_restored_is_protected_as_before test_dump_replaces_an_older_copy
    test_dump_loaded_elsewhere_is_refused_after_fence_all
    test_install_by_an_owner_who_is_no_superuser_works test_guard_is_installed_in_database_of_another_encoding
    test_install_revokes_default_privileges test_unlogged_partition_is_refused_by_expose_and_attach
    test_unlogged_tables_are_refused_and_named test_openings_by_schemas_views_and_extensions_are_refused
    test_refusal_is_recorded_beside_dblink_of_the_same_name test_trigger_sorting_between_the_checks_is_refused
    test_protect_tries_the_expression_with_the_owners_rights test_guard_faults_names_unexpected_privilege
    test_long_lists_of_faults_are_recorded_whole test_fault_made_and_mended_in_one_transaction_is_recorded
    test_fault_is_recorded_while_a_gateway_compares test_fault_that_a_gateway_has_just_found_is_recorded_as_gone
    test_commands_on_two_tables_do_not_wait_for_each_other test_copy_of_a_server_records_nothing_in_the_original
    test_refusal_waits_for_no_synchronous_standby test_refusal_cut_off_by_the_callers_timeout_is_logged
    test_change_is_refused_under_granted_replication_role test_plpgsql_extra_errors_refuses_no_covered_change
    test_subscription_is_checked_only_on_partitioned_tables
    test_prepared_transaction_is_waited_for_and_still_commits test_storage_floor_is_called_once_per_call
    test_promotion_is_noticed_in_sessions_opened_before test_partition_of_a_third_role_is_refused_and_named
    test_refusal_with_printed_plans_shows_no_password test_recorder_password_is_unreadable_for_other_logins
    test_recorder_login_can_only_add_refusals
    another_role protect_bad_expression protect_refusals refusal_without_recorder unprotect
    api_catalog_keys guard_changes guard_faults guard_faults_of_schema_changes history_openings inheritance partitioned
    prepared_transaction record_changes_columns record_changes_schema replication_role rights_below_the_table
    schema_changes_refused
""".split()
)


def pytest_collection_modifyitems(config, items):
    if BY_SUPERUSER:
        return

    def needs_superuser(item):
        case = item.callspec.id if item.originalname == "test_case" else None
        return not NEED_SUPERUSER.isdisjoint({item.path.stem, item.originalname, case})

    config.hook.pytest_deselected(items=[item for item in items if needs_superuser(item)])
    items[:] = [item for item in items if not needs_superuser(item)]


class Server:
    def __init__(self, primary=None, shares_identifier=True):
        """Makes a new cluster, or a streaming standby of `primary`.
        support.initdb says when it needs a system identifier of its own."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fg-sql-"))
        self.folder.chmod(0o711)
        self.bin = programs()
        self.as_user = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(SERVER_USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.databases = 0
        self.kept_session = None
        data = self.folder / "data"
        if primary:
            superuser = primary.connect("postgres", SUPERUSER)
            copy_server(superuser, primary.folder / "data", data, f"host={primary.folder} user={SUPERUSER}")
            superuser.close()
        else:
            init_data(
                self.bin,
                data,
                f"--username={SUPERUSER}",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                shares_identifier=shares_identifier,
            )
            rules = data / "pg_hba.conf"  # only recorders need a password, so each test of a refusal also tests it
            # From PostgreSQL 16 on, who created fencing_recorder is a member too.
            rules.write_text(
                "local all postgres trust\nlocal all +fencing_recorder scram-sha-256\n" + rules.read_text()
            )
        options = {
            "listen_addresses": "",
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "jit": "off",
            "max_prepared_transactions": 4,
            "wal_level": "logical",
            "timezone": "UTC",
            "log_min_messages": "log",
            "shared_buffers": "32MB",
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [*self.as_user, self.bin / "postgres", "-D", data, *arguments],
            stdout=self.log,
            stderr=self.log,
            cwd=self.folder,
            env={**os.environ, "PGHOST": str(self.folder)},
        )  # for recorders without a host
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while True:
            try:
                admin = self.connect("postgres", SUPERUSER)
                break
            except psycopg2.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)  # between two attempts
        # It takes a third of the processor time of the default strategy;
        # before PostgreSQL 15 it is the only one, without a name.
        self.copied_by_file = "strategy file_copy" if admin.server_version >= 150000 else ""
        if not BY_SUPERUSER and not primary:
            admin.cursor().execute("create role postgres login createrole; alter database postgres owner to postgres")
        admin.close()

    def stop(self):
        if self.kept_session:
            self.kept_session.close()
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(STOP_SECONDS_MAX)
        self.log.close()
        shutil.rmtree(self.folder)

    def client(self, program):
        """Returns the path of a client program: the server's own, or that of the installed PostgreSQL."""
        return self.bin / program if (self.bin / program).exists() else installed_programs() / program

    def dump_program(self):
        """Returns the path of a pg_dump that reads this server; skips the test where there is none."""
        program = self.client("pg_dump")
        version = int(re.search(r"\d+", subprocess.check_output([program, "--version"], text=True))[0])
        connection = self.connect("postgres", SUPERUSER)
        server_version = connection.server_version // 10000
        connection.close()
        if version < server_version:
            pytest.skip(f"pg_dump {version} reads no newer server, and this one has no pg_dump of its own")
        return program

    def dump(self, database):
        return subprocess.check_output([self.dump_program(), "-h", self.folder, "-U", SUPERUSER, database], text=True)

    def connect(self, database, user="postgres", autocommit=True, **more):
        connection = psycopg2.connect(host=str(self.folder), dbname=database, user=user, **more)
        connection.autocommit = autocommit
        return connection

    def psql(self, database, file, *arguments):
        """Runs a file by psql. Returns the exit code and the output, without parts that differ between runs."""
        environment = {
            "PATH": os.environ["PATH"],
            "PGHOST": str(self.folder),
            "PGUSER": "postgres",
            "PGTZ": "UTC",
            "PGOPTIONS": "-c client_min_messages=warning",
            "PGAPPNAME": "psql",
        }
        done = subprocess.run(
            [
                self.client("psql"),
                *"-X -q -v VERBOSITY=verbose -v SHOW_CONTEXT=never -v".split(),
                "sql_folder=" + str(SQL),
                "-d",
                database,
                *arguments,
                "-f",
                str(file),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        text = re.sub(r"^psql:.*?:\d+: ", "", done.stdout, flags=re.M)
        text = re.sub(r"^LOCATION:.*\n", "", text, flags=re.M)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00", "(time)", text)
        text = re.sub(r"history_\d{8}", "history_(week)", text)
        text = re.sub(r"with PID \d+", "with PID (pid)", text)
        return done.returncode, text

    def create(self, template):
        self.databases += 1
        name = f"case_{self.databases}"
        self.execute_as_superuser(f"create database {name} template {template} owner postgres {self.copied_by_file}")
        return name

    def drop(self, name):
        self.execute_as_superuser(f"drop database if exists {name} with (force)")

    def execute_as_superuser(self, statement):
        """Executes a statement in a session of the database postgres that is kept for the next one."""
        if self.kept_session is None or self.kept_session.closed:
            self.kept_session = self.connect("postgres", SUPERUSER)
        self.kept_session.cursor().execute(statement)


@pytest.fixture(scope="session")
def server():
    """The cluster, with the database fence_base."""
    cluster = Server()
    try:
        admin = cluster.connect("postgres", SUPERUSER)
        admin.cursor().execute("create database fence_base owner postgres")
        admin.close()
        if not BY_SUPERUSER:
            admin = cluster.connect("fence_base", SUPERUSER)
            recorder = re.search("create schema fencing_recorder;[^`]*", (SQL / "README.md").read_text())[0]
            admin.cursor().execute(recorder.replace("OWNER", "postgres"))
            admin.close()
        for file in (SQL / "install.sql", SQL / "examples" / "shop.sql", HERE / "roles.psql"):
            code, output = cluster.psql("fence_base", file, "-v", "ON_ERROR_STOP=1", "-o", os.devnull)
            assert code == 0 and "ERROR" not in output, output
        if not BY_SUPERUSER:
            admin = cluster.connect("fence_base", SUPERUSER)
            options = "with inherit true, set true" if admin.server_version >= 160000 else ""
            admin.cursor().execute(
                f"grant test_app, test_auditor to postgres {options}"
            )  # so that it can create what is theirs
            admin.close()
        base = cluster.connect("fence_base")
        base.cursor().execute(EMPTY_HISTORY)
        # In a copy it takes 50 ms of each refusal to find that it leads to another database; `owner` sets up a new one.
        base.cursor().execute("drop server if exists fencing_recorder cascade")
        base.close()
        cluster.connect("fence_base").close()  # makes the cache of the catalogue, which each copy then has
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def database(server):
    """A fresh copy of fence_base."""
    name = server.create("fence_base")
    yield name
    server.drop(name)


@pytest.fixture
def logins(server, database):
    opened = []

    def login(user="test_app", **more):
        opened.append(Login(server, database, user, **more))
        return opened[-1]

    yield login
    for each in opened:
        each.connection.close()


@pytest.fixture
def owner(logins):
    login = logins("postgres")
    assert login.run("select fencing.set_up_recorder()") == [(None,)]
    assert login.run("select fencing.recorder_fault()") == [(None,)]
    return login


@pytest.fixture
def sessions(server, database):
    made = Sessions(server, database)
    yield made
    for session in made.opened:
        session.connection.close()
    made.observer.close()
