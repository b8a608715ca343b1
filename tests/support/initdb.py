"""Makes data folders of PostgreSQL: initdb runs once for each set of arguments, further folders are copies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "build" / "initdb"
SERVER_USER = "postgres"


def programs() -> Path:
    """Returns the folder of a server's programs: PG_BIN, else that of the installed PostgreSQL."""
    return Path(os.environ["PG_BIN"]) if os.environ.get("PG_BIN") else installed_programs()


def installed_programs() -> Path:
    """Returns the folder of the newest PostgreSQL of Debian, else that of initdb on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return (found[-1] if found else Path(shutil.which("initdb") or "/usr/bin/initdb").resolve()).parent


def unprivileged() -> dict[str, Any]:
    """Returns Popen arguments that run a program as postgres if the test is root, as whom PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(SERVER_USER)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def init_data(programs: Path, target: Path, *arguments: str, shares_identifier: bool = True) -> None:
    """Makes the data folder `target`, which must not exist or be empty, as `initdb ARGUMENT…` does.

    programs: the folder of initdb. shares_identifier: whether other servers may have the same system identifier.
    A server to which the data of another one is moved needs one of its own.
    """
    if not shares_identifier:
        run_initdb(programs, target, *arguments)
        return
    program = programs / "initdb"
    parts = [str(program.resolve()), str(program.stat().st_mtime_ns), str(os.geteuid()), *arguments]
    kept = KEPT / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # another process of the tests may be making it
        if not kept.exists():
            unfinished = kept.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            run_initdb(programs, unfinished, *arguments)
            unfinished.rename(kept)
    copy(kept, target)


def run_initdb(programs: Path, target: Path, *arguments: str) -> None:
    with tempfile.TemporaryDirectory(prefix="fg-initdb-") as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, SERVER_USER, SERVER_USER)
        made = Path(folder) / "data"
        done = subprocess.run(
            [str(programs / "initdb"), f"--pgdata={made}", "--no-sync", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=folder,
            **unprivileged(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        copy(made, target)


def copy(source: Path, target: Path) -> None:
    """Copies a folder with its owners and modes."""
    subprocess.run(["cp", "-aT", str(source), str(target)], check=True)
