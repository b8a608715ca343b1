package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import fencegate.shedlock.FencegateLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.UUID;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** The adapter for ShedLock, as ShedLock's interface says that it is called. */
public final class ShedLockTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final FencegateLockProvider provider = new FencegateLockProvider(Rig.worker(), "jobs/", Duration.ofMillis(500));
    private final FencegateLockProvider other = new FencegateLockProvider(Rig.both(), "jobs/", Duration.ofMillis(500));
    private final String name = UUID.randomUUID().toString();

    private LockConfiguration times(int atMostMs, int atLeastMs) {
        return new LockConfiguration(Instant.now(), name, Duration.ofMillis(atMostMs), Duration.ofMillis(atLeastMs));
    }

    @Test
    public void shedlock_lock_is_exclusive_until_unlock() throws Exception {
        SimpleLock lock = provider.lock(times(10_000, 0)).orElseThrow();
        Lease lease = FencegateLockProvider.currentLease().orElseThrow();
        assertTrue(lease.fencingToken() > 0 && lease.resources().get(0).equals("jobs/" + name));
        long until = System.nanoTime() + Duration.ofMillis(1_200).toNanos(); // more than two ttls
        while (System.nanoTime() - until < 0) assertEquals(Optional.empty(), other.lock(times(10_000, 0)));
        lock.unlock();
        assertEquals(Optional.empty(), FencegateLockProvider.currentLease());
        other.lock(times(10_000, 0)).orElseThrow().unlock();
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    public void shedlock_lock_ends_after_lock_at_most_for() throws Exception {
        long began = System.nanoTime();
        provider.lock(times(1_500, 0)).orElseThrow();
        Rig.eventually("another gets the lock", () -> other.lock(times(100, 0)).isPresent());
        long took = Duration.ofNanos(System.nanoTime() - began).toMillis();
        assertTrue(took + " ms", took >= 1_400 && took < 5_000);
    }

    @Test
    public void shedlock_lock_stays_for_lock_at_least_for() throws Exception {
        long began = System.nanoTime();
        provider.lock(times(10_000, 1_500)).orElseThrow().unlock();
        Rig.eventually("another gets the lock", () -> other.lock(times(100, 0)).isPresent());
        long took = Duration.ofNanos(System.nanoTime() - began).toMillis();
        assertTrue(took + " ms", took >= 1_400 && took < 5_000);
    }

    @Test
    public void shedlock_extended_lock_replaces_first() throws Exception {
        SimpleLock lock = provider.lock(times(400, 0)).orElseThrow();
        SimpleLock extended = lock.extend(Duration.ofSeconds(10), Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        Thread.sleep(1_000); // more than the first lockAtMostFor
        assertFalse(other.lock(times(100, 0)).isPresent());
        extended.unlock();
        assertTrue(other.lock(times(100, 0)).isPresent());
    }

    @Test
    public void shedlock_lost_lock_cannot_be_extended() throws Exception {
        SimpleLock lock = provider.lock(times(10_000, 0)).orElseThrow();
        Lease lease = FencegateLockProvider.currentLease().orElseThrow();
        Rig.revoke("jobs/" + name);
        Rig.eventually("the loss is noticed", () -> !lease.isValid());
        assertEquals(Optional.empty(), lock.extend(Duration.ofSeconds(1), Duration.ZERO));
    }

    @Test
    public void shedlock_name_that_is_no_resource_is_refused() {
        LockConfiguration bad = new LockConfiguration(Instant.now(), "two words", Duration.ofSeconds(1), Duration.ZERO);
        FencegateException refused = assertThrows(FencegateException.class, () -> provider.lock(bad));
        assertEquals("/resource", refused.problem().orElseThrow().faults().get(0).pointer());
    }
}
