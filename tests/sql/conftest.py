"""A temporary PostgreSQL for these tests: a cluster in a temporary folder, reached only by a unix socket, ended by its process id.

Started as root, the server runs as the unprivileged user `postgres`. The database `fence_base` holds the guard and the shop example, with an empty history;
every test gets a copy of it, with the login roles test_gateway, test_app and test_auditor.
"""
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg2
import pytest

# Deletes the rows that the installation of the example added to the history, partition by partition.
EMPTY_HISTORY = """
do $$
declare
  leaf regclass;
begin
  for leaf in select inhrelid from pg_inherits where inhparent = 'fencing.history'::regclass and inhrelid <> 'fencing.history_default'::regclass loop
    execute 'drop table ' || leaf;
  end loop;
  perform fencing.rotate_history('30 days');
  alter sequence fencing.history_id_seq restart;
end
$$;
"""
HERE = pathlib.Path(__file__).resolve().parent
SQL = HERE.parent.parent / "sql"
SERVER_USER = "postgres"
STOP_SECONDS_MAX = 30


def server_bin():
    """Returns the folder of the newest installed PostgreSQL."""
    if os.environ.get("PG_BIN"):
        return pathlib.Path(os.environ["PG_BIN"])
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if found:
        newest = max(found, key=lambda path: int(re.search(r"/(\d+)/bin", path).group(1)))
        return pathlib.Path(newest).parent
    return pathlib.Path(subprocess.check_output(["pg_config", "--bindir"], text=True).strip())


class Server:
    def __init__(self, primary=None):
        """Makes a new cluster, or a streaming standby of `primary`."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fg-sql-"))
        self.folder.chmod(0o711)
        self.bin = server_bin()
        self.as_user = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(SERVER_USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.databases = 0
        data = self.folder / "data"
        if primary:
            subprocess.run([*self.as_user, self.bin / "pg_basebackup", "-D", data, "-h", primary.folder, "-U", "postgres", "-R", "-c", "fast", "--no-sync"], check=True, cwd=self.folder)
        else:
            subprocess.run([*self.as_user, self.bin / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                            "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
            rules = data / "pg_hba.conf"  # only recorders need a password, so each test of a refusal also tests it
            rules.write_text("local all +fencing_recorder scram-sha-256\n" + rules.read_text())
        options = {"listen_addresses": "", "unix_socket_directories": self.folder, "fsync": "off", "max_prepared_transactions": 4, "wal_level": "logical",
                   "timezone": "UTC", "log_min_messages": "log", "shared_buffers": "32MB"}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen([*self.as_user, self.bin / "postgres", "-D", data, *arguments],
                                        stdout=self.log, stderr=self.log, cwd=self.folder)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while True:
            try:
                self.connect("postgres").close()
                break
            except psycopg2.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)  # between two attempts

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(STOP_SECONDS_MAX)
        self.log.close()
        shutil.rmtree(self.folder)

    def connect(self, database, user="postgres", autocommit=True, **more):
        connection = psycopg2.connect(host=str(self.folder), dbname=database, user=user, **more)
        connection.autocommit = autocommit
        return connection

    def psql(self, database, file, *arguments):
        """Runs a file by psql. Returns the exit code and the output, without parts that differ between runs."""
        environment = {"PATH": os.environ["PATH"], "PGHOST": str(self.folder), "PGUSER": "postgres", "PGTZ": "UTC",
                       "PGOPTIONS": "-c client_min_messages=warning", "PGAPPNAME": "psql"}
        done = subprocess.run([self.bin / "psql", "-X", "-q", "-v", "VERBOSITY=verbose", "-v", "SHOW_CONTEXT=never", "-v", "sql_folder=" + str(SQL),
                               "-d", database, *arguments, "-f", str(file)],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = re.sub(r"^psql:.*?:\d+: ", "", done.stdout, flags=re.M)
        text = re.sub(r"^LOCATION:.*\n", "", text, flags=re.M)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00", "(time)", text)
        text = re.sub(r"history_\d{8}", "history_(week)", text)
        text = re.sub(r"with PID \d+", "with PID (pid)", text)
        return done.returncode, text

    def create(self, template):
        self.databases += 1
        name = f"case_{self.databases}"
        admin = self.connect("postgres")
        admin.cursor().execute(f"create database {name} template {template}")
        admin.close()
        return name

    def drop(self, name):
        admin = self.connect("postgres")
        admin.cursor().execute(f"drop database if exists {name} with (force)")
        admin.close()


@pytest.fixture(scope="session")
def server():
    """The cluster, with the database fence_base."""
    cluster = Server()
    try:
        admin = cluster.connect("postgres")
        admin.cursor().execute("create database fence_base")
        admin.close()
        for file in (SQL / "install.sql", SQL / "examples" / "shop.sql", HERE / "roles.psql"):
            code, output = cluster.psql("fence_base", file, "-v", "ON_ERROR_STOP=1", "-o", os.devnull)
            assert code == 0 and "ERROR" not in output, output
        base = cluster.connect("fence_base")
        base.cursor().execute(EMPTY_HISTORY)
        base.close()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def database(server):
    """A fresh copy of fence_base."""
    name = server.create("fence_base")
    yield name
    server.drop(name)
