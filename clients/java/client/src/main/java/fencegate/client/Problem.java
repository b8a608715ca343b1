package fencegate.client;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What the gateway answered in place of a success: a problem document (RFC 9457).
 *
 * @param status the HTTP status
 * @param type {@code /problems/SLUG}
 * @param title the cause in a few words
 * @param detail the cause in this case; for an invalid request its first fault
 * @param requestId the id of the request, which the gateway's log has too
 * @param retryAfter how long to wait before the call is repeated; empty if a repeat does not help
 * @param faults the faults of an invalid request
 * @param members all members of the document, also those that depend on the slug, such as {@code remaining_ms}
 */
public record Problem(int status, String type, String title, String detail, String requestId,
        Optional<Duration> retryAfter,
        List<Fault> faults, Map<String, Object> members) {

    /**
     * One fault of an invalid request.
     *
     * @param pointer a JSON pointer into the body, or the name of a header or parameter
     * @param detail what is wrong with it
     */
    public record Fault(String pointer, String detail) {}

    static Problem of(int status, Members members, Optional<Duration> retryAfter) {
        List<Fault> faults = members.list("errors")
                .stream().map(fault -> new Fault(fault.text("pointer"), fault.text("detail"))).toList();
        return new Problem(status, members.text("type"), members.text("title"), members.text("detail"),
                members.text("request_id"), retryAfter,
                faults, members.values());
    }

    /**
     * Returns the cause.
     *
     * @return empty if this version of the client does not know it
     */
    public Optional<Slug> slug() {
        return Slug.ofType(type);
    }

    /**
     * Returns a number among the members.
     *
     * @param name for example {@code remaining_ms}
     * @return empty if the problem has no such number
     */
    public Optional<Long> number(String name) {
        return members.get(name) instanceof Long number ? Optional.of(number) : Optional.empty();
    }

    /** Whether the gateway does not know if the call has taken effect. */
    boolean outcomeUnknown() {
        return Boolean.TRUE.equals(members.get("outcome_unknown"));
    }

    Optional<String> writeId() {
        return members.get("write_id") instanceof String id ? Optional.of(id) : Optional.empty();
    }
}
