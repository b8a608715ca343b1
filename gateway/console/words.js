// Times, durations and events in words.

import {el, setText} from './dom.js';

const clock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const date = new Intl.DateTimeFormat(undefined, {month: 'short', day: 'numeric'});
const day = new Intl.DateTimeFormat(undefined, {year: 'numeric', month: 'short', day: 'numeric'});

/** How the gateway's clock stands against this machine's, so that "3 s ago" is right on a machine whose clock is not. */
let offset = 0;
export function learnTime(serverDate) {
  const server = Date.parse(serverDate);
  // The header has whole seconds: only a difference that cannot come of that counts.
  if (Number.isFinite(server)) offset = Math.abs(server - Date.now()) > 2000 ? server - Date.now() : 0;
}
export const now = () => Date.now() + offset;

export const absolute = at => `${day.format(at)}, ${clockTime(at)}`;
export const clockTime = at => `${clock.format(at)}.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`;
export const shortTime = at => clock.format(at);

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
  const past = now() - at;
  return past < 1000 ? 'just now' : `${duration(past).replace(/\.\d/, '')} ago`;
}

/** A <time> that stays relative; the absolute one is its title. */
export function timeAgo(iso) {
  const at = Date.parse(iso);
  return el('time', {datetime: iso, title: absolute(at), 'data-ago': at}, ago(at));
}

/** A <time> to be held against a log: of the viewer's zone, with UTC as its title. */
export function timeAt(iso) {
  const at = Date.parse(iso);
  return el('time', {datetime: iso, title: iso, class: 'tabular'}, `${date.format(at)} ${clockTime(at)}`);
}

export function refreshTimes(root = document) {
  for (const time of root.querySelectorAll('time[data-ago]')) setText(time, ago(Number(time.dataset.ago)));
}

export const count = number => new Intl.NumberFormat().format(number);

/** Each event: how it is called, its look (a class), and the mark that stands for it beside its colour. */
export const EVENTS = {
  lease_granted: {label: 'Lease granted', look: 'grant', mark: '▸'},
  lease_renewed: {label: 'Lease renewed', look: 'plain', mark: '↻'},
  lease_released: {label: 'Lease released', look: 'plain', mark: '◂'},
  lease_expired: {label: 'Lease expired', look: 'warn', mark: '◌'},
  lease_refused: {label: 'Lease refused', look: 'warn', mark: '○'},
  lease_revoked: {label: 'Lease revoked', look: 'bad', mark: '⊘'},
  fence_raised: {label: 'Fence raised', look: 'plain', mark: '◆'},
  write_applied: {label: 'Write applied', look: 'good', mark: '●'},
  write_rejected: {label: 'Write refused', look: 'bad', mark: '✕'},
  write_failed: {label: 'Write failed', look: 'warn', mark: '▲'},
  node_quarantined: {label: 'Node quarantined', look: 'warn', mark: '◌'},
  node_readmitted: {label: 'Node readmitted', look: 'good', mark: '●'},
  epoch_raised: {label: 'Epoch raised', look: 'plain', mark: '◆'},
};

/** Whether a write was refused because its token is older than the fence. */
export const isStale = item => item.event === 'write_rejected' && item.fencing_token !== null && item.last_fencing_token !== null
  && item.fencing_token < item.last_fencing_token;

export function eventLabel(item) {
  if (isStale(item)) return 'Stale write refused';
  return EVENTS[item.event]?.label ?? item.event;
}

export function eventBadge(item) {
  const known = EVENTS[item.event] ?? {look: 'plain', mark: '·'};
  return el('span', {class: `event ${known.look}`}, el('span', {class: 'mark', 'aria-hidden': 'true'}, known.mark), eventLabel(item));
}

/** Without the characters that would turn the letters after them around: an owner must not look like another. */
const straight = text => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

/** Owner and principal, in one line. */
export function holder(item) {
  const owner = straight(item.owner ?? '');
  if (owner && item.principal) return `${owner} (${item.principal})`;
  return owner || item.principal || '';
}

/** Flat details as words: "reason: the holder hangs, ttl_ms: 2000". */
export function details(detail) {
  if (detail === null || detail === undefined) return '';
  if (typeof detail !== 'object') return straight(String(detail));
  return straight(Object.entries(detail).filter(([, value]) => value !== '' && value !== null)
    .map(([name, value]) => `${name}: ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', '));
}
