// Arranges the events of a resource in lanes, one per lease, in the order of the tokens. Shared leases may have the
// same token; their events name the grant.
// A lane also has the events that used its token after the lease had ended.
// This module draws nothing and reads no clock.

import {holder, isStale} from './words.js';

const ENDS = {lease_released: 'released', lease_expired: 'expired', lease_revoked: 'revoked'};

/**
 * Returns events in the order of time, oldest first. `lists`: as the API has them, newest first;
 * an event may be in several. The API orders by more digits than `at` has, so events of one millisecond stay
 * in the order of their list. Ids are not in that order: a lease event is written after the writes under its lease.
 */
export function mergeEvents(lists) {
  return [...new Map(lists.flat().map(item => [item.id, item])).values()].reverse()
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/**
 * Returns the lanes and marks for `events` of one resource, oldest first.
 * `live`: its leases now ({fencing_token, grant, until}).
 *
 * A lane: token (null: writes without one), grant (of a shared lease), owner, start, end,
 * ending (released, expired, revoked, live), open (its grant is not among the events).
 * A mark: at, item, lane, stale, refusedBy (the lane of the token that is the fence). Marks are in order of time.
 */
export function buildLanes(events, {live = [], now}) {
  const lanes = new Map();
  const laneWith = token => [...lanes.values()].find(lane => lane.token === token);
  const laneOf = item => {
    // A seal raises the fence of its token to the next one.
    const token = item.detail?.reason === 'seal' ? item.last_fencing_token - 1 : item.fencing_token ?? null;
    const grant = item.grant ?? item.detail?.grant ?? '';
    const key = `${token} ${grant}`;
    let lane = lanes.get(key) ?? (grant ? undefined : laneWith(token));
    if (!lane) lanes.set(key,
        lane = {token, grant, owner: '', marks: [], start: undefined, end: undefined, ending: '', until: undefined});
    lane.owner ||= holder({owner: item.owner}) || item.principal || '';
    return lane;
  };
  const holderAt =
    at => [...lanes.values()].findLast(lane => lane.token !== null && lane.start <= at && !(lane.end < at));
  const marks = [];
  for (const item of events) {
    const at = Date.parse(item.at);
    // A refused request for a lease has no token; its mark is on the lane of the lease that was held.
    const lane = item.event === 'lease_refused' ? holderAt(at) ?? laneOf(item) : laneOf(item);
    if (item.event === 'lease_granted' || item.event === 'lease_renewed') {
      if (item.event === 'lease_granted') lane.start = Math.min(lane.start ?? at, at);
      if (item.detail?.ttl_ms) lane.until = at + item.detail.ttl_ms;
    }
    if (item.event in ENDS && lane.end === undefined) {
      lane.end = at;
      lane.ending = ENDS[item.event];
    }
    const mark = {at, item, lane, stale: isStale(item)};
    lane.marks.push(mark);
    marks.push(mark);
  }
  for (const lease of live) laneOf(lease).start ??= Date.parse(lease.granted_at);
  const ordered = [...lanes.values()].sort((a, b) => (a.token ?? Infinity) - (b.token ?? Infinity));
  for (const lane of ordered) completeLane(lane, {live, now});
  for (const mark of marks) {
    if (mark.stale) mark.refusedBy = laneWith(mark.item.last_fencing_token);
  }
  return {lanes: ordered, marks};
}

/** Sets start, end and ending of a lane where no event has them. */
function completeLane(lane, {live, now}) {
  const isLease = lane.token !== null
    && (lane.start !== undefined || lane.marks.some(mark => mark.item.event.startsWith('lease_')));
  if (!isLease) return;
  if (lane.start === undefined) {
    lane.start = Math.min(...lane.marks.map(mark => mark.at));
    lane.open = true;
  }
  if (lane.end !== undefined) return;
  const lease = live.find(each => each.fencing_token === lane.token && (each.grant ?? '') === lane.grant);
  if (lease) {
    lane.end = lease.until;
    lane.ending = 'live';
  } else if (lane.until > now) {
    lane.end = lane.until;
    lane.ending = 'live';
  } else {
    lane.end = lane.until ?? Math.max(...lane.marks.map(mark => mark.at));
    lane.ending = 'expired';
  }
}

const BREAKS_MAX = 5;

/**
 * Returns the periods to show, as [from, to]: leaves out the longest gaps between events,
 * as few as needed so that each of them is more than twice as long as everything that is shown.
 * At most BREAKS_MAX + 1 periods.
 */
export function findActivePeriods(lanes, now) {
  const moments = lanes.flatMap(lane =>
    [...lane.marks.map(mark => mark.at), ...(lane.start === undefined ? [] : [lane.start, Math.min(lane.end, now)])]);
  if (!moments.length) return [[now - 1000, now]];
  moments.sort((a, b) => a - b);
  const gaps = moments.slice(1).map((at, index) => ({index: index + 1, ms: at - moments[index]}))
    .sort((a, b) => b.ms - a.ms);
  let shown = moments.at(-1) - moments[0];
  const lastBreak = gaps.slice(0, BREAKS_MAX).findIndex(gap => {
    shown -= gap.ms;
    return shown > 0 && gap.ms > 2 * shown;
  });
  const breaks = gaps.slice(0, lastBreak + 1).map(gap => gap.index);
  const edges = [0, ...breaks.sort((a, b) => a - b), moments.length];
  return edges.slice(1).map((end, index) => [moments[edges[index]], moments[end - 1]]);
}

/**
 * Maps `periods` to x coordinates between `left` and `right`, with `gap` between them;
 * all periods have the same scale. Returns {x, segments}.
 */
export function makeTimeScale(periods, left, right, gap) {
  const available = right - left - gap * (periods.length - 1);
  // Gives a period of a single moment some width too.
  const minimum = Math.max(200, periods.reduce((total, [from, to]) => total + to - from, 0) / periods.length / 6);
  const widened = periods.map(([from, to]) => {
    const pad = Math.max(minimum - (to - from), (to - from) * 0.03) / 2;
    return {from: from - pad, to: to + pad};
  });
  const total = widened.reduce((sum, {from, to}) => sum + to - from, 0);
  let position = left;
  const segments = widened.map(({from, to}) => {
    const begin = position;
    const end = begin + (to - from) / total * available;
    position = end + gap;
    return {from, to, begin, end};
  });
  const x = at => {
    const segment = segments.find(({to}) => at <= to) ?? segments.at(-1);
    const {from, to, begin, end} = segment;
    return begin + (Math.min(Math.max(at, from), to) - from) / (to - from) * (end - begin);
  };
  return {x, segments};
}

/** Round intervals between two ticks, in ms. */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5,
  72e5, 108e5, 216e5, 432e5, 864e5];
/** Returns the times of at most `ticksMax` ticks on an axis, and their interval. */
export function makeTicks(from, to, ticksMax) {
  const step = STEPS.find(candidate => (to - from) / candidate <= ticksMax)
    ?? STEPS.at(-1) * Math.ceil((to - from) / ticksMax / STEPS.at(-1));
  const times = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) times.push(at);
  return {step, times};
}
