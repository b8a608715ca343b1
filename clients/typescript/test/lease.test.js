// Leases: renewal, loss, validity and waiting, on gateways that are killed, paused and late.

import assert from 'node:assert/strict';
import {after, test} from 'node:test';
import {FencegateError, LeaseLostError, ResourceLockedError, StaleFencingTokenError} from '@fencegate/client';
import {changeAnswer, first, loseAnswer, problem, withFront} from './support/front.js';
import {aborted, bothReady, clientOf, eventually, insertOrder, newOrder, newResource, readStack, renewed, urls,
  withPaused} from './support/stack.js';

after(bothReady);

const client = clientOf();
const leasesOn = async resource =>
  (await client.http.GET('/v1/leases', {params: {query: {resource_prefix: resource}}})).data.items;
const renewals = asked => asked.path.endsWith('/renew');
const renewalsOf = async resource => (await leasesOn(resource))[0]?.renewals ?? 0;

test('with_lease_runs_longer_than_ttl_then_renewed_and_released', async () => {
  const resource = newResource();
  const token = await client.withLease(resource, {ttlMs: 4000}, async ({fencingToken, resources, signal}) => {
    assert.deepEqual(resources, [resource]);
    await eventually(async () => await renewalsOf(resource) >= 4,
      'four renewals, each after a third of the ttl', 20_000);
    await assert.rejects(client.acquire(resource), ResourceLockedError);
    assert.equal(signal.aborted, false);
    return fencingToken;
  });
  const next = await client.acquire(resource); // without waiting: it was released
  assert.ok(next.fencingToken > token);
  await next.release();
  assert.deepEqual(await leasesOn(resource), []);
});

test('with_lease_fails_then_error_passed_on_and_released', async () => {
  const resource = newResource();
  await assert.rejects(client.withLease(resource, {}, () => { throw new RangeError('of the work'); }), RangeError);
  assert.deepEqual(await leasesOn(resource), []);
});

test('revoked_lease_is_lost_long_before_its_renewal', async () => {
  const resource = newResource();
  const lease = await clientOf({url: urls[0]}).acquire(resource, {ttlMs: 60_000});
  const began = performance.now();
  await clientOf({url: urls[1]}).http.DELETE('/v1/resources/{resource}/lease',
    {params: {path: {resource}}, body: {reason: 'a test'}});
  await aborted(lease.signal);
  assert.ok(lease.signal.reason instanceof LeaseLostError && lease.signal.reason.status === 410);
  assert.ok(performance.now() - began < 10_000, 'the renewal would be after 20 s');
  await assert.rejects(lease.release(), LeaseLostError);
});

test('acquire_held_resource_waits_until_released', async () => {
  const resource = newResource();
  const held = await client.acquire(resource);
  const waiting = client.acquire(resource, {waitMs: 10_000});
  await eventually(async () => (await client.http.GET('/v1/leases',
      {params: {query: {resource_prefix: resource}}})).data.waiters === 1, 'it waits');
  await held.release();
  const lease = await waiting;
  assert.ok(lease.fencingToken > held.fencingToken);
  await lease.release();
});

test('acquire_waits_longer_than_one_request_may', async () => {
  const resource = newResource();
  const held = await client.acquire(resource);
  const shorten = changeAnswer((body, status) => ({status, body: status === 423 ? {...body, max_wait_ms: 100} : body}));
  await withFront(urls[0], () => shorten, async front => {
    const waiting = clientOf({url: front.url}).acquire(resource, {waitMs: 10_000});
    await eventually(() => front.requests.length >= 4, 'several requests wait, one after another');
    await held.release();
    await (await waiting).release();
    const requests = front.requests.filter(asked => asked.path === '/v1/leases');
    assert.deepEqual(requests.map(asked => asked.json.wait_ms).slice(0, 3), [0, 100, 100]);
    assert.equal(new Set(requests.map(asked => asked.headers['idempotency-key'])).size, 1,
      'one key, which keeps the place in the queue');
  });
});

test('acquire_wait_refused_by_next_gateway_then_its_limit', async () => {
  const resource = newResource();
  const held = await client.acquire(resource);
  const limits = asked => {
    if (asked.json?.wait_ms > 100) return problem(400, 'invalid-request', {},
        {errors: [{pointer: '/wait_ms', detail: 'has to be an integer from 0 to 100'}]});
    return changeAnswer((body, status) => (
      {status, body: status === 423 ? {...body, max_wait_ms: asked.number === 1 ? 5000 : 100} : body}));
  };
  await withFront(urls[0], limits, async front => {
    const waiting = clientOf({url: front.url}).acquire(resource, {waitMs: 10_000});
    await eventually(() => front.requests.length >= 4, 'it waits as long as it may');
    await held.release();
    await (await waiting).release();
    const [asked, tooLong, ...rest] = front.requests.filter(each => each.path === '/v1/leases')
      .map(each => each.json.wait_ms);
    assert.deepEqual([asked, tooLong, ...rest.slice(0, 2)], [0, 5000, 0, 100]);
  });
});

test('acquire_wait_over_then_locked_with_holder', async () => {
  const resource = newResource();
  const held = await client.acquire(resource, {owner: 'holder'});
  const began = performance.now();
  await assert.rejects(client.acquire(resource, {waitMs: 300}),
    fault => fault instanceof ResourceLockedError && fault.problem.owner === 'holder'
      && fault.problem.fencing_token === held.fencingToken);
  assert.ok(performance.now() - began >= 290);
  await held.release();
});

test('acquire_aborted_while_waiting_then_leaves_queue', async () => {
  const resource = newResource();
  const held = await client.acquire(resource);
  const stop = new AbortController();
  const waiting = client.acquire(resource, {waitMs: 10_000, signal: stop.signal});
  const waiters =
    async () => (await client.http.GET('/v1/leases', {params: {query: {resource_prefix: resource}}})).data.waiters;
  await eventually(async () => await waiters() === 1, 'it waits');
  stop.abort(new Error('no longer wanted'));
  await assert.rejects(waiting, /no longer wanted/);
  await eventually(async () => await waiters() === 0, 'nobody waits');
  await held.release();
});

test('acquire_aborted_after_grant_then_nobody_holds_it', async () => {
  const resource = newResource();
  const stop = new AbortController();
  const abort = async (asked, ask) => {
    await ask();
    stop.abort(new Error('no longer wanted'));
  };
  await withFront(urls[0], first(abort), async front => {
    await assert.rejects(clientOf({url: front.url}).acquire(resource, {ttlMs: 60_000, signal: stop.signal}),
      /no longer wanted/);
    await eventually(async () => (await leasesOn(resource)).length === 0, 'it is released');
    const [acquired, cancelled] = front.requests;
    assert.equal(cancelled.path, '/v1/leases/cancel');
    assert.equal(cancelled.headers['idempotency-key'], acquired.headers['idempotency-key']);
    assert.deepEqual(cancelled.json, acquired.json);
  });
});

test('acquire_aborted_before_it_is_sent_then_nothing_is', async () => {
  await withFront(urls[0], undefined, async front => {
    await assert.rejects(clientOf({url: front.url})
      .acquire(newResource(), {signal: AbortSignal.abort(new Error('too late'))}), /too late/);
    assert.deepEqual(front.requests, []);
  });
});

test('with_lease_aborted_then_rejects_before_release_is_answered', async () => {
  let timedOut;
  const hang =
    (asked, ask, response) => new Promise(resolve => { response.on('close', () => { timedOut = true; resolve(); }); });
  await withFront(urls[0], asked => (asked.method === 'DELETE' ? hang : undefined), async front => {
    const other = clientOf({url: front.url});
    const end = (stop, resource) => [
      () => stop.abort(new RangeError('no longer wanted')),
      () => client.http.DELETE('/v1/resources/{resource}/lease',
        {params: {path: {resource}}, body: {reason: 'a test'}}),
    ];
    for (const way of [0, 1]) {
      const stop = new AbortController();
      const resource = newResource();
      timedOut = false;
      await assert.rejects(other.withLease(resource, {ttlMs: 6000, signal: stop.signal}, async ({signal}) => {
        await end(stop, resource)[way]();
        throw await aborted(signal);
      }), fault => fault.constructor === [RangeError, LeaseLostError][way]);
      assert.equal(timedOut, false);
      await eventually(() => front.requests.filter(asked => asked.method === 'DELETE').length > way,
        'the release goes on');
    }
  });
});

test('acquire_answer_lost_then_same_lease_and_one_hold', async () => {
  const resource = newResource();
  await withFront(urls[0], first(loseAnswer), async front => {
    const lease = await clientOf({url: front.url}).acquire(resource, {owner: 'me'});
    assert.equal(front.requests.length, 2);
    assert.equal((await leasesOn(resource))[0].hold_count, 1);
    await lease.release();
    assert.deepEqual(await leasesOn(resource), []);
  });
});

test('acquire_several_resources_with_owner_then_second_hold', async () => {
  const resources = [newResource(), newResource()].sort();
  const one = await client.acquire([...resources].reverse(), {owner: 'me'});
  const two = await client.acquire(resources, {owner: 'me'});
  assert.deepEqual([one.resources, two.resources], [resources, resources]);
  assert.equal(two.fencingToken, one.fencingToken);
  await one.release();
  assert.equal((await leasesOn(resources[0])).length, 1);
  await two.release();
  assert.deepEqual(await leasesOn(resources[0]), []);
});

test('lease_revoked_then_signal_aborted_and_call_rejected', async () => {
  const resource = newResource();
  const working = client.withLease(resource, {ttlMs: 9000}, async ({signal, remainingMs}) => {
    assert.ok(remainingMs() > 0);
    await client.http.DELETE('/v1/resources/{resource}/lease', {params: {path: {resource}}, body: {reason: 'a test'}});
    const reason = await aborted(signal);
    assert.ok(reason instanceof LeaseLostError && reason.problem.request_id,
      'the answer to a renewal, before the validity is over');
    return 'what was committed';
  });
  await assert.rejects(working, fault => fault instanceof LeaseLostError && fault.result === 'what was committed');
});

test('with_lease_revoked_after_last_renewal_then_rejects', async () => {
  for (const seal of [false, true]) {
    const resource = newResource();
    let held;
    const working = client.withLease(resource, {seal}, async lease => {
      held = lease;
      await client.http.DELETE('/v1/resources/{resource}/lease',
        {params: {path: {resource}}, body: {reason: 'a test'}});
      lease.check(); // no answer has reported it
      return 'what was committed';
    });
    await assert.rejects(working, fault => fault instanceof LeaseLostError && fault.problem.request_id !== ''
      && fault === held.signal.reason && fault.result === 'what was committed');
  }
});

test('lease_released_then_check_of_code_left_running_throws', async () => {
  let left;
  await client.withLease(newResource(), {}, lease => { left = lease; });
  assert.equal(left.remainingMs(), 0);
  assert.throws(() => left.check(), fault => fault instanceof LeaseLostError && /released/.test(fault.message));
});

test('lease_released_by_work_then_result_unless_not_sealed', async () => {
  for (const seal of [false, true]) assert.equal(await client.withLease(newResource(), {seal},
      ({release}) => release({seal}).then(() => 'a result')), 'a result');
  await assert.rejects(client.withLease(newResource(), {seal: true}, ({release}) => release().then(() => 1)),
    fault => fault.constructor === FencegateError && /not sealed/.test(fault.message) && fault.result === 1);
});

test('lease_write_refused_by_newer_token_then_lost', async () => {
  const order = newOrder();
  const resource = `orders/${order}`;
  const older = await client.acquire(resource);
  await client.http.POST('/v1/resources/{resource}/fence',
    {params: {path: {resource}}, body: {reason: 'a newer token', last_fencing_token: older.fencingToken + 1}});
  await assert.rejects(older.write([insertOrder(order)]), StaleFencingTokenError);
  assert.ok(older.signal.reason instanceof LeaseLostError
    && older.signal.reason.cause instanceof StaleFencingTokenError);
  assert.throws(() => older.check(), fault => fault === older.signal.reason);
});

test('lease_renewals_always_refused_then_few_attempts', async () => {
  await withFront(urls[0], asked =>
      (renewals(asked) ? problem(429, 'too-many-requests', {'retry-after': '60'}) : undefined), async front => {
    const lease = await clientOf({url: front.url}).acquire(newResource(), {ttlMs: 4500});
    const reason = await aborted(lease.signal);
    assert.equal(reason.cause.status, 429);
    assert.equal(front.requests.filter(renewals).length, 2);
  });
});

test('lease_gateways_paused_then_aborted_at_end_of_validity', async () => {
  const began = performance.now();
  const lease = await client.acquire(newResource(), {ttlMs: 3000});
  const reason = await withPaused([0, 1], () => aborted(lease.signal));
  const after = performance.now() - began;
  assert.ok(reason instanceof LeaseLostError && reason.cause, 'the cause is the failed renewal');
  assert.ok(after > 2900 && after < 6000, `aborted after ${after} ms; the ttl is 3000`);
  assert.equal(lease.remainingMs(), 0);
  assert.throws(() => lease.check(), LeaseLostError);
  await assert.rejects(lease.write([insertOrder(1)]), LeaseLostError);
});

test('lease_gateway_paused_then_renewed_by_the_other', async () => {
  const lease = await client.acquire(newResource(), {ttlMs: 12_000});
  await withPaused([0], () => renewed(lease));
  assert.equal(lease.signal.aborted, false);
  await lease.release();
});

test('lease_gateway_killed_then_renewed_by_the_other', async () => {
  const lease = await client.acquire(newResource(), {ttlMs: 6000});
  process.kill(readStack().gateways[0].pid, 'SIGKILL');
  await renewed(lease);
  assert.equal(lease.signal.aborted, false);
  await lease.release();
  await bothReady();
});

test('lease_program_blocked_then_remaining_time_tells', async () => {
  const lease = await client.acquire(newResource(), {ttlMs: 1000});
  for (const until = performance.now() + 1100; performance.now() < until;); // no timer runs meanwhile
  assert.equal(lease.signal.aborted, false);
  assert.equal(lease.remainingMs(), 0);
  assert.throws(() => lease.check(), LeaseLostError);
  assert.equal(lease.signal.aborted, true);
});

test('with_lease_program_blocked_beyond_validity_then_rejects', async () => {
  const done = async (asked, ask, response) => response.writeHead(204).end();
  await withFront(urls[0], asked => (asked.method === 'DELETE' ? done : undefined), async front => {
    const working = clientOf({url: front.url}).withLease(newResource(), {ttlMs: 1000}, () => {
      for (const until = performance.now() + 1100; performance.now() < until;); // no timer runs meanwhile
      return 'a result that must not count';
    });
    await assert.rejects(working, LeaseLostError);
  });
});
