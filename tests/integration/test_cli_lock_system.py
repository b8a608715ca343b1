"""`fencegate lock` and the system: readers of its output that end, terminals that several processes use,
processes of other users, suspension of the machine, its watchdog."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import processes
from support.api import Api
from support.cli import Cli, environment, first_line, read_pids, sleeping_command
from support.polling import eventually, pause, remains

LOST = 65


def make_preload(folder: Path, source: str) -> Path:
    """Builds a library whose functions replace those of the C library in a program that is started
    with it in LD_PRELOAD."""
    library = folder / "preload.so"
    subprocess.run(
        ["g++", "-x", "c++", "-std=c++20", "-shared", "-fPIC", "-pthread", "-o", str(library), "-"],
        input=source,
        text=True,
        check=True,
    )
    return library


def begin_preloaded(cli: Cli, library: Path, *arguments: str, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [str(processes.fencegate_binary()), *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cli.url, cli.key, LD_PRELOAD=str(library), **variables),
        preexec_fn=processes.terminate_with_parent,
    )


# Output


def test_lock_reader_of_messages_that_ends_leaves_sigterm(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    """The message about the end of the command has no reader: the command gets SIGTERM as else, not SIGKILL."""
    running = cli.begin(
        *f"lock {resource} -- sh -c".split(),
        f"exec 2> /dev/null; trap 'echo terminated > {mark}.end; exit' TERM; echo begun > {mark}; while :; "
        "do sleep 0.05; done",
    )
    first_line(mark)
    assert running.stderr is not None
    running.stderr.close()
    api_a.must_revoke(resource)
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
    terminal.type(
        f"fencegate lock {resource} -- sh -c 'exec 3<> /dev/tty; printf na''me: >&3; read one <&3; read two <&3; "
        f'echo "got <$one $two>" >&3\' {redirection}\n'
    )
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


PAGER = """read line
printf ke''y: > /dev/tty
read key < /dev/tty
echo "$line <$key>"
touch MARK
cat
"""


def test_lock_pager_of_pipeline_uses_lent_terminal(cli: Cli, resource: str, mark: Path) -> None:
    """As `fencegate lock r -- sudo report | less`. The command asks again after the pager has used the terminal."""
    pager = mark.with_name("pager")
    pager.write_text(PAGER.replace("MARK", str(mark)))
    ask = "printf na''me: >&3; read name <&3; echo \"got <$name>\""
    terminal = cli.shell_on_terminal()
    terminal.type(
        f"fencegate lock {resource} -- sh -c 'exec 3<> /dev/tty; {ask}; until [ -e {mark} ]; do sleep 0.02; done; "
        f"{ask}' | sh {pager}\n"
    )
    terminal.expect("name:")
    terminal.type("first\n")
    terminal.expect("key:")
    pause(0.3, "the pager has read the terminal before there is input, and the system has signalled the process group")
    terminal.type("k\n")
    terminal.expect("got <first> <k>\nname:")
    terminal.type("second\n")
    terminal.expect("got <second>")
    terminal.type("echo co''de $?; exit\n")
    terminal.expect("code 0")
    terminal.end()
    assert "Stopped" not in terminal.shown


ASK = "sh -c 'exec 3<> /dev/tty; read word <&3; echo \"got <$word>\" >&3'"


@pytest.mark.parametrize(
    "script",
    [
        "for part in a b c; do fencegate lock NAME/$part -- ASK > /dev/null & done; wait",
        "fencegate lock NAME/a -- ASK > /dev/null & fencegate lock NAME/b -- ASK; fencegate lock NAME/c -- ASK; wait",
    ],
    ids=["background", "foreground"],
)
def test_lock_commands_of_script_take_turns_on_terminal(cli: Cli, resource: str, mark: Path, script: str) -> None:
    """A script has no job control: nobody else continues a command that was stopped
    because another had the terminal."""
    mark.write_text(script.replace("NAME", resource).replace("ASK", ASK) + "\n")
    terminal = cli.shell_on_terminal()
    terminal.type(f"bash {mark}; echo co''de $?; exit\n")
    for word in ("one", "two", "three"):
        pause(0.3, "the commands have used the terminal")
        terminal.type(f"{word}\n")
        terminal.expect(f"got <{word}>")
    terminal.expect("code 0")
    terminal.end()


def test_lock_message_under_tostop_does_not_stop_lock(cli: Cli, api_a: Api, resource: str) -> None:
    terminal = cli.shell_on_terminal()
    terminal.type(
        f"stty tostop; fencegate lock {resource} -- sh -c 'echo be''gun; exec sleep 60'; echo co''de $?; exit\n"
    )
    terminal.expect("begun")
    api_a.must_revoke(resource)
    terminal.expect(f"code {LOST}")
    terminal.end()
    assert "is lost" in terminal.shown


# Processes that lock may not signal


@pytest.fixture(scope="module")
def foreign_group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only the leader of a process group may be signalled, as if the other members belonged to root;
    with FOREIGN_LEADER not even it."""
    return make_preload(
        tmp_path_factory.mktemp("foreign"),
        """
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
extern "C" int kill(pid_t process, int number) noexcept {
    if (process >= -1) return syscall(SYS_kill, process, number);
    if (syscall(SYS_kill, process, 0) != 0) return -1;
    if (getenv("FOREIGN_LEADER") == nullptr && syscall(SYS_kill, -process, number) == 0) return 0;
    errno = EPERM;
    return -1;
}
""",
    )


def test_lock_waits_for_processes_of_other_user(
    cli: Cli, api_a: Api, foreign_group: Path, resource: str, mark: Path
) -> None:
    running = begin_preloaded(cli, foreign_group, "lock", "--kill-after", "5s", resource, "--", *sleeping_command(mark))
    leader, other = read_pids(mark)
    try:
        api_a.must_revoke(resource)
        eventually(lambda: not processes.is_alive(leader), goal="the leader of the group has ended")
        remains(lambda: running.poll() is None, 1.0, goal="lock waits for the other process")
        assert running.wait(15) == LOST
        assert processes.is_alive(other)
    finally:
        os.kill(other, signal.SIGKILL)
    _, errors = running.communicate(timeout=5)
    assert "signal 9 to the command was refused (Operation not permitted)" in errors, errors


def test_lock_reports_refused_signals_only_if_they_end(
    cli: Cli, foreign_group: Path, resource: str, mark: Path
) -> None:
    """Each resize of the window sends SIGWINCH."""
    running = begin_preloaded(
        cli,
        foreign_group,
        *f"lock {resource} -- sh -c".split(),
        f"echo begun > {mark}; until [ -e {mark}.stop ]; do sleep 0.02; done",
        FOREIGN_LEADER="1",
    )
    first_line(mark)
    for number in (signal.SIGWINCH, signal.SIGURG, signal.SIGCONT, signal.SIGUSR1):
        running.send_signal(number)
    assert running.stderr is not None
    assert f"signal {signal.SIGUSR1} to the command was refused" in running.stderr.readline()
    Path(f"{mark}.stop").touch()
    assert running.communicate(timeout=15) == (None, "") and running.returncode == 0


# Suspension of the machine


@pytest.fixture(scope="module")
def suspension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The machine seems to have been suspended for a minute when the file SUSPENDED exists: CLOCK_BOOTTIME
    and its timers go forward, and CLOCK_MONOTONIC does not."""
    return make_preload(
        tmp_path_factory.mktemp("suspension"),
        """
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <mutex>
#include <thread>
static std::mutex lock;
static itimerspec timers[1024];
static bool is_suspended() { return getenv("SUSPENDED") != nullptr && access(getenv("SUSPENDED"), F_OK) == 0; }
static int set_timer(int file, itimerspec setting, bool earlier) {
    if (earlier) setting.it_value.tv_sec = std::max<time_t>(setting.it_value.tv_sec - 60, 1);
    return syscall(SYS_timerfd_settime, file, TFD_TIMER_ABSTIME, &setting, nullptr);
}
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
    if (syscall(SYS_clock_gettime, clock, out) != 0) return -1;
    if (clock == CLOCK_BOOTTIME && is_suspended()) out->tv_sec += 60;
    return 0;
}
extern "C" int timerfd_settime(int file, int, const itimerspec* setting, itimerspec*) noexcept {
    const std::lock_guard guard(lock);
    timers[file] = *setting;
    return set_timer(file, *setting, is_suspended());
}
static void advance_timers() {
    while (!is_suspended()) usleep(5000);
    const std::lock_guard guard(lock);
    for (int file = 0; file < 1024; ++file)
        if (timers[file].it_value.tv_sec > 0) set_timer(file, timers[file], true);
}
__attribute__((constructor)) static void start() {
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    std::thread(advance_timers).detach();
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}
""",
    )


@pytest.mark.parametrize("leader", ["trap '' TERM; wait_for_end", "wait_for_end"], ids=["command", "left_process"])
def test_lock_sigkill_is_due_during_suspension(
    cli: Cli, api_a: Api, suspension: Path, resource: str, mark: Path, leader: str
) -> None:
    """The command ignores SIGTERM, or ends and leaves a process that does."""
    command = (
        f"wait_for_end() {{ while :; do sleep 0.05; done; }}; (trap '' TERM; wait_for_end) & echo $$ $! "
        f"> {mark}; {leader}"
    )
    running = begin_preloaded(
        cli, suspension, *f"lock --kill-after 30s {resource} -- bash -c".split(), command, SUSPENDED=f"{mark}.suspended"
    )
    pids = read_pids(mark)
    api_a.must_revoke(resource)
    remains(lambda: running.poll() is None and processes.is_alive(pids[1]), 1.0, goal="SIGKILL is not due")
    Path(f"{mark}.suspended").touch()
    assert running.wait(5) == LOST
    eventually(lambda: not any(map(processes.is_alive, pids)), 2, goal="all processes are killed")


# The watchdog


def test_lock_watchdog_is_ended_by_sigkill_only(cli: Cli, resource: str, mark: Path) -> None:
    """As `pkill -HUP fencegate` and the end of a control group signal it."""
    running = cli.begin("lock", resource, "--", *sleeping_command(mark))
    leader, child = read_pids(mark)
    [watchdog] = [
        pid for pid in processes.descendants(running.pid) if processes.parent_of(pid) == running.pid and pid != leader
    ]
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMAX):
            os.kill(watchdog, number)
        remains(lambda: processes.is_alive(watchdog), 0.3)
        running.kill()
        running.wait()
        eventually(
            lambda: not processes.is_alive(leader) and not processes.is_alive(child), 5, goal="the command is ended"
        )
    finally:
        processes.signal_all([child], signal.SIGKILL)
