// Transactions of the caller's own, with pg.

import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import pg from 'pg';
import {enter, enterShared, LeaseLostError} from '@fencegate/client';
import {aborted, clientOf, eventually, newOrder, newResource} from './support/stack.js';

const client = clientOf();
const pool = new pg.Pool({connectionString: process.env.FENCEGATE_DATABASE});
let connection;
before(async () => { connection = await pool.connect(); });
after(async () => {
  connection.release();
  await pool.end();
});

async function inTransaction(work) {
  await connection.query('begin');
  try {
    await work();
    await connection.query('commit');
  } catch (fault) {
    await connection.query('rollback');
    throw fault;
  }
}
const insert = order => connection.query("insert into orders (id, sku, quantity) values ($1, 'sku-1', 1)", [order]);

test('enter_in_transaction_then_rows_of_all_resources_change', async () => {
  const orders = [newOrder(), newOrder()];
  await client.withLease(orders.map(order => `orders/${order}`), {}, async lease => {
    await inTransaction(async () => {
      await enter(connection, lease);
      for (const order of orders) await insert(order);
    });
    await assert.rejects(inTransaction(() => insert(newOrder())),
      fault => fault.code === 'FG428' || fault.code === 'FG403');
  });
  const {rows} = await connection.query('select count(*) from orders where id = any($1)', [orders]);
  assert.equal(Number(rows[0].count), 2);
});

test('enter_of_several_resources_is_one_call_of_the_array_form', async () => {
  const lease = {resources: [newResource(), newResource()], fencingToken: 1, leaseId: ''};
  await inTransaction(async () => {
    await connection.query("set local track_functions = 'all'");
    await enter(connection, lease);
    const {rows} = await connection.query("select calls from pg_stat_xact_user_functions "
      + "where funcid = 'fencing.enter(text[], bigint, text)'::regprocedure");
    assert.deepEqual(rows, [{calls: '1'}]);
  });
  const tooMany = Array.from({length: 65}, newResource);
  await assert.rejects(inTransaction(() => enter(connection, {...lease, resources: tooMany})),
    fault => fault.code === '22023');
});

test('enter_of_older_holder_then_refused_by_postgresql', async () => {
  const order = newOrder();
  const older = await client.acquire(`orders/${order}`);
  await client.http.DELETE('/v1/leases/{lease_id}', {params: {path: {lease_id: older.leaseId}}});
  const newer = await client.acquire(`orders/${order}`);
  await inTransaction(() => enter(connection, newer));
  // The client knows that the lease is over.
  const unchecked = {resources: older.resources, fencingToken: older.fencingToken, leaseId: older.leaseId};
  await assert.rejects(inTransaction(() => enter(connection, unchecked)), fault => fault.code === 'FG412');
  await newer.release();
  await assert.rejects(older.release(), LeaseLostError);
});

test('enter_shared_then_rows_may_be_read_alone', async () => {
  const [order, read] = [newOrder(), newOrder()];
  const mixed = await client.acquire(`orders/${order}`, {shared: [`orders/${read}`]});
  const reader = await client.acquire(`orders/${read}`, {mode: 'shared'});
  await inTransaction(async () => {
    await enter(connection, mixed);
    await insert(order);
  });
  await assert.rejects(enter(connection, reader), {name: 'TypeError', message: /enterShared/});
  await inTransaction(() => enterShared(connection, reader, {proof: true}));
  for (const lease of [mixed, reader])
    await assert.rejects(inTransaction(async () => {
      await enterShared(connection, lease);
      await insert(read);
    }), fault => fault.code === 'FG428' || fault.code === 'FG403');
  const older = {resources: [`orders/${read}`], fencingToken: mixed.fencingToken - 1, leaseId: ''};
  await assert.rejects(inTransaction(() => enter(connection, older)), fault => fault.code === 'FG412');
  await Promise.all([mixed.release(), reader.release()]);
});

test('enter_waits_for_older_holder_and_what_is_read_then_is_new', async () => {
  const order = newOrder();
  const countOrders = async () => (await connection.query('select from orders where id = $1', [order])).rowCount;
  const older = await pool.connect();
  try {
    await client.withLease(`orders/${order}`, {}, lease => inTransaction(async () => {
      await older.query('begin');
      await older.query('select fencing.enter($1, $2::bigint)', [`orders/${order}`, lease.fencingToken - 1]);
      await older.query("insert into orders (id, sku, quantity) values ($1, 'sku-1', 1)", [order]);
      assert.equal(await countOrders(), 0, 'it is not committed');
      const entered = enter(connection, lease);
      const waiting = "select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))";
      await eventually(async () => (await older.query(waiting)).rowCount > 0, 'enter waits', 30_000);
      await older.query('commit');
      await entered;
      assert.equal(await countOrders(), 1);
    }));
  } finally {
    older.release(true);
  }
});

test('enter_with_lost_lease_then_nothing_sent', async () => {
  const resource = newResource();
  const lease = await client.acquire(resource, {ttlMs: 1500});
  await client.http.DELETE('/v1/resources/{resource}/lease', {params: {path: {resource}}, body: {reason: 'a test'}});
  await aborted(lease.signal);
  await assert.rejects(enter({query: () => assert.fail('it was sent')}, lease), LeaseLostError);
});

test('enter_on_a_pool_then_error_names_client', async () => {
  await client.withLease(newResource(), {}, lease => assert.rejects(enter(pool, lease), /^TypeError: client: /));
});

test('enter_with_proof_then_database_checks_the_lease_id', async () => {
  const resource = newResource();
  await client.withLease(resource, {}, async lease => {
    await inTransaction(() => enter(connection, lease, {proof: true}));
    const forged = {resources: [newResource()], fencingToken: lease.fencingToken, leaseId: lease.leaseId};
    await assert.rejects(inTransaction(() => enter(connection, forged, {proof: true})),
      fault => fault.code === 'FG401');
  });
});
