"""Changes of the guard are events of the history, and `fencegate verify` says when a table was not protected."""

from __future__ import annotations

import json
from typing import Any

from support.cluster import Cluster, Gateway
from support.faults import install_shop
from support.polling import eventually


def query(cluster: Cluster, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    return cluster.query(statement, arguments)


def now(cluster: Cluster) -> str:
    return query(cluster, "select clock_timestamp()::text")[0][0]


def verify(cluster: Cluster, *arguments: str) -> str:
    done = cluster.call("verify", "--conninfo", cluster.conninfo(), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def spans(cluster: Cluster, *arguments: str) -> list[dict[str, Any]]:
    report = json.loads(verify(cluster, "--json", *arguments))
    assert report["verdict"] == "proved" and report["unprotected_left_out"] == 0
    return report["unprotected"]


def test_verify_reports_when_a_table_was_unprotected(cluster: Cluster) -> None:
    query(cluster, "create table item (id text primary key)")
    begin = now(cluster)
    query(cluster, "select fencing.protect('item', $$'item/' || id$$)")
    assert not spans(cluster, "--from", begin)
    text = verify(cluster)
    assert "never interrupted" in text and "says nothing" not in text
    query(cluster, "select fencing.unprotect('item')")
    opened = spans(cluster)
    assert [(span["table"], span["reason"], span["to"]) for span in opened] == [("public.item", "unprotected", None)]
    query(cluster, "select fencing.protect('item', $$'item/' || id$$, 'observe')")
    query(cluster, "select fencing.protect('item', $$'item/' || id$$)")
    query(cluster, "alter table item disable trigger all")
    query(cluster, "select fencing.protect('item', $$'item/' || id$$)")
    end = now(cluster)
    found = spans(cluster)
    user = query(cluster, "select session_user::text")[0][0]
    assert [(span["reason"], span["principal"]) for span in found] == [
        ("unprotected", user),
        ("observed", user),
        ("fault", user),
    ]
    assert all(span["from"] < span["to"] and span["found_at"] is None for span in found)
    assert found[0]["to"] == found[1]["from"] and "is not always on" in found[2]["faults"][0]
    assert not spans(cluster, "--from", end)
    report = json.loads(verify(cluster, "--json"))
    assert [table["table"] for table in report["tables"] if table["protected_since"]] == ["public.item"]
    text = verify(cluster)
    assert (
        "3 times interrupted" in text
        and f"public.item from {found[0]['from']} to {found[0]['to']}: not protected, by {user}" in text
    ), text
    assert "the history says nothing" in text


def start(cluster: Cluster) -> Gateway:
    made = cluster.start_gateway()
    return made


def test_fault_is_recorded_once_by_all_gateways(cluster: Cluster) -> None:
    """The event triggers are off meanwhile, so that only gateways can find it; each looks a second after its start."""
    install_shop(cluster, "sku")
    first_id = query(cluster, "select max(id) from fencing.history")[0][0]
    query(cluster, "select fencing.watch_guard()")
    query(
        cluster,
        "alter event trigger fencing_refuse_openings disable; alter table inventory disable trigger all; "
        "alter event trigger fencing_refuse_openings enable always",
    )
    found = (
        "select principal, detail from fencing.history where event = 'guard_changed' and id > %s "
        "and detail ->> 'relation' = 'public.inventory' order by id"
    )
    gateways = [start(cluster), start(cluster)]
    for gateway in gateways:
        eventually(
            lambda: (gateway.api.get("/v1/nodes").json()["guard"] or {}).get("faults"),
            goal="the gateway has seen the fault",
        )
    ((principal, detail),) = query(cluster, found, first_id)
    assert (
        principal is None and detail["action"] == "fault_found" and len(detail["faults"]) > 1 and "not_before" in detail
    )
    query(cluster, "select fencing.protect('inventory', $$'inventory/' || sku$$)")
    gateways.append(start(cluster))
    eventually(lambda: gateways[-1].api.get("/v1/nodes").json()["guard"] is not None, goal="the gateway has looked")
    actions = [detail["action"] for _, detail in query(cluster, found, first_id)]
    assert actions == ["fault_found", "fault_gone", "protect"]
    (span,) = [span for span in spans(cluster) if span["table"] == "public.inventory"]
    assert span["from"] < span["found_at"] < span["to"] and span["principal"] == ""
    items = gateways[0].api.history(event="guard_changed", limit=3)
    assert [item["detail"]["action"] for item in items] == ["protect", "fault_gone", "fault_found"]
