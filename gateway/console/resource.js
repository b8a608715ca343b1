// The page of one resource: its lease and fence, now or at a time, and its changed rows. The timeline is below it.
// Its address is ?page=resource&timeline=NAME, with &at=TIME for the state at a time.

import {fetchJson, urlFor} from './api.js';
import {loadChanges, renderRows} from './changes.js';
import {byId, el, facts, PanelState, setText} from './dom.js';
import {readRange} from './range.js';
import {absoluteTime, duration, holder} from './words.js';
import * as url from './url.js';

const HOLDERS_MAX = 10; // that are named where a resource is shared

export class ResourcePage {
  constructor() {
    this.state = new PanelState(byId('resource'));
    this.at = byId('resource-at');
    byId('resource-form').addEventListener('submit', event => {
      event.preventDefault();
      url.write({at: this.at.value ? new Date(this.at.value).toISOString() : ''});
      this.refresh();
    });
    byId('resource-now').addEventListener('click', () => {
      url.write({at: ''});
      this.readUrl();
      this.refresh();
    });
  }

  readUrl() {
    const {timeline = '', at = ''} = url.read(['timeline', 'at']);
    Object.assign(this, {resource: timeline, time: at});
    setText(byId('resource-title'), timeline || 'No resource');
    const time = new Date(at);
    this.at.value = Number.isNaN(time.getTime()) ? ''
      : new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  }

  poll() { return this.state.mayPoll && !this.time ? this.refresh() : undefined; }

  async refresh() {
    this.readUrl();
    if (!this.resource) return this.state.showEmpty('The address names no resource.');
    this.request?.abort(); // its answer would be older
    const {signal} = this.request = new AbortController();
    try {
      const state = await fetchJson(urlFor('/v1/resource', {resource: this.resource, at: this.time}), {signal});
      const changes = await loadChanges({resource: this.resource, ...readRange().query}, signal);
      const content = [this.#facts(state)];
      if (this.time && state.rows?.length) content.push(el('h3', {}, 'Rows at that time'), renderStates(state.rows));
      this.state.body.replaceChildren(...content, el('h3', {}, 'Changed rows'), changes);
      this.state.showReady();
    } catch (problem) {
      if (problem.name === 'AbortError' || problem.status === 401) return;
      this.state.showProblem(problem, () => this.refresh());
    }
  }

  #facts({lease, shared_leases: shared, shared_leases_total: total, lease_state: leaseState, last_fencing_token: fence,
    tables, counts}) {
    const describe = ({fencing_token: token, remaining_ms: left, ...who}) =>
      [holder(who), `token ${token}`, left === undefined ? '' : `${duration(left)} left`].filter(Boolean).join(' · ');
    const held = lease ? describe(lease)
      : shared ? `${total} shared: ${shared.slice(0, HOLDERS_MAX).map(describe).join('; ')}`
        + (total > HOLDERS_MAX ? '; …' : '')
      : leaseState === 'unknown' ? 'unknown: no majority of nodes answers' : 'nobody';
    return facts({
      ...(this.time ? {'At': absoluteTime(this.time)} : {}),
      'Holder': held, 'Since': lease?.granted_at ? absoluteTime(lease.granted_at) : '', 'Fence': fence ?? 'none',
      'Guard': tables?.map(({table, mode}) => `${table}: ${mode}`).join(', '),
      'Writes': counts && `${counts.write_applied ?? 0} applied, ${counts.write_rejected ?? 0} refused`,
    });
  }
}

function renderStates(rows) {
  return rows[0].operation ? renderRows(rows)
    : el('ul', {class: 'small'}, rows.map(item => el('li', {}, JSON.stringify(item))));
}
