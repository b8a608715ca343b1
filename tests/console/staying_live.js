// Updates without a reload, and what the page shows while the gateway is unreachable or answers with errors.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {screenshot} from './support/browser.js';
import {Proxy} from './support/proxy.js';
import {browser, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually, sleep} from './support/stack.js';

const UPDATE_MAX = 2000;

test('lease grant and release are shown within two seconds', async () => {
  const resource = 'live/1';
  const {page, observed} = await browser.open(stack, {query: `?timeline=${resource}`});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  await page.getByText(`The history has no events of ${resource}`).waitFor();
  const listed = page.locator(`#leases [data-resource="${resource}"]`);
  const lane = (ending, lease) => page.locator(`#timeline .lane.${ending}`, {hasText: String(lease.fencing_token)})
    .waitFor();
  const times = [];
  for (const owner of ['first', 'second', 'third']) { // the fastest of three counts, because the machine may be busy
    const acquiredAt = Date.now();
    const lease = await stack.acquire(resource, {owner});
    await Promise.all([listed.waitFor(), lane('live', lease), page.locator('#history tbody tr', {hasText: owner})
      .first().waitFor()]);
    const releasedAt = Date.now();
    await stack.release(lease);
    await Promise.all([listed.waitFor({state: 'detached'}), lane('released', lease)]);
    times.push(Math.max(releasedAt - acquiredAt, Date.now() - releasedAt));
  }
  assert.ok(Math.min(...times) < UPDATE_MAX, times.join());
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('history keeps the focus when events arrive', async () => {
  const {page} = await browser.open(stack);
  const link = page.locator('#history tbody button.link').first();
  await link.focus();
  const before = await page.evaluate(() => document.activeElement.closest('tr').dataset.event);
  await stack.release(await stack.acquire('live/3', {owner: 'passing'}));
  await page.locator('#history tbody tr', {hasText: 'passing'}).first().waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.closest('tr')?.dataset.event), before);
});

test('stream failure falls back to polling, then reconnects', async () => {
  const {page} = await browser.open(stack, {expected: [/ERR_FAILED/]});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  await page.route('**/v1/history/stream', route => route.abort());
  await page.reload();
  await page.locator('#live', {hasText: 'Every 2 s'}).waitFor();
  const lease = await stack.acquire('live/2', {owner: 'polled'});
  await page.locator('#history tbody tr', {hasText: 'polled'}).waitFor({timeout: 4 * UPDATE_MAX});
  await stack.release(lease);
  await page.unroute('**/v1/history/stream');
  await page.locator('#live', {hasText: 'Live'}).waitFor({timeout: 20_000});
});

test('unreachable gateway is reported and old data stays', async () => {
  const {page} = await browser.open(stack, {expected: [/ERR_INTERNET_DISCONNECTED/], width: 390});
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.context().setOffline(true);
  await page.getByText(/The gateway has been unreachable since \d\d:\d\d:\d\d\. The data shown is old/).waitFor();
  assert.ok(await page.locator('#leases [data-resource="jobs/awaited"]').isVisible());
  await screenshot(page, 'unreachable-390-light');
  await page.context().setOffline(false);
  await page.locator('#outage').waitFor({state: 'hidden'});
  await page.locator('#leases .state.failed').waitFor({state: 'hidden'});
});

test('hanging gateway is reported until it answers', async () => {
  const {page} = await browser.open(stack, {expected: [/.*/]});
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  const {pid} = stack.readStackFile().gateways[0];
  process.kill(pid, 'SIGSTOP');
  try {
    await page.getByText('The gateway has been unreachable since').waitFor({timeout: 20_000});
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await page.locator('#outage').waitFor({state: 'hidden', timeout: 20_000});
});

test('leases that fail to load leave their tiles empty', async () => {
  const {page} = await browser.open(stack, {expected: [/503 \(Service Unavailable\)/]});
  const tile = page.locator('[data-tile=leases] dd');
  await page.locator('[data-tile=waiting] dd', {hasText: '3'}).waitFor();
  await page.route('**/v1/leases?**', route => route.fulfill({status: 503, contentType: 'application/problem+json',
    body: JSON.stringify({type: '/problems/no-quorum', title: 'Too few lock nodes answered', status: 503,
      detail: 'Too few.', request_id: 'r-2'})}));
  await tile.getByText('–').waitFor();
  assert.equal(await page.locator('[data-tile=waiting] dd').innerText(), '–');
});

test('panel shows the cause of a 503 and a retry button', async () => {
  const {page} = await browser.open(stack, {expected: [/503 \(Service Unavailable\)/]});
  await page.route('**/v1/history?**',
    route => route.fulfill({status: 503, contentType: 'application/problem+json', headers: {'Retry-After': '60'},
    body: JSON.stringify({type: '/problems/storage-unavailable', title: 'PostgreSQL cannot be reached', status: 503,
      detail: 'Nothing was read.', request_id: 'r-1'})}));
  await page.reload();
  const panel = page.locator('#history');
  await panel.getByText('PostgreSQL cannot be reached').waitFor();
  await panel.getByText('Request r-1').waitFor();
  await page.unroute('**/v1/history?**');
  await panel.getByRole('button', {name: 'Try again'}).click();
  await panel.locator('tbody tr').first().waitFor();
});

test('key that is withdrawn signs out with a reason', async () => {
  const {page} = await browser.open(stack, {expected: [/401 \(Unauthorized\)/]});
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.evaluate(() => sessionStorage.setItem('fencegate.api_key', 'withdrawn'));
  await page.getByText('The gateway no longer accepts this key.').waitFor();
  assert.ok(!await page.locator('#panels').isVisible());
});

test('panels that failed at first load by themselves later', async () => {
  const {page} =
    await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}`, expected: [/503 \(Service Unavailable\)/]});
  const reads = /\/v1\/history(\/summary)?\?/;
  await page.route(reads, route => route.fulfill({status: 503, contentType: 'application/problem+json',
      body: JSON.stringify({title: 'PostgreSQL cannot be reached', status: 503})}));
  await page.reload();
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  for (const panel of ['rates', 'timeline', 'history'])
    await page.locator(`#${panel}`).getByText('PostgreSQL cannot be reached').waitFor();
  await page.unroute(reads);
  for (const shown of ['#history tbody tr', '#timeline .stale-write', '#rates .chart'])
    await page.locator(shown).first().waitFor();
});

test('leases answered 429 are requested after Retry-After', async () => {
  const {page} = await browser.open(stack);
  await page.locator('#live', {hasText: 'Live'}).waitFor();
  const times = [];
  await page.route('**/v1/leases?**', route => {
    times.push(performance.now());
    return route.fulfill({status: 429, contentType: 'application/problem+json', headers: {'Retry-After': '2'},
      body: JSON.stringify({title: 'Too many requests', status: 429})});
  });
  let running = true;
  const events = (async () => { // each would cause a request
    while (running) {
      await stack.release(await stack.acquire('busy/1'));
      await sleep(200);
    }
  })();
  try {
    await page.locator('#leases').getByText('Too many requests').waitFor({timeout: 20_000}); // after three of them
    const pauses = times.slice(1).map((at, index) => at - times[index]);
    assert.ok(times.length >= 3 && pauses.every(pause => pause > 1900), pauses.join());
    await page.evaluate(() => {
      Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await sleep(1000); // a request that was about to be sent
    const before = times.length;
    await sleep(3000); // longer than Retry-After
    assert.equal(times.length, before, 'none while the page is hidden');
  } finally {
    running = false;
    await events;
  }
  await page.unroute('**/v1/leases?**');
  await page.evaluate(() => {
    delete document.visibilityState;
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await page.locator('#leases .state.failed').waitFor({state: 'hidden'});
});

test('rates count no event twice after a reconnection', async () => {
  const proxy = new Proxy(stack);
  await proxy.start();
  try {
    const {page} = await browser.open(proxy, {expected: [/ERR_/]});
    const granted = async () => Number((await page.locator('#rates .key.up').first().innerText()).match(/\d+/)[0]);
    const recorded = async () => {
      const {body} =
        await stack.call('GET', `/v1/history/summary?from=${new Date(Date.now() - 3_500_000).toISOString()}`);
      return body.totals.lease_granted;
    };
    await page.locator('#live', {hasText: 'Live'}).waitFor();
    await eventually(async () => await granted() === await recorded(), 'the rates at first');
    // From this event on the stream resumes.
    await stack.release(await stack.acquire('rates/online', {owner: 'before'}));
    await page.locator('#history tbody tr', {hasText: 'before'}).first().waitFor();
    proxy.refuse = () => true;
    proxy.closeConnections();
    await page.getByText('The gateway has been unreachable since').waitFor();
    for (let number = 0; number < 5; ++number) await stack.release(await stack.acquire('rates/offline'));
    await eventually(async () => (await stack.history({resource: 'rates/offline',
        event: 'lease_granted'})).length === 5, 'they are in the history');
    const summary = page.waitForResponse(/history\/summary/);
    proxy.refuse = ({url}) => url === '/v1/history/stream';
    await (await summary).finished();
    proxy.refuse = () => false;
    await page.locator('#live', {hasText: 'Live'}).waitFor({timeout: 30_000});
    await stack.release(await stack.acquire('rates/online', {owner: 'after'}));
    await page.locator('#history tbody tr', {hasText: 'after'}).first().waitFor();
    await eventually(async () => await granted() >= await recorded(), 'the rates have the last event', 8000);
    await sleep(1500); // the chart is drawn once a second
    assert.equal(await granted(), await recorded());
  } finally {
    proxy.stop();
  }
});
