"""Fences and rows under concurrent clients of two gateways behave like one register each; and the judge that says so is judged too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Callable, Iterator

import pytest

from support.linearizable import Commit, Operation, faults_of, linearizable
from support.polling import eventually
from support.registers import INITIAL, commits_of, open_registers, watch
from support.stack import Stack

NO_FENCE = 0
START = (NO_FENCE, INITIAL)


def read(token: int, value: str, at: tuple[float, float], outcome: str = "done") -> Operation:
    return Operation("read", token, *at, outcome, value)


def write(token: int, base: str, value: str, at: tuple[float, float], outcome: str = "done") -> Operation:
    return Operation("write", token, *at, outcome, value, base)


FAULTLESS = [
    read(1, "0", (0, 1)), write(1, "0", "1/a", (1, 2)), read(2, "1/a", (3, 4)), write(1, "1/a", "2/late", (4, 5), "refused"),
    write(2, "1/a", "2/b", (5, 7)), read(3, "2/b", (6, 8)), Operation("seal", 3, 8, 9, "done"), write(3, "2/b", "3/c", (9, 10), "refused"),
    read(4, "2/b", (10.5, 11)), write(4, "2/b", "3/d", (11, 12), "unknown"), read(4, "3/d", (13, 14)),
]


def changed(number: int, **fields: object) -> list[Operation]:
    return [replace(one, **fields) if at == number else one for at, one in enumerate(FAULTLESS)]  # type: ignore[arg-type]


def test_search_when_a_history_is_faultless_then_it_finds_an_order() -> None:
    assert linearizable(FAULTLESS, START)
    assert linearizable(FAULTLESS[:-1], START), "the unknown write may have landed or not"
    assert linearizable(FAULTLESS[:-1] + [read(5, "2/b", (13, 14))], START)


@pytest.mark.parametrize("history", [
    changed(3, outcome="done"), changed(7, outcome="done"), changed(2, value="0"), changed(5, value="0"), changed(8, value="3/c"),
    changed(4, outcome="refused"), changed(10, value="2/b", token=2), changed(1, token=9), changed(6, token=0), FAULTLESS + [read(9, "2/b", (15, 16))],
], ids=["stale write accepted", "sealed write accepted", "write not visible", "old value read", "refused write visible", "accepted write refused",
        "stale read accepted", "token from the future", "seal without effect", "landed write gone again"])
def test_search_when_a_history_has_a_fault_then_there_is_no_order(history: list[Operation]) -> None:
    assert not linearizable(history, START)


def test_search_when_a_hundred_operations_overlap_then_it_ends() -> None:
    """Ten at a time, of which each could have been first."""
    crowd = [write(1, "", f"{turn}/{number}", (turn, turn + 0.9)) for turn in range(10) for number in range(10)]
    assert linearizable(crowd, START)
    assert not linearizable(crowd + [read(1, "3/3", (20, 21))], START)


COMMITS = [Commit(1, "1/a"), Commit(2, "2/b"), Commit(4, "3/d")]


@pytest.mark.parametrize("commits, word", [
    ([COMMITS[0], COMMITS[2]], "lost update"), ([COMMITS[1], COMMITS[0], COMMITS[2]], "the token fell"), (COMMITS + [Commit(4, "4/x")], "nobody wrote"),
    (COMMITS + [Commit(4, "2/late")], "refused, but landed"), (COMMITS[1:], "landed 0 times"), (COMMITS + [COMMITS[2]], "landed 2 times"),
])
def test_order_of_commits_when_it_has_a_fault_then_it_is_named(commits: list[Commit], word: str) -> None:
    assert faults_of(FAULTLESS, COMMITS, INITIAL) == []
    assert any(word in fault for fault in faults_of(FAULTLESS, commits, INITIAL)), faults_of(FAULTLESS, commits, INITIAL)


@pytest.fixture
def names(guarded_pair: Stack, fresh: Callable[[str], str]) -> Iterator[list[str]]:
    made = [fresh("r") for _ in range(3)]
    open_registers(guarded_pair, made)
    lease = guarded_pair.api().take(f"registers/{made[0]}", ttl_ms=200)
    for number in range(2):
        eventually(lambda: guarded_pair.api(number).write(lease, {"delete": "registers", "where": {"name": "none"}}).status == 200, 10,
                   what="both gateways know the table")
    yield made


def test_registers_when_clients_of_two_gateways_pause_and_seal_then_each_is_linearizable(guarded_pair: Stack, names: list[str]) -> None:
    seen = watch(guarded_pair, names, clients=12, seconds=8)
    tally: Counter = Counter()
    for name in names:
        operations = seen[name]
        tally.update(f"{one.kind} {one.outcome}" for one in operations)
        assert faults_of(operations, commits_of(guarded_pair, name), INITIAL) == []
        assert linearizable(operations, (1, INITIAL)), name
        # The judge's eyes on this very history: one answer turned round, and it no longer fits.
        refusals = [number for number, one in enumerate(operations) if one.kind == "write" and one.outcome == "refused"]
        for number in refusals[:3]:
            lie = [replace(one, outcome="done") if at == number else one for at, one in enumerate(operations)]
            assert not linearizable(lie, (1, INITIAL))
            assert faults_of(lie, commits_of(guarded_pair, name), INITIAL)
    print(dict(tally))
    assert tally["write done"] >= 50 and tally["write refused"] >= 10 and tally["seal done"] >= 5 and tally["read done"] >= 100


def test_rows_when_nothing_guards_them_then_the_judge_finds_lost_updates(guarded_pair: Stack, names: list[str]) -> None:
    """The same clients under the same leases, on a table that is not protected: those that pause overwrite what came after."""
    seen = watch(guarded_pair, names[:1], clients=12, seconds=5, guarded=False)
    operations = seen[names[0]]
    tokens = {one.value: one.token for one in operations}
    commits = [replace(commit, token=tokens[commit.value]) for commit in commits_of(guarded_pair, names[0], "bare_registers")]
    faults = faults_of(operations, commits, INITIAL)
    assert any("lost update" in fault for fault in faults) and any("the token fell" in fault for fault in faults), faults
    assert not linearizable(operations, START)
