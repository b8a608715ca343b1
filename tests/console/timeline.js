// A resource's leases as bars; the stale write stands where nobody can miss it.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {SCREENSHOTS} from './support/browser.js';
import {browser, scene, stack, STORY} from './support/scene.js';
import {eventually} from './support/stack.js';

const box = locator => locator.evaluate(element => {
  const {left, right, top, bottom} = element.getBoundingClientRect();
  return {left, right, top, bottom, middle: (left + right) / 2};
});

test('stale write when drawn then a cross behind the end of its own bar, with a line to the lease that shut it out', async () => {
  const {page, seen, close} = await browser.open(stack, {query: `?timeline=${STORY}`});
  await page.locator('#timeline .stale-write').waitFor();
  const lanes = page.locator('#timeline .lane');
  const labels = await lanes.locator('.lane-label').allTextContents();
  const [a, b] = [scene.a, scene.b].map(lease => labels.findIndex(label => label.includes(String(lease.fencing_token))));
  assert.ok(a >= 0 && b > a, labels.join());
  const cross = await box(page.locator('#timeline .stale-write .cross'));
  const own = await box(lanes.nth(a).locator('.bar'));
  const newer = await box(lanes.nth(b).locator('.bar'));
  assert.ok(cross.left > own.right, 'it comes after its lease');
  assert.ok(cross.top >= own.top - 2 && cross.bottom <= own.bottom + 2, 'it is on the lane of its own token');
  assert.ok(cross.middle > newer.left && cross.middle < newer.right, 'while the newer one holds the resource');
  const line = await box(page.locator('#timeline .against'));
  assert.ok(line.top < newer.top && line.bottom > newer.top, 'a line leads there');
  assert.equal(await page.locator('#timeline .write_applied').count(), 4, "the story's three, and the sample's own that made the row");
  assert.equal(await page.locator('#timeline .lease_refused').count(), 1);
  assert.match(await page.locator('#timeline .summary').innerText(), /1 stale write refused/);
  assert.deepEqual([seen.faults, seen.outside], [[], []]);
  await close();
});

test('timeline when stepped through by keys then each event is told, and the table has the same', async () => {
  const {page, close} = await browser.open(stack, {query: `?timeline=${STORY}`});
  await page.locator('#timeline .stale-write').waitFor();
  await page.getByRole('group', {name: 'Events of the resource'}).focus();
  const inspector = page.locator('#timeline .inspector');
  const told = [];
  await page.keyboard.press('Home');
  for (let step = 0; step < 20 && told.at(-1) !== await inspector.innerText(); ++step) {
    told.push(await inspector.innerText());
    await page.keyboard.press('ArrowRight');
  }
  const stale = told.find(text => text.includes('Stale write refused'));
  assert.ok(stale?.includes(`token ${scene.a.fencing_token}`) && stale.includes(`fence ${scene.b.fencing_token}`), told.join('\n'));
  await page.locator('#timeline summary').click();
  const rows = await page.locator('#timeline tbody tr').allInnerTexts();
  assert.ok(rows.length >= told.length && told.length > 6, told.join('\n'));
  assert.equal(rows.filter(text => text.includes('Stale write refused')).length, 1);
  await page.keyboard.press('Escape');
  await page.locator('#timeline .stale-write').click();
  assert.match(await inspector.innerText(), /Stale write refused/);
  await close();
});

test('resource when chosen among the leases or typed then drawn, and the address has it', async () => {
  const {page, close} = await browser.open(stack);
  await page.getByText('Choose a resource among the live leases').waitFor();
  await page.locator('#leases').getByRole('button', {name: STORY, exact: true}).click();
  await page.locator('#timeline .stale-write').waitFor();
  assert.match(page.url(), /timeline=inventory\/sku-1/);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'timeline-title');
  await page.locator('#timeline-resource').fill('nobody/knows');
  await page.keyboard.press('Enter');
  await page.getByText('The history has nothing about nobody/knows').waitFor();
  await page.goBack();
  await page.locator('#timeline .stale-write').waitFor();
  await page.locator('#timeline-window').selectOption('60');
  await page.waitForURL(/window=60/);
  await close();
});

test('lanes when there are more than twelve then the latest, and the rest on request', async () => {
  for (let number = 0; number < 15; ++number) await stack.release(await stack.take('many/lanes'));
  await eventually(async () => (await stack.history({resource: 'many/lanes', event: 'lease_released'})).length === 15, 'all of it is in the history');
  const {page, close} = await browser.open(stack, {query: '?timeline=many/lanes'});
  await page.getByRole('button', {name: 'Show 3 older leases'}).click();
  await eventually(async () => await page.locator('#timeline .lane').count() === 15, 'all lanes');
  await close();
});

test('stale write when hundreds of events and many leases came since then still at a glance, with its lease and the one that shut it out', async () => {
  const resource = 'inventory/sku-4';
  const stale = await stack.take(resource, {ttl_ms: 300, owner: 'sleeper'});
  const newer = await stack.take(resource, {wait_ms: 10_000, owner: 'awake'});
  assert.equal(await stack.write(newer, 'sku-4'), 200);
  assert.equal(await stack.write(stale, 'sku-4'), 412);
  for (let number = 0; number < 300; ++number) await stack.call('POST', `/v1/leases/${encodeURIComponent(newer.lease_id)}/renew`, {ttl_ms: 60_000});
  await stack.release(newer);
  for (let number = 0; number < 13; ++number) await stack.release(await stack.take(resource));
  await eventually(async () => (await stack.history({resource, event: 'lease_released'})).length === 14, 'all of it is in the history');
  for (const width of [1440, 390]) {
    const {page, close} = await browser.open(stack, {width, query: `?timeline=${resource}`});
    await page.locator('#timeline .summary').getByText('1 stale write refused').waitFor();
    assert.equal(await page.locator('#timeline .stale-write').count(), 1);
    const labels = await page.locator('#timeline .lane-label').allTextContents();
    for (const {fencing_token: token} of [stale, newer]) assert.ok(labels.some(label => label.includes(String(token))), labels.join());
    assert.equal(await page.locator('#timeline .against').count(), 1);
    const covered = await page.evaluate(() => {
      const boxes = selector => [...document.querySelectorAll(selector)].map(element => element.getBoundingClientRect());
      const labels = boxes('#timeline .lane-label > tspan:first-child');
      return boxes('#timeline .break rect').filter(torn => labels.some(label => torn.left < label.right && torn.right > label.left && torn.top < label.bottom - 4 && torn.bottom > label.top + 4)).length;
    });
    assert.equal(covered, 0, 'what is left out covers no name');
    await page.locator('#timeline').screenshot({path: `${SCREENSHOTS}/timeline-crowded-${width}.png`});
    await close();
  }
});

test('lanes when idle time lies between two stories then it is left out, and both keep their size', async () => {
  const {page, close} = await browser.open(stack);
  const {times, widths} = await page.evaluate(async () => {
    const {arrange, busyTimes, scaleOf} = await import('/console/timeline_model.js');
    const at = seconds => new Date(1_800_000_000_000 + seconds * 1000).toISOString();
    const lease = (token, from, to) => [{event: 'lease_granted', fencing_token: token, at: at(from)}, {event: 'lease_released', fencing_token: token, at: at(to)}];
    const now = 1_800_000_000_000 + 9_000_000;
    const {lanes} = arrange([...lease(1, 0, 10), ...lease(2, 11, 20), ...lease(3, 7000, 7010)].map((item, id) => ({id, resource: 'r', last_fencing_token: null, detail: null, ...item})), {now});
    const times = busyTimes(lanes, now);
    const {x} = scaleOf(times, 0, 1000, 30);
    return {times, widths: lanes.map(lane => Math.round(x(lane.end) - x(lane.start)))};
  });
  assert.equal(times.length, 2);
  assert.ok(Math.max(...widths) - Math.min(...widths) < 60 && Math.min(...widths) > 200, widths.join());
  await close();
});
