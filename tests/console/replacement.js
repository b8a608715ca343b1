// The notice after PostgreSQL was replaced.
// It has a stack of its own, because every lease of the others would lose its right to write.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {test} from 'node:test';
import {accessibilityErrors, horizontalOverflow, screenshot} from './support/browser.js';
import {browser} from './support/scene.js';
import {eventually, Stack} from './support/stack.js';

const EVENT = 'storage_generation_changed';

test('PostgreSQL replaced is shown with the lost writes of every gateway', async () => {
  const stack = new Stack();
  const query =
    text => execFileSync('psql', ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c', text, stack.stackFile.postgres.conninfo]);
  await stack.start();
  try {
    const {page, observed} = await browser.open(stack, {width: 390});
    const notice = page.locator('#replacement');
    await page.locator('#live', {hasText: 'Live'}).waitFor();
    assert.equal(await notice.isVisible(), false);

    query("select fencing.fence_all('the snapshot of Monday was put back')");
    await notice.getByText('(the snapshot of Monday was put back): leases from before').waitFor({timeout: 20_000});
    assert.doesNotMatch(await notice.innerText(), /lost/);
    query(`insert into fencing.history (event, principal, detail) values ('${EVENT}', 'gateway', `
      + `'{"gateway": "other:1", "lost_writes": [], "lost_write_count": 2}')`);
    await notice.getByText('2 acknowledged writes are lost.').waitFor();
    await screenshot(page, 'replacement-390-light');
    assert.equal(await horizontalOverflow(page), 0);
    assert.deepEqual(await accessibilityErrors(page), []);
    await screenshot(page, 'replacement-390-light');

    await notice.getByRole('button', {name: 'Show the events'}).click();
    await eventually(async () => await page.locator('#history tbody tr').count() === 2,
      'the history shows both events and no others');
    assert.match(page.url(), new RegExp(`event=${EVENT}`));
    assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
  } finally {
    await stack.stop();
  }
});
