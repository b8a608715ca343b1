// What the console is shown: one stack and one browser for all tests, and a scene with a bit of everything in it.

import {after, before} from 'node:test';
import {Browser} from './browser.js';
import {eventually, pause, Stack} from './stack.js';

export const stack = new Stack();
export const browser = new Browser();
/** An owner that would be markup if anybody took it for that. */
export const HOSTILE = '<img src=x onerror="globalThis.struck=1">';
export const STORY = 'inventory/sku-1';

/** A pauses past its lease, B writes, A wakes up: the write that must not land. Gives B's lease, which goes on. */
async function playStory() {
  const a = await stack.take(STORY, {ttl_ms: 800, owner: 'client-a', as: 'orders'});
  if (await stack.write(a, 'sku-1', 'orders') !== 200) throw new Error('A could not write');
  const b = await stack.take(STORY, {wait_ms: 10_000, owner: 'client-b'});
  if ((await stack.call('POST', '/v1/leases', {resource: STORY, owner: 'client-c'})).status !== 423) throw new Error('C was let in');
  if (await stack.write(b, 'sku-1') !== 200) throw new Error('B could not write');
  await pause(400);
  if (await stack.write(a, 'sku-1', 'orders') !== 412) throw new Error('A was not refused');
  if (await stack.write(b, 'sku-1') !== 200) throw new Error('B could not write again');
  return {a, b};
}

export const scene = {};
const leave = []; // what ends with the tests

before(async () => {
  await Promise.all([stack.start(), browser.start()]);
  Object.assign(scene, await playStory());
  leave.push(stack.keep(scene.b), stack.keep(await stack.take('jobs/nightly', {owner: HOSTILE})), stack.keep(await stack.take('jobs/awaited', {owner: 'holder-1'})));
  for (const owner of ['waiter-1', 'waiter-2', 'waiter-3']) leave.push(stack.wait('jobs/awaited', owner));
  await eventually(async () => (await stack.history({resource: STORY, event: 'write_rejected'})).length, 'the refusal is in the history');
}, {timeout: 120_000});

after(async () => {
  leave.forEach(gone => gone());
  await browser.stop();
  await stack.stop();
}, {timeout: 60_000});
