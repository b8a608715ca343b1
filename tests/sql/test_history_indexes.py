"""A page of the history is read from an index with every filter, never by a scan of the whole table.
PostgreSQL chooses the plan, with 200,000 rows of four weeks.

The queries are those of the gateway: week by week, so that a week without a match is skipped at once.
"""
import itertools

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


def page_query(where, has_cursor, order):
    sign = "<" if order == "desc" else ">"
    cursor = f"and (at, id) {sign} ('2026-03-12', 7) and at {sign}= '2026-03-12'" if has_cursor else ""
    return (
        f"select * from fencing.history where {where} and at >= '2026-03-09' and at < '2026-03-16' {cursor} "
        f"order by at {order}, id {order} limit 101"
    )


def queries():
    """Yields statements, each with what the scans of its plan must name and what the plan must not have."""
    for (name, (where, index)), has_cursor, order in itertools.product(FILTERS.items(), (False, True), ("asc", "desc")):
        unwanted = ["Seq Scan"] + ["Sort  "] * (name == "nothing")
        yield page_query(where, has_cursor, order), ["Index", index], unwanted
    stream = "select * from fencing.history where id > 150000 and id <= 150100 order by id limit 1000"
    yield stream, ["id_idx"], ["Seq Scan on history_202603"]
    # With a time that the planner does not know, it plans every partition, 1 ms per page and week.
    yield "execute page('2026-03-09T00:00:00Z', '2026-03-16T00:00:00Z')", ["history_20260309"], ["Subplans Removed"]
    for key in ("hot", "1001"):  # the changes of a key in the order of time
        wanted = f"""'{{"id": "{key}"}}'::jsonb"""
        yield (
            "select * from fencing.row_change where relation = 'public.t' "
            f"and jsonb_hash_extended(row_key, 0) = jsonb_hash_extended({wanted}, 0) and jsonb_eq(row_key, {wanted}) "
            "and at >= '2026-03-09' and at < '2026-03-16' order by at desc, id desc limit 101",
            ["jsonb_hash_extended_at_id_idx"],
            ["Seq Scan", "Sort  "],
        )


def test_history_pages_use_an_index(server):
    """In one test, because the table is filled for seconds."""
    name = server.create("fence_base")
    connection = server.connect(name)
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        cursor.execute("set plan_cache_mode = force_custom_plan")
        # As in gateway/pg/history/history_reader.cpp.
        cursor.execute(
            "prepare page as select * from fencing.history where owner = 'x' and at >= $1::timestamptz "
            "and at < $2::timestamptz order by at desc, id desc limit 101"
        )
        wrong = []
        for query, wanted, unwanted in queries():
            cursor.execute("explain " + query)
            plan = "\n".join(line for (line,) in cursor.fetchall())
            scans = " ".join(line for line in plan.splitlines() if " Scan" in line)  # a filter names columns
            if not all(text in scans for text in wanted) or any(text in plan for text in unwanted):
                wrong.append(f"{query}\n{plan}")
    connection.close()
    server.drop(name)
    assert not wrong, "\n\n".join(wrong)
