"""The direction of dependencies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tree import CPP, ROOT, code, files, includes, name


def test_file_lists_are_not_empty() -> None:
    assert len(files("gateway")) > 20 and len(files("lockcore")) > 20


LIBRARY_FOLDERS = [
    # (pattern of a library's names, folders that may use it)
    (r"\bpqxx\b|<pqxx", ["gateway/pg"]),
    (r"\bbeast\b|boost/beast", ["gateway/http", "gateway/api", "gateway/bench"]),
    (r"\bcurl_(easy|multi|global|slist)\w*|<curl/", ["gateway/cli", "gateway/http/identity"]),
    (r"\bhiredis\b|\bredis(Async)?(Context|Reply|Command|Free|Connect)\w*|<hiredis", ["lockcore/redis"]),
    (r"<prometheus/|\bprometheus::", ["gateway/metrics"]),
    (r"yaml-cpp|\bYAML::", ["gateway/config"]),
    (r"CLI/CLI\.hpp|\bCLI::", ["gateway"]),
]


@pytest.mark.parametrize("pattern, allowed", LIBRARY_FOLDERS, ids=[allowed[0] for _, allowed in LIBRARY_FOLDERS])
def test_libraries_are_used_only_in_their_folders(pattern: str, allowed: list[str]) -> None:
    folders = [ROOT / folder for folder in allowed]
    precompiled = ROOT / "gateway/pch.hpp"  # on which no unit may depend
    found = [
        name(path)
        for path in files("gateway", "lockcore")
        if path != precompiled
        and re.search(pattern, code(path))
        and not any(folder in path.parents for folder in folders)
    ]
    assert not found
    users = [path for path in files(*allowed) if re.search(pattern, code(path))]
    assert users, "nothing matches the pattern any more: change the rule"


STANDARD = re.compile(r"^[a-z_]+$|^c(std[a-z]+|time|math|errno|string|assert|limits|ctype)$")


def test_protocol_folder_includes_only_std_and_boost_system() -> None:
    """The protocol has no clock, sockets, threads or randomness. Of other libraries it has a reader of UTF-8."""
    found = [
        (name(path), header)
        for path in files("lockcore/proto")
        for header in includes(path)
        if not (
            STANDARD.match(header)
            or header.startswith(("boost/system/", "proto/", "lockcore/"))
            or header == "boost/locale/utf.hpp"
        )
        or header.startswith(("lockcore/redis", "lockcore/runtime"))
        or header == "lockcore/lock_manager.hpp"
    ]
    assert not found
    forbidden = set("thread mutex random future condition_variable iostream fstream atomic semaphore".split())
    assert not [
        (name(path), header) for path in files("lockcore/proto") for header in includes(path) if header in forbidden
    ]
    reads_clock_or_randomness = re.compile(
        r"_clock::now\s*\(|\brandom_device\b|\btime\s*\(\s*(nullptr|NULL|0)\s*\)|\bgetrandom\b|\brand\s*\("
    )
    assert not [name(path) for path in files("lockcore/proto") if reads_clock_or_randomness.search(code(path))]


def find_lockcore_header(header: str) -> Path | None:
    """Returns the file of a header of lockcore; None for a header of another library, or one that the build makes."""
    found = [path for path in (ROOT / "lockcore" / header, ROOT / "lockcore/include" / header) if path.is_file()]
    return found[0] if found else None


def find_reachable_headers(start: Path) -> dict[str, Path]:
    """Returns all headers that a file of lockcore includes, also through other headers of lockcore,
    each with a file that includes it."""
    found: dict[str, Path] = {}
    pending = [start]
    while pending:
        user = pending.pop()
        for header in includes(user):
            if header not in found:
                found[header] = user
                if (path := find_lockcore_header(header)) is not None:
                    pending.append(path)
    return found


def test_protocol_reaches_no_asio_sockets_or_driver() -> None:
    """Not through headers of lockcore either: the core has no driver, so that the simulation can be one."""
    forbidden = re.compile(
        r"boost/(asio|beast)|hiredis|openssl/|curl/|sys/|netinet/|unistd\.h|(redis|runtime)/|lockcore/(redis/|"
        r"runtime/|(ports|lock_manager)\.hpp)"
    )
    sources = files("lockcore/proto")
    assert {"core.hpp", "core_io.hpp"} <= {path.name for path in sources}
    assert "boost/asio/awaitable.hpp" in find_reachable_headers(
        ROOT / "lockcore/runtime/shard.cpp"
    ), "the search finds no header of a header"
    found = [
        f"{name(path)} reaches {header} by {name(user)}"
        for path in sources
        for header, user in find_reachable_headers(path).items()
        if forbidden.match(header)
    ]
    assert not found, "\n".join(found)


def test_lockcore_names_no_table_of_the_gateway() -> None:
    """lockcore knows a register, an interface; that it is a table of PostgreSQL is a matter of the gateway."""
    texts = CPP | {".lua", ".md", ".cmake", ".txt", ".in"}
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files("lockcore", suffixes=texts)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bfencing\.[a-z]", line)
    ]
    assert not found, "\n".join(found)


def test_lockcore_includes_no_gateway_http_or_postgresql() -> None:
    found = [
        (name(path), header)
        for path in files("lockcore")
        for header in includes(path)
        if header.startswith(("gateway/", "pqxx", "boost/beast", "boost/json", "yaml-cpp", "libpq", "spdlog"))
    ]
    assert not found


def test_lockcore_public_headers_include_only_each_other() -> None:
    found = [
        (name(path), header)
        for path in files("lockcore/include")
        for header in includes(path)
        if header.startswith(
            tuple("lockcore/redis lockcore/runtime lockcore/proto redis/ runtime/ proto/ hiredis openssl".split())
        )
    ]
    assert not found


# For each folder of the gateway, the other folders that it may include.
GATEWAY = {
    "domain": set(),
    "config": set(),
    "runtime": set(),
    "limits": {"domain", "config"},
    "pg": {"domain", "config", "limits", "runtime"},
    "http": {"domain", "config", "limits", "runtime"},
    "audit": {"domain", "config", "http", "limits", "pg", "runtime"},
    "metrics": {"domain", "config", "http", "limits", "pg", "audit", "runtime"},
    "api": {"domain", "config", "http", "limits", "pg", "audit", "runtime", "metrics"},
    "admin": {"domain", "config", "http", "pg", "runtime"},
    "devstack": {"admin", "config", "domain", "pg", "runtime"},
    "cli": {"config", "domain", "runtime"},
    "bench": {"cli", "config", "domain", "pg", "runtime"},
}


@pytest.mark.parametrize("folder", [folder for folder in GATEWAY if files(f"gateway/{folder}")])
def test_gateway_folders_include_only_lower_folders(folder: str) -> None:
    found = []
    for path in files(f"gateway/{folder}"):
        for header in includes(path):
            parts = header.split("/")
            if parts[0] == "gateway" and parts[1] != folder and parts[1] not in GATEWAY[folder]:
                found.append((name(path), header))
    assert not found


def test_gateway_libraries_link_those_whose_headers_they_include() -> None:
    """Directly or through others: a program that links one of them alone has no undefined functions."""
    listed = re.findall(
        r"^gateway_library\((\w+) ([^)]*)\)", (ROOT / "gateway/CMakeLists.txt").read_text(), re.MULTILINE
    )
    links = {library: set(re.findall(r"gateway_(\w+)", given)) for library, given in listed}
    for library in links:  # CMake defines each after those that it links
        links[library] |= {lower for direct in links[library] for lower in links[direct]}
    assert not [
        (name(path), header)
        for library in links
        for path in files(f"gateway/{library}")
        for header in includes(path)
        if header.startswith("gateway/") and header.split("/")[1] in links.keys() - links[library] - {library}
    ]


def test_gateway_folders_are_all_in_the_layer_table() -> None:
    present = {
        path.relative_to(ROOT / "gateway").parts[0] for path in files("gateway") if path.parent != ROOT / "gateway"
    }
    assert present <= set(GATEWAY)


def test_includes_have_no_cycles() -> None:
    """Counts a header and its .cpp as one unit."""

    def unit(path: Path) -> str:
        return name(path.with_suffix("")).replace("lockcore/include/", "")

    units = {unit(path) for path in files("gateway", "lockcore")}
    uses: dict[str, set[str]] = {user: set() for user in units}
    for path in files("gateway", "lockcore"):
        for header in includes(path):
            used = {header.removesuffix(".hpp"), "lockcore/" + header.removesuffix(".hpp")}
            uses[unit(path)] |= (used & units) - {unit(path)}

    def find_reachable(start: str) -> set[str]:
        found: set[str] = set()
        pending = [start]
        while pending:
            new = uses[pending.pop()] - found
            found |= new
            pending += new
        return found

    reachable = {start: find_reachable(start) for start in units}
    assert not {
        frozenset(member for member in reachable[start] if start in reachable[member])
        for start in units
        if start in reachable[start]
    }


def test_namespaces_are_named_after_folders() -> None:
    """The definitions of domain and config, which all folders share, are in fencegate itself."""
    for folder in set(GATEWAY) - {"domain", "config"}:
        for path in files(f"gateway/{folder}"):
            assert path.name == "beast_impl.cpp" or re.search(
                rf"^namespace fencegate::{folder}(::\w+)* \{{$", path.read_text(), re.MULTILINE
            ), name(path)


def test_product_includes_nothing_of_the_tests() -> None:
    assert not [
        (name(path), header)
        for path in files("gateway", "lockcore")
        for header in includes(path)
        if header.startswith("tests/") or "gtest" in header
    ]
