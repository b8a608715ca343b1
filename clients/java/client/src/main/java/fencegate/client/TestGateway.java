package fencegate.client;

import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpHeaders;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * A gateway in memory, for the tests of services, with a clock that the test moves. Leases are exclusive or shared
 * and have growing tokens; a write needs a live lease that is not only shared, and is applied once for its key.
 * Operations are recorded and change no rows: {@link #results} says what they lead to. A call that waits moves the
 * clock and takes no time.
 *
 * <p>It is safe for use by several threads.
 */
public final class TestGateway {
    private static final long DEFAULT_TTL_MS = 30_000;
    private static final long NANOS_PER_MS = 1_000_000;
    private static final List<String> FILTERS = List.of("resource", "event", "owner", "write_id");
    private static final Instant BEGIN = Instant.parse("2026-01-01T00:00:00Z"); // the time of the history at first

    private final long began = System.nanoTime();
    private final AtomicLong time = new AtomicLong(began);
    private final Map<String, Grant> grants = new LinkedHashMap<>();
    private final Map<String, Long> fences = new HashMap<>();
    private final Map<String, Long> readFences = new HashMap<>();
    private final Map<String, Outcome> kept = new HashMap<>();
    private final Deque<Reply> refusals = new ArrayDeque<>();
    private final List<Written> writes = new ArrayList<>();
    private final List<Map<String, Object>> events = new ArrayList<>();
    private final List<Lease> leases = new ArrayList<>();
    private Function<Map<String, Object>, Map<String, Object>> results = TestGateway::expectedResult;
    private boolean renewing = true;
    private long token;
    private int holds;

    /** Makes a gateway without leases. */
    public TestGateway() {}

    /**
     * A write that was applied.
     *
     * @param resources those of its lease
     * @param fencingToken the token of its lease
     * @param operations with their members in the HTTP contract
     * @param idempotencyKey the key, also one that the client has made
     */
    public record Written(List<String> resources, long fencingToken, List<Map<String, Object>> operations,
            String idempotencyKey) {}

    /** A lease: what it has exclusively ({@code written}), and what it shares ({@code read}). */
    private record Grant(String leaseId, List<String> written, List<String> read, long fencingToken,
            Optional<String> owner, long ttlMs, long endsAt) {
        Grant endingAt(long time) {
            return new Grant(leaseId, written, read, fencingToken, owner, ttlMs, time);
        }

        List<String> resources() {
            return Stream.concat(written.stream(), read.stream()).toList();
        }

        boolean excludes(Grant other) {
            return !Collections.disjoint(written, other.resources()) || !Collections.disjoint(read, other.written);
        }

        boolean isHoldOfSame(Grant other) {
            return owner.isPresent() && owner.equals(other.owner) && written.equals(other.written)
                    && read.equals(other.read);
        }
    }

    private record Outcome(Object operations, Reply reply) {}

    private record Reply(int status, Map<String, Object> document, Map<String, String> headers) {
        static Reply of(int status, Map<String, Object> document) {
            return new Reply(status, document, Map.of("Content-Type", "application/json"));
        }

        static Reply problem(String slug, int status, Map<String, ?> members) {
            Map<String, Object> document = new LinkedHashMap<>(Map.of("type", "/problems/" + slug, "title", slug,
                    "status", status, "detail", slug + ", by the test's gateway.", "request_id", "test"));
            document.putAll(members);
            return new Reply(status, document, Map.of("Content-Type", "application/problem+json"));
        }
    }

    /**
     * Makes a client of this gateway.
     *
     * @return the client
     */
    public FencegateClient client() {
        return new FencegateClient(FencegateClient.builder(URI.create("http://in-memory")), new InMemory());
    }

    /**
     * Moves the clock. Leases are renewed meanwhile, or lost at their end after {@link #stopRenewals}.
     *
     * @param duration by how much
     */
    public void advance(Duration duration) {
        long end = time.get() + duration.toNanos();
        for (;;) {
            Optional<Lease> due = heldLeases().stream()
                    .min(Comparator.comparingLong(lease -> dueAt(lease) - time.get()))
                    .filter(lease -> dueAt(lease) - end <= 0);
            if (due.isEmpty()) break;
            moveTo(dueAt(due.get()));
            if (isRenewing()) renew(due.get());
            due.get().loseIfOver();
        }
        moveTo(end);
    }

    /** Lets no lease be renewed from now on. */
    public synchronized void stopRenewals() {
        renewing = false;
    }

    /**
     * Lets the lease on a resource be lost now, as if an operator had revoked it.
     *
     * @param resource its name
     */
    public void lose(String resource) {
        for (Lease lease : heldLeases()) {
            if (!lease.resources().contains(resource)) continue;
            synchronized (this) {
                end(lease.leaseId());
            }
            renew(lease);
        }
    }

    /**
     * Lets a newer holder write, so that the next write under the present lease is refused as stale.
     *
     * @param resource its name
     */
    public synchronized void raiseFence(String resource) {
        fences.put(resource, ++token);
    }

    /**
     * Lets the next write be refused by this problem, for example {@code "expectation-failed", 409, Map.of()}.
     *
     * @param slug the last part of its type
     * @param status the status of the answer
     * @param members further members of the problem
     */
    public synchronized void refuseWrite(String slug, int status, Map<String, ?> members) {
        refusals.add(Reply.problem(slug, status, members));
    }

    /**
     * Changes what operations lead to; without a call, to the expected number of rows.
     *
     * @param function is given an operation, and returns its result, both with their members in the HTTP contract
     */
    public synchronized void results(Function<Map<String, Object>, Map<String, Object>> function) {
        results = function;
    }

    /**
     * Returns the writes that were applied.
     *
     * @return the oldest first
     */
    public synchronized List<Written> writes() {
        return List.copyOf(writes);
    }

    private static Map<String, Object> expectedResult(Map<String, Object> operation) {
        return operation.containsKey("call") ? Collections.singletonMap("value", null)
                : Map.of("rows_affected", operation.getOrDefault("expect_rows", 1L), "rows", List.of());
    }

    private void moveTo(long at) {
        time.updateAndGet(now -> at - now > 0 ? at : now);
    }

    private synchronized List<Lease> heldLeases() {
        leases.removeIf(lease -> !lease.isHeld());
        return List.copyOf(leases);
    }

    private synchronized boolean isRenewing() {
        return renewing;
    }

    private long dueAt(Lease lease) {
        return isRenewing() ? lease.renewalDueAt() : lease.validUntil();
    }

    private static void renew(Lease lease) {
        try {
            lease.renew();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Sends the requests of a client to this gateway, whose clock is that of the client. */
    private final class InMemory extends Transport {
        InMemory() {
            super(null, List.of("http://in-memory"), () -> null, null, 0);
        }

        @Override
        Answer attempt(Call call, String gateway, long until) throws Failed {
            try {
                Object body = call.body() == null ? Map.of() : Json.read(Json.write(call.body()));
                Reply reply = reply(call, Members.of(body));
                Map<String, List<String>> headers = reply.headers.entrySet().stream()
                        .collect(Collectors.toMap(Map.Entry::getKey, header -> List.of(header.getValue())));
                byte[] content = reply.document == null ? new byte[0] : Json.write(reply.document);
                return answer(reply.status, HttpHeaders.of(headers, (name, value) -> true), content, now());
            } catch (Json.SyntaxException e) {
                throw new IllegalArgumentException(e);
            }
        }

        @Override
        EventStream openStream(String path, Supplier<BodySubscriber<Void>> reader) {
            return new EventStream(new CompletableFuture<HttpResponse<Void>>(), 0);
        }

        @Override
        CompletableFuture<HttpResponse<Flow.Publisher<List<ByteBuffer>>>> openHistory(String path, String afterId,
                int gateway) throws Failed {
            Reply none = Reply.problem("not-found", 404, Map.of());
            throw new Failed(new Failure(FencegateException.of(Problem.of(404, new Members(none.document),
                    Optional.empty())), false, Duration.ZERO, false));
        }

        @Override
        long now() {
            return time.get();
        }

        @Override
        void sleep(long nanos) throws InterruptedException {
            if (Thread.interrupted()) throw new InterruptedException();
            advance(Duration.ofNanos(nanos));
        }

        @Override
        void keep(Lease lease) {
            synchronized (TestGateway.this) {
                leases.add(lease);
            }
        }

        @Override
        void endLater(Lease lease, long until) {
            // The test moves the clock.
        }
    }

    private synchronized Reply reply(Transport.Call call, Members body) {
        URI target = URI.create(call.path());
        String path = target.getPath();
        if (path.equals("/v1/leases")) return acquire(body, true);
        if (path.equals("/v1/leases/cancel")) return Reply.of(204, null);
        if (path.equals("/v1/writes")) return write(body, call.key());
        if (path.equals("/v1/history")) return history(target.getRawQuery());
        String leaseId = path.split("/")[3];
        Optional<Grant> live = live(leaseId);
        if (live.isEmpty()) return Reply.problem("lease-lost", 410, Map.of());
        if (call.method().equals("DELETE")) {
            end(leaseId);
            record("lease_released", live.get(), null);
            return Reply.of(204, null);
        }
        if (!call.method().equals("POST")) return Reply.of(200, document(live.get()));
        return grant(live.get().endingAt(endOf(live.get().ttlMs)));
    }

    private Reply acquire(Members body, boolean recording) {
        List<String> resources =
                body.optional("resource", String.class).map(List::of).orElseGet(() -> body.texts("resources"));
        boolean sharing = body.optional("mode", String.class).filter("shared"::equals).isPresent();
        Optional<String> owner = body.optional("owner", String.class);
        long ttlMs = body.optional("ttl_ms", Long.class).orElse(DEFAULT_TTL_MS);
        Grant wanted = new Grant("lease-" + (holds + 1), sharing ? List.of() : resources,
                sharing ? resources : body.texts("shared"), token + 1, owner, ttlMs, endOf(ttlMs));
        long granted = token + 1;
        for (Grant held : grants.values()) {
            if (live(held.leaseId).isEmpty()) continue;
            if (wanted.isHoldOfSame(held)) granted = held.fencingToken;
            else if (wanted.excludes(held)) return Reply.problem("resource-locked", 423,
                    Map.of("remaining_ms", (held.endsAt - time.get()) / NANOS_PER_MS, "max_wait_ms", 0));
        }
        token = Math.max(token, granted);
        holds++;
        Grant grant = new Grant(wanted.leaseId, wanted.written, wanted.read, granted, owner, ttlMs, wanted.endsAt);
        if (recording) record("lease_granted", grant, null);
        if (body.isTrue("fence_on_grant")) {
            raiseFences(grant);
            record("fence_raised", grant, null);
        }
        return grant(grant);
    }

    private boolean isStale(Grant grant) {
        return grant.resources().stream().anyMatch(name -> fences.getOrDefault(name, 0L) > grant.fencingToken)
                || grant.written.stream().anyMatch(name -> readFences.getOrDefault(name, 0L) > grant.fencingToken);
    }

    private void raiseFences(Grant grant) {
        for (String name : grant.written) fences.put(name, grant.fencingToken);
        for (String name : grant.read) readFences.merge(name, grant.fencingToken, Math::max);
    }

    /** Ends a lease, whose token the fences still know. */
    private void end(String leaseId) {
        grants.computeIfPresent(leaseId, (id, grant) -> grant.endingAt(time.get()));
    }

    private Reply grant(Grant grant) {
        grants.put(grant.leaseId, grant);
        return Reply.of(201, document(grant));
    }

    private long endOf(long ttlMs) {
        return time.get() + ttlMs * NANOS_PER_MS;
    }

    private static Map<String, Object> document(Grant grant) {
        boolean sharing = grant.written.isEmpty();
        Map<String, Object> document = new LinkedHashMap<>(Map.of("lease_id", grant.leaseId, "resources",
                sharing ? grant.read : grant.written, "fencing_token", grant.fencingToken, "ttl_ms", grant.ttlMs,
                "validity_ms", grant.ttlMs, "served_ms", 0));
        if (sharing) document.put("mode", "shared");
        else if (!grant.read.isEmpty()) document.put("shared", grant.read);
        grant.owner.ifPresent(owner -> document.put("owner", owner));
        return document;
    }

    private Reply write(Members body, String key) {
        Object operations = body.values().get("operations");
        Outcome earlier = kept.get(key);
        if (earlier != null) {
            return earlier.operations.equals(operations) ? earlier.reply
                    : Reply.problem("idempotency-mismatch", 422, Map.of());
        }
        boolean oneShot = body.values().containsKey("lease");
        if (oneShot) {
            Reply granted = acquire(Members.of(body.values().get("lease")), false);
            if (granted.status != 201) return granted;
        }
        String leaseId = oneShot ? "lease-" + holds : body.text("lease_id");
        Grant grant = grants.get(leaseId);
        if (grant != null && grant.written.isEmpty()) return Reply.problem("shared-lease", 403, Map.of());
        if (grant != null && isStale(grant)) return Reply.problem("stale-fencing-token", 412, Map.of());
        if (live(leaseId).isEmpty()) return Reply.problem("lease-lost", 410, Map.of());
        if (oneShot) end(leaseId);
        if (!refusals.isEmpty()) return refusals.remove();
        Map<String, Object> document = apply(grant, body, key);
        if (body.values().containsKey("then")) {
            end(leaseId);
            document.put("released", true);
        }
        kept.put(key, new Outcome(operations, new Reply(200, document,
                Map.of("Content-Type", "application/json", "Idempotency-Replayed", "true"))));
        return Reply.of(200, document);
    }

    private Map<String, Object> apply(Grant grant, Members body, String key) {
        List<Map<String, Object>> operations = body.list("operations").stream().map(Members::values).toList();
        writes.add(new Written(grant.written, grant.fencingToken, operations, key));
        raiseFences(grant);
        List<Object> raised = new ArrayList<>();
        for (String resource : grant.written) {
            raised.add(Map.of("resource", resource, "fencing_token", grant.fencingToken, "last_fencing_token",
                    grant.fencingToken));
        }
        String writeId = "write-" + writes.size();
        record("write_applied", grant, writeId);
        return new LinkedHashMap<>(Map.of("applied", true, "write_id", writeId, "fences", raised, "results",
                operations.stream().map(results).toList()));
    }

    private Optional<Grant> live(String leaseId) {
        return Optional.ofNullable(grants.get(leaseId)).filter(grant -> grant.endsAt - time.get() > 0);
    }

    private void record(String event, Grant grant, String writeId) {
        for (String resource : writeId == null ? grant.resources() : grant.written) {
            Map<String, Object> item = new LinkedHashMap<>(Map.of("id", events.size() + 1, "event", event,
                    "at", BEGIN.plusNanos(time.get() - began).toString(), "resource", resource,
                    "fencing_token", grant.fencingToken));
            item.put("owner", grant.owner.orElse(null));
            item.put("write_id", writeId);
            events.add(item);
        }
    }

    private Reply history(String query) {
        Map<String, String> filters = Arrays.stream(query == null ? new String[0] : query.split("&"))
                .map(part -> part.split("=", 2)).collect(Collectors.toMap(part -> part[0],
                        part -> URLDecoder.decode(part[1], StandardCharsets.UTF_8)));
        List<Object> items = new ArrayList<>();
        for (Map<String, Object> event : events) {
            long fencingToken = ((Number) event.get("fencing_token")).longValue();
            if (FILTERS.stream().allMatch(name -> !filters.containsKey(name)
                    || filters.get(name).equals(event.get(name)))
                    && fencingToken >= Long.parseLong(filters.getOrDefault("token_min", "0"))
                    && fencingToken <= Long.parseLong(filters.getOrDefault("token_max", "" + Long.MAX_VALUE)))
                items.add(event);
        }
        if (!"asc".equals(filters.get("order"))) Collections.reverse(items);
        Map<String, Object> page = new LinkedHashMap<>(Map.of("items", items));
        page.put("next_cursor", null);
        return Reply.of(200, page);
    }
}
