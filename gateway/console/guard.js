// The state of the guard in PostgreSQL: tables that are open or observed, faults,
// and what the installation can't notice.

import {fetchJson} from './api.js';
import {announce, byId, el, PanelState} from './dom.js';
import {absoluteTime} from './words.js';

const STATES = {
  enforced: {style: 'good', mark: '●'},
  observed: {style: 'warn', mark: '◌'},
  open: {style: 'bad', mark: '✕'},
};

const why = ({reason, state, faults, fault_count: count}) => {
  if (faults.length) return count > 1 ? `${faults[0]} (and ${count - 1} more)` : faults[0];
  if (reason === 'unprotected') return 'unprotect() was called: changes are not checked.';
  return state === 'observed' ? 'Changes are recorded and not refused.' : '';
};

export class Guard {
  /** Calls `onState(guard)` with each answer, or with null if the key lacks the scope `operate` for all resources. */
  constructor({onState}) {
    this.onState = onState;
    this.state = new PanelState(byId('guard'));
    this.list = el('ul', {class: 'nodes'});
    this.state.body.append(this.list);
  }

  async refresh() {
    try {
      const guard = await fetchJson('/v1/guard');
      this.#show(guard);
      this.onState(guard);
    } catch (problem) {
      if (problem.status === 401) return;
      if (problem.status === 403) this.onState(null);
      this.state.showProblem(problem, () => this.refresh());
    }
  }

  /** As refresh(), for periodic calls. */
  poll() { return this.state.mayPoll ? this.refresh() : undefined; }

  #show({tables, faults, limits}) {
    const named = new Set(tables.flatMap(table => table.faults));
    const rest = faults.filter(fault => !named.has(fault));
    const shown = JSON.stringify([tables, rest, limits]);
    if (tables.length + rest.length + limits.length === 0) this.state.showEmpty('No table is protected.');
    else this.state.showReady();
    if (this.shown === shown) return; // so that a selection stays
    const open = tables.filter(table => table.state === 'open').map(table => table.table);
    if (this.shown && open.length) announce(`Open: ${open.join(', ')}`);
    this.shown = shown;
    this.list.replaceChildren(...tables.map(table => this.#makeRow(table)),
      ...rest.map(fault => el('li', {class: 'fault'}, el('span', {class: 'why small'}, fault))),
      ...limits.map(limit =>
        el('li', {class: 'limit'}, el('span', {class: 'why small'}, `Not noticed here: ${limit}.`))));
  }

  #makeRow(table) {
    const {style, mark} = STATES[table.state] ?? STATES.open;
    return el('li', {'data-table': table.table},
      el('span', {class: 'node-name'}, table.table),
      el('span', {class: `event ${style}`}, el('span', {class: 'mark', 'aria-hidden': 'true'}, mark),
        el('span', {}, table.state)),
      el('span', {class: 'muted small'}, table.since ? ['since ', absoluteTime(table.since)] : 'since an unknown time',
        table.principal ? ` by ${table.principal}` : ''),
      el('span', {class: 'why small'}, why(table)));
  }
}
