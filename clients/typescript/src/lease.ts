// Keeps a lease: renews it until it is released or lost, and aborts its signal when it is lost.

import {mayBeExecuted, type Calls} from './calls.js';
import {FencegateError, OutcomeUnknownError, ProblemError} from './errors.js';
import {messagesOf, openStream, type OpenStream} from './events.js';
import {LeaseLostError, StaleFencingTokenError} from './generated/problems.js';
import type {components} from './generated/schema.js';
import {now, pause, startTimer, stopTimer} from './time.js';
import {sendWrite, type LeaseWriteOptions, type Operation, type WriteApplied} from './writes.js';

/** How a lease has its resources: alone, or together with others that read. */
export type LeaseMode = 'exclusive' | 'shared';

type LeaseAnswer = components['schemas']['lease'];
/** Undefined if the lease has ended. */
type ReleaseAnswer = components['schemas']['remaining_holds'] | undefined;

const RELEASE_TIME = 5000;
const SHORTEST_PAUSE = 20;
const UNAVAILABLE = 503;
const TOO_MANY_REQUESTS = 429;
/** The pause before a watch that broke, or was refused because of a limit, is begun again. */
const FIRST_WATCH_PAUSE = 500;
const LONGEST_WATCH_PAUSE = 60_000;
/**
 * A browser has six connections to a gateway: streams that stay open would leave none for calls.
 * There the renewals notice a loss.
 */
const HAS_MANY_CONNECTIONS =
  (globalThis as {process?: {versions?: {node?: string}}}).process?.versions?.node !== undefined;

/** A lease that is held. Its methods are bound, so that they can be destructured: `async ({signal, write}) => …`. */
export class Lease {
  readonly leaseId: string;
  readonly fencingToken: number;
  /** The resources of the lease in order of their names. */
  readonly resources: readonly string[];
  /** How the lease has them. */
  readonly mode: LeaseMode;
  /** What the lease shares beside exclusive resources. */
  readonly shared: readonly string[];
  /** Aborted when the lease is lost, with the reason, or when the signal given to the call is aborted. */
  readonly signal: AbortSignal;

  readonly #calls: Calls;
  readonly #ttlMs: number;
  readonly #aborting = new AbortController();
  /** Ends the renewals. */
  readonly #ended = new AbortController();
  readonly #renewals: Promise<void>;
  /** Resolved when a gateway says that the lease has ended. */
  #endNoticed: Promise<void>;
  #validUntil: number;
  #loss: Error | undefined;
  /**
   * How many writes that release the lease have no result yet, and the loss that was found meanwhile:
   * what a renewal finds may be the effect of such a write.
   */
  #releasingWrites = 0;
  #pendingLoss: Error | undefined;
  #renewalFault: unknown;
  #timer: unknown;
  #released: {seal: boolean; done: Promise<void>} | undefined;

  constructor(calls: Calls, granted: LeaseAnswer, sentAt: number, signal?: AbortSignal) {
    this.#calls = calls;
    this.leaseId = granted.lease_id;
    this.fencingToken = granted.fencing_token;
    this.resources = 'resources' in granted ? granted.resources : [granted.resource];
    this.mode = granted.mode ?? 'exclusive';
    this.shared = granted.shared ?? [];
    this.#ttlMs = granted.ttl_ms;
    this.#validUntil = endOfValidity(granted, sentAt);
    this.signal = this.#aborting.signal;
    const onAbort = () => this.#aborting.abort(signal?.reason);
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort, {once: true, signal: this.#ended.signal});
    this.#watch();
    this.#endNoticed = HAS_MANY_CONNECTIONS ? this.#awaitEnd() : never();
    this.#renewals = this.#renew();
  }

  /**
   * How long the lease is still held, by this client's own clock; 0 when it is lost or released.
   * Code that may have been suspended checks this before it acts.
   */
  readonly remainingMs = (): number =>
    (this.#loss || this.#pendingLoss || this.#released ? 0 : Math.max(0, this.#validUntil - now()));

  /** Throws the reason if the lease is lost, and a LeaseLostError if it was released. */
  readonly check = (): void => {
    const reason = this.#findLoss() ?? (this.#released && lossOf('It was released.'));
    if (reason) throw reason;
  };

  /**
   * Writes under the lease, unless it was lost or released: all operations in one transaction, or none.
   * If the answer says that the lease or its token is over, the lease is lost.
   */
  readonly write = async (operations: readonly Operation[],
      {thenRelease = false, ...options}: LeaseWriteOptions = {}): Promise<WriteApplied> => {
    this.check();
    const target = {lease_id: this.leaseId, ...(thenRelease && {then: 'release' as const})};
    if (thenRelease) this.#releasingWrites += 1;
    try {
      const written = await sendWrite(this.#calls, target, operations, options);
      if (thenRelease) {
        this.#released ??= {seal: written.sealed !== false, done: Promise.resolve()};
        this.#pendingLoss = undefined;
        this.#end();
      }
      return written;
    } catch (fault) {
      const refusal = fault instanceof OutcomeUnknownError ? fault.cause : fault;
      if (refusal instanceof LeaseLostError && !this.#released) this.#lose(refusal);
      if (refusal instanceof StaleFencingTokenError && !this.#released)
        this.#lose(lossOf('PostgreSQL refuses its token.', refusal));
      throw fault;
    } finally {
      if (thenRelease) this.#releasingWrites -= 1;
      if (this.#pendingLoss && !this.#released) this.#lose(this.#pendingLoss);
    }
  };

  /**
   * Ends the renewals and releases the lease; a further call has the result of the first.
   * Rejects with the reason at once if the lease was lost before. With `seal` all later writes under its token
   * are refused, also those of code that still runs; rejects if the token is not known to be sealed.
   */
  readonly release = ({seal = false}: {seal?: boolean} = {}): Promise<void> => {
    this.#released ??= {seal, done: this.#release(seal)};
    if (seal && !this.#released.seal)
      return Promise.reject(new FencegateError('The lease was released before, and its token was not sealed'));
    return this.#released.done;
  };

  async #release(seal: boolean): Promise<void> {
    const loss = this.#findLoss();
    const released =
      this.#requestRelease(seal, seal && !loss ? {} : {until: now() + RELEASE_TIME, timeoutMs: RELEASE_TIME / 2});
    if (!loss) return released;
    released.catch(() => undefined); // the nodes may still have the lease
    throw loss;
  }

  async #requestRelease(seal: boolean, limits: {until?: number; timeoutMs?: number}): Promise<void> {
    this.#end();
    await this.#renewals;
    let maybeExecuted = false;
    // After 503 a gateway goes on with a release that too few nodes have answered; one that seals has not begun then.
    const onFault = (fault: unknown) => { maybeExecuted ||= mayBeExecuted(fault)
      || (!seal && fault instanceof ProblemError && fault.status === UNAVAILABLE); };
    const params = {path: {lease_id: this.leaseId}, query: seal ? {seal} : {}};
    let answer: ReleaseAnswer;
    try {
      answer = (await this.#calls.run(attempt => this.#calls.http.DELETE('/v1/leases/{lease_id}', {params, ...attempt}),
        {...limits, isExpected: isReleaseAnswer, onFault})).data;
    } catch (fault) {
      if (!(fault instanceof LeaseLostError)) throw this.#loss ?? fault;
      // An earlier request whose answer was lost has ended the lease, and sealed before;
      // unless the lease has expired meanwhile, which matters for the seal.
      if (!maybeExecuted || (seal && now() >= this.#validUntil)) this.#lose(fault);
    }
    if (this.#loss) throw this.#loss;
    if (seal && answer?.sealed === false && answer.hold_count === 0)
      throw new FencegateError('The lease was released, and its token was not sealed');
  }

  /** Returns the reason if the lease is lost. */
  #findLoss(): Error | undefined {
    if (!this.#loss && !this.#released && now() >= this.#validUntil) this.#expire();
    return this.#loss ?? this.#pendingLoss;
  }

  #end() {
    stopTimer(this.#timer);
    this.#ended.abort();
  }

  #lose(reason: Error) {
    if (this.#loss) return;
    if (this.#releasingWrites) {
      this.#pendingLoss ??= reason;
      return;
    }
    this.#end();
    this.#loss = reason;
    this.#aborting.abort(reason);
  }

  /** Loses the lease at the end of its validity, unless a renewal has moved that. */
  #watch() {
    this.#timer = startTimer(() => {
      if (now() >= this.#validUntil) this.#expire();
      else this.#watch();
    }, Math.max(0, this.#validUntil - now()));
  }

  /**
   * Renews after each third of the validity. Failures of a gateway are repeated as long as the lease is valid,
   * and a gateway that does not answer gets half a third, so that others can be asked in time.
   * If Retry-After is longer than the validity lasts, one attempt is made before its end.
   * A refusal ends the renewals, and #watch awaits the end.
   */
  async #renew() {
    const params = {path: {lease_id: this.leaseId}};
    const ended = this.#ended.signal;
    const onFault = (fault: unknown) => { this.#renewalFault = fault; };
    while (!ended.aborted && !this.#pendingLoss) {
      const third = Math.max(SHORTEST_PAUSE, (this.#validUntil - now()) / 3);
      try {
        await Promise.race([pause(third, ended), this.#endNoticed]);
        const {data, sentAt} = await this.#calls.run(
          attempt => this.#calls.http.POST('/v1/leases/{lease_id}/renew',
            {params, body: {ttl_ms: this.#ttlMs}, ...attempt}),
          {signal: ended, isExpected: isLease, until: this.#validUntil,
            timeoutMs: Math.min(third / 2, this.#calls.requestTimeoutMs), lastAttempt: true, onFault},
        );
        this.#validUntil = Math.max(this.#validUntil, endOfValidity(data, sentAt));
        this.#renewalFault = undefined;
      } catch (fault) {
        if (ended.aborted) return;
        if (fault instanceof LeaseLostError) return this.#lose(fault);
        if (fault instanceof ProblemError && fault.slug !== '' && fault.status < 500) return;
      }
    }
  }

  /**
   * Resolves when a gateway says that the lease has ended. Then it is renewed at once: the answer to that is the proof.
   */
  async #awaitEnd(): Promise<void> {
    const ended = this.#ended.signal;
    const params = {path: {lease_id: this.leaseId}};
    for (let ms = FIRST_WATCH_PAUSE; ; ms = Math.min(2 * ms, LONGEST_WATCH_PAUSE)) {
      const opened: OpenStream = {};
      const onEnd = () => opened.connection?.abort();
      ended.addEventListener('abort', onEnd, {once: true});
      try {
        const {data} = await this.#calls.run(attempt => this.#calls.http.GET('/v1/leases/{lease_id}',
          {params, ...openStream(attempt, opened)}), {signal: ended, until: 0});
        for await (const {event} of messagesOf(data as unknown as ReadableStream<Uint8Array>,
            opened as Required<OpenStream>)) {
          if (event) ms = FIRST_WATCH_PAUSE; // what a proxy answers with success has none
          if (event === 'lost' || event === 'released') return this.#wakeOnce();
        }
      } catch (fault) {
        if (fault instanceof LeaseLostError) return this.#wakeOnce();
        if (fault instanceof ProblemError && fault.status === TOO_MANY_REQUESTS) ms = LONGEST_WATCH_PAUSE;
        else if (fault instanceof ProblemError && fault.status < 500) return never();
      } finally {
        ended.removeEventListener('abort', onEnd);
        opened.connection?.abort();
      }
      if (ended.aborted) return never();
      await pause(ms * (0.5 + Math.random() / 2), ended).catch(() => undefined);
    }
  }

  /** Lets the pause that is under way end, and no later one. */
  #wakeOnce() {
    setTimeout(() => { this.#endNoticed = never(); }, 0);
  }

  #expire() {
    this.#lose(lossOf('It was not renewed in time.', this.#renewalFault));
  }
}

function never(): Promise<never> {
  return new Promise(() => undefined);
}

/** Whether an answer has the validity of a lease. */
export function isLease(data: unknown): boolean {
  const {served_ms, validity_ms} = (data ?? {}) as Partial<LeaseAnswer>;
  return Number.isFinite(served_ms) && Number.isFinite(validity_ms);
}

function isReleaseAnswer(data: unknown, status: number): boolean {
  return status === 204 || Number.isInteger((data as ReleaseAnswer | null)?.hold_count);
}

/** Returns the error of a loss that no answer of a gateway has reported. */
function lossOf(detail: string, cause?: unknown): LeaseLostError {
  return new LeaseLostError({type: '/problems/lease-lost', title: 'The lease is lost', status: 410, detail,
    request_id: ''}, undefined, {cause});
}

/**
 * The lease may be relied on for served_ms + validity_ms from when its request was sent,
 * on the client's own clock: an answer may be late.
 */
function endOfValidity(lease: LeaseAnswer, sentAt: number): number {
  return sentAt + lease.served_ms + lease.validity_ms;
}
