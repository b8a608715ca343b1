"""The log: members of its JSON lines, its text format, what has a line at which level, and how often."""

from __future__ import annotations

import json
import os
import re
import resource as limits
import socket
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from support.api import Api
from support.cluster import Cluster, Gateway
from support.polling import eventually, remains
from support.wire import Wire, request

KEY = "an-api-key-of-the-tests-of-the-log"


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[..., Gateway]]:
    """Starts gateways with other settings of the log."""
    started = []

    def start(keyed: bool = False, **log: Any) -> Gateway:
        settings = cluster.settings()
        settings["log"] = log
        if keyed:
            (cluster.folder / "log.key").write_text(KEY)
            settings["auth"] = {
                "api_keys": [
                    {"principal": "admin", "key_file": str(cluster.folder / "log.key"), "scopes": ["leases", "operate"]}
                ]
            }
        gateway = cluster.gateway(settings)
        started.append(gateway)
        if keyed:
            gateway.api = Api(gateway.api.url, KEY)
        gateway.start()
        return gateway

    yield start
    for gateway in started:
        gateway.kill()


@pytest.fixture
def logging_gateway(start: Callable[..., Gateway]) -> Gateway:
    """A gateway that logs every request."""
    return start(level="debug")


def lines_of(gateway: Gateway, message: str = "") -> list[dict[str, Any]]:
    """Returns the whole lines of the log with this message."""
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if line["message"] == message or not message]


def access_line(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """Waits for the line of this request, and returns its members."""
    return eventually(
        lambda: [line for line in lines_of(gateway, "request") if line["request_id"] == request_id],
        goal=f"the log has {request_id}",
    )[0]


# Requests


def test_request_line_has_typed_members(logging_gateway: Gateway) -> None:
    logging_gateway.api.call("GET", "/v1/leases/none", headers={"X-Request-Id": "typed"})
    line = access_line(logging_gateway, "typed")
    assert line.pop("duration_us") >= 0 and isinstance(line.pop("thread"), int) and line.pop("time").endswith("Z")
    problem = line.pop("problem")
    assert line == {
        "level": "info",
        "message": "request",
        "client": "127.0.0.1",
        "method": "GET",
        "route": "/v1/leases/{lease_id}",
        "status": line["status"],
        "request_id": "typed",
        "principal": "dev",
    }
    assert line["status"] == 403 and problem == "lease-not-authentic", (line, problem)


def test_access_log_has_trace_id_of_its_own_request(logging_gateway: Gateway) -> None:
    """Also one that is refused while its head or body is read; never that of the connection's previous request."""
    api, trace = logging_gateway.api, f"{0xabc:032x}"
    traceparent = f"traceparent: 00-{trace}-{1:016x}-01"
    send = lambda wire, name, *headers: wire.send(
        request("GET", "/v1/nodes", b"", f"X-Request-Id: {name}", *headers)
    )  # noqa: E731
    with Wire(api.host, api.port) as wire:
        send(wire, "traced", traceparent)
        assert wire.receive().status == 200
        send(wire, "untraced")
        assert wire.receive().status == 200
        send(wire, "traced-again", traceparent)
        assert wire.receive().status == 200
        send(wire, "refused", "Content-Length: none")
        refused = wire.receive()
    assert refused.status == 400
    with Wire(api.host, api.port) as wire:
        send(wire, "head-refused", traceparent, "Content-Length: none")
        assert wire.receive().status == 400
    with Wire(api.host, api.port) as wire:
        wire.send(
            request(
                "POST",
                "/v1/leases",
                b"",
                "X-Request-Id: body-refused",
                traceparent,
                "Transfer-Encoding: chunked",
                "Expect: 100-continue",
            )
        )
        assert wire.receive().status == 100, "its head was admitted"
        wire.send(b"no size\r\n")
        assert wire.receive().status == 400
    names = ("traced", "untraced", "traced-again", refused.headers["x-request-id"], "head-refused", "body-refused")
    lines = {name: access_line(logging_gateway, name) for name in names}
    assert [(line["status"], line.get("trace_id")) for line in lines.values()] == [
        (200, trace),
        (200, None),
        (200, trace),
        (400, None),
        (400, trace),
        (400, trace),
    ], lines


def test_failed_readiness_is_logged_at_debug_only(cluster: Cluster, start: Callable[..., Gateway]) -> None:
    informing, debugging = start(), start(level="debug")
    for node in cluster.nodes[:3]:
        node.kill()
    try:
        for gateway in (informing, debugging):
            eventually(lambda: gateway.api.get("/readyz").status == 503, 20, goal="it is not ready")
            assert gateway.api.get("/readyz/leases").status == 503 and gateway.api.acquire("log/none").status == 503
        refused = eventually(lambda: lines_of(informing, "request"), goal="the failed acquisition is logged")
        assert {line["route"] for line in refused} == {"/v1/leases"} and refused[0]["client"] == "127.0.0.1", refused
        probes = [
            line
            for line in lines_of(debugging, "request")
            if line["route"].startswith("/readyz") and line["status"] == 503
        ]
        assert probes and {line["level"] for line in probes} == {"debug"}
    finally:
        for node in cluster.nodes[:3]:
            node.start()


def test_refused_credentials_are_logged_and_limited(start: Callable[..., Gateway]) -> None:
    gateway = start(keyed=True)
    stranger = gateway.api.with_key("a-key-that-nobody-has")
    assert {stranger.get("/v1/nodes").status for _ in range(40)} == {401}
    assert gateway.api.get("/v1/nodes").status == 200
    gateway.stop()
    refused = lines_of(gateway, "authentication refused")
    assert len(refused) == 5, refused
    assert {(line["level"], line["client"], line["route"], line["reason"]) for line in refused} == {
        ("warning", "127.0.0.1", "/v1/nodes", "The API key is not known.")
    }
    (rest,) = lines_of(gateway, "authentication refused more often")
    assert (rest["client"], rest["left_out"]) == ("127.0.0.1", 35), rest
    assert "a-key-that-nobody-has" not in gateway.log.read_text()


def test_refusals_are_logged_at_info_and_limited(start: Callable[..., Gateway]) -> None:
    gateway = start(keyed=True)  # without the scope writes
    body = {"lease_id": "none", "operations": []}
    headers = {"X-Request-Id": "refused", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    assert gateway.api.call("POST", "/v1/writes", body, headers=headers).status == 403
    line = access_line(gateway, "refused")
    assert (line["level"], line["status"], line["trace_id"]) == ("info", 403, "a" * 32), line
    assert {gateway.api.post("/v1/writes", body).status for _ in range(60)} == {403}
    gateway.stop()
    assert 10 <= len(lines_of(gateway, "request")) < 61


def test_orders_of_operators_are_logged(start: Callable[..., Gateway]) -> None:
    gateway = start(keyed=True)
    lease = gateway.api.must_acquire("log/revoked", ttl_ms=2_000)
    orders = (
        ("lease revoked", "DELETE", "log%2Frevoked/lease", {"reason": "it hangs"}, lease["fencing_token"]),
        ("fence repaired", "POST", "log%2Frevoked/fence", {"reason": "it hangs", "last_fencing_token": 7}, 7),
    )
    for message, method, path, body, token in orders:
        headers = {"X-Request-Id": method}
        assert gateway.api.call(method, f"/v1/resources/{path}", body, headers=headers).status in (200, 204)
        (line,) = eventually(lambda: lines_of(gateway, message), goal=f"the log has {message}")
        assert (line["level"], line["request_id"], line["principal"]) == ("info", method, "admin"), line
        assert (line["resource"], line["fencing_token"], line["reason"]) == ("log/revoked", token, "it hangs"), line
        assert lease["lease_id"] not in gateway.log.read_text()


# Formats


def test_text_format_has_readable_fields(start: Callable[..., Gateway]) -> None:
    gateway = start(json=False, level="debug")
    gateway.api.call("GET", "/v1/leases/none", headers={"X-Request-Id": "in=text"})
    pattern = (
        r"^\d{4}-\d\d-\d\d [\d:.]+ info request client=127.0.0.1 method=GET route=/v1/leases/{lease_id} status=\d+ "
        r'problem=[\w-]+ duration_us=\d+ request_id="in=text" principal=dev$'
    )
    eventually(lambda: re.search(pattern, gateway.log.read_text(), re.MULTILINE), goal="the line is there")
    # As before any field: the states of nodes.
    eventually(
        lambda: re.search(
            r" node changed its state node=node-1 old_state=identifying new_state=\w+", gateway.log.read_text()
        ),
        goal="the node's line is there",
    )


def test_node_line_has_states_as_members(cluster: Cluster, start: Callable[..., Gateway]) -> None:
    gateway = start()
    gateway.wait_until_all_vote()
    cluster.nodes[2].restart_empty()
    changed = eventually(
        lambda: [
            line
            for line in lines_of(gateway, "node changed its state")
            if line["node"] == "node-3" and line["old_state"] == "voting"
        ],
        goal="the change is logged",
    )
    assert (changed[0]["new_state"], changed[0]["level"]) == ("unreachable", "warning") and changed[0][
        "detail"
    ], changed
    gateway.wait_until_all_vote()


# Open files


def test_files_used_up_are_logged_once_in_a_minute(start: Callable[..., Gateway]) -> None:
    gateway = start()
    process, connections = Path(f"/proc/{gateway.pid}/fd"), []
    soft, hard = limits.prlimit(gateway.pid, limits.RLIMIT_NOFILE)
    limits.prlimit(gateway.pid, limits.RLIMIT_NOFILE, (len(os.listdir(process)) + 3, hard))
    try:
        connections = [socket.create_connection(("127.0.0.1", gateway.api.port)) for _ in range(20)]
        found = eventually(
            lambda: [line for line in lines_of(gateway) if "the limit of open files is reached" in line["message"]],
            goal="the log has a warning",
        )
        assert (found[0]["level"], found[0]["error"]) == ("warning", "Too many open files")
        remains(
            lambda: len([line for line in lines_of(gateway) if "open files is reached" in line["message"]]) == 1,
            0.5,
            goal="one warning, while it tries every 100 ms",
        )
    finally:
        limits.prlimit(gateway.pid, limits.RLIMIT_NOFILE, (soft, hard))
        eventually(lambda: gateway.api.get("/healthz").status == 200, goal="it accepts again")
        for connection in connections:
            connection.close()
