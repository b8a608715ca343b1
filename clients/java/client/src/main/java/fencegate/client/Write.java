package fencegate.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * A guarded write: one transaction of PostgreSQL with one or several operations, all or nothing.
 * Each method returns a changed copy.
 *
 * <p>Each has an idempotency key, which stays the same however often the write is repeated,
 * so that it is executed at most once.
 */
public final class Write {
    private final Lease lease;
    private final Map<String, Object> body;
    private final String key;
    private final Duration waitTime;
    /** Whether the write may have been executed, so that a repeat asks for its outcome even if the lease is over. */
    private volatile boolean sent;

    private Write(Lease lease, Map<String, Object> body, String key, Duration waitTime) {
        this.lease = lease;
        this.body = body;
        this.key = key;
        this.waitTime = waitTime;
    }

    /**
     * Makes a write under a lease.
     *
     * @param lease the lease, which stays held unless {@link #thenRelease} is called
     * @param operations 1 to 64
     * @return the write
     */
    public static Write under(Lease lease, Operation... operations) {
        return new Write(lease, bodyOf("lease_id", lease.leaseId(), operations), UUID.randomUUID().toString(),
                Duration.ZERO);
    }

    /**
     * Makes a one-shot write: one call acquires a lease, writes,
     * seals the token in the same transaction and releases the lease.
     *
     * @param resources 1 to 64 names of at most 4 KiB together
     * @param options the ttl, the owner, and the time to wait for the resources,
     *     at most the gateway's {@code lease.max_wait_ms}
     * @param operations 1 to 64
     * @return the write
     */
    public static Write oneShot(Collection<String> resources, LeaseOptions options, Operation... operations) {
        if (options.fenceOnGrant()) throw new IllegalArgumentException(
                "fenceOnGrant does not apply to a one-shot write, which raises the fence itself");
        if (options.sharing()) throw new IllegalArgumentException("mode and shared do not apply to a one-shot write");
        Map<String, Object> lease = new LinkedHashMap<>();
        lease.put("resources", List.copyOf(resources));
        options.addTo(lease);
        lease.put("wait_ms", options.waitTime().toMillis());
        return new Write(null, bodyOf("lease", lease, operations), UUID.randomUUID().toString(), options.waitTime());
    }

    /**
     * Changes the idempotency key, for example to the number of an order,
     * so that a repeat by another process has no effect either.
     *
     * @param name 1 to 64 visible ASCII characters
     * @return the changed write
     */
    public Write idempotencyKey(String name) {
        if (!name.matches("[!-~]{1,64}"))
            throw new IllegalArgumentException("key has to be 1 to 64 visible ASCII characters");
        return new Write(lease, body, name, waitTime);
    }

    /**
     * Asks for the rows that the operations changed.
     *
     * @return the changed write
     */
    public Write returnRows() {
        return with("return", "rows");
    }

    /**
     * Asks a majority of the nodes first whether the lease is live.
     *
     * @return the changed write
     */
    public Write requireLive() {
        return with("require_live", true);
    }

    /**
     * Seals the token in the same transaction and then releases the lease. If other holds of the same owner remain,
     * only this hold is released, and nothing is sealed.
     *
     * @return the changed write
     */
    public Write thenRelease() {
        if (lease == null) throw new IllegalArgumentException("a one-shot write releases its lease in any case");
        return with("then", "release");
    }

    /** Requires a valid lease before the write is sent for the first time. */
    void beginSending() {
        if (lease != null && !sent) lease.check();
        sent = true;
    }

    boolean releasesHold() {
        return body.containsKey("then");
    }

    String key() {
        return key;
    }

    Duration waitTime() {
        return waitTime;
    }

    Map<String, Object> body() {
        return body;
    }

    Lease lease() {
        return lease;
    }

    private static Map<String, Object> bodyOf(String name, Object lease, Operation... operations) {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put(name, lease);
        List<Object> listed = new ArrayList<>();
        for (Operation operation : operations) listed.add(operation.members());
        made.put("operations", listed);
        return made;
    }

    private Write with(String name, Object value) {
        Map<String, Object> changed = new LinkedHashMap<>(body);
        changed.put(name, value);
        return new Write(lease, changed, key, waitTime);
    }
}
