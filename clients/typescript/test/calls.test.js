// Calls: what is repeated and when, credentials, errors, and options.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {randomUUID} from 'node:crypto';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {createServer} from 'node:https';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {test} from 'node:test';
import {setTimeout as sleep} from 'node:timers/promises';
import * as fencegate from '@fencegate/client';
import {forward, problem, stream, withFront} from './support/front.js';
import {clientOf, collectGarbage, gateways, insertOrder, keys, newResource, renewed, urls} from './support/stack.js';

const {Fencegate, ConnectionError} = fencegate;
const gaps = requests => requests.slice(1).map((asked, index) => asked.at - requests[index].at);

/** Runs work with the URL of a server whose certificate nobody trusts. */
async function withUntrustedServer(work) {
  const folder = mkdtempSync(join(tmpdir(), 'fg-'));
  const [keyFile, file] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', keyFile];
  execFileSync('openssl', ['req', '-x509', ...key, '-out', file, '-subj', '/CN=localhost', '-days', '2'],
    {stdio: 'ignore'});
  const server =
    createServer({key: readFileSync(keyFile), cert: readFileSync(file)}, () => assert.fail('it got a request'));
  await new Promise(resolve => { server.listen(0, '127.0.0.1', resolve); });
  try {
    return await work(`https://127.0.0.1:${server.address().port}`);
  } finally {
    server.close();
    rmSync(folder, {recursive: true});
  }
}

test('calls_connections_broken_then_pauses_grow_and_vary', async () => {
  const broken = async (asked, ask, response) => response.destroy();
  const seen = [];
  for (let run = 0; run < 3; run += 1) {
    await withFront(urls[0], asked => asked.number <= 4 ? broken : forward, async front => {
      await (await clientOf({url: front.url}).acquire(newResource())).release();
      seen.push(gaps(front.requests.slice(0, 5)));
    });
  }
  assert.ok(seen.every(([one, two, three, four]) => one >= 24 && two >= 49 && three >= 99 && four >= 199),
    `pauses ${seen.join(' | ')}`);
  assert.ok(seen.some(pauses => pauses.some((ms, index) => ms < 0.9 * 50 * 2 ** index)),
    `without a random part no pause is that short: ${seen.join(' | ')}`);
});

test('calls_no_answer_in_time_then_connection_error', async () => {
  const silent = async () => undefined;
  await withFront(urls[0], () => silent, async front => {
    await assert.rejects(clientOf({url: front.url, requestTimeoutMs: 200, retryForMs: 0}).acquire(newResource()),
      fault => fault instanceof ConnectionError && /No answer within 200 ms/.test(fault.message));
  });
});

test('calls_gateway_unreachable_then_the_next_one', async () => {
  await withFront(urls[0], undefined, async front => {
    front.close();
    const lease = await clientOf({url: [front.url, urls[1]]}).acquire(newResource());
    await lease.release();
    await assert.rejects(clientOf({url: front.url, retryForMs: 300}).acquire(newResource()), ConnectionError);
  });
});

test('calls_at_once_to_unreachable_gateway_then_all_use_the_next', async () => {
  await withFront(urls[0], undefined, async front => {
    front.close();
    await withFront(urls[1], undefined, async other => {
      const client = clientOf({url: [front.url, other.url], retryForMs: 2000});
      const leases = await Promise.all([1, 2].map(() => client.acquire(newResource())));
      await Promise.all(leases.map(lease => lease.release()));
      assert.equal(other.requests.length, 4);
    });
  });
});

test('calls_refused_connection_is_named_with_url_and_cause', async () => {
  const url = 'http://127.0.0.1:2/';
  await assert.rejects(clientOf({url, retryForMs: 0}).acquire(newResource()),
    fault => fault instanceof ConnectionError && fault.url === url && !fault.maybeExecuted
      && fault.message === 'No answer from 127.0.0.1:2: connect ECONNREFUSED 127.0.0.1:2'
      && fault.cause.cause.code === 'ECONNREFUSED');
});

test('calls_certificate_refused_then_never_sent_and_final', () => withUntrustedServer(async url => {
  const began = performance.now();
  const refused = fault => fault instanceof ConnectionError && !fault.maybeExecuted
    && /a certificate was refused \(DEPTH_ZERO_SELF_SIGNED_CERT\)/.test(fault.message);
  const client = clientOf({url});
  await assert.rejects(client.oneShotWrite(newResource(), [insertOrder(1)]), refused);
  await assert.rejects(client.follow().next(), refused);
  assert.ok(performance.now() - began < 5000, 'without repeats');
  await (await clientOf({url: [url, urls[1]]}).acquire(newResource())).release();
}));

test('calls_error_codes_of_certificates_then_never_sent', async () => {
  const maybeExecuted = async code => {
    const fetch =
      async () => { throw new TypeError('fetch failed', {cause: Object.assign(new Error('of the test'), {code})}); };
    return (await clientOf({fetch, retryForMs: 100}).history().next().catch(fault => fault)).maybeExecuted;
  };
  const ofCertificates = ['CERT_HAS_EXPIRED', 'CERT_REVOKED', 'CRL_HAS_EXPIRED', 'DEPTH_ZERO_SELF_SIGNED_CERT',
    'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'ERR_TLS_CERT_ALTNAME_INVALID',
    'HOSTNAME_MISMATCH', 'INVALID_CA', 'INVALID_PURPOSE', 'PATH_LENGTH_EXCEEDED', 'SELF_SIGNED_CERT_IN_CHAIN',
    'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
    'UNABLE_TO_VERIFY_LEAF_SIGNATURE'];
  for (const code of ofCertificates) assert.equal(await maybeExecuted(code), false, code);
  for (const code of ['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'UND_ERR_SOCKET', 'UND_ERR_HEADERS_TIMEOUT', undefined])
    assert.equal(await maybeExecuted(code), true, code);
});

test('calls_answer_stops_and_garbage_collected_then_time_limit', async () => {
  const begin = async (asked, ask, response) => {
    response.writeHead(200, {'content-type': 'application/json'}).write('{"items": [');
    setTimeout(collectGarbage, 200);
  };
  await withFront(urls[0], () => begin, async front => {
    const reading = clientOf({url: front.url, requestTimeoutMs: 1000, retryForMs: 0}).history().next();
    await assert.rejects(Promise.race([reading, sleep(5000)]),
      fault => fault instanceof ConnectionError && /No answer within 1000 ms/.test(fault.message));
  });
});

test('calls_value_that_cannot_be_sent_then_its_error_at_once', async () => {
  await withFront(urls[0], undefined, async front => {
    await assert.rejects(clientOf({url: front.url}).oneShotWrite(newResource(), [insertOrder(1n)]),
      /^TypeError: .*BigInt/);
    const fault = new TypeError('of the function');
    await assert.rejects(clientOf({url: front.url, credential: () => { throw fault; }})
      .oneShotWrite(newResource(), [insertOrder(1)]), error => error === fault);
    assert.equal(front.requests.length, 0);
  });
});

test('credential_wrong_or_missing_then_unauthenticated', async () => {
  for (const credential of ['wrong', undefined]) {
    await assert.rejects(new Fencegate({url: urls[0], ...(credential && {credential})}).acquire(newResource()),
      fencegate.UnauthenticatedError);
  }
});

test('credential_of_function_then_present_one_sent', async () => {
  const sent = [];
  await withFront(urls[0], asked => { sent.push(asked.headers.authorization); }, async front => {
    const values = [keys.admin, keys.admin, keys.admin]; // of the acquisition, the watch and the release
    const client = new Fencegate({url: front.url, credential: async () => values.shift()});
    await (await client.acquire(newResource())).release();
    assert.deepEqual(sent, [`Bearer ${keys.admin}`, `Bearer ${keys.admin}`]);
  });
  for (const credential of ['secret\nb', 'secretü', 'secret€', '']) {
    await assert.rejects(new Fencegate({url: urls[0], credential}).acquire(newResource()),
      fault => /^FencegateError: credential: /.test(fault) && !/secret/.test(fault.stack));
  }
});

test('request_invalid_then_error_names_the_field', async () => {
  await assert.rejects(clientOf().acquire(newResource(), {ttlMs: 1}),
    fault => fault instanceof fencegate.InvalidRequestError && fault.problem.errors[0].pointer === '/ttl_ms'
      && /\/ttl_ms/.test(fault.message));
  await assert.rejects(clientOf().acquire('a//b'), fault => fault.problem.errors[0].pointer === '/resource');
});

test('cell_of_client_is_sent_with_every_request', async () => {
  const resource = newResource();
  const unknown = problem(503, 'storage-unavailable', {}, {outcome_unknown: true, write_id: randomUUID()});
  let writes = 0;
  const rule = asked => {
    if (asked.path.startsWith('/v1/history/stream')) return stream(urls[0], () => undefined);
    return asked.path === '/v1/writes' && ++writes === 1 ? unknown : undefined;
  };
  await withFront(urls[0], rule, async front => {
    const client = clientOf({url: front.url, cell: 0});
    await client.withLease(resource, {ttlMs: 6000}, async ({write, remainingMs}) => {
      await renewed({remainingMs});
      // Its look-up finds nothing, and the repeat executes it.
      await assert.rejects(write([{delete: 'orders', where: {id: 1}, expect_rows: 9}]));
    });
    for await (const item of client.history({resource})) assert.equal(item.resource, resource);
    for await (const item of client.follow({resource}, {afterId: 0})) {
      assert.equal(item.resource, resource);
      break;
    }
    await client.http.GET('/v1/nodes');
    assert.deepEqual(front.requests.filter(asked => asked.headers['fencing-cell'] !== '0'), []);
    const sent = front.requests.map(({method, path}) =>
      `${method} ${path.replace(/\?.*/, '').replace(/leases\/[^/]+/, 'leases/ID')}`);
    assert.deepEqual([...new Set(sent)].sort(), ['DELETE /v1/leases/ID', 'GET /v1/history', 'GET /v1/history/stream',
      'GET /v1/nodes', 'POST /v1/leases', 'POST /v1/leases/ID/renew', 'POST /v1/writes']);
  });
});

test('cell_of_another_gateway_then_misdirected', async () => {
  const other = clientOf({cell: 1});
  for (const call of [() => other.acquire(newResource()),
      () => other.oneShotWrite(newResource(), [{delete: 'orders', where: {id: 1}}]), () => other.history().next()]) {
    await assert.rejects(call, fault => fault instanceof fencegate.MisdirectedRequestError && fault.status === 421);
  }
  await assert.rejects(other.history().next(), fault => fault.problem.named_cell === 1);
  await withFront(urls[0], undefined, async front => {
    await (await clientOf({url: front.url}).acquire(newResource())).release();
    assert.ok(front.requests.every(asked => !('fencing-cell' in asked.headers)));
  });
});

test('options_invalid_then_error_names_the_option', async () => {
  const notUrls = ['', 'localhost:8080', 'http://a?b', 'http://a:99999'];
  for (const url of [undefined, null, [], ['http://a', 'ftp://b'], ...notUrls])
    assert.throws(() => new Fencegate({url}), /^TypeError: url: /);
  for (const url of ['http://user:secret@a', 'https://secret@a', ['http://b', 'http:///:secret@a/c'],
      'http://user:secret@a?b', 'ftp://user:secret@a', 'http://a?key=secret']) {
    assert.throws(() => new Fencegate({url}),
      fault => /^TypeError: url: has /.test(fault) && !/secret/.test(fault.stack));
  }
  for (const cell of [-1, 65_536, 0.5, '1', null])
    assert.throws(() => new Fencegate({url: urls, cell}), /^TypeError: cell: has to be an integer from 0 to 65535$/);
  assert.throws(() => new Fencegate({url: urls, retryForMs: -1}), /^TypeError: retryForMs: /);
  assert.throws(() => new Fencegate({url: urls, requestTimeoutMs: Number.NaN}), /^TypeError: requestTimeoutMs: /);
  await assert.rejects(clientOf().acquire(newResource(), {waitMs: -1}), /^TypeError: waitMs: /);
  for (const idempotencyKey of ['', 'a b', 'a\nb', 'ü', 'a'.repeat(65)]) {
    await assert.rejects(clientOf().oneShotWrite(newResource(), [insertOrder(1)], {idempotencyKey}),
      /^TypeError: idempotencyKey: /);
  }
  await assert.rejects(clientOf().follow({}, {afterId: '1\n'}).next(), /^TypeError: afterId: /);
});

test('error_classes_are_those_of_the_slugs', async () => {
  const {components} = JSON.parse(readFileSync(process.env.FENCEGATE_OPENAPI, 'utf8'));
  const slugs = components.schemas.problem.properties.type.enum.map(type => type.replace('/problems/', ''));
  assert.deepEqual(Object.keys(fencegate.problemClasses), slugs);
  assert.equal(new Set(Object.values(fencegate.problemClasses)).size, slugs.length);
  for (const slug of slugs) {
    await withFront(urls[0], () => problem(400, slug), async front => {
      await assert.rejects(clientOf({url: front.url}).acquire(newResource()),
        fault => fault instanceof fencegate.problemClasses[slug] && fault.slug === slug
          && fault.name === fault.constructor.name);
    });
  }
});

test('http_client_calls_every_operation_by_its_types', async () => {
  const {http} = clientOf();
  assert.equal((await http.GET('/v1/nodes')).data.nodes.length, 5);
  const rows = await http.GET('/v1/tables/{table}',
    {params: {path: {table: 'inventory'}, query: {conditions: {sku: 'eq.sku-2'}, select: 'sku'}}});
  assert.deepEqual(rows.data, [{sku: 'sku-2'}]);
  assert.equal((await http.GET('/v1/resources/{resource}',
      {params: {path: {resource: 'inventory/sku-2'}}})).data.lease_state, 'free');
  assert.equal(gateways.length, 2);
});
