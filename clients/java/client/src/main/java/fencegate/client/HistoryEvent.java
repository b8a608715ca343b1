package fencegate.client;

import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * An event of the history.
 *
 * @param id the order in which events were stored
 * @param at when it happened
 * @param event its type, for example {@code write_applied}
 * @param resource the resource, if it concerns one
 * @param fencingToken the token, if it concerns one
 * @param lastFencingToken the fence, if it concerns one
 * @param owner the owner of the lease
 * @param principal who made the call
 * @param writeId the id of the write
 * @param traceId the id of the trace
 * @param detail what depends on the type
 */
public record HistoryEvent(long id, Instant at, String event, Optional<String> resource, Optional<Long> fencingToken,
        Optional<Long> lastFencingToken,
        Optional<String> owner, Optional<String> principal, Optional<String> writeId, Optional<String> traceId,
        Map<String, Object> detail) {

    @SuppressWarnings("unchecked") // Json makes maps of names only
    static HistoryEvent of(Members item) {
        return new HistoryEvent(item.number("id"), Instant.parse(item.text("at")), item.text("event"),
                item.optional("resource", String.class),
                item.optional("fencing_token", Long.class), item.optional("last_fencing_token", Long.class),
                item.optional("owner", String.class),
                item.optional("principal", String.class), item.optional("write_id", String.class),
                item.optional("trace_id", String.class),
                item.optional("detail", Map.class).orElse(Map.of()));
    }
}
