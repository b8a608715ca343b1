package fencegate.client;

import java.sql.Array;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/**
 * Lets a service write with its own connection to PostgreSQL: {@code fencing.enter} in the transaction that writes,
 * and its errors as exceptions.
 */
public final class Fence {
    private Fence() {}

    /**
     * Enters what the lease shares, as {@link #enterShared}, then opens its other resources, all or none,
     * for the current transaction, and refuses it if a newer holder has written, or has read them.
     * Read what a change depends on after this call: what was read before,
     * although the lease was held, may be older than the last change of the holder before,
     * for whose transaction this call waits.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease on the resources of the rows that the transaction changes
     * @throws LeaseLostException if the lease is over
     * @throws StaleFencingTokenException if the database has seen a higher token: roll back and stop
     * @throws FencegateException if the lease only shares its resources,
     *     or the guard refuses the transaction for another reason
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enter(Connection connection, Lease lease) throws SQLException {
        enter(connection, lease, null);
    }

    /**
     * Does the same with the {@code lease_id} as the proof that a gateway gave the token,
     * for a database that verifies proofs.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease on the resources of the rows that the transaction changes
     * @throws FencegateException as {@link #enter}; also if the database has no key that verifies the proof
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enterWithProof(Connection connection, Lease lease) throws SQLException {
        enter(connection, lease, lease.leaseId());
    }

    /**
     * Lets the current transaction read what a lease shares, and refuses it if a newer holder has written.
     * What it reads from then on, no older holder can overwrite any more.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease that shares what the transaction reads
     * @throws FencegateException as {@link #enter}
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enterShared(Connection connection, Lease lease) throws SQLException {
        enterShared(connection, lease, null);
    }

    /**
     * Does the same as {@link #enterShared} with the {@code lease_id} as the proof.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease that shares what the transaction reads
     * @throws FencegateException as {@link #enterWithProof}
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enterSharedWithProof(Connection connection, Lease lease) throws SQLException {
        enterShared(connection, lease, lease.leaseId());
    }

    private static void enter(Connection connection, Lease lease, String proof) throws SQLException {
        if (lease.mode() == LeaseOptions.Mode.SHARED) throw new FencegateException(Slug.SHARED_LEASE,
                "The lease only shares " + lease.resources() + ": enterShared lets it read.", null);
        // First what is shared, as gateways do: another order could deadlock.
        if (!lease.shared().isEmpty()) enterShared(connection, lease, proof);
        call("select fencing.enter(?::text[], ?, ?::text)", connection, lease, lease.resources(), proof);
    }

    private static void enterShared(Connection connection, Lease lease, String proof) throws SQLException {
        List<String> shared = lease.mode() == LeaseOptions.Mode.SHARED ? lease.resources() : lease.shared();
        call("select fencing.enter_shared(entered.name, entered.token, entered.proof)"
                + " from (select unnest(?::text[]) as name, ?::bigint as token, ?::text as proof) as entered"
                + " order by entered.name collate \"C\"",
                connection, lease, shared, proof);
    }

    private static void call(String statement, Connection connection, Lease lease, List<String> names, String proof)
            throws SQLException {
        if (connection.getAutoCommit())
            throw new IllegalStateException(
                    "connection: fencing.enter opens a resource for one transaction; call setAutoCommit(false) first");
        lease.check();
        try (PreparedStatement call = connection.prepareStatement(statement)) {
            Array resources = connection.createArrayOf("text", names.toArray());
            call.setArray(1, resources);
            call.setLong(2, lease.fencingToken());
            call.setString(3, proof);
            call.executeQuery().close();
            resources.free();
        } catch (SQLException e) {
            throw translate(e).orElseThrow(() -> e);
        }
    }

    /**
     * Translates an error of any statement of the transaction: the guard also refuses changes of rows
     * and commits nothing that it refused.
     *
     * @param error what the driver threw
     * @return empty if it is not the guard's
     */
    public static Optional<FencegateException> translate(SQLException error) {
        String message = error.getMessage();
        return Optional.ofNullable(switch (String.valueOf(error.getSQLState())) {
            case "FG401" -> new FencegateException(Slug.LEASE_NOT_AUTHENTIC, message, error);
            case "FG403" -> new FencegateException(Slug.RESOURCE_NOT_COVERED, message, error);
            case "FG412" -> new StaleFencingTokenException(message, error);
            case "FG428" -> new FencegateException(Slug.FENCING_REQUIRED, message, error);
            case "FG500" -> new FencegateException(Slug.INTERNAL_ERROR, message, error);
            case "FG503" -> new UnavailableException(Slug.STORAGE_UNAVAILABLE, message, error);
            default -> null;
        });
    }
}
