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

    private static void remainsValid(Lease lease, int ms) throws Exception {
        long until = System.nanoTime() + Duration.ofMillis(ms).toNanos();
        while (System.nanoTime() - until < 0) {
            lease.check();
            Thread.sleep(5);
        }
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
    public void renewal_is_tried_before_retry_after_if_validity_ends() throws Exception {
        try (Lease lease = lease((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(9_600, 9_600);
            case FakeGateway.RENEWAL -> before < 2 ? FakeGateway.problem(before == 0 ? 503 : 429,
                    before == 0 ? "no-quorum" : "too-many-requests", 30) : FakeGateway.lease(30_000, 30_000);
            default -> FakeGateway.RELEASED;
        })) {
            becomesValidFor(lease, 20_000);
        }
    }

    @Test
    public void renewals_without_success_are_few_until_validity_ends() throws Exception {
        lease((call, before) -> call.equals(FakeGateway.ACQUISITION) ? FakeGateway.lease(4_800, 4_800)
                : FakeGateway.problem(503, "no-quorum", 30));
        assertTrue(lost.await(10, TimeUnit.SECONDS));
        long renewals = gateway.count(FakeGateway.RENEWAL);
        assertTrue(renewals + " renewals", renewals >= 3 && renewals <= 9);
    }

    @Test
    public void renewal_that_is_refused_is_not_tried_again() throws Exception {
        lease((call, before) -> call.equals(FakeGateway.ACQUISITION) ? FakeGateway.lease(3_000, 3_000)
                : FakeGateway.problem(409, "renewals-exhausted"));
        assertTrue(lost.await(10, TimeUnit.SECONDS));
        assertEquals(1, gateway.count(FakeGateway.RENEWAL));
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

    @Test
    public void write_that_needs_live_lease_marks_it_as_lost() throws Exception {
        Lease lease = lease((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(30_000, 30_000);
            case FakeGateway.WRITE -> FakeGateway.problem(410, "lease-lost");
            default -> FakeGateway.RELEASED;
        });
        assertThrows(LeaseLostException.class,
                () -> gateway.client().write(Write.under(lease, Operation.delete("t").where("id", 1)).requireLive()));
        assertTrue(lost.await(0, TimeUnit.SECONDS));
        assertThrows(LeaseLostException.class, lease::close);
        assertEquals("there is nothing to release", 0, gateway.count(FakeGateway.RELEASE));
    }

    @Test
    public void lease_of_a_repeated_request_is_renewed_in_time() throws Exception {
        try (Lease lease = lease((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(30_000, 4_000); // what is left of the validity
            case FakeGateway.RENEWAL -> FakeGateway.lease(30_000, 30_000);
            default -> FakeGateway.RELEASED;
        })) {
            remainsValid(lease, 4_500);
        }
    }

    @Test
    public void release_that_only_a_proxy_answered_has_not_released() throws Exception {
        Lease lease = lease((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(30_000, 30_000);
            default -> before == 0 ? new FakeGateway.Reply(429, "too many", 1) : FakeGateway.problem(410, "lease-lost");
        });
        assertThrows(LeaseLostException.class, lease::close);
        assertEquals(2, gateway.count(FakeGateway.RELEASE));
    }

    @Test
    public void release_that_was_answered_with_503_has_released() throws Exception {
        Lease lease = lease((call, before) -> switch (call) {
            case FakeGateway.ACQUISITION -> FakeGateway.lease(30_000, 30_000);
            default -> before == 0 ? FakeGateway.problem(503, "no-quorum", 1) : FakeGateway.problem(410, "lease-lost");
        });
        lease.close();
        assertEquals(2, gateway.count(FakeGateway.RELEASE));
    }

    private static Write write(Lease lease) {
        return Write.under(lease, Operation.delete("t").where("id", 1)).thenRelease();
    }
}
