"""`fencegate lock` and signals: which it forwards, and how the keys of a terminal stop and continue the command."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.api import Api
from support.cli import Cli, expect_ended, first_line, read_pids, wait_for_exit
from support.polling import eventually, pause, remains

LOST = 65
FORWARDED = (
    "INT TERM HUP QUIT USR1 USR2 ALRM VTALRM PROF ABRT WINCH URG IO PWR STKFLT XCPU XFSZ RTMIN RTMIN+3 RTMAX".split()
)


def test_lock_every_signal_is_forwarded_to_command(cli: Cli, resource: str, mark: Path) -> None:
    traps = "; ".join(f"trap 'echo {name} >> {mark}.seen' {name}" for name in FORWARDED)
    running = cli.begin(
        *f"lock {resource} -- bash -c".split(),
        f"{traps}; echo ready > {mark}; while [ ! -e {mark}.stop ]; do sleep 0.02; done; exit 4",
    )
    first_line(mark)
    for name in FORWARDED:
        base, _, offset = name.partition("+")
        running.send_signal(getattr(signal, f"SIG{base}") + int(offset or 0))
        eventually(
            lambda: name in (Path(f"{mark}.seen").read_text().split() if Path(f"{mark}.seen").exists() else []),
            5,
            goal=f"{name} arrives",
        )
    Path(f"{mark}.stop").touch()
    assert wait_for_exit(running)[0] == 4
    assert Path(f"{mark}.seen").read_text().split() == FORWARDED, "each arrives once"


def test_lock_signal_while_waiting_ends_it_unless_ignored(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    lease = api_a.must_acquire(resource)
    waiting = cli.begin("lock", resource, "--", "touch", str(mark))
    api_a.await_waiters(resource, 1)
    waiting.send_signal(signal.SIGWINCH)
    remains(lambda: waiting.poll() is None, 0.3)
    waiting.send_signal(signal.SIGUSR1)
    assert wait_for_exit(waiting)[0] == 128 + signal.SIGUSR1 and not mark.exists()
    api_a.must_release(lease)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_lock_sigtstp_stops_command_and_lock_until_sigcont(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", "--ttl", "30s", resource, "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 300")
    [command] = read_pids(mark)
    running.send_signal(signal.SIGTSTP)
    eventually(lambda: state_of(command) == "T" and state_of(running.pid) == "T", goal="both are stopped")
    running.send_signal(signal.SIGCONT)
    eventually(lambda: state_of(command) in "SR" and state_of(running.pid) in "SR", goal="both continue")
    running.terminate()
    assert wait_for_exit(running)[0] == 128 + signal.SIGTERM


def test_lock_stopped_for_longer_than_ttl_loses_lease(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    """Nothing says that the holder lives. The command is ended before it runs again."""
    running = cli.begin("lock", "--ttl", "1s", resource, "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 300")
    [command] = read_pids(mark)
    running.send_signal(signal.SIGTSTP)
    eventually(lambda: state_of(command) == "T" and state_of(running.pid) == "T", goal="both are stopped")
    eventually(lambda: not api_a.is_held(resource), goal="the lease ends")
    running.send_signal(signal.SIGCONT)
    code, errors = wait_for_exit(running)
    assert code == LOST and "expired" in errors
    expect_ended([command])


def test_lock_control_z_in_pipeline_stops_command_too(cli: Cli, resource: str, mark: Path) -> None:
    terminal = cli.shell_on_terminal()
    terminal.type(f"fencegate lock {resource} -- sh -c 'echo $$ > {mark}; echo be''gun; sleep 3; echo ended' | cat\n")
    terminal.expect("begun")
    pause(0.3, "sleep runs: stopped between vfork and exec it would hold its shell, which then cannot stop")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    eventually(lambda: state_of(read_pids(mark)[0]) == "T", goal="the command is stopped")
    terminal.type("fg\n")
    terminal.expect("ended")
    terminal.type("exit\n")
    terminal.end()


def test_lock_in_background_gets_terminal_by_fg(cli: Cli, resource: str) -> None:
    terminal = cli.shell_on_terminal()
    terminal.type(f"fencegate lock {resource} -- sh -c 'echo be''gun; read word; echo \"got <$word>\"' &\n")
    terminal.expect("begun")
    terminal.type("\n")
    pause(0.3, "the command reads the terminal in the background and is stopped")
    terminal.type("fg\n")
    pause(0.3, "the shell has made it the foreground process")
    terminal.type("hello\n")
    terminal.expect("got <hello>")
    terminal.type("exit\n")
    terminal.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_lock_signal_is_forwarded_to_process_group(
    cli: Cli, api_a: Api, resource: str, mark: Path, number: signal.Signals
) -> None:
    name = number.name[3:]
    child = f"trap 'echo child >> {mark}.seen; exit' {name}; echo ready > {mark}; while :; do sleep 0.02; done"
    leader = f'trap "echo leader >> {mark}.seen" {name}; sh -c "$1"; exit 9'
    running = cli.begin("lock", resource, "--", "bash", "-c", leader, "bash", child)
    first_line(mark)
    running.send_signal(number)
    assert wait_for_exit(running)[0] == 9
    assert sorted(Path(f"{mark}.seen").read_text().split()) == ["child", "leader"]
    assert not api_a.is_held(resource)


def test_lock_control_c_on_terminal_reaches_command_once(cli: Cli, resource: str) -> None:
    terminal = cli.run_on_terminal(
        *f"lock {resource} -- bash -c".split(),
        "trap 'echo caught; n=$((n+1))' INT; echo ready; read word; echo \"<$word> $n\"; sleep 0.2; exit $n",
    )
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("caught")
    terminal.type("typed\n")
    assert terminal.end() == 1, terminal.shown
    assert "<typed> 1" in terminal.shown


def test_lock_control_z_on_terminal_suspends_until_fg(cli: Cli, api_a: Api, resource: str) -> None:
    terminal = cli.shell_on_terminal()
    terminal.type(f"fencegate lock {resource} --ttl 30s -- sh -c 'echo be''gun; read word; echo \"got <$word>\"'\n")
    terminal.expect("begun")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    assert api_a.is_held(resource)
    terminal.type("fg\n")
    pause(0.3, "the shell has made it the foreground process")
    terminal.type("hello\n")
    terminal.expect("got <hello>")
    terminal.type("echo code $?; exit\n")
    terminal.end()
    assert "code 0" in terminal.shown
