package fencegate.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** Acquires the leases of a client: divides a long wait into several calls, and cancels what a thread gives up. */
final class Acquisitions {
    private static final Logger LOG = System.getLogger(Acquisitions.class.getName());
    private static final String WAIT_POINTER = "/wait_ms";
    /**
     * How long a request that was given up is tried to be cancelled; a part of it for one attempt,
     * so that other gateways can be asked.
     */
    private static final Duration CANCEL_TIME = Duration.ofSeconds(3);
    private static final Duration CANCEL_ATTEMPT = Duration.ofSeconds(1);

    private final FencegateClient client;
    private final Transport transport;
    private final Duration retryFor;
    /**
     * The gateway's lease.max_wait_ms, from its latest answer to a call that found the resource locked.
     * Until then a call does not wait.
     */
    private volatile long maxWaitMs;

    Acquisitions(FencegateClient client, Transport transport, Duration retryFor) {
        this.client = client;
        this.transport = transport;
        this.retryFor = retryFor;
    }

    /** The {@code body} is that of the request, without its wait. */
    Lease acquire(Map<String, Object> body, LeaseOptions options) throws InterruptedException {
        String key = UUID.randomUUID().toString();
        try {
            return acquire(body, key, options);
        } catch (InterruptedException e) {
            cancel(body, key);
            throw e;
        }
    }

    /** Leaves in {@code body} the latest request that was sent. */
    private Lease acquire(Map<String, Object> body, String key, LeaseOptions options) throws InterruptedException {
        long giveUpAt = transport.now() + options.waitTime().toNanos();
        long repeatUntil = giveUpAt + retryFor.toNanos();
        for (int attempt = 0;; attempt++) {
            Duration wait = Duration.ofMillis(
                    Math.min(maxWaitMs, Math.max(0, TimeUnit.NANOSECONDS.toMillis(giveUpAt - transport.now()))));
            body.put("wait_ms", wait.toMillis());
            try {
                Lease lease = new Lease(client, client.call("POST", "/v1/leases", body, key, wait), options);
                lease.check();
                return lease;
            } catch (LeaseLostException e) {
                // The grant was too late; with the key a repeat gets the same lease, or a new one.
                if (transport.isOver(repeatUntil)) throw e;
                transport.pauseBefore(attempt, repeatUntil);
            } catch (ResourceLockedException e) {
                if (transport.isOver(giveUpAt)) throw e;
                maxWaitMs = e.problem().flatMap(problem -> problem.number("max_wait_ms")).orElse(0L);
                if (maxWaitMs == 0) transport.pauseBefore(attempt, giveUpAt); // the gateway lets no call wait
            } catch (FencegateException e) {
                boolean shorter = !wait.isZero() && e.problem().stream().flatMap(problem -> problem.faults().stream())
                        .anyMatch(fault -> fault.pointer().equals(WAIT_POINTER));
                if (!shorter) throw e;
                maxWaitMs = 0; // the limit was lowered meanwhile; the next answer has the new one
            }
        }
    }

    /**
     * Ends the wait of a request that was given up, and releases what it was granted, in a thread of its own,
     * which a program that ends waits for.
     */
    private void cancel(Map<String, Object> body, String key) {
        new Thread(() -> {
            try {
                transport.call(new Transport.Call("POST", "/v1/leases/cancel", body, key, CANCEL_ATTEMPT),
                        transport.now() + CANCEL_TIME.toNanos());
            } catch (FencegateException | InterruptedException e) {
                LOG.log(Level.WARNING, "A request for a lease was given up and not cancelled; "
                        + "if it was granted, the lease ends with its ttl.", e);
            }
        }, "fencegate-cancel").start();
    }
}
