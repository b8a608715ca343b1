package fencegate.client;

import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A write that was applied.
 *
 * @param writeId the id of the write, by which the history has it
 * @param fencingToken the token of a one-shot write's own lease; empty for a write under a lease
 * @param results one for each operation; empty if the gateway does not have them any more
 * @param released whether the write released its lease; empty if it was not asked to
 * @param sealed whether the token of the lease that the write released is sealed,
 *     so that nothing can be written under it any more. False if other holds remain, or if the seal had to follow
 *     the release and may have failed; empty if the write released no lease, or its answer is not known any more
 * @param replayed whether an earlier call with the same key was applied, and this is its outcome
 * @param rowsLeftOut whether this outcome was too large to be kept with its rows and values,
 *     so that {@code results} has none
 */
public record WriteResult(String writeId, Optional<Long> fencingToken, List<Result> results, Optional<Boolean> released,
        Optional<Boolean> sealed, boolean replayed, boolean rowsLeftOut) {

    /**
     * What one operation led to.
     *
     * @param rowsAffected the number of rows; empty for a function
     * @param rows the rows, if the write asked for them
     * @param value the result of a function; null for other operations
     */
    public record Result(Optional<Long> rowsAffected, List<Map<String, Object>> rows, Object value) {}

    /**
     * Throws OutcomeUnknownException if the answer is not that of a gateway: a proxy may answer any call with success.
     */
    static WriteResult of(Transport.Answer answer) {
        try {
            return of(answer.members(), answer.replayed());
        } catch (FencegateException e) {
            throw new OutcomeUnknownException("The answer to the write is not that of a gateway: " + e.getMessage(), e);
        }
    }

    private static WriteResult of(Members members, boolean replayed) {
        List<Result> results = members.list("results")
                .stream().map(result -> new Result(result.optional("rows_affected", Long.class),
                result.list("rows").stream().map(Members::values).toList(), result.values().get("value"))).toList();
        Optional<Long> ownToken = members.optional("fencing_token", Long.class);
        Optional<Boolean> released = members.optional("released", Boolean.class);
        boolean sealed = members.optional("sealed", Boolean.class).orElse(true);
        return new WriteResult(members.text("write_id"), ownToken, results, released,
                released.isPresent() || ownToken.isPresent() ? Optional.of(sealed) : Optional.empty(), replayed,
                members.isTrue("rows_left_out"));
    }
}
