// Connects the panels: signing in and out, polling, and the state of the gateway.

import {call, key, addConnectionListener, loadRights} from './api.js';
import {announce, byId, el, setText} from './dom.js';
import {Guard} from './guard.js';
import {History} from './history.js';
import {Leases} from './leases.js';
import {throttle, Live} from './live.js';
import {Nodes} from './nodes.js';
import {Rates} from './rates.js';
import {RangeForm} from './range.js';
import {ReplacementNotice} from './replacement.js';
import {ResourcePage} from './resource.js';
import {RevokeDialog} from './revoke.js';
import {SignIn} from './sign_in.js';
import {startTheme} from './theme.js';
import {Timeline} from './timeline.js';
import * as url from './url.js';
import {WritePage} from './write.js';
import {count, isStale, setServerTime, now, refreshTimes, shortTime} from './words.js';

const POLL_INTERVAL = 2000;
const RATES_INTERVAL = 30_000;
/** A gateway that does not answer /readyz in this time hangs. */
const READINESS_TIMEOUT = 8000;
const SIGN_OUT_REASON = 'fencegate.sign_out_reason'; // in sessionStorage, shown after the reload

/** The panels of each page; the URL names the page, the first one has no name. */
const PAGES = {
  '': ['overview', 'range', 'leases', 'nodes', 'guard', 'rates', 'timeline', 'history'],
  resource: ['resource', 'range', 'timeline'],
  write: ['write', 'history'],
};

/** Each number leads to what explains it. */
const tiles = Object.fromEntries([
  ['guard', 'Protected tables', '#guard'],
  ['generation', 'Timeline of PostgreSQL', '?event=storage_generation_changed&from=-1d#history'],
  ['recorder', 'Recorder of direct SQL', '#guard'],
  ['nodes', 'Nodes voting', '#nodes'],
  ['refused', 'Writes refused', '?event=write_rejected'],
  ['applied', 'Writes applied', '?event=write_applied'],
  ['waiting', 'Waiting requests', '#leases'],
  ['leases', 'Live leases', '#leases'],
].map(([name, label, target]) => {
  const value = el('a', {href: `/console${target}`}, '–');
  const term = el('dt', {}, label);
  byId('overview').append(el('dl', {class: 'tile', 'data-tile': name}, term, el('dd', {class: 'tabular'}, value)));
  return [name, {value, term, label}];
}));

function setTile(name, text, style = '') {
  setText(tiles[name].value, text);
  tiles[name].value.closest('.tile').className = `tile ${style}`;
}

/** Of the range of the charts, with the same range in the link. */
function setRateTile(name, number, {words, from, to}, style = '') {
  setTile(name, count(number), style);
  const {term, label, value} = tiles[name];
  setText(term, `${label}, ${words}`);
  const event = name === 'refused' ? 'write_rejected' : 'write_applied';
  const query = new URLSearchParams({event, from, ...(to && {to})});
  value.setAttribute('href', `/console?${query}#history`);
}

const showTimeline = resource => timeline.open(resource, {focus: true});
const revokeDialog = new RevokeDialog(() => leases.refresh());
const leases = new Leases({
  showTimeline,
  revoke: (lease, button) => revokeDialog.open(lease, button),
  onListed: page => {
    if (!page) {
      setTile('leases', '–');
      return setTile('waiting', '–');
    }
    setTile('leases', `${count(page.items.length)}${page.next_cursor ? '+' : ''}`);
    setText(tiles.waiting.term, page.waiting_complete === false ? 'Waiting at this gateway' : 'Waiting requests');
    setTile('waiting', page.waiters === undefined ? '–' : count(page.waiters));
  },
});
const nodes = new Nodes({
  onListed: all => {
    if (!all) return setTile('nodes', '–');
    const voting = all.filter(node => node.state === 'voting').length;
    setTile('nodes', `${voting} of ${all.length}`,
      voting === all.length ? '' : voting * 2 > all.length ? 'warn' : 'bad');
  },
});
/** The timeline under which tokens are let in, and the time of its last change in the last day. */
const generation = {timeline: '–', changedAt: 0};
function showGeneration(known) {
  const {timeline, changedAt} = Object.assign(generation, known);
  setTile('generation', changedAt ? `${timeline}, since ${shortTime(changedAt)}` : `${timeline}`,
    timeline === 'unknown' ? 'bad' : changedAt ? 'warn' : '');
}
const guard = new Guard({
  onState: state => {
    showGeneration({timeline: state ? state.storage_generation?.timeline ?? 'unknown' : '–'});
    if (!state) return ['guard', 'recorder'].forEach(name => setTile(name, '–'));
    const recorder = state.limits.find(limit => limit.startsWith('the recorder '));
    const isMissing = recorder?.startsWith('the recorder is not set up');
    if (isMissing) setTile('recorder', 'not set up', 'warn');
    else setTile('recorder', recorder ? 'fails' : 'set up', recorder ? 'bad' : '');
    const [open, observed] =
      ['open', 'observed'].map(name => state.tables.filter(table => table.state === name).length);
    if (open || state.fault_count)
      return setTile('guard', open ? `${count(open)} open` : `${count(state.fault_count)} faults`, 'bad');
    setTile('guard', observed ? `${count(observed)} observed` : count(state.tables.length),
      observed || state.limits.length ? 'warn' : '');
  },
});
const rates = new Rates({
  onTotals: (totals, range) => {
    const refused = totals.write_rejected ?? 0;
    setRateTile('applied', totals.write_applied ?? 0, range);
    setRateTile('refused', refused, range, refused ? 'bad' : '');
  },
});
const timeline = new Timeline({liveLeases: resource => leases.live.get(resource) ?? []});
const refreshRange = () => {
  rangeForm.readUrl();
  for (const name of ['rates', 'timeline', 'history', 'resource']) if (!byId(name).hidden) panels[name].refresh();
};
const rangeForm = new RangeForm({onChange: refreshRange});
const history = new History({showTimeline, onRange: () => {
  history.readUrl();
  refreshRange();
}});
const replacement = new ReplacementNotice({
  showEvents: filters => history.open(filters),
  onChange: at => showGeneration({changedAt: at ?? 0}),
});
const resource = new ResourcePage();
const write = new WritePage();
const panels = {leases, nodes, guard, rates, timeline, history, resource, write};
const signIn = new SignIn(() => showPanels());

/** Polls a panel soon, if the page has it. */
const pollSoon = (name, ms) => throttle(ms, () => (byId(name).hidden ? undefined : panels[name].poll()));
const refreshLeasesSoon = pollSoon('leases', 500);
const refreshNodesSoon = pollSoon('nodes', 500);
const refreshGuardSoon = pollSoon('guard', 500);
const refreshHistorySoon = pollSoon('history', 1000);
const refreshTimelineSoon = pollSoon('timeline', 500);
const refreshRatesSoon = pollSoon('rates', 1000);
const refreshResourceSoon = pollSoon('resource', 1000);
const refreshWriteSoon = pollSoon('write', 1000);

let streaming = false;
const live = new Live({
  onEvent: item => {
    if (!byId('rates').hidden) rates.add(item);
    if (item.resource === resource.resource) refreshResourceSoon();
    if (item.event === 'guard_changed') refreshGuardSoon();
    if (item.event.startsWith('lease_')) refreshLeasesSoon();
    if (item.event.startsWith('node_')) refreshNodesSoon();
    if (item.event === 'storage_generation_changed') replacement.refresh();
    if (item.resource === timeline.resource) refreshTimelineSoon();
    refreshHistorySoon();
    if (isStale(item)) announce(`Stale write refused on ${item.resource}`);
  },
  onState: state => {
    const badge = byId('live');
    badge.className = `badge ${state === 'live' ? 'good' : state === 'polling' ? 'warn' : ''}`;
    setText(badge, {live: 'Live', polling: 'Every 2 s'}[state]);
    streaming = state === 'live';
  },
});

let unreachableSince = 0;
let refreshedAt = -Infinity;

async function checkReadiness() {
  const badge = byId('readiness');
  try {
    const answer = await call('/readyz', {bearer: '', timeout: READINESS_TIMEOUT});
    setServerTime(answer.headers.get('date'));
    badge.className = 'badge good';
    setText(badge, 'Ready');
    badge.title = '';
  } catch (problem) {
    badge.className = 'badge bad';
    setText(badge, problem.status === 0 ? 'Unreachable' : 'Not ready');
    badge.title = `${problem.title}. ${problem.detail}`;
    if (problem.status !== 0) showOutage(`${problem.title}. ${problem.detail}`);
    return;
  }
  showOutage('');
}

function showOutage(words) {
  const notice = byId('outage');
  if (notice.textContent !== words) notice.textContent = words;
  notice.hidden = words === '';
}

addConnectionListener({
  unreachable: () => {
    unreachableSince ||= now();
    showOutage(`The gateway has been unreachable since ${shortTime(unreachableSince)}. `
      + 'The data shown is old; the console retries automatically.');
    document.body.classList.add('unreachable');
  },
  reached: () => {
    if (!unreachableSince) return;
    unreachableSince = 0;
    showOutage('');
    document.body.classList.remove('unreachable');
    announce('The gateway can be reached again.');
    checkReadiness();
    // Only one address may be unreachable, while the others answer.
    if (!byId('panels').hidden && performance.now() - refreshedAt >= POLL_INTERVAL) refreshAll();
  },
  unauthenticated: () => (key.get() ? signOut('The gateway no longer accepts this key.') : askForKey()),
});

const isVisible = () => document.visibilityState === 'visible';

function refreshAll() {
  refreshedAt = performance.now();
  for (const [name, panel] of Object.entries(panels)) if (!byId(name).hidden) panel.refresh();
  replacement.refresh();
}

function repeatWhileVisible(ms, work) {
  setInterval(() => { if (isVisible()) work(); }, ms);
}

/** Shows the panels, once the gateway has accepted the caller. */
function showPanels() {
  signIn.hide();
  byId('panels').hidden = byId('sections').hidden = false;
  byId('sign-out').hidden = !key.get();
  readUrl();
  refreshAll();
  live.start();
  repeatWhileVisible(POLL_INTERVAL, () => {
    if (!byId('leases').hidden) leases.poll();
    refreshResourceSoon();
    refreshWriteSoon();
    refreshNodesSoon();
    refreshGuardSoon();
    checkReadiness();
    if (rates.state.hasFailed) refreshRatesSoon();
    if (!streaming || history.state.hasFailed) refreshHistorySoon();
    if (!streaming || timeline.state.hasFailed) refreshTimelineSoon();
  });
  repeatWhileVisible(RATES_INTERVAL, () => {
    refreshRatesSoon();
    replacement.refresh();
  });
  repeatWhileVisible(250, () => {
    leases.tick();
    nodes.tick();
  });
  repeatWhileVisible(1000, () => {
    refreshTimes();
    timeline.tick();
  });
}

function askForKey() {
  const reason = sessionStorage.getItem(SIGN_OUT_REASON) ?? '';
  sessionStorage.removeItem(SIGN_OUT_REASON);
  signOut(reason);
}

/** Signs out and reloads the page, because the next user may not be allowed to see what it shows. */
function signOut(reason = '') {
  key.remove();
  if (byId('panels').hidden) {
    setText(byId('live'), 'Signed out');
    return signIn.show(reason);
  }
  if (reason) sessionStorage.setItem(SIGN_OUT_REASON, reason);
  location.reload();
}

function readUrl() {
  const {page = ''} = url.read(['page']);
  const shown = PAGES[page] ?? PAGES[''];
  for (const name of new Set(Object.values(PAGES).flat())) byId(name).hidden = !shown.includes(name);
  rangeForm.readUrl();
  resource.readUrl();
  leases.readUrl();
  timeline.readUrl();
  history.readUrl();
}

for (const link of document.querySelectorAll('#sections a, .tile a')) link.addEventListener('click', event => {
  // A link to a panel of this page needs no new page.
  const {search, hash} = new URL(link.href);
  if (search || byId(hash.slice(1)).hidden || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = hash;
});
startTheme(byId('theme'));
checkReadiness();
byId('sign-out').addEventListener('click', () => signOut());
addEventListener('popstate', () => {
  if (!url.detectChange()) return;
  readUrl();
  if (!byId('panels').hidden) refreshAll();
});
document.addEventListener('visibilitychange', () => { if (isVisible() && !byId('panels').hidden) refreshAll(); });

/** Shows the panels once the rights are known: without them much would be asked for that is denied. */
async function start() {
  try {
    if (await loadRights()) showPanels();
    else askForKey();
  } catch (problem) {
    if (problem.status === 401) return;
    if (problem.status !== 0) showOutage(`${problem.title}. ${problem.detail}`);
    setTimeout(start, POLL_INTERVAL);
  }
}
start();
