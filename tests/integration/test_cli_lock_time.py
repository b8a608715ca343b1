"""`fencegate lock` and time: when its lease is over by its own clock, how long it waits, and how long it holds."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.api import Api, Call
from support.cli import Cli, first_line
from support.cluster import Cluster, Gateway
from support.polling import eventually, let_pass, stays
from support.stack import Stack, lease_keys
from support.tcp_gate import Gate, gates_before

LOST, NOT_GRANTED, USAGE, HELD_TOO_LONG = 65, 75, 64, 124


@pytest.fixture
def cli(guarded_pair: Stack, here: Api) -> Cli:
    return Cli(here.url, guarded_pair.key("admin"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def gate(here: Api) -> Iterator[Gate]:
    """Between the program and the gateway."""
    with gates_before([here.port]) as gates:
        yield gates[:][0]


@pytest.fixture
def through(guarded_pair: Stack, gate: Gate) -> Cli:
    return Cli(f"http://127.0.0.1:{gate.port}", guarded_pair.key("admin"))


@pytest.fixture(scope="module")
def impatient(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway that lets nobody wait longer than 400 ms in one call."""
    made = cluster.gateway(cluster.settings(max_wait_ms=400))
    made.start()
    yield made
    made.kill()


def free(api: Api, resource: str) -> bool:
    return not api.get("/v1/leases", resource_prefix=resource).json()["items"]


def revoke(api: Api, resource: str) -> None:
    answer = api.call("DELETE", f"/v1/resources/{resource.replace('/', '%2F')}/lease", {"reason": "a test"})
    assert answer.status == 204, str(answer)


def waiters(api: Api, resource: str) -> int:
    return api.get("/v1/leases", resource_prefix=resource).json()["waiters"]


def ended(process: subprocess.Popen, within: float = 15.0) -> tuple[int, str]:
    _, words = process.communicate(timeout=within)
    return process.returncode, words


# never under a lease that is over


def test_grant_when_it_arrives_behind_its_end_then_no_command(through: Cli, gate: Gate, here: Api, resource: str, mark: Path) -> None:
    gate.replies.delay = 1.2
    done = through.run("lock", resource, "--no-wait", "--ttl", "1s", "--", "touch", str(mark))
    assert done.returncode == NOT_GRANTED and "over when it arrived" in done.stderr, done
    assert not mark.exists()
    eventually(lambda: free(here, resource), 5, what="nothing is left of it")


def test_grant_when_the_way_there_was_slow_then_asked_for_again(through: Cli, gate: Gate, resource: str) -> None:
    """The request took longer than the ttl, the answer did not: that costs no lease."""
    gate.requests.delay = 0.6
    done = through.run("lock", resource, "--no-wait", "--ttl", "1500ms", "--", "true")
    assert done.returncode == 0, done


def test_grant_when_the_gateway_stood_still_before_it_then_good(gateway: Gateway, resource: str) -> None:
    processes.signal_all([gateway.pid], signal.SIGSTOP)
    try:
        running = Cli(gateway.api.url).begin("lock", resource, "--no-wait", "--ttl", "500ms", "--", "true")
        stays(lambda: running.poll() is None, 1.0)
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert ended(running) == (0, "")


def test_command_when_we_stood_still_then_not_under_a_lease_that_was_lost(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    lease = here.take(resource)
    waiting = cli.begin("lock", resource, "--ttl", "1s", "--", "sh", "-c", f"echo $FENCING_TOKEN >> {mark}")
    eventually(lambda: waiters(here, resource) == 1, what="it waits")
    processes.signal_all([waiting.pid], signal.SIGSTOP)
    here.give_back(lease)
    eventually(lambda: not free(here, resource), what="it was granted")
    taken = here.get("/v1/leases", resource_prefix=resource).json()["items"][0]["fencing_token"]
    revoke(here, resource)
    let_pass(1.1, "its ttl")
    waiting.send_signal(signal.SIGCONT)
    assert ended(waiting)[0] == 0
    tokens = [int(line) for line in mark.read_text().split()]
    assert len(tokens) == 1 and tokens[0] > taken


def test_command_when_we_stood_still_and_the_lease_was_kept_then_it_runs(cli: Cli, here: Api, resource: str) -> None:
    lease = here.take(resource)
    waiting = cli.begin("lock", resource, "--ttl", "1s", "--", "true")
    eventually(lambda: waiters(here, resource) == 1, what="it waits")
    processes.signal_all([waiting.pid], signal.SIGSTOP)
    here.give_back(lease)
    stays(lambda: here.ask(resource).status == 423, 1.5)  # the gateway keeps it for whoever is connected
    waiting.send_signal(signal.SIGCONT)
    assert ended(waiting) == (0, "")


def test_command_when_we_stood_still_beside_it_then_it_goes_on(cli: Cli, resource: str, mark: Path) -> None:
    running = cli.begin("lock", resource, "--ttl", "1s", "--", "sh", "-c", f"echo begun > {mark}; sleep 3.5; exit 7")
    first_line(mark)
    processes.signal_all([running.pid], signal.SIGSTOP)
    let_pass(2, "longer than its ttl")
    running.send_signal(signal.SIGCONT)
    assert ended(running) == (7, "")


def test_renewals_when_each_arrives_later_then_the_command_ends(through: Cli, gate: Gate, resource: str, mark: Path) -> None:
    """They never stop to come, but in the end each is older than the lease that it tells of."""
    running = through.begin("lock", resource, "--ttl", "1s", "--", "sh", "-c", f"echo begun > {mark}; exec sleep 60")
    first_line(mark)
    for step in range(1, 41):  # so slowly that the gap between two stays well below the ttl
        gate.replies.delay = step / 20
        let_pass(0.15, "longer than the gap between two renewals and shorter than the ttl")
        if running.poll() is not None:
            break
    code, words = ended(running, 3)
    assert code == LOST and "ran out" in words


GRANTED = json.dumps({"lease_id": "x", "fencing_token": 7, "validity_ms": 60_000})
STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize("over", ["HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", f"{STREAM}event: lost\ndata: {GRANTED}\n\n"], ids=["410", "lost"])
@pytest.mark.parametrize("limit", ["0", "20s"])
def test_grant_when_the_gateway_says_that_it_is_over_then_asked_again(resource: str, over: str, limit: str) -> None:
    """Of a gateway that stood still between the grant and its answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin("lock", "--wait", limit, resource, "--", "true")
        for answer in [over] + [f"{STREAM}event: granted\ndata: {GRANTED}\n\n"] * (limit != "0"):
            connection, _ = server.accept()
            with connection:
                assert connection.recv(65536).startswith(b"POST /v1/leases ")
                connection.sendall(answer.encode())
                while connection.recv(65536):  # until it hangs up
                    pass
        assert ended(running)[0] == (NOT_GRANTED if limit == "0" else 0)


# waiting


def test_waiting_when_no_limit_is_given_then_as_long_as_it_takes(impatient: Gateway, resource: str) -> None:
    """Over several requests, for the gateway lets one wait for 400 ms."""
    lease = impatient.api.take(resource, ttl_ms=2_000)
    waiting = Cli(impatient.api.url).begin("lock", resource, "--", "true")
    for _ in range(4):
        let_pass(0.5, "longer than a request may wait")
        assert waiting.poll() is None and impatient.api.renew(lease, ttl_ms=2_000).status == 200
    impatient.api.give_back(lease)
    assert ended(waiting) == (0, "")


@pytest.mark.parametrize("limit", ["2h", "1200ms"])
def test_waiting_when_limited_then_not_longer_than_said(impatient: Gateway, resource: str, limit: str) -> None:
    lease = impatient.api.take(resource, ttl_ms=2_000)
    began = time.monotonic()
    waiting = Cli(impatient.api.url).begin("lock", resource, "--wait", limit, "--", "true")
    while waiting.poll() is None and time.monotonic() - began < 2.0:
        assert impatient.api.renew(lease, ttl_ms=2_000).status == 200
        let_pass(0.1, "between two renewals")
    if limit == "2h":
        impatient.api.give_back(lease)
        assert ended(waiting) == (0, "")
    else:
        assert ended(waiting)[0] == NOT_GRANTED and time.monotonic() - began > 1.2
        impatient.api.give_back(lease)


def test_waiting_when_requests_repeat_then_the_order_of_arrival_stays(impatient: Gateway, resource: str, mark: Path) -> None:
    lease = impatient.api.take(resource, ttl_ms=2_000)
    waiting = []
    for number in range(4):
        waiting.append(Cli(impatient.api.url).begin("lock", resource, "--", "sh", "-c", f"echo {number} >> {mark}"))
        eventually(lambda: waiters(impatient.api, resource) == number + 1, what=f"{number} waits")
    for _ in range(4):  # each has asked again more than once
        let_pass(0.31, "longer than a request may wait")
        assert impatient.api.renew(lease, ttl_ms=2_000).status == 200
    impatient.api.give_back(lease)
    assert [ended(process)[0] for process in waiting] == [0] * 4
    assert mark.read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("keyed", [True, False])
def test_place_when_asked_again_with_its_key_then_kept(here: Api, resource: str, keyed: bool) -> None:
    headers = {"Idempotency-Key": f"again-{resource}"} if keyed else None
    lease = here.take(resource)

    def ask(wait_ms: int, headers: dict[str, str] | None) -> Call:
        call = here.begin("POST", "/v1/leases", {"resource": resource, "ttl_ms": 5_000, "wait_ms": wait_ms}, headers)
        eventually(lambda: waiters(here, resource) > len(waiting), what="it waits")
        return call

    waiting: list[Call] = []
    waiting.append(ask(1_000, headers))
    waiting.append(ask(15_000, None))
    assert waiting.pop(0).answer().status == 423
    waiting.append(ask(15_000, headers))
    here.give_back(lease)
    for call in reversed(waiting) if keyed else waiting:  # the other is not answered before this one's release
        granted = call.answer()
        assert granted.status == 201, granted
        here.give_back(granted.json())


def test_waiting_when_a_gateway_lets_nobody_wait_then_it_asks_again(cluster: Cluster, resource: str) -> None:
    gateway = cluster.gateway(cluster.settings(max_wait_ms=0))
    gateway.start()
    gateway.api.take(resource, ttl_ms=1_500)
    done = Cli(gateway.api.url).run("lock", resource, "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert gateway.stop() == 0


def test_waiting_when_the_gateway_restarts_then_it_goes_on(cluster: Cluster, impatient: Gateway, gateway: Gateway, resource: str) -> None:
    lease = impatient.api.take(resource, ttl_ms=2_000)
    waiting = Cli(gateway.api.url).begin("lock", resource, "--", "true")
    eventually(lambda: waiters(gateway.api, resource) == 1, what="it waits")
    assert gateway.stop() == 0
    gateway.start()
    impatient.api.release(lease)  # its own time may be over by now
    code, words = ended(waiting, 25)
    assert code == 0 and "still waiting" in words


def test_waiting_when_interrupted_between_requests_then_nothing_is_left(cluster: Cluster, impatient: Gateway, resource: str, mark: Path) -> None:
    lease = impatient.api.take(resource, ttl_ms=2_000)
    waiting = Cli(impatient.api.url).begin("lock", resource, "--", "touch", str(mark))
    eventually(lambda: waiters(impatient.api, resource) == 1, what="it waits")
    let_pass(0.9, "between two of its requests")
    waiting.send_signal(signal.SIGINT)
    assert ended(waiting) == (128 + signal.SIGINT, "")
    eventually(lambda: waiters(impatient.api, resource) == 0, 2, what="its place is free")
    impatient.api.give_back(lease)
    stays(lambda: not lease_keys(cluster.clients(), resource), 0.5)
    assert not mark.exists()


def test_refusal_when_the_scope_allows_then_it_names_the_holder(cli: Cli, here: Api, guarded_pair: Stack, resource: str) -> None:
    lease = here.take(resource, ttl_ms=15_000, owner="worker-7")
    told = cli.run("lock", "--no-wait", resource, "--", "true")
    assert told.returncode == NOT_GRANTED
    assert f"held by worker-7 (principal admin), fencing token {lease['fencing_token']}, its lease ends in 1" in told.stderr, told.stderr
    problem = here.ask(resource).json()
    assert (problem["owner"], problem["principal"], problem["fencing_token"]) == ("worker-7", "admin", lease["fencing_token"])
    assert problem["max_wait_ms"] == 30_000
    untold = Cli(here.url, guarded_pair.key("orders")).run("lock", "--wait", "0", resource, "--", "true")
    assert untold.returncode == NOT_GRANTED and "its lease ends in 1" in untold.stderr and "worker-7" not in untold.stderr
    assert not {"owner", "principal", "fencing_token"} & set(guarded_pair.api(0, "orders").ask(resource).json())


def test_terminal_when_it_has_to_wait_then_told_for_whom(cli: Cli, here: Api, resource: str) -> None:
    lease = here.take(resource, owner="worker-7")
    terminal = cli.on_terminal("lock", resource, "--", "echo", "got it")
    terminal.expect(f"waiting for {resource}, held by worker-7")
    here.give_back(lease)
    assert terminal.end() == 0 and "got it" in terminal.shown


def test_wait_and_no_wait_when_both_given_then_64(cli: Cli, resource: str) -> None:
    assert cli.run("lock", "--wait", "1s", "--no-wait", resource, "--", "true").returncode == USAGE


# holding


def test_hold_when_max_hold_is_over_then_announced_and_124(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    began = time.monotonic()
    running = cli.begin("lock", "--max-hold", "2s", resource, "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 60")
    pid = int(first_line(mark))
    code, words = ended(running)
    assert code == HELD_TOO_LONG and 1.6 < time.monotonic() - began < 4
    announced, over = words.splitlines()
    assert "the longest hold, 2.0s, is over soon" in announced and "is over; ending the command" in over
    assert not processes.is_alive(pid) and free(here, resource)


def test_hold_when_the_command_will_not_end_then_gone_before_the_lease(cli: Cli, here: Api, resource: str, mark: Path) -> None:
    running = cli.begin("lock", "--max-hold", "2s", "--ttl", "1s", resource, "--", "bash", "-c", f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.05; done")
    pid = int(first_line(mark))
    eventually(lambda: free(here, resource) or running.poll() is not None, 6, every=0.01, what="the lease is over")
    eventually(lambda: not processes.is_alive(pid), 0.3, what="the command is gone")
    assert ended(running)[0] == HELD_TOO_LONG


def test_hold_when_the_gateway_allows_less_then_refused_before_it_runs(cluster: Cluster, resource: str, mark: Path) -> None:
    gateway = cluster.gateway(cluster.settings(max_hold_ms=2_000))
    gateway.start()
    cli = Cli(gateway.api.url)
    done = cli.run("lock", "--max-hold", "3s", resource, "--", "touch", str(mark))
    assert done.returncode == USAGE and "--max-hold" in done.stderr and not mark.exists()
    unlimited = cli.run("lock", resource, "--", "sleep", "60")
    assert unlimited.returncode == HELD_TOO_LONG and "2.0s" in unlimited.stderr
    assert gateway.stop() == 0


def test_help_when_asked_for_then_it_says_how_long_it_waits_and_holds(cli: Cli) -> None:
    words = cli.run("lock", "--help").stdout
    for part in ("--max-hold", "--no-wait", "without limit", "124", "lease.max_hold_ms"):
        assert part in words
