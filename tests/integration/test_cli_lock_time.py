"""`fencegate lock` and time: expiry of the lease by its own clock, limits of waiting, and limits of holding."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.api import Api, Call
from support.cli import Cli, first_line, wait_for_exit
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.polling import eventually, pause, remains
from support.stack import Stack, lease_keys
from support.tcp_gate import Gate, open_gates

LOST, NOT_GRANTED, USAGE, HELD_TOO_LONG = 65, 75, 64, 124


@pytest.fixture
def gate(api_a: Api) -> Iterator[Gate]:
    """A gate between the program and the gateway."""
    with open_gates([api_a.port]) as gates:
        yield gates[:][0]


@pytest.fixture
def gated_cli(guarded_pair: Stack, gate: Gate) -> Cli:
    return Cli(f"http://127.0.0.1:{gate.port}", guarded_pair.key("admin"))


@pytest.fixture(scope="module")
def patient_cluster(stack: Stack) -> Iterator[Cluster]:
    """A cluster whose leases may be longer than a program needs to start on a busy machine."""
    with running_cluster(stack, f"lock_time_{os.getpid()}", max_ttl_ms=20_000) as made:
        yield made


@pytest.fixture(scope="module")
def short_wait_gateway(patient_cluster: Cluster) -> Iterator[Gateway]:
    """A gateway with lease.max_wait_ms 400."""
    with patient_cluster.serving(patient_cluster.settings(max_wait_ms=400, default_ttl_ms=10_000)) as made:
        yield made


def serve_lease(server: socket.socket) -> None:
    """Answers the calls about the lease x as a gateway: renewals and watches as one that is not available,
    until the release."""
    while True:
        connection, _ = server.accept()
        with connection:
            released = connection.recv(65536).startswith(b"DELETE /v1/leases/x ")
            connection.sendall(
                b"HTTP/1.1 204 No Content\r\n\r\n"
                if released
                else b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
            )
        if released:
            return


# Expiry by the clock of the program


def test_lock_grant_expired_on_arrival_runs_no_command(
    gated_cli: Cli, gate: Gate, api_a: Api, resource: str, mark: Path
) -> None:
    gate.replies.delay = 1.2
    done = gated_cli.run("lock", resource, "--no-wait", "--ttl", "1s", "--", "touch", str(mark))
    assert done.returncode == NOT_GRANTED and "had expired when it arrived" in done.stderr, done
    assert not mark.exists()
    eventually(lambda: not api_a.is_held(resource), 5, goal="the lease is released")


def test_lock_grant_after_slow_request_is_requested_again(gated_cli: Cli, gate: Gate, resource: str) -> None:
    """The request took longer than the ttl and the answer did not: the lease is still valid."""
    gate.requests.delay = 1.2
    done = gated_cli.run("lock", resource, "--no-wait", "--ttl", "3s", "--", "true")
    assert done.returncode == 0, done


def test_lock_grant_after_gateway_pause_is_valid(gateway: Gateway, resource: str) -> None:
    with processes.suspended([gateway.pid]):
        running = Cli(gateway.api.url).begin("lock", resource, "--no-wait", "--ttl", "2s", "--", "true")
        remains(lambda: running.poll() is None, 2.5)
    assert wait_for_exit(running) == (0, "")


def test_lock_paused_client_never_runs_under_lost_lease(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    lease = api_a.must_acquire(resource)
    waiting = cli.begin("lock", resource, "--ttl", "1s", "--", "sh", "-c", f"echo $FENCING_TOKEN >> {mark}")
    eventually(lambda: api_a.waiters(resource) == 1, goal="it waits")
    processes.signal_all([waiting.pid], signal.SIGSTOP)
    api_a.must_release(lease)
    eventually(lambda: api_a.is_held(resource), goal="it was granted")
    taken = api_a.get("/v1/leases", resource_prefix=resource).json()["items"][0]["fencing_token"]
    api_a.must_revoke(resource)
    pause(1.1, "its ttl")
    waiting.send_signal(signal.SIGCONT)
    assert wait_for_exit(waiting)[0] == 0
    tokens = [int(line) for line in mark.read_text().split()]
    assert len(tokens) == 1 and tokens[0] > taken


def test_lock_paused_client_lets_command_continue(cli: Cli, resource: str, mark: Path) -> None:
    running = cli.begin(
        *f"lock {resource} --ttl 30s -- sh -c".split(),
        f"echo begun > {mark}; until [ -e {mark}.stop ]; do sleep 0.05; done; exit 7",
    )
    first_line(mark)
    processes.signal_all([running.pid], signal.SIGSTOP)
    pause(0.5, "less than its ttl")
    running.send_signal(signal.SIGCONT)
    remains(lambda: running.poll() is None, 1.0, goal="the command continues")
    Path(f"{mark}.stop").touch()
    assert wait_for_exit(running) == (7, "")


def test_lock_frozen_client_loses_lease_to_waiter(cli: Cli, resource: str, mark: Path) -> None:
    """Its connections stay open: only what it does itself says that it lives."""
    frozen = cli.begin("lock", resource, "--ttl", "2s", "--", "sh", "-c", f"echo begun > {mark}; exec sleep 60")
    first_line(mark)
    with processes.suspended([frozen.pid]):
        assert cli.run("lock", "--wait", "30s", resource, "--", "true").returncode == 0
    assert wait_for_exit(frozen)[0] == LOST


def test_lock_renewals_with_growing_delay_end_command(gated_cli: Cli, gate: Gate, resource: str, mark: Path) -> None:
    """Renewals keep arriving, but in the end each arrives after the expiry that it reports."""
    running = gated_cli.begin("lock", resource, "--ttl", "2s", "--", "sh", "-c", f"echo begun > {mark}; exec sleep 60")
    first_line(mark)
    for step in range(1, 41):  # in steps so small that two renewals arrive within the ttl
        gate.replies.delay = step / 10
        pause(0.3, "longer than the gap between two renewals and shorter than the ttl")
        if running.poll() is not None:
            break
    code, errors = wait_for_exit(running, 6)
    assert code == LOST and "expired" in errors


GRANTED = {"lease_id": "x", "fencing_token": 7, "ttl_ms": 60_000, "validity_ms": 60_000, "served_ms": 0}


def grant(**members: object) -> bytes:
    """Returns the answer of a gateway that grants a lease."""
    body = json.dumps({**GRANTED, **members})
    return (
        f"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )


@pytest.mark.parametrize("limit", ["0", "20s"])
def test_lock_grant_reported_as_lost_is_requested_again(resource: str, limit: str) -> None:
    """The answer of a gateway that was suspended between the grant and its answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin(
            "lock", "--wait", limit, resource, "--", "true"
        )
        for answer in [b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"] + [grant()] * (limit != "0"):
            connection, _ = server.accept()
            with connection:
                assert connection.recv(65536).startswith(b"POST /v1/leases ")
                connection.sendall(answer)
                while connection.recv(65536):  # until the program closes the connection
                    pass
        if limit != "0":
            serve_lease(server)
        assert wait_for_exit(running)[0] == (NOT_GRANTED if limit == "0" else 0)


# Waiting


def test_lock_wait_without_limit_spans_several_requests(short_wait_gateway: Gateway, resource: str) -> None:
    """Waits over several requests, because one may wait for 400 ms."""
    lease = short_wait_gateway.api.must_acquire(resource, ttl_ms=20_000)
    waiting = Cli(short_wait_gateway.api.url).begin("lock", resource, "--", "true")
    for _ in range(4):
        pause(0.5, "longer than a request may wait")
        assert waiting.poll() is None and short_wait_gateway.api.renew(lease, ttl_ms=20_000).status == 200
    short_wait_gateway.api.must_release(lease)
    assert wait_for_exit(waiting) == (0, "")


@pytest.mark.parametrize("limit", ["2h", "1200ms"])
def test_lock_wait_limit_is_respected(short_wait_gateway: Gateway, resource: str, limit: str) -> None:
    lease = short_wait_gateway.api.must_acquire(resource, ttl_ms=20_000)
    began = time.monotonic()
    waiting = Cli(short_wait_gateway.api.url).begin("lock", resource, "--wait", limit, "--", "true")
    while waiting.poll() is None and time.monotonic() - began < 2.0:
        assert short_wait_gateway.api.renew(lease, ttl_ms=20_000).status == 200
        pause(0.1, "between two renewals")
    if limit == "2h":
        short_wait_gateway.api.must_release(lease)
        assert wait_for_exit(waiting) == (0, "")
    else:
        assert wait_for_exit(waiting)[0] == NOT_GRANTED and time.monotonic() - began > 1.2
        short_wait_gateway.api.must_release(lease)


def test_lock_wait_over_repeated_requests_keeps_queue_order(
    patient_cluster: Cluster, resource: str, mark: Path
) -> None:
    with patient_cluster.serving(patient_cluster.settings(max_wait_ms=2_000, default_ttl_ms=10_000)) as gateway:
        lease = gateway.api.must_acquire(resource, ttl_ms=20_000)
        waiting = []
        for number in range(4):
            waiting.append(Cli(gateway.api.url).begin("lock", resource, "--", "sh", "-c", f"echo {number} >> {mark}"))
            eventually(lambda: gateway.api.waiters(resource) == number + 1, goal=f"{number} waits")
        pause(2.3, "longer than a request may wait: each has repeated its request")
        # Between two requests a program is in no queue, and the next one is served.
        eventually(lambda: gateway.api.waiters(resource) == 4, interval=0.002, goal="all are in the queue")
        gateway.api.must_release(lease)
        assert [wait_for_exit(process)[0] for process in waiting] == [0] * 4
        assert mark.read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("keyed", [True, False])
def test_queue_place_is_kept_for_repeated_idempotency_key(api_a: Api, resource: str, keyed: bool) -> None:
    headers = {"Idempotency-Key": f"again-{resource}"} if keyed else None
    lease = api_a.must_acquire(resource)

    def ask(wait_ms: int, headers: dict[str, str] | None) -> Call:
        call = api_a.begin("POST", "/v1/leases", {"resource": resource, "ttl_ms": 5_000, "wait_ms": wait_ms}, headers)
        eventually(lambda: api_a.waiters(resource) > len(waiting), goal="it waits")
        return call

    waiting: list[Call] = []
    waiting.append(ask(1_000, headers))
    waiting.append(ask(15_000, None))
    assert waiting.pop(0).answer().status == 423
    waiting.append(ask(15_000, headers))
    api_a.must_release(lease)
    for call in reversed(waiting) if keyed else waiting:  # the other one is answered after the release
        granted = call.answer()
        assert granted.status == 201, granted
        api_a.must_release(granted.json())


def test_lock_wait_with_max_wait_0_polls(cluster: Cluster, resource: str) -> None:
    gateway = cluster.start_gateway(cluster.settings(max_wait_ms=0))
    gateway.api.must_acquire(resource, ttl_ms=1_500)
    done = Cli(gateway.api.url).run("lock", resource, "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert gateway.stop() == 0


def test_lock_wait_continues_after_gateway_restart(
    patient_cluster: Cluster, short_wait_gateway: Gateway, resource: str
) -> None:
    with patient_cluster.serving(patient_cluster.settings(default_ttl_ms=10_000)) as gateway:
        lease = short_wait_gateway.api.must_acquire(resource, ttl_ms=20_000)
        waiting = Cli(gateway.api.url).begin("lock", resource, "--", "true")
        eventually(lambda: gateway.api.waiters(resource) == 1, goal="it waits")
        assert gateway.stop() == 0
        gateway.start()
        short_wait_gateway.api.release(lease)  # it may have expired by now
        code, errors = wait_for_exit(waiting, 25)
        assert code == 0 and "still waiting" in errors


def test_lock_interrupted_between_requests_leaves_nothing(
    patient_cluster: Cluster, short_wait_gateway: Gateway, resource: str, mark: Path
) -> None:
    lease = short_wait_gateway.api.must_acquire(resource, ttl_ms=20_000)
    waiting = Cli(short_wait_gateway.api.url).begin("lock", resource, "--", "touch", str(mark))
    eventually(lambda: short_wait_gateway.api.waiters(resource) == 1, goal="it waits")
    pause(0.9, "between two of its requests")
    waiting.send_signal(signal.SIGINT)
    assert wait_for_exit(waiting) == (128 + signal.SIGINT, "")
    eventually(lambda: short_wait_gateway.api.waiters(resource) == 0, 2, goal="it has left the queue")
    short_wait_gateway.api.must_release(lease)
    remains(lambda: not lease_keys(patient_cluster.clients(), resource), 0.5)
    assert not mark.exists()


def test_lock_refused_names_holder_if_scope_allows(cli: Cli, api_a: Api, guarded_pair: Stack, resource: str) -> None:
    lease = api_a.must_acquire(resource, ttl_ms=15_000, owner="worker-7")
    reported = cli.run("lock", "--no-wait", resource, "--", "true")
    assert reported.returncode == NOT_GRANTED
    assert (
        f"held by worker-7 (principal admin), fencing token {lease['fencing_token']}, its lease ends in 1"
        in reported.stderr
    ), reported.stderr
    problem = api_a.acquire(resource).json()
    assert (problem["owner"], problem["principal"], problem["fencing_token"]) == (
        "worker-7",
        "admin",
        lease["fencing_token"],
    )
    assert problem["max_wait_ms"] == 30_000
    untold = Cli(api_a.url, guarded_pair.key("orders")).run("lock", "--wait", "0", resource, "--", "true")
    assert (
        untold.returncode == NOT_GRANTED and "its lease ends in 1" in untold.stderr and "worker-7" not in untold.stderr
    )
    assert not {"owner", "principal", "fencing_token"} & set(guarded_pair.api(0, "orders").acquire(resource).json())


def test_lock_holder_with_direction_of_writing_is_printed_safely(cli: Cli, api_a: Api, resource: str) -> None:
    """U+202E changes the direction of writing; an owner has no control characters, such as U+009B,
    which begins a control sequence."""
    assert api_a.acquire(resource, owner="a\u009b31m").status == 400
    lease = api_a.must_acquire(resource, ttl_ms=15_000, owner="a\u202ez")
    refused = cli.run("lock", "-n", resource, "--", "true")
    assert refused.returncode == NOT_GRANTED and "held by a?z (principal admin)" in refused.stderr, refused.stderr
    terminal = cli.run_on_terminal("lock", resource, "--", "true")
    terminal.expect("held by a?z")
    api_a.must_release(lease)
    assert terminal.end() == 0


def test_lock_wait_on_terminal_names_holder(cli: Cli, api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="worker-7")
    terminal = cli.run_on_terminal("lock", resource, "--", "echo", "got it")
    terminal.expect(f"waiting for {resource}, held by worker-7")
    api_a.must_release(lease)
    assert terminal.end() == 0 and "got it" in terminal.shown


def test_wait_and_no_wait_together_exit_64(cli: Cli, resource: str) -> None:
    assert cli.run("lock", "--wait", "1s", "--no-wait", resource, "--", "true").returncode == USAGE


# Holding


def test_lock_max_hold_is_announced_and_exits_124(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    began = time.monotonic()
    running = cli.begin("lock", "--max-hold", "2s", resource, "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 60")
    pid = int(first_line(mark))
    code, errors = wait_for_exit(running)
    assert code == HELD_TOO_LONG and 1.6 < time.monotonic() - began < 40, "long before the minute of the command"
    announced, over = errors.splitlines()
    assert "the longest hold, 2.0s, is over soon" in announced and "is over; ending the command" in over
    assert not processes.is_alive(pid) and not api_a.is_held(resource)


def test_lock_max_hold_kills_command_before_lease_ends(cli: Cli, api_a: Api, resource: str, mark: Path) -> None:
    running = cli.begin(
        *f"lock --max-hold 2s --ttl 2s {resource} -- bash -c".split(),
        f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.05; done",
    )
    pid = int(first_line(mark))
    eventually(
        lambda: not api_a.is_held(resource) or running.poll() is not None, 6, interval=0.01, goal="the lease is over"
    )
    eventually(
        lambda: not processes.is_alive(pid), 2, goal="the command is gone, long before the ten seconds of --kill-after"
    )
    assert wait_for_exit(running)[0] == HELD_TOO_LONG


def test_lock_max_hold_counts_from_grant_not_from_arrival(resource: str, mark: Path) -> None:
    """The grant travels for half of the hold, as through a proxy that buffers it,
    or to a machine that was suspended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin(
            "lock", resource, "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 60"
        )
        connection, _ = server.accept()
        with connection:
            requested_at = time.monotonic()
            connection.recv(65536)
            pause(2.0, "the grant travels")
            connection.sendall(grant(max_hold_ms=4_000))
        serve_lease(server)
        pid = int(first_line(mark))
        assert not processes.is_alive(pid)
        assert 3.2 < time.monotonic() - requested_at < 5.8, "counted from its arrival it would end after 6 s"
        assert wait_for_exit(running)[0] == HELD_TOO_LONG


def test_lock_resumed_after_hold_kills_command_at_once(resource: str, mark: Path) -> None:
    """The process was stopped, and its command was not: SIGKILL is due, however long --kill-after is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin(
            *f"lock --kill-after 20s {resource} -- bash -c".split(),
            f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.05; done",
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(grant(max_hold_ms=1_500))
        pid = int(first_line(mark))
        processes.signal_all([running.pid], signal.SIGSTOP)
        pause(1.6, "the hold is over")
        running.send_signal(signal.SIGCONT)
        serve_lease(server)
        assert not processes.is_alive(pid)
        assert wait_for_exit(running)[0] == HELD_TOO_LONG


def test_lock_max_hold_above_limit_is_refused_before_start(cluster: Cluster, resource: str, mark: Path) -> None:
    gateway = cluster.start_gateway(cluster.settings(max_hold_ms=2_000))
    cli = Cli(gateway.api.url)
    done = cli.run("lock", "--max-hold", "3s", resource, "--", "touch", str(mark))
    assert done.returncode == USAGE and "--max-hold" in done.stderr and not mark.exists()
    unlimited = cli.run("lock", "--ttl", "2s", resource, "--", "sleep", "60")
    assert unlimited.returncode == HELD_TOO_LONG and "2.0s" in unlimited.stderr
    assert gateway.stop() == 0


def test_lock_help_explains_wait_and_hold_limits(cli: Cli) -> None:
    errors = cli.run("lock", "--help").stdout
    for part in ("--max-hold", "--no-wait", "without limit", "124", "lease.max_hold_ms"):
        assert part in errors
