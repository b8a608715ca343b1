"""Starts the processes of a test so that they end with it, inspects them through /proc, and ends them by their id."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, Sequence

from support.polling import eventually

PR_SET_PDEATHSIG = 1
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WAIT_FOR_THREADS = 0x40000000  # __WALL
LIBC = ctypes.CDLL(None, use_errno=True)


def repository() -> Path:
    return Path(__file__).resolve().parents[2]


def fencegate_binary() -> Path:
    """Returns the program under test: FENCEGATE_BINARY, else that of the release build."""
    named = os.environ.get("FENCEGATE_BINARY")
    path = Path(named) if named else repository() / "build" / "release" / "fencegate"
    if not path.is_file():  # the build may keep it in the folder of its sources
        path = path.parent / "gateway" / "fencegate"
    assert path.is_file(), f"there is no fencegate at {path}: build it, or set FENCEGATE_BINARY"
    return path.resolve()


def terminate_with_parent() -> None:
    """Runs between fork and exec (preexec_fn): the process gets SIGTERM when the test run ends, even if it is killed.

    Restores the signals that a test run in the background ignores.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(command: list[str], log: Path, **options: object) -> subprocess.Popen:
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=terminate_with_parent,
            **options,
        )  # type: ignore[call-overload]


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess:
    """Runs a command to its end, and keeps its output as text."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def run_fencegate(*arguments: str, **options: Any) -> subprocess.CompletedProcess:
    """Runs the program under test to its end, or to that of the test run."""
    command = [str(fencegate_binary()), *arguments]
    return run(command, stdin=subprocess.DEVNULL, preexec_fn=terminate_with_parent, **options)


def begin_fencegate(*arguments: str, **options: Any) -> subprocess.Popen:
    """Starts the program under test, whose output the caller reads."""
    return subprocess.Popen(
        [str(fencegate_binary()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=terminate_with_parent,
        **options,
    )


def stop(process: subprocess.Popen, timeout: float = 20.0, signal_number: int = signal.SIGTERM) -> int:
    """Signals the process to end and returns its exit code; kills it and fails if it does not end in time."""
    if process.poll() is None:
        process.send_signal(signal_number)
        process.send_signal(signal.SIGCONT)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"{process.args} did not end within {timeout} s of signal {signal_number}") from None


def is_alive(pid: int) -> bool:
    """Returns whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processor_seconds(pid: int) -> float:
    """Returns the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scheduled_seconds(pid: int) -> tuple[float, float]:
    """Returns how long the threads of a process have run,
    and how long they could have run and waited for a processor."""
    ran, waited = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            fields = (task / "schedstat").read_text().split()
            ran, waited = ran + int(fields[0]), waited + int(fields[1])
    return ran / 1e9, waited / 1e9


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descendants(root: int) -> set[int]:
    """Returns the running descendants of `root`, without `root` itself."""
    parents = {pid: parent_of(pid) for pid in all_pids()}
    found: set[int] = set()
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent == root or parent in found}
        grown = not below <= found
        found |= below
    return {pid for pid in found if is_alive(pid)}


def command_line(pid: int) -> str:
    """Returns the arguments of a process, or the title that it has given itself; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def pids_in_folder(folder: Path) -> set[int]:
    """Returns the running processes whose working directory is in `folder` or whose arguments name it."""
    found = set()
    for pid in all_pids():
        if pid == os.getpid() or not is_alive(pid):
            continue
        arguments = command_line(pid)
        try:
            cwd = os.readlink(f"/proc/{pid}/cwd")
        except OSError:  # a gateway hides it from all users but root
            cwd = ""
        if str(folder) in arguments or cwd == str(folder) or cwd.startswith(f"{folder}/"):
            found.add(pid)
    return found


def wait_until_gone(pids: Iterable[int], timeout: float = 10.0) -> None:
    pids = set(pids)
    eventually(lambda: not {pid for pid in pids if is_alive(pid)}, timeout, goal=f"{pids} have ended")


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signals the processes that still exist. After SIGSTOP waits until every thread has stopped,
    which may take a moment."""
    pids = list(pids)
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    if number == signal.SIGSTOP:
        eventually(lambda: all(_is_stopped(pid) for pid in pids), interval=0.001, goal=f"{pids} have stopped")


@contextmanager
def suspended(pids: Iterable[int]) -> Iterator[None]:
    """Suspends the processes (SIGSTOP) while the block lasts, so that their connections stay open without answers."""
    stopped = list(pids)
    signal_all(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(stopped, signal.SIGCONT)


@contextmanager
def stopped_thread(pid: int, name: str) -> Iterator[None]:
    """Stops one thread of a process, as if a function that it called did not return, and continues it.
    Needs the right to debug the process."""
    [task] = [task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name]
    thread = int(task.name)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        assert LIBC.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(thread, WAIT_FOR_THREADS)
    try:
        yield
    finally:
        LIBC.ptrace(PTRACE_DETACH, thread, None, None)  # fails if the process has ended


def _is_stopped(pid: int) -> bool:
    """Returns whether all threads of the process have stopped, or it has ended."""
    try:
        return all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()


def free_port() -> int:
    """Returns a port that stays free until it is used: outside the ranges of the system and of `fencegate dev`,
    and neither returned before nor by another process of tests that still runs."""
    while True:
        port = random.randrange(10_000, 20_000)
        if port in _given_ports:
            continue
        try:
            fcntl.lockf(_ports_of_all_processes, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        _given_ports.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


_given_ports: set[int] = set()
_ports_of_all_processes = (Path(tempfile.gettempdir()) / f"fencegate-test-ports-{os.getuid()}").open(
    "w"
)  # the byte of a port is locked, never written


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def faketime_environment() -> dict[str, str]:
    """Returns the variables under which libfaketime sets the wall clock of a process,
    by FAKETIME or FAKETIME_TIMESTAMP_FILE. Its monotonic clock stays correct."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    # libstdc++ and libc provide new and malloc: jemalloc and libfaketime would call each other while they start.
    return {"LD_PRELOAD": f"{library} libstdc++.so.6 libc.so.6", "DONT_FAKE_MONOTONIC": "1"}
