"""The Python client where an answer is not what a gateway answers to the request,
where a lease is over or its release fails, and which values it sends."""

from __future__ import annotations

import enum
import json
import logging
import math
import re
import socket
import threading
import time
import uuid
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from python_clients import ROOT, Reply, answering, both, clients, errors, problem

LEASE = {
    "lease_id": "secret-id",
    "resource": "a",
    "fencing_token": 7,
    "ttl_ms": 60_000,
    "served_ms": 0,
    "validity_ms": 60_000,
}
WRITTEN = {"applied": True, "write_id": "w", "fences": [], "results": [{"rows_affected": 1}]}
MAINTENANCE = {"status": "maintenance"}


def finish(call: Any, *answers: Any) -> Any:
    """Gives answers to the requests of a call, without its pauses; returns its result.
    An answer is a Response or an exception."""
    from fencegate._protocol import Pause

    left = list(answers)
    try:
        step = next(call)
        while True:
            if isinstance(step, Pause):
                step = call.send(None)
            else:
                answer = left.pop(0)
                step = call.throw(answer) if isinstance(answer, Exception) else call.send(answer)
    except StopIteration as done:
        assert not left
        return done.value


def protocol() -> Any:
    from fencegate._protocol import Protocol

    return Protocol(10.0, 0.0)


def response(status: int, content: Any) -> Any:
    from fencegate._protocol import Response

    return Response(status, {}, content if isinstance(content, bytes) else json.dumps(content).encode())


def lease_state(**members: Any) -> Any:
    from fencegate._lease import LeaseState, now

    return LeaseState({**LEASE, **members}, now())


# Answers that are not those of a gateway


@pytest.mark.parametrize(
    "content",
    [
        MAINTENANCE,
        b"",
        [],
        "text",
        {**LEASE, "validity_ms": None},
        {**LEASE, "validity_ms": "60000"},
        {**LEASE, "resource": "b"},
    ],
)
def test_grant_that_is_no_lease_is_unexpected(content: Any) -> None:
    with pytest.raises(errors.UnexpectedAnswer, match="not what a gateway answers") as unexpected:
        finish(protocol().acquire(["a"], 0.0, None, None, False), response(200, content))
    assert unexpected.value.maybe_executed


@pytest.mark.parametrize(
    "content",
    [MAINTENANCE, b"", {**LEASE, "fencing_token": 8}, {**LEASE, "resource": "b"}, {**LEASE, "served_ms": None}],
)
def test_renewal_of_another_lease_does_not_count(content: Any) -> None:
    state = lease_state()
    before = state.valid_until
    with pytest.raises(errors.UnexpectedAnswer):
        finish(protocol().renew(state), response(200, content))
    assert state.valid_until == before and state.lost_because is None
    finish(
        protocol().renew(state), response(200, {**LEASE, "lease_id": "signed with another key", "validity_ms": 90_000})
    )
    assert state.valid_until > before


@both
def test_body_that_drips_ends_with_the_timeout(kind: str) -> None:
    """Each byte arrives within the time-outs of httpx."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            while not over.wait(0.1):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener, clients(
        kind, f"http://127.0.0.1:{listener.getsockname()[1]}", request_timeout=0.5, retry_for=0
    ) as client:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        began = time.monotonic()
        try:
            with pytest.raises(errors.ConnectionFailed) as failed:
                client.get("/")
            assert failed.value.maybe_executed and time.monotonic() - began < 3
        finally:
            over.set()


# Values


class Colour(enum.Enum):
    RED = 1


def body_of(value: Any) -> Any:
    from fencegate._protocol import Request

    content = Request("POST", "/v1/writes", 1.0, {"value": value}).content()
    assert content is not None
    return json.loads(content)["value"]


@pytest.mark.parametrize(
    "value, sent",
    [
        (Decimal("0.10"), "0.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 11, 21), "2026-11-21"),
        (datetime(2026, 11, 21, 10, tzinfo=timezone.utc), "2026-11-21T10:00:00+00:00"),
        (datetime(2026, 11, 21, 10).time(), "10:00:00"),
        (timedelta(days=1), "1 day, 0:00:00"),
        (ip_address("::1"), "::1"),
        (ip_network("10.0.0.0/8"), "10.0.0.0/8"),
        ([1, None, True], [1, None, True]),
    ],
)
def test_value_is_sent_as_text_that_postgresql_reads(value: Any, sent: Any) -> None:
    assert body_of(value) == sent


@pytest.mark.parametrize(
    "value, named",
    [(b"hello", "bytes"), ({1}, "set"), (Colour.RED, "Colour"), (object(), "object"), ([{"a": b"x"}], "bytes")],
)
@both
def test_value_without_form_in_json_is_refused(kind: str, value: Any, named: str) -> None:
    with answering(lambda *_: Reply(200, WRITTEN)) as (url, requests), clients(kind, url) as client:
        with pytest.raises(TypeError, match=f"type {named} "):
            client.one_shot_write({"insert": "t", "values": {"id": value}}, resources=["a"])
        if not isinstance(value, list):
            with pytest.raises(TypeError, match=f"type {named} "):
                client.get("/v1/tables/t", id=value)
        for number in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match="JSON"):
                client.one_shot_write({"insert": "t", "values": {"id": number}}, resources=["a"])
        assert not requests
        client.get("/v1/tables/t", id="eq.1", limit=5, day=date(2026, 11, 21), no=None)
        assert [path for _, path in requests] == ["/v1/tables/t?id=eq.1&limit=5&day=2026-11-21"]


# Leases that are over


@pytest.mark.parametrize("status, slug", [(410, "lease-lost"), (412, "stale-fencing-token")])
@both
def test_lease_is_lost_if_fenced_read_is_refused(kind: str, status: int, slug: str) -> None:
    def on_request(method: str, path: str, _: Any) -> Reply:
        return (
            Reply(status, problem(slug, status))
            if method == "GET"
            else Reply(201, LEASE)
            if path == "/v1/leases"
            else Reply(204)
        )

    with answering(on_request) as (url, requests), clients(kind, url) as client:
        lease = client.lease("a")
        with pytest.raises(errors.ProblemError.classes[slug]):
            client.get("/v1/tables/t", lease=lease)
        with pytest.raises(errors.LeaseLost):
            lease.check()
        assert [method for method, _ in requests].count("DELETE") == (
            status == 412
        ), "a hold of a refused token is released"


# Releases


def releasing(*releases: Reply) -> Any:
    left = list(releases)
    return answering(lambda method, *_: left.pop(0) if method == "DELETE" else Reply(201, LEASE))


REFUSED = Reply(403, problem("forbidden", 403))
UNSEALED = Reply(200, {"hold_count": 0, "sealed": False})


@both
@pytest.mark.parametrize("answer", [REFUSED, UNSEALED], ids=["refused", "unsealed"])
def test_failed_release_with_seal_is_raised_again(kind: str, answer: Reply) -> None:
    with releasing(answer) as (url, _), clients(kind, url) as client:
        with pytest.raises(errors.FencegateError) as outcome:
            with client.lease("a", seal=True) as lease:
                for arguments in ({"seal": True}, {}, {"seal": False}):
                    with pytest.raises(errors.FencegateError) as failed:
                        lease.release(**arguments)
        assert outcome.value is failed.value


@both
def test_release_with_seal_after_one_without_raises(kind: str) -> None:
    with releasing(Reply(204)) as (url, requests), clients(kind, url) as client:
        lease = client.lease("a")
        lease.release()
        lease.release()
        with pytest.raises(errors.FencegateError, match="not sealed"):
            lease.release(seal=True)
        assert len(requests) == 2


@both
def test_release_in_block_decides_whether_its_end_seals(kind: str) -> None:
    with releasing(Reply(204)) as (url, requests), clients(kind, url) as client:
        with client.lease("a", seal=True) as lease:
            lease.release(seal=False)
        assert [path for _, path in requests] == ["/v1/leases", "/v1/leases/secret-id"]


@both
def test_release_with_seal_is_sent_once(kind: str) -> None:
    with releasing(Reply(204)) as (url, requests), clients(kind, url) as client:
        with client.lease("a", seal=True) as lease:
            lease.release()
            lease.release(seal=True)
        assert [path for _, path in requests] == ["/v1/leases", "/v1/leases/secret-id?seal=true"]


# The log


@both
def test_lease_ids_are_not_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Later versions of httpcore than that of Debian 12 log each step at DEBUG; the message is one of theirs."""
    with caplog.at_level(logging.DEBUG), releasing(Reply(204)) as (url, _), clients(
        kind, url, credential="secret-key"
    ) as client, client.lease("a"):
        logging.getLogger("httpcore.http11").debug(
            "receive_response_headers.complete return_value=(b'HTTP/1.1', 201, b'Created', [(b'Location', "
            "b'/v1/leases/secret-id~.x'), (b'Content-Length', b'5')])"
        )
    assert "secret" not in caplog.text and "b'/v1/leases/…'), (b'Content-Length', b'5')" in caplog.text


# Leases that a repeated request or a late loss concerns


@pytest.mark.parametrize("seal, raised", [(False, None), (True, errors.LeaseLost)])
def test_release_after_503_has_released_unless_it_seals(seal: bool, raised: Any) -> None:
    def release() -> None:
        finish(
            Protocol(10.0, 30.0).release(lease_state(), seal),
            Response(503, {"retry-after": "0"}, json.dumps(problem("no-quorum", 503)).encode()),
            response(410, problem("lease-lost", 410)),
        )

    from fencegate._protocol import Protocol, Response

    if raised is None:
        return release()
    with pytest.raises(raised):
        release()


def test_answer_of_a_proxy_is_shown_without_lease_ids() -> None:
    from fencegate._protocol import read_problem

    assert "secret" not in str(read_problem(response(404, b"Cannot POST /v1/leases/secret-id.x/renew")))


def test_wait_of_whole_milliseconds_is_sent_as_it_is() -> None:
    from fencegate._protocol import milliseconds

    assert [milliseconds(ms / 1000) for ms in (16_100, 32_200, 2_007)] == [16_100, 32_200, 2_007]
    assert milliseconds(0.0101) == 11


def test_cancellation_that_comes_with_the_answer_is_kept() -> None:
    """Before Python 3.12 asyncio.wait_for loses some."""
    import asyncio

    from fencegate.aio import AsyncClient

    async def cancel_at_any_moment(url: str) -> None:
        async def work(client: Any) -> None:
            while True:
                await client.get("/v1/nodes")

        async with AsyncClient(url) as client:
            for number in range(150):
                task = asyncio.ensure_future(work(client))
                await asyncio.sleep(0.005 + 0.0001 * number)
                task.cancel()
                await asyncio.wait([task], timeout=5.0)
                assert task.cancelled()

    with answering(lambda *_: Reply(200, {"nodes": []})) as (url, _):
        asyncio.run(cancel_at_any_moment(url))


def test_loss_that_another_thread_notices_wakes_the_event_loop() -> None:
    import asyncio

    from fencegate.aio import AsyncClient

    async def lose(url: str) -> None:
        async with AsyncClient(url) as client:
            lease = await client.lease("a")
            called_in: list[int] = []
            lease.on_loss(lambda _: called_in.append(threading.get_ident()))
            lease._state.valid_until = 0.0  # as after a suspension
            with pytest.raises(errors.LeaseLost):
                await asyncio.get_running_loop().run_in_executor(None, lease.check)
            await asyncio.wait_for(lease.lost.wait(), 2.0)
            assert called_in == [threading.get_ident()]

    with releasing(Reply(204)) as (url, _):
        asyncio.run(lose(url))


def test_errors_have_a_class_for_each_problem_and_sqlstate() -> None:
    document = json.loads((ROOT / "gateway/api/service/openapi.json").read_text())
    slugs = {
        name.rpartition("/")[2] for name in document["components"]["schemas"]["problem"]["properties"]["type"]["enum"]
    }
    assert set(errors.ProblemError.classes) == slugs and len({*errors.ProblemError.classes.values()}) == len(slugs)
    states = set(re.findall(r"^\| `(FG\d+)` \|", (ROOT / "docs/guard.md").read_text(), re.MULTILINE))
    assert set(errors.GuardError.classes) == {*states, "42501"}  # a login without the role of writers


def test_unknown_problems_and_foreign_answers_are_errors() -> None:
    from fencegate._protocol import Response, read_problem

    unknown = read_problem(
        Response(
            418, {"retry-after": "7"}, b'{"type": "/problems/new", "status": 418, "detail": "New.", "request_id": "r"}'
        )
    )
    assert type(unknown) is errors.ProblemError and (
        unknown.status,
        unknown.retry_after,
        unknown.request_id,
        str(unknown),
    ) == (418, 7.0, "r", "New.")
    blank = (
        b'{"type": "about:blank", "title": "Service Unavailable", "status": 503, '
        b'"detail": "The cell of this request is not available."}'
    )
    for status, content, temporary in (
        (502, b"<html>", True),
        (500, b"<html>", True),
        (520, b"", True),
        (404, b"<html>", False),
        (503, blank, True),
        (421, blank, False),
        (429, b"<html>", True),
    ):
        foreign = read_problem(Response(status, {"retry-after": "7"}, content))
        assert isinstance(foreign, errors.UnexpectedAnswer) and (
            foreign.status,
            foreign.temporary,
            foreign.retry_after,
        ) == (status, temporary, 7.0)
        assert foreign.maybe_executed == (status >= 500)
