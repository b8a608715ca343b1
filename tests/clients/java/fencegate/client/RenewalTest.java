package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Renewals that fail, writes that release the lease, and the report of a loss. */
public final class RenewalTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);

    private static final String APPLIED =
            "{\"applied\": true, \"write_id\": \"w\", \"results\": [], \"released\": true}";

    private final CountDownLatch lost = new CountDownLatch(1);
    private final CountDownLatch testEnded = new CountDownLatch(1);
    private FakeGateway gateway;

    @After
    public void stop() {
        testEnded.countDown();
        if (gateway != null) gateway.close();
    }

    /** A lease from a real gateway, of which only the acquisition and the watch have a valid credential. */
    private Lease leaseWith(int ttlMs, Supplier<String> laterCredential) throws Exception {
        AtomicInteger requests = new AtomicInteger();
        String key = Rig.property("key.worker");
        FencegateClient client = FencegateClient.builder(Rig.GATEWAYS.get(0))
                .credential(() -> requests.incrementAndGet() > 2 ? laterCredential.get() : key).build();
        Lease lease = client.acquire(Rig.resource(), Rig.ttl(ttlMs));
        Rig.eventually("the watch is requested", () -> requests.get() >= 2);
        lease.onLoss(lost::countDown);
        return lease;
    }

    /** A lease from the fake gateway. */
    private Lease lease(FakeGateway.Handler handler) throws Exception {
        gateway = new FakeGateway(handler);
        Lease lease = gateway.client().acquire("a", LeaseOptions.defaults());
        lease.onLoss(lost::countDown);
        return lease;
    }

    /** Waits until a lease, which has to be valid all the time, is valid for that long. */
    private static void becomesValidFor(Lease lease, int ms) throws Exception {
        Rig.eventually("it is renewed", () -> {
            lease.check();
            return lease.remaining().toMillis() > ms;
        });
    }

    @Test
    public void renewal_is_tried_again_after_credential_failed() throws Exception {
        AtomicInteger failures = new AtomicInteger();
        String key = Rig.property("key.worker");
        try (Lease lease = leaseWith(8_000, () -> {
            if (failures.getAndIncrement() == 0) throw new IllegalStateException("of the test");
            return failures.get() == 2 ? key + "\n" : key;
        })) {
            Rig.eventually("both have failed", () -> failures.get() >= 2);
            becomesValidFor(lease, 6_000);
        }
        assertEquals(1, lost.getCount());
    }

    @Test
    public void renewal_without_credential_reports_loss_in_time() throws Exception {
        long began = System.nanoTime();
        Lease lease = leaseWith(3_000, () -> "secret\n");
        assertTrue(lost.await(10, TimeUnit.SECONDS));
        assertTrue(System.nanoTime() - began < Duration.ofSeconds(8).toNanos());
        StringWriter text = new StringWriter();
        assertThrows(LeaseLostException.class, lease::close).printStackTrace(new PrintWriter(text, true));
        assertTrue(text.toString(),
                text.toString().contains("The source of the credential failed") && !text.toString().contains("secret"));
    }

    @Test
    public void renewal_with_blocked_credential_reports_loss_in_time() throws Exception {
        leaseWith(1_000, () -> {
            try {
                testEnded.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return "late";
        });
        assertTrue(lost.await(10, TimeUnit.SECONDS));
    }

    @Test
    public void renewals_without_success_are_few_until_validity_ends() throws Exception {
        lease((call, before) -> call.equals(FakeGateway.ACQUISITION) ? FakeGateway.lease(4_800, 4_800)
                : FakeGateway.problem(503, "no-quorum", 30));
        assertTrue(lost.await(10, TimeUnit.SECONDS));
        long renewals = gateway.count(FakeGateway.RENEWAL);
        assertTrue(renewals + " renewals", renewals >= 3 && renewals <= 9);
    }

    /**
     * Acquires a lease whose renewal is refused while a write is under way; {@code write} answers the writes,
     * the first one after that.
     */
    private Lease leaseLostDuringWrite(FakeGateway.Handler write) throws Exception {
        CountDownLatch written = new CountDownLatch(1);
        CountDownLatch renewed = new CountDownLatch(1);
        return lease((call, before) -> {
            if (call.equals(FakeGateway.ACQUISITION)) return FakeGateway.lease(3_000, 3_000);
            if (call.equals(FakeGateway.RENEWAL)) {
                written.await();
                renewed.countDown();
                return FakeGateway.problem(410, "lease-lost");
            }
            if (before == 0) {
                written.countDown();
                renewed.await();
                Thread.sleep(1_500); // so that the client has read the answer to its renewal
            }
            return write.answer(call, before);
        });
    }

    @Test
    public void releasing_write_whose_answer_is_lost_is_no_loss() throws Exception {
        Lease lease = leaseLostDuringWrite((call, before) -> {
            if (before == 0) return FakeGateway.NO_ANSWER;
            Thread.sleep(1_500); // longer than what is left of the validity
            return new FakeGateway.Reply(200, APPLIED, 0);
        });
        assertEquals(Optional.of(true), gateway.client().write(write(lease)).released());
        assertFalse(lease.isValid());
        lease.close();
        assertFalse(lost.await(200, TimeUnit.MILLISECONDS));
    }

    @Test
    public void releasing_write_that_fails_does_not_hide_loss() throws Exception {
        Lease lease = leaseLostDuringWrite((call, before) -> FakeGateway.problem(409, "expectation-failed"));
        FencegateException refused = assertThrows(FencegateException.class, () -> gateway.client().write(write(lease)));
        assertEquals(Optional.of(Slug.EXPECTATION_FAILED), refused.slug());
        assertTrue(lost.await(0, TimeUnit.SECONDS));
        assertThrows(LeaseLostException.class, lease::close);
    }

    private static Write write(Lease lease) {
        return Write.under(lease, Operation.delete("t").where("id", 1)).thenRelease();
    }
}
