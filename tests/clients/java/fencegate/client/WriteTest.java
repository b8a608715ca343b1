package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Guarded writes over HTTP and over JDBC, and the history, without faults. */
public final class WriteTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final FencegateClient client = Rig.worker();
    private final String sku = Rig.sku();
    private final String resource = "inventory/" + sku;

    @Test
    public void write_under_lease_changes_rows() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            WriteResult result = client.write(Write.under(lease,
                    Operation.update("inventory").where("sku", sku).where("stock", "gte", 3).where("stock", "lte", 10)
                    .add("stock", -3).set("note", "é").expectRows(1)).returnRows().requireLive());
            assertEquals(Optional.of(1L), result.results().get(0).rowsAffected());
            assertEquals(7L, result.results().get(0).rows().get(0).get("stock"));
            assertEquals("é", result.results().get(0).rows().get(0).get("note"));
            assertFalse(result.replayed());
            assertTrue(client.wasApplied(result.writeId()));
            assertFalse(client.wasApplied("00000000-0000-4000-8000-000000000000"));
        }
        assertEquals(7, Rig.stock(sku));
    }

    @Test
    public void conditions_of_one_column_all_hold() {
        Operation first = Operation.delete("t").where("id", "a");
        assertEquals(Map.of("id", Map.of("eq", "a", "neq", "b")), first.where("id", "neq", "b").members().get("where"));
        assertEquals(Map.of("id", Map.of("gt", 1, "eq", 2)), Operation.delete("t").where("id", "gt", 1).where("id", 2)
                .members().get("where"));
        assertThrows(IllegalArgumentException.class, () -> first.where("id", "b"));
        assertThrows(IllegalArgumentException.class,
                () -> Operation.delete("t").where("id", "neq", 1).where("id", "neq", 2));
    }

    @Test
    public void write_one_shot_calls_function_once_for_its_key() throws Exception {
        long order = System.nanoTime() / 1_000;
        Write write =
                Write.oneShot(List.of(resource, "orders/" + order), Rig.ttl(5_000).waitTime(Duration.ofMillis(500)),
                Operation.call("place_order").argument("order_id", order).argument("sku", sku).argument("quantity", 2))
                        .idempotencyKey("order-" + order);
        WriteResult first = client.write(write);
        WriteResult second = client.write(write);
        assertTrue(first.fencingToken().isPresent() && first.released().orElseThrow());
        assertTrue(second.replayed() && second.writeId().equals(first.writeId()));
        assertEquals(8, Rig.stock(sku));
    }

    @Test
    public void write_then_release_ends_lease() throws Exception {
        Lease lease = client.acquire(resource, Rig.ttl(5_000));
        WriteResult result = client.write(Write.under(lease, Rig.sell(sku)).thenRelease());
        assertEquals(List.of(Optional.of(true), Optional.of(true)), List.of(result.released(), result.sealed()));
        assertFalse(lease.isValid());
        lease.close();
        client.acquire(resource, Rig.ttl(5_000)).close();
    }

    @Test
    public void write_then_release_of_one_hold_leaves_the_other() throws Exception {
        Lease first = client.acquire(resource, Rig.ttl(5_000).owner("worker"));
        Lease second = client.acquire(resource, Rig.ttl(5_000).owner("worker"));
        WriteResult result = client.write(Write.under(second, Rig.sell(sku)).thenRelease());
        assertEquals(List.of(Optional.of(false), Optional.of(false)), List.of(result.released(), result.sealed()));
        second.close();
        assertEquals(Optional.empty(), client.write(Write.under(first, Rig.sell(sku))).sealed());
        first.close();
        assertEquals(8, Rig.stock(sku));
    }

    @Test
    public void write_of_large_rows_is_replayed_without_them() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            Write write = Write.under(lease,
                    Operation.update("inventory").where("sku", sku).set("note", "x".repeat(70_000))).returnRows();
            WriteResult first = client.write(write);
            WriteResult second = client.write(write);
            assertEquals(List.of(false, false, true, true),
                    List.of(first.replayed(), first.rowsLeftOut(), second.replayed(), second.rowsLeftOut()));
            assertEquals(List.of(1, 0),
                    List.of(first.results().get(0).rows().size(), second.results().get(0).rows().size()));
            assertFalse(client.write(Write.under(lease, Rig.sell(sku))).rowsLeftOut());
        }
    }

    @Test
    public void write_insert_and_delete_are_one_transaction() throws Exception {
        long order = System.nanoTime() / 1_000;
        try (Lease lease = client.acquire(List.of(resource, "orders/" + order), Rig.ttl(5_000))) {
            client.write(Write.under(lease, Operation.insert("orders").value("id", order).value("sku", sku)
                    .value("quantity", 1), Rig.sell(sku)));
            Operation delete = Operation.delete("orders").where("id", order);
            FencegateException refused = assertThrows(FencegateException.class,
                    () -> client.write(Write.under(lease, delete.expectRows(2), Rig.sell(sku))));
            assertEquals(Optional.of(Slug.EXPECTATION_FAILED), refused.slug());
            client.write(Write.under(lease, delete.expectRows(1)));
        }
        assertEquals(9, Rig.stock(sku));
    }

    @Test
    public void write_of_older_holder_is_refused() throws Exception {
        Lease old = client.acquire(resource, Rig.ttl(400).notRenewed());
        Rig.eventually("it has ended", () -> !old.isValid());
        assertThrows(LeaseLostException.class, () -> client.write(Write.under(old, Rig.sell(sku))));
        LeaseOptions fencing = Rig.ttl(5_000).waitTime(Duration.ofSeconds(5)).fenceOnGrant(true);
        try (Lease current = client.acquire(resource, fencing)) {
            try (Connection connection = Rig.database(); Statement statement = connection.createStatement()) {
                connection.setAutoCommit(false);
                SQLException stale = assertThrows(SQLException.class, () ->
                        statement.execute("select fencing.enter('" + resource + "', " + old.fencingToken() + ")"));
                assertTrue(Fence.translate(stale).orElseThrow() instanceof StaleFencingTokenException);
            }
            assertTrue(current.isValid());
        }
        assertEquals(10, Rig.stock(sku));
    }

    @Test
    public void fence_enter_opens_resources_for_transaction() throws Exception {
        String other = Rig.sku();
        try (Lease lease = client.acquire(List.of("inventory/" + other, resource), Rig.ttl(5_000));
                Connection connection = Rig.database();
                Statement statement = connection.createStatement()) {
            assertThrows(IllegalStateException.class, () -> Fence.enter(connection, lease));
            connection.setAutoCommit(false);
            statement.execute("set local track_functions = 'all'");
            Fence.enter(connection, lease);
            assertEquals("one call of the array form", 1,
                    Rig.callsInTransaction(connection, "fencing.enter(text[], bigint, text)"));
            statement.execute("update inventory set stock = stock - 1 where sku in ('" + sku + "', '" + other + "')");
            connection.commit();
            SQLException closed = assertThrows(SQLException.class,
                    () -> statement.execute("update inventory set stock = 0 where sku = '" + sku + "'"));
            assertEquals(Optional.of(Slug.FENCING_REQUIRED), Fence.translate(closed).orElseThrow().slug());
            connection.rollback();
            Fence.enter(connection, lease);
            SQLException outside = assertThrows(SQLException.class,
                    () -> statement.execute("update inventory set stock = 0 where sku = 'sku-1'"));
            assertEquals(Optional.of(Slug.RESOURCE_NOT_COVERED), Fence.translate(outside).orElseThrow().slug());
            connection.rollback();
            SQLException syntax = assertThrows(SQLException.class, () -> statement.execute("nonsense"));
            assertEquals(Optional.empty(), Fence.translate(syntax));
            connection.rollback();
            lease.release();
            assertThrows(LeaseLostException.class, () -> Fence.enter(connection, lease));
        }
        assertEquals(9, Rig.stock(sku));
        assertEquals(9, Rig.stock(other));
    }

    @Test
    public void fence_enter_waits_for_older_holder_and_what_is_read_then_is_new() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000));
                Connection connection = Rig.database(); Statement read = connection.createStatement();
                Connection older = Rig.database(); Statement write = older.createStatement()) {
            older.setAutoCommit(false);
            write.execute("select fencing.enter('" + resource + "', " + (lease.fencingToken() - 1) + ")");
            write.execute("update inventory set stock = 0 where sku = '" + sku + "'");
            connection.setAutoCommit(false);
            assertEquals("it is not committed", 10, Rig.stock(read, sku));
            CompletableFuture<Void> committed = CompletableFuture.runAsync(() -> {
                try {
                    String waiting =
                            "select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))";
                    Rig.eventually("enter waits", () -> write.executeQuery(waiting).next());
                    older.commit();
                } catch (Exception e) {
                    throw new CompletionException(e);
                }
            });
            Fence.enter(connection, lease);
            assertEquals(0, Rig.stock(read, sku));
            committed.get();
            connection.rollback();
        }
    }

    @Test
    public void fence_enter_with_proof_is_verified() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000)); Connection connection = Rig.database();
                Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            FencegateException refused =
                    assertThrows(FencegateException.class, () -> Fence.enterWithProof(connection, lease));
            assertEquals("the database has no key yet", Optional.of(Slug.LEASE_NOT_AUTHENTIC), refused.slug());
            connection.rollback();
            statement.execute("select fencing.add_proof_key(convert_to('a signing key of a test, "
                    + "long enough to be one', 'UTF8'))");
            Fence.enterWithProof(connection, lease);
            statement.execute("update inventory set stock = stock - 1 where sku = '" + sku + "'");
            connection.commit();
        }
        assertEquals(9, Rig.stock(sku));
    }

    @Test
    public void fence_enter_shared_lets_read_alone() throws Exception {
        String other = Rig.sku();
        LeaseOptions options = Rig.ttl(10_000);
        try (Lease lease = client.acquire("inventory/" + other, options.shared(List.of(resource)));
                Lease reader = client.acquire(resource, options.mode(LeaseOptions.Mode.SHARED));
                Connection connection = Rig.database(); Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            Fence.enter(connection, lease);
            statement.execute("update inventory set stock = stock - 1 where sku = '" + other + "'");
            connection.commit();
            assertEquals(Optional.of(Slug.SHARED_LEASE),
                    assertThrows(FencegateException.class, () -> Fence.enter(connection, reader)).slug());
            Fence.enterShared(connection, reader);
            assertEquals(10, Rig.stock(statement, sku));
            assertThrows(SQLException.class,
                    () -> statement.execute("update inventory set stock = 0 where sku = '" + sku + "'"));
            connection.rollback();
            SQLException older = assertThrows(SQLException.class, () -> statement
                    .execute("select fencing.enter('" + resource + "', " + (lease.fencingToken() - 1) + ")"));
            assertEquals("FG412", older.getSQLState());
        }
        assertEquals(9, Rig.stock(other));
    }

    @Test
    public void fence_enter_with_sealed_token_is_stale() throws Exception {
        Lease lease = client.acquire(resource, Rig.ttl(10_000));
        CountDownLatch lost = new CountDownLatch(1);
        lease.onLoss(lost::countDown);
        try (Connection connection = Rig.database(); Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            statement.execute("select fencing.enter('" + resource + "', " + (lease.fencingToken() + 1) + ")");
            connection.commit();
            StaleFencingTokenException stale =
                    assertThrows(StaleFencingTokenException.class, () -> Fence.enter(connection, lease));
            assertTrue(stale.getCause() instanceof SQLException);
            connection.rollback();
        }
        StaleFencingTokenException refused =
                assertThrows(StaleFencingTokenException.class, () -> client.write(Write.under(lease, Rig.sell(sku))));
        assertEquals(Optional.of(lease.fencingToken() + 1),
                refused.problem().orElseThrow().number("last_fencing_token"));
        assertTrue("it counts as lost", !lease.isValid() && lost.getCount() == 0);
        assertEquals("until it is released", Optional.empty(), client.tryAcquire(resource, Rig.ttl(5_000)));
        assertThrows(LeaseLostException.class, lease::close);
        assertThrows(LeaseLostException.class, lease::close);
        client.acquire(resource, Rig.ttl(5_000)).close();
    }

    @Test
    public void history_is_read_by_pages_as_it_is_used() throws Exception {
        try (Lease lease = client.acquire(resource, Rig.ttl(5_000))) {
            for (int number = 0; number < 5; number++) client.write(Write.under(lease, Rig.sell(sku)));
            Map<String, String> filters = Map.of("resource", resource, "event", "write_applied", "order", "asc",
                    "limit", "2", "token_min", "" + lease.fencingToken());
            List<HistoryEvent> events = client.history(filters).toList();
            assertEquals(5, events.size());
            assertEquals(events, events.stream().sorted((one, two) -> Long.compare(one.id(), two.id())).toList());
            assertTrue(events.stream().allMatch(event -> event.fencingToken().orElseThrow() == lease.fencingToken()
                    && event.writeId().isPresent()
                    && event.principal().orElseThrow().equals("worker")));
            assertEquals(events.subList(0, 3), client.history(filters).limit(3).toList());
        }
        FencegateException refused =
                assertThrows(FencegateException.class, () -> client.history(Map.of("colour", "red")).count());
        assertEquals("colour", refused.problem().orElseThrow().faults().get(0).pointer());
    }
}
