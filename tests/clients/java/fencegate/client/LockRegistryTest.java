package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import fencegate.springintegration.FencegateLockRegistry;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** The adapter for Spring Integration, as the interface of its registries says that it is called. */
public final class LockRegistryTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final FencegateLockRegistry registry =
            new FencegateLockRegistry(Rig.worker(), "locks/", Duration.ofSeconds(2), 2);
    private final FencegateLockRegistry other = new FencegateLockRegistry(Rig.both(), "locks/", Duration.ofSeconds(2));
    private final String key = UUID.randomUUID().toString();

    @Test
    public void registry_lock_is_reentrant_and_exclusive() throws Exception {
        Lock lock = registry.obtain(key);
        assertSame(lock, registry.obtain(key));
        lock.lock();
        long token = registry.lease(key).orElseThrow().fencingToken();
        assertTrue(lock.tryLock() && lock.tryLock(1, TimeUnit.SECONDS));
        assertEquals(token, registry.lease(key).orElseThrow().fencingToken());
        lock.unlock();
        lock.unlock();
        assertFalse(other.obtain(key).tryLock());
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get(5, TimeUnit.SECONDS));
        assertEquals(Optional.empty(), CompletableFuture.supplyAsync(() -> registry.lease(key))
                .get(5, TimeUnit.SECONDS));
        lock.unlock();
        assertEquals(Optional.empty(), registry.lease(key));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(other.obtain(key).tryLock());
        other.obtain(key).unlock();
    }

    @Test
    public void registry_try_lock_waits_for_its_time() throws Exception {
        Lock held = other.obtain(key);
        held.lock();
        long began = System.nanoTime();
        assertFalse(registry.obtain(key).tryLock(800, TimeUnit.MILLISECONDS));
        assertTrue(System.nanoTime() - began >= Duration.ofMillis(750).toNanos());
        CompletableFuture<Boolean> next = CompletableFuture.supplyAsync(() -> {
            registry.obtain(key).lock();
            registry.obtain(key).unlock();
            return true;
        });
        held.unlock();
        assertTrue(next.get(10, TimeUnit.SECONDS));
    }

    @Test
    public void registry_lock_interruptibly_ends_with_interrupt() throws Exception {
        Lock held = other.obtain(key);
        held.lock();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread waiting = new Thread(() -> {
            try {
                registry.obtain(key).lockInterruptibly();
                interrupted.complete(false);
            } catch (InterruptedException e) {
                interrupted.complete(true);
            }
        });
        waiting.start();
        waiting.interrupt();
        assertTrue(interrupted.get(5, TimeUnit.SECONDS));
        held.unlock();
    }

    @Test
    public void registry_lock_that_fails_keeps_interrupt() {
        AtomicInteger credentials = new AtomicInteger();
        FencegateClient failing = FencegateClient.builder(Rig.GATEWAYS.get(0)).credential(() -> {
            if (credentials.getAndIncrement() > 0) throw new IllegalStateException("of the test");
            Thread.currentThread().interrupt(); // while the lock is acquired
            return Rig.property("key.worker");
        }).build();
        Lock lock = new FencegateLockRegistry(failing, "locks/", Duration.ofSeconds(2)).obtain(key);
        assertThrows(FencegateException.class, lock::lock);
        assertTrue(Thread.interrupted());
    }

    @Test
    public void registry_unlock_of_lost_lock_reports_loss() throws Exception {
        Lock lock = registry.obtain(key);
        lock.lock();
        Lease lease = registry.lease(key).orElseThrow();
        Rig.revoke("locks/" + key);
        Rig.eventually("the loss is noticed", () -> !lease.isValid());
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    @Test
    public void registry_keeps_at_most_so_many_locks() {
        Lock first = registry.obtain(key);
        first.lock();
        Lock second = registry.obtain(key + "/2");
        registry.obtain(key + "/3");
        assertSame(first, registry.obtain(key));
        assertNotSame("it was not in use", second, registry.obtain(key + "/2"));
        registry.obtain(key + "/2").lock();
        assertThrows(IllegalStateException.class, () -> registry.obtain(key + "/4"));
        registry.obtain(key + "/2").unlock();
        first.unlock();
    }

    @Test
    public void registry_refuses_conditions_and_other_keys() {
        assertThrows(UnsupportedOperationException.class, () -> registry.obtain(key).newCondition());
        assertThrows(IllegalArgumentException.class, () -> registry.obtain(7));
    }
}
