"""A page of the history, whatever it is filtered by, is read from an index in the page's order: no sort, no scan of the whole."""
import pytest

FILL = """
    insert into fencing.history (at, event, resource, fencing_token, owner, trace_id)
    select now() - (n % 5000) * interval '1 minute', (array['lease_granted', 'write_applied', 'lease_released'])[n % 3 + 1], 'r/' || n % 500, n, 'o-' || n % 300, 't-' || n % 700
      from generate_series(1, 30000) as t (n);
    insert into fencing.history (event) select 'lease_revoked' from generate_series(1, 20);
    analyze fencing.history;
"""
FILTERS = {
    "nothing": ("true", "pkey"), "resource": ("resource = 'r/7'", "resource_at"), "owner": ("owner = 'o-7'", "owner_at"), "trace": ("trace_id = 't-7'", "trace_id_at"),
    "rare_event": ("event = 'lease_revoked'", "event_at"), "frequent_event": ("event = 'lease_granted'", "pkey"), "tokens": ("fencing_token >= 20000", "pkey"),
}


def page(where, behind, order):
    sign = "<" if order == "desc" else ">"
    cursor = f"and (at, id) {sign} (now() - interval '1 day', 7) and at {sign}= now() - interval '1 day'" if behind else ""
    return f"select * from fencing.history where {where} {cursor} order by at {order}, id {order} limit 101"


@pytest.fixture(scope="module")
def filled(server):
    name = server.create("fence_base")
    connection = server.connect(name)
    with connection.cursor() as cursor:
        cursor.execute(FILL)
        # With so few rows sorting them is as cheap; here it is asked whether an index can.
        cursor.execute("set enable_sort = off; set enable_seqscan = off; set enable_bitmapscan = off")
        yield cursor
    connection.close()
    server.drop(name)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("behind", [False, True], ids=["first_page", "behind_a_cursor"])
@pytest.mark.parametrize("name", FILTERS)
def test_page_comes_from_an_index_in_order(filled, name, behind, order):
    where, index = FILTERS[name]
    filled.execute("explain " + page(where, behind, order))
    plan = "\n".join(line for (line,) in filled.fetchall())
    assert "Sort  " not in plan and "Seq Scan" not in plan, plan
    assert f"_{index}" in plan, plan
