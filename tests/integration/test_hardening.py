"""The program file is built as CMakeLists.txt says (FENCEGATE_HARDENING): readelf finds each protection in it."""

from __future__ import annotations

import re

import pytest
from support import processes

COMPILED_WITH = ("-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection=full", "-fPIE", "-O2")


def readelf(*arguments: str) -> str:
    done = processes.run(["readelf", "--wide", *arguments, str(processes.fencegate_binary())], timeout=300, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def symbols() -> str:
    found = readelf("--symbols")
    if "__asan_init" in found or "__tsan_init" in found:
        pytest.skip("a program with sanitizers is not hardened")
    return found


@pytest.fixture(scope="module")
def machine() -> str:
    match = re.search(r"Machine:\s*(.*)", readelf("--file-header"))
    assert match
    return match[1]


def test_program_is_loaded_at_a_random_address(symbols: str) -> None:
    assert re.search(r"Type:\s*DYN", readelf("--file-header"))
    assert re.search(r"FLAGS_1\W.*\bPIE\b", readelf("--dynamic"))


def test_program_has_read_only_relocations_bound_at_start(symbols: str) -> None:
    dynamic = readelf("--dynamic")
    assert "GNU_RELRO" in readelf("--program-headers")
    assert re.search(r"FLAGS_1\W.*\bNOW\b", dynamic)
    assert "TEXTREL" not in dynamic


def test_program_has_no_memory_both_writable_and_executable(symbols: str) -> None:
    segments = re.findall(
        r"^\s+(LOAD|GNU_STACK)(?:\s+0x\w+){5}\s+(.*?)\s+0x", readelf("--program-headers"), re.MULTILINE
    )
    assert ("GNU_STACK", "RW") in segments and len(segments) > 2
    assert not [segment for segment in segments if "W" in segment[1] and "E" in segment[1]]


def test_program_searches_libraries_nowhere_else(symbols: str) -> None:
    assert not re.search(r"\((RPATH|RUNPATH)\)", readelf("--dynamic"))


def test_program_checks_stack_and_calls_of_the_c_library(symbols: str) -> None:
    assert "__stack_chk_fail" in symbols
    assert re.search(r"\b__(mem|str|sn|vsn|f|v|re)\w*_chk@", symbols), "_FORTIFY_SOURCE"


def test_every_unit_was_compiled_with_the_flags(symbols: str, machine: str) -> None:
    """The compiler writes its command line into the debug information."""
    producers = set(re.findall(r"GNU C\+\+\S* .*", readelf("--string-dump=.debug_str")))
    assert producers
    flags = [flag for flag in COMPILED_WITH if "X86" in machine or flag != "-fcf-protection=full"]
    assert not {
        producer: [flag for flag in flags if flag not in producer]
        for producer in producers
        if not all(flag in producer for flag in flags)
    }


def test_functions_begin_with_a_mark_for_indirect_calls(symbols: str, machine: str) -> None:
    """ENDBR64, which indirect branch tracking needs. Debian 12's start-up code lacks it,
    so the file as a whole is not marked."""
    if "X86-64" not in machine:  # others have no such mark
        return
    text = re.search(r"\.text\s+PROGBITS\s+(\w+) (\w+) (\w+)", readelf("--sections"))
    assert text
    address, offset, size = (int(number, 16) for number in text.groups())
    content = processes.fencegate_binary().read_bytes()[offset : offset + size]
    functions = {
        name: int(value, 16) - address
        for value, name in re.findall(
            r"^\s*\d+: (\w+)\s+\d+ FUNC\s+GLOBAL DEFAULT\s+\d+ (_ZN?K?(?:9fencegate|8lockcore)\w+)$",
            symbols,
            re.MULTILINE,
        )
    }
    functions = {name: at for name, at in functions.items() if 0 <= at < size}
    assert len(functions) > 1000
    assert not [name for name, at in functions.items() if content[at : at + 4] != b"\xf3\x0f\x1e\xfa"]
