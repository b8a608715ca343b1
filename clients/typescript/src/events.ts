// Streams of events (text/event-stream), with fetch.

import type {Attempt} from './calls.js';
import {ConnectionError, FencegateError} from './errors.js';

/** A stream without data for this many milliseconds is broken: the gateway sends a heartbeat every 10 s. */
const SILENCE_MAX = 40_000;
/** The longest line that is read, in UTF-16 code units. */
const LINE_MAX = 16 * 2 ** 20;

export interface Message {
  id?: string;
  event?: string;
  data?: string;
}

/** A stream that is open, or being opened: its gateway, and its connection, which ends when it is aborted. */
export interface OpenStream {
  url?: string;
  connection?: AbortController;
}

/**
 * Returns the options of a request whose answer is a stream.
 * The time limit of the attempt is that of the beginning of the answer.
 */
export function openStream({baseUrl, fetch, signal}: Attempt, opened: OpenStream) {
  const connection = opened.connection = new AbortController();
  opened.url = baseUrl;
  signal.addEventListener('abort', () => connection.abort(signal.reason), {once: true});
  return {parseAs: 'stream' as const, baseUrl, fetch, signal: connection.signal,
    headers: {Accept: 'text/event-stream'}};
}

/** Yields the messages of a text/event-stream; an empty one for a comment. */
export async function* messagesOf(body: ReadableStream<Uint8Array>,
    {url, connection}: Required<OpenStream>): AsyncGenerator<Message> {
  const reader = body.getReader();
  // In Node.js the signal of a request without references is not aborted (nodejs/undici issue 3644).
  connection.signal.addEventListener('abort', () => { reader.cancel().catch(() => undefined); }, {once: true});
  const decoder = new TextDecoder();
  const onSilence = () => connection.abort(new DOMException(`No event within ${SILENCE_MAX} ms`, 'TimeoutError'));
  let text = '';
  let message: Message = {};
  for (;;) {
    const timer = setTimeout(onSilence, SILENCE_MAX);
    const {value, done} =
      await reader.read()
      .catch(fault => { throw new ConnectionError('The stream broke', true, url, {cause: fault}); })
      .finally(() => clearTimeout(timer));
    if (done) return;
    const lines = decoder.decode(value, {stream: true}).split('\n');
    lines[0] = text + lines[0];
    text = lines.pop() as string;
    if (text.length > LINE_MAX) throw new FencegateError(`A line of the stream is longer than ${LINE_MAX} characters`);
    for (const line of lines) {
      if (line.startsWith('id: ')) message.id = line.slice('id: '.length);
      else if (line.startsWith('event: ')) message.event = line.slice('event: '.length);
      else if (line.startsWith('data: ')) message.data = line.slice('data: '.length);
      else if (line === '') {
        yield message;
        message = {};
      }
    }
  }
}
