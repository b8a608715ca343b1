"""Credentials with a `database_role`: operations run in that role with the caller's claims,
so that row security applies to the caller (docs/guard.md)."""

from __future__ import annotations

import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
from support.api import Api, Json, expect_problem
from support.cluster import Cluster, credential
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack

DATABASE = "database_roles"
ROLES = {
    "anna": "shop_clerk",
    "ben": "shop_clerk",
    "owner": None,
    "ghost": "no_such_role",
    "stranger": "other_team",
    "carl": "shop_boss",
}
SETUP = """
create role shop_clerk in role fencing_writer; create role shop_boss in role fencing_writer; create role other_team;
create role roles_gateway login;
grant fencing_gateway, shop_clerk, shop_boss to roles_gateway;
create table goods (shop text, id integer, stock integer not null, changed_by text, primary key (shop, id));
insert into goods select shop, id, 100, '' from unnest(array['anna', 'ben']) shop, generate_series(1, 8) id;
create function stamp() returns trigger language plpgsql as $$ begin new.changed_by := current_user || ' '
  || coalesce(nullif(current_setting('request.jwt.claims', true), '')::json->>'sub', ''); return new; end $$;
create trigger a_stamp before update on goods for each row execute function stamp();
create function whoami() returns text language sql stable as $$
  select current_user || ' ' || (current_setting('request.jwt.claims', true)::json->>'sub') $$;
alter table goods enable row level security;
create policy own_shop on goods to shop_clerk using (shop = current_setting('request.jwt.claims', true)::json->>'sub');
create policy everything on goods to roles_gateway using (true);
grant select, insert, update on goods to shop_clerk, roles_gateway;
select fencing.protect('goods', $$'goods/' || shop || '/' || id$$); select fencing.expose_table('goods');
select fencing.expose_function('whoami()');
create table parts (id integer primary key, stock integer not null); insert into parts select id, 100
  from generate_series(1, 63) id;
create table secret_audit (id bigint generated always as identity, part integer, role text, caller text, stock integer,
    xid xid8 default pg_current_xact_id());
create function audit() returns trigger language plpgsql as $$ begin
  insert into public.secret_audit (part, role, caller, stock)
  values (new.id, current_user, coalesce(nullif(current_setting('request.jwt.claims', true), '')::json->>'sub', ''),
      (select stock from public.parts where id = new.id));
  return null;
end $$;
create constraint trigger audit after update on parts deferrable initially deferred for each row
  execute function audit();
grant select, update on parts to shop_clerk, shop_boss, roles_gateway;
grant insert on secret_audit to shop_boss, roles_gateway;
select fencing.protect('parts', $$'parts/' || id$$); select fencing.expose_table('parts');
"""


def key_of(name: str) -> str:
    return f"the long key of {name}"


def entry_of(name: str) -> Json:
    made = credential(name, key_of(name))
    if ROLES[name]:
        made["database_role"] = ROLES[name]
    return made


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    with running_cluster(stack, DATABASE, max_ttl_ms=20_000) as made:
        connection = stack.sql(dbname=DATABASE)
        try:
            with connection.cursor() as cursor:
                cursor.execute(SETUP)
            yield made
        finally:
            connection.close()
            stack.query(f'drop database "{DATABASE}" with (force)')
            stack.query("drop role roles_gateway; drop role shop_clerk; drop role shop_boss; drop role other_team")


@pytest.fixture(scope="module")
def gateway(cluster: Cluster) -> Iterator[Api]:
    settings = cluster.settings()
    without_role = credential("ben", key_of("ben without role"))
    settings["auth"] = {"api_keys": [*(entry_of(name) for name in ROLES), without_role]}
    settings["postgres"]["conninfo"] = re.sub("user=\\S+", "user=roles_gateway", settings["postgres"]["conninfo"])
    made = cluster.start_gateway(settings)
    yield made.api
    made.kill()


@pytest.fixture(scope="module")
def callers(gateway: Api) -> dict[str, Api]:
    made = {name: gateway.with_key(key_of(name)) for name in ROLES}
    eventually(lambda: made["owner"].get("/v1/tables/goods").status == 200, goal="the gateway knows the table")
    return made


def rows(cluster: Cluster, where: str = "true") -> list[Any]:
    return cluster.stack.query(
        f"select shop, id, stock, changed_by from goods where {where} order by 1, 2", dbname=DATABASE
    )


def sell(shop: str, number: int) -> Json:
    return {"update": "goods", "where": {"shop": shop, "id": number}, "add": {"stock": -1}}


def one_shot(shop: str, number: int, *operations: Json, **fields: Any) -> Json:
    return {
        "lease": {"resource": f"goods/{shop}/{number}", "wait_ms": 10_000},
        "operations": list(operations) or [sell(shop, number)],
        **fields,
    }


def test_changes_of_rows_are_for_callers_that_may_read_all_rows(callers: dict[str, Api]) -> None:
    refused = expect_problem(callers["anna"].get("/v1/changes"), 403, "forbidden")
    assert refused["detail"].startswith("The caller may not read every row of every table"), refused


def test_description_of_tables_is_not_for_a_role(callers: dict[str, Api]) -> None:
    """It would show tables that the role may not use."""
    assert "database_role" in expect_problem(callers["anna"].get("/rest/v1/"), 403, "forbidden")["detail"]


def test_row_security_applies_to_the_caller(cluster: Cluster, callers: dict[str, Api]) -> None:
    own = callers["anna"].post("/v1/writes", one_shot("anna", 1))
    assert own.status == 200 and own.json()["results"][0]["rows_affected"] == 1, own
    other = callers["anna"].post("/v1/writes", one_shot("ben", 1))
    assert other.status == 200 and other.json()["results"][0]["rows_affected"] == 0, other
    assert rows(cluster, "id = 1") == [("anna", 1, 99, "shop_clerk anna"), ("ben", 1, 100, "")]
    refused = callers["anna"].post(
        "/v1/writes", one_shot("ben", 99, {"insert": "goods", "values": {"shop": "ben", "id": 99, "stock": 1}})
    )
    expect_problem(refused, 403, "forbidden")
    missing = callers["anna"].post(
        "/v1/writes", one_shot("anna", 2, {"delete": "goods", "where": {"shop": "anna", "id": 2}})
    )
    expect_problem(missing, 403, "forbidden")
    assert (
        "permission denied for table goods" in missing.json()["detail"] and missing.json()["sqlstate"] == "42501"
    ), missing


def test_reads_show_the_rows_of_the_caller(callers: dict[str, Api]) -> None:
    for name in ("anna", "ben"):
        found = callers[name].get("/v1/tables/goods", select="shop", limit=100)
        assert found.status == 200 and {row["shop"] for row in found.json()} == {name}, found
        assert callers[name].get("/v1/rpc/whoami").json() == f"shop_clerk {name}"
    assert {row["shop"] for row in callers["owner"].get("/v1/tables/goods", select="shop", limit=100).json()} == {
        "anna",
        "ben",
    }
    held = callers["anna"].must_acquire("goods/ben/3")
    fenced = callers["anna"].call("GET", "/v1/tables/goods?shop=eq.ben", headers={"Fencing-Lease": held["lease_id"]})
    assert fenced.status == 200 and fenced.json() == [], fenced
    callers["anna"].must_release(held)


def test_what_policy_keeps_of_caller_ends_with_transaction(cluster: Cluster, callers: dict[str, Api]) -> None:
    """A helper of the policy that looks the caller up once and keeps it in a setting of the session."""
    cluster.stack.query(
        """create function tenant() returns text language plpgsql as $$ begin
                       if coalesce(current_setting('app.tenant', true), '') = '' then
                         perform set_config('app.tenant',
                             current_setting('request.jwt.claims', true)::json->>'sub', false);
                       end if;
                       return current_setting('app.tenant'); end $$;
                     create table notes (id integer primary key, shop text, n integer); insert into notes
                       values (1, 'anna', 0), (2, 'ben', 0);
                     alter table notes enable row level security; create policy own on notes to shop_clerk
                       using (shop = tenant());
                     grant select, update on notes to shop_clerk;
                     select fencing.protect('notes', $$'notes/' || id$$); select fencing.expose_table('notes')""",
        dbname=DATABASE,
    )
    eventually(lambda: callers["anna"].get("/v1/tables/notes").status == 200, goal="the gateway knows the table")
    for turn in range(24):
        name, number = (("anna", 1), ("ben", 2))[turn % 2]
        assert callers[name].get("/v1/tables/notes", select="shop").json() == [{"shop": name}]
        done = callers[name].post(
            "/v1/writes",
            {
                "lease": {"resource": f"notes/{number}"},
                "operations": [{"update": "notes", "where": {"id": number}, "add": {"n": 1}}],
            },
        )
        assert done.status == 200 and done.json()["results"][0]["rows_affected"] == 1, done


def test_writes_that_share_a_transaction_keep_their_callers(cluster: Cluster, callers: dict[str, Api]) -> None:
    """Rows 4 to 8 of each shop, many times at once by three callers: each change has the role
    and claims of its caller."""
    expected = {"anna": "shop_clerk anna", "ben": "shop_clerk ben", "owner": "roles_gateway "}

    def change(turn: int) -> None:
        shop, number = ("anna", "ben")[turn % 2], 4 + turn // 2 % 5
        caller = "owner" if turn % 3 == 2 else shop
        lease = callers[caller].must_acquire(f"goods/{shop}/{number}", wait_ms=20_000)
        answer = callers[caller].write(lease, sell(shop, number))
        assert answer.status == 200 and answer.json()["results"][0]["rows_affected"] == 1, answer
        by = rows(cluster, f"shop = '{shop}' and id = {number}")[0][3]
        assert by == expected[caller], (caller, by)
        callers[caller].must_release(lease)

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(change, range(240)))
    sold = sum(100 - row[2] for row in rows(cluster, "id between 4 and 8"))
    assert sold == 240


def take_part(number: int) -> Json:
    return {"update": "parts", "where": {"id": number}, "add": {"stock": -1}}


def test_deferred_triggers_run_in_the_role_of_their_caller(cluster: Cluster, callers: dict[str, Api]) -> None:
    """Anna's role may not do what the deferred trigger does; writes of two others share transactions with hers.
    Each write has two operations, after which alone the trigger runs."""
    names = ("anna", "carl", "owner")
    expected = {"carl": ("shop_boss", "carl"), "owner": ("roles_gateway", "")}

    def caller_of(number: int) -> str:
        return names[number % 3]

    parts = range(1, 61)
    leases = {number: callers[caller_of(number)].must_acquire(f"parts/{number}") for number in parts}

    start = threading.Barrier(60)  # writes that arrive together share transactions

    def change(number: int) -> Any:
        with callers[caller_of(number)].connection() as connection:
            connection.wire.connect()
            start.wait(30)
            return connection.post(
                "/v1/writes",
                {"lease_id": leases[number]["lease_id"], "operations": [take_part(number), take_part(number)]},
            )

    for _ in range(3):
        with ThreadPoolExecutor(60) as pool:
            answers = dict(zip(parts, pool.map(change, parts)))
        for number, answer in answers.items():
            if caller_of(number) == "anna":
                expect_problem(answer, 403, "forbidden")
                assert answer.json()["sqlstate"] == "42501" and "secret_audit" in answer.json()["detail"], answer
            else:
                assert answer.status == 200, answer
    audited = cluster.stack.query(
        "select part, role, caller, stock, xid::text from secret_audit order by id", dbname=DATABASE
    )
    assert {(caller_of(part), role, caller) for part, role, caller, _, _ in audited} == {
        (name, *run_as) for name, run_as in expected.items()
    }
    assert sorted((part, stock) for part, _, _, stock, _ in audited) == sorted(
        (part, stock) for part in parts if caller_of(part) != "anna" for stock in (98, 98, 96, 96, 94, 94)
    )
    assert len({xid for *_, xid in audited}) < len(audited) / 2 - 10, "some transactions have been shared"


@pytest.mark.parametrize(
    "part, fields, has_key",
    [(61, {}, False), (62, {"then": "release"}, False), (63, {}, True)],
    ids=["plain", "seal", "key"],
)
def test_deferred_trigger_of_a_write_alone_runs_in_its_role(
    cluster: Cluster, callers: dict[str, Api], part: int, fields: Json, has_key: bool
) -> None:
    def write(name: str) -> Any:
        lease = callers[name].must_acquire(f"parts/{part}")
        key = {"Idempotency-Key": uuid.uuid4().hex} if has_key else {}
        answer = callers[name].post(
            "/v1/writes", {"lease_id": lease["lease_id"], "operations": [take_part(part)], **fields}, key
        )
        if not (fields and answer.status == 200):
            callers[name].must_release(lease)
        return answer

    refused = write("anna")
    expect_problem(refused, 403, "forbidden")
    assert refused.json()["sqlstate"] == "42501", refused
    assert write("carl").status == 200
    assert cluster.stack.query("select role, caller from secret_audit where part = %s", (part,), dbname=DATABASE) == [
        ("shop_boss", "carl")
    ]


def test_keys_and_seals_work_in_a_role(cluster: Cluster, callers: dict[str, Api]) -> None:
    before = rows(cluster, "shop = 'ben' and id = 2")[0][2]
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first = callers["ben"].post("/v1/writes", one_shot("ben", 2), key)
    again = callers["ben"].post("/v1/writes", one_shot("ben", 2), key)
    assert first.status == again.status == 200 and first.json()["results"] == again.json()["results"], (first, again)
    assert rows(cluster, "shop = 'ben' and id = 2") == [("ben", 2, before - 1, "shop_clerk ben")]
    refused = callers["ben"].post(
        "/v1/writes",
        one_shot("ben", 2, {"delete": "goods", "where": {"shop": "ben"}}),
        {"Idempotency-Key": uuid.uuid4().hex},
    )
    expect_problem(refused, 403, "forbidden")
    called = callers["ben"].post("/v1/writes", one_shot("ben", 2, {"call": "whoami", "args": {}}))
    assert called.status == 200 and called.json()["results"][0]["value"] == "shop_clerk ben", called


def test_kept_outcome_is_that_of_the_role(cluster: Cluster, gateway: Api, callers: dict[str, Api]) -> None:
    """Two keys of one principal with different roles."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    assert callers["ben"].post("/v1/writes", one_shot("ben", 4), key).status == 200
    other = gateway.with_key(key_of("ben without role")).post("/v1/writes", one_shot("ben", 4), key)
    expect_problem(other, 422, "idempotency-mismatch")


@pytest.mark.parametrize("name, text", [("ghost", "no_such_role"), ("stranger", "permission denied to set role")])
def test_role_that_may_not_be_taken_is_refused(cluster: Cluster, callers: dict[str, Api], name: str, text: str) -> None:
    before = rows(cluster)
    refused = callers[name].post("/v1/writes", one_shot("anna", 3))
    expect_problem(refused, 403, "forbidden")
    assert text in refused.json()["detail"], refused
    read = callers[name].get("/v1/tables/goods")
    expect_problem(read, 403, "forbidden")
    assert rows(cluster) == before
    assert callers["anna"].post("/v1/writes", one_shot("anna", 3)).status == 200


def test_planned_count_tells_nothing_of_rows_of_others(cluster: Cluster, callers: dict[str, Api]) -> None:
    """The planner's statistics are of all rows, those of other shops too."""
    cluster.stack.query("analyze goods", dbname=DATABASE)
    for kind in ("planned", "estimated"):
        answer = callers["anna"].get("/rest/v1/goods?shop=eq.ben", {"Prefer": f"count={kind}"})
        assert (answer.status, answer.headers["Content-Range"]) == (200, "*/0")
        own = [
            callers["anna"].get("/rest/v1/goods?limit=1", {"Prefer": f"count={each}"}).headers["Content-Range"]
            for each in ("exact", kind)
        ]
        assert own[0] == own[1] != "0-0/16"
