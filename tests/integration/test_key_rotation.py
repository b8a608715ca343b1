"""The signing key is replaced at two gateways, as docs/operations/credentials.md says,
while callers use leases and proofs: nobody is refused. A key that is removed stops at once."""

from __future__ import annotations

import json
import random
import threading
import uuid
from pathlib import Path
from typing import Iterator

import psycopg2
import pytest
from support.api import Json, expect_problem, lease_path
from support.cli import Cli
from support.cluster import SIGNING_KEY, Cluster, Gateway
from support.polling import eventually

NEW_KEY = "the key that replaces it, long enough to be one too"


class Callers:
    """Threads that acquire at one gateway, enter with the proof in PostgreSQL, renew, write and release at any.
    A gateway that restarts is left out; an answer that refuses is a failure."""

    def __init__(self, cluster: Cluster, gateways: list[Gateway], count: int = 3) -> None:
        self.cluster, self.apis = cluster, [gateway.api for gateway in gateways]
        self.stopping = threading.Event()
        self.refused: list[str] = []
        self.done = [0] * count
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self) -> "Callers":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)

    def call(self, method: str, path: str, body: Json, expected: set[int]) -> Json | None:
        """Calls any gateway until one answers that does not restart. Out: None if the lease may be over."""
        for _ in range(200):
            api = random.choice(self.apis)
            try:
                answer = api.call(method, path, body)
            except OSError:  # this gateway restarts
                continue
            except Exception as error:
                if "http.client" in type(error).__module__:  # it stopped before it answered
                    continue
                raise
            if answer.status == 503:  # it stops, or its nodes are not admitted yet
                continue
            if answer.status in (410, 423, 404):  # a repeated call, or the lease's time is over on this busy machine
                return None
            if answer.status not in expected:
                self.refused.append(f"{method} {path}: {answer}")
            return answer.json() if answer.body else {}
        return None

    def run(self, number: int) -> None:
        connection = psycopg2.connect(self.cluster.conninfo())
        connection.autocommit = True
        while not self.stopping.is_set():
            lease = self.call(
                "POST", "/v1/leases", {"resource": f"rotation/{uuid.uuid4().hex}", "ttl_ms": 2_000}, {201}
            )
            if lease is None:
                continue
            try:
                with connection.cursor() as cursor:
                    cursor.execute(
                        "select fencing.enter(%s, %s, %s)",
                        (lease["resource"], lease["fencing_token"], lease["lease_id"]),
                    )
            except psycopg2.Error as error:
                self.refused.append(str(error))
            renewed = self.call("POST", f"{lease_path(lease)}/renew", {"ttl_ms": 2_000}, {200})
            if renewed is not None:
                self.call("GET", lease_path(renewed), None, {200})
            self.call("DELETE", lease_path(lease), None, {200, 204})
            self.done[number] += 1
        connection.close()

    def await_more(self, count: int = 4) -> None:
        """Waits until each caller has used that many further leases, so that it has none from before,
        and fails if one was refused."""
        goals = [done + count for done in self.done]
        eventually(
            lambda: all(done >= goal for done, goal in zip(self.done, goals)) or bool(self.refused),
            60,
            goal=f"{count} more leases were used",
        )
        assert not self.refused, self.refused[:3]


@pytest.fixture(scope="module")
def new_key(cluster: Cluster) -> Path:
    file = cluster.folder / "new.key"
    file.write_text(NEW_KEY + "\n")
    return file


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[list[Gateway]]:
    made = [cluster.gateway(), cluster.gateway()]
    for gateway in made:
        gateway.start()
    yield made
    for gateway in made:
        gateway.kill()
    cluster.query("select fencing.require_proof(false); delete from fencing.proof_key")


def restart_with(gateway: Gateway, signing: Path, verification: list[Path]) -> None:
    settings = json.loads(gateway.config.read_text())
    settings["lease"].update(signing_key_file=str(signing), verification_key_files=[str(file) for file in verification])
    gateway.config.write_text(json.dumps(settings))
    assert gateway.stop() == 0
    gateway.start()


def ids_of(gateway: Gateway) -> tuple[str, list[str]]:
    keys = gateway.api.get("/v1/nodes").json()["signing_keys"]
    return keys["signing"], keys["verification"]


def database_keys(cluster: Cluster) -> list[str]:
    return [row[0] for row in cluster.query("select id from fencing.proof_keys()")]


def enter_error(cluster: Cluster, lease: Json) -> str | None:
    """Returns the SQLSTATE with which fencing.enter refuses the lease's proof; None where it accepts it."""
    try:
        cluster.query(
            "select fencing.enter(%s, %s, %s)", (lease["resource"], lease["fencing_token"], lease["lease_id"])
        )
    except psycopg2.Error as error:
        return error.pgcode
    return None


def test_signing_key_replaced_under_load_refuses_nobody(cluster: Cluster, pair: list[Gateway], new_key: Path) -> None:
    old_id = ids_of(pair[0])[0]
    assert cluster.run("migrate", pair[0].config, "--require-proof").returncode == 0
    assert database_keys(cluster) == [old_id]
    with Callers(cluster, pair) as callers:
        callers.await_more()
        for gateway in pair:  # step 1: every gateway accepts the new key, then the database
            restart_with(gateway, cluster.key_file, [new_key])
            callers.await_more()
        done = cluster.run("migrate", pair[0].config, "--require-proof")
        new_id = ids_of(pair[0])[1][0]
        assert done.returncode == 0 and new_id in done.stdout and NEW_KEY not in done.stdout + done.stderr
        assert database_keys(cluster) == [old_id, new_id]
        callers.await_more()
        for gateway in pair:  # step 2: one after the other signs with it
            restart_with(gateway, new_key, [cluster.key_file])
            assert ids_of(gateway) == (new_id, [old_id])
            callers.await_more()
        # step 3: the leases of the old key are over
        cluster.query("select fencing.retire_proof_key(%s)", (old_id,))
        for gateway in pair:
            restart_with(gateway, new_key, [])
            callers.await_more()
    assert not callers.refused, callers.refused[:3]
    assert database_keys(cluster) == [new_id] and [ids_of(gateway) for gateway in pair] == [(new_id, [])] * 2
    for gateway in pair:
        assert SIGNING_KEY not in gateway.log.read_text() and NEW_KEY not in gateway.log.read_text()
        assert f"lease ids are signed with {new_id}; accepted too: {old_id}" in gateway.log.read_text()


def test_signing_key_removed_stops_its_lease_ids_at_once(cluster: Cluster, pair: list[Gateway], new_key: Path) -> None:
    """As after a theft: no overlap. Live leases of the key are refused too."""
    assert cluster.run("migrate", pair[0].config, "--require-proof").returncode == 0
    lease = pair[0].api.must_acquire(f"rotation/{uuid.uuid4().hex}", ttl_ms=2_000)
    assert enter_error(cluster, lease) is None
    for gateway in pair:
        restart_with(gateway, new_key, [])
        for answer in (
            gateway.api.read_lease(lease),
            gateway.api.renew(lease, ttl_ms=1_000),
            gateway.api.release(lease),
        ):
            expect_problem(answer, 403, "lease-not-authentic")
        expect_problem(
            gateway.api.write(lease, {"delete": "inventory", "where": {"sku": "none"}}), 403, "lease-not-authentic"
        )
    assert enter_error(cluster, lease) is None, "the database has keys of its own"
    cluster.query("select fencing.retire_proof_key(%s)", (database_keys(cluster)[0],))
    assert enter_error(cluster, lease) == "FG401"


def test_check_names_keys_and_one_that_the_database_lacks(cluster: Cluster, pair: list[Gateway], new_key: Path) -> None:
    done = cluster.run("check", pair[0].config)
    assert done.returncode == 0 and "ok    proof keys: none" in done.stdout, done.stdout
    assert "; WARNING: a superuser, whom no privilege and no row security limits" in done.stdout, done.stdout
    assert cluster.run("migrate", pair[0].config, "--require-proof").returncode == 0
    old_id = ids_of(pair[0])[0]
    done = cluster.run("check", pair[0].config)
    assert done.returncode == 0 and f"ok    proof keys: PostgreSQL has {old_id}\n" in done.stdout, done.stdout
    restart_with(pair[0], new_key, [cluster.key_file])
    new_id = ids_of(pair[0])[0]
    done = cluster.run("check", pair[0].config)
    assert (
        done.returncode == 69
        and f"FAULT proof keys: PostgreSQL has {old_id}; it refuses proofs that this gateway signs with {new_id}"
        in done.stdout
    ), done.stdout
    assert f"ok    signing key: {new_id}" in done.stdout and f"ok    verification key: {old_id}" in done.stdout
    for key in (SIGNING_KEY, NEW_KEY):
        assert key not in done.stdout + done.stderr


def test_status_shows_which_key_signs_at_the_gateway(cluster: Cluster, pair: list[Gateway], new_key: Path) -> None:
    restart_with(pair[0], new_key, [cluster.key_file])
    signing, verification = ids_of(pair[0])
    for gateway, text in zip(pair, (f"{signing}; accepted too: {verification[0]}\n", f"{verification[0]}\n")):
        terminal = Cli(gateway.api.url).run_on_terminal("status")
        terminal.expect(f"lease ids are signed with {text}")
        assert terminal.end() == 0
