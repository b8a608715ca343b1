// The panel and the tile of the guard: open and observed tables, since when and by whom,
// and what the installation can't notice.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {accessibilityErrors, horizontalOverflow, screenshot} from './support/browser.js';
import {browser, stack} from './support/scene.js';

test('enforced tables are listed', async () => {
  const {page, observed} = await browser.open(stack);
  await page.locator('#guard [data-table="public.inventory"]', {hasText: 'enforced'}).waitFor();
  await page.locator('[data-tile=guard]', {hasText: /3$/}).waitFor();
  assert.deepEqual(observed.errors, []);
});

test('tables that are open or observed, and limits, are shown with text alone', async () => {
  const {page} = await browser.open(stack);
  const table = {not_before: null, fault_count: 0, faults: [], since: '2026-11-23T20:31:02.114Z',
    principal: '<b>eve</b>'};
  const guard = {at: '2026-11-23T20:32:27.532Z', fault_count: 1, faults: ['public.a: the trigger is missing'],
    limits: ['event triggers are missing', 'the recorder is not set up: so'], compared_at: null,
    storage_generation: {timeline: 7, floor: 0},
    tables: [{...table, table: 'public.a', state: 'open', reason: 'fault', fault_count: 1,
      faults: ['public.a: the trigger is missing']},
      {...table, table: 'public.b', state: 'open', reason: 'unprotected'},
      {...table, table: 'public.c', state: 'observed', reason: null}]};
  await page.route('**/v1/guard', route => route.fulfill({json: guard}));
  await page.locator('#guard [data-table="public.a"]',
    {hasText: /open[\s\S]*by <b>eve<\/b>[\s\S]*the trigger is missing/}).waitFor();
  await page.locator('#guard [data-table="public.b"]', {hasText: 'unprotect() was called'}).waitFor();
  await page.locator('#guard [data-table="public.c"]', {hasText: /observed[\s\S]*not refused/}).waitFor();
  await page.locator('#guard .limit', {hasText: 'event triggers are missing'}).waitFor();
  assert.equal(await page.locator('#guard .fault').count(), 0, 'a fault of a table is in its row');
  await page.locator('[data-tile=guard].bad', {hasText: '2 open'}).waitFor();
  await page.locator('[data-tile=recorder].warn', {hasText: 'not set up'}).waitFor();
  await page.locator('[data-tile=generation]', {hasText: /7$/}).waitFor();
  assert.equal(await page.locator('#guard b').count(), 0);
  assert.equal(await horizontalOverflow(page), 0);
  assert.deepEqual(await accessibilityErrors(page), []);
  await screenshot(page, 'guard');
  guard.limits = ['the recorder fails, so that refusals are lost: no password'];
  guard.storage_generation.timeline = null;
  await page.locator('[data-tile=recorder].bad', {hasText: 'fails'}).waitFor();
  await page.locator('[data-tile=generation].bad', {hasText: 'unknown'}).waitFor();
});
