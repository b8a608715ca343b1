"""The metrics: correct values, a bounded number of labels, and a scrape by a real Prometheus."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import time
import urllib.parse
import urllib.request
from typing import Callable, Iterator

import pytest
from support.api import Api
from support.certificates import make_digest_key, openssl
from support.cluster import Cluster, Gateway
from support.faults import acquire_on_all_nodes
from support.metrics import scrape, sum_samples
from support.polling import eventually, pause
from support.processes import free_port
from support.shop import Sku
from support.stack import Stack, lease_keys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_lease_granted_waited_for_and_released_is_counted(api: Api, unique_name: Callable[[str], str]) -> None:
    name = unique_name("metered/thing")
    before = scrape(api)
    held = api.must_acquire(name)
    refused = api.acquire(name)
    waiter = api.begin_acquire(name, wait_ms=10_000)
    eventually(lambda: sum_samples(scrape(api), "distributed_lock_waiters") == 1, goal="one waits")
    pause(1.2, "it waits for longer than 1 s")
    api.must_release(held)
    api.must_release(waiter.answer().json())
    after = scrape(api)

    def grown(metric: str, **labels: str) -> float:
        return sum_samples(after, metric, **labels) - sum_samples(before, metric, **labels)

    assert refused.status == 423
    prefix = {"resource_prefix": "metered"}
    assert grown("distributed_lock_grants_total", **prefix) == 2
    assert grown("distributed_lock_wait_seconds_count", outcome="granted", **prefix) == 2
    assert grown("distributed_lock_wait_seconds_count", outcome="refused", **prefix) == 1
    assert (
        grown("distributed_lock_wait_seconds_bucket", outcome="granted", le="1", **prefix) == 1
    ), "one had to wait longer"
    assert (
        grown("distributed_lock_hold_seconds_count", **prefix) == 2
        and grown("distributed_lock_hold_seconds_sum", **prefix) > 0.15
    )
    assert grown("distributed_lock_failures_total", cause="resource-locked") == 1
    assert sum_samples(after, "distributed_lock_waiters") == 0
    assert grown("fencegate_http_requests_total", route="/v1/leases", method="POST", status="201") == 2
    assert grown("fencegate_http_requests_total", route="/v1/leases/{lease_id}", method="DELETE", status="204") == 2
    buckets = {dict(labels)["le"] for name, labels in after if name == "distributed_lock_wait_seconds_bucket"}
    assert buckets == {"0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"}


def test_write_stale_is_counted(api: Api, sku: Sku) -> None:
    resource = f"inventory/{sku.name}"
    old = api.must_acquire(resource)
    api.must_release(old)
    new = api.must_acquire(resource)
    before = scrape(api)
    for lease, status in ((new, 200), (old, 412)):
        body = {
            "lease_id": lease["lease_id"],
            "operations": [{"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -1}}],
        }
        assert api.post("/v1/writes", body).status == status
    after = scrape(api)
    for metric, labels in (
        ("fencegate_http_problems_total", {"slug": "stale-fencing-token"}),
        ("fencegate_http_requests_total", {"route": "/v1/writes", "status": "200"}),
        ("fencegate_http_requests_total", {"route": "/v1/writes", "status": "412"}),
    ):
        assert sum_samples(after, metric, **labels) - sum_samples(before, metric, **labels) == 1, metric
    assert (
        sum_samples(after, "fencegate_write_batch_size_sum") - sum_samples(before, "fencegate_write_batch_size_sum")
        == 2
    )


def test_write_with_refused_own_lease_counts_as_lock_failure(api: Api, sku: Sku) -> None:
    held = api.must_acquire(sku.resource)
    before = scrape(api)
    refused = api.post("/v1/writes", {"lease": {"resource": sku.resource}, "operations": [sku.sell()]})
    assert refused.status == 423
    forged = held["lease_id"][:-4] + "AAAA"
    assert api.post("/v1/writes", {"lease_id": forged, "operations": [sku.sell()]}).status == 403
    assert (
        api.call("PATCH", f"/rest/v1/inventory?sku=eq.{sku.name}", {"note": "x"}, {"Fencing-Lease": forged}).status
        == 403
    )
    after = scrape(api)
    for cause, count in (("resource-locked", 1), ("lease-not-authentic", 2)):
        assert (
            sum_samples(after, "distributed_lock_failures_total", cause=cause)
            - sum_samples(before, "distributed_lock_failures_total", cause=cause)
            == count
        ), cause


def test_faulty_requests_count_as_no_lock_failure(api: Api) -> None:
    before = scrape(api)
    assert api.post("/v1/leases", {"resource": ""}).status == 400
    assert api.get("/v1/leases", limit=0).status == 400
    assert api.post("/v1/leases", "{}", {"Content-Type": "text/plain"}).status == 415
    assert sum_samples(scrape(api), "distributed_lock_failures_total") == sum_samples(
        before, "distributed_lock_failures_total"
    )


def test_problems_not_seen_yet_are_exported_as_0(cluster: Cluster) -> None:
    gateway = cluster.start_gateway()
    samples = scrape(gateway.api)
    for slug in ("stale-fencing-token", "internal-error"):
        assert samples[("fencegate_http_problems_total", frozenset({("slug", slug)}))] == 0
    assert samples[("distributed_lock_failures_total", frozenset({("cause", "no-quorum")}))] == 0
    assert gateway.stop() == 0


def test_labels_for_invented_names_are_bounded(api: Api, unique_name: Callable[[str], str]) -> None:
    for number in range(70):
        api.must_release(api.must_acquire(f"{unique_name('p').replace('/', '-')}-{number}/x", ttl_ms=20_000))
    api.must_release(api.must_acquire(unique_name("single").replace("/", "-")))
    api.call("GET", "/no/such/" + unique_name("path"))
    prefixes = {dict(labels).get("resource_prefix") for _, labels in scrape(api)} - {None}
    assert len(prefixes) <= 52 and {"-", "other"} <= prefixes, len(prefixes)
    assert not any(len(name) > 60 for name in prefixes)
    routes = {dict(labels).get("route") for _, labels in scrape(api)} - {None}
    assert "-" in routes and not any("no/such" in route for route in routes)


@pytest.fixture(scope="module")
def scanning_gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = cluster.settings()
    folder = tmp_path_factory.mktemp("digests")
    settings["audit"] = {"digest_key_file": str(make_digest_key(folder, "digest"))}
    openssl(folder, *"req -x509 -newkey ed25519 -nodes -subj /CN=x -days 9 -keyout pg.key -out pg.pem".split())
    settings["postgres"]["conninfo"] += f" sslcert={folder}/pg.pem sslkey={folder}/pg.key"
    settings["lease"]["leak_scan_interval_ms"] = 100
    settings["postgres"]["guard_check_interval_ms"] = 300
    made = cluster.start_gateway(settings)
    yield made
    assert made.stop() == 0


def test_leaks_are_counted_and_named(
    scanning_gateway: Gateway, cluster: Cluster, unique_name: Callable[[str], str]
) -> None:
    api = scanning_gateway.api
    kept, lonely, fine = unique_name("leak/kept"), unique_name("leak/lonely"), unique_name("leak/fine")
    nodes = cluster.clients()
    # A leak is counted when a second scan finds it: the keys must exist as long as this test lasts.
    for resource in (kept, lonely):
        acquire_on_all_nodes(api, nodes, resource, 2_000)
        for node in nodes:  # as if it had been granted for longer
            fields = node.get(f"fg:lease:{resource}").split(" ")
            assert fields[3] == "2000"
            assert node.set(f"fg:lease:{resource}", " ".join([*fields[:3], "300000", *fields[4:]]), px=300_000)
    nodes[1].persist(f"fg:lease:{kept}")
    for node in nodes[:3]:
        node.delete(f"fg:lease:{lonely}")
    api.must_acquire(fine, ttl_ms=2_000)

    def found() -> bool:
        leaks = api.call("GET", "/v1/nodes").json()
        return (
            leaks["leaks"] is not None
            and leaks["leaks"]["held_by_minority"] == 1
            and sum(node["keys_without_ttl"] or 0 for node in leaks["nodes"]) == 1
        )

    eventually(found, 60, goal="both leaks are found")
    reported = api.call("GET", "/v1/nodes").json()
    assert reported["leaks"]["minority_examples"] == [lonely] and reported["leaks"]["without_ttl_examples"] == [kept]
    assert [node["keys_without_ttl"] for node in reported["nodes"]] == [0, 1, 0, 0, 0]
    samples = scrape(api)
    assert sum_samples(samples, "fencegate_leaked_keys") == 1 and sum_samples(samples, "fencegate_minority_leases") == 1
    log = scanning_gateway.log.read_text()
    assert "without a ttl" in log and "minority" in log

    for node in nodes:
        node.delete(f"fg:lease:{kept}", f"fg:lease:{lonely}")
    eventually(
        lambda: sum_samples(scrape(api), "fencegate_leaked_keys") == 0
        and sum_samples(scrape(api), "fencegate_minority_leases") == 0,
        60,
        goal="they are no longer counted",
    )


def test_leaked_key_of_absent_node_is_still_reported(
    scanning_gateway: Gateway, cluster: Cluster, unique_name: Callable[[str], str]
) -> None:
    api, node = scanning_gateway.api, cluster.nodes[4]
    scanning_gateway.wait_until_all_vote()
    node.client().set(f"fg:lease:{unique_name('leak/away')}", "x")
    eventually(lambda: sum_samples(scrape(api), "fencegate_leaked_keys", node=node.name) == 1, 60, goal="it is found")
    node.kill()
    gone = time.time()
    eventually(
        lambda: sum_samples(scrape(api), "fencegate_leak_scan_time_seconds") > gone + 5,
        60,
        goal="a scan that began without the node",
    )
    assert (
        sum_samples(scrape(api), "fencegate_leaked_keys", node=node.name) == 1
        and scanning_gateway.nodes()[4]["keys_without_ttl"] == 1
    )
    node.start()  # empty
    eventually(
        lambda: sum_samples(scrape(api), "fencegate_leaked_keys", node=node.name) == 0,
        60,
        goal="it is no longer counted",
    )


def test_guard_fault_is_counted_and_logged_until_repaired(
    scanning_gateway: Gateway, cluster: Cluster, stack: Stack
) -> None:
    api, fault = (
        scanning_gateway.api,
        "public.opened: the trigger fencing_check_insert is not always on; protect() puts it back",
    )
    connection = stack.sql(dbname=cluster.database)
    with connection.cursor() as cursor:
        cursor.execute(
            "create table opened (id text); select fencing.protect('opened', 'id'); "
            "alter table opened disable trigger fencing_check_insert"
        )
        try:
            eventually(lambda: sum_samples(scrape(api), "fencegate_guard_faults") == 1, 60, goal="it is found")
            guard = api.call("GET", "/v1/nodes").json()["guard"]
            assert (guard["fault_count"], guard["faults"]) == (1, [fault])
            assert scanning_gateway.log.read_text().count(fault) == 1
        finally:
            cursor.execute("select fencing.unprotect('opened'); drop table opened")
    connection.close()
    eventually(lambda: sum_samples(scrape(api), "fencegate_guard_faults") == 0, 60, goal="it is repaired")
    assert (
        api.call("GET", "/v1/nodes").json()["guard"]["faults"] == []
        and "the guard has no fault any more" in scanning_gateway.log.read_text()
    )


def test_gateway_stopped_during_leak_scan_ends_at_once(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["lease"]["leak_scan_interval_ms"] = 6_000
    gateway = cluster.start_gateway(settings)
    pause(6.3, "a scan of five nodes takes at least 1.25 s")
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 5, "it waited for the next scan"


def test_node_states_and_quorum_are_exported(cluster: Cluster, scanning_gateway: Gateway) -> None:
    api = scanning_gateway.api
    eventually(lambda: sum_samples(scrape(api), "fencegate_node_state", state="voting") == 5, 20, goal="all vote")
    assert sum_samples(scrape(api), "fencegate_quorum") == 1
    samples = scrape(api)
    assert (
        sum_samples(samples, "process_resident_memory_bytes") > 1e6
        and sum_samples(samples, "process_start_time_seconds") > time.time() - 3_600
    )
    assert sum_samples(samples, "fencegate_postgres_workers", state="away") == 0


def test_board_panels_query_chosen_data_source(scanning_gateway: Gateway) -> None:
    board = json.loads((ROOT / "config/grafana/fencegate.json").read_text())
    assert board["uid"] == "fencegate" and [item["name"] for item in board["templating"]["list"]] == [
        "datasource",
        "instance",
        "prefix",
    ]
    places = set()
    for panel in board["panels"]:
        assert (
            panel["title"]
            and panel["targets"]
            and all(item["expr"] and item["datasource"]["uid"] == "${datasource}" for item in panel["targets"])
        )
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & places and position["x"] + position["w"] <= 24, f"{panel['title']} overlaps another"
        places |= cells


# Prometheus itself


def test_rules_all_have_case_in_which_they_fire() -> None:
    rules, cases = ((ROOT / f"config/prometheus/fencegate.{name}.yml").read_text() for name in ("rules", "test"))
    fired = re.findall(r"alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n\s+- exp_labels", cases)
    assert set(re.findall(r"- alert: (\w+)", rules)) == set(fired)


def test_rules_pass_tests_of_promtool() -> None:
    subprocess.run(
        ["promtool", "test", "rules", str(ROOT / "config/prometheus/fencegate.test.yml")], check=True, timeout=60
    )
    subprocess.run(
        ["promtool", "check", "config", str(ROOT / "config/prometheus/prometheus.yml")], check=True, timeout=60
    )


def test_rules_and_board_name_only_exported_metrics(scanning_gateway: Gateway) -> None:
    scanning_gateway.api.must_release(scanning_gateway.api.must_acquire("rules/one", ttl_ms=1_000))
    assert scanning_gateway.api.call("GET", "/v1/leases/none").status == 403
    eventually(
        lambda: sum_samples(scrape(scanning_gateway.api), "fencegate_leak_scan_time_seconds") > 0,
        25,
        goal="the first scan for leaks",
    )
    families = set(re.findall(r"^# TYPE (\w+)", scanning_gateway.api.call("GET", "/metrics").body.decode(), re.M))
    text = (ROOT / "config/prometheus/fencegate.rules.yml").read_text() + (
        ROOT / "config/grafana/fencegate.json"
    ).read_text()
    named = set(re.findall(r"\b((?:fencegate|distributed_lock|process)_[a-z_]+)", text))
    missing = {
        name for name in named if re.sub(r"_(bucket|sum|count)$", "", name) not in families and name not in families
    }
    assert not missing and len(named) > 10, missing


def test_metrics_pass_check_of_promtool(scanning_gateway: Gateway) -> None:
    text = scanning_gateway.api.call("GET", "/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    # Exit 3: remarks on style only.
    assert done.returncode in (0, 3) and not done.stderr, done.stderr + done.stdout


def test_prometheus_scrapes_gateway(stack: Stack, api: Api, resource: str, tmp_path: pathlib.Path) -> None:
    target = urllib.parse.urlsplit(stack.facts["gateways"][0]["http"]).netloc
    config = (ROOT / "config/prometheus/prometheus.yml").read_text()
    config = (
        re.sub(r"targets: .*", f'targets: ["{target}"]', config)
        .replace("15s", "1s")
        .replace("fencegate.rules.yml", str(ROOT / "config/prometheus/fencegate.rules.yml"))
    )
    (tmp_path / "prometheus.yml").write_text(config)
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    api.must_release(api.must_acquire(resource))

    def ask(expression: str) -> list[dict]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=5
            ) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    try:
        eventually(
            lambda: any(float(r["value"][1]) == 1 for r in ask('up{job="fencegate"}')),
            30,
            goal="the gateway is scraped",
        )
        eventually(
            lambda: ask('distributed_lock_wait_seconds_count{outcome="granted"} > 0'), 15, goal="it has the wait times"
        )
        assert len(ask('fencegate_node_state{state="voting"} == 1')) == 5
    finally:
        process.terminate()
        process.wait(20)


def count_grants(api: Api) -> tuple[float, float]:
    """Returns the number of grants and of thin grants, of all prefixes: other tests may have used up the labels."""
    samples = scrape(api)
    return sum_samples(samples, "distributed_lock_grants_total"), sum_samples(
        samples, "distributed_lock_thin_grants_total"
    )


def grown(api: Api, before: tuple[float, float]) -> tuple[float, float]:
    return count_grants(api)[0] - before[0], count_grants(api)[1] - before[1]


def test_thin_grants_with_all_nodes_are_not_counted(stack: Stack, api: Api, unique_name: Callable[[str], str]) -> None:
    """Grants may be answered after three nodes granted; the other two follow.
    On a busy machine a node may be late for a few."""
    stack.wait_until_all_vote()
    before = count_grants(api)
    for name in [unique_name("thin/x") for _ in range(60)]:
        lease = api.must_acquire(name)
        eventually(lambda: len(lease_keys(stack.nodes(), name)) == 5, goal="the grant is on every node")
        api.must_release(lease)
    all_of_them, thin = grown(api, before)
    assert all_of_them == 60 and thin < 6, "counted when the caller was answered, not when all nodes had answered"


def test_thin_grants_with_two_hanging_nodes_are_counted(
    stack: Stack, api: Api, unique_name: Callable[[str], str]
) -> None:
    stack.wait_until_all_vote()
    before = count_grants(api)
    with stack.frozen(stack.node_pids()[:2]):
        for name in [unique_name("thin/x") for _ in range(5)]:
            api.must_release(api.must_acquire(name))
        eventually(lambda: grown(api, before) == (5, 5), 15, goal="each is counted as thin")
    stack.wait_until_all_vote()
