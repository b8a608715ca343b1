package fencegate.client;

import java.util.Locale;
import java.util.Optional;

/**
 * The causes of an error, each the last part of a problem's {@code type}.
 * The gateway's page {@code /problems/SLUG} explains each to people.
 */
public enum Slug {
    /** 400: the request has faults; {@link Problem#faults()} names the fields. */
    INVALID_REQUEST,
    /** 401: no valid credential. */
    UNAUTHENTICATED,
    /** 403: the caller lacks a scope, or may not use a table or function. */
    FORBIDDEN,
    /** 403: a row belongs to a resource outside the lease. */
    RESOURCE_NOT_COVERED,
    /** 403: the lease only shares its resources, so that it may not write. */
    SHARED_LEASE,
    /** 403: the {@code lease_id} was not signed by this cluster. */
    LEASE_NOT_AUTHENTIC,
    /** 421: the request names a host or a cell that the gateway does not serve. */
    MISDIRECTED_REQUEST,
    /** 404: there is nothing at this address. */
    NOT_FOUND,
    /** 405: the address exists, but not for this method. */
    METHOD_NOT_ALLOWED,
    /** 406: the answer is not available in the media type that was asked for. */
    NOT_ACCEPTABLE,
    /** 413: the body is too large. */
    TOO_LARGE,
    /** 431: the header is too large. */
    HEADER_TOO_LARGE,
    /** 415: the body is not JSON. */
    UNSUPPORTED_MEDIA_TYPE,
    /** 409: an operation with {@code expect_rows} found another number of rows. */
    EXPECTATION_FAILED,
    /** 409: a constraint of the database refused a value. */
    CONSTRAINT_VIOLATION,
    /** 409: a call with the same key has not ended yet. */
    IDEMPOTENCY_IN_PROGRESS,
    /** 409: the lease was renewed as often, or is held as long, as the gateway allows. */
    RENEWALS_EXHAUSTED,
    /** 409: a serialization failure, a deadlock or a lock timeout. */
    WRITE_CONFLICT,
    /** 410: a majority of the nodes no longer holds the lease. */
    LEASE_LOST,
    /** 412: the database has seen a higher token. */
    STALE_FENCING_TOKEN,
    /** 428: the write needs a lease. */
    FENCING_REQUIRED,
    /** 422: an unknown table, column or function, or a value of the wrong type. */
    UNPROCESSABLE,
    /** 422: the key was used with another request. */
    IDEMPOTENCY_MISMATCH,
    /** 423: another lease holds the resource. */
    RESOURCE_LOCKED,
    /** 429: a limit of the address or of the principal is reached. */
    TOO_MANY_REQUESTS,
    /** 429: too many callers wait for leases. */
    TOO_MANY_WAITERS,
    /** 503: no majority of the Redis nodes answered. */
    NO_QUORUM,
    /** 503: PostgreSQL is unavailable. */
    STORAGE_UNAVAILABLE,
    /** 503: the gateway's queue is full. */
    OVERLOADED,
    /** 503: the gateway is stopping. */
    SHUTTING_DOWN,
    /** 500: the gateway failed. */
    INTERNAL_ERROR;

    private static final String PATH = "/problems/";

    /**
     * Returns the slug as it is in the problem's {@code type}.
     *
     * @return for example {@code resource-locked}
     */
    public String text() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    /** Returns the slug of a problem's type; empty if it is not known, as that of a later version of the gateway. */
    static Optional<Slug> ofType(String type) {
        for (Slug slug : values()) {
            if (type.equals(PATH + slug.text())) return Optional.of(slug);
        }
        return Optional.empty();
    }
}
