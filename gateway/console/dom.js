// Creates elements. Text is inserted only as text nodes, because names of resources and owners are untrusted input.

import {forgetDenials} from './api.js';

const RETRY_PAUSE_FIRST = 1000;
const RETRY_PAUSE_MAX = 30_000;
const SVG = 'http://www.w3.org/2000/svg';

function initialize(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/** el('button', {type: 'button', onclick: f}, 'text', child) */
export const el = (name, attributes = {}, ...children) =>
  initialize(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  initialize(document.createElementNS(SVG, name), attributes, children);
export const byId = id => document.getElementById(id);

/** Sets the text only if it differs, so that a selection stays and screen readers do not announce it again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets the attribute only if it differs. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Makes screen readers announce a text once. */
export function announce(text) {
  const announcer = byId('announcer');
  announcer.textContent = '';
  requestAnimationFrame(() => { announcer.textContent = text; });
}

/**
 * Creates a table. `columns`: {label, numeric, hidden}.
 * Sets explicit roles, because narrow screens show the rows as cards,
 * and screen readers do not recognize a table with `display: block`.
 */
export function table(caption, columns) {
  const head = el('tr', {role: 'row'},
    columns.map(column => el('th', {scope: 'col', role: 'columnheader', class: column.numeric ? 'number' : null},
    column.hidden ? el('span', {class: 'off-screen'}, column.label) : column.label)));
  const body = el('tbody', {role: 'rowgroup'});
  const element = el('table', {role: 'table'}, el('caption', {class: 'off-screen'}, caption),
    el('thead', {role: 'rowgroup'}, head), body);
  return {element, body};
}

/** A list of names and values, without those that are empty. */
export const facts = values => el('dl', {class: 'facts'}, Object.entries(values)
  .filter(([, value]) => value !== undefined && value !== null && value !== '')
  .flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));

export const row = attributes => el('tr', {role: 'row', ...attributes});
export const cell = (column, ...content) =>
  el('td', {role: 'cell', 'data-label': column.label, class: column.numeric ? 'number' : null}, content);

/** A cell whose value may be absent: shows a dash then, which narrow screens leave out. */
export function optionalCell(column, value) {
  const element = cell(column, value ?? '–');
  if (value === null || value === undefined || value === '') {
    element.classList.add('no-value');
    element.textContent = '–';
  }
  return element;
}

/**
 * Makes the rows of `body` show `items`, matched by key: updates an existing row in place,
 * so that focus and selection stay.
 * `makeRow(item)` returns {row, update(item)}.
 */
export function reconcile(body, rows, items, keyOf, makeRow) {
  const seen = new Set();
  let next = body.firstChild;
  for (const item of items) {
    const id = keyOf(item);
    seen.add(id);
    let entry = rows.get(id);
    if (!entry) rows.set(id, entry = makeRow(item));
    entry.update(item);
    if (entry.row === next) next = next.nextSibling;
    else body.insertBefore(entry.row, next);
  }
  for (const [id, entry] of rows) {
    if (seen.has(id)) continue;
    entry.row.remove();
    rows.delete(id);
  }
}

/**
 * The state of a panel, shown in place of its data or above old data: loading, empty,
 * or an error with a button to retry. Says when the next periodic request may be sent: after errors
 * in succession the pauses grow, and none is shorter than Retry-After.
 */
export class PanelState {
  constructor(panel) {
    this.panel = panel;
    this.body = panel.querySelector('.panel-body');
    this.note = el('div', {class: 'state'});
    this.body.before(this.note);
    this.showLoading();
  }

  #show(kind, ...content) {
    this.panel.dataset.state = kind;
    this.note.className = `state ${kind}`;
    this.note.replaceChildren(...content);
    this.note.hidden = content.length === 0;
  }

  /** Whether the latest request failed. */
  get hasFailed() { return this.failures > 0; }
  get mayPoll() { return performance.now() >= this.retryAt; }

  #countSuccess() {
    this.loaded = true;
    this.failures = this.retryAt = 0;
  }

  showLoading() {
    this.loaded = false;
    this.failures = this.retryAt = 0;
    this.#show('loading', el('p', {}, 'Loading…'));
  }

  showReady() {
    this.#countSuccess();
    if (this.panel.dataset.state !== 'ready') this.#show('ready');
  }

  showEmpty(...words) {
    this.#countSuccess();
    this.#show('empty', el('p', {}, words));
  }

  /** Counts a failed request and postpones the next periodic one. */
  postpone({retryAfter}) {
    const pause = Math.min(RETRY_PAUSE_FIRST * 2 ** this.failures, RETRY_PAUSE_MAX);
    this.failures += 1;
    this.retryAt = performance.now() + Math.max(1000 * retryAfter, pause);
  }

  /** Shows a problem and postpones the next periodic request. The data that was shown before stays. */
  showProblem(problem, retry) {
    this.postpone(problem);
    // The notice at the top of the page says that the gateway is unreachable.
    if (problem.status === 0 && this.loaded) return;
    const detail = problem.status === 0 ? 'The console retries automatically.' : problem.detail;
    const text = `${problem.status} ${problem.title} ${detail}`;
    if (['failed', 'forbidden'].includes(this.panel.dataset.state) && this.problemText === text) return;
    this.problemText = text;
    const again = el('button', {type: 'button', onclick: async () => {
      await forgetDenials();
      retry();
    }}, 'Try again');
    if (problem.status === 403)
      return this.#show('forbidden', el('p', {}, `This API key may not see this. ${detail}`), again);
    this.#show('failed', el('p', {}, el('strong', {}, `${problem.title}.`), detail ? ` ${detail}` : ''),
      problem.requestId ? el('p', {class: 'muted small'}, `Request ${problem.requestId}`) : '', again);
  }
}
