package fencegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.junit.rules.Timeout;

/**
 * Calls that are repeated, at the same gateway or at another, and those that are not;
 * leases that come too late, or whose release fails.
 */
public final class CallTest {
    @Rule
    public final Timeout limit = Timeout.seconds(40);
    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private static long millisSince(long began) {
        return Duration.ofNanos(System.nanoTime() - began).toMillis();
    }

    private static Write write() {
        return Write.oneShot(List.of("a"), LeaseOptions.defaults(), Operation.delete("t").where("id", 1))
                .idempotencyKey("k");
    }

    @Test
    public void release_that_is_refused_does_not_hide_result() throws Exception {
        AtomicInteger credentials = new AtomicInteger();
        try (FakeGateway gateway = new FakeGateway((call, before) -> call.equals(FakeGateway.ACQUISITION)
                ? FakeGateway.lease(30_000, 30_000)
                : FakeGateway.problem(403, "forbidden"))) {
            assertEquals("done", gateway.client().withLease("a", LeaseOptions.defaults(), lease -> "done"));
            assertEquals(1, gateway.count(FakeGateway.RELEASE));
            FencegateClient once = FencegateClient.builder(gateway.uri()).credential(() -> {
                if (credentials.getAndIncrement() > 0) throw new IllegalStateException("of the test");
                return "key";
            }).build();
            assertEquals("done", once.withLease("a", LeaseOptions.defaults(), lease -> "done"));
            Lease lease = gateway.client().acquire("a", LeaseOptions.defaults());
            assertEquals(Optional.of(Slug.FORBIDDEN), assertThrows(FencegateException.class, lease::release).slug());
        }
    }

    @Test
    public void retry_after_of_one_gateway_does_not_delay_another() throws Exception {
        try (FakeGateway first = new FakeGateway((call, before) -> before == 0
                ? FakeGateway.problem(503, "no-quorum", 1) : FakeGateway.lease(30_000, 30_000));
                FakeGateway second =
                        new FakeGateway((call, before) -> FakeGateway.problem(503, "storage-unavailable", 30))) {
            FencegateClient client = FencegateClient.builder(first.uri(), second.uri())
                    .retryFor(Duration.ofSeconds(5)).build();
            long began = System.nanoTime();
            client.acquire("a", LeaseOptions.defaults().notRenewed());
            assertTrue(millisSince(began) + " ms", millisSince(began) >= 1_000);
            assertEquals(List.of(FakeGateway.ACQUISITION), second.calls);
            assertEquals(List.of(FakeGateway.ACQUISITION, FakeGateway.ACQUISITION), first.calls);
        }
    }

    @Test
    public void write_without_answer_or_credential_is_outcome_unknown() throws Exception {
        AtomicInteger credentials = new AtomicInteger();
        try (FakeGateway gateway = new FakeGateway((call, before) -> FakeGateway.NO_ANSWER)) {
            FencegateClient client = FencegateClient.builder(gateway.uri()).credential(() -> {
                if (credentials.getAndIncrement() > 0) throw new IllegalStateException("of the test");
                return "key";
            }).build();
            OutcomeUnknownException unknown = assertThrows(OutcomeUnknownException.class, () -> client.write(write()));
            assertEquals(Optional.of("k"), unknown.idempotencyKey());
            FencegateException failed = assertThrows(FencegateException.class, () -> client.write(write()));
            assertFalse("nothing was sent", failed instanceof UnavailableException);
            assertTrue(failed.getCause() instanceof IllegalStateException);
        }
    }

    @Test
    public void gateway_that_is_not_trusted_is_final_and_not_sent() throws Exception {
        HttpsServer stranger = HttpsServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        stranger.setHttpsConfigurator(new HttpsConfigurator(ownCertificate()));
        stranger.start();
        URI uri = URI.create("https://127.0.0.1:" + stranger.getAddress().getPort());
        try (FakeGateway other = new FakeGateway((call, before) -> FakeGateway.lease(30_000, 30_000))) {
            long began = System.nanoTime();
            UnavailableException failed =
                    assertThrows(UnavailableException.class, () -> FencegateClient.builder(uri).build().write(write()));
            assertFalse("nothing was sent", failed instanceof OutcomeUnknownException);
            assertTrue(millisSince(began) + " ms", millisSince(began) < 10_000);
            assertTrue(FencegateClient.builder(uri, other.uri())
                    .build().acquire("a", LeaseOptions.defaults().notRenewed()).isValid());
        } finally {
            stranger.stop(0);
        }
    }

    @Test
    public void gateway_without_connection_is_named_with_first_cause() throws Exception {
        ServerSocket closed = new ServerSocket(0);
        closed.close();
        String gateway = "http://127.0.0.1:" + closed.getLocalPort();
        FencegateClient client =
                FencegateClient.builder(URI.create(gateway)).retryFor(Duration.ofMillis(300)).build();
        String message = assertThrows(UnavailableException.class, () -> client.write(write())).getMessage();
        assertTrue(message, message.startsWith("No connection to " + gateway + ": java.net.ConnectException (java."));
    }

    @Test
    public void deadline_before_any_connection_has_changed_nothing() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            List<Socket> waiting = new ArrayList<>(); // they fill the queue of connections that nobody accepts
            try {
                while (true) {
                    waiting.add(new Socket());
                    waiting.get(waiting.size() - 1).connect(socket.getLocalSocketAddress(), 200);
                }
            } catch (SocketTimeoutException e) {
                URI gateway = URI.create("http://127.0.0.1:" + socket.getLocalPort());
                FencegateClient client =
                        FencegateClient.builder(gateway).retryFor(Duration.ofMillis(300)).build();
                assertEquals(UnavailableException.class,
                        assertThrows(FencegateException.class, () -> client.write(write())).getClass());
            } finally {
                for (Socket each : waiting) each.close();
            }
        }
    }

    @Test
    public void gateway_that_stops_in_handshake_is_repeated_and_not_sent() throws Exception {
        AtomicInteger connections = new AtomicInteger();
        try (ServerSocket socket = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            Thread accepting = new Thread(() -> {
                try {
                    while (true) {
                        socket.accept().close();
                        connections.incrementAndGet();
                    }
                } catch (java.io.IOException e) { // the test has ended
                    return;
                }
            });
            accepting.start();
            AtomicInteger credentials = new AtomicInteger();
            FencegateClient client = FencegateClient.builder(URI.create("https://127.0.0.1:" + socket.getLocalPort()))
                    .credential(() -> {
                // An attempt that the time limit ends may have been sent.
                if (credentials.getAndIncrement() > 2) throw new IllegalStateException("of the test");
                return "key";
            }).build();
            FencegateException failed = assertThrows(FencegateException.class, () -> client.write(write()));
            assertTrue("nothing was sent: " + failed, failed.getCause() instanceof IllegalStateException);
            assertTrue(connections.get() > 1);
        }
    }

    /** A certificate that nobody has issued. */
    private SSLContext ownCertificate() throws Exception {
        Path file = folder.getRoot().toPath().resolve("own.p12");
        char[] password = "of the test".toCharArray();
        Process keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin/keytool").toString(),
                "-genkeypair", "-alias", "own", "-keyalg", "EC", "-dname", "CN=own",
                "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12", "-keystore", file.toString(), "-storepass",
                new String(password)).inheritIO().start();
        assertEquals(0, keytool.waitFor());
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(file)) {
            keys.load(in, password);
        }
        KeyManagerFactory managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        managers.init(keys, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(managers.getKeyManagers(), null, null);
        return context;
    }
}
