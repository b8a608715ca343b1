"""Exports that end with a signed proof, and `fencegate verify --export`, which finds what was done to one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Iterator

import pytest
from support.api import Api, pointers_of
from support.certificates import make_digest_key
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack


@pytest.fixture(scope="module")
def proving(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Path]]:
    """A gateway with a key, in a database with 2,500 events, and the folder of the key."""
    folder = tmp_path_factory.mktemp("proving")
    make_digest_key(folder, "first")
    make_digest_key(folder, "other")
    with running_cluster(stack, "proved_exports") as cluster:
        cluster.query(
            """insert into fencing.history (event, resource, owner)
               select 'request_denied', 'p/' || n, 'an owner' from generate_series(1, 2500) as t (n)"""
        )
        settings = cluster.settings()
        settings["audit"] = {"digest_key_file": str(folder / "first.key")}
        with cluster.serving(settings) as gateway:
            yield gateway, folder


def check(folder: Path, body: bytes, key: str = "first") -> dict[str, Any]:
    (folder / "export").write_bytes(body)
    done = Cluster.call(
        "verify", "--json", "--export", str(folder / "export"), "--public-key", str(folder / f"{key}.pub")
    )
    report = json.loads(done.stdout)
    assert done.returncode == {"proved": 0, "broken": 1}[report["verdict"]], done.stderr
    return report


def export_of(gateway: Gateway, path: str = "/v1/history", **query: object) -> bytes:
    answer = gateway.api.get(path, {"Accept": "application/x-ndjson"}, proof="true", **query)
    assert answer.status == 200, answer
    return answer.body


def test_proof_names_lines_ids_and_query(proving: tuple[Gateway, Path]) -> None:
    gateway, folder = proving
    body = export_of(gateway, resource_prefix="p/", order="asc")
    *lines, last = body.splitlines(keepends=True)
    report = check(folder, body)
    proof = report["proof"]
    assert proof["count"] == len(lines) == 2500 and proof["export"] == "history"
    assert (proof["first_id"], proof["last_id"]) == (json.loads(lines[0])["id"], json.loads(lines[-1])["id"])
    assert proof["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest() and "resource_prefix" in proof["query"]
    assert {**proof, "signature": json.loads(last)["signature"]} == json.loads(last)
    plain = gateway.api.get("/v1/history", {"Accept": "application/x-ndjson"}, resource_prefix="p/", order="asc")
    assert plain.body == b"".join(lines), "without proof nothing is added"


def test_proof_of_no_items_and_of_changes(proving: tuple[Gateway, Path]) -> None:
    gateway, folder = proving
    for path, kind in (("/v1/history", "history"), ("/v1/changes", "changes")):
        proof = check(folder, export_of(gateway, path, resource="nothing/there"))["proof"]
        assert (proof["export"], proof["count"], proof["first_id"], proof["last_id"]) == (kind, 0, 0, 0)


def test_altered_exports_are_broken(proving: tuple[Gateway, Path]) -> None:
    gateway, folder = proving
    body = export_of(gateway, resource_prefix="p/", order="asc", limit=5)
    lines = body.splitlines(keepends=True)
    proof = lines[-1]
    fewer = json.loads(proof) | {"count": 4, "sha256": hashlib.sha256(b"".join(lines[:4])).hexdigest()}
    altered = {
        "a value": body.replace(b"an owner", b"no owner", 1),
        "a line less": b"".join(lines[1:]),
        "a line more": lines[0] + body,
        "another order": b"".join([lines[1], lines[0], *lines[2:]]),
        "no proof": b"".join(lines[:-1]),
        "a line after the proof": body + lines[0],
        "two exports": body + body,
        "cut in the proof": body[:-20],
        "without its last line break": body[:-1],
        "a line break of Windows": body.replace(b"}\n", b"}\r\n", 1),
        "an empty line": b"\n" + body,
        "a proof made to fit": b"".join(lines[:4]) + json.dumps(fewer, separators=(",", ":")).encode() + b"\n",
        "another query": body.replace(b'"query":"', b'"query":"x=1&'),
        "a member added to the proof": body.replace(b'{"export"', b'{"x":1,"export"'),
        "nothing": b"",
    }
    assert check(folder, body)["verdict"] == "proved"
    for what, changed in altered.items():
        assert changed != body and check(folder, changed)["verdict"] == "broken", what
    assert check(folder, body, key="other")["verdict"] == "broken"
    for what, lines_there in (("a line less", 4), ("a line more", 6)):
        assert check(folder, altered[what])["fault"] == f"it has {lines_there} lines; 5 were exported"


def test_signed_digest_is_no_proof_of_export(proving: tuple[Gateway, Path]) -> None:
    gateway, folder = proving
    eventually(lambda: gateway.api.get("/v1/history/digests").json()["items"], 30, goal="a digest is made")
    digests = gateway.api.get("/v1/history/digests", {"Accept": "application/x-ndjson"}).body
    assert check(folder, digests)["verdict"] == "broken"


def test_proof_without_key_or_lines_is_refused(api: Api, proving: tuple[Gateway, Path]) -> None:
    for at, media in (
        (api, "application/x-ndjson"),
        (proving[0].api, "text/csv"),
        (proving[0].api, "application/json"),
    ):
        refused = at.get("/v1/history", {"Accept": media}, proof="true")
        assert pointers_of(refused) == ["proof"]
