"""The metrics of certificates, the history and PostgreSQL."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg2
import pytest
from support.certificates import openssl
from support.cluster import Cluster
from support.metrics import scrape, sum_samples
from support.polling import eventually
from support.stack import Stack


def test_certificates_history_and_postgres_are_measured(cluster: Cluster, stack: Stack, tmp_path: Path) -> None:
    settings = cluster.settings()
    openssl(tmp_path, *"req -x509 -newkey ed25519 -nodes -subj /CN=x -days 9 -keyout pg.key -out pg.pem".split())
    settings["postgres"]["conninfo"] += f" sslcert={tmp_path}/pg.pem sslkey={tmp_path}/pg.key"
    settings["postgres"]["guard_check_interval_ms"] = 300
    gateway = cluster.start_gateway(settings)
    api = gateway.api
    connection = stack.sql(dbname=cluster.database, application_name="a desk")
    connection.cursor().execute("create table direct (id text); select fencing.protect('direct', 'id')")
    try:
        before = sum_samples(scrape(api), "fencegate_direct_refusals")
        with pytest.raises(psycopg2.Error):
            connection.cursor().execute("insert into direct values ('a')")
        eventually(
            lambda: sum_samples(scrape(api), "fencegate_direct_refusals") == before + 1, 20, goal="it is counted"
        )
    finally:
        connection.cursor().execute("select fencing.unprotect('direct'); drop table direct")
    samples = scrape(api)
    name = "fencegate_certificate_expiry_timestamp_seconds"
    left = sum_samples(samples, name, file="postgres.conninfo sslcert") - time.time()
    assert 8.9 * 86_400 < left < 9.1 * 86_400
    assert sum_samples(samples, "fencegate_history_bytes") > 8_192
    assert time.time() - 86_400 < sum_samples(samples, "fencegate_history_oldest_timestamp_seconds") < time.time()
    for work in ("writes", "history"):
        count = sum_samples(samples, "fencegate_postgres_seconds_count", work=work)
        longest = sum_samples(samples, "fencegate_postgres_seconds_bucket", work=work, le="+Inf")
        assert 0 < count == longest and sum_samples(samples, "fencegate_postgres_seconds_sum", work=work) > 0
    gateway.kill()
