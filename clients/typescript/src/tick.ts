// Work that is done once in each tick of a schedule.

import type {Fencegate} from './client.js';
import {FencegateError} from './errors.js';
import {ResourceLockedError} from './generated/problems.js';
import type {HistoryFilters, HistoryItem} from './history.js';
import type {Lease} from './lease.js';

/** The shortest period of a schedule. */
export const EVERY_MIN = 1000;

/** Returns the two newest raised fences that match the filters. */
async function raisedFences(client: Fencegate, filters: HistoryFilters,
    options: {signal?: AbortSignal}): Promise<HistoryItem[]> {
  const found = [];
  for await (const item of client.history({...filters, event: 'fence_raised', limit: 2}, options))
    if (found.push(item) === 2) break;
  return found;
}

/**
 * Records that the work of a tick starts now, unless the last start belongs to the same tick.
 * The starts are the events fence_raised of RESOURCE@tick, with the time of PostgreSQL.
 * Resolves to whether this call has recorded the start: exactly one caller may do the work.
 * `onUnreleased` gets the failure to release the lease of the record, which then ends with its ttl.
 */
export async function beginTick(client: Fencegate, lease: Lease, everyMs: number, options: {signal?: AbortSignal},
    onUnreleased: (fault: unknown) => void): Promise<boolean> {
  const resource = lease.resources[0] as string;
  const record = `${resource}@tick`;
  const token = lease.fencingToken;
  const [own] = await raisedFences(client, {resource, token_min: token, token_max: token}, options);
  if (!own) throw new FencegateError(`The history does not have the fence of ${resource}: the tick cannot be decided`);
  const [before] = await raisedFences(client, {resource: record}, options);
  if (before && Math.abs(Date.parse(own.at) - Date.parse(before.at)) * 2 < everyMs) return false;
  let started: Lease;
  try {
    started = await client.acquire(record, {...options, fenceOnGrant: true});
  } catch (fault) {
    if (fault instanceof ResourceLockedError) return false;
    throw fault;
  }
  await started.release().catch(onUnreleased);
  const after = await raisedFences(client, {resource: record, token_max: started.fencingToken}, options);
  // Another caller that held the lease meanwhile may have recorded its start between the two.
  return after[0]?.fencing_token === started.fencingToken && after[1]?.fencing_token === before?.fencing_token;
}
