package fencegate.client;

import java.util.Arrays;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The call may have taken effect: it was sent and no answer of a gateway arrived in time,
 * or PostgreSQL became unavailable during the commit.
 */
public final class OutcomeUnknownException extends UnavailableException {
    private static final long serialVersionUID = 1L;

    /** Null if no gateway answered. */
    private final String writeId;
    /** Null if the call was no write. */
    private String idempotencyKey;

    OutcomeUnknownException(Problem problem) {
        super(problem);
        writeId = problem.writeId().orElse(null);
    }

    OutcomeUnknownException(String message, Throwable cause) {
        super(null, message, cause);
        writeId = null;
    }

    OutcomeUnknownException withKey(String key) {
        idempotencyKey = key;
        return this;
    }

    /** Returns the answer to a repeat of the write that says that its lease is over; empty if there was none. */
    Optional<LeaseLostException> leaseLost() {
        return Stream.concat(Stream.ofNullable(getCause()), Arrays.stream(getSuppressed()))
                .filter(LeaseLostException.class::isInstance).map(LeaseLostException.class::cast).findFirst();
    }

    /**
     * Returns the idempotency key of the write, for a repeat by {@link Write#idempotencyKey},
     * also under a newer lease or by another process.
     *
     * @return empty if the call was no write
     */
    public Optional<String> idempotencyKey() {
        return Optional.ofNullable(idempotencyKey);
    }

    /**
     * Returns the id of the write, for {@link FencegateClient#wasApplied}.
     *
     * @return empty if no gateway answered; then a repeat with the same idempotency key shows the outcome
     */
    public Optional<String> writeId() {
        return Optional.ofNullable(writeId);
    }
}
