"""Two cells, each with nodes and a database of its own: what one of them has given out is refused by the other,
which names both, and HAProxy leads each request to its cell."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any, Callable, Iterator
from urllib.parse import quote

import psycopg2
import pytest
from support.api import Answer, Api, expect_problem, lease_path, pointers_of
from support.cli import Cli
from support.cluster import Cluster, Gateway
from support.cluster import running as running_cluster
from support.events import EventStream
from support.polling import eventually
from support.proxies import CellsHaproxy
from support.stack import Stack


def settings_of(cluster: Cluster, cell: int) -> dict[str, Any]:
    """Cell 0 is that of a configuration that names none."""
    return {**cluster.settings(), **({"cell": cell} if cell else {})}


@pytest.fixture(scope="module")
def clusters(stack: Stack) -> Iterator[list[Cluster]]:
    """Two clusters with the same names of nodes and the same signing key, which only their cells tell apart."""
    with running_cluster(stack, "cell_0", max_ttl_ms=20_000) as first, running_cluster(
        stack, "cell_1", max_ttl_ms=20_000
    ) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def cells(clusters: list[Cluster]) -> Iterator[list[Gateway]]:
    """A gateway of cell 0 and one of cell 1."""
    made = [cluster.gateway(settings_of(cluster, cell)) for cell, cluster in enumerate(clusters)]
    for gateway in made:
        gateway.start()
    for gateway in made:
        gateway.wait_until_all_vote()
    yield made


def status_of(api: Api, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
    """Returns the status of an answer that may be a stream, or one of HAProxy's own,
    which openapi.json does not describe."""
    with closing(http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)) as connection:
        sent = {
            **({"content-type": "application/json"} if body else {}),
            **{name.replace("_", "-").lower(): value for name, value in headers.items()},
        }
        connection.request(method, path, body, sent)
        return connection.getresponse().status


def expect_other_cell(answer: Answer, subject: str, named: int, own: int) -> None:
    problem = expect_problem(answer, 421, "misdirected-request")
    assert (
        problem["detail"] == f"{subject} names cell {named}; this gateway is of cell {own}. "
        f"Send the request to a gateway of cell {named}."
    )
    assert problem["named_cell"] == named


UPDATE = {"update": "inventory", "where": {"sku": "none"}, "add": {"stock": 1}}
USES: dict[str, Callable[[Api, dict], Answer]] = {
    "read": lambda to, lease: to.read_lease(lease),
    "renew": lambda to, lease: to.renew(lease),
    "release": lambda to, lease: to.release(lease),
    "seal": lambda to, lease: to.call("DELETE", f"{lease_path(lease)}?seal=true"),
    "write": lambda to, lease: to.write(lease, UPDATE),
    "write-by-header": lambda to, lease: to.post(
        "/v1/writes", {"operations": [UPDATE]}, {"Fencing-Lease": lease["lease_id"]}
    ),
    "table-write": lambda to, lease: to.call(
        "PATCH", "/v1/tables/inventory?sku=eq.none", {"note": "x"}, {"Fencing-Lease": lease["lease_id"]}
    ),
    "fenced-read": lambda to, lease: to.call(
        "GET", "/v1/tables/inventory?sku=eq.none", headers={"Fencing-Lease": lease["lease_id"]}
    ),
}


@pytest.mark.parametrize("cell", [0, 1])
def test_lease_id_of_other_cell_421_names_both(cells: list[Gateway], resource: str, cell: int) -> None:
    other = 1 - cell
    lease = cells[cell].api.must_acquire(resource)
    assert lease["lease_id"].startswith("1~") == (cell == 1) and ("~" in lease["lease_id"]) == (cell == 1)
    for use in USES.values():
        expect_other_cell(use(cells[other].api, lease), "The lease_id", cell, other)
    assert cells[cell].api.renew(lease).json()["lease_id"] == lease["lease_id"], "its own cell does not mind"
    cells[cell].api.must_release(lease)


def test_lease_id_with_its_cell_removed_is_not_authentic(cells: list[Gateway], resource: str) -> None:
    """Both cells have one signing key, so that the cell has to be a part of what is signed."""
    lease = cells[1].api.must_acquire(resource)
    expect_problem(cells[0].api.read_lease(lease["lease_id"].removeprefix("1~")), 403, "lease-not-authentic")
    expect_problem(cells[1].api.read_lease("01~" + lease["lease_id"].removeprefix("1~")), 403, "lease-not-authentic")
    cells[1].api.must_release(lease)


@pytest.mark.parametrize("cell", [0, 1])
def test_cursors_of_other_cell_421_name_both(cells: list[Gateway], resource: str, cell: int) -> None:
    own, other = cells[cell].api, cells[1 - cell].api
    leases = [own.must_acquire(f"{resource}/{number}") for number in range(2)]
    eventually(lambda: len(own.history(resource_prefix=resource)) == 2, goal="both grants are in the history")
    for path in ("/v1/history", "/v1/leases"):
        page = own.get(path, resource_prefix=resource, limit=1).json()
        assert page["next_cursor"].startswith("1~") == (cell == 1)
        query = {"resource_prefix": resource, "limit": 1, "cursor": page["next_cursor"]}
        rest = own.get(path, **query).json()
        assert len(rest["items"]) == 1 and rest["items"] != page["items"]
        expect_other_cell(other.get(path, **query), "The cursor", cell, 1 - cell)
        assert pointers_of(own.get(path, cursor="01~" + page["next_cursor"])) == ["cursor"]
    for lease in leases:
        own.must_release(lease)


def test_event_ids_name_their_cell(cells: list[Gateway], resource: str) -> None:
    """0 is the beginning of every cell; any other id belongs to the cell that gave it."""
    for cell, gateway in enumerate(cells):
        lease = gateway.api.must_acquire(resource)
        path = f"/v1/history/stream?resource={quote(resource, safe='')}"
        with EventStream(gateway.api, None, {"Last-Event-ID": "0"}, "GET", path) as stream:
            event = stream.wait_for("lease_granted")
        assert event.id == f"1~{event.data['id']}" if cell else str(event.data["id"])
        with EventStream(gateway.api, None, {"Last-Event-ID": event.id}, "GET", path) as resumed:
            gateway.api.must_release(lease)
            resumed.wait_for("lease_released")
            assert "lease_granted" not in resumed.names()
        refused = cells[1 - cell].api.get(
            "/v1/history/stream", {"Accept": "text/event-stream", "Last-Event-ID": event.id}
        )
        expect_other_cell(refused, "The header Last-Event-ID", cell, 1 - cell)


@pytest.mark.parametrize("cell", [0, 1])
def test_marked_beginning_of_other_cell_421(cells: list[Gateway], cell: int) -> None:
    """A stream of cell 1 without events gives 1~0: it names its cell, as every other position does."""
    own, other = cells[cell].api, cell + 1
    assert status_of(own, "GET", "/v1/history/stream", Accept="text/event-stream", Last_Event_ID=f"{other}~0") == 421
    expect_other_cell(own.get("/v1/leases", cursor=f"{other}~"), "The cursor", other, cell)


def test_header_of_other_cell_421_before_anything_runs(cells: list[Gateway], resource: str) -> None:
    for cell, gateway in enumerate(cells):
        api = gateway.api
        body = {"resource": resource}
        refused = api.post("/v1/leases", body, {"Fencing-Cell": str(1 - cell)})
        expect_other_cell(refused, "The header Fencing-Cell", 1 - cell, cell)
        for path in ("/v1/history", "/readyz", "/readyz/leases", "/readyz/writes"):
            expect_other_cell(api.get(path, {"Fencing-Cell": "65535"}), "The header Fencing-Cell", 65535, cell)
        assert api.get("/readyz", {"Fencing-Cell": str(cell)}).status == 200
        for text in ("", "x", "-1", "65536", "0x1", "0, 1"):
            assert pointers_of(api.post("/v1/leases", body, {"Fencing-Cell": text})) == ["Fencing-Cell"], text
        assert api.get(f"/v1/resources/{quote(resource, safe='')}").json()["lease_state"] == "free"
        api.must_release(api.post("/v1/leases", body, {"Fencing-Cell": str(cell)}).json())


def test_tokens_of_two_cells_meet_no_common_guard(cells: list[Gateway], clusters: list[Cluster], resource: str) -> None:
    """Each cell has a database, so that a write under a token of one of them raises no fence of the other."""
    leases = [gateway.api.must_acquire(resource, fence_on_grant=True) for gateway in cells]
    fences = [cluster.query("select fencing.fence(%s)", (resource,))[0][0] for cluster in clusters]
    assert fences == [lease["fencing_token"] for lease in leases]
    for gateway, lease in zip(cells, leases):
        gateway.api.must_release(lease)


def test_proof_of_other_cell_is_refused_by_the_database(
    cells: list[Gateway], clusters: list[Cluster], resource: str
) -> None:
    for cluster, gateway in zip(clusters, cells):
        assert cluster.run("migrate", gateway.config, "--require-proof").returncode == 0
    try:
        for cell, gateway in enumerate(cells):
            lease = gateway.api.must_acquire(resource)
            arguments = (resource, lease["fencing_token"], lease["lease_id"])
            clusters[cell].query("select fencing.enter(%s, %s, %s)", arguments)
            with pytest.raises(psycopg2.Error, match="other cell") as refused:
                clusters[1 - cell].query("select fencing.enter(%s, %s, %s)", arguments)
            assert (
                refused.value.pgcode == "FG401"
                and json.loads(refused.value.diag.message_detail)["fault"] == "other_cell"
            )
            gateway.api.must_release(lease)
    finally:
        for cluster in clusters:
            cluster.query("select fencing.require_proof(false)")


def test_cell_is_shown(cells: list[Gateway], clusters: list[Cluster]) -> None:
    for cell, (cluster, gateway) in enumerate(zip(clusters, cells)):
        assert gateway.api.get("/v1/nodes").json()["cell"] == cell
        assert f',cell="{cell}"}} 1' in gateway.api.get("/metrics").body.decode()
        assert f"for cell {cell}" in gateway.log.read_text()
        checked = cluster.run("check", gateway.config)
        assert (
            checked.returncode == 0 and f"agrees with this configuration, cell {cell}, epoch" in checked.stdout
        ), checked.stdout


def test_tokens_after_a_move_are_higher_as_documented(
    cells: list[Gateway], clusters: list[Cluster], resource: str
) -> None:
    """docs/scale.md, Move a prefix: the register of the cell is raised to that of the other one,
    and the floor is set above it."""
    lease = cells[1].api.must_acquire(resource)
    epoch_of_cell_0 = (lease["fencing_token"] >> 32) + 100_000
    clusters[1].query("update fencing.cluster set epoch = greatest(epoch, %s)", (epoch_of_cell_0,))
    done = clusters[1].call(
        "fence-all", "--conninfo", clusters[1].conninfo(), "--reason", "tokens continue those of cell 0"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells[1].api.must_release(lease)

    def next_epoch() -> int:
        moved = cells[1].api.must_acquire(resource)
        cells[1].api.must_release(moved)
        return moved["fencing_token"] >> 32

    eventually(lambda: next_epoch() > epoch_of_cell_0, goal="the gateway has seen the floor, within a second")


# A gateway that is led to the servers of another cell


@pytest.mark.parametrize("wrong", [0, 2])
def test_gateway_at_the_database_of_another_cell_does_not_start(
    clusters: list[Cluster], cells: list[Gateway], wrong: int
) -> None:
    gateway = clusters[1].gateway(settings_of(clusters[1], wrong))
    refused = clusters[1].run("serve", gateway.config)
    assert (
        refused.returncode == 69
        and f"cell: cell differs: the cluster has 1, this gateway {wrong}" in refused.stdout + refused.stderr
    )
    checked = clusters[1].run("check", gateway.config)
    assert (
        checked.returncode == 69
        and f"FAULT cluster: cell differs: the cluster has 1, this configuration {wrong}" in checked.stdout
    )


def test_nodes_of_another_cell_do_not_vote_and_stay_as_they_are(
    clusters: list[Cluster], cells: list[Gateway], resource: str
) -> None:
    """The names of the nodes are equal in both cells,
    so that only what the nodes have recorded shows whose they are."""
    lease = cells[0].api.must_acquire(resource)

    def recorded_marks() -> list[dict[str, str]]:
        """Without `compared`, which every script that compares the marks writes."""
        marks = [client.hgetall("fg:node") for client in clusters[0].clients()]
        return [{name: value for name, value in each.items() if name != "compared"} for each in marks]

    recorded = recorded_marks()
    known = clusters[1].query("select name, epoch, life, synced from fencing.node order by 1")
    misled = clusters[1].gateway({**settings_of(clusters[1], 1), "redis": clusters[0].settings()["redis"]})
    misled.start(wait=False)
    reason = "belongs to cell 0, this gateway is of cell 1: correct redis.nodes or cell"
    eventually(
        lambda: {(node["state"], node["detail"]) for node in misled.nodes()} == {("misconfigured", reason)},
        20,
        goal="all nodes are refused",
    )
    expect_problem(misled.api.acquire(f"{resource}/other"), 503, "no-quorum")
    checked = clusters[1].run("check", misled.config)
    assert checked.returncode == 69 and checked.stdout.count(f"; {reason}") == 5
    misled.kill()
    assert recorded_marks() == recorded
    assert clusters[1].query("select name, epoch, life, synced from fencing.node order by 1") == known
    cells[0].api.must_release(lease)


def test_nodes_know_their_cell_again_after_a_restart_of_gateways(
    clusters: list[Cluster], cells: list[Gateway], resource: str
) -> None:
    lease = cells[1].api.must_acquire(resource)
    second = clusters[1].start_gateway(settings_of(clusters[1], 1))
    second.wait_until_all_vote()
    assert second.api.read_lease(lease).status == 200, "any gateway of the cell serves any call"
    second.api.must_release(lease)
    assert second.stop() == 0


# One address for both cells (config/haproxy/cells.cfg)


@pytest.fixture(scope="module")
def proxy(cells: list[Gateway], clusters: list[Cluster]) -> Iterator[Api]:
    with CellsHaproxy(clusters[0].folder, CellsHaproxy.MAP, [gateway.api.port for gateway in cells]) as made:
        made.await_ready()
        yield made.api


@pytest.mark.parametrize("resource, cell", [("orders/7", 0), ("inventory/sku-1", 0), ("orders/eu/7", 1)])
def test_proxy_leads_a_lease_and_its_calls_to_one_cell(
    proxy: Api, cells: list[Gateway], resource: str, cell: int
) -> None:
    for body in (
        {"ttl_ms": 20_000, "resource": resource},
        {"ttl_ms": 20_000, "resources": [resource, f"{resource}/2"]},
    ):
        lease = proxy.post("/v1/leases", body)
        assert lease.status == 201 and lease.json()["lease_id"].startswith("1~") == (cell == 1), lease
        assert proxy.read_lease(lease.json()).status == 200
        assert proxy.renew(lease.json()).status == 200
        write = {"operations": [{"delete": "none"}], "lease_id": lease.json()["lease_id"]}
        assert proxy.post("/v1/writes", write).status == 400, "its cell reads it"
        assert proxy.get(f"/v1/resources/{quote(resource, safe='')}").json()["lease_state"] == "held"
        assert proxy.is_held(resource)
        proxy.must_release(lease.json())
    eventually(
        lambda: len(cells[cell].api.history(resource=resource, event="lease_released")) >= 2,
        goal="both releases are in the history",
    )
    assert proxy.history(resource=resource) == cells[cell].api.history(resource=resource)
    page = proxy.get("/v1/history", resource_prefix=resource, limit=1).json()
    assert proxy.get("/v1/history", limit=1, cursor=page["next_cursor"]).status == 200, "the cursor names its cell"


def test_proxy_leads_what_has_no_resource_by_header(proxy: Api) -> None:
    for cell in range(2):
        assert proxy.get("/v1/nodes", {"Fencing-Cell": str(cell)}).json()["cell"] == cell
        with EventStream(proxy, None, {"Fencing-Cell": str(cell)}, "GET", "/v1/history/stream") as stream:
            eventually(lambda: stream.last_id, goal="the stream has sent its position")
            assert stream.last_id.startswith("1~") == (cell == 1)
    assert [status_of(proxy, "GET", "/v1/nodes"), status_of(proxy, "GET", "/v1/nodes", Fencing_Cell="2")] == [421, 421]
    assert status_of(proxy, "GET", "/openapi.json") == 200


def test_proxy_leads_commands_by_their_cell(proxy: Api, cells: list[Gateway]) -> None:
    program = Cli(proxy.url)
    without = program.run("leases")
    assert (
        without.returncode == 1 and "Misdirected Request: No cell has what this request names." in without.stderr
    ), without
    for cell in range(2):
        named = ("--cell", str(cell))
        lease = proxy.must_acquire(f"orders/{'eu/' if cell else ''}cli")
        assert f'"{lease["resource"]}"' in program.run("leases", *named).stdout
        assert (
            program.run("history", *named, "--limit", "1").returncode == program.run("status", *named).returncode == 0
        )
        proxy.must_release(lease)
        assert program.run("lock", *named, "-n", lease["resource"], "--", "true").returncode == 0
        assert (
            cells[cell].api.get("/v1/leases").json()["items"] == []
        ), "behind a proxy too the lease is free when lock has ended"
        refused = program.run("lock", "--cell", str(1 - cell), "-n", lease["resource"], "--", "true")
        assert (
            refused.returncode == 1 and f"names cell {1 - cell}; this gateway is of cell {cell}" in refused.stderr
        ), refused
    assert program.run("leases", "--cell", "65536").returncode == 64


def test_proxy_refuses_what_it_cannot_lead(proxy: Api, cells: list[Gateway]) -> None:
    """A prefix of no cell, a text that HAProxy does not read as the gateway does,
    a lease id of a cell that does not exist; a header that contradicts goes to the cell, which refuses it."""
    assert status_of(proxy, "POST", "/v1/leases", b'{"resource": "jobs/1"}') == 421
    assert status_of(proxy, "POST", "/v1/leases", rb'{"resource": "orders\/eu\/1"}') == 421
    assert status_of(proxy, "GET", "/v1/leases/7~abc.def") == 421
    refused = proxy.post("/v1/leases", {"resource": "orders/7"}, {"Fencing-Cell": "1"})
    expect_other_cell(refused, "The header Fencing-Cell", 1, 0)
    assert [gateway.api.get("/v1/leases").json()["items"] for gateway in cells] == [[], []]


def cell_of(
    proxy: Api, cells: list[Gateway], method: str, path: str, body: object = None, **headers: str
) -> int | None:
    """Returns the cell whose gateway got a request, by its metrics; None if the proxy answered."""

    def served() -> list[float]:
        return [
            sum(
                float(line.rpartition(" ")[2])
                for line in gateway.api.get("/metrics").body.decode().splitlines()
                if line.startswith("fencegate_http_requests_total{") and "/metrics" not in line
            )
            for gateway in cells
        ]

    before = served()
    status = status_of(proxy, method, path, json.dumps(body).encode() if body is not None else None, **headers)
    cells_asked = [cell for cell, (now, then) in enumerate(zip(served(), before)) if now > then]
    assert len(cells_asked) == (0 if status == 421 else 1), (status, cells_asked)
    return cells_asked[0] if cells_asked else None


ONE_SHOT = {"operations": [{"update": "none", "where": {"id": 1}, "set": {"note": "n"}}]}
FORM = {"Content_Type": "Application/JSON; charset=utf-8"}


@pytest.mark.parametrize(
    "cell, method, path, body, headers",
    [
        # a one-shot write in both of its forms; names of headers and media types in any case
        (1, "POST", "/v1/writes", {**ONE_SHOT, "lease": {"resource": "orders/eu/1"}}, {}),
        (1, "POST", "/v1/writes", {**ONE_SHOT, "lease": {"resources": ["orders/eu/1", "orders/eu/2"]}}, {}),
        (1, "POST", "/v1/writes", {**ONE_SHOT, "lease": {"resource": "orders/eu/1"}}, FORM),
        (1, "POST", "/v1/writes", ONE_SHOT, {"FENCING_RESOURCE": "orders/eu/1", "fencing_token": "1"}),
        (1, "POST", "/v1/writes", ONE_SHOT, {"Fencing_Resource": "orders/eu/1, orders/1", "Fencing_Token": "1"}),
        (1, "POST", "/v1/writes", ONE_SHOT, {"Fencing_Resource": "orders%2Feu%2F1%2Ca", "Fencing_Token": "1"}),
        # a request that is cancelled, by the resources that it names
        (0, "POST", "/v1/leases/cancel", {"resource": "orders/1"}, {"Idempotency_Key": "k"}),
        (1, "POST", "/v1/leases/cancel", {"resources": ["orders/eu/1"]}, {"Idempotency_Key": "k"}),
        # a resource in the path or in the query
        (1, "GET", "/v1/resources/orders%2Feu%2F1", None, {}),
        (1, "GET", "/v1/resource?resource=orders/eu/1", None, {}),
        (1, "DELETE", "/v1/resource/lease?resource=orders%2Feu%2F1+a", {"reason": "r"}, {}),
        (None, "GET", "/v1/resource?resource=nowhere/1", None, {}),
        # PostgREST's addresses are no part of what is the same in each cell
        (None, "GET", "/rest/v1/inventory?sku=eq.none", None, {}),
        (None, "GET", "/%72est/v1/inventory?sku=eq.none", None, {}),
        (1, "GET", "/rest/v1/inventory?sku=eq.none", None, {"Fencing_Cell": "1"}),
        # columns and arguments that have the names of what leads other requests
        (None, "GET", "/v1/tables/inventory?cursor=eq.5", None, {}),
        (1, "GET", "/v1/tables/inventory?cursor=eq.5", None, {"Fencing_Cell": "1"}),
        (None, "POST", "/v1/rpc/count_orders", {"lease_id": "x", "resource": "orders/1"}, {}),
        (1, "POST", "/v1/rpc/count_orders", {"lease_id": "x", "resource": "orders/1"}, {"Fencing_Cell": "1"}),
        # an empty text names nothing
        (1, "GET", "/v1/leases?cursor=&resource_prefix=orders/eu/", None, {}),
        (1, "GET", "/v1/history?resource=orders%2Feu%2F1", None, {"Fencing_Lease": ""}),
        # a prefix may be that of resources of both cells
        (0, "GET", "/v1/history?resource_prefix=orders/", None, {}),
        (1, "GET", "/v1/history?resource_prefix=orders/", None, {"Fencing_Cell": "1"}),
        (1, "GET", "/v1/history/summary?resource_prefix=orders/eu/", None, {}),
    ],
)
def test_proxy_leads_each_kind_of_request(
    proxy: Api, cells: list[Gateway], cell: int | None, method: str, path: str, body: object, headers: dict[str, str]
) -> None:
    assert cell_of(proxy, cells, method, path, body, **headers) == cell


def test_proxy_leads_a_long_write_by_its_header(proxy: Api, resource: str) -> None:
    """HAProxy reads 16 KiB of a body; it sees a lease_id in them if it comes first."""
    lease = proxy.must_acquire(f"orders/eu/{resource}")
    operations = [{"update": "none", "where": {"id": 1}, "set": {"note": "n" * 40_000}}]
    late = json.dumps({"operations": operations, "lease_id": lease["lease_id"]}).encode()
    early = json.dumps({"lease_id": lease["lease_id"], "operations": operations}).encode()
    assert status_of(proxy, "POST", "/v1/writes", late) == 421
    assert (
        status_of(proxy, "POST", "/v1/writes", late, Fencing_Lease=lease["lease_id"]) == 422
    ), "the gateway has read it, and knows no such table"
    assert status_of(proxy, "POST", "/v1/writes", early) == 422
    proxy.must_release(lease)
