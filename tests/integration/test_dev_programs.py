"""`fencegate dev` on a machine that lacks a program it starts."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
from support import processes
from support.stack import make_folder


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
