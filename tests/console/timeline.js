// The timeline of a resource: leases as bars, and the mark of a stale write.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {test} from 'node:test';
import {SCREENSHOTS} from './support/browser.js';
import {browser, scene, stack, STALE_RESOURCE} from './support/scene.js';
import {eventually, sleep} from './support/stack.js';

test('stale write is a cross after its lease, linked to the newer', async () => {
  const {page, observed} = await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}`});
  await page.locator('#timeline .stale-write').waitFor();
  const lanes = page.locator('#timeline .lane');
  const labels = await lanes.locator('.lane-label').allTextContents();
  const [a, b] =
    [scene.a, scene.b].map(lease => labels.findIndex(label => label.includes(String(lease.fencing_token))));
  assert.ok(a >= 0 && b > a, labels.join());
  // All of them at one moment: what is above the timeline may grow meanwhile.
  const [cross, own, newer, line] = await page.locator('#timeline').evaluate((timeline, [a, b]) => {
    const lanes = timeline.querySelectorAll('.lane');
    const elements = [timeline.querySelector('.stale-write .cross'), lanes[a].querySelector('.bar'),
      lanes[b].querySelector('.bar'), timeline.querySelector('.refused-by')];
    return elements.map(element => {
      const {left, right, top, bottom} = element.getBoundingClientRect();
      return {left, right, top, bottom, middle: (left + right) / 2};
    });
  }, [a, b]);
  assert.ok(cross.middle > own.right, 'it comes after its lease');
  assert.ok(cross.top >= own.top - 2 && cross.bottom <= own.bottom + 2, 'it is on the lane of its own token');
  assert.ok(cross.middle > newer.left && cross.middle < newer.right, 'while the newer one holds the resource');
  assert.ok(line.top < newer.top && line.bottom > newer.top, 'a line leads to its lane');
  assert.equal(await page.locator('#timeline .write_applied').count(), 4,
    "three of this test's writes, and the one of the example that inserted the row");
  assert.equal(await page.locator('#timeline .lease_refused').count(), 1);
  assert.match(await page.locator('#timeline .summary').innerText(), /1 stale write refused/);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('timeline keys step through the events of the table', async () => {
  const {page} = await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}`});
  await page.locator('#timeline .stale-write').waitFor();
  await page.getByRole('group', {name: 'Events of the resource'}).focus();
  const inspector = page.locator('#timeline .inspector');
  const texts = [];
  await page.keyboard.press('Home');
  for (let step = 0; step < 20 && texts.at(-1) !== await inspector.innerText(); ++step) {
    texts.push(await inspector.innerText());
    await page.keyboard.press('ArrowRight');
  }
  const stale = texts.find(text => text.includes('Stale write refused'));
  assert.ok(stale?.includes(`token ${scene.a.fencing_token}`) && stale.includes(`fence ${scene.b.fencing_token}`),
    texts.join('\n'));
  await page.locator('#timeline summary').click();
  const rows = await page.locator('#timeline tbody tr').allInnerTexts();
  assert.ok(rows.length >= texts.length && texts.length > 6, texts.join('\n'));
  assert.equal(rows.filter(text => text.includes('Stale write refused')).length, 1);
  await page.keyboard.press('Escape');
  await page.locator('#timeline .stale-write').click();
  assert.match(await inspector.innerText(), /Stale write refused/);
});

test('timeline resource is in the URL', async () => {
  const {page} = await browser.open(stack);
  await page.getByText('Choose a resource from the live leases').waitFor();
  await page.locator('#leases').getByRole('button', {name: STALE_RESOURCE, exact: true}).click();
  await page.locator('#timeline .stale-write').waitFor();
  assert.match(page.url(), /timeline=inventory\/sku-1/);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'timeline-title');
  await page.locator('#timeline-resource').fill('nobody/knows');
  await page.keyboard.press('Enter');
  await page.getByText('The history has no events of nobody/knows').waitFor();
  await page.goBack();
  await page.locator('#timeline .stale-write').waitFor();
  await page.locator('#range-last').selectOption('-1m');
  await page.waitForURL(/from=-1m/);
});

test('timeline shows twelve lanes, the rest on request', async () => {
  for (let number = 0; number < 15; ++number) await stack.release(await stack.acquire('many/lanes'));
  await eventually(async () => (await stack.history({resource: 'many/lanes', event: 'lease_released'})).length === 15,
    'all events are in the history');
  const {page} = await browser.open(stack, {query: '?timeline=many/lanes'});
  await page.getByRole('button', {name: 'Show 3 older leases'}).click();
  await eventually(async () => await page.locator('#timeline .lane').count() === 15, 'all lanes');
});

test('stale write stays visible after hundreds of events', async () => {
  const resource = 'inventory/sku-4';
  const stale = await stack.acquire(resource, {ttl_ms: 300, owner: 'paused'});
  const newer = await stack.acquire(resource, {wait_ms: 10_000, owner: 'newer'});
  assert.equal(await stack.write(newer, 'sku-4'), 200);
  assert.equal(await stack.write(stale, 'sku-4'), 412);
  for (let number = 0; number < 300; ++number)
    await stack.call('POST', `/v1/leases/${encodeURIComponent(newer.lease_id)}/renew`, {ttl_ms: 60_000});
  await stack.release(newer);
  for (let number = 0; number < 13; ++number) await stack.release(await stack.acquire(resource));
  await eventually(async () => (await stack.history({resource, event: 'lease_released'})).length === 14,
    'all events are in the history');
  for (const width of [1440, 390]) {
    const {page} = await browser.open(stack, {width, query: `?timeline=${resource}`});
    await page.locator('#timeline .summary').getByText('1 stale write refused').waitFor();
    assert.equal(await page.locator('#timeline .stale-write').count(), 1);
    const labels = await page.locator('#timeline .lane-label').allTextContents();
    for (const {fencing_token: token} of [stale, newer])
      assert.ok(labels.some(label => label.includes(String(token))), labels.join());
    assert.equal(await page.locator('#timeline .refused-by').count(), 1);
    const covered = await page.evaluate(() => {
      const boxes =
        selector => [...document.querySelectorAll(selector)].map(element => element.getBoundingClientRect());
      const labels = boxes('#timeline .lane-label > tspan:first-child');
      return boxes('#timeline .break rect').filter(gap => labels.some(label => gap.left < label.right
        && gap.right > label.left && gap.top < label.bottom - 4 && gap.bottom > label.top + 4)).length;
    });
    assert.equal(covered, 0, 'no break covers a name');
    await page.locator('#timeline').screenshot({path: `${SCREENSHOTS}/timeline-many-events-${width}.png`});
  }
});

test('timeline events are in the order of time, not of ids', async () => {
  const {page} = await browser.open(stack);
  const ids = await page.evaluate(async () => {
    const {mergeEvents} = await import('/console/timeline_model.js');
    const at = ms => new Date(1_800_000_000_000 + ms).toISOString();
    // A grant (7) and the write under it (5) within one millisecond, as the API has them; 3 and 5 are in both lists.
    const newest = [{id: 2, at: at(9)}, {id: 5, at: at(5)}, {id: 7, at: at(5)}, {id: 3, at: at(1)}];
    return mergeEvents([newest, [{id: 5, at: at(5)}, {id: 3, at: at(1)}, {id: 4, at: at(0)}]]).map(event => event.id);
  });
  assert.deepEqual(ids, [4, 3, 7, 5, 2]);
});

test('timeline is not replaced by an older answer', async () => {
  const {page, observed} = await browser.open(stack, {query: `?timeline=${STALE_RESOURCE}`});
  await page.locator('#timeline .stale-write').waitFor();
  const holds = [];
  await page.route(/\/v1\/history\?resource=inventory(?!.*from=)/, async route => {
    const {items} = await (await route.fetch()).json();
    await new Promise(resolve => { holds.push(resolve); });
    const older = {items: items.filter(item => item.event !== 'write_rejected'), next_cursor: null};
    await route.fulfill({json: older}).catch(() => {}); // the page has cancelled the request
  });
  await page.locator('#timeline-resource').press('Enter');
  await eventually(() => holds.length > 0, 'an answer is held');
  const [newer] = await Promise.all([page.waitForResponse(/history\?resource=inventory.*from=/),
    page.locator('#range-last').selectOption('-1h')]);
  await newer.finished();
  await page.evaluate(() => {
    const timeline = document.getElementById('timeline');
    new MutationObserver(() => { globalThis.replaced ||= !timeline.querySelector('.stale-write'); })
      .observe(timeline, {childList: true, subtree: true});
  });
  for (const release of holds) release();
  await sleep(300); // the older answer would be shown now
  assert.ok(!await page.evaluate(() => globalThis.replaced), 'the older answer was shown');
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('timeline leaves out long idle time between leases', async () => {
  const {page} = await browser.open(stack);
  const {periods, widths} = await page.evaluate(async () => {
    const {buildLanes, findActivePeriods, makeTimeScale} = await import('/console/timeline_model.js');
    const at = seconds => new Date(1_800_000_000_000 + seconds * 1000).toISOString();
    const lease = (token, from, to) => [{event: 'lease_granted', fencing_token: token, at: at(from)},
      {event: 'lease_released', fencing_token: token, at: at(to)}];
    const now = 1_800_000_000_000 + 9_000_000;
    const {lanes} = buildLanes([...lease(1, 0, 10), ...lease(2, 11, 20), ...lease(3, 7000, 7010)].map(
      (item, id) => ({id, resource: 'r', last_fencing_token: null, detail: null, ...item})), {now});
    const periods = findActivePeriods(lanes, now);
    const {x} = makeTimeScale(periods, 0, 1000, 30);
    return {periods, widths: lanes.map(lane => Math.round(x(lane.end) - x(lane.start)))};
  });
  assert.equal(periods.length, 2);
  assert.ok(Math.max(...widths) - Math.min(...widths) < 60 && Math.min(...widths) > 200, widths.join());
});

test('timeline shows a seal on the lane of the token that it seals', async () => {
  const {page} = await browser.open(stack);
  const lanes = await page.evaluate(async () => {
    const {buildLanes} = await import('/console/timeline_model.js');
    const item = (event, token, owner, fence, detail = null) => ({event, fencing_token: token, owner,
      last_fencing_token: fence, detail, resource: 'r'});
    const seal = {reason: 'seal', found_token: 482};
    const events = [item('lease_granted', 482, 'one', null, {ttl_ms: 10000}),
      item('fence_raised', 482, 'one', 483, seal), item('fence_raised', 483, 'one', 483, seal),
      item('lease_granted', 483, 'two', null, {ttl_ms: 800})];
    const at = number => new Date(1_800_000_000_000 + number).toISOString();
    return buildLanes(events.map((event, id) => ({id, at: at(id), ...event})), {now: 1_800_000_100_000}).lanes
      .map(lane => [lane.token, lane.owner, lane.marks.length]);
  });
  assert.deepEqual(lanes, [[482, 'one', 3], [483, 'two', 1]]);
});

test('timeline has a lane for each shared lease, also of one token', async () => {
  const {page} = await browser.open(stack);
  const lanes = await page.evaluate(async () => {
    const {buildLanes} = await import('/console/timeline_model.js');
    const at = seconds => new Date(1_800_000_000_000 + seconds * 1000).toISOString();
    const item = (seconds, event, token, grant, more) => ({at: at(seconds), event, fencing_token: token,
      last_fencing_token: null, detail: grant && {mode: 'shared', grant, ttl_ms: 10_000}, owner: grant, ...more});
    const events = [item(0, 'lease_granted', 7, 'aa'), item(1, 'lease_granted', 7, 'bb'),
      item(2, 'fence_raised', 7, null), item(3, 'lease_released', 7, 'aa'), item(4, 'lease_granted', 8, 'cc')];
    const live = ['bb', 'dd'].map(grant =>
      ({fencing_token: 7, grant, owner: grant, granted_at: at(1), until: 1_800_000_000_000 + 60_000}));
    const {lanes} = buildLanes(events.map((event, id) => ({id, ...event})), {live, now: 1_800_000_000_000 + 5000});
    return lanes.map(lane => [lane.token, lane.owner, lane.ending, lane.end - lane.start, lane.marks.length]);
  });
  assert.deepEqual(lanes, [[7, 'aa', 'released', 3000, 3], [7, 'bb', 'live', 59_000, 1], [7, 'dd', 'live', 59_000, 0],
    [8, 'cc', 'live', 10_000, 1]]);
});

test('shared holders are beside each other in timeline and list', async () => {
  const resource = 'shared/prices';
  const [one, two] = [await stack.acquire(resource, {mode: 'shared', owner: 'reader-1'}),
    await stack.acquire(resource, {mode: 'shared', owner: 'reader-2'})];
  const {page, observed} = await browser.open(stack, {query: `?timeline=${resource}`});
  await eventually(async () => await page.locator('#timeline .lane .bar').count() === 2, 'both have a bar');
  const labels = (await page.locator('#timeline .lane-label').allTextContents()).join();
  for (const {fencing_token: token, owner} of [one, two])
    assert.ok(labels.includes(`${token} shared`) && labels.includes(owner), labels);
  const rows = page.locator(`#leases [data-resource="${resource}"]`);
  await eventually(async () => await rows.count() === 2, 'both are listed');
  assert.match((await rows.allInnerTexts()).join(), /shared[\s\S]*shared/);
  await page.goto(`${stack.url}/console?page=resource&timeline=${resource}`);
  await page.getByText(/2 shared: .*reader-1/).waitFor();
  await page.goBack();
  await page.getByRole('button', {name: new RegExp(`Revoke the lease on ${resource} of reader-1`)}).click();
  await page.getByRole('dialog').getByText('shared; leases').waitFor();
  await page.getByLabel('Reason, for the history').fill('it hangs');
  await page.getByRole('button', {name: 'Revoke lease'}).click();
  await eventually(async () => await rows.count() === 1, 'the other stays');
  await stack.release(two);
  assert.deepEqual([observed.errors, observed.externalRequests], [[], []]);
});

test('timeline of several days shows dates', async () => {
  const resource = 'days/1';
  const old = new Date(Date.now() - 48 * 3_600_000).setUTCHours(12, 2, 30, 0); // not near midnight in Berlin
  const events = [[old, 'lease_granted'], [old + 300_000, 'lease_released']];
  for (const [at, event] of events) {
    const insert = `insert into fencing.history (at, event, resource, principal, owner, fencing_token)
      values (to_timestamp(${at / 1000}), '${event}', '${resource}', 'admin', 'old', 1)`;
    execFileSync('psql', ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c', insert, stack.stackFile.postgres.conninfo]);
  }
  await stack.release(await stack.acquire(resource));
  const dateOf = at => new Intl.DateTimeFormat('en-GB', {month: 'short', day: 'numeric', timeZone: 'Europe/Berlin'})
    .format(at);
  const dates = [dateOf(old), dateOf(Date.now())];
  for (const width of [1440, 390]) {
    const {page} = await browser.open(stack, {width, query: `?timeline=${resource}`});
    await eventually(async () => await page.locator('#timeline .lane').count() === 2, 'both leases');
    const ticks = await page.locator('#timeline .tick').allTextContents();
    for (const date of dates)
      assert.equal(ticks.filter(text => text.startsWith(date)).length, 1, `${date} in ${ticks.join()}`);
    await page.locator('#timeline summary').click();
    const times = await page.locator('#timeline tbody time').allInnerTexts();
    assert.deepEqual(times.map(text => text.slice(0, -18)), [dates[1], dates[1], dates[0], dates[0]]);
    assert.match(await page.locator('#timeline .bar title').first().textContent(),
      new RegExp(`${dates[0]} \\d{4} \\d\\d:.* to ${dates[0]} \\d{4} \\d\\d:`));
    await page.locator('#timeline').screenshot({path: `${SCREENSHOTS}/timeline-several-days-${width}.png`});
  }
});

test('timeline shows nothing of the previous resource', async () => {
  const {page} = await browser.open(stack,
    {query: `?timeline=${STALE_RESOURCE}`, expected: [/503 \(Service Unavailable\)/, /ERR_INTERNET_DISCONNECTED/]});
  const chart = page.locator('#timeline .timeline-chart');
  await chart.locator('.stale-write').waitFor();
  const holds = [];
  await page.route(/\/v1\/history\?resource=/, async route => {
    await new Promise(resolve => { holds.push(resolve); });
    const body = JSON.stringify({title: 'PostgreSQL cannot be reached', status: 503});
    // The page has cancelled the request.
    await route.fulfill({status: 503, contentType: 'application/problem+json', headers: {'Retry-After': '60'}, body})
      .catch(() => {});
  });
  await page.locator('#leases').getByRole('button', {name: 'jobs/awaited', exact: true}).click();
  await page.locator('#timeline').getByText('Loading…').waitFor();
  assert.equal(await chart.isVisible(), false, 'while the other resource is loaded');
  await eventually(() => holds.length > 0, 'the request is held');
  holds.forEach(release => release());
  await page.locator('#timeline').getByText('PostgreSQL cannot be reached').waitFor();
  assert.equal(await chart.isVisible(), false, 'after a problem');
  await page.goBack();
  await page.locator('#timeline').getByText('Loading…').waitFor();
  await page.unroute(/\/v1\/history\?resource=/);
  await page.reload();
  await chart.locator('.stale-write').waitFor();
  await page.context().setOffline(true);
  await page.locator('#timeline-resource').fill('jobs/awaited');
  await page.keyboard.press('Enter');
  await page.locator('#timeline')
    .getByText('The gateway cannot be reached. The console retries automatically.').waitFor();
  assert.equal(await chart.isVisible(), false, 'while the gateway is unreachable');
});
