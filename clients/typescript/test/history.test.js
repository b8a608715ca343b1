// The history as an async iterator.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {setTimeout as sleep} from 'node:timers/promises';
import {InvalidRequestError, UnauthenticatedError} from '@fencegate/client';
import {first, problem, stream, withFront} from './support/front.js';
import {clientOf, collectGarbage, eventually, newResource, urls} from './support/stack.js';

const client = clientOf();

async function collect(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

/** Makes five leases and returns their tokens, once the history has all ten events. */
async function makeEvents(resource) {
  const tokens = [];
  for (let number = 0; number < 5; number += 1)
    tokens.push(await client.withLease(resource, {}, ({fencingToken}) => fencingToken));
  await eventually(async () => (await collect(client.history({resource}))).length === 10, 'the history has the events');
  return tokens;
}

test('history_of_several_pages_then_each_item_once', async () => {
  const resource = newResource();
  const tokens = await makeEvents(resource);
  await withFront(urls[0], undefined, async front => {
    const items =
      await collect(clientOf({url: front.url}).history({resource, order: 'asc', limit: 3, event: 'lease_granted'}));
    assert.deepEqual(items.map(item => item.fencing_token), tokens);
    assert.equal(front.requests.length, 2);
  });
  const newest = await collect(client.history({resource, limit: 4}));
  assert.equal(new Set(newest.map(item => item.id)).size, 10);
  assert.deepEqual([newest[0].event, newest[0].fencing_token], ['lease_released', tokens[4]]);
});

test('history_left_early_then_no_further_page', async () => {
  const resource = newResource();
  await makeEvents(resource);
  await withFront(urls[0], first(problem(503, 'overloaded', {'retry-after': '1'})), async front => {
    for await (const item of clientOf({url: front.url}).history({resource, limit: 2})) {
      assert.equal(item.resource, resource);
      break;
    }
    assert.equal(front.requests.length, 2, 'one page, repeated after the failure');
  });
});

test('history_with_wrong_filter_then_error_names_it', async () => {
  await assert.rejects(collect(client.history({event: 'no_event'})),
    fault => fault instanceof InvalidRequestError && fault.problem.errors[0].pointer === 'event');
});

test('follow_over_broken_connections_then_each_item_once', async () => {
  const resource = newResource();
  const grant = () => client.withLease(resource, {}, ({fencingToken}) => fencingToken);
  let opened = 0;
  await withFront(urls[0], () => stream(urls[0], () => { opened += 1; }), async front => {
    const seen = [];
    const stop = new AbortController();
    const following = (async () => {
      for await (const item of clientOf({url: front.url}).follow({resource, event: ['lease_granted', 'lease_expired']},
        {signal: stop.signal})) seen.push(item.fencing_token);
    })();
    await eventually(() => opened === 1, 'the stream is open');
    const granted = [await grant()];
    await eventually(() => seen.length === 1, 'the first item arrives');
    front.cut();
    granted.push(await grant(), await grant());
    await eventually(() => seen.length === 3, 'the items of the time without a connection arrive');
    granted.push(await grant());
    await eventually(() => seen.length === 4, 'new items arrive');
    assert.deepEqual(seen, granted);
    assert.ok(Number(front.requests[1].headers['last-event-id']) > 0);
    stop.abort(new Error('enough'));
    await assert.rejects(following, /enough/);
  });
});

test('follow_unavailable_longer_than_retry_then_goes_on', async () => {
  const resource = newResource();
  const tokens = await makeEvents(resource);
  const bad = async (asked, ask, response) => response.writeHead(502, {'content-type': 'text/html'})
    .end('<h1>Bad gateway</h1>');
  const faults = [bad, problem(503, 'storage-unavailable'), problem(429, 'too-many-requests', {'retry-after': '2'}),
    problem(500, 'internal-error')];
  await withFront(urls[0], asked => faults[asked.number - 1] ?? stream(urls[0], () => undefined), async front => {
    for await (const item of clientOf({url: front.url, retryForMs: 0})
        .follow({resource, event: 'lease_granted'}, {afterId: 0})) {
      assert.equal(item.fencing_token, tokens.shift());
      if (!tokens.length) break;
    }
    const [, , limited, next] = front.requests;
    assert.ok(next.at - limited.at >= 2000, `a pause of ${next.at - limited.at} ms after Retry-After: 2`);
  });
  await withFront(urls[0], first(bad, problem(401, 'unauthenticated')), async front => {
    await assert.rejects(clientOf({url: front.url, retryForMs: 0}).follow().next(), UnauthenticatedError);
  });
});

test('follow_aborted_after_garbage_collection_then_ends', async () => {
  let opened = 0;
  await withFront(urls[0], () => stream(urls[0], () => { opened += 1; }), async front => {
    const stop = new AbortController();
    const following = clientOf({url: front.url}).follow({resource: newResource()}, {signal: stop.signal}).next();
    await eventually(() => opened === 1, 'the stream is open');
    await sleep(200); // until the client reads it
    collectGarbage();
    stop.abort(new Error('enough'));
    await assert.rejects(Promise.race([following, sleep(5000)]), /enough/);
  });
});

test('follow_after_oldest_then_stored_items', async () => {
  const resource = newResource();
  const tokens = await makeEvents(resource);
  for await (const item of client.follow({resource, event: 'lease_released'}, {afterId: 0})) {
    assert.equal(item.fencing_token, tokens.shift());
    if (!tokens.length) break;
  }
});
