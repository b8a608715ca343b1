package net.javacrumbs.shedlock.core;

import java.time.Duration;
import java.time.Instant;

/** As in ShedLock, with what the adapter and its tests use. */
public class LockConfiguration {
    private final String name;
    private final Instant lockAtMostUntil;
    private final Instant lockAtLeastUntil;

    /** Makes a configuration. */
    public LockConfiguration(Instant createdAt, String name, Duration lockAtMostFor, Duration lockAtLeastFor) {
        this.name = name;
        this.lockAtMostUntil = createdAt.plus(lockAtMostFor);
        this.lockAtLeastUntil = createdAt.plus(lockAtLeastFor);
    }

    /** Returns the name of the lock. */
    public String getName() {
        return name;
    }

    /** Returns when the lock ends at the latest. */
    public Instant getLockAtMostUntil() {
        return lockAtMostUntil;
    }

    /** Returns when the lock ends at the earliest. */
    public Instant getLockAtLeastUntil() {
        return lockAtLeastUntil;
    }
}
