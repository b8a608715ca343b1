"""`fencegate dev`: the embedded stack itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
import urllib.parse
from typing import Callable, Iterator

import psycopg2
import pytest
from psycopg2.extensions import make_dsn, parse_dsn
from support import processes
from support.api import Api, expect_problem
from support.polling import eventually
from support.shop import create_sku
from support.stack import Stack, running


def test_stack_file_facts_are_true(stack: Stack) -> None:
    facts = stack.read()
    assert facts["http"] == facts["gateways"][0]["http"]
    assert facts["http"].startswith("http://127.0.0.1:")
    assert "api_keys" not in facts
    assert len(facts["redis"]) == 5
    assert len({node["name"] for node in facts["redis"]}) == 5
    assert len({(node["host"], node["port"]) for node in facts["redis"]}) == 5
    for node, client in zip(facts["redis"], stack.nodes()):
        assert set(node) == {"name", "host", "port", "pid"}
        assert client.info("server")["process_id"] == node["pid"]
    assert set(facts["postgres"]) == {"host", "port", "database", "superuser", "conninfo", "tcp", "pid"}
    assert parse_dsn(facts["postgres"]["conninfo"]) == {
        "host": facts["postgres"]["host"],
        "port": str(facts["postgres"]["port"]),
        "dbname": facts["postgres"]["database"],
        "user": facts["postgres"]["superuser"],
    }
    assert stat.S_ISDIR(os.stat(facts["postgres"]["host"]).st_mode)
    assert stack.query("select current_setting('is_superuser'), current_database()") == [
        ("on", facts["postgres"]["database"])
    ]
    (pid_line, *_) = stack.query("select pg_read_file('postmaster.pid')")[0][0].splitlines()
    assert int(pid_line) == facts["postgres"]["pid"]
    for gateway in facts["gateways"]:
        assert processes.is_alive(gateway["pid"])


def test_dev_psql_line_runs_in_shell_with_spaces_in_path() -> None:
    stack = Stack()
    stack.data = stack.folder / "my own data"
    try:
        stack.start()
        (line,) = [line for line in stack.log.read_text().splitlines() if line.startswith("  postgresql ")]
        command = line.removeprefix("  postgresql ").strip()
        assert str(stack.data) in command
        done = processes.run(["bash", "-c", f"{command} -XAtc 'select current_database()'"], timeout=30)
        assert (done.returncode, done.stdout.strip()) == (0, stack.facts["postgres"]["database"]), done
    finally:
        stack.remove()


def test_servers_listen_only_on_loopback(stack: Stack) -> None:
    assert stack.query("show listen_addresses")[0][0] in ("", "127.0.0.1", "localhost")
    for node in stack.nodes():
        assert node.config_get("bind")["bind"] == "127.0.0.1"


def test_dev_started_by_root_runs_postgresql_unprivileged(stack: Stack) -> None:
    assert os.stat(f"/proc/{stack.read()['postgres']['pid']}").st_uid != 0


def test_shop_is_stocked_and_protected(stack: Stack) -> None:
    assert stack.query("select count(*) from inventory where sku in ('sku-1', 'sku-10')") == [(2,)]
    assert stack.query("select count(*) from fencing.protected") >= [(3,)]


def claim(port: int) -> socket.socket:
    """Claims an endpoint as a stack does that has chosen it and whose server does not listen yet."""
    claimed = socket.socket(socket.AF_UNIX)
    claimed.bind(f"\0fencegate dev 127.0.0.1:{port}")
    return claimed


def test_dev_ports_chosen_by_another_stack_are_not_taken(stack: Stack) -> None:
    """Its servers listen seconds after the choice; a gateway of this one would then not listen,
    and the other's would answer for it."""
    for port in [
        int(stack.facts["http"].rpartition(":")[2]),
        stack.facts["postgres"]["port"],
        *(node["port"] for node in stack.facts["redis"]),
    ]:
        with pytest.raises(OSError, match="in use"):
            claim(port)
    ports = {
        "gateway-1": 32_101,
        "postgres": 32_102,
        **{f"redis-{n}": 32_102 + n for n in range(1, 6)},
    }  # no stack chooses these
    other = Stack()
    other.data.mkdir()
    (other.data / "ports").write_text("".join(f"{name} {port}\n" for name, port in ports.items()))
    try:
        with claim(ports["gateway-1"]), claim(ports["redis-3"]):
            other.start()
            found = {
                "gateway-1": int(other.facts["http"].rpartition(":")[2]),
                "postgres": other.facts["postgres"]["port"],
                **{node["name"]: node["port"] for node in other.facts["redis"]},
            }
            assert {name for name, port in found.items() if port != ports[name]} == {"gateway-1", "redis-3"}
            refused = processes.run(
                [
                    processes.fencegate_binary(),
                    "dev",
                    "--data-dir",
                    str(other.folder / "second"),
                    "--http",
                    "127.0.0.1:32101",
                ],
                timeout=30,
            )
            assert refused.returncode != 0 and "127.0.0.1:32101 is in use" in refused.stderr, refused
    finally:
        other.remove()


def test_stack_file_has_tcp_and_a_password_for_jdbc(stack: Stack) -> None:
    postgres = stack.read()["postgres"]
    tcp = postgres["tcp"]
    jdbc = urllib.parse.urlsplit(tcp["jdbc"].removeprefix("jdbc:"))
    user = dict(urllib.parse.parse_qsl(jdbc.query))
    given = {
        "host": tcp["host"],
        "port": postgres["port"],
        "dbname": postgres["database"],
        "user": postgres["superuser"],
        "password": tcp["password"],
    }
    of_jdbc = {"host": jdbc.hostname, "port": jdbc.port, "dbname": jdbc.path.removeprefix("/"), **user}
    assert tcp["jdbc"].startswith("jdbc:postgresql://") and of_jdbc == given
    for dsn in (tcp["url"], make_dsn(**given)):
        with contextlib.closing(psycopg2.connect(dsn)) as session, session.cursor() as cursor:
            cursor.execute("select host(inet_server_addr()), current_user, current_database()")
            assert cursor.fetchone() == (tcp["host"], postgres["superuser"], postgres["database"])
    with pytest.raises(psycopg2.OperationalError, match="password"):
        psycopg2.connect(make_dsn(**given | {"password": "wrong"}))


def test_dev_killed_node_is_restarted_on_its_port(own_stack: Stack) -> None:
    before = own_stack.read()["redis"][4]
    os.kill(before["pid"], signal.SIGKILL)
    after = eventually(
        lambda: (node := own_stack.read()["redis"][4])["pid"] != before["pid"] and node,
        goal="stack.json names the new one",
    )
    assert (after["name"], after["port"]) == (before["name"], before["port"])
    eventually(lambda: own_stack.nodes()[4].info("server")["process_id"] == after["pid"], 5)


def test_dev_killed_postgresql_is_restarted(own_stack: Stack) -> None:
    before = own_stack.read()["postgres"]
    os.kill(before["pid"], signal.SIGQUIT)
    after = eventually(
        lambda: (found := own_stack.read()["postgres"])["pid"] != before["pid"] and found,
        15,
        goal="stack.json names the new one",
    )
    assert {**after, "pid": 0} == {**before, "pid": 0}
    own_stack.facts = own_stack.read()
    eventually(lambda: own_stack.api().get("/readyz").status == 200, 30)
    assert own_stack.query("select 1") == [(1,)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_dev_stop_exits_0_and_leaves_no_process(number: int) -> None:
    with running() as stack:
        everything = stack.process_ids()
        assert len(everything) >= 7, "dev, five nodes, PostgreSQL"
        assert stack.stop(number) == 0
        processes.wait_until_gone(everything, 5)
        assert not processes.pids_in_folder(stack.data)
        for node in stack.facts["redis"]:
            assert not processes.accepts(node["port"])


def test_dev_stop_ends_hanging_node_too() -> None:
    with running() as stack:
        everything = stack.process_ids()
        processes.signal_all(stack.node_pids()[:1], signal.SIGSTOP)
        assert stack.stop() == 0
        processes.wait_until_gone(everything, 5)


def test_dev_stop_during_start_leaves_no_process() -> None:
    stack = Stack()
    try:
        stack.process = processes.start(
            [str(processes.fencegate_binary()), "dev", "--data-dir", str(stack.data), "--http", "127.0.0.1:0"],
            stack.log,
        )
        pid = stack.process.pid
        eventually(lambda: len(processes.descendants(pid)) >= 1, 20, goal="it has started a process")
        stack.stop()
        eventually(lambda: not processes.pids_in_folder(stack.data), 2, goal="nothing is left")
    finally:
        stack.remove()


def test_dev_restart_keeps_data_and_tokens_grow(unique_name: Callable[[str], str]) -> None:
    with running() as stack:
        goods = create_sku(stack, unique_name("kept"), 10)
        old = stack.api().must_acquire(goods.resource, ttl_ms=1_000, owner="before")
        stack.api().must_write(old, goods.sell(4))
        events = len(stack.api().history(resource=goods.resource, event="write_applied"))
        assert stack.stop() == 0
        seconds = stack.start()
        assert seconds < 40, f"{seconds} s: its nodes vote at once, without sitting out the longest lease of 60 s"
        api = stack.api()
        assert goods.stock() == 6
        assert len(api.history(resource=goods.resource, event="write_applied")) == events == 1
        assert api.history(resource=goods.resource, owner="before", event="lease_granted")
        new = eventually(
            lambda: (answer := api.acquire(goods.resource, wait_ms=2_000)).status == 201 and answer, 75, goal="granted"
        ).json()
        assert new["fencing_token"] > old["fencing_token"]
        api.must_write(new, goods.sell())
        expect_problem(api.write(old, goods.sell()), 412, "stale-fencing-token")
        assert goods.stock() == 5


def test_dev_restart_after_kill_recovers(unique_name: Callable[[str], str]) -> None:
    """SIGKILL of every process, as when the machine is switched off."""
    with running() as stack:
        goods = create_sku(stack, unique_name("crashed"), 10)
        lease = stack.api().must_acquire(goods.resource, ttl_ms=1_000)
        stack.api().must_write(lease, goods.sell())
        stack.kill()
        stack.start()
        assert goods.stock() == 9
        new = eventually(
            lambda: (answer := stack.api().acquire(goods.resource, wait_ms=2_000)).status == 201 and answer,
            75,
            goal="granted",
        ).json()
        assert new["fencing_token"] > lease["fencing_token"]


def test_dev_folder_in_use_refuses_second_stack(own_stack: Stack) -> None:
    before = own_stack.read()
    second = processes.run_fencegate("dev", "--data-dir", str(own_stack.data), "--http", "127.0.0.1:0", timeout=30)
    assert second.returncode not in (0, -11)
    assert str(own_stack.data) in second.stdout + second.stderr
    assert own_stack.read() == before
    assert own_stack.api().get("/readyz").status == 200


def test_arguments_wrong_exit_64() -> None:
    for arguments in (
        ["dev", "--nope"],
        ["nope"],
        ["dev", "--http", "nowhere"],
        ["dev", "--postgres", "5432"],
        ["serve"],
    ):
        done = processes.run_fencegate(*arguments, timeout=20)
        assert done.returncode == 64, (arguments, done.returncode, done.stderr)
        assert done.stderr


# --auth


@pytest.fixture(scope="module")
def auth_stack() -> Iterator[Stack]:
    with running("--auth") as made:
        yield made


def test_dev_auth_writes_three_keys_that_only_owner_can_read(auth_stack: Stack) -> None:
    keys = auth_stack.read()["api_keys"]
    assert set(keys) == {"admin", "orders", "auditor"}
    assert len(set(keys.values())) == 3 and all(len(key) >= 16 for key in keys.values())
    assert stat.S_IMODE(os.stat(auth_stack.data / "stack.json").st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer ", "Bearer", "Basic YWRtaW46YWRtaW4=", "bearer-ish x"]
)
def test_key_missing_or_wrong_401(auth_stack: Stack, header: str | None) -> None:
    api = auth_stack.api().with_key(None)
    headers = {} if header is None else {"Authorization": header}
    for method, path, body in (
        ("POST", "/v1/leases", {"resource": "a"}),
        ("POST", "/v1/writes", {"operations": []}),
        ("GET", "/v1/history", None),
    ):
        answer = api.call(method, path, body, headers)
        expect_problem(answer, 401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_health_is_answered_without_key(auth_stack: Stack) -> None:
    api = auth_stack.api().with_key(None)
    assert api.get("/healthz").status == 200
    assert api.get("/readyz").status == 200


def test_dev_orders_key_leases_and_writes_as_its_principal(
    auth_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    goods = create_sku(auth_stack, unique_name("auth"), 10)
    orders = auth_stack.api(key="orders")
    lease = orders.must_acquire(goods.resource)
    assert orders.renew(lease).status == 200
    orders.must_write(lease, goods.sell())
    orders.must_release(lease)
    items = eventually(
        lambda: len(found := auth_stack.api(key="auditor").history(resource=goods.resource)) == 4 and found,
        goal="four events",
    )
    assert {item["principal"] for item in items} == {"orders"}


def test_auditor_key_leases_and_writes_403(auth_stack: Stack, resource: str) -> None:
    auditor = auth_stack.api(key="auditor")
    lease = auth_stack.api().must_acquire(resource)
    expect_problem(auditor.acquire(resource), 403, "forbidden")
    expect_problem(auditor.write(lease, {"delete": "inventory", "where": {"sku": "x"}}), 403, "forbidden")
    expect_problem(auditor.release(lease), 403, "forbidden")
    expect_problem(auditor.renew(lease), 403, "forbidden")
    assert auditor.get("/v1/history").status == 200
    assert auth_stack.api().read_lease(lease).status == 200


def test_orders_key_reads_of_history_403(auth_stack: Stack) -> None:
    expect_problem(auth_stack.api(key="orders").get("/v1/history"), 403, "forbidden")


def test_key_that_is_refused_is_never_logged(auth_stack: Stack) -> None:
    auth_stack.api().with_key("a-secret-that-was-mistyped").get("/v1/history")
    log_text = auth_stack.log.read_text()
    assert "a-secret-that-was-mistyped" not in log_text
    assert not [key for key in auth_stack.read()["api_keys"].values() if key in log_text]


# --gateways 2


@pytest.fixture(scope="module")
def pair_stack() -> Iterator[Stack]:
    with running("--gateways", "2") as made:
        yield made


def apis_of(pair_stack: Stack) -> tuple[Api, Api]:
    return pair_stack.api(0), pair_stack.api(1)


def test_gateways_two_are_two_processes_with_ports(pair_stack: Stack) -> None:
    gateways = pair_stack.read()["gateways"]
    assert len(gateways) == 2
    assert len({gateway["http"] for gateway in gateways}) == len({gateway["pid"] for gateway in gateways}) == 2


def test_dev_lease_of_one_gateway_is_served_by_other(pair_stack: Stack, unique_name: Callable[[str], str]) -> None:
    first, second = apis_of(pair_stack)
    goods = create_sku(pair_stack, unique_name("twin"), 10)
    lease = first.must_acquire(goods.resource)
    assert second.read_lease(lease).json()["fencing_token"] == lease["fencing_token"]
    assert second.renew(lease).json()["fencing_token"] == lease["fencing_token"]
    expect_problem(second.acquire(goods.resource), 423, "resource-locked")
    second.must_write(lease, goods.sell())
    first.must_write(lease, goods.sell())
    assert goods.stock() == 8
    second.must_release(lease)
    expect_problem(first.read_lease(lease), 410, "lease-lost")
    assert first.must_acquire(goods.resource)["fencing_token"] > lease["fencing_token"]


def test_dev_waiter_is_served_after_release_at_other_gateway(pair_stack: Stack, resource: str) -> None:
    first, second = apis_of(pair_stack)
    for holder, waiter in ((first, second), (second, first)):
        held = holder.must_acquire(resource)
        call = waiter.begin_acquire(resource, wait_ms=10_000)
        call.join(0.3)
        assert call.is_alive()
        holder.must_release(held)
        answer = call.answer()
        assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
        waiter.must_release(answer.json())


def test_dev_contending_gateways_one_holder_and_growing_tokens(pair_stack: Stack, resource: str) -> None:
    notes: list[int] = []

    def contend(api: Api) -> None:
        for _ in range(15):
            lease = api.must_acquire(resource, wait_ms=20_000)
            notes.append(lease["fencing_token"])
            api.must_release(lease)

    threads = [threading.Thread(target=contend, args=(api,)) for api in apis_of(pair_stack) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(notes) == 60
    assert notes == sorted(set(notes))


def test_stale_write_at_other_gateway_412(pair_stack: Stack, unique_name: Callable[[str], str]) -> None:
    first, second = apis_of(pair_stack)
    goods = create_sku(pair_stack, unique_name("twin-stale"), 10)
    a = first.must_acquire(goods.resource, ttl_ms=300)
    b = second.must_acquire(goods.resource, wait_ms=2_000)
    second.must_write(b, goods.sell(3))
    for gateway in (first, second):
        expect_problem(gateway.write(a, goods.sell()), 412, "stale-fencing-token")
    assert goods.stock() == 7


def test_dev_killed_gateway_is_restarted_while_other_serves(
    pair_stack: Stack, unique_name: Callable[[str], str]
) -> None:
    first, second = apis_of(pair_stack)
    lease = first.must_acquire(unique_name("test/killed"))
    before = pair_stack.read()["gateways"][0]
    os.kill(before["pid"], signal.SIGKILL)
    assert second.renew(lease).status == 200
    eventually(lambda: pair_stack.read()["gateways"][0]["pid"] != before["pid"], goal="it is started again")
    pair_stack.facts = pair_stack.read()
    eventually(lambda: pair_stack.api(0).get("/readyz").status == 200, 20)
    pair_stack.api(0).must_release(lease)
