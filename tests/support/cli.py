"""Runs `fencegate` as a user does: in a pipe, on a pseudo-terminal, and as a lock around a command."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

from support import processes
from support.polling import eventually


def environment(url: str, key: str | None, **variables: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FENCEGATE_", "FENCING_"))
        and not name.lower().endswith("_proxy")
        and name != "NO_COLOR"
    }
    return {**inherited, "FENCEGATE_URL": url, **({"FENCEGATE_API_KEY": key} if key else {}), **variables}


class Cli:
    """Runs the program against one gateway with the key of one principal."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url, self.key = url, key

    def run(self, *arguments: str, timeout: float = 30.0, **variables: str) -> subprocess.CompletedProcess:
        return processes.run_fencegate(*arguments, timeout=timeout, env=environment(self.url, self.key, **variables))

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen:
        return processes.begin_fencegate(*arguments, env=environment(self.url, self.key), **options)

    def run_on_terminal(self, *arguments: str, columns: int = 0, **variables: str) -> "Terminal":
        return Terminal(
            [str(processes.fencegate_binary()), *arguments],
            environment(self.url, self.key, TERM="xterm", **variables),
            columns,
        )

    def shell_on_terminal(self) -> "Terminal":
        """Starts an interactive bash with job control that finds the program as `fencegate`."""
        folder = str(processes.fencegate_binary().parent)
        path = f"{folder}:{os.environ.get('PATH', '')}"
        return Terminal(
            ["/bin/bash", "--norc", "--noprofile", "-i"], environment(self.url, self.key, TERM="dumb", PATH=path)
        )


class Terminal:
    """A program on a pseudo-terminal: `shown` is its output, `type` sends input, `end` returns its exit code."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int = 0) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            processes.terminate_with_parent()
            if columns:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(command[0], command, env)
        self.shown = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float = 0.05) -> bool:
        """Reads the output that is there or comes within the time. Returns False at the end of the output."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # the program has closed the terminal
            return False
        self.shown += self.decoder.decode(piece).replace("\r\n", "\n")
        return bool(piece)

    def expect(self, text: str, timeout: float = 10.0) -> None:
        eventually(
            lambda: self.read() and text in self.shown or text in self.shown,
            timeout,
            goal=f"{text!r} in {self.shown!r}",
        )

    def end(self, timeout: float = 20.0) -> int:
        """Reads the output to its end and returns the exit code."""
        until = time.monotonic() + timeout
        while self.read() and time.monotonic() < until:
            pass
        status = eventually(
            lambda: (waited := os.waitpid(self.pid, os.WNOHANG))[0] and (waited[1],),
            max(0.1, until - time.monotonic()),
            goal="it ends",
        )[0]
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


def first_line(file: Path, timeout: float = 10.0) -> str:
    """Waits for the first line of a file that a command writes, and returns it."""
    return eventually(
        lambda: file.exists() and file.read_text().endswith("\n") and file.read_text().splitlines()[0],
        timeout,
        goal=f"a line in {file}",
    )


def wait_for_exit(process: subprocess.Popen, timeout: float = 15.0) -> tuple[int, str]:
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors


def sleeping_command(mark: Path, trap: str = "") -> list[str]:
    """Returns a command with a child process that writes both process ids into the file and sleeps."""
    return ["sh", "-c", f"{trap} sleep 300 & echo $$ $! > {mark}; wait"]


def read_pids(mark: Path) -> list[int]:
    return [int(word) for word in first_line(mark).split()]


def expect_ended(pids: list[int], timeout: float = 5.0) -> None:
    eventually(lambda: not any(processes.is_alive(pid) for pid in pids), timeout, goal=f"{pids} are gone")
