"""What operators order: fencegate revoke and fencegate repair."""

from __future__ import annotations

import json
import uuid

from support.api import Api, resource_path
from support.cli import Cli
from support.stack import Stack


def named() -> str:
    return f"jobs/[{uuid.uuid4().hex}]"


def test_revoke_ends_each_lease_with_its_reason(cli: Cli, api_a: Api) -> None:
    first, second, free = (named() for _ in range(3))
    lease = api_a.must_acquire(first)
    api_a.must_acquire(second)
    done = cli.run("revoke", first, free, second, "--reason", "the holder hangs")
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"resource": first, "revoked": True},
        {"resource": second, "revoked": True},
    ]
    assert f"revoke: {free}: " in done.stderr, "the one without a lease is named"
    assert api_a.renew(lease).status == 410
    (event,) = api_a.history(resource=first, event="lease_revoked")
    assert event["detail"]["reason"] == "the holder hangs"


def test_revoke_spares_lease_with_another_token(cli: Cli, api_a: Api) -> None:
    name = named()
    lease = api_a.must_acquire(name)
    token = lease["fencing_token"]
    assert cli.run("revoke", name, "--token", str(token + 1), "--reason", "old").returncode == 1
    assert api_a.renew(lease).status == 200
    assert cli.run("revoke", name, "--token", str(token), "--reason", "seen").returncode == 0


def test_repair_asks_before_it_lowers_a_fence(cli: Cli, api_a: Api) -> None:
    name = named()
    raised = cli.run("repair", name, "--fence", "50", "--reason", "moved here")
    assert (raised.returncode, json.loads(raised.stdout)) == (0, {"resource": name, "last_fencing_token": 50})
    refused = cli.run("repair", name, "--fence", "7", "--reason", "too high")
    assert (refused.returncode, refused.stdout) == (64, "") and "--yes" in refused.stderr
    terminal = cli.run_on_terminal("repair", name, "--fence", "7", "--reason", "too high")
    terminal.expect("[y/N]")
    terminal.type("n\n")
    assert terminal.end() == 1 and "nothing was changed" in terminal.shown
    assert api_a.get(resource_path(name)).json()["last_fencing_token"] == 50
    agreed = cli.run_on_terminal("repair", name, "--fence", "7", "--reason", "too high")
    agreed.expect(f"Lower the fence of {name} from 50 to 7?")
    agreed.type("y\n")
    assert agreed.end() == 0 and f"the fence of {name} is 7" in agreed.shown
    assert cli.run("repair", name, "--fence", "0", "--reason", "unused", "--yes").returncode == 0
    reasons = [event["detail"]["reason"] for event in api_a.history(resource=name, event="fence_raised")]
    assert sorted(reasons) == ["moved here", "too high", "unused"]


def test_interventions_need_reason_and_the_scope_operate(guarded_pair: Stack, api_a: Api, cli: Cli) -> None:
    name = named()
    for command in (["revoke", name], ["repair", name, "--fence", "1"]):
        assert cli.run(*command).returncode == 64
        refused = Cli(api_a.url, guarded_pair.key("auditor")).run(*command, "--reason", "x")
        assert refused.returncode == 1 and "operate" in refused.stderr
