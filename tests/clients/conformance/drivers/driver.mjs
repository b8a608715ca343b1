// The conformance driver of the TypeScript client: `node driver.mjs`, with @fencegate/client installed.

import {createInterface} from 'node:readline';
import {setTimeout as sleep} from 'node:timers/promises';
import * as fencegate from '@fencegate/client';

const operations = [{call: 'f'}];
let client;
let lease;

function outcomeOf(fault) {
  if (fault?.name === 'AbortError') return {error: 'cancelled'};
  if (fault instanceof fencegate.ResourceLockedError) return {error: 'locked'};
  if (fault instanceof fencegate.LeaseLostError) return {error: 'lost'};
  if (fault instanceof fencegate.StaleFencingTokenError) return {error: 'stale'};
  if (fault instanceof fencegate.OutcomeUnknownError) return {error: 'unknown', key: fault.idempotencyKey};
  if (fault instanceof fencegate.ConnectionError) return {error: 'unavailable'};
  if (fault instanceof fencegate.ProblemError)
    return fault.slug ? {error: 'refused', slug: fault.slug} : {error: 'unavailable'};
  return {error: String(fault)};
}

const doing = {
  acquire: async ({wait_ms: waitMs = 0, cancel_after_ms: cancelAfter, any_of: anyOf, mode, shared}) => {
    const cancelling = new AbortController();
    if (cancelAfter) setTimeout(() => cancelling.abort(), cancelAfter);
    lease = await client.acquire(anyOf ? {anyOf: anyOf.split(' ')} : 'a',
      {waitMs, signal: cancelling.signal, mode, shared: shared?.split(' ')});
    return {token: String(lease.fencingToken), remaining_ms: Math.round(lease.remainingMs()), mode: lease.mode,
      shared: lease.shared.join(' ')};
  },
  adopt: async ({lease_id: leaseId}) => {
    lease = await client.adopt(leaseId);
    return {token: String(lease.fencingToken), remaining_ms: Math.round(lease.remainingMs())};
  },
  run_once_per_tick: async ({every_ms: every}) => {
    let works = 0;
    const run = await client.runOncePerTick('a', every, {}, () => { works += 1; });
    return {run: run && works === 1};
  },
  write: async ({then_release: thenRelease}) => written(await lease.write(operations, {thenRelease})),
  one_shot_write: async ({key}) => written(await client.oneShotWrite('a', operations, {idempotencyKey: key})),
  release: async ({seal}) => lease.release({seal}),
  check: async () => lease.check(),
  await_loss: async ({within_ms: within}) => {
    for (const until = performance.now() + within; !lease.signal.aborted; await sleep(5))
      if (performance.now() > until) throw new Error('it is not lost');
  },
  sleep: async ({ms}) => sleep(ms),
  history: async () => {
    const ids = [];
    for await (const {id} of client.history()) ids.push(id);
    return {ids};
  },
  follow: async ({after: afterId, count}) => {
    const ids = [];
    for await (const {id} of client.follow({}, {afterId})) if (ids.push(id) === count) break;
    return {ids};
  },
};

function written({write_id, replayed = false}) {
  return {write_id, replayed};
}

for await (const line of createInterface({input: process.stdin})) {
  const {urls, retry_for_ms: retryForMs, commands} = JSON.parse(line);
  client = new fencegate.Fencegate({url: urls, retryForMs});
  const outcomes = [];
  for (const command of commands)
    outcomes.push(await doing[command.do](command).then(more => ({ok: true, ...more}), outcomeOf));
  console.log(JSON.stringify(outcomes));
}
process.exit(0);
