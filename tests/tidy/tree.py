"""The files of the tree, for the tests of its rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gateway", "lockcore", "sql", "tests", "config", "docker", "clients")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
CPP = {".cpp", ".hpp"}


def tracked() -> list[Path]:
    """Returns the files that are or could be committed; in a copy without git, all files."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        )
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if not {"build", ".git", "__pycache__"} & set(path.parts)
        ]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


FILES = tracked()


def files(*folders: str, suffixes: set[str] = CPP) -> list[Path]:
    roots = [ROOT / folder for folder in folders]
    return [path for path in FILES if path.suffix in suffixes and any(root in path.parents for root in roots)]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(path: Path) -> str:
    """Returns the text of a C++ file without comments and strings; line numbers stay the same."""
    text = path.read_text()
    blank = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return blank.sub(
        lambda match: match.group()
        if match.group().startswith('"') and "#" in text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        else "\n" * match.group().count("\n"),
        text,
    )


def includes(path: Path) -> list[str]:
    return INCLUDE.findall(code(path))
