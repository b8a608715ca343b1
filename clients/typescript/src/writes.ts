// Writes: one key for all repeats of a write, and the search for an outcome that the answer does not have.

import {mayBeExecuted, type Calls} from './calls.js';
import {OutcomeUnknownError, ProblemError} from './errors.js';
import {
  ConstraintViolationError, ExpectationFailedError, InvalidRequestError, ResourceLockedError, ResourceNotCoveredError,
  SharedLeaseError, StaleFencingTokenError, UnprocessableError,
} from './generated/problems.js';
import type {components} from './generated/schema.js';
import {isHistoryPage} from './history.js';
import {now, pause} from './time.js';

type Schemas = components['schemas'];
/** An operation of POST /v1/writes. */
export type Operation = Schemas['operation'];
/** The answer to a write that was applied; `replayed`: it is the outcome of an earlier call with the same key. */
export type WriteApplied = Schemas['write_applied'] & {replayed: boolean};

const LONGEST_POLL = 1000;
/**
 * With one of these a gateway answers a write that was tried before only if no attempt took effect:
 * they come after the search for a kept outcome.
 */
const CONCLUSIVE = [ConstraintViolationError, ExpectationFailedError, ResourceNotCoveredError, SharedLeaseError,
  StaleFencingTokenError, UnprocessableError];
const isConclusive = (fault: unknown) => CONCLUSIVE.some(kind => fault instanceof kind);

export interface WriteOptions {
  /** Whether the answer has the changed rows. */
  returnRows?: boolean;
  /** Whether the gateway first asks a majority of the nodes if the lease is live. */
  requireLive?: boolean;
  /**
   * Idempotency-Key of the write, 1 to 64 visible ASCII characters: a repeat with it,
   * at any time in writes.idempotency_ttl_ms, gives the first outcome. Made by the client if absent.
   */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** The options of a write under a lease. */
export interface LeaseWriteOptions extends WriteOptions {
  /**
   * Seals the token in the same transaction and then releases the lease. If other holds of the same owner remain,
   * only this hold is released, and nothing is sealed. Until the result is known no loss is reported.
   */
  thenRelease?: boolean;
}

/**
 * Returns a random key. Where the platform has no crypto (Node 18) Math.random is enough,
 * because each principal has keys of its own.
 */
export function newKey(): string {
  const bytes = globalThis.crypto?.getRandomValues(new Uint8Array(16))
    ?? Uint8Array.from({length: 16}, () => Math.floor(Math.random() * 256));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}

/** Whether a gateway refuses to wait that long. */
function isWaitRefused(fault: unknown): boolean {
  return fault instanceof InvalidRequestError && (fault.problem.errors ?? [])
    .some(({pointer}) => pointer.endsWith('/wait_ms'));
}

/**
 * Repeats a call that may wait for a lease until the time that `until` returns. The first request does not wait,
 * because its answer tells how long one may wait;
 * with the same Idempotency-Key the following requests for a lease keep the place in the queue.
 */
export async function waitForLease<T>(until: () => number, signal: AbortSignal | undefined,
    send: (waitMs: number) => Promise<T>): Promise<T> {
  for (let wait = 0; ;) {
    try {
      return await send(wait);
    } catch (fault) {
      const left = Math.max(0, Math.ceil(until() - now()));
      if (wait && isWaitRefused(fault)) {
        wait = 0; // this gateway has a lower limit, which its next answer tells
      } else {
        // Retry-After is absent if no end of what locks the resource is known;
        // for a value that is no lease it is the gateway's longest ttl.
        if (!(fault instanceof ResourceLockedError) || fault.retryAfterMs === undefined || !left) throw fault;
        wait = Math.min(left, fault.problem.max_wait_ms ?? 0);
      }
      if (!wait) await pause(Math.min(left, LONGEST_POLL) * (0.5 + Math.random() / 2), signal);
    }
  }
}

/**
 * Requires that JSON has a form for the conditions and the values of an operation:
 * JSON.stringify would leave out a member without one, or replace it by null. Optional members of the operation itself,
 * and members of a document inside a value, may be undefined.
 */
function requireSendable(operation: Operation, path: string): void {
  for (const [name, member] of Object.entries(operation)) {
    if (member !== undefined || name === 'where')
      requireForm(member, `${path}/${name}`, name === 'where' ? Infinity : Array.isArray(member) ? 2 : 1);
  }
}

/** `definedTo`: the number of levels, beside that of the value, on which nothing may be undefined. */
function requireForm(value: unknown, path: string, definedTo: number): void {
  const {toJSON} = (value ?? {}) as {toJSON?: unknown};
  const sent: unknown = typeof toJSON === 'function' ? toJSON.call(value) : value;
  if (sent === undefined && definedTo < 0) return;
  const isInvalidDate = value instanceof Date && sent === null;
  if (sent === undefined || typeof sent === 'function' || typeof sent === 'symbol'
      || (typeof sent === 'number' && !Number.isFinite(sent)) || isInvalidDate) {
    throw new TypeError(`${path}: ${String(value)} cannot be sent`);
  }
  if (typeof sent === 'object' && sent !== null) for (const [name, member] of Object.entries(sent))
    requireForm(member, `${path}/${name}`, definedTo - 1);
}

/** The lease of a write: one that is held, or one of its own. */
export type WriteTarget = {lease_id: string; then?: 'release'} | {lease: Schemas['write_lease']};

/**
 * Sends a write, repeats it with the same key as long as that helps, and finds the outcome where an answer says
 * that it is unknown. Once an attempt may have been executed, only an answer that is conclusive for all attempts is
 * passed on; any other failure is an OutcomeUnknownError with the key.
 * Then the resource may be locked by the lease of that attempt of a one-shot write,
 * which nobody releases: the repeats wait until it expires, for the client's retryForMs beside `waitMs`.
 */
export async function sendWrite(calls: Calls, target: WriteTarget, operations: readonly Operation[],
    options: WriteOptions, waitMs = 0): Promise<WriteApplied> {
  const {returnRows = false, requireLive = false, idempotencyKey = newKey(), signal} = options;
  if (!/^[\x21-\x7e]{1,64}$/.test(idempotencyKey))
    throw new TypeError('idempotencyKey: has to be 1 to 64 visible ASCII characters');
  operations.forEach((operation, index) => { requireSendable(operation, `/operations/${index}`); });
  const params = {header: {'Idempotency-Key': idempotencyKey}};
  let until = now() + waitMs;
  let maybeExecuted = false;
  const onFault = (fault: unknown) => {
    if (maybeExecuted || !mayBeExecuted(fault)) return;
    maybeExecuted = true;
    until += calls.retryForMs;
  };
  const rest = {operations: [...operations], return: returnRows ? 'rows' as const : 'minimal' as const,
    ...(requireLive && {require_live: true})};
  const send = () => waitForLease(() => until, signal, async wait => {
    const body = 'lease' in target ? {lease: {...target.lease, wait_ms: wait}, ...rest} : {...target, ...rest};
    const {data, replayed} = await calls.run(attempt => calls.http.POST('/v1/writes', {params, body, ...attempt}),
      {signal, isExpected: isApplied, waitMs: wait, onFault, ...(maybeExecuted && {until})});
    return {...data, replayed};
  });
  try {
    return await send();
  } catch (fault) {
    signal?.throwIfAborted();
    if (!maybeExecuted || isConclusive(fault)) throw fault;
    const writeId = fault instanceof ProblemError && fault.problem.outcome_unknown ? fault.problem.write_id : undefined;
    if (!writeId) throw new OutcomeUnknownError(undefined, idempotencyKey, undefined, {cause: fault});
    until = Math.max(until, now() + calls.retryForMs);
    return await findOutcome(calls, {writeId, idempotencyKey, cause: fault}, until, signal, send);
  }
}

function isApplied(data: unknown): boolean {
  return (data as Partial<WriteApplied> | null | undefined)?.applied === true;
}

/** A write whose outcome an answer has called unknown. */
interface UnknownWrite {
  readonly writeId: string;
  readonly idempotencyKey: string;
  readonly cause: unknown;
}

/**
 * Finds the outcome of a write by its write_id in the history, and its results by a repeat with the same key:
 * if the write was applied, the repeat returns what was kept with it; if it was not, the repeat is its first execution.
 */
async function findOutcome(calls: Calls, unknown: UnknownWrite, until: number, signal: AbortSignal | undefined,
    repeat: () => Promise<WriteApplied>): Promise<WriteApplied> {
  let applied: true | undefined;
  let last = unknown.cause;
  for (let number = 0; now() < until; number += 1) {
    await pause(Math.min(LONGEST_POLL, 50 * 2 ** number) * (0.5 + Math.random() / 2), signal);
    try {
      applied ??= await isInHistory(calls, unknown.writeId, until, signal);
      return await repeat();
    } catch (fault) {
      signal?.throwIfAborted();
      if (!applied && isConclusive(fault)) throw fault;
      last = fault;
      if (!applied && fault instanceof ProblemError && fault.status < 500) break; // a repeat is useless
    }
  }
  throw new OutcomeUnknownError(unknown.writeId, unknown.idempotencyKey, applied, {cause: last});
}

/**
 * Returns true if the history has the write as applied; undefined if it does not,
 * or a gateway or proxy refuses the look-up, which says nothing about the write: 403 without the scope history, 421
 * of a proxy that knows the cell of the write by its resource, and without the option `cell` not that of the look-up.
 * Then the repeat alone decides.
 */
async function isInHistory(calls: Calls, writeId: string, until: number,
    signal: AbortSignal | undefined): Promise<true | undefined> {
  const params = {query: {write_id: writeId}};
  try {
    const {data} = await calls.run(attempt => calls.http.GET('/v1/history', {params, ...attempt}),
      {signal, isExpected: isHistoryPage, until});
    return data.items.some(item => item.event === 'write_applied') || undefined;
  } catch (fault) {
    if (fault instanceof ProblemError && fault.status < 500) return undefined;
    throw fault;
  }
}
