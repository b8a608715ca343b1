// The gateway as the console sees it: one fetch for everything, the API key, problem documents, and text/event-stream.
// EventSource cannot send an Authorization header, so the stream is read by fetch.

const KEY = 'fencegate.api_key'; // sessionStorage: this tab only, gone with it
/** Nothing is waited for longer, or a gateway that is gone without a word would stop the page for good. */
const ANSWER_WITHIN = 30_000;

/** What went wrong, in words for people. `status` is 0 where no answer came. */
export class Problem extends Error {
  constructor(status, title, detail = '', more = {}) {
    super(title);
    Object.assign(this, {status, title, detail, slug: more.slug ?? '', requestId: more.request_id ?? '', retryAfter: more.retryAfter ?? 0});
  }
}

const listeners = new Set();

/** `listen({unauthenticated, reached, away})`: told of every call's fate. */
export function listen(listener) {
  listeners.add(listener);
}

function tell(what, ...facts) {
  for (const listener of listeners) listener[what]?.(...facts);
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  set: value => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
  /** Whether it can stand in a header at all. */
  isPlain: value => /^[\x21-\x7e]+$/.test(value),
};

/** "/v1/history" with those of `query` that say something. */
export function address(path, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return said.length ? `${path}?${new URLSearchParams(said)}` : path;
}

async function problemOf(answer) {
  const retryAfter = Number(answer.headers.get('retry-after')) || 0;
  try {
    const told = await answer.json();
    const faults = (told.errors ?? []).map(error => `${error.pointer} ${error.detail}`).join('; ');
    return new Problem(answer.status, told.title, faults || told.detail,
      {slug: told.type?.replace('/problems/', ''), request_id: told.request_id, retryAfter});
  } catch {
    return new Problem(answer.status, `The gateway answered ${answer.status}`, '', {retryAfter});
  }
}

/** The answer of a call that went well; anything else is thrown as Problem. `bearer` in place of the kept key; `within` 0: however long it takes. */
export async function call(path, {method = 'GET', body, accept = 'application/json', signal, bearer = key.get(), extra = {}, quiet = false, within = ANSWER_WITHIN} = {}) {
  const headers = {Accept: accept, ...extra};
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const ends = [signal, within && AbortSignal.timeout(within)].filter(Boolean);
  let answer;
  try {
    answer = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.any(ends), cache: 'no-store', credentials: 'omit'});
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    if (!quiet) tell('away');
    throw new Problem(0, 'The gateway cannot be reached', 'The console tries again by itself.');
  }
  if (!quiet) tell('reached');
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (problem.status === 401 && !quiet) tell('unauthenticated', problem);
  throw problem;
}

export async function json(path, options) {
  const answer = await call(path, options);
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new Problem(0, 'The answer of the gateway broke off', 'The console tries again by itself.');
  }
}

/**
 * Follows a text/event-stream and calls `each({id, event, data})`. Returns when the stream ends; throws as call().
 * `opened` is called when the answer's head is there.
 */
export async function follow(path, {each, opened, lastId, signal}) {
  const answer = await call(path, {accept: 'text/event-stream', signal, within: 0, extra: lastId ? {'Last-Event-ID': lastId} : {}});
  opened?.();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  let message = {};
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (text + value).split('\n');
    text = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (message.id !== undefined || message.data !== undefined) each(message);
        message = {};
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const rest = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') message.data = message.data === undefined ? rest : `${message.data}\n${rest}`;
      else if (field) message[field] = rest;
    }
  }
}
