// The live leases: holder, time left and number of waiting requests.

import {urlFor, fetchJson} from './api.js';
import {byId, cell, el, PanelState, reconcile, row, setAttribute, setText, table} from './dom.js';
import {count, duration, holder, now, relativeTime} from './words.js';
import * as url from './url.js';

const PAGE = 100;
const PAGE_MAX = 1000; // the most that a gateway returns at once
const POLL_PAUSE_MAX = 20_000;
const BUSY_HIDDEN_MAX = 2; // answers 429 in succession that are not shown
const COLUMNS = {
  resource: {label: 'Resource'},
  holder: {label: 'Holder'},
  token: {label: 'Token', numeric: true},
  since: {label: 'Since'},
  left: {label: 'Time left', numeric: true},
  waiting: {label: 'Waiting', numeric: true},
  action: {label: 'Action', hidden: true},
};

export class Leases {
  /**
   * `showTimeline(resource)` shows the timeline of a resource. `revoke(lease, button)` opens the dialog.
   * `onListed(page)` is called with each list, or with null after an error.
   */
  constructor({showTimeline, revoke, onListed}) {
    Object.assign(this, {showTimeline, revoke, onListed});
    this.state = new PanelState(byId('leases'));
    this.rows = new Map();
    this.live = new Map();
    this.filter = byId('leases-prefix');
    byId('leases-filter').addEventListener('submit', event => event.preventDefault());
    this.filter.addEventListener('input', () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => {
        url.write({leases: this.filter.value.trim()});
        this.refresh();
      }, 250);
    });
    const {element, body} = table('Live leases', Object.values(COLUMNS));
    this.table = element;
    this.body = body;
    this.limit = PAGE;
    this.nextPollAt = 0;
    this.more = el('p', {class: 'muted small'});
    this.all = el('button', {type: 'button', class: 'quiet', hidden: true, onclick: () => {
      this.limit = PAGE_MAX;
      this.refresh();
    }}, `Show up to ${count(PAGE_MAX)}`);
    this.scroller =
      el('div', {class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'List of live leases'}, element);
    this.state.body.append(this.scroller, el('div', {class: 'list-foot'}, this.more, this.all));
    this.scroller.hidden = true;
  }

  readUrl() { this.filter.value = url.read(['leases']).leases ?? ''; }

  /**
   * Loads the list, one request at a time, because a gateway makes one list at a time.
   * Calls meanwhile cause one more request.
   */
  async refresh() {
    this.repeat = Boolean(this.loading);
    if (this.loading) return;
    do {
      this.repeat = false;
      this.loading = this.#load();
      await this.loading;
    } while (this.repeat && this.state.mayPoll);
    this.loading = undefined;
  }

  /**
   * As refresh(), for periodic calls: the slower the last list was, the longer the pause before the next one.
   * The pause after a failure is that of the panel.
   */
  poll() { if (this.state.mayPoll && performance.now() >= this.nextPollAt) this.refresh(); }

  async #load() {
    const startedAt = performance.now();
    try {
      this.#show(await fetchJson(urlFor('/v1/leases', {resource_prefix: this.filter.value.trim(), limit: this.limit})));
      const took = performance.now() - startedAt;
      this.nextPollAt = performance.now() + Math.min(took > 250 ? 4 * took : 0, POLL_PAUSE_MAX);
    } catch (problem) {
      if (problem.status === 401) return;
      // The gateway makes a list for another caller, as a rule not for long.
      if (problem.status === 429 && this.state.failures < BUSY_HIDDEN_MAX) return this.state.postpone(problem);
      this.state.showProblem(problem, () => this.refresh());
      if (problem.status !== 0) this.onListed(null);
    }
  }

  #show(page) {
    const waiting = new Map((page.waiting ?? []).map(entry => [entry.resource, entry.waiters]));
    const at = now();
    const items =
      page.items.map(item => ({...item, until: at + item.remaining_ms, waiters: waiting.get(item.resource) ?? 0}));
    this.live = new Map(items.map(item => [item.resource, []]));
    for (const item of items) this.live.get(item.resource).push(item);
    reconcile(this.body, this.rows, items, item => `${item.resource}\n${item.fencing_token}\n${item.grant}`,
      item => this.#makeRow(item));
    this.scroller.hidden = items.length === 0;
    if (items.length) this.state.showReady();
    else if (this.filter.value.trim()) this.state.showEmpty('No live lease has a resource with this prefix.');
    else this.state.showEmpty('There are no live leases.');
    const others = [...waiting].filter(([resource]) => !this.live.has(resource));
    const words = [];
    if (page.next_cursor)
      words.push(`The first ${count(this.limit)} in order of name; enter a prefix to narrow the list.`);
    this.all.hidden = !page.next_cursor || this.limit === PAGE_MAX;
    if (others.length) words.push(
        `Requests also wait for: ${others.map(([resource, waiters]) => `${resource} (${waiters})`).join(', ')}.`);
    setText(this.more, words.join(' '));
    this.onListed({...page, items});
    this.nextTick = 0;
    this.tick();
  }

  #makeRow(first) {
    let lease = first;
    let longest = first.remaining_ms;
    const label = `Revoke the lease on ${first.resource}${first.mode ? ` of ${holder(first)}` : ''}`;
    const button = el('button', {type: 'button', class: 'quiet danger', 'aria-label': label,
      onclick: () => this.revoke(lease, button)}, 'Revoke');
    const name = el('button', {type: 'button', class: 'link', title: 'Show its timeline',
      onclick: () => this.showTimeline(lease.resource)}, first.resource);
    const holds = el('span', {class: 'muted'});
    const left = el('span', {class: 'left tabular'});
    const bar = el('progress', {class: 'left-bar', max: '100', value: '100', 'aria-hidden': 'true'});
    const waiters = el('span', {class: 'tabular'});
    const waiting = cell(COLUMNS.waiting, waiters);
    const element = row({'data-resource': first.resource});
    element.append(
      cell(COLUMNS.resource, name, first.mode ? el('span', {class: 'muted small'}, ` ${first.mode}`) : ''),
      cell(COLUMNS.holder, el('span', {class: 'owner'}, holder(first)), holds),
      cell(COLUMNS.token, el('span', {class: 'tabular'}, String(first.fencing_token))),
      cell(COLUMNS.since, relativeTime(first.granted_at)),
      cell(COLUMNS.left, bar, left),
      waiting,
      cell(COLUMNS.action, button));
    return {
      row: element,
      update(item) {
        lease = item;
        longest = Math.max(longest, item.remaining_ms);
        setText(holds, item.hold_count > 1 ? ` × ${item.hold_count}` : '');
        setText(waiters, item.waiters ? count(item.waiters) : '–');
        element.classList.toggle('awaited', item.waiters > 0);
        waiting.classList.toggle('no-value', !item.waiters);
      },
      tick(at) {
        const remaining = lease.until - at;
        setText(left, remaining > 0 ? duration(remaining) : 'ending');
        setAttribute(bar, 'value', String(Math.round(Math.max(0, Math.min(100, 100 * remaining / longest)))));
        element.classList.toggle('ending', remaining < longest / 5);
      },
    };
  }

  /** Updates the times left between two lists; only once per second if the list is long. */
  tick() {
    const at = now();
    if (this.rows.size > PAGE && at < this.nextTick) return;
    this.nextTick = at + 1000;
    for (const entry of this.rows.values()) entry.tick(at);
  }
}
