// Calls the HTTP API of the gateway: requests with the API key, problem documents, and text/event-stream.
// EventSource cannot send an Authorization header, so fetch reads the stream.

const KEY = 'fencegate.api_key'; // in sessionStorage: visible to this tab only, deleted when it closes
/**
 * Limits every request, because a gateway that vanishes without closing the connection would block the page forever.
 */
const REQUEST_TIMEOUT = 30_000;

/** An error for display to the user. `status` is 0 if there was no response. */
export class Problem extends Error {
  constructor(status, title, detail = '', more = {}) {
    super(title);
    Object.assign(this, {status, title, detail, requestId: more.request_id ?? '',
      retryAfter: more.retryAfter ?? 0});
  }
}

const listeners = new Set();

/**
 * Adds an object whose methods `unauthenticated`,
 * `reached` and `unreachable` are called after each request, as it ended.
 */
export function addConnectionListener(listener) {
  listeners.add(listener);
}

function notify(event, ...parameters) {
  for (const listener of listeners) listener[event]?.(...parameters);
}

/**
 * The 403s that GETs were answered, by address. The history records every denied request,
 * so the address is not asked again until forgetDenials().
 * Signing in with another key reloads the page, which forgets them too.
 */
const denials = new Map();

/** What the caller may do, as /v1/rights says it; undefined until loadRights() has an answer. */
let rights;

/**
 * Asks for the caller's rights, so that nothing is asked for that would be denied; options as of call().
 * Returns whether the caller is known; if not, the gateway requires a key. Throws as fetchJson.
 */
export async function loadRights(options) {
  rights = await fetchJson('/v1/rights', options);
  return rights.principal !== '';
}

/** After this, everything that was denied is asked for again if the caller has the right by now. */
export async function forgetDenials() {
  denials.clear();
  await loadRights().catch(() => {}); // the request that follows shows the problem
}

/** The right that the caller lacks for a GET, as a sentence; empty if there is none. */
function missingRight(path) {
  if (!rights) return '';
  const {pathname, searchParams} = new URL(path, location.href);
  const needed = /^\/v1\/(nodes|guard)$/.test(pathname) ? 'operate'
    : /^\/v1\/(leases$|history|changes$|resource)/.test(pathname) ? 'history' : '';
  const ofSome = searchParams.has('resource') || searchParams.has('resource_prefix');
  if (needed && !(ofSome ? rights.scopes : rights.scopes_for_all_resources).includes(needed))
    return `The caller lacks the scope '${needed}'${ofSome ? '' : ' for all resources'}.`;
  return pathname === '/v1/changes' && !rights.all_rows ? 'The caller may not read every row of every table.' : '';
}

/** The part of an address that decides whether the caller has the right to it. */
function denialKey(path) {
  const {pathname, searchParams} = new URL(path, location.href);
  return `${pathname}\n${searchParams.get('resource') ?? ''}\n${searchParams.get('resource_prefix') ?? ''}`;
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  set: value => sessionStorage.setItem(KEY, value),
  remove: () => sessionStorage.removeItem(KEY),
  /** Whether a header can contain the key. */
  isValid: value => /^[\x21-\x7e]+$/.test(value),
};

/** The path with a query string; leaves out empty values. */
export function urlFor(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

async function readProblem(answer) {
  const retryAfter = Number(answer.headers.get('retry-after')) || 0;
  try {
    const document = await answer.json();
    const faults = (document.errors ?? []).map(error => `${error.pointer} ${error.detail}`).join('; ');
    return new Problem(answer.status, document.title, faults || document.detail,
      {request_id: document.request_id, retryAfter});
  } catch {
    return new Problem(answer.status, `The gateway answered ${answer.status}`, '', {retryAfter});
  }
}

/**
 * Sends a request and returns the response if it is a 2xx; throws a Problem otherwise,
 * without a request if the address was denied before. `bearer` replaces the stored key; `timeout` 0 means none;
 * `quiet` calls no listeners.
 */
export async function call(path, {method = 'GET', body, accept = 'application/json', signal, bearer = key.get(),
    extra = {}, quiet = false, timeout = REQUEST_TIMEOUT} = {}) {
  const address = method === 'GET' ? denialKey(path) : '';
  if (denials.has(address)) throw denials.get(address);
  const missing = address && missingRight(path);
  if (missing) throw new Problem(403, 'Forbidden', missing);
  const headers = {Accept: accept, ...extra};
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const signals = [signal, timeout && AbortSignal.timeout(timeout)].filter(Boolean);
  let answer;
  try {
    answer = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals), cache: 'no-store', credentials: 'omit'});
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    if (!quiet) notify('unreachable');
    throw new Problem(0, 'The gateway cannot be reached');
  }
  if (!quiet) notify('reached');
  if (answer.ok) return answer;
  const problem = await readProblem(answer);
  if (problem.status === 403 && address) denials.set(address, problem);
  if (problem.status === 401 && !quiet) notify('unauthenticated', problem);
  throw problem;
}

export async function fetchJson(path, options) {
  const answer = await call(path, options);
  if (answer.status === 204) return null;
  try {
    return await answer.json();
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new Problem(0, 'The connection broke during the answer');
  }
}

/**
 * Reads a text/event-stream and calls `onMessage({id, event, data})` for each message.
 * Returns when the stream ends; throws as call().
 * Calls `onOpen` when the response header has arrived.
 */
export async function followStream(path, {onMessage, onOpen, lastId, signal}) {
  const answer =
    await call(path, {accept: 'text/event-stream', signal, timeout: 0, extra: lastId ? {'Last-Event-ID': lastId} : {}});
  onOpen?.();
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
        if (message.id !== undefined || message.data !== undefined) onMessage(message);
        message = {};
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const content = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') message.data = message.data === undefined ? content : `${message.data}\n${content}`;
      else if (field) message[field] = content;
    }
  }
}
