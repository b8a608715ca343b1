"""PostgreSQL is down, hung, full, read-only or out of connections: each call has a clear answer in time, and all goes back to work by itself."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

import psycopg2
import pytest

from support.api import Answer, Api, Json, expect_problem
from support.cluster import Gateway
from support.faults import holders
from support.polling import eventually, let_pass
from support.postgres import GATEWAY_ROLE, Site, kept, running_site

DEADLINE = 3.0  # of a call
BACK_WITHIN = 5.0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site(max_connections=40, fsync="off") as made:
        yield made


@pytest.fixture(scope="module")
def served(site: Site) -> Gateway:
    return site.gateway(request_timeout_ms=int(1000 * DEADLINE))


@pytest.fixture
def api(served: Gateway) -> Api:
    eventually(lambda: served.api.get("/readyz").status == 200, 15, what="the gateway is ready before the test")
    return served.api


def refused(answer: Answer, cause: str, within: float = DEADLINE + 1) -> Json:
    """503 storage-unavailable in time, with words that tell the operator what to look at."""
    problem = expect_problem(answer, 503, "storage-unavailable")
    assert cause in problem["detail"], problem
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.seconds < within, answer.seconds
    return problem


def back(api: Api, lease: Json, operation: Json) -> None:
    """It writes again, by itself and soon."""
    eventually(lambda: api.write(lease, operation).status == 200, BACK_WITHIN, what="it writes again")
    eventually(lambda: api.get("/readyz").status == 200, BACK_WITHIN, what="ready again")


def not_ready(api: Api, cause: str) -> None:
    eventually(lambda: refused(api.get("/readyz"), cause, 2.0), 5, what=f"not ready: {cause}")
    assert api.get("/healthz").status == 200


def resident_mb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_server_when_it_is_down_then_calls_are_refused_at_once_and_leases_go_on(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    goods = site.goods(fresh("down"))
    lease = kept(api, goods.resource)
    with site.server.away():
        not_ready(api, "PostgreSQL can't be reached")
        eventually(lambda: refused(api.write(lease, goods.sell()), "PostgreSQL can't be reached", 1.0), 3, what="each worker knows")
        other = fresh("test/lease")
        for _ in range(5):
            answer = api.ask(other, wait_ms=500)
            assert answer.status == 201 and answer.seconds < 1, answer
            api.give_back(answer.json())
        refused(api.get("/v1/history"), "PostgreSQL can't be reached", 1.0)
    back(api, lease, goods.sell())
    assert goods.stock() == 999
    eventually(lambda: len(api.history(resource=other, event="lease_granted")) == 5, 10, what="the history has them all")


def test_fence_on_grant_when_the_server_is_down_then_no_lease_and_nothing_stays_on_the_nodes(site: Site, api: Api, resource: str) -> None:
    with site.server.away():
        refused(api.ask(resource, ttl_ms=2_000, fence_on_grant=True), "", 2.0)
        eventually(lambda: holders(site.cluster.clients(), resource) == 0, 0.8, what="given back long before the ttl")
    granted = eventually(lambda: (got := api.ask(resource, fence_on_grant=True)).status == 201 and got.json(), BACK_WITHIN, what="granted again")
    assert site.server.query("select fencing.fence(%s)", (resource,)) == [(granted["fencing_token"],)]
    api.give_back(granted)


def test_fence_on_grant_when_the_server_hangs_then_503_in_time_and_nothing_stays_on_the_nodes(site: Site, api: Api, resource: str) -> None:
    with site.server.frozen():
        problem = refused(api.ask(resource, ttl_ms=2_000, fence_on_grant=True), "PostgreSQL does not answer")
        assert problem["outcome_unknown"] is True, "the fence may still be raised once it wakes"
        eventually(lambda: holders(site.cluster.clients(), resource) == 0, 0.8, what="given back")
    eventually(lambda: api.get("/readyz").status == 200, BACK_WITHIN, what="ready again")


def test_server_when_it_hangs_then_each_call_is_answered_by_its_deadline_and_memory_stays(
        site: Site, served: Gateway, api: Api, fresh: Callable[[str], str]) -> None:
    """Two hundred callers at a server that takes every byte and says nothing. Those whose write was under way may be told
    that its outcome is unknown; the others that nothing was changed, and it is true."""
    goods = [site.goods(fresh("hung")) for _ in range(8)]
    leases = [kept(api, sku.resource) for sku in goods]
    before = resident_mb(served.pid)
    answers: list[tuple[int, Answer]] = []
    with site.server.frozen():
        calls = [(number % 8, api.begin("POST", "/v1/writes", {"lease_id": leases[number % 8]["lease_id"], "operations": [goods[number % 8].sell()]}))
                 for number in range(200)]
        began = time.monotonic()
        not_ready(api, "PostgreSQL")
        asked = api.ask(fresh("test/lease"))
        assert asked.status == 201 and asked.seconds < 1
        answers = [(number, call.answer()) for number, call in calls]
        assert time.monotonic() - began < DEADLINE + 2
        for _, answer in answers:
            refused(answer, "PostgreSQL")
        for _ in range(3):
            not_ready(api, "PostgreSQL")
    assert resident_mb(served.pid) < before + 40
    for sku, lease in zip(goods, leases):
        back(api, lease, sku.sell())
    for number, sku in enumerate(goods):
        unknown = sum(answer.json().get("outcome_unknown") is True for at, answer in answers if at == number)
        assert 0 <= 999 - sku.stock() <= unknown, (sku.stock(), unknown)
        rows = site.server.query("select count(*) from fencing.history where event = 'write_applied' and resource = %s", (sku.resource,))
        assert rows == [(1_000 - sku.stock(),)]


@contextmanager
def no_connection_left(site: Site) -> Iterator[None]:
    """Others have taken every connection that is to be had without being a superuser, the gateway's too."""
    taken: list[psycopg2.extensions.connection] = []

    def strangers() -> int:
        try:
            while True:
                taken.append(site.server.sql(user=GATEWAY_ROLE))
        except psycopg2.OperationalError:
            pass
        own = [connection.info.backend_pid for connection in taken]
        return len(site.server.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s and pid <> all (%s)", (GATEWAY_ROLE, own)))

    def stays_full() -> bool:
        """A backend leaves the list a moment before its place is free."""
        return all(strangers() == 0 and let_pass(0.02, "between two looks") is None for _ in range(5))

    try:
        eventually(stays_full, 10, what="no connection is left")
        yield
    finally:
        for connection in taken:
            connection.close()


def test_server_when_it_has_no_connection_left_then_503_says_so(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    goods = site.goods(fresh("crowded"))
    lease = kept(api, goods.resource)
    with no_connection_left(site):
        not_ready(api, "max_connections")
        eventually(lambda: refused(api.write(lease, goods.sell()), "max_connections"), 5, what="the write's worker knows")
    back(api, lease, goods.sell())
    assert goods.stock() == 999


def test_server_when_it_is_read_only_then_not_ready_and_503_says_so(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    goods = site.goods(fresh("read-only"))
    lease = kept(api, goods.resource)
    site.server.configure("set default_transaction_read_only = on")
    try:
        not_ready(api, "read-only")
        refused(eventually(lambda: (got := api.write(lease, goods.sell())).status == 503 and got, 5), "read-only")
        refused(api.write(lease, {"call": "place_order", "args": {"order_id": 1, "sku": goods.name, "quantity": 1}}), "read-only")
        assert api.get("/v1/history", limit=1).status == 200, "it can be read"
    finally:
        site.server.configure("reset default_transaction_read_only")
    back(api, lease, goods.sell())
    assert goods.stock() == 999


def test_disk_when_it_is_full_then_503_says_so_and_room_is_the_cure(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    """The table's file lies on a device that is always full; VACUUM FULL puts it where there is room."""
    server = site.server
    server.query("create table notes (id text primary key, words text); select fencing.protect('notes', $$'notes/' || id$$);"
                 "select fencing.expose_table('notes')")
    server.query("checkpoint")
    file = server.data / server.query("select pg_relation_filepath('notes')")[0][0]
    file.unlink()
    file.symlink_to("/dev/full")
    goods = site.goods(fresh("other"))
    lease, other = kept(api, "notes/long"), kept(api, goods.resource)
    note = {"insert": "notes", "values": {"id": "long", "words": "many"}}
    answer = eventually(lambda: (got := api.write(lease, note)).status != 422 and got, 10, what="the gateway knows the table")
    refused(answer, "PostgreSQL's disk is full")
    api.wrote(other, goods.sell())
    assert api.get("/readyz").status == 200, "it is one disk of several"
    (item,) = api.history(write_id=answer.json()["write_id"])
    assert item["event"] == "write_failed" and item["detail"]["sqlstate"] == "53100"
    server.query("vacuum full notes")
    back(api, lease, note)
    assert server.query("select words from notes") == [("many",)]


def test_grant_when_the_gateways_role_lacks_it_then_503_and_the_log_tells_the_operator(
        site: Site, served: Gateway, api: Api, fresh: Callable[[str], str]) -> None:
    """The caller did nothing wrong: the same call works once the operator has given the right."""
    goods = site.goods(fresh("granted"))
    lease = kept(api, goods.resource)
    site.server.query("revoke update on inventory from fencing_gateway")
    try:
        problem = refused(api.write(lease, goods.sell()), "lacks a right")
        assert problem["sqlstate"] == "42501" and "inventory" not in problem["detail"]
        assert "permission denied for table inventory" in served.log.read_text()
    finally:
        site.server.query("grant update on inventory to fencing_gateway")
    back(api, lease, goods.sell())


def test_row_security_when_it_refuses_a_row_then_403_and_not_503(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    """The same SQLSTATE as a missing grant; but here PostgreSQL means this very call."""
    goods = site.goods(fresh("secured"))
    lease = kept(api, goods.resource)
    site.server.query("alter table inventory enable row level security;"
                      "create policy up_to_a_thousand on inventory using (true) with check (stock <= 1000)")
    try:
        problem = expect_problem(api.write(lease, {"update": "inventory", "where": {"sku": goods.name}, "add": {"stock": 1}}), 403, "forbidden")
        assert problem["sqlstate"] == "42501"
        api.wrote(lease, goods.sell())
    finally:
        site.server.query("drop policy up_to_a_thousand on inventory; alter table inventory disable row level security")


def test_session_when_it_is_killed_then_its_settings_and_statements_are_made_anew(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    """libpqxx 6.4 would put a new connection under the old object by itself: without the settings, and in the middle of a
    transaction without what came before. Killed between two operations of a write, all of it must be gone."""
    goods = site.goods(fresh("settings"))
    lease = kept(api, goods.resource)
    site.server.query("create or replace function say_settings() returns text language sql volatile as "
                      "$$ select current_setting('application_name') || ' ' || current_setting('lock_timeout') || ' ' || current_setting('timezone') $$;"
                      "select fencing.expose_function('say_settings()');"
                      "create or replace function die_here() returns void language plpgsql security definer as "
                      "$$ begin perform pg_terminate_backend(pg_backend_pid()); end $$; select fencing.expose_function('die_here()')")
    say = {"call": "say_settings", "args": {}}
    eventually(lambda: api.write(lease, say).status == 200, 5, what="the gateway knows the functions")
    before = goods.stock()
    for _ in range(5):
        answer = api.write(lease, goods.sell(), {"call": "die_here", "args": {}}, goods.sell())
        assert not refused(answer, "PostgreSQL").get("outcome_unknown"), answer
        settings = eventually(lambda: (got := api.write(lease, say)).status == 200 and got.json()["results"][0]["value"], 3, what="a new session")
        assert settings == "fencegate 1s UTC"
    assert goods.stock() == before
    assert len(api.history(resource=goods.resource, event="write_applied")) == site.server.query(
        "select count(distinct write_id) from fencing.history where event = 'write_applied' and resource = %s", (goods.resource,))[0][0]


def test_hung_server_when_it_wakes_then_what_was_refused_does_not_land_after_all(site: Site, api: Api, fresh: Callable[[str], str]) -> None:
    """Calls come one by one while it hangs, so that some are under way and others wait behind them."""
    goods = site.goods(fresh("wakes"))
    lease = kept(api, goods.resource)
    calls = []
    with site.server.frozen():
        for _ in range(6):
            calls.append(api.begin("POST", "/v1/writes", {"lease_id": lease["lease_id"], "operations": [goods.sell()]}))
            let_pass(0.2, "the calls come one after another")
        answers = [call.answer() for call in calls]
    definite = [answer for answer in answers if not refused(answer, "").get("outcome_unknown")]
    assert definite
    back(api, lease, goods.sell())
    for answer in definite:
        assert api.history(write_id=answer.json()["write_id"], event="write_applied") == []
    assert threading.active_count() < 50
