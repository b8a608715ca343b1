"""Arguments of every command that are wrong, output that cannot be written,
and standard descriptors that are closed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.api import Api
from support.cli import Cli, environment, first_line
from support.cluster import Cluster, Gateway
from support.polling import eventually
from support.stack import Stack

FAILED, COULD_NOT_RUN, USAGE = 1, 2, 64
NOT_WRITTEN = "the output can't be written"


# Arguments


EMPTY = [
    ("history", name)
    for name in (
        "--resource --prefix --owner --principal --token-min --token-max --trace-id --write-id --from "
        "--to --event --cacert --api-key-file"
    ).split()
]
EMPTY += [
    ("leases", "--prefix"),
    ("verify", "--from"),
    ("verify", "--to"),
    ("verify", "--resource-prefix"),
    ("migrate", "--gateway-role"),
    ("migrate", "--conninfo"),
    ("fence-all", "--reason"),
    ("check", "--config"),
]


@pytest.mark.parametrize("command, option", EMPTY, ids=["".join(words) for words in EMPTY])
def test_option_with_empty_value_exits_64_and_is_named(cli: Cli, command: str, option: str) -> None:
    done = cli.run(command, option, "")
    assert (done.returncode, done.stdout) == (USAGE, "") and done.stderr.startswith(f"{option}: "), done


def test_lock_with_empty_words_exits_64(cli: Cli) -> None:
    for arguments, named in (
        (("lock", "", "--", "true"), "RESOURCE: "),
        (("lock", "--owner", "", "a", "--", "true"), "--owner: "),
        (("elect", "", "--", "true"), "NAME: "),
    ):
        done = cli.run(*arguments)
        assert done.returncode == USAGE and done.stderr.startswith(named), done
    assert cli.run("lock", "a", "--", "test", "-z", "").returncode == 0, "the command's own words may be empty"


def test_resources_with_empty_prefix_lists_all(cli: Cli) -> None:
    assert cli.run("resources", "--prefix", "").returncode == 0, "a shell completes an empty word"


def test_migrate_gateway_role_has_at_most_63_bytes(stack: Stack) -> None:
    too_long = Cluster.call("migrate", "--conninfo", stack.conninfo(), "--gateway-role", "r" * 64)
    assert (too_long.returncode, too_long.stdout) == (
        USAGE,
        "",
    ) and "--gateway-role: is longer than 63 bytes" in too_long.stderr, too_long
    unreached = Cluster.call("migrate", "--conninfo", "host=127.0.0.1 port=1", "--gateway-role", "r" * 63)
    assert unreached.returncode == 69, unreached


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@localhost", "http://localhost/?key=hunter2", "localhost/u:hunter2@x"]
)
def test_url_refused_shows_no_password_and_its_source(url: str) -> None:
    for source, done in (
        ("FENCEGATE_URL", Cli(url).run("status")),
        ("--url", Cli("http://localhost").run("status", "--url", url)),
        ("--url", Cli(url).run("lock", "--url", url, "a")),
    ):
        assert (
            done.returncode == USAGE and f": {source}: the URL " in done.stderr and "hunter2" not in done.stderr
        ), done
    assert "hunter2" not in Cli(url).run("status", "--help").stdout


@pytest.mark.parametrize("proxy", ["http://u:hun ter2@localhost:1", "ftp://u:hun%20ter2@localhost:1"])
def test_proxy_refused_shows_no_password(proxy: str) -> None:
    done = Cli("http://gateway.invalid").run("status", http_proxy=proxy)
    assert (
        done.returncode == 69
        and "http_proxy, https_proxy or all_proxy is not the URL of a proxy" in done.stderr
        and "ter2" not in done.stderr
    ), done


def test_url_refused_without_secret_is_shown() -> None:
    assert "FENCEGATE_URL: ftp://localhost must begin with http" in Cli("ftp://localhost").run("status").stderr


TIMES = [
    (("--from", "never"), '--from: invalid input syntax for type timestamp with time zone: "never"'),
    (("--to", "2026-13-01"), "--to: date/time field value out of range"),
    (("--from", "2026-01-01", "--to", "soon"), "--to: invalid input"),
    (("--from", "-infinity"), "--from: "),
    (("--to", "infinity"), "--to: "),
    (("--from", "2026-02-01", "--to", "2026-01-01"), "--from: has to be before --to"),
    (("--from", "2026-02-01", "--to", "2026-02-01"), "--from: has to be before --to"),
    (("--from", "tomorrow"), "--from: has to be before the present time"),
]


@pytest.mark.parametrize("arguments, reason", TIMES, ids=[" ".join(arguments) for arguments, _ in TIMES])
def test_verify_times_wrong_exit_64_and_are_named(stack: Stack, arguments: tuple[str, ...], reason: str) -> None:
    done = Cluster.call("verify", "--conninfo", stack.conninfo(), *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "") and f"fencegate verify: {reason}" in done.stderr, done


def test_verify_of_no_rows_is_proved_and_exits_0(stack: Stack) -> None:
    done = Cluster.call("verify", "--conninfo", stack.conninfo(), "--json", "--resource-prefix", "none/of/these/")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["rows"]) == (0, "proved", 0), done


# Output that can't be written


def run_on_full_disk(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [str(processes.fencegate_binary()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=env,
            preexec_fn=processes.terminate_with_parent,
        )


@pytest.mark.parametrize(
    "arguments",
    [
        *"status leases resources history".split(),
        "history --csv",
        "lock {resource}",
        "elect {resource}",
        "completion bash",
        "--help",
        "--version",
    ],
)
def test_output_not_written_exits_1(cli: Cli, api_a: Api, resource: str, arguments: str) -> None:
    listed = api_a.must_acquire(f"{resource}-listed", ttl_ms=10_000)
    done = run_on_full_disk(environment(cli.url, cli.key), *arguments.format(resource=resource).split())
    assert done.returncode == FAILED and done.stderr.endswith(
        f"fencegate {arguments.split()[0]}: {NOT_WRITTEN}\n"
    ), done
    api_a.must_release(listed)
    assert not api_a.is_held(resource)


def test_output_not_written_of_operators_is_a_failure(cluster: Cluster, gateway: Gateway) -> None:
    conninfo = cluster.conninfo()
    for code, arguments in (
        (FAILED, ("check", "--config", str(gateway.config))),
        (COULD_NOT_RUN, ("verify", "--conninfo", conninfo)),
        (FAILED, ("migrate", "--conninfo", conninfo)),
    ):
        assert Cluster.call(*arguments).returncode == 0
        done = run_on_full_disk(dict(os.environ), *arguments)
        assert done.returncode == code and done.stderr == f"fencegate {arguments[0]}: {NOT_WRITTEN}\n", done


# Standard descriptors that are closed


def begin_without(descriptors: tuple[int, ...], arguments: list[str], env: dict[str, str]) -> subprocess.Popen:
    def close() -> None:
        processes.terminate_with_parent()
        for descriptor in descriptors:
            os.close(descriptor)

    return subprocess.Popen(
        [str(processes.fencegate_binary()), *arguments], stdin=subprocess.DEVNULL, env=env, preexec_fn=close
    )


@pytest.mark.parametrize("closed", [(1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("tail", ["", "-", "--", "---"])
def test_elect_with_closed_descriptors_keeps_kill_guarantee(
    cli: Cli, resource: str, mark: Path, closed: tuple[int, ...], tail: str
) -> None:
    """Its first message, whatever its length, must not get into the pipe of its watchdog,
    which kills what the command left when `elect` is killed."""
    script = f"exec > {mark} 2> {mark}.errors; sleep 300 & echo $$ $!; wait"
    running = begin_without(closed, ["elect", resource + tail, "--", "sh", "-c", script], environment(cli.url, cli.key))
    pids = [int(word) for word in first_line(mark).split()]
    opened = [os.readlink(f"/proc/{running.pid}/fd/{descriptor}") for descriptor in closed]
    running.kill()
    running.wait()
    eventually(lambda: not any(processes.is_alive(pid) for pid in pids), 5, goal="command and child are killed")
    assert opened == ["/dev/null"] * len(closed)


def test_serve_with_closed_descriptors_works(cluster: Cluster, resource: str) -> None:
    settings: dict[str, Any] = {
        **cluster.settings(),
        "log": {"core_dumps": True},
    }  # otherwise /proc is closed to this user
    gateway = cluster.gateway(settings)
    gateway.process = begin_without((0, 1, 2), ["serve", "--config", str(gateway.config)], dict(os.environ))
    gateway.wait_until_ready()
    assert [os.readlink(f"/proc/{gateway.pid}/fd/{descriptor}") for descriptor in (0, 1, 2)] == ["/dev/null"] * 3
    assert gateway.api.must_acquire(resource, ttl_ms=1_000)
    assert gateway.stop() == 0


def test_closed_output_is_output_not_written(cli: Cli) -> None:
    process = subprocess.Popen(
        [str(processes.fencegate_binary()), "status"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cli.url, cli.key),
        preexec_fn=lambda: os.close(1),
    )
    errors = process.communicate(timeout=20)[1]
    assert process.returncode == FAILED and NOT_WRITTEN in errors
