package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Rule;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;
import org.junit.rules.Timeout;

/** The gateway in memory: the same contract as a real one, and what only it can do. */
public final class TestGatewayTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private final TestGateway gateway = new TestGateway();
    private final FencegateClient memory = gateway.client();

    private interface Contract {
        void check(FencegateClient client, String sku) throws Exception;
    }

    /** Runs a test of the contract with a real gateway and with one in memory. */
    private void inEachPlace(Contract contract) throws Exception {
        contract.check(Rig.worker(), Rig.sku());
        contract.check(memory, "sku");
    }

    @Test
    public void contract_readers_share_and_exclude_a_writer() throws Exception {
        inEachPlace((client, sku) -> {
            String name = "inventory/" + sku;
            LeaseOptions options = Rig.ttl(20_000).waitTime(Duration.ofSeconds(5));
            Lease older = client.acquire(name, options);
            client.adopt(older.leaseId(), options).release();
            Lease reader = client.acquire(name, options.mode(LeaseOptions.Mode.SHARED).fenceOnGrant(true));
            Lease mixed = client.acquire(name + "/order", options.shared(List.of(name)));
            assertEquals(List.of(LeaseOptions.Mode.SHARED, List.of(name), List.of()),
                    List.of(reader.mode(), reader.resources(), reader.shared()));
            assertEquals(List.of(LeaseOptions.Mode.EXCLUSIVE, List.of(name + "/order"), List.of(name)),
                    List.of(mixed.mode(), mixed.resources(), mixed.shared()));
            assertEquals(Optional.empty(), client.tryAcquire(name, Rig.ttl(1_000)));
            FencegateException refused = assertThrows(FencegateException.class,
                    () -> client.write(Write.under(older, Rig.sell(sku)))); // or it knows the end of its lease
            assertTrue(refused instanceof StaleFencingTokenException || refused instanceof LeaseLostException);
            assertEquals(Optional.of(Slug.SHARED_LEASE), assertThrows(FencegateException.class,
                    () -> client.write(Write.under(reader, Rig.sell(sku)))).slug());
            reader.check();
            reader.release();
            mixed.release();
            try (Lease writer = client.acquire(name, options)) {
                assertTrue(writer.fencingToken() > reader.fencingToken());
                LeaseOptions sharing = Rig.ttl(1_000).mode(LeaseOptions.Mode.SHARED);
                assertEquals(Optional.empty(), client.tryAcquire(name, sharing));
            }
        });
    }

    @Test
    public void read_fence_refuses_older_writers() throws Exception {
        Lease older = memory.acquire("a", LeaseOptions.defaults());
        memory.adopt(older.leaseId(), LeaseOptions.defaults()).release();
        memory.acquire("b", LeaseOptions.defaults().shared(List.of("a")).fenceOnGrant(true));
        assertThrows(StaleFencingTokenException.class,
                () -> memory.write(Write.under(older, Operation.call("f"))));
        assertEquals(List.of(), gateway.writes());
    }

    @Test
    public void sharing_that_cannot_be_is_refused_by_name() {
        LeaseOptions options = LeaseOptions.defaults();
        LeaseOptions sharing = options.mode(LeaseOptions.Mode.SHARED);
        for (Object[] each : new Object[][] {
            {"seal", (ThrowingRunnable) () -> sharing.seal(true)},
            {"mode", (ThrowingRunnable) () -> Write.oneShot(List.of("a"), sharing, Operation.call("f"))},
            {"shared", (ThrowingRunnable) () -> memory.runOncePerTick("a", Duration.ofSeconds(1),
                    options.shared(List.of("b")), lease -> null)}}) {
            String message = assertThrows(IllegalArgumentException.class, (ThrowingRunnable) each[1]).getMessage();
            assertTrue(message, message.contains((String) each[0]));
        }
    }

    @Test
    public void contract_leases_are_exclusive_and_tokens_grow() throws Exception {
        inEachPlace((client, sku) -> {
            String resource = "inventory/" + sku;
            Lease first = client.acquire(resource, Rig.ttl(20_000));
            assertTrue(first.remaining().toMillis() > 0 && first.remaining().toMillis() <= 20_000);
            ResourceLockedException locked = assertThrows(ResourceLockedException.class,
                    () -> client.acquire(resource, Rig.ttl(1_000).waitTime(Duration.ofMillis(300))));
            long left = locked.problem().flatMap(problem -> problem.number("remaining_ms")).orElseThrow();
            assertTrue(left > 0 && left <= 20_000);
            first.release();
            first.release();
            assertThrows(LeaseLostException.class, first::check);
            try (Lease second = client.acquire(resource, Rig.ttl(20_000).waitTime(Duration.ofSeconds(5)))) {
                assertTrue(second.fencingToken() > first.fencingToken());
            }
        });
    }

    @Test
    public void contract_owner_gets_further_holds_of_one_token() throws Exception {
        inEachPlace((client, sku) -> {
            LeaseOptions options = Rig.ttl(20_000).owner("worker");
            Lease first = client.acquire("inventory/" + sku, options);
            try (Lease second = client.acquire("inventory/" + sku, options)) {
                assertEquals(first.fencingToken(), second.fencingToken());
                assertNotEquals(first.leaseId(), second.leaseId());
                first.release();
                second.check();
            }
        });
    }

    @Test
    public void contract_write_is_applied_once_for_its_key() throws Exception {
        inEachPlace((client, sku) -> {
            List<String> resources = List.of("inventory/" + sku);
            String key = UUID.randomUUID().toString();
            LeaseOptions options = LeaseOptions.defaults().waitTime(Duration.ofMillis(500));
            Write sale = Write.oneShot(resources, options, Rig.sell(sku)).idempotencyKey(key);
            WriteResult first = client.write(sale);
            WriteResult again = client.write(sale);
            assertFalse(first.replayed());
            assertTrue(again.replayed());
            assertEquals(first.writeId(), again.writeId());
            assertEquals(1L, (long) first.results().get(0).rowsAffected().orElseThrow());
            FencegateException mismatch = assertThrows(FencegateException.class, () -> client.write(
                    Write.oneShot(resources, options, Rig.sell(sku).set("note", "other")).idempotencyKey(key)));
            assertEquals(Optional.of(Slug.IDEMPOTENCY_MISMATCH), mismatch.slug());
            Lease lease = client.acquire("inventory/" + sku, Rig.ttl(20_000));
            WriteResult last = client.write(Write.under(lease, Rig.sell(sku)).thenRelease());
            assertEquals(Optional.of(true), last.released());
            client.acquire("inventory/" + sku, Rig.ttl(20_000)).release();
        });
    }

    private static boolean tick(FencegateClient client, String resource) throws Exception {
        AtomicInteger runs = new AtomicInteger();
        boolean run = client.runOncePerTick(resource, Duration.ofMinutes(10), LeaseOptions.defaults(), lease -> {
            lease.check();
            return runs.incrementAndGet();
        });
        assertEquals(run ? 1 : 0, runs.get());
        return run;
    }

    @Test
    public void contract_work_is_run_once_in_a_tick() throws Exception {
        inEachPlace((client, sku) -> {
            String resource = "inventory/" + sku;
            assertTrue(tick(client, resource));
            assertFalse(tick(client, resource));
            try (Lease held = client.acquire(resource, Rig.ttl(20_000))) {
                assertFalse(tick(client, resource));
                held.check();
            }
            client.acquire(resource + "@tick", Rig.ttl(20_000)).release();
        });
    }

    @Test
    public void next_tick_begins_half_of_its_period_later() throws Exception {
        assertTrue(tick(memory, "a"));
        gateway.advance(Duration.ofMinutes(5).minusMillis(1));
        assertFalse(tick(memory, "a"));
        gateway.advance(Duration.ofMillis(1));
        assertTrue(tick(memory, "a"));
        LeaseTask<Lease, Exception> failing = lease -> memory.acquire("b", LeaseOptions.defaults());
        assertThrows(ResourceLockedException.class,
                () -> memory.runOncePerTick("b", Duration.ofMinutes(10), LeaseOptions.defaults(), failing));
        assertFalse("a start counts, also if the task fails", tick(memory, "b"));
        String period = assertThrows(IllegalArgumentException.class, () -> memory.runOncePerTick("c",
                Duration.ofMillis(999), LeaseOptions.defaults(), failing)).getMessage();
        String owner = assertThrows(IllegalArgumentException.class, () -> memory.runOncePerTick("c",
                Duration.ofSeconds(1), LeaseOptions.defaults().owner("w"), failing)).getMessage();
        assertTrue(period + owner, period.startsWith("every") && owner.startsWith("owner"));
    }

    @Test
    public void clock_renews_leases_and_lets_them_end() throws Exception {
        Lease lease = memory.acquire("a", Rig.ttl(30_000));
        Lease brief = memory.acquire("b", Rig.ttl(1_000).notRenewed());
        gateway.advance(Duration.ofHours(1));
        lease.check();
        assertThrows(LeaseLostException.class, brief::check);
        gateway.stopRenewals();
        AtomicInteger losses = new AtomicInteger();
        lease.onLoss(losses::incrementAndGet);
        gateway.advance(Duration.ofSeconds(31));
        assertEquals(1, losses.get());
        assertEquals(Duration.ZERO, lease.remaining());
        assertThrows(LeaseLostException.class, lease::check);
        memory.acquire("a", Rig.ttl(60_000));
        Lease next = memory.acquire("a", Rig.ttl(1_000).waitTime(Duration.ofDays(1)));
        assertEquals("it has waited by the clock of the test", 4, next.fencingToken());
    }

    @Test
    public void lease_is_lost_when_the_test_says_so() throws Exception {
        Lease lease = memory.acquire(List.of("a", "b"), Rig.ttl(30_000));
        AtomicInteger losses = new AtomicInteger();
        lease.onLoss(losses::incrementAndGet);
        gateway.lose("b");
        assertEquals(1, losses.get());
        assertThrows(LeaseLostException.class, () -> memory.write(Write.under(lease, Operation.call("f"))));
        assertEquals(List.of(), gateway.writes());
        memory.acquire("a", LeaseOptions.defaults()).check();
    }

    @Test
    public void writes_are_refused_as_the_test_says() throws Exception {
        gateway.refuseWrite("expectation-failed", 409, Map.of("rows_affected", 0));
        Write once = Write.oneShot(List.of("a"), LeaseOptions.defaults(), Operation.call("f")).idempotencyKey("k");
        FencegateException refused = assertThrows(FencegateException.class, () -> memory.write(once));
        assertEquals(Optional.of(Slug.EXPECTATION_FAILED), refused.slug());
        assertEquals(Optional.of(0L), refused.problem().flatMap(problem -> problem.number("rows_affected")));
        Lease lease = memory.acquire("a", LeaseOptions.defaults());
        gateway.raiseFence("a");
        assertThrows(StaleFencingTokenException.class, () -> memory.write(Write.under(lease, Operation.call("f"))));
        assertThrows(LeaseLostException.class, lease::release);
        gateway.results(operation -> Map.of("value", operation.get("call")));
        assertEquals("f", memory.write(once).results().get(0).value());
        assertEquals(1, gateway.writes().size());
        TestGateway.Written written = gateway.writes().get(0);
        assertEquals(List.of(4L, "k"), List.of(written.fencingToken(), written.idempotencyKey()));
        assertEquals(List.of("write_applied", "lease_released", "lease_granted"),
                memory.history(Map.of("resource", "a")).map(HistoryEvent::event).toList());
    }
}
