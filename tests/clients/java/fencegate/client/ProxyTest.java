package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Answers with success that are those of a proxy, and a write whose repeat says that its lease is over. */
public final class ProxyTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private static final List<FakeGateway.Reply> OF_PROXY =
            List.of(new FakeGateway.Reply(200, "{\"status\": \"maintenance\"}", 0), new FakeGateway.Reply(200, "", 0),
                    new FakeGateway.Reply(200, "[]", 0));

    private FakeGateway gateway;

    @After
    public void stop() {
        if (gateway != null) gateway.close();
    }

    /** A client of a server that answers the acquisition of a lease, and everything else by the handler. */
    private FencegateClient client(FakeGateway.Handler handler) throws Exception {
        stop();
        gateway = new FakeGateway((call, before) -> call.equals(FakeGateway.ACQUISITION)
                ? FakeGateway.lease(60_000, 60_000) : handler.answer(call, before));
        return gateway.client();
    }

    private static Write oneShot() {
        return Write.oneShot(List.of("a"), LeaseOptions.defaults(), Operation.call("f")).idempotencyKey("k");
    }

    @Test
    public void write_answered_by_a_proxy_is_outcome_unknown() throws Exception {
        for (FakeGateway.Reply reply : OF_PROXY) {
            FencegateClient client = client((call, before) -> reply);
            Lease lease = client.acquire("a", LeaseOptions.defaults());
            for (Write write : List.of(oneShot(), Write.under(lease, Operation.call("f")).idempotencyKey("k"))) {
                OutcomeUnknownException unknown =
                        assertThrows(OutcomeUnknownException.class, () -> client.write(write));
                assertEquals(Optional.of("k"), unknown.idempotencyKey());
            }
            assertTrue(lease.isValid());
        }
    }

    @Test
    public void release_answered_by_a_proxy_throws() throws Exception {
        for (FakeGateway.Reply reply : OF_PROXY) {
            Lease lease = client((call, before) -> reply).acquire("a", LeaseOptions.defaults());
            assertThrows(FencegateException.class, lease::release);
        }
        client((call, before) -> new FakeGateway.Reply(200, "{\"hold_count\": 1}", 0))
                .acquire("a", LeaseOptions.defaults()).release();
    }

    @Test
    public void history_answered_by_a_proxy_throws() throws Exception {
        for (FakeGateway.Reply reply : OF_PROXY) {
            FencegateClient client = client((call, before) -> reply);
            assertThrows(FencegateException.class, () -> client.wasApplied("w"));
            assertThrows(FencegateException.class, () -> client.history(Map.of()).count());
        }
    }

    @Test
    public void write_unknown_because_lease_is_lost_loses_it() throws Exception {
        FencegateClient client =
                client((call, before) -> before == 0 ? FakeGateway.NO_ANSWER : FakeGateway.problem(410, "lease-lost"));
        Lease lease = client.acquire("a", LeaseOptions.defaults());
        CountDownLatch lost = new CountDownLatch(1);
        lease.onLoss(lost::countDown);
        OutcomeUnknownException unknown = assertThrows(OutcomeUnknownException.class,
                () -> client.write(Write.under(lease, Operation.call("f")).requireLive()));
        assertTrue(unknown.getCause() instanceof LeaseLostException);
        assertFalse(lease.isValid());
        assertEquals(0, lost.getCount());
    }
}
