"""The files of docker/ and config/kubernetes agree with the published schemas, with each other,
and with what a gateway accepts."""

from __future__ import annotations

import copy
import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from support import processes

ROOT = processes.repository()
DOCKER = ROOT / "docker"
COMPOSE = {path.name: yaml.safe_load(path.read_text()) for path in sorted(DOCKER.glob("compose*.yaml"))}
KUBERNETES = {
    f"{document['kind']} {document['metadata']['name']}": document
    for path in sorted((ROOT / "config" / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
}


def schema_faults(compose: dict[str, Any], kubernetes: dict[str, Any]) -> list[str]:
    given = {
        kind: [{"name": name, "document": document} for name, document in documents.items()]
        for kind, documents in (("compose", compose), ("kubernetes", kubernetes))
    }
    done = processes.run([ROOT / "tests" / "package" / "schemas" / "run"], input=json.dumps(given), timeout=300)
    assert not done.stderr, done.stderr
    assert (done.returncode == 0) == (not done.stdout.strip()), done
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_files_agree_with_schemas() -> None:
    assert COMPOSE and {
        "Deployment fencegate",
        "StatefulSet redis",
        "PodDisruptionBudget redis",
        "NetworkPolicy fencegate",
        "ServiceMonitor fencegate",
    } <= set(KUBERNETES)
    assert schema_faults(COMPOSE, KUBERNETES) == []


FAULTS: list[tuple[str, Callable[[Any], object], str]] = [
    ("compose.yaml", lambda file: file["services"]["redis-1"].update(comand=[]), "comand"),
    (
        "compose.yaml",
        lambda file: file["services"]["gateway-1"]["depends_on"]["migrate"].update(condition="service_done"),
        "condition",
    ),
    ("StatefulSet redis", lambda it: it["spec"]["template"]["spec"]["containers"][0].update(imge="x"), "imge"),
    ("Deployment fencegate", lambda it: it["spec"].update(replicas="two"), "replicas"),
    ("ServiceMonitor fencegate", lambda it: it["spec"].pop("endpoints"), "endpoints"),
    ("NetworkPolicy redis", lambda it: it.update(kind="NetworkRule"), "NetworkRule"),
]


def test_schemas_find_each_fault() -> None:
    compose, kubernetes = copy.deepcopy(COMPOSE), copy.deepcopy(KUBERNETES)
    for name, change, _ in FAULTS:
        change({**compose, **kubernetes}[name])
    faults = schema_faults(compose, kubernetes)
    assert not [
        (name, word) for name, _, word in FAULTS if not any(line.startswith(name) and word in line for line in faults)
    ], faults
    assert not [line for line in faults if not line.startswith(tuple(name for name, _, _ in FAULTS))]


def config_faults(folder: Path, text: str) -> str:
    """Returns what `fencegate check` says of a configuration whose secrets are in `folder`;
    servers that cannot be reached are no fault of it."""
    subprocess.run(
        [
            *(
                "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=fencegate -days 1 "
                "-keyout"
            ).split(),
            folder / "tls.key",
            "-out",
            folder / "tls.crt",
        ],
        check=True,
        capture_output=True,
    )
    for name in ("signing.key", "admin.key"):
        (folder / name).write_text("a key of a test, long enough to be one")
    (folder / "fencegate.yaml").write_text(re.sub(r"/(etc/fencegate/(secrets|tls)|run/secrets)/", f"{folder}/", text))
    done = processes.run(
        [processes.fencegate_binary(), "check", "--insecure", "--config", folder / "fencegate.yaml"],
        timeout=60,
        env={"REDIS_PASSWORD": "x", "FENCEGATE_SIGNING_KEY": "a key of a test, long enough to be one"},
    )
    return done.stderr if done.returncode == 78 else ""


def test_configurations_are_accepted_by_a_gateway(tmp_path: Path) -> None:
    in_kubernetes = KUBERNETES["ConfigMap fencegate"]["data"]["fencegate.yaml"]
    assert config_faults(tmp_path, in_kubernetes) == ""
    assert config_faults(tmp_path, (DOCKER / "fencegate.yaml").read_text()) == ""
    assert "shutdown_grace" in config_faults(tmp_path, in_kubernetes.replace("shutdown_grace_ms", "shutdown_grace"))


def test_kubernetes_objects_fit_together() -> None:
    settings = yaml.safe_load(KUBERNETES["ConfigMap fencegate"]["data"]["fencegate.yaml"])
    nodes, gateway = (
        KUBERNETES["StatefulSet redis"]["spec"],
        KUBERNETES["Deployment fencegate"]["spec"]["template"]["spec"],
    )
    assert [node["host"] for node in settings["redis"]["nodes"]] == [
        f"redis-{number}.{nodes['serviceName']}" for number in range(nodes["replicas"])
    ]
    assert gateway["terminationGracePeriodSeconds"] * 1000 >= settings["http"]["shutdown_grace_ms"] + 20_000
    probe = gateway["containers"][0]["readinessProbe"]
    assert settings["http"]["shutdown_grace_ms"] > 2 * 1000 * probe["failureThreshold"] * probe["periodSeconds"]
    for name, document in KUBERNETES.items():
        spec, kind = document.get("spec", {}), document["kind"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        labels = selector.get("matchLabels", selector)
        owner = {"gateway": "Deployment fencegate", "redis": "StatefulSet redis"}[
            document["metadata"]["labels"]["app.kubernetes.io/component"]
        ]
        assert kind == "ConfigMap" or labels == KUBERNETES[owner]["spec"]["template"]["metadata"]["labels"], name
    used = {
        reference["key"]
        for container in (gateway["containers"][0], nodes["template"]["spec"]["containers"][0])
        for variable in container["env"]
        for reference in [variable["valueFrom"]["secretKeyRef"]]
    }
    assert used == {"redis.password", "postgres.password"}


@pytest.mark.parametrize(
    "status, path, healthy",
    [
        (200, "/healthz", True),
        (400, "/healthz", True),
        (503, "/healthz", False),
        (200, "/readyz", True),
        (400, "/readyz", False),
        (503, "/readyz", False),
    ],
)
def test_health_check_takes_400_as_tls_for_healthz_only(status: int, path: str, healthy: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = subprocess.Popen(
            ["bash", DOCKER / "health-check", *([] if path == "/healthz" else [path])],
            env={**os.environ, "FENCEGATE_PORT": str(server.getsockname()[1])},
        )
        with server.accept()[0] as connection:
            assert connection.recv(1_000).startswith(f"GET {path} HTTP/1.1\r\n".encode())
            connection.sendall(f"HTTP/1.1 {status} x\r\n\r\n".encode())
            assert (check.wait(10) == 0) == healthy


def test_prometheus_configuration_of_compose_is_valid(tmp_path: Path) -> None:
    for file in (DOCKER / "prometheus.yml", ROOT / "config" / "prometheus" / "fencegate.rules.yml"):
        (tmp_path / file.name).write_text(file.read_text())
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True, capture_output=True)
