package fencegate.springintegration;

import fencegate.client.FencegateClient;
import fencegate.client.Lease;
import fencegate.client.LeaseOptions;
import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Locks of Spring Integration that are leases of fencegate. A lock is re-entrant for its thread;
 * its lease is renewed until it is unlocked.
 *
 * <p>A lock shows no token. {@link #lease} does, and what is written under the lock should carry it.
 */
public final class FencegateLockRegistry implements LockRegistry {
    private final FencegateClient client;
    private final String prefix;
    private final Duration ttl;
    private final int locksMax;
    private final Map<String, FencegateLock> locks = new LinkedHashMap<>(16, 0.75f, true);

    /**
     * Makes a registry that keeps up to 100,000 locks.
     *
     * @param client the client that calls the gateways
     * @param prefix is put before each key to make the name of its resource, for example {@code locks/}
     * @param ttl how long a lock outlives its process, at most the gateway's {@code lease.max_ttl_ms}
     */
    public FencegateLockRegistry(FencegateClient client, String prefix, Duration ttl) {
        this(client, prefix, ttl, 100_000);
    }

    /**
     * Makes a registry.
     *
     * @param client the client that calls the gateways
     * @param prefix is put before each key to make the name of its resource, for example {@code locks/}
     * @param ttl how long a lock outlives its process, at most the gateway's {@code lease.max_ttl_ms}
     * @param locksMax how many locks are kept; the one that was used least recently,
     *     and that no thread has or awaits, makes way for a new one
     */
    public FencegateLockRegistry(FencegateClient client, String prefix, Duration ttl, int locksMax) {
        this.client = Objects.requireNonNull(client, "client");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.ttl = Objects.requireNonNull(ttl, "ttl");
        if (locksMax <= 0) throw new IllegalArgumentException("locksMax has to be positive");
        this.locksMax = locksMax;
    }

    /**
     * Returns the lock of a key.
     *
     * @param lockKey a String
     * @return the lock; the same for the same key while it is in use
     * @throws IllegalStateException if as many locks as the registry keeps are in use
     */
    @Override
    public Lock obtain(Object lockKey) {
        if (!(lockKey instanceof String key)) throw new IllegalArgumentException("lockKey has to be a String");
        synchronized (locks) {
            FencegateLock found = locks.get(key);
            if (found != null) return found;
            if (locks.size() >= locksMax) removeUnused();
            FencegateLock made = new FencegateLock(client, prefix + key, LeaseOptions.defaults().ttl(ttl));
            locks.put(key, made);
            return made;
        }
    }

    /**
     * Returns the lease of a key, for its token.
     *
     * @param lockKey a String
     * @return empty unless the current thread has the lock
     */
    public Optional<Lease> lease(Object lockKey) {
        synchronized (locks) {
            FencegateLock found = lockKey instanceof String key ? locks.get(key) : null;
            return found == null ? Optional.empty() : found.ownLease();
        }
    }

    private void removeUnused() {
        for (Iterator<FencegateLock> all = locks.values().iterator(); all.hasNext();) {
            if (!all.next().isInUse()) {
                all.remove();
                return;
            }
        }
        throw new IllegalStateException("All " + locksMax + " locks of the registry are in use.");
    }
}
