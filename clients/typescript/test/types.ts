// What the compiler accepts and refuses; `npm run types` checks it.

import {enter, Fencegate, LeaseLostError, ProblemError, type components, type HistoryItem, type Operation,
  type WriteApplied} from '@fencegate/client';
import pg from 'pg';

const client = new Fencegate({url: ['http://127.0.0.1:1', 'http://127.0.0.1:2'], credential: () => 'key'});

export async function typed(pool: pg.PoolClient): Promise<void> {
  const quantity: number = await client.withLease('inventory/sku-1', {ttlMs: 10_000, waitMs: 2000},
      async ({fencingToken, signal, write}) => {
    await fetch('http://127.0.0.1:3', {signal});
    const done: WriteApplied =
      await write([{update: 'inventory', where: {sku: 'sku-1', stock: {gte: 3}}, add: {stock: -3}, expect_rows: 1}]);
    return fencingToken + done.results.length;
  });
  await client.withLease(['a', 'b'], {}, async lease => enter(pool, lease));
  for await (const item of client.history({event: ['write_rejected', 'lease_expired'], token_min: quantity})) {
    const last: HistoryItem['last_fencing_token'] = item.last_fencing_token;
    console.log(last);
  }
  const {data, error} = await client.http.POST('/v1/leases', {body: {resource: 'a'}});
  console.log(data?.fencing_token, error?.type === '/problems/lease-lost');
  await client.http.PATCH('/v1/tables/{table}',
    {params: {path: {table: 'inventory'}, query: {conditions: {sku: 'eq.sku-1'}}}, body: {note: 'low', price: 1.5}});
  await client.http.POST('/v1/rpc/{function}', {params: {path: {function: 'place_order'}}, body: {order_id: 1}});

  // @ts-expect-error: neither resource nor resources
  await client.http.POST('/v1/leases', {body: {ttl_ms: 1000}});
  // @ts-expect-error: both resource and resources
  await client.http.POST('/v1/leases', {body: {resource: 'a', resources: ['b']}});
  // @ts-expect-error: an update without where
  await client.oneShotWrite('a', [{update: 'inventory', set: {note: 'x'}}]);
  // @ts-expect-error: an unknown operation
  const unknown: Operation = {upsert: 'inventory'};
  // @ts-expect-error: an unknown option
  await client.withLease('a', {ttl: 1}, () => unknown);
  // @ts-expect-error: an unknown mode
  await client.acquire('a', {mode: 'read'});
  // @ts-expect-error: a write of its own has no shared lease
  await client.oneShotWrite('a', [], {mode: 'shared'});
  // @ts-expect-error: an unknown event
  client.history({event: 'nothing'});
}

export function stateOf(answer: components['schemas']['resource_state'], fault: unknown): string {
  if (fault instanceof LeaseLostError) return fault.slug;
  if (fault instanceof ProblemError) return String(fault.problem.remaining_ms ?? fault.retryAfterMs);
  return answer.lease_state ?? answer.end ?? '';
}
