package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** The cell of a client, and answers of a proxy before several cells, in whose place a server of the test answers. */
public final class CellTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private static final String REQUEST_FIELDS = ", \"title\": \"t\", \"detail\": \"d\", \"request_id\": \"r\"}";
    private static final String UNKNOWN = "{\"type\": \"/problems/storage-unavailable\", \"outcome_unknown\": true, "
            + "\"write_id\": \"00000000-0000-4000-8000-000000000000\"" + REQUEST_FIELDS;
    private static final String NO_CELL = "{\"type\": \"about:blank\", \"title\": \"Misdirected Request\", "
            + "\"status\": 421, \"detail\": \"No cell has what this request names.\"}";
    private static final String PROXY_FAILED = "{\"type\": \"about:blank\"}";
    private static final String APPLIED = "{\"applied\": true, \"write_id\": \"w\", \"results\": []}";

    /**
     * What the server answers to writes, one after another, the last one to all further ones;
     * other calls are answered 421. A status of 0 closes the connection.
     */
    private record Reply(int status, String body) {}

    private final List<String> calls = Collections.synchronizedList(new ArrayList<>());
    private HttpServer server;

    @After
    public void stop() {
        if (server != null) server.stop(0);
    }

    private FencegateClient clientOf(Reply... writes) throws Exception {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            boolean write = exchange.getRequestURI().getPath().equals("/v1/writes");
            long before = calls.stream().filter("/v1/writes 7"::equals).count();
            calls.add(exchange.getRequestURI().getPath() + " " + exchange.getRequestHeaders().getFirst("Fencing-Cell"));
            Reply reply = write ? writes[(int) Math.min(before, writes.length - 1)] : new Reply(421, NO_CELL);
            byte[] body = reply.body.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type",
                    reply.status == 200 ? "application/json" : "application/problem+json");
            if (reply.status != 0) exchange.sendResponseHeaders(reply.status, body.length);
            if (reply.status != 0) exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        return FencegateClient.builder(URI.create("http://127.0.0.1:" + server.getAddress().getPort())).cell(7)
                .retryFor(Duration.ofSeconds(2)).build();
    }

    private static Write write() {
        return Write.oneShot(List.of("a"), LeaseOptions.defaults(), Operation.delete("t").where("id", 1))
                .idempotencyKey("k");
    }

    @Test
    public void cell_of_another_gateway_is_misdirected() {
        FencegateClient other = Rig.client("worker").cell(1).build();
        List<Callable<?>> uses =
                List.of(() -> other.acquire(Rig.resource(), LeaseOptions.defaults()), () -> other.write(write()),
                () -> other.history(Map.of()).count(), () -> other.wasApplied("x"));
        for (Callable<?> use : uses) {
            FencegateException refused = assertThrows(FencegateException.class, use::call);
            assertEquals(Optional.of(Slug.MISDIRECTED_REQUEST), refused.slug());
            assertEquals(Optional.of(1L), refused.problem().orElseThrow().number("named_cell"));
        }
    }

    @Test
    public void cell_of_gateway_is_served() throws Exception {
        FencegateClient same = Rig.client("worker").cell(0).build();
        try (Lease lease = same.acquire(Rig.resource(), Rig.ttl(2_000))) {
            assertTrue(lease.isValid());
        }
    }

    @Test
    public void look_up_421_is_decided_by_the_repeat() throws Exception {
        assertEquals("w", clientOf(new Reply(503, UNKNOWN), new Reply(200, APPLIED)).write(write()).writeId());
        assertEquals(List.of("/v1/writes 7", "/v1/history 7", "/v1/writes 7"), calls);
    }

    @Test
    public void look_up_421_and_no_outcome_is_outcome_unknown() throws Exception {
        FencegateClient client = clientOf(new Reply(503, UNKNOWN));
        OutcomeUnknownException unknown = assertThrows(OutcomeUnknownException.class, () -> client.write(write()));
        assertEquals(Optional.of("00000000-0000-4000-8000-000000000000"), unknown.writeId());
        assertEquals(Optional.of("k"), unknown.idempotencyKey());
        FencegateException refused = assertThrows(FencegateException.class, () -> client.wasApplied("x"));
        assertEquals(Optional.of(Slug.MISDIRECTED_REQUEST), refused.slug());
    }

    @Test
    public void write_answered_with_error_of_a_proxy_is_repeated() throws Exception {
        assertEquals("w", clientOf(new Reply(500, PROXY_FAILED), new Reply(503, PROXY_FAILED), new Reply(200, APPLIED))
                .write(write()).writeId());
    }

    @Test
    public void write_answered_only_by_a_proxy_is_outcome_unknown() throws Exception {
        FencegateClient client = clientOf(new Reply(500, PROXY_FAILED), new Reply(503, PROXY_FAILED),
                new Reply(401, "{\"type\": \"/problems/unauthenticated\"" + REQUEST_FIELDS));
        assertThrows(OutcomeUnknownException.class, () -> client.write(write()));
    }

    @Test
    public void write_refused_after_lost_answer_is_outcome_unknown() throws Exception {
        FencegateClient client =
                clientOf(new Reply(0, ""), new Reply(401, "{\"type\": \"/problems/unauthenticated\"" + REQUEST_FIELDS));
        OutcomeUnknownException unknown = assertThrows(OutcomeUnknownException.class, () -> client.write(write()));
        assertEquals(Optional.of("k"), unknown.idempotencyKey());
        assertEquals(Optional.of(Slug.UNAUTHENTICATED), ((FencegateException) unknown.getCause()).slug());
    }

    @Test
    public void write_refused_by_its_data_after_lost_answer_is_refused() throws Exception {
        FencegateClient client = clientOf(new Reply(0, ""),
                new Reply(409, "{\"type\": \"/problems/constraint-violation\"" + REQUEST_FIELDS));
        FencegateException refused = assertThrows(FencegateException.class, () -> client.write(write()));
        assertEquals(Optional.of(Slug.CONSTRAINT_VIOLATION), refused.slug());
    }
}
