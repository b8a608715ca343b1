package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.net.http.HttpClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/**
 * The stream by which a lease is watched: what it says is known long before a renewal is due, and its failures do not
 * concern the lease.
 */
public final class WatchTest {
    @Rule
    public final Timeout limit = Timeout.seconds(60);

    /** A renewal of such a lease is due after 20 s. */
    private static final LeaseOptions LONG = Rig.ttl(60_000);
    private static final int BEFORE_RENEWAL_SECONDS = 15;

    private final String resource = Rig.resource();
    private final CountDownLatch lost = new CountDownLatch(1);
    private final List<FakeGateway> fakes = new ArrayList<>();
    private boolean faulty;

    @After
    public void stop() throws Exception {
        fakes.forEach(FakeGateway::close);
        if (faulty) Rig.fault("recover");
    }

    private Lease watched(FencegateClient client, LeaseOptions options) throws Exception {
        Lease lease = client.acquire(resource, options);
        lease.onLoss(lost::countDown);
        return lease;
    }

    /** A server that grants a lease of a minute; one handler answers requests for streams, another all other calls. */
    private FakeGateway fake(FakeGateway.WatchHandler watches, FakeGateway.Handler others) throws Exception {
        FakeGateway gateway = new FakeGateway((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(60_000, 60_000);
            case FakeGateway.RELEASE -> FakeGateway.RELEASED;
            default -> others.answer(call, before);
        }).answeringWatches(watches);
        fakes.add(gateway);
        return gateway;
    }

    private static FakeGateway.WatchHandler answering(int status) {
        return (exchange, before) -> exchange.sendResponseHeaders(status, -1);
    }

    private static FakeGateway.Reply lost(String call, int before) {
        return FakeGateway.problem(410, "lease-lost");
    }

    private static FakeGateway.Reply live(String call, int before) {
        return FakeGateway.lease(60_000, 60_000);
    }

    private void isLostBeforeRenewal(Lease lease) throws Exception {
        assertTrue("long before the renewal", lost.await(BEFORE_RENEWAL_SECONDS, TimeUnit.SECONDS));
        Throwable cause = assertThrows(LeaseLostException.class, lease::release).getCause();
        assertTrue(cause.toString(), cause instanceof LeaseLostException answer && answer.problem().isPresent());
    }

    @Test
    public void revoked_lease_is_lost_long_before_its_renewal() throws Exception {
        Lease lease = watched(Rig.worker(), LONG);
        Rig.fault("await_watch/" + lease.leaseId());
        Rig.revoke(resource); // at the other gateway
        isLostBeforeRenewal(lease);
    }

    @Test
    public void lease_released_elsewhere_is_lost_long_before_its_renewal() throws Exception {
        Lease lease = watched(Rig.worker(), LONG);
        Rig.fault("await_watch/" + lease.leaseId());
        Rig.releaseElsewhere(lease);
        isLostBeforeRenewal(lease);
    }

    @Test
    public void lease_that_is_not_renewed_is_watched() throws Exception {
        Lease lease = watched(Rig.worker(), LONG.notRenewed());
        Rig.revoke(resource);
        isLostBeforeRenewal(lease);
        assertEquals(0, Rig.worker().history(Map.of("resource", resource, "event", "lease_renewed")).count());
    }

    @Test
    public void watch_goes_on_at_next_gateway_when_its_own_is_killed() throws Exception {
        faulty = true;
        Lease lease = watched(Rig.both(), LONG);
        Rig.fault("await_watch/" + lease.leaseId());
        Rig.fault("kill_gateway");
        Rig.fault("await_watch/" + lease.leaseId());
        Rig.revoke(resource);
        isLostBeforeRenewal(lease);
    }

    @Test
    public void no_watch_is_left_after_release() throws Exception {
        FencegateClient client = Rig.worker();
        Lease lease = watched(client, LONG);
        Rig.fault("await_watch/" + lease.leaseId());
        lease.release();
        Rig.fault("await_no_watch/" + lease.leaseId());
        String sku = Rig.sku();
        Lease written = client.acquire("inventory/" + sku, LONG);
        written.onLoss(lost::countDown);
        Rig.fault("await_watch/" + written.leaseId());
        client.write(Write.under(written, Rig.sell(sku)).thenRelease());
        Rig.fault("await_no_watch/" + written.leaseId());
        written.close();
        assertEquals("a release is no loss", 1, lost.getCount());
    }

    /** Sends comments until the client closes the connection. */
    private static FakeGateway.WatchHandler openUntilClosed(CountDownLatch opened, CountDownLatch closed) {
        return (exchange, before) -> {
            try {
                for (FakeGateway.stream(exchange, "event: held\ndata: {}\n\n");; Thread.sleep(10)) {
                    FakeGateway.stream(exchange, ":\n\n");
                    opened.countDown();
                }
            } catch (java.io.IOException e) {
                closed.countDown();
            }
        };
    }

    @Test
    public void watch_is_closed_at_loss_of_a_live_lease() throws Exception {
        CountDownLatch opened = new CountDownLatch(1);
        CountDownLatch closed = new CountDownLatch(1);
        FencegateClient client = fake(openUntilClosed(opened, closed),
                (call, before) -> FakeGateway.problem(412, "stale-fencing-token")).client();
        Lease lease = watched(client, LeaseOptions.defaults());
        opened.await();
        assertThrows(StaleFencingTokenException.class, () -> client.write(Write.under(lease, Operation.call("f"))));
        closed.await();
    }

    @Test
    public void watch_is_closed_at_end_of_validity() throws Exception {
        CountDownLatch closed = new CountDownLatch(1);
        FakeGateway gateway = new FakeGateway((call, before) -> FakeGateway.lease(1_000, 1_000))
                .answeringWatches(openUntilClosed(new CountDownLatch(1), closed));
        fakes.add(gateway);
        watched(gateway.client(), LeaseOptions.defaults().notRenewed());
        closed.await();
        lost.await();
    }

    @Test
    public void watch_that_breaks_is_begun_again_after_longer_pauses() throws Exception {
        FakeGateway gateway = fake((exchange, before) -> {
            if (before < 3) exchange.sendResponseHeaders(List.of(503, 502, 302).get(before), -1);
            else FakeGateway.stream(exchange, before == 3 ? "event: held\ndata: {}\n\n" : "event: lost\ndata: {}\n\n");
        }, WatchTest::lost);
        isLostBeforeRenewal(watched(gateway.client(), LeaseOptions.defaults()));
        List<Long> times = gateway.watchTimes;
        assertEquals(5, times.size());
        long[] leastMs = {250, 500, 1_000, 250};
        for (int number = 0; number < leastMs.length; number++) {
            long ms = TimeUnit.NANOSECONDS.toMillis(times.get(number + 1) - times.get(number));
            assertTrue(ms + " ms after request " + number, ms >= leastMs[number]);
        }
    }

    @Test
    public void watch_without_answer_goes_on_at_next_gateway() throws Exception {
        FakeGateway first = fake(answering(503), WatchTest::live);
        FakeGateway second = fake((exchange, before) ->
                FakeGateway.stream(exchange, "event: released\r\ndata: {}\r\n\r\n"), WatchTest::lost);
        FencegateClient client = FencegateClient.builder(first.uri(), second.uri()).build();
        isLostBeforeRenewal(watched(client, LeaseOptions.defaults()));
        assertEquals(List.of(1, 1), List.of(first.watchTimes.size(), second.watchTimes.size()));
    }

    @Test
    public void failed_check_of_lease_that_is_not_renewed_does_not_renew_it() throws Exception {
        FakeGateway gateway = new FakeGateway((call, before) -> call.equals(FakeGateway.ACQUISITION)
                ? FakeGateway.lease(1_500, 1_500) : FakeGateway.problem(500, "internal-error"))
                .answeringWatches(answering(410));
        fakes.add(gateway);
        watched(gateway.client(), LeaseOptions.defaults().notRenewed());
        lost.await();
        assertEquals(0, gateway.count(FakeGateway.RENEWAL));
        assertEquals(1, gateway.count("GET /v1/leases/L"));
    }

    @Test
    public void releasing_write_that_the_watch_notices_is_no_loss() throws Exception {
        CountDownLatch written = new CountDownLatch(1);
        CountDownLatch renewed = new CountDownLatch(1);
        FencegateClient client = fake((exchange, before) -> {
            FakeGateway.stream(exchange, "event: held\ndata: {}\n\n");
            written.await();
            FakeGateway.stream(exchange, "event: released\ndata: {}\n\n");
        }, (call, before) -> {
            if (call.equals(FakeGateway.RENEWAL)) {
                renewed.countDown();
                return lost(call, before);
            }
            written.countDown();
            renewed.await();
            Thread.sleep(500); // so that the client has usually read the answer to its renewal
            String applied = "{\"applied\": true, \"write_id\": \"w\", \"results\": [], \"released\": true}";
            return new FakeGateway.Reply(200, applied, 0);
        }).client();
        Lease lease = watched(client, LeaseOptions.defaults());
        assertEquals(Optional.of(true), client.write(Write.under(lease, Operation.call("f")).thenRelease()).released());
        lease.close();
        assertFalse(lease.isValid());
        assertEquals(1, lost.getCount());
    }

    @Test
    public void event_is_read_in_parts_and_after_a_long_line() throws Exception {
        Lease lease = watched(fake((exchange, before) -> {
            FakeGateway.stream(exchange, ":" + "x".repeat(1_000_000) + "event: lost");
            FakeGateway.stream(exchange, "\n\neve");
            FakeGateway.stream(exchange, "nt: lo");
            FakeGateway.stream(exchange, "st\n");
            lost.await();
        }, WatchTest::lost).client(), LeaseOptions.defaults());
        isLostBeforeRenewal(lease);
    }

    @Test
    public void credential_that_fails_for_the_watch_is_asked_for_again() throws Exception {
        AtomicInteger requests = new AtomicInteger();
        FakeGateway gateway = fake(answering(410), WatchTest::lost);
        FencegateClient client = FencegateClient.builder(gateway.uri()).credential(() -> {
            if (requests.incrementAndGet() == 2) throw new IllegalStateException("of the test");
            return "key";
        }).build();
        isLostBeforeRenewal(watched(client, LeaseOptions.defaults()));
        assertEquals(1, gateway.watchTimes.size());
    }

    @Test
    public void stream_that_is_silent_is_broken() throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        FakeGateway gateway = fake((exchange, before) -> {
            // The first one is silent from the beginning.
            if (before == 1) FakeGateway.stream(exchange, "event: held\ndata: {}\n\n");
            ended.await();
        }, WatchTest::lost);
        List<String> gateways = List.of(gateway.uri().toString());
        Transport transport = new Transport(HttpClient.newHttpClient(), gateways, () -> null, null, 1_000);
        LeaseWatch watch = new LeaseWatch(transport, "/v1/leases/L", Duration.ofMillis(200), new Object());
        Rig.eventually("it is requested a third time", () -> {
            if (watch.nanosUntilDue() <= 0) watch.proceed();
            return gateway.watchTimes.size() > 2;
        });
        watch.close();
        assertEquals("nothing is due", Long.MAX_VALUE, watch.nanosUntilDue());
        ended.countDown();
    }
}
