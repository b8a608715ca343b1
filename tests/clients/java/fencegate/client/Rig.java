package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;

/** The real gateways and database of the tests, and the faults that tests/clients/test_java.py offers by name. */
final class Rig {
    static final List<URI> GATEWAYS = Arrays.stream(property("gateways").split(" ")).map(URI::create).toList();
    private static final HttpClient CONTROL = HttpClient.newHttpClient();
    private static final AtomicInteger NEXT = new AtomicInteger(1);

    private Rig() {}

    static String property(String name) {
        return System.getProperty("fencegate." + name);
    }

    /** A client of the first gateway alone, as a principal. */
    static FencegateClient.Builder client(String principal) {
        return FencegateClient.builder(GATEWAYS.get(0)).credential(property("key." + principal));
    }

    static FencegateClient worker() {
        return client("worker").build();
    }

    /** A client of both gateways. */
    static FencegateClient both() {
        return FencegateClient.builder(GATEWAYS.get(0), GATEWAYS.get(1)).credential(property("key.worker")).build();
    }

    static LeaseOptions ttl(int ms) {
        return LeaseOptions.defaults().ttl(Duration.ofMillis(ms));
    }

    static String resource() {
        return "java/" + UUID.randomUUID();
    }

    /** An article of which there are 10 pieces and that no other test uses. */
    static String sku() {
        return "java-" + NEXT.getAndIncrement();
    }

    static Operation sell(String sku) {
        return Operation.update("inventory").where("sku", sku).add("stock", -1).expectRows(1);
    }

    /** Takes the lease away, as an operator does. */
    static void revoke(String resource) throws IOException, InterruptedException {
        delete("/v1/resources/" + resource.replace("/", "%2F") + "/lease", "{\"reason\": \"a test\"}");
    }

    /** Releases the lease without its client, as another process does that has its id. */
    static void releaseElsewhere(Lease lease) throws IOException, InterruptedException {
        delete("/v1/leases/" + lease.leaseId(), "");
    }

    private static void delete(String path, String body) throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(GATEWAYS.get(1) + path))
                .method("DELETE", HttpRequest.BodyPublishers.ofString(body))
                .header("Authorization", "Bearer " + property("key.worker"));
        if (!body.isEmpty()) request.header("Content-Type", "application/json");
        HttpResponse<String> answer = CONTROL.send(request.build(), HttpResponse.BodyHandlers.ofString());
        assertEquals(answer.body(), 204, answer.statusCode());
    }

    /** Asks for a fault by its name, with its argument after a slash if it has one. */
    static void fault(String name) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(property("faults") + name))
                .POST(HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> answer = CONTROL.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 204) fail(name + ": " + answer);
    }

    static Connection database() throws SQLException {
        return DriverManager.getConnection(property("jdbc"));
    }

    static int stock(String sku) throws SQLException {
        try (Connection connection = database(); Statement statement = connection.createStatement()) {
            return stock(statement, sku);
        }
    }

    static int stock(Statement statement, String sku) throws SQLException {
        try (ResultSet rows = statement.executeQuery("select stock from inventory where sku = '" + sku + "'")) {
            assertTrue(rows.next());
            return rows.getInt(1);
        }
    }

    /** How often the connection's transaction has called a function, if it set track_functions. */
    static int callsInTransaction(Connection connection, String function) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement(
                "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where funcid = ?::regprocedure")) {
            query.setString(1, function);
            ResultSet rows = query.executeQuery();
            rows.next();
            return rows.getInt(1);
        }
    }

    /** The number of commits that wait for a standby. */
    static int waitingCommits() throws SQLException {
        try (Connection connection = database(); Statement statement = connection.createStatement();
                ResultSet rows =
                        statement.executeQuery("select count(*) from pg_stat_activity where wait_event = 'SyncRep'")) {
            rows.next();
            return rows.getInt(1);
        }
    }

    /** Waits until the condition is true. */
    static void eventually(String goal, Callable<Boolean> condition) throws Exception {
        long until = System.nanoTime() + Duration.ofSeconds(15).toNanos();
        while (!condition.call()) {
            if (System.nanoTime() - until > 0) fail("not in time: " + goal);
            Thread.sleep(10);
        }
    }
}
