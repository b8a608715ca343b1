"""`audit.record_reads`: each read of the history is an event history_read."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import Any, Iterator

import pytest
from support.cluster import Cluster, Gateway, credentials
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack

KEY = "the-key-of-an-auditor"


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    with running_cluster(stack, "history_reads") as made:
        made.query(
            "insert into fencing.history (event, resource) select 'request_denied', 'r/' || n "
            "from generate_series(1, 30) as t (n)"
        )
        yield made


def settings_of(cluster: Cluster, **audit: object) -> dict[str, Any]:
    return {**cluster.settings(), "audit": audit, "auth": credentials({"auditor": KEY}, "history")}


@pytest.fixture(scope="module")
def recording(cluster: Cluster) -> Iterator[Gateway]:
    with cluster.serving(settings_of(cluster, record_reads=True)) as gateway:
        yield gateway


def last_id(cluster: Cluster) -> int:
    return cluster.query("select max(id) from fencing.history")[0][0]


def reads_after(cluster: Cluster, last: int, count: int) -> list[tuple[str | None, str, dict[str, Any]]]:
    """Waits for so many events of reads after an id and returns resource, principal and detail of each."""

    def found() -> list[tuple[Any, ...]]:
        return cluster.query(
            "select resource, principal, detail from fencing.history where event = 'history_read' and id > %s "
            "order by id",
            (last,),
        )

    eventually(lambda: len(found()) >= count, 10, goal=f"{count} reads are recorded")
    return found()


def begin_stream(gateway: Gateway, target: str) -> bytes:
    """Sends a request for an endless answer, hangs up after its beginning and returns that."""
    port = int(gateway.api.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode("latin-1")
        )
        return connection.recv(65536)


HEADERS = {"Authorization": f"Bearer {KEY}"}
READS = [
    ("/v1/history", {"resource_prefix": "r/", "limit": 7}, "application/json", "resource_prefix=r%2F&limit=7", 7),
    ("/v1/history", {"limit": 9}, "application/x-ndjson", "limit=9", None),
    ("/v1/history", {}, "text/csv", "", None),
    ("/v1/changes", {}, "application/json", "", 0),
    ("/v1/changes", {}, "application/x-ndjson", "", None),
    ("/v1/resources/r%2F1", {}, "application/json", "", None),
]


@pytest.mark.parametrize("path, query, media, recorded, rows", READS, ids=lambda value: str(value)[:20])
def test_read_is_event_with_caller_and_query(
    cluster: Cluster, recording: Gateway, path: str, query: dict[str, Any], media: str, recorded: str, rows: int | None
) -> None:
    last = last_id(cluster)
    answer = recording.api.get(path, {**HEADERS, "Accept": media}, **query)
    assert answer.status == 200, answer
    [(resource, principal, detail)] = reads_after(cluster, last, 1)
    assert (resource, principal) == (None, "auditor")
    assert (detail["path"], detail["query"], detail.get("rows")) == (path, recorded, rows)
    assert detail["credential"].startswith("key:") and detail["request_id"] and KEY not in json.dumps(detail)


def test_stream_is_event_when_it_begins(cluster: Cluster, recording: Gateway) -> None:
    last = last_id(cluster)
    assert b" 200 " in begin_stream(recording, "/v1/history/stream?resource=r/1")
    [(_, principal, detail)] = reads_after(cluster, last, 1)
    assert (principal, detail["path"], detail["query"]) == ("auditor", "/v1/history/stream", "resource=r/1")


def test_query_of_any_bytes_is_recorded(cluster: Cluster, recording: Gateway) -> None:
    for sent in ("owner=\xff", "owner=%FF", "owner=%00", "owner=\xc3\xa4"):
        last = last_id(cluster)
        if b" 200 " in begin_stream(recording, f"/v1/history?{sent}"):
            assert reads_after(cluster, last, 1)[0][2]["path"] == "/v1/history", sent


def test_refused_reads_and_other_gateways_record_none(cluster: Cluster, recording: Gateway) -> None:
    last = last_id(cluster)
    assert recording.api.get("/v1/history", HEADERS, limit="x").status == 400
    assert recording.api.get("/v1/history").status == 401
    with cluster.serving(settings_of(cluster)) as silent:
        assert silent.api.get("/v1/history", HEADERS).status == 200
    assert recording.api.get("/v1/history", HEADERS, limit=3).status == 200
    assert [detail["query"] for _, _, detail in reads_after(cluster, last, 1)] == ["limit=3"]


def test_read_without_place_for_its_event_is_refused(cluster: Cluster) -> None:
    """A lock on the table keeps events from being written, and reads go on."""
    with cluster.serving(settings_of(cluster, record_reads=True, buffer_max=1_000)) as gateway:
        with closing(cluster.sql()) as connection, connection.cursor() as session:
            session.execute("begin; lock table fencing.history in exclusive mode")
            statuses = [gateway.api.get("/v1/history", HEADERS, limit=1) for _ in range(80)]
            session.execute("rollback")
        refused = [answer for answer in statuses if answer.status != 200]
        assert len(refused) in range(1, 40) and {answer.status for answer in refused} == {503}
        assert "audit.record_reads" in refused[0].json()["detail"] and "Retry-After" in refused[0].headers
        eventually(lambda: gateway.api.get("/v1/history", HEADERS).status == 200, 10, goal="reads are recorded again")
