"""Building fencegate with and without the presets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import processes
from support.package import configure

ROOT = processes.repository()


def compile_commands(build: Path) -> list[str]:
    return [entry["command"] for entry in json.loads((build / "compile_commands.json").read_text())]


@pytest.mark.parametrize("kind", ["", "Release"])
def test_build_without_preset_keeps_warnings(folder: Path, kind: str) -> None:
    """Because g++ 12 has false warnings at -O3, and other compilers have others."""
    done = configure(
        ROOT,
        folder / f"plain{kind}",
        f"-DCMAKE_BUILD_TYPE={kind}",
        "-DFENCEGATE_TESTS=OFF",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    commands = compile_commands(folder / f"plain{kind}")
    assert commands and not [command for command in commands if "-Werror" in command.split()]
    assert all("-Wall" in command.split() for command in commands if "/gateway/" in command)


def test_build_presets_for_developers_make_warnings_errors(folder: Path) -> None:
    presets = {each["name"]: each for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}

    def inherited(name: str) -> dict[str, str]:
        own = presets[name].get("cacheVariables", {})
        return {**(inherited(presets[name]["inherits"]) if "inherits" in presets[name] else {}), **own}

    assert [name for name in presets if inherited(name).get("FENCEGATE_WARNINGS_AS_ERRORS") == "ON"] == [
        "develop",
        "debug-asan",
        "debug-tsan",
        "ci",
    ]
    done = configure(
        ROOT,
        folder / "strict",
        "-DFENCEGATE_WARNINGS_AS_ERRORS=ON",
        "-DFENCEGATE_TESTS=OFF",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    compiled = [command for command in compile_commands(folder / "strict") if "/gateway/" in command]
    assert compiled and all("-Werror" in command.split() for command in compiled)
