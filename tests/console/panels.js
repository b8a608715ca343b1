// The panels at two widths and in both colour schemes.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {accessibilityErrors, screenshot, horizontalOverflow} from './support/browser.js';
import {browser, HOSTILE, scene, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually} from './support/stack.js';

/** Waits until an element shows a text: the panels load one after another. */
const shows = (element, pattern) =>
  eventually(async () => pattern.test(await element.innerText()), `${element} shows ${pattern}`);

for (const {width, scheme} of [{width: 1440, scheme: 'light'}, {width: 390, scheme: 'dark'},
    {width: 1440, scheme: 'dark'}, {width: 390, scheme: 'light'}]) {
  test(`panels at ${width} px, ${scheme}, are complete, fit and are accessible`, async () => {
    await stack.quarantine(2, 30_000);
    const {page, observed} = await browser.open(stack, {width, scheme, query: `?timeline=${STALE_RESOURCE}`});
    const lease = page.locator(`#leases [data-resource="${STALE_RESOURCE}"]`);
    await lease.waitFor();
    const text = await lease.innerText();
    for (const word of [STALE_RESOURCE, 'client-b (admin)', String(scene.b.fencing_token)])
      assert.ok(text.includes(word), `${word} in ${text}`);
    assert.match(text, /\d+(\.\d)? s|min/);
    await shows(page.locator('#leases [data-resource="jobs/awaited"] [data-label=Waiting]'), /3/);
    await shows(page.locator('[data-tile=waiting]'), /3$/);
    await shows(page.locator('[data-tile=nodes]'), /4 of 5/);
    await shows(page.locator('[data-tile=refused]'), /[1-9]\d*$/);
    const node = page.locator('#nodes li').nth(2);
    await shows(node, /quarantined[\s\S]*votes again in/);
    await shows(page.locator('#rates'), /[1-9]\d* granted[\s\S]*[1-9]\d* refused[\s\S]*[1-9]\d* applied/);
    await page.locator('#timeline .stale-write').first().waitFor();
    await page.locator('#history tbody tr.bad').first().waitFor();
    assert.equal(await horizontalOverflow(page), 0);
    assert.deepEqual(await page.locator('#history td[data-label=Event] .event').evaluateAll(events => events.filter(
      event => event.getBoundingClientRect().right > event.parentNode.getBoundingClientRect().right + 1)
      .map(event => event.innerText)), [], 'events that cover their time');
    assert.deepEqual(await accessibilityErrors(page), []);
    await screenshot(page, `panels-${width}-${scheme}`);
    assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
  });
}

test('names with markup are shown as text', async () => {
  const {page, observed} = await browser.open(stack, {query: '?timeline=jobs/nightly'});
  await page.locator('#leases [data-resource="jobs/nightly"]').getByText(HOSTILE).waitFor();
  await page.locator('#history').getByText(HOSTILE).first().waitFor();
  await page.locator('#timeline svg .lane-label').filter({hasText: HOSTILE.slice(0, 20)}).waitFor();
  await page.getByRole('button', {name: 'Revoke the lease on jobs/nightly'}).click();
  await page.locator('dialog').getByText(HOSTILE).waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.evaluate(() => globalThis.executed), undefined);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('owner cannot change the direction of writing', async () => {
  const lease = await stack.acquire('names/direction', {owner: 'evil \u202enimda'});
  const {page} = await browser.open(stack, {query: '?timeline=names/direction'});
  await page.locator('#leases [data-resource="names/direction"]').getByText('evil \ufffdnimda (admin)').waitFor();
  await page.locator('#timeline .lane-label', {hasText: 'evil \ufffdnimda'}).waitFor();
  await page.locator('#history').getByText('evil \ufffdnimda (admin)').waitFor();
  assert.doesNotMatch(await page.evaluate(() => document.documentElement.textContent), /\u202e/);
  await stack.release(lease);
});

test('leases above 100 are shown on request, up to 1000', async () => {
  const leases = await Promise.all(Array.from({length: 110}, (_, number) => stack.acquire(`many/${number}`)));
  const {page} = await browser.open(stack, {query: '?leases=many/'});
  const rows = page.locator('#leases tbody tr');
  await eventually(async () => await rows.count() === 100, 'the first hundred');
  await page.locator('[data-tile=leases]', {hasText: '100+'}).waitFor();
  await page.getByRole('button', {name: 'Show up to 1,000'}).click();
  await eventually(async () => await rows.count() === 110, 'all of them');
  await page.locator('[data-tile=leases]', {hasText: '110'}).waitFor();
  await Promise.all(leases.map(lease => stack.release(lease)));
});

test('section links move the focus', async () => {
  const {page} = await browser.open(stack);
  await page.getByRole('navigation', {name: 'Sections'}).getByRole('link', {name: 'History'}).press('Enter');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'history-resource_prefix');
});

test('countdowns are not announced to screen readers', async () => {
  await stack.quarantine(2, 30_000);
  const {page} = await browser.open(stack);
  const left = page.locator('#leases [data-resource="jobs/nightly"] .left');
  const quarantine = page.locator('#nodes li').nth(2).locator('.quarantine');
  const before = [await left.innerText(), await quarantine.innerText()];
  await page.evaluate(() => {
    globalThis.announcements = 0;
    for (const region of document.querySelectorAll('[aria-live]'))
      new MutationObserver(() => { globalThis.announcements += 1; })
      .observe(region, {childList: true, characterData: true, subtree: true});
  });
  await eventually(async () => {
    const after = [await left.innerText(), await quarantine.innerText()];
    return before.every((text, index) => text !== after[index]);
  }, `both of ${before} change`);
  assert.equal(await page.evaluate(() => globalThis.announcements), 0);
});

test('theme overrides the system and survives a reload', async () => {
  const {page} = await browser.open(stack, {scheme: 'light'});
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', {name: 'Theme: auto'}).click();
  const dark = await background();
  assert.notEqual(light, dark);
  await page.reload();
  await page.getByRole('button', {name: 'Theme: dark'}).waitFor();
  assert.equal(await background(), dark);
});

test('leases filter by prefix, which is in the URL', async () => {
  const {page} = await browser.open(stack);
  await page.getByLabel('Resource begins with').first().fill('jobs/a');
  await page.locator(`#leases [data-resource="${STALE_RESOURCE}"]`).waitFor({state: 'detached'});
  assert.equal(await page.locator('#leases tbody tr').count(), 1);
  assert.match(page.url(), /leases=jobs\/a/);
  await page.reload();
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  assert.equal(await page.locator('#leases tbody tr').count(), 1);
  await page.getByLabel('Resource begins with').first().fill('nobody/');
  await page.getByText('No live lease has a resource with this prefix.').waitFor();
});
