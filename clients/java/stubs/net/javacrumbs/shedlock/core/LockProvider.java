package net.javacrumbs.shedlock.core;

import java.util.Optional;

/** As in ShedLock. */
public interface LockProvider {
    /** Returns empty if the lock is held by another. */
    Optional<SimpleLock> lock(LockConfiguration lockConfiguration);
}
