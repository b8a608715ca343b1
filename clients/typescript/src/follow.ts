// New events of the history as an async iterator, over text/event-stream and across broken connections.

import {isCertificateRefused, TOO_MANY_REQUESTS, type Calls} from './calls.js';
import {ConnectionError, ProblemError} from './errors.js';
import {messagesOf, openStream, type OpenStream} from './events.js';
import type {operations} from './generated/schema.js';
import type {HistoryItem} from './history.js';
import {pause} from './time.js';

export type FollowFilters = NonNullable<operations['follow_history']['parameters']['query']>;

export interface FollowOptions {
  /**
   * Begins after the event with this id; 0: with the oldest. With the next new event if absent.
   * In a cell other than 0: "CELL~ID".
   */
  afterId?: number | string;
  signal?: AbortSignal;
}

const RECONNECT_PAUSE = 500;

/** Whether the stream can be opened later. */
function isTemporary(fault: unknown): boolean {
  if (fault instanceof ConnectionError) return !isCertificateRefused(fault);
  return fault instanceof ProblemError && (fault.status >= 500 || fault.status === TOO_MANY_REQUESTS);
}

/**
 * Yields every new event once, in the order of id, until the loop is left, the signal is aborted,
 * or a gateway refuses the stream. A broken connection is opened again after the last id, as long as it takes,
 * also while gateways or proxies answer that they are not available.
 */
export async function* followHistory(calls: Calls, query: FollowFilters,
    {afterId, signal}: FollowOptions): AsyncGenerator<HistoryItem, void, undefined> {
  if (afterId !== undefined && !/^[\x21-\x7e]+$/.test(String(afterId)))
    throw new TypeError('afterId: has to be the id of an event of the stream');
  let retryAfterMs = 0;
  for (let position = afterId?.toString(); ;
      await pause(retryAfterMs + RECONNECT_PAUSE * (0.5 + Math.random()), signal)) {
    const opened: OpenStream = {};
    const onAbort = () => opened.connection?.abort(signal?.reason);
    signal?.addEventListener('abort', onAbort, {once: true});
    try {
      const header = position === undefined ? {} : {'Last-Event-ID': position};
      const {data} = await calls.run(attempt =>
        calls.http.GET('/v1/history/stream', {params: {query, header}, ...openStream(attempt, opened)}), {signal});
      retryAfterMs = 0;
      for await (const {id, data: item} of messagesOf(data as ReadableStream<Uint8Array>,
          opened as Required<OpenStream>)) {
        if (id) position = id;
        if (item) yield JSON.parse(item) as HistoryItem;
      }
    } catch (fault) {
      signal?.throwIfAborted();
      if (!isTemporary(fault)) throw fault;
      retryAfterMs = fault instanceof ProblemError ? fault.retryAfterMs ?? 0 : 0;
    } finally {
      signal?.removeEventListener('abort', onAbort);
      opened.connection?.abort();
    }
  }
}
