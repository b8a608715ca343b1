"""lockcore's example against real nodes: tokens that grow whatever is forgotten, and a register that is missed where it is missing."""

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
    return subprocess.Popen([str(program), "inventory/sku-1", str(register), *(f"127.0.0.1:{node.port}" for node in nodes)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LOCKCORE_KEY": KEY},
                            preexec_fn=processes.ended_with_parent)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the example did not end: {out}{err}") from None
    return process.returncode, out, err


def token_of(process: subprocess.Popen) -> int:
    code, out, err = ended(process)
    assert code == 0, out + err
    said = re.fullmatch(r"token (\d+), valid for (\d+) ms\n", out)
    assert said and 0 < int(said.group(2)) < 2_000, out
    return int(said.group(1))


def new_register(nodes: list[RedisServer]) -> Path:
    register = nodes[0].folder.parent / "epochs"
    register.touch()
    return register


def test_tokens_when_run_again_and_after_every_node_forgot_then_they_grow(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    tokens = [token_of(start(take_lease, register, nodes)) for _ in range(2)]
    for node in nodes:
        node.restart_empty()
    tokens += [token_of(start(take_lease, register, nodes)) for _ in range(2)]
    assert tokens == sorted(set(tokens)), tokens
    assert tokens[2] >> 32 > tokens[1] >> 32, "a node that forgot starts above a new epoch"
    assert not (register.parent / "epochs.new").exists()


def test_tokens_when_the_register_is_lost_and_made_anew_as_its_readme_says_then_they_grow(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    before = token_of(start(take_lease, register, nodes))
    for node in nodes:
        node.restart_empty()
    register.write_text("epoch 1000\n" + "".join(f"node 127.0.0.1:{node.port}\n" for node in nodes) + "end\n")
    began = time.monotonic()
    assert token_of(start(take_lease, register, nodes)) >> 32 > 1000 > before >> 32
    assert time.monotonic() - began > 2.5, "nodes that are known sit out"


def test_tokens_when_four_programs_draw_from_one_register_then_no_two_are_alike(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    running = [start(take_lease, register, nodes) for _ in range(4)]
    ends = [ended(process) for process in running]
    granted = [int(re.search(r"token (\d+)", out).group(1)) for code, out, _ in ends if code == 0]  # type: ignore[union-attr]
    assert len(granted) == 4 and len(set(granted)) == 4, ends
    lines = register.read_text().splitlines()
    assert [line for line in lines[1:] if not line.startswith("life ")] == sorted(f"node 127.0.0.1:{node.port}" for node in nodes) + ["end"]
    lives = [line.split()[1] for line in lines if line.startswith("life ")]
    assert len(set(lives)) == len(nodes), "one epoch a life, whichever program draws it"


def refused(take_lease: Path, register: Path, nodes: list[RedisServer]) -> str:
    code, out, err = ended(start(take_lease, register, nodes))
    assert code == 2 and not out
    return err


def test_register_when_its_folder_is_missing_then_that_is_said(take_lease: Path, nodes: list[RedisServer]) -> None:
    folder = new_register(nodes).parent / "nowhere"
    assert refused(take_lease, folder / "epochs", nodes) == f"can't open {folder}: No such file or directory\n"


def test_register_when_it_is_missing_then_no_new_one_is_made(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    register.unlink()
    assert refused(take_lease, register, nodes).startswith(f"can't read {register}: ")
    assert not register.exists()


def test_register_when_damaged_then_it_is_refused(take_lease: Path, nodes: list[RedisServer]) -> None:
    register = new_register(nodes)
    token_of(start(take_lease, register, nodes))
    whole = register.read_bytes()
    for damaged in (whole[:-4], whole[6:], b"epoch -1\nend\n", b"epoch 9999999\nend\n", b"\0" * len(whole)):
        register.write_bytes(damaged)
        assert "is damaged" in refused(take_lease, register, nodes), damaged
        assert register.read_bytes() == damaged


def test_example_when_counted_then_under_sixty_lines() -> None:
    assert (EXAMPLE / "take_lease.cpp").read_text().count("\n") < 60
