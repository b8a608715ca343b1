"""Processes of a test: started with a leash, looked at through /proc, ended by their id."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Iterable

from support.polling import eventually

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def repository() -> Path:
    return Path(__file__).resolve().parents[2]


def fencegate_binary() -> Path:
    """The program under test: FENCEGATE_BINARY, else the release build."""
    named = os.environ.get("FENCEGATE_BINARY")
    path = Path(named) if named else repository() / "build" / "release" / "fencegate"
    if not path.is_file():  # the build may keep it in the folder of its sources
        path = path.parent / "gateway" / "fencegate"
    assert path.is_file(), f"there is no fencegate at {path}: build it, or set FENCEGATE_BINARY"
    return path.resolve()


def ended_with_parent() -> None:
    """Between fork and exec: SIGTERM when the test run dies, so that even a killed run leaves nothing behind; and what a run in the background ignores, its children do not."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(one, signal.SIG_DFL)


def start(command: list[str], log: Path, **more: object) -> subprocess.Popen:
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                preexec_fn=ended_with_parent, **more)  # type: ignore[call-overload]


def stop(process: subprocess.Popen, within: float = 20.0, with_signal: int = signal.SIGTERM) -> int:
    """Asks it to end and gives its exit code; kills it and fails if it does not."""
    if process.poll() is None:
        process.send_signal(with_signal)
        process.send_signal(signal.SIGCONT)
    try:
        return process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"{process.args} did not end within {within} s of signal {with_signal}") from None


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descendants(root: int) -> set[int]:
    """Every living process below `root`, not `root` itself."""
    parents = {pid: parent_of(pid) for pid in all_pids()}
    found: set[int] = set()
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent == root or parent in found}
        grown = not below <= found
        found |= below
    return {pid for pid in found if is_alive(pid)}


def working_below(folder: Path) -> set[int]:
    """Every living process that runs in `folder` or names it in its arguments."""
    found = set()
    for pid in all_pids():
        if pid == os.getpid() or not is_alive(pid):
            continue
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            cwd = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if str(folder) in arguments or cwd == str(folder) or cwd.startswith(f"{folder}/"):
            found.add(pid)
    return found


def wait_until_gone(pids: Iterable[int], within: float = 10.0) -> None:
    pids = set(pids)
    eventually(lambda: not {pid for pid in pids if is_alive(pid)}, within, what=f"{pids} have ended")


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signals those that are still there. Returns from SIGSTOP when every thread has stopped: it may run on for a while before."""
    pids = list(pids)
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    if number == signal.SIGSTOP:
        eventually(lambda: all(_is_stopped(pid) for pid in pids), every=0.001, what=f"{pids} have stopped")


def _is_stopped(pid: int) -> bool:
    """True also where it has ended."""
    try:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX" for task in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()


def free_port() -> int:
    """Never the same twice, and none that the system gives to connections or `fencegate dev` to its servers: between now and its use it stays free."""
    while True:
        port = random.randrange(10_000, 20_000)
        if port in _given_ports:
            continue
        _given_ports.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


_given_ports: set[int] = set()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
