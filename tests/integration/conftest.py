"""Fixtures of the integration tests: real Redis nodes, a real PostgreSQL,
and the program under test, called over HTTP."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import verified  # noqa: E402
from support.api import Api  # noqa: E402
from support.cli import Cli  # noqa: E402
from support.cluster import MAX_TTL_MS, Cluster, Gateway  # noqa: E402
from support.cluster import running as running_cluster  # noqa: E402
from support.polling import eventually  # noqa: E402
from support.shop import SAMPLES, Sample, Sku, create_sku  # noqa: E402
from support.stack import Stack  # noqa: E402
from support.stack import running as running_stack  # noqa: E402


# Where several processes share the files, the longest ones begin first, so that none of them runs alone at the end.
LONGEST = (
    "test_floods test_metrics test_snapshot_durability test_storage_generation test_cli_lock_time "
    "test_dev test_nodes_forgetting test_tokens test_storage_exactly_once test_two_gateways "
    "test_write_batches test_failing_nodes test_hostile_nodes test_history_delivery "
    "test_catalog_changes test_proxies test_commit_flush test_lease_expiry test_verify_findings "
    "test_lease_kept_failures test_recovery test_rolling_restarts test_recipes test_lease_answers "
    "test_fast_readmission test_cli_cron test_http_limits test_faults_network"
).split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack that most tests share. A test that stops a part of it starts that part again."""
    with running_stack() as made:
        yield made


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack for one module, for tests that kill or replace parts of it."""
    with running_stack() as made:
        yield made


@pytest.fixture(scope="session")
def guarded_pair() -> Iterator[Stack]:
    """Two gateways on the same nodes, with three API keys, shared by the tests of leases.
    No test stops a part of it."""
    with running_stack("--auth", "--gateways", "2") as made:
        yield made


@pytest.fixture
def api_a(guarded_pair: Stack) -> Api:
    """The first gateway of the pair, as principal admin."""
    return guarded_pair.api(0)


@pytest.fixture
def api_b(guarded_pair: Stack) -> Api:
    """The second gateway of the pair, as principal admin."""
    return guarded_pair.api(1)


@pytest.fixture
def orders(guarded_pair: Stack) -> Api:
    """The first gateway of the pair, as principal orders."""
    return guarded_pair.api(0, "orders")


@pytest.fixture(scope="module")
def cluster(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes that a test kills and starts itself, with a database for the module,
    which may set the longest ttl by CLUSTER_MAX_TTL_MS."""
    with running_cluster(
        stack,
        f"{request.module.__name__}_{uuid.uuid4().hex[:6]}",
        max_ttl_ms=getattr(request.module, "CLUSTER_MAX_TTL_MS", MAX_TTL_MS),
    ) as made:
        yield made


@pytest.fixture
def gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A running `fencegate serve` on the cluster's nodes."""
    with cluster.serving() as made:
        yield made


@pytest.fixture
def start_gateway(cluster: Cluster) -> Iterator[Callable[..., Gateway]]:
    """Returns a function that starts a gateway on the cluster's nodes with these keys in sections of its configuration;
    the gateways are killed after the test."""
    made: list[Gateway] = []

    def start(**sections: dict[str, Any]) -> Gateway:
        settings = cluster.settings()
        for section, keys in sections.items():
            settings.setdefault(section, {}).update(keys)
        made.append(cluster.gateway(settings))
        made[-1].start()
        return made[-1]

    yield start
    for gateway in made:
        gateway.kill()


@pytest.fixture
def ready_gateway(gateway: Gateway) -> Gateway:
    """The same, once all nodes vote at it."""
    gateway.wait_until_all_vote()
    return gateway


@pytest.fixture
def api(stack: Stack) -> Api:
    """The gateway of the shared stack, once it is ready."""
    made = stack.api()
    eventually(lambda: made.get("/readyz").status == 200, 30, goal="the shared stack is ready")
    return made


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Makes names that no other test uses: `unique_name("inventory/sku")`."""
    return lambda stem="test/thing": f"{stem}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def resource(unique_name: Callable[[str], str]) -> str:
    return unique_name("test/thing")


@pytest.fixture
def sku(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> Sku:
    """An article with ten pieces in stock that no other test sells."""
    return create_sku(stack, unique_name("sku"))


@pytest.fixture(scope="session")
def samples_table(stack: Stack) -> None:
    """Creates the sample table and functions, and waits until the running gateway knows them."""
    stack.query(SAMPLES)
    api = stack.api()
    lease = api.must_acquire("samples/none")
    eventually(
        lambda: api.write(lease, {"delete": "samples", "where": {"id": "none"}}).status == 200,
        goal="the gateway knows the new table",
    )
    eventually(
        lambda: api.write(lease, {"call": "sample_double", "args": {"id": "none"}}).status == 200,
        goal="the gateway knows the new functions",
    )
    api.must_release(lease)


@pytest.fixture
def sample(stack: Stack, api: Api, samples_table: None, unique_name: Callable[[str], str]) -> Sample:
    """An existing row of samples with small = 5."""
    made = Sample(unique_name("s"), stack)
    lease = api.must_acquire(made.resource)
    api.must_write(lease, made.insert())
    api.must_release(lease)
    return made


@pytest.fixture(scope="session")
def filled_database(stack: Stack) -> Iterator[str]:
    """A template database with a history, for tests of `fencegate verify`."""
    with verified.filled_database(stack) as name:
        yield name


@pytest.fixture
def history(stack: Stack, filled_database: str) -> Iterator[verified.History]:
    """A copy of it, which a test may change."""
    made = verified.History(stack, f"verify_{uuid.uuid4().hex[:8]}")
    stack.query(f"create database {made.name} template {filled_database}")
    yield made
    stack.query(f"drop database {made.name} with (force)")


@pytest.fixture
def cli(guarded_pair: Stack, api_a: Api) -> Cli:
    """The commands, with a key that may do everything."""
    return Cli(api_a.url, guarded_pair.key("admin"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a command makes, to show that it has run."""
    return tmp_path / "mark"
