// The notice that PostgreSQL was promoted, restored or replaced: since when older tokens are refused,
// and how many acknowledged writes are lost.

import {fetchJson, urlFor} from './api.js';
import {byId, el} from './dom.js';
import {absolute, count, now} from './words.js';

const EVENT = 'storage_generation_changed';
/** A day, so that operators of every shift see the notice. */
const SHOWN_FOR = 86_400_000;

export class ReplacementNotice {
  /**
   * Calls `showEvents({event, from})` when the user asks for the events behind the notice,
   * and `onChange(at)` with the time of the newest change in the last day, if there is one.
   */
  constructor({showEvents, onChange}) {
    Object.assign(this, {showEvents, onChange});
    this.element = byId('replacement');
  }

  /** Shows the newest change, if there was one, with the lost writes that every gateway has reported since. */
  async refresh() {
    const from = new Date(now() - SHOWN_FOR).toISOString();
    let items;
    try {
      ({items} = await fetchJson(urlFor('/v1/history', {event: EVENT, from, limit: 100})));
    } catch {
      return; // the panel of the history shows the problem; what was shown before stays
    }
    // The change itself has the floor. A gateway adds an event without it if it finds lost writes after the change.
    const newest = items.findIndex(item => item.detail?.floor !== undefined);
    this.onChange(newest < 0 ? undefined : Date.parse(items[newest].at));
    if (newest < 0) {
      this.element.hidden = true;
      return;
    }
    const lost = items.slice(0, newest + 1).reduce((sum, item) => sum + (item.detail.lost_write_count ?? 0), 0);
    this.#show(items[newest], lost);
  }

  #show({id, at, detail}, lost) {
    const version = `${id} ${lost}`;
    // Screen readers announce a notice whenever it is filled.
    if (this.shown === version && !this.element.hidden) return;
    this.shown = version;
    const losses = lost === 0 ? '' : lost === 1 ? ' 1 acknowledged write is lost.'
      : ` ${count(lost)} acknowledged writes are lost.`;
    this.element.className = `notice ${lost ? 'bad' : 'warn'}`;
    this.element.replaceChildren(`PostgreSQL was promoted, restored or replaced (${detail.reason}): `
      + `leases from before ${absolute(Date.parse(at))} can't write.${losses} `,
      el('button', {type: 'button', class: 'link', onclick: () =>
        this.showEvents({event: EVENT, from: new Date(Date.parse(at) - 1000).toISOString()})}, 'Show the events'));
    this.element.hidden = false;
  }
}
