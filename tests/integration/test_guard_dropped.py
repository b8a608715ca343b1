"""The guard is dropped where no event trigger refuses that: the gateway lets no write in, and says why."""

from __future__ import annotations

import pytest
from support.api import expect_problem
from support.cluster import running
from support.faults import install_shop, sale_operation
from support.polling import eventually
from support.stack import Stack

EVENT_TRIGGERS = (
    "fencing_refuse_openings",
    "fencing_refuse_drops",
    "fencing_refuse_drop_of_guard",
    "fencing_hold_schemas",
)


@pytest.mark.parametrize("dropped", ["schema fencing", "table fencing.guard"])
def test_writes_stop_where_the_guard_was_dropped(stack: Stack, dropped: str) -> None:
    with running(stack, "dropped_" + dropped.split()[0]) as cluster:
        sku = install_shop(cluster, "sku")
        settings = cluster.settings()
        settings["postgres"]["guard_check_interval_ms"] = 1_000
        gateway = cluster.start_gateway(settings)
        gateway.wait_until_all_vote()
        api = gateway.api
        write = {"lease": {"resource": f"inventory/{sku}"}, "operations": [sale_operation(sku)]}
        assert api.post("/v1/writes", write).status == 200
        eventually(lambda: api.metric("fencegate_guard_faults") == 0, goal="the gateway has looked")
        for name in EVENT_TRIGGERS:
            stack.query(f"drop event trigger {name}", dbname=cluster.database)
        stack.query(f"drop {dropped} cascade", dbname=cluster.database)
        for _ in range(2):
            assert expect_problem(api.post("/v1/writes", write), 503, "storage-unavailable")["cause"] == "guard-missing"
        eventually(
            lambda: api.get("/readyz/writes").status == 503, goal="the answer that was kept for further callers is old"
        )
        for path in ("/readyz", "/readyz/writes"):
            assert expect_problem(api.get(path), 503, "storage-unavailable")["cause"] == "guard-missing"
        eventually(lambda: api.metric("fencegate_guard_faults") != 0, goal="the metric is not 0")
        assert api.get("/v1/nodes").json()["guard"]["fault_count"] > 0
        assert api.get("/readyz/leases").status == 200
        gateway.kill()
