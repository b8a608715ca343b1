// Searching the history: the filters are the address.

import assert from 'node:assert/strict';
import {readFile} from 'node:fs/promises';
import {test} from 'node:test';
import {browser, stack, STORY} from './support/scene.js';
import {eventually, pause} from './support/stack.js';

const rows = page => page.locator('#history tbody tr');

test('filters when searched by then in the address, and they survive a reload and Back', async () => {
  const {page, seen, close} = await browser.open(stack);
  await rows(page).first().waitFor();
  await page.getByLabel('Event', {exact: true}).selectOption('write_rejected');
  await page.locator('#history-resource_prefix').fill('inventory/sku-1');
  await page.getByRole('button', {name: 'Search'}).click();
  await eventually(async () => await rows(page).count() === 1, 'one refusal');
  assert.equal(new URL(page.url()).search, '?resource_prefix=inventory/sku-1&event=write_rejected');
  assert.match(await rows(page).innerText(), /Stale write refused[\s\S]*client-a \(orders\)/);
  const time = rows(page).locator('time');
  const iso = await time.getAttribute('title');
  assert.match(iso, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'UTC, as logs have it');
  assert.match(await time.innerText(), new RegExp(`\\d+ \\w+ \\d\\d${iso.slice(13, 23).replace('.', '\\.')}$`), 'to be held against a log');
  await page.reload();
  await eventually(async () => await rows(page).count() === 1, 'the same after a reload');
  assert.equal(await page.getByLabel('Event', {exact: true}).inputValue(), 'write_rejected');
  await page.goBack();
  await eventually(async () => await rows(page).count() > 1, 'all of it again');
  assert.equal(await page.getByLabel('Event', {exact: true}).inputValue(), '');
  assert.deepEqual([seen.faults, seen.outside], [[], []]);
  await close();
});

test('history when a page takes longer than the next event then shown all the same', async () => {
  const {page, close} = await browser.open(stack);
  await rows(page).first().waitFor();
  await page.route('**/v1/history?**', async route => {
    await pause(1500);
    await route.continue().catch(() => {}); // given up meanwhile
  });
  let flooding = true;
  const flood = (async () => {
    while (flooding) {
      await stack.release(await stack.take('slow/1', {owner: 'flood'}));
      await pause(100);
    }
  })();
  try {
    await rows(page).filter({hasText: 'flood'}).first().waitFor({timeout: 8000});
  } finally {
    flooding = false;
    await flood;
  }
  await close();
});

test('times when given in the viewer\'s zone then asked for in UTC and shown as they were', async () => {
  const {page, close} = await browser.open(stack, {query: '?from=2026-01-01T10:00:00.000Z&order=asc'});
  await rows(page).first().waitFor();
  assert.equal(await page.getByLabel('From', {exact: true}).inputValue(), '2026-01-01T11:00');
  assert.equal(await page.getByLabel('Order').inputValue(), 'asc');
  await page.getByLabel('To', {exact: true}).fill('2026-01-02T00:00');
  await page.getByRole('button', {name: 'Search'}).click();
  await page.getByText('Nothing in the history is like that.').waitFor();
  assert.equal(new URL(page.url()).searchParams.get('to'), '2026-01-01T23:00:00.000Z');
  await page.getByRole('button', {name: 'Clear'}).click();
  await rows(page).first().waitFor();
  assert.equal(new URL(page.url()).search, '');
  await close();
});

test('filter when the gateway refuses it then its reason is shown', async () => {
  const {page, close} = await browser.open(stack, {query: '?write_id=no-uuid', expected: [/400 \(Bad Request\)/]});
  await page.locator('#history').getByText('write_id has to be a UUID').waitFor();
  assert.ok(await page.getByLabel('Write id').isVisible());
  await close();
});

test('pages when more is asked for then appended, each event once', async () => {
  const lease = await stack.take('pages/many', {owner: 'pager'});
  for (let number = 0; number < 55; ++number) await stack.call('POST', `/v1/leases/${encodeURIComponent(lease.lease_id)}/renew`, {ttl_ms: 60_000});
  await stack.release(lease);
  await eventually(async () => (await stack.history({resource: 'pages/many', limit: 1000})).length === 57, 'all of it is in the history');
  const {page, close} = await browser.open(stack, {query: '?resource=pages/many'});
  await eventually(async () => await rows(page).count() === 50, 'a first page');
  await page.getByRole('button', {name: 'Load more'}).click();
  await eventually(async () => await rows(page).count() === 57, 'the rest');
  const ids = await rows(page).evaluateAll(all => all.map(line => line.dataset.event));
  assert.equal(new Set(ids).size, 57);
  assert.ok(!await page.getByRole('button', {name: 'Load more'}).isVisible());
  await close();
});

test('history when saved then the file has what the filters say', async () => {
  const {page, seen, close} = await browser.open(stack, {query: `?resource=${STORY}&event=write_rejected`});
  await rows(page).first().waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'CSV'}).click()]);
  assert.equal(download.suggestedFilename(), 'history.csv');
  const lines = (await readFile(await download.path(), 'utf8')).trim().split('\r\n');
  assert.equal(lines.length, 2);
  assert.match(lines[1], /write_rejected,inventory\/sku-1/);
  assert.deepEqual([seen.faults, seen.outside], [[], []]);
  await close();
});
