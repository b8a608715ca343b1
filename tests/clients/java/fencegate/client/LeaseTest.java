package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Leases without faults. */
public final class LeaseTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final FencegateClient client = Rig.worker();
    private final String resource = Rig.resource();

    @Test
    public void lease_is_exclusive_and_tokens_grow() throws Exception {
        Lease first = client.acquire(resource, Rig.ttl(5_000).owner("java"));
        assertEquals(List.of(resource), first.resources());
        assertEquals(Optional.of("java"), first.owner());
        assertTrue(first.isValid() && first.remaining().toMillis() > 3_000 && first.remaining().toMillis() < 5_000);
        assertEquals(Optional.empty(), client.tryAcquire(resource, Rig.ttl(5_000)));
        assertThrows(ResourceLockedException.class, () -> client.acquire(resource, Rig.ttl(5_000)));
        first.close();
        assertFalse(first.isValid());
        assertThrows(LeaseLostException.class, first::check);
        first.close();
        try (Lease second = client.acquire(resource, Rig.ttl(5_000))) {
            assertTrue(second.fencingToken() > first.fencingToken());
        }
    }

    @Test
    public void lease_is_renewed_beyond_its_ttl() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(3_000))) {
            // Real time has to pass: more than its ttl, and four renewals.
            long until = System.nanoTime() + Duration.ofMillis(4_500).toNanos();
            while (System.nanoTime() - until < 0) {
                assertTrue(lease.isValid());
                Thread.sleep(5);
            }
            assertEquals(Optional.empty(), client.tryAcquire(resource, Rig.ttl(3_000)));
        }
        assertTrue(client.history(Map.of("resource", resource))
                .anyMatch(event -> event.event().equals("lease_granted")));
    }

    @Test
    public void lease_not_renewed_ends_and_tells_its_listeners() throws Exception {
        CountDownLatch lost = new CountDownLatch(2);
        Lease lease = client.acquire(resource, Rig.ttl(1_000).notRenewed());
        lease.onLoss(() -> {
            lost.countDown();
            throw new IllegalStateException("of the test");
        });
        lease.onLoss(lost::countDown);
        assertTrue(lost.await(5, TimeUnit.SECONDS));
        assertFalse(lease.isValid());
        assertThrows(LeaseLostException.class, lease::close);
        CountDownLatch late = new CountDownLatch(1);
        lease.onLoss(late::countDown);
        assertEquals("called at once", 0, late.getCount());
    }

    @Test
    public void lease_release_is_no_loss() throws Exception {
        CountDownLatch lost = new CountDownLatch(1);
        Lease lease = client.acquire(resource, Rig.ttl(2_000));
        lease.onLoss(lost::countDown);
        lease.release();
        assertFalse("more than its ttl", lost.await(2_500, TimeUnit.MILLISECONDS));
    }

    @Test
    public void lease_release_seals_its_token() throws Exception {
        Lease lease = client.acquire(resource, Rig.ttl(5_000).seal(true));
        lease.close();
        lease.release();
        try (Connection connection = Rig.database(); Statement statement = connection.createStatement()) {
            SQLException stale = assertThrows(SQLException.class, () -> statement.execute(
                    "select fencing.enter('" + resource + "', " + lease.fencingToken() + ")"));
            assertEquals("FG412", stale.getSQLState());
        }
    }

    @Test
    public void lease_of_another_process_is_adopted() throws Exception {
        Lease first = client.acquire(resource, Rig.ttl(5_000).notRenewed());
        Lease adopted = Rig.both().adopt(first.leaseId(), Rig.ttl(20_000));
        assertTrue(adopted.remaining().toMillis() > 10_000);
        assertEquals(first.fencingToken(), adopted.fencingToken());
        adopted.release();
        assertThrows(LeaseLostException.class, () -> client.adopt(first.leaseId(), LeaseOptions.defaults()));
    }

    @Test
    public void history_is_followed_from_an_event_on() throws Exception {
        client.acquire(resource, Rig.ttl(5_000)).release();
        List<String> followed = new ArrayList<>();
        assertThrows(CancellationException.class, () -> client.follow(Map.of("resource", resource), "0", event -> {
            followed.add(event.event());
            if (followed.size() == 2) throw new CancellationException();
        }));
        assertEquals(List.of("lease_granted", "lease_released"), followed);
    }

    @Test
    public void lease_waits_longer_than_one_call_may() throws Exception {
        Lease first = client.acquire(resource, Rig.ttl(5_000));
        CompletableFuture<Lease> second = CompletableFuture.supplyAsync(() -> {
            try {
                return client.acquire(resource, Rig.ttl(5_000).waitTime(Duration.ofSeconds(20)));
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        Thread.sleep(1_000); // lease.max_wait_ms of the gateway is 600
        assertFalse(second.isDone());
        first.close();
        second.get(5, TimeUnit.SECONDS).close();
    }

    @Test
    public void lease_wait_ends_after_its_time() throws Exception {
        try (Lease held = client.acquire(resource, Rig.ttl(5_000))) {
            long began = System.nanoTime();
            assertEquals(Optional.empty(),
                    client.tryAcquire(resource, Rig.ttl(5_000).waitTime(Duration.ofMillis(900))));
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            assertTrue(took + " ms", took >= 850 && took < 5_000);
            assertTrue(held.isValid());
        }
    }

    @Test
    public void lease_wait_is_interruptible() throws Exception {
        try (Lease held = client.acquire(resource, Rig.ttl(5_000))) {
            CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
            Thread waiting = new Thread(() -> {
                try {
                    client.acquire(held.resources(), Rig.ttl(5_000).waitTime(Duration.ofSeconds(30)));
                    interrupted.complete(false);
                } catch (InterruptedException e) {
                    interrupted.complete(true);
                }
            });
            waiting.start();
            waiting.interrupt();
            assertTrue(interrupted.get(5, TimeUnit.SECONDS));
        }
    }

    @Test
    public void lease_on_several_resources_is_one() throws Exception {
        List<String> names = List.of(resource + "/b", resource + "/a");
        try (Lease lease = client.acquire(names, Rig.ttl(5_000))) {
            assertEquals(names.stream().sorted().toList(), lease.resources().stream().sorted().toList());
            assertEquals(Optional.empty(), client.tryAcquire(resource + "/a", Rig.ttl(5_000)));
        }
    }

    @Test
    public void with_lease_returns_result_or_throws_loss() throws Exception {
        assertEquals(Integer.valueOf(7), client.withLease(resource, Rig.ttl(5_000), lease -> 7));
        assertThrows(java.io.IOException.class, () -> client.withLease(resource, Rig.ttl(5_000), lease -> {
            throw new java.io.IOException("of the task");
        }));
        assertThrows(LeaseLostException.class, () -> client.withLease(resource, Rig.ttl(6_000), lease -> {
            CountDownLatch lost = new CountDownLatch(1);
            lease.onLoss(lost::countDown);
            Rig.revoke(resource);
            assertTrue(lost.await(5, TimeUnit.SECONDS));
            return null;
        }));
        client.acquire(resource, Rig.ttl(5_000)).close();
    }

    @Test
    public void lease_of_interrupted_thread_is_released() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            Thread.currentThread().interrupt();
        }
        assertTrue(Thread.interrupted());
        client.acquire(resource, Rig.ttl(5_000)).close();
    }
}
