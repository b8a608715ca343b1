// Sends requests: to one gateway after another, with a time limit each,
// repeated with jitter as long as a repeat can help.

import createClient, {type Client} from 'openapi-fetch';
import {ConnectionError, FencegateError, ProblemError, type Problem} from './errors.js';
import {MisdirectedRequestError, problemClasses} from './generated/problems.js';
import type {paths} from './generated/schema.js';
import {now, pause, withTimeout} from './time.js';

const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 2000;
export const TOO_MANY_REQUESTS = 429;
/**
 * Statuses that are repeated if the answer has Retry-After.
 * 423 is not among them: how long to wait for a lease is the caller's choice.
 */
const REPEATED = [409, TOO_MANY_REQUESTS, 503];
/**
 * Codes in Node.js of a TLS handshake that failed because one side refuses the other's certificate:
 * the "X509 certificate error codes" of its documentation, ERR_TLS_CERT_ALTNAME_INVALID, and the alerts of the server.
 */
const CERTIFICATE_REFUSED =
  /CERT|CRL|ISSUER|LEAF_SIGNATURE|^(HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED)$/;
const CELL_MAX = 65_535;

type Json = 'application/json' | 'application/problem+json';
export type Http = Client<paths, Json>;

export interface ClientOptions {
  /** The URL of a gateway, or of several, any of which serves any call. */
  url: string | readonly string[];
  /**
   * An API key or a JSON Web Token, or a function that returns the current one,
   * soon: no time limit of the client applies to it. Without it requests carry no credential.
   */
  credential?: string | (() => string | Promise<string>);
  /**
   * The cell for which all requests are, 0 to 65535: the header Fencing-Cell. A gateway of another cell refuses them;
   * a proxy before several cells needs it for what names no resource.
   */
  cell?: number;
  /** How long one request may take, the time that it may wait for a lease not counted. 10,000 if absent. */
  requestTimeoutMs?: number;
  /**
   * How long a call is repeated after failures that a repeat can end,
   * the time that it may wait for a lease not counted; 0: never. 30,000 if absent.
   */
  retryForMs?: number;
  /** Called in place of the global fetch. */
  fetch?: (request: Request) => Promise<Response>;
  /**
   * Called with failures that no caller gets: a lease that was not released by withLease or runOncePerTick,
   * or a request that was given up and not cancelled, both of which end with their ttl. console.warn if absent.
   */
  log?: (message: string) => void;
}

/** One attempt of a call: what is passed to openapi-fetch. */
export interface Attempt {
  readonly signal: AbortSignal;
  readonly baseUrl: string;
  readonly fetch: (request: Request) => Promise<Response>;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** When to stop repeating, on the clock of now(). After waitMs and the client's retryForMs if absent. */
  until?: number;
  /** The time limit of each request. The client's requestTimeoutMs if absent. */
  timeoutMs?: number;
  /** Time that a request may wait at the gateway, in addition to its time limit. */
  waitMs?: number;
  /**
   * Whether a pause that would end after `until` is shortened,
   * so that a last attempt has its whole time limit before `until`.
   */
  lastAttempt?: boolean;
  /**
   * Whether the data of an answer with success is what a gateway answers to this request.
   * A proxy may answer any request with success; that counts as no answer.
   */
  isExpected?: (data: unknown, status: number) => boolean;
  /** Called with each failure, also with those after which the call is repeated. */
  onFault?: (fault: unknown) => void;
}

/** An answer, when its request was sent, on the clock of now(), and whether it is the outcome of an earlier one. */
export interface Answer<T> {
  readonly data: T;
  readonly sentAt: number;
  readonly replayed: boolean;
}

interface RawAnswer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

function urlsOf(given: string | readonly string[]): string[] {
  const urls = typeof given === 'string' ? [given] : Array.from(given ?? []); // undefined in programs without types
  if (!urls.length) throw new TypeError('url: has to be the URL of a gateway, or an array of at least one');
  for (const url of urls) {
    const parsed = parseUrl(url);
    if (!parsed) throw new TypeError('url: has to be an http or https URL without query');
    if (parsed.username || parsed.password)
      throw new TypeError('url: has a user or password, which is not sent; give a credential by the option credential');
  }
  return urls;
}

/** Returns undefined if the text is no URL of a gateway. The errors do not cite it, because it may have a secret. */
function parseUrl(text: string): URL | undefined {
  try {
    return /^https?:\/\/[^?#]+$/.test(text) ? new URL(text) : undefined;
  } catch {
    return undefined;
  }
}

function atLeastZero(name: string, value: number): number {
  if (!Number.isFinite(value) || value < 0)
    throw new TypeError(`${name}: has to be a number of milliseconds, at least 0`);
  return value;
}

/** Returns the headers of all requests. */
function headersOf(cell: number | undefined): Record<string, string> {
  if (cell === undefined) return {};
  if (!Number.isInteger(cell) || cell < 0 || cell > CELL_MAX)
    throw new TypeError(`cell: has to be an integer from 0 to ${CELL_MAX}`);
  return {'Fencing-Cell': String(cell)};
}

/** Returns the error of an answer: an instance of the class of its slug. */
function problemOf(error: unknown, response: Response): ProblemError {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = seconds >= 0 && Number.isFinite(seconds) ? seconds * 1000 : undefined;
  const {type} = (error ?? {}) as {type?: unknown};
  if (typeof type !== 'string' || !type.startsWith('/problems/')) {
    const status = response.status;
    return new ProblemError({type: '' as Problem['type'], title: `The answer was ${status || 'a redirect'}`, status,
      detail: 'It was no problem document of a gateway.', request_id: ''}, retryAfterMs);
  }
  const problem = error as Problem;
  const classes: Record<string, typeof ProblemError> = problemClasses;
  return new (classes[problem.type.replace('/problems/', '')] ?? ProblemError)(problem, retryAfterMs);
}

/** Whether a proxy has failed, which does not say whether a gateway has the call. */
function isErrorOfProxy(fault: ProblemError): boolean {
  return fault.slug === '' && fault.status >= 500;
}

/** Whether a request that ended so may have been executed. */
export function mayBeExecuted(fault: unknown): boolean {
  if (fault instanceof ConnectionError) return fault.maybeExecuted;
  return fault instanceof ProblemError && (fault.problem.outcome_unknown === true || isErrorOfProxy(fault));
}

/** Whether a failure of Node's fetch says that there was no connection on which the request could be sent. */
function isWithoutConnection(cause: unknown): boolean {
  const {syscall, code, errors} = (cause ?? {}) as {syscall?: string; code?: string; errors?: unknown[]};
  return syscall === 'connect' || syscall === 'getaddrinfo' || code === 'UND_ERR_CONNECT_TIMEOUT'
    || (Array.isArray(errors) && errors.length > 0 && errors.every(isWithoutConnection));
}

/** Returns why Node's fetch has failed: its own message says only that it has. */
function reasonOf(cause: unknown): string | undefined {
  if (!cause) return undefined;
  const {message, code, errors} = cause as {message?: string; code?: string; errors?: unknown[]};
  return message || reasonOf(errors?.[0]) || code;
}

/** The code of a failure of Node's fetch that says that a certificate was refused, so that the request was not sent. */
function codeOfRefusedCertificate(cause: unknown): string | undefined {
  const {code} = (cause ?? {}) as {code?: unknown};
  return typeof code === 'string' && CERTIFICATE_REFUSED.test(code) ? code : undefined;
}

/** Whether a certificate was refused, so that only another gateway can answer. */
export function isCertificateRefused(fault: unknown): boolean {
  return fault instanceof ConnectionError && fault.cause instanceof Error
    && codeOfRefusedCertificate(fault.cause.cause) !== undefined;
}

/**
 * Whether Node's fetch has failed because the answer was 421: as the Fetch standard says, it sends the request again,
 * but without its body (nodejs/undici issue 2898). Bodies have no wrong length otherwise.
 */
function isMisdirected(cause: unknown): boolean {
  return (cause as {code?: unknown} | undefined)?.code === 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH';
}

/**
 * Whether the same request may succeed later.
 * One whose outcome is unknown is not simply repeated: writes.ts finds the outcome.
 */
function canRepeat(fault: unknown): fault is ConnectionError | ProblemError {
  if (fault instanceof ConnectionError) return true;
  if (!(fault instanceof ProblemError) || fault.problem.outcome_unknown) return false;
  return fault.slug === '' ? isErrorOfProxy(fault) || fault.status === TOO_MANY_REQUESTS
    : REPEATED.includes(fault.status) && fault.retryAfterMs !== undefined;
}

/**
 * The pause before attempt `number`: at least what Retry-After asks for, and a random part,
 * so that callers that failed together do not repeat together.
 */
function pauseBefore(number: number, retryAfterMs = 0): number {
  const backoff = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (number - 1));
  return retryAfterMs ? retryAfterMs + Math.random() * Math.min(backoff, retryAfterMs)
    : backoff * (0.5 + Math.random() / 2);
}

export class Calls {
  readonly http: Http;
  readonly retryForMs: number;
  readonly requestTimeoutMs: number;
  readonly #urls: string[];
  readonly #fetch: (request: Request) => Promise<Response>;
  readonly #log: (message: string) => void;
  #current = 0;

  constructor({url, credential, cell, requestTimeoutMs = 10_000, retryForMs = 30_000,
      fetch = globalThis.fetch, log = message => console.warn(message)}: ClientOptions) {
    this.#urls = urlsOf(url);
    this.#fetch = fetch;
    this.#log = log;
    this.requestTimeoutMs = atLeastZero('requestTimeoutMs', requestTimeoutMs);
    this.retryForMs = atLeastZero('retryForMs', retryForMs);
    this.http = createClient<paths, Json>({
      baseUrl: this.#urls[0] as string,
      cache: 'no-store',
      credentials: 'omit',
      // Not 'error', with which fetch of Node.js 20 and 22 ignores the signal once the answer has begun
      // and garbage was collected.
      redirect: 'manual',
      headers: headersOf(cell),
      querySerializer: {array: {style: 'form', explode: false}, object: {style: 'form', explode: true}},
      fetch,
    });
    if (credential !== undefined) {
      this.http.use({
        async onRequest({request}) {
          const value = typeof credential === 'function' ? await credential() : credential;
          if (!/^[\x21-\x7e]+$/.test(value))
            throw new FencegateError('credential: has characters that a header cannot have, or none');
          request.headers.set('Authorization', `Bearer ${value}`);
          return request;
        },
      });
    }
  }

  /** Returns a function that logs a failure that no caller gets. */
  logging(what: string): (fault: unknown) => void {
    return fault => this.#log(`fencegate: ${what}: ${String(fault)}`);
  }

  /**
   * Calls `send` until it succeeds, a repeat is useless, or the time is over.
   * After a failure that may be that of one gateway the next one is asked.
   */
  async run<T>(send: (attempt: Attempt) => Promise<RawAnswer<T>>, options: CallOptions = {}): Promise<Answer<T>> {
    const {signal, waitMs = 0, until = now() + waitMs + this.retryForMs, timeoutMs = this.requestTimeoutMs,
      lastAttempt = false, isExpected = () => true, onFault} = options;
    const refused = new Set<number>(); // the gateways whose certificates were refused
    for (let number = 1; ; number += 1) {
      signal?.throwIfAborted();
      const asked = this.#current;
      try {
        return await this.#send(send, this.#urls[asked] as string, timeoutMs + waitMs, signal, isExpected);
      } catch (fault) {
        onFault?.(fault);
        if (!canRepeat(fault)) throw fault;
        // The next gateway is asked, unless another call has already gone on to it.
        const isOfGateway = fault instanceof ConnectionError || fault.status >= 500;
        if (isOfGateway && this.#current === asked) this.#current = (asked + 1) % this.#urls.length;
        if (isCertificateRefused(fault) && refused.add(asked).size === this.#urls.length) throw fault;
        const wanted = pauseBefore(number, fault instanceof ProblemError ? fault.retryAfterMs : undefined);
        const left = until - now();
        const shortened = lastAttempt ? Math.floor(left - timeoutMs) : 0;
        const ms = wanted < left ? wanted : shortened;
        if (ms <= 0) throw fault;
        await pause(ms, signal);
      }
    }
  }

  async #send<T>(
    send: (attempt: Attempt) => Promise<RawAnswer<T>>, baseUrl: string, timeoutMs: number,
    signal: AbortSignal | undefined, isExpected: (data: unknown, status: number) => boolean,
  ): Promise<Answer<T>> {
    const sentAt = now();
    const fetch = this.#fetch;
    let isSent = false;
    const sendRequest = (request: Request) => {
      isSent = true;
      return fetch(request);
    };
    let raw;
    try {
      raw = await withTimeout(timeoutMs, signal, limited => send({signal: limited, baseUrl, fetch: sendRequest}));
    } catch (fault) {
      signal?.throwIfAborted();
      if (!isSent) throw fault; // of what the caller gave, such as a value that JSON cannot have
      if (fault instanceof TypeError && isMisdirected(fault.cause)) {
        const detail = 'The request is for another host or cell; nothing was executed. '
          + 'This version of Node.js does not pass the rest of the answer on.';
        throw new MisdirectedRequestError({type: '/problems/misdirected-request', title: 'The answer was 421',
          status: 421, detail, request_id: ''}, undefined, {cause: fault});
      }
      // The option fetch may throw anything.
      const {cause, message} = fault instanceof Error ? fault : {cause: undefined, message: String(fault)};
      const code = codeOfRefusedCertificate(cause);
      const reason = code ? `a certificate was refused (${code})` : reasonOf(cause) ?? message;
      throw new ConnectionError(`No answer from ${new URL(baseUrl).host}: ${reason}`,
        !code && !isWithoutConnection(cause), baseUrl, {cause: fault});
    }
    if (!raw.response.ok) throw problemOf(raw.error, raw.response);
    if (!isExpected(raw.data, raw.response.status)) throw new ConnectionError(
        `The answer ${raw.response.status} of ${new URL(baseUrl).host} is not that of a gateway`, true, baseUrl);
    return {data: raw.data as T, sentAt, replayed: raw.response.headers.get('idempotency-replayed') === 'true'};
  }
}
