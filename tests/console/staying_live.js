// Live without a reload; and what is said when the gateway is away, or refuses.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {screenshot} from './support/browser.js';
import {browser, stack} from './support/scene.js';

const WITHIN = 2000;

test('lease when granted and released then shown within two seconds, in the list, the timeline and the history', async () => {
  const resource = 'live/1';
  const {page, seen, close} = await browser.open(stack, {query: `?timeline=${resource}`});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  await page.getByText(`The history has nothing about ${resource}`).waitFor();
  const listed = page.locator(`#leases [data-resource="${resource}"]`);
  const lane = (ending, lease) => page.locator(`#timeline .lane.${ending}`, {hasText: String(lease.fencing_token)}).waitFor();
  const times = [];
  for (const owner of ['first', 'second', 'third']) { // on a busy machine one of them may take longer
    const taken = Date.now();
    const lease = await stack.take(resource, {owner});
    await Promise.all([listed.waitFor(), lane('live', lease), page.locator('#history tbody tr', {hasText: owner}).first().waitFor()]);
    const released = Date.now();
    await stack.release(lease);
    await Promise.all([listed.waitFor({state: 'detached'}), lane('released', lease)]);
    times.push(Math.max(released - taken, Date.now() - released));
  }
  assert.ok(Math.min(...times) < WITHIN, times.join());
  assert.deepEqual([seen.faults, seen.outside], [[], []]);
  await close();
});

test('history when events come then the focus stays where it is', async () => {
  const {page, close} = await browser.open(stack);
  const link = page.locator('#history tbody button.link').first();
  await link.focus();
  const before = await page.evaluate(() => document.activeElement.closest('tr').dataset.event);
  await stack.release(await stack.take('live/3', {owner: 'passing'}));
  await page.locator('#history tbody tr', {hasText: 'passing'}).first().waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.closest('tr')?.dataset.event), before);
  await close();
});

test('stream when it cannot be had then the page looks every two seconds, and follows again when it can', async () => {
  const {page, close} = await browser.open(stack, {expected: [/ERR_FAILED/]});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  await page.route('**/v1/history/stream', route => route.abort());
  await page.reload();
  await page.locator('#live', {hasText: 'Every 2 s'}).waitFor();
  const lease = await stack.take('live/2', {owner: 'polled'});
  await page.locator('#history tbody tr', {hasText: 'polled'}).waitFor({timeout: 2 * WITHIN});
  await stack.release(lease);
  await page.unroute('**/v1/history/stream');
  await page.locator('#live', {hasText: 'Live'}).waitFor({timeout: 20_000});
  await close();
});

test('gateway when away then said once, what was shown stays, and its return is seen', async () => {
  const {page, close} = await browser.open(stack, {expected: [/ERR_INTERNET_DISCONNECTED/], width: 390});
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.context().setOffline(true);
  await page.getByText(/The gateway cannot be reached since \d\d:\d\d:\d\d\. What is shown is old/).waitFor();
  assert.ok(await page.locator('#leases [data-resource="jobs/awaited"]').isVisible());
  await screenshot(page, 'away-390-light');
  await page.context().setOffline(false);
  await page.locator('#outage').waitFor({state: 'hidden'});
  await page.locator('#leases .state.failed').waitFor({state: 'hidden'});
  await close();
});

test('gateway when it hangs then said, and its return is seen', async () => {
  const {page, close} = await browser.open(stack, {expected: [/.*/]});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  const {pid} = stack.read().gateways[0];
  process.kill(pid, 'SIGSTOP');
  try {
    await page.getByText('The gateway cannot be reached since').waitFor({timeout: 20_000});
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await page.locator('#outage').waitFor({state: 'hidden', timeout: 20_000});
  await close();
});

test('leases when they cannot be listed then their tiles claim nothing', async () => {
  const {page, close} = await browser.open(stack, {expected: [/503 \(Service Unavailable\)/]});
  const tile = page.locator('[data-tile=leases] dd');
  await page.locator('[data-tile=waiting] dd', {hasText: '3'}).waitFor();
  await page.route('**/v1/leases?**', route => route.fulfill({status: 503, contentType: 'application/problem+json',
    body: JSON.stringify({type: '/problems/no-quorum', title: 'Too few lock nodes answered', status: 503, detail: 'Too few.', request_id: 'r-2'})}));
  await tile.getByText('–').waitFor();
  assert.equal(await page.locator('[data-tile=waiting] dd').innerText(), '–');
  await close();
});

test('panel when the gateway answers 503 then the cause and a way to try again', async () => {
  const {page, close} = await browser.open(stack, {expected: [/503 \(Service Unavailable\)/]});
  await page.route('**/v1/history?**', route => route.fulfill({status: 503, contentType: 'application/problem+json',
    body: JSON.stringify({type: '/problems/storage-unavailable', title: 'PostgreSQL cannot be reached', status: 503, detail: 'Nothing was read.', request_id: 'r-1'})}));
  await page.reload();
  const panel = page.locator('#history');
  await panel.getByText('PostgreSQL cannot be reached').waitFor();
  await panel.getByText('Request r-1').waitFor();
  await page.unroute('**/v1/history?**');
  await panel.getByRole('button', {name: 'Try again'}).click();
  await panel.locator('tbody tr').first().waitFor();
  await close();
});

test('key when it is no longer known then signed out, and told why', async () => {
  const {page, close} = await browser.open(stack, {expected: [/401 \(Unauthorized\)/]});
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.evaluate(() => sessionStorage.setItem('fencegate.api_key', 'withdrawn'));
  await page.getByText('This key is not known any more.').waitFor();
  assert.ok(!await page.locator('#panels').isVisible());
  await close();
});
