package fencegate.client;

import java.io.ByteArrayOutputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Watches a lease: a gateway says at once in a stream of events that the lease has ended. A stream that broke, or that
 * no gateway could open, is requested again after a pause. A refusal ends the watch, and does not concern the lease.
 *
 * <p>It has no thread. The one that renews the lease calls {@link #proceed} when that is due; the monitor
 * {@code lease}, which guards the fields, is notified when something is due earlier than before.
 */
final class LeaseWatch {
    /** A gateway sends something each 10 s: a stream that is silent for longer than this is broken. */
    static final Duration SILENCE_MAX = Duration.ofSeconds(30);

    private static final Logger LOG = System.getLogger(LeaseWatch.class.getName());
    /** The pause before a further request; it doubles until a stream has begun, and is the longest after a limit. */
    private static final Duration FIRST_PAUSE = Duration.ofMillis(500);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(60);
    /** How many bytes of a line are kept: the lines that matter are shorter. */
    private static final int LINE_BYTES_MAX = 64;
    private static final Set<String> ENDS = Set.of("event: lost", "event: released");
    private static final int GONE = 410;
    private static final int TOO_MANY_REQUESTS = 429;

    private final Transport transport;
    private final String path;
    private final Duration silenceMax;
    private final Object lease;

    /** The request whose stream is open, or being opened; null: none. */
    private CompletableFuture<?> opened;
    private long pause = FIRST_PAUSE.toNanos();
    private long dueAt = System.nanoTime();
    /** Whether no stream is needed any more: the lease has ended, or a gateway has refused to watch it. */
    private boolean isOver;
    private boolean endNoticed;

    LeaseWatch(Transport transport, String path, Duration silenceMax, Object lease) {
        this.transport = transport;
        this.path = path;
        this.silenceMax = silenceMax;
        this.lease = lease;
    }

    /** Returns the nanoseconds until {@link #proceed} is due; Long.MAX_VALUE: it is never due again. */
    long nanosUntilDue() {
        synchronized (lease) {
            return isOver ? Long.MAX_VALUE : dueAt - System.nanoTime();
        }
    }

    /** Returns once whether a gateway has said that the lease has ended. */
    boolean takeEndNoticed() {
        synchronized (lease) {
            boolean noticed = endNoticed;
            endNoticed = false;
            return noticed;
        }
    }

    /** Requests the stream, or breaks the one that has been silent for too long. It does not wait for an answer. */
    void proceed() {
        CompletableFuture<?> silent;
        synchronized (lease) {
            silent = opened;
            dueAt = System.nanoTime() + silenceMax.toNanos();
        }
        if (silent == null) open();
        else silent.cancel(true);
    }

    /** Ends the watch. The caller does not own the monitor: what depends on the request runs in this thread. */
    void close() {
        CompletableFuture<?> open;
        synchronized (lease) {
            isOver = true;
            open = opened;
        }
        if (open != null) open.cancel(true);
    }

    private void open() {
        Transport.EventStream stream;
        try {
            stream = transport.openStream(path, Events::new);
        } catch (FencegateException e) { // of the source of the credential
            LOG.log(Level.DEBUG, "The stream that watches a lease was not requested.", e);
            pauseBeforeNext(false);
            return;
        }
        boolean closed;
        synchronized (lease) {
            opened = stream.answer();
            closed = isOver;
        }
        stream.answer().whenComplete((response, failure) -> handleEnd(stream.gateway(), response));
        if (closed) stream.answer().cancel(true);
    }

    /** Handles the end of a request; {@code response} is null if it had no answer, or if its stream broke. */
    private void handleEnd(int gateway, HttpResponse<Void> response) {
        int status = response == null ? 0 : response.statusCode();
        boolean isClientError = status >= 400 && status < 500;
        synchronized (lease) {
            opened = null;
            if (isOver) return;
            endNoticed |= status == GONE;
            isOver = isClientError && status != TOO_MANY_REQUESTS;
        }
        if (!isClientError) transport.leave(gateway);
        // Success without a stream is the answer of a proxy, or of a gateway that cannot watch a lease.
        boolean isNoStream = status / 100 == 2 && !Transport.isEventStream(response.headers());
        pauseBeforeNext(isNoStream || status == TOO_MANY_REQUESTS);
    }

    private void pauseBeforeNext(boolean longest) {
        synchronized (lease) {
            long next = longest ? LONGEST_PAUSE.toNanos() : pause;
            dueAt = System.nanoTime() + ThreadLocalRandom.current().nextLong(next / 2, next);
            pause = Math.min(2 * pause, LONGEST_PAUSE.toNanos());
            lease.notifyAll();
        }
    }

    /** Reads a stream line by line. The name of an event is enough: its data is the lease. */
    private final class Events implements BodySubscriber<Void> {
        private final CompletableFuture<Void> body = new CompletableFuture<>();
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();
        private Flow.Subscription subscription;

        @Override
        public CompletionStage<Void> getBody() {
            return body;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            subscription.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            boolean closed;
            synchronized (lease) {
                closed = isOver;
                pause = FIRST_PAUSE.toNanos();
                dueAt = System.nanoTime() + silenceMax.toNanos();
            }
            if (closed) {
                body.complete(null);
                subscription.cancel(); // the JDK may overlook that the request was cancelled while its answer began
                return;
            }
            for (ByteBuffer buffer : buffers) {
                while (buffer.hasRemaining()) read(buffer.get());
            }
        }

        private void read(byte next) {
            if (next != '\n') {
                if (line.size() < LINE_BYTES_MAX) line.write(next);
                return;
            }
            boolean isEnd = ENDS.contains(line.toString(StandardCharsets.UTF_8).stripTrailing());
            line.reset();
            if (!isEnd) return;
            synchronized (lease) {
                isOver = true;
                endNoticed = true;
                lease.notifyAll();
            }
        }

        @Override
        public void onError(Throwable cause) {
            body.completeExceptionally(cause);
        }

        @Override
        public void onComplete() {
            body.complete(null);
        }
    }
}
