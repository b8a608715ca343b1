// The Redis nodes as this gateway sees them, with the time left of a quarantine.

import {fetchJson} from './api.js';
import {announce, byId, el, PanelState, reconcile, setText} from './dom.js';
import {duration, now} from './words.js';

const STATES = {
  voting: {style: 'good', mark: '●'},
  quarantined: {style: 'warn', mark: '◌'},
  unreachable: {style: 'bad', mark: '✕'},
  misconfigured: {style: 'bad', mark: '▲'},
};

export class Nodes {
  /** Calls `onListed(nodes)` with each list, or with null if the key lacks the scope `operate` for all resources. */
  constructor({onListed}) {
    this.onListed = onListed;
    this.state = new PanelState(byId('nodes'));
    this.rows = new Map();
    this.list = el('ul', {class: 'nodes'});
    this.state.body.append(this.list);
  }

  async refresh() {
    try {
      const {nodes} = await fetchJson('/v1/nodes');
      const at = now();
      this.#announce(nodes);
      reconcile(this.list, this.rows, nodes.map(node => ({...node, until: at + node.quarantine_left_ms})),
        node => node.name, node => this.#makeRow(node));
      this.state.showReady();
      this.onListed(nodes);
      this.tick();
    } catch (problem) {
      if (problem.status === 401) return;
      if (problem.status === 403) this.onListed(null);
      this.state.showProblem(problem, () => this.refresh());
    }
  }

  /** As refresh(), for periodic calls. */
  poll() { return this.state.mayPoll ? this.refresh() : undefined; }

  #announce(nodes) {
    const previous = this.states;
    this.states = new Map(nodes.map(node => [node.name, node.state]));
    const changed = previous ? nodes.filter(node => previous.get(node.name) !== node.state) : [];
    if (changed.length) announce(changed.map(node => `Node ${node.name} is ${node.state}`).join('. '));
  }

  #makeRow(first) {
    let node = first;
    const mark = el('span', {class: 'mark', 'aria-hidden': 'true'});
    const word = el('span');
    const badge = el('span', {class: 'event'}, mark, word);
    const facts = el('span', {class: 'muted small tabular'});
    const left = el('span', {class: 'quarantine tabular'});
    const detail = el('span', {class: 'why small'});
    const element = el('li', {'data-node': first.name},
      el('span', {class: 'node-name'}, first.name), badge, facts, left, detail);
    return {
      row: element,
      update(item) {
        node = item;
        const shown = STATES[item.state] ?? STATES.unreachable;
        badge.className = `event ${shown.style}`;
        setText(mark, shown.mark);
        setText(word, item.state);
        const latency = item.state === 'unreachable' ? 'no answer' : item.latency_us === null ? 'no answer yet'
          : `${(item.latency_us / 1000).toFixed(item.latency_us < 10_000 ? 2 : 0)} ms`;
        setText(facts, `${item.address} · epoch ${item.epoch} · ${latency}`);
        setText(detail, item.state === 'voting' ? '' : item.detail ?? '');
      },
      tick(at) {
        setText(left, node.quarantine_left_ms > 0 ? `votes again in ${duration(node.until - at)}` : '');
      },
    };
  }

  tick() {
    const at = now();
    for (const entry of this.rows.values()) entry.tick(at);
  }
}
