// Answers with success that are not those of a gateway, values that JSON cannot have, and leases that are over.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {setTimeout as sleep} from 'node:timers/promises';
import {ConnectionError, LeaseLostError} from '@fencegate/client';
import {problem, withFront} from './support/front.js';
import {aborted, clientOf, eventually, insertOrder, newOrder, newResource, urls} from './support/stack.js';

/** What a proxy answers to any request while it is in maintenance. */
const maintenance = async (asked, ask, response) => response.writeHead(200, {'content-type': 'application/json'})
  .end('{"status": "maintenance"}');
const empty = async (asked, ask, response) => response.writeHead(200, {'content-length': '0'}).end();
const ofProxy = [maintenance, empty];

test('renewal_answered_by_a_proxy_then_lost_at_end_of_validity', async () => {
  await Promise.all(ofProxy.map(answer =>
      withFront(urls[0], asked => (asked.path.endsWith('/renew') ? answer : undefined), async front => {
    const lease = await clientOf({url: front.url}).acquire(newResource(), {ttlMs: 3000});
    const reason = await aborted(lease.signal);
    // Of the last attempt, which may have no time for its answer.
    assert.ok(reason instanceof LeaseLostError && reason.cause instanceof ConnectionError);
    assert.ok(front.requests.length < 50, `${front.requests.length} requests`);
  })));
});

test('write_value_that_json_cannot_have_then_type_error_naming_it', async () => {
  await withFront(urls[0], undefined, async front => {
    const write = operation => clientOf({url: front.url}).oneShotWrite(newResource(), [insertOrder(1), operation]);
    const where = {sku: 'sku-1'};
    const refused = [
      [{update: 'orders', where: {id: undefined}, set: {quantity: 1}}, '/operations/1/where/id: undefined'],
      [{update: 'orders', where: {...where, id: {in: [1, undefined]}}, set: {quantity: 1}},
        '/operations/1/where/id/in/1: undefined'],
      [{delete: 'orders', where: undefined}, '/operations/1/where: undefined'],
      [{insert: 'orders', values: [{id: 1}, {id: undefined}]}, '/operations/1/values/1/id: undefined'],
      [{insert: 'orders', values: {document: {a: Number.NaN}}}, '/operations/1/values/document/a: NaN'],
      [{update: 'orders', where, set: {quantity: Number.NaN}}, '/operations/1/set/quantity: NaN'],
      [{update: 'orders', where, add: {quantity: Number.NEGATIVE_INFINITY}}, '/operations/1/add/quantity: -Infinity'],
      [{insert: 'orders', values: {at: new Date(Number.NaN)}}, '/operations/1/values/at: Invalid Date'],
      [{call: 'f', args: {a: () => 1}}, '/operations/1/args/a: '],
    ];
    for (const [operation, named] of refused)
      await assert.rejects(write(operation), fault => fault instanceof TypeError && fault.message.startsWith(named));
    assert.equal(front.requests.length, 0);
  });
});

test('write_value_with_a_form_of_its_own_then_sent', async () => {
  const decimal = {constructor: Number, digits: undefined, toJSON: () => '1.50'}; // as those of libraries for numbers
  await withFront(urls[0], asked => (asked.path === '/v1/writes' ? problem(422, 'unprocessable') : undefined),
      async front => {
    const values = {price: decimal, at: new Date(0), note: null, document: {a: 1, b: undefined}};
    await assert.rejects(clientOf({url: front.url})
      .oneShotWrite(newResource(), [{insert: 'orders', values, expect_rows: undefined}]));
    assert.deepEqual(front.requests[0].json.operations[0],
      {insert: 'orders', values: {price: '1.50', at: '1970-01-01T00:00:00.000Z', note: null, document: {a: 1}}});
  });
});

test('lease_released_then_write_of_code_left_running_throws', async () => {
  await withFront(urls[0], undefined, async front => {
    let left;
    await clientOf({url: front.url}).withLease(newResource(), {}, lease => { left = lease; });
    const before = front.requests.length;
    await assert.rejects(left.write([insertOrder(newOrder())]),
      fault => fault instanceof LeaseLostError && /released/.test(fault.message));
    assert.equal(front.requests.length, before);
  });
});

test('write_with_a_fetch_that_throws_any_error_then_repeated', async () => {
  class FetchError extends Error {}
  let requests = 0;
  const fetch = async request => {
    if (!request.url.endsWith('/v1/writes')) return globalThis.fetch(request);
    requests += 1;
    if (requests === 1) throw new FetchError('the connection was closed');
    return globalThis.fetch(request);
  };
  await clientOf({fetch}).withLease(newResource(), {},
    ({write}) => write([insertOrder(newOrder())]).catch(fault => assert.equal(fault.slug, 'resource-not-covered')));
  assert.equal(requests, 2);
});

test('release_answered_503_and_done_then_released_unless_sealed', async () => {
  const released = async (asked, ask, response) => {
    await ask();
    return problem(503, 'no-quorum', {'retry-after': '0'})(asked, ask, response);
  };
  await withFront(urls[0], asked => asked.method === 'DELETE' && asked.number === 2 ? released : undefined,
      async front => {
    assert.equal(await clientOf({url: front.url}).withLease(newResource(), {}, () => 'a result'), 'a result');
    assert.deepEqual(front.requests.map(asked => asked.method), ['POST', 'DELETE', 'DELETE']);
  });
  await withFront(urls[0], asked => asked.method === 'DELETE' && asked.number === 2 ? released : undefined,
      async front => {
    await assert.rejects(clientOf({url: front.url}).withLease(newResource(), {seal: true}, () => 'a result'),
      LeaseLostError);
  });
});

test('lease_renewal_answered_404_by_a_proxy_then_renewed_later', async () => {
  const lost = async (asked, ask, response) => response.writeHead(404, {'content-type': 'text/plain'})
    .end('404 page not found');
  await withFront(urls[0], asked => asked.path.endsWith('/renew') && asked.number === 2 ? lost : undefined,
      async front => {
    const lease = await clientOf({url: front.url}).acquire(newResource(), {ttlMs: 8000});
    await eventually(() => front.requests.filter(asked => asked.path.endsWith('/renew')).length > 1
      && lease.remainingMs() > 6500, 'it is renewed again');
    await lease.release();
  });
});

test('watch_answered_by_a_proxy_is_begun_again_after_longer_pauses', async () => {
  let watches = 0;
  const page = () => new Response('<html>\n\n</html>\n\n', {headers: {'content-type': 'text/html'}});
  const answer = request => request.headers.get('Accept') === 'text/event-stream' ? (watches += 1, page())
    : fetch(request);
  await clientOf({fetch: async request => answer(request)}).withLease(newResource(), {ttlMs: 60_000}, async () => {
    await eventually(() => watches > 0, 'it is watched');
    await sleep(4_000); // in which ten pauses of the first length fit, and four that double
  });
  assert.ok(watches <= 5, `${watches} requests`);
});
