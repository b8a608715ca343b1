// The history panel: filters in the URL, pages and downloads.

import assert from 'node:assert/strict';
import {readFile} from 'node:fs/promises';
import {test} from 'node:test';
import {Proxy} from './support/proxy.js';
import {browser, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually, sleep} from './support/stack.js';

const rows = page => page.locator('#history tbody tr');
let manyEvents = 0;

/**
 * Makes more events of pages/many than a page of the list has, unless an earlier test did. Returns how many there are.
 */
async function makeManyEvents() {
  if (manyEvents) return manyEvents;
  const lease = await stack.acquire('pages/many', {owner: 'pager'});
  let renewals = 0;
  for (let number = 0; number < 55; ++number) {
    const {status} = await stack.call('POST', `/v1/leases/${encodeURIComponent(lease.lease_id)}/renew`,
      {ttl_ms: 60_000});
    if (status === 200) renewals += 1;
  }
  await stack.release(lease);
  const items = await eventually(async () => {
    const all = await stack.history({resource: 'pages/many', limit: 1000});
    return all.some(item => item.event === 'lease_released')
      && all.filter(item => item.event === 'lease_renewed').length === renewals && all;
  }, 'all events are in the history');
  assert.ok(items.length > 50 && items.length <= 100, `${items.length} events are two pages`);
  return manyEvents = items.length;
}

test('history filters are in the URL and survive reload and Back', async () => {
  const {page, observed} = await browser.open(stack);
  await rows(page).first().waitFor();
  await page.getByLabel('Event', {exact: true}).selectOption('write_rejected');
  await page.locator('#history-resource_prefix').fill('inventory/sku-1');
  await page.getByRole('button', {name: 'Search'}).click();
  await eventually(async () => await rows(page).count() === 1, 'one refusal');
  assert.equal(new URL(page.url()).search, '?resource_prefix=inventory/sku-1&event=write_rejected');
  assert.match(await rows(page).innerText(), /Stale write refused[\s\S]*client-a \(orders\)/);
  const time = rows(page).locator('time');
  const iso = await time.getAttribute('title');
  assert.match(iso, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'UTC, as in logs');
  assert.match(await time.innerText(), new RegExp(`\\d+ \\w+ \\d{4} \\d\\d${iso.slice(13, 23).replace('.', '\\.')}$`),
    'with milliseconds, to compare with logs');
  await page.reload();
  await eventually(async () => await rows(page).count() === 1, 'the same after a reload');
  assert.equal(await page.getByLabel('Event', {exact: true}).inputValue(), 'write_rejected');
  await page.goBack();
  await eventually(async () => await rows(page).count() > 1, 'all events again');
  assert.equal(await page.getByLabel('Event', {exact: true}).inputValue(), '');
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('history is shown although events come faster than it loads', async () => {
  const {page} = await browser.open(stack);
  await rows(page).first().waitFor();
  await page.route('**/v1/history?**', async route => {
    await sleep(1500);
    await route.continue().catch(() => {}); // the page has aborted it
  });
  let running = true;
  const writer = (async () => {
    while (running) {
      await stack.release(await stack.acquire('slow/1', {owner: 'busy'}));
      await sleep(100);
    }
  })();
  try {
    await rows(page).filter({hasText: 'busy'}).first().waitFor({timeout: 20_000});
  } finally {
    running = false;
    await writer;
  }
});

test('history times are local in inputs and UTC in the URL', async () => {
  const {page} = await browser.open(stack, {query: '?from=2026-01-01T10:00:00.000Z&order=asc'});
  await rows(page).first().waitFor();
  assert.equal(await page.getByLabel('From', {exact: true}).inputValue(), '2026-01-01T11:00');
  assert.equal(await page.getByLabel('Order').inputValue(), 'asc');
  await page.getByLabel('To', {exact: true}).fill('2026-01-02T00:00');
  await page.getByRole('button', {name: 'Search'}).click();
  await page.getByText('No event matches these filters.').waitFor();
  assert.equal(new URL(page.url()).searchParams.get('to'), '2026-01-01T23:00:00.000Z');
  await page.getByRole('button', {name: 'Clear'}).click();
  await rows(page).first().waitFor();
  assert.equal(new URL(page.url()).search, '');
});

test('history shows why the gateway refused a filter', async () => {
  const {page} = await browser.open(stack, {query: '?write_id=no-uuid', expected: [/400 \(Bad Request\)/]});
  await page.locator('#history').getByText('write_id has to be a UUID').waitFor();
  assert.ok(await page.getByLabel('Write id').isVisible());
});

test('history pages are appended without duplicates', async () => {
  const count = await makeManyEvents();
  const {page} = await browser.open(stack, {query: '?resource=pages/many'});
  await eventually(async () => await rows(page).count() === 50, 'a first page');
  await page.getByRole('button', {name: 'Load more'}).click();
  await eventually(async () => await rows(page).count() === count, 'the rest');
  const ids = await rows(page).evaluateAll(all => all.map(line => line.dataset.event));
  assert.equal(new Set(ids).size, count);
  assert.ok(!await page.getByRole('button', {name: 'Load more'}).isVisible());
});

test('history download contains the filtered events', async () => {
  const {page, observed} = await browser.open(stack, {query: `?resource=${STALE_RESOURCE}&event=write_rejected`});
  await rows(page).first().waitFor();
  const [download] =
    await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'CSV'}).click()]);
  assert.equal(download.suggestedFilename(), 'history.csv');
  const lines = (await readFile(await download.path(), 'utf8')).trim().split('\r\n');
  assert.equal(lines.length, 2);
  assert.match(lines[1], /write_rejected,inventory\/sku-1/);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('history search during Load more shows only its own events', async () => {
  await makeManyEvents();
  const {page} = await browser.open(stack);
  await rows(page).first().waitFor();
  const more = page.getByRole('button', {name: 'Load more'});
  await more.waitFor();
  let release;
  const held = new Promise(resolve => { release = resolve; });
  await page.route(/cursor=/, async route => {
    await held;
    await route.continue().catch(() => {}); // the page has cancelled the request
  });
  await more.click();
  await page.getByLabel('Event', {exact: true}).selectOption('write_rejected');
  await page.getByRole('button', {name: 'Search'}).click();
  const expected = await eventually(async () => {
    const texts = await rows(page).allInnerTexts();
    return texts.length > 0 && texts.every(text => text.includes('refused')) && texts.length;
  }, 'the refusals');
  release();
  await sleep(300); // an answer to the cancelled request would arrive now
  assert.equal(await rows(page).count(), expected);
  assert.equal(await page.locator('#history button', {hasText: 'Load more'}).isDisabled(), false);
});

test('history Load more during a search continues the new list', async () => {
  const count = await makeManyEvents();
  const {page} = await browser.open(stack);
  await rows(page).first().waitFor();
  let release;
  const held = new Promise(resolve => { release = resolve; });
  await page.route(/history\?.*resource=pages(%2F|\/)many(?!.*cursor=)/, async route => {
    await held;
    await route.continue();
  });
  await page.locator('#history summary').click();
  await page.getByLabel('Resource is').fill('pages/many');
  await page.getByRole('button', {name: 'Search'}).click();
  await page.getByRole('button', {name: 'Load more'}).click();
  release();
  await eventually(async () => await rows(page).count() === count, 'both pages of the new list');
  assert.ok((await rows(page).allInnerTexts()).every(text => text.includes('pages/many')));
});

test('history Load more during a search with one page adds nothing', async () => {
  await makeManyEvents();
  const {page} = await browser.open(stack);
  await rows(page).first().waitFor();
  const more = page.locator('#history button', {hasText: 'Load more'});
  let release;
  const held = new Promise(resolve => { release = resolve; });
  await page.route(/history\?.*resource=inventory(%2F|\/)sku-1/, async route => {
    await held;
    await route.continue();
  });
  await page.locator('#history summary').click();
  await page.getByLabel('Resource is').fill(STALE_RESOURCE);
  await page.getByLabel('Event', {exact: true}).selectOption('write_rejected');
  await page.getByRole('button', {name: 'Search'}).click();
  await more.click();
  release();
  await eventually(async () => await rows(page).count() === 1 && !await more.isDisabled(),
    'the refusal, and the button is enabled again');
  assert.equal(await page.locator('#history').getByText('shown; search again').count(), 0,
    'no further page was appended');
});

test('history Load more after a failed search continues the list shown', async () => {
  await makeManyEvents();
  const {page} = await browser.open(stack, {expected: [/503 \(Service Unavailable\)/]});
  await rows(page).first().waitFor();
  await page.route(/history\?(?!.*cursor=).*event=write_rejected/,
    route => route.fulfill({status: 503, contentType: 'application/problem+json', body: '{"title": "Not now"}'}));
  await page.getByLabel('Event', {exact: true}).selectOption('write_rejected');
  await page.getByRole('button', {name: 'Search'}).click();
  await page.locator('#history').getByText('Not now').waitFor();
  const [request] =
    await Promise.all([page.waitForRequest(/cursor=/), page.getByRole('button', {name: 'Load more'}).click()]);
  assert.equal(new URL(request.url()).searchParams.get('event'), null);
  await eventually(async () => await rows(page).count() > 50, 'the next page of the list that is shown');
});

test('history download that breaks is reported until the next', async () => {
  const proxy = new Proxy(stack);
  await proxy.start();
  try {
    const {page} = await browser.open(proxy, {expected: [/ERR_/]});
    await rows(page).first().waitFor();
    proxy.truncate = ({headers}) => headers.accept === 'text/csv';
    await page.getByRole('button', {name: 'CSV'}).click();
    const alert = page.locator('#history [role=alert]');
    await alert.getByText('Not saved: The connection broke; the file is incomplete.').waitFor();
    await stack.release(await stack.acquire('downloads/1', {owner: 'later'}));
    await rows(page).filter({hasText: 'later'}).first().waitFor();
    assert.match(await alert.innerText(), /incomplete/, 'an update of the list keeps the message');
    await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'NDJSON'}).click()]);
    assert.equal(await alert.innerText(), '');
  } finally {
    proxy.stop();
  }
});

test('history filters being typed survive a section link', async () => {
  const {page} = await browser.open(stack);
  await rows(page).first().waitFor();
  await page.getByLabel('Owner').fill('client-a');
  await page.getByRole('navigation', {name: 'Sections'}).getByRole('link', {name: 'Leases'}).click();
  await page.waitForURL(/#leases$/);
  assert.equal(await page.getByLabel('Owner').inputValue(), 'client-a');
  await page.goBack();
  assert.equal(await page.getByLabel('Owner').inputValue(), 'client-a');
  await page.getByRole('button', {name: 'Search'}).click();
  await page.waitForURL(/owner=client-a/);
  await page.goBack();
  await eventually(async () => await page.getByLabel('Owner').inputValue() === '', 'Back shows the earlier filters');
});
