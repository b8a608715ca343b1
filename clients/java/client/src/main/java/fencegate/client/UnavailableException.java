package fencegate.client;

/**
 * No gateway answered in time, or those that did cannot serve the call at present.
 * The call has changed nothing, unless it is an {@link OutcomeUnknownException}.
 */
public class UnavailableException extends FencegateException {
    private static final long serialVersionUID = 1L;

    UnavailableException(Problem problem) {
        super(problem);
    }

    UnavailableException(Slug slug, String message, Throwable cause) {
        super(slug, message, cause);
    }
}
