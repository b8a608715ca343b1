package fencegate.client;

/**
 * Work that is done under a lease.
 *
 * @param <T> the result
 * @param <E> the exception that it may throw
 */
@FunctionalInterface
public interface LeaseTask<T, E extends Exception> {
    /**
     * Does the work.
     *
     * @param lease the lease, which is released afterwards
     * @return the result
     * @throws E if it fails
     */
    T run(Lease lease) throws E;
}
