// The first page's numbers and their links, the pages of a resource and of a write, and the range of time.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {test} from 'node:test';
import {accessibilityErrors, horizontalOverflow, screenshot} from './support/browser.js';
import {browser, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually} from './support/stack.js';

const sql = text => {
  const {host, port, database, superuser} = stack.readStackFile().postgres;
  return execFileSync('psql', ['-X', '-q', '-h', host, '-p', String(port), '-U', superuser, '-c', text, database]);
};

/** A write with a lease of its own on a resource that is recorded. Returns its id. */
async function writeOnce(sku, note) {
  const {status, body} = await stack.call('POST', '/v1/writes', {lease: {resource: `inventory/${sku}`, owner: 'once'},
    operations: [{update: 'inventory', where: {sku}, set: {note}}]});
  assert.equal(status, 200, JSON.stringify(body));
  await eventually(async () => (await stack.history({resource: `inventory/${sku}`, event: 'lease_released'})).length,
    'the history has the release');
  return body.write_id;
}

test('numbers of the first page lead to what explains them', async () => {
  const {page} = await browser.open(stack);
  for (const [tile, target] of Object.entries({guard: '#guard', recorder: '#guard', nodes: '#nodes', waiting: '#leases',
      leases: '#leases', refused: 'event=write_rejected&from=-1h#history',
      generation: 'event=storage_generation_changed&from=-1d#history'})) {
    const link = page.locator(`[data-tile=${tile}] a`);
    await eventually(async () => !/–/.test(await link.innerText()), `${tile} has a number`);
    assert.ok((await link.getAttribute('href')).endsWith(target), tile);
  }
  await page.locator('[data-tile=refused] a').press('Enter');
  await page.waitForURL(/event=write_rejected/);
  await page.locator('#history tbody tr.bad').first().waitFor();
  assert.equal(await page.getByLabel('Event', {exact: true}).inputValue(), 'write_rejected');
});

test('resource and write have pages with changes', async () => {
  sql("select fencing.record_changes('public.inventory', '{note}')");
  await writeOnce('sku-7', 'first');
  const before = new Date();
  await new Promise(resolve => { setTimeout(resolve, 1100); });
  const id = await writeOnce('sku-7', 'second');
  for (const {width, scheme} of [{width: 1440, scheme: 'light'}, {width: 390, scheme: 'dark'}]) {
    const {page, observed} =
      await browser.open(stack, {width, scheme, query: '?page=resource&timeline=inventory/sku-7'});
    await page.locator('#resource').getByText('first → second').waitFor();
    await page.locator('#timeline .lane').first().waitFor();
    assert.ok(!await page.locator('#leases').isVisible());
    assert.deepEqual([await accessibilityErrors(page), await horizontalOverflow(page)], [[], 0]);
    await screenshot(page, `resource-${width}-${scheme}`);
    await page.locator('#resource').getByRole('link', {name: `write …${id.slice(-8)}`}).first().press('Enter');
    await page.waitForURL(/page=write&write_id=/);
    const write = page.locator('#write');
    await write.getByText('update inventory').first().waitFor();
    await write.getByText('first → second').waitFor();
    assert.match(await write.innerText(), /Write applied[\s\S]*once \(admin\)[\s\S]*Request\s+[0-9a-f]{32}/);
    await page.locator('#history tbody tr').first().waitFor();
    assert.deepEqual([await accessibilityErrors(page), await horizontalOverflow(page)], [[], 0]);
    await screenshot(page, `write-${width}-${scheme}`);
    assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
  }
  const {page} = await browser.open(stack,
    {query: `?page=resource&timeline=inventory/sku-7&at=${before.toISOString()}`});
  await page.locator('#resource').getByText('Rows at that time').waitFor();
  assert.match(await page.locator('#resource').innerText(), /public.inventory: enforce[\s\S]*first/);
});

test('one-shot write is one row of the history', async () => {
  const id = await writeOnce('sku-8', 'once');
  const {page} = await browser.open(stack, {query: '?resource=inventory/sku-8&from=-1m'});
  const rows = page.locator('#history tbody tr', {hasText: 'once'});
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
  assert.match(await rows.innerText(),
    /Write applied[\s\S]*with its lease \(lease released, fence raised, lease granted\)/);
  await rows.getByRole('link', {name: `write …${id.slice(-8)}`}).waitFor();
});

test('range is in the address, for charts, timeline and history', async () => {
  const {page} = await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}&from=-7d`});
  await page.locator('#rates-title', {hasText: 'Last 7 days'}).waitFor();
  await page.locator('#rates').getByText('most in 3 hours').first().waitFor();
  assert.equal(await page.locator('#range-last').inputValue(), '-7d');
  await page.getByText('Times in Europe/Berlin (GMT+0').waitFor();
  await page.locator('[data-tile=applied]', {hasText: 'last 7 days'}).waitFor();
  await page.getByLabel('From', {exact: true}).fill('2026-01-01T00:00');
  await page.getByLabel('To', {exact: true}).fill('2026-01-02T00:00');
  await page.locator('#rates-title', {hasText: 'From 1 Jan 2026'}).waitFor();
  await page.getByText('No event matches these filters.').waitFor();
  await page.getByText(`The history has no events of ${STALE_RESOURCE} in this time`).waitFor();
  await page.reload();
  await page.getByText('No event matches these filters.').waitFor();
  assert.equal(new URL(page.url()).searchParams.get('to'), '2026-01-01T23:00:00.000Z');
  await page.locator('#range-last').selectOption('-30d');
  await page.locator('#rates').getByText('most in a day').first().waitFor();
});

test('charts mark revocations and changes of the guard', async () => {
  const {lease_id: id} = await stack.acquire('marked/1');
  assert.ok(id);
  await stack.call('DELETE', '/v1/resources/marked%2F1/lease', {reason: 'to mark it'});
  const {page} = await browser.open(stack);
  await page.locator('#rates .marks li', {hasText: 'marked/1'}).getByText('Lease revoked').waitFor();
  await eventually(async () => await page.locator('#rates svg:first-of-type .mark').count() > 0, 'marks are drawn');
  // The installation, of many changes, is one line.
  const installed = page.locator('#rates .marks li', {hasText: 'Guard changed'}).last();
  assert.match(await installed.innerText(), /[a-z_]+ [a-z]+\.[\s\S]* and \d+ before/);
  assert.ok(await page.locator('#rates .marks li').count() <= 6);
  await installed.getByRole('link').press('Enter');
  await page.waitForURL(/event=guard_changed&from=.*&to=.*#history/);
  await page.locator('#history tbody').getByText('protect').first().waitFor();
});
