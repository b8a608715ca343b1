// The build in a browser, without a bundler: a page of the gateway's own site, and one of another origin.

import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdtemp, readFile, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {test} from 'node:test';
import {withFront} from './support/front.js';
import {insertOrder, keys, newOrder, urls} from './support/stack.js';

/** A page that calls the gateway at `url`, an expression of its script. */
const pageOf = (order, url, key) => `<!doctype html>
<script type="importmap">{"imports": {
  "@fencegate/client": "/modules/dist/esm/index.js",
  "openapi-fetch": "/modules/node_modules/openapi-fetch/dist/index.mjs"
}}</script>
<script type="module">
import {Fencegate, ConstraintViolationError, ResourceLockedError} from '@fencegate/client';
const report = result => fetch('/result', {method: 'POST', body: JSON.stringify(result)});
try {
  const fencegate = new Fencegate({url: ${url}, credential: ${JSON.stringify(key)}});
  const result = await fencegate.withLease('orders/${order}', {ttlMs: 6000}, async lease => {
    const {fencingToken, signal, write, remainingMs} = lease;
    const {results} = await write([${JSON.stringify(insertOrder(order))}], {returnRows: true});
    const again = await write([${JSON.stringify(insertOrder(order))}])
      .catch(fault => fault instanceof ConstraintViolationError);
    const locked = await fencegate.acquire('orders/${order}')
      .catch(fault => fault instanceof ResourceLockedError && fault.retryAfterMs > 0);
    let last = remainingMs();
    for (let left = last; left <= last && !signal.aborted; left = remainingMs()) { // until a renewal
      last = left;
      await new Promise(resolve => setTimeout(resolve, 100));
    }
    return {order: results[0].rows[0].id, again, locked, lost: signal.aborted, fencingToken};
  });
  const tokens = [];
  for await (const item of fencegate.history({resource: 'orders/${order}', event: 'write_applied'}))
    tokens.push(item.fencing_token);
  await report({...result, tokens});
} catch (fault) {
  await report({fault: String(fault)});
}
</script>`;

/** Opens the page in Chromium until it has reported its result. */
async function showUntil(url, result) {
  const folder = await mkdtemp(join(tmpdir(), 'fg-'));
  const sandbox = process.getuid() === 0 ? ['--no-sandbox'] : [];
  const browser = spawn(process.env.CHROMIUM ?? 'chromium',
    ['--headless', '--disable-gpu', '--no-first-run', `--user-data-dir=${folder}`, ...sandbox, url], {stdio: 'ignore'});
  const ended = new Promise((resolve, reject) => { browser.on('error', reject)
    .on('exit', code => reject(new Error(`chromium ended with ${code}`))); });
  let timer;
  const late = new Promise(
    (resolve, reject) => { timer = setTimeout(reject, 60_000, new Error('the page has not reported in time')); });
  try {
    return await Promise.race([result, ended, late]);
  } finally {
    clearTimeout(timer);
    const exited = new Promise(resolve => { browser.on('close', resolve); });
    browser.kill();
    await exited;
    await rm(folder, {recursive: true, force: true, maxRetries: 5});
  }
}

/** Serves the page on `port`, forwards its calls to the first gateway, opens it, and requires its result. */
async function requirePageWorks(url, key, port) {
  const order = newOrder();
  let report;
  const result = new Promise(resolve => { report = resolve; });
  const serve = async (asked, ask, response) => {
    if (asked.path === '/result') {
      response.end();
      return report(asked.json);
    }
    if (!asked.path.startsWith('/modules/'))
      return response.setHeader('content-type', 'text/html').end(asked.path === '/' ? pageOf(order, url, key) : '');
    response.setHeader('content-type', 'text/javascript')
      .end(await readFile(new URL(asked.path.replace('/modules/', '../'), import.meta.url)));
  };
  await withFront(urls[0], asked => (asked.path.startsWith('/v1/') ? undefined : serve), async front => {
    const {fencingToken, ...seen} = await showUntil(front.url, result);
    assert.deepEqual(seen, {order, again: true, locked: true, lost: false, tokens: [fencingToken]});
    assert.equal(front.requests.some(asked => asked.path.startsWith('/v1/')), url === 'location.origin');
  }, port);
}

test('browser_page_holds_a_lease_and_writes', () => requirePageWorks('location.origin', keys.admin));

test('browser_page_of_an_allowed_origin_holds_a_lease_and_writes', () => {
  const {gateway, key, page_port: port} = JSON.parse(process.env.FENCEGATE_CORS);
  return requirePageWorks(JSON.stringify(gateway), key, port);
});
