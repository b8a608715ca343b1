// Makes docs/images/timeline.png, the picture in the README: `tests/console/run picture.js`.
// A's lease expires while A pauses, B writes with a newer token, and A's late write is refused.

import {mkdirSync} from 'node:fs';
import {join} from 'node:path';
import {Browser} from './support/browser.js';
import {eventually, sleep, ROOT, Stack} from './support/stack.js';

const FILE = join(ROOT, 'docs/images/timeline.png');
const SKU = 'sku-11'; // the example does not use it, so that the picture shows only these clients
const RESOURCE = `inventory/${SKU}`;
const stack = new Stack();
const browser = new Browser();

async function expectStatus(expected, status) {
  if (await status !== expected) throw new Error(`expected ${expected}, got ${await status}`);
}

async function makeEvents() {
  const a = await stack.acquire(RESOURCE, {ttl_ms: 3000, owner: 'client-a', as: 'orders'});
  await sleep(800);
  const inserted = await stack.call('POST', '/v1/writes', {lease_id: a.lease_id,
    operations: [{insert: 'inventory', values: {sku: SKU, stock: 10, initial_stock: 10}}]}, 'orders');
  await expectStatus(200, inserted.status);
  const b = await stack.acquire(RESOURCE, {ttl_ms: 20_000, wait_ms: 10_000, owner: 'client-b', as: 'orders'});
  await sleep(700);
  await expectStatus(200, stack.write(b, SKU, 'orders'));
  await sleep(900);
  await expectStatus(412, stack.write(a, SKU, 'orders'));
  await sleep(900);
  await expectStatus(200, stack.write(b, SKU, 'orders'));
  await sleep(600);
  await stack.release(b, 'orders');
  await sleep(300);
  const c = await stack.acquire(RESOURCE, {owner: 'client-c', as: 'orders'});
  await sleep(700);
  await expectStatus(200, stack.write(c, SKU, 'orders'));
  await sleep(600);
  await stack.release(c, 'orders');
  await eventually(async () => (await stack.history({resource: RESOURCE, event: 'lease_released'})).length === 2,
    'the history has the releases');
}

await Promise.all([stack.start(), browser.start()]);
try {
  await makeEvents();
  const {page} = await browser.open(stack, {width: 920, scale: 2, query: `?timeline=${RESOURCE}`});
  await page.locator('#timeline .stale-write').click();
  await page.locator('#timeline .inspector', {hasText: 'Stale write refused'}).waitFor();
  mkdirSync(join(ROOT, 'docs/images'), {recursive: true});
  await page.locator('#timeline').screenshot({path: FILE});
} finally {
  await browser.stop();
  await stack.stop();
}
