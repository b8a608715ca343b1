"""The files that `cmake --install` installs, and building a user's project with them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from support import processes
from support.package import EXAMPLE, LOCKCORE, build_folder, built_against, configure, run


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_install_lockcore_contains_only_the_library(prefix: Path) -> None:
    installed = names_below(prefix)
    headers = {name for name in installed if name.startswith("include/")}
    assert headers == {f"include/lockcore/{path.name}" for path in (LOCKCORE / "include" / "lockcore").iterdir()}
    files = {re.sub(r".*/", "", name) for name in installed - headers}
    assert (
        set(
            (
                "liblockcore.a liblockcore_proto.a lockcoreConfig.cmake lockcoreConfigVersion.cmake "
                "lockcoreTargets.cmake"
            ).split()
        )
        <= files
    )
    assert "fencegate" not in files


def test_install_package_names_no_build_folder(prefix: Path) -> None:
    for path in prefix.rglob("*.cmake"):
        assert str(processes.repository()) not in path.read_text(), path.name


def test_install_fencegate_program_runs(folder: Path) -> None:
    prefix = folder / "program"
    run("cmake", "--install", build_folder(), "--prefix", prefix, "--component", "fencegate")
    program, document = prefix / "bin/fencegate", prefix / "share/doc/fencegate/fencegate.spdx.json"
    assert names_below(prefix) == {
        "bin/fencegate",
        "etc/fencegate/fencegate.yaml",
        "etc/logrotate.d/fencegate",
        "lib/systemd/system/fencegate.service",
        "lib/systemd/system/fencegate@.service",
        "lib/sysusers.d/fencegate.conf",
        "lib/tmpfiles.d/fencegate.conf",
        "share/bash-completion/completions/fencegate",
        "share/fish/vendor_completions.d/fencegate.fish",
        "share/zsh/site-functions/_fencegate",
        "share/man/man1/fencegate.1",
        "share/man/man5/fencegate.yaml.5",
        *(
            f"share/doc/fencegate/{name}"
            for name in (
                "CHANGELOG.md fencegate.spdx.json examples/redis-node.conf examples/grafana/fencegate.json "
                "examples/prometheus/fencegate.rules.yml examples/prometheus/prometheus.yml"
            ).split()
        ),
    }
    run(program, "--help")
    installed = json.loads(document.read_text())["packages"][0]
    assert installed["checksums"][0]["checksumValue"] == hashlib.sha256(program.read_bytes()).hexdigest()
    unit = (prefix / "lib/systemd/system/fencegate.service").read_text()
    assert f"\nExecStart={program} serve --config {prefix}/etc/fencegate/fencegate.yaml\n" in unit


def test_install_again_keeps_the_operators_configuration(folder: Path) -> None:
    prefix = folder / "again"
    install = ("cmake", "--install", build_folder(), "--prefix", prefix, "--component", "fencegate")
    run(*install)
    configuration = prefix / "etc/fencegate/fencegate.yaml"
    assert configuration.stat().st_mode & 0o777 == 0o640, "it may get passwords"
    configuration.write_text("http: {port: 8081}\n")
    run(*install)
    assert configuration.read_text() == "http: {port: 8081}\n"


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z_]{3,}", text.lower()))


def rendered(page: Path) -> str:
    return run(
        *"man --warnings --no-hyphenation --local-file".split(),
        page,
        env={**os.environ, "MANWIDTH": "500", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
    )


def test_install_man_pages_have_all_words_of_their_sources(folder: Path) -> None:
    """Each option and key is explained as in docs/cli.md, in --help and in config/fencegate.yaml."""
    root = processes.repository()
    for name, program in (
        ("fencegate.1", build_folder() / "fencegate"),
        ("fencegate.yaml.5", build_folder() / "fencegate"),
    ):
        run(root / "config" / "make-man-pages", program, folder)
        shown = words_of(rendered(folder / name))
        if name.endswith("5"):
            source = (root / "config" / "fencegate.yaml").read_text()
        else:
            targets = re.compile(
                r"\]\([^)]*\)|^```\w*|<!--.*-->|^\|.*\|\n(?=\| ---)", re.MULTILINE
            )  # and headings of tables
            source = targets.sub("", (root / "docs/cli.md").read_text())
            commands = re.findall(r"^  ([a-z-]+) {2,}", run(program, "--help").split("Subcommands:")[1], re.MULTILINE)
            assert len(commands) > 8
            source += "".join(run(program, command, "--help") for command in commands).replace(
                str(program), "fencegate"
            )
        assert words_of(source) - shown <= {"command"} if name.endswith("1") else words_of(source) <= shown


def test_install_lockcore_headers_compile_alone(folder: Path) -> None:
    """As a project of its own, without the gateway's dependencies."""
    build = processes.repository() / "build" / "tests" / "lockcore"  # kept, because the build takes a minute
    cached = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    done = configure(LOCKCORE, build, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", *cached)
    assert done.returncode == 0, done.stdout + done.stderr
    cache = (build / "CMakeCache.txt").read_text()
    assert not [word for word in ("pqxx", "yaml", "spdlog", "CLI11", "GTest") if word in cache]
    run("cmake", "--build", build)
    run("cmake", "--build", build, "--target", "all_verify_interface_header_sets")
    run("cmake", "--install", build, "--prefix", folder / "alone")
    assert "lib/liblockcore.a" in {re.sub(r"^lib.*/", "lib/", name) for name in names_below(folder / "alone")}


def test_install_package_without_hiredis_fails_with_reason(folder: Path, prefix: Path) -> None:
    empty = folder / "empty"
    empty.mkdir()
    done = configure(EXAMPLE, folder / "without-hiredis", f"-DCMAKE_PREFIX_PATH={prefix}", PKG_CONFIG_LIBDIR=str(empty))
    assert done.returncode != 0
    assert "lockcore needs hiredis" in re.sub(r"\s+", " ", done.stderr)


def test_install_readme_cmake_matches_the_example() -> None:
    """Compares line by line."""
    shown = re.search(r"^```cmake\n(.*?)^```$", (LOCKCORE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown
    lines = (EXAMPLE / "CMakeLists.txt").read_text().splitlines()
    assert [line for line in shown.group(1).splitlines() if line not in lines] == []
