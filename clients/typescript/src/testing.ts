// A gateway in memory, for the tests of services that use the client.

import {Fencegate} from './client.js';
import type {LeaseMode} from './lease.js';
import {setClock} from './time.js';
import type {Operation, WriteApplied} from './writes.js';

/** A write that was applied. */
export interface Written {
  readonly resources: readonly string[];
  readonly fencingToken: number;
  readonly operations: readonly Operation[];
  readonly idempotencyKey: string | undefined;
}

interface Grant {
  readonly leaseId: string;
  /** What the lease has exclusively, and what it shares. */
  readonly written: readonly string[];
  readonly read: readonly string[];
  readonly fencingToken: number;
  readonly owner: string | undefined;
  readonly ttlMs: number;
  endsAt: number;
  stream?: ReadableStreamDefaultController<Uint8Array>;
}

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

interface Body {
  resource?: string;
  resources?: string[];
  any_of?: string[];
  mode?: LeaseMode;
  shared?: string[];
  fence_on_grant?: boolean;
  owner?: string;
  ttl_ms?: number;
  lease_id?: string;
  lease?: Body;
  operations?: Operation[];
  then?: 'release';
}

const TTL = 30_000;
const FILTERS = ['resource', 'event', 'owner', 'write_id'];
/** Not those that a test runner may put in their place. */
const {setTimeout: setRealTimeout} = globalThis;

/** Waits until what has been begun in memory has ended. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise<void>(resolve => { setRealTimeout(resolve, 0); });
}

function answer(status: number, document?: unknown, headers: Record<string, string> = {}): Response {
  const body = document === undefined ? null : JSON.stringify(document);
  return new Response(body, {status, headers: {'content-type': 'application/json', ...headers}});
}

function problem(slug: string, status: number, members: object = {}): Response {
  const detail = `${slug}, by the test's gateway.`;
  const document = {type: `/problems/${slug}`, title: slug, status, detail, request_id: 'test', ...members};
  return answer(status, document, {'content-type': 'application/problem+json',
    ...(slug === 'resource-locked' && {'retry-after': '1'})});
}

const namesOf = ({written, read}: Pick<Grant, 'written' | 'read'>) => [...written, ...read];

function excludes(one: Pick<Grant, 'written' | 'read'>, other: Pick<Grant, 'written' | 'read'>): boolean {
  return one.written.some(name => namesOf(other).includes(name)) || one.read.some(name => other.written.includes(name));
}

/**
 * A gateway in memory, with a clock that the test moves, also for all other clients of this program.
 * Leases are exclusive or shared and have growing tokens; a write needs a live lease that is not only shared,
 * and is applied once for its key.
 * Operations are recorded and change no rows: `results` says what they lead to.
 */
export class TestGateway {
  /** The writes that were applied. */
  readonly writes: Written[] = [];
  /** The result of an operation; the test may replace it. */
  results: (operation: Operation) => WriteApplied['results'][number] = operation => ('call' in operation ? {value: null}
    : {rows_affected: operation.expect_rows ?? 1, rows: []});
  /** What a read of a path, such as `/v1/tables/inventory`, returns. */
  readonly reads = new Map<string, unknown>();
  /** Whether leases can be renewed. */
  renews = true;

  #time = Date.now();
  #timers: Timer[] = [];
  #token = 0;
  #holds = 0;
  readonly #grants = new Map<string, Grant>();
  readonly #fences = new Map<string, number>();
  /** Of reads under shared leases. */
  readonly #readFences = new Map<string, number>();
  readonly #kept = new Map<string, {operations: string; document: object}>();
  readonly #refusals: Response[] = [];
  readonly #events: Record<string, unknown>[] = [];

  constructor() {
    setClock({
      now: () => this.#time,
      setTimeout: (run, ms) => {
        const timer = {at: this.#time + ms, run};
        this.#timers.push(timer);
        return timer;
      },
      clearTimeout: given => { this.#timers = this.#timers.filter(timer => timer !== given); },
    });
  }

  /** Ends the gateway: the clock is the real one again. */
  close(): void {
    for (const grant of this.#grants.values()) this.#end(grant);
    setClock();
  }

  /** Returns a client of this gateway. */
  client(): Fencegate {
    return new Fencegate({url: 'http://in-memory', fetch: request => this.#answer(request)});
  }

  /** Moves the clock. Leases are renewed meanwhile if that is possible, and lost at their end otherwise. */
  async advance(ms: number): Promise<void> {
    const end = this.#time + ms;
    for (;;) {
      await settle();
      const next = this.#timers.filter(({at}) => at <= end).sort((one, other) => one.at - other.at)[0];
      if (!next) break;
      this.#timers = this.#timers.filter(timer => timer !== next);
      this.#time = Math.max(this.#time, next.at);
      next.run();
    }
    this.#time = end;
    await settle();
  }

  /** Lets the lease on a resource be lost now, as if an operator had revoked it. */
  async lose(resource: string): Promise<void> {
    await settle();
    for (const grant of this.#grants.values()) {
      if (!namesOf(grant).includes(resource)) continue;
      grant.stream?.enqueue(new TextEncoder().encode('event: lost\n\n'));
      this.#end(grant);
    }
    await settle();
  }

  /** Lets a newer holder write, so that the next write under the present lease is refused as stale. */
  raiseFence(resource: string): void {
    this.#fences.set(resource, this.#token += 1);
  }

  /** Lets the next write be refused by this problem: `refuseWrite('expectation-failed', 409, {rows_affected: 0})`. */
  refuseWrite(slug: string, status: number, members: object = {}): void {
    this.#refusals.push(problem(slug, status, members));
  }

  async #answer(request: Request): Promise<Response> {
    const {pathname, searchParams} = new URL(request.url);
    const text = await request.text();
    const body = (text ? JSON.parse(text) : {}) as Body;
    if (pathname === '/v1/leases') {
      const granted = this.#acquire(body);
      return granted instanceof Response ? granted : this.#show(granted);
    }
    if (pathname === '/v1/writes') return this.#write(body, request.headers.get('idempotency-key') ?? undefined);
    if (pathname === '/v1/history') {
      const items = this.#events.filter(item => FILTERS.every(name =>
        !searchParams.has(name) || item[name] === searchParams.get(name))
        && Number(item['fencing_token']) >= Number(searchParams.get('token_min') ?? 0)
        && Number(item['fencing_token']) <= Number(searchParams.get('token_max') ?? Infinity));
      return answer(200, {items: searchParams.get('order') === 'asc' ? items : items.reverse(), next_cursor: null});
    }
    if (pathname.startsWith('/v1/leases/')) return this.#onLease(request, pathname);
    const fencedBy = request.headers.get('fencing-lease');
    if (fencedBy !== null) {
      const reader = this.#grants.get(fencedBy);
      const refusal = this.#findRefusal(reader);
      if (refusal) return refusal;
      this.#raiseFences(reader as Grant);
    }
    return this.reads.has(pathname) ? answer(200, this.reads.get(pathname)) : problem('not-found', 404);
  }

  #onLease(request: Request, pathname: string): Response {
    const grant = this.#live(decodeURIComponent(pathname.split('/')[3] ?? ''));
    if (!grant) return problem('lease-lost', 410);
    if (request.method === 'GET') {
      const stream = new ReadableStream<Uint8Array>({start: controller => { grant.stream = controller; },
        cancel: () => { delete grant.stream; }});
      return new Response(stream, {headers: {'content-type': 'text/event-stream'}});
    }
    if (request.method === 'DELETE') {
      this.#end(grant);
      this.#record('lease_released', grant);
      return answer(204);
    }
    if (!this.renews) return problem('no-quorum', 503);
    grant.endsAt = this.#time + grant.ttlMs;
    return this.#show(grant);
  }

  #acquire({any_of: anyOf, ...body}: Body): Grant | Response {
    if (!anyOf) return this.#acquireAll(body);
    const isFree = (name: string) =>
      ![...this.#grants.values()].some(held => namesOf(held).includes(name) && this.#live(held.leaseId));
    const resource = anyOf.find(isFree);
    // Refused, never a further hold: without the owner.
    return this.#acquireAll(resource === undefined ? {resource: anyOf[0] as string} : {...body, resource});
  }

  #acquireAll({resource, resources = [resource as string], mode, shared = [], owner, ttl_ms: ttlMs = TTL,
    fence_on_grant: isFencing = false}: Body): Grant | Response {
    const names = mode === 'shared' ? {written: [], read: resources} : {written: resources, read: shared};
    let token = this.#token + 1;
    for (const held of this.#grants.values()) {
      if (!this.#live(held.leaseId)) continue;
      const isSame = String([held.written, '/', held.read]) === String([names.written, '/', names.read]);
      if (owner !== undefined && held.owner === owner && isSame) token = held.fencingToken; // a further hold
      else if (excludes(names, held))
        return problem('resource-locked', 423, {remaining_ms: held.endsAt - this.#time, max_wait_ms: 0});
    }
    this.#token = Math.max(this.#token, token);
    this.#holds += 1;
    const leaseId = `lease-${this.#holds}`;
    const grant: Grant = {leaseId, ...names, fencingToken: token, owner, ttlMs, endsAt: this.#time + ttlMs};
    this.#grants.set(leaseId, grant);
    this.#record('lease_granted', grant);
    if (isFencing) {
      this.#raiseFences(grant);
      this.#record('fence_raised', grant);
    }
    return grant;
  }

  /** Returns why nothing may be done under a lease: its token is stale, or it is over, or was never granted. */
  #findRefusal(grant: Grant | undefined): Response | undefined {
    const isBelow = (fences: Map<string, number>) => (name: string) =>
      (fences.get(name) ?? 0) > (grant as Grant).fencingToken;
    if (grant && (namesOf(grant).some(isBelow(this.#fences)) || grant.written.some(isBelow(this.#readFences))))
      return problem('stale-fencing-token', 412);
    return grant && this.#live(grant.leaseId) ? undefined : problem('lease-lost', 410);
  }

  #raiseFences({written, read, fencingToken}: Grant): void {
    for (const name of written) this.#fences.set(name, fencingToken);
    for (const name of read) this.#readFences.set(name, Math.max(fencingToken, this.#readFences.get(name) ?? 0));
  }

  #show({leaseId, written, read, fencingToken, owner, ttlMs}: Grant): Response {
    const resources = written.length ? written : read;
    const names = {...(resources.length === 1 ? {resource: resources[0]} : {resources}),
      ...(!written.length ? {mode: 'shared'} : read.length && {shared: read})};
    return answer(201, {...names, lease_id: leaseId, fencing_token: fencingToken, owner, ttl_ms: ttlMs,
      validity_ms: ttlMs, served_ms: 0});
  }

  #write({lease_id: leaseId = '', lease, operations = [], then}: Body, key: string | undefined): Response {
    const kept = this.#kept.get(key ?? '');
    if (kept) {
      return kept.operations === JSON.stringify(operations)
        ? answer(200, kept.document, {'idempotency-replayed': 'true'}) : problem('idempotency-mismatch', 422);
    }
    const grant = lease ? this.#acquire(lease) : this.#grants.get(leaseId);
    if (grant instanceof Response) return grant;
    if (grant && !grant.written.length) return problem('shared-lease', 403);
    const refusal = this.#findRefusal(grant) ?? this.#refusals.shift();
    if (grant && (lease || (then && !refusal))) this.#end(grant);
    return refusal ?? this.#apply(grant as Grant, operations, key, then && {released: true});
  }

  #apply(grant: Grant, operations: Operation[], idempotencyKey: string | undefined,
      more: object = {}): Response {
    const {written: resources, fencingToken: token} = grant;
    this.writes.push({resources, fencingToken: token, operations, idempotencyKey});
    this.#raiseFences(grant);
    const fences = resources.map(resource => ({resource, fencing_token: token, last_fencing_token: token}));
    const writeId = `write-${this.writes.length}`;
    this.#record('write_applied', grant, writeId);
    const results = operations.map(operation => this.results(operation));
    const document = {applied: true, write_id: writeId, fences, results, ...more};
    if (idempotencyKey) this.#kept.set(idempotencyKey, {operations: JSON.stringify(operations), document});
    return answer(200, document);
  }

  #live(leaseId: string): Grant | undefined {
    const grant = this.#grants.get(leaseId);
    if (!grant || grant.endsAt > this.#time) return grant;
    this.#end(grant);
    return undefined;
  }

  /** Ends a lease, whose token the fences still know. */
  #end(grant: Grant): void {
    grant.endsAt = Math.min(grant.endsAt, this.#time);
    grant.stream?.close();
    delete grant.stream;
  }

  #record(event: string, grant: Grant, writeId: string | null = null): void {
    const {fencingToken, owner} = grant;
    for (const resource of writeId === null ? namesOf(grant) : grant.written) {
      this.#events.push({id: this.#events.length + 1, at: new Date(this.#time).toISOString(), event, resource,
        fencing_token: fencingToken, owner, write_id: writeId});
    }
  }
}
