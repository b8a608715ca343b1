"""docs/recipes/history-files.md: its service and rsyslog carry every event to a file, its script keeps signed days."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.certificates import make_digest_key
from support.cluster import Cluster, Gateway, credentials
from support.cluster import running as running_cluster
from support.documents import blocks_of, faults_of
from support.polling import eventually
from support.stack import Stack

ROOT = processes.repository()
PAGE = ROOT / "docs/recipes/history-files.md"
KEY = "the-key-of-a-reader"


class Machine:
    """The machine of the page: a folder in place of its folders, and a gateway with a key for digests."""

    def __init__(self, cluster: Cluster, gateway: Gateway, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.shipped, self.followed = folder / "history.ndjson", folder / "state/history.ndjson"
        self.places = {
            "http://localhost:8080": gateway.api.url,
            "/etc/history.key": str(folder / "key"),
            "/srv": str(folder),
            "/var/lib/history": str(folder / "state"),
        }
        self.followed.parent.mkdir()
        (folder / "key").write_text(KEY)
        (folder / "programs").mkdir()
        (folder / "programs/fencegate").symlink_to(processes.fencegate_binary())
        self.env = {
            **os.environ,
            "FENCEGATE_URL": gateway.api.url,
            "PATH": f"{folder / 'programs'}:{os.environ['PATH']}:/usr/sbin",
        }
        for block in blocks_of(PAGE, ROOT):
            text = block.text
            for theirs, ours in self.places.items():
                text = text.replace(theirs, ours)
            (folder / block.words).write_text(text)

    def add(self, first: int, last: int, at: str = "now()") -> None:
        self.cluster.query(
            f"insert into fencing.history (event, resource, owner, at, detail) select 'request_denied', 'files/a', "
            f"n::text, {at}, jsonb_build_object('text', repeat('ä', mod(n, 7) * 10000)) "
            "from generate_series(%s, %s) as t (n)",
            (first, last),
        )

    def begin(self, command: list[str], out: Path) -> subprocess.Popen:
        with out.open("a") as file:
            return subprocess.Popen(
                command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=(self.folder / "errors").open("a"),
                preexec_fn=processes.terminate_with_parent,
            )

    def follow(self) -> subprocess.Popen:
        """Starts the service as systemd does."""
        unit = dict(re.findall(r"(?m)^(\w+)=(.*)", (self.folder / "history.service").read_text()))
        assert unit["StandardOutput"] == f"append:{self.followed}"
        return self.begin(shlex.split(unit["ExecStart"]), self.followed)

    def ship(self) -> subprocess.Popen:
        return self.begin(
            ["rsyslogd", "-n", "-f", str(self.folder / "history.conf"), "-i", str(self.folder / "rsyslog.pid")],
            self.folder / "rsyslog.log",
        )

    def owners(self) -> list[str]:
        """Returns those of the shipped events, each once."""
        if not self.shipped.exists():
            return []
        lines = self.shipped.read_bytes().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line.endswith(b"}\n")]
        return list(dict.fromkeys(item["owner"] for item in whole if item["resource"] == "files/a"))


@pytest.fixture
def machine(stack: Stack, tmp_path: Path) -> Iterator[Machine]:
    make_digest_key(tmp_path, "digest")
    with running_cluster(stack, "history_files") as cluster:
        settings = cluster.settings()
        settings["audit"] = {"digest_key_file": str(tmp_path / "digest.key")}
        settings["auth"] = credentials({"reader": KEY}, "history")
        with cluster.serving(settings) as gateway:
            yield Machine(cluster, gateway, tmp_path)


def test_page_has_only_files() -> None:
    blocks = blocks_of(PAGE, ROOT)
    assert not faults_of(blocks) and {block.directive for block in blocks} == {"file"}


def test_unit_of_recipe_is_valid(tmp_path: Path) -> None:
    unit = next(block.text for block in blocks_of(PAGE, ROOT) if block.words == "history.service")
    file = tmp_path / "history.service"
    file.write_text(unit.replace("ExecStart=fencegate", f"ExecStart={processes.fencegate_binary()}"))
    done = processes.run(["systemd-analyze", "verify", str(file)])
    assert done.returncode == 0 and str(file) not in done.stderr, done.stderr


def test_shipper_has_every_event_after_kills_and_rotation(machine: Machine) -> None:
    running = {"follow": machine.follow(), "ship": machine.ship()}
    try:
        for round_, killed in enumerate(["follow", "ship", "rotate", "follow", "ship"]):
            machine.add(1 + 100 * round_, 100 + 100 * round_)
            eventually(lambda so_far=100 * round_ + 20: len(machine.owners()) >= so_far, 30, goal="some are shipped")
            name = "follow" if killed == "rotate" else killed
            running[name].send_signal(signal.SIGTERM if killed == "rotate" else signal.SIGKILL)
            running[name].wait()
            if killed == "rotate":
                eventually(lambda: len(machine.owners()) >= 220, 10)
                machine.followed.rename(machine.followed.with_suffix(".1"))
            if name == "ship":
                (machine.folder / "rsyslog.pid").unlink()
            running[name] = machine.follow() if name == "follow" else machine.ship()
        expected = [str(number) for number in range(1, 501)]
        eventually(lambda: len(machine.owners()) == 500, 30, goal="every event is shipped")
        assert machine.owners() == expected, "each, in order"
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def test_script_keeps_signed_days_and_no_other(machine: Machine) -> None:
    machine.add(1, 3, at="timestamptz '2026-11-20 12:00Z'")
    machine.add(4, 4, at="timestamptz '2026-11-21 00:00Z'")

    def export(day: str) -> subprocess.CompletedProcess:
        return processes.run(["/bin/sh", "export-day", day], cwd=machine.folder, env=machine.env, timeout=60)

    done = export("2026-11-20")
    assert done.returncode == 0, done
    *items, proof = [json.loads(line) for line in (machine.folder / "2026-11-20.ndjson").read_text().splitlines()]
    assert [item["owner"] for item in items] == ["1", "2", "3"] and proof["count"] == 3
    make_digest_key(machine.folder, "other")
    (machine.folder / "other.pub").rename(machine.folder / "digest.pub")
    assert export("2026-11-21").returncode != 0 and not (machine.folder / "2026-11-21.ndjson").exists()
