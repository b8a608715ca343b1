// The history as an async iterator.

import type {Calls} from './calls.js';
import type {components, operations} from './generated/schema.js';

/** An event of the history. */
export type HistoryItem = components['schemas']['history_item'];
/** The filters of GET /v1/history, all of which have to match. `limit` is the size of the pages. */
export type HistoryFilters = Omit<NonNullable<operations['show_history']['parameters']['query']>, 'cursor'>;

export function isHistoryPage(data: unknown): boolean {
  return Array.isArray((data as {items?: unknown} | null | undefined)?.items);
}

/**
 * Yields the events of the history, newest first unless `order` is asc.
 * Requests a page when its first event is asked for.
 */
export async function* readHistory(calls: Calls, filters: HistoryFilters,
    signal?: AbortSignal): AsyncGenerator<HistoryItem, void, undefined> {
  let cursor: string | null = null;
  do {
    const query: HistoryFilters & {cursor?: string} = cursor === null ? filters : {...filters, cursor};
    const {data} = await calls.run(attempt => calls.http.GET('/v1/history', {params: {query}, ...attempt}),
      {signal, isExpected: isHistoryPage});
    yield* data.items;
    cursor = data.next_cursor;
  } while (cursor !== null);
}
