// Writes: one key for all repeats of a write, and the search for an outcome that the answer does not have.

import type {Calls} from './calls.js';
import {ConnectionError, OutcomeUnknownError, ProblemError} from './errors.js';
import {ResourceLockedError} from './generated/problems.js';
import type {components} from './generated/schema.js';
import {now, pause} from './time.js';

type Schemas = components['schemas'];
/** An operation of POST /v1/writes. */
export type Operation = Schemas['operation'];
/** The answer to a write that was applied. */
export type WriteApplied = Schemas['write_applied'];

/** The default of lease.default_ttl_ms. The lease of a one-shot write whose outcome is unknown is not released; a repeat waits until it expires. */
const DEFAULT_TTL = 10_000;
const LONGEST_POLL = 1000;

export interface WriteOptions {
  /** Whether the answer has the changed rows. */
  returnRows?: boolean;
  /** Whether the gateway first asks a majority of the nodes if the lease is live. */
  requireLive?: boolean;
  /** Idempotency-Key of the write, 1 to 64 visible ASCII characters: a repeat with it, at any time in writes.idempotency_ttl_ms, gives the first outcome. Made by the client if absent. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** Returns a random key. Where the platform has no crypto (Node 18) Math.random is enough, because each principal has keys of its own. */
export function newKey(): string {
  const bytes = globalThis.crypto?.getRandomValues(new Uint8Array(16)) ?? Uint8Array.from({length: 16}, () => Math.floor(Math.random() * 256));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Repeats a call that may wait for a lease until `waitMs` are over. The first request does not wait, because its answer tells how long one may wait; with the same
 * Idempotency-Key the following requests keep the place in the queue.
 */
export async function waitForLease<T>(waitMs: number, signal: AbortSignal | undefined, send: (waitMs: number) => Promise<T>): Promise<T> {
  const until = now() + waitMs;
  for (let wait = 0; ;) {
    try {
      return await send(wait);
    } catch (fault) {
      const left = Math.ceil(until - now());
      // Without Retry-After no wait helps: the key of the resource has a value that is no lease.
      if (!(fault instanceof ResourceLockedError) || fault.retryAfterMs === undefined || left <= 0) throw fault;
      wait = Math.min(left, fault.problem.max_wait_ms ?? 0);
      if (!wait) await pause(Math.min(left, LONGEST_POLL) * (0.5 + Math.random() / 2), signal);
    }
  }
}

/** The lease of a write: one that is held, or one of its own. */
export type WriteTarget = {lease_id: string} | {lease: Schemas['write_lease']};

/** Sends a write, repeats it with the same key as long as that helps, and finds the outcome where an answer says that it is unknown. */
export async function sendWrite(calls: Calls, target: WriteTarget, operations: readonly Operation[], options: WriteOptions, waitMs = 0): Promise<WriteApplied> {
  const {returnRows = false, requireLive = false, idempotencyKey = newKey(), signal} = options;
  const params = {header: {'Idempotency-Key': idempotencyKey}};
  const rest = {operations: [...operations], return: returnRows ? 'rows' as const : 'minimal' as const, ...(requireLive && {require_live: true})};
  const send = (longest: number) => waitForLease(longest, signal, async wait => {
    const body = 'lease' in target ? {lease: {...target.lease, wait_ms: wait}, ...rest} : {...target, ...rest};
    return (await calls.run(attempt => calls.http.POST('/v1/writes', {params, body, ...attempt}), {signal, waitMs: wait})).data;
  });
  try {
    return await send(waitMs);
  } catch (fault) {
    if (!(fault instanceof ProblemError) || !fault.problem.outcome_unknown || !fault.problem.write_id) throw fault;
    const leaseLeft = 'lease' in target ? target.lease.ttl_ms ?? DEFAULT_TTL : 0;
    return await findOutcome(calls, fault, signal, () => send(Math.max(waitMs, leaseLeft)));
  }
}

/**
 * Finds the outcome of a write by its write_id in the history, and its results by a repeat with the same key: if the write was applied, the repeat returns what was kept
 * with it; if it was not, the repeat is its first execution.
 */
async function findOutcome(calls: Calls, first: ProblemError, signal: AbortSignal | undefined, repeat: () => Promise<WriteApplied>): Promise<WriteApplied> {
  const until = now() + calls.retryMs;
  const writeId = first.problem.write_id as string;
  let applied: true | undefined;
  let last: unknown = first;
  for (let number = 0; now() < until; number += 1) {
    await pause(Math.min(LONGEST_POLL, 50 * 2 ** number) * (0.5 + Math.random() / 2), signal);
    try {
      applied ??= await isInHistory(calls, writeId, signal);
      return await repeat();
    } catch (fault) {
      last = fault;
      const isUnknown = fault instanceof ConnectionError || fault instanceof ProblemError && (fault.problem.outcome_unknown || fault.status >= 500 || applied);
      if (!isUnknown) throw fault;
    }
  }
  throw new OutcomeUnknownError(writeId, applied, {cause: last});
}

/** Returns true if the history has the write as applied; undefined if it does not, or the caller may not read it. */
async function isInHistory(calls: Calls, writeId: string, signal: AbortSignal | undefined): Promise<true | undefined> {
  const params = {query: {write_id: writeId}};
  try {
    const {data} = await calls.run(attempt => calls.http.GET('/v1/history', {params, ...attempt}), {signal});
    return data.items.some(item => item.event === 'write_applied') || undefined;
  } catch (fault) {
    if (fault instanceof ProblemError && fault.status === 403) return undefined; // without the scope history the repeat alone decides
    throw fault;
  }
}
