"""The pages that describe a gateway and its nodes: /v1/nodes, /openapi.json, /problems/{slug}."""

from __future__ import annotations

import re
from typing import Any

from support.api import Api
from support.polling import eventually
from support.stack import Stack


def test_nodes_healthy_vote_with_run_id_and_own_epoch(stack: Stack, api: Api) -> None:
    def all_voting() -> list[dict[str, Any]]:
        found = api.get("/v1/nodes").json()["nodes"]
        return found if all(node["state"] == "voting" for node in found) else []

    nodes = eventually(all_voting)
    assert [node["name"] for node in nodes] == [node["name"] for node in stack.facts["redis"]]
    for node, client in zip(nodes, stack.nodes()):
        assert node["run_id"] == client.info("server")["run_id"]
        assert isinstance(node["epoch"], int) and node["epoch"] >= 1
    assert len({node["epoch"] for node in nodes}) == 5, "no two admissions share an epoch"


def test_node_hanging_is_unreachable_until_it_answers(stack: Stack, api: Api) -> None:
    def state() -> str:
        return api.get("/v1/nodes").json()["nodes"][3]["state"]

    with stack.frozen(stack.node_pids()[3:4]):
        eventually(lambda: state() == "unreachable", 15, goal="the gateway notices")
    eventually(lambda: state() == "voting", 15, goal="it votes again")


def test_openapi_describes_every_path_of_this_version(api: Api) -> None:
    document = api.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods if method != "parameters"
    }
    for path, method in described:  # the document has no path that is not served
        # An invalid Last-Event-ID, so that no stream begins: it would not end by itself.
        answer = api.call(
            method.upper(),
            re.sub(r"\{\w+\}", "x", path),
            {} if method in ("post", "patch", "put") else None,
            {"Last-Event-ID": "x"},
        )
        assert (
            answer.status not in (404, 405)
            or path in ("/problems/{slug}", "/console/{file}")
            or b"x is exposed" in answer.body
        ), f"{method} {path}: {answer}"


def test_problem_page_explains_its_slug(api: Api) -> None:
    answer = api.get("/problems/lease-lost", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.status == 200 and answer.headers.get_content_type() == "text/html", answer
    assert "lease-lost" in answer.body.decode() and len(answer.body) > 100


def test_problem_page_of_unknown_slug_404(api: Api) -> None:
    assert api.get("/problems/no-such-problem").status == 404
    assert api.get("/problems/%3Cscript%3E").status == 404
