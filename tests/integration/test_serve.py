"""`fencegate serve`, `migrate` and `check` with servers that run already."""

from __future__ import annotations

import copy
import json
import re
import socket
import subprocess
import time
from typing import Any, Callable

import psycopg2
import pytest
from support import processes
from support.api import expect_problem
from support.cluster import SIGNING_KEY, Cluster, Gateway
from support.polling import eventually
from support.stack import Stack
from support.wire import Wire, request

BAD_CONFIG, UNAVAILABLE = 78, 69


def serve_fails(cluster: Cluster, settings: Any, name: str) -> subprocess.CompletedProcess:
    file = cluster.folder / f"{name}.yaml"
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return cluster.run("serve", file, timeout=30)


def test_config_with_faults_exits_78_and_names_all_paths(cluster: Cluster) -> None:
    settings = cluster.settings(max_ttl_ms=-5, default_ttl_ms="soon")
    settings["http"]["port"] = 99_999
    settings["http"]["threads"] = 0
    settings["postgres"] = {}
    settings["redis"]["nodes"][2]["port"] = "six"
    settings["colour"] = "red"
    settings["lease"]["signing_key_file"] = "nowhere"
    done = serve_fails(cluster, settings, "faulty")
    assert done.returncode == BAD_CONFIG, done
    for path in (
        "http.port http.threads lease.max_ttl_ms lease.default_ttl_ms lease.signing_key_file "
        "postgres.conninfo redis.nodes[2].port colour"
    ).split():
        assert path in done.stderr, f"{path} in {done.stderr}"


CHANGES: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("redis.nodes", lambda s: s["redis"]["nodes"].pop()),
    ("redis.nodes", lambda s: s["redis"].update(nodes=[])),
    ("redis.nodes[1].name", lambda s: s["redis"]["nodes"][1].update(name=s["redis"]["nodes"][0]["name"])),
    ("redis.nodes[0].host", lambda s: s["redis"]["nodes"][0].pop("host")),
    ("redis.node_timeout_ms", lambda s: s["redis"].update(node_timeout_ms=0)),
    ("lease.default_ttl_ms", lambda s: s["lease"].update(default_ttl_ms=99)),
    ("lease.max_hold_ms", lambda s: s["lease"].update(max_hold_ms=1_000)),
    ("http.address", lambda s: s["http"].update(address="0.0.0.0")),
    ("http.address", lambda s: s["http"].update(address="localhost:80")),
    ("postgres.connections", lambda s: s["postgres"].update(connections=0)),
    ("postgres.lock_timeout_ms", lambda s: s["postgres"].update(lock_timeout_ms=10**9)),
    ("log.level", lambda s: s.update(log={"level": "loud"})),
    ("audit.on_full", lambda s: s.update(audit={"on_full": "panic"})),
    (
        "auth.api_keys[0].scopes",
        lambda s: s.update(auth={"api_keys": [{"principal": "x", "key_sha256": "0" * 64, "scopes": ["everything"]}]}),
    ),
    (
        "auth.api_keys[0].key_sha256",
        lambda s: s.update(auth={"api_keys": [{"principal": "x", "key_sha256": "plain", "scopes": ["leases"]}]}),
    ),
    ("htp", lambda s: s.update(htp={})),
    ("http.prot", lambda s: s["http"].update(prot=1)),
]


@pytest.mark.parametrize("path, change", CHANGES, ids=[f"{number}-{path}" for number, (path, _) in enumerate(CHANGES)])
def test_config_with_one_wrong_value_exits_78_and_names_path(
    cluster: Cluster, path: str, change: Callable[[dict[str, Any]], object]
) -> None:
    settings = copy.deepcopy(cluster.settings())
    change(settings)
    done = serve_fails(cluster, settings, "one-fault")
    assert done.returncode == BAD_CONFIG, done
    assert path in done.stderr, done.stderr


@pytest.mark.parametrize(
    "text", ["", "- a\n- b\n", "http: [", "\x00\x01", "just words"], ids=["empty", "list", "cut", "binary", "words"]
)
def test_config_not_a_mapping_exits_78(cluster: Cluster, text: str) -> None:
    done = serve_fails(cluster, text, "no-mapping")
    assert done.returncode == BAD_CONFIG and done.stderr, done


def test_config_file_missing_is_named(cluster: Cluster) -> None:
    done = cluster.run("serve", cluster.folder / "there-is-none.yaml")
    assert done.returncode in (64, BAD_CONFIG)
    assert "there-is-none.yaml" in done.stderr


def test_isolation_set_for_the_login_is_not_used(cluster: Cluster, stack: Stack, resource: str) -> None:
    """The guard's functions rely on read committed."""
    stack.query(
        "create function isolation() returns text language sql stable as $$ "
        "select current_setting('transaction_isolation') $$; select fencing.expose_function('isolation()')",
        dbname=cluster.database,
    )
    settings = cluster.settings()
    settings["postgres"]["conninfo"] += " options='-c default_transaction_isolation=serializable'"
    gateway = cluster.start_gateway(settings)
    lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
    assert gateway.api.must_write(lease, {"call": "isolation"})["results"] == [{"value": "read committed"}]
    assert gateway.stop() == 0
    stack.query("select fencing.hide('isolation'); drop function isolation()", dbname=cluster.database)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_ipv6_address_has_brackets_in_the_log(cluster: Cluster) -> None:
    settings = cluster.settings()
    if has_ipv6():
        settings["http"]["address"] = "::1"
        gateway = cluster.gateway(settings)
        gateway.start(wait=False)
        eventually(
            lambda: f"listens on http://[::1]:{settings['http']['port']}" in gateway.log.read_text(), goal="it listens"
        )
        gateway.stop()
    settings["http"]["address"] = "2001:db8::1"  # of no machine (RFC 3849)
    file = cluster.folder / "ipv6.yaml"
    file.write_text(json.dumps(settings))
    done = cluster.run("serve", file, "--insecure", timeout=30)
    assert (
        done.returncode == UNAVAILABLE and f"cannot listen on [2001:db8::1]:{settings['http']['port']}: " in done.stdout
    ), done


def test_stop_exits_0_and_frees_port(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    gateway.api.must_acquire(resource, ttl_ms=1_000)
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 10
    assert not processes.accepts(gateway.api.port)


def test_stop_writes_buffered_events_to_history(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    """Events in the buffer are written before the gateway ends."""
    with gateway.api.connection() as connection:
        for _ in range(200):
            answer = connection.post("/v1/leases", {"resource": resource, "ttl_ms": 2_000})
            assert connection.call("DELETE", answer.headers["Location"]).status == 204
    assert gateway.stop() == 0
    counted = cluster.query(
        "select event, count(*) from fencing.history where resource = %s group by 1 order by 1", (resource,)
    )
    assert counted == [("lease_granted", 200), ("lease_released", 200)]


def test_stop_answers_waiting_callers_503_shutting_down(gateway: Gateway, resource: str) -> None:
    gateway.api.must_acquire(resource, ttl_ms=2_000)
    waiters = [gateway.api.begin_acquire(resource, wait_ms=20_000) for _ in range(3)]
    gateway.api.await_waiters(resource, 3)
    assert all(waiter.is_alive() for waiter in waiters)
    assert gateway.stop() == 0
    for waiter in waiters:
        answer = waiter.answer(10)
        expect_problem(answer, 503, "shutting-down")
        assert int(answer.headers["Retry-After"]) >= 1


def test_stop_does_not_wait_for_idle_connections(gateway: Gateway) -> None:
    idle = [Wire(gateway.api.host, gateway.api.port) for _ in range(5)]
    idle[0].send(request("GET", "/healthz"))
    assert idle[0].receive().status == 200
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 4, "callers have 5 s"
    for wire in idle:
        assert wire.is_closed()
        wire.socket.close()


def test_stop_waits_bounded_time_for_unfinished_request(gateway: Gateway) -> None:
    with Wire(gateway.api.host, gateway.api.port) as slow:
        slow.send(b"GET /heal")
        began = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - began < 10


def test_start_before_nodes_is_ready_once_they_answer(cluster: Cluster, resource: str) -> None:
    for node in cluster.nodes:
        node.kill()
    gateway = cluster.gateway()
    gateway.start(wait=False)
    eventually(lambda: gateway.api.get("/healthz").status == 200, goal="it is alive")
    expect_problem(gateway.api.get("/readyz"), 503, "no-quorum")
    expect_problem(gateway.api.acquire(resource), 503, "no-quorum")
    for node in cluster.nodes:
        node.start()
    gateway.wait_until_ready()
    gateway.api.must_release(gateway.api.must_acquire(resource, ttl_ms=1_000))
    assert gateway.stop() == 0


def test_start_without_postgresql_exits_69_and_hides_password(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["postgres"][
        "conninfo"
    ] = f"host=127.0.0.1 port={processes.free_port()} dbname=x user=x password=never-to-be-shown connect_timeout=2"
    done = serve_fails(cluster, settings, "no-postgres")
    assert done.returncode == UNAVAILABLE, done
    assert "never-to-be-shown" not in done.stdout + done.stderr


def test_start_without_migration_exits_69_and_names_migrate(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["postgres"]["conninfo"] = cluster.stack.conninfo("template1")
    done = serve_fails(cluster, settings, "not-migrated")
    assert done.returncode == UNAVAILABLE, done
    assert "migrate" in done.stdout + done.stderr


def test_schema_of_later_version_is_refused_by_every_command(cluster: Cluster, gateway: Gateway, stack: Stack) -> None:
    """A running gateway is not affected: the schema is installed first, then the gateways are replaced."""
    stack.query("insert into fencing.schema_version (version) values (2)", dbname=cluster.database)
    reason = "The schema `fencing` has version 2, this program needs 1: "
    try:
        started = serve_fails(cluster, cluster.settings(), "later-schema")
        assert started.returncode == UNAVAILABLE and reason in started.stdout + started.stderr, started
        checked = cluster.run("check", gateway.config)
        assert checked.returncode == UNAVAILABLE and f"FAULT schema: {reason}" in checked.stdout, checked
        installed = processes.run(
            [str(processes.fencegate_binary()), "migrate", "--conninfo", stack.conninfo(cluster.database)], timeout=60
        )
        assert (
            installed.returncode == 1
            and "the schema fencing has version 2, and this program installs version 1; nothing was changed."
            in installed.stderr
        ), installed
        gateway.api.must_release(gateway.api.must_acquire("test/later-schema", ttl_ms=1_000))
    finally:
        stack.query("delete from fencing.schema_version where version = 2", dbname=cluster.database)


def test_start_with_schema_without_version_names_migrate(cluster: Cluster, stack: Stack) -> None:
    settings = cluster.settings()
    stack.query("delete from fencing.schema_version", dbname=cluster.database)
    try:
        done = serve_fails(cluster, settings, "earlier-schema")
        assert (
            done.returncode == UNAVAILABLE
            and "has version 0, this program needs 1: run `fencegate migrate`." in done.stdout + done.stderr
        ), done
    finally:
        cluster.migrate()


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: settings["redis"]["nodes"][0].update(name="another-name"),
        lambda settings: settings["lease"].update(max_ttl_ms=3_000),
        lambda settings: settings["redis"].update(nodes=settings["redis"]["nodes"][:3]),
    ],
    ids=["names", "longest-lease", "fewer-nodes"],
)
def test_start_with_settings_unlike_cluster_is_refused(
    cluster: Cluster, gateway: Gateway, change: Callable[[Any], None]
) -> None:
    settings = cluster.settings()
    change(settings)
    done = serve_fails(cluster, settings, "disagrees")
    assert done.returncode in (UNAVAILABLE, BAD_CONFIG), done
    assert "differs" in done.stdout + done.stderr
    assert gateway.api.get("/readyz").status == 200


def test_start_with_port_in_use_ends_and_names_port(cluster: Cluster, gateway: Gateway) -> None:
    settings = cluster.settings()
    settings["http"]["port"] = gateway.api.port
    done = serve_fails(cluster, settings, "port-taken")
    assert done.returncode in (1, UNAVAILABLE), done
    assert str(gateway.api.port) in done.stdout + done.stderr


def test_node_configured_under_two_names_counts_once(cluster: Cluster) -> None:
    """Addresses with one run id are one node: counted three times, one server would be a majority of five."""
    settings = cluster.settings()
    first = settings["redis"]["nodes"][0]
    for node in settings["redis"]["nodes"][:3]:
        node.update(host=first["host"], port=first["port"])
    gateway = cluster.gateway(settings)
    gateway.start(wait=False)
    eventually(
        lambda: gateway.process.poll() is not None or gateway.api.get("/healthz").status == 200,
        goal="it ends or is alive",
    )
    if gateway.process.poll() is None:
        deadline = time.monotonic() + 2 * cluster.max_ttl_ms / 1000
        while time.monotonic() < deadline:
            assert gateway.api.get("/readyz").status == 503
            assert gateway.api.acquire("test/one-node-thrice").status == 503
        gateway.kill()
    else:
        assert gateway.process.returncode in (UNAVAILABLE, BAD_CONFIG)


def test_log_json_has_only_json_lines_and_no_secret(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    lease = gateway.api.must_acquire(resource, ttl_ms=1_000)
    gateway.api.must_release(lease)
    gateway.stop()
    text = gateway.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines and all(isinstance(line, dict) for line in lines)
    assert SIGNING_KEY not in text
    assert lease["lease_id"] not in text


def test_migrate_run_again_loses_nothing(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    gateway.api.must_release(gateway.api.must_acquire(resource, ttl_ms=1_000))
    eventually(lambda: len(gateway.api.history(resource=resource)) == 2, goal="two events")
    cluster.migrate()
    assert len(gateway.api.history(resource=resource)) == 2
    assert gateway.api.must_acquire(resource, ttl_ms=1_000)


def test_check_healthy_exits_0_and_names_every_node(cluster: Cluster, gateway: Gateway) -> None:
    done = cluster.run("check", gateway.config)
    assert done.returncode == 0, done
    for node in cluster.nodes:
        assert node.name in done.stdout
    assert re.search("postgres", done.stdout, re.IGNORECASE)


def test_check_without_majority_exits_69_and_names_nodes(cluster: Cluster, gateway: Gateway) -> None:
    for node in cluster.nodes[:3]:
        node.kill()
    try:
        done = cluster.run("check", gateway.config)
        assert done.returncode == UNAVAILABLE, done
        for node in cluster.nodes[:3]:
            assert node.name in done.stdout + done.stderr
    finally:
        for node in cluster.nodes[:3]:
            node.start()
    gateway.wait_until_ready()


def test_check_with_disabled_guard_trigger_exits_69_and_names_it(
    cluster: Cluster, gateway: Gateway, stack: Stack
) -> None:
    connection = stack.sql(dbname=cluster.database)
    try:
        connection.cursor().execute("create table watched (id text); select fencing.protect('watched', 'id')")
        done = cluster.run("check", gateway.config)
        assert done.returncode == 0 and "ok    guard" in done.stdout, done
        connection.cursor().execute(
            "alter table watched disable trigger fencing_check_update; grant all on watched to public"
        )
        done = cluster.run("check", gateway.config)
        assert done.returncode == UNAVAILABLE, done
        for message in (
            "FAULT guard: public.watched: the trigger fencing_check_update is not always on",
            "FAULT guard: public.watched: public has the privilege trigger",
        ):
            assert message in done.stdout, done
    finally:
        connection.cursor().execute("select fencing.unprotect('watched'); drop table watched")
        connection.close()


def test_migrate_sets_up_recorder_of_refused_direct_sql(cluster: Cluster, gateway: Gateway, stack: Stack) -> None:
    connection = stack.sql(dbname=cluster.database)
    with connection.cursor() as cursor:
        cursor.execute("create table recorded (id text); select fencing.protect('recorded', $$'recorded/' || id$$)")
        try:
            with pytest.raises(psycopg2.Error):
                cursor.execute("insert into recorded values ('one')")
            cursor.execute(
                "select event, principal, detail ->> 'sqlstate' from fencing.history where resource = 'recorded/one'"
            )
            assert cursor.fetchall() == [("write_rejected", "postgres", "FG428")]
            done = cluster.run("check", gateway.config)
            assert done.returncode == 0 and "ok    recorder" in done.stdout, done
            cursor.execute(
                "select rolname from pg_roles r, pg_database d where rolname = 'fencing_recorder_' || d.oid "
                "and datname = current_database()"
            )
            login = cursor.fetchone()[0]
            cursor.execute(f"alter role {login} nologin")
            done = cluster.run("check", gateway.config)
            assert (
                done.returncode == UNAVAILABLE
                and "FAULT recorder: refusals of direct SQL are not recorded: " in done.stdout
                and "sql/README.md" in done.stdout
            ), done
            cursor.execute(f"alter role {login} login")
        finally:
            cursor.execute("select fencing.unprotect('recorded'); drop table recorded")
    connection.close()


def test_check_without_recorder_warns(cluster: Cluster, stack: Stack, unique_name: Callable[[str], str]) -> None:
    database = unique_name("norecorder").replace("-", "_")
    stack.query(f"create database {database}")
    cluster.migrate(database)
    stack.query("drop extension dblink cascade", dbname=database)
    settings = cluster.settings()
    settings["postgres"]["conninfo"] = stack.conninfo(database)
    file = cluster.folder / "check-recorder.yaml"
    file.write_text(json.dumps(settings))
    done = cluster.run("check", file)
    assert done.returncode == 0 and "recorder: WARNING: refusals of direct SQL are not recorded" in done.stdout, done


def test_check_without_postgresql_exits_69(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["postgres"]["conninfo"] = f"host=127.0.0.1 port={processes.free_port()} dbname=x user=x connect_timeout=2"
    file = cluster.folder / "check.yaml"
    file.write_text(json.dumps(settings))
    assert cluster.run("check", file).returncode == UNAVAILABLE


@pytest.mark.parametrize(
    "lock_timeout_ms, reason",
    [(200, "canceling statement due to lock timeout"), (1_000, "canceling statement due to statement timeout")],
    ids=["lock", "statement"],
)
def test_check_with_locked_schema_ends_and_says_why(
    cluster: Cluster, stack: Stack, lock_timeout_ms: int, reason: str
) -> None:
    settings = cluster.settings()
    settings["postgres"].update(statement_timeout_ms=1_000, lock_timeout_ms=lock_timeout_ms)
    file = cluster.folder / "check-locked.yaml"
    file.write_text(json.dumps(settings))
    connection = stack.sql(dbname=cluster.database)
    try:
        connection.cursor().execute("begin; lock table fencing.schema_version in access exclusive mode")
        done = cluster.run("check", file, timeout=20)
        assert (
            done.returncode == UNAVAILABLE
            and f"FAULT schema: The schema `fencing` can't be read: {reason}" in done.stdout
        ), done
    finally:
        connection.close()
    file.write_text(json.dumps(cluster.settings()))
    assert cluster.run("check", file).returncode == 0


def test_check_with_faulty_config_exits_78(cluster: Cluster) -> None:
    file = cluster.folder / "check-faulty.yaml"
    file.write_text("{}")
    assert cluster.run("check", file).returncode == BAD_CONFIG
