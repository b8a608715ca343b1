"""What `cmake --install` leaves behind, and that a user's project can be built with it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from support import processes
from support.package import EXAMPLE, LOCKCORE, build_folder, built_against, configure, run


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_lockcore_when_installed_then_the_library_alone_is_there(prefix: Path) -> None:
    installed = names_below(prefix)
    headers = {name for name in installed if name.startswith("include/")}
    assert headers == {f"include/lockcore/{path.name}" for path in (LOCKCORE / "include" / "lockcore").iterdir()}
    kinds = {re.sub(r".*/", "", name) for name in installed - headers}
    assert {"liblockcore.a", "liblockcore_proto.a", "lockcoreConfig.cmake", "lockcoreConfigVersion.cmake", "lockcoreTargets.cmake"} <= kinds
    assert "fencegate" not in kinds


def test_package_when_read_then_it_names_no_folder_of_the_build(prefix: Path) -> None:
    for path in prefix.rglob("*.cmake"):
        assert str(processes.repository()) not in path.read_text(), path.name


def test_fencegate_when_installed_then_its_program_runs(folder: Path) -> None:
    run("cmake", "--install", build_folder(), "--prefix", folder / "program", "--component", "fencegate")
    assert names_below(folder / "program") == {"bin/fencegate"}
    run(folder / "program" / "bin" / "fencegate", "--help")


def test_lockcore_when_built_alone_then_every_public_header_stands_by_itself(folder: Path) -> None:
    """As a project of its own: nothing of the gateway's is looked for."""
    build = processes.repository() / "build" / "tests" / "lockcore"  # kept, for it takes a minute
    cached = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    done = configure(LOCKCORE, build, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", *cached)
    assert done.returncode == 0, done.stdout + done.stderr
    cache = (build / "CMakeCache.txt").read_text()
    assert not [word for word in ("pqxx", "yaml", "spdlog", "CLI11", "GTest") if word in cache]
    run("cmake", "--build", build)
    run("cmake", "--build", build, "--target", "all_verify_interface_header_sets")
    run("cmake", "--install", build, "--prefix", folder / "alone")
    assert "lib/liblockcore.a" in {re.sub(r"^lib.*/", "lib/", name) for name in names_below(folder / "alone")}


def test_package_when_hiredis_is_missing_then_it_says_so(folder: Path, prefix: Path) -> None:
    nothing = folder / "nothing"
    nothing.mkdir()
    done = configure(EXAMPLE, folder / "without-hiredis", f"-DCMAKE_PREFIX_PATH={prefix}", PKG_CONFIG_LIBDIR=str(nothing))
    assert done.returncode != 0
    assert "lockcore needs hiredis" in re.sub(r"\s+", " ", done.stderr)


def test_readme_when_its_program_is_taken_out_then_it_compiles_and_links(folder: Path, prefix: Path) -> None:
    """The usage in lockcore/README.md, in the place of the example's program."""
    program = re.search(r"^```cpp\n(.*?)^```$", (LOCKCORE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert program, "lockcore/README.md shows no program"
    source = folder / "readme"
    shutil.copytree(EXAMPLE, source)
    (source / "take_lease.cpp").write_text(program.group(1))
    built_against(prefix, source, folder / "readme-build")


def test_readme_when_it_shows_cmake_then_as_the_example_has_it() -> None:
    """Line by line, so that it can't go stale."""
    shown = re.search(r"^```cmake\n(.*?)^```$", (LOCKCORE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown
    lines = (EXAMPLE / "CMakeLists.txt").read_text().splitlines()
    assert [line for line in shown.group(1).splitlines() if line not in lines] == []
