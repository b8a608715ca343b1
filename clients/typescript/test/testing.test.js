// The gateway in memory: the same contract as a real one, and what only it can do.

import assert from 'node:assert/strict';
import {randomUUID} from 'node:crypto';
import {test} from 'node:test';
import {ExpectationFailedError, IdempotencyMismatchError, LeaseLostError,
  ResourceLockedError, SharedLeaseError, StaleFencingTokenError} from '@fencegate/client';
import {TestGateway} from '@fencegate/client/testing';
import {clientOf, newResource} from './support/stack.js';

const OPERATION = {update: 'inventory', where: {sku: 'sku-1'}, set: {note: 'counted'}, expect_rows: 1};

/** Runs work with a gateway in memory. */
async function inMemory(work) {
  const gateway = new TestGateway();
  try {
    return await work(gateway, gateway.client());
  } finally {
    gateway.close();
  }
}

/** Returns whether the work of a tick was run. */
async function tick(client, resource) {
  let runs = 0;
  const isRun = await client.runOncePerTick(resource, 600_000, {}, async ({check}) => {
    check();
    runs += 1;
  });
  assert.equal(runs, Number(isRun));
  return isRun;
}

const places = {real: work => work(clientOf()), memory: work => inMemory((_, client) => work(client))};
for (const [place, run] of Object.entries(places)) {
  test(`leases_of_${place}_gateway_are_exclusive_and_tokens_grow`, () => run(async client => {
    const resource = newResource();
    const first = await client.acquire(resource, {ttlMs: 20_000});
    assert.ok(first.remainingMs() > 0 && first.remainingMs() <= 20_000);
    await assert.rejects(client.acquire(resource), fault => fault instanceof ResourceLockedError
      && fault.problem.remaining_ms > 0 && fault.problem.remaining_ms <= 20_000);
    await first.release();
    await first.release();
    assert.throws(first.check, LeaseLostError);
    const second = await client.acquire(resource);
    assert.ok(second.fencingToken > first.fencingToken);
    await second.release();
  }));

  test(`work_at_${place}_gateway_is_run_once_in_a_tick`, () => run(async client => {
    const resource = newResource();
    assert.deepEqual([await tick(client, resource), await tick(client, resource)], [true, false]);
    await client.withLease(resource, {}, async () => assert.equal(await tick(client, resource), false));
    await (await client.acquire(`${resource}@tick`)).release();
  }));

  test(`owner_at_${place}_gateway_gets_further_holds`, () => run(async client => {
    const [resource, options] = [newResource(), {owner: 'worker', ttlMs: 20_000}];
    const [first, second] = [await client.acquire(resource, options), await client.acquire(resource, options)];
    assert.equal(first.fencingToken, second.fencingToken);
    await first.release();
    second.check();
    await second.release();
  }));

  test(`readers_at_${place}_gateway_share_and_exclude_a_writer`, () => run(async client => {
    const [name, other, options] = [newResource(), newResource(), {ttlMs: 20_000, waitMs: 5000}];
    const older = await client.acquire(name, options);
    await (await client.adopt(older.leaseId)).release();
    const reader = await client.acquire(name, {...options, mode: 'shared', fenceOnGrant: true});
    const mixed = await client.acquire(other, {...options, shared: [name]});
    assert.deepEqual([reader.resources, reader.mode, reader.shared], [[name], 'shared', []]);
    assert.deepEqual([mixed.resources, mixed.mode, mixed.shared], [[other], 'exclusive', [name]]);
    for (const wanted of [name, {anyOf: [other, name]}])
      await assert.rejects(client.acquire(wanted), ResourceLockedError);
    await assert.rejects(older.write([OPERATION]), // it may know the end of its lease
      fault => fault instanceof StaleFencingTokenError || fault instanceof LeaseLostError);
    await assert.rejects(reader.write([OPERATION]), SharedLeaseError);
    reader.check();
    await Promise.all([reader.release(), mixed.release()]);
    const writer = await client.acquire(name, options);
    assert.ok(writer.fencingToken > reader.fencingToken);
    await assert.rejects(client.acquire(name, {mode: 'shared'}), ResourceLockedError);
    await writer.release();
    await assert.rejects(client.withLease(name, {mode: 'shared', seal: true}, () => undefined),
      {name: 'TypeError', message: /^seal/});
  }));

  test(`write_at_${place}_gateway_is_applied_once_for_its_key`, () => run(async client => {
    const options = {idempotencyKey: randomUUID()};
    const [first, again] = [await client.oneShotWrite('inventory/sku-1', [OPERATION], options),
      await client.oneShotWrite('inventory/sku-1', [OPERATION], options)];
    assert.deepEqual([first.replayed, again.replayed, again.write_id], [false, true, first.write_id]);
    assert.equal(first.results[0].rows_affected, 1);
    await assert.rejects(client.oneShotWrite('inventory/sku-1', [{...OPERATION, set: {note: 'other'}}], options),
      IdempotencyMismatchError);
    await client.withLease('inventory/sku-1', {}, async ({write, fencingToken}) => {
      assert.equal((await write([OPERATION])).fences[0].fencing_token, fencingToken);
      await assert.rejects(client.oneShotWrite('inventory/sku-1', [OPERATION]), ResourceLockedError);
    });
  }));
}

test('write_in_memory_releases_its_lease', () => inMemory(async (gateway, client) => {
  const lease = await client.acquire('a', {owner: 'worker'});
  assert.equal((await lease.write([OPERATION], {thenRelease: true})).released, true);
  (await client.acquire('a')).check();
}));

test('next_tick_begins_half_of_its_period_later', () => inMemory(async (gateway, client) => {
  assert.equal(await tick(client, 'a'), true);
  await gateway.advance(299_999);
  assert.equal(await tick(client, 'a'), false);
  await gateway.advance(1);
  assert.equal(await tick(client, 'a'), true);
}));

test('failure_in_a_tick_rejects_the_call_and_counts', () => inMemory(async (gateway, client) => {
  const work = ({resources}) => client.acquire(resources);
  await assert.rejects(client.runOncePerTick('a', 600_000, {}, work), ResourceLockedError);
  assert.equal(await tick(client, 'a'), false);
  for (const everyMs of [999, Infinity, NaN])
    await assert.rejects(client.runOncePerTick('b', everyMs, {}, work), {name: 'TypeError', message: /^everyMs/});
}));

test('clock_of_test_gateway_renews_leases_and_lets_them_end', () => inMemory(async (gateway, client) => {
  const lease = await client.acquire('a', {ttlMs: 30_000});
  await gateway.advance(3_600_000);
  lease.check();
  gateway.renews = false;
  await gateway.advance(31_000);
  assert.ok(lease.signal.aborted && lease.remainingMs() === 0);
  assert.equal((await client.acquire('a')).fencingToken, 2);
}));

test('lease_that_the_test_loses_is_lost_at_once', () => inMemory(async (gateway, client) => {
  await assert.rejects(client.withLease(['a', 'b'], {}, async ({signal, write}) => {
    await gateway.lose('b');
    assert.ok(signal.reason instanceof LeaseLostError);
    await assert.rejects(write([OPERATION]), LeaseLostError);
  }), LeaseLostError);
  assert.equal(gateway.writes.length, 0);
}));

test('writes_are_refused_as_the_test_says', () => inMemory(async (gateway, client) => {
  gateway.refuseWrite('expectation-failed', 409, {rows_affected: 0});
  await assert.rejects(client.oneShotWrite('a', [OPERATION]),
    fault => fault instanceof ExpectationFailedError && fault.problem.rows_affected === 0);
  const lease = await client.acquire('a');
  gateway.raiseFence('a');
  await assert.rejects(lease.write([OPERATION]), StaleFencingTokenError);
  assert.ok(lease.signal.aborted);
  await lease.release().catch(() => undefined);
  await client.withLease('a', {}, ({write}) => write([OPERATION], {idempotencyKey: 'k'}));
  assert.deepEqual(gateway.writes.map(each => [each.fencingToken, each.idempotencyKey]), [[4, 'k']]);
}));

test('fenced_read_refuses_older_writers_and_late_readers', () => inMemory(async (gateway, client) => {
  gateway.reads.set('/v1/tables/inventory', []);
  const older = await client.acquire('a');
  await client.http.DELETE('/v1/leases/{lease_id}', {params: {path: {lease_id: older.leaseId}}});
  const reader = await client.acquire('b', {shared: ['a']});
  const read = async () => (await client.http.GET('/v1/tables/{table}',
    {params: {path: {table: 'inventory'}, header: {'Fencing-Lease': reader.leaseId}}})).response.status;
  assert.equal(await read(), 200);
  const body = {lease_id: older.leaseId, operations: [OPERATION]};
  assert.equal((await client.http.POST('/v1/writes', {body})).response.status, 412);
  gateway.raiseFence('a');
  assert.equal(await read(), 412);
}));

test('reads_and_history_are_those_of_the_test', () => inMemory(async (gateway, client) => {
  gateway.reads.set('/v1/tables/inventory', [{stock: 3}]);
  await client.withLease('a', {}, ({write}) => write([OPERATION]));
  const {data} = await client.http.GET('/v1/tables/{table}', {params: {path: {table: 'inventory'}}});
  assert.deepEqual(data, [{stock: 3}]);
  const events = [];
  for await (const {event} of client.history({resource: 'a', order: 'asc'})) events.push(event);
  assert.deepEqual(events, ['lease_granted', 'write_applied', 'lease_released']);
  const {error} = await client.http.GET('/v1/nodes');
  assert.equal(error.type, '/problems/not-found');
}));
