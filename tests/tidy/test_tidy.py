"""The rules of the tree that no compiler checks: the form of files and comments, and what a commit must not leave."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from tree import FILES, ROOT, SOURCES, code, files, name

sys.path.insert(0, str(ROOT / "tests/sim"))

from run_mutations import apply_patch, join_mutants  # noqa: E402


def test_headers_begin_with_pragma_once() -> None:
    assert not [
        name(path)
        for path in files("gateway", "lockcore", "tests", suffixes={".hpp"})
        if path.name != "pch.hpp" and not path.read_text().startswith("#pragma once\n")
    ]


def test_file_names_are_snake_case() -> None:
    known = set(
        (
            "CMakeLists.txt README.md CMakePresets.json LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md "
            "Dockerfile Dockerfile.dockerignore"
        ).split()
    )
    forbidden = re.compile(r"[^a-z0-9_.-]")
    # javac demands that a file is named after its class.
    assert not [
        name(path)
        for path in FILES
        if path.name not in known and path.suffix != ".java" and forbidden.search(path.name)
    ]


LARGEST = {
    ".cpp": 450,
    ".hpp": 320,
    ".lua": 200,
    ".sql": 450,
    ".py": 460,
    ".java": 450,
    ".go": 450,
    ".sh": 250,
    ".md": 500,
    ".js": 400,
    ".ts": 350,
    ".css": 350,
    ".html": 200,
}
# Files that are larger, with the lines that each may have.
LARGER = {
    "clients/java/client/src/main/java/fencegate/client/FencegateClient.java": 475,
    "clients/python/src/fencegate/_protocol.py": 600,
    "sql/schema/110_protect.sql": 540,
    "sql/schema/120_checks.sql": 480,
}


def test_files_are_below_their_size_limits() -> None:
    found = [
        (name(path), lines)
        for path in FILES
        if path.suffix in LARGEST
        and any(ROOT / folder in path.parents for folder in SOURCES)
        and (lines := path.read_text().count("\n")) > LARGER.get(name(path), LARGEST[path.suffix])
    ]
    assert not found


WIDTH = 120
# Patterns of files, and of their lines, that may be longer, each with the reason.
LONG_LINES = {
    "*.out": r"",  # what psql prints
    "*.tsv": r"",  # a row is a line
    "*.patch": r"[ +-]",  # a line of C++ after a sign
    "tests/fuzz/corpus/*": r"",  # inputs, also such as have long lines
    "*/openapi.json": r"",  # descriptions are strings, as below, between other members of an object in one line
    "*.json": r'\s*("[^"]*": )?".*",?$',  # one string, which JSON does not continue on the next line
    "config/haproxy/*.cfg": r"\s*[^\s#]",  # HAProxy 2.6 knows no continued lines, Redis neither
    "config/redis-node.conf": r"user ",
    "*.html": r'.*="data:',  # a URL
    "*.md": r"\||[^ ]*$",  # tables; a link alone
}


def long_lines(file: str, text: str) -> list[int]:
    """Returns the numbers of the lines above the width, outside the code of documents and what LONG_LINES names."""
    if file.endswith(".md"):
        text = re.sub(
            r"^( *)(```+|~~~+).*?^\1\2 *$", lambda code: "\n" * code.group().count("\n"), text, flags=re.M | re.S
        )
    allowed = [pattern for files, pattern in LONG_LINES.items() if fnmatch(file, files)]
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > WIDTH and not any(re.match(pattern, line) for pattern in allowed)
    ]


def test_lines_have_at_most_120_characters() -> None:
    found = {}
    for path in FILES:
        content = path.read_bytes()
        if b"\0" not in content and (lines := long_lines(name(path), content.decode(errors="replace"))):
            found[name(path)] = lines
    assert not found


def test_line_check_finds_long_lines() -> None:
    word = "x " * (WIDTH // 2) + "x"
    assert long_lines("a.sql", f"{word}\n{word[1:]}\n") == [1] and not long_lines("tests/sql/a.out", word)
    assert long_lines("README.md", f"{word}\n| {word} |\n```\n{word}\n```\n{word}\n{word[1:]}\n") == [1, 6]
    assert long_lines("a.json", f'{{"a": "{word}"}}\n  "a": "{word}",\n') == [1]
    assert long_lines("config/haproxy/a.cfg", f"  # {word}\n  {word}\n") == [1]


def test_lines_have_no_tabs_or_trailing_blanks() -> None:
    found = []
    for path in FILES:
        if path.suffix not in set(
            ".cpp .hpp .py .sql .lua .sh .md .txt .yaml .yml .json .java .go .js .ts .css .html".split()
        ):
            continue
        text = path.read_text()
        tabs = (
            "\t" in text and path.suffix not in {".md", ".go"} and "from stdin" not in text
        )  # COPY separates columns by tabs
        if re.search(r"[ \t]$", text, re.MULTILINE) or (text and not text.endswith("\n")) or "\r" in text or tabs:
            found.append(name(path))
    assert not found


def test_sleeps_state_their_reason() -> None:
    """Tests await events (support/polling.py, support/lock_host.hpp); where real time must pass,
    pause or a comment gives the reason."""
    sleeps = re.compile(r"\b(time\.[sS]leep|sleep_for)\(")
    found = []
    for path in files("tests", suffixes={".py", ".cpp", ".hpp", ".go"}):
        if path == ROOT / "tests/support/polling.py" or path == Path(__file__) or ROOT / "tests/bench" in path.parents:
            continue
        lines = ["", *path.read_text().splitlines()]
        found += [
            f"{name(path)}:{number}"
            for number, (before, line) in enumerate(zip(lines, lines[1:]), 1)
            if sleeps.search(line) and not re.search(r"#|//", line) and not before.strip().startswith(("#", "//"))
        ]
    assert not found


LEFTOVERS = re.compile(
    r"\b(TO"
    r"DO|FIX"
    r"ME|X"
    r"XX|HA"
    r"CK)\b|not "
    r"implemented|for "
    r"now\b|GTEST_"
    r"SKIP|DIS"
    r"ABLED_|pytest\.(mark\.)?"
    r"(skip|xfail)|EXPECT_TRUE\(true\)"
    r"|SUC"
    r"CEED\(\)"
)

# A skip that says what the machine lacks is allowed: the guard supports PostgreSQL 14,
# and MERGE and GRANT SET came with 15.
ALLOWED_LEFTOVERS = {
    "tests/sql/test_cases.py": "MERGE came with PostgreSQL 15",
    "tests/sql/test_settings_and_subscriptions.py": "GRANT SET came with PostgreSQL 15",
    "tests/sql/conftest.py": "reads no newer server",
    "tests/integration/test_hardening.py": "a program with sanitizers is not hardened",
    "tests/integration/test_client_program.py": "# the machine lacks",
    "tests/integration/test_secrets.py": "this machine leaves no core dumps",
    "tests/integration/test_dev_programs.py": "it needs a mount of its own",
    "tests/package/test_containers.py": "it needs root and namespaces of its own",
    "tests/clients/test_recipes_node.py": "PRISMA_NEEDS",
    "tests/package/test_debian_root.py": "only root makes a Debian and runs systemd in it",
}


def test_co_await_has_no_temporary_that_gcc_destroys_twice() -> None:
    """g++ 12 destroys twice an object that braces create in the arguments of an awaited call,
    and one that `?:` selects inside `co_await (…)`."""
    temporary = re.compile(r"co_await\b[^;]*[(,]\s*\{(?!\})|co_await\s*\([^;]*\?[^;]*:")
    assert not [
        (name(path), found[0]) for path in files("gateway", "lockcore") for found in temporary.finditer(code(path))
    ]


def test_no_leftovers_remain() -> None:
    found = []
    for path in FILES:
        if path.suffix in set(
            ".cpp .hpp .py .sql .lua .sh .txt .yaml .md .java .go .js .ts .css .html".split()
        ) and path != Path(__file__):
            allowed = ALLOWED_LEFTOVERS.get(name(path))
            found += [
                f"{name(path)}:{number}: {line.strip()}"
                for number, line in enumerate(path.read_text().splitlines(), 1)
                if LEFTOVERS.search(line) and not (allowed and allowed in line)
            ]
    assert not found


def test_no_machine_paths_remain() -> None:
    machine = re.compile(r"(?<![A-Za-z0-9_.])/(wo" r"rk|home|root)/")
    found = []
    for path in FILES:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name(path)}:{number}" for number, line in enumerate(text.splitlines(), 1) if machine.search(line)]
    assert not found


# Comments and docstrings that files must have


def test_lua_scripts_document_keys_argv_and_reply() -> None:
    scripts = files("lockcore/redis/scripts", suffixes={".lua"})
    assert scripts
    for script in scripts:
        head = "".join(line for line in script.read_text().splitlines(keepends=True)[:40] if line.startswith("--"))
        for word in ("KEYS", "ARGV", "eply"):
            assert word in head, f"{name(script)} does not mention {word} in its first lines"


def test_lua_scripts_write_no_number_with_tostring() -> None:
    """Lua's tostring prints only 14 digits of a number; a token may have 16."""
    found = [
        name(script)
        for script in files("lockcore/redis/scripts", suffixes={".lua"})
        if re.search(r"tostring\s*\(", re.sub(r"--[^\n]*", "", script.read_text()))
    ]
    assert not found


def test_lua_scripts_use_only_keys_of_the_protocol() -> None:
    found = []
    for script in files("lockcore/redis/scripts", suffixes={".lua"}):
        text = re.sub(r"--[^\n]*", "", script.read_text())
        found += [
            (name(script), key)
            for key in re.findall(r"['\"](fg:[^'\"]*)", text)
            if not key.startswith(("fg:node", "fg:lease:", "fg:token:", "fg:wake:"))
        ]
    assert not found


CLASS = re.compile(r"^(?:template\s*<[^\n]*>\s*\n)?(class|struct)\s+(\w+)[^;{]*\{", re.MULTILINE)


def test_public_classes_have_a_docstring() -> None:
    """Public headers are those of lockcore's include folder and of the gateway.
    A struct of plain values may document its members instead."""
    found = []
    for path in files("lockcore/include", "gateway", suffixes={".hpp"}):
        text = path.read_text()
        for match in CLASS.finditer(text):
            before = text[: match.start()].rstrip("\n").rsplit("\n", 1)[-1].strip()
            body = (
                text[match.end() : text.index("\n}", match.end())]
                if "\n}" in text[match.end() :]
                else text[match.end() :]
            )
            at_members = match.group(1) == "struct" and "///" in body
            if not (before.startswith("///") or at_members or body.count(";") <= 2):
                found.append(f"{name(path)}: {match.group(2)}")
    assert not found


def test_sql_functions_have_a_comment() -> None:
    functions, commented = set(), set()
    for path in files("sql/schema", suffixes={".sql"}):
        text = path.read_text()
        functions |= {(match, name(path)) for match in re.findall(r"create or replace function fencing\.(\w+)", text)}
        commented |= set(re.findall(r"comment on function fencing\.(\w+)", text))
    assert functions
    assert not [(function, path) for function, path in functions if function not in commented]


def test_names_of_tests_have_at_most_60_characters() -> None:
    found = []
    patterns = {".py": r"^def (test_\w+)\(", ".cpp": r"^TEST(?:_[FP])?\(\w+,\s*(\w+)\)", ".go": r"^func (Test\w+)\("}
    for path in files("tests", suffixes=set(patterns)):
        text = path.read_text()
        names = re.findall(patterns[path.suffix], text, re.MULTILINE)
        found += [f"{name(path)}: {test}" for test in names if len(test) > 60]
    assert not found


def test_python_of_tests_names_what_exists() -> None:
    """mypy finds a name that nothing has any more: a method that was renamed, but not where a subclass calls it,
    is otherwise noticed by a run of minutes. Types of arguments are not compared."""
    folders = sorted(
        {name(path.parent) for path in files("tests", suffixes={".py"})}
        - {"tests/integration/faults", "tests/clients/conformance", "tests/clients/conformance/drivers"}
    )  # these are in others
    done = subprocess.run(
        [
            "mypy",
            "--cache-dir",
            str(ROOT / "build/mypy-tests"),
            *(
                "--python-executable /usr/bin/python3 --explicit-package-bases --ignore-missing-imports "
                "--check-untyped-defs --disable-error-code import"
            ).split(),
            *folders,
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "tests"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert re.search(r"checked \d{3} source files|no issues found", done.stdout), done.stdout + done.stderr
    assert not [line for line in done.stdout.splitlines() if re.search(r"\[(attr|name)-defined\]$", line)]


def test_patches_of_mutations_apply() -> None:
    """A patch that no longer applies would be noticed only by the long part `mutations`."""
    for path in files("tests/sim/mutations", suffixes={".patch"}):
        for source, text in apply_patch(path.stem).items():
            if source.endswith(".cpp"):
                join_mutants((ROOT / source).read_text(), {path.stem: text})


# Words that were private language here, and have a standard term in docs/glossary.md or in the field.
# Figures of speech, each of which stood for a standard term (CONTRIBUTING.md).
BANNED = (
    *"whoever story stories told heard hear judge judged police warden patience patient manner".split(),
    "let go",
    "let_go",
    "given_back",
    "give_back",
    "gives back",
    "sits out",
    *"aside ear bell retell disturbed room house course stands".split(),
    "wakes up",
    *"set_out conclude lazy landed spent".split(),
)


def test_banned_words_do_not_return() -> None:
    pattern = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)
    found = []
    text = set(".cpp .hpp .lua .sql .py .java .go .js .ts .pml .json .sh .md .yaml .yml .conf".split())
    for path in files("gateway", "lockcore", "sql/schema", "tests", "docs", "config", "clients", suffixes=text):
        if path == Path(__file__) or path.name == "package-lock.json":
            continue
        found += [
            f"{name(path)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if pattern.search(line)
        ]
    assert not found, "\n".join(found)


def test_every_part_has_the_version_of_the_program() -> None:
    """The clients for programs are compared by tests/clients."""
    places = {
        "CMakeLists.txt": r"project\(fencegate VERSION ([0-9.]+)",
        "lockcore/CMakeLists.txt": r"project\(lockcore VERSION ([0-9.]+)",
        "config/debian/changelog": r"\Afencegate \(([0-9.]+)\)",
        "gateway/api/service/openapi.json": r'"title": "fencegate",\s*"version": "([^"]+)"',
    }
    found = {path: re.findall(pattern, (ROOT / path).read_text()) for path, pattern in places.items()}
    assert len({version for versions in found.values() for version in versions}) == 1 and all(found.values()), found


def test_configuration_keys_are_explained_in_the_example() -> None:
    """Every key that the program reads is in an example configuration."""
    examples = "".join(path.read_text() for path in files("config", suffixes={".yaml", ".yml"}))
    source = "".join(path.read_text() for path in files("gateway/config", suffixes={".cpp"}))
    keys = set(
        re.findall(
            r'(?:\{|reloadable\()\s*"([a-z_0-9]+)",\s*'
            r"(?:\{\w|mapping|text|integer|duration|list|boolean|choice|\w+_(?:file|files|list|section)\()",
            source,
        )
    )
    assert keys
    assert not sorted(key for key in keys if not re.search(rf"\b{key}\b", examples))
