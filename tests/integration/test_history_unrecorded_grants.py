"""A lease that one gateway obtained from the nodes without recording it,
and that a repeated request got at another gateway."""

from __future__ import annotations

import json
from typing import Iterator

import pytest
from support.api import Json
from support.cluster import MAX_TTL_MS, Cluster, Gateway
from support.faults import count_holders, install_shop, sale_operation
from support.polling import eventually, pause
from support.tcp_gate import Gates, open_gates

TTL_MS = MAX_TTL_MS


@pytest.fixture
def gates(cluster: Cluster) -> Iterator[Gates]:
    with open_gates([node.port for node in cluster.nodes]) as made:
        yield made


@pytest.fixture
def first(cluster: Cluster, gates: Gates) -> Iterator[Gateway]:
    """The gateway behind the gates; it waits for the nodes longer than the ttl."""
    settings = cluster.settings(ports=[gate.port for gate in gates.members])
    settings["redis"].update(node_timeout_ms=10_000, node_dead_after_ms=10_000)
    with cluster.serving(settings) as gateway:
        gateway.wait_until_all_vote()
        yield gateway


@pytest.fixture
def second(cluster: Cluster) -> Iterator[Gateway]:
    with cluster.serving() as gateway:
        gateway.wait_until_all_vote()
        yield gateway


@pytest.mark.parametrize("identity", ["key", "owner"])
def test_lease_handed_out_by_another_gateway_is_recorded(
    cluster: Cluster, gates: Gates, first: Gateway, second: Gateway, resource: str, identity: str
) -> None:
    """The nodes execute the first request, whose answers do not reach its gateway;
    the same request is answered by the second one."""
    sku = install_shop(cluster, resource.replace("/", "-"))
    resource = f"inventory/{sku}"
    body: Json = (
        {"resource": resource, "ttl_ms": TTL_MS, "owner": "o"}
        if identity == "owner"
        else {"resource": resource, "ttl_ms": TTL_MS}
    )
    headers = {} if identity == "owner" else {"Idempotency-Key": f'"{resource}"'}
    for gate in gates.members:
        gate.replies.stalled = True
    unanswered = first.api.begin("POST", "/v1/leases", body, headers)
    eventually(lambda: count_holders(cluster.clients(), resource) == 5, goal="executed on every node")
    answer = second.api.post("/v1/leases", body, headers)
    assert answer.status in (200, 201), answer
    lease = answer.json()
    second.api.must_write(lease, sale_operation(sku))
    (expired,) = eventually(
        lambda: second.api.history(resource=resource, event="lease_expired"), goal="its expiry is recorded"
    )
    gates.clear_faults()
    assert unanswered.answer().status in (410, 503)
    pause(1.5, "time for a second event")
    events = [
        item["event"] for item in second.api.history(resource=resource, token_min=lease["fencing_token"], order="asc")
    ]
    assert events == ["lease_renewed", "write_applied", "lease_expired"]
    assert expired["fencing_token"] == lease["fencing_token"]
    timeline = second.api.get(
        f"/v1/resources/{resource.replace('/', '%2F')}", fencing_token=lease["fencing_token"]
    ).json()
    assert timeline["held_by"]["principal"] == expired["principal"] and timeline["held_by"]["owner"] == expired["owner"]
    assert (timeline["granted_at"], timeline["end"]) == (None, "expired")
    done = Cluster.call("verify", "--json", "--conninfo", cluster.conninfo(), "--resource-prefix", resource)
    assert json.loads(done.stdout)["verdict"] == "proved", done.stdout


def test_repeated_request_extends_nothing_in_history(cluster: Cluster, second: Gateway, resource: str) -> None:
    headers = {"Idempotency-Key": f'"{resource}"'}
    body: Json = {"resource": resource, "ttl_ms": TTL_MS}
    assert second.api.post("/v1/leases", body, headers).status == 201
    pause(TTL_MS / 2_000, "half of the ttl")
    repeat = second.api.post("/v1/leases", body, headers).json()
    (repeated,) = eventually(
        lambda: second.api.history(resource=resource, event="lease_renewed"), 5, goal="the repeated request is recorded"
    )
    assert repeated["detail"]["reason"] == "repeated request"
    assert 0 < repeated["detail"]["ttl_ms"] <= TTL_MS / 2, repeated
    assert repeated["detail"]["ttl_ms"] <= repeat["ttl_ms"]
