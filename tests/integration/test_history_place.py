"""`fencegate history --follow --after ID --place FILE`: each event is printed, also after the command was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.polling import eventually
from support.stack import Stack


class Follower:
    """Adds numbered events to a resource of its own, and follows them into files."""

    def __init__(self, cli: Cli, stack: Stack, resource: str, folder: Path) -> None:
        self.cli, self.stack, self.resource, self.folder = cli, stack, resource, folder
        self.place = folder / "place"
        self.options = ["history", "--follow", "--resource", resource, "--json"]

    def add(self, first: int, last: int) -> None:
        self.stack.query(
            "insert into fencing.history (event, resource, owner) select 'request_denied', %s, n::text "
            "from generate_series(%s, %s) as t (n)",
            (self.resource, first, last),
        )

    def before(self) -> int:
        return self.stack.query("select max(id) from fencing.history")[0][0]

    def printed(self, expected: int, *options: str) -> list[dict[str, Any]]:
        """Follows until so many lines are printed, then kills the command."""
        out = self.folder / "out"
        with out.open("w") as file:
            running = self.cli.begin(*self.options, *options, stdout=file)
            try:
                eventually(lambda: out.read_text().count("\n") >= expected, 20, goal=f"{expected} lines are printed")
            finally:
                running.kill()
                running.wait()
        return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def follower(cli: Cli, guarded_pair: Stack, resource: str, tmp_path: Path) -> Follower:
    return Follower(cli, guarded_pair, resource, tmp_path)


def test_follow_after_id_prints_what_came_later(follower: Follower) -> None:
    follower.add(1, 5)
    first = follower.printed(5, "--after", "0")
    assert [item["owner"] for item in first] == ["1", "2", "3", "4", "5"]
    later = follower.printed(2, "--after", str(first[2]["id"]))
    assert [item["owner"] for item in later] == ["4", "5"]


def test_follow_resumes_at_place_and_leaves_nothing_out(follower: Follower) -> None:
    place = ["--after", str(follower.before()), "--place", str(follower.place)]
    runs = []
    for begin in range(1, 400, 100):
        follower.add(begin, begin + 99)
        runs.append(follower.printed(40, *place))
    while runs[-1][-1]["owner"] != "400":
        runs.append(follower.printed(1, *place))
    seen = [item["owner"] for run in runs for item in run]
    assert list(dict.fromkeys(seen)) == [str(number) for number in range(1, 401)], "each, in order"
    assert len(seen) < 400 + len(runs), "at most the last event before an end by force is printed twice"


def test_place_is_that_of_the_last_printed_event(follower: Follower) -> None:
    follower.add(1, 3)
    printed = follower.printed(3, "--after", "0", "--place", str(follower.place))
    assert int(follower.place.read_text()) in (printed[1]["id"], printed[2]["id"])


def test_line_torn_by_kill_is_ended_before_next_event(follower: Follower) -> None:
    follower.add(1, 1)
    out = follower.folder / "torn"
    for before, kept in (("", ""), ("whole\n", "whole\n"), ('{"id":1,"ow', '{"id":1,"ow\n')):
        out.write_text(before)
        follower.place.unlink(missing_ok=True)
        with out.open("a") as file:
            running = follower.cli.begin(*follower.options, "--after", "0", "--place", str(follower.place), stdout=file)
            try:
                eventually(follower.place.exists, 20, goal="the event is printed")
            finally:
                running.kill()
                running.wait()
        text = out.read_text()
        assert text.startswith(kept), text
        assert json.loads(text.removeprefix(kept))["owner"] == "1"


def test_second_follower_of_a_place_is_refused(follower: Follower) -> None:
    follower.add(1, 1)
    out = (follower.folder / "out").open("w")
    running = follower.cli.begin(*follower.options, "--after", "0", "--place", str(follower.place), stdout=out)
    try:
        eventually(follower.place.exists, 20, goal="the place is kept")
        second = follower.cli.run(*follower.options, "--place", str(follower.place))
        assert second.returncode == 1 and "another process" in second.stderr, second
    finally:
        running.kill()
        running.wait()
        out.close()


def test_damaged_place_is_refused(follower: Follower) -> None:
    for text in ("", "12", "x\n"):
        follower.place.write_text(text)
        done = follower.cli.run(*follower.options, "--place", str(follower.place))
        assert done.returncode in (1, 64) and done.stdout == "", (text, done)
    for alone in (["--place", "p"], ["--after", "1"]):
        assert follower.cli.run("history", *alone).returncode == 64
