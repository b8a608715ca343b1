"""The Java client and its adapters: builds them,
and runs the JUnit tests of tests/clients/java against two real gateways with faults."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import signal
import subprocess
import time
import uuid
import xml.etree.ElementTree as ElementTree
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import processes
from support.cluster import Cluster
from support.cluster import running as running_cluster
from support.documents import blocks_of
from support.faults import install_shop
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import open_gates

ROOT = processes.repository()
CLIENT = ROOT / "clients/java"
TESTS = ROOT / "tests/clients/java"
JARS = [Path("/usr/share/java") / name for name in ("junit4.jar", "hamcrest.jar", "postgresql.jar")]
KEYS = {name: f"the key of {name}, which is long" for name in ("worker", "blind", "limited")}
PASSWORD = "java"
CASES = sorted(
    f"{file.stem}.{method}"
    for file in TESTS.rglob("*Test.java")
    for method in re.findall(r"@Test\s+public void (\w+)\(", file.read_text())
)


def is_watch(request: bytes) -> bool:
    """Whether a request is for the stream by which a client watches a lease."""
    return request.startswith(b"GET /v1/leases/") and b"\r\naccept: text/event-stream\r\n" in request.lower()


class Site:
    """Two gateways with a proxy before each, and the faults that a test can ask for by name over HTTP.

    The faults of connections spare the streams by which the client watches its leases: they are for its calls.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.passed = 0
        self.gateways = [cluster.gateway(self._settings()) for _ in range(2)]
        for gateway in self.gateways:
            gateway.start()
        self.gates = open_gates([gateway.api.port for gateway in self.gateways])
        self.gate_set = self.gates.__enter__()
        for gate in self.gate_set.members:
            gate.exempts = is_watch
        install_shop(cluster, "java", 10)
        cluster.stack.query("select shop_stock('java-', 60, 10)", dbname=cluster.database)
        cluster.stack.query(f"create role {cluster.database} superuser login password '{PASSWORD}'")

    def _settings(self) -> dict[str, Any]:
        settings = self.cluster.settings(max_ttl_ms=self.cluster.max_ttl_ms, max_wait_ms=600)
        scopes = {
            "worker": ["leases", "writes", "history", "operate"],
            "blind": ["leases", "writes"],
            "limited": ["leases"],
        }
        settings["auth"] = {
            "api_keys": [
                {"principal": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": scopes[name]}
                for name, key in KEYS.items()
            ]
        }
        settings["limits"] = {"principals": [{"principal": "limited", "requests_per_second": 2, "requests_burst": 1}]}
        settings["postgres"].update(statement_timeout_ms=1_000, lock_timeout_ms=500)
        return settings

    def apply(self, fault: str, *arguments: str) -> None:
        """Calls the function of that name."""
        before = self.gate_set.members[0].replies.passed
        getattr(self, fault)(*arguments)
        if fault != "await_reply":
            self.passed = before

    # The faults. A test that uses one calls `recover` at its end.

    def cut_reply(self) -> None:
        """The first gateway's next connection is reset when it answers;
        on connections that are open the next answer is lost."""
        replies = itertools.chain([0], itertools.repeat(1 << 40))
        self.gate_set.members[0].replies.cut_after = lambda: next(replies)

    def cut_connections(self) -> None:
        self.gate_set.members[0].cut()

    def delay_replies(self) -> None:
        self.gate_set.members[0].replies.delay = 0.6

    def kill_gateway(self) -> None:
        self.gateways[0].kill()

    def pause_gateway(self) -> None:
        os.kill(self.gateways[0].pid, signal.SIGSTOP)

    def pause_nodes(self) -> None:
        processes.signal_all([node.pid for node in self.cluster.nodes[:3]], signal.SIGSTOP)

    def hold_commits(self) -> None:
        """A commit waits for a standby that does not exist."""
        self._configure("set synchronous_standby_names = 'nobody'")

    def await_reply(self) -> None:
        """Waits until the first gateway has answered something since the latest fault."""
        replies = self.gate_set.members[0].replies
        eventually(lambda: replies.passed > self.passed, 15, goal="the gateway answers")

    def await_watch(self, lease_id: str) -> None:
        """Waits until the lease is watched."""
        eventually(lambda: self._is_watched(lease_id), 15, goal="the lease is watched")

    def await_no_watch(self, lease_id: str) -> None:
        """Waits until the lease is not watched."""
        eventually(lambda: not self._is_watched(lease_id), 15, goal="the lease is not watched")

    def _is_watched(self, lease_id: str) -> bool:
        latest = [link.latest_request for gate in self.gate_set.members for link in gate.links.copy()]
        return any(is_watch(request) and lease_id.encode() in request for request in latest)

    def recover(self) -> None:
        self._configure("reset synchronous_standby_names")
        processes.signal_all([node.pid for node in self.cluster.nodes], signal.SIGCONT)
        self.gate_set.clear_faults()
        if self.gateways[0].process is None:
            self.gateways[0].start()
        os.kill(self.gateways[0].pid, signal.SIGCONT)
        for gateway in self.gateways:
            gateway.wait_until_ready()

    def _configure(self, change: str) -> None:
        self.cluster.stack.query(f"alter system {change}")
        self.cluster.stack.query("select pg_reload_conf()")

    def close(self) -> None:
        self.recover()
        self.gates.__exit__(None, None, None)
        self.cluster.stack.query(f"drop role {self.cluster.database}")

    @property
    def properties(self) -> dict[str, str]:
        postgres = self.cluster.stack.facts["postgres"]
        return {
            "gateways": " ".join(f"http://127.0.0.1:{gate.port}" for gate in self.gate_set.members),
            "openapi": str(ROOT / "gateway/api/service/openapi.json"),
            "jdbc": (
                f"jdbc:postgresql://127.0.0.1:{postgres['port']}/{self.cluster.database}?user={self.cluster.database}&"
                f"password={PASSWORD}"
            ),
            **{f"key.{name}": key for name, key in KEYS.items()},
        }


class FaultServer(HTTPServer):
    """Calls the fault NAME for each `POST /NAME` or `POST /NAME/ARGUMENT`.

    It serves in the thread of the test, with which the gateways that a fault starts would end.
    """

    timeout = 0.1

    def __init__(self, site: Site) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    site.apply(*self.path[1:].split("/"))
                    self.send_response(204)
                except Exception as problem:  # the test that asked for it fails
                    self.send_response(500)
                    print(f"{self.path}: {problem!r}")
                self.send_header(
                    "Connection", "close"
                )  # else Java's client may use the connection again, which ends after each answer
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


def run(*command: object, **options: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=processes.terminate_with_parent,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


def class_path(built: Path) -> str:
    return ":".join(
        map(
            str,
            [
                built / "tests",
                built / "client",
                built / "shedlock",
                built / "spring-integration",
                built / "stubs",
                *JARS,
            ],
        )
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the jars, the classes, the documentation and the tests."""
    folder = tmp_path_factory.mktemp("java")
    run(CLIENT / "build", folder)
    run(
        "javac",
        "-Xlint:all,-processing,-path,-try",
        "-Werror",
        "--release",
        "17",
        "-encoding",
        "UTF-8",
        "-cp",
        class_path(folder),
        "-d",
        folder / "tests",
        *sorted(TESTS.rglob("*.java")),
    )
    return folder


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Site]:
    with running_cluster(stack, f"java_{uuid.uuid4().hex[:6]}", max_ttl_ms=60_000) as cluster:
        made = Site(cluster)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def outcomes(built: Path, site: Site) -> dict[str, str]:
    """What became of each JUnit test: `passed`, or the failure."""
    classes = sorted({case.split(".")[0] for case in CASES})
    log = built / "junit.log"
    with FaultServer(site) as server:
        options = [
            f"-Dfencegate.{name}={value}"
            for name, value in {**site.properties, "faults": f"http://127.0.0.1:{server.server_port}/"}.items()
        ]
        process = processes.start(
            [
                "java",
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                *options,
                "-cp",
                class_path(built),
                "fencegate.client.Main",
                *classes,
            ],
            log,
        )
        until = time.monotonic() + 1_200
        while process.poll() is None and time.monotonic() < until:
            server.handle_request()
        process.kill()  # without effect if it has ended
        process.wait()
    text = log.read_text()
    assert process.returncode == 0, text[-4000:]
    return dict(re.findall(r"^CASE (\S+) (.*?)^END$", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("case", CASES)
def test_java_case_passes(outcomes: dict[str, str], case: str) -> None:
    outcome = outcomes.get(case, "it was not run").strip()
    assert outcome == "passed", outcome


def test_jars_have_the_packages_and_no_stubs(built: Path) -> None:
    for name, package in (("client", "client"), ("shedlock", "shedlock"), ("spring-integration", "springintegration")):
        content = run("jar", "--list", "--file", built / f"fencegate-{name}.jar").split()
        classes = [each for each in content if each.endswith(".class")]
        assert classes and all(each.startswith(f"fencegate/{package}/") for each in classes), content
    assert (built / "api/fencegate/client/FencegateClient.html").is_file()


def test_client_uses_modules_of_the_jdk_alone(built: Path) -> None:
    needed = run("jdeps", "--print-module-deps", built / "fencegate-client.jar").strip()
    assert needed == "java.base,java.net.http,java.sql"


def test_projects_of_maven_are_consistent() -> None:
    """Maven does not run here; this checks what can be checked without its repository."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    parent = ElementTree.parse(CLIENT / "pom.xml").getroot()
    modules = [module.text for module in parent.findall("m:modules/m:module", space)]
    assert modules == ["client", "shedlock", "spring-integration"]
    version = re.search(r"project\(fencegate VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    versions = {version and version[1], parent.findtext("m:version", namespaces=space)}
    for module in modules:
        pom = ElementTree.parse(CLIENT / str(module) / "pom.xml").getroot()
        assert (
            pom.findtext("m:artifactId", namespaces=space) == f"fencegate-{module}"
            and (CLIENT / str(module) / "src/main/java").is_dir()
        )
        versions.add(pom.findtext("m:parent/m:version", namespaces=space))
    assert len(versions) == 1


def test_first_example_of_readme_runs_as_pasted(built: Path, stack: Stack, tmp_path: Path) -> None:
    block = next(block for block in blocks_of(CLIENT / "README.md", ROOT) if block.language == "java")
    source = block.text.replace("http://localhost:8080", stack.facts["http"])
    assert source != block.text
    (tmp_path / "Example.java").write_text(source)
    before = stack.query("select stock from inventory where sku = 'sku-1'")[0][0]
    shown = run("java", "-XX:TieredStopAtLevel=1", "-cp", built / "fencegate-client.jar", tmp_path / "Example.java")
    assert re.fullmatch(r"token \d+: 1 piece sold\n", shown), shown
    assert stack.query("select stock from inventory where sku = 'sku-1'")[0][0] == before - 1
