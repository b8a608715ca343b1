"""`fencegate dev` on a machine that lacks a program it starts, and where callers elsewhere know its secret."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extensions import make_dsn
from support import processes
from support.stack import Stack, make_folder


def test_dev_says_in_one_line_that_redis_is_missing(tmp_path: Path) -> None:
    done = processes.run_fencegate(
        *f"dev --http 127.0.0.1:0 --data-dir {tmp_path / 'data'}".split(),
        env={**os.environ, "PATH": str(tmp_path)},
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "fencegate dev: redis-server is not on the PATH; "
        "on Debian: apt-get install redis-server postgresql postgresql-contrib\n",
    )


def test_dev_says_in_one_line_that_postgresql_is_missing(tmp_path: Path) -> None:
    """Debian's folders of PostgreSQL are hidden by an empty one."""
    folders = Path("/usr/lib/postgresql")
    hide = ["mount", "--bind", str(tmp_path), str(folders)] if folders.is_dir() else ["true"]
    if processes.run(["unshare", "--mount", *hide]).returncode != 0:
        pytest.skip("it needs a mount of its own")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "redis-server").symlink_to(shutil.which("redis-server") or "")
    data = make_folder()
    script = f'{shlex.join(hide)}; PATH="$1" exec "${{@:2}}"'
    command = [processes.fencegate_binary(), "dev", "--http", "127.0.0.1:0", "--data-dir", data / "data"]
    try:
        done = processes.run(["unshare", "--mount", "bash", "-euc", script, "-", programs, *command], timeout=20)
    finally:
        shutil.rmtree(data)
    assert (done.returncode, done.stderr) == (
        1,
        "fencegate dev: PostgreSQL's initdb is neither below /usr/lib/postgresql nor on the PATH; "
        "on Debian: apt-get install redis-server postgresql postgresql-contrib\n",
    )


def test_dev_keys_and_passwords_from_secret_known_beforehand() -> None:
    port = processes.free_port()
    stack = Stack("--auth", "--postgres", f"0.0.0.0:{port}")
    stack.prefix = ["env", "FENCEGATE_DEV_SECRET=knownToTheTest"]
    try:
        stack.start()
        assert stack.facts["api_keys"] == {
            name: f"api-{name}-knownToTheTest" for name in ("admin", "orders", "auditor")
        }
        password = "postgres-postgres-knownToTheTest"
        assert stack.facts["postgres"]["tcp"]["url"] == f"postgresql://postgres:{password}@127.0.0.1:{port}/fencegate"
        given = {"host": "127.0.0.2", "port": port, "dbname": "fencegate", "user": "postgres"}
        with contextlib.closing(psycopg2.connect(make_dsn(**given, password=password))) as session:
            assert session.info.host == "127.0.0.2"
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(make_dsn(**given, password="wrong"))
        in_use = processes.run_fencegate("dev", "--data-dir", str(stack.folder / "2"), "--postgres", f"0.0.0.0:{port}")
        assert in_use.returncode == 1 and "--postgres 127.0.0.1:0" in in_use.stderr
    finally:
        stack.remove()


@pytest.mark.parametrize("secret", ["", "short12", "x" * 65, "has a space in it", "has-hyphens", "with'quote"])
def test_dev_secret_unfit_is_refused_and_not_shown(tmp_path: Path, secret: str) -> None:
    done = processes.run_fencegate(
        "dev", "--data-dir", str(tmp_path / "data"), "--auth", env={**os.environ, "FENCEGATE_DEV_SECRET": secret}
    )
    assert done.returncode == 1 and "FENCEGATE_DEV_SECRET has to be 8 to 64" in done.stderr
    assert not secret or secret not in done.stderr + done.stdout
