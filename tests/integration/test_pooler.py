"""A gateway behind a connection pooler: it detects the pooler at its start, names it and exits."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from pathlib import Path
from typing import Iterator

import psycopg2
import pytest

from support import processes
from support.cluster import Cluster
from support.polling import eventually
from support.stack import make_folder

UNAVAILABLE = 69
SERVER_USER = "postgres"


@pytest.fixture(params=["transaction", "session"])
def bouncer(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs PgBouncer before the cluster's database; yields the connection string."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "pgbouncer is missing: config/install-packages --tests"
    folder, port = make_folder(), processes.free_port()
    postgres = cluster.stack.facts["postgres"]
    (folder / "ini").write_text(
        f"""
[databases]
* = host={postgres['host']} port={postgres['port']} user={postgres['superuser']}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = {request.param}
auth_type = any
"""
    )
    as_user = ["setpriv", f"--reuid={pwd.getpwnam(SERVER_USER).pw_uid}", "--clear-groups"] if os.geteuid() == 0 else []
    process = processes.start([*as_user, program, str(folder / "ini")], Path(folder / "log"))
    conninfo = f"host=127.0.0.1 port={port} dbname={cluster.database} user={postgres['superuser']}"

    def answers() -> bool:
        try:
            psycopg2.connect(conninfo).close()
            return True
        except psycopg2.OperationalError:
            return False

    try:
        eventually(answers, 20, goal=f"PgBouncer answers\n{(folder / 'log').read_text()}")
        yield conninfo
    finally:
        processes.stop(process)
        shutil.rmtree(folder)


@pytest.mark.parametrize("command", ["serve", "check"])
def test_gateway_behind_pooler_exits_69_with_reason(cluster: Cluster, bouncer: str, command: str) -> None:
    settings = cluster.settings()
    settings["postgres"]["conninfo"] = bouncer
    file = cluster.folder / "pooled.yaml"
    file.write_text(json.dumps(settings))
    for _ in range(3):  # the pooler's connection to the server keeps what an earlier run has prepared
        done = cluster.run(command, file, timeout=30)
        assert done.returncode == UNAVAILABLE, done
        assert "pooler" in done.stdout + done.stderr, done


def test_fence_all_behind_pooler_exits_69_with_reason(cluster: Cluster, bouncer: str) -> None:
    for _ in range(3):
        done = cluster.call("fence-all", "--conninfo", bouncer, "--reason", "behind a pooler")
        assert done.returncode == UNAVAILABLE and "pooler" in done.stderr, done
