package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/**
 * Gateways that are killed, paused, limited or without lock nodes, connections that break,
 * and commits whose outcome is unknown.
 */
public final class FaultTest {
    @Rule
    public final Timeout limit = Timeout.seconds(90);

    private final FencegateClient client = Rig.worker();
    private final String sku = Rig.sku();
    private final String resource = "inventory/" + sku;

    @After
    public void recover() throws Exception {
        Rig.fault("recover");
    }

    private static long millisSince(long began) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    }

    private long countEvents(Lease lease, String event) {
        return client.history(Map.of("resource", resource, "event", event, "token_min", "" + lease.fencingToken()))
                .count();
    }

    /** Waits until the validity of a lease, which decreases with time, is longer again. */
    private static void awaitRenewal(Lease lease) throws Exception {
        AtomicReference<Duration> least = new AtomicReference<>(lease.remaining());
        Rig.eventually("the lease is renewed", () -> {
            lease.check();
            Duration left = lease.remaining();
            if (left.compareTo(least.get()) < 0) least.set(left);
            return left.compareTo(least.get().plusMillis(200)) > 0;
        });
    }

    @Test
    public void acquire_lost_answer_gets_same_lease() throws Exception {
        Rig.fault("cut_reply");
        Lease lease = client.acquire(resource, Rig.ttl(5_000));
        assertEquals(Optional.empty(), client.tryAcquire(resource, Rig.ttl(5_000)));
        lease.close();
        // The events are stored in their order: once the release is, no grant is missing.
        Rig.eventually("the release is stored", () -> countEvents(lease, "lease_released") == 1);
        assertEquals(1, countEvents(lease, "lease_granted"));
        client.acquire(resource, Rig.ttl(5_000)).close();
    }

    @Test
    public void acquire_interrupted_after_grant_leaves_no_lease() throws Exception {
        Rig.fault("delay_replies");
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread acquiring = new Thread(() -> {
            try {
                client.acquire(resource, Rig.ttl(9_000));
                interrupted.complete(false);
            } catch (InterruptedException e) {
                interrupted.complete(true);
            }
        });
        acquiring.start();
        Thread.sleep(300); // the lease is usually granted, and its answer is on its way for 600 ms
        acquiring.interrupt();
        assertTrue(interrupted.get(5, TimeUnit.SECONDS));
        // Less than the ttl of a lease that was left.
        client.acquire(resource, Rig.ttl(5_000).waitTime(Duration.ofSeconds(6))).close();
    }

    @Test
    public void validity_counts_from_the_sending_of_request() throws Exception {
        Rig.fault("delay_replies");
        try (Lease lease = client.acquire(resource, Rig.ttl(8_000).notRenewed())) {
            assertTrue(lease.remaining() + " after an answer that took 600 ms", lease.remaining().toMillis() < 7_400);
        }
    }

    @Test
    public void release_lost_answer_is_no_error() throws Exception {
        Lease lease = client.acquire(resource, Rig.ttl(5_000));
        Rig.fault("cut_reply");
        lease.release();
        client.acquire(resource, Rig.ttl(5_000)).close();
    }

    @Test
    public void write_lost_answer_is_applied_once() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            Rig.fault("cut_reply");
            assertTrue(client.write(Write.under(lease, Rig.sell(sku))).replayed());
        }
        assertEquals(9, Rig.stock(sku));
    }

    @Test
    public void write_over_connection_that_was_closed_is_applied() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            Rig.fault("cut_connections");
            client.write(Write.under(lease, Rig.sell(sku)));
        }
        assertEquals(9, Rig.stock(sku));
    }

    @Test
    public void gateway_killed_lease_continues_at_other() throws Exception {
        FencegateClient pair = Rig.both();
        try (Lease lease = pair.acquire(resource, Rig.ttl(6_000))) {
            Rig.fault("kill_gateway");
            awaitRenewal(lease);
            pair.write(Write.under(lease, Rig.sell(sku)));
        }
        assertEquals(9, Rig.stock(sku));
    }

    @Test
    public void gateway_paused_lease_continues_at_other() throws Exception {
        FencegateClient pair = Rig.both();
        try (Lease lease = pair.acquire(resource, Rig.ttl(8_000))) {
            Rig.fault("pause_gateway");
            awaitRenewal(lease);
        }
    }

    @Test
    public void gateway_paused_lease_is_lost_when_validity_ends() throws Exception {
        CountDownLatch lost = new CountDownLatch(1);
        Lease lease = client.acquire(resource, Rig.ttl(1_000));
        lease.onLoss(lost::countDown);
        Rig.fault("pause_gateway");
        long began = System.nanoTime();
        assertTrue(lost.await(5, TimeUnit.SECONDS));
        assertFalse(lease.isValid());
        assertTrue(millisSince(began) + " ms", millisSince(began) < 4_000);
        assertThrows(LeaseLostException.class, lease::close);
    }

    @Test
    public void answer_that_never_comes_is_outcome_unknown() throws Exception {
        FencegateClient hasty = Rig.client("worker").requestTimeout(Duration.ofMillis(200))
                .retryFor(Duration.ofMillis(700)).build();
        try (Lease lease = client.acquire(resource, Rig.ttl(8_000))) {
            Rig.fault("pause_gateway");
            long began = System.nanoTime();
            OutcomeUnknownException unknown =
                    assertThrows(OutcomeUnknownException.class, () -> hasty.write(Write.under(lease, Rig.sell(sku))));
            assertTrue(unknown.writeId().isEmpty() && millisSince(began) < 8_000);
            Rig.fault("recover");
            client.write(Write.under(lease, Rig.sell(sku)).idempotencyKey(unknown.idempotencyKey().orElseThrow()));
        }
        assertEquals("with the same key it is applied once", 9, Rig.stock(sku));
    }

    @Test
    public void nodes_down_503_is_repeated_after_retry_after() throws Exception {
        Rig.fault("pause_nodes");
        CompletableFuture<Lease> acquired = CompletableFuture.supplyAsync(() -> {
            try {
                return client.acquire(resource, Rig.ttl(5_000));
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        Rig.fault("await_reply");
        Rig.fault("recover");
        acquired.get(15, TimeUnit.SECONDS).close();
    }

    @Test
    public void nodes_down_503_ends_with_retry_time() throws Exception {
        Rig.fault("pause_nodes");
        FencegateClient hasty = Rig.client("worker").retryFor(Duration.ofMillis(2_500)).build();
        long began = System.nanoTime();
        UnavailableException failed =
                assertThrows(UnavailableException.class, () -> hasty.acquire(resource, Rig.ttl(5_000)));
        boolean cutOff = failed instanceof OutcomeUnknownException; // the last attempt had no time left for an answer
        assertTrue(failed.toString(), cutOff || failed.slug().equals(Optional.of(Slug.NO_QUORUM)));
        assertTrue(millisSince(began) < 10_000);
    }

    @Test
    public void limit_429_waits_as_long_as_retry_after_says() throws Exception {
        FencegateClient limited = Rig.client("limited").build();
        LeaseOptions options = Rig.ttl(5_000).notRenewed();
        boolean waited = false;
        for (int number = 0; number < 10 && !waited; number++) { // after a slow call the bucket is full again
            long began = System.nanoTime();
            limited.acquire(Rig.resource(), options);
            waited = millisSince(began) >= 1_000;
        }
        assertTrue(waited);
        FencegateClient hasty = Rig.client("limited").retryFor(Duration.ofMillis(900)).build(); // less than Retry-After
        FencegateException refused = assertThrows(FencegateException.class, () -> {
            for (int number = 0; number < 20; number++) {
                try {
                    hasty.tryAcquire(Rig.resource(), options);
                } catch (OutcomeUnknownException e) { // it took too long
                    continue;
                }
            }
        });
        assertEquals(Optional.of(Slug.TOO_MANY_REQUESTS), refused.slug());
    }

    private static CompletableFuture<WriteResult> begin(FencegateClient writer, Write write) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return writer.write(write);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
    }

    /**
     * Commits wait until the gateway's deadline, about ten seconds, so all cases share the wait. The leases and the
     * times of repeats last longer than that on a busy machine.
     */
    @Test
    public void write_unknown_outcome_is_resolved() throws Exception {
        List<String> skus = List.of(Rig.sku(), Rig.sku(), Rig.sku());
        Duration retryFor = Duration.ofSeconds(60);
        FencegateClient worker = Rig.client("worker").retryFor(retryFor).build();
        FencegateClient blind = Rig.client("blind").retryFor(retryFor).build();
        LeaseOptions options = Rig.ttl(60_000).notRenewed();
        Lease lease = client.acquire("inventory/" + skus.get(0), options);
        Lease blindLease = blind.acquire("inventory/" + skus.get(1), options);
        // Of the other gateway: in one gateway two writes may have the same worker,
        // in which the second one waits for the first one's commit.
        FencegateClient hasty = FencegateClient.builder(Rig.GATEWAYS.get(1)).credential(Rig.property("key.worker"))
                .requestTimeout(Duration.ofSeconds(20)).retryFor(Duration.ofSeconds(20)).build();
        Lease hastyLease = hasty.acquire(resource, options);
        Rig.fault("hold_commits");
        Write hastyWrite = Write.under(hastyLease, Rig.sell(sku));
        // The first begins before the hasty one,
        // so that a gateway has called its outcome unknown when the hasty one gives up.
        List<CompletableFuture<WriteResult>> writes =
                new ArrayList<>(List.of(begin(worker, Write.under(lease, Rig.sell(skus.get(0))))));
        Rig.eventually("its commit waits", () -> Rig.waitingCommits() > 0);
        CompletableFuture<WriteResult> tooLate = begin(hasty, hastyWrite);
        Rig.eventually("both commits wait", () -> Rig.waitingCommits() > 1);
        writes.add(begin(blind, Write.under(blindLease, Rig.sell(skus.get(1)))));
        writes.add(begin(worker,
                Write.oneShot(List.of("inventory/" + skus.get(2)), Rig.ttl(2_000), Rig.sell(skus.get(2)))));
        ExecutionException failed = assertThrows(ExecutionException.class, () -> tooLate.get(30, TimeUnit.SECONDS));
        OutcomeUnknownException unknown = (OutcomeUnknownException) failed.getCause();
        assertTrue(writes.stream().noneMatch(CompletableFuture::isDone));
        Rig.fault("recover");
        for (int number = 0; number < skus.size(); number++) {
            WriteResult result = writes.get(number).get(30, TimeUnit.SECONDS);
            assertEquals(Optional.of(1L), result.results().get(0).rowsAffected());
            assertTrue(client.wasApplied(result.writeId()));
            assertTrue("the commit of the first had taken effect", number > 0 || result.replayed());
            assertEquals(9, Rig.stock(skus.get(number)));
        }
        assertTrue(client.wasApplied(unknown.writeId().orElseThrow()));
        assertTrue("the same write again has no effect", client.write(hastyWrite).replayed());
        assertEquals(9, Rig.stock(sku));
    }
}
