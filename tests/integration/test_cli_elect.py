"""`fencegate elect`: one leader among several processes, whose term is the fencing token."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from support import processes
from support.api import Api
from support.cli import Cli, first_line
from support.cluster import Gateway
from support.polling import eventually, remains
from support.stack import Stack
from support.tcp_gate import open_gates


def leader_command(file: Path) -> list[str]:
    """Returns a command that appends its term and process id to the file and runs until a signal."""
    return ["sh", "-c", f"echo $FENCING_TOKEN $$ >> {file}; exec sleep 300"]


def terms(file: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in file.read_text().splitlines()] if file.exists() else []


def test_elect_one_leader_and_successor_after_its_death(
    cli: Cli, guarded_pair: Stack, resource: str, tmp_path: Path
) -> None:
    file = tmp_path / "terms"
    clis = [cli, Cli(guarded_pair.api(1).url, guarded_pair.key("admin")), cli]
    members = [each.begin("elect", resource, "--", *leader_command(file)) for each in clis]
    for number in range(len(members)):
        [term, pid] = eventually(lambda: len(found := terms(file)) > number and found, goal="a leader runs")[number]
        assert len(terms(file)) == number + 1
        assert number == 0 or term > terms(file)[number - 1][0], "terms grow"
        owner = cli.run("leases", "--prefix", resource).stdout
        [leader] = [member for member in members if member.poll() is None and f"/{member.pid}/" in owner]
        leader.kill()
        leader.communicate()
        eventually(lambda: not processes.is_alive(pid), 5, goal="the command of a dead leader is ended")


def test_elect_lost_leader_ends_command_and_competes_again(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    member = cli.begin("elect", resource, "--", *leader_command(file))
    first = eventually(lambda: terms(file), goal="it leads")[0]
    api_a.must_revoke(resource)
    second = eventually(lambda: len(found := terms(file)) == 2 and found, goal="it leads again")[1]
    assert second[0] > first[0] and not processes.is_alive(first[1])
    member.send_signal(signal.SIGTERM)
    _, errors = member.communicate(timeout=10)
    assert member.returncode == 128 + signal.SIGTERM
    assert f"leader of {resource}, term {second[0]}" in errors and "competing again" in errors
    assert len(terms(file)) == 2


def test_elect_exit_on_loss_exits_65(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    member = cli.begin("elect", "--exit-on-loss", resource, "--", *leader_command(file))
    eventually(lambda: terms(file), goal="it leads")
    api_a.must_revoke(resource)
    member.communicate(timeout=10)
    assert member.returncode == 65


def test_elect_max_hold_begins_new_term(cli: Cli, resource: str, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    member = cli.begin("elect", "--max-hold", "2s", "--ttl", "1s", resource, "--", *leader_command(file))
    found = eventually(lambda: len(found := terms(file)) >= 2 and found, goal="a second term")
    assert found[1][0] > found[0][0]
    member.terminate()
    member.communicate(timeout=10)


def test_elect_command_end_gives_up_leadership_with_its_code(cli: Cli, api_a: Api, resource: str) -> None:
    done = cli.run("elect", resource, "--", "sh", "-c", "exit 3")
    assert done.returncode == 3 and "competing" not in done.stderr
    assert not api_a.is_held(resource)


def test_elect_competes_again_after_gateway_restart(gateway: Gateway, resource: str, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    member = Cli(gateway.api.url).begin("elect", "--ttl", "1s", resource, "--", *leader_command(file))
    eventually(lambda: terms(file), goal="it leads")
    gateway.kill()
    eventually(lambda: not processes.is_alive(terms(file)[0][1]), goal="the command is ended")
    gateway.start()
    found = eventually(lambda: len(found := terms(file)) >= 2 and found, 20, goal="it leads again")
    assert found[1][0] > found[0][0]
    member.terminate()
    member.communicate(timeout=10)


def test_elect_interrupted_while_command_ends_does_not_compete(
    cli: Cli, api_a: Api, resource: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    command = (
        f"trap 'echo ending >> {mark}.end' TERM; echo up > {mark}; while [ ! -e {mark}.stop ]; do sleep 0.05; done"
    )
    member = cli.begin("elect", "--kill-after", "20s", resource, "--", "sh", "-c", command)
    first_line(mark)
    api_a.must_revoke(resource)
    first_line(Path(f"{mark}.end"))
    member.send_signal(signal.SIGTERM)
    eventually(lambda: Path(f"{mark}.end").read_text().count("ending") == 2, goal="the signal is forwarded")
    Path(f"{mark}.stop").touch()
    _, errors = member.communicate(timeout=10)
    assert member.returncode == 65 and "competing again" not in errors


def test_elect_interrupted_during_release_does_not_compete(
    guarded_pair: Stack, api_a: Api, resource: str, tmp_path: Path
) -> None:
    """The release takes long, because the gateway does not get its request."""
    file = tmp_path / "terms"
    with open_gates([api_a.port]) as gates:
        [gate] = gates[:]
        member = Cli(f"http://127.0.0.1:{gate.port}", guarded_pair.key("admin")).begin(
            "elect", "--max-hold", "4s", resource, "--", *leader_command(file)
        )
        [[_, pid]] = eventually(lambda: terms(file), goal="it leads")
        gate.requests.stalled = True
        accepted = gate.accepted
        eventually(lambda: not processes.is_alive(pid) and gate.accepted > accepted, goal="it releases the lease")
        member.send_signal(signal.SIGTERM)
        gate.requests.stalled = False
        _, errors = member.communicate(timeout=10)
    assert member.returncode == 124 and "competing again" not in errors
    assert len(terms(file)) == 1


def children(pid: int) -> set[int]:
    return {child for child in processes.all_pids() if processes.parent_of(child) == pid}


def test_elect_outlives_its_watchdog(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    member = cli.begin("elect", resource, "--", *leader_command(file))
    [[_, pid]] = eventually(lambda: terms(file), goal="it leads")
    [watchdog] = children(member.pid) - {pid}
    os.kill(watchdog, signal.SIGKILL)
    api_a.must_revoke(resource)
    eventually(lambda: len(terms(file)) == 2, goal="it leads again")
    remains(lambda: member.poll() is None and processes.is_alive(terms(file)[1][1]), 0.5)
    member.terminate()
    member.communicate(timeout=10)


def test_elect_leaves_no_zombies_of_later_terms(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    """From the second term on it is the parent of processes that a command leaves behind."""
    file = tmp_path / "terms"
    member = cli.begin(
        *f"elect {resource} -- sh -c".split(),
        f"(sleep 0.5 & echo $! > {file}.$FENCING_TOKEN); echo $FENCING_TOKEN $$ >> {file}; exec sleep 300",
    )
    eventually(lambda: terms(file), goal="it leads")
    api_a.must_revoke(resource)
    [_, [term, pid]] = eventually(lambda: len(found := terms(file)) == 2 and found, goal="it leads again")
    left = int(first_line(Path(f"{file}.{term}")))
    eventually(lambda: not Path(f"/proc/{left}").exists(), 5, goal="the status of the process is taken")
    assert processes.is_alive(pid)
    member.terminate()
    member.communicate(timeout=10)


GROUP_ID_IN_USE = """
import os, signal, sys, time
mark, group = sys.argv[1], os.getpid()
def join():
    process = os.fork()
    if process == 0:
        os.setpgid(0, group)
        signal.pause()
    return process
if os.fork() == 0:
    os.setpgid(0, 0)
    join()  # ends with the term; as a zombie it keeps the id of the group in use
    open(mark, "w").write(f"{os.getpid()}\\n")
    while not os.path.exists(f"{mark}.over"):
        time.sleep(0.02)  # until the term is over
    open(f"{mark}.late", "w").write(f"{join()}\\n")
    signal.pause()
signal.pause()
"""


def test_elect_killed_after_term_kills_no_later_group(cli: Cli, api_a: Api, resource: str, tmp_path: Path) -> None:
    """The id of the command's process group is in use again when the process,
    which waits for its next term, is killed."""
    mark = tmp_path / "mark"
    member = cli.begin(
        "elect", "--kill-after", "300ms", resource, "--", "/usr/bin/python3", "-c", GROUP_ID_IN_USE, str(mark)
    )
    keeper = int(first_line(mark))
    successor = api_a.begin_wait(resource)
    api_a.must_revoke(resource)
    assert successor.answer().status == 201 and member.stderr is not None
    eventually(
        lambda: "competing again" in (member.stderr.readline() if member.stderr else ""), goal="the term is over"
    )
    Path(f"{mark}.over").touch()
    late = int(first_line(Path(f"{mark}.late")))
    try:
        eventually(lambda: os.getpgid(late) != os.getpgid(keeper), goal="it has joined the group")
        member.kill()
        member.wait()
        remains(lambda: processes.is_alive(late), 0.5)
    finally:
        processes.signal_all([late, keeper], signal.SIGKILL)
