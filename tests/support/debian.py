"""A Debian root file system for the tests of the package, made by mmdebstrap, and systemd in it,
run by systemd-nspawn."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import uuid
from pathlib import Path

from support import processes
from support.package import run
from support.polling import eventually


# What the tests use beside what the package depends on.
ALWAYS = ["logrotate", "systemd"]


def field_of(package: Path, name: str) -> str:
    return run("dpkg-deb", "--field", package, name).strip()


def dependencies_of(package: Path) -> list[str]:
    """Returns the names of the packages that it depends on; the first of alternatives."""
    return [re.split(r"[ |(]", one.strip())[0] for one in field_of(package, "Depends").split(",")]


def codename() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert found
    return found[1]


def base_archive(package: Path) -> Path:
    """Returns an archive of a minimal Debian with the packages that this one depends on.
    It is kept in build, because it is downloaded."""
    names = sorted({*ALWAYS, *dependencies_of(package)})
    archive = (
        processes.repository()
        / "build"
        / "tests"
        / f"debian-{hashlib.sha256(' '.join([codename(), *names]).encode()).hexdigest()[:12]}.tar"
    )
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        made = archive.with_suffix(f".{os.getpid()}.tar")
        run("mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(names)}", codename(), made)
        made.rename(archive)
    return archive


class Root:
    """The file system in a folder. Commands run in it without systemd, or, after start(), with it;
    they see the loopback interface of this machine."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self.process: subprocess.Popen | None = None
        folder.mkdir()
        run("tar", "-xf", base_archive(package), "-C", folder)
        self.path("/etc/hosts").write_text("127.0.0.1 localhost\n")

    def path(self, name: str) -> Path:
        return self.folder / name.lstrip("/")

    def call(self, *command: object, timeout: float = 60.0) -> subprocess.CompletedProcess:
        if self.process:
            enter = ["nsenter", "--all", "--target", str(self.pid_here("1"))]
        else:
            enter = [
                *"unshare --mount -- sh -c".split(),
                'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"',
                str(self.folder),
            ]
        return processes.run(
            [*enter, *map(str, command)],
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
        )

    def run(self, *command: object) -> str:
        done = self.call(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: Path) -> str:
        target = self.path("/srv") / package.name
        target.write_bytes(package.read_bytes())
        return self.run("dpkg", "--force-confdef", "--force-confold", "--install", f"/srv/{package.name}")

    def start(self) -> None:
        """Boots systemd."""
        self.process = processes.start(
            [
                "systemd-nspawn",
                "--quiet",
                f"--machine=fencegate-{uuid.uuid4().hex[:8]}",
                "--register=no",
                "--keep-unit",
                f"--directory={self.folder}",
                "--boot",
            ],
            self.log,
        )
        eventually(
            lambda: self.call("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
            60,
            goal="systemd has started",
        )

    def pid_here(self, pid: str) -> int:
        """Returns the id on this machine of a process there."""
        assert self.process is not None
        for process in processes.descendants(self.process.pid):
            if re.search(rf"^NSpid:.*\t{pid}$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE):
                return process
        raise AssertionError(f"no process {pid} in {self.folder}:\n{self.log.read_text()[-2000:]}")

    def property(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).strip()

    def stop(self) -> None:
        if self.process:
            process, self.process = self.process, None
            processes.stop(process, 60)
