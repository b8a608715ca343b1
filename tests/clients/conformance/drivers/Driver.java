import fencegate.client.FencegateClient;
import fencegate.client.FencegateException;
import fencegate.client.HistoryEvent;
import fencegate.client.Lease;
import fencegate.client.LeaseLostException;
import fencegate.client.LeaseOptions;
import fencegate.client.Operation;
import fencegate.client.OutcomeUnknownException;
import fencegate.client.ResourceLockedException;
import fencegate.client.StaleFencingTokenException;
import fencegate.client.UnavailableException;
import fencegate.client.Write;
import fencegate.client.WriteResult;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The conformance driver of the Java client. The JDK has no JSON: a line has the addresses, retry_for_ms and the
 * commands, {@code NAME=VALUE,…} each, with tabs between them.
 */
public final class Driver {
    private static final Operation OPERATION = Operation.call("f");
    private static Lease lease;
    private static CountDownLatch lost;

    private Driver() {}

    /** Prints the outcomes of each scenario as JSON. */
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) run(line.split("\t"));
        System.exit(0);
    }

    private static void run(String[] arguments) throws Exception {
        List<URI> urls = Arrays.stream(arguments[0].split(" ")).map(URI::create).toList();
        FencegateClient client = FencegateClient
                .builder(urls.get(0), urls.subList(1, urls.size()).toArray(URI[]::new))
                .retryFor(Duration.ofMillis(Long.parseLong(arguments[1]))).build();
        StringBuilder out = new StringBuilder();
        for (String text : Arrays.asList(arguments).subList(2, arguments.length)) {
            Map<String, String> command = Arrays.stream(text.split(",")).map(part -> part.split("=", 2))
                    .collect(Collectors.toMap(part -> part[0], part -> part[1]));
            String outcome;
            try {
                outcome = "\"ok\": true" + perform(client, command);
            } catch (InterruptedException e) {
                outcome = "\"error\": \"cancelled\"";
            } catch (RuntimeException e) {
                outcome = outcomeOf(e);
            }
            out.append(out.isEmpty() ? "[" : ", ").append("{").append(outcome).append("}");
        }
        System.out.println(out + "]");
    }

    private static String perform(FencegateClient client, Map<String, String> command) throws Exception {
        switch (command.get("do")) {
            case "acquire" -> {
                String cancelling = command.get("cancel_after_ms");
                if (cancelling != null) interruptAfter(Long.parseLong(cancelling));
                Duration wait = Duration.ofMillis(Long.parseLong(command.getOrDefault("wait_ms", "0")));
                boolean seal = Boolean.parseBoolean(command.get("seal"));
                LeaseOptions options = LeaseOptions.defaults().waitTime(wait).seal(seal)
                        .mode("shared".equals(command.get("mode")) ? LeaseOptions.Mode.SHARED
                                : LeaseOptions.Mode.EXCLUSIVE)
                        .shared(command.containsKey("shared") ? List.of(command.get("shared").split(" ")) : List.of());
                String anyOf = command.get("any_of");
                lease = anyOf == null ? client.acquire("a", options)
                        : client.acquireAnyOf(List.of(anyOf.split(" ")), options);
                CountDownLatch loss = lost = new CountDownLatch(1);
                lease.onLoss(loss::countDown);
                return String.format(Locale.ROOT,
                        ", \"token\": \"%d\", \"remaining_ms\": %d, \"mode\": \"%s\", \"shared\": \"%s\"",
                        lease.fencingToken(), lease.remaining().toMillis(),
                        lease.mode().name().toLowerCase(Locale.ROOT), String.join(" ", lease.shared()));
            }
            case "adopt" -> {
                lease = client.adopt(command.get("lease_id"), LeaseOptions.defaults());
                return String.format(Locale.ROOT, ", \"token\": \"%d\", \"remaining_ms\": %d", lease.fencingToken(),
                        lease.remaining().toMillis());
            }
            case "run_once_per_tick" -> {
                Duration every = Duration.ofMillis(Long.parseLong(command.get("every_ms")));
                return ", \"run\": "
                        + client.runOncePerTick("a", every, LeaseOptions.defaults(), lease -> lease.fencingToken());
            }
            case "write" -> {
                Write write = Write.under(lease, OPERATION);
                boolean releases = Boolean.parseBoolean(command.get("then_release"));
                return written(client.write(releases ? write.thenRelease() : write));
            }
            case "one_shot_write" -> {
                Write write = Write.oneShot(List.of("a"), LeaseOptions.defaults(), OPERATION);
                return written(client.write(write.idempotencyKey(command.get("key"))));
            }
            case "release" -> lease.release();
            case "check" -> lease.check();
            case "await_loss" -> {
                if (!lost.await(Long.parseLong(command.get("within_ms")), TimeUnit.MILLISECONDS))
                    throw new IllegalStateException("it is not lost");
            }
            case "sleep" -> Thread.sleep(Long.parseLong(command.get("ms")));
            case "follow" -> {
                return ", \"ids\": " + follow(client, command.get("after"), Integer.parseInt(command.get("count")));
            }
            default -> {
                return ", \"ids\": " + client.history(Map.of()).map(HistoryEvent::id).toList();
            }
        }
        return "";
    }

    private static List<Long> follow(FencegateClient client, String after, int count) throws InterruptedException {
        List<Long> ids = new ArrayList<>();
        try {
            client.follow(Map.of(), after, event -> {
                ids.add(event.id());
                if (ids.size() == count) throw new CancellationException();
            });
        } catch (CancellationException e) {
            // These are enough.
        }
        return ids;
    }

    private static String written(WriteResult result) {
        return ", \"write_id\": \"" + result.writeId() + "\", \"replayed\": " + result.replayed();
    }

    private static void interruptAfter(long ms) {
        Thread caller = Thread.currentThread();
        new Thread(() -> {
            try {
                Thread.sleep(ms);
            } catch (InterruptedException e) {
                return;
            }
            caller.interrupt();
        }).start();
    }

    private static String outcomeOf(RuntimeException fault) {
        if (fault instanceof OutcomeUnknownException unknown)
            return "\"error\": \"unknown\", \"key\": \"" + unknown.idempotencyKey().orElse("") + "\"";
        String error = fault instanceof ResourceLockedException ? "locked"
                : fault instanceof LeaseLostException ? "lost"
                : fault instanceof StaleFencingTokenException ? "stale" : null;
        if (error == null && fault instanceof FencegateException known && known.problem().isPresent())
            return "\"error\": \"refused\", \"slug\": \"" + known.problem().get().type().replace("/problems/", "")
                    + "\"";
        if (error == null) error = fault instanceof UnavailableException ? "unavailable" : fault.toString();
        return "\"error\": \"" + error.replace('"', '\'') + "\"";
    }
}
