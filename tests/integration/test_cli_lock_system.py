"""`fencegate lock` and the system: readers of its output that end, redirected terminals, processes of other users, its watchdog."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import processes
from support.api import Api
from support.cli import Cli, environment, first_line
from support.polling import eventually, pause, remains
from support.stack import Stack

LOST = 65


@pytest.fixture
def cli(guarded_pair: Stack, api_a: Api) -> Cli:
    return Cli(api_a.url, guarded_pair.key("admin"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def revoke(api: Api, resource: str) -> None:
    answer = api.call("DELETE", f"/v1/resources/{resource.replace('/', '%2F')}/lease", {"reason": "a test"})
    assert answer.status == 204, str(answer)


def sleeping_command(mark: Path) -> list[str]:
    """Returns a command with a child process that writes both process ids into the file and sleeps."""
    return ["sh", "-c", f"sleep 300 & echo $$ $! > {mark}; wait"]


def read_pids(mark: Path) -> list[int]:
    return [int(word) for word in first_line(mark).split()]


# Output


def test_lock_reader_of_messages_that_ends_leaves_sigterm(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    """The message about the end of the command has no reader: the command gets SIGTERM as else, not SIGKILL."""
    running = cli.begin("lock", resource, "--", "sh", "-c", f"exec 2> /dev/null; trap 'echo terminated > {mark}.end; exit' TERM; echo begun > {mark}; while :; do sleep 0.05; done")
    first_line(mark)
    assert running.stderr is not None
    running.stderr.close()
    revoke(api_a, resource)
    assert running.wait(15) == LOST
    assert first_line(Path(f"{mark}.end"), 1) == "terminated"


@pytest.mark.parametrize("ignored", [False, True])
def test_lock_command_inherits_action_of_sigpipe(cli: Cli, resource: str, ignored: bool) -> None:
    """Python ignores SIGPIPE; `restore_signals` restores the default action."""
    running = cli.begin("lock", resource, "--", "grep", "SigIgn", "/proc/self/status", restore_signals=not ignored)
    output, errors = running.communicate(timeout=15)
    assert running.returncode == 0, errors
    assert bool(int(output.split()[1], 16) >> (signal.SIGPIPE - 1) & 1) == ignored


# The terminal


@pytest.mark.parametrize("redirection", ["> /dev/null", "< /dev/null", "| cat"])
def test_lock_redirected_command_gets_terminal_on_use(cli: Cli, resource: str, redirection: str) -> None:
    """As ssh does when it asks for a password."""
    terminal = cli.shell_on_terminal()
    terminal.type(f"fencegate lock {resource} -- sh -c 'exec 3<> /dev/tty; printf na''me: >&3; read one <&3; read two <&3; echo \"got <$one $two>\" >&3' {redirection}\n")
    terminal.expect("name:")
    terminal.type("hello\n")
    pause(0.3, "the command has the terminal and reads the first word")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("fg\n")
    pause(0.3, "the shell has made it the foreground process")
    terminal.type("again\n")
    terminal.expect("got <hello again>")
    terminal.type("echo co''de $?; exit\n")
    terminal.expect("code 0")
    terminal.end()


# Processes that lock may not signal


@pytest.fixture(scope="module")
def foreign_group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to be preloaded in which only the leader of a process group may be signalled, as if the other members belonged to root."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "kill.c").write_text("""
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
extern "C" int kill(pid_t process, int number) noexcept {
    if (process >= -1) return syscall(SYS_kill, process, number);
    if (syscall(SYS_kill, process, 0) != 0) return -1;
    if (syscall(SYS_kill, -process, number) == 0) return 0;
    errno = EPERM;
    return -1;
}
""")
    library = folder / "kill.so"
    subprocess.run(["g++", "-x", "c++", "-shared", "-fPIC", "-o", str(library), str(folder / "kill.c")], check=True)
    return library


def test_lock_waits_for_processes_of_other_user(cli: Cli, api_a: Api, foreign_group: Path, resource: str, mark: Path) -> None:
    running = subprocess.Popen([str(processes.fencegate_binary()), "lock", "--kill-after", "2s", resource, "--", *sleeping_command(mark)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, env=environment(cli.url, cli.key, LD_PRELOAD=str(foreign_group)), preexec_fn=processes.terminate_with_parent)
    leader, other = read_pids(mark)
    try:
        revoke(api_a, resource)
        eventually(lambda: not processes.is_alive(leader), goal="the leader of the group has ended")
        remains(lambda: running.poll() is None, 1.0, goal="lock waits for the other process")
        assert running.wait(15) == LOST
        assert processes.is_alive(other)
    finally:
        os.kill(other, signal.SIGKILL)
    _, errors = running.communicate(timeout=5)
    assert "signal 9 to the command was refused (Operation not permitted)" in errors, errors


# The watchdog


def test_lock_watchdog_is_ended_by_sigkill_only(cli: Cli, resource: str, mark: Path) -> None:
    """As `pkill -HUP fencegate` and the end of a control group signal it."""
    running = cli.begin("lock", resource, "--", *sleeping_command(mark))
    leader, child = read_pids(mark)
    [watchdog] = [pid for pid in processes.descendants(running.pid) if processes.parent_of(pid) == running.pid and pid != leader]
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMAX):
            os.kill(watchdog, number)
        remains(lambda: processes.is_alive(watchdog), 0.3)
        running.kill()
        running.wait()
        eventually(lambda: not processes.is_alive(leader) and not processes.is_alive(child), 5, goal="the command is ended")
    finally:
        processes.signal_all([child], signal.SIGKILL)
