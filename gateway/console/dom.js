// Elements made of data. Text goes in as text nodes and nowhere else: names of resources and owners are hostile input.

const SVG = 'http://www.w3.org/2000/svg';

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/** el('button', {type: 'button', onclick: f}, 'text', child) */
export const el = (name, attributes = {}, ...children) => dress(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => dress(document.createElementNS(SVG, name), attributes, children);
export const byId = id => document.getElementById(id);

/** Sets the text only where it differs, so that nothing is selected away or announced anew. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The same for an attribute. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Says something to screen readers, once, when they have a moment. */
export function announce(text) {
  const announcer = byId('announcer');
  announcer.textContent = '';
  requestAnimationFrame(() => { announcer.textContent = text; });
}

/**
 * A table. `columns`: {label, numeric}. With roles of its own, because narrow screens show its rows as cards, and a table
 * that is displayed as blocks is none to a screen reader.
 */
export function table(caption, columns) {
  const head = el('tr', {role: 'row'}, columns.map(column => el('th', {scope: 'col', role: 'columnheader', class: column.numeric ? 'number' : null},
    column.hidden ? el('span', {class: 'off-screen'}, column.label) : column.label)));
  const body = el('tbody', {role: 'rowgroup'});
  const element = el('table', {role: 'table'}, el('caption', {class: 'off-screen'}, caption), el('thead', {role: 'rowgroup'}, head), body);
  return {element, body};
}

export const row = attributes => el('tr', {role: 'row', ...attributes});
export const cell = (column, ...content) => el('td', {role: 'cell', 'data-label': column.label, class: column.numeric ? 'number' : null}, content);

/** A value that may be absent: a dash, which narrow screens leave out. */
export function optional(column, value) {
  const made = cell(column, value ?? '–');
  if (value === null || value === undefined || value === '') {
    made.classList.add('nothing');
    made.textContent = '–';
  }
  return made;
}

/**
 * Shows `items` in `body` by key: a row that stays is updated in place, so that focus and selection stay too.
 * `make(item)` gives {row, update(item)}.
 */
export function reconcile(body, rows, items, keyOf, make) {
  const seen = new Set();
  let before = body.firstChild;
  for (const item of items) {
    const id = keyOf(item);
    seen.add(id);
    let entry = rows.get(id);
    if (!entry) rows.set(id, entry = make(item));
    entry.update(item);
    if (entry.row === before) before = before.nextSibling;
    else body.insertBefore(entry.row, before);
  }
  for (const [id, entry] of rows) {
    if (seen.has(id)) continue;
    entry.row.remove();
    rows.delete(id);
  }
}

/** What a panel says in place of data, or above data that is old: loading, empty, an error with a way out. */
export class PanelState {
  constructor(panel) {
    this.panel = panel;
    this.body = panel.querySelector('.panel-body');
    this.note = el('div', {class: 'state'});
    this.body.before(this.note);
    this.loading();
  }

  #show(kind, ...content) {
    this.panel.dataset.state = kind;
    this.note.className = `state ${kind}`;
    this.note.replaceChildren(...content);
    this.note.hidden = content.length === 0;
  }

  loading() { if (!this.loaded) this.#show('loading', el('p', {}, 'Loading…')); }

  ready() {
    this.loaded = true;
    if (this.panel.dataset.state !== 'ready') this.#show('ready');
  }

  empty(...words) {
    this.loaded = true;
    this.#show('empty', el('p', {}, words));
  }

  /** A problem; what was shown before stays, marked as old. */
  failed(problem, retry) {
    if (problem.status === 0 && this.loaded) return; // the top of the page says that the gateway is away
    const told = `${problem.status} ${problem.title} ${problem.detail}`;
    if (['failed', 'forbidden'].includes(this.panel.dataset.state) && this.told === told) return;
    this.told = told;
    if (problem.status === 403) return this.#show('forbidden', el('p', {}, `This API key may not see this. ${problem.detail}`));
    this.#show('failed', el('p', {}, el('strong', {}, `${problem.title}.`), problem.detail ? ` ${problem.detail}` : ''),
      problem.requestId ? el('p', {class: 'muted small'}, `Request ${problem.requestId}`) : '',
      retry ? el('button', {type: 'button', onclick: retry}, 'Try again') : '');
  }
}
