package fencegate.client;

/** The database has seen a higher token for the resource, so a newer holder writes. Nothing was changed: stop. */
public final class StaleFencingTokenException extends FencegateException {
    private static final long serialVersionUID = 1L;

    StaleFencingTokenException(Problem problem) {
        super(problem);
    }

    StaleFencingTokenException(String message, Throwable cause) {
        super(Slug.STALE_FENCING_TOKEN, message, cause);
    }
}
