package fencegate.client;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/** Lets a service write with its own connection to PostgreSQL: {@code fencing.enter} in the transaction that writes, and its errors as exceptions. */
public final class Fence {
    private Fence() {}

    /**
     * Opens the lease's resources for the current transaction, and refuses it if a newer holder has written.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease on the resources of the rows that the transaction changes
     * @throws LeaseLostException if the lease is over
     * @throws StaleFencingTokenException if the database has seen a higher token: roll back and stop
     * @throws FencegateException if the guard refuses the transaction for another reason
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enter(Connection connection, Lease lease) throws SQLException {
        enter(connection, lease, "select fencing.enter(?, ?)", false);
    }

    /**
     * Does the same with the {@code lease_id} as the proof that a gateway gave the token, for a database that verifies proofs.
     *
     * @param connection a connection in a transaction: autocommit is off
     * @param lease a lease on the resources of the rows that the transaction changes
     * @throws FencegateException as {@link #enter}; also if the database has no key that verifies the proof
     * @throws SQLException if the call fails for a reason that is not the guard's
     */
    public static void enterWithProof(Connection connection, Lease lease) throws SQLException {
        enter(connection, lease, "select fencing.enter(?, ?, ?)", true);
    }

    private static void enter(Connection connection, Lease lease, String statement, boolean proof) throws SQLException {
        if (connection.getAutoCommit())
            throw new IllegalStateException("connection: fencing.enter opens a resource for one transaction; call setAutoCommit(false) first");
        lease.requireValid();
        // All callers enter in the order of the names by bytes, so that none waits for another in a circle. Names are ASCII.
        List<String> resources = lease.resources().stream().sorted().toList();
        try (PreparedStatement call = connection.prepareStatement(statement)) {
            for (String resource : resources) {
                call.setString(1, resource);
                call.setLong(2, lease.fencingToken());
                if (proof) call.setString(3, lease.leaseId());
                call.executeQuery().close();
            }
        } catch (SQLException e) {
            throw translate(e).orElseThrow(() -> e);
        }
    }

    /**
     * Translates an error of any statement of the transaction: the guard also refuses changes of rows and commits nothing that it refused.
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
