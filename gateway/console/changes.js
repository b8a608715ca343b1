// The changed rows of a resource or of a write, where the operator called fencing.record_changes.

import {fetchJson, urlFor} from './api.js';
import {cell, el, optionalCell, row, table} from './dom.js';
import {absoluteTime, count, linkToWrite} from './words.js';

const LIMIT = 100;
const COLUMNS = [{label: 'Time'}, {label: 'Table'}, {label: 'Row'}, {label: 'Change'}, {label: 'Token', numeric: true},
  {label: 'By'}];

const valueText = value =>
  (value === undefined ? '–' : value === null ? 'null' : typeof value !== 'object' ? String(value)
    : 'masked' in value ? `masked ${String(value.masked).slice(0, 8)}…` : JSON.stringify(value));
const members = values => Object.entries(values ?? {});

/** "stock 10 → 9" for each column that changed. */
function describeColumns({old, new: made}) {
  const names = [...new Set([...members(old), ...members(made)].map(([name]) => name))];
  return names.map(name => el('div', {}, el('span', {class: 'muted'}, `${name} `), old ? valueText(old[name]) : '',
    old && made ? ' → ' : '', made ? valueText(made[name]) : ''));
}

/** Rows of changes as the API has them, as text and a table. */
export function renderRows(items) {
  const {element, body} = table('Changed rows', COLUMNS);
  for (const item of items) {
    const line = row({});
    line.append(cell(COLUMNS[0], absoluteTime(item.at)), cell(COLUMNS[1], item.table),
      cell(COLUMNS[2], members(item.key).map(([name, value]) => `${name}: ${valueText(value)}`).join(', ')),
      cell(COLUMNS[3], el('div', {}, item.operation, ...describeColumns(item))),
      optionalCell(COLUMNS[4], item.fencing_token),
      cell(COLUMNS[5], item.principal ?? '', item.direct ? ' (direct SQL)' : ' ',
        item.write_id ? linkToWrite(item.write_id) : ''));
    body.append(line);
  }
  return element;
}

/** Loads the changes that match `filters`. Throws as fetchJson, except that a right that is missing is said. */
export async function loadChanges(filters, signal) {
  try {
    const {items, next_cursor: more} = await fetchJson(urlFor('/v1/changes', {...filters, limit: LIMIT}), {signal});
    if (!items.length) return el('p', {class: 'muted'}, 'No changed row is recorded.');
    return el('div', {}, renderRows(items), more ? el('p', {class: 'muted small'}, `The newest ${count(LIMIT)}.`) : '');
  } catch (problem) {
    if (problem.status !== 403) throw problem;
    return el('p', {class: 'muted'}, `Changed rows: ${problem.detail}`);
  }
}
