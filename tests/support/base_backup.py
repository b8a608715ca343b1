"""Copies the data of a running PostgreSQL server of any version;
pg_basebackup reads no server that is newer than itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg2.extensions


def copy_server(superuser: psycopg2.extensions.connection, source: Path, target: Path, primary_conninfo: str) -> None:
    """Makes `target` the data folder of a streaming standby of the server whose data folder is `source`.

    superuser: a connection in autocommit mode."""
    start, stop = (
        ("pg_backup_start('copy', true)", "pg_backup_stop(false)")
        if superuser.server_version >= 150_000
        else ("pg_start_backup('copy', true, false)", "pg_stop_backup(false, false)")
    )
    with superuser.cursor() as cursor:
        cursor.execute(f"select {start}")
        copied = subprocess.run(
            ["cp", "-a", str(source), str(target)], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
        )
        faults = [
            line for line in copied.stderr.splitlines() if not line.endswith("No such file or directory")
        ]  # deleted meanwhile
        assert not faults, "\n".join(faults)
        cursor.execute(f"select labelfile from {stop}")
        (label,) = cursor.fetchone()
    (target / "postmaster.pid").unlink()
    for slot in (target / "pg_replslot").iterdir():
        shutil.rmtree(slot)
    (target / "backup_label").write_text(label)
    (target / "standby.signal").touch()
    with open(target / "postgresql.auto.conf", "a") as settings:
        settings.write(f"primary_conninfo = '{primary_conninfo}'\n")
    if os.geteuid() == 0:
        owner = source.stat()
        for name in ("backup_label", "standby.signal"):
            os.chown(target / name, owner.st_uid, owner.st_gid)
