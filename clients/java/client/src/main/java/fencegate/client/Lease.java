package fencegate.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * The right to one or several resources for a limited time. A daemon thread renews it, each third of its ttl,
 * until it is released or lost.
 * Beside that a stream of a gateway tells of its end at once, for example when it is revoked.
 *
 * <p>Validity is counted from the sending of the request that was granted or renewed, by {@link System#nanoTime},
 * so that a pause of this process or of the network makes it shorter and never longer.
 * A lease is safe for use by several threads.
 */
public final class Lease implements AutoCloseable {
    private static final Logger LOG = System.getLogger(Lease.class.getName());
    private static final int RENEWALS_PER_TTL = 3;
    private static final Duration SHORTEST_PAUSE = Duration.ofMillis(20);
    private static final int FIRST_SERVER_ERROR = 500;

    private enum State { HELD, LOST, RELEASED }

    private enum Duty { RENEW, WATCH, END }

    private final FencegateClient client;
    private final Transport transport;
    private final String leaseId;
    private final List<String> resources;
    private final LeaseOptions.Mode mode;
    private final List<String> shared;
    private final long fencingToken;
    private final Optional<String> owner;
    private final long ttlMs;
    private final boolean seal;

    private final Object lock = new Object();
    private final LeaseWatch watch;
    private final List<Runnable> lossListeners = new ArrayList<>();
    private State state = State.HELD;
    private LeaseLostException loss;
    /** Whether the nodes may still have a lost lease, because the database alone has refused it. */
    private boolean releasable;
    /**
     * How many writes that release this hold have no result yet, and the loss that was found meanwhile.
     * What a renewal finds may be the effect of such a write.
     */
    private int releasingWrites;
    private LeaseLostException pendingLoss;
    private boolean renewing;
    /** Why the token is not known to be sealed after a release that should; null: it is. */
    private FencegateException sealFailure;
    /** Why the latest renewal failed; null if it did not. */
    private RuntimeException renewalFailure;
    private long validUntil;
    private long renewAt;

    Lease(FencegateClient client, Transport.Answer granted, LeaseOptions options) {
        Members members = granted.members();
        this.client = client;
        this.transport = client.transport;
        this.leaseId = members.text("lease_id");
        this.resources = members.optional("resource", String.class).map(List::of)
                .orElseGet(() -> members.texts("resources"));
        this.mode = members.optional("mode", String.class).filter("shared"::equals)
                .map(shared -> LeaseOptions.Mode.SHARED).orElse(LeaseOptions.Mode.EXCLUSIVE);
        this.shared = members.texts("shared");
        this.fencingToken = members.number("fencing_token");
        this.owner = members.optional("owner", String.class);
        this.ttlMs = members.number("ttl_ms");
        this.renewing = options.renewing();
        this.seal = options.seal();
        this.validUntil = granted.sentAt();
        this.watch = client.watch(leaseId, lock);
        extend(granted);
        transport.keep(this);
    }

    /**
     * Returns the resources.
     *
     * @return one or several names
     */
    public List<String> resources() {
        return resources;
    }

    /**
     * Returns how the lease has its resources.
     *
     * @return the mode
     */
    public LeaseOptions.Mode mode() {
        return mode;
    }

    /**
     * Returns what the lease shares beside its exclusive resources.
     *
     * @return none or several names
     */
    public List<String> shared() {
        return shared;
    }

    /**
     * Returns the number that each write under this lease carries,
     * and that is higher than those of all earlier leases on its resources.
     *
     * @return at least 1, less than 2^53
     */
    public long fencingToken() {
        return fencingToken;
    }

    /**
     * Returns the proof of the grant, a secret: who has it, and this client's credential, can use the lease.
     *
     * @return a signed text
     */
    public String leaseId() {
        return leaseId;
    }

    /**
     * Returns the owner.
     *
     * @return empty if the lease has none
     */
    public Optional<String> owner() {
        return owner;
    }

    /** Returns whether the lease is held: false after a loss, a release, and the end of the validity. */
    boolean isValid() {
        synchronized (lock) {
            return isHeld() && !transport.isOver(validUntil);
        }
    }

    /**
     * Returns how long the lease is valid if it is not renewed.
     *
     * @return zero if it is over
     */
    public Duration remaining() {
        synchronized (lock) {
            return isHeld() ? Duration.ofNanos(Math.max(0, validUntil - transport.now())) : Duration.ZERO;
        }
    }

    /**
     * Requires that the lease is held, before a step of the work.
     *
     * @throws LeaseLostException if it is not
     */
    public void check() {
        synchronized (lock) {
            if (state == State.LOST) throw lost();
            if (!isValid()) throw new LeaseLostException("The lease on " + resources
                    + (state == State.RELEASED ? " was released." : " is no longer valid."), null);
        }
    }

    /**
     * Adds an action for the loss of the lease: it expired, was revoked, could not be renewed in time,
     * or a write under it was refused because of the lease (410) or its token (412).
     * A release is no loss. While a write that releases the lease has no result, a loss is reported only afterwards,
     * and not if the write was applied.
     *
     * @param action is called once, by the thread that renews the lease or notices the loss,
     *     or immediately if the lease is lost already; it should return soon
     */
    public void onLoss(Runnable action) {
        synchronized (lock) {
            if (state != State.LOST) {
                lossListeners.add(action);
                return;
            }
        }
        action.run();
    }

    /**
     * Releases the lease, so that the next caller can have it. Repeated calls do nothing.
     * A lease that was lost because its token was refused is released too.
     * With {@link LeaseOptions#seal} the token is sealed unless this throws, also in a repeated call.
     *
     * @throws LeaseLostException if the lease was lost before, so that others may have worked at the same time
     * @throws UnavailableException if no gateway could release it; it then ends with its ttl
     * @throws FencegateException if the gateway refuses the call
     * @throws InterruptedException if this thread is interrupted
     */
    public void release() throws InterruptedException {
        loseIfOver();
        LeaseLostException lost = null;
        long until;
        synchronized (lock) {
            if (state == State.RELEASED) {
                if (sealFailure != null) throw sealFailure;
                return;
            }
            if (state == State.LOST) {
                lost = lost();
                if (!releasable) throw lost;
                releasable = false;
            } else {
                state = State.RELEASED;
                if (seal) sealFailure = new FencegateException(null,
                        "It is not known whether the token of the lease on " + resources + " is sealed.", null);
            }
            until = validUntil;
            lock.notifyAll();
        }
        watch.close();
        try {
            client.release(leaseId, until, seal && lost == null);
            synchronized (lock) {
                sealFailure = null;
            }
        } catch (FencegateException | InterruptedException e) {
            if (lost == null) throw e;
            lost.addSuppressed(e);
            if (e instanceof InterruptedException) Thread.currentThread().interrupt();
        }
        if (lost != null) throw lost;
    }

    /**
     * Releases the lease as {@link #release} does. Any failure but a loss is logged, and the lease ends with its ttl;
     * with {@link LeaseOptions#seal} it is thrown.
     *
     * @throws LeaseLostException if the lease was lost before
     * @throws FencegateException if the token is not known to be sealed, but should be
     */
    @Override
    public void close() {
        boolean interrupted = Thread.interrupted(); // an interrupted thread releases too
        try {
            release();
        } catch (InterruptedException e) {
            interrupted = true;
        } catch (LeaseLostException e) {
            throw e;
        } catch (RuntimeException e) {
            if (seal) throw e;
            LOG.log(Level.WARNING, "The lease on " + resources + " was not released and ends with its ttl.", e);
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    /** Begins a write that releases this hold. */
    void beginReleasingWrite() {
        synchronized (lock) {
            releasingWrites++;
        }
    }

    /**
     * Ends a write that releases this hold. {@code released}: it was applied;
     * otherwise a loss that was found meanwhile is reported now.
     */
    void endReleasingWrite(boolean released) {
        LeaseLostException found;
        synchronized (lock) {
            releasingWrites--;
            if (released && state == State.HELD) state = State.RELEASED;
            found = pendingLoss;
            lock.notifyAll();
        }
        if (released) watch.close();
        if (found != null) lose(found);
    }

    /** Marks the lease as lost because a gateway or the database has refused a write under it. */
    void loseAfter(FencegateException refusal) {
        synchronized (lock) {
            if (state == State.HELD) releasable = refusal instanceof StaleFencingTokenException;
        }
        lose(new LeaseLostException("The lease on " + resources + " is lost: " + refusal.getMessage(), null));
    }

    boolean isHeld() {
        synchronized (lock) {
            return state == State.HELD && pendingLoss == null;
        }
    }

    long validUntil() {
        synchronized (lock) {
            return validUntil;
        }
    }

    /** Returns when the lease is renewed next, or else its end. */
    long renewalDueAt() {
        synchronized (lock) {
            return renewing && renewAt - validUntil < 0 ? renewAt : validUntil;
        }
    }

    private void extend(Transport.Answer answer) {
        Members members = answer.members();
        long until = answer.sentAt()
                + TimeUnit.MILLISECONDS.toNanos(members.number("served_ms") + members.number("validity_ms"));
        synchronized (lock) {
            if (until - validUntil > 0) validUntil = until; // a renewal never shortens the lease
            // A repeated request gets what is left of the validity, which may be much shorter than the ttl.
            renewAt = answer.sentAt()
                    + Math.min(TimeUnit.MILLISECONDS.toNanos(ttlMs), until - answer.sentAt()) / RENEWALS_PER_TTL;
            renewalFailure = null;
        }
        transport.endLater(this, until);
    }

    /** Renews and watches the lease until it is released or over. */
    void keep() {
        try {
            for (Duty duty = awaitDuty(); duty != Duty.END; duty = awaitDuty()) {
                if (duty == Duty.WATCH) watch.proceed();
                else renew();
            }
        } catch (InterruptedException e) {
            // Only the source of the credential or an action could do that; the lease ends with its validity.
            LOG.log(Level.WARNING, "The renewal of the lease on " + resources + " was interrupted.", e);
        }
    }

    /** Waits until something has to be done: END if the lease was released or is over. */
    private Duty awaitDuty() throws InterruptedException {
        synchronized (lock) {
            while (isHeld()) {
                long now = transport.now();
                if (validUntil - now <= 0) break;
                long renewal = renewalDueAt();
                if (renewal - now <= 0 || watch.takeEndNoticed()) return Duty.RENEW;
                long watching = watch.nanosUntilDue();
                if (watching <= 0) return Duty.WATCH;
                TimeUnit.NANOSECONDS.timedWait(lock, Math.min(renewal - now, watching));
            }
        }
        loseIfOver();
        return Duty.END;
    }

    /**
     * Renews the lease, or asks for its state if it is not to be renewed. Makes one attempt, which takes no longer than
     * the lease is valid.
     */
    void renew() throws InterruptedException {
        long until;
        boolean extending;
        synchronized (lock) {
            until = validUntil;
            extending = renewing;
        }
        try {
            if (extending) extend(client.renew(leaseId, ttlMs, until));
            else client.inspect(leaseId, ttlMs, until);
        } catch (LeaseLostException e) {
            lose(e);
        } catch (RuntimeException e) {
            LOG.log(Level.DEBUG, "The lease on " + resources + " was not renewed; it is valid for "
                    + remaining().toMillis() + " ms.", e);
            scheduleAfter(e);
        }
    }

    /**
     * Decides about the next renewal after one that failed, or for whose repeats the validity is too short.
     * A gateway's refusal without Retry-After ends the renewals. After any other failure half
     * of the remaining validity is a pause, also if Retry-After is longer, because the lease would be lost then.
     */
    private void scheduleAfter(RuntimeException failure) {
        boolean refused = failure instanceof FencegateException known && known.slug().isPresent()
                && known.problem().map(problem -> problem.status() < FIRST_SERVER_ERROR
                        && problem.retryAfter().isEmpty()).orElse(true);
        synchronized (lock) {
            renewalFailure = failure;
            long now = transport.now();
            long pause = (validUntil - now) / 2;
            renewing &= !refused;
            renewAt = pause < SHORTEST_PAUSE.toNanos() ? validUntil : now + pause;
        }
    }

    /** Marks the lease as lost if its validity is over. */
    void loseIfOver() {
        RuntimeException cause;
        synchronized (lock) {
            if (state != State.HELD || !transport.isOver(validUntil)) return;
            cause = renewalFailure;
        }
        lose(new LeaseLostException("The lease on " + resources + " was not renewed in time.", cause));
    }

    /**
     * Marks a held lease as lost, and calls the listeners;
     * both only later if a write that releases the lease has no result yet.
     */
    private void lose(LeaseLostException cause) {
        List<Runnable> listeners;
        synchronized (lock) {
            if (state != State.HELD) return;
            if (releasingWrites > 0) {
                if (pendingLoss == null) pendingLoss = cause;
                return;
            }
            state = State.LOST;
            loss = cause;
            listeners = List.copyOf(lossListeners);
            lossListeners.clear();
            lock.notifyAll();
        }
        watch.close();
        for (Runnable listener : listeners) {
            try {
                listener.run();
            } catch (RuntimeException e) {
                LOG.log(Level.ERROR, "An action for the loss of the lease on " + resources + " failed.", e);
            }
        }
    }

    /** Returns a new exception for each caller, with the stack of that caller. */
    private LeaseLostException lost() {
        return new LeaseLostException(loss.getMessage(), loss);
    }
}
