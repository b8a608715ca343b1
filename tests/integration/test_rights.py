"""Rights of a credential: every endpoint with every kind of rights, resource and exposed name,
compared with the rule of docs/decisions.md, 0012."""

from __future__ import annotations

import hashlib
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any, Iterator

import pytest
from support.api import Answer, Api, expect_problem, resource_path
from support.cluster import Cluster, Gateway
from support.events import EventStream
from support.polling import eventually

ALL = ["leases", "writes", "history", "operate", "bare_tokens"]
OWN, SECRET, OTHER = "own/1", "own/secret/1", "other/1"
RESOURCES = [OWN, SECRET, OTHER]
EVERY_TABLE = "every table"  # a credential with `exposed` has not all of them

# All of them are credentials of one principal, so that a lease is never another's.
CREDENTIALS: dict[str, dict[str, Any]] = {
    "all": {"scopes": ALL},
    **{scope: {"scopes": [scope]} for scope in ALL},
    **{f"all-but-{scope}": {"scopes": [other for other in ALL if other != scope]} for scope in ALL},
    "own": {"scopes": [], "prefixes": [{"resource_prefix": "own/", "scopes": ALL}]},
    "own-leases": {"prefixes": [{"resource_prefix": "own/", "scopes": ["leases"]}]},
    "not-secret": {"scopes": ALL, "prefixes": [{"resource_prefix": "own/secret/", "scopes": []}]},
    "secret-again": {
        "scopes": ["history"],
        "prefixes": [
            {"resource_prefix": "own/", "scopes": ["leases", "writes"]},
            {"resource_prefix": "own/secret/", "scopes": ALL},
        ],
    },
    "writes-elsewhere": {
        "scopes": ["leases", "bare_tokens"],
        "prefixes": [{"resource_prefix": "own/", "scopes": ["leases", "writes"]}],
    },
    "exposed": {"scopes": ALL, "exposed": ["listed", "listed_value"]},
    "exposed-none": {"scopes": ALL, "exposed": []},
}


def key_of(name: str) -> str:
    return f"key-of-{name}-long-enough"


def credential(principal: str, key: str, **rights: Any) -> dict[str, Any]:
    return {"principal": principal, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), **rights}


@pytest.fixture(scope="module")
def walked(cluster: Cluster) -> Iterator[Gateway]:
    for name in ("listed", "unlisted"):
        cluster.query(f"create table {name} (id serial primary key, note text)")
        cluster.query(f"select fencing.expose_table('{name}')")
        cluster.query(f"create function {name}_value() returns int stable language sql as 'select 1'")
        cluster.query(f"select fencing.expose_function('{name}_value()')")
    settings = cluster.settings()
    settings["auth"] = {
        "api_keys": [credential("walker", key_of(name), **rights) for name, rights in CREDENTIALS.items()]
        + [credential("operator", key_of("operator"), scopes=ALL)]
    }
    with cluster.serving(settings) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def lease_ids(walked: Gateway) -> dict[str, str]:
    """A lease_id of each resource. That its lease may have ended does not change who may use it."""
    api = walked.api.with_key(key_of("all"))
    return {
        resource: eventually(lambda: api.must_acquire(resource, ttl_ms=2_000), 30, goal="a lease")["lease_id"]
        for resource in RESOURCES
    }


@dataclass(frozen=True)
class Call:
    """A request, and what its rights have to cover: (scope, resource),
    or (scope, prefix + "*") for all resources of a prefix."""

    method: str
    path: str
    needs: list[tuple[str, str]]
    exposed: str | None = None
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def calls_of(resource: str, lease_ids: dict[str, str]) -> Iterator[Call]:
    """Yields every endpoint that needs a scope, in each way that it can name resources."""
    quoted, lease_id = urllib.parse.quote(resource, safe=""), lease_ids[resource]
    leased = {"Fencing-Lease": lease_id}
    bare = {"Fencing-Resource": resource, "Fencing-Token": str(2**52)}
    prefix = resource.rpartition("/")[0] + "/"
    leases, writes = [("leases", resource)], [("writes", resource)]
    yield Call("POST", "/v1/leases", leases, body={"resource": resource + uuid.uuid4().hex})
    yield Call(
        "POST",
        "/v1/leases",
        leases + [("leases", OTHER)],
        body={"resources": [OTHER + uuid.uuid4().hex, resource + uuid.uuid4().hex]},
    )
    yield Call(
        "POST",
        "/v1/leases",
        leases + [("leases", OTHER)],
        body={"any_of": [OTHER + uuid.uuid4().hex, resource + uuid.uuid4().hex]},
    )
    yield Call(
        "POST",
        "/v1/leases/cancel",
        leases,
        body={"resource": resource + uuid.uuid4().hex},
        headers={"Idempotency-Key": uuid.uuid4().hex},
    )
    yield Call(
        "POST",
        "/v1/leases/cancel",
        leases + [("leases", OTHER)],
        body={"resources": [OTHER, resource + "x"]},
        headers={"Idempotency-Key": uuid.uuid4().hex},
    )
    yield Call("GET", f"/v1/leases/{lease_id}", leases)
    yield Call("POST", f"/v1/leases/{lease_id}/renew", leases)
    yield Call("DELETE", f"/v1/leases/{lease_id}", leases)
    yield Call("DELETE", f"/v1/resources/{quoted}/lease", [("operate", resource)], body={"reason": "test"})
    yield Call(
        "POST",
        f"/v1/resources/{quoted}/fence",
        [("operate", resource)],
        body={"reason": "test", "last_fencing_token": 0},
    )
    yield Call("GET", f"/v1/resources/{quoted}", [("history", resource)])
    yield Call("GET", f"/v1/resources/{quoted}?fencing_token=1", [("history", resource)])
    yield Call("DELETE", f"/v1/resource/lease?resource={quoted}", [("operate", resource)], body={"reason": "test"})
    yield Call(
        "POST",
        f"/v1/resource/fence?resource={quoted}",
        [("operate", resource)],
        body={"reason": "test", "last_fencing_token": 0},
    )
    yield Call("GET", f"/v1/resource?resource={quoted}", [("history", resource)])
    for path in ("/v1/history", "/v1/changes", "/v1/history/stream"):
        exposed = EVERY_TABLE if path == "/v1/changes" else None
        yield Call("GET", f"{path}?resource={quoted}", [("history", resource)], exposed)
        yield Call("GET", f"{path}?resource={quoted}&resource_prefix=x", [("history", resource)], exposed)
    for path in ("/v1/leases", "/v1/history", "/v1/changes", "/v1/history/summary", "/v1/history/stream"):
        exposed = EVERY_TABLE if path == "/v1/changes" else None
        yield Call("GET", f"{path}?resource_prefix={prefix}", [("history", prefix + "*")], exposed)
        yield Call("GET", path, [("history", "*")], exposed)
    yield Call(
        "GET", f"/v1/history?resource_prefix={prefix}", [("history", prefix + "*")], headers={"Accept": "text/csv"}
    )
    yield Call("GET", "/v1/history?principal=walker", [("history", "*")], headers={"Accept": "application/x-ndjson"})
    yield Call("GET", "/v1/history/digests", [("history", "*")])
    yield Call("GET", "/v1/rights", [])
    yield Call("GET", "/v1/nodes", [("operate", "*")])
    yield Call("GET", "/v1/guard", [("operate", "*")])
    for table in ("listed", "unlisted"):
        operation = {"delete": table, "where": {"id": 0}}
        own_lease = {"resource": resource + uuid.uuid4().hex, "ttl_ms": 1_000}
        yield Call("POST", "/v1/writes", writes, table, {"lease_id": lease_id, "operations": [operation]})
        yield Call("POST", "/v1/writes", writes, table, {"operations": [operation]}, leased)
        yield Call("POST", "/v1/writes", writes + leases, table, {"lease": own_lease, "operations": [operation]})
        yield Call("POST", "/v1/writes", writes + [("bare_tokens", resource)], table, {"operations": [operation]}, bare)
        yield Call("POST", f"/v1/tables/{table}", writes, table, {"note": "x"}, leased)
        yield Call("PATCH", f"/v1/tables/{table}?id=eq.0", writes, table, {"note": "x"}, leased)
        yield Call("DELETE", f"/v1/tables/{table}?id=eq.0", writes, table, headers=leased)
        yield Call("DELETE", f"/v1/tables/{table}?id=eq.0", writes + [("bare_tokens", resource)], table, headers=bare)
        yield Call("GET", f"/v1/tables/{table}?id=eq.0", [("writes", "*")], table)
        yield Call("GET", f"/v1/tables/{table}?id=eq.0", writes, table, headers=leased)
        function = f"{table}_value"
        yield Call("GET", f"/v1/rpc/{function}", [("writes", "*")], function)
        yield Call("GET", f"/v1/rpc/{function}", writes, function, headers=leased)
        yield Call("POST", f"/v1/rpc/{function}", [("writes", "*")], function, {})
        yield Call("POST", f"/v1/rpc/{function}", writes, function, {}, leased)
        yield Call("POST", "/v1/writes", writes, function, {"lease_id": lease_id, "operations": [{"call": function}]})


def covers(rights: dict[str, Any], scope: str, target: str) -> bool:
    """The rule of the decision, written again."""
    text = target.removesuffix("*")
    entries = {entry["resource_prefix"]: entry["scopes"] for entry in rights.get("prefixes", [])}
    matching = [prefix for prefix in entries if text.startswith(prefix)]
    scopes = entries[max(matching, key=len)] if matching else rights.get("scopes", [])
    longer = [entries[prefix] for prefix in entries if prefix.startswith(text)] if target.endswith("*") else []
    return all(scope in each for each in [scopes, *longer])


def is_allowed(rights: dict[str, Any], call: Call) -> bool:
    exposed = call.exposed is None or "exposed" not in rights or call.exposed in rights["exposed"]
    return exposed and all(covers(rights, scope, target) for scope, target in call.needs)


def answer_of(api: Api, call: Call) -> Answer | None:
    """Returns the answer, or None for a stream that begins."""
    if not call.path.startswith("/v1/history/stream"):
        return api.call(call.method, call.path, call.body, call.headers)
    with EventStream(api, None, method="GET", path=call.path) as stream:
        return eventually(lambda: stream.refused or stream.head, goal="an answer") and stream.refused


@pytest.mark.parametrize("name", CREDENTIALS)
def test_every_endpoint_with_every_kind_of_rights(walked: Gateway, lease_ids: dict[str, str], name: str) -> None:
    api, rights = walked.api.with_key(key_of(name)), CREDENTIALS[name]
    wrong, allowed, denied = [], 0, 0
    for resource in RESOURCES:
        for call in calls_of(resource, lease_ids):
            answer = answer_of(api, call)
            refused = answer is not None and answer.status == 403 and answer.json()["type"] == "/problems/forbidden"
            allowed, denied = allowed + (not refused), denied + refused
            if refused == is_allowed(rights, call) or (
                answer is not None
                and answer.status in (400, 401, 404, 405)
                and call.method != "DELETE"
                and "fencing_token" not in call.path
            ):
                wrong.append(f"{call.method} {call.path} {call.body} {call.headers}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert allowed or name in ("bare_tokens",)
    assert denied or name == "all"


def test_every_endpoint_of_the_document_is_walked(lease_ids: dict[str, str], walked: Gateway) -> None:
    document = walked.api.get("/openapi.json").json()
    described = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        if path.startswith("/v1/")
        for method in methods
        if method in ("get", "post", "patch", "delete")
    }

    def template_of(path: str) -> str:
        parts = path.partition("?")[0].split("/")
        if parts[2:] == ["leases", "cancel"]:
            return path
        named = {"leases": "{lease_id}", "resources": "{resource}", "tables": "{table}", "rpc": "{function}"}
        return "/".join(
            [*parts[:3], *([named[parts[2]]] if parts[2] in named and len(parts) > 3 else parts[3:4]), *parts[4:]]
        )

    assert {(call.method, template_of(call.path)) for call in calls_of(OWN, lease_ids)} == described


def test_rights_of_the_caller_are_shown(walked: Gateway) -> None:
    shown = {name: walked.api.with_key(key_of(name)).get("/v1/rights").json() for name in CREDENTIALS}
    for name, rights in CREDENTIALS.items():
        everywhere = [scope for scope in ALL if covers(rights, scope, "*")]
        somewhere = [scope for scope in ALL if any(covers(rights, scope, resource) for resource in RESOURCES)]
        assert shown[name] == {
            "principal": "walker",
            "scopes": somewhere,
            "scopes_for_all_resources": everywhere,
            "all_rows": "exposed" not in rights,
        }, name


def test_rights_without_a_credential_are_none(walked: Gateway, cluster: Cluster) -> None:
    denials = "select count(*) from fencing.history where detail ->> 'route' = '/v1/rights'"
    nobody = walked.api.with_key("").get("/v1/rights")
    assert nobody.json() == {"principal": "", "scopes": [], "scopes_for_all_resources": [], "all_rows": False}
    expect_problem(walked.api.with_key("wrong").get("/v1/rights"), 401, "unauthenticated")
    eventually(lambda: cluster.query(denials) == [(1,)], goal="the wrong key, and it alone, is in the history")


@pytest.mark.parametrize("name, shown", [("all", True), ("exposed", True), ("own", False), ("not-secret", False)])
def test_resource_at_shows_tables_only_with_their_events(walked: Gateway, name: str, shown: bool) -> None:
    """What guard_changed tells of tables is for who may see all of the history."""
    api = walked.api.with_key(key_of(name))
    then = api.get(resource_path("own/1"), at="2026-11-21T10:00:00Z")
    assert then.status == 200 and (then.json()["tables"] is not None) == shown, then
    assert (api.get("/v1/history", event="guard_changed").status == 200) == shown


@pytest.mark.parametrize(
    "name, method, path, body, detail",
    [
        ("writes", "POST", "/v1/leases", {"resource": "a"}, "The caller lacks the scope 'leases'."),
        (
            "own",
            "POST",
            "/v1/leases",
            {"resources": ["own/1", "other/1"]},
            "The caller lacks the scope 'leases' for the resource other/1.",
        ),
        (
            "not-secret",
            "GET",
            "/v1/history",
            None,
            "The caller lacks the scope 'history' for the resources whose names begin with own/secret/.",
        ),
        (
            "not-secret",
            "GET",
            "/v1/history?resource_prefix=own/secret/x",
            None,
            "The caller lacks the scope 'history' for the resources whose names begin with own/secret/x.",
        ),
        ("own", "GET", "/v1/nodes", None, "The caller lacks the scope 'operate'."),
        ("exposed", "GET", "/v1/tables/unlisted", None, "The caller may not use the table or function unlisted."),
        ("exposed", "GET", "/v1/rpc/nothing_such", None, "The caller may not use the table or function nothing_such."),
    ],
)
def test_refusal_names_scope_and_what_lacks_it(
    walked: Gateway, name: str, method: str, path: str, body: Any, detail: str
) -> None:
    assert (
        expect_problem(walked.api.with_key(key_of(name)).call(method, path, body), 403, "forbidden")["detail"] == detail
    )


def test_description_of_tables_has_those_of_the_caller(walked: Gateway) -> None:
    def paths(name: str) -> set[str]:
        return set(walked.api.with_key(key_of(name)).get("/rest/v1/").json()["paths"])

    assert paths("exposed") == {"/listed", "/rpc/listed_value"}
    assert paths("exposed-none") == set()
    assert {"/listed", "/unlisted", "/rpc/unlisted_value"} <= paths("own")


def test_refused_write_changes_nothing(walked: Gateway, cluster: Cluster, lease_ids: dict[str, str]) -> None:
    api = walked.api.with_key(key_of("exposed"))
    operations = [{"insert": "listed", "values": {"note": "refused"}}, {"insert": "unlisted", "values": {}}]
    expect_problem(api.post("/v1/writes", {"lease_id": lease_ids[OWN], "operations": operations}), 403, "forbidden")
    assert cluster.query("select 1 from listed where note = 'refused'") == []


def test_revoke_needs_all_resources_of_the_lease(walked: Gateway) -> None:
    own, other = f"own/{uuid.uuid4().hex}", f"other/{uuid.uuid4().hex}"
    lease = walked.api.with_key(key_of("all")).post("/v1/leases", {"resources": [own, other], "ttl_ms": 2_000}).json()
    refused = walked.api.with_key(key_of("own")).revoke(own)
    assert (
        expect_problem(refused, 403, "forbidden")["detail"]
        == f"The caller lacks the scope 'operate' for the resource {other}."
    )
    assert walked.api.with_key(key_of("all")).release(lease).status == 204, "the lease was not revoked"


def test_lease_of_another_principal_needs_operate_for_it(walked: Gateway) -> None:
    leases = {
        resource: walked.api.with_key(key_of("operator")).must_acquire(f"{resource}{uuid.uuid4().hex}", ttl_ms=2_000)
        for resource in (OWN, OTHER)
    }
    own_and_leases = walked.api.with_key(key_of("own"))
    assert own_and_leases.renew(leases[OWN], 2_000).status == 200
    expect_problem(own_and_leases.renew(leases[OTHER], 2_000), 403, "forbidden")
    expect_problem(walked.api.with_key(key_of("own-leases")).renew(leases[OWN], 2_000), 403, "forbidden")
    expect_problem(walked.api.with_key(key_of("all-but-operate")).renew(leases[OTHER], 2_000), 403, "forbidden")


def test_holder_is_shown_for_resources_of_the_scope_history(walked: Gateway) -> None:
    resource = f"own/{uuid.uuid4().hex}"
    walked.api.with_key(key_of("operator")).must_acquire(resource, ttl_ms=2_000)
    assert (
        expect_problem(walked.api.with_key(key_of("own")).acquire(resource), 423, "resource-locked")["principal"]
        == "operator"
    )
    assert "principal" not in expect_problem(
        walked.api.with_key(key_of("own-leases")).acquire(resource), 423, "resource-locked"
    )
