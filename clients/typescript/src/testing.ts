// A gateway in memory, for the tests of services that use the client.

import {Fencegate} from './client.js';
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
  readonly resources: readonly string[];
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

/**
 * A gateway in memory, with a clock that the test moves, also for all other clients of this program.
 * Leases are exclusive and have growing tokens; a write needs a live lease, and is applied once for its key.
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
      if (!grant.resources.includes(resource)) continue;
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
    if (fencedBy !== null && !this.#live(fencedBy)) return problem('lease-lost', 410);
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
      ![...this.#grants.values()].some(held => held.resources.includes(name) && this.#live(held.leaseId));
    const resource = anyOf.find(isFree);
    // Refused, never a further hold: without the owner.
    return this.#acquireAll(resource === undefined ? {resource: anyOf[0] as string} : {...body, resource});
  }

  #acquireAll({resource, resources = [resource as string], owner, ttl_ms: ttlMs = TTL,
    fence_on_grant: isFencing = false}: Body): Grant | Response {
    let token = this.#token + 1;
    for (const held of [...this.#grants.values()]) {
      if (!this.#live(held.leaseId) || !held.resources.some(name => resources.includes(name))) continue;
      if (owner === undefined || held.owner !== owner || String(held.resources) !== String(resources))
        return problem('resource-locked', 423, {remaining_ms: held.endsAt - this.#time, max_wait_ms: 0});
      token = held.fencingToken; // a further hold
    }
    this.#token = Math.max(this.#token, token);
    this.#holds += 1;
    const leaseId = `lease-${this.#holds}`;
    const grant: Grant = {leaseId, resources, fencingToken: token, owner, ttlMs, endsAt: this.#time + ttlMs};
    this.#grants.set(leaseId, grant);
    this.#record('lease_granted', grant);
    if (isFencing) {
      for (const name of resources) this.#fences.set(name, token);
      this.#record('fence_raised', grant);
    }
    return grant;
  }

  #show({leaseId, resources, fencingToken, owner, ttlMs}: Grant): Response {
    const names = resources.length === 1 ? {resource: resources[0]} : {resources};
    return answer(201, {...names, lease_id: leaseId, fencing_token: fencingToken, owner, ttl_ms: ttlMs,
      validity_ms: ttlMs, served_ms: 0});
  }

  #write({lease_id: leaseId = '', lease, operations = [], then}: Body, key: string | undefined): Response {
    const kept = this.#kept.get(key ?? '');
    if (kept) {
      return kept.operations === JSON.stringify(operations)
        ? answer(200, kept.document, {'idempotency-replayed': 'true'}) : problem('idempotency-mismatch', 422);
    }
    const grant = lease ? this.#acquire(lease) : this.#live(leaseId);
    if (!grant) return problem('lease-lost', 410);
    if (grant instanceof Response) return grant;
    if (lease) this.#end(grant);
    if (grant.resources.some(name => (this.#fences.get(name) ?? 0) > grant.fencingToken))
      return problem('stale-fencing-token', 412);
    if (then && !this.#refusals.length) this.#end(grant);
    return this.#refusals.shift() ?? this.#apply(grant, operations, key, then && {released: true});
  }

  #apply(grant: Grant, operations: Operation[], idempotencyKey: string | undefined,
      more: object = {}): Response {
    const {resources, fencingToken: token} = grant;
    this.writes.push({resources, fencingToken: token, operations, idempotencyKey});
    const fences = resources.map(resource => {
      this.#fences.set(resource, token);
      return {resource, fencing_token: token, last_fencing_token: token};
    });
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

  #end(grant: Grant): void {
    this.#grants.delete(grant.leaseId);
    grant.stream?.close();
    delete grant.stream;
  }

  #record(event: string, {resources, fencingToken, owner}: Grant, writeId: string | null = null): void {
    for (const resource of resources) {
      this.#events.push({id: this.#events.length + 1, at: new Date(this.#time).toISOString(), event, resource,
        fencing_token: fencingToken, owner, write_id: writeId});
    }
  }
}
