"""`fencegate lock`: a command that runs while a lease is held, and ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable

import psycopg2
import pytest
from support import processes
from support.api import Api, lease_path
from support.cli import Cli, first_line
from support.cluster import Gateway
from support.polling import eventually, let_pass, stays
from support.shop import Sku
from support.stack import Stack, lease_keys

LOST, NOT_GRANTED, UNAVAILABLE, NOT_ALLOWED, USAGE = 65, 75, 69, 77, 64


@pytest.fixture
def cli(guarded_pair: Stack, here: Api) -> Cli:
    return Cli(here.url, guarded_pair.key("admin"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def held(api: Api, resource: str) -> bool:
    return bool(api.get("/v1/leases", resource_prefix=resource).json()["items"])


def revoke(api: Api, resource: str) -> None:
    answer = api.call("DELETE", f"/v1/resources/{resource.replace('/', '%2F')}/lease", {"reason": "a test"})
    assert answer.status == 204, str(answer)


def ended(process: subprocess.Popen, within: float = 15.0) -> tuple[int, str]:
    _, words = process.communicate(timeout=within)
    return process.returncode, words


def sleeper(mark: Path, trap: str = "") -> list[str]:
    """A command with a child of its own that writes both ids into the file and sleeps."""
    return ["sh", "-c", f"{trap} sleep 300 & echo $$ $! > {mark}; wait"]


def pids_in(mark: Path) -> list[int]:
    return [int(word) for word in first_line(mark).split()]


def all_gone(pids: list[int], within: float = 5.0) -> None:
    eventually(lambda: not any(processes.is_alive(pid) for pid in pids), within, what=f"{pids} are gone")


# what the command gets


def test_command_when_it_runs_then_token_lease_and_resource_in_its_environment_and_held(cli: Cli, here: Api, resource: str) -> None:
    done = cli.run("lock", resource, "--", "sh", "-c", 'echo "$FENCING_TOKEN $FENCING_LEASE $FENCING_RESOURCE"; cat; echo complaint >&2; exit 7')
    assert (done.returncode, done.stderr) == (7, "complaint\n")
    token, lease, name = done.stdout.split()
    assert name == resource
    granted = eventually(lambda: here.history(resource=resource, event="lease_granted"), what="the grant is in the history")
    assert [item["fencing_token"] for item in granted] == [int(token)]
    assert here.call("GET", lease_path(lease)).status == 410, "given back before lock ended"


def test_command_when_under_several_resources_then_all_are_held_and_named(cli: Cli, here: Api, fresh: Callable[[str], str], mark: Path) -> None:
    names = [fresh("cli/one"), fresh("cli/two")]
    running = cli.begin("lock", *names, "--", "sh", "-c", f'echo "$FENCING_RESOURCE" > {mark}; exec sleep 300')
    assert first_line(mark) == ",".join(names)
    assert all(here.ask(name).status == 423 for name in names)
    running.terminate()
    assert ended(running) == (128 + signal.SIGTERM, "")
    assert not any(held(here, name) for name in names)


def test_command_when_it_has_options_of_its_own_then_untouched(cli: Cli, resource: str) -> None:
    done = cli.run("lock", resource, "--ttl", "5s", "--", "printf", "%s|", "--ttl", "--", "-h", "a b", "")
    assert (done.returncode, done.stdout) == (0, "--ttl|--|-h|a b||")


def test_command_when_it_runs_then_it_has_no_file_of_ours_but_the_three(cli: Cli, resource: str) -> None:
    """Who has the connection keeps the lease."""
    done = cli.run("lock", resource, "--", "sh", "-c", "ls /proc/$$/fd")
    assert done.stdout.split() == ["0", "1", "2"]


def test_command_when_its_input_is_ours_then_it_reads_it(cli: Cli, resource: str) -> None:
    env = {**os.environ, "FENCEGATE_URL": cli.url, "FENCEGATE_API_KEY": cli.key or ""}
    done = subprocess.run([str(processes.fencegate_binary()), "lock", resource, "--", "cat"], input=b"x" * 1_000_000, capture_output=True, timeout=30, env=env)
    assert done.returncode == 0 and done.stdout == b"x" * 1_000_000


def test_command_when_it_writes_with_its_token_then_the_database_takes_it_and_refuses_it_after_a_newer_one(stack: Stack, api: Api, sku: Sku, resource: str) -> None:
    cli = Cli(api.url)
    tokens = [int(cli.run("lock", sku.resource, "--", "printenv", "FENCING_TOKEN").stdout) for _ in range(2)]

    def sell(token: int) -> None:
        stack.query("begin; select fencing.enter(%s, %s); update inventory set stock = stock - 1 where sku = %s; commit",
                    (sku.resource, token, sku.name))

    sell(tokens[1])
    with pytest.raises(psycopg2.Error, match="FG412|stale"):
        sell(tokens[0])


# exit codes


def test_command_when_not_found_or_not_executable_then_127_and_126(cli: Cli, here: Api, resource: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, code in ((str(tmp_path / "none"), 127), ("no-such-program-here", 127), (str(plain), 126)):
        done = cli.run("lock", resource, "--", command)
        assert done.returncode == code and command in done.stderr
    assert not held(here, resource)


def test_command_when_a_signal_ends_it_then_128_and_its_number(cli: Cli, resource: str) -> None:
    assert cli.run("lock", resource, "--", "sh", "-c", "kill -KILL $$").returncode == 128 + 9


def test_lock_when_refused_then_each_reason_has_its_code(cli: Cli, here: Api, guarded_pair: Stack, resource: str, mark: Path) -> None:
    command = ("--", "touch", str(mark))
    assert Cli(here.url, guarded_pair.key("auditor")).run("lock", resource, *command).returncode == NOT_ALLOWED
    assert Cli(here.url, "wrong").run("lock", resource, *command).returncode == NOT_ALLOWED
    faulty = cli.run("lock", "no//name", *command)
    assert faulty.returncode == USAGE and "RESOURCE" in faulty.stderr
    for several, named in (((resource, "no//name"), "RESOURCE 2"), ((resource, "--ttl", "100h"), "--ttl, in milliseconds,"), ((resource, "--ttl", "2d"), "--ttl, in milliseconds,"),
                           ((resource, "--max-hold", "40d"), "--max-hold, in milliseconds,"), ((resource, "--owner", "x" * 200), "--owner")):
        faulty = cli.run("lock", *several, *command)
        assert faulty.returncode == USAGE and named in faulty.stderr and "_ms" not in faulty.stderr, faulty.stderr
    for option in ("--ttl", "--wait", "--max-hold", "--kill-after", "--timeout"):
        faulty = cli.run("lock", resource, option, "2w", *command)
        assert faulty.returncode == USAGE and f"{option}: 2w is no length of time" in faulty.stderr, faulty.stderr
    lease = here.take(resource)
    began = time.monotonic()
    waited = cli.run("lock", resource, "--wait", "700ms", *command)
    assert waited.returncode == NOT_GRANTED and "request_id" in waited.stderr and 0.6 < time.monotonic() - began < 5
    assert cli.run("lock", resource, "--wait", "0", *command).returncode == NOT_GRANTED
    here.give_back(lease)
    assert not mark.exists()


# one after another


def test_commands_when_two_want_the_same_then_one_after_the_other(cli: Cli, resource: str, mark: Path) -> None:
    inside = ["sh", "-c", f"mkdir {mark} && sleep 0.05 && rmdir {mark}"]
    running = [cli.begin("lock", resource, "--wait", "20s", "--", *inside) for _ in range(5)]
    assert [ended(process, 30) for process in running] == [(0, "")] * 5


def test_command_when_it_has_ended_then_the_next_gets_it_at_once(cli: Cli, resource: str) -> None:
    for _ in range(5):
        assert cli.run("lock", resource, "--", "true").returncode == 0


def test_waiting_when_interrupted_then_nothing_ran_and_the_place_is_free(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    lease = here.take(resource)
    waiting = cli.begin("lock", resource, "--wait", "20s", "--", "touch", str(mark))
    here.await_waiters(resource, 1)
    waiting.send_signal(signal.SIGINT)
    assert ended(waiting)[0] == 128 + signal.SIGINT
    here.give_back(lease)
    stays(lambda: not held(here, resource) and not mark.exists(), 0.3)


# the end of the lease


def test_lease_when_taken_away_then_the_command_and_its_children_end_with_65(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", *sleeper(mark))
    pids = pids_in(mark)
    revoke(here, resource)
    code, words = ended(running)
    assert code == LOST and "is lost" in words
    all_gone(pids)


def test_lease_when_lost_and_the_command_will_not_end_then_killed(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--kill-after", "500ms", "--", *sleeper(mark, "trap '' TERM;"))
    pids = pids_in(mark)
    began = time.monotonic()
    revoke(here, resource)
    assert ended(running)[0] == LOST
    assert 0.4 < time.monotonic() - began < 5
    all_gone(pids)


def test_lease_when_lost_and_the_command_ends_well_then_still_65(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", *sleeper(mark, "trap 'exit 0' TERM;"))
    pids = pids_in(mark)
    revoke(here, resource)
    assert ended(running)[0] == LOST
    all_gone(pids)


def test_gateway_when_killed_then_the_command_ends_with_65(gateway: Gateway, resource: str, mark: Path) -> None:
    running = Cli(gateway.api.url).begin("lock", resource, "--", *sleeper(mark))
    pids = pids_in(mark)
    gateway.kill()
    code, words = ended(running)
    assert code == LOST and "broke" in words
    all_gone(pids)


def test_gateway_when_stopped_in_good_order_then_65_too(gateway: Gateway, resource: str, mark: Path) -> None:
    running = Cli(gateway.api.url).begin("lock", resource, "--", *sleeper(mark))
    pids = pids_in(mark)
    assert gateway.stop() == 0
    code, words = ended(running)
    assert code == LOST and "stopping" in words
    all_gone(pids)


def test_gateway_when_it_hangs_then_the_command_ends_when_the_lease_runs_out(gateway: Gateway, resource: str, mark: Path) -> None:
    running = Cli(gateway.api.url).begin("lock", resource, "--ttl", "1s", "--", *sleeper(mark))
    pids = pids_in(mark)
    let_pass(1.5, "renewed more than once")
    assert running.poll() is None
    processes.signal_all([gateway.pid], signal.SIGSTOP)
    try:
        began = time.monotonic()
        code, words = ended(running)
        assert code == LOST and "ran out" in words and time.monotonic() - began < 2
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    all_gone(pids)


def test_stream_when_it_makes_no_sense_then_the_command_ends_with_65(resource: str, mark: Path) -> None:
    """Not a gateway, but something that answers once as one and then goes mad."""
    granted = json.dumps({"lease_id": "x", "fencing_token": 7, "validity_ms": 60_000})
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin("lock", resource, "--", *sleeper(mark))
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: granted\ndata: {granted}\n\n".encode())
            pids = pids_in(mark)
            connection.sendall(b"event: renewed\ndata: {nonsense\n\n")
            code, words = ended(running)
    assert code == LOST and "makes no sense" in words
    all_gone(pids)


# signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_when_sent_to_us_then_the_whole_group_of_the_command_gets_it(cli: Cli, here: Api, resource: str, mark: Path, number: signal.Signals) -> None:
    name = number.name[3:]
    child = f"trap 'echo child >> {mark}.seen; exit' {name}; echo ready > {mark}; while :; do sleep 0.02; done"
    leader = f'trap "echo leader >> {mark}.seen" {name}; sh -c "$1"; exit 9'
    running = cli.begin("lock", resource, "--", "bash", "-c", leader, "bash", child)
    first_line(mark)
    running.send_signal(number)
    assert ended(running)[0] == 9
    assert sorted(Path(f"{mark}.seen").read_text().split()) == ["child", "leader"]
    assert not held(here, resource)


def test_terminal_when_control_c_is_typed_then_the_command_gets_it_once(cli: Cli, resource: str) -> None:
    terminal = cli.on_terminal("lock", resource, "--", "bash", "-c", "trap 'echo caught; n=$((n+1))' INT; echo ready; read word; echo \"<$word> $n\"; sleep 0.2; exit $n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("caught")
    terminal.type("typed\n")
    assert terminal.end() == 1, terminal.shown
    assert "<typed> 1" in terminal.shown


def test_terminal_when_control_z_is_typed_then_the_shell_has_it_until_fg(cli: Cli, here: Api, resource: str) -> None:
    terminal = cli.on_terminal_of_a_shell()
    terminal.type(f"fencegate lock {resource} --ttl 1s -- sh -c 'echo be''gun; read word; echo \"got <$word>\"'\n")
    terminal.expect("begun")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    stays(lambda: held(here, resource), 1.5)  # the gateway renews it for whoever is connected
    terminal.type("fg\n")
    let_pass(0.3, "the shell has made it the foreground process")
    terminal.type("hello\n")
    terminal.expect("got <hello>")
    terminal.type("echo code $?; exit\n")
    terminal.end()
    assert "code 0" in terminal.shown


# what is left


def test_lock_when_killed_then_neither_command_nor_lease_is_left(cli: Cli, guarded_pair: Stack, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--ttl", "20s", "--", *sleeper(mark, "trap '' TERM HUP INT;"))
    pids = pids_in(mark) + sorted(processes.descendants(running.pid))
    assert lease_keys(guarded_pair.nodes(), resource)
    running.kill()
    running.wait()
    all_gone(pids, 2)
    eventually(lambda: not lease_keys(guarded_pair.nodes(), resource), 3, what="the gateway has given the lease back, long before its ttl")
    running.communicate(timeout=5)  # nobody holds its output open


def test_lock_when_it_ends_then_no_process_of_it_is_left_but_what_the_command_left(cli: Cli, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", "sh", "-c", f"sleep 300 > /dev/null 2>&1 & echo $! > {mark}")
    left = pids_in(mark)
    assert ended(running) == (0, "")
    assert processes.is_alive(left[0])
    os.kill(left[0], signal.SIGKILL)


def test_seal_when_asked_for_then_the_token_opens_nothing_any_more(stack: Stack, api: Api, sku: Sku) -> None:
    name = sku.resource
    done = Cli(api.url).run("lock", "--seal", name, "--", "printenv", "FENCING_TOKEN")
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(psycopg2.Error, match="stale"):
        stack.query("select fencing.enter(%s, %s)", (name, int(done.stdout)))
    unsealed = Cli(api.url).run("lock", name, "--", "printenv", "FENCING_TOKEN")
    stack.query("select fencing.enter(%s, %s)", (name, int(unsealed.stdout)))


def test_seal_when_the_database_is_away_then_said_and_not_0(stack: Stack, api: Api, resource: str) -> None:
    cli = Cli(api.url)
    assert cli.run("lock", "--seal", resource, "--", "false").returncode == 1
    running = cli.begin("lock", "--seal", resource, "--timeout", "1s", "--", "sleep", "0.5")
    let_pass(0.3, "the command runs, which takes half a second")
    with stack.frozen(stack.postgres_pids()):
        code, words = ended(running)
    assert code == UNAVAILABLE and "not sealed" in words
    eventually(lambda: api.get("/readyz").status == 200, 30, what="the shared stack is ready")
