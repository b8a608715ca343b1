// The page of one write: its outcome, what it wanted and changed. The history below it has its events.
// Its address is ?page=write&write_id=ID.

import {fetchJson, urlFor} from './api.js';
import {loadChanges} from './changes.js';
import {byId, el, facts, PanelState} from './dom.js';
import {absoluteTime, details, eventBadge, holder, isOutcome, linkToResource} from './words.js';
import * as url from './url.js';

export class WritePage {
  constructor() { this.state = new PanelState(byId('write')); }

  poll() { return this.state.hasFailed && this.state.mayPoll ? this.refresh() : undefined; }

  async refresh() {
    const {write_id: id = ''} = url.read(['write_id']);
    if (!id) return this.state.showEmpty('The address names no write.');
    this.request?.abort(); // its answer would be older
    const {signal} = this.request = new AbortController();
    try {
      const {items} = await fetchJson(urlFor('/v1/history', {write_id: id, limit: 100}), {signal});
      const item = items.find(isOutcome);
      if (!item) return this.state.showEmpty(`The history has no write ${id}.`);
      const changes = await loadChanges({write_id: id}, signal);
      const {operations, request_id: request, gateway, address, credential, ...rest} = item.detail ?? {};
      this.state.body.replaceChildren(facts({
        'Write': id, 'Outcome': eventBadge(item), 'At': absoluteTime(item.at),
        'Resource': linkToResource(item.resource),
        'Token': item.fencing_token, 'Fence': item.last_fencing_token, 'By': holder(item),
        'Operations': operations && (Array.isArray(operations)
          ? operations.map(each => (typeof each === 'string' ? each : JSON.stringify(each))).join(', ')
          : JSON.stringify(operations)),
        'Request': request, 'From': [address, credential].filter(Boolean).join(' · '), 'Gateway': gateway,
        'Detail': details(rest)}), el('h3', {}, 'Changed rows'), changes);
      this.state.showReady();
    } catch (problem) {
      if (problem.name === 'AbortError' || problem.status === 401) return;
      this.state.showProblem(problem, () => this.refresh());
    }
  }
}
