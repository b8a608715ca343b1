// Revoking a lease: the reason, the scope `operate`, and the focus afterwards.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {accessibilityErrors, screenshot} from './support/browser.js';
import {browser, stack} from './support/scene.js';
import {eventually} from './support/stack.js';

const focused = page =>
  page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id);

test('lease revoked with a reason blocks its holder', async () => {
  const resource = 'inventory/sku-2';
  const lease = await stack.acquire(resource, {owner: 'stuck', as: 'orders'});
  const {page, observed} = await browser.open(stack, {width: 390, scheme: 'dark'});
  const button = page.getByRole('button', {name: `Revoke the lease on ${resource}`});
  await button.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  assert.equal(await focused(page), 'revoke-reason');
  assert.match(await page.getByRole('dialog').innerText(),
    new RegExp(`${resource}[\\s\\S]*stuck \\(orders\\)[\\s\\S]*${lease.fencing_token}`));
  await page.keyboard.press('Escape');
  assert.equal(await focused(page), `Revoke the lease on ${resource}`);

  await page.keyboard.press('Enter');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.getByText('Enter a reason; the history records it.').waitFor();
  assert.deepEqual(await accessibilityErrors(page), []);
  await screenshot(page, 'revoke-390-dark');
  await page.getByLabel('Reason, for the history').fill('the holder hängt');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.locator(`#leases [data-resource="${resource}"]`).waitFor({state: 'detached'});
  await page.getByRole('dialog').waitFor({state: 'hidden'});
  assert.equal(await focused(page), 'leases-title');
  assert.equal(await stack.write(lease, 'sku-2', 'orders'), 412);
  const [revoked] = await eventually(async () => {
    const items = await stack.history({resource, event: 'lease_revoked'});
    return items.length && items;
  }, 'the revocation is in the history');
  assert.equal(revoked.principal, 'admin');
  assert.match(JSON.stringify(revoked.detail), /the holder hängt/);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('revoke dialog names the other resources of the lease', async () => {
  const lease = await stack.acquire(undefined, {resources: ['set/a', 'set/b', 'set/c']});
  const {page, observed} = await browser.open(stack);
  await page.getByRole('button', {name: 'Revoke the lease on set/b'}).click();
  await page.getByRole('dialog').getByText('set/a, set/c').waitFor();
  await page.getByRole('button', {name: 'Cancel'}).click();
  await Promise.all([page.waitForResponse(/v1\/resource\?resource=jobs%2Fawaited/),
    page.getByRole('button', {name: 'Revoke the lease on jobs/awaited'}).click()]);
  assert.doesNotMatch(await page.getByRole('dialog').innerText(), /Also revoked/);
  await stack.release(lease);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('revoke dialog keeps the lease of a newer holder', async () => {
  const resource = 'inventory/sku-3';
  const first = await stack.acquire(resource);
  const {page} = await browser.open(stack, {expected: [/409 \(Conflict\)/]});
  await page.getByRole('button', {name: `Revoke the lease on ${resource}`}).click();
  await stack.release(first);
  const second = await stack.acquire(resource);
  await page.getByLabel('Reason, for the history').fill('too late');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.getByText('none was revoked').waitFor();
  assert.equal((await stack.call('GET', `/v1/leases/${encodeURIComponent(second.lease_id)}`)).status, 200);
  await page.getByRole('button', {name: 'Cancel'}).click();
});

test('revoke dialog names the missing scope', async () => {
  const {page} = await browser.open(stack, {key: stack.key('auditor'), expected: [/403 \(Forbidden\)/]});
  await page.getByRole('button', {name: 'Revoke the lease on jobs/awaited'}).click();
  await page.getByLabel('Reason, for the history').fill('may I?');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.locator('dialog').getByText("lacks the scope 'operate'").waitFor();
  assert.ok((await stack.call('GET', '/v1/resources/jobs%2Fawaited')).body.lease);
});

test('key with operate for a prefix revokes its leases', async () => {
  const key =
    await stack.addKey('team', 'scopes: [history], prefixes: [{resource_prefix: team/, scopes: [history, operate]}]');
  await stack.acquire('team/a');
  const {page, observed} = await browser.open(stack, {key, expected: [/403 \(Forbidden\)/]});
  await page.locator('#nodes').getByText('This API key may not see this').waitFor();
  await page.getByRole('button', {name: 'Revoke the lease on team/a'}).click();
  await page.getByLabel('Reason, for the history').fill('the team is away');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.locator('#leases [data-resource="team/a"]').waitFor({state: 'detached'});
  await page.getByRole('button', {name: 'Revoke the lease on jobs/awaited'}).click();
  await page.getByLabel('Reason, for the history').fill('may I?');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await page.locator('dialog').getByText("lacks the scope 'operate' for the resource jobs/awaited").waitFor();
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('revocation answered late keeps the dialog of another lease', async () => {
  for (const name of ['late/a', 'late/b', 'late/c']) await stack.acquire(name);
  const {page} = await browser.open(stack, {expected: [/409 \(Conflict\)/]});
  const releases = [];
  await page.route('**/v1/resource/lease?*', async route => {
    await new Promise(resolve => { releases.push(resolve); });
    await route.continue();
  });
  const dialog = page.getByRole('dialog');
  const revokeThenCancel = async resource => {
    await page.getByRole('button', {name: `Revoke the lease on ${resource}`}).click();
    await page.getByLabel('Reason, for the history').fill('too slow');
    await page.getByRole('button', {name: 'Revoke lease'}).click();
    await eventually(() => releases.length > 0, 'the request is held');
    await page.getByRole('button', {name: 'Cancel'}).click();
    await page.getByRole('button', {name: 'Revoke the lease on late/b'}).click();
  };
  await revokeThenCancel('late/a');
  releases.pop()();
  await page.locator('#announcer', {hasText: 'The lease on late/a was revoked.'}).waitFor({state: 'attached'});
  assert.match(await dialog.innerText(), /late\/b/, 'the dialog is open');
  assert.ok(await page.getByRole('button', {name: 'Revoke lease'}).isEnabled());
  await page.getByRole('button', {name: 'Cancel'}).click();

  await revokeThenCancel('late/c');
  await stack.call('DELETE', '/v1/resources/late%2Fc/lease', {reason: 'by another operator'});
  releases.pop()();
  await page.locator('#announcer', {hasText: 'late/c: The resource has no lease any more.'})
    .waitFor({state: 'attached'});
  assert.equal(await page.locator('#revoke-error').innerText(), '');
});

test('revocation without an answer has an unknown outcome', async () => {
  const {page} = await browser.open(stack, {expected: [/ERR_FAILED/]});
  await page.route('**/v1/resource/lease?*', route => route.abort());
  await page.getByRole('button', {name: 'Revoke the lease on jobs/awaited'}).click();
  await page.getByLabel('Reason, for the history').fill('the holder hangs');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  const error = page.locator('#revoke-error');
  await error.getByText('It is not known whether the lease was revoked; check the list and try again.').waitFor();
  assert.doesNotMatch(await error.innerText(), /automatically/);
});
