// Who holds what now, for how long, and how many wait for it.

import {address, json} from './api.js';
import {byId, cell, el, PanelState, reconcile, row, setAttribute, setText, table} from './dom.js';
import {count, duration, holder, now, timeAgo} from './words.js';
import * as url from './url.js';

const PAGE = 100;
const PAGE_MAX = 1000; // as many as a gateway lists at once
const LONGEST_REST = 20_000;
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
  /** `show(resource)`: draw its timeline. `revoke(lease, button)`. `told(page)`: each listing that came; null where there was none. */
  constructor({show, revoke, told}) {
    Object.assign(this, {show, revoke, told});
    this.state = new PanelState(byId('leases'));
    this.rows = new Map();
    this.mayRevoke = false;
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
    this.more = el('p', {class: 'muted small'});
    this.all = el('button', {type: 'button', class: 'quiet', hidden: true, onclick: () => {
      this.limit = PAGE_MAX;
      this.refresh();
    }}, `Show up to ${count(PAGE_MAX)}`);
    this.scroller = el('div', {class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'List of live leases'}, element);
    this.state.body.append(this.scroller, el('div', {class: 'list-foot'}, this.more, this.all));
    this.scroller.hidden = true;
  }

  readAddress() { this.filter.value = url.read(['leases']).leases ?? ''; }

  /** Where the key may not operate, there is no button for it. */
  allowRevoke(may) {
    if (this.mayRevoke === may) return;
    this.mayRevoke = may;
    for (const {button} of this.rows.values()) button.hidden = !may;
  }

  /** A gateway makes one list at a time, so this asks for one at a time: what is wanted meanwhile is one more. */
  async refresh() {
    this.again = Boolean(this.asking);
    if (this.asking) return;
    do {
      this.again = false;
      this.asking = this.#ask();
      await this.asking;
    } while (this.again);
    this.asking = undefined;
  }

  /** As refresh(), by itself: where a list takes the nodes long, it is asked for seldom. */
  look() { if (performance.now() >= (this.restUntil ?? 0)) this.refresh(); }

  async #ask() {
    const began = performance.now();
    try {
      this.#show(await json(address('/v1/leases', {resource_prefix: this.filter.value.trim(), limit: this.limit})));
      const took = performance.now() - began;
      this.restUntil = performance.now() + Math.min(took > 250 ? 4 * took : 0, LONGEST_REST);
    } catch (problem) {
      if (problem.status === 401) return;
      // Another console was first.
      if (problem.status === 429) {
        setTimeout(() => this.refresh(), 300);
        return;
      }
      this.state.failed(problem, () => this.refresh());
      if (problem.status !== 0) this.told(null);
    }
  }

  #show(page) {
    const waiting = new Map((page.waiting ?? []).map(entry => [entry.resource, entry.waiters]));
    const at = now();
    const items = page.items.map(item => ({...item, until: at + item.remaining_ms, waiters: waiting.get(item.resource) ?? 0}));
    this.live = new Map(items.map(item => [item.resource, item]));
    reconcile(this.body, this.rows, items, item => `${item.resource}\n${item.fencing_token}`, item => this.#makeRow(item));
    this.scroller.hidden = items.length === 0;
    if (items.length) this.state.ready();
    else if (this.filter.value.trim()) this.state.empty('No live lease has a resource that begins so.');
    else this.state.empty('Nobody holds a lease now.');
    const others = [...waiting].filter(([resource]) => !this.live.has(resource));
    const words = [];
    if (page.next_cursor) words.push(`The first ${count(this.limit)} in order of name; narrow it by the resource's beginning.`);
    this.all.hidden = !page.next_cursor || this.limit === PAGE_MAX;
    if (others.length) words.push(`Also waited for: ${others.map(([resource, waiters]) => `${resource} (${waiters})`).join(', ')}.`);
    setText(this.more, words.join(' '));
    this.told({...page, items});
    this.nextTick = 0;
    this.tick();
  }

  #makeRow(first) {
    let lease = first;
    let longest = first.remaining_ms;
    const button = el('button', {type: 'button', class: 'quiet danger', 'aria-label': `Revoke the lease on ${first.resource}`,
      onclick: () => this.revoke(lease, button)}, 'Revoke');
    button.hidden = !this.mayRevoke;
    const name = el('button', {type: 'button', class: 'link', title: 'Draw its timeline', onclick: () => this.show(lease.resource)}, first.resource);
    const holds = el('span', {class: 'muted'});
    const left = el('span', {class: 'left tabular'});
    const bar = el('progress', {class: 'left-bar', max: '100', value: '100', 'aria-hidden': 'true'});
    const waiters = el('span', {class: 'tabular'});
    const waiting = cell(COLUMNS.waiting, waiters);
    const element = row({'data-resource': first.resource});
    element.append(
      cell(COLUMNS.resource, name),
      cell(COLUMNS.holder, el('span', {class: 'owner'}, holder(first)), holds),
      cell(COLUMNS.token, el('span', {class: 'tabular'}, String(first.fencing_token))),
      cell(COLUMNS.since, timeAgo(first.granted_at)),
      cell(COLUMNS.left, bar, left),
      waiting,
      cell(COLUMNS.action, button));
    return {
      row: element, button,
      update(item) {
        lease = item;
        longest = Math.max(longest, item.remaining_ms);
        setText(holds, item.hold_count > 1 ? ` × ${item.hold_count}` : '');
        setText(waiters, item.waiters ? count(item.waiters) : '–');
        element.classList.toggle('awaited', item.waiters > 0);
        waiting.classList.toggle('nothing', !item.waiters);
      },
      tick(at) {
        const rest = lease.until - at;
        setText(left, rest > 0 ? duration(rest) : 'ending');
        setAttribute(bar, 'value', String(Math.round(Math.max(0, Math.min(100, 100 * rest / longest)))));
        element.classList.toggle('ending', rest < longest / 5);
      },
    };
  }

  /** Time passes between two listings; for a long list in steps of a second. */
  tick() {
    const at = now();
    if (this.rows.size > PAGE && at < this.nextTick) return;
    this.nextTick = at + 1000;
    for (const entry of this.rows.values()) entry.tick(at);
  }
}
