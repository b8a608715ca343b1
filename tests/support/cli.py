"""`fencegate` as people run it: in a pipe, on a terminal of the test's own, and as a lock around a command."""

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

from support import processes
from support.polling import eventually


def environment(url: str, key: str | None, **more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith(("FENCEGATE_", "FENCING_")) and not name.lower().endswith("_proxy") and name != "NO_COLOR"}
    return {**ours, "FENCEGATE_URL": url, **({"FENCEGATE_API_KEY": key} if key else {}), **more}


class Cli:
    """The program against one gateway, as one principal."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url, self.key = url, key

    def run(self, *arguments: str, within: float = 30.0, **more: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(processes.fencegate_binary()), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within,
                              env=environment(self.url, self.key, **more), preexec_fn=processes.ended_with_parent)

    def begin(self, *arguments: str, **more: object) -> subprocess.Popen:
        return subprocess.Popen([str(processes.fencegate_binary()), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=environment(self.url, self.key), preexec_fn=processes.ended_with_parent, **more)  # type: ignore[call-overload]

    def on_terminal(self, *arguments: str, columns: int = 0, **more: str) -> "Terminal":
        return Terminal([str(processes.fencegate_binary()), *arguments], environment(self.url, self.key, TERM="xterm", **more), columns)

    def on_terminal_of_a_shell(self) -> "Terminal":
        """An interactive bash, with jobs, that finds the program as `fencegate`."""
        folder = str(processes.fencegate_binary().parent)
        path = f"{folder}:{os.environ.get('PATH', '')}"
        return Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], environment(self.url, self.key, TERM="dumb", PATH=path))


class Terminal:
    """A program that has a terminal: what it showed, what is typed, how it ended."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int = 0) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            processes.ended_with_parent()
            if columns:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(command[0], command, env)
        self.shown = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # a piece may end within a character

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, during: float = 0.05) -> bool:
        """Takes what has come; False at the end."""
        if not select.select([self.master], [], [], during)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # how the end of a terminal looks
            return False
        self.shown += self.decoder.decode(piece).replace("\r\n", "\n")
        return bool(piece)

    def expect(self, text: str, within: float = 10.0) -> None:
        eventually(lambda: self.read() and text in self.shown or text in self.shown, within, what=f"{text!r} in {self.shown!r}")

    def end(self, within: float = 20.0) -> int:
        """Its exit code, after its last words."""
        until = time.monotonic() + within
        while self.read() and time.monotonic() < until:
            pass
        status = eventually(lambda: (waited := os.waitpid(self.pid, os.WNOHANG))[0] and (waited[1],), max(0.1, until - time.monotonic()), what="it ends")[0]
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


def first_line(file: Path, within: float = 10.0) -> str:
    """Of a file that a command writes."""
    return eventually(lambda: file.exists() and file.read_text().endswith("\n") and file.read_text().splitlines()[0], within, what=f"a line in {file}")
