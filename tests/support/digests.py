"""Digests of a history, made by the gateways of a cluster of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from support.certificates import make_digest_key
from support.cluster import Cluster
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack
from support.verified import verify

INTERVAL_MS = 1_000
ADD = "insert into fencing.history (event, resource, owner, at) values ('request_denied', %s, %s, %s)"
TAMPER = """begin; alter table fencing.history disable trigger history_append_only; {};
            alter table fencing.history enable always trigger history_append_only; commit"""


@dataclass
class Digests:
    """A cluster whose gateways make digests, and their file."""

    cluster: Cluster
    folder: Path

    def settings(self, key: str = "first", file: str = "digests", **audit: object) -> dict[str, Any]:
        settings = self.cluster.settings()
        settings["audit"] = {
            "digest_key_file": str(self.folder / f"{key}.key"),
            "digest_interval_ms": INTERVAL_MS,
            "digest_file": str(self.folder / file),
            **audit,
        }
        return settings

    def query(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self.cluster.query(statement, arguments)

    def lines(self, file: str = "digests") -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def add(self, resource: str, owner: str = "an owner", at: str = "now") -> int:
        """Adds a row, and waits until a digest in the file covers it. Returns its id."""
        self.query(ADD, (resource, owner, at))
        ((row,),) = self.query("select id from fencing.history where resource = %s", (resource,))
        self.wait_for(row)
        return row

    def wait_for(self, row: int) -> None:
        eventually(lambda: self.covered() >= row, 30, goal=f"a digest covers row {row}")

    def covered(self) -> int:
        return json.loads(self.lines()[-1])["history"]["to"] if self.lines() else 0

    def verify(self, file: str = "digests", keys: tuple[str, ...] = ("first",)) -> dict[str, Any]:
        public = [argument for key in keys for argument in ("--public-key", str(self.folder / f"{key}.pub"))]
        done = verify(self.cluster.conninfo(), "--json", "--digests", str(self.folder / file), *public)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return json.loads(done.stdout)

    def findings(self, **arguments: Any) -> list[str]:
        return [f["detail"] for f in self.verify(**arguments)["findings"] if f["promise"] == "f"]

    def digest_of(self, row: int) -> int:
        """The number of the digest that covers a row."""
        for line in self.lines():
            digest = json.loads(line)
            if digest["history"]["after"] < row <= digest["history"]["to"]:
                return digest["number"]
        raise AssertionError(f"no digest covers {row}")


@pytest.fixture
def digests(stack: Stack, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[Digests]:
    make_digest_key(tmp_path, "first")
    with running_cluster(stack, unique_name("digests").replace("-", "_")) as cluster:
        yield Digests(cluster, tmp_path)


@pytest.fixture
def made(digests: Digests) -> Digests:
    """Three digests, of the rows of a/1, a/2 and a/3, made by a gateway that has ended."""
    with digests.cluster.serving(digests.settings()):
        for number in (1, 2, 3):
            digests.add(f"a/{number}")
    return digests


def row_of(digests: Digests, resource: str) -> int:
    return digests.query("select id from fencing.history where resource = %s", (resource,))[0][0]
