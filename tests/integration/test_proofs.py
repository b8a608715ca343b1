"""Proofs: fencing.enter accepts a lease_id from a real gateway for its own resources and token, and nothing else."""

from __future__ import annotations

from typing import Any, Iterator

import psycopg2
import pytest

from support.cluster import SIGNING_KEY, Cluster, Gateway


@pytest.fixture(scope="module")
def gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A gateway of a cluster whose database requires proofs."""
    made = cluster.start_gateway()
    done = cluster.run("migrate", made.config, "--require-proof")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proof" in done.stdout and SIGNING_KEY not in done.stdout + done.stderr
    yield made


def enter(cluster: Cluster, resource: str, token: int, proof: str | None) -> Any:
    """Calls fencing.enter and returns the fence that it found, or the SQLSTATE of its error."""
    try:
        return cluster.query("select fencing.enter(%s, %s, %s)", (resource, token, proof))[0][0]
    except psycopg2.Error as error:
        assert SIGNING_KEY not in str(error)
        return error.pgcode


def test_enter_accepts_lease_id_for_its_token_and_resources_only(
    cluster: Cluster, gateway: Gateway, resource: str
) -> None:
    lease = gateway.api.post(
        "/v1/leases", {"resources": [f"{resource}/b", f"{resource}/a"], "ttl_ms": 2_000, "owner": "who \u00e9\u4e2d"}
    ).json()
    token, proof = lease["fencing_token"], lease["lease_id"]
    for name in lease["resources"]:
        assert enter(cluster, name, token, proof) in (0, token)
        assert enter(cluster, name, token + 1, proof) == "FG401"
        assert enter(cluster, name, token, None) == "FG401"
        assert enter(cluster, name, token, proof[:-1] + ("A" if proof[-1] != "A" else "B")) == "FG401"
    assert enter(cluster, resource, token, proof) == "FG401"
    gateway.api.release(lease)  # it may have expired by now


def test_enter_with_older_proof_after_newer_write_is_stale(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    older = gateway.api.must_acquire(resource, ttl_ms=2_000)
    gateway.api.must_release(older)
    newer = gateway.api.must_acquire(resource, ttl_ms=2_000)
    assert enter(cluster, resource, newer["fencing_token"], newer["lease_id"]) in (0, older["fencing_token"])
    assert enter(cluster, resource, older["fencing_token"], older["lease_id"]) == "FG412"
    gateway.api.release(newer)  # it may have expired by now


def test_migrate_require_proof_without_config_exits_64(cluster: Cluster) -> None:
    done = cluster.call("migrate", "--require-proof", "--conninfo", cluster.conninfo())
    assert done.returncode == 64 and "--config" in done.stderr


def test_migrate_with_another_key_keeps_both_keys(cluster: Cluster, gateway: Gateway, resource: str) -> None:
    lease = gateway.api.must_acquire(resource, ttl_ms=2_000)
    kept = cluster.key_file.read_text()
    try:
        cluster.key_file.write_text("another-key-" * 4 + "\n")
        for _ in range(2):
            assert cluster.run("migrate", gateway.config, "--require-proof").returncode == 0
    finally:
        cluster.key_file.write_text(kept)
    assert cluster.query("select count(*) from fencing.proof_key") == [(2,)]
    assert enter(cluster, resource, lease["fencing_token"], lease["lease_id"]) in (0, lease["fencing_token"])
    gateway.api.release(lease)  # it may have expired by now
