"""A page of the history is read from an index with every filter, never by a scan of the whole table.
PostgreSQL chooses the plan, with 200,000 rows of four weeks.

The queries are those of the gateway: week by week, so that a week without a match is skipped at once.
"""
import pytest

FILL = """
    select fencing.make_history_partition('2026-03-02'::timestamptz + n * interval '7 days')
      from generate_series(0, 3) as t (n);
    insert into fencing.history (at, event, resource, fencing_token, owner, principal, trace_id, write_id)
    select '2026-03-02T00:00:00Z'::timestamptz + n * interval '12 seconds',
      (array['lease_granted', 'write_applied', 'lease_released', 'write_applied'])[n % 4 + 1], 'r/' || n % 5000, n / 4,
           'o-' || n % 3000, case when n % 20000 = 0 then 'rare' else 'p-' || n % 3 end, 't-' || n / 4,
             case when n % 2 = 1 then gen_random_uuid() end
      from generate_series(0, 199999) as t (n);
    insert into fencing.history (at, event) select '2026-03-10T00:00:00Z'::timestamptz, 'lease_revoked'
      from generate_series(1, 20);
    insert into fencing.row_change (at, relation, operation, row_key, direct)
    select '2026-03-09T00:00:00Z'::timestamptz + n * interval '15 seconds', 'public.t', 'update',
      jsonb_build_object('id', case when n % 20 = 0 then 'hot' else n::text end), false
      from generate_series(0, 39999) as t (n);
    vacuum analyze fencing.history, fencing.row_change;
"""
# Each filter with the index that its plan must use; empty: any index.
FILTERS = {
    "nothing": ("true", "at_id_idx"),
    "resource": ("resource = 'r/7'", "resource_at"),
    "prefix": ("resource >= 'r/77' and resource < E'r/77\\x7f'", "resource_at"),
    "wide_prefix": ("resource >= 'r/' and resource < E'r/\\x7f'", ""),
    "owner": ("owner = 'o-7'", "owner"),
    "owner_who_is_nobody": ("owner = 'x'", "owner"),
    "principal": ("principal = 'p-1'", ""),
    "rare_principal": ("principal = 'rare'", "principal"),
    "principal_who_is_nobody": ("principal = 'x'", "principal"),
    "trace": ("trace_id = 't-7'", "trace"),
    "write": ("write_id = '00000000-0000-0000-0000-000000000001'", "write_id"),
    "rare_event": ("event = 'lease_revoked'", "event_at"),
    "frequent_event": ("event = 'lease_granted'", ""),
    "frequent_event_that_never_was": ("event = 'lease_renewed'", "event_idx"),
    "one_token": ("fencing_token between 77 and 77", "token"),
    "low_tokens": ("fencing_token <= 20", "token"),
    "tokens_that_are_not": ("fencing_token >= 900000", "token"),
    "high_tokens": ("fencing_token >= 20000", ""),
}


@pytest.fixture(scope="module")
def filled(server):
    name = server.create("fence_base")
    connection = server.connect(name)
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        yield cursor
    connection.close()
    server.drop(name)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("has_cursor", [False, True], ids=["first_page", "behind_a_cursor"])
@pytest.mark.parametrize("name", FILTERS)
def test_history_page_uses_an_index(filled, name, has_cursor, order):
    where, index = FILTERS[name]
    sign = "<" if order == "desc" else ">"
    cursor = f"and (at, id) {sign} ('2026-03-12', 7) and at {sign}= '2026-03-12'" if has_cursor else ""
    filled.execute(
        f"explain select * from fencing.history where {where} and at >= '2026-03-09' and at < '2026-03-16' {cursor} "
        f"order by at {order}, id {order} limit 101"
    )
    plan = "\n".join(line for (line,) in filled.fetchall())
    assert "Seq Scan" not in plan and "Index" in plan, plan
    assert index in plan, plan
    if name == "nothing":
        assert "Sort  " not in plan, plan


def test_history_stream_uses_the_id_index(filled):
    filled.execute("explain select * from fencing.history where id > 150000 and id <= 150100 order by id limit 1000")
    plan = "\n".join(line for (line,) in filled.fetchall())
    assert "id_idx" in plan and "Seq Scan on history_202603" not in plan, plan


def test_history_page_with_time_parameters_plans_one_partition(filled):
    """The query has the form of gateway/pg/history/history_reader.cpp: with a time that the planner does not know,
    it plans every partition, 1 ms per page and week."""
    filled.execute("set plan_cache_mode = force_custom_plan")
    filled.execute(
        "prepare page as select * from fencing.history where owner = 'x' and at >= $1::timestamptz "
        "and at < $2::timestamptz order by at desc, id desc limit 101"
    )
    filled.execute("explain execute page('2026-03-09T00:00:00.000000Z', '2026-03-16T00:00:00.000000Z')")
    plan = "\n".join(line for (line,) in filled.fetchall())
    assert "Subplans Removed" not in plan and "history_20260309" in plan, plan


@pytest.mark.parametrize("key", ["hot", "1001"])
def test_changes_of_a_key_are_read_in_order_of_time(filled, key):
    filled.execute(
        "explain select * from fencing.row_change where relation = 'public.t' "
        "and jsonb_hash_extended(row_key, 0) = jsonb_hash_extended(%s::jsonb, 0) and jsonb_eq(row_key, %s::jsonb) "
        "and at >= '2026-03-09' and at < '2026-03-16' order by at desc, id desc limit 101",
        [f'{{"id": "{key}"}}'] * 2,
    )
    plan = "\n".join(line for (line,) in filled.fetchall())
    assert "jsonb_hash_extended_at_id_idx" in plan and "Seq Scan" not in plan, plan
    assert "Sort  " not in plan, plan
