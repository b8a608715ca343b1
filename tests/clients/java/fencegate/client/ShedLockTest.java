package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import fencegate.shedlock.FencegateLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** The adapter for ShedLock, as ShedLock's interface says that it is called. */
public final class ShedLockTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final FencegateLockProvider provider =
            new FencegateLockProvider(Rig.worker(), "jobs/", Duration.ofSeconds(3));
    private final FencegateLockProvider other = new FencegateLockProvider(Rig.both(), "jobs/", Duration.ofSeconds(3));
    private final String name = UUID.randomUUID().toString();

    private LockConfiguration times(int atMostMs, int atLeastMs) {
        return new LockConfiguration(Instant.now(), name, Duration.ofMillis(atMostMs), Duration.ofMillis(atLeastMs));
    }

    @Test
    public void shedlock_lock_is_exclusive_until_unlock() throws Exception {
        SimpleLock lock = provider.lock(times(10_000, 0)).orElseThrow();
        Lease lease = FencegateLockProvider.currentLease().orElseThrow();
        assertTrue(lease.fencingToken() > 0 && lease.resources().get(0).equals("jobs/" + name));
        long until = System.nanoTime() + Duration.ofMillis(4_500).toNanos(); // more than the ttl
        while (System.nanoTime() - until < 0) {
            assertEquals(Optional.empty(), other.lock(times(10_000, 0)));
            Thread.sleep(20);
        }
        lock.unlock();
        assertEquals(Optional.empty(), FencegateLockProvider.currentLease());
        other.lock(times(10_000, 0)).orElseThrow().unlock();
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    public void shedlock_lock_ends_after_lock_at_most_for() throws Exception {
        long began = System.nanoTime();
        provider.lock(times(1_500, 0)).orElseThrow();
        Rig.eventually("another gets the lock", () -> other.lock(times(3_000, 0)).isPresent());
        long took = Duration.ofNanos(System.nanoTime() - began).toMillis();
        assertTrue(took + " ms", took >= 1_400 && took < 5_000);
    }

    @Test
    public void shedlock_lock_stays_for_lock_at_least_for() throws Exception {
        long began = System.nanoTime();
        provider.lock(times(10_000, 1_500)).orElseThrow().unlock();
        Rig.eventually("another gets the lock", () -> other.lock(times(3_000, 0)).isPresent());
        long took = Duration.ofNanos(System.nanoTime() - began).toMillis();
        assertTrue(took + " ms", took >= 1_400 && took < 5_000);
    }

    @Test
    public void shedlock_extended_lock_replaces_first() throws Exception {
        SimpleLock lock = provider.lock(times(2_000, 0)).orElseThrow();
        SimpleLock extended = lock.extend(Duration.ofSeconds(10), Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        Thread.sleep(2_500); // more than the first lockAtMostFor
        assertFalse(other.lock(times(3_000, 0)).isPresent());
        extended.unlock();
        assertTrue(other.lock(times(3_000, 0)).isPresent());
    }

    @Test
    public void shedlock_lost_lock_cannot_be_extended() throws Exception {
        SimpleLock lock = provider.lock(times(10_000, 0)).orElseThrow();
        Lease lease = FencegateLockProvider.currentLease().orElseThrow();
        Rig.revoke("jobs/" + name);
        Rig.eventually("the loss is noticed", () -> !lease.isValid());
        assertEquals(Optional.empty(), lock.extend(Duration.ofSeconds(1), Duration.ZERO));
        assertEquals("the thread no longer has it", Optional.empty(), FencegateLockProvider.currentLease());
    }

    @Test
    public void shedlock_current_lease_is_that_of_outer_lock_again() throws Exception {
        SimpleLock outer = provider.lock(times(10_000, 0)).orElseThrow();
        Lease outerLease = FencegateLockProvider.currentLease().orElseThrow();
        LockConfiguration nested =
                new LockConfiguration(Instant.now(), name + "/nested", Duration.ofSeconds(10), Duration.ZERO);
        SimpleLock inner = provider.lock(nested).orElseThrow();
        assertNotSame(outerLease, FencegateLockProvider.currentLease().orElseThrow());
        inner.unlock();
        assertSame(outerLease, FencegateLockProvider.currentLease().orElseThrow());
        SimpleLock ofOther = provider.lock(nested).orElseThrow();
        CompletableFuture.runAsync(ofOther::unlock).get(10, TimeUnit.SECONDS);
        assertSame("unlocked by another thread", outerLease, FencegateLockProvider.currentLease().orElseThrow());
        SimpleLock last = provider.lock(nested).orElseThrow();
        Lease lastLease = FencegateLockProvider.currentLease().orElseThrow();
        outer.unlock();
        assertSame(lastLease, FencegateLockProvider.currentLease().orElseThrow());
        last.unlock();
        assertEquals(Optional.empty(), FencegateLockProvider.currentLease());
    }

    @Test
    public void shedlock_release_that_fails_later_is_logged() throws Exception {
        CountDownLatch logged = new CountDownLatch(1);
        Logger logger = Logger.getLogger(Lease.class.getName());
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord entry) {
                if (entry.getLevel() == Level.WARNING) logged.countDown();
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        logger.addHandler(handler);
        try (FakeGateway gateway = new FakeGateway((call, before) -> call.equals(FakeGateway.ACQUISITION)
                ? FakeGateway.lease(5_000, 5_000) : FakeGateway.problem(403, "forbidden"))) {
            new FencegateLockProvider(gateway.client(), "", Duration.ofSeconds(5)).lock(times(10_000, 200))
                    .orElseThrow().unlock();
            assertTrue(logged.await(5, TimeUnit.SECONDS));
        } finally {
            logger.removeHandler(handler);
        }
    }

    @Test
    public void shedlock_name_that_is_no_resource_is_refused() {
        LockConfiguration bad =
                new LockConfiguration(Instant.now(), "two//words", Duration.ofSeconds(1), Duration.ZERO);
        FencegateException refused = assertThrows(FencegateException.class, () -> provider.lock(bad));
        assertEquals("/resource", refused.problem().orElseThrow().faults().get(0).pointer());
    }
}
