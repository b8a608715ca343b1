"""Finds the commands in a document, runs them in a shell on a pseudo-terminal,
and compares the results with what the document says.

An HTML comment directly before a block says how the block is used:
    <!-- not run: REASON -->             the block is not run
    <!-- file: NAME -->                  the block is the content of this file
    <!-- output of: COMMAND -->          the block shows, shortened, what the command prints
    <!-- sent to: METHOD PATH [under RESOURCE…] -->   the JSON is sent, with a new lease on these resources;
                                                      the next JSON block shows the answer
    <!-- run: COMMANDS -->               commands that prepare what follows and that no reader sees
    <!-- recipe: NAME -->                the block is a part of a recipe for operators,
                                         which tests/integration/test_recipes.py runs on servers of its own
A comment after a command gives its result: `# => TEXT` has words of the HTTP status and the output in their order;
without it every HTTP status must be 2xx. A command with `until Ctrl-C` is ended by Ctrl-C once it has printed TEXT,
or anything where there is no TEXT.
"""

from __future__ import annotations

import os
import re
import signal
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

from support import processes
from support.cli import Terminal
from support.polling import NotInTime, eventually

TIMEOUT = 60.0
PARTS = re.compile(
    r"^ *<!-- (?P<directive>not run|recipe|file|output of|sent to|run): "
    r"(?P<words>.*?)\s*-->\n|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """The text between two fences, or of a comment `run:`."""

    where: str
    language: str
    text: str
    directive: str = ""
    words: str = ""

    @property
    def is_run(self) -> bool:
        """Whether the block is run with the other blocks of its page."""
        return self.directive not in ("not run", "recipe") and bool(self.language in ("sh", "sql") or self.directive)


def faults_of(blocks: list[Block]) -> list[str]:
    """Returns an error for each block that is neither run nor marked as not run. A drawing has no commands."""
    return [
        f"{block.where}: a block of {block.language or 'no language'} is neither run nor marked"
        for block in blocks
        if not block.is_run and block.directive not in ("not run", "recipe") and block.language != "mermaid"
    ]


def blocks_of(document: Path, root: Path) -> list[Block]:
    """Returns the blocks of a document in their order."""
    text = document.read_text()
    blocks, pending = [], None
    for part in PARTS.finditer(text):
        where = f"{document.relative_to(root)}:{text.count(chr(10), 0, part.start()) + 1}"
        if part["directive"] == "run":
            blocks.append(Block(where, "sh", part["words"] + "\n", "run"))
        elif part["directive"]:
            pending = part
            assert re.match(
                r" *```", text[part.end() :]
            ), f"{where}: a comment about a block has to stand directly before it"
        else:
            directive, words = (pending["directive"], pending["words"]) if pending else ("", "")
            if not directive and part["language"] == "json" and blocks and blocks[-1].directive == "sent to":
                directive = "answer"
            blocks.append(Block(where, part["language"], textwrap.dedent(part["text"]), directive, words))
            pending = None
    return blocks


# Commands


@dataclass(frozen=True)
class Command:
    text: str
    shown: str  # the result that the comment after the command gives
    endless: bool  # until Ctrl-C


def commands_of(text: str) -> Iterator[Command]:
    """Yields each command of a block, split as bash splits them; lines that are only a comment are left out."""
    lines: list[str] = []
    for line in text.splitlines():
        if not lines and (not line.strip() or line.startswith("#")):
            continue
        lines.append(line)
        whole = "\n".join(lines) + "\n"
        checked = processes.run(["/bin/bash", "-n"], input=whole)
        if (
            line.endswith("\\") or checked.returncode != 0 or checked.stderr
        ):  # bash only warns about a here-document that has not ended
            continue
        comment = re.search(r"\s# (.*)$", lines[0] if "<<" in lines[0] else line)
        words = comment[1] if comment else ""
        shown = re.match(r"=> (.*?)(?:[;,] until Ctrl-C.*|;.*)?$", words)
        yield Command(whole, shown[1] if shown else "", "until Ctrl-C" in words)
        lines = []
    assert not lines, f"this is no whole command: {lines}"


def has_words(shown: str, output: str) -> bool:
    """Returns whether the output has these words in their order."""
    return (
        re.search(".*?".join(re.escape(word) for word in re.split(r"[\s…]+", shown) if word), output, re.DOTALL)
        is not None
    )


def form_of(line: str) -> str:
    """Returns a line with times, ids and tokens replaced, which differ from run to run."""
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", line.strip())
    line = re.sub(r"[\w.=-]{16,}(?=…)", "ID", line)
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", line)
    return re.sub(r"\s+", " ", re.sub(r"\b\d{9,}\b", "TOKEN", line))


def missing_lines(shown: str, output: str) -> list[str]:
    """Returns the lines of a shown output that the actual one does not have in this order. `…` matches any text."""
    actual, next_line, missing = [form_of(line) for line in output.splitlines()], 0, []
    for line in filter(str.strip, shown.splitlines()):
        pattern = ".*".join(
            re.escape(form_of(f"{piece}…").removesuffix("…") if has_gap else form_of(piece))
            for piece, has_gap in pieces_of(line)
        )
        found = next(
            (number for number in range(next_line, len(actual)) if re.fullmatch(pattern, actual[number])), None
        )
        if found is None:
            missing.append(line)
        else:
            next_line = found + 1
    return missing


def pieces_of(line: str) -> list[tuple[str, bool]]:
    """Splits a line at each `…`; each part says whether a `…` follows it."""
    pieces = line.split("…")
    return [*((piece, True) for piece in pieces[:-1]), (pieces[-1], False)]


def differs(shown: Any, actual: Any, where: str = "") -> list[str]:
    """Returns the paths of members of a shown answer that the actual one lacks, or has with another type."""
    if isinstance(shown, dict) and isinstance(actual, dict):
        return [
            fault
            for name, value in shown.items()
            for fault in (differs(value, actual[name], f"{where}/{name}") if name in actual else [f"{where}/{name}"])
        ]
    if isinstance(shown, list) and isinstance(actual, list):
        return [
            fault for number, pair in enumerate(zip(shown, actual)) for fault in differs(*pair, f"{where}/{number}")
        ] + ([] if len(shown) <= len(actual) else [where])
    return [] if type(shown) is type(actual) else [where]


# A shell

MARK = "\036"
STYLING = re.compile(r"\x1b(?:\[[\d;]*m|\].*?\x1b\\)")
# curl as the reader has it, which also writes the statuses to a file.
CURL = """#!/bin/sh
exec /usr/bin/curl -w '%{{stderr}}%{{http_code}}\\n' "$@" 2>>{log}
"""


class Shell:
    """An interactive bash on a pseudo-terminal that runs one command after the other."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.answers = folder / "curl.log"
        self.answers.touch()
        programs = folder / "programs"
        programs.mkdir()
        (programs / "curl").write_text(CURL.format(log=self.answers))
        (programs / "curl").chmod(0o755)
        (programs / "fencegate").symlink_to(processes.fencegate_binary())
        home = folder / "home"
        home.mkdir(exist_ok=True)
        env = {
            **env,
            "PATH": f"{programs}:{env['PATH']}",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PAGER": "cat",
            "TERM": "dumb",
            "PS1": "",
            "PS2": "",
        }
        self.terminal = Terminal(["/bin/bash", "--norc", "--noprofile", "--noediting", "-i"], env, columns=160)
        self.terminal.type(
            f"stty -echo; cd {home}; set -o pipefail; PS1= PS2= PROMPT_COMMAND='printf \"{MARK}%d{MARK}\" $?'\n"
        )
        self._ended()

    def _await(self, condition: Callable[[], Any], goal: str) -> Any:
        """Reads output until `condition` returns something true, and returns that."""
        try:
            return eventually(lambda: self.terminal.read() and condition(), TIMEOUT, goal=goal)
        except NotInTime as late:
            raise AssertionError(f"{late}; shown {self.terminal.shown!r}") from None

    def _ended(self) -> int:
        """Waits for the end of the first command in the output and returns its exit code;
        a later one is that of an interrupted prompt."""
        done = self._await(lambda: re.search(f"{MARK}(\\d+){MARK}", self.terminal.shown), "the command ends")
        self.terminal.shown, self.at_prompt = self.terminal.shown[: done.start()], True
        return int(done[1])

    def run(self, command: Command, meanwhile: Callable[[], None]) -> str:
        """Runs a command, checks that it succeeds with the result shown,
        and returns the HTTP statuses and the output."""
        self.terminal.shown, self.at_prompt = "", False
        self.answers.write_text("")
        self.terminal.type(command.text)
        if command.endless:

            def has_printed() -> bool:
                meanwhile()
                return (
                    has_words(command.shown, self.terminal.shown)
                    if command.shown
                    else bool(self.terminal.shown.strip())
                )

            self._await(has_printed, f"{command.text.strip()} prints")
            self.terminal.type("\x03")
        code = self._ended()
        self.terminal.shown = STYLING.sub("", self.terminal.shown)
        curl_log = self.answers.read_text()
        statuses = [int(status) for status in re.findall(r"^\d\d\d$", curl_log, re.MULTILINE)]
        output = "\n".join([*map(str, statuses), self.terminal.shown])
        detail = f"{command.text}exit code {code}; {curl_log}{self.terminal.shown}"
        assert code == 0 or command.endless and code == 130, detail
        if last := re.match(r"([1-5]\d\d)\b", command.shown):
            assert statuses.pop() == int(last[1]), detail
        assert all(200 <= status < 300 for status in statuses), detail
        if not command.endless:
            assert has_words(command.shown, output), f"not shown: {command.shown}\n{detail}"
        return output

    def end(self) -> None:
        """Ends the shell, and first a command that still runs."""
        try:
            if not self.at_prompt:
                self.terminal.type("\x03")
                self._ended()
            self.terminal.type("exit 0\n")
            self.terminal.end()
        except AssertionError:
            os.kill(self.terminal.pid, signal.SIGKILL)
            raise
