// A resource's events as lanes: one a lease, in the order of the tokens, with what was done under its token on it, also
// what was done when the lease was over. No drawing, no clock of its own.

import {holder, isStale} from './words.js';

const ENDS = {lease_released: 'released', lease_expired: 'expired', lease_revoked: 'revoked'};

/**
 * `events` of one resource, oldest first. `live`: its lease now ({fencing_token, until}), or undefined.
 *
 * Gives {lanes, marks}. A lane: token (null: writes without one), owner, start, end, ending (released, expired,
 * revoked, live), open (its grant is not among the events). A mark: at, item, lane, stale, against (the lane whose
 * token refused it). Marks are in order of time.
 */
export function arrange(events, {live, now}) {
  const lanes = new Map();
  const laneOf = item => {
    const token = item.fencing_token ?? null;
    let lane = lanes.get(token);
    if (!lane) lanes.set(token, lane = {token, owner: '', marks: [], start: undefined, end: undefined, ending: '', until: undefined});
    lane.owner ||= holder({owner: item.owner}) || item.principal || '';
    return lane;
  };
  const holderAt = at => [...lanes.values()].findLast(lane => lane.token !== null && lane.start <= at && !(lane.end < at));
  const marks = [];
  for (const item of events) {
    const at = Date.parse(item.at);
    // Who was refused a lease has no token: it shows on the lease that stood in its way.
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
  if (live && !lanes.has(live.fencing_token)) laneOf(live).start = Date.parse(live.granted_at);
  const ordered = [...lanes.values()].sort((a, b) => (a.token ?? Infinity) - (b.token ?? Infinity));
  for (const lane of ordered) finish(lane, {live, now});
  for (const mark of marks) {
    if (mark.stale) mark.against = lanes.get(mark.item.last_fencing_token);
  }
  return {lanes: ordered, marks};
}

/** When the lease of a lane ended, where no event says so. */
function finish(lane, {live, now}) {
  const isLease = lane.token !== null && (lane.start !== undefined || lane.marks.some(mark => mark.item.event.startsWith('lease_')));
  if (!isLease) return;
  if (lane.start === undefined) {
    lane.start = Math.min(...lane.marks.map(mark => mark.at));
    lane.open = true;
  }
  if (lane.end !== undefined) return;
  if (live?.fencing_token === lane.token) {
    lane.end = live.until;
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
 * The stretches of time in which something happened on `lanes`, as [from, to]: the longest times without an event are left
 * out, as few as it takes to have each of them more than twice as long as all that is shown. At most BREAKS_MAX + 1.
 */
export function busyTimes(lanes, now) {
  const moments = lanes.flatMap(lane => [...lane.marks.map(mark => mark.at), ...(lane.start === undefined ? [] : [lane.start, Math.min(lane.end, now)])]);
  if (!moments.length) return [[now - 1000, now]];
  moments.sort((a, b) => a - b);
  const gaps = moments.slice(1).map((at, index) => ({index: index + 1, ms: at - moments[index]})).sort((a, b) => b.ms - a.ms);
  let rest = moments.at(-1) - moments[0];
  const cut = gaps.slice(0, BREAKS_MAX).findIndex(gap => {
    rest -= gap.ms;
    return rest > 0 && gap.ms > 2 * rest;
  });
  const breaks = gaps.slice(0, cut + 1).map(gap => gap.index);
  const edges = [0, ...breaks.sort((a, b) => a - b), moments.length];
  return edges.slice(1).map((end, index) => [moments[edges[index]], moments[end - 1]]);
}

/** Lays `times` between two places, a break of `gap` between each; every stretch at the same scale. Gives {x, stretches}. */
export function scaleOf(times, left, right, gap) {
  const room = right - left - gap * (times.length - 1);
  // A stretch of one moment is given some room too.
  const floor = Math.max(200, times.reduce((total, [from, to]) => total + to - from, 0) / times.length / 6);
  const widened = times.map(([from, to]) => {
    const pad = Math.max(floor - (to - from), (to - from) * 0.03) / 2;
    return {from: from - pad, to: to + pad};
  });
  const total = widened.reduce((sum, {from, to}) => sum + to - from, 0);
  let place = left;
  const stretches = widened.map(({from, to}) => {
    const begin = place;
    const end = begin + (to - from) / total * room;
    place = end + gap;
    return {from, to, begin, end};
  });
  const x = at => {
    const stretch = stretches.find(({to}) => at <= to) ?? stretches.at(-1);
    const {from, to, begin, end} = stretch;
    return begin + (Math.min(Math.max(at, from), to) - from) / (to - from) * (end - begin);
  };
  return {x, stretches};
}

/** Round steps for an axis of `span` ms with at most `most` of them. */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5];
export function ticks(from, to, most) {
  const step = STEPS.find(candidate => (to - from) / candidate <= most) ?? STEPS.at(-1) * Math.ceil((to - from) / most / STEPS.at(-1));
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return {step, at: out};
}
