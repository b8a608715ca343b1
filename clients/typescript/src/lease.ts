// Keeps a lease: renews it until it is released or lost, and aborts its signal when it is lost.

import {mayBeExecuted, type CallOptions, type Calls} from './calls.js';
import {FencegateError, ProblemError} from './errors.js';
import {LeaseLostError} from './generated/problems.js';
import type {components} from './generated/schema.js';
import {now, pause} from './time.js';
import {sendWrite, type Operation, type WriteApplied, type WriteOptions} from './writes.js';

type LeaseAnswer = components['schemas']['lease'];
/** Undefined if the lease has ended. */
type ReleaseAnswer = components['schemas']['remaining_holds'] | undefined;

const RELEASE_TIME = 5000;
const SHORTEST_PAUSE = 20;

/** A lease that is held. Its methods are bound, so that they can be destructured: `async ({signal, write}) => …`. */
export class Lease {
  readonly leaseId: string;
  readonly fencingToken: number;
  /** The resources of the lease in order of their names. */
  readonly resources: readonly string[];
  /** Aborted when the lease is lost, with the reason, or when the signal given to the call is aborted. */
  readonly signal: AbortSignal;

  readonly #calls: Calls;
  readonly #ttlMs: number;
  readonly #aborting = new AbortController();
  /** Ends the renewals. */
  readonly #ended = new AbortController();
  readonly #renewals: Promise<void>;
  #validUntil: number;
  #loss: Error | undefined;
  #renewalFault: unknown;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #released: Promise<void> | undefined;

  constructor(calls: Calls, granted: LeaseAnswer, sentAt: number, signal?: AbortSignal) {
    this.#calls = calls;
    this.leaseId = granted.lease_id;
    this.fencingToken = granted.fencing_token;
    this.resources = 'resources' in granted ? granted.resources : [granted.resource];
    this.#ttlMs = granted.ttl_ms;
    this.#validUntil = endOfValidity(granted, sentAt);
    this.signal = this.#aborting.signal;
    const onAbort = () => this.#aborting.abort(signal?.reason);
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort, {once: true, signal: this.#ended.signal});
    this.#watch();
    this.#renewals = this.#renew();
  }

  /** How long the lease is still held, by this client's own clock; 0 when it is lost or released. Code that may have been suspended checks this before it acts. */
  readonly remainingMs = (): number => (this.#loss || this.#released ? 0 : Math.max(0, this.#validUntil - now()));

  /** Throws the reason if the lease is lost. */
  readonly throwIfLost = (): void => {
    if (!this.#loss && !this.#released && now() >= this.#validUntil) this.#expire();
    if (this.#loss) throw this.#loss;
  };

  /** Writes under the lease: all operations in one transaction, or none. */
  readonly write = async (operations: readonly Operation[], options: WriteOptions = {}): Promise<WriteApplied> => {
    this.throwIfLost();
    return sendWrite(this.#calls, {lease_id: this.leaseId}, operations, options);
  };

  /**
   * Ends the renewals and releases the lease; a further call has the result of the first. A lease that is over needs no release. With `seal` all later writes under its token
   * are refused, also those of code that still runs; rejects if the token is not known to be sealed, so also if the lease was lost before.
   */
  readonly release = ({seal = false}: {seal?: boolean} = {}): Promise<void> => this.#released ??= seal ? this.#sealAndRelease() : this.#release();

  async #release(): Promise<void> {
    try {
      await this.#delete({}, {until: now() + RELEASE_TIME, timeoutMs: RELEASE_TIME / 2});
    } catch (fault) {
      if (!(fault instanceof LeaseLostError)) throw fault;
    }
  }

  async #sealAndRelease(): Promise<void> {
    this.throwIfLost();
    let maybeExecuted = false;
    try {
      const answer = await this.#delete({seal: true}, {onFault: fault => { maybeExecuted ||= mayBeExecuted(fault); }});
      if (answer?.sealed === false && answer.hold_count === 0) throw new FencegateError('The lease was released, and its token was not sealed');
    } catch (fault) {
      // A lease that was not over was ended by the earlier request whose answer was lost, which sealed first.
      if (!(fault instanceof LeaseLostError && maybeExecuted && now() < this.#validUntil)) throw fault;
    }
  }

  async #delete(query: {seal?: true}, options: CallOptions): Promise<ReleaseAnswer> {
    this.#end();
    await this.#renewals;
    const params = {path: {lease_id: this.leaseId}, query};
    return (await this.#calls.run(attempt => this.#calls.http.DELETE('/v1/leases/{lease_id}', {params, ...attempt}), options)).data;
  }

  #end() {
    clearTimeout(this.#timer);
    this.#ended.abort();
  }

  #lose(reason: Error) {
    if (this.#ended.signal.aborted) return;
    this.#end();
    this.#loss = reason;
    this.#aborting.abort(reason);
  }

  /** Loses the lease at the end of its validity, unless a renewal has moved that. */
  #watch() {
    this.#timer = setTimeout(() => {
      if (now() >= this.#validUntil) this.#expire();
      else this.#watch();
    }, Math.max(0, this.#validUntil - now()));
  }

  /**
   * Renews after each third of the validity. Failures of a gateway are repeated as long as the lease is valid, and a gateway that does not answer gets half a third, so that
   * others can be asked in time. A refusal ends the renewals, and #watch awaits the end.
   */
  async #renew() {
    const params = {path: {lease_id: this.leaseId}};
    const ended = this.#ended.signal;
    while (!ended.aborted) {
      const third = Math.max(SHORTEST_PAUSE, (this.#validUntil - now()) / 3);
      try {
        await pause(third, ended);
        const {data, sentAt} = await this.#calls.run(
          attempt => this.#calls.http.POST('/v1/leases/{lease_id}/renew', {params, body: {ttl_ms: this.#ttlMs}, ...attempt}),
          {signal: ended, until: this.#validUntil, timeoutMs: Math.min(third / 2, this.#calls.requestTimeoutMs), onFault: fault => { this.#renewalFault = fault; }},
        );
        this.#validUntil = Math.max(this.#validUntil, endOfValidity(data, sentAt));
        this.#renewalFault = undefined;
      } catch (fault) {
        if (ended.aborted) return;
        if (fault instanceof LeaseLostError) return this.#lose(fault);
        if (fault instanceof ProblemError && fault.status < 500) return;
      }
    }
  }

  #expire() {
    const problem = {type: '/problems/lease-lost', title: 'The lease is lost', status: 410, detail: 'It was not renewed in time.', request_id: ''} as const;
    this.#lose(new LeaseLostError(problem, undefined, {cause: this.#renewalFault}));
  }
}

/** The lease may be relied on for served_ms + validity_ms from when its request was sent, on the client's own clock: an answer may be late. */
function endOfValidity(lease: LeaseAnswer, sentAt: number): number {
  return sentAt + lease.served_ms + lease.validity_ms;
}
