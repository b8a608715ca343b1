// The clock of validity, when the time of day moves otherwise than the monotonic clock.
// A file of its own: the clock never goes back.

import assert from 'node:assert/strict';
import {test} from 'node:test';
import {LeaseLostError} from '@fencegate/client';
import {clientOf, newResource} from './support/stack.js';

const realNow = Date.now;
const moveTimeOfDay = ms => { Date.now = () => realNow() + ms; };

test('clock_set_back_then_lease_lasts_no_longer', async () => {
  const lease = await clientOf().acquire(newResource(), {ttlMs: 5000});
  const before = lease.remainingMs();
  moveTimeOfDay(-3_600_000);
  assert.ok(lease.remainingMs() <= before && lease.remainingMs() > before - 3000);
  await lease.release();
});

test('clock_ahead_after_it_was_set_back_then_lease_is_lost', async () => {
  const lease = await clientOf().acquire(newResource(), {ttlMs: 5000});
  moveTimeOfDay(-3_600_000);
  assert.ok(lease.remainingMs() > 0);
  moveTimeOfDay(-3_600_000 + 6000);
  assert.equal(lease.remainingMs(), 0);
  await assert.rejects(lease.release(), LeaseLostError);
});

test('clock_ahead_after_suspension_then_lease_is_lost', async () => {
  moveTimeOfDay(0);
  const lease = await clientOf().acquire(newResource(), {ttlMs: 5000});
  moveTimeOfDay(6000); // as after a suspension, in which the monotonic clock does not move
  assert.equal(lease.remainingMs(), 0);
  assert.throws(lease.check, LeaseLostError);
  assert.equal(lease.signal.aborted, true);
  moveTimeOfDay(0);
  await assert.rejects(lease.release(), LeaseLostError);
});
