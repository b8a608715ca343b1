// The files of the console as the gateway serves them, with headers that restrict what the page may load.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {stack} from './support/scene.js';

test('console needs no key and has a strict content policy', async () => {
  const answer = await fetch(`${stack.url}/console`);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('content-type'), 'text/html; charset=utf-8');
  const policy = answer.headers.get('content-security-policy');
  for (const rule of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
      "frame-ancestors 'none'", "require-trusted-types-for 'script'"])
    assert.ok(policy.includes(rule), rule);
  assert.doesNotMatch(policy, /unsafe|https?:|\*/);
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(answer.headers.get('referrer-policy'), 'no-referrer');
  assert.equal(answer.headers.get('cache-control'), 'no-cache');
});

test('console files exist and answer 304 to a known ETag', async () => {
  const page = await (await fetch(`${stack.url}/console?timeline=x`)).text();
  const names = [...page.matchAll(/"(\/console\/[^"]+)"/g)].map(match => match[1]);
  assert.ok(names.length >= 2);
  const modules = new Set(['/console', ...names]);
  for (const path of modules) {
    const answer = await fetch(stack.url + path);
    assert.equal(answer.status, 200, path);
    const etag = answer.headers.get('etag');
    assert.match(etag, /^"[0-9a-f]{32}"$/);
    const again = await fetch(stack.url + path, {headers: {'If-None-Match': etag}});
    assert.deepEqual([again.status, await again.text(), again.headers.get('etag')], [304, '', etag]);
    assert.equal((await fetch(stack.url + path, {headers: {'If-None-Match': '"other"'}})).status, 200);
    const text = await answer.text();
    for (const [, name] of text.matchAll(/from '\.\/([a-z_]+\.js)'/g)) modules.add(`/console/${name}`);
    assert.doesNotMatch(text, /innerHTML|insertAdjacentHTML|document\.write|\beval\(/, path);
  }
  assert.ok(modules.size > 10);
});

test('console file unknown gives 404', async () => {
  for (const name of ['no.js', '..%2Fopenapi.json', 'index.html%00'])
    assert.ok([400, 404].includes((await fetch(`${stack.url}/console/${name}`)).status), name);
});
