"""Fixtures of the integration tests: real Redis, real PostgreSQL, the real program, spoken to over HTTP."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.api import Api  # noqa: E402
from support.cluster import Cluster, Gateway  # noqa: E402
from support.cluster import running as running_cluster  # noqa: E402
from support.polling import eventually  # noqa: E402
from support.shop import SAMPLES, Sample, Sku, stock_up  # noqa: E402
from support.stack import Stack  # noqa: E402
from support.stack import running as running_stack  # noqa: E402


# Where several processes share the files, those that last longest begin first: at the end no process is left alone with one of them.
LONGEST = ["test_write_batches", "test_http_limits", "test_metrics", "test_nodes_forgetting", "test_storage_exactly_once", "test_dev", "test_commit_flush", "test_history_delivery",
           "test_faults_network", "test_failing_nodes", "test_verify", "test_snapshot_durability", "test_cli_lock_time", "test_faults_process", "test_lease_answers"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack that most tests share. Whoever stops a part of it starts it again."""
    with running_stack() as made:
        yield made


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack of one module, for tests that leave scars."""
    with running_stack() as made:
        yield made


@pytest.fixture(scope="session")
def guarded_pair() -> Iterator[Stack]:
    """Two gateways on the same nodes, and three API keys: what the tests of leases share. Nobody stops a part of it."""
    with running_stack("--auth", "--gateways", "2") as made:
        yield made


@pytest.fixture
def here(guarded_pair: Stack) -> Api:
    """One gateway of the pair, as its principal admin."""
    return guarded_pair.api(0)


@pytest.fixture
def there(guarded_pair: Stack) -> Api:
    """The other."""
    return guarded_pair.api(1)


@pytest.fixture
def orders(guarded_pair: Stack) -> Api:
    """Another principal, at the first gateway."""
    return guarded_pair.api(0, "orders")


@pytest.fixture(scope="module")
def cluster(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Nodes that the test kills and starts itself, with a database of the module's own."""
    with running_cluster(stack, f"{request.module.__name__}_{uuid.uuid4().hex[:6]}") as made:
        yield made


@pytest.fixture
def gateway(cluster: Cluster) -> Iterator[Gateway]:
    """A running `fencegate serve` on the cluster's nodes."""
    made = cluster.gateway()
    made.start()
    yield made
    made.kill()


@pytest.fixture
def api(stack: Stack) -> Api:
    """The shared stack's gateway, and a check that the test found it whole."""
    made = stack.api()
    eventually(lambda: made.get("/readyz").status == 200, 30, what="the shared stack is ready")
    return made


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Makes names that no other test uses: `fresh("inventory/sku")`."""
    return lambda stem="test/thing": f"{stem}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def resource(fresh: Callable[[str], str]) -> str:
    return fresh("test/thing")


@pytest.fixture
def sku(stack: Stack, api: Api, fresh: Callable[[str], str]) -> Sku:
    """Ten pieces of something, and nobody else selling it."""
    return stock_up(stack, fresh("sku"))


@pytest.fixture(scope="session")
def samples_table(stack: Stack) -> None:
    """Made while the gateway runs: it learns of it by itself."""
    stack.query(SAMPLES)
    api = stack.api()
    lease = api.take("samples/none")
    eventually(lambda: api.write(lease, {"delete": "samples", "where": {"id": "none"}}).status == 200, 10, what="the gateway knows the new table")
    eventually(lambda: api.write(lease, {"call": "sample_double", "args": {"id": "none"}}).status == 200, 10, what="and the new functions")
    api.give_back(lease)


@pytest.fixture
def sample(stack: Stack, api: Api, samples_table: None, fresh: Callable[[str], str]) -> Sample:
    """A row of samples that is there, with small = 5."""
    made = Sample(fresh("s"), stack)
    lease = api.take(made.resource)
    api.wrote(lease, made.insert())
    api.give_back(lease)
    return made
