"""Names of resources: any UTF-8 without control characters and empty segments,
in every place where a name is read or shown."""

from __future__ import annotations

import csv
import io
import json
import os
import urllib.parse
from typing import Any, Callable

import psycopg2
import pytest
from support import processes
from support.api import Api, expect_problem, pointers_of
from support.cli import Cli, environment
from support.polling import eventually
from support.shop import create_sku
from support.stack import Stack


# Parts of names: what Redis patterns, queries, spreadsheets, logs, shells,
# lists and other notations could take for something else.
PARTS = [
    "with space",
    " ",
    *"#7 ann+tag@example.com 100% a%2Fb a%20b".split(),
    "Größe-42",
    "日本語",
    "🛒",
    "e\u0301",
    "a*b?[c]",
    "back\\slash",
    "{tag}",
    '"quoted"',
    "it's",
    *"a,b a;b 7~a !a =1+1 $(id) [a,b] <b>&amp; a=b a:b|c . ..".split(),
    "\u00a0",
    "\u202e",
    "\ufeff",
    "line\u2028separator",
]
BAD = ["", "/a", "a/", "a//b", "/", "a\n", "a\tb", "\u007f", "a\u0085", "\u009fb", "x" * 201, "ü" * 101]


def path_of(name: str, part: str = "") -> str:
    return f"/v1/resources/{urllib.parse.quote(name, safe='')}{part}"


def second_path_of(name: str, part: str = "") -> str:
    return f"/v1/resource{part}?{urllib.parse.urlencode({'resource': name})}"


@pytest.mark.parametrize("part", PARTS, ids=ascii)
def test_name_can_be_leased_written_and_found(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str], part: str
) -> None:
    sku = create_sku(guarded_pair, unique_name("sku") + part)
    lease = api_a.must_acquire(sku.resource)
    assert lease["resource"] == sku.resource
    expect_problem(api_b.acquire(sku.resource), 423, "resource-locked")
    assert api_b.renew(lease).json()["resource"] == sku.resource
    assert api_b.must_write(lease, sku.sell())["fences"][0]["resource"] == sku.resource and sku.stock() == 9
    for path in (path_of(sku.resource), second_path_of(sku.resource)):
        state = api_b.get(path).json()
        assert (state["resource"], state["lease_state"], state["lease"]["resource"]) == (
            sku.resource,
            "held",
            sku.resource,
        ), path
    listed = api_b.get("/v1/leases", resource_prefix=sku.resource).json()
    assert ([item["resource"] for item in listed["items"]], listed["next_cursor"]) == ([sku.resource], None)
    connection = guarded_pair.sql()
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("select fencing.enter(%s, %s)", (sku.resource, lease["fencing_token"]))
        cursor.execute("update inventory set stock = 5 where sku = %s", (sku.name,))
    connection.commit()
    connection.close()
    assert sku.stock() == 5
    assert api_a.call("DELETE", path_of(sku.resource, "/lease"), {"reason": "test"}).status == 204
    headers = {"Fencing-Resource": urllib.parse.quote(sku.resource), "Fencing-Token": str(lease["fencing_token"] + 1)}
    assert api_a.post("/v1/writes", {"operations": [sku.sell()]}, headers).status == 200 and sku.stock() == 4
    found = lambda: {item["event"] for item in api_a.history(resource=sku.resource)}  # noqa: E731
    eventually(
        lambda: found() >= {"lease_granted", "write_applied", "fence_raised", "lease_revoked"},
        goal="its events are found by its name",
    )
    rows = list(
        csv.DictReader(
            io.StringIO(
                api_a.get("/v1/history", {"Accept": "text/csv"}, resource=sku.resource).body.decode(), newline=""
            )
        )
    )
    assert {row["resource"] for row in rows} == {sku.resource}


def test_names_of_one_lease_are_kept_apart(
    guarded_pair: Stack, api_a: Api, api_b: Api, unique_name: Callable[[str], str]
) -> None:
    stem = unique_name("names")
    names = sorted([f"{stem}/{part}" for part in PARTS] + [f"{stem} a", f"{stem} b", f"{stem}, c"], key=str.encode)
    answer = api_a.post("/v1/leases", {"resources": names, "ttl_ms": 20_000, "owner": "o"})
    assert answer.status == 201 and answer.json()["resources"] == names
    lease = answer.json()
    assert api_b.read_lease(lease).json()["resources"] == names
    raw = json.dumps({"resources": names[::-1], "ttl_ms": 20_000, "owner": "o"}, ensure_ascii=False).encode()
    again = api_b.post("/v1/leases", raw=raw)
    assert again.status == 200 and again.json()["fencing_token"] == lease["fencing_token"], again
    for name in names:
        assert api_b.get(second_path_of(name)).json()["lease"]["resources"][0:1], name
    api_a.release(lease)
    api_b.must_release(again.json())
    headers = {
        "Fencing-Resource": ", ".join(urllib.parse.quote(name, safe="") for name in names),
        "Fencing-Token": str(2**52),
    }
    answer = api_a.post(
        "/v1/writes", {"operations": [{"update": "inventory", "where": {"sku": "none"}, "set": {"note": "x"}}]}, headers
    )
    assert answer.status == 200 and [fence["resource"] for fence in answer.json()["fences"]] == names, answer


def test_lists_of_leases_take_prefixes_and_cursors_as_they_are(api_a: Api, unique_name: Callable[[str], str]) -> None:
    stem = unique_name("list")
    names = sorted([f"{stem}/{part}" for part in PARTS] + [f"{stem}!", f"{stem}7~x"], key=str.encode)
    leases = [api_a.must_acquire(name) for name in names]
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = api_a.get("/v1/leases", resource_prefix=stem, limit=3, **cursor).json()
        found += [item["resource"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert found == names
    for pattern in ("*", "?", "[", "[a-z]", "\\"):
        listed = api_a.get("/v1/leases", resource_prefix=f"{stem}/{pattern}").json()["items"]
        assert [item["resource"] for item in listed] == [
            name for name in names if name.startswith(f"{stem}/{pattern}")
        ], pattern
    for lease in leases:
        api_a.must_release(lease)


def test_waiter_is_notified_of_release_of_any_name(api_a: Api, api_b: Api, unique_name: Callable[[str], str]) -> None:
    name = f"{unique_name('wait')} ü {{x}}/*"
    held = api_a.must_acquire(name, ttl_ms=60_000)
    waiting = api_b.begin_wait(name, wait_ms=30_000)
    api_a.must_release(held)
    answer = waiting.answer()
    assert answer.status == 201 and answer.seconds < 30, answer
    api_b.must_release(answer.json())


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:20])
def test_text_that_is_no_name_is_400_everywhere(guarded_pair: Stack, api_a: Api, name: str) -> None:
    assert pointers_of(api_a.acquire(name)) == ["/resource"]
    assert pointers_of(api_a.post("/v1/leases", {"resources": ["a", name]})) == ["/resources/1"]
    if name:
        assert pointers_of(api_a.get(path_of(name))) == ["resource"]
    for call in (
        lambda: api_a.get(second_path_of(name)),
        lambda: api_a.call("DELETE", second_path_of(name, "/lease"), {"reason": "r"}),
        lambda: api_a.post(second_path_of(name, "/fence"), {"reason": "r", "last_fencing_token": 0}),
    ):
        assert pointers_of(call()) == ["resource"]
    headers = {"Fencing-Resource": urllib.parse.quote(name, safe=""), "Fencing-Token": "1"}
    assert pointers_of(
        api_a.post("/v1/writes", {"operations": [{"delete": "inventory", "where": {"sku": "none"}}]}, headers)
    ) == ["Fencing-Resource"]
    with pytest.raises(psycopg2.Error) as refused:
        guarded_pair.query("select fencing.enter(%s, 1)", (name,))
    assert refused.value.pgcode == "22023"


def test_bytes_that_are_no_utf8_are_400(api_a: Api) -> None:
    for coded in ("a%00b", "%FF", "a%C3", "%C0%AF", "%ED%A0%80", "%F4%90%80%80"):
        for path in (f"/v1/resources/{coded}", f"/v1/resource?resource={coded}"):
            assert pointers_of(api_a.get(path)) == ["resource"], path
        answer = api_a.post(
            "/v1/writes",
            {"operations": [{"delete": "inventory", "where": {"sku": "none"}}]},
            {"Fencing-Resource": coded, "Fencing-Token": "1"},
        )
        assert pointers_of(answer) == ["Fencing-Resource"], coded


def test_row_without_valid_name_is_refused_with_reason(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    table = unique_name("subs").replace("-", "_")
    guarded_pair.query(f"create table {table} (email text primary key, plan text)")
    guarded_pair.query(f"select fencing.protect('{table}', $$'subs/' || email$$), fencing.expose_table('{table}')")
    lease = api_a.must_acquire("subs/a")
    refused = expect_problem(
        api_a.write(lease, {"insert": table, "values": {"email": "x" * 200, "plan": "free"}}),
        403,
        "resource-not-covered",
    )
    assert refused["name_fault"] == "is longer than 200 bytes", refused
    api_a.must_release(lease)
    guarded_pair.query(f"select fencing.hide('{table}'), fencing.unprotect('{table}')")
    guarded_pair.query(f"drop table {table}")


# The second form of addresses with a resource in the path


def test_second_form_does_what_the_first_does(
    guarded_pair: Stack, api_a: Api, unique_name: Callable[[str], str]
) -> None:
    for path, second in ((path_of, second_path_of), (second_path_of, path_of)):
        name = unique_name("second")
        lease = api_a.must_acquire(name)
        shown = [api_a.get(each(name)).json() for each in (path, second)]
        for state in shown:
            del state["lease"]["remaining_ms"], state["counts"], state["last_events"]
        assert shown[0] == shown[1]
        expect_problem(
            api_a.call("DELETE", path(name, "/lease"), {"reason": "r", "expected_token": 1}), 409, "expectation-failed"
        )
        assert api_a.call("DELETE", path(name, "/lease"), {"reason": "r"}).status == 204
        expect_problem(api_a.call("DELETE", second(name, "/lease"), {"reason": "r"}), 404, "not-found")
        repaired = api_a.post(path(name, "/fence"), {"reason": "r", "last_fencing_token": 7})
        assert repaired.status == 200 and repaired.json() == {"resource": name, "last_fencing_token": 7}
        token = lease["fencing_token"]
        timeline = lambda each: api_a.get(
            f"{each(name)}{'&' if '?' in each(name) else '?'}fencing_token={token}"
        )  # noqa: E731
        eventually(
            lambda: timeline(second).status == 200 and timeline(second).json()["end"] == "revoked",
            goal="the timeline has the end",
        )
        assert timeline(path).json() == timeline(second).json()
        assert guarded_pair.query("select fencing.fence(%s)", (name,)) == [(7,)]


def test_second_form_requires_and_refuses_parameters(api_a: Api, resource: str) -> None:
    calls: list[tuple[str, str, Any]] = [
        ("GET", "/v1/resource", None),
        ("DELETE", "/v1/resource/lease", {"reason": "r"}),
        ("POST", "/v1/resource/fence", {"reason": "r", "last_fencing_token": 1}),
    ]
    for method, path, body in calls:
        assert pointers_of(api_a.call(method, path, body)) == ["resource"], path
        assert pointers_of(api_a.call(method, f"{path}?resource={resource}&expected_token=1", body)) == [
            "expected_token"
        ], path
        assert pointers_of(api_a.call(method, f"{path}?resource={resource}&resource={resource}", body)) == [
            "resource"
        ], path
    assert pointers_of(api_a.get(f"{path_of(resource)}?resource=x")) == ["resource"]
    assert pointers_of(api_a.call("DELETE", f"{path_of(resource, '/lease')}?resource=x", {"reason": "r"})) == [
        "resource"
    ]


# The command line, metrics and the log


def test_commands_take_and_show_names_as_they_are(cli: Cli, api_a: Api, unique_name: Callable[[str], str]) -> None:
    names = [f"{unique_name('cli')} ü '\"$(id)` \\", f"[{unique_name('a')},b]", f"{unique_name('x')},y"]
    done = cli.run("lock", *names, "--owner", "[o]", "--", "sh", "-c", 'printf "%s" "$FENCING_RESOURCE"')
    assert (done.returncode, done.stdout.split("\n"), done.stderr) == (0, names, "")
    for name in names:
        eventually(
            lambda: {item["owner"] for item in api_a.history(resource=name, event="lease_granted")} == {"[o]"},
            goal="each is leased",
        )
        elected = cli.run("elect", name, "--", "sh", "-c", 'printf "%s" "$FENCING_RESOURCE"')
        assert (elected.returncode, elected.stdout) == (0, name), elected
        assert name in cli.run("resources", "--prefix", name).stdout.splitlines()
        assert json.loads(cli.run("history", "--resource", name, "--limit", "1", "--json").stdout)["resource"] == name


def test_bash_completes_only_names_that_need_no_quotes(
    cli: Cli, api_a: Api, unique_name: Callable[[str], str], tmp_path: Any
) -> None:
    stem = unique_name("done")
    leases = [api_a.must_acquire(f"{stem}/{part}") for part in ("plain", "$(touch x)", "a b", "it's", "a;b")]
    script = tmp_path / "fencegate.bash"
    script.write_text(cli.run("completion", "bash").stdout)
    (tmp_path / "fencegate").symlink_to(processes.fencegate_binary())
    asked = (
        f'source {script}; COMP_WORDS=(fencegate lock {stem}/); COMP_CWORD=2; COMP_LINE="fencegate lock {stem}/"; '
        f'COMP_POINT=${{#COMP_LINE}}; _fencegate; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = processes.run(
        ["bash", "-c", asked], check=True, env=environment(cli.url, cli.key, PATH=f"{tmp_path}:{os.environ['PATH']}")
    )
    assert done.stdout.splitlines() == [f"{stem}/plain"], done
    for lease in leases:
        api_a.must_release(lease)


def test_metrics_label_has_any_prefix(api_a: Api, unique_name: Callable[[str], str]) -> None:
    prefix = f"{unique_name('m')} ü\"\\{{x}}"
    api_a.must_release(api_a.must_acquire(f"{prefix}/a"))
    escaped = prefix.replace("\\", "\\\\").replace('"', '\\"')
    shown = lambda: api_a.get("/metrics").body.decode()  # noqa: E731
    eventually(
        lambda: f'resource_prefix="{escaped}"' in shown() or 'resource_prefix="other"' in shown(),
        goal="the grant is counted",
    )
