// One stack and one browser for all tests, with leases, waiting requests, writes and refusals for every panel.

import {after, afterEach, before} from 'node:test';
import {Browser} from './browser.js';
import {eventually, sleep, Stack} from './stack.js';

export const stack = new Stack();
export const browser = new Browser();
/** An owner that would run a script if the page inserted it as HTML. */
export const HOSTILE = '<img src=x onerror="globalThis.executed=1">';
export const STALE_RESOURCE = 'inventory/sku-1';

/**
 * A pauses until its lease has expired, B writes, then A's write is refused. Returns both leases; B's is still live.
 */
async function writeAfterExpiry() {
  const a = await stack.acquire(STALE_RESOURCE, {ttl_ms: 2_000, owner: 'client-a', as: 'orders'});
  if (await stack.write(a, 'sku-1', 'orders') !== 200) throw new Error('A could not write');
  const b = await stack.acquire(STALE_RESOURCE, {wait_ms: 10_000, owner: 'client-b'});
  if ((await stack.call('POST', '/v1/leases', {resource: STALE_RESOURCE, owner: 'client-c'})).status !== 423)
    throw new Error('C got the lease');
  if (await stack.write(b, 'sku-1') !== 200) throw new Error('B could not write');
  await sleep(400);
  if (await stack.write(a, 'sku-1', 'orders') !== 412) throw new Error('A was not refused');
  if (await stack.write(b, 'sku-1') !== 200) throw new Error('B could not write again');
  return {a, b};
}

export const scene = {};
const cleanups = []; // called after the tests

before(async () => {
  await Promise.all([stack.start(), browser.start()]);
  Object.assign(scene, await writeAfterExpiry());
  cleanups.push(stack.keepRenewing(scene.b), stack.keepRenewing(await stack.acquire('jobs/nightly', {owner: HOSTILE})),
    stack.keepRenewing(await stack.acquire('jobs/awaited', {owner: 'holder-1'})));
  for (const owner of ['waiter-1', 'waiter-2', 'waiter-3']) cleanups.push(stack.waitInQueue('jobs/awaited', owner));
  await eventually(async () => (await stack.history({resource: STALE_RESOURCE, event: 'write_rejected'})).length,
    'the refusal is in the history');
}, {timeout: 120_000});

// Also those of a failed test: pages that are left open load the gateway and the processors of the tests that follow.
afterEach(() => browser.closePages());

after(async () => {
  cleanups.forEach(cleanUp => cleanUp());
  await browser.stop();
  await stack.stop();
}, {timeout: 60_000});
