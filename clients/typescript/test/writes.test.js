// Writes: under a lease and in one call, once also if answers are lost,
// and with an outcome that the answer does not tell.

import assert from 'node:assert/strict';
import {randomUUID} from 'node:crypto';
import {after, before, test} from 'node:test';
import pg from 'pg';
import {ConnectionError, ConstraintViolationError, ExpectationFailedError, LeaseLostError, OutcomeUnknownError,
  ResourceLockedError, StaleFencingTokenError} from '@fencegate/client';
import {changeAnswer, loseAnswer, problem, withFront} from './support/front.js';
import {bothReady, clientOf, clientWithoutWatch, eventually, insertOrder, keys, newOrder, newResource, readStack,
  urls} from './support/stack.js';

const client = clientOf();
let database;
async function connect() {
  const made = new pg.Client({connectionString: process.env.FENCEGATE_DATABASE});
  made.on('error', () => undefined); // a test ends the server
  await made.connect();
  return made;
}
before(async () => { database = await connect(); });
after(() => database.end());

test('write_then_release_seals_and_is_no_loss', async () => {
  const [order, later] = [newOrder(), newOrder()];
  const resources = [`orders/${order}`, `orders/${later}`];
  await client.withLease(resources, {ttlMs: 2_000, seal: true}, async lease => {
    const written = await lease.write([insertOrder(order)], {thenRelease: true});
    assert.ok(written.released && written.sealed === undefined);
    assert.throws(lease.check, LeaseLostError);
    await assert.rejects(lease.write([insertOrder(later)]), LeaseLostError);
    const entering = database.query('select fencing.enter($1::text[], $2::bigint)', [resources, lease.fencingToken]);
    await assert.rejects(entering,
      {code: 'FG412'});
    assert.ok(!lease.signal.aborted);
  });
  assert.deepEqual([await countOf(order), await countOf(later)], [1, 0]);
});

const countOf = async order =>
  Number((await database.query('select count(*) from orders where id = $1', [order])).rows[0].count);
const waitersOf = async (resource, url) =>
  (await clientOf({url}).http.GET('/v1/leases', {params: {query: {resource_prefix: resource}}})).data.waiters;
const writesTo = front => front.requests.filter(asked => asked.path === '/v1/writes');
const onWrite = (...faults) => {
  let number = 0;
  return asked => (asked.path === '/v1/writes' ? faults[number++] : undefined);
};
/** The gateway applies the write, but its answer says that it does not know. */
const hideOutcome = changeAnswer(({write_id}) => ({status: 503, body: {
  type: '/problems/storage-unavailable', title: 'PostgreSQL is unavailable', status: 503, detail: 'during the commit',
  request_id: 'test', outcome_unknown: true, write_id}}));
/** The gateway does not get the write, and the answer says that the outcome is unknown. */
const unknown = writeId =>
  problem(503, 'storage-unavailable', {'retry-after': '1'}, {outcome_unknown: true, write_id: writeId});

test('write_under_lease_then_rows_and_fence', async () => {
  const order = newOrder();
  await client.withLease(`orders/${order}`, {}, async ({write, fencingToken}) => {
    const done = await write([insertOrder(order), {update: 'orders', where: {id: order}, set: {quantity: 2},
        expect_rows: 1}], {returnRows: true, requireLive: true});
    assert.equal(done.results[1].rows[0].quantity, 2);
    assert.deepEqual(done.fences,
      [{resource: `orders/${order}`, fencing_token: fencingToken, last_fencing_token: fencingToken}]);
    await assert.rejects(write([insertOrder(order)]),
      fault => fault instanceof ConstraintViolationError && fault.problem.sqlstate === '23505');
    await assert.rejects(write([{update: 'orders', where: {id: order, quantity: 9}, set: {quantity: 1},
        expect_rows: 1}]), ExpectationFailedError);
  });
  assert.equal(await countOf(order), 1);
});

test('write_of_older_holder_then_stale_token', async () => {
  const order = newOrder();
  const older = await clientWithoutWatch().acquire(`orders/${order}`);
  await client.http.DELETE('/v1/leases/{lease_id}', {params: {path: {lease_id: older.leaseId}}});
  const newer = await client.acquire(`orders/${order}`, {fenceOnGrant: true});
  await assert.rejects(older.write([insertOrder(order)]),
    fault => fault instanceof StaleFencingTokenError && fault.problem.fencing_token === older.fencingToken
      && fault.problem.last_fencing_token === newer.fencingToken);
  assert.equal(await countOf(order), 0);
  await newer.release();
  await assert.rejects(older.release(), LeaseLostError);
});

test('one_shot_write_answer_lost_then_applied_once', async () => {
  const order = newOrder();
  await withFront(urls[0], onWrite(loseAnswer, loseAnswer), async front => {
    const done = await clientOf({url: front.url})
      .oneShotWrite(`orders/${order}`, [insertOrder(order)], {returnRows: true, ttlMs: 5000});
    assert.equal(done.results[0].rows[0].id, order);
    assert.equal(done.released, true);
    assert.equal(new Set(writesTo(front).map(asked => asked.headers['idempotency-key'])).size, 1);
    assert.equal(writesTo(front).length, 3);
  });
  assert.equal(await countOf(order), 1);
});

test('one_shot_write_of_held_resource_waits_or_refused', async () => {
  const order = newOrder();
  const resources = [`orders/${order}`, newResource()];
  const held = await client.acquire(resources[1]);
  await assert.rejects(client.oneShotWrite(resources, [insertOrder(order)]), ResourceLockedError);
  const writing = client.oneShotWrite(resources, [insertOrder(order)], {waitMs: 10_000});
  await held.release();
  assert.equal((await writing).applied, true);
  assert.equal(await countOf(order), 1);
});

const withLimit = max =>
  changeAnswer((body, status) => ({status, body: status === 423 ? {...body, max_wait_ms: max} : body}));

test('one_shot_write_of_held_resource_waits_in_the_queue', async () => {
  for (const [max, longest, requests] of [[undefined, 10_000, 2], [100, 100, 4]]) {
    const order = newOrder();
    const held = await client.acquire(`orders/${order}`);
    await withFront(urls[0], max === undefined ? undefined : onWrite(...Array(50).fill(withLimit(max))),
        async front => {
      const writing = clientOf({url: front.url})
        .oneShotWrite(`orders/${order}`, [insertOrder(order)], {waitMs: 10_000});
      await eventually(async () => await waitersOf(`orders/${order}`, urls[0]) === 1,
        'it waits in the queue of the gateway');
      await eventually(() => writesTo(front).length >= requests, 'as many requests wait, one after another');
      await held.release();
      assert.equal((await writing).applied, true);
      const [first, ...waits] = writesTo(front).map(asked => asked.json.lease.wait_ms);
      assert.equal(first, 0);
      assert.ok(waits.every(wait => wait <= longest && wait > longest - 5000), `waits ${waits}`);
    });
    assert.equal(await countOf(order), 1);
  }
});

test('one_shot_write_whose_wait_is_refused_then_asks_again', async () => {
  const order = newOrder();
  const held = await client.acquire(`orders/${order}`);
  const refused = problem(400, 'invalid-request', {},
    {errors: [{pointer: '/lease/wait_ms', detail: 'has to be an integer from 0 to 0'}]});
  await withFront(urls[0], onWrite(withLimit(10_000), refused, ...Array(50).fill(withLimit(0))), async front => {
    const writing = clientOf({url: front.url}).oneShotWrite(`orders/${order}`, [insertOrder(order)], {waitMs: 10_000});
    await eventually(() => writesTo(front).length >= 4, 'it asks again');
    await held.release();
    assert.equal((await writing).applied, true);
    const [first, second, ...rest] = writesTo(front).map(asked => asked.json.lease.wait_ms);
    assert.deepEqual([first, second > 5000, new Set(rest)], [0, true, new Set([0])]);
  });
  assert.equal(await countOf(order), 1);
});

/** The gateway is killed once it has the lease: the caller gets no answer, and nobody releases the lease. */
const leaveLease = (resource, ttl, answer = async (asked, ask, response) => response.destroy()) =>
    async (asked, ask, response) => {
  await client.http.POST('/v1/leases', {body: {resource, ttl_ms: ttl}});
  await answer(asked, ask, response);
};

test('one_shot_write_lease_of_lost_attempt_then_waits_for_its_end', async () => {
  for (const answer of [undefined, unknown(randomUUID())]) {
    const order = newOrder();
    await withFront(urls[0], onWrite(leaveLease(`orders/${order}`, 2000, answer)), async front => {
      const done = await clientOf({url: front.url}).oneShotWrite(`orders/${order}`, [insertOrder(order)]);
      assert.equal(done.applied, true);
      assert.equal(new Set(writesTo(front).map(asked => asked.headers['idempotency-key'])).size, 1);
    });
    assert.equal(await countOf(order), 1);
  }
});

test('one_shot_write_lease_of_lost_attempt_too_long_then_unknown', async () => {
  const writeId = randomUUID();
  for (const answer of [undefined, unknown(writeId)]) {
    const resource = newResource();
    const began = performance.now();
    await withFront(urls[0], onWrite(leaveLease(resource, 20_000, answer)), async front => {
      await assert.rejects(clientOf({url: front.url, retryForMs: 1000}).oneShotWrite(resource, [insertOrder(1)]),
        fault => fault instanceof OutcomeUnknownError && fault.cause instanceof ResourceLockedError
          && fault.writeId === (answer && writeId));
    });
    const after = performance.now() - began;
    assert.ok(after > 900 && after < 5000, `unknown after ${after} ms`);
  }
});

test('one_shot_write_gateway_killed_then_applied_once', async () => {
  const order = newOrder();
  const other = await connect();
  try {
    await other.query('begin; lock table orders in share mode');
    const writing = client.oneShotWrite(`orders/${order}`, [insertOrder(order)], {ttlMs: 6000});
    writing.catch(() => undefined); // until it is awaited below
    const blocked = "select count(*) from pg_locks where relation = 'orders'::regclass and not granted";
    await eventually(async () => Number((await database.query(blocked)).rows[0].count) > 0,
      'PostgreSQL executes the write');
    process.kill(readStack().gateways[0].pid, 'SIGKILL');
    await Promise.race([writing, eventually(async () => await waitersOf(`orders/${order}`, urls[1]) === 1,
        'it waits for the end of its lease', 20_000)]);
    await other.query('rollback');
    assert.equal((await writing).applied, true);
  } finally {
    await other.end();
    await bothReady();
  }
  assert.equal(await countOf(order), 1);
});

test('one_shot_write_with_own_key_then_first_outcome', async () => {
  const order = newOrder();
  const options = {idempotencyKey: `order-${order}`};
  const one = await client.oneShotWrite(`orders/${order}`, [insertOrder(order)], options);
  const two = await client.oneShotWrite(`orders/${order}`, [insertOrder(order)], options);
  assert.equal(two.write_id, one.write_id);
});

test('outcome_unknown_of_applied_write_then_its_results', async () => {
  const order = newOrder();
  await withFront(urls[0], onWrite(hideOutcome), async front => {
    const done = await clientOf({url: front.url})
      .oneShotWrite(`orders/${order}`, [insertOrder(order)], {returnRows: true});
    assert.equal(done.results[0].rows[0].id, order);
    const looked = front.requests.find(asked => asked.path.startsWith('/v1/history'));
    assert.equal(looked.path, `/v1/history?write_id=${done.write_id}`);
  });
  assert.equal(await countOf(order), 1);
});

test('outcome_unknown_without_history_scope_then_found', async () => {
  const order = newOrder();
  await withFront(urls[0], onWrite(hideOutcome), async front => {
    const done = await clientOf({url: front.url, credential: keys.orders})
      .oneShotWrite(`orders/${order}`, [insertOrder(order)]);
    assert.equal(done.applied, true);
  });
  assert.equal(await countOf(order), 1);
});

test('write_answers_lost_then_unknown_with_key_for_a_repeat', async () => {
  const order = newOrder();
  await withFront(urls[0], onWrite(...Array(50).fill(loseAnswer)), async front => {
    const lease = await client.acquire(`orders/${order}`);
    const other = clientOf({url: front.url, retryForMs: 300});
    for (const write of [() => other.oneShotWrite(`orders/${newOrder()}`, [insertOrder(1)]),
        () => other.withLease(newResource(), {}, held => held.write([insertOrder(1)]))]) {
      await assert.rejects(write, fault => fault instanceof OutcomeUnknownError && fault.writeId === undefined
        && fault.cause instanceof ConnectionError
        && fault.idempotencyKey === writesTo(front).at(-1).headers['idempotency-key']);
    }
    await lease.release();
    const unknown = await other.oneShotWrite(`orders/${order}`, [insertOrder(order)]).catch(fault => fault);
    const done =
      await client.oneShotWrite(`orders/${order}`, [insertOrder(order)], {idempotencyKey: unknown.idempotencyKey});
    assert.equal(done.applied, true);
  });
  assert.equal(await countOf(order), 1);
});

test('outcome_unknown_and_look_up_421_then_repeat_or_unknown', async () => {
  const order = newOrder();
  const misdirected =
    async (asked, ask, response) => response.writeHead(421, {'content-type': 'application/problem+json'})
    // As config/haproxy/cells.cfg.
    .end(JSON.stringify({type: 'about:blank', title: 'Misdirected Request', status: 421,
        detail: 'No cell has what this request names.'}));
  let onWrites = onWrite(hideOutcome);
  await withFront(urls[0], asked => (asked.path.startsWith('/v1/history') ? misdirected : onWrites(asked)),
      async front => {
    const other = clientOf({url: front.url, retryForMs: 500});
    assert.equal((await other.oneShotWrite(`orders/${order}`, [insertOrder(order)])).applied, true);
    onWrites = onWrite(...Array(50).fill(unknown(randomUUID())));
    await assert.rejects(other.oneShotWrite(newResource(), [insertOrder(1)]), OutcomeUnknownError);
  });
  assert.equal(await countOf(order), 1);
});

test('outcome_known_but_results_unreadable_then_error_says_applied', async () => {
  const order = newOrder();
  await withFront(urls[0], onWrite(hideOutcome, ...Array(50).fill(problem(500, 'internal-error'))), async front => {
    await assert.rejects(
      clientOf({url: front.url, retryForMs: 500}).oneShotWrite(`orders/${order}`, [insertOrder(order)]),
      error => error instanceof OutcomeUnknownError && error.applied === true);
  });
  assert.equal(await countOf(order), 1);
});

test('writes_while_servers_are_killed_then_each_applied_once', async () => {
  const first = newOrder();
  let done = 0;
  const writeMany = async lane => {
    for (let number = 0; number < 12; number += 1) {
      const order = first + 4 * number + lane;
      const applied = await client.oneShotWrite(`orders/${order}`, [insertOrder(order)],
        {ttlMs: 2000, waitMs: 10_000, returnRows: true});
      assert.equal(applied.results[0].rows[0].id, order);
      done += 1;
    }
  };
  const writing = Promise.all([0, 1, 2, 3].map(writeMany));
  await Promise.race([writing, eventually(() => done >= 8, 'writes are under way')]);
  process.kill(readStack().gateways[0].pid, 'SIGKILL');
  await Promise.race([writing, eventually(() => done >= 20, 'writes go on by the other gateway')]);
  process.kill(readStack().postgres.pid, 'SIGQUIT'); // it ends at once, as in a crash, and starts again with recovery
  await writing;
  assert.equal(done, 48);
  await database.end().catch(() => undefined);
  database = await connect();
  const {rows} = await database.query('select count(*) from orders where id between $1 and $2', [first, first + 47]);
  assert.equal(Number(rows[0].count), 48);
  await bothReady();
});
