"""The files that `cmake --install` installs, and building a user's project with them."""

from __future__ import annotations

import hashlib
import json
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
    assert {"liblockcore.a", "liblockcore_proto.a", "lockcoreConfig.cmake", "lockcoreConfigVersion.cmake", "lockcoreTargets.cmake"} <= files
    assert "fencegate" not in files


def test_install_package_names_no_build_folder(prefix: Path) -> None:
    for path in prefix.rglob("*.cmake"):
        assert str(processes.repository()) not in path.read_text(), path.name


def test_install_fencegate_program_runs(folder: Path) -> None:
    run("cmake", "--install", build_folder(), "--prefix", folder / "program", "--component", "fencegate")
    program, document = "bin/fencegate", "share/doc/fencegate/fencegate.spdx.json"
    assert names_below(folder / "program") == {program, document}
    run(folder / "program" / program, "--help")
    installed = json.loads((folder / "program" / document).read_text())["packages"][0]
    assert installed["checksums"][0]["checksumValue"] == hashlib.sha256((folder / "program" / program).read_bytes()).hexdigest()


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


def test_install_readme_program_compiles_and_links(folder: Path, prefix: Path) -> None:
    """Builds the program of lockcore/README.md in place of the example's program."""
    program = re.search(r"^```cpp\n(.*?)^```$", (LOCKCORE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert program, "lockcore/README.md shows no program"
    source = folder / "readme"
    shutil.copytree(EXAMPLE, source)
    (source / "take_lease.cpp").write_text(program.group(1))
    built_against(prefix, source, folder / "readme-build")


def test_install_readme_cmake_matches_the_example() -> None:
    """Compares line by line."""
    shown = re.search(r"^```cmake\n(.*?)^```$", (LOCKCORE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown
    lines = (EXAMPLE / "CMakeLists.txt").read_text().splitlines()
    assert [line for line in shown.group(1).splitlines() if line not in lines] == []
