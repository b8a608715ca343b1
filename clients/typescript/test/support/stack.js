// The running stack that the tests use: FENCEGATE_STACK is the path of its stack.json.

import {randomUUID} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {setTimeout as sleep} from 'node:timers/promises';
import {setFlagsFromString} from 'node:v8';
import {runInNewContext} from 'node:vm';
import {Fencegate} from '@fencegate/client';

export const readStack = () => JSON.parse(readFileSync(process.env.FENCEGATE_STACK, 'utf8'));

export const {gateways, api_keys: keys} = readStack();
export const urls = gateways.map(gateway => gateway.http);

/** A client of both gateways, unless `options` has another url. */
export const clientOf = (options = {}) => new Fencegate({url: urls, credential: keys.admin, ...options});

/** A client that learns of the end of a lease from its calls alone: the streams that watch leases are refused. */
export const clientWithoutWatch = () => clientOf({
  fetch: request => (request.headers.get('Accept') === 'text/event-stream' ? Promise.reject(new TypeError('no stream'))
    : fetch(request)),
});

/** A resource that no other test uses. */
export const newResource = () => `tests/${randomUUID()}`;

/** The number of an order that no other test uses. */
export const newOrder = () => Math.floor(Math.random() * 2 ** 40) + 10_000;

export const insertOrder = id => ({insert: 'orders', values: {id, sku: 'sku-1', quantity: 1}});

/** Waits until the condition returns something true, and returns that. */
export async function eventually(condition, goal, timeout = 10_000) {
  for (const until = performance.now() + timeout; ;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > until) throw new Error(`not within ${timeout} ms: ${goal}`);
    await sleep(10);
  }
}

/** Waits until the validity of a lease, which decreases with time, is longer again. */
export const renewed = lease => {
  let least = lease.remainingMs();
  return eventually(() => {
    least = Math.min(least, lease.remainingMs());
    return lease.remainingMs() > least + 200;
  }, 'it is renewed', 20_000);
};

/** Waits until a signal is aborted, and returns its reason. */
export const aborted = signal => new Promise(resolve => {
  if (signal.aborted) return resolve(signal.reason);
  signal.addEventListener('abort', () => resolve(signal.reason), {once: true});
});

export function collectGarbage() {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
}

/** Suspends the processes of the gateways while work runs, so that their connections stay open without answers. */
export async function withPaused(numbers, work) {
  const pids = numbers.map(number => readStack().gateways[number].pid);
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  try {
    return await work();
  } finally {
    for (const pid of pids) process.kill(pid, 'SIGCONT');
  }
}

/** Waits until both gateways are ready. */
export async function bothReady() {
  for (const url of urls)
    await eventually(async () => (await fetch(`${url}/readyz`).catch(() => ({}))).ok, `${url} is ready`, 30_000);
}
