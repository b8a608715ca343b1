"""The Python client on real gateways: leases that are renewed and lost, writes that take effect once,
and calls whose answers are late, lost or refused."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Any, Iterator

import pytest
from python_clients import (
    Site,
    await_renewal,
    both,
    clients,
    cut_first_answer,
    errors,
    is_lost_on_time,
    recorded_answers,
    url_of,
)
from support import processes
from support.api import Api
from support.certificates import Certificates, tls_settings, trust
from support.cluster import Gateway, credential
from support.faults import sale_operation
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import Gate, open_gates

KEY = "the key of the principal first, which is long"


@pytest.fixture(scope="module")
def gateways(site: Site) -> list[Gateway]:
    """Two gateways; the first one lets a call wait for 300 ms only."""
    made = [site.start(site.settings(max_wait_ms=300)), site.start(site.settings())]
    for gateway in made:
        gateway.wait_until_all_vote()
    return made


@pytest.fixture
def api(gateways: list[Gateway]) -> Api:
    return gateways[1].api


@pytest.fixture
def gate(gateways: list[Gateway]) -> Iterator[Gate]:
    """A proxy before the second gateway."""
    with open_gates([gateways[1].api.port]) as made:
        yield made.members[0]


def grants(api: Api, resource: str) -> int:
    return len(api.history(resource=resource, event="lease_granted"))


# Leases


@both
def test_lease_is_renewed_until_the_block_ends(api: Api, kind: str) -> None:
    with clients(kind, api.url) as client:
        with client.lease("python/renewed", ttl=6.0, owner="me") as lease:
            assert (lease.resources, lease.owner, lease.lost.is_set()) == (("python/renewed",), "me", False)
            await_renewal(lease)
            await_renewal(lease)
            lease.check()
            with pytest.raises(errors.ResourceLocked) as locked:
                client.lease("python/renewed")
            assert locked.value.document["remaining_ms"] <= 6_000 and locked.value.status == 423
        assert not lease.remaining()
        with pytest.raises(errors.LeaseLost, match="was released"):
            lease.check()
        with client.lease("python/renewed") as following:
            assert following.fencing_token > lease.fencing_token
            following.release()
            following.release()


@both
def test_lease_waits_longer_than_a_gateway_lets_wait(gateways: list[Gateway], kind: str) -> None:
    with clients(kind, gateways[0].api.url) as client, client.lease(
        "python/waited", "python/waited-2", ttl=6.0
    ) as lease:
        with pytest.raises(errors.ResourceLocked):
            client.lease("python/waited", wait=0.7)
        began = time.monotonic()
        threading.Timer(1.0, lease.release).start()
        with client.lease("python/waited", wait=10.0) as waited:
            assert 0.9 < time.monotonic() - began < 5.0 and waited.fencing_token > lease.fencing_token


@both
def test_lease_that_is_revoked_is_lost_for_the_block(api: Api, kind: str) -> None:
    reasons: list[Exception] = []
    with clients(kind, api.url) as client:
        with pytest.raises(errors.LeaseLost) as lost:
            with client.lease("python/revoked", ttl=6.0) as lease:
                lease.on_loss(lambda reason: 1 / 0)
                lease.on_loss(reasons.append)
                api.must_revoke("python/revoked")
                eventually(lambda: lease.lost.is_set() and reasons, 5, interval=0.005)
                with pytest.raises(errors.LeaseLost):
                    lease.write(sale_operation("sku-1"))
        assert lost.value.status == 410 and reasons == [lost.value]
        late: list[Exception] = []
        lease.on_loss(late.append)
        eventually(
            lambda: late == reasons, 5, interval=0.005, goal="the callback, which runs in the event loop, is called"
        )


@both
def test_lease_revoked_between_renewals_is_lost_at_release(api: Api, kind: str) -> None:
    with clients(kind, api.url) as client:
        with pytest.raises(errors.LeaseLost):
            with client.lease("python/revoked-2", ttl=6.0):
                api.must_revoke("python/revoked-2")
        with pytest.raises(ZeroDivisionError):
            with client.lease("python/revoked-2", ttl=6.0):
                api.must_revoke("python/revoked-2")
                raise ZeroDivisionError


@both
def test_lease_is_lost_on_time_while_the_gateway_hangs(gateways: list[Gateway], stack: Stack, kind: str) -> None:
    with clients(kind, gateways[1].api.url) as client:

        def is_on_time(attempt: int) -> bool:
            lease = client.lease(f"python/paused-{kind}-{attempt}", ttl=1.2)
            with stack.frozen([gateways[1].pid]):
                on_time = is_lost_on_time(lease)
                with pytest.raises(errors.LeaseLost, match="validity"):
                    lease.check()
                with pytest.raises(errors.LeaseLost):
                    lease.release()
            return on_time

        assert any(map(is_on_time, range(3))), "late three times"


@both
def test_lease_is_lost_on_time_while_an_answer_trickles(api: Api, kind: str) -> None:
    """Each byte arrives within the time-outs of httpx,
    and the whole answer does not arrive before the end of the lease."""

    def trickle(listener: socket.socket, over: threading.Event) -> None:
        with listener, listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not over.wait(0.05):
                with contextlib.suppress(OSError):
                    connection.sendall(b"x")

    def is_on_time(attempt: int) -> bool:
        over = threading.Event()
        with clients(kind, api.url) as client, socket.create_server(("127.0.0.1", 0)) as listener:
            lease = client.lease(f"python/trickle-{kind}-{attempt}", ttl=1.2)
            getattr(client, "client", client)._transport._urls = [f"http://127.0.0.1:{listener.getsockname()[1]}"]
            threading.Thread(target=trickle, args=(listener, over), daemon=True).start()
            try:
                return is_lost_on_time(lease)
            finally:
                over.set()

    assert any(map(is_on_time, range(3))), "late three times"


@both
def test_lease_is_lost_at_its_end_if_the_token_cannot_be_had(api: Api, kind: str) -> None:
    def is_on_time(attempt: int) -> bool:
        tokens = ["first"]
        with clients(kind, api.url, credential=lambda: next(iter(tokens))) as client:
            lease = client.lease(f"python/token-{kind}-{attempt}", ttl=1.2)
            tokens.clear()
            return is_lost_on_time(lease)

    assert any(map(is_on_time, range(3))), "late three times"


@both
def test_error_of_the_block_is_raised_if_the_release_fails(
    api: Api, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The function that returns the token fails; the lease ends with its ttl."""

    def token() -> str:
        if is_expired:
            raise RuntimeError("no token")
        return "first"

    for block_error in (ZeroDivisionError, None):
        is_expired = False
        with clients(kind, api.url, credential=token) as client, contextlib.ExitStack() as expectations:
            if block_error:
                expectations.enter_context(pytest.raises(block_error))
            with client.lease(f"python/no-token-{kind}-{block_error is None}", ttl=10.0):
                is_expired = True
                if block_error:
                    raise block_error
    assert caplog.text.count("no token") == 2


@both
def test_lease_survives_a_killed_gateway(gateways: list[Gateway], kind: str) -> None:
    with clients(kind, [gateway.api.url for gateway in gateways]) as client:
        with client.lease("python/killed", ttl=5.0) as lease:
            gateways[0].kill()
            try:
                await_renewal(lease)
            finally:
                gateways[0].start()
                gateways[0].wait_until_all_vote()
        assert not gateways[1].api.history(resource="python/killed", event="lease_expired")


@both
def test_lease_whose_answer_is_cut_is_granted_once(gate: Gate, api: Api, kind: str) -> None:
    resource = f"python/cut-{kind}"
    with clients(kind, url_of(gate)) as client:
        cut_first_answer(gate)
        with client.lease(resource) as lease:
            assert gate.cuts == 1 and api.read_lease(lease.lease_id).json()["hold_count"] == 1
            gate.cut()  # the connections that are open, that of the watch too if it is already
            cuts = gate.cuts
            cut_first_answer(gate)
        assert cuts >= 2 and gate.cuts == cuts + 1, "the answer to the release was cut too"
        with client.lease(resource):
            pass
    eventually(lambda: grants(api, resource) == 2, goal="one grant for each lease")


@both
def test_lease_is_granted_once_nodes_answer_again(site: Site, api: Api, kind: str) -> None:
    nodes = site.stack.node_pids()[:3]
    with clients(kind, api.url) as client:
        answers = recorded_answers(client, lambda: processes.signal_all(nodes, signal.SIGCONT))
        with site.stack.frozen(nodes), client.lease("python/quorum") as lease:
            lease.check()
        assert answers[0][1] == 503 and "no-quorum" in answers[0][2]


# Writes


@both
def test_write_under_lease_and_job_in_one_call(site: Site, api: Api, kind: str) -> None:
    sku = site.add_article(f"p-write-{kind}")
    resource = f"inventory/{sku}"
    with clients(kind, api.url) as client:
        with client.lease(resource, seal=True) as lease:
            written = lease.write(sale_operation(sku), return_rows=True, require_live=True)
            assert written.results == [
                {
                    "rows_affected": 1,
                    "rows": [
                        {
                            "sku": sku,
                            "stock": 9,
                            "initial_stock": 10,
                            "note": None,
                            "price": written.results[0]["rows"][0]["price"],
                        }
                    ],
                }
            ]
            assert str(written.results[0]["rows"][0]["price"]) == "1.00", "all digits of a number"
            assert client.get("/v1/tables/inventory", lease=lease, sku=f"eq.{sku}", select="stock") == [{"stock": 9}]
        assert api.write({"lease_id": lease.lease_id}, sale_operation(sku)).status == 412, "the token was sealed"
        job = client.one_shot_write(sale_operation(sku), resources=[resource], wait=1.0, idempotency_key=f"job-{kind}")
        again = client.one_shot_write(
            sale_operation(sku), resources=[resource], wait=1.0, idempotency_key=f"job-{kind}"
        )
        assert (again.write_id, again.replayed, job.replayed) == (job.write_id, True, False) and job.fences[
            0
        ].resource == resource
        with pytest.raises(errors.ExpectationFailed) as failed:
            client.one_shot_write(sale_operation("none"), resources=[resource])
        assert failed.value.document["rows_affected"] == 0
        with pytest.raises(errors.ResourceNotCovered):
            client.one_shot_write(sale_operation(sku), resources=["python/other"])
    assert site.stock(sku) == 8


@both
def test_write_under_overtaken_lease_is_refused_and_loses_it(site: Site, api: Api, kind: str) -> None:
    sku = site.add_article(f"p-stale-{kind}")
    with clients(kind, api.url) as client:
        lease = client.lease(f"inventory/{sku}")
        token = lease.fencing_token
        site.stack.query("select fencing.enter(%s, %s)", (f"inventory/{sku}", token + 1))
        with pytest.raises(errors.StaleFencingToken) as stale:
            lease.write(sale_operation(sku))
        assert stale.value.document["last_fencing_token"] == token + 1
        assert lease.lost.wait(1) if kind == "sync" else eventually(lease.lost.is_set)
        with client.lease(f"inventory/{sku}") as following:  # the lease was released
            assert following.fencing_token > token
    assert site.stock(sku) == 10


@both
def test_write_whose_answer_is_cut_takes_effect_once(site: Site, gate: Gate, kind: str) -> None:
    sku = site.add_article(f"p-cut-{kind}")
    with clients(kind, url_of(gate)) as client:
        cut_first_answer(gate)
        written = client.one_shot_write(sale_operation(sku), resources=[f"inventory/{sku}"])
        assert written.replayed and written.results == [{"rows_affected": 1}]
        gate.cut()
        cut_first_answer(gate)
        with pytest.raises(errors.OutcomeUnknown) as unknown:
            client.one_shot_write(sale_operation(sku), resources=[f"inventory/{sku}"], keep_outcome=False)
        assert (unknown.value.write_id, unknown.value.idempotency_key) == (None, None) and isinstance(
            unknown.value.__cause__, errors.ConnectionFailed
        )
    eventually(lambda: site.stock(sku) == 8, goal="both writes took effect, each once")


# The history, credentials, errors


@both
def test_history_is_read_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for _ in range(4):
        api.must_release(api.must_acquire(f"python/history-{kind}"))
    eventually(
        lambda: len(api.history(resource=f"python/history-{kind}", event="lease_released")) == 4,
        goal="the events are stored, in their order",
    )
    monkeypatch.setattr("fencegate._protocol.PAGE_SIZE", 3)
    with clients(kind, api.url) as client:
        events = list(client.history(resource=f"python/history-{kind}", newest_first=False))
        expected = api.history(resource=f"python/history-{kind}", order="asc")
        assert [(event.id, event.event, event.fencing_token, event.principal) for event in events] == [
            (item["id"], item["event"], item["fencing_token"], item["principal"]) for item in expected
        ]
        assert len(events) >= 8 and events[0].at.utcoffset() is not None
        assert [
            event.id
            for event in client.history(resource=f"python/history-{kind}", since=events[2].at, event="lease_released")
        ] == [event.id for event in reversed(events) if event.at >= events[2].at and event.event == "lease_released"]
        with pytest.raises(ValueError, match="since"):
            list(client.history(since=events[0].at.replace(tzinfo=None)))


@both
def test_credentials_are_key_token_and_certificate(
    site: Site, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    pki = Certificates(tmp_path_factory.mktemp("pki"))
    settings = tls_settings(site.settings(), pki, client_ca_file=str(pki.root.file))
    settings["auth"] = {
        "api_keys": [credential("first", KEY, "leases", "history")],
        "client_certificates": [{"principal": "second", "dns": "orders.shop.test", "scopes": ["leases"]}],
    }
    url = site.start(settings, tls=trust(pki.root)).api.with_key(KEY).url
    ca = str(pki.root.file)
    tokens = iter(["wrong", KEY, KEY, KEY, KEY])
    ways: list[dict[str, Any]] = [
        {"credential": KEY},
        {"credential": lambda: next(tokens)},
        {"cert": str(pki.orders.file), "key": str(pki.orders.key)},
    ]
    for options in ways:
        with clients(kind, url, ca=ca, retry_for=2, **options) as client:
            if options.get("credential") not in (None, KEY):
                with pytest.raises(errors.Unauthenticated):
                    client.lease("python/secret")
            with client.lease("python/secret") as lease:
                text = repr(lease) + repr(client) + str(vars(errors.LeaseLost("x")))
                assert KEY not in text and lease.lease_id not in text
            if "cert" in options:
                with pytest.raises(errors.Forbidden):
                    list(client.history())
    with clients(kind, url, retry_for=0) as client, pytest.raises(errors.ConnectionFailed, match="(?i)certificate"):
        client.lease("python/secret")


def test_lease_in_a_forked_process_ends_with_its_validity(api: Api) -> None:
    """No thread renews it there, and the child knows from the clock when it is over."""
    with clients("sync", api.url) as client, client.lease("python/forked", ttl=2.0) as lease:
        child = os.fork()
        if child == 0:
            time.sleep(2.2)  # longer than the validity
            os._exit(0 if lease.remaining() == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.check()


@both
def test_block_that_ends_in_another_process_releases_nothing(
    api: Api, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked process that ends by sys.exit leaves the block of its parent."""
    with clients(kind, api.url) as client:
        with client.lease("python/forked-exit", seal=True) as lease:
            with monkeypatch.context() as patch:
                patch.setattr("os.getpid", lambda: 1)
                lease.__exit__(SystemExit, SystemExit(0), None)
            lease.check()
            assert api.read_lease({"lease_id": lease.lease_id}).status == 200
        assert api.read_lease({"lease_id": lease.lease_id}).status == 410
