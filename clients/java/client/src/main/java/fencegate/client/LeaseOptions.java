package fencegate.client;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * How a lease is acquired and kept. Instances are immutable; each method returns a changed copy.
 *
 * @param ttl how long the lease lasts without a renewal; null: the gateway's default
 * @param waitTime how long to wait for the resource; zero: not at all
 * @param owner distinguishes the workers of a principal;
 *     the same owner that acquires the same resources again gets a further hold; null: none
 * @param fenceOnGrant whether every older token is refused from the grant on, and not only from the first write
 * @param renewing whether the lease is renewed in the background until it is released
 * @param seal whether the release also seals the token, so that nothing can be written under it afterwards
 * @param mode how the lease has its resources
 * @param shared resources that it shares with other leases, beside its exclusive ones
 */
public record LeaseOptions(Duration ttl, Duration waitTime, String owner, boolean fenceOnGrant, boolean renewing,
        boolean seal, Mode mode, List<String> shared) {
    private static final Duration WAIT_MAX = Duration.ofDays(365);
    private static final LeaseOptions DEFAULTS =
            new LeaseOptions(null, Duration.ZERO, null, false, true, false, Mode.EXCLUSIVE, List.of());

    /** How a lease has its resources. */
    public enum Mode {
        /** No other lease has them. */
        EXCLUSIVE,
        /** Any number of leases have them together, to read, while none has them exclusively. */
        SHARED
    }

    /**
     * Checks the options.
     *
     * @param ttl as above
     * @param waitTime as above
     * @param owner as above
     * @param fenceOnGrant as above
     * @param renewing as above
     * @param seal as above
     * @param mode as above
     * @param shared as above
     * @throws IllegalArgumentException if a time is out of its bounds, or a lease that only shares is to be sealed
     */
    public LeaseOptions {
        if (ttl != null && (ttl.isNegative() || ttl.isZero()))
            throw new IllegalArgumentException("ttl has to be positive");
        if (Objects.requireNonNull(waitTime, "waitTime").isNegative() || waitTime.compareTo(WAIT_MAX) > 0)
            throw new IllegalArgumentException("waitTime has to be from 0 to " + WAIT_MAX.toDays() + " days");
        if (seal && mode == Mode.SHARED)
            throw new IllegalArgumentException("seal is not possible with the mode SHARED, which has nothing to seal");
        shared = List.copyOf(shared);
    }

    /**
     * Returns the defaults: the gateway's ttl, no waiting, no owner, renewed until released.
     *
     * @return the options
     */
    public static LeaseOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Changes how long the lease lasts without a renewal.
     *
     * @param time at least 100 ms, at most the gateway's {@code lease.max_ttl_ms}
     * @return the changed options
     */
    public LeaseOptions ttl(Duration time) {
        return new LeaseOptions(Objects.requireNonNull(time, "ttl"), waitTime, owner, fenceOnGrant, renewing, seal,
                mode, shared);
    }

    /**
     * Changes how long to wait for the resource. Longer than one call may wait,
     * the call is repeated and keeps its place in the queue.
     *
     * @param time zero: not at all; at most 365 days
     * @return the changed options
     */
    public LeaseOptions waitTime(Duration time) {
        return new LeaseOptions(ttl, time, owner, fenceOnGrant, renewing, seal, mode, shared);
    }

    /**
     * Changes the owner.
     *
     * @param name at most 128 bytes
     * @return the changed options
     */
    public LeaseOptions owner(String name) {
        return new LeaseOptions(ttl, waitTime, name, fenceOnGrant, renewing, seal, mode, shared);
    }

    /**
     * Changes whether every older token is refused from the grant on.
     *
     * @param fence false if not called
     * @return the changed options
     */
    public LeaseOptions fenceOnGrant(boolean fence) {
        return new LeaseOptions(ttl, waitTime, owner, fence, renewing, seal, mode, shared);
    }

    /**
     * Lets the lease end after its ttl, without renewals.
     *
     * @return the changed options
     */
    public LeaseOptions notRenewed() {
        return new LeaseOptions(ttl, waitTime, owner, fenceOnGrant, false, seal, mode, shared);
    }

    /**
     * Changes whether the release also seals the token, so that even its holder can write nothing under it afterwards.
     *
     * @param sealing false if not called
     * @return the changed options
     */
    public LeaseOptions seal(boolean sealing) {
        return new LeaseOptions(ttl, waitTime, owner, fenceOnGrant, renewing, sealing, mode, shared);
    }

    /**
     * Changes how the lease has its resources.
     *
     * @param how EXCLUSIVE if not called
     * @return the changed options
     */
    public LeaseOptions mode(Mode how) {
        return new LeaseOptions(ttl, waitTime, owner, fenceOnGrant, renewing, seal, Objects.requireNonNull(how, "mode"),
                shared);
    }

    /**
     * Changes what the lease shares with others, beside its exclusive resources.
     *
     * @param resources their names
     * @return the changed options
     */
    public LeaseOptions shared(Collection<String> resources) {
        return new LeaseOptions(ttl, waitTime, owner, fenceOnGrant, renewing, seal, mode, List.copyOf(resources));
    }

    boolean sharing() {
        return mode == Mode.SHARED || !shared.isEmpty();
    }

    /** Adds the members that a request for a lease and a one-shot write have in common. */
    void addTo(Map<String, Object> body) {
        if (ttl != null) body.put("ttl_ms", ttl.toMillis());
        if (owner != null) body.put("owner", owner);
    }
}
