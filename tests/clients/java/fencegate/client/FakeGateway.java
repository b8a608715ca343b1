package fencegate.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A server in place of a gateway, whose answers a test chooses: what a real gateway answers only rarely,
 * or at a time that no test can choose.
 */
final class FakeGateway implements AutoCloseable {
    static final String RENEWAL = "POST /v1/leases/L/renew";
    static final String RELEASE = "DELETE /v1/leases/L";
    static final String ACQUISITION = "POST /v1/leases";
    static final String WRITE = "POST /v1/writes";
    /** The connection is closed without an answer. */
    static final Reply NO_ANSWER = new Reply(0, "", 0);
    static final Reply RELEASED = new Reply(204, "", 0);

    /** An answer; {@code retryAfter} is 0 for none. An error whose body is not JSON is that of a proxy. */
    record Reply(int status, String body, int retryAfter) {}

    /** Answers a call such as {@link #RENEWAL}, of which {@code before} have come before. */
    interface Handler {
        Reply answer(String call, int before) throws Exception;
    }

    /** Answers a request for the stream that watches the lease, of which {@code before} have come before. */
    interface WatchHandler {
        void answer(HttpExchange exchange, int before) throws Exception;
    }

    /** All calls but those for streams that watch the lease, so that these do not get the answers meant for others. */
    final List<String> calls = Collections.synchronizedList(new ArrayList<>());
    /** When each stream that watches the lease was requested, by System.nanoTime. */
    final List<Long> watchTimes = Collections.synchronizedList(new ArrayList<>());
    private volatile WatchHandler watchHandler = (exchange, before) -> exchange.sendResponseHeaders(404, -1);
    private final HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    private final ExecutorService threads = Executors.newCachedThreadPool();

    FakeGateway(Handler handler) throws IOException {
        server.setExecutor(threads);
        server.createContext("/", exchange -> serve(exchange, handler));
        server.start();
    }

    /** Changes the answer to requests for streams that watch the lease; without it they are refused. */
    FakeGateway answeringWatches(WatchHandler handler) {
        watchHandler = handler;
        return this;
    }

    /** Begins a stream of events, or continues it. */
    static void stream(HttpExchange exchange, String text) throws IOException {
        if (exchange.getResponseCode() < 0) {
            exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
            exchange.sendResponseHeaders(200, 0);
        }
        exchange.getResponseBody().write(text.getBytes(StandardCharsets.UTF_8));
        exchange.getResponseBody().flush();
    }

    URI uri() {
        return URI.create("http://127.0.0.1:" + server.getAddress().getPort());
    }

    FencegateClient client() {
        return FencegateClient.builder(uri()).build();
    }

    long count(String call) {
        return calls.stream().filter(call::equals).count();
    }

    /** A lease, or its renewal. */
    static Reply lease(int ttlMs, int validityMs) {
        return new Reply(201, "{\"lease_id\": \"L\", \"resource\": \"a\", \"fencing_token\": 7, \"ttl_ms\": " + ttlMs
                + ", \"validity_ms\": " + validityMs + ", \"served_ms\": 0}", 0);
    }

    static Reply problem(int status, String slug) {
        return problem(status, slug, 0);
    }

    static Reply problem(int status, String slug, int retryAfter) {
        return new Reply(status, "{\"type\": \"/problems/" + slug
                + "\", \"title\": \"t\", \"detail\": \"d\", \"request_id\": \"r\"}", retryAfter);
    }

    private void serve(HttpExchange exchange, Handler handler) throws IOException {
        exchange.getRequestBody().readAllBytes();
        if ("text/event-stream".equals(exchange.getRequestHeaders().getFirst("Accept"))) {
            serveWatch(exchange);
            return;
        }
        String call = exchange.getRequestMethod() + " " + exchange.getRequestURI().getPath();
        int before;
        synchronized (calls) {
            before = (int) count(call);
            calls.add(call);
        }
        try (exchange) {
            Reply reply = handler.answer(call, before);
            if (reply.status == 0) return;
            byte[] body = reply.body.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", reply.status < 300 ? "application/json"
                    : reply.body.startsWith("{") ? "application/problem+json" : "text/plain");
            if (reply.retryAfter > 0) exchange.getResponseHeaders().set("Retry-After", "" + reply.retryAfter);
            exchange.sendResponseHeaders(reply.status, body.length == 0 ? -1 : body.length);
            if (body.length > 0) exchange.getResponseBody().write(body);
        } catch (Exception e) { // the test sees that there is no answer
            e.printStackTrace();
        }
    }

    private void serveWatch(HttpExchange exchange) {
        int before;
        synchronized (watchTimes) {
            before = watchTimes.size();
            watchTimes.add(System.nanoTime());
        }
        try (exchange) {
            watchHandler.answer(exchange, before);
        } catch (Exception e) { // the client has closed the connection, or the test has ended
            return;
        }
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
