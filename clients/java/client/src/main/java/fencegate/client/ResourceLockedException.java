package fencegate.client;

/** Another lease holds the resource. */
public final class ResourceLockedException extends FencegateException {
    private static final long serialVersionUID = 1L;

    ResourceLockedException(Problem problem) {
        super(problem);
    }
}
