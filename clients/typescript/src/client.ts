// The client: leases, one-shot writes, and the history.

import {Calls, type Attempt, type ClientOptions, type Http} from './calls.js';
import {followHistory, type FollowFilters, type FollowOptions} from './follow.js';
import {FencegateError} from './errors.js';
import {LeaseLostError, ResourceLockedError} from './generated/problems.js';
import type {components} from './generated/schema.js';
import {readHistory, type HistoryFilters, type HistoryItem} from './history.js';
import {isLease, Lease, type LeaseMode} from './lease.js';
import {beginTick, EVERY_MIN} from './tick.js';
import {now, pause} from './time.js';
import {newKey, sendWrite, waitForLease, type Operation, type WriteApplied, type WriteOptions} from './writes.js';

const LATE_GRANT_PAUSE = 50;
const CANCEL_TIME = 3000;
const NO_CONTENT = 204;
const UNRELEASED = 'a lease was not released, and ends with its ttl';

type LeaseRequest = components['schemas']['lease_request'];

export interface LeaseOptions {
  /** How long the lease lasts without a renewal. The gateway's lease.default_ttl_ms if absent. */
  ttlMs?: number;
  /**
   * How long to wait while others hold the resource, also longer than one request may wait (for a one-shot write too).
   * 0 if absent.
   */
  waitMs?: number;
  /** The same owner that acquires the same resources again gets another hold of the same lease. */
  owner?: string;
  /** Whether PostgreSQL refuses all older tokens from the grant on, and not only from the first write on. */
  fenceOnGrant?: boolean;
  /** shared: any number of leases have the resources together, to read, while none has them exclusively. */
  mode?: LeaseMode;
  /** Resources that the lease shares so, beside its exclusive ones. */
  shared?: readonly string[];
  /**
   * Aborts waiting for the lease, so that it is not left held if it is granted just then, and the signal of the lease.
   */
  signal?: AbortSignal;
}

/** The options of withLease. */
export interface WithLeaseOptions extends LeaseOptions {
  /**
   * Whether the release seals the token, so that nothing that was left running can write under it.
   * The call rejects if that fails, unless work has thrown.
   */
  seal?: boolean;
}

/** The options of runOncePerTick. */
export type TickOptions = Pick<WithLeaseOptions, 'ttlMs' | 'waitMs' | 'signal' | 'seal'>;

/** The options of oneShotWrite. */
export type OneShotOptions = WriteOptions & Pick<LeaseOptions, 'ttlMs' | 'waitMs' | 'owner'>;

function checkWait(waitMs: number): number {
  if (!Number.isFinite(waitMs) || waitMs < 0)
    throw new TypeError('waitMs: has to be a number of milliseconds, at least 0');
  return waitMs;
}

/** Any one of several resources: the lease is on the first that is free, which its `resources` says. */
export interface AnyOf {
  readonly anyOf: readonly string[];
}

/** Returns the members of a request for a lease that say what it shares. */
function sharing({mode, shared}: LeaseOptions) {
  return {...(mode === 'shared' && {mode}), ...(shared?.length && {shared: [...shared]})};
}

/** Returns the members of a request for a lease. */
function wanted(resource: string | readonly string[], {ttlMs, owner}: LeaseOptions) {
  return {...(typeof resource === 'string' ? {resource} : {resources: [...resource]}),
    ...(ttlMs !== undefined && {ttl_ms: ttlMs}), ...(owner !== undefined && {owner})};
}

function isAnyOf(resource: string | readonly string[] | AnyOf): resource is AnyOf {
  return typeof resource === 'object' && 'anyOf' in resource;
}

function wantedAnyOf({anyOf}: AnyOf, {ttlMs, owner}: LeaseOptions) {
  return {any_of: [...anyOf], ...(ttlMs !== undefined && {ttl_ms: ttlMs}), ...(owner !== undefined && {owner})};
}

/** A client of one or several gateways of one cluster. */
export class Fencegate {
  readonly #calls: Calls;

  constructor(options: ClientOptions) {
    this.#calls = new Calls(options);
  }

  /** The client of openapi-fetch, for every other call of the HTTP contract; nothing is repeated. */
  get http(): Http {
    return this.#calls.http;
  }

  /**
   * Acquires a lease on a resource, or on several, all of them or none, or on any one of several (`{anyOf: [...]}`).
   * It is renewed until it is released.
   * LeaseLostError if each grant came only after the end of its validity.
   */
  async acquire(resource: string | readonly string[] | AnyOf, options: LeaseOptions = {}): Promise<Lease> {
    const {waitMs = 0, fenceOnGrant, signal} = options;
    const params = {header: {'Idempotency-Key': newKey()}};
    const until = now() + checkWait(waitMs);
    let body: LeaseRequest | undefined; // of the latest request that was sent
    try {
      for (;;) {
        try {
          const {data, sentAt} = await waitForLease(() => until, signal, wait => {
            const names = isAnyOf(resource) ? wantedAnyOf(resource, options) : wanted(resource, options);
            const sent = {...names, ...sharing(options), wait_ms: wait,
              ...(fenceOnGrant !== undefined && {fence_on_grant: fenceOnGrant})} as LeaseRequest;
            const send =
              (attempt: Attempt) => this.#calls.http.POST('/v1/leases', {params, body: (body = sent), ...attempt});
            return this.#calls.run(send, {signal, isExpected: isLease, waitMs: wait});
          });
          const lease = new Lease(this.#calls, data, sentAt, signal);
          lease.check();
          return lease;
        } catch (fault) { // a grant that came too late; with the key, a repeat gets the same lease, or a new one
          if (!(fault instanceof LeaseLostError) || now() >= until + this.#calls.retryForMs) throw fault;
          await pause(LATE_GRANT_PAUSE * (0.5 + Math.random() / 2), signal);
        }
      }
    } catch (fault) {
      if (signal?.aborted && body) this.#cancel(params, body);
      throw fault;
    }
  }

  /**
   * Goes on with a lease that another process has acquired: renews it at once, and until it is released.
   * The other process no longer uses its lease, and does not release it. LeaseLostError if the lease is over.
   */
  async adopt(leaseId: string, {ttlMs, signal}: Pick<LeaseOptions, 'ttlMs' | 'signal'> = {}): Promise<Lease> {
    const params = {path: {lease_id: leaseId}};
    const body = {...(ttlMs !== undefined && {ttl_ms: ttlMs})};
    const {data, sentAt} = await this.#calls.run(
      attempt => this.#calls.http.POST('/v1/leases/{lease_id}/renew', {params, body, ...attempt}),
      {signal, isExpected: isLease});
    const lease = new Lease(this.#calls, data, sentAt, signal);
    lease.check();
    return lease;
  }

  /**
   * Ends the wait of a request that was given up, and releases what it was granted, in the background.
   * If that fails, a lease that was granted ends with its ttl.
   */
  #cancel(params: {header: {'Idempotency-Key': string}}, body: LeaseRequest) {
    const limits = {until: now() + CANCEL_TIME, timeoutMs: CANCEL_TIME / 3,
      isExpected: (_: unknown, status: number) => status === NO_CONTENT};
    this.#calls.run(attempt => this.#calls.http.POST('/v1/leases/cancel', {params, body, ...attempt}), limits)
      .catch(this.#calls.logging('a request was given up and not cancelled; its lease, if any, ends with its ttl'));
  }

  /**
   * Runs work under a lease, which is renewed meanwhile and then released.
   * The signal that work gets is aborted if the lease is lost;
   * the call then rejects with the reason when work has ended, also if only the release tells that the lease was lost;
   * `result` of that error is what work has returned.
   * If the release fails otherwise, that is only logged, and the lease ends with its ttl;
   * with `seal` the call rejects with the failure. If work has thrown, the call rejects with that;
   * at once if the signal was aborted, while the release goes on.
   */
  async withLease<T>(resource: string | readonly string[] | AnyOf, options: WithLeaseOptions,
      work: (lease: Lease) => Promise<T> | T): Promise<T> {
    if (options.seal && options.mode === 'shared')
      throw new TypeError('seal: a lease that only shares its resources has nothing to seal');
    return this.#use(await this.acquire(resource, options), options.seal ?? false, work);
  }

  /** Runs the work of withLease, and releases the lease. */
  async #use<T>(lease: Lease, seal: boolean, work: (lease: Lease) => Promise<T> | T): Promise<T> {
    let result;
    try {
      result = await work(lease);
    } catch (fault) {
      const released = lease.release({seal}).catch(this.#calls.logging(UNRELEASED));
      if (!lease.signal.aborted) await released;
      throw fault;
    }
    try {
      await lease.release({seal});
    } catch (fault) {
      if (fault instanceof FencegateError) fault.result = result;
      if (seal || fault instanceof LeaseLostError) throw fault;
      this.#calls.logging(UNRELEASED)(fault);
    }
    return result;
  }

  /**
   * Runs work under a lease on the resource as withLease does, once in each tick of a schedule over all machines,
   * as `fencegate lock --every` does. Resolves to whether it was run here: not while another caller holds the resource,
   * or if a start less than half of `everyMs` ago is recorded. A recorded start counts, also if work then fails.
   * If a gateway refuses a step, the call rejects and nothing was run. `everyMs` is at least 1,000.
   */
  async runOncePerTick(resource: string, everyMs: number, options: TickOptions,
      work: (lease: Lease) => unknown): Promise<boolean> {
    if (!Number.isFinite(everyMs) || everyMs < EVERY_MIN)
      throw new TypeError(`everyMs: has to be a number of milliseconds, at least ${EVERY_MIN}`);
    let lease: Lease;
    try {
      lease = await this.acquire(resource, {...options, fenceOnGrant: true});
    } catch (fault) {
      if (fault instanceof ResourceLockedError) return false;
      throw fault;
    }
    return this.#use(lease, options.seal ?? false, async () => {
      const {signal} = options;
      if (!await beginTick(this, lease, everyMs, signal ? {signal} : {}, this.#calls.logging(UNRELEASED))) return false;
      lease.check();
      await work(lease);
      return true;
    });
  }

  /**
   * A one-shot write: acquires a lease, writes, seals its token and releases it, in one call.
   * All repeats have one key, so the write is applied once.
   */
  async oneShotWrite(resource: string | readonly string[], operations: readonly Operation[],
      options: OneShotOptions = {}): Promise<WriteApplied> {
    return sendWrite(this.#calls, {lease: wanted(resource, options)}, operations, options,
      checkWait(options.waitMs ?? 0));
  }

  /** Iterates over the history, newest first unless `order` is asc. */
  history(filters: HistoryFilters = {}, {signal}: {signal?: AbortSignal} = {}): AsyncGenerator<HistoryItem,
  void, undefined> {
    return readHistory(this.#calls, filters, signal);
  }

  /**
   * Iterates over new events of the history, each once, in the order of id, also across broken connections.
   * It has no end: leave the loop, or abort the signal.
   */
  follow(filters: FollowFilters = {}, options: FollowOptions = {}): AsyncGenerator<HistoryItem, void, undefined> {
    return followHistory(this.#calls, filters, options);
  }
}
