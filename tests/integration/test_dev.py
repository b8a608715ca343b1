"""`fencegate dev`: the embedded stack itself."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
from typing import Callable, Iterator

import pytest
from psycopg2.extensions import parse_dsn
from support import processes
from support.api import Api, expect_problem
from support.polling import eventually
from support.shop import stock_up
from support.stack import Stack, running


def test_stack_file_when_ready_then_every_fact_is_true(stack: Stack) -> None:
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
    assert set(facts["postgres"]) == {"host", "port", "database", "superuser", "conninfo", "pid"}
    assert parse_dsn(facts["postgres"]["conninfo"]) == {
        "host": facts["postgres"]["host"], "port": str(facts["postgres"]["port"]), "dbname": facts["postgres"]["database"], "user": facts["postgres"]["superuser"]}
    assert stat.S_ISDIR(os.stat(facts["postgres"]["host"]).st_mode)
    assert stack.query("select current_setting('is_superuser'), current_database()") == [("on", facts["postgres"]["database"])]
    (pid_line, *_) = stack.query("select pg_read_file('postmaster.pid')")[0][0].splitlines()
    assert int(pid_line) == facts["postgres"]["pid"]
    for gateway in facts["gateways"]:
        assert processes.is_alive(gateway["pid"])


def test_servers_when_running_then_only_on_loopback(stack: Stack) -> None:
    assert stack.query("show listen_addresses")[0][0] in ("", "127.0.0.1", "localhost")
    for node in stack.nodes():
        assert node.config_get("bind")["bind"] == "127.0.0.1"


def test_postgresql_when_started_by_root_then_it_runs_as_somebody_else(stack: Stack) -> None:
    assert os.stat(f"/proc/{stack.read()['postgres']['pid']}").st_uid != 0


def test_shop_when_installed_then_it_is_stocked_and_protected(stack: Stack) -> None:
    assert stack.query("select count(*) from inventory where sku in ('sku-1', 'sku-10')") == [(2,)]
    assert stack.query("select count(*) from fencing.protected") >= [(3,)]


def test_node_when_killed_then_started_again_on_its_port(own_stack: Stack) -> None:
    before = own_stack.read()["redis"][4]
    os.kill(before["pid"], signal.SIGKILL)
    after = eventually(lambda: (node := own_stack.read()["redis"][4])["pid"] != before["pid"] and node, 10, what="stack.json names the new one")
    assert (after["name"], after["port"]) == (before["name"], before["port"])
    eventually(lambda: own_stack.nodes()[4].info("server")["process_id"] == after["pid"], 5)


def test_postgresql_when_killed_then_started_again(own_stack: Stack) -> None:
    before = own_stack.read()["postgres"]
    os.kill(before["pid"], signal.SIGQUIT)
    after = eventually(lambda: (found := own_stack.read()["postgres"])["pid"] != before["pid"] and found, 15, what="stack.json names the new one")
    assert {**after, "pid": 0} == {**before, "pid": 0}
    own_stack.facts = own_stack.read()
    eventually(lambda: own_stack.api().get("/readyz").status == 200, 30)
    assert own_stack.query("select 1") == [(1,)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_stack_when_stopped_then_exit_0_and_no_process_is_left(number: int) -> None:
    with running() as stack:
        everything = stack.everything()
        assert len(everything) >= 7, "dev, five nodes, PostgreSQL"
        assert stack.stop(number) == 0
        processes.wait_until_gone(everything, 1)
        assert not processes.working_below(stack.data)
        for node in stack.facts["redis"]:
            assert not processes.accepts(node["port"])


def test_stack_when_stopped_while_a_node_hangs_then_it_goes_too() -> None:
    with running() as stack:
        everything = stack.everything()
        processes.signal_all(stack.node_pids()[:1], signal.SIGSTOP)
        assert stack.stop() == 0
        processes.wait_until_gone(everything, 1)


def test_stack_when_stopped_while_it_starts_then_no_process_is_left() -> None:
    stack = Stack()
    try:
        stack.process = processes.start([str(processes.fencegate_binary()), "dev", "--data-dir", str(stack.data), "--http", "127.0.0.1:0"], stack.log)
        pid = stack.process.pid
        eventually(lambda: len(processes.descendants(pid)) >= 1, 20, what="it has started something")
        stack.stop()
        eventually(lambda: not processes.working_below(stack.data), 2, what="nothing is left")
    finally:
        stack.remove()


def test_stack_when_started_again_then_its_data_is_there_and_tokens_go_on(fresh: Callable[[str], str]) -> None:
    with running() as stack:
        goods = stock_up(stack, fresh("kept"), 10)
        old = stack.api().take(goods.resource, ttl_ms=1_000, owner="before")
        stack.api().wrote(old, goods.sell(4))
        events = len(stack.api().history(resource=goods.resource, event="write_applied"))
        assert stack.stop() == 0
        seconds = stack.start()
        assert seconds < 10, f"{seconds} s"
        api = stack.api()
        assert goods.stock() == 6
        assert len(api.history(resource=goods.resource, event="write_applied")) == events == 1
        assert api.history(resource=goods.resource, owner="before", event="lease_granted")
        new = eventually(lambda: (got := api.ask(goods.resource, wait_ms=2_000)).status == 201 and got, 75, what="granted").json()
        assert new["fencing_token"] > old["fencing_token"]
        api.wrote(new, goods.sell())
        expect_problem(api.write(old, goods.sell()), 412, "stale-fencing-token")
        assert goods.stock() == 5


def test_stack_when_killed_and_started_again_then_it_comes_up(fresh: Callable[[str], str]) -> None:
    """kill -9 of all of it, as when the machine is switched off."""
    with running() as stack:
        goods = stock_up(stack, fresh("crashed"), 10)
        lease = stack.api().take(goods.resource, ttl_ms=1_000)
        stack.api().wrote(lease, goods.sell())
        stack.kill()
        stack.start()
        assert goods.stock() == 9
        new = eventually(lambda: (got := stack.api().ask(goods.resource, wait_ms=2_000)).status == 201 and got, 75, what="granted").json()
        assert new["fencing_token"] > lease["fencing_token"]


def test_folder_when_in_use_then_a_second_stack_refuses_and_the_first_is_unharmed(own_stack: Stack) -> None:
    before = own_stack.read()
    second = subprocess.run([str(processes.fencegate_binary()), "dev", "--data-dir", str(own_stack.data), "--http", "127.0.0.1:0"],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, preexec_fn=processes.ended_with_parent)
    assert second.returncode not in (0, -11)
    assert str(own_stack.data) in second.stdout + second.stderr
    assert own_stack.read() == before
    assert own_stack.api().get("/readyz").status == 200


def test_arguments_when_wrong_then_exit_64() -> None:
    for arguments in (["dev", "--nope"], ["nope"], ["dev", "--http", "nowhere"], ["serve"]):
        done = subprocess.run([str(processes.fencegate_binary()), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              preexec_fn=processes.ended_with_parent)
        assert done.returncode == 64, (arguments, done.returncode, done.stderr)
        assert done.stderr


# --auth


@pytest.fixture(scope="module")
def guarded() -> Iterator[Stack]:
    with running("--auth") as made:
        yield made


def test_keys_when_auth_is_on_then_three_in_the_stack_file_which_others_cannot_read(guarded: Stack) -> None:
    keys = guarded.read()["api_keys"]
    assert set(keys) == {"admin", "orders", "auditor"}
    assert len(set(keys.values())) == 3 and all(len(key) >= 16 for key in keys.values())
    assert stat.S_IMODE(os.stat(guarded.data / "stack.json").st_mode) & 0o077 == 0


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Bearer", "Basic YWRtaW46YWRtaW4=", "bearer-ish x"])
def test_key_when_missing_or_wrong_then_401(guarded: Stack, header: str | None) -> None:
    api = guarded.api().with_key(None)
    headers = {} if header is None else {"Authorization": header}
    for method, path, body in (("POST", "/v1/leases", {"resource": "a"}), ("POST", "/v1/writes", {"operations": []}), ("GET", "/v1/history", None)):
        answer = api.call(method, path, body, headers)
        expect_problem(answer, 401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_health_when_asked_without_a_key_then_answered(guarded: Stack) -> None:
    api = guarded.api().with_key(None)
    assert api.get("/healthz").status == 200
    assert api.get("/readyz").status == 200


def test_orders_when_it_takes_and_writes_then_allowed_and_named_in_the_history(guarded: Stack, fresh: Callable[[str], str]) -> None:
    goods = stock_up(guarded, fresh("auth"), 10)
    orders = guarded.api(key="orders")
    lease = orders.take(goods.resource)
    assert orders.renew(lease).status == 200
    orders.wrote(lease, goods.sell())
    orders.give_back(lease)
    items = eventually(lambda: len(found := guarded.api(key="auditor").history(resource=goods.resource)) == 4 and found, what="four events")
    assert {item["principal"] for item in items} == {"orders"}


def test_auditor_when_it_would_take_or_write_then_403(guarded: Stack, resource: str) -> None:
    auditor = guarded.api(key="auditor")
    lease = guarded.api().take(resource)
    expect_problem(auditor.ask(resource), 403, "forbidden")
    expect_problem(auditor.write(lease, {"delete": "inventory", "where": {"sku": "x"}}), 403, "forbidden")
    expect_problem(auditor.release(lease), 403, "forbidden")
    expect_problem(auditor.renew(lease), 403, "forbidden")
    assert auditor.get("/v1/history").status == 200
    assert guarded.api().look(lease).status == 200


def test_orders_when_it_would_read_the_history_then_403(guarded: Stack) -> None:
    expect_problem(guarded.api(key="orders").get("/v1/history"), 403, "forbidden")


def test_refused_key_when_wrong_then_never_in_the_log(guarded: Stack) -> None:
    guarded.api().with_key("a-secret-that-was-mistyped").get("/v1/history")
    words = guarded.log.read_text()
    assert "a-secret-that-was-mistyped" not in words
    assert not [key for key in guarded.read()["api_keys"].values() if key in words]


# --gateways 2


@pytest.fixture(scope="module")
def twins() -> Iterator[Stack]:
    with running("--gateways", "2") as made:
        yield made


def pair(twins: Stack) -> tuple[Api, Api]:
    return twins.api(0), twins.api(1)


def test_gateways_when_two_then_two_processes_and_ports(twins: Stack) -> None:
    gateways = twins.read()["gateways"]
    assert len(gateways) == 2
    assert len({gateway["http"] for gateway in gateways}) == len({gateway["pid"] for gateway in gateways}) == 2


def test_lease_when_from_one_gateway_then_the_other_serves_every_call(twins: Stack, fresh: Callable[[str], str]) -> None:
    one, other = pair(twins)
    goods = stock_up(twins, fresh("twin"), 10)
    lease = one.take(goods.resource)
    assert other.look(lease).json()["fencing_token"] == lease["fencing_token"]
    assert other.renew(lease).json()["fencing_token"] == lease["fencing_token"]
    expect_problem(other.ask(goods.resource), 423, "resource-locked")
    other.wrote(lease, goods.sell())
    one.wrote(lease, goods.sell())
    assert goods.stock() == 8
    other.give_back(lease)
    expect_problem(one.look(lease), 410, "lease-lost")
    assert one.take(goods.resource)["fencing_token"] > lease["fencing_token"]


def test_waiter_when_the_holder_is_at_the_other_gateway_then_served_after_release(twins: Stack, resource: str) -> None:
    one, other = pair(twins)
    for holder, waiter in ((one, other), (other, one)):
        held = holder.take(resource)
        call = waiter.begin_ask(resource, wait_ms=10_000)
        call.join(0.3)
        assert call.is_alive()
        holder.give_back(held)
        answer = call.answer(3)
        assert answer.status == 201 and answer.json()["fencing_token"] > held["fencing_token"], answer
        waiter.give_back(answer.json())


def test_resource_when_both_gateways_contend_then_one_holder_at_a_time_and_tokens_grow(twins: Stack, resource: str) -> None:
    notes: list[int] = []

    def contend(api: Api) -> None:
        for _ in range(15):
            lease = api.take(resource, wait_ms=20_000)
            notes.append(lease["fencing_token"])
            api.give_back(lease)

    threads = [threading.Thread(target=contend, args=(api,)) for api in pair(twins) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(notes) == 60
    assert notes == sorted(set(notes))


def test_stale_write_when_sent_to_the_other_gateway_then_412(twins: Stack, fresh: Callable[[str], str]) -> None:
    one, other = pair(twins)
    goods = stock_up(twins, fresh("twin-stale"), 10)
    a = one.take(goods.resource, ttl_ms=300)
    b = other.take(goods.resource, wait_ms=2_000)
    other.wrote(b, goods.sell(3))
    for gateway in (one, other):
        expect_problem(gateway.write(a, goods.sell()), 412, "stale-fencing-token")
    assert goods.stock() == 7


def test_gateway_when_one_is_killed_then_the_other_goes_on_and_it_comes_back(twins: Stack, fresh: Callable[[str], str]) -> None:
    one, other = pair(twins)
    lease = one.take(fresh("test/killed"))
    before = twins.read()["gateways"][0]
    os.kill(before["pid"], signal.SIGKILL)
    assert other.renew(lease).status == 200
    eventually(lambda: twins.read()["gateways"][0]["pid"] != before["pid"], 10, what="it is started again")
    twins.facts = twins.read()
    eventually(lambda: twins.api(0).get("/readyz").status == 200, 20)
    twins.api(0).give_back(lease)
