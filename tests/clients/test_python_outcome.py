"""The Python client where an answer does not tell the outcome: commits that take too long,
look-ups through a proxy of cells, releases and renewals that are not answered."""

from __future__ import annotations

import itertools
from typing import Any, Iterator

import pytest
from python_clients import Site, both, clients, errors, recorded_answers
from support import processes
from support.api import Api
from support.polling import eventually
from support.proxies import CellsHaproxy

ROWS = itertools.count(1)
SLOWLY = (
    "create or replace function slowly() returns trigger language plpgsql as $$ begin perform pg_sleep({}); "
    "return null; end $$"
)


@pytest.fixture(scope="module")
def hasty(site: Site) -> Api:
    """A gateway that does not wait for slow commits."""
    settings = site.settings()
    settings["http"]["request_timeout_ms"] = 300
    return site.start(settings).api


@pytest.fixture(scope="module")
def proxy(hasty: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of config/haproxy/cells.cfg before the gateway, which is of cell 0,
    and before a cell 1 that is not available."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "cells.map").write_text("slow/ 0\n")
    with CellsHaproxy(folder, folder / "cells.map", [hasty.port, processes.free_port()]) as made:
        made.await_ready()
        yield made.api.url


@pytest.fixture
def slow_row(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Returns the id of a row that takes 1.5 s to commit; the gateway waits for it for 0.8 s.
    It differs from test to test: the lease of a write whose outcome is unknown is not released."""
    monkeypatch.setattr("fencegate._protocol.LATE_COMMIT_SECONDS", 10.0)  # on a busy machine the commit may end late
    site.stack.query(
        f"""
        create table slow (id integer primary key, n integer not null);
        insert into slow select n, 0 from generate_series(1, 1000) n;
        {SLOWLY.format(1.5)};
        create constraint trigger slowly after update on slow deferrable initially deferred for each row
          execute function slowly();
        select fencing.protect('slow', $$'slow/' || id$$), fencing.expose_table('slow')"""
    )
    yield next(ROWS)
    site.stack.query("select fencing.hide('slow'), fencing.unprotect('slow'); drop table slow; drop function slowly")


@both
@pytest.mark.parametrize("keep_outcome", [True, False], ids=["by_key", "by_write_id"])
def test_write_with_unknown_outcome_is_resolved(
    site: Site, hasty: Api, slow_row: int, kind: str, keep_outcome: bool
) -> None:
    """COMMIT takes longer than the deadline; the gateway answers outcome_unknown,
    and the client finds out what happened."""
    with clients(kind, hasty.url) as client:
        answers = recorded_answers(client)
        written = client.one_shot_write(
            {"update": "slow", "where": {"id": slow_row}, "add": {"n": 1}},
            resources=[f"slow/{slow_row}"],
            keep_outcome=keep_outcome,
        )
    assert any('"outcome_unknown":true' in content for _, _, content in answers), answers
    first = next(number for number, (_, _, content) in enumerate(answers) if '"outcome_unknown":true' in content)
    assert (written.results, written.replayed) == (([{"rows_affected": 1}], True) if keep_outcome else (None, False))
    assert {path for path, _, _ in answers[first + 1 :]} == ({"/v1/writes"} if keep_outcome else {"/v1/history"})
    assert site.stack.query("select n from slow where n > 0") == [(1,)]


@both
def test_write_is_repeated_once_its_own_lease_has_ended(site: Site, hasty: Api, slow_row: int, kind: str) -> None:
    """The transaction is rolled back after outcome_unknown, and the lease of the first attempt locks the second one out
    until its ttl is over."""

    def roll_back() -> None:
        if [content for _, _, content in answers if '"outcome_unknown":true' in content] == [answers[-1][2]]:
            site.stack.query(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event = 'PgSleep'"
            )
            site.stack.query(SLOWLY.format(0))

    site.stack.query(SLOWLY.format(8))  # so long that it cannot end before it is rolled back
    with clients(kind, hasty.url) as client:
        answers = recorded_answers(client, roll_back)
        written = client.one_shot_write(
            {"update": "slow", "where": {"id": slow_row}, "add": {"n": 1}},
            resources=[f"slow/{slow_row}"],
            ttl=5.0,
            wait=0.5,
        )
    first = next(number for number, (_, _, content) in enumerate(answers) if '"outcome_unknown":true' in content)
    assert 423 in [status for _, status, _ in answers[first:]], answers
    assert written.results == [{"rows_affected": 1}] and site.stack.query("select n from slow where n > 0") == [(1,)]


@both
def test_unknown_outcome_behind_proxy_is_found_by_cell(site: Site, proxy: str, slow_row: int, kind: str) -> None:
    """The write names a resource, by which the proxy leads it; the look-up by write_id does not,
    and without the cell it is answered 421."""

    def write(**options: Any) -> Any:
        with clients(kind, proxy, **options) as client:
            answers = recorded_answers(client)
            try:
                return (
                    client.one_shot_write(
                        {"update": "slow", "where": {"id": slow_row}, "add": {"n": 1}},
                        resources=[f"slow/{slow_row}"],
                        ttl=1.0,
                        keep_outcome=False,
                    ),
                    answers,
                )
            except errors.OutcomeUnknown as unknown:
                return unknown, answers

    unknown, answers = write(retry_for=5)
    statuses = [
        status for _, status, _ in answers
    ]  # where the deadline is over before the commit begins, the write is repeated
    assert (
        isinstance(unknown, errors.OutcomeUnknown)
        and unknown.write_id
        and statuses[-2:] == [503, 421]
        and set(statuses[:-2]) <= {503}
    ), answers
    with clients(kind, proxy, cell=0) as client:
        eventually(
            lambda: "write_applied" in [event.event for event in client.history(write_id=unknown.write_id)],
            goal="it has taken effect",
        )
        with client.lease(f"slow/{slow_row}/other"):
            pass
    with clients(kind, proxy, cell=1, retry_for=0) as client, pytest.raises(
        errors.UnexpectedAnswer, match="not available"
    ):
        list(client.history(write_id=unknown.write_id))
    leases = {"resource_prefix": f"slow/{slow_row}"}
    eventually(
        lambda: (page := Api(proxy).get("/v1/leases", {"Fencing-Cell": "0"}, **leases)).status == 200
        and not page.json()["items"],
        15,
        goal="its lease has ended",
    )
    written, answers = write(cell=0)
    assert (
        (written.results, written.replayed) == (None, False)
        and answers[0][1] == 503
        and answers[-1][:2] == ("/v1/history", 200)
    )
    assert site.stack.query("select n from slow where n > 0") == [(2,)]


@both
def test_cell_of_another_gateway_is_misdirected(hasty: Api, kind: str) -> None:
    with clients(kind, hasty.url, cell=1) as client:
        for call in (
            lambda: client.lease("python/cell"),
            lambda: client.one_shot_write({"call": "f"}, resources=["python/cell"]),
            lambda: client.get("/v1/nodes"),
            lambda: list(client.history()),
        ):
            with pytest.raises(errors.MisdirectedRequest) as refused:
                call()
            assert refused.value.document["named_cell"] == 1


@both
def test_lease_survives_a_token_function_that_fails(hasty: Api, kind: str) -> None:
    """The first renewal gets no token, and the second one a token that cannot be sent."""
    renewals = 0
    is_acquired = False

    def token() -> str:
        nonlocal renewals
        renewals += is_acquired
        if renewals == 1:
            raise RuntimeError("no token")
        return "second\n" if renewals == 2 else "first"

    with clients(kind, hasty.url, credential=token) as client, client.lease(f"python/token-{kind}", ttl=9.0) as lease:
        is_acquired = True
        eventually(lambda: renewals > 2 and lease.remaining() > 4.5, 30, interval=0.01, goal="it is renewed after both")
        lease.check()
