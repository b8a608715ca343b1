"""lockcore's example against real nodes: tokens grow although nodes lose their data,
and a missing or damaged register is refused."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from support import processes
from support.cluster import RedisServer
from support.package import EXAMPLE

KEY = "a signing key of a test, long enough to be one"


def start(program: Path, register: Path, nodes: list[RedisServer]) -> subprocess.Popen:
    return subprocess.Popen(
        [str(program), "inventory/sku-1", str(register), *(f"127.0.0.1:{node.port}" for node in nodes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOCKCORE_KEY": KEY},
        preexec_fn=processes.terminate_with_parent,
    )


def wait_for_end(process: subprocess.Popen) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the example did not end: {out}{err}") from None
    return process.returncode, out, err


def token_of(process: subprocess.Popen) -> int:
    code, out, err = wait_for_end(process)
    assert code == 0, out + err
    printed = re.fullmatch(r"token (\d+), valid for (\d+) ms\n", out)
    assert printed and 0 < int(printed.group(2)) < 2_000, out
    return int(printed.group(1))


def new_register(nodes: list[RedisServer]) -> Path:
    register = nodes[0].folder.parent / "epochs"
    register.touch()
    return register


def test_example_tokens_grow_after_all_nodes_lose_data(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    tokens = [token_of(start(take_lease, register, nodes)) for _ in range(2)]
    for node in nodes:
        node.restart_empty()
    tokens += [token_of(start(take_lease, register, nodes)) for _ in range(2)]
    assert tokens == sorted(set(tokens)), tokens
    assert tokens[2] >> 32 > tokens[1] >> 32, "a node that forgot starts above a new epoch"
    assert not (register.parent / "epochs.new").exists()


def test_example_tokens_grow_with_a_register_made_as_in_readme(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    before = token_of(start(take_lease, register, nodes))
    for node in nodes:
        node.restart_empty()
    register.write_text("epoch 1000\n" + "".join(f"node 127.0.0.1:{node.port}\n" for node in nodes) + "end\n")
    started_at = time.monotonic()
    assert token_of(start(take_lease, register, nodes)) >> 32 > 1000 > before >> 32
    assert time.monotonic() - started_at > 2.5, "known nodes are quarantined"


def test_example_tokens_differ_in_four_concurrent_programs(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    running = [start(take_lease, register, nodes) for _ in range(4)]
    results = [wait_for_end(process) for process in running]
    granted = [int(re.findall(r"token (\d+)", out)[0]) for code, out, _ in results if code == 0]
    assert len(granted) == 4 and len(set(granted)) == 4, results
    lines = register.read_text().splitlines()
    assert [line for line in lines[1:] if not line.startswith("life ")] == sorted(
        f"node 127.0.0.1:{node.port}" for node in nodes
    ) + ["end"]
    lives = [line.split()[1] for line in lines if line.startswith("life ")]
    assert len(set(lives)) == len(nodes), "one epoch per life, whichever program draws it"


def refusal_of(take_lease: Path, register: Path, nodes: list[RedisServer]) -> str:
    code, out, err = wait_for_end(start(take_lease, register, nodes))
    assert code == 2 and not out
    return err


def test_example_register_folder_missing_is_reported(take_lease: Path, nodes: list[RedisServer]) -> None:
    folder = new_register(nodes).parent / "missing"
    assert refusal_of(take_lease, folder / "epochs", nodes) == f"can't open {folder}: No such file or directory\n"


def test_example_register_missing_is_not_created(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    register.unlink()
    assert refusal_of(take_lease, register, nodes).startswith(f"can't read {register}: ")
    assert not register.exists()


def test_example_register_damaged_is_refused(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    token_of(start(take_lease, register, nodes))
    intact = register.read_bytes()
    for damaged in (intact[:-4], intact[6:], b"epoch -1\nend\n", b"epoch 9999999\nend\n", b"\0" * len(intact)):
        register.write_bytes(damaged)
        assert "is damaged" in refusal_of(take_lease, register, nodes), damaged
        assert register.read_bytes() == damaged


def test_example_program_has_under_sixty_lines() -> None:
    assert (EXAMPLE / "take_lease.cpp").read_text().count("\n") < 60
