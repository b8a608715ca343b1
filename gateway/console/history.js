// The history: filters, which the URL contains, pages, and downloads.

import {call, fetchJson, Problem, urlFor} from './api.js';
import {byId, cell, el, optionalCell, PanelState, reconcile, row, setText, table} from './dom.js';
import {readRange} from './range.js';
import {details, eventBadge, eventLabel, EVENTS, holder, isOutcome, absoluteTime, linkToWrite} from './words.js';
import * as url from './url.js';

const PAGE = 50;
const ROWS_MAX = 1000;
const COLUMNS = [{label: 'When'}, {label: 'Event'}, {label: 'Resource'}, {label: 'Token', numeric: true},
  {label: 'Fence', numeric: true},
  {label: 'Holder'}, {label: 'Detail'}];

/** Filters by their names in the API; `advanced` ones are below "More filters". */
const FILTERS = [
  {name: 'resource_prefix', label: 'Resource begins with', placeholder: 'inventory/'},
  {name: 'event', label: 'Event', options: EVENTS},
  {name: 'owner', label: 'Owner'},
  {name: 'resource', label: 'Resource is', advanced: true},
  {name: 'principal', label: 'Principal', advanced: true},
  {name: 'token_min', label: 'Token from', type: 'number', advanced: true},
  {name: 'token_max', label: 'Token to', type: 'number', advanced: true},
  {name: 'write_id', label: 'Write id', advanced: true},
  {name: 'trace_id', label: 'Trace id', advanced: true},
  {name: 'order', label: 'Order', options: {asc: {label: 'Oldest first'}}, unset: 'Newest first', advanced: true},
];
const NAMES = FILTERS.map(filter => filter.name);

/**
 * Returns the events with each one-shot write as one: the write, without the grant, seal and release of its request;
 * `others` names these.
 */
export function groupOneShots(items) {
  // Events of one request under one token are a group; any other event is a group by itself.
  const keyOf = item => (item.detail?.request_id && item.fencing_token !== null
    ? `${item.detail.request_id} ${item.resource} ${item.fencing_token}` : item);
  const groups = new Map(items.map(item => [keyOf(item), []]));
  for (const item of items) groups.get(keyOf(item)).push(item);
  return items.flatMap(item => {
    const group = groups.get(keyOf(item));
    const write = group.find(isOutcome);
    if (!write || !group.some(({event}) => event === 'lease_granted')) return [item];
    if (item !== write) return [];
    const others = group.filter(each => each !== write).map(each => eventLabel(each).toLowerCase());
    return [{...item, others: others.join(', ')}];
  });
}

export class History {
  /** `showTimeline(resource)` shows the timeline of a resource. `onRange()`: the URL has another range of time. */
  constructor({showTimeline, onRange}) {
    Object.assign(this, {showTimeline, onRange});
    this.state = new PanelState(byId('history'));
    this.form = byId('history-form');
    this.inputs = new Map();
    this.rows = new Map();
    this.items = [];
    this.#makeForm();
    const {element, body} = table('History', COLUMNS);
    this.table = element;
    this.body = body;
    this.more = el('button', {type: 'button', onclick: () => this.#loadMore()}, 'Load more');
    this.foot = el('p', {class: 'muted small'});
    this.state.body.append(element, this.foot, this.more);
    this.more.hidden = this.table.hidden = true;
  }

  #makeForm() {
    const fields = FILTERS.map(filter => {
      const id = `history-${filter.name}`;
      const input = filter.options
        ? el('select', {id, name: filter.name}, el('option', {value: ''}, filter.unset ?? 'any'),
          Object.entries(filter.options).map(([value, {label}]) => el('option', {value}, label)))
        : el('input', {id, name: filter.name, type: filter.type ?? 'text', placeholder: filter.placeholder,
          spellcheck: 'false', autocapitalize: 'off',
          min: filter.type === 'number' ? '0' : null});
      this.inputs.set(filter.name, input);
      return {filter, field: el('div', {class: 'field'}, el('label', {for: id}, filter.label), input)};
    });
    this.advanced = el('details', {class: 'advanced'}, el('summary', {}, 'More filters'),
      el('div', {class: 'fields'}, fields.filter(({filter}) => filter.advanced).map(({field}) => field)));
    this.download = ['csv', 'ndjson'].map(kind =>
      el('button', {type: 'button', class: 'quiet', onclick: () => this.#saveFile(kind)}, kind.toUpperCase()));
    this.downloadError = el('p', {class: 'download-error', role: 'alert'});
    this.form.append(
      el('div', {class: 'fields'}, fields.filter(({filter}) => !filter.advanced).map(({field}) => field)),
      this.advanced,
      el('div', {class: 'buttons'}, el('button', {type: 'submit', class: 'primary'}, 'Search'),
        el('button', {type: 'button', class: 'quiet', onclick: () => this.#clear()}, 'Clear'),
        el('span', {class: 'spring'}), el('span', {class: 'muted small'}, 'Download all:'), this.download),
      this.downloadError);
    this.form.addEventListener('submit', event => {
      event.preventDefault();
      url.write(this.#values());
      this.refresh();
    });
  }

  readUrl() {
    const values = url.read(NAMES);
    for (const {name, advanced} of FILTERS) {
      const value = values[name] ?? '';
      this.inputs.get(name).value = value;
      if (advanced && value) this.advanced.open = true;
    }
  }

  #values() {
    return Object.fromEntries(NAMES.map(name => [name, this.inputs.get(name).value.trim()]));
  }

  /** Shows the events that match `filters` and no others, and puts the filters into the URL. */
  open(filters) {
    url.write(Object.fromEntries([...NAMES, 'from', 'to'].map(name => [name, filters[name] ?? ''])));
    this.onRange();
    byId('history-title').focus();
  }

  #clear() {
    for (const input of this.inputs.values()) input.value = '';
    url.write({...this.#values(), from: '', to: ''});
    this.onRange();
  }

  #filters() {
    const given = Object.entries(readRange().query).filter(([, value]) => value);
    return {...url.read(NAMES), ...Object.fromEntries(given)};
  }

  /** Loads the first page with the filters of the URL; ignores inputs that were changed since the last search. */
  refresh() {
    return this.search = this.#loadFirst();
  }

  async #loadFirst() {
    this.request?.abort(); // also of "Load more", whose answer would belong to another list
    const request = this.request = new AbortController();
    const filters = this.#filters();
    try {
      const page = await fetchJson(urlFor('/v1/history', {...filters, limit: PAGE}), {signal: request.signal});
      this.pages = 1;
      this.searchFailed = false;
      this.filters = filters;
      this.#show(page.items, page.next_cursor);
      if (page.items.length) this.state.showReady();
      else this.state.showEmpty(Object.keys(filters).length ? 'No event matches these filters.'
        : 'The history is empty.');
    } catch (problem) {
      if (problem.name === 'AbortError' || problem.status === 401) return;
      this.searchFailed = true;
      this.state.showProblem(problem, () => this.refresh());
    }
  }

  /** For periodic calls: repeats a search that failed, or shows new events if the first page is shown, newest first. */
  poll() {
    const isFirst = this.pages === 1 && !('order' in url.read(['order'])) && readRange().endsNow;
    return this.state.mayPoll && (this.searchFailed || isFirst) ? this.refresh() : undefined;
  }

  /** Appends the next page of the list that is shown. After a search that failed this is not the list of the URL. */
  async #loadMore() {
    this.more.disabled = true;
    // The cursor is that of the newest list.
    for (let search; search !== this.search; await search) search = this.search;
    if (!this.cursor) {
      this.more.disabled = false;
      return;
    }
    const request = this.request = new AbortController();
    this.pages += 1; // new events do not refresh the first page meanwhile
    try {
      const page = await fetchJson(urlFor('/v1/history', {...this.filters, limit: PAGE, cursor: this.cursor}),
        {signal: request.signal});
      this.#show([...this.items, ...page.items], page.next_cursor);
    } catch (problem) {
      this.pages -= 1;
      if (problem.name !== 'AbortError' && problem.status !== 401)
        this.state.showProblem(problem, () => this.#loadMore());
    } finally {
      this.more.disabled = false;
    }
  }

  /** Keeps the rows that exist already, so that the focus stays. */
  #show(items, cursor) {
    this.items = items;
    this.cursor = cursor;
    this.table.hidden = items.length === 0;
    reconcile(this.body, this.rows, groupOneShots(items), item => `${item.id} ${item.others ?? ''}`,
      item => ({row: this.#row(item), update() {}}));
    const shown = items.length;
    this.more.hidden = !this.cursor || shown >= ROWS_MAX;
    const words = shown >= ROWS_MAX && this.cursor ? `The first ${ROWS_MAX}; narrow the search, or download all.`
      : this.pages > 1 ? `${shown} shown; search again to see new events.` : '';
    setText(this.foot, words);
  }

  #row(item) {
    const line = row({class: item.event === 'write_rejected' ? 'bad' : null, 'data-event': item.id});
    const resource = item.resource && el('button', {type: 'button', class: 'link', title: 'Show its timeline',
      onclick: () => this.showTimeline(item.resource)}, item.resource);
    const extra = [item.write_id ? [linkToWrite(item.write_id), ' '] : '',
      item.others ? `with its lease (${item.others}), ` : '', details(item.detail)].flat();
    line.append(cell(COLUMNS[0], absoluteTime(item.at)), cell(COLUMNS[1], eventBadge(item)),
      optionalCell(COLUMNS[2], resource),
      optionalCell(COLUMNS[3], item.fencing_token), optionalCell(COLUMNS[4], item.last_fencing_token),
      optionalCell(COLUMNS[5], holder(item)), cell(COLUMNS[6], el('span', {class: 'detail small'}, extra)));
    return line;
  }

  /** Downloads by fetch, because a link cannot send the API key. */
  async #saveFile(kind) {
    for (const button of this.download) button.disabled = true;
    setText(this.downloadError, '');
    try {
      const answer = await call(urlFor('/v1/history', this.#filters()),
        {accept: kind === 'csv' ? 'text/csv' : 'application/x-ndjson', timeout: 0});
      const link = el('a', {href: URL.createObjectURL(await answer.blob()), download: `history.${kind}`});
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (problem) {
      if (problem.status === 401) return;
      const words = problem instanceof Problem ? `${problem.title}. ${problem.detail}`
        : 'The connection broke; the file is incomplete.';
      setText(this.downloadError, `Not saved: ${words}`.trim());
    } finally {
      for (const button of this.download) button.disabled = false;
    }
  }
}
