"""`fencegate lock` for scheduled commands: `--every`, `--at-least`, `-n` and `-E`;
a lease that is held without a command."""

from __future__ import annotations

import datetime
import json
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import pytest
from support import processes
from support.api import Api, lease_path
from support.cli import Cli, environment, first_line
from support.polling import eventually, pause
from support.stack import Stack

NOT_GRANTED, NOT_ALLOWED, USAGE = 75, 77, 64


def lease_of(api: Api, resource: str) -> dict | None:
    items = api.get("/v1/leases", resource_prefix=resource).json()["items"]
    return next((item for item in items if item["resource"] == resource), None)


class Machines:
    """Machines with clocks of their own: each runs the program under libfaketime,
    through one of two gateways. libfaketime moves CLOCK_BOOTTIME too: forward, timers of it expire at once,
    and by more than the machine has run it would be negative.
    """

    def __init__(self, stack: Stack, offsets: tuple[str, ...]) -> None:
        self.environments = [
            {
                **environment(stack.facts["gateways"][number % 2]["http"], stack.key("admin")),
                **processes.faketime_environment(),
                "FAKETIME": offset,
            }
            for number, offset in enumerate(offsets)
        ]

    def start(self, number: int, *arguments: str) -> subprocess.Popen:
        return processes.begin_fencegate(*arguments, env=self.environments[number])

    def run(self, number: int, *arguments: str) -> tuple[int, str]:
        done = self.start(number, *arguments)
        output, errors = done.communicate(timeout=30)
        return done.returncode, output + errors


@pytest.fixture
def machines(guarded_pair: Stack) -> Machines:
    return Machines(guarded_pair, ("-7s", "+0s", "-60s"))


# --every


def test_every_runs_tick_once_on_machines_with_skewed_clocks(machines: Machines, resource: str) -> None:
    """The machines come one after another, each after the command of the first has ended,
    as machines whose clocks are late do."""
    clocks = [int(machines.run(number, "lock", resource, "--", "date", "+%s")[1]) for number in range(3)]
    assert clocks[2] < clocks[1] - 50, "the clocks differ"
    command = ("lock", "--every", "10m", resource, "--", "echo", "ran")
    outcomes = [machines.run(number, *command) for number in (1, 0, 2, 1)]
    assert outcomes[0] == (0, "ran\n")
    assert all(code == NOT_GRANTED and "this tick was started at" in text for code, text in outcomes[1:]), outcomes


def test_every_concurrent_machines_run_each_tick_once(machines: Machines, resource: str) -> None:
    runs = []
    for tick in range(3):
        if tick:
            pause(4.1, "the next tick begins")
        started = [
            machines.start(
                number, "lock", "--every", "8s", "-E", "9", resource, "--", "sh", "-c", "echo $FENCING_TOKEN"
            )
            for number in (0, 1, 2, 0, 1)
        ]
        done = [(process.communicate(timeout=30)[0], process.returncode) for process in started]
        assert sorted(code for _, code in done) == [0, 9, 9, 9, 9], done
        runs.append(next(int(output) for output, code in done if code == 0))
    assert runs == sorted(set(runs)), "each tick has a higher token"


def test_every_start_after_half_of_period_is_next_tick(cli: Cli, resource: str) -> None:
    command = ("lock", "--every", "6s", resource, "--", "true")
    assert cli.run(*command).returncode == 0
    assert cli.run(*command).returncode == NOT_GRANTED
    pause(3.1, "half of the period passes")
    assert cli.run(*command).returncode == 0


def test_every_tick_of_killed_machine_is_not_run_again(cli: Cli, resource: str, mark: Path) -> None:
    running = cli.begin("lock", "--every", "1h", resource, "--", "sh", "-c", f"echo started > {mark}; exec sleep 300")
    first_line(mark)
    running.kill()
    running.communicate()
    late = cli.run("lock", "--every", "1h", "--wait", "20s", resource, "--", "true")
    assert (late.returncode, "this tick was started at" in late.stderr) == (NOT_GRANTED, True), late


def test_every_refused_machine_leaves_no_lease_behind(cli: Cli, resource: str) -> None:
    """The next machine finds the lease free, which matters with -n."""
    command = ("lock", "--every", "1h", "-n", resource, "--", "true")
    assert cli.run(*command).returncode == 0
    refused = [cli.run(*command) for _ in range(8)]
    assert all(
        done.returncode == NOT_GRANTED and "this tick was started at" in done.stderr for done in refused
    ), refused


def test_every_record_of_start_is_in_history(cli: Cli, api_a: Api, resource: str) -> None:
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    assert cli.run("lock", "--every", "1h", resource, "--", "true").returncode == 0
    [start] = api_a.history(resource=f"{resource}@tick", event="fence_raised")
    assert datetime.datetime.fromisoformat(start["at"].replace("Z", "+00:00")) > before
    assert lease_of(api_a, f"{resource}@tick") is None and lease_of(api_a, resource) is None


def test_every_without_scope_history_runs_nothing(guarded_pair: Stack, api_a: Api, resource: str, mark: Path) -> None:
    done = Cli(api_a.url, guarded_pair.key("orders")).run("lock", "--every", "1m", resource, "--", "touch", str(mark))
    assert done.returncode == NOT_ALLOWED and "history" in done.stderr and not mark.exists(), done


def test_every_without_database_runs_nothing(stack: Stack, api: Api, resource: str, mark: Path) -> None:
    postgres = stack.facts["postgres"]["pid"]
    with processes.suspended({postgres} | processes.descendants(postgres)):
        done = Cli(api.url).run("lock", "--every", "1m", "--timeout", "3s", resource, "--", "touch", str(mark))
    assert done.returncode == 69 and not mark.exists(), done
    eventually(lambda: api.get("/readyz").status == 200, 30, goal="the stack is ready again")


# --at-least


def test_at_least_keeps_lease_after_early_end(cli: Cli, api_a: Api, resource: str) -> None:
    done = cli.run("lock", "--at-least", "30s", resource, "--", "sh", "-c", "echo $FENCING_LEASE")
    assert done.returncode == 0
    held = lease_of(api_a, resource)
    assert held and 25_000 < held["remaining_ms"] <= 30_000 and held["hold_count"] == 1, held
    second = cli.run("lock", "-n", "-E", "3", resource, "--", "true")
    assert second.returncode == 3 and "resource" in second.stderr.lower()
    assert api_a.call("GET", lease_path(done.stdout.strip())).status == 410, "the command's own hold is released"


def test_at_least_keeps_lease_after_wrapper_is_killed(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin(
        "lock", "--at-least", "7s", "--ttl", "1s", resource, "--", "sh", "-c", f"echo run > {mark}; exec sleep 300"
    )
    first_line(mark)
    running.kill()
    running.communicate()
    eventually(
        lambda: (lease_of(api_a, resource) or {"hold_count": 2})["hold_count"] == 1, goal="its own hold is released"
    )
    assert lease_of(api_a, resource), "the lease stays"
    assert cli.run("lock", "--no-wait", resource, "--", "true").returncode == NOT_GRANTED
    assert cli.run("lock", "--wait", "15s", resource, "--", "true").returncode == 0, "it ends by itself"


def test_at_least_longer_command_releases_lease_at_its_end(cli: Cli, api_a: Api, resource: str) -> None:
    assert cli.run("lock", "--at-least", "1s", "--ttl", "20s", resource, "--", "sleep", "1.3").returncode == 0
    assert lease_of(api_a, resource) is None


def test_at_least_above_longest_ttl_is_refused_before_start(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    done = cli.run("lock", "--at-least", "2m", resource, "--", "touch", str(mark))
    assert done.returncode == USAGE and "--at-least" in done.stderr and "60000" in done.stderr, done
    assert not mark.exists()
    eventually(lambda: lease_of(api_a, resource) is None, goal="the lease is released")


@pytest.mark.parametrize("moment", ["requested", "renewed"])
def test_at_least_signal_before_start_releases_hold(resource: str, mark: Path, moment: str) -> None:
    """The gateway has granted the lease, and the program requests its hold,
    or renews its lease after it got the hold."""
    lease = {"lease_id": "x", "fencing_token": 7, "ttl_ms": 60_000, "validity_ms": 60_000}

    def accept(beginning: str) -> socket.socket:
        connection, _ = server.accept()
        assert connection.recv(65536).startswith(beginning.encode())
        return connection

    def answer(connection: socket.socket, body: str) -> None:
        connection.sendall(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin(
            "lock", "--at-least", "30s", resource, "--", "touch", str(mark)
        )
        with accept("POST /v1/leases ") as acquiring:
            answer(acquiring, json.dumps(lease))
        with accept("POST /v1/leases ") as keeping:
            if moment == "requested":
                running.send_signal(signal.SIGINT)
                pause(0.3, "the signal is handled before the answer")
            answer(keeping, json.dumps({**lease, "lease_id": "hold"}))
        with ExitStack() as unanswered:
            if moment == "renewed":
                unanswered.enter_context(accept("POST /v1/leases/x/renew "))
                running.send_signal(signal.SIGINT)
            for name in ("hold", "x"):
                with accept(f"DELETE /v1/leases/{name} ") as release:
                    answer(release, "{}")
        running.communicate(timeout=10)
    assert running.returncode == 128 + signal.SIGINT and not mark.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--at-least", "1s", "--owner", "a"),
        ("--at-least", "1s", "--seal"),
        ("--every", "1m", "--owner", "a"),
        ("--every", "10ms"),
        ("--every", "1m", "other"),
        ("--conflict-exit-code", "256"),
        ("--conflict-exit-code", "x"),
    ],
    ids=" ".join,
)
def test_cron_options_wrong_exit_64_by_name(cli: Cli, resource: str, mark: Path, arguments: tuple[str, ...]) -> None:
    done = cli.run("lock", *arguments, resource, "--", "touch", str(mark))
    assert done.returncode == USAGE and arguments[0] in done.stderr and not mark.exists(), done


# Conflicts


def test_conflict_exit_code_replaces_75_and_0_is_silent(cli: Cli, api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource)
    for code in (0, 1, 255):
        done = cli.run("lock", "-n", "-E", str(code), resource, "--", "echo", "ran")
        assert (done.returncode, done.stdout, done.stderr == "") == (code, "", code == 0), done
    api_a.must_release(lease)
    assert cli.run("lock", "-n", "-E", "3", resource, "--", "echo", "ran").stdout == "ran\n"


# Without a command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lock_without_command_holds_until_signal(cli: Cli, api_a: Api, resource: str, number: signal.Signals) -> None:
    holding = cli.begin("lock", "--ttl", "2s", resource)
    assert holding.stdout is not None
    shown = dict(holding.stdout.readline().strip().split("=", 1) for _ in range(3))
    assert api_a.call("GET", lease_path(shown["FENCING_LEASE"])).json()["fencing_token"] == int(shown["FENCING_TOKEN"])
    assert shown["FENCING_RESOURCE"] == resource
    pause(2.2, "the lease would be over without a renewal")
    holding.send_signal(signal.SIGUSR1)
    assert lease_of(api_a, resource)
    holding.send_signal(number)
    holding.communicate(timeout=10)
    assert holding.returncode == 0 and lease_of(api_a, resource) is None


def test_lock_command_without_mark_is_refused(cli: Cli, api_a: Api, resource: str) -> None:
    """`flock FILE COMMAND` has no mark: the words of the command would be locked as resources, for ever."""
    done = cli.run("lock", "-n", resource, "./nightly", timeout=5)
    assert (done.returncode, done.stdout) == (
        USAGE,
        "",
    ) and "several resources need a command after --" in done.stderr, done
    assert lease_of(api_a, resource) is None


def test_lock_without_command_exits_65_when_lease_is_lost(cli: Cli, api_a: Api, resource: str) -> None:
    holding = cli.begin("lock", resource)
    assert holding.stdout is not None and holding.stdout.readline().startswith("FENCING_TOKEN=")
    api_a.must_revoke(resource)
    _, errors = holding.communicate(timeout=10)
    assert holding.returncode == 65 and "is lost" in errors


# Names of resources


def test_resources_lists_live_and_recent_names_once(cli: Cli, api_a: Api, unique_name: Callable[[str], str]) -> None:
    stem = unique_name("jobs/names")
    for name in ("a", "b", "b"):
        api_a.must_release(api_a.must_acquire(f"{stem}/{name}"))
    live = api_a.must_acquire(f"{stem}/live")
    expected = [f"{stem}/{name}" for name in ("a", "b", "live")]
    assert (
        eventually(
            lambda: (done := cli.run("resources", "--prefix", stem)).stdout.split() == expected and done,
            goal="the names are listed",
        ).returncode
        == 0
    )
    api_a.must_release(live)
