// What an operator sees at a glance, at both widths and in both schemes.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {accessibilityFaults, screenshot, sideways} from './support/browser.js';
import {browser, HOSTILE, scene, stack, STORY} from './support/scene.js';
import {eventually} from './support/stack.js';

for (const {width, scheme} of [{width: 1440, scheme: 'light'}, {width: 390, scheme: 'dark'}, {width: 1440, scheme: 'dark'}, {width: 390, scheme: 'light'}]) {
  test(`panels when ${width} px wide and ${scheme} then everything is there, fits, and axe finds nothing`, async () => {
    await stack.quarantine(2);
    const {page, seen, close} = await browser.open(stack, {width, scheme, query: `?timeline=${STORY}`});
    const lease = page.locator(`#leases [data-resource="${STORY}"]`);
    await lease.waitFor();
    const words = await lease.innerText();
    for (const word of [STORY, 'client-b (admin)', String(scene.b.fencing_token)]) assert.ok(words.includes(word), `${word} in ${words}`);
    assert.match(words, /\d+(\.\d)? s|min/);
    assert.match(await page.locator('#leases [data-resource="jobs/awaited"] [data-label=Waiting]').innerText(), /3/);
    assert.match(await page.locator('[data-tile=waiting]').innerText(), /3$/);
    assert.match(await page.locator('[data-tile=nodes]').innerText(), /4 of 5/);
    assert.match(await page.locator('[data-tile=refused]').innerText(), /[1-9]\d*$/);
    const node = page.locator('#nodes li').nth(2);
    assert.match(await node.innerText(), /quarantined[\s\S]*votes again in/);
    assert.match(await page.locator('#rates').innerText(), /[1-9]\d* granted[\s\S]*[1-9]\d* refused[\s\S]*[1-9]\d* applied/);
    await page.locator('#timeline .stale-write').first().waitFor();
    await page.locator('#history tbody tr.bad').first().waitFor();
    assert.equal(await sideways(page), 0);
    assert.deepEqual(await accessibilityFaults(page), []);
    await screenshot(page, `panels-${width}-${scheme}`);
    assert.deepEqual([seen.faults, seen.outside], [[], []]);
    await close();
  });
}

test('names when they are markup then text and nothing else', async () => {
  const {page, seen, close} = await browser.open(stack, {query: '?timeline=jobs/nightly'});
  await page.locator('#leases [data-resource="jobs/nightly"]').getByText(HOSTILE).waitFor();
  await page.locator('#history').getByText(HOSTILE).first().waitFor();
  await page.locator('#timeline svg .lane-label').filter({hasText: HOSTILE.slice(0, 20)}).waitFor();
  await page.getByRole('button', {name: 'Revoke the lease on jobs/nightly'}).click();
  await page.locator('dialog').getByText(HOSTILE).waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.evaluate(() => globalThis.struck), undefined);
  assert.deepEqual([seen.faults, seen.outside], [[], []]);
  await close();
});

test('owner when it would turn the letters after it around then it cannot', async () => {
  const lease = await stack.take('names/turned', {owner: 'evil \u202enimda'});
  const {page, close} = await browser.open(stack, {query: '?timeline=names/turned'});
  await page.locator('#leases [data-resource="names/turned"]').getByText('evil \ufffdnimda (admin)').waitFor();
  await page.locator('#timeline .lane-label', {hasText: 'evil \ufffdnimda'}).waitFor();
  await page.locator('#history').getByText('evil \ufffdnimda (admin)').waitFor();
  assert.doesNotMatch(await page.evaluate(() => document.documentElement.textContent), /\u202e/);
  await stack.release(lease);
  await close();
});

test('leases when more than a hundred then the first, and up to a thousand on request', async () => {
  const taken = await Promise.all(Array.from({length: 110}, (_, number) => stack.take(`crowd/${number}`)));
  const {page, close} = await browser.open(stack, {query: '?leases=crowd/'});
  const rows = page.locator('#leases tbody tr');
  await eventually(async () => await rows.count() === 100, 'the first hundred');
  await page.locator('[data-tile=leases]', {hasText: '100+'}).waitFor();
  await page.getByRole('button', {name: 'Show up to 1,000'}).click();
  await eventually(async () => await rows.count() === 110, 'all of them');
  await page.locator('[data-tile=leases]', {hasText: '110'}).waitFor();
  await Promise.all(taken.map(lease => stack.release(lease)));
  await close();
});

test('sections when jumped to then the focus is there, past a hundred leases', async () => {
  const {page, close} = await browser.open(stack);
  await page.getByRole('navigation', {name: 'Sections'}).getByRole('link', {name: 'History'}).press('Enter');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'history-resource_prefix');
  await close();
});

test('time left and quarantine when a second passes then they count down without a word to screen readers', async () => {
  await stack.quarantine(2);
  const {page, close} = await browser.open(stack);
  const left = page.locator('#leases [data-resource="jobs/nightly"] .left');
  const quarantine = page.locator('#nodes li').nth(2).locator('.quarantine');
  const before = [await left.innerText(), await quarantine.innerText()];
  await page.evaluate(() => {
    globalThis.said = 0;
    for (const region of document.querySelectorAll('[aria-live]')) new MutationObserver(() => { globalThis.said += 1; }).observe(region, {childList: true, characterData: true, subtree: true});
  });
  await page.waitForTimeout(1300);
  const after = [await left.innerText(), await quarantine.innerText()];
  assert.ok(before.every((text, index) => text !== after[index]), `${before} ${after}`);
  assert.equal(await page.evaluate(() => globalThis.said), 0);
  await close();
});

test('theme when chosen then it stands against the system and survives a reload', async () => {
  const {page, close} = await browser.open(stack, {scheme: 'light'});
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', {name: 'Theme: auto'}).click();
  const dark = await background();
  assert.notEqual(light, dark);
  await page.reload();
  await page.getByRole('button', {name: 'Theme: dark'}).waitFor();
  assert.equal(await background(), dark);
  await close();
});

test('leases when narrowed by the beginning of the name then only those, and the address has it', async () => {
  const {page, close} = await browser.open(stack);
  await page.getByLabel('Resource begins with').first().fill('jobs/a');
  await page.locator(`#leases [data-resource="${STORY}"]`).waitFor({state: 'detached'});
  assert.equal(await page.locator('#leases tbody tr').count(), 1);
  assert.match(page.url(), /leases=jobs\/a/);
  await page.reload();
  await page.locator('#leases [data-resource="jobs/awaited"]').waitFor();
  assert.equal(await page.locator('#leases tbody tr').count(), 1);
  await page.getByLabel('Resource begins with').first().fill('nobody/');
  await page.getByText('No live lease has a resource that begins so.').waitFor();
  await close();
});
