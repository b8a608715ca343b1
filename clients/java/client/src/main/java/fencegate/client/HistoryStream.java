package fencegate.client;

import java.io.ByteArrayOutputStream;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** Follows the history by streams of events, each of which goes on after the one before. */
final class HistoryStream {
    private static final long PAUSE_MS = 500;
    private static final int FIRST_SERVER_ERROR = 500;

    private final Transport transport;
    private final String path;
    private final Consumer<HistoryEvent> action;
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    private final Set<Integer> untrusted = new HashSet<>();
    private String position;
    private String id;
    private String data;

    HistoryStream(Transport transport, String path, String afterId, Consumer<HistoryEvent> action) {
        if (afterId != null && !afterId.matches("[!-~]+"))
            throw new IllegalArgumentException("afterId has to be the id of an event of the stream");
        this.transport = transport;
        this.path = path;
        this.position = afterId;
        this.action = action;
    }

    void follow() throws InterruptedException {
        for (;;) {
            long nanos = 0;
            int gateway = transport.currentGateway();
            try {
                readStream(gateway);
            } catch (Transport.Failed failed) {
                nanos = pauseAfter(failed.failure, gateway);
            }
            transport.leave(gateway);
            long jitter = ThreadLocalRandom.current().nextLong(PAUSE_MS);
            transport.sleep(nanos + TimeUnit.MILLISECONDS.toNanos(PAUSE_MS / 2 + jitter));
        }
    }

    /** Returns the least nanoseconds until the next request; throws the failure if no later one can succeed. */
    private long pauseAfter(Transport.Failure failure, int gateway) {
        if (failure.pause().equals(Transport.NEVER)) {
            untrusted.add(gateway);
            if (untrusted.size() == transport.gateways()) throw failure.exception();
            return 0;
        }
        boolean isServerError = failure.exception().problem().map(Problem::status).orElse(0) >= FIRST_SERVER_ERROR;
        if (!failure.repeatable() && !isServerError) throw failure.exception();
        return failure.pause().toNanos();
    }

    /** Reads one stream until it ends or breaks. */
    private void readStream(int gateway) throws Transport.Failed, InterruptedException {
        CompletableFuture<HttpResponse<Flow.Publisher<List<ByteBuffer>>>> sent =
                transport.openHistory(path, position, gateway);
        try {
            HttpResponse<Flow.Publisher<List<ByteBuffer>>> response =
                    sent.get(LeaseWatch.SILENCE_MAX.toNanos(), TimeUnit.NANOSECONDS);
            if (response.statusCode() / 100 == 2 && Transport.isEventStream(response.headers())) {
                readEvents(response.body());
                return;
            }
            LimitedBody body = new LimitedBody(transport.answerBytesMax());
            response.body().subscribe(body);
            byte[] content = body.getBody().toCompletableFuture().get(LeaseWatch.SILENCE_MAX.toNanos(),
                    TimeUnit.NANOSECONDS);
            Transport.answer(response.statusCode(), response.headers(), content, transport.now());
        } catch (ExecutionException e) {
            throw new Transport.Failed(Transport.failureOf(transport.gateway(gateway), e.getCause()));
        } catch (TimeoutException | Json.SyntaxException e) {
            // The next stream may be in order.
        } finally {
            sent.cancel(true);
        }
    }

    private void readEvents(Flow.Publisher<List<ByteBuffer>> body) throws InterruptedException, Json.SyntaxException {
        line.reset();
        id = position;
        data = null;
        Pieces pieces = new Pieces();
        body.subscribe(pieces);
        try {
            for (Optional<List<ByteBuffer>> piece = pieces.next(); piece.isPresent(); piece = pieces.next()) {
                for (ByteBuffer buffer : piece.get()) {
                    while (buffer.hasRemaining()) read(buffer.get());
                }
            }
        } finally {
            if (pieces.subscription != null) pieces.subscription.cancel();
        }
    }

    private void read(byte next) throws Json.SyntaxException {
        if (next != '\n') {
            if (line.size() == transport.answerBytesMax()) throw new FencegateException(null,
                    "A line of the stream is larger than " + line.size() + " bytes.", null);
            line.write(next);
            return;
        }
        String text = line.toString(StandardCharsets.UTF_8).stripTrailing();
        line.reset();
        if (text.startsWith("id: ")) id = text.substring("id: ".length());
        else if (text.startsWith("data: ")) data = text.substring("data: ".length());
        else if (text.isEmpty()) endMessage();
    }

    private void endMessage() throws Json.SyntaxException {
        position = id;
        untrusted.clear();
        if (data == null) return;
        HistoryEvent event = HistoryEvent.of(Members.of(Json.read(data)));
        data = null;
        action.accept(event);
    }

    /** The pieces of a body, of which one is read ahead. */
    private static final class Pieces implements Flow.Subscriber<List<ByteBuffer>> {
        private final BlockingQueue<Optional<List<ByteBuffer>>> received = new LinkedBlockingQueue<>();
        private volatile Flow.Subscription subscription;

        /** Returns the next piece; empty if the stream has ended, or is silent for too long. */
        Optional<List<ByteBuffer>> next() throws InterruptedException {
            Optional<List<ByteBuffer>> piece =
                    received.poll(LeaseWatch.SILENCE_MAX.toNanos(), TimeUnit.NANOSECONDS);
            if (piece == null || piece.isEmpty()) return Optional.empty();
            subscription.request(1);
            return piece;
        }

        @Override
        public void onSubscribe(Flow.Subscription given) {
            subscription = given;
            given.request(1);
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            received.add(Optional.of(buffers));
        }

        @Override
        public void onError(Throwable cause) {
            received.add(Optional.empty());
        }

        @Override
        public void onComplete() {
            received.add(Optional.empty());
        }
    }
}
