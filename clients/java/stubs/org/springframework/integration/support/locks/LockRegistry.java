package org.springframework.integration.support.locks;

import java.util.concurrent.locks.Lock;

/** As in Spring Integration 5 and 6, without the default methods of 6.2. */
@FunctionalInterface
public interface LockRegistry {
    /** Returns the lock of the key. */
    Lock obtain(Object lockKey);
}
