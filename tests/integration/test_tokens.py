"""JSON Web Tokens of an identity provider, with keys from a file and by a URL."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from support import processes
from support.api import Answer, expect_problem
from support.certificates import Certificates
from support.cluster import Cluster, Gateway, credential
from support.events import EventStream, open_kept_lease
from support.polling import eventually, pause
from support.reloads import Reloaded, key_entry
from support.tokens import AUDIENCE, ISSUER, KeyServer, SigningKey, base64url, key_set, openssl

API_KEY = "an-api-key-of-somebody"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SigningKey]:
    folder = tmp_path_factory.mktemp("keys")
    return {algorithm: SigningKey(folder, algorithm, f"key-{algorithm}") for algorithm in ("RS256", "ES256", "EdDSA")}


@pytest.fixture(scope="module")
def start(cluster: Cluster) -> Iterator[Callable[..., Gateway]]:
    """Starts a gateway that accepts tokens, with these members of auth.jwt, and ends it with the module."""
    made: list[Gateway] = []

    def start_one(api_keys: list[dict[str, Any]] | None = None, **members: Any) -> Gateway:
        settings = cluster.settings()
        settings["auth"] = {"api_keys": api_keys or [], "jwt": {"issuer": ISSUER, "audience": AUDIENCE, **members}}
        made.append(cluster.start_gateway(settings))
        return made[-1]

    yield start_one
    for gateway in made:
        gateway.kill()


@pytest.fixture(scope="module")
def gateway(
    start: Callable[..., Gateway], keys: dict[str, SigningKey], tmp_path_factory: pytest.TempPathFactory
) -> Gateway:
    file: Path = tmp_path_factory.mktemp("set") / "jwks.json"
    file.write_text(key_set(*keys.values()))
    return start(
        [credential("somebody", API_KEY, "leases", "history")],
        jwks_file=str(file),
        prefixes_claim="/fencegate/prefixes",
        exposed_claim="/fencegate/exposed",
    )


def expect_invalid_token(answer: Answer, detail: str) -> None:
    assert expect_problem(answer, 401, "unauthenticated")["detail"] == detail
    assert (
        answer.headers["WWW-Authenticate"]
        == f'Bearer realm="fencegate", error="invalid_token", error_description="{detail}"'
    )


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_token_of_each_algorithm_is_its_principal(
    gateway: Gateway, keys: dict[str, SigningKey], resource: str, algorithm: str
) -> None:
    api = gateway.api.with_key(keys[algorithm].token(sub="carla", scope="openid leases history"))
    lease = api.must_acquire(resource, ttl_ms=2_000)
    assert api.release(lease).status == 204
    items = eventually(lambda: len(found := api.history(resource=resource)) == 2 and found, goal="two events")
    assert {item["principal"] for item in items} == {"carla"}


def test_claims_narrow_the_rights(gateway: Gateway, keys: dict[str, SigningKey], resource: str) -> None:
    api = gateway.api.with_key(
        keys["ES256"].token(scope="", fencegate={"prefixes": [{"resource_prefix": "test/", "scopes": ["leases"]}]})
    )
    assert api.acquire(resource, ttl_ms=1_000).status == 201
    assert (
        expect_problem(api.acquire("other/1"), 403, "forbidden")["detail"]
        == "The caller lacks the scope 'leases' for the resource other/1."
    )
    expect_invalid_token(
        gateway.api.with_key(
            keys["ES256"].token(fencegate={"prefixes": [{"resource_prefix": "test/", "scopes": ["lease"]}]})
        ).acquire(resource),
        "The token's claim of prefixes is malformed.",
    )


def test_tokens_that_are_refused(gateway: Gateway, keys: dict[str, SigningKey], tmp_path: Path) -> None:
    rsa, ecdsa, now = keys["RS256"], keys["ES256"], int(time.time())
    good = rsa.token()
    head, payload, signature = good.split(".")
    none = base64url(json.dumps({"alg": "none", "kid": rsa.kid}).encode())
    no_signature, bad_form = (
        "The token's signature is not valid.",
        "The token is not a JSON Web Token of three parts in base64url.",
    )
    for token, detail in {
        f"{none}.{payload}.{signature}": "The token's algorithm is not allowed.",
        f"{none}.{payload}.": bad_form,
        rsa.token({"alg": "HS256"}): "The token's algorithm is not allowed.",
        rsa.token({"alg": "ES256"}): "The token's algorithm is not that of its key.",
        ecdsa.token({"kid": rsa.kid}): "The token's algorithm is not that of its key.",
        SigningKey(tmp_path, "RS256", rsa.kid).token(): no_signature,
        f"{head}.{base64url(json.dumps({'sub': 'admin'}).encode())}.{signature}": no_signature,
        rsa.token({"kid": "../../dev/null"}): "The token's header has no valid kid.",
        rsa.token({"kid": "another"}): "The token is signed with a key that the gateway does not know.",
        rsa.token({"jwk": rsa.jwk()}): "The token's header is not allowed.",
        rsa.token({"jku": "http://127.0.0.1:1/keys"}): "The token's header is not allowed.",
        rsa.token({"crit": ["exp"]}): "The token's header is not allowed.",
        rsa.token(exp=None): "The token has no valid exp.",
        rsa.token(exp=now - 31): "The token has expired.",
        rsa.token(nbf=now + 300): "The token is not valid yet.",
        rsa.token(iss="https://other.example"): "The token is of another issuer.",
        rsa.token(aud="other"): "The token is for another audience.",
        rsa.token(sub=None): "The token names no valid principal.",
        rsa.token(padding="x" * 6_500): "The token is longer than 8 KiB.",
    }.items():
        expect_invalid_token(gateway.api.with_key(token).acquire("a"), detail)
    assert gateway.api.with_key(good).acquire("refused/none", ttl_ms=1_000).status == 201
    log_text = gateway.log.read_text()
    assert signature not in log_text and payload not in log_text


def test_key_beside_token_has_to_be_of_its_principal(gateway: Gateway, keys: dict[str, SigningKey]) -> None:
    path = "/v1/leases/x"
    for principal, key, status in (
        ("somebody", API_KEY, 403),
        ("carla", API_KEY, 401),
        ("somebody", "a-wrong-api-key-of-all", 401),
    ):
        answer = gateway.api.with_key(keys["EdDSA"].token(sub=principal)).call("GET", path, headers={"X-Api-Key": key})
        assert answer.status == status, (principal, answer)


def test_gateway_with_tokens_alone_has_no_keyless_caller(
    start: Callable[..., Gateway], keys: dict[str, SigningKey], tmp_path: Path
) -> None:
    (tmp_path / "jwks.json").write_text(key_set(keys["EdDSA"]))
    api = start(jwks_file=str(tmp_path / "jwks.json")).api
    expect_problem(api.acquire("a"), 401, "unauthenticated")
    expect_problem(api.with_key("no-token").acquire("a"), 401, "unauthenticated")
    assert api.with_key(keys["EdDSA"].token()).acquire("alone/1", ttl_ms=1_000).status == 201


def test_rotated_key_is_requested_once(start: Callable[..., Gateway], keys: dict[str, SigningKey]) -> None:
    with KeyServer(key_set(keys["EdDSA"])) as server:
        api = start(jwks_url=server.url, refresh_ms=3_600_000).api
        old, new = api.with_key(keys["EdDSA"].token()), api.with_key(keys["ES256"].token())
        assert old.get("/v1/leases/x").status == 403 and server.requests == 1
        server.answer = key_set(keys["EdDSA"], keys["ES256"])
        expect_problem(new.get("/v1/leases/x"), 401, "unauthenticated")
        eventually(lambda: new.get("/v1/leases/x").status == 403, goal="the new key is known")
        for _ in range(50):
            expect_problem(api.with_key(keys["RS256"].token()).get("/v1/leases/x"), 401, "unauthenticated")
        assert server.requests == 2, "unknown keys cause one request a minute"
        assert old.get("/v1/leases/x").status == 403


def test_key_server_that_fails_leaves_the_gateway_ready(
    start: Callable[..., Gateway], keys: dict[str, SigningKey]
) -> None:
    with KeyServer(None) as server:
        gateway = start(jwks_url=server.url, refresh_ms=10_000)
        assert gateway.api.get("/readyz").status == 200
        api = gateway.api.with_key(keys["EdDSA"].token())
        expect_invalid_token(api.get("/v1/leases/x"), "The token is signed with a key that the gateway does not know.")
        assert "the answer has the status 500" in gateway.log.read_text()
        server.answer = key_set(keys["EdDSA"])
        eventually(lambda: api.get("/v1/leases/x").status == 403, 25, goal="the keys are requested again")
        server.answer = "x" * (256 * 1024 + 1)
        requests = server.requests
        eventually(lambda: server.requests > requests, 25, goal="another request")
        assert api.get("/v1/leases/x").status == 403, "a failed request leaves the keys"
        eventually(
            lambda: "the answer is longer than 262144 bytes" in gateway.log.read_text(), goal="the failure is logged"
        )


def test_streams_end_with_the_token(gateway: Gateway, keys: dict[str, SigningKey], resource: str) -> None:
    token = keys["ES256"].token(exp=int(time.time()) - 22, scope="leases history")  # with the clock skew it lasts 8 s
    api = gateway.api.with_key(token)
    with EventStream(api, None, method="GET", path="/v1/history/stream") as history, EventStream(
        api, {"resource": resource, "ttl_ms": 2_000}
    ) as kept:
        eventually(lambda: history.head and kept.head, goal="both streams")
        eventually(lambda: history.ended and kept.ended, 20, goal="both streams end")
        assert kept.events[-1].name == "released"
    expect_invalid_token(api.get("/v1/history"), "The token has expired.")


def test_export_ends_with_the_token(
    gateway: Gateway, cluster: Cluster, keys: dict[str, SigningKey], resource: str
) -> None:
    cluster.query(
        "insert into fencing.history (event, resource, fencing_token, owner) select 'lease_granted', %s, n, "
        "repeat('o', 250) from generate_series(1, 60000) n",
        (resource,),
    )
    api = gateway.api.with_key(
        keys["ES256"].token(exp=int(time.time()) - 25, scope="history")
    )  # with the clock skew it lasts 5 s
    with api.connection() as connection:
        connection.wire.connect()
        connection.wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.send("GET", f"/v1/history?resource={resource}", headers={"Accept": "application/x-ndjson"})
        answer = connection.wire.getresponse()
        assert answer.status == 200
        pause(7, "the token ends while the caller reads nothing")
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    assert "the export is incomplete: the caller's token or certificate has ended" in gateway.log.read_text()


def test_streams_end_with_the_key_of_their_token(
    start: Callable[..., Gateway], keys: dict[str, SigningKey], resource: str
) -> None:
    with KeyServer(key_set(keys["EdDSA"], keys["ES256"])) as server:
        gateway = start(jwks_url=server.url, refresh_ms=3_600_000)
        withdrawn, stays = (
            gateway.api.with_key(keys[name].token(scope="leases history")) for name in ("ES256", "EdDSA")
        )
        path = "/v1/history/stream"
        with EventStream(withdrawn, None, method="GET", path=path) as history, EventStream(
            withdrawn, {"resource": resource, "ttl_ms": 2_000}
        ) as kept, EventStream(stays, None, method="GET", path=path) as other:
            eventually(lambda: history.head and kept.head and other.head, goal="the streams begin")
            server.answer = key_set(keys["EdDSA"])
            expect_problem(
                gateway.api.with_key(keys["RS256"].token()).get("/v1/leases/x"), 401, "unauthenticated"
            )  # has the keys requested
            eventually(lambda: history.ended and kept.ended, goal="the streams of the withdrawn key end")
            assert kept.events[-1].name == "released" and not other.ended


def test_waits_end_with_the_key_of_their_token(
    start: Callable[..., Gateway], keys: dict[str, SigningKey], resource: str
) -> None:
    with KeyServer(key_set(keys["EdDSA"], keys["ES256"])) as server:
        gateway = start(jwks_url=server.url, refresh_ms=3_600_000)
        withdrawn, stays = (
            gateway.api.with_key(keys[name].token(sub=name, scope="leases history")) for name in ("ES256", "EdDSA")
        )
        with open_kept_lease(stays, resource) as held, open_kept_lease(withdrawn, resource, wait_ms=20_000) as waiting:
            held.wait_for_grant()
            stays.await_waiters(resource, 1)
            server.answer = key_set(keys["EdDSA"])
            expect_problem(
                gateway.api.with_key(keys["RS256"].token()).get("/v1/leases/x"), 401, "unauthenticated"
            )  # has the keys requested
            waiting.wait_for_end()
            assert waiting.refused is not None
            expect_problem(waiting.refused, 401, "unauthenticated")
            assert not held.ended


def test_faulty_key_set_is_named(cluster: Cluster, tmp_path: Path) -> None:
    settings = cluster.settings()
    (tmp_path / "jwks.json").write_text("{}")
    settings["auth"] = {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(tmp_path / "jwks.json")}}
    (tmp_path / "gateway.yaml").write_text(json.dumps(settings))
    done = cluster.run("check", tmp_path / "gateway.yaml")
    assert done.returncode != 0 and "auth.jwt.jwks_file: " in done.stderr and "is not a JSON Web Key Set" in done.stderr


# Another source of keys


@pytest.fixture
def reloaded(cluster: Cluster, keys: dict[str, SigningKey]) -> Iterator[Reloaded]:
    """A gateway whose keys of tokens come from a server."""
    with KeyServer(key_set(keys["EdDSA"])) as server:
        made = Reloaded(
            cluster,
            {
                **cluster.settings(),
                "auth": {
                    "api_keys": [key_entry("admin")],
                    "jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": server.url, "refresh_ms": 3_600_000},
                },
            },
        )
        yield made
        made.gateway.kill()


def test_reload_with_key_url_that_fails_is_refused(
    reloaded: Reloaded, keys: dict[str, SigningKey], resource: str
) -> None:
    api = reloaded.gateway.api.with_key(keys["EdDSA"].token())
    with KeyServer(None) as server, open_kept_lease(api, resource) as kept:
        kept.wait_for_grant()
        reloaded.settings["auth"]["jwt"]["jwks_url"] = server.url
        reloaded.settings["auth"]["api_keys"].append(key_entry("new"))
        logged = reloaded.reload("refused")
        assert (
            "configuration not reloaded, nothing has changed: auth.jwt.jwks_url: the answer has the status 500"
            in logged
        )
        assert api.get("/v1/leases/x").status == 403 and not kept.ended and not reloaded.is_known("new")
        server.answer = key_set(keys["ES256"])
        reloaded.reload()
        kept.wait_for_end()
        expect_problem(api.get("/v1/leases/x"), 401, "unauthenticated")
        assert reloaded.gateway.api.with_key(keys["ES256"].token()).get(
            "/v1/leases/x"
        ).status == 403 and reloaded.is_known("new")
        server.answer = key_set()
        reloaded.settings["auth"]["jwt"]["jwks_url"] += "?empty"
        reloaded.reload()
        expect_problem(reloaded.gateway.api.with_key(keys["ES256"].token()).get("/v1/leases/x"), 401, "unauthenticated")


def test_reload_ends_requests_of_replaced_key_url(reloaded: Reloaded, keys: dict[str, SigningKey]) -> None:
    def count_threads() -> int:
        return len(os.listdir(f"/proc/{reloaded.gateway.pid}/task"))

    before = count_threads()
    with KeyServer(key_set(keys["EdDSA"])) as server, reloaded.gateway.api.connection() as idle:
        assert idle.call("GET", "/healthz").status == 200
        reloaded.settings["auth"]["jwt"]["jwks_url"] = server.url
        reloaded.reload()
        assert count_threads() == before, "one thread requests keys"


@pytest.mark.parametrize(
    "answer, result",
    [
        (None, "FAULT keys of tokens: {url}: the answer has the status 500"),
        ('{"keys": 1}', "FAULT keys of tokens: {url}: the answer"),
        ('{"keys": []}', "ok    keys of tokens: {url} has 0"),
    ],
    ids=["no-answer", "no-set", "set"],
)
def test_check_requests_keys(cluster: Cluster, tmp_path: Path, answer: str | None, result: str) -> None:
    settings = cluster.settings()
    with KeyServer(answer) as server:
        settings["auth"] = {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": server.url}}
        (tmp_path / "gateway.yaml").write_text(json.dumps(settings))
        done = cluster.run("check", tmp_path / "gateway.yaml")
    assert result.format(url=server.url) in done.stdout and (done.returncode == 0) == result.startswith("ok"), done


def test_jwks_ca_file_replaces_the_systems_authorities(cluster: Cluster, tmp_path: Path) -> None:
    """In a name space of mounts the system trusts the foreign authority alone,
    by the folder that libcurl reads beside its file."""
    system = tmp_path / "certs"
    system.mkdir()
    pki = Certificates(tmp_path)
    name = openssl("x509", "-hash", "-noout", "-in", str(pki.foreign.file)).decode().strip()
    (system / f"{name}.0").write_bytes(pki.foreign.file.read_bytes())
    (system / "ca-certificates.crt").write_bytes(pki.root.file.read_bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pki.of_foreign.file, pki.of_foreign.key)
    with KeyServer('{"keys": []}', tls) as server:
        for authorities, accepted in (
            ({}, True),
            ({"jwks_ca_file": str(pki.foreign.file)}, True),
            ({"jwks_ca_file": str(pki.root.file)}, False),
        ):
            settings = {
                **cluster.settings(),
                "auth": {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": server.url, **authorities}},
            }
            (tmp_path / "gateway.yaml").write_text(json.dumps(settings))
            script = (
                f"mount --bind {system} /etc/ssl/certs && exec {processes.fencegate_binary()} check --config "
                f'{tmp_path / "gateway.yaml"}'
            )
            enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
            done = processes.run([*enter, "sh", "-c", script], timeout=60)
            assert ("ok    keys of tokens: " in done.stdout) == accepted and (
                "FAULT keys of tokens: " in done.stdout
            ) != accepted, (authorities, done)


def test_check_shows_no_password_of_proxy(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://u:hun ter2@localhost:1")
    settings = {
        **cluster.settings(),
        "auth": {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": "https://issuer.invalid/keys"}},
    }
    (tmp_path / "gateway.yaml").write_text(json.dumps(settings))
    done = cluster.run("check", tmp_path / "gateway.yaml")
    assert (
        "keys: http_proxy, https_proxy or all_proxy is not the URL of a proxy" in done.stdout
        and "ter2" not in done.stdout + done.stderr
    ), done
