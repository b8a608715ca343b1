package fencegate.shedlock;

import fencegate.client.FencegateClient;
import fencegate.client.Lease;
import fencegate.client.LeaseLostException;
import fencegate.client.LeaseOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * Locks of ShedLock that are leases of fencegate, so that a task has a fencing token: {@link #currentLease}.
 *
 * <p>The lease is renewed while the task runs, but not after lockAtMostFor.
 * If the process ends, the lease ends with its ttl, which is not longer than lockAtMostFor.
 * A task that ends before lockAtLeastFor keeps the lease until then, while the process runs;
 * if the process ends meanwhile, until the ttl is over.
 */
public final class FencegateLockProvider implements LockProvider {
    /** The shortest ttl that a gateway gives. */
    private static final Duration TTL_MIN = Duration.ofMillis(100);
    /** The lock that the thread took last; {@link #current} removes those that are unlocked. */
    private static final ThreadLocal<Taken> CURRENT = new ThreadLocal<>();

    private final FencegateClient client;
    private final String prefix;
    private final Duration ttl;
    private final ScheduledThreadPoolExecutor timer;

    /**
     * Makes a provider.
     *
     * @param client the client that calls the gateways
     * @param prefix is put before the name of each lock to make the name of its resource, for example {@code jobs/}
     * @param ttl how long a lock outlives its process, at most the gateway's {@code lease.max_ttl_ms}
     */
    public FencegateLockProvider(FencegateClient client, String prefix, Duration ttl) {
        this.client = Objects.requireNonNull(client, "client");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.ttl = Objects.requireNonNull(ttl, "ttl");
        timer = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "fencegate-shedlock");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
    }

    /**
     * Returns the lease of the lock that the current thread took last and has not unlocked, for its token.
     *
     * @return empty outside a task
     */
    public static Optional<Lease> currentLease() {
        return Optional.ofNullable(current()).map(taken -> taken.lease);
    }

    private static Taken current() {
        Taken taken = CURRENT.get();
        while (taken != null && taken.unlocked) taken = taken.before;
        if (taken == null) CURRENT.remove();
        else CURRENT.set(taken);
        return taken;
    }

    /**
     * Takes a lock if nobody has it.
     *
     * @param configuration its name and times
     * @return empty if another has the lock
     * @throws fencegate.client.FencegateException if no gateway can say whether the lock is free
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Duration atMost = Duration.between(Instant.now(), configuration.getLockAtMostUntil());
        // The lease is released in time in any case.
        Duration limited = atMost.compareTo(TTL_MIN) < 0 ? TTL_MIN : atMost;
        LeaseOptions options = LeaseOptions.defaults().ttl(ttl.compareTo(limited) < 0 ? ttl : limited);
        try {
            Optional<Taken> taken = client.tryAcquire(prefix + configuration.getName(), options)
                    .map(lease -> new Taken(lease, current()));
            taken.ifPresent(CURRENT::set);
            return taken.map(held -> new Held(held, configuration.getLockAtMostUntil(),
                    configuration.getLockAtLeastUntil()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private static long millisUntil(Instant time) {
        return Math.max(0, Duration.between(Instant.now(), time).toMillis());
    }

    /** A lock that a thread has taken, and the one that it had taken before. */
    private static final class Taken {
        private final Lease lease;
        private final Taken before;
        private volatile boolean unlocked;

        Taken(Lease lease, Taken before) {
            this.lease = lease;
            this.before = before;
        }

        /** Lets {@link #currentLease} return the lock that the thread had taken before. */
        void leave() {
            unlocked = true;
            current();
        }
    }

    private final class Held implements SimpleLock {
        private final Taken taken;
        private final Instant atLeastUntil;
        private final ScheduledFuture<?> limit;
        private boolean used;

        Held(Taken taken, Instant atMostUntil, Instant atLeastUntil) {
            this.taken = taken;
            this.atLeastUntil = atLeastUntil;
            limit = timer.schedule(() -> end(taken.lease), millisUntil(atMostUntil), TimeUnit.MILLISECONDS);
        }

        @Override
        public synchronized void unlock() {
            use();
            taken.leave();
            long keptFor = millisUntil(atLeastUntil);
            if (keptFor == 0) end(taken.lease);
            else timer.schedule(() -> end(taken.lease), keptFor, TimeUnit.MILLISECONDS);
        }

        @Override
        public synchronized Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
            use();
            if (taken.lease.remaining().isZero()) { // unlock() can no longer be called
                taken.leave();
                return Optional.empty();
            }
            Instant now = Instant.now();
            return Optional.of(new Held(taken, now.plus(lockAtMostFor), now.plus(lockAtLeastFor)));
        }

        private void use() {
            if (used) throw new IllegalStateException("The lock was already unlocked or extended.");
            used = true;
            limit.cancel(false);
        }
    }

    /**
     * Releases the lease, which logs if that fails. A lease that is over needs no release;
     * whether a newer holder wrote, the database decides by the token.
     */
    private static void end(Lease lease) {
        try {
            lease.close();
        } catch (LeaseLostException e) {
            System.getLogger(FencegateLockProvider.class.getName())
                    .log(System.Logger.Level.WARNING, "A lock was lost before it was unlocked.", e);
        }
    }
}
