"""PostgreSQL is down, hanging, full, read-only or out of connections: each call gets a clear answer in time,
and the gateway recovers by itself."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

import psycopg2
import pytest
from support import processes
from support.api import Answer, Api, Json, expect_problem
from support.cluster import Gateway
from support.faults import count_holders
from support.polling import eventually, pause
from support.postgres import GATEWAY_ROLE, Site, acquire_for_writes, running_site

DEADLINE = 3.0  # of a call
BACK_WITHIN = 20.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site(max_ttl_ms=20_000, max_connections=40, fsync="off") as made:
        yield made


@pytest.fixture(scope="module")
def module_gateway(site: Site) -> Gateway:
    return site.gateway(request_timeout_ms=int(1000 * DEADLINE))


@pytest.fixture
def api(module_gateway: Gateway) -> Api:
    eventually(lambda: module_gateway.api.get("/readyz").status == 200, 15, goal="the gateway is ready before the test")
    return module_gateway.api


def expect_unavailable(answer: Answer, cause: str, timeout: float = DEADLINE + 3) -> Json:
    """Checks a 503 storage-unavailable that comes in time and names the cause."""
    problem = expect_problem(answer, 503, "storage-unavailable")
    assert cause in problem["detail"], problem
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.seconds < timeout, answer.seconds
    return problem


def expect_recovery(api: Api, lease: Json, operation: Json) -> None:
    """Checks that the gateway writes again and is ready within BACK_WITHIN."""
    eventually(lambda: api.write(lease, operation).status == 200, BACK_WITHIN, goal="it writes again")
    eventually(lambda: api.get("/readyz").status == 200, BACK_WITHIN, goal="ready again")


def expect_not_ready(api: Api, cause: str) -> None:
    eventually(lambda: expect_unavailable(api.get("/readyz"), cause, 2.0), 5, goal=f"not ready: {cause}")
    assert api.get("/healthz").status == 200


def resident_mb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_waiters_while_postgres_is_down_are_those_here(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    name = unique_name("test/awaited")
    api.must_acquire(name)
    call = api.begin_wait(name)

    def find_waiting() -> tuple[int, bool]:
        page = api.get("/v1/leases", resource_prefix=name)
        assert page.status == 200 and page.seconds < 2, page
        return page.json()["waiters"], page.json()["waiting_complete"]

    eventually(lambda: find_waiting() == (1, True), 5, goal="one waits")
    with site.server.stopped():
        eventually(lambda: find_waiting() == (1, False), 5, goal="one waits here, and others are unknown")
    eventually(lambda: find_waiting() == (1, True), BACK_WITHIN, goal="those of all gateways are known again")
    call.disconnect()


def test_server_down_calls_refused_at_once_and_leases_continue(
    site: Site, api: Api, unique_name: Callable[[str], str]
) -> None:
    goods = site.create_sku(unique_name("down"))
    lease = acquire_for_writes(api, goods.resource)
    with site.server.stopped():
        expect_not_ready(api, "PostgreSQL can't be reached")
        eventually(
            lambda: expect_unavailable(api.write(lease, goods.sell()), "PostgreSQL can't be reached", 2.5),
            goal="each worker has noticed",
        )
        other = unique_name("test/lease")
        for _ in range(5):
            answer = api.acquire(other, wait_ms=500)
            assert answer.status == 201 and answer.seconds < DEADLINE, answer
            api.must_release(answer.json())
        expect_unavailable(api.get("/v1/history"), "PostgreSQL can't be reached", 2.5)
    expect_recovery(api, lease, goods.sell())
    assert goods.stock() == 999
    eventually(lambda: len(api.history(resource=other, event="lease_granted")) == 5, goal="the history has all grants")


def test_fence_on_grant_server_down_leaves_no_lease(site: Site, api: Api, resource: str) -> None:
    with site.server.stopped():
        expect_unavailable(api.acquire(resource, ttl_ms=20_000, fence_on_grant=True), "", 2.5)
        eventually(lambda: count_holders(site.cluster.clients(), resource) == 0, 8, goal="released long before the ttl")
    granted = eventually(
        lambda: (answer := api.acquire(resource, ttl_ms=20_000, fence_on_grant=True)).status == 201 and answer.json(),
        BACK_WITHIN,
        goal="granted again",
    )
    assert site.server.query("select fencing.fence(%s)", (resource,)) == [(granted["fencing_token"],)]
    api.must_release(granted)


def test_fence_on_grant_server_hanging_503_and_no_lease(site: Site, api: Api, resource: str) -> None:
    with site.server.frozen():
        problem = expect_unavailable(api.acquire(resource, ttl_ms=20_000, fence_on_grant=True), "PostgreSQL")
        begun = "whether the change was made" in problem["detail"]
        assert problem.get("outcome_unknown", False) == begun, "the fence may still be raised once the server resumes"
        eventually(lambda: count_holders(site.cluster.clients(), resource) == 0, 8, goal="released long before the ttl")
    eventually(lambda: api.get("/readyz").status == 200, BACK_WITHIN, goal="ready again")


def test_server_hanging_calls_are_answered_by_deadline(
    site: Site, module_gateway: Gateway, api: Api, unique_name: Callable[[str], str]
) -> None:
    """Two hundred calls while the server is suspended. Writes that had begun may have an unknown outcome;
    for the others the answer says that nothing was changed, and that is true."""
    goods = [site.create_sku(unique_name("hung")) for _ in range(8)]
    leases = [acquire_for_writes(api, sku.resource) for sku in goods]
    before = resident_mb(module_gateway.pid)
    answers: list[tuple[int, Answer]] = []
    with site.server.frozen():
        calls = [
            (
                number % 8,
                api.begin(
                    "POST",
                    "/v1/writes",
                    {"lease_id": leases[number % 8]["lease_id"], "operations": [goods[number % 8].sell()]},
                ),
            )
            for number in range(200)
        ]
        began = time.monotonic()
        expect_not_ready(api, "PostgreSQL")
        asked = api.acquire(unique_name("test/lease"))
        assert asked.status == 201 and asked.seconds < DEADLINE
        answers = [(number, call.answer()) for number, call in calls]
        assert time.monotonic() - began < DEADLINE + 12
        for _, answer in answers:
            expect_unavailable(answer, "PostgreSQL")
        for _ in range(3):
            expect_not_ready(api, "PostgreSQL")
    assert resident_mb(module_gateway.pid) < before + 40
    for sku, lease in zip(goods, leases):
        expect_recovery(api, lease, sku.sell())
    for number, sku in enumerate(goods):
        unknown = sum(answer.json().get("outcome_unknown") is True for at, answer in answers if at == number)
        assert 0 <= 999 - sku.stock() <= unknown, (sku.stock(), unknown)
        rows = site.server.query(
            "select count(*) from fencing.history where event = 'write_applied' and resource = %s", (sku.resource,)
        )
        assert rows == [(1_000 - sku.stock(),)]


@contextmanager
def connections_exhausted(site: Site) -> Iterator[None]:
    """Opens every connection that is available to roles other than superusers, and ends those of the gateway,
    while the block lasts."""
    taken: list[psycopg2.extensions.connection] = []

    def take_connections() -> int:
        try:
            while True:
                taken.append(site.server.sql(user=GATEWAY_ROLE))
        except psycopg2.OperationalError:
            pass
        own = [connection.info.backend_pid for connection in taken]
        return len(
            site.server.query(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s and pid <> all (%s)",
                (GATEWAY_ROLE, own),
            )
        )

    def stays_full() -> bool:
        """A backend leaves pg_stat_activity shortly before its connection slot is free."""
        return all(take_connections() == 0 and pause(0.02, "between two checks") is None for _ in range(5))

    gateways = [gateway.pid for gateway in site.cluster.gateways if gateway.process]
    try:
        with processes.suspended(gateways):  # so that none of them takes a connection as soon as it is free
            eventually(stays_full, 30, goal="no connection is left")
        yield
    finally:
        for connection in taken:
            connection.close()


def test_server_without_free_connection_503_names_cause(
    site: Site, api: Api, unique_name: Callable[[str], str]
) -> None:
    goods = site.create_sku(unique_name("crowded"))
    lease = acquire_for_writes(api, goods.resource)
    with connections_exhausted(site):
        expect_not_ready(api, "max_connections")
        eventually(
            lambda: expect_unavailable(api.write(lease, goods.sell()), "max_connections"),
            5,
            goal="the worker has noticed",
        )
    expect_recovery(api, lease, goods.sell())
    assert goods.stock() == 999


def test_server_read_only_503_names_cause(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    goods = site.create_sku(unique_name("read-only"))
    lease = acquire_for_writes(api, goods.resource)
    site.server.configure("set default_transaction_read_only = on")
    try:
        expect_not_ready(api, "read-only")
        expect_unavailable(
            eventually(lambda: (answer := api.write(lease, goods.sell())).status == 503 and answer, 5), "read-only"
        )
        expect_unavailable(
            api.write(lease, {"call": "place_order", "args": {"order_id": 1, "sku": goods.name, "quantity": 1}}),
            "read-only",
        )
        assert api.get("/v1/history", limit=1).status == 200, "it can be read"
    finally:
        site.server.configure("reset default_transaction_read_only")
    expect_recovery(api, lease, goods.sell())
    assert goods.stock() == 999


def test_disk_full_503_names_cause_until_space_is_free(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    """The table's file is a link to a device that is always full; VACUUM FULL writes it to a new file."""
    server = site.server
    server.query(
        "create table notes (id text primary key, words text); select fencing.protect('notes', $$'notes/' || id$$);"
        "select fencing.expose_table('notes')"
    )
    server.query("checkpoint")
    file = server.data / server.query("select pg_relation_filepath('notes')")[0][0]
    file.unlink()
    file.symlink_to("/dev/full")
    goods = site.create_sku(unique_name("other"))
    lease, other = acquire_for_writes(api, "notes/long"), acquire_for_writes(api, goods.resource)
    note = {"insert": "notes", "values": {"id": "long", "words": "many"}}
    answer = eventually(
        lambda: (answer := api.write(lease, note)).status != 422 and answer, goal="the gateway knows the table"
    )
    expect_unavailable(answer, "PostgreSQL's disk is full")
    api.must_write(other, goods.sell())
    assert api.get("/readyz").status == 200, "only this table is affected"
    (item,) = api.history(write_id=answer.json()["write_id"])
    assert item["event"] == "write_failed" and item["detail"]["sqlstate"] == "53100"
    server.query("vacuum full notes")
    expect_recovery(api, lease, note)
    assert server.query("select words from notes") == [("many",)]


def test_privilege_missing_503_and_logged_for_operator(
    site: Site, module_gateway: Gateway, api: Api, unique_name: Callable[[str], str]
) -> None:
    """The caller did nothing wrong: the same call works once the operator has granted the privilege."""
    goods = site.create_sku(unique_name("granted"))
    lease = acquire_for_writes(api, goods.resource)
    site.server.query("revoke update on inventory from fencing_gateway")
    try:
        answer = api.write(lease, goods.sell())
        problem = expect_problem(answer, 503, "storage-unavailable")
        assert "lacks a privilege" in problem["detail"] and "inventory" not in problem["detail"]
        assert problem["sqlstate"] == "42501"
        assert "grant" in problem["hint"] and "reached" not in problem["hint"], problem
        assert answer.headers["Retry-After"] is None, "a repeat does not help"
        assert "permission denied for table inventory" in module_gateway.log.read_text()
    finally:
        site.server.query("grant update on inventory to fencing_gateway")
    expect_recovery(api, lease, goods.sell())


def test_row_security_refusal_403_and_not_503(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    """The SQLSTATE is that of a missing privilege, but PostgreSQL refuses this row only."""
    goods = site.create_sku(unique_name("secured"))
    lease = acquire_for_writes(api, goods.resource)
    site.server.query(
        "alter table inventory enable row level security;"
        "create policy up_to_a_thousand on inventory using (true) with check (stock <= 1000)"
    )
    try:
        problem = expect_problem(
            api.write(lease, {"update": "inventory", "where": {"sku": goods.name}, "add": {"stock": 1}}),
            403,
            "forbidden",
        )
        assert problem["sqlstate"] == "42501"
        api.must_write(lease, goods.sell())
    finally:
        site.server.query("drop policy up_to_a_thousand on inventory; alter table inventory disable row level security")


def test_session_killed_is_replaced_with_settings(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    """libpqxx 6.4 would reconnect by itself, without the settings,
    and in the middle of a transaction without its earlier statements.
    After a kill between two operations of a write, nothing of the write may remain."""
    goods = site.create_sku(unique_name("settings"))
    lease = acquire_for_writes(api, goods.resource)
    site.server.query(
        "create or replace function say_settings() returns text language sql volatile as "
        "$$ select current_setting('application_name') || ' ' || current_setting('lock_timeout') || ' ' || "
        "current_setting('timezone') $$;"
        "select fencing.expose_function('say_settings()');"
        "create or replace function die_here() returns void language plpgsql security definer as "
        "$$ begin perform pg_terminate_backend(pg_backend_pid()); end $$; select fencing.expose_function('die_here()')"
    )
    say = {"call": "say_settings", "args": {}}
    eventually(lambda: api.write(lease, say).status == 200, 5, goal="the gateway knows the functions")
    before = goods.stock()
    for _ in range(5):
        answer = api.write(lease, goods.sell(), {"call": "die_here", "args": {}}, goods.sell())
        assert not expect_unavailable(answer, "PostgreSQL").get("outcome_unknown"), answer
        settings = eventually(
            lambda: (answer := api.write(lease, say)).status == 200 and answer.json()["results"][0]["value"],
            20,
            goal="a new session",
        )
        assert settings == "fencegate 1s UTC"
    assert goods.stock() == before
    assert (
        len(api.history(resource=goods.resource, event="write_applied"))
        == site.server.query(
            "select count(distinct write_id) from fencing.history where event = 'write_applied' and resource = %s",
            (goods.resource,),
        )[0][0]
    )


def test_server_resuming_does_not_apply_refused_writes(site: Site, api: Api, unique_name: Callable[[str], str]) -> None:
    """Calls arrive one after another while the server is suspended, so that some have begun and others wait."""
    goods = site.create_sku(unique_name("wakes"))
    lease = acquire_for_writes(api, goods.resource)
    calls = []
    with site.server.frozen():
        for _ in range(6):
            calls.append(api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [goods.sell()]}))
            pause(0.2, "the calls come one after another")
        answers = [call.answer() for call in calls]
    definite = [answer for answer in answers if not expect_unavailable(answer, "").get("outcome_unknown")]
    assert definite
    expect_recovery(api, lease, goods.sell())
    for answer in definite:
        assert api.history(write_id=answer.json()["write_id"], event="write_applied") == []
    assert threading.active_count() < 50
