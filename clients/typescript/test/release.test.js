// Releases of leases, with a seal and without, whose answers are lost or refusals.

import assert from 'node:assert/strict';
import {after, test} from 'node:test';
import {FencegateError, LeaseLostError, StorageUnavailableError} from '@fencegate/client';
import {loseAnswer, problem, withFront} from './support/front.js';
import {aborted, bothReady, clientOf, insertOrder, newOrder, newResource, urls} from './support/stack.js';

after(bothReady);

const client = clientOf();
const statusOfWrite = async (lease, order) => (await client.http.POST('/v1/writes',
  {body: {lease_id: lease.leaseId, operations: [insertOrder(order)]}})).response.status;

test('release_with_seal_then_own_token_refused', async () => {
  const order = newOrder();
  const lease = await client.acquire(`orders/${order}`);
  await lease.release({seal: true});
  assert.equal(await statusOfWrite(lease, order), 412);
});

test('release_with_seal_of_ended_lease_then_rejects', async () => {
  const lease = await client.acquire(newResource());
  // Not by the lease, and without a seal.
  await client.http.DELETE('/v1/leases/{lease_id}', {params: {path: {lease_id: lease.leaseId}}});
  await assert.rejects(lease.release({seal: true}), LeaseLostError);
});

test('release_with_seal_of_lost_lease_then_rejects', async () => {
  const resource = newResource();
  const lease = await client.acquire(resource, {ttlMs: 1500});
  await client.http.DELETE('/v1/resources/{resource}/lease', {params: {path: {resource}}, body: {reason: 'a test'}});
  const reason = await aborted(lease.signal);
  await assert.rejects(lease.release({seal: true}), fault => fault === reason);
});

test('failed_release_that_no_caller_gets_is_logged', async () => {
  const messages = [];
  const refuse = problem(503, 'no-quorum');
  await withFront(urls[0], asked => asked.method === 'DELETE' ? refuse : undefined, async front => {
    const logging = clientOf({url: front.url, log: message => messages.push(message)});
    assert.equal(await logging.runOncePerTick(newResource(), 60_000, {ttlMs: 5000}, () => undefined), true);
    assert.equal(messages.length, 2, 'of the record of the tick, and of the lease');
    const thrown = () => { throw new RangeError('of the work'); };
    await assert.rejects(logging.withLease(newResource(), {ttlMs: 5000}, thrown), RangeError);
  });
  assert.equal(messages.length, 3);
  for (const message of messages) assert.match(message, /^fencegate: a lease was not released.*NoQuorumError/);
});

test('release_with_seal_answer_lost_then_sealed', async () => {
  const order = newOrder();
  await withFront(urls[0], asked => asked.method === 'DELETE' && asked.number === 2 ? loseAnswer : undefined,
      async front => {
    const lease = await clientOf({url: front.url}).acquire(`orders/${order}`);
    await lease.release({seal: true});
    assert.equal(front.requests.length, 3);
    assert.equal(await statusOfWrite(lease, order), 412);
  });
});

test('release_with_seal_that_was_not_done_then_rejects', async () => {
  const unsealed = async (asked, ask, response) => response.writeHead(200, {'content-type': 'application/json'})
    .end('{"hold_count": 0, "sealed": false}');
  await withFront(urls[0], asked => asked.method === 'DELETE' ? unsealed : undefined, async front => {
    const lease = await clientOf({url: front.url}).acquire(newResource(), {ttlMs: 10_000});
    await assert.rejects(lease.release({seal: true}),
      fault => fault.constructor === FencegateError && /not sealed/.test(fault.message));
  });
});

test('with_lease_seal_fails_then_rejects_unless_work_threw', async () => {
  const refuse = problem(503, 'storage-unavailable');
  await withFront(urls[0], asked => asked.method === 'DELETE' ? refuse : undefined, async front => {
    const other = clientOf({url: front.url});
    await assert.rejects(other.withLease(newResource(), {ttlMs: 10_000, seal: true}, () => 'a result'),
      StorageUnavailableError);
    assert.equal(await other.withLease(newResource(), {ttlMs: 10_000}, () => 'a result'), 'a result',
      'without seal the lease only lasts until its ttl');
    await assert.rejects(other.withLease(newResource(), {ttlMs: 10_000, seal: true},
      () => { throw new RangeError('of the work'); }), RangeError);
    assert.equal(front.requests.filter(asked => asked.path.endsWith('?seal=true')).length, 2);
  });
});

test('lease_of_another_process_is_adopted', async () => {
  const {leaseId, fencingToken} = await client.acquire(newResource(), {ttlMs: 5_000});
  const adopted = await client.adopt(leaseId, {ttlMs: 20_000});
  assert.ok(adopted.fencingToken === fencingToken && adopted.remainingMs() > 10_000);
  await adopted.release();
  await assert.rejects(client.adopt(leaseId), LeaseLostError);
});
