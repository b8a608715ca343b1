package fencegate.client;

import java.net.URI;
import java.net.http.HttpClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;

/**
 * A client of the gateways of one cluster. It is safe for use by several threads, and one is enough for a program.
 *
 * <p>Calls are repeated with jitter where that is safe and may help,
 * and after {@code Retry-After} where the gateway gives it, for {@link Builder#retryFor}.
 * Where several gateways are given, a call goes on at the next one.
 */
public final class FencegateClient {
    private static final int RENEWAL_ATTEMPTS_PER_TTL = 6;
    private static final int CELL_MAX = 65_535;
    private static final int NO_CONTENT = 204;

    final Transport transport;
    private final Duration retryFor;
    private final Duration requestTimeout;
    private final Acquisitions acquisitions;
    private final Writes writes;

    private FencegateClient(Builder builder) {
        this(builder, new Transport(builder.http(), List.copyOf(builder.gateways), builder.credential, builder.cell,
                builder.answerBytesMax));
    }

    FencegateClient(Builder builder, Transport transport) {
        this.transport = transport;
        retryFor = builder.retryFor;
        requestTimeout = builder.requestTimeout;
        acquisitions = new Acquisitions(this, transport, retryFor);
        writes = new Writes(transport, retryFor, requestTimeout);
    }

    /**
     * Begins a client.
     *
     * @param gateway an address such as {@code http://localhost:8080}
     * @param others further gateways of the same cluster
     * @return a builder
     */
    public static Builder builder(URI gateway, URI... others) {
        return new Builder(gateway, others);
    }

    /** The settings of a client. */
    public static final class Builder {
        private final List<String> gateways = new ArrayList<>();
        private Supplier<String> credential = () -> null;
        private String cell;
        private SSLContext sslContext;
        private Duration connectTimeout = Duration.ofSeconds(2);
        private Duration requestTimeout = Duration.ofSeconds(15);
        private Duration retryFor = Duration.ofSeconds(30);
        private int answerBytesMax = 16 * 1024 * 1024;

        private Builder(URI gateway, URI... others) {
            addGateway(gateway);
            for (URI other : others) addGateway(other);
        }

        private void addGateway(URI gateway) {
            boolean http = "http".equals(gateway.getScheme()) || "https".equals(gateway.getScheme());
            if (!http || gateway.getHost() == null || gateway.getRawUserInfo() != null || gateway.getRawQuery() != null
                    || gateway.getRawFragment() != null)
                throw new IllegalArgumentException("gateway has to be http://HOST:PORT or https://HOST:PORT");
            gateways.add(gateway.toString().replaceFirst("/+$", ""));
        }

        /**
         * Changes the credential. Without one, none is sent.
         *
         * @param text an API key or a JSON Web Token: printable ASCII characters
         * @return this builder
         */
        public Builder credential(String text) {
            String checked = Transport.visible(text);
            return credential(() -> checked);
        }

        /**
         * Changes the source of the credential, for tokens that change; it is called for each request.
         * If it throws, the call fails with a FencegateException that has the cause;
         * a renewal, or the request for the stream that watches a lease, is tried again while the lease is valid.
         *
         * @param source gives an API key or a JSON Web Token; it should return soon,
         *     because no time limit of the client applies to it
         * @return this builder
         */
        public Builder credential(Supplier<String> source) {
            credential = Objects.requireNonNull(source, "source");
            return this;
        }

        /**
         * Changes the cell for which all calls are, the header {@code Fencing-Cell}; without one, none is sent.
         * A gateway of another cell refuses the calls.
         * A proxy before several cells needs it for what names no resource, such as the look-up of a write.
         *
         * @param number 0 to 65535
         * @return this builder
         */
        public Builder cell(int number) {
            if (number < 0 || number > CELL_MAX)
                throw new IllegalArgumentException("cell has to be from 0 to " + CELL_MAX);
            cell = Integer.toString(number);
            return this;
        }

        /**
         * Changes the TLS settings, for a private certificate authority or a client certificate.
         *
         * @param context the settings
         * @return this builder
         */
        public Builder sslContext(SSLContext context) {
            sslContext = context;
            return this;
        }

        /**
         * Changes how long it may take to connect.
         *
         * @param time 2 s if not called
         * @return this builder
         */
        public Builder connectTimeout(Duration time) {
            connectTimeout = positive(time, "connectTimeout");
            return this;
        }

        /**
         * Changes how long one attempt of a call may take, beside the time for which the gateway waits for a resource.
         * A gateway answers within about 11 s, also if PostgreSQL does not answer it.
         *
         * @param time 15 s if not called
         * @return this builder
         */
        public Builder requestTimeout(Duration time) {
            requestTimeout = positive(time, "requestTimeout");
            return this;
        }

        /**
         * Changes how long a call is repeated, beside the time for which it waits for a resource.
         *
         * @param time 30 s if not called
         * @return this builder
         */
        public Builder retryFor(Duration time) {
            retryFor = positive(time, "retryFor");
            return this;
        }

        /**
         * Changes the size of the largest answer that is read.
         *
         * @param bytes 16 MiB if not called
         * @return this builder
         */
        public Builder answerBytesMax(int bytes) {
            if (bytes <= 0) throw new IllegalArgumentException("answerBytesMax has to be positive");
            answerBytesMax = bytes;
            return this;
        }

        /**
         * Makes the client. It connects with the first call.
         *
         * @return the client
         */
        public FencegateClient build() {
            return new FencegateClient(this);
        }

        private HttpClient http() {
            HttpClient.Builder http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(connectTimeout);
            return (sslContext == null ? http : http.sslContext(sslContext)).build();
        }

        private static Duration positive(Duration time, String name) {
            if (time.isNegative() || time.isZero()) throw new IllegalArgumentException(name + " has to be positive");
            return time;
        }
    }

    // Leases

    /**
     * Acquires a lease on one resource.
     *
     * @param resource its name
     * @param options how the lease is acquired and kept
     * @return the lease, which the caller releases
     * @throws ResourceLockedException if another lease holds the resource for all of the time to wait
     * @throws LeaseLostException if each grant arrived only after the end of its validity
     * @throws FencegateException if the call fails
     * @throws InterruptedException if this thread is interrupted;
     *     what was granted at that moment is released in the background
     */
    public Lease acquire(String resource, LeaseOptions options) throws InterruptedException {
        return acquire(List.of(resource), options);
    }

    /**
     * Acquires one lease on several resources, all of them or none.
     *
     * @param resources 1 to 64 names of at most 4 KiB together
     * @param options how the lease is acquired and kept
     * @return the lease, which the caller releases
     * @throws ResourceLockedException if other leases hold a resource for all of the time to wait
     * @throws LeaseLostException if each grant arrived only after the end of its validity
     * @throws FencegateException if the call fails
     * @throws InterruptedException if this thread is interrupted;
     *     what was granted at that moment is released in the background
     */
    public Lease acquire(Collection<String> resources, LeaseOptions options) throws InterruptedException {
        Map<String, Object> body = new LinkedHashMap<>();
        if (resources.size() == 1) body.put("resource", resources.iterator().next());
        else body.put("resources", List.copyOf(resources));
        return acquire(body, options);
    }

    private Lease acquire(Map<String, Object> body, LeaseOptions options) throws InterruptedException {
        options.addTo(body);
        if (options.fenceOnGrant()) body.put("fence_on_grant", true);
        if (options.mode() == LeaseOptions.Mode.SHARED) body.put("mode", "shared");
        if (!options.shared().isEmpty()) body.put("shared", options.shared());
        return acquisitions.acquire(body, options);
    }

    /**
     * Acquires a lease on any one of several resources: on one that is free, or on the first that becomes free.
     * {@link Lease#resources} says which.
     *
     * @param resources 2 to 64 names
     * @param options how the lease is acquired and kept
     * @return the lease, which the caller releases
     * @throws ResourceLockedException if other leases hold all of them for all of the time to wait
     * @throws LeaseLostException if each grant arrived only after the end of its validity
     * @throws FencegateException if the call fails
     * @throws InterruptedException if this thread is interrupted;
     *     what was granted at that moment is released in the background
     */
    public Lease acquireAnyOf(Collection<String> resources, LeaseOptions options) throws InterruptedException {
        return acquire(new LinkedHashMap<>(Map.of("any_of", List.copyOf(resources))), options);
    }

    /**
     * Acquires a lease if it can be had within the time to wait.
     *
     * @param resource its name
     * @param options how the lease is acquired and kept
     * @return empty if another lease holds the resource
     * @throws LeaseLostException if each grant arrived only after the end of its validity
     * @throws FencegateException if the call fails
     * @throws InterruptedException if this thread is interrupted;
     *     what was granted at that moment is released in the background
     */
    public Optional<Lease> tryAcquire(String resource, LeaseOptions options) throws InterruptedException {
        try {
            return Optional.of(acquire(resource, options));
        } catch (ResourceLockedException e) {
            return Optional.empty();
        }
    }

    /**
     * Acquires a lease, does the task and releases the lease.
     *
     * @param <T> the result of the task
     * @param <E> what the task may throw
     * @param resource the name of the resource
     * @param options how the lease is acquired and kept
     * @param task is given the lease
     * @return the result of the task
     * @throws E what the task threw
     * @throws LeaseLostException if the lease was lost during the task, so that others may have worked at the same time
     * @throws FencegateException if the lease is not acquired
     * @throws InterruptedException if this thread is interrupted while it acquires the lease
     */
    public <T, E extends Exception> T withLease(String resource, LeaseOptions options, LeaseTask<T, E> task)
            throws E, InterruptedException {
        try (Lease lease = acquire(resource, options)) {
            return task.run(lease);
        }
    }

    /**
     * Does a task under a lease, once in each tick of a schedule over all machines, as {@code fencegate lock --every}
     * does: not while another caller holds the resource, or if a start less than half of {@code every} ago is recorded.
     * A recorded start counts, also if the task then fails.
     *
     * @param <E> what the task may throw
     * @param resource the name of the resource
     * @param every the period of the schedule, at least 1 s
     * @param options how the lease is acquired and kept, without owner, mode and shared
     * @param task is given the lease
     * @return whether the task was done here
     * @throws E what the task threw
     * @throws LeaseLostException if the lease was lost
     * @throws FencegateException if a gateway refuses a step; then the task was not done
     * @throws InterruptedException if this thread is interrupted before the task is done
     */
    public <E extends Exception> boolean runOncePerTick(String resource, Duration every, LeaseOptions options,
            LeaseTask<?, E> task) throws E, InterruptedException {
        return Ticks.run(this, resource, every, options, task);
    }

    /**
     * Goes on with a lease that another process has acquired: renews it at once, and until it is released.
     * The other process no longer uses its lease, and does not release it.
     *
     * @param leaseId the {@link Lease#leaseId} of the other process
     * @param options of which the ttl, the renewals and the seal apply
     * @return the lease, which the caller releases
     * @throws LeaseLostException if the lease is over
     * @throws FencegateException if the call fails
     * @throws InterruptedException if this thread is interrupted
     */
    public Lease adopt(String leaseId, LeaseOptions options) throws InterruptedException {
        Map<String, Object> body = options.ttl() == null ? Map.of() : Map.of("ttl_ms", options.ttl().toMillis());
        Lease lease = new Lease(this, call("POST", leasePath(leaseId) + "/renew", body, null, Duration.ZERO), options);
        lease.check();
        return lease;
    }

    Transport.Answer renew(String leaseId, long ttlMs, long until) throws InterruptedException {
        String path = leasePath(leaseId) + "/renew";
        return transport.call(new Transport.Call("POST", path, Map.of("ttl_ms", ttlMs), null, attemptOf(ttlMs)), until);
    }

    /** Asks a gateway whether the lease is live; throws LeaseLostException if it is not. */
    void inspect(String leaseId, long ttlMs, long until) throws InterruptedException {
        transport.call(new Transport.Call("GET", leasePath(leaseId), null, null, attemptOf(ttlMs)), until);
    }

    LeaseWatch watch(String leaseId, Object lease) {
        return new LeaseWatch(transport, leasePath(leaseId), LeaseWatch.SILENCE_MAX, lease);
    }

    /** Returns the time for an attempt, so short that another gateway can be asked in time. */
    private Duration attemptOf(long ttlMs) {
        return Duration.ofMillis(Math.max(1, Math.min(requestTimeout.toMillis(), ttlMs / RENEWAL_ATTEMPTS_PER_TTL)));
    }

    /** Releases a hold. Without a seal that is tried only while the lease would last anyway. */
    void release(String leaseId, long validUntil, boolean seal) throws InterruptedException {
        long until = seal ? transport.now() + retryFor.toNanos() : validUntil;
        String path = leasePath(leaseId) + (seal ? Transport.SEAL : "");
        try {
            Transport.Answer answer =
                    transport.call(new Transport.Call("DELETE", path, null, null, requestTimeout), until);
            if (answer.status() == NO_CONTENT) return;
            long holds = answer.members().number("hold_count"); // else the answer is that of a proxy
            if (seal && holds == 0 && Boolean.FALSE.equals(answer.members().values().get("sealed")))
                throw new FencegateException(null, "The lease was released, and its token was not sealed.", null);
        } catch (LeaseLostException e) {
            // Else an earlier attempt has released it, and sealed before; or the lease may have ended without it.
            if (!e.isRepeated() || seal && transport.isOver(validUntil)) throw e;
        }
    }

    // Writes

    /**
     * Makes a guarded write. It is executed at most once, also if answers are lost: the key is kept over all repeats,
     * and a write whose outcome the gateway does not know is looked up in the history by its id before it is repeated.
     * The same {@code Write} may be given again after an exception.
     *
     * @param write the write
     * @return its results
     * @throws StaleFencingTokenException if a newer holder has written; nothing was changed,
     *     and the lease counts as lost
     * @throws LeaseLostException if the lease is over; nothing was changed
     * @throws OutcomeUnknownException if the outcome could not be found out in time; it has the idempotency key
     * @throws FencegateException if the write is refused or fails; nothing was changed
     * @throws InterruptedException if this thread is interrupted; the outcome is then unknown
     */
    public WriteResult write(Write write) throws InterruptedException {
        return writes.apply(write);
    }

    /**
     * Returns whether a write was applied. False is final only once PostgreSQL has ended the write's transaction,
     * which takes seconds after an outage.
     *
     * @param writeId the id from {@link OutcomeUnknownException#writeId} or {@link WriteResult#writeId}
     * @return whether the history has the write
     * @throws FencegateException if the call fails, for example without the scope {@code history}
     * @throws InterruptedException if this thread is interrupted
     */
    public boolean wasApplied(String writeId) throws InterruptedException {
        return writes.wasApplied(writeId, transport.now() + retryFor.toNanos());
    }

    // The history

    /**
     * Reads the history, a page at a time as the stream is used.
     * An interrupt ends the stream with an IllegalStateException and stays set.
     *
     * @param filters as the parameters of {@code GET /v1/history}, for example {@code resource} and {@code order};
     *     {@code limit} is the size of a page
     * @return all events that match
     */
    public Stream<HistoryEvent> history(Map<String, String> filters) {
        return Stream.iterate(page(filters), Objects::nonNull, page -> page.optional("next_cursor", String.class)
                .map(cursor -> {
            Map<String, String> next = new LinkedHashMap<>(filters);
            next.put("cursor", cursor);
            return page(next);
        }).orElse(null)).flatMap(page -> page.requiredList("items").stream()).map(HistoryEvent::of);
    }

    /**
     * Calls an action with each new event of the history, once and in the order of id, also across broken connections
     * and at another gateway, until the action throws or a gateway refuses the stream.
     *
     * @param filters as the parameters of {@code GET /v1/history/stream}
     * @param afterId the id of the event after which it begins: {@code "0"} for the oldest one,
     *     null for the next new one; {@code "CELL~ID"} in a cell other than 0
     * @param action is called in this thread; the next event waits for it
     * @throws FencegateException if a gateway refuses the stream, or no certificate is trusted
     * @throws InterruptedException if this thread is interrupted
     */
    public void follow(Map<String, String> filters, String afterId, Consumer<HistoryEvent> action)
            throws InterruptedException {
        new HistoryStream(transport, "/v1/history/stream" + Transport.query(filters), afterId, action).follow();
    }

    private Members page(Map<String, String> filters) {
        try {
            return call("GET", "/v1/history" + Transport.query(filters), null, null, Duration.ZERO).members();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("The thread was interrupted while it read the history.", e);
        }
    }

    Transport.Answer call(String method, String path, Object body, String key, Duration serverWait)
            throws InterruptedException {
        return transport.call(new Transport.Call(method, path, body, key, requestTimeout.plus(serverWait)),
                transport.now() + retryFor.plus(serverWait).toNanos());
    }

    private static String leasePath(String leaseId) {
        return "/v1/leases/" + Transport.encode(leaseId);
    }
}
