package fencegate.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Records the starts of work that is done once in each tick of a schedule. They are the events fence_raised of
 * RESOURCE@tick, with the time of PostgreSQL.
 */
final class Ticks {
    private static final Logger LOG = System.getLogger(Ticks.class.getName());
    private static final Duration EVERY_MIN = Duration.ofSeconds(1);

    private Ticks() {}

    static <E extends Exception> boolean run(FencegateClient client, String resource, Duration every,
            LeaseOptions options, LeaseTask<?, E> task) throws E, InterruptedException {
        if (every.compareTo(EVERY_MIN) < 0) throw new IllegalArgumentException("every has to be at least 1 s");
        if (options.owner() != null) throw new IllegalArgumentException("owner is not possible for a tick");
        if (options.sharing()) throw new IllegalArgumentException("mode and shared are not possible for a tick");
        Optional<Lease> acquired = client.tryAcquire(resource, options.fenceOnGrant(true));
        if (acquired.isEmpty()) return false;
        try (Lease lease = acquired.get()) {
            if (!begin(client, lease, every)) return false;
            lease.check();
            task.run(lease);
            return true;
        }
    }

    /**
     * Records that the work of a tick starts now, unless the last start belongs to the same tick.
     * Returns whether this call has recorded the start: exactly one caller may do the work.
     */
    private static boolean begin(FencegateClient client, Lease lease, Duration every) throws InterruptedException {
        String resource = lease.resources().get(0);
        String record = resource + "@tick";
        String token = Long.toString(lease.fencingToken());
        List<HistoryEvent> own = fences(client, resource, Map.of("token_min", token, "token_max", token));
        if (own.isEmpty())
            throw new FencegateException(null,
                    "The history does not have the fence of " + resource + ": the tick cannot be decided.", null);
        Optional<HistoryEvent> before = fences(client, record, Map.of()).stream().findFirst();
        if (before.isPresent() && Duration.between(before.get().at(), own.get(0).at()).abs().multipliedBy(2)
                .compareTo(every) < 0)
            return false;
        Optional<Lease> started = client.tryAcquire(record, LeaseOptions.defaults().fenceOnGrant(true));
        if (started.isEmpty()) return false;
        release(started.get());
        long recorded = started.get().fencingToken();
        List<HistoryEvent> after = fences(client, record, Map.of("token_max", Long.toString(recorded)));
        // Another caller that held the lease meanwhile may have recorded its start between the two.
        return tokenOf(after, 0).equals(Optional.of(recorded))
                && tokenOf(after, 1).equals(before.flatMap(HistoryEvent::fencingToken));
    }

    /** Returns the newest two raised fences of a resource. */
    private static List<HistoryEvent> fences(FencegateClient client, String resource, Map<String, String> tokens)
            throws InterruptedException {
        Map<String, String> filters = new LinkedHashMap<>(tokens);
        filters.putAll(Map.of("resource", resource, "event", "fence_raised", "limit", "2"));
        String path = "/v1/history" + Transport.query(filters);
        return client.call("GET", path, null, null, Duration.ZERO).members().requiredList("items").stream().limit(2)
                .map(HistoryEvent::of).toList();
    }

    private static Optional<Long> tokenOf(List<HistoryEvent> fences, int index) {
        return index < fences.size() ? fences.get(index).fencingToken() : Optional.empty();
    }

    private static void release(Lease lease) throws InterruptedException {
        try {
            lease.release();
        } catch (FencegateException e) {
            LOG.log(Level.WARNING, lease + " was not released, and ends with its ttl.", e);
        }
    }
}
