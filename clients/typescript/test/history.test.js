// The history as an async iterator.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {InvalidRequestError} from '@fencegate/client';
import {first, problem, withFront} from './support/front.js';
import {clientOf, eventually, newResource, urls} from './support/stack.js';

const client = clientOf();

async function collect(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

/** Makes five leases and returns their tokens, once the history has all ten events. */
async function makeEvents(resource) {
  const tokens = [];
  for (let number = 0; number < 5; number += 1) tokens.push(await client.withLease(resource, {}, ({fencingToken}) => fencingToken));
  await eventually(async () => (await collect(client.history({resource}))).length === 10, 'the history has the events');
  return tokens;
}

test('history_of_several_pages_then_each_item_once', async () => {
  const resource = newResource();
  const tokens = await makeEvents(resource);
  await withFront(urls[0], undefined, async front => {
    const items = await collect(clientOf({url: front.url}).history({resource, order: 'asc', limit: 3, event: 'lease_granted'}));
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
  await assert.rejects(collect(client.history({event: 'no_event'})), fault => fault instanceof InvalidRequestError && fault.problem.errors[0].pointer === 'event');
});
