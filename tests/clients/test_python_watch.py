"""Streams of the Python client, on real gateways: a loss is known at once, and the history is followed.
And the write that releases its lease, which the watch notices too."""

from __future__ import annotations

import time

import pytest
from python_clients import Site, both, clients, errors
from support.api import Api
from support.polling import eventually


@pytest.fixture(scope="module")
def api(site: Site) -> Api:
    gateway = site.start(site.settings())
    gateway.wait_until_all_vote()
    return gateway.api


@both
def test_revoked_lease_is_lost_long_before_its_renewal(site: Site, api: Api, kind: str) -> None:
    """Also if another gateway revokes it."""
    with clients(kind, site.start(site.settings()).api.url) as client:
        lease = client.lease("python/watched", ttl=60.0)
        began = time.monotonic()
        api.must_revoke("python/watched")
        eventually(lease.lost.is_set, 15, interval=0.005, goal="the loss is known")
        assert time.monotonic() - began < 10, "the renewal would be after 20 s"
        with pytest.raises(errors.LeaseLost) as lost:
            lease.check()
        assert lost.value.status == 410


@both
def test_watch_goes_on_at_the_next_gateway(site: Site, api: Api, kind: str) -> None:
    stopped = site.start(site.settings())
    with clients(kind, [stopped.api.url, api.url]) as client:
        lease = client.lease("python/watched-on", ttl=60.0)
        assert stopped.stop() == 0
        api.must_revoke("python/watched-on")
        eventually(lease.lost.is_set, 15, interval=0.005, goal="the loss is known")


@both
def test_history_is_followed_across_gateways(site: Site, api: Api, kind: str) -> None:
    stopped = site.start(site.settings())
    name = f"python/followed-{kind}"
    with clients(kind, [stopped.api.url, api.url]) as client:
        client.lease(name).release()
        events = client.follow(resource=name, after_id=0)
        assert [next(events).event for _ in range(2)] == ["lease_granted", "lease_released"]
        assert stopped.stop() == 0
        client.lease(name).release()
        later = [next(events) for _ in range(2)]
        assert [each.event for each in later] == ["lease_granted", "lease_released"]
        assert later[0].fencing_token > 0 and later[0].id < later[1].id
        events.close()


@both
def test_lease_of_another_process_is_adopted(api: Api, kind: str) -> None:
    with clients(kind, api.url) as parent, clients(kind, api.url) as child:
        lease = child.adopt(parent.lease(f"python/adopted-{kind}", ttl=20.0).lease_id, ttl=60.0)
        assert lease.resources == (f"python/adopted-{kind}",) and lease.remaining() > 30
        lease.release()
        with pytest.raises(errors.LeaseLost):
            child.adopt(lease.lease_id)
        child.lease(f"python/adopted-{kind}", wait=2).release()


@both
def test_write_that_releases_ends_its_lease_without_a_loss(site: Site, api: Api, kind: str) -> None:
    sku = site.add_article(f"release-{kind}")
    sale = {"update": "inventory", "where": {"sku": sku}, "add": {"stock": -1}, "expect_rows": 1}
    with clients(kind, api.url) as client:
        with client.lease(f"inventory/{sku}", ttl=2.0, seal=True) as lease:
            written = lease.write(sale, then_release=True)
            assert written.released and not written.unsealed
            with pytest.raises(errors.LeaseLost, match="released"):
                lease.check()
            lease.release(seal=True)
        assert not lease.lost.is_set()
        holds = [client.lease(f"inventory/{sku}", owner="worker", ttl=5.0) for _ in range(2)]
        left = holds[0].write(sale, then_release=True)
        assert left.unsealed and not left.released
        holds[1].write(sale)
        holds[1].release()
    assert site.stock(sku) == 7


def test_pauses_grow_until_a_stream_has_an_event() -> None:
    """A proxy may answer with success, with JSON or a page."""
    from fencegate._lease import LeaseState, now
    from fencegate._streams import Watch

    members = {
        "lease_id": "i",
        "resource": "a",
        "fencing_token": 7,
        "ttl_ms": 60_000,
        "served_ms": 0,
        "validity_ms": 60_000,
    }
    watch = Watch(LeaseState(members, now()))
    for longest in (0.5, 1.0, 2.0, 4.0):
        for piece in (b'{"lease_id": "i"}\n', b"<html>\n\n", b":\n\n"):
            assert not watch.has_ended(piece)
        again, pause = watch.begin_again(200)
        assert again and longest / 2 <= pause <= longest
    assert not watch.has_ended(b"event: he")
    assert not watch.has_ended(b"ld\ndata: {}\n\n")
    assert watch.begin_again(200)[1] <= 0.5
    assert watch.has_ended(b"event: lost\r\n")
