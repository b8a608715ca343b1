package fencegate.client;

import java.util.Optional;

/**
 * A call failed. Subclasses are the causes that a caller handles differently;
 * {@link #slug()} distinguishes all of them.
 */
public class FencegateException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Null if the cause is not known. */
    private final Slug slug;
    private final transient Problem problem;
    /** Whether an earlier attempt was not answered. */
    private boolean repeated;

    FencegateException(Slug slug, String message, Throwable cause) {
        super(message, cause);
        this.slug = slug;
        this.problem = null;
    }

    FencegateException(Problem problem) {
        super(problem.status() + " " + problem.type() + ": " + problem.detail());
        this.slug = problem.slug().orElse(null);
        this.problem = problem;
    }

    /** Returns the exception of the class that belongs to the problem. */
    static FencegateException of(Problem problem) {
        if (problem.outcomeUnknown()) return new OutcomeUnknownException(problem);
        Slug slug = problem.slug().orElse(Slug.INTERNAL_ERROR);
        return switch (slug) {
            case LEASE_LOST -> new LeaseLostException(problem);
            case RESOURCE_LOCKED -> new ResourceLockedException(problem);
            case STALE_FENCING_TOKEN -> new StaleFencingTokenException(problem);
            case NO_QUORUM, STORAGE_UNAVAILABLE, OVERLOADED, SHUTTING_DOWN -> new UnavailableException(problem);
            default -> new FencegateException(problem);
        };
    }

    /**
     * Returns the cause.
     *
     * @return empty if no gateway answered, or if this version of the client does not know the cause
     */
    public Optional<Slug> slug() {
        return Optional.ofNullable(slug);
    }

    /**
     * Returns the gateway's answer.
     *
     * @return empty if no gateway answered, or if the client or PostgreSQL found the fault
     */
    public Optional<Problem> problem() {
        return Optional.ofNullable(problem);
    }

    /** Records whether an earlier attempt of the call may have taken effect. */
    void markRepeated(boolean begun) {
        repeated = begun;
    }

    /** Whether the answer may be the consequence of an earlier attempt of the same call. */
    boolean isRepeated() {
        return repeated;
    }
}
