package fencegate.client;

import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Stream;
import javax.net.ssl.SSLHandshakeException;

/**
 * Sends calls to the gateways, and repeats what may be repeated. Every call is safe to repeat: it reads,
 * or names a lease, or has an idempotency key.
 */
class Transport {
    private static final Duration FIRST_BACKOFF = Duration.ofMillis(50);
    private static final Duration LONGEST_BACKOFF = Duration.ofSeconds(2);
    private static final int DOUBLINGS_MAX = 10;
    /** The pause before a repeat at a gateway whose certificate is not trusted: longer than any call. */
    static final Duration NEVER = Duration.ofDays(3_650);
    /** A release that seals has done nothing when it is answered with 503. */
    static final String SEAL = "?seal=true";
    private static final int MISDIRECTED = 421;
    /** Statuses of a gateway that are repeated if the answer has Retry-After. */
    private static final Set<Integer> REPEATED = Set.of(409, 429, 503);

    private final HttpClient http;
    private final List<String> gateways;
    private final Supplier<String> credential;
    /** The value of Fencing-Cell; null: none is sent. */
    private final String cell;
    private final int answerBytesMax;
    /** The index of the gateway at which calls begin. */
    private final AtomicInteger current = new AtomicInteger();

    Transport(HttpClient http, List<String> gateways, Supplier<String> credential, String cell, int answerBytesMax) {
        this.http = http;
        this.gateways = gateways;
        this.credential = credential;
        this.cell = cell;
        this.answerBytesMax = answerBytesMax;
    }

    /** A call. {@code body} and {@code key} may be null. {@code within} is the time that one attempt may take. */
    record Call(String method, String path, Object body, String key, Duration within) {}

    /**
     * A successful answer. {@code sentAt} is the time of System.nanoTime before the attempt that was answered;
     * {@code replayed} says that an earlier attempt had the effect.
     */
    record Answer(int status, Object json, long sentAt, boolean replayed) {
        Members members() {
            return Members.of(json);
        }
    }

    /**
     * What an attempt led to, if not to an answer: the exception for the caller, whether a repeat may help,
     * and the least time until one at the same gateway.
     */
    record Failure(FencegateException exception, boolean repeatable, Duration pause, boolean sent) {}

    static final class Failed extends Exception {
        private static final long serialVersionUID = 1L;
        final transient Failure failure;

        Failed(Failure failure) {
            super(failure.exception);
            this.failure = failure;
        }
    }

    /**
     * Makes a call, and repeats it until the time {@code until} of System.nanoTime if that may help.
     * Throws OutcomeUnknownException if an attempt was sent and the last ones do not say what became of it.
     */
    Answer call(Call call, long until) throws InterruptedException {
        boolean unanswered = false;
        // Whether an attempt may have taken effect: a gateway goes on with a release that it has answered with 503.
        boolean begun = false;
        long[] notBefore = new long[gateways.size()];
        Arrays.fill(notBefore, now());
        int gateway = current.get();
        for (int attempt = 0;; attempt++) {
            try {
                return attempt(call, gateways.get(gateway), until);
            } catch (Failed failed) {
                Failure failure = failed.failure;
                unanswered |= failure.sent;
                begun |= unanswered || call.method.equals("DELETE") && !call.path.endsWith(SEAL)
                        && failure.exception instanceof UnavailableException
                        && failure.exception.problem().isPresent();
                if (!failure.repeatable) {
                    failure.exception.markRepeated(begun);
                    throw failure.exception;
                }
                long now = now();
                notBefore[gateway] = now + failure.pause.toNanos();
                if (failure.exception instanceof UnavailableException) {
                    // Another gateway may be able to serve the call.
                    int next = earliestAfter(gateway, notBefore);
                    current.compareAndSet(gateway, next);
                    gateway = next;
                }
                long pause = backoff(attempt) + Math.max(0, notBefore[gateway] - now);
                if (now + pause - until >= 0) throw unanswered ? unknown(failure.exception) : failure.exception;
                sleep(pause);
            }
        }
    }

    private static FencegateException unknown(FencegateException last) {
        return last instanceof OutcomeUnknownException ? last
                : new OutcomeUnknownException("The call was sent, and no answer arrived in time: " + last.getMessage(),
                        last);
    }

    /** Full jitter: a random part of a time that doubles with each attempt. */
    private static long backoff(int attempt) {
        long most = Math.min(LONGEST_BACKOFF.toNanos(), FIRST_BACKOFF.toNanos() << Math.min(attempt, DOUBLINGS_MAX));
        return ThreadLocalRandom.current().nextLong(most + 1);
    }

    /** Returns the index of the gateway that may be asked first: of several, the next one after {@code gateway}. */
    private static int earliestAfter(int gateway, long[] notBefore) {
        int earliest = (gateway + 1) % notBefore.length;
        for (int step = 2; step <= notBefore.length; step++) {
            int other = (gateway + step) % notBefore.length;
            if (notBefore[other] - notBefore[earliest] < 0) earliest = other;
        }
        return earliest;
    }

    /** A request for a stream of events: its answer, which is complete when the stream ends, and the gateway asked. */
    record EventStream(CompletableFuture<HttpResponse<Void>> answer, int gateway) {}

    /**
     * Requests a stream of events from the gateway at which calls begin, once and without a time limit. A reader reads
     * it; the body of another answer is discarded. Throws FencegateException if the source of the credential failed.
     */
    EventStream openStream(String path, Supplier<BodySubscriber<Void>> reader) {
        int gateway = current.get();
        try {
            HttpRequest request = request(gateways.get(gateway) + path).header("Accept", "text/event-stream").build();
            return new EventStream(http.sendAsync(request,
                    info -> isEventStream(info.headers()) ? reader.get() : BodySubscribers.discarding()), gateway);
        } catch (Failed failed) {
            throw failed.failure.exception;
        }
    }

    /** Requests a stream of the history after an event, or of new events if {@code afterId} is null. */
    CompletableFuture<HttpResponse<Flow.Publisher<List<ByteBuffer>>>> openHistory(String path, String afterId,
            int gateway) throws Failed {
        HttpRequest.Builder request = request(gateways.get(gateway) + path).header("Accept", "text/event-stream");
        if (afterId != null) request.header("Last-Event-ID", afterId);
        return http.sendAsync(request.build(), info -> BodySubscribers.ofPublisher());
    }

    int currentGateway() {
        return current.get();
    }

    int gateways() {
        return gateways.size();
    }

    String gateway(int number) {
        return gateways.get(number);
    }

    int answerBytesMax() {
        return answerBytesMax;
    }

    static boolean isEventStream(HttpHeaders headers) {
        return headers.firstValue("Content-Type").orElse("").startsWith("text/event-stream");
    }

    /** Lets calls that begin at a gateway begin at the next one. */
    void leave(int gateway) {
        current.compareAndSet(gateway, (gateway + 1) % gateways.size());
    }

    /** Returns a request of the method GET with the headers that all requests have. */
    private HttpRequest.Builder request(String uri) throws Failed {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(uri));
        if (cell != null) request.header("Fencing-Cell", cell);
        String credential = credential();
        if (credential != null) request.header("Authorization", "Bearer " + credential);
        return request;
    }

    /** Makes one attempt. */
    Answer attempt(Call call, String gateway, long until) throws Failed, InterruptedException {
        WithdrawableBody body = call.body == null ? null : new WithdrawableBody(Json.write(call.body));
        HttpRequest.Builder request = request(gateway + call.path)
                .method(call.method, body == null ? BodyPublishers.noBody() : body);
        if (call.body != null) request.header("Content-Type", "application/json");
        if (call.key != null) request.header("Idempotency-Key", call.key);
        long sentAt = now();
        long within = Math.min(call.within.toNanos(), until - sentAt);
        if (within <= 0) throw new Failed(notSent(gateway, new TimeoutException("no time was left"), Duration.ZERO));
        CompletableFuture<HttpResponse<byte[]>> sent =
                http.sendAsync(request.build(), info -> new LimitedBody(answerBytesMax));
        try {
            HttpResponse<byte[]> response = sent.get(within, TimeUnit.NANOSECONDS);
            return answer(response.statusCode(), response.headers(), response.body(), sentAt);
        } catch (TimeoutException e) {
            String time = " within " + TimeUnit.NANOSECONDS.toMillis(within) + " ms";
            throw new Failed(body != null && body.withdraw()
                    ? notSent(gateway, new HttpConnectTimeoutException("no connection" + time), Duration.ZERO)
                    : noAnswer(gateway, new HttpTimeoutException("no answer" + time)));
        } catch (ExecutionException e) {
            throw new Failed(failureOf(gateway, e.getCause()));
        } catch (Json.SyntaxException e) {
            throw new Failed(noAnswer(gateway, e));
        } finally {
            sent.cancel(true); // without effect on a call that has ended
        }
    }

    /**
     * Returns what the source of the credential gives. Its failure ends the call;
     * the message has nothing of what it gave or threw, which may be secret.
     */
    private String credential() throws Failed {
        try {
            String credential = this.credential.get();
            return credential == null ? null : visible(credential);
        } catch (RuntimeException e) {
            throw new Failed(new Failure(new FencegateException(null, "The source of the credential failed, "
                        + "or gave a text that cannot be sent.", e), false, Duration.ZERO, false));
        }
    }

    static Failure failureOf(String gateway, Throwable cause) {
        if (cause instanceof LimitedBody.TooLarge)
            return new Failure(new FencegateException(null, "The gateway's answer is too large: " + cause.getMessage(),
                    cause), false, Duration.ZERO, true);
        if (Stream.iterate(cause, Objects::nonNull, Throwable::getCause)
                .anyMatch(CertificateException.class::isInstance)) return notSent(gateway, cause, NEVER);
        // The JDK throws SSLHandshakeException also if the gateway stops during the handshake, so a repeat may help.
        if (cause instanceof ConnectException || cause instanceof HttpConnectTimeoutException
                || cause instanceof SSLHandshakeException) return notSent(gateway, cause, Duration.ZERO);
        return noAnswer(gateway, cause);
    }

    private static Failure notSent(String gateway, Throwable cause, Duration pause) {
        String message = "No connection to " + gateway + ": " + describe(cause);
        return new Failure(new UnavailableException(null, message, cause), true, pause, false);
    }

    private static Failure noAnswer(String gateway, Throwable cause) {
        String message = "No answer from " + gateway + ": " + describe(cause);
        return new Failure(new UnavailableException(null, message, cause), true, Duration.ZERO, true);
    }

    /** Names the first cause too: where a host is unknown or refuses, the JDK's ConnectException has no message. */
    private static String describe(Throwable cause) {
        Throwable first = cause;
        while (first.getCause() != null) first = first.getCause();
        return first == cause ? cause.toString() : cause + " (" + first + ")";
    }

    static Answer answer(int status, HttpHeaders headers, byte[] body, long sentAt)
            throws Failed, Json.SyntaxException {
        if (status >= 200 && status < 300)
            return new Answer(status, body.length == 0 ? null : Json.read(body), sentAt,
                    headers.firstValue("Idempotency-Replayed").isPresent());
        Optional<Duration> retryAfter = headers.firstValue("Retry-After").flatMap(Transport::seconds);
        if (!headers.firstValue("Content-Type").orElse("").startsWith("application/problem+json"))
            throw new Failed(ofProxy(status, retryAfter));
        Members members = Members.of(Json.read(body));
        if (!(members.values().get("type") instanceof String type && type.startsWith("/problems/")))
            throw new Failed(ofProxy(status, retryAfter));
        Problem problem = Problem.of(status, members, retryAfter);
        throw new Failed(new Failure(FencegateException.of(problem), isRepeatable(problem),
                retryAfter.orElse(Duration.ZERO), false));
    }

    /**
     * The answer of something between the client and the gateway. A proxy answers 421 if it does not know the cell
     * of the call. Its own errors, from 500 on, do not say whether a gateway has the call.
     */
    private static Failure ofProxy(int status, Optional<Duration> retryAfter) {
        String message = "The answer " + status + " is not from a gateway.";
        FencegateException exception = status == MISDIRECTED ? new FencegateException(Slug.MISDIRECTED_REQUEST, message,
                null) : new UnavailableException(null, message, null);
        boolean isServerError = status >= 500;
        return new Failure(exception, isServerError || status == 429, retryAfter.orElse(Duration.ZERO), isServerError);
    }

    private static boolean isRepeatable(Problem problem) {
        if (problem.outcomeUnknown()) return false; // the caller first finds out what became of it
        return REPEATED.contains(problem.status()) && problem.retryAfter().isPresent();
    }

    /** Reads Retry-After; its form with a date is what no gateway sends. */
    private static Optional<Duration> seconds(String text) {
        return text.matches("[0-9]{1,9}") ? Optional.of(Duration.ofSeconds(Long.parseLong(text))) : Optional.empty();
    }

    /** Requires that a credential can be sent. The error does not show it. */
    static String visible(String credential) {
        if (!credential.matches("[!-~]([ -~]*[!-~])?"))
            throw new IllegalArgumentException("a credential consists of printable ASCII characters");
        return credential;
    }

    /** Waits, with jitter, before a caller repeats something; at most until {@code until}. */
    void pauseBefore(int attempt, long until) throws InterruptedException {
        sleep(Math.max(0, Math.min(backoff(attempt), until - now())));
    }

    boolean isOver(long until) {
        return now() - until >= 0;
    }

    // What a gateway in memory does by the clock of the test.

    /** Returns the nanoseconds of the clock by which validity counts. */
    long now() {
        return System.nanoTime();
    }

    void sleep(long nanos) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(nanos);
    }

    /** Keeps a lease in a thread of its own. */
    void keep(Lease lease) {
        Thread keeper = new Thread(lease::keep, "fencegate-lease " + lease.resources().get(0));
        keeper.setDaemon(true);
        keeper.start();
    }

    /** Lets a lease be lost at its end, also while its thread is blocked by the source of the credential. */
    void endLater(Lease lease, long until) {
        CompletableFuture.delayedExecutor(until - now(), TimeUnit.NANOSECONDS).execute(lease::loseIfOver);
    }

    static String query(Map<String, String> parameters) {
        StringBuilder out = new StringBuilder();
        parameters.forEach((name, value) -> out.append(out.isEmpty() ? '?' : '&').append(encode(name)).append('=')
                .append(encode(value)));
        return out.toString();
    }

    static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
