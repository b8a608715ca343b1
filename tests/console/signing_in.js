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
  const {page} = await browser.open(stack, {key: '', expected: [/503 \(Service Unavailable\)/]});
  const answerWith = (status, slug, detail) =>
    page.route('**/v1/rights', route => route.fulfill({status, contentType: 'application/problem+json',
    body: JSON.stringify({type: `/problems/${slug}`, title: 'Title', status, detail, request_id: 'r-3'})}), {times: 1});
  for (const [status, slug] of [[429, 'too-many-requests'], [503, 'overloaded']]) {
    await answerWith(status, slug, `Refused with ${status}.`);
    await page.getByLabel('API key').fill('not-a-key');
    await page.keyboard.press('Enter');
    await page.getByText(`The gateway could not check this key: Refused with ${status}.`).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }
});

test('nothing is asked for while the rights are not known', async () => {
  const {page} = await browser.open(stack, {key: stack.key('orders'), expected: [/503 \(Service Unavailable\)/]});
  await page.locator('#nodes').getByText('This API key may not see this').waitFor();
  await page.route('**/v1/rights', route => route.fulfill({status: 503, contentType: 'application/problem+json',
    body: JSON.stringify({title: 'The gateway is overloaded', status: 503, detail: 'Soon.'})}), {times: 2});
  const asked = [];
  page.on('request', request => asked.push(new URL(request.url()).pathname));
  await page.reload();
  await page.getByText('The gateway is overloaded. Soon.').waitFor();
  await page.locator('#nodes').getByText('This API key may not see this').waitFor();
  assert.equal(asked.filter(path => path === '/v1/rights').length, 3);
  assert.deepEqual(asked.filter(path => /^\/v1\/(nodes|guard|leases)/.test(path)), []);
});

test('sign-in stores the key in the tab until signed out', async () => {
  const {page, observed} = await browser.open(stack, {key: ''});
  const asked = [];
  page.on('request', request => asked.push(new URL(request.url()).pathname));
  await page.getByLabel('API key').fill(stack.key());
  await page.keyboard.press('Enter');
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  assert.equal(asked.filter(path => path === '/v1/rights').length, 1, 'once, to check the key');
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
  const {page} = await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}`});
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
  const {page, observed} = await browser.open(stack, {key: stack.key('auditor')});
  await page.locator('#nodes').getByText('This API key may not see this').waitFor();
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  await page.locator('#history tbody tr').first().waitFor();
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('nothing that the key may not see is asked for', async () => {
  const denials = async () => (await stack.history({event: 'request_denied', limit: 1000})).length;
  const before = await denials();
  const {page: nobody} = await browser.open(stack, {key: ''});
  await nobody.getByRole('heading', {name: 'Sign in'}).waitFor();
  for (const name of ['orders', 'auditor']) {
    const {page, observed} = await browser.open(stack, {key: stack.key(name), query: `?timeline=${STALE_RESOURCE}`});
    const asked = new Set();
    page.on('request', request => asked.add(new URL(request.url()).pathname));
    await page.reload();
    for (const panel of name === 'orders' ? ['leases', 'nodes', 'guard', 'rates', 'history', 'timeline'] : ['nodes'])
      await page.locator(`#${panel}`).getByText('This API key may not see this').waitFor();
    await sleep(2500); // at least one poll
    assert.ok(!asked.has('/v1/nodes') && !asked.has('/v1/guard'), [...asked].join());
    assert.equal(asked.has('/v1/leases'), name === 'auditor');
    await Promise.all([page.waitForResponse('**/v1/rights'),
      page.locator('#nodes').getByRole('button', {name: 'Try again'}).click()]);
    assert.deepEqual(observed.errors, []);
  }
  assert.equal(await denials(), before);
});
