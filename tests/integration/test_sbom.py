"""config/make-sbom: an SPDX 2.3 document with every library that the program loads."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from typing import Any

import pytest
from support import processes

MAKE_SBOM = processes.repository() / "config" / "make-sbom"


def make_sbom(program: str) -> subprocess.CompletedProcess:
    # Without proxies and names of hosts there is nothing that it could ask but the packages of this machine.
    return processes.run(
        [str(MAKE_SBOM), program], timeout=300, env={"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": "1795000000"}
    )


@pytest.fixture(scope="module")
def document() -> Any:
    done = make_sbom(str(processes.fencegate_binary()))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sbom_has_the_required_fields_of_spdx(document: Any) -> None:
    assert (
        document["spdxVersion"] == "SPDX-2.3"
        and document["dataLicense"] == "CC0-1.0"
        and document["SPDXID"] == "SPDXRef-DOCUMENT"
    )
    assert document["name"] and re.fullmatch(r"https?://[^\s#]+", document["documentNamespace"])
    assert document["creationInfo"]["created"] == "2026-11-18T11:06:40Z"
    assert all(re.match(r"(Tool|Person|Organization): \S", creator) for creator in document["creationInfo"]["creators"])
    ids = [package["SPDXID"] for package in document["packages"]]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in ids)
    for package in document["packages"]:
        assert (
            package["name"]
            and package["versionInfo"]
            and package["downloadLocation"]
            and package["filesAnalyzed"] is False
        ), package
        for reference in package.get("externalRefs", []):
            assert (reference["referenceCategory"], reference["referenceType"]) == ("PACKAGE-MANAGER", "purl")
            assert re.fullmatch(
                r"pkg:deb/[a-z]+/[^@\s]+@[^?\s]+\?arch=[a-z0-9]+&distro=[a-z0-9.-]+", reference["referenceLocator"]
            ), reference
    known = {"SPDXRef-DOCUMENT", *ids}
    assert all(
        {relation["spdxElementId"], relation["relatedSpdxElement"]} <= known for relation in document["relationships"]
    )
    related = {relation["spdxElementId"] for relation in document["relationships"]} | {
        relation["relatedSpdxElement"] for relation in document["relationships"]
    }
    assert related == known, "no package is left out of them"


def test_sbom_names_the_program_by_its_digest(document: Any) -> None:
    program = next(package for package in document["packages"] if package["name"] == "fencegate")
    assert document["documentDescribes"] == [program["SPDXID"]]
    assert program["checksums"] == [
        {"algorithm": "SHA256", "checksumValue": hashlib.sha256(processes.fencegate_binary().read_bytes()).hexdigest()}
    ]


def test_sbom_has_a_package_for_each_library_that_is_loaded(document: Any) -> None:
    loaded = re.findall(r"=> (/\S+)", processes.run(["ldd", str(processes.fencegate_binary())], check=True).stdout)
    linked = {
        relation["relatedSpdxElement"]
        for relation in document["relationships"]
        if relation["relationshipType"] == "DYNAMIC_LINK"
    }
    versions = {
        package["name"]: package["versionInfo"] for package in document["packages"] if package["SPDXID"] in linked
    }
    assert len(loaded) > 20
    for library in loaded:
        paths = {library, f"/usr{library}", library.removeprefix("/usr"), os.path.realpath(library)}
        owners = {name for path in paths for name in versions if path in files_of(name)}
        assert owners, f"{library}: none of {sorted(versions)}"
    assert "libboost1.81-dev" in {package["name"] for package in document["packages"]}, "headers that are compiled in"
    assert versions["libssl3"] == processes.run(["dpkg-query", "-W", "-f", "${Version}", "libssl3"], check=True).stdout


_files: dict[str, set[str]] = {}


def files_of(package: str) -> set[str]:
    if package not in _files:
        _files[package] = set(processes.run(["dpkg-query", "-L", package], check=True).stdout.split("\n"))
    return _files[package]


def test_sbom_of_no_program_exits_64() -> None:
    done = make_sbom("/nowhere")
    assert done.returncode == 64 and "usage" in done.stderr and not done.stdout
