"""SIGHUP: keys, certificates, hosts and the log level change without a restart, or nothing does."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from support.api import Api, expect_problem
from support.certificates import Authority
from support.cluster import Cluster
from support.events import EventStream, is_free, open_kept_lease
from support.polling import eventually
from support.processes import resident_bytes
from support.reloads import KEYS, WITHDRAWN, Reloaded, Rotation, key_entry

MIB = 1 << 20


@pytest.fixture
def keyed(cluster: Cluster) -> Iterator[Reloaded]:
    """A gateway with the API key `old`."""
    made = Reloaded(cluster, {**cluster.settings(), "auth": {"api_keys": [key_entry("old"), key_entry("admin")]}})
    yield made
    made.gateway.kill()


def test_reload_replaces_keys_on_open_connections(keyed: Reloaded, resource: str) -> None:
    with keyed.api("old").connection() as old, keyed.api("new").connection() as new:
        assert old.call("GET", "/v1/leases").status == 200
        expect_problem(new.call("GET", "/v1/leases"), 401, "unauthenticated")
        keyed.settings["auth"]["api_keys"].append(key_entry("new"))
        assert "changed: auth.api_keys" in keyed.reload()
        assert old.call("GET", "/v1/leases").status == new.call("GET", "/v1/leases").status == 200
        del keyed.settings["auth"]["api_keys"][0]
        keyed.reload()
        expect_problem(old.call("GET", "/v1/leases"), 401, "unauthenticated")
        assert new.post("/v1/leases", {"resource": resource}).status == 201


def test_reload_reads_key_file_again(keyed: Reloaded, tmp_path: Path) -> None:
    file = tmp_path / "principal.key"
    file.write_text(KEYS["old"])
    keyed.settings["auth"]["api_keys"][0] = {"principal": "filed", "key_file": str(file), "scopes": ["history"]}
    keyed.reload()
    assert keyed.api("old").get("/v1/leases").status == 200
    file.write_text(KEYS["new"])
    assert "changed: auth.api_keys" in keyed.signal("applied")
    expect_problem(keyed.api("old").get("/v1/leases"), 401, "unauthenticated")
    assert keyed.api("new").get("/v1/leases").status == 200


def test_reload_ends_kept_leases_and_waits_of_removed_keys(keyed: Reloaded, resource: str) -> None:
    """Whatever waits for a lease with a key ends with the key, so that its holder's release grants nothing to it."""
    old, admin = keyed.api("old"), keyed.api("admin")
    keyed.settings["auth"]["api_keys"][0]["scopes"].append("writes")
    keyed.reload()
    with open_kept_lease(admin, resource) as held, open_kept_lease(old, f"{resource}-kept", ttl_ms=2_000) as kept:
        held.wait_for_grant()
        kept.wait_for_grant()
        calls = [
            old.begin_acquire(resource, wait_ms=20_000),
            old.begin("POST", "/v1/leases", {"resource": resource, "wait_ms": 20_000}, {"Idempotency-Key": '"a"'}),
            old.begin(
                "POST",
                "/v1/writes",
                {
                    "lease": {"resource": resource, "wait_ms": 20_000},
                    "operations": [{"delete": "nothing", "where": {"id": 1}}],
                },
            ),
        ]
        with open_kept_lease(old, resource, wait_ms=20_000) as waiting:
            admin.await_waiters(resource, 4)
            keyed.settings["auth"]["api_keys"].append(key_entry("new"))
            keyed.reload()
            renewals = kept.names().count("renewed")
            eventually(
                lambda: kept.names().count("renewed") > renewals + 1,
                goal="the kept lease is renewed after a reload that leaves its key",
            )
            assert admin.waiters(resource) == 4
            del keyed.settings["auth"]["api_keys"][0]
            keyed.reload()
            kept.wait_for_end()
            waiting.wait_for_end()
            assert waiting.refused is not None
            for refused in (waiting.refused, *(call.answer() for call in calls)):
                assert expect_problem(refused, 401, "unauthenticated")["detail"] == WITHDRAWN
                assert refused.headers["WWW-Authenticate"] == 'Bearer realm="fencegate"'
        assert admin.waiters(resource) == 0
        held.disconnect()
        eventually(lambda: is_free(admin, resource), goal="nobody has the lease")


def test_reload_ends_history_streams_of_removed_keys(keyed: Reloaded) -> None:
    keyed.settings["auth"]["api_keys"].append(key_entry("new"))
    keyed.reload()
    old, new = (EventStream(keyed.api(name), None, {}, "GET", "/v1/history/stream") for name in ("old", "new"))
    with old, new:
        eventually(lambda: old.head and new.head, goal="the streams begin")
        del keyed.settings["auth"]["api_keys"][0]
        keyed.reload()
        eventually(lambda: old.ended, goal="the stream of the removed key ends")
        assert not new.ended
    assert not keyed.is_known("old") and keyed.is_known("new")


FAULTS = [
    ("auth.api_keys[0].key_sha256", lambda s: s["auth"]["api_keys"][0].update(key_sha256="short")),
    ("http.port", lambda s: s["http"].update(port=-1)),
    ("colour", lambda s: s.update(colour="red")),
    ("lease.signing_key_file", lambda s: s["lease"].update(signing_key_file="nowhere")),
]


@pytest.mark.parametrize("path, change", FAULTS, ids=[path for path, _ in FAULTS])
def test_reload_of_faulty_file_changes_nothing(keyed: Reloaded, path: str, change: Any) -> None:
    keyed.settings["auth"]["api_keys"].append(key_entry("new"))
    keyed.settings["http"]["allowed_hosts"] = ["shop.example"]
    change(keyed.settings)
    logged = keyed.reload("refused")
    assert f"configuration not reloaded, nothing has changed: {path}: " in logged
    assert keyed.api("old").get("/v1/leases").status == 200
    expect_problem(keyed.api("new").get("/v1/leases"), 401, "unauthenticated")
    assert keyed.api("old").get("/v1/leases", headers={"Host": "other.example"}).status == 200


@pytest.mark.parametrize(
    "text", ["auth:\n", "", "auth: {}\n", "auth: {api_keys: []}\n"], ids=["null", "absent", "empty", "no-keys"]
)
def test_reload_that_would_remove_all_credentials_is_refused(keyed: Reloaded, text: str) -> None:
    """A file that was cut off must not give every caller all rights."""
    del keyed.settings["auth"]
    rest = "".join(f"{name}: {json.dumps(section)}\n" for name, section in keyed.settings.items())
    keyed.gateway.config.write_text(rest + text)
    assert "configuration not reloaded, nothing has changed: auth: has no credentials any more" in keyed.signal(
        "refused"
    )
    expect_problem(keyed.gateway.api.with_key(None).get("/v1/leases"), 401, "unauthenticated")
    assert keyed.api("old").get("/v1/leases").status == 200


@pytest.mark.parametrize("which", ["configuration", "key_file"])
def test_reload_from_a_pipe_is_refused(keyed: Reloaded, tmp_path: Path, which: str) -> None:
    """Nobody writes into the pipe, so that reading it would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if which == "key_file":
        keyed.settings["auth"]["api_keys"][0] = {"principal": "filed", "key_file": str(pipe), "scopes": ["history"]}
        keyed.gateway.write_config(keyed.settings)
    else:
        keyed.gateway.config.unlink()
        keyed.gateway.config.symlink_to(pipe)
    assert "it is a pipe, and nothing is written into it" in keyed.signal("refused")
    assert keyed.api("old").get("/v1/leases").status == 200


def test_reload_of_missing_file_changes_nothing(keyed: Reloaded) -> None:
    keyed.gateway.config.unlink()
    assert "gateway-" in (logged := keyed.signal("refused")) and "cannot read" in logged
    assert "has no credentials" not in logged
    assert keyed.api("old").get("/v1/leases").status == 200


def test_reload_names_keys_that_need_restart(keyed: Reloaded) -> None:
    keyed.settings["http"]["port"] += 1
    keyed.settings["redis"]["node_timeout_ms"] = 900
    keyed.settings["redis"]["nodes"][0]["host"] = "localhost"
    keyed.settings["log"] = {"level": "debug"}
    logged = keyed.reload()
    assert "changed: log.level" in logged
    eventually(
        lambda: "a restart is needed for: http.port, redis.nodes, redis.node_timeout_ms"
        in keyed.gateway.log.read_text(),
        goal="the log names them",
    )
    assert keyed.api("old").get("/v1/leases").status == 200


def test_reload_changes_log_level(keyed: Reloaded) -> None:
    def log_of_request() -> str:
        logged = len(keyed.gateway.log.read_text())
        assert keyed.api("old").get("/v1/leases").status == 200
        return keyed.gateway.log.read_text()[logged:]

    assert '"route":"/v1/leases"' not in log_of_request()
    keyed.settings["log"] = {"level": "debug"}
    keyed.reload()
    assert '"route":"/v1/leases"' in (log_of_request() + log_of_request())
    keyed.settings["log"] = {"level": "error"}
    keyed.reload()
    eventually(lambda: '"route":"/v1/leases"' not in log_of_request(), goal="requests are no longer logged")


def test_reload_changes_allowed_hosts(keyed: Reloaded) -> None:
    keyed.settings["http"]["allowed_hosts"] = ["shop.example"]
    assert "changed: http.allowed_hosts" in keyed.reload()
    expect_problem(keyed.api("old").get("/v1/leases", headers={"Host": "other.example"}), 421, "misdirected-request")
    assert keyed.api("old").get("/v1/leases", headers={"Host": "shop.example"}).status == 200


def test_reload_without_change_says_so(keyed: Reloaded) -> None:
    assert "configuration reloaded; changed: nothing" in keyed.reload()


# Certificates


@pytest.fixture
def rotation(cluster: Cluster, tmp_path: Path) -> Iterator[Rotation]:
    made = Rotation(cluster, tmp_path)
    yield made
    made.reloaded.gateway.kill()


def test_reload_rotates_certificate_while_connections_are_open(rotation: Rotation, resource: str) -> None:
    gateway = rotation.reloaded.gateway
    with gateway.api.connection() as kept_open, open_kept_lease(gateway.api, resource, ttl_ms=2_000) as kept:
        assert kept_open.call("GET", "/healthz").status == 200
        kept.wait_for_grant()
        rotation.install(rotation.second.issue("gateway-2"))
        assert rotation.issuer() == "first"  # the files alone change nothing
        assert "changed: http.tls" in rotation.reloaded.signal("applied")
        assert rotation.issuer() == "second"
        assert kept_open.call("GET", "/healthz").status == 200
        renewals = kept.names().count("renewed")
        eventually(lambda: kept.names().count("renewed") > renewals, goal="the kept lease is renewed")


def test_reload_of_half_rotated_certificate_changes_nothing(rotation: Rotation) -> None:
    """The certificate is new, its key is not there yet."""
    rotation.certificate.write_bytes(rotation.second.issue("gateway-2").file.read_bytes())
    assert "http.tls.key_file: is not the key of the first certificate" in rotation.reloaded.signal("refused")
    assert rotation.issuer() == "first"


def test_reload_begins_to_require_client_certificates(rotation: Rotation) -> None:
    reloaded = rotation.reloaded
    caller = rotation.first.issue("caller")
    with reloaded.gateway.api.connection() as before:
        assert before.call("GET", "/healthz").status == 200
        identified = ssl.create_default_context(cafile=str(rotation.first.file))
        identified.load_cert_chain(caller.file, caller.key)
        reloaded.settings["http"]["tls"] |= {
            "client_ca_file": str(rotation.first.file),
            "client_certificates": "required",
        }
        reloaded.gateway.write_config(reloaded.settings)
        os.kill(reloaded.gateway.pid, signal.SIGHUP)
        with_certificate = Api(reloaded.gateway.api.url, tls=identified)
        eventually(
            lambda: "changed: http.tls" in reloaded.gateway.log.read_text(), goal="the configuration is reloaded"
        )
        assert with_certificate.get("/healthz").status == 200
        with pytest.raises(OSError):
            reloaded.gateway.api.get("/healthz")
        assert before.call("GET", "/healthz").status == 200  # an open connection keeps what it began with


# The address in use


@pytest.fixture(scope="module")
def other_address(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to be preloaded with which a program that listens on 192.0.2.1 listens on loopback in fact."""
    folder = tmp_path_factory.mktemp("address")
    (folder / "address.c").write_text(
        """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
int bind(int fd, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_in changed = *(const struct sockaddr_in *)address;
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    if (address->sa_family != AF_INET || changed.sin_addr.s_addr != inet_addr("192.0.2.1"))
        return real(fd, address, size);
    changed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return real(fd, (const struct sockaddr *)&changed, size);
}
"""
    )
    library = folder / "address.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(folder / "address.c"), "-ldl"], check=True)
    return library


def test_reload_that_would_expose_address_in_use_is_refused(
    cluster: Cluster, tmp_path: Path, other_address: Path
) -> None:
    """A file that is right for its own address could take keys and TLS from the one that is in use until a restart."""
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("gateway")
    settings = {**cluster.settings(), "auth": {"api_keys": [key_entry("old")]}}
    settings["http"] |= {
        "address": "192.0.2.1",
        "tls": {"certificate_file": str(issued.file), "key_file": str(issued.key)},
    }
    made = Reloaded(
        cluster, settings, ssl.create_default_context(cafile=str(authority.file)), LD_PRELOAD=str(other_address)
    )
    made.settings["http"]["address"] = "127.0.0.1"
    del made.settings["http"]["tls"]
    assert "http.address: 192.0.2.1 is not a loopback address, which it must be without http.tls" in made.reload(
        "refused"
    )
    assert made.api("old").get("/v1/leases").status == 200
    made.gateway.kill()


# Load


def test_reload_hundred_times_under_load_loses_no_request(keyed: Reloaded, resource: str) -> None:
    """Requests run on kept and on new connections, with a key that every file has,
    while one that alternates comes and goes."""
    keyed.settings["limits"] = {"address": {"failed_authentications_per_minute": 0}}
    stop = threading.Event()
    failed: list[object] = []
    done = [0, 0, 0]

    def call_in_turn(index: int) -> None:
        api = keyed.api("admin")
        try:
            with api.connection() as connection:
                while not stop.is_set():
                    call = connection.call if index < 2 else api.call
                    granted = call("POST", "/v1/leases", {"resource": f"{resource}-{index}", "ttl_ms": 2_000})
                    if (
                        granted.status in (410, 423)
                        or granted.status == 503
                        and granted.json()["type"] == "/problems/no-quorum"
                    ):
                        # The machine is busy: an answer comes after the end of the ttl, or nodes answer too late.
                        continue
                    released = call("DELETE", granted.headers["Location"] or "/")
                    if granted.status != 201 or released.status not in (204, 410):
                        failed.append((str(granted), str(released)))
                    done[index] += 1
        except Exception as failure:
            failed.append(repr(failure))

    callers = [threading.Thread(target=call_in_turn, args=(index,)) for index in range(3)]
    for caller in callers:
        caller.start()

    def reload_times(count: int) -> None:
        for number in range(count):
            keyed.settings["auth"]["api_keys"][0] = key_entry("new" if number % 2 else "old")
            keyed.reload()
            known, unknown = ("new", "old") if number % 2 else ("old", "new")
            assert keyed.is_known(known) and not keyed.is_known(unknown)

    try:
        reload_times(20)
        before = resident_bytes(keyed.gateway.pid)
        reload_times(100)
        grown = resident_bytes(keyed.gateway.pid) - before
    finally:
        stop.set()
        for caller in callers:
            caller.join(30)
    assert not failed and min(done) > 50, (failed[:3], done)
    assert grown < 4 * MIB, grown


def test_reload_event_has_changed_rights_and_limits(keyed: Reloaded) -> None:
    keyed.settings["auth"]["api_keys"].append(key_entry("new"))
    keyed.settings["auth"]["api_keys"][0]["scopes"] = ["history"]
    keyed.settings["limits"] = {"principals": [{"principal": "old", "leases_max": 5}]}
    keyed.reload()
    admin = keyed.api("admin")
    item = eventually(
        lambda: admin.history(event="configuration_reloaded", limit=1), goal="the reload is in the history"
    )[0]
    assert item["detail"]["changed"] == ["auth.api_keys", "limits"] and "gateway" in item["detail"]
    rules = item["detail"]["rules"]
    assert all(KEYS[name] not in str(item) for name in KEYS)
    by_principal = {(rule["now"] or {}).get("principal", rule["name"]): rule for rule in rules}
    assert by_principal["new"]["was"] is None and by_principal["new"]["name"].startswith("key:")
    assert by_principal["old"]["was"]["scopes"] == ["leases", "history", "operate"]
    assert by_principal["old"]["now"]["scopes"] == ["history"]
    assert by_principal["limits.principals.old"]["now"]["leases_max"] == 5 and len(rules) == 3
