// Formats times, durations, events and holders as text.

import {el, setText} from './dom.js';

const clock =
  new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const zone = new Intl.DateTimeFormat(undefined, {timeZoneName: 'longOffset'});
const date = new Intl.DateTimeFormat(undefined, {month: 'short', day: 'numeric'});
const day = new Intl.DateTimeFormat(undefined, {year: 'numeric', month: 'short', day: 'numeric'});

/** The gateway's clock minus this machine's, so that "3 s ago" is correct although this machine's clock is wrong. */
let clockOffset = 0;
export function setServerTime(serverDate) {
  const server = Date.parse(serverDate);
  // The header has whole seconds, so that small differences mean nothing.
  if (Number.isFinite(server)) clockOffset = Math.abs(server - Date.now()) > 2000 ? server - Date.now() : 0;
}
export const now = () => Date.now() + clockOffset;

export const absolute = at => `${day.format(at)}, ${clockTime(at)}`;
export const clockTime = at => `${clock.format(at)}.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`;
export const shortTime = at => clock.format(at);
/** Date and time with milliseconds. */
export const dateTime = at => `${day.format(at)} ${clockTime(at)}`;
/** The viewer's time zone: "Europe/Berlin (GMT+01:00)" */
export const timeZone = () => `${zone.resolvedOptions().timeZone} (${
  zone.formatToParts(now()).find(({type}) => type === 'timeZoneName').value})`;
export const shortDate = at => date.format(at);
export const isToday = at => day.format(at) === day.format(now());

/** "12.3 s", "4 min 5 s", "2 h 3 min" */
export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(at) {
  const elapsed = now() - at;
  return elapsed < 1000 ? 'just now' : `${duration(elapsed).replace(/\.\d/, '')} ago`;
}

/** A <time> with a relative text, which refreshTimes() updates; its title is the absolute time. */
export function relativeTime(iso) {
  const at = Date.parse(iso);
  return el('time', {datetime: iso, title: absolute(at), 'data-ago': at}, ago(at));
}

/** A <time> with milliseconds in the viewer's time zone, to compare with logs; its title is in UTC. */
export function absoluteTime(iso) {
  const at = Date.parse(iso);
  return el('time', {datetime: iso, title: iso, class: 'tabular'}, dateTime(at));
}

export function refreshTimes(root = document) {
  for (const time of root.querySelectorAll('time[data-ago]')) setText(time, ago(Number(time.dataset.ago)));
}

export const count = number => new Intl.NumberFormat().format(number);

/** Each event type: its label, its CSS class, and a mark, so that colour is not the only difference. */
export const EVENTS = {
  lease_granted: {label: 'Lease granted', style: 'grant', mark: '▸'},
  lease_renewed: {label: 'Lease renewed', style: 'plain', mark: '↻'},
  lease_released: {label: 'Lease released', style: 'plain', mark: '◂'},
  lease_expired: {label: 'Lease expired', style: 'warn', mark: '◌'},
  lease_refused: {label: 'Lease refused', style: 'warn', mark: '○'},
  lease_revoked: {label: 'Lease revoked', style: 'bad', mark: '⊘'},
  fence_raised: {label: 'Fence raised', style: 'plain', mark: '◆'},
  write_applied: {label: 'Write applied', style: 'good', mark: '●'},
  write_rejected: {label: 'Write refused', style: 'bad', mark: '✕'},
  write_failed: {label: 'Write failed', style: 'warn', mark: '▲'},
  write_replayed: {label: 'Write repeated', style: 'plain', mark: '↻'},
  node_quarantined: {label: 'Node quarantined', style: 'warn', mark: '◌'},
  node_readmitted: {label: 'Node readmitted', style: 'good', mark: '●'},
  epoch_raised: {label: 'Epoch raised', style: 'plain', mark: '◆'},
  request_denied: {label: 'Request denied', style: 'bad', mark: '⊘'},
  guard_changed: {label: 'Guard changed', style: 'warn', mark: '◆'},
  storage_generation_changed: {label: 'PostgreSQL replaced', style: 'warn', mark: '◆'},
  configuration_reloaded: {label: 'Configuration reloaded', style: 'warn', mark: '◆'},
  history_read: {label: 'History read', style: 'plain', mark: '○'},
  person_erased: {label: 'Person erased', style: 'warn', mark: '⊘'},
};

/** Whether an event is the outcome of a write. */
export const isOutcome = ({event}) => /^write_(applied|rejected|failed)$/.test(event);

/** Whether a write was refused because its token is lower than the fence. */
export const isStale = item => item.event === 'write_rejected' && item.fencing_token !== null
  && item.last_fencing_token !== null
  && item.fencing_token < item.last_fencing_token;

export function eventLabel(item) {
  if (isStale(item)) return 'Stale write refused';
  return EVENTS[item.event]?.label ?? item.event;
}

export function eventBadge(item) {
  const known = EVENTS[item.event] ?? {style: 'plain', mark: '·'};
  return el('span', {class: `event ${known.style}`}, el('span', {class: 'mark', 'aria-hidden': 'true'}, known.mark),
    eventLabel(item));
}

/** Replaces characters that change the direction of writing, so that an owner cannot look like another. */
const replaceDirectionMarks = text => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

/** Owner and principal, in one line. */
export function holder(item) {
  const owner = replaceDirectionMarks(item.owner ?? '');
  if (owner && item.principal) return `${owner} (${item.principal})`;
  return owner || item.principal || '';
}

/** The detail of an event as text: "reason: the holder hangs, ttl_ms: 2000". */
export function details(detail) {
  if (detail === null || detail === undefined) return '';
  if (typeof detail !== 'object') return replaceDirectionMarks(String(detail));
  return replaceDirectionMarks(Object.entries(detail).filter(([, value]) => value !== '' && value !== null)
    .map(([name, value]) => `${name}: ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', '));
}

export const linkToResource = name => (name
  ? el('a', {href: `/console?${new URLSearchParams({page: 'resource', timeline: name})}`}, name) : '');
export const linkToWrite = id => el('a', {href: `/console?${new URLSearchParams({page: 'write', write_id: id})}`},
  `write …${id.slice(-8)}`);
