// Puts the panels together: who is signed in, what is asked for how often, and what is said about the gateway itself.

import {call, json, key, listen} from './api.js';
import {announce, byId, el, setText} from './dom.js';
import {History} from './history.js';
import {Leases} from './leases.js';
import {atMostEvery, Live} from './live.js';
import {Nodes} from './nodes.js';
import {Rates} from './rates.js';
import {RevokeDialog} from './revoke.js';
import {SignIn} from './sign_in.js';
import {startTheme} from './theme.js';
import {Timeline} from './timeline.js';
import {count, isStale, learnTime, now, refreshTimes, shortTime} from './words.js';

const LOOK_EVERY = 2000;
const COUNT_EVERY = 30_000;
/** A gateway that does not even say so much in this time hangs. */
const READY_WITHIN = 8000;
const FAREWELL = 'fencegate.farewell'; // why somebody was signed out, across the reload

const tiles = Object.fromEntries([['leases', 'Live leases'], ['waiting', 'Waiting here'], ['nodes', 'Nodes voting'], ['applied', 'Writes in the last hour'], ['refused', 'Writes refused, last hour']]
  .map(([name, label]) => {
    const value = el('dd', {class: 'tabular'}, '–');
    byId('overview').append(el('dl', {class: 'tile', 'data-tile': name}, el('dt', {}, label), value));
    return [name, value];
  }));

function tile(name, text, look = '') {
  setText(tiles[name], text);
  tiles[name].parentElement.className = `tile ${look}`;
}

const show = resource => timeline.open(resource, {focus: true});
const revokeDialog = new RevokeDialog(() => leases.refresh());
const leases = new Leases({
  show,
  revoke: (lease, button) => revokeDialog.open(lease, button),
  told: page => {
    if (!page) {
      tile('leases', '–');
      return tile('waiting', '–');
    }
    tile('leases', `${count(page.items.length)}${page.next_cursor ? '+' : ''}`);
    tile('waiting', page.waiters === undefined ? '–' : count(page.waiters));
  },
});
const nodes = new Nodes({
  allowed: may => leases.allowRevoke(may),
  told: all => {
    if (!all) return tile('nodes', '–');
    const voting = all.filter(node => node.state === 'voting').length;
    tile('nodes', `${voting} of ${all.length}`, voting === all.length ? '' : voting * 2 > all.length ? 'warn' : 'bad');
  },
});
const rates = new Rates({
  told: totals => {
    const refused = totals.write_rejected ?? 0;
    tile('applied', count(totals.write_applied ?? 0));
    tile('refused', count(refused), refused ? 'bad' : '');
  },
});
const timeline = new Timeline({liveLease: resource => leases.live.get(resource)});
const history = new History({show});
const signIn = new SignIn(() => enter());

const leasesSoon = atMostEvery(500, () => leases.look());
const nodesSoon = atMostEvery(500, () => nodes.refresh());
const historySoon = atMostEvery(1000, () => history.follow());
const timelineSoon = atMostEvery(500, () => timeline.refresh());

let streaming = false;
const live = new Live({
  event: item => {
    rates.add(item);
    if (item.event.startsWith('lease_')) leasesSoon();
    if (item.event.startsWith('node_')) nodesSoon();
    if (item.resource === timeline.resource) timelineSoon();
    historySoon();
    if (isStale(item)) announce(`Stale write refused on ${item.resource}`);
  },
  state: word => {
    const badge = byId('live');
    badge.className = `badge ${word === 'live' ? 'good' : word === 'polling' ? 'warn' : ''}`;
    setText(badge, {live: 'Live', polling: 'Every 2 s'}[word]);
    streaming = word === 'live';
  },
});

let awaySince = 0;

async function readiness() {
  const badge = byId('readiness');
  try {
    const answer = await call('/readyz', {bearer: '', within: READY_WITHIN});
    learnTime(answer.headers.get('date'));
    badge.className = 'badge good';
    setText(badge, 'Ready');
    badge.title = '';
  } catch (problem) {
    badge.className = 'badge bad';
    setText(badge, problem.status === 0 ? 'Away' : 'Not ready');
    badge.title = `${problem.title}. ${problem.detail}`;
    if (problem.status !== 0) outage(`${problem.title}. ${problem.detail}`);
    return;
  }
  outage('');
}

function outage(words) {
  const notice = byId('outage');
  if (notice.textContent !== words) notice.textContent = words;
  notice.hidden = words === '';
}

listen({
  away: () => {
    awaySince ||= now();
    outage(`The gateway cannot be reached since ${shortTime(awaySince)}. What is shown is old; the console tries again by itself.`);
    document.body.classList.add('away');
  },
  reached: () => {
    if (!awaySince) return;
    awaySince = 0;
    outage('');
    document.body.classList.remove('away');
    announce('The gateway is back.');
    readiness();
    if (!byId('panels').hidden) everything();
  },
  unauthenticated: () => {
    const words = key.get() ? 'This key is not known any more.' : sessionStorage.getItem(FAREWELL) ?? '';
    sessionStorage.removeItem(FAREWELL);
    leave(words);
  },
});

const isSeen = () => document.visibilityState === 'visible';

function everything() {
  leases.refresh();
  nodes.refresh();
  rates.refresh();
  history.refresh();
  timeline.refresh();
}

function every(ms, work) {
  setInterval(() => { if (isSeen()) work(); }, ms);
}

/** The panels, for somebody whom the gateway knows. */
function enter() {
  signIn.hide();
  byId('panels').hidden = byId('sections').hidden = false;
  byId('sign-out').hidden = !key.get();
  readAddress();
  everything();
  live.start();
  every(LOOK_EVERY, () => {
    leases.look();
    nodesSoon();
    readiness();
    if (!streaming) {
      historySoon();
      timelineSoon();
    }
  });
  every(COUNT_EVERY, () => rates.refresh());
  every(250, () => {
    leases.tick();
    nodes.tick();
  });
  every(1000, () => {
    refreshTimes();
    timeline.tick();
  });
}

/** What was shown goes with the page: whoever signs in next may not be allowed to see it. */
function leave(words = '') {
  key.forget();
  if (byId('panels').hidden) {
    setText(byId('live'), 'Signed out');
    return signIn.show(words);
  }
  if (words) sessionStorage.setItem(FAREWELL, words);
  location.reload();
}

function readAddress() {
  leases.readAddress();
  timeline.readAddress();
  history.readAddress();
}

startTheme(byId('theme'));
readiness();
byId('sign-out').addEventListener('click', () => leave());
addEventListener('popstate', () => {
  readAddress();
  if (!byId('panels').hidden) everything();
});
document.addEventListener('visibilitychange', () => { if (isSeen() && !byId('panels').hidden) everything(); });

try {
  await json('/v1/leases?limit=1');
  enter();
} catch (problem) {
  if (problem.status !== 401) enter(); // the panels say what is wrong
}
