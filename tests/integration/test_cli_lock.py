"""`fencegate lock`: runs a command while it holds a lease, and ends the command when the lease is lost."""

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
from support.cli import Cli, expect_ended, first_line, read_pids, sleeping_command, wait_for_exit
from support.cluster import Gateway
from support.polling import eventually, pause, remains
from support.shop import Sku
from support.stack import Stack, lease_keys
from support.tcp_gate import proxy_that_hides_hang_ups

CLUSTER_MAX_TTL_MS = 20_000
LOST, NOT_GRANTED, UNAVAILABLE, NOT_ALLOWED, USAGE = 65, 75, 69, 77, 64


# Input of the command


def test_lock_command_gets_token_lease_and_resource_variables(cli: Cli, api_a: Api, resource: str) -> None:
    done = cli.run(
        *f"lock {resource} -- sh -c".split(),
        'echo "$FENCING_TOKEN $FENCING_LEASE $FENCING_RESOURCE"; cat; echo complaint >&2; exit 7',
    )
    assert (done.returncode, done.stderr) == (7, "complaint\n")
    token, lease, name = done.stdout.split()
    assert name == resource
    granted = eventually(
        lambda: api_a.history(resource=resource, event="lease_granted"), goal="the grant is in the history"
    )
    assert [item["fencing_token"] for item in granted] == [int(token)]
    assert api_a.call("GET", lease_path(lease)).status == 410, "released before lock ended"


def test_lock_several_resources_holds_and_names_all(
    cli: Cli, api_a: Api, unique_name: Callable[[str], str], mark: Path
) -> None:
    names = [unique_name("cli/one"), unique_name("cli/two")]
    running = cli.begin("lock", *names, "--", "sh", "-c", f'echo "$FENCING_RESOURCE" > {mark}; exec sleep 300')
    assert first_line(mark) == names[0] and eventually(
        lambda: mark.read_text().splitlines() == names, goal="a line for each"
    )
    assert all(api_a.acquire(name).status == 423 for name in names)
    running.terminate()
    assert wait_for_exit(running) == (128 + signal.SIGTERM, "")
    assert not any(api_a.is_held(name) for name in names)


def test_lock_any_of_expands_range_and_names_the_held(cli: Cli, api_a: Api, resource: str) -> None:
    shown = ("--", "sh", "-c", 'echo "$FENCING_RESOURCE"')
    held = [api_a.must_acquire(f"{resource}/{number}/x") for number in (8, 9, 11)]
    done = cli.run("lock", "-n", "--any-of", f"{resource}/{{8..11}}/x", *shown)
    assert (done.returncode, done.stdout) == (0, f"{resource}/10/x\n"), done
    last = api_a.must_acquire(f"{resource}/10/x")
    assert cli.run("lock", "-n", "--any-of", f"{resource}/{{8..11}}/x", *shown).returncode == 75
    api_a.must_release(held[1])
    done = cli.run("lock", "--any-of", "--at-least", "1s", f"{resource}/9/x", f"{resource}/10/x", *shown)
    assert (done.returncode, done.stdout) == (0, f"{resource}/9/x\n"), done
    assert api_a.is_held(f"{resource}/9/x"), "--at-least keeps the one that was granted"
    api_a.must_release(last)


@pytest.mark.parametrize("names", [["a"], ["a{4..1}"], ["a{1..65}"]])
def test_lock_any_of_without_several_names_64(cli: Cli, names: list[str]) -> None:
    assert cli.run("lock", "--any-of", *names, "--", "true").returncode == 64


def test_lock_command_keeps_its_own_options(cli: Cli, resource: str) -> None:
    done = cli.run("lock", resource, "--ttl", "5s", "--", "printf", "%s|", "--ttl", "--", "-h", "a b", "")
    assert (done.returncode, done.stdout) == (0, "--ttl|--|-h|a b||")


def test_lock_command_inherits_only_standard_streams(cli: Cli, resource: str) -> None:
    done = cli.run("lock", resource, "--", "sh", "-c", "ls /proc/$$/fd")
    assert done.stdout.split() == ["0", "1", "2"]


def test_lock_command_reads_standard_input(cli: Cli, resource: str) -> None:
    env = {**os.environ, "FENCEGATE_URL": cli.url, "FENCEGATE_API_KEY": cli.key or ""}
    done = subprocess.run(
        [str(processes.fencegate_binary()), "lock", resource, "--", "cat"],
        input=b"x" * 1_000_000,
        capture_output=True,
        timeout=30,
        env=env,
    )
    assert done.returncode == 0 and done.stdout == b"x" * 1_000_000


def test_lock_token_is_refused_by_database_after_newer_one(stack: Stack, api: Api, sku: Sku, resource: str) -> None:
    cli = Cli(api.url)
    tokens = [int(cli.run("lock", sku.resource, "--", "printenv", "FENCING_TOKEN").stdout) for _ in range(2)]

    def sell(token: int) -> None:
        stack.query(
            "begin; select fencing.enter(%s, %s); update inventory set stock = stock - 1 where sku = %s; commit",
            (sku.resource, token, sku.name),
        )

    sell(tokens[1])
    with pytest.raises(psycopg2.Error, match="FG412|stale"):
        sell(tokens[0])


# Waiting


def test_lock_interrupted_while_waiting_cancels_its_request(cli: Cli, api_a: Api, resource: str) -> None:
    api_a.must_acquire(resource)
    with proxy_that_hides_hang_ups(api_a.port) as url:
        waiting = Cli(url, cli.key).begin("lock", resource, "--wait", "30s", "--", "true")
        api_a.await_waiters(resource, 1)
        waiting.send_signal(signal.SIGINT)
        assert wait_for_exit(waiting)[0] == 128 + signal.SIGINT
        assert api_a.waiters(resource) == 0, "the request is cancelled when the command ends"


# Exit codes


def test_lock_command_not_found_127_not_executable_126(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, code in ((str(tmp_path / "none"), 127), ("no-such-program-here", 127), (str(plain), 126)):
        done = cli.run("lock", resource, "--", command)
        assert done.returncode == code and command in done.stderr
    assert not api_a.is_held(resource)


def test_lock_command_ended_by_signal_exits_128_plus_number(cli: Cli, resource: str) -> None:
    assert cli.run("lock", resource, "--", "sh", "-c", "kill -KILL $$").returncode == 128 + 9


def test_lock_refused_exits_with_code_of_reason(
    cli: Cli, api_a: Api, guarded_pair: Stack, resource: str, mark: Path
) -> None:
    command = ("--", "touch", str(mark))
    assert Cli(api_a.url, guarded_pair.key("auditor")).run("lock", resource, *command).returncode == NOT_ALLOWED
    assert Cli(api_a.url, "wrong").run("lock", resource, *command).returncode == NOT_ALLOWED
    faulty = cli.run("lock", "no//name", *command)
    assert faulty.returncode == USAGE and "RESOURCE" in faulty.stderr
    for several, named in (
        ((resource, "no//name"), "RESOURCE 2"),
        ((resource, "--ttl", "100h"), "--ttl, in milliseconds,"),
        ((resource, "--ttl", "2d"), "--ttl, in milliseconds,"),
        ((resource, "--max-hold", "40d"), "--max-hold must be at most 24h00m"),
        ((resource, "--owner", "x" * 200), "--owner"),
    ):
        faulty = cli.run("lock", *several, *command)
        assert faulty.returncode == USAGE and named in faulty.stderr and "_ms" not in faulty.stderr, faulty.stderr
    for option in ("--ttl", "--wait", "--max-hold", "--kill-after", "--timeout"):
        faulty = cli.run("lock", resource, option, "2w", *command)
        assert faulty.returncode == USAGE and f"{option}: 2w is not a duration" in faulty.stderr, faulty.stderr
    lease = api_a.must_acquire(resource)
    began = time.monotonic()
    waited = cli.run("lock", resource, "--wait", "700ms", *command)
    assert waited.returncode == NOT_GRANTED and "request_id" in waited.stderr and 0.6 < time.monotonic() - began < 5
    assert cli.run("lock", resource, "--wait", "0", *command).returncode == NOT_GRANTED
    api_a.must_release(lease)
    assert not mark.exists()


# Several commands


def test_lock_same_resource_runs_commands_one_after_another(cli: Cli, resource: str, mark: Path) -> None:
    inside = ["sh", "-c", f"mkdir {mark} && sleep 0.05 && rmdir {mark}"]
    running = [cli.begin("lock", resource, "--wait", "20s", "--", *inside) for _ in range(5)]
    assert [wait_for_exit(process, 30) for process in running] == [(0, "")] * 5


def test_lock_ended_command_frees_resource_at_once(cli: Cli, resource: str) -> None:
    for _ in range(5):
        assert cli.run("lock", resource, "--", "true").returncode == 0


def test_lock_interrupted_while_waiting_runs_nothing(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    lease = api_a.must_acquire(resource)
    waiting = cli.begin("lock", resource, "--wait", "20s", "--", "touch", str(mark))
    api_a.await_waiters(resource, 1)
    waiting.send_signal(signal.SIGINT)
    assert wait_for_exit(waiting)[0] == 128 + signal.SIGINT
    api_a.must_release(lease)
    remains(lambda: not api_a.is_held(resource) and not mark.exists(), 0.3)


# End of the lease


def test_lock_revoked_lease_ends_process_group_with_65(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", *sleeping_command(mark))
    pids = read_pids(mark)
    api_a.must_revoke(resource)
    code, errors = wait_for_exit(running)
    assert code == LOST and "is lost" in errors
    expect_ended(pids)


def test_lock_lost_lease_kills_command_that_ignores_sigterm(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--kill-after", "500ms", "--", *sleeping_command(mark, "trap '' TERM;"))
    pids = read_pids(mark)
    began = time.monotonic()
    api_a.must_revoke(resource)
    assert wait_for_exit(running)[0] == LOST
    assert 0.4 < time.monotonic() - began < 5
    expect_ended(pids)


def test_lock_lost_lease_exits_65_even_if_command_succeeds(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", *sleeping_command(mark, "trap 'exit 0' TERM;"))
    pids = read_pids(mark)
    api_a.must_revoke(resource)
    assert wait_for_exit(running)[0] == LOST
    expect_ended(pids)


def test_lock_killed_gateway_ends_command_at_lease_expiry(gateway: Gateway, resource: str, mark: Path) -> None:
    running = Cli(gateway.api.url).begin("lock", "--ttl", "3s", "--seal", resource, "--", *sleeping_command(mark))
    pids = read_pids(mark)
    gateway.kill()
    code, errors = wait_for_exit(running)
    assert code == LOST and "expired, and could not be renewed: no answer from" in errors and "not sealed" in errors
    expect_ended(pids)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_lock_goes_on_over_gateway_restart(gateway: Gateway, resource: str, mark: Path, end: str) -> None:
    running = Cli(gateway.api.url).begin(
        *f"lock --ttl 20s {resource} -- sh -c".split(),
        f"echo $FENCING_LEASE > {mark}; until [ -e {mark}.stop ]; do sleep 0.05; done",
    )
    lease_id = first_line(mark)
    getattr(gateway, end)()
    gateway.start()
    left = gateway.api.call("GET", lease_path(lease_id)).json()["validity_ms"]
    eventually(
        lambda: gateway.api.call("GET", lease_path(lease_id)).json()["validity_ms"] > left, 25, goal="it is renewed"
    )
    Path(f"{mark}.stop").touch()
    assert wait_for_exit(running) == (0, "")
    assert not gateway.api.is_held(resource)


def test_lock_hanging_gateway_ends_command_at_lease_expiry(gateway: Gateway, resource: str, mark: Path) -> None:
    running = Cli(gateway.api.url).begin("lock", resource, "--ttl", "2s", "--", *sleeping_command(mark))
    pids = read_pids(mark)
    pause(2.5, "renewed more than once")
    assert running.poll() is None
    with processes.suspended([gateway.pid]):
        began = time.monotonic()
        code, errors = wait_for_exit(running)
        assert code == LOST and "expired" in errors and time.monotonic() - began < 8
    expect_ended(pids)


def test_lock_malformed_events_are_no_loss(resource: str, mark: Path) -> None:
    """A server that answers like a gateway once, and then sends events that are no JSON."""
    granted = json.dumps({"lease_id": "x", "fencing_token": 7, "ttl_ms": 60_000, "validity_ms": 60_000})
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin(
            "lock", resource, "--", *sleeping_command(mark)
        )
        with server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(
                "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(granted)}\r\n\r\n{granted}".encode()
            )
        pids = read_pids(mark)
        with server.accept()[0] as watch:
            assert watch.recv(65536).startswith(b"GET /v1/leases/x ")
            watch.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: held\ndata: {nonsense\n\n")
            remains(lambda: running.poll() is None, 0.5)
            watch.sendall(b'event: lost\ndata: {"reason": "a test"}\n\n')
            code, errors = wait_for_exit(running)
    assert code == LOST and "(a test)" in errors
    expect_ended(pids)


# After the end


def test_lock_killed_leaves_neither_command_nor_lease(cli: Cli, guarded_pair: Stack, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--ttl", "20s", "--", *sleeping_command(mark, "trap '' TERM HUP INT;"))
    pids = read_pids(mark) + sorted(processes.descendants(running.pid))
    assert lease_keys(guarded_pair.nodes(), resource)
    running.kill()
    running.wait()
    expect_ended(pids, 5)
    eventually(
        lambda: not lease_keys(guarded_pair.nodes(), resource), goal="the lease is released, long before its ttl"
    )
    running.communicate(timeout=5)  # no process has its output open any more


def test_lock_ended_leaves_only_processes_of_command(cli: Cli, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--", "sh", "-c", f"sleep 300 > /dev/null 2>&1 & echo $! > {mark}")
    left = read_pids(mark)
    assert wait_for_exit(running) == (0, "")
    assert processes.is_alive(left[0])
    os.kill(left[0], signal.SIGKILL)


def test_lock_seal_makes_database_refuse_token(stack: Stack, api: Api, sku: Sku) -> None:
    name = sku.resource
    done = Cli(api.url).run("lock", "--seal", name, "--", "printenv", "FENCING_TOKEN")
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(psycopg2.Error, match="stale"):
        stack.query("select fencing.enter(%s, %s)", (name, int(done.stdout)))
    unsealed = Cli(api.url).run("lock", name, "--", "printenv", "FENCING_TOKEN")
    stack.query("select fencing.enter(%s, %s)", (name, int(unsealed.stdout)))


def test_lock_seal_without_database_exits_69(stack: Stack, api: Api, resource: str, mark: Path) -> None:
    cli = Cli(api.url)
    assert cli.run("lock", "--seal", resource, "--", "false").returncode == 1
    running = cli.begin(
        *f"lock --seal {resource} --timeout 1s -- sh -c".split(),
        f"echo begun > {mark}; until [ -e {mark}.stop ]; do sleep 0.05; done",
    )
    first_line(mark)
    with stack.frozen(stack.postgres_pids()):
        Path(f"{mark}.stop").touch()
        code, errors = wait_for_exit(running)
    assert code == UNAVAILABLE and "not sealed" in errors
    eventually(lambda: api.get("/readyz").status == 200, 30, goal="the shared stack is ready")
