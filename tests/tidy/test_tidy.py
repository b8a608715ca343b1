"""The rules of the tree that no compiler checks: which way things depend, what a file must say of itself, what may not be left behind."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gateway", "lockcore", "sql", "tests", "config", "docker")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
CPP = {".cpp", ".hpp"}


def tracked() -> list[Path]:
    """Files that are or could be committed; a copy without git has them all."""
    try:
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True)
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if not {"build", ".git", "__pycache__"} & set(path.parts)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


FILES = tracked()


def files(*folders: str, suffixes: set[str] = CPP) -> list[Path]:
    roots = [ROOT / folder for folder in folders]
    return [path for path in FILES if path.suffix in suffixes and any(root in path.parents for root in roots)]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(path: Path) -> str:
    """A C++ file without comments and strings, lines kept."""
    text = path.read_text()
    blank = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return blank.sub(lambda match: match.group() if match.group().startswith('"') and "#" in text[text.rfind("\n", 0, match.start()) + 1:match.start()]
                     else "\n" * match.group().count("\n"), text)


def includes(path: Path) -> list[str]:
    return INCLUDE.findall(code(path))


def test_tree_when_looked_at_then_there_is_something_to_check() -> None:
    assert len(files("gateway")) > 20 and len(files("lockcore")) > 20


# Which way things depend

NAMED_ONLY_IN = [
    # (what may be named, in which folders it may)
    (r"\bpqxx\b|<pqxx", ["gateway/pg"]),
    (r"\bbeast\b|boost/beast", ["gateway/http", "gateway/api"]),
    (r"\bcurl_(easy|multi|global|slist)\w*|<curl/", ["gateway/cli"]),
    (r"\bhiredis\b|\bredis(Async)?(Context|Reply|Command|Free|Connect)\w*|<hiredis", ["lockcore/redis"]),
    (r"<prometheus/|\bprometheus::", ["gateway/metrics"]),
    (r"yaml-cpp|\bYAML::", ["gateway/config"]),
    (r"CLI/CLI\.hpp|\bCLI::", ["gateway"]),
]


@pytest.mark.parametrize("pattern, allowed", NAMED_ONLY_IN, ids=[allowed[0] for _, allowed in NAMED_ONLY_IN])
def test_library_when_named_then_only_where_it_belongs(pattern: str, allowed: list[str]) -> None:
    homes = [ROOT / folder for folder in allowed]
    found = [name(path) for path in files("gateway", "lockcore") if re.search(pattern, code(path)) and not any(home in path.parents for home in homes)]
    assert not found
    at_home = [path for path in files(*allowed) if re.search(pattern, code(path))]
    assert at_home, "the rule has nothing to hold any more: change it"


STANDARD = re.compile(r"^[a-z_]+$|^c(std[a-z]+|time|math|errno|string|assert|limits|ctype)$")


def test_protocol_when_it_includes_then_only_std_boost_system_and_itself() -> None:
    """No clock, no sockets, no threads, no randomness of its own."""
    found = [(name(path), header) for path in files("lockcore/proto") for header in includes(path)
             if not (STANDARD.match(header) or header.startswith(("boost/system/", "proto/", "lockcore/")))
             or header.startswith(("lockcore/redis", "lockcore/runtime")) or header == "lockcore/lock_manager.hpp"]
    assert not found
    forbidden = {"thread", "mutex", "random", "future", "condition_variable", "iostream", "fstream", "atomic", "semaphore"}
    assert not [(name(path), header) for path in files("lockcore/proto") for header in includes(path) if header in forbidden]
    asks_the_time = re.compile(r"_clock::now\s*\(|\brandom_device\b|\btime\s*\(\s*(nullptr|NULL|0)\s*\)|\bgetrandom\b|\brand\s*\(")
    assert not [name(path) for path in files("lockcore/proto") if asks_the_time.search(code(path))]


def test_lockcore_when_it_includes_then_nothing_of_the_gateway_nor_of_postgresql_or_http() -> None:
    found = [(name(path), header) for path in files("lockcore") for header in includes(path)
             if header.startswith(("gateway/", "pqxx", "boost/beast", "boost/json", "yaml-cpp", "libpq", "spdlog"))]
    assert not found


def test_public_headers_of_lockcore_when_they_include_then_only_each_other() -> None:
    found = [(name(path), header) for path in files("lockcore/include") for header in includes(path)
             if header.startswith(("lockcore/redis", "lockcore/runtime", "lockcore/proto", "redis/", "runtime/", "proto/", "hiredis", "openssl"))]
    assert not found


# Inside the gateway: below what each folder may include of the others.
GATEWAY = {
    "domain": set(),
    "config": set(),
    "runtime": set(),
    "pg": {"domain", "config", "runtime"},
    "audit": {"domain", "config", "pg", "runtime"},
    "http": {"domain", "config", "runtime"},
    "metrics": {"domain", "config", "http", "pg", "audit", "runtime"},
    "api": {"domain", "config", "http", "pg", "audit", "runtime", "metrics"},
    "admin": {"domain", "config", "http", "pg"},
    "devstack": {"admin", "config", "pg", "runtime"},
    "cli": {"config", "runtime"},
}


@pytest.mark.parametrize("folder", [folder for folder in GATEWAY if files(f"gateway/{folder}")])
def test_folder_of_the_gateway_when_it_includes_then_only_what_is_below_it(folder: str) -> None:
    found = []
    for path in files(f"gateway/{folder}"):
        for header in includes(path):
            parts = header.split("/")
            if parts[0] == "gateway" and len(parts) > 2 and parts[1] != folder and parts[1] not in GATEWAY[folder]:
                found.append((name(path), header))
    assert not found


def test_folders_of_the_gateway_when_there_is_a_new_one_then_the_rules_know_it() -> None:
    there = {path.relative_to(ROOT / "gateway").parts[0] for path in files("gateway") if path.parent != ROOT / "gateway"}
    assert there <= set(GATEWAY)


def test_no_two_files_include_each_other() -> None:
    """Nor a longer cycle. A header and its .cpp are one."""
    def unit(path: Path) -> str:
        return name(path.with_suffix("")).replace("lockcore/include/", "")

    every = {unit(path) for path in files("gateway", "lockcore")}
    uses: dict[str, set[str]] = {one: set() for one in every}
    for path in files("gateway", "lockcore"):
        for header in includes(path):
            uses[unit(path)] |= {one for one in (header.removesuffix(".hpp"), "lockcore/" + header.removesuffix(".hpp")) if one in every and one != unit(path)}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            new = uses[left.pop()] - seen
            seen |= new
            left += new
        return seen

    reach = {one: reached(one) for one in every}
    assert not {frozenset(other for other in reach[one] if one in reach[other]) for one in every if one in reach[one]}


def test_namespaces_of_folders_are_their_names() -> None:
    """The shared vocabulary (domain, config) is in fencegate itself."""
    for folder in set(GATEWAY) - {"domain", "config"}:
        for path in files(f"gateway/{folder}"):
            assert path.name == "beast_impl.cpp" or re.search(rf"^namespace fencegate::{folder}(::\w+)* \{{$", path.read_text(), re.MULTILINE), name(path)


def test_product_when_it_includes_then_nothing_of_the_tests() -> None:
    assert not [(name(path), header) for path in files("gateway", "lockcore") for header in includes(path) if header.startswith("tests/") or "gtest" in header]


# Form


def test_headers_when_looked_at_then_each_begins_with_pragma_once() -> None:
    assert not [name(path) for path in files("gateway", "lockcore", "tests", suffixes={".hpp"})
                if path.name != "pch.hpp" and not path.read_text().startswith("#pragma once\n")]


def test_names_of_files_when_looked_at_then_snake_case() -> None:
    known = {"CMakeLists.txt", "README.md", "CMakePresets.json", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Dockerfile"}
    odd = re.compile(r"[^a-z0-9_.-]")
    assert not [name(path) for path in FILES if path.name not in known and odd.search(path.name)]


LARGEST = {".cpp": 450, ".hpp": 300, ".lua": 200, ".sql": 450, ".py": 450, ".sh": 250, ".md": 500, ".js": 350, ".css": 350, ".html": 200}
# Larger ones, with the reason.
LARGER: dict[str, str] = {
    "tests/sql/versions/1.sql": "a whole schema as it was, never changed",
    "tests/sql/versions/2.sql": "a whole schema as it was, never changed",
    "tests/sql/versions/3.sql": "a whole schema as it was, never changed",
}


def test_sizes_when_looked_at_then_each_file_still_does_one_thing() -> None:
    found = [(name(path), lines) for path in FILES if path.suffix in LARGEST and any(ROOT / folder in path.parents for folder in SOURCES)
             and name(path) not in LARGER and (lines := path.read_text().count("\n")) > LARGEST[path.suffix]]
    assert not found
    gone = [path for path in LARGER if not (ROOT / path).exists()]
    assert not gone, "an exception for a file that is no more"


def test_lines_when_looked_at_then_no_tabs_trailing_blanks_or_missing_ends() -> None:
    found = []
    for path in FILES:
        if path.suffix not in {".cpp", ".hpp", ".py", ".sql", ".lua", ".sh", ".md", ".txt", ".yaml", ".yml", ".json", ".js", ".css", ".html"}:
            continue
        text = path.read_text()
        tabs = "\t" in text and path.suffix != ".md" and "from stdin" not in text  # COPY wants them
        if re.search(r"[ \t]$", text, re.MULTILINE) or (text and not text.endswith("\n")) or "\r" in text or tabs:
            found.append(name(path))
    assert not found


def test_sleeps_when_searched_then_each_says_what_the_time_is_for() -> None:
    """An event is awaited (support/polling.py, support/lock_host.hpp); real time passes by let_pass, with a reason, or behind a comment."""
    sleeps = re.compile(r"\b(time\.sleep|sleep_for)\(")
    found = []
    for path in files("tests", suffixes={".py", ".cpp", ".hpp"}):
        if path == ROOT / "tests/support/polling.py" or path == Path(__file__) or ROOT / "tests/bench" in path.parents:
            continue
        lines = ["", *path.read_text().splitlines()]
        found += [f"{name(path)}:{number}" for number, (before, line) in enumerate(zip(lines, lines[1:]), 1)
                  if sleeps.search(line) and not re.search(r"#|//", line) and not before.strip().startswith(("#", "//"))]
    assert not found


LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b|not " r"implemented|for " r"now\b|GTEST_" r"SKIP|DIS" r"ABLED_|pytest\.(mark\.)?" r"(skip|xfail)|EXPECT_TRUE\(true\)"
                       r"|SUC" r"CEED\(\)")

# A skip that says what the machine lacks is no leftover: the guard supports PostgreSQL 13, and MERGE and GRANT SET came with 15.
ALLOWED_LEFTOVERS = {"tests/sql/test_cases.py": "MERGE came with PostgreSQL 15", "tests/sql/test_ways_in.py": "GRANT SET came with PostgreSQL 15"}


def test_what_is_awaited_when_looked_at_then_no_temporary_that_gcc_destroys_twice() -> None:
    """g++ 12 destroys an object made by braces in the arguments of an awaited call twice, and so what `?:` chooses inside `co_await (…)`."""
    twice = re.compile(r"co_await\b[^;]*[(,]\s*\{(?!\})|co_await\s*\([^;]*\?[^;]*:")
    assert not [(name(path), found[0]) for path in files("gateway", "lockcore") for found in twice.finditer(code(path))]


def test_leftovers_when_searched_then_none() -> None:
    found = []
    for path in FILES:
        if path.suffix in {".cpp", ".hpp", ".py", ".sql", ".lua", ".sh", ".txt", ".yaml", ".md", ".js", ".css", ".html"} and path != Path(__file__):
            allowed = ALLOWED_LEFTOVERS.get(name(path))
            found += [f"{name(path)}:{number}: {line.strip()}" for number, line in enumerate(path.read_text().splitlines(), 1)
                      if LEFTOVERS.search(line) and not (allowed and allowed in line)]
    assert not found


def test_paths_of_a_machine_when_searched_then_none() -> None:
    machine = re.compile(r"(?<![A-Za-z0-9_.])/(wo" r"rk|home|root)/")
    found = []
    for path in FILES:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name(path)}:{number}" for number, line in enumerate(text.splitlines(), 1) if machine.search(line)]
    assert not found


# What a file says of itself


def test_lua_scripts_when_looked_at_then_each_says_keys_argv_and_reply_on_top() -> None:
    scripts = files("lockcore/redis/scripts", suffixes={".lua"})
    assert scripts
    for script in scripts:
        head = "".join(line for line in script.read_text().splitlines(keepends=True)[:40] if line.startswith("--"))
        for word in ("KEYS", "ARGV", "eply"):
            assert word in head, f"{name(script)} does not say {word} in its first lines"


def test_lua_scripts_when_they_write_a_counter_then_not_by_tostring() -> None:
    """Lua prints only 14 digits of a number by tostring; a token may have 16."""
    found = [name(script) for script in files("lockcore/redis/scripts", suffixes={".lua"})
             if re.search(r"tostring\s*\(", re.sub(r"--[^\n]*", "", script.read_text()))]
    assert not found


def test_scripts_when_they_name_keys_then_only_those_of_the_protocol() -> None:
    found = []
    for script in files("lockcore/redis/scripts", suffixes={".lua"}):
        text = re.sub(r"--[^\n]*", "", script.read_text())
        found += [(name(script), key) for key in re.findall(r"['\"](fg:[^'\"]*)", text) if not key.startswith(("fg:node", "fg:lease:", "fg:token:", "fg:wake:"))]
    assert not found


CLASS = re.compile(r"^(?:template\s*<[^\n]*>\s*\n)?(class|struct)\s+(\w+)[^;{]*\{", re.MULTILINE)


def test_classes_in_public_headers_when_looked_at_then_each_has_a_docstring() -> None:
    """Public: lockcore's include folder, and what the gateway's folders offer one another. A struct of plain values may say it at its members."""
    found = []
    for path in files("lockcore/include", "gateway", suffixes={".hpp"}):
        text = path.read_text()
        for match in CLASS.finditer(text):
            before = text[:match.start()].rstrip("\n").rsplit("\n", 1)[-1].strip()
            body = text[match.end():text.index("\n}", match.end())] if "\n}" in text[match.end():] else text[match.end():]
            at_members = match.group(1) == "struct" and "///" in body
            if not (before.startswith("///") or at_members or body.count(";") <= 2):
                found.append(f"{name(path)}: {match.group(2)}")
    assert not found


def test_sql_functions_when_defined_then_each_is_commented() -> None:
    functions, commented = set(), set()
    for path in files("sql/schema", suffixes={".sql"}):
        text = path.read_text()
        functions |= {(match, name(path)) for match in re.findall(r"create or replace function fencing\.(\w+)", text)}
        commented |= set(re.findall(r"comment on function fencing\.(\w+)", text))
    assert functions
    assert not [(function, path) for function, path in functions if function not in commented]


def test_python_tests_when_looked_at_then_each_is_named_what_when_then_and_typed() -> None:
    for path in files("tests/integration", suffixes={".py"}):
        for line in path.read_text().splitlines():
            if match := re.match(r"def (test_\w+)\(", line):
                assert "_when_" in match.group(1) or "_if_" in match.group(1), f"{name(path)}: {match.group(1)}"


def test_settings_when_read_then_each_is_explained_in_the_example() -> None:
    """Every key that the program reads stands in an example configuration."""
    examples = "".join(path.read_text() for path in files("config", suffixes={".yaml", ".yml"}))
    source = (ROOT / "gateway" / "config" / "config.cpp").read_text()
    keys = set(re.findall(r'\{\s*"([a-z_0-9]+)",\s*(?:mapping|text|integer|duration|list|boolean|secret_|one_of|scope_list|nodes|api_keys)', source))
    assert keys
    assert not sorted(key for key in keys if not re.search(rf"\b{key}\b", examples))
