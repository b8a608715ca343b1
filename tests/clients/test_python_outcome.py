"""The Python client where an answer does not tell the outcome: commits that take too long, look-ups through a proxy of cells, and releases with a seal that may have failed."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest
from python_clients import ROOT, Site, clients, errors, recorded_answers
from support import processes
from support.api import Api
from support.polling import eventually
from support.stack import Stack, make_folder

both = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Site]:
    made = Site(stack, make_folder())
    yield made
    for gateway in made.started:
        gateway.kill()
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def hasty(site: Site) -> Api:
    """A gateway that does not wait for slow commits."""
    settings = site.settings()
    settings["http"]["request_timeout_ms"] = 300
    return site.start(settings).api


@pytest.fixture(scope="module")
def proxy(hasty: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of config/haproxy/cells.cfg before the gateway, which is of cell 0, and before a cell 1 that is not available."""
    folder, port = tmp_path_factory.mktemp("cells"), processes.free_port()
    (folder / "cells.map").write_text("slow/ 0\n")
    environment = {"FENCEGATE_BIND": f"127.0.0.1:{port}", "CELLS_MAP": str(folder / "cells.map"), "CELL_0": f"127.0.0.1:{hasty.port}", "CELL_1": f"127.0.0.1:{processes.free_port()}"}
    process = processes.start(["haproxy", "-db", "-f", str(ROOT / "config/haproxy/cells.cfg")], folder / "log", env={**os.environ, **environment})

    def is_open() -> bool:
        try:
            return Api(f"http://127.0.0.1:{port}").get("/healthz").status == 200
        except OSError:
            return False

    try:
        eventually(is_open, 20, goal="the proxy answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        processes.stop(process)


@pytest.fixture
def slow_row(site: Site) -> Iterator[int]:
    """Returns the id of a row that takes 1.5 s to commit. It differs from test to test: the lease of a write whose outcome is unknown is not released."""
    site.stack.query("""
        create table slow (id integer primary key, n integer not null);
        insert into slow select n, 0 from generate_series(1, 1000) n;
        create function slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(1.5); return null; end $$;
        create constraint trigger slowly after update on slow deferrable initially deferred for each row execute function slowly();
        select fencing.protect('slow', $$'slow/' || id$$), fencing.expose_table('slow')""")
    yield random.randint(1, 1000)
    site.stack.query("select fencing.hide('slow'), fencing.unprotect('slow'); drop table slow; drop function slowly")


@both
@pytest.mark.parametrize("keep_outcome", [True, False], ids=["by_key", "by_write_id"])
def test_write_with_unknown_outcome_is_resolved(site: Site, hasty: Api, slow_row: int, kind: str, keep_outcome: bool) -> None:
    """COMMIT takes longer than the deadline; the gateway answers outcome_unknown, and the client finds out what happened."""
    with clients(kind, hasty.url) as client:
        answers = recorded_answers(client)
        written = client.write({"update": "slow", "where": {"id": slow_row}, "add": {"n": 1}}, resources=[f"slow/{slow_row}"], keep_outcome=keep_outcome)
    assert any('"outcome_unknown":true' in content for _, _, content in answers), answers
    assert (written.results, written.replayed) == (([{"rows_affected": 1}], True) if keep_outcome else (None, False))
    assert {path for path, _, _ in answers[1:]} == ({"/v1/writes"} if keep_outcome else {"/v1/history"})
    assert site.stack.query("select n from slow where n > 0") == [(1,)]


@both
def test_unknown_outcome_behind_proxy_is_found_by_cell(site: Site, proxy: str, slow_row: int, kind: str) -> None:
    """The write names a resource, by which the proxy leads it; the look-up by write_id does not, and without the cell it is answered 421."""
    def write(**options: Any) -> Any:
        with clients(kind, proxy, **options) as client:
            answers = recorded_answers(client)
            try:
                return client.write({"update": "slow", "where": {"id": slow_row}, "add": {"n": 1}}, resources=[f"slow/{slow_row}"], ttl=1.0, keep_outcome=False), answers
            except errors.OutcomeUnknown as unknown:
                return unknown, answers

    unknown, answers = write(retry_for=1)
    assert isinstance(unknown, errors.OutcomeUnknown) and unknown.write_id and [status for _, status, _ in answers] == [503, 421], answers
    with clients(kind, proxy, cell=0) as client:
        eventually(lambda: "write_applied" in [event.event for event in client.history(write_id=unknown.write_id)], goal="it has taken effect")
        with client.lease(f"slow/{slow_row}/other"):
            pass
    with clients(kind, proxy, cell=1, retry_for=0) as client, pytest.raises(errors.UnexpectedAnswer, match="not available"):
        list(client.history(write_id=unknown.write_id))
    eventually(lambda: not Api(proxy).get("/v1/leases", {"Fencing-Cell": "0"}, resource_prefix=f"slow/{slow_row}").json()["items"], 15, goal="its lease has ended")
    written, answers = write(cell=0)
    assert (written.results, written.replayed) == (None, False) and answers[0][1] == 503 and answers[-1][:2] == ("/v1/history", 200)
    assert site.stack.query("select n from slow where n > 0") == [(2,)]


@both
def test_cell_of_another_gateway_is_misdirected(hasty: Api, kind: str) -> None:
    with clients(kind, hasty.url, cell=1) as client:
        for call in (lambda: client.lease("python/cell"), lambda: client.write({"call": "f"}, resources=["python/cell"]), lambda: client.get("/v1/nodes"), lambda: list(client.history())):
            with pytest.raises(errors.MisdirectedRequest) as refused:
                call()
            assert refused.value.document["named_cell"] == 1


LOST = json.dumps({"type": "/problems/lease-lost", "status": 410, "detail": "The lease is lost.", "request_id": "r"}).encode()


@pytest.mark.parametrize("seal, left_ms, status, content, raised", [
    (True, 60_000, 410, LOST, None), (True, -1, 410, LOST, errors.LeaseLost), (False, -1, 410, LOST, None),
    (True, 60_000, 200, b'{"hold_count": 0, "sealed": false}', errors.FencegateError), (True, 60_000, 200, b'{"hold_count": 1, "sealed": false}', None),
    (False, 60_000, 200, b'{"hold_count": 0}', None)])
def test_release_after_lost_answer_is_sealed_or_raises(seal: bool, left_ms: int, status: int, content: bytes, raised: Any) -> None:
    """The first attempt is not answered; the second is answered when the lease has been valid for `left_ms` less than its ttl."""
    from fencegate._lease import LeaseState, now
    from fencegate._protocol import NoAnswer, Pause, Protocol, Request, Response

    document = {"lease_id": "a", "resource": "a", "fencing_token": 1, "ttl_ms": 60_000, "served_ms": 0, "validity_ms": 1_000}
    state = LeaseState(document, now())
    call = Protocol(10.0, 30.0).release(state, seal)
    assert isinstance(next(call), Request) and isinstance(call.throw(NoAnswer("cut", sent=True)), Pause) and isinstance(call.send(None), Request)
    state.valid_until = now() + left_ms / 1000
    with pytest.raises(raised or StopIteration) as ended:
        call.send(Response(status, {}, content))
    assert raised is None or type(ended.value) is raised
