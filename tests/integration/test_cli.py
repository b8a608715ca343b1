"""The subcommands that show state (status, leases, history), on a terminal, in a pipe and refused."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import socket
import uuid
from pathlib import Path
from typing import Any, Callable

import pytest
from support import processes
from support.api import Api
from support.cli import Cli
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import open_gates

GREEN = "\x1b[32m"


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


# Status


def test_status_in_pipe_prints_json_line_per_gateway_and_node(cli: Cli, api_a: Api) -> None:
    eventually(lambda: api_a.get("/v1/guard").status == 200, goal="the gateway has asked for the state of the guard")
    done = cli.run("status")
    assert (done.returncode, done.stderr) == (0, "")
    first, *nodes, guard, last = lines(done.stdout)
    version = processes.run([str(processes.fencegate_binary()), "--version"], check=True).stdout.split()[1]
    assert first == {"gateway": api_a.url, "ready": True, "version": version}
    reported = api_a.get("/v1/nodes").json()["nodes"]
    assert {table["state"] for table in guard["guard"]["tables"]} == {"enforced"} and guard["guard"]["limits"] == []
    assert [set(node) for node in [*nodes, last]] == [*(set(node) for node in reported), {"signing_keys", "cell"}]
    assert [(node["name"], node["epoch"], node["state"]) for node in nodes] == [
        (node["name"], node["epoch"], "voting") for node in reported
    ]


def test_status_on_terminal_is_coloured_table_unless_no_color(cli: Cli, api_a: Api) -> None:
    eventually(lambda: api_a.get("/v1/guard").status == 200, goal="the gateway has asked for the state of the guard")
    terminal = cli.run_on_terminal("status")
    assert terminal.end() == 0
    assert f"{GREEN}ready" in terminal.shown and terminal.shown.count(f"{GREEN}voting") == 5
    plain = cli.run_on_terminal("status", NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b" not in plain.shown
    heads, *nodes, guard, keys = plain.shown.splitlines()[1:]
    assert guard == "guard, tables: 0 open, 0 observed, 3 enforced, faults: 0"
    assert heads.split() == ["node", "state", "epoch", "latency", "quarantine", "no", "ttl", "detail"]
    assert len(nodes) == 5 and len({line.index("voting") for line in nodes} | {heads.index("state")}) == 1, plain.shown
    assert keys.startswith("lease ids are signed with key-")
    forced = cli.run_on_terminal("status", "--json")
    assert forced.end() == 0 and len(lines(forced.shown)) == 8


def test_status_without_scope_exits_1_with_problem_on_stderr(guarded_pair: Stack, api_a: Api) -> None:
    key = guarded_pair.key("auditor")
    done = Cli(api_a.url, key).run("status")
    assert done.returncode == 1
    assert lines(done.stdout)[0]["ready"] is True
    assert "request_id" in done.stderr and "operate" in done.stderr and str(key) not in done.stderr + done.stdout


def test_cli_without_gateway_exits_69_within_timeout() -> None:
    unreachable = Cli(f"http://127.0.0.1:{processes.free_port()}")
    for command in ("status", "leases", "history"):
        done = unreachable.run(command, "--timeout", "500ms", timeout=5)
        assert (done.returncode, done.stdout) == (69, "") and unreachable.url in done.stderr
    done = unreachable.run("lock", "a", "--", "true", timeout=5)
    assert (
        (done.returncode, done.stdout) == (69, "") and unreachable.url in done.stderr and "FENCEGATE_URL" in done.stderr
    )


def test_cli_with_hanging_gateway_exits_69_at_timeout(stack: Stack, api: Api) -> None:
    gateway = stack.read()["gateways"][0]["pid"]
    with stack.frozen([gateway]):
        done = Cli(api.url).run("status", "--timeout", "300ms", timeout=5)
    assert done.returncode == 69 and "timed out" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--url", "https://localhost", "--cacert", "/nowhere"),
        ("status", "--url", "localhost"),
        ("leases", "--timeout", "10"),
        ("status", "--timeout", "0s"),
        ("leases", "--limit", "0"),
        ("history", "--event", "nonsense"),
        ("elect",),
        ("elect", "a", "b", "--", "true"),
        ("lock", "a", "--"),
        ("lock", "--", "true"),
        ("lock", "--seal", "--owner", "x", "a", "--", "true"),
        ("lock", "--wait", "soon", "a", "--", "true"),
        ("completion", "tcsh"),
        ("leases", "--api-key-file", "/nowhere/key"),
        ("history", "--follow", "--limit", "3"),
        ("history", "--follow", "--asc"),
    ],
    ids=" ".join,
)
def test_arguments_wrong_exit_64_with_reason(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli.run(*arguments)
    assert done.returncode == 64 and done.stderr and not done.stdout


def test_unknown_command_exits_64_and_is_named(cli: Cli) -> None:
    done = cli.run("histroy", "--limit", "3")
    assert done.returncode == 64 and "no command histroy; did you mean history?" in done.stderr and not done.stdout


def test_key_file_takes_precedence_over_environment(guarded_pair: Stack, api_a: Api, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{guarded_pair.key('admin')}\n")
    wrong = Cli(api_a.url, "wrong-key")
    refused = wrong.run("leases")
    assert (
        refused.returncode == 1
        and "FENCEGATE_API_KEY or --api-key-file" in refused.stderr
        and "wrong-key" not in refused.stderr
    )
    assert wrong.run("leases", "--api-key-file", str(file)).returncode == 0


# Leases


def test_leases_lists_holder_token_and_remaining_time(cli: Cli, api_a: Api, unique_name: Callable[[str], str]) -> None:
    stem = unique_name("cli/listed")
    taken = [api_a.must_acquire(f"{stem}/{number}", owner=f"owner-{number}") for number in range(3)]
    done = cli.run("leases", "--prefix", stem)
    assert done.returncode == 0, done.stderr
    assert {(item["resource"], item["owner"], item["fencing_token"]) for item in lines(done.stdout)} == {
        (lease["resource"], lease["owner"], lease["fencing_token"]) for lease in taken
    }
    limited = cli.run("leases", "--prefix", stem, "--limit", "2")
    assert len(lines(limited.stdout)) == 2 and "there are more" in limited.stderr
    terminal = cli.run_on_terminal("leases", "--prefix", stem)
    assert terminal.end() == 0
    assert f"admin/{taken[0]['owner']}" in terminal.shown and str(taken[0]["fencing_token"]) in terminal.shown
    for lease in taken:
        api_a.must_release(lease)


# History


def test_history_longer_than_page_is_followed_to_limit(
    cli: Cli, guarded_pair: Stack, unique_name: Callable[[str], str]
) -> None:
    resource = unique_name("cli/long")
    guarded_pair.query(
        "insert into fencing.history (event, resource, detail) select 'fence_raised', %s, jsonb_build_object('n', n) "
        "from generate_series(1, 1500) n",
        (resource,),
    )
    everything = lines(cli.run("history", "--resource", resource, "--limit", "5000", "--asc").stdout)
    assert len(everything) == len({item["id"] for item in everything}) == 1500
    assert [item["at"] for item in everything] == sorted(item["at"] for item in everything)
    limited = cli.run("history", "--resource", resource, "--limit", "1200")
    assert len(lines(limited.stdout)) == 1200 and "there are more" in limited.stderr


def test_history_filters_select_events(cli: Cli, api_a: Api, resource: str) -> None:
    lease = api_a.must_acquire(resource, owner="o 1&2+3")
    api_a.must_release(lease)
    eventually(lambda: len(api_a.history(resource=resource)) == 2, goal="both events are there")

    def events(*filters: str) -> list[str]:
        done = cli.run("history", "--prefix", resource, *filters)
        assert done.returncode == 0, done.stderr
        return [item["event"] for item in lines(done.stdout)]

    assert events() == ["lease_released", "lease_granted"]
    assert events("--asc") == ["lease_granted", "lease_released"]
    assert events("--event", "lease_granted") == ["lease_granted"]
    assert events("--owner", "o 1&2+3", "--principal", "admin", "--limit", "1") == ["lease_released"]
    assert events("--owner", "nobody") == []
    token = lease["fencing_token"]
    assert len(events("--token-min", str(token), "--token-max", str(token))) == 2
    assert events("--token-min", str(token + 1)) == []
    assert events("--from", "2099-01-01T00:00:00Z") == [] and len(events("--to", "2099-01-01T00:00:00+01:00")) == 2
    wrong = cli.run("history", "--write-id", "x")
    assert wrong.returncode == 64 and "--write-id has" in wrong.stderr and "request_id" in wrong.stderr


def test_history_on_terminal_is_table(cli: Cli, api_a: Api, resource: str) -> None:
    api_a.must_release(api_a.must_acquire(resource))
    eventually(lambda: len(api_a.history(resource=resource)) == 2, goal="both events are there")
    terminal = cli.run_on_terminal("history", "--resource", resource)
    assert terminal.end() == 0
    assert "lease_granted" in terminal.shown and "token" in terminal.shown.splitlines()[0]


def test_history_wider_than_terminal_cuts_detail_not_resource(cli: Cli, api_a: Api, resource: str) -> None:
    api_a.must_release(api_a.must_acquire(resource, owner="o" * 60))
    eventually(lambda: len(api_a.history(resource=resource)) == 2, goal="both events are there")
    for columns, cut in ((169, "detail"), (150, "holder")):
        terminal = cli.run_on_terminal("history", "--resource", resource, columns=columns, NO_COLOR="1")
        assert terminal.end() == 0
        heads, *rows = terminal.shown.splitlines()
        assert len(rows) == 2 and all(len(line) <= columns and resource in line for line in rows), terminal.shown
        assert all(("ooo…" in line) == (cut == "holder") for line in rows) and rows[1].endswith("…"), terminal.shown


def test_history_times_relative_and_days_select_events(cli: Cli, guarded_pair: Stack, resource: str) -> None:
    guarded_pair.query(
        "insert into fencing.history (event, resource, at) values ('fence_raised', %(r)s, "
        "now() - interval '3 hours'), ('lease_granted', %(r)s, now() - interval '10 minutes'),"
        "('lease_released', %(r)s, date_trunc('day', now() at time zone 'UTC') at time zone 'UTC')",
        {"r": resource},
    )  # type: ignore[arg-type]

    def events(*filters: str) -> list[str]:
        done = cli.run("history", "--resource", resource, *filters)
        assert done.returncode == 0, done.stderr
        return sorted(item["event"] for item in lines(done.stdout))

    today = guarded_pair.query("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD')")[0][0]
    assert "lease_granted" in events("--from", "-1h") and "fence_raised" not in events("--from", "-1h")
    assert "fence_raised" in events("--from", "-4h", "--to", "-2h") and "lease_granted" not in events(
        "--from", "-4h", "--to", "-2h"
    )
    assert "lease_released" in events("--from", today) == events("--from=today") and "lease_released" not in events(
        "--to", today
    )
    assert "lease_released" not in events("--from", "yesterday", "--to", "today")
    assert len(events("--from", "yesterday", "--to", "now")) == 3
    for wrong in ("1h", "tomorrow", "2026-13-01", "-1w"):
        done = cli.run("history", "--from", wrong)
        assert done.returncode == 64 and "--from" in done.stderr and wrong in done.stderr, done


def test_history_several_events_select_each_of_them(cli: Cli, api_a: Api, resource: str) -> None:
    api_a.must_release(api_a.must_acquire(resource, fence_on_grant=True))
    eventually(lambda: len(api_a.history(resource=resource)) == 3, goal="the events are there")
    for words in (("--event", "lease_granted", "--event", "fence_raised"), ("--event", "fence_raised,lease_granted")):
        done = cli.run("history", "--resource", resource, *words)
        assert sorted(item["event"] for item in lines(done.stdout)) == ["fence_raised", "lease_granted"], done
    assert cli.run("history", "--event", "lease_granted", "nothing").returncode == 64
    for wrong in ("lease_granted,", ",", "lease_granted,lease_granted", "lease_granted,x"):
        answer = api_a.get("/v1/history", event=wrong)
        assert answer.status == 400 and answer.json()["errors"][0]["pointer"] == "event", wrong
    following = cli.begin(
        "history", "--prefix", resource, "--follow", "--event", "lease_granted", "--event", "lease_refused"
    )
    assert following.stdout is not None

    def is_followed() -> bool:
        api_a.must_release(api_a.must_acquire(f"{resource}/{uuid.uuid4().hex}"))
        return bool(select.select([following.stdout], [], [], 0.2)[0])

    eventually(is_followed, goal="a grant is printed")
    assert json.loads(following.stdout.readline())["event"] == "lease_granted"
    following.kill()
    assert "lease_released" not in following.communicate()[0]


def test_history_csv_is_whole_answer_of_gateway(
    cli: Cli, guarded_pair: Stack, unique_name: Callable[[str], str]
) -> None:
    resource = unique_name("cli/csv")
    guarded_pair.query(
        "insert into fencing.history (event, resource, owner, detail) select 'fence_raised', %s, '=1+1', "
        "jsonb_build_object('n', n) from generate_series(1, 2500) n",
        (resource,),
    )
    done = cli.run("history", "--resource", resource, "--csv", "--asc")
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert (
        done.returncode == 0 and len(rows) == 2500 and rows[0]["resource"] == resource and rows[0]["owner"] == "'=1+1"
    )
    assert [json.loads(row["detail"])["n"] for row in rows] == list(range(1, 2501))
    assert len(cli.run("history", "--resource", resource, "--csv", "--limit", "2").stdout.splitlines()) == 3
    terminal = cli.run_on_terminal("history", "--resource", resource, "--csv", "--limit", "1")
    assert terminal.end() == 0 and terminal.shown.startswith("id,at,event,")
    assert cli.run("history", "--csv", "--json").returncode == cli.run("history", "--csv", "--follow").returncode == 64
    refused = cli.run("history", "--csv", "--write-id", "x")
    assert refused.returncode == 64 and not refused.stdout and "--write-id" in refused.stderr


def test_hostile_history_is_exact_in_pipe_printable_on_terminal(
    cli: Cli, guarded_pair: Stack, unique_name: Callable[[str], str]
) -> None:
    resource = unique_name("cli/hostile")
    owner = '\x1b[2J\u009b2J\u202e"\n1,forged'
    guarded_pair.query(
        "insert into fencing.history (event, resource, owner) values ('fence_raised', %s, %s)", (resource, owner)
    )
    piped = cli.run("history", "--resource", resource, "--csv")
    assert [row["owner"] for row in csv.DictReader(io.StringIO(piped.stdout, newline=""))] == [owner]
    assert [item["owner"] for item in lines(cli.run("history", "--resource", resource).stdout)] == [owner]
    for form in ("--csv", "--json"):
        terminal = cli.run_on_terminal("history", "--resource", resource, form)
        assert terminal.end() == 0 and not set(terminal.shown) & set("\x1b\u009b\u202e"), terminal.shown
        assert (
            len(terminal.shown.splitlines()) == (2 if form == "--csv" else 1) and "1,forged" in terminal.shown
        ), terminal.shown


def test_history_csv_cut_off_exits_69(resource: str) -> None:
    """A server that closes the connection within the body."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = Cli(f"http://127.0.0.1:{server.getsockname()[1]}").begin("history", "--csv")
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nid,at\n1,\r\n"
            )
        output, errors = running.communicate(timeout=10)
    assert running.returncode == 69 and output.startswith("id,at") and "no answer" in errors


def test_history_follow_after_reconnect_shows_each_event_once(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    stem = unique_name("cli/followed")

    def happen(number: int) -> None:
        api_a.must_release(api_a.must_acquire(f"{stem}/{number}"))

    with open_gates([int(api_a.url.rsplit(":", 1)[1])]) as gates:
        gate = gates.members[0]
        following = Cli(f"http://127.0.0.1:{gate.port}", guarded_pair.key("admin")).begin(
            "history", "--follow", "--prefix", stem
        )
        assert following.stdout is not None
        os.set_blocking(following.stdout.fileno(), False)
        shown = b""

        def has_shown(count: int) -> bool:
            nonlocal shown
            shown += os.read(following.stdout.fileno(), 65536)  # type: ignore[union-attr]
            return shown.count(b"\n") >= count

        try:
            eventually(lambda: gate.replies.passed > 0, goal="the stream is open")
            happen(1)
            eventually(lambda: has_shown(2), goal="the first is shown")
            gate.refuse()
            gate.cut()
            happen(2)
            gate.accept()
            happen(3)
            eventually(lambda: has_shown(6), 15, goal="all are shown")
        finally:
            following.terminate()
            words = following.stderr.read() if following.stderr else ""
            following.wait(10)
    seen = lines(shown.decode())
    assert [(item["resource"], item["event"]) for item in seen] == [
        (f"{stem}/{number}", event) for number in (1, 2, 3) for event in ("lease_granted", "lease_released")
    ]
    assert words == "(the connection broke; trying again)\n"
    assert gate.cuts == 1 and len({item["id"] for item in seen}) == 6


def test_history_follow_refused_exits_as_without_follow(cli: Cli, api_a: Api) -> None:
    wrong = cli.run("history", "--follow", "--write-id", "x", timeout=5)
    assert wrong.returncode == 64 and "--write-id has" in wrong.stderr
    assert Cli(api_a.url, "wrong-key").run("history", "--follow", timeout=5).returncode == 1
    unreachable = Cli(f"http://127.0.0.1:{processes.free_port()}").run("history", "--follow", timeout=5)
    assert unreachable.returncode == 69
