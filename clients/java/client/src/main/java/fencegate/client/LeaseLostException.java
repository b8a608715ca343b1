package fencegate.client;

/** The lease is over: it expired, or was revoked. Stop, and acquire a new one. */
public final class LeaseLostException extends FencegateException {
    private static final long serialVersionUID = 1L;

    LeaseLostException(Problem problem) {
        super(problem);
    }

    LeaseLostException(String message, Throwable cause) {
        super(Slug.LEASE_LOST, message, cause);
    }
}
