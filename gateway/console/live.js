// What keeps the page live: the stream of the history while it can be had, a look every two seconds in any case, and
// nothing at all while nobody looks.

import {follow} from './api.js';

const STREAM = '/v1/history/stream';
const AGAIN_FIRST = 1000;
const AGAIN_MOST = 15_000;
/** Without a sign of life for so long (the gateway gives one every 15 s) a stream is dead, whatever the network says. */
const SILENCE_MAX = 40_000;

export class Live {
  /** `event(item)` for each that lands; `state(word)`: 'live' or 'polling'. */
  constructor({event, state}) {
    Object.assign(this, {event, state, running: false, lastId: ''});
    document.addEventListener('visibilitychange', () => { if (this.running) this.#adapt(); });
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.#adapt();
  }

  #adapt() {
    if (document.visibilityState === 'hidden') {
      this.lastId = ''; // all is asked for anew when somebody looks again
      return this.stream?.abort();
    }
    if (!this.stream || this.stream.signal.aborted) this.#follow();
  }

  async #follow() {
    const stream = this.stream = new AbortController();
    let pause = AGAIN_FIRST;
    while (!stream.signal.aborted) {
      const attempt = new AbortController();
      const end = () => attempt.abort();
      stream.signal.addEventListener('abort', end);
      let silence = setTimeout(end, SILENCE_MAX);
      try {
        await follow(STREAM, {
          signal: attempt.signal, lastId: this.lastId,
          opened: () => {
            pause = AGAIN_FIRST;
            this.state('live');
          },
          each: message => {
            clearTimeout(silence);
            silence = setTimeout(end, SILENCE_MAX);
            if (message.id) this.lastId = message.id;
            if (message.data) this.event(JSON.parse(message.data));
          },
        });
      } catch (fault) {
        if (stream.signal.aborted) break;
        if (fault.status === 401) return;
        if (fault.status === 400) this.lastId = ''; // another history than before
        if (fault.status === 403 || fault.status === 404) {
          this.state('polling');
          return;
        }
      } finally {
        clearTimeout(silence);
        stream.signal.removeEventListener('abort', end);
      }
      if (stream.signal.aborted) break;
      this.state('polling');
      await new Promise(resolve => { setTimeout(resolve, pause); });
      pause = Math.min(pause * 2, AGAIN_MOST);
    }
  }
}

/** Runs `work` soon, not more often than every `ms`, and once at a time; what comes meanwhile is one more run. */
export function atMostEvery(ms, work) {
  let last = -Infinity;
  let busy = false;
  let again = false;
  const run = () => {
    again = busy;
    if (busy) return;
    busy = true;
    setTimeout(async () => {
      last = performance.now();
      again = false;
      try {
        await work();
      } finally {
        busy = false;
        if (again) run();
      }
    }, Math.max(50, last + ms - performance.now()));
  };
  return run;
}
