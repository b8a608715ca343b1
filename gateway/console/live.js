// Follows the stream of the history while the page is visible, and reconnects when it breaks. main.js polls meanwhile.

import {followStream} from './api.js';

const STREAM = '/v1/history/stream';
const RECONNECT_PAUSE_FIRST = 1000;
const RECONNECT_PAUSE_MAX = 15_000;
/** A stream without data for this time is broken: the gateway sends a heartbeat every 10 s. */
const SILENCE_MAX = 40_000;

export class Live {
  /** Calls `onEvent(item)` for each new event and `onState(state)` with 'live' or 'polling'. */
  constructor({onEvent, onState}) {
    Object.assign(this, {onEvent, onState, running: false, lastId: ''});
    document.addEventListener('visibilitychange', () => { if (this.running) this.#applyVisibility(); });
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.#applyVisibility();
  }

  #applyVisibility() {
    if (document.visibilityState === 'hidden') {
      this.lastId = ''; // a visible page loads everything again
      return this.stream?.abort();
    }
    if (!this.stream || this.stream.signal.aborted) this.#follow();
  }

  async #follow() {
    const stream = this.stream = new AbortController();
    let pause = RECONNECT_PAUSE_FIRST;
    while (!stream.signal.aborted) {
      const attempt = new AbortController();
      const end = () => attempt.abort();
      stream.signal.addEventListener('abort', end);
      let silence = setTimeout(end, SILENCE_MAX);
      try {
        await followStream(STREAM, {
          signal: attempt.signal, lastId: this.lastId,
          onOpen: () => {
            pause = RECONNECT_PAUSE_FIRST;
            this.onState('live');
          },
          onMessage: message => {
            clearTimeout(silence);
            silence = setTimeout(end, SILENCE_MAX);
            if (message.id) this.lastId = message.id;
            if (message.data) this.onEvent(JSON.parse(message.data));
          },
        });
      } catch (fault) {
        if (stream.signal.aborted) break;
        if (fault.status === 401) return;
        // The id is unknown, for example after the database was replaced.
        if (fault.status === 400 || fault.status === 421) this.lastId = '';
        // A 403 is not requested again before "Try again" of a panel: until then call() throws it.
        if (fault.status === 404) {
          this.onState('polling');
          return;
        }
      } finally {
        clearTimeout(silence);
        stream.signal.removeEventListener('abort', end);
      }
      if (stream.signal.aborted) break;
      this.onState('polling');
      await new Promise(resolve => { setTimeout(resolve, pause); });
      pause = Math.min(pause * 2, RECONNECT_PAUSE_MAX);
    }
  }
}

/**
 * Returns a function that runs `work` soon, at most once per `ms` and one run at a time.
 * Calls meanwhile cause one more run.
 */
export function throttle(ms, work) {
  let last = -Infinity;
  let busy = false;
  let repeat = false;
  const run = () => {
    repeat = busy;
    if (busy) return;
    busy = true;
    setTimeout(async () => {
      last = performance.now();
      repeat = false;
      try {
        await work();
      } finally {
        busy = false;
        if (repeat) run();
      }
    }, Math.max(50, last + ms - performance.now()));
  };
  return run;
}
