// Signing in and out with an API key, which only the tab stores.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {accessibilityErrors, screenshot, horizontalOverflow} from './support/browser.js';
import {browser, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually, sleep} from './support/stack.js';

const unauthorized = [/401 \(Unauthorized\)/];

test('sign-in with a wrong key shows an error, stores nothing', async () => {
  const {page, observed} = await browser.open(stack, {width: 390, key: '', expected: unauthorized});
  await page.getByRole('heading', {name: 'Sign in'}).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'api-key');
  assert.ok(!await page.locator('#panels').isVisible());
  await page.getByRole('button', {name: 'Sign in'}).click();
  await page.getByText('Enter an API key.').waitFor();
  await page.getByLabel('API key').fill('schlüssel');
  await page.keyboard.press('Enter');
  await page.getByText('only visible ASCII characters').waitFor();
  await page.getByLabel('API key').fill('not-a-key');
  await page.keyboard.press('Enter');
  await page.getByText('The gateway does not accept this key.').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'api-key');
  assert.deepEqual(await accessibilityErrors(page), []);
  assert.equal(await horizontalOverflow(page), 0);
  await screenshot(page, 'sign-in-390-light');
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('sign-in stores no key that was not checked', async () => {
  const {page} = await browser.open(stack, {key: '', expected: [...unauthorized, /503 \(Service Unavailable\)/]});
  const answerWith = (status, slug, detail) =>
    page.route('**/v1/leases?**', route => route.fulfill({status, contentType: 'application/problem+json',
    body: JSON.stringify({type: `/problems/${slug}`, title: 'Title', status, detail, request_id: 'r-3'})}), {times: 1});
  for (const [status, slug] of [[429, 'too-many-requests'], [503, 'overloaded']]) {
    await answerWith(status, slug, `Refused with ${status}.`);
    await page.getByLabel('API key').fill('not-a-key');
    await page.keyboard.press('Enter');
    await page.getByText(`The gateway could not check this key: Refused with ${status}.`).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }
  await answerWith(503, 'no-quorum', 'Too few.');
  await page.getByLabel('API key').fill(stack.key());
  await page.keyboard.press('Enter');
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
});

test('sign-in stores the key in the tab until signed out', async () => {
  const {page, observed} = await browser.open(stack, {key: '', expected: unauthorized});
  await page.getByLabel('API key').fill(stack.key());
  await page.keyboard.press('Enter');
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.reload();
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  const places = await page.evaluate(() => ({address: location.href, local: JSON.stringify(localStorage),
      cookie: document.cookie, session: JSON.stringify(sessionStorage), text: document.documentElement.outerHTML}));
  for (const [place, text] of Object.entries(places))
    assert.equal(text.includes(stack.key()), place === 'session', place);
  await page.getByRole('button', {name: 'Sign out'}).click();
  await page.getByRole('heading', {name: 'Sign in'}).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.ok(!await page.locator('#panels').isVisible());
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('sign-out removes all data of the first key', async () => {
  const {page} =
    await browser.open(stack, {expected: [...unauthorized, /403 \(Forbidden\)/], query: `?timeline=${STALE_RESOURCE}`});
  await page.locator('#history tbody tr').first().waitFor();
  await page.locator('#timeline .lane').first().waitFor();
  await page.getByRole('button', {name: 'Sign out'}).click();
  await page.getByRole('heading', {name: 'Sign in'}).waitFor();
  assert.doesNotMatch(await page.evaluate(() => document.documentElement.textContent), /client-b/);
  await page.getByLabel('API key').fill(stack.key('orders'));
  await page.keyboard.press('Enter');
  await page.locator('#history').getByText('This API key may not see this').waitFor();
  await page.locator('#timeline').getByText('This API key may not see this').waitFor();
  assert.doesNotMatch(await page.evaluate(() => document.documentElement.textContent), /client-b/);
});

test('key without scopes sees why panels are empty', async () => {
  const {page, observed} = await browser.open(stack, {key: stack.key('auditor'), expected: [/403 \(Forbidden\)/]});
  await page.locator('#nodes').getByText('This API key may not see this').waitFor();
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.locator('#history tbody tr').first().waitFor();
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('denied address is asked once until Try again', async () => {
  const {page} = await browser.open(stack, {key: stack.key('orders'), expected: [/403 \(Forbidden\)/]});
  const asked = new Map();
  page.on('request', request => {
    const {pathname} = new URL(request.url());
    if (pathname.startsWith('/v1/')) asked.set(pathname, (asked.get(pathname) ?? 0) + 1);
  });
  await page.reload();
  for (const panel of ['leases', 'nodes', 'rates', 'history'])
    await page.locator(`#${panel}`).getByText('This API key may not see this').waitFor();
  await eventually(() => asked.has('/v1/history/stream'), 'the stream is requested');
  await sleep(4500); // at least two polls
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await sleep(300);
  const once = {'/v1/leases': 1, '/v1/nodes': 1, '/v1/guard': 1, '/v1/history/summary': 1, '/v1/history/stream': 1};
  const {'/v1/history': pages, ...others} = Object.fromEntries(asked);
  assert.deepEqual(others, once);
  assert.ok(pages <= 2, `${pages} requests, of the history and of the notice above the panels`);
  await page.locator('#nodes').getByRole('button', {name: 'Try again'}).click();
  await eventually(() => asked.get('/v1/nodes') === 2, 'the nodes are requested again');
});
