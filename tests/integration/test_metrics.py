"""What Prometheus is told: counted right, bounded in number, and scraped by a real Prometheus."""

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
from support.cluster import Cluster, Gateway
from support.faults import take_on_all
from support.polling import eventually, let_pass
from support.shop import Sku
from support.processes import free_port
from support.stack import Stack, lease_keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
Sample = tuple[str, frozenset[tuple[str, str]]]


def scrape(api: Api) -> dict[Sample, float]:
    answer = api.call("GET", "/metrics")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    out = {}
    for line in answer.body.decode().splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            out[(name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or "")))] = float(value)
    return out


def value(samples: dict[Sample, float], name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    return sum(v for (n, have), v in samples.items() if n == name and set(labels.items()) <= have)


def test_lease_when_granted_waited_for_and_released_then_counted_and_timed(api: Api, fresh: Callable[[str], str]) -> None:
    name = fresh("metered/thing")
    before = scrape(api)
    held = api.take(name)
    refused = api.ask(name)
    waiter = api.begin_ask(name, wait_ms=10_000)
    eventually(lambda: value(scrape(api), "distributed_lock_waiters") == 1, what="one waits")
    let_pass(0.15, "it waits for longer than 0.1 s")
    api.give_back(held)
    api.give_back(waiter.answer().json())
    after = scrape(api)

    def grown(metric: str, **labels: str) -> float:
        return value(after, metric, **labels) - value(before, metric, **labels)

    assert refused.status == 423
    prefix = {"resource_prefix": "metered"}
    assert grown("distributed_lock_grants_total", **prefix) == 2
    assert grown("distributed_lock_wait_seconds_count", outcome="granted", **prefix) == 2
    assert grown("distributed_lock_wait_seconds_count", outcome="refused", **prefix) == 1
    assert grown("distributed_lock_wait_seconds_bucket", outcome="granted", le="0.1", **prefix) == 1, "one had to wait longer"
    assert grown("distributed_lock_hold_seconds_count", **prefix) == 2 and grown("distributed_lock_hold_seconds_sum", **prefix) > 0.15
    assert grown("distributed_lock_failures_total", cause="resource-locked") == 1
    assert value(after, "distributed_lock_waiters") == 0
    assert grown("fencegate_http_requests_total", route="/v1/leases", method="POST", status="201") == 2
    assert grown("fencegate_http_requests_total", route="/v1/leases/{lease_id}", method="DELETE", status="204") == 2
    buckets = {dict(labels)["le"] for name, labels in after if name == "distributed_lock_wait_seconds_bucket"}
    assert buckets == {"0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"}


def test_write_when_stale_then_its_refusal_is_counted(api: Api, sku: Sku) -> None:
    resource = f"inventory/{sku.name}"
    old = api.take(resource)
    api.give_back(old)
    new = api.take(resource)
    before = scrape(api)
    for lease, status in ((new, 200), (old, 412)):
        body = {"lease_id": lease["lease_id"], "operations": [{"update": "inventory", "where": {"sku": sku.name}, "add": {"stock": -1}}]}
        assert api.call("POST", "/v1/writes", body).status == status
    after = scrape(api)
    for metric, labels in (("fencegate_http_problems_total", {"slug": "stale-fencing-token"}),
                           ("fencegate_http_requests_total", {"route": "/v1/writes", "status": "200"}),
                           ("fencegate_http_requests_total", {"route": "/v1/writes", "status": "412"})):
        assert value(after, metric, **labels) - value(before, metric, **labels) == 1, metric
    assert value(after, "fencegate_write_batch_size_sum") - value(before, "fencegate_write_batch_size_sum") == 2


def test_write_when_its_own_lease_is_refused_then_that_is_a_lock_failure(api: Api, sku: Sku) -> None:
    held = api.take(sku.resource)
    before = scrape(api)
    refused = api.call("POST", "/v1/writes", {"lease": {"resource": sku.resource}, "operations": [sku.sell()]})
    assert refused.status == 423
    assert api.call("POST", "/v1/writes", {"lease_id": held["lease_id"][:-4] + "AAAA", "operations": [sku.sell()]}).status == 403
    after = scrape(api)
    for cause in ("resource-locked", "lease-not-authentic"):
        assert value(after, "distributed_lock_failures_total", cause=cause) - value(before, "distributed_lock_failures_total", cause=cause) == 1, cause


def test_problems_when_none_of_a_kind_was_yet_then_0_so_that_the_first_is_an_increase(cluster: Cluster) -> None:
    gateway = cluster.gateway()
    gateway.start()
    samples = scrape(gateway.api)
    for slug in ("stale-fencing-token", "internal-error"):
        assert samples[("fencegate_http_problems_total", frozenset({("slug", slug)}))] == 0
    assert samples[("distributed_lock_failures_total", frozenset({("cause", "no-quorum")}))] == 0
    assert gateway.stop() == 0


def test_labels_when_callers_invent_names_then_bounded(api: Api, fresh: Callable[[str], str]) -> None:
    for number in range(70):
        api.give_back(api.take(f"{fresh('p').replace('/', '-')}-{number}/x", ttl_ms=1_000))
    api.give_back(api.take(fresh("single").replace("/", "-")))
    api.call("GET", "/no/such/" + fresh("path"))
    prefixes = {dict(labels).get("resource_prefix") for _, labels in scrape(api)} - {None}
    assert len(prefixes) <= 52 and {"-", "other"} <= prefixes, len(prefixes)
    assert not any(len(name) > 60 for name in prefixes)
    routes = {dict(labels).get("route") for _, labels in scrape(api)} - {None}
    assert "-" in routes and not any("no/such" in route for route in routes)


@pytest.fixture(scope="module")
def watching(cluster: Cluster) -> Iterator[Gateway]:
    settings = cluster.settings()
    settings["lease"]["leak_scan_interval_ms"] = 100
    made = cluster.gateway(settings)
    made.start()
    yield made
    assert made.stop() == 0


def test_leaks_when_a_key_has_no_ttl_or_a_minority_holds_then_counted_and_named(watching: Gateway, cluster: Cluster, fresh: Callable[[str], str]) -> None:
    api = watching.api
    kept, lonely, fine = fresh("leak/kept"), fresh("leak/lonely"), fresh("leak/fine")
    nodes = cluster.clients()
    # Such keys have to be there when they are looked at the second time: as long as this test lasts.
    for resource in (kept, lonely):
        take_on_all(api, nodes, resource, 2_000)
        assert [node.pexpire(f"fg:lease:{resource}", 300_000) for node in nodes] == [True] * 5
    nodes[1].persist(f"fg:lease:{kept}")
    for node in nodes[:3]:
        node.delete(f"fg:lease:{lonely}")
    api.take(fine, ttl_ms=2_000)

    def found() -> bool:
        leaks = api.call("GET", "/v1/nodes").json()
        return leaks["leaks"] is not None and leaks["leaks"]["held_by_minority"] == 1 and sum(node["keys_without_ttl"] or 0 for node in leaks["nodes"]) == 1

    eventually(found, 60, what="both leaks are found")
    told = api.call("GET", "/v1/nodes").json()
    assert told["leaks"]["minority_examples"] == [lonely] and told["leaks"]["without_ttl_examples"] == [kept]
    assert [node["keys_without_ttl"] for node in told["nodes"]] == [0, 1, 0, 0, 0]
    samples = scrape(api)
    assert value(samples, "fencegate_leaked_keys") == 1 and value(samples, "fencegate_minority_leases") == 1
    log = watching.log.read_text()
    assert "never run out" in log and "minority" in log

    for node in nodes:
        node.delete(f"fg:lease:{kept}", f"fg:lease:{lonely}")
    eventually(lambda: value(scrape(api), "fencegate_leaked_keys") == 0 and value(scrape(api), "fencegate_minority_leases") == 0, 60, what="they are gone")


def test_leaked_key_when_its_node_goes_away_then_it_is_still_told(watching: Gateway, cluster: Cluster, fresh: Callable[[str], str]) -> None:
    api, node = watching.api, cluster.nodes[4]
    watching.wait_until_whole()
    node.client().set(f"fg:lease:{fresh('leak/away')}", "x")
    eventually(lambda: value(scrape(api), "fencegate_leaked_keys", node=node.name) == 1, 60, what="it is found")
    node.kill()
    gone = time.time()
    eventually(lambda: value(scrape(api), "fencegate_leak_scan_time_seconds") > gone + 5, 60, what="a search that began without the node")
    assert value(scrape(api), "fencegate_leaked_keys", node=node.name) == 1 and watching.nodes()[4]["keys_without_ttl"] == 1
    node.start()  # empty
    eventually(lambda: value(scrape(api), "fencegate_leaked_keys", node=node.name) == 0, 60, what="it is gone")


def test_guard_when_it_is_open_then_counted_named_logged_and_no_longer_when_mended(watching: Gateway, cluster: Cluster, stack: Stack) -> None:
    api, fault = watching.api, "public.opened: the trigger fencing_check_insert is not always on; protect() puts it back"
    connection = stack.sql(dbname=cluster.database)
    with connection.cursor() as cursor:
        cursor.execute("create table opened (id text); select fencing.protect('opened', 'id'); alter table opened disable trigger fencing_check_insert")
        try:
            eventually(lambda: value(scrape(api), "fencegate_guard_faults") == 1, 60, what="it is found")
            guard = api.call("GET", "/v1/nodes").json()["guard"]
            assert (guard["fault_count"], guard["faults"]) == (1, [fault])
            assert watching.log.read_text().count(fault) == 1
        finally:
            cursor.execute("select fencing.unprotect('opened'); drop table opened")
    connection.close()
    eventually(lambda: value(scrape(api), "fencegate_guard_faults") == 0, 60, what="it is mended")
    assert api.call("GET", "/v1/nodes").json()["guard"]["faults"] == [] and "the guard has no fault any more" in watching.log.read_text()


def test_gateway_when_stopped_in_the_middle_of_a_search_for_leaks_then_it_ends_at_once(cluster: Cluster) -> None:
    settings = cluster.settings()
    settings["lease"]["leak_scan_interval_ms"] = 10_000
    gateway = cluster.gateway(settings)
    gateway.start()
    let_pass(10.3, "a search goes over five nodes and takes 1.25 s at least")
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 6, "it waited for the next search"


def test_node_when_it_dies_then_its_state_and_the_quorum_are_read(cluster: Cluster, watching: Gateway) -> None:
    api = watching.api
    eventually(lambda: value(scrape(api), "fencegate_node_state", state="voting") == 5, 20, what="all vote")
    assert value(scrape(api), "fencegate_quorum") == 1
    samples = scrape(api)
    assert value(samples, "process_resident_memory_bytes") > 1e6 and value(samples, "process_start_time_seconds") > time.time() - 3_600
    assert value(samples, "fencegate_postgres_workers", state="away") == 0


def test_board_when_read_then_each_panel_asks_the_chosen_source(watching: Gateway) -> None:
    board = json.loads((ROOT / "config/grafana/fencegate.json").read_text())
    assert board["uid"] == "fencegate" and [one["name"] for one in board["templating"]["list"]] == ["datasource", "instance", "prefix"]
    places = set()
    for panel in board["panels"]:
        assert panel["title"] and panel["targets"] and all(one["expr"] and one["datasource"]["uid"] == "${datasource}" for one in panel["targets"])
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places and at["x"] + at["w"] <= 24, f"{panel['title']} lies over another"
        places |= cells


# Prometheus itself


def test_rules_when_tested_by_promtool_then_they_fire_as_they_should() -> None:
    subprocess.run(["promtool", "test", "rules", str(ROOT / "config/prometheus/fencegate.test.yml")], check=True, timeout=60)
    subprocess.run(["promtool", "check", "config", str(ROOT / "config/prometheus/prometheus.yml")], check=True, timeout=60)


def test_rules_and_board_when_they_name_a_metric_then_the_gateway_has_it(watching: Gateway) -> None:
    watching.api.give_back(watching.api.take("rules/one", ttl_ms=1_000))
    assert watching.api.call("GET", "/v1/leases/none").status == 403
    eventually(lambda: value(scrape(watching.api), "fencegate_leak_scan_time_seconds") > 0, 25, what="the first search for leaks")
    families = set(re.findall(r"^# TYPE (\w+)", watching.api.call("GET", "/metrics").body.decode(), re.M))
    text = (ROOT / "config/prometheus/fencegate.rules.yml").read_text() + (ROOT / "config/grafana/fencegate.json").read_text()
    named = set(re.findall(r"\b((?:fencegate|distributed_lock|process)_[a-z_]+)", text))
    missing = {name for name in named if re.sub(r"_(bucket|sum|count)$", "", name) not in families and name not in families}
    assert not missing and len(named) > 10, missing


def test_metrics_when_checked_by_promtool_then_well_formed(watching: Gateway) -> None:
    text = watching.api.call("GET", "/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    # Exit 3: remarks on style only, of which distributed_lock_failures_total and its kind have none.
    assert done.returncode in (0, 3) and not done.stderr, done.stderr + done.stdout


def test_prometheus_when_it_scrapes_the_gateway_then_it_has_its_metrics(stack: Stack, api: Api, resource: str, tmp_path: pathlib.Path) -> None:
    target = urllib.parse.urlsplit(stack.facts["gateways"][0]["http"]).netloc
    config = (ROOT / "config/prometheus/prometheus.yml").read_text()
    config = re.sub(r"targets: .*", f'targets: ["{target}"]', config).replace("15s", "1s").replace("fencegate.rules.yml", str(ROOT / "config/prometheus/fencegate.rules.yml"))
    (tmp_path / "prometheus.yml").write_text(config)
    port = free_port()
    process = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    api.give_back(api.take(resource))

    def ask(expression: str) -> list[dict]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    try:
        eventually(lambda: any(float(r["value"][1]) == 1 for r in ask('up{job="fencegate"}')), 30, what="the gateway is scraped")
        eventually(lambda: ask('distributed_lock_wait_seconds_count{outcome="granted"} > 0'), 15, what="waits are there")
        assert len(ask('fencegate_node_state{state="voting"} == 1')) == 5
    finally:
        process.terminate()
        process.wait(20)


def grants(api: Api) -> tuple[float, float]:
    """How many there were, and how many of them stood on a bare majority; of all prefixes, for other tests may have used up the labels."""
    samples = scrape(api)
    return value(samples, "distributed_lock_grants_total"), value(samples, "distributed_lock_thin_grants_total")


def grown(api: Api, before: tuple[float, float]) -> tuple[float, float]:
    return grants(api)[0] - before[0], grants(api)[1] - before[1]


def test_thin_grants_when_every_node_answers_then_none_is_counted(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    """Half of the grants are answered at the third yes; the other two nodes follow. One of many may be late on a busy machine."""
    stack.wait_until_whole()
    before = grants(api)
    for name in [fresh("thin/x") for _ in range(60)]:
        lease = api.take(name)
        eventually(lambda: len(lease_keys(stack.nodes(), name)) == 5, what="the grant is on every node")
        api.give_back(lease)
    all_of_them, thin = grown(api, before)
    assert all_of_them == 60 and thin < 6, "counted when it was answered, not when all had answered"


def test_thin_grants_when_two_nodes_hang_then_each_is_counted(stack: Stack, api: Api, fresh: Callable[[str], str]) -> None:
    stack.wait_until_whole()
    before = grants(api)
    with stack.frozen(stack.node_pids()[:2]):
        for name in [fresh("thin/x") for _ in range(5)]:
            api.give_back(api.take(name))
        eventually(lambda: grown(api, before) == (5, 5), 15, what="each stands on a bare majority")
    stack.wait_until_whole()
