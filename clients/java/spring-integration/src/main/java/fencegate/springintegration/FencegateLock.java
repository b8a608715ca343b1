package fencegate.springintegration;

import fencegate.client.FencegateClient;
import fencegate.client.Lease;
import fencegate.client.LeaseLostException;
import fencegate.client.LeaseOptions;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/** A lock: a ReentrantLock between the threads of this process, and a lease while one of them has it. */
final class FencegateLock implements Lock {
    private static final Duration LONG_WAIT = Duration.ofDays(1);

    private final FencegateClient client;
    private final String resource;
    private final LeaseOptions options;
    private final ReentrantLock local = new ReentrantLock();
    private Lease lease; // used only by the thread that has `local`

    FencegateLock(FencegateClient client, String resource, LeaseOptions options) {
        this.client = client;
        this.resource = resource;
        this.options = options;
    }

    @Override
    public void lock() {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    lockInterruptibly();
                    return;
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        local.lockInterruptibly();
        while (!hasLeaseWithin(LONG_WAIT)) local.lockInterruptibly();
    }

    @Override
    public boolean tryLock() {
        if (!local.tryLock()) return false;
        boolean interrupted = Thread.interrupted(); // as of any Lock, an interrupt does not prevent this
        try {
            return hasLeaseWithin(Duration.ZERO);
        } catch (InterruptedException e) {
            interrupted = true;
            return false;
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        long until = System.nanoTime() + Math.min(unit.toNanos(time), LONG_WAIT.toNanos());
        return local.tryLock(time, unit) && hasLeaseWithin(Duration.ofNanos(Math.max(0, until - System.nanoTime())));
    }

    /** Called with `local`, which is unlocked again unless the result is true. */
    private boolean hasLeaseWithin(Duration waitTime) throws InterruptedException {
        boolean held = local.getHoldCount() > 1;
        try {
            if (!held) {
                lease = client.tryAcquire(resource, options.waitTime(waitTime)).orElse(null);
                held = lease != null;
            }
            return held;
        } finally {
            if (!held) local.unlock();
        }
    }

    /**
     * Throws ConcurrentModificationException, as the registries of Spring do,
     * if the lease was lost before: others may have worked at the same time.
     */
    @Override
    public void unlock() {
        if (!local.isHeldByCurrentThread())
            throw new IllegalMonitorStateException("The current thread does not have the lock " + resource + ".");
        try {
            if (local.getHoldCount() == 1) lease.close();
        } catch (LeaseLostException e) {
            ConcurrentModificationException lost =
                    new ConcurrentModificationException("The lock " + resource + " was lost before it was unlocked.");
            lost.initCause(e);
            throw lost;
        } finally {
            if (local.getHoldCount() == 1) lease = null;
            local.unlock();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("A lock that other processes share has no conditions.");
    }

    Optional<Lease> ownLease() {
        return local.isHeldByCurrentThread() ? Optional.ofNullable(lease) : Optional.empty();
    }

    boolean isInUse() {
        return local.isLocked() || local.hasQueuedThreads();
    }
}
