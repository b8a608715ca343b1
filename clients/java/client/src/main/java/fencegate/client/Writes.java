package fencegate.client;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** Makes the writes of a client: repeats them with their key, and finds out about those whose outcome is unknown. */
final class Writes {
    private static final Set<Slug> REFUSALS_OF_LOOK_UPS = Set.of(Slug.FORBIDDEN, Slug.MISDIRECTED_REQUEST);
    private static final Set<Slug> CONCLUSIVE =
            Set.of(Slug.CONSTRAINT_VIOLATION, Slug.EXPECTATION_FAILED, Slug.RESOURCE_NOT_COVERED, Slug.SHARED_LEASE,
                    Slug.STALE_FENCING_TOKEN, Slug.UNPROCESSABLE);

    private final Transport transport;
    private final Duration retryFor;
    private final Duration requestTimeout;

    Writes(Transport transport, Duration retryFor, Duration requestTimeout) {
        this.transport = transport;
        this.retryFor = retryFor;
        this.requestTimeout = requestTimeout;
    }

    WriteResult apply(Write write) throws InterruptedException {
        Lease lease = write.lease();
        if (lease == null) return send(write);
        boolean applied = false;
        if (write.releasesHold()) lease.beginReleasingWrite();
        try {
            WriteResult result = send(write);
            applied = true;
            return result;
        } catch (LeaseLostException | StaleFencingTokenException e) {
            lease.loseAfter(e);
            throw e;
        } catch (OutcomeUnknownException e) {
            e.leaseLost().ifPresent(lease::loseAfter);
            throw e;
        } finally {
            // Also if other holds remain: releasing it again would end one of those.
            if (write.releasesHold()) lease.endReleasingWrite(applied);
        }
    }

    private WriteResult send(Write write) throws InterruptedException {
        write.beginSending();
        long until = transport.now() + retryFor.plus(write.waitTime()).toNanos();
        Transport.Call call = new Transport.Call("POST", "/v1/writes", write.body(), write.key(),
                requestTimeout.plus(write.waitTime()));
        OutcomeUnknownException unknown = null;
        for (int attempt = 0;; attempt++) {
            try {
                return WriteResult.of(transport.call(call, until));
            } catch (OutcomeUnknownException e) {
                if (unknown == null || e.writeId().isPresent()) unknown = e.withKey(write.key());
                if (e.writeId().isEmpty()) throw unknown;
                if (wasApplied(unknown, until)) return outcome(call, e.writeId().get());
            } catch (FencegateException e) {
                if (unknown == null && !e.isRepeated() || isConclusive(e)) throw e;
                if (unknown == null) unknown = new OutcomeUnknownException("The write may have been executed: "
                        + e.getMessage(), e).withKey(write.key());
                else unknown.addSuppressed(e);
                // Else its own lease of the attempt whose outcome is unknown, which expires.
                if (!(e instanceof ResourceLockedException)) throw unknown;
            }
            if (transport.isOver(until)) throw unknown;
            transport.pauseBefore(attempt, until);
        }
    }

    boolean wasApplied(String writeId, long until) throws InterruptedException {
        String path = "/v1/history"
                + Transport.query(Map.of("write_id", writeId, "event", "write_applied", "limit", "1"));
        return !transport.call(new Transport.Call("GET", path, null, null, requestTimeout), until)
                .members().requiredList("items").isEmpty();
    }

    /**
     * Returns whether a gateway gives this answer to a write that was tried before only if no attempt took effect:
     * it comes after the search for a kept outcome.
     */
    private static boolean isConclusive(FencegateException answer) {
        return answer.slug().map(CONCLUSIVE::contains).orElse(false);
    }

    /**
     * Finds out about a write whose outcome is unknown. A look-up that is refused says nothing about the write:
     * 403 without the scope history, 421 of a proxy that knows the write's cell by its resource and not that
     * of the look-up. Then the write is repeated, which is safe because of its key.
     */
    private boolean wasApplied(OutcomeUnknownException unknown, long until) throws InterruptedException {
        try {
            return wasApplied(unknown.writeId().orElseThrow(), until);
        } catch (FencegateException e) {
            if (e.slug().filter(REFUSALS_OF_LOOK_UPS::contains).isPresent()) return false;
            unknown.addSuppressed(e);
            throw unknown;
        }
    }

    /** Returns the kept outcome of a write that was applied, or without its results if the gateway has them no more. */
    private WriteResult outcome(Transport.Call call, String writeId) throws InterruptedException {
        try {
            return WriteResult.of(transport.call(call, transport.now() + requestTimeout.toNanos()));
        } catch (FencegateException e) {
            return new WriteResult(writeId, Optional.empty(), List.of(), Optional.empty(),
                    Optional.empty(), true, false);
        }
    }
}
