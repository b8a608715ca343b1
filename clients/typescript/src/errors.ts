// The errors of this package. The classes of problem documents, one for each slug,
// are generated from openapi.json: generated/problems.ts.

import type {components} from './generated/schema.js';

type Answered = components['schemas']['problem'];
type NamesOfPostgrest = 'message' | 'code' | 'details' | 'hint';

/** A problem document. One that the client made itself has none of PostgREST's members. */
export type Problem = Omit<Answered, NamesOfPostgrest> & Partial<Pick<Answered, NamesOfPostgrest>>;

/** The base of all errors of this package. */
export class FencegateError extends Error {
  /** What `work` of withLease has returned, if the call rejects because of what came after it. */
  result?: unknown;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A gateway answered with an error. `slug` is empty if the answer was no problem document, as that of a proxy. */
export class ProblemError extends FencegateError {
  readonly slug: string;
  readonly status: number;
  readonly requestId: string;
  /** What the answer's Retry-After asked for; undefined if a repeat is useless. */
  readonly retryAfterMs: number | undefined;
  readonly problem: Problem;

  constructor(problem: Problem, retryAfterMs?: number, options?: ErrorOptions) {
    const faults = (problem.errors ?? []).map(fault => `${fault.pointer} ${fault.detail}`).join('; ');
    super(`${problem.title}: ${faults || problem.detail}`, options);
    this.slug = problem.type.startsWith('/problems/') ? problem.type.slice('/problems/'.length) : '';
    this.status = problem.status;
    this.requestId = problem.request_id;
    this.retryAfterMs = retryAfterMs;
    this.problem = problem;
  }
}

/**
 * No answer of a gateway arrived: the connection failed or broke, the answer took too long, or it was that of a proxy,
 * which answers any request with success.
 */
export class ConnectionError extends FencegateError {
  constructor(
    message: string,
    /**
     * false if no gateway can have read the request, because there was no connection.
     * Browsers do not tell: there it is always true.
     */
    readonly maybeExecuted: boolean,
    /** The URL of the gateway, as it was given to the client. */
    readonly url: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * It is not known whether a write took effect, and it could not be found out in time.
 * The same write with `idempotencyKey` can be repeated until it is answered: it takes effect once.
 */
export class OutcomeUnknownError extends FencegateError {
  constructor(
    /** The gateway's name of the write; undefined if no answer had it. */
    readonly writeId: string | undefined,
    /** The key that all repeats had. */
    readonly idempotencyKey: string,
    /**
     * true: the history has the write as applied, but its results could not be read again.
     * undefined: the history does not have it, or could not be read.
     */
    readonly applied: true | undefined,
    options?: ErrorOptions,
  ) {
    const name =
      `the write with the Idempotency-Key ${idempotencyKey}${writeId === undefined ? '' : ` (write_id ${writeId})`}`;
    super(`It is ${applied ? 'known that' : 'not known whether'} ${name} was applied`
      + (applied ? '; its results could not be read' : ''), options);
  }
}
