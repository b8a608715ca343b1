"""The Debian package: how it is built, what is in it, and that lintian has no objection."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from support import processes
from support.package import build_folder, run

ROOT = processes.repository()


@pytest.fixture(scope="module")
def contents(folder: Path, package: Path) -> Path:
    run("dpkg-deb", "--extract", package, folder / "contents")
    return folder / "contents"


def listed(package: Path) -> dict[str, tuple[str, str]]:
    """Returns the mode and the owner of each file of the package; folders end with a slash."""
    lines = [line.split() for line in run("dpkg-deb", "--contents", package).splitlines()]
    return {line[5].removeprefix("."): (line[0], line[1]) for line in lines}


def test_package_has_no_objection_of_lintian(package: Path) -> None:
    done = processes.run(
        ["lintian", "--fail-on=error,warning", "--allow-root", *package.parent.glob("*.changes")], timeout=300
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    [overrides] = (ROOT / "config" / "debian").glob("*lintian-overrides*")
    assert overrides.name.startswith("fencegate-client.")


def test_package_has_the_files_that_cmake_installs(folder: Path, package: Path) -> None:
    destination = folder / "destination"
    run(
        "env",
        f"DESTDIR={destination}",
        "cmake",
        "--install",
        build_folder(),
        *"--prefix /usr --component fencegate".split(),
    )
    installed = {"/" + str(path.relative_to(destination)) for path in destination.rglob("*") if path.is_file()}
    packaged = {name for name in listed(package) if not name.endswith("/")}
    documents = {f"/usr/share/doc/fencegate/{name}" for name in ("changelog.gz", "copyright")}
    assert packaged >= documents and {name.removesuffix(".gz") for name in packaged - documents} == installed
    assert "/etc/fencegate/fencegate.yaml" in installed and "/usr/bin/fencegate" in installed


def test_package_files_are_roots_and_none_else_may_write(package: Path) -> None:
    """What only some may read gets its owner at the installation."""
    for name, (mode, owner) in listed(package).items():
        assert (mode, owner) == (
            "drwxr-xr-x" if name.endswith("/") else "-rwxr-xr-x" if name == "/usr/bin/fencegate" else "-rw-r--r--",
            "root/root",
        ), name


def test_package_checksums_name_every_package(package: Path) -> None:
    sums = dict(reversed(line.split()) for line in (package.parent / "SHA256SUMS").read_text().splitlines())
    made = [*package.parent.glob("*.deb"), *package.parent.glob("fencegate-linux-*")]
    assert sums == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in made} and len(sums) == 4


def test_client_package_needs_nothing_and_has_the_file(folder: Path, package: Path) -> None:
    [client] = package.parent.glob("fencegate-client_*.deb")
    assert run("dpkg-deb", "--field", client, "Depends").strip() == ""
    assert (
        run("dpkg-deb", "--field", package, "Conflicts").strip() == "fencegate-client"
    ), "both have /usr/bin/fencegate"
    run("dpkg-deb", "--extract", client, folder / "client")
    program = folder / "client/usr/bin/fencegate"
    [alone] = package.parent.glob("fencegate-linux-*")
    assert alone.read_bytes() == program.read_bytes() and alone.stat().st_mode & 0o777 == 0o755
    assert " lock " in run(alone, "--help") and not (folder / "client/etc").exists()
    assert "lock" in run("gzip", "--decompress", "--stdout", folder / "client/usr/share/man/man1/fencegate.1.gz")
    document = json.loads((folder / "client/usr/share/doc/fencegate-client/fencegate.spdx.json").read_text())
    assert document["packages"][0]["checksums"][0]["checksumValue"] == hashlib.sha256(alone.read_bytes()).hexdigest()
    assert {"libcurl4-openssl-dev", "libssl-dev"} <= {package["name"] for package in document["packages"]}


def test_package_version_is_that_of_the_program(package: Path, contents: Path) -> None:
    version = re.search(r"^project\(fencegate VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert version and run("dpkg-deb", "--field", package, "Version").strip() == version[1]
    assert run(contents / "usr/bin/fencegate", "--version") == f"fencegate {version[1]}\n"


def test_package_program_is_stripped_and_its_symbols_apart(folder: Path, package: Path, contents: Path) -> None:
    program = contents / "usr/bin/fencegate"
    assert not re.search(r"\.(symtab|debug_info)\b", run("readelf", "--sections", "--wide", program))
    [build_id] = re.findall(r"Build ID: ([0-9a-f]{40})", run("readelf", "--notes", program))
    [symbols] = package.parent.glob("fencegate-dbgsym_*.deb")
    run("dpkg-deb", "--extract", symbols, folder / "symbols")
    file = folder / f"symbols/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    assert ".debug_line" in run("readelf", "--sections", "--wide", file)


def test_package_bill_of_materials_names_the_stripped_program(contents: Path) -> None:
    document = json.loads((contents / "usr/share/doc/fencegate/fencegate.spdx.json").read_text())
    digest = hashlib.sha256((contents / "usr/bin/fencegate").read_bytes()).hexdigest()
    assert [
        package["checksums"][0]["checksumValue"] for package in document["packages"] if package["name"] == "fencegate"
    ] == [digest]


def test_package_configuration_files_are_kept_by_dpkg(package: Path) -> None:
    assert set(run("dpkg-deb", "--info", package, "conffiles").split()) == {
        "/etc/fencegate/fencegate.yaml",
        "/etc/logrotate.d/fencegate",
    }


def test_package_completions_are_those_of_the_program(contents: Path) -> None:
    for shell, place in (
        ("bash", "bash-completion/completions/fencegate"),
        ("zsh", "zsh/vendor-completions/_fencegate"),
        ("fish", "fish/vendor_completions.d/fencegate.fish"),
    ):
        assert (contents / "usr/share" / place).read_text() == run(contents / "usr/bin/fencegate", "completion", shell)


def test_package_needs_for_its_build_what_the_build_needs() -> None:
    """config/debian/control has every package of config/debian-packages.txt that CMake or config/install.cmake uses."""
    control = set(
        re.findall(r"^ ([a-z0-9.+-]+),$", (ROOT / "config/debian/control").read_text().split("\n\n")[0], re.MULTILINE)
    )
    lines = [
        line.split()
        for line in (ROOT / "config/debian-packages.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    packages = {words[0] for words in lines if words[1:] != ["tests"]}
    only_to_run_or_develop = {"ccache", "curl", "g++", "postgresql", "postgresql-contrib", "redis-server"}
    assert packages - only_to_run_or_develop <= control and control - packages == {
        "dh-sequence-installsysusers",
        "systemd",
    }
