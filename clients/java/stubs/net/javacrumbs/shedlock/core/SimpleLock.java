package net.javacrumbs.shedlock.core;

import java.time.Duration;
import java.util.Optional;

/** As in ShedLock. */
public interface SimpleLock {
    /** Throws IllegalStateException if the lock was unlocked or extended. */
    void unlock();

    /** Returns the extended lock, or empty if it cannot be extended; this one can then be used no more. */
    default Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
        throw new UnsupportedOperationException();
    }
}
