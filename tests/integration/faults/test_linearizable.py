"""Each fenced row behaves like a linearizable register under concurrent clients of two gateways;
and tests of the checker itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Callable, Iterator

import pytest

from support.linearizable import Commit, Operation, faults_of, linearizable
from support.polling import eventually
from support.registers import INITIAL, commits_of, create_registers, run_clients
from support.stack import Stack

NO_FENCE = 0
START = (NO_FENCE, INITIAL)


def read(token: int, value: str, times: tuple[float, float], outcome: str = "done") -> Operation:
    return Operation("read", token, *times, outcome, value)


def write(token: int, base: str, value: str, times: tuple[float, float], outcome: str = "done") -> Operation:
    return Operation("write", token, *times, outcome, value, base)


FAULTLESS = [
    read(1, "0", (0, 1)),
    write(1, "0", "1/a", (1, 2)),
    read(2, "1/a", (3, 4)),
    write(1, "1/a", "2/late", (4, 5), "refused"),
    write(2, "1/a", "2/b", (5, 7)),
    read(3, "2/b", (6, 8)),
    Operation("seal", 3, 8, 9, "done"),
    write(3, "2/b", "3/c", (9, 10), "refused"),
    read(4, "2/b", (10.5, 11)),
    write(4, "2/b", "3/d", (11, 12), "unknown"),
    read(4, "3/d", (13, 14)),
]


def changed(number: int, **fields: object) -> list[Operation]:
    operations = list(FAULTLESS)
    operations[number] = replace(operations[number], **fields)  # type: ignore[arg-type]
    return operations


def test_search_finds_order_of_faultless_history() -> None:
    assert linearizable(FAULTLESS, START)
    assert linearizable(FAULTLESS[:-1], START), "the write with an unknown outcome may have been applied or not"
    assert linearizable(FAULTLESS[:-1] + [read(5, "2/b", (13, 14))], START)


@pytest.mark.parametrize(
    "history",
    [
        changed(3, outcome="done"),
        changed(7, outcome="done"),
        changed(2, value="0"),
        changed(5, value="0"),
        changed(8, value="3/c"),
        changed(4, outcome="refused"),
        changed(10, value="2/b", token=2),
        changed(1, token=9),
        changed(6, token=0),
        FAULTLESS + [read(9, "2/b", (15, 16))],
    ],
    ids=[
        "stale write accepted",
        "sealed write accepted",
        "write not visible",
        "old value read",
        "refused write visible",
        "accepted write refused",
        "stale read accepted",
        "token from the future",
        "seal without effect",
        "committed write gone again",
    ],
)
def test_search_finds_no_order_of_faulty_history(history: list[Operation]) -> None:
    assert not linearizable(history, START)


def test_search_of_100_overlapping_operations_ends() -> None:
    """Ten operations at a time, each of which could be the first."""
    crowd = [write(1, "", f"{turn}/{number}", (turn, turn + 0.9)) for turn in range(10) for number in range(10)]
    assert linearizable(crowd, START)
    assert not linearizable(crowd + [read(1, "3/3", (20, 21))], START)


COMMITS = [Commit(1, "1/a"), Commit(2, "2/b"), Commit(4, "3/d")]


@pytest.mark.parametrize(
    "commits, word",
    [
        ([COMMITS[0], COMMITS[2]], "lost update"),
        ([COMMITS[1], COMMITS[0], COMMITS[2]], "the token fell"),
        (COMMITS + [Commit(4, "4/x")], "nobody wrote"),
        (COMMITS + [Commit(4, "2/late")], "refused, but applied"),
        (COMMITS[1:], "applied 0 times"),
        (COMMITS + [COMMITS[2]], "applied 2 times"),
    ],
)
def test_commit_order_with_fault_is_named(commits: list[Commit], word: str) -> None:
    assert faults_of(FAULTLESS, COMMITS, INITIAL) == []
    assert any(word in fault for fault in faults_of(FAULTLESS, commits, INITIAL)), faults_of(
        FAULTLESS, commits, INITIAL
    )


@pytest.fixture
def names(guarded_pair: Stack, unique_name: Callable[[str], str]) -> Iterator[list[str]]:
    made = [unique_name("r") for _ in range(3)]
    create_registers(guarded_pair, made)
    lease = guarded_pair.api().must_acquire(f"registers/{made[0]}", ttl_ms=200)
    for number in range(2):
        eventually(
            lambda: guarded_pair.api(number).write(lease, {"delete": "registers", "where": {"name": "none"}}).status
            == 200,
            goal="both gateways know the table",
        )
    yield made


def test_registers_under_pauses_and_seals_are_linearizable(guarded_pair: Stack, names: list[str]) -> None:
    seen = run_clients(guarded_pair, names, clients=12, seconds=8)
    tally: Counter = Counter()
    for name in names:
        operations = seen[name]
        tally.update(f"{operation.kind} {operation.outcome}" for operation in operations)
        assert faults_of(operations, commits_of(guarded_pair, name), INITIAL) == []
        assert linearizable(operations, (1, INITIAL)), name
        # With one changed answer the same history must be found faulty.
        refusals = [
            number
            for number, operation in enumerate(operations)
            if operation.kind == "write" and operation.outcome == "refused"
        ]
        for number in refusals[:3]:
            lie = [
                replace(operation, outcome="done") if index == number else operation
                for index, operation in enumerate(operations)
            ]
            assert not linearizable(lie, (1, INITIAL))
            assert faults_of(lie, commits_of(guarded_pair, name), INITIAL)
    print(dict(tally))
    assert (
        tally["write done"] >= 20
        and tally["write refused"] >= 3
        and tally["seal done"] >= 2
        and tally["read done"] >= 40
    )


def test_rows_without_guard_have_lost_updates(guarded_pair: Stack, names: list[str]) -> None:
    """The same clients under the same leases on a table that is not protected:
    clients that pause overwrite later writes."""
    seen = run_clients(guarded_pair, names[:1], clients=12, seconds=5, guarded=False)
    operations = seen[names[0]]
    tokens = {operation.value: operation.token for operation in operations}
    commits = [
        replace(commit, token=tokens[commit.value]) for commit in commits_of(guarded_pair, names[0], "bare_registers")
    ]
    faults = faults_of(operations, commits, INITIAL)
    assert any("lost update" in fault for fault in faults) and any(
        "the token fell" in fault for fault in faults
    ), faults
    assert not linearizable(operations, START)
