// Time: a clock for validity, pauses, and signals with a time limit.

/** How far the two clocks may differ by rounding and by a time of day that is adjusted slowly. */
const TOLERANCE = 50;
let difference = Date.now() - performance.now();
let lead = difference;

/**
 * Milliseconds on a clock that never goes back. It is the monotonic clock;
 * where the time of day has moved further at once, as after the machine was suspended, that counts too,
 * so that a lease never seems to last longer than it does. A time of day that was set back changes nothing.
 */
function realNow(): number {
  const monotonic = performance.now();
  const moved = Date.now() - monotonic - difference;
  if (Math.abs(moved) > TOLERANCE) {
    difference += moved;
    lead += Math.max(0, moved);
  }
  return monotonic + lead;
}

/** What testing.ts replaces. */
export interface Clock {
  now(): number;
  setTimeout(run: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

const realClock: Clock = {
  now: realNow,
  setTimeout: (run, ms) => setTimeout(run, ms),
  clearTimeout: timer => clearTimeout(timer as ReturnType<typeof setTimeout>),
};
let clock = realClock;

export function setClock(next = realClock): void {
  clock = next;
}

export function now(): number {
  return clock.now();
}

export function startTimer(run: () => void, ms: number): unknown {
  return clock.setTimeout(run, ms);
}

export function stopTimer(timer: unknown): void {
  clock.clearTimeout(timer);
}

/** Waits; rejects with the reason of the signal as soon as it is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      stopTimer(timer);
      reject(signal?.reason);
    };
    const timer = startTimer(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, {once: true});
  });
}

/**
 * Runs work with a signal that is aborted after `ms`, or with the given signal.
 * AbortSignal.any is missing before Node 20.
 */
export async function withTimeout<T>(ms: number, signal: AbortSignal | undefined,
    work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const limited = new AbortController();
  const onAbort = () => limited.abort(signal?.reason);
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, {once: true});
  const timer =
    startTimer(() => limited.abort(new DOMException(`No answer within ${Math.round(ms)} ms`, 'TimeoutError')), ms);
  try {
    return await work(limited.signal);
  } finally {
    stopTimer(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}
