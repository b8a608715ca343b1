// The Redis nodes as this gateway sees them; a quarantine counts down.

import {json} from './api.js';
import {announce, byId, el, PanelState, reconcile, setText} from './dom.js';
import {duration, now} from './words.js';

const STATES = {
  voting: {look: 'good', mark: '●'},
  quarantined: {look: 'warn', mark: '◌'},
  unreachable: {look: 'bad', mark: '✕'},
  misconfigured: {look: 'bad', mark: '▲'},
};

export class Nodes {
  /** `told(nodes)` with each answer; `allowed(may)`: whether the key may operate, which is also what revoking takes. */
  constructor({told, allowed}) {
    Object.assign(this, {told, allowed});
    this.state = new PanelState(byId('nodes'));
    this.rows = new Map();
    this.list = el('ul', {class: 'nodes'});
    this.state.body.append(this.list);
  }

  async refresh() {
    try {
      const {nodes} = await json('/v1/nodes');
      const at = now();
      this.#announce(nodes);
      reconcile(this.list, this.rows, nodes.map(node => ({...node, until: at + node.quarantine_left_ms})), node => node.name, node => this.#makeRow(node));
      this.state.ready();
      this.allowed(true);
      this.told(nodes);
      this.tick();
    } catch (problem) {
      if (problem.status === 401) return;
      if (problem.status === 403) {
        this.allowed(false);
        this.told(null);
      }
      this.state.failed(problem, () => this.refresh());
    }
  }

  #announce(nodes) {
    const before = this.states;
    this.states = new Map(nodes.map(node => [node.name, node.state]));
    const changed = before ? nodes.filter(node => before.get(node.name) !== node.state) : [];
    if (changed.length) announce(changed.map(node => `Node ${node.name} is ${node.state}`).join('. '));
  }

  #makeRow(first) {
    let node = first;
    const mark = el('span', {class: 'mark', 'aria-hidden': 'true'});
    const word = el('span');
    const badge = el('span', {class: 'event'}, mark, word);
    const facts = el('span', {class: 'muted small tabular'});
    const left = el('span', {class: 'quarantine tabular'});
    const why = el('span', {class: 'why small'});
    const element = el('li', {'data-node': first.name},
      el('span', {class: 'node-name'}, first.name), badge, facts, left, why);
    return {
      row: element,
      update(item) {
        node = item;
        const look = STATES[item.state] ?? STATES.unreachable;
        badge.className = `event ${look.look}`;
        setText(mark, look.mark);
        setText(word, item.state);
        const latency = item.state === 'unreachable' ? 'no answer' : item.latency_us === null ? 'no answer yet' : `${(item.latency_us / 1000).toFixed(item.latency_us < 10_000 ? 2 : 0)} ms`;
        setText(facts, `${item.address} · epoch ${item.epoch} · ${latency}`);
        setText(why, item.state === 'voting' ? '' : item.detail ?? '');
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
