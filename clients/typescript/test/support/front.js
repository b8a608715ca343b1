// A proxy in front of a gateway that injects faults into single requests: answers of its own,
// and answers that are lost, late or changed.

import {createServer, request as httpRequest} from 'node:http';
import {setTimeout as sleep} from 'node:timers/promises';

const read = async stream => {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
};

/** Sends the request to the gateway; the answer's body is still to be read. */
const open = (asked, target) => new Promise((resolve, reject) => {
  httpRequest(new URL(asked.path, target), {method: asked.method, headers: asked.headers}, resolve).on('error', reject)
    .end(asked.body);
});

const send = async (asked, target) => {
  const answer = await open(asked, target);
  return {status: answer.statusCode, headers: answer.headers, body: await read(answer)};
};

/** The faults: each gets the request, a function that forwards it to the gateway, and the response. */
export const forward = async (asked, ask, response) => {
  const answer = await ask();
  response.writeHead(answer.status, answer.headers).end(answer.body);
};
/** Forwards the answer as it arrives, for streams; `onOpen` is called when it begins. */
export const stream = (target, onOpen) => async (asked, ask, response) => {
  const answer = await open(asked, target);
  response.writeHead(answer.statusCode, answer.headers);
  onOpen();
  answer.on('error', () => response.destroy()).pipe(response).on('close', () => answer.destroy());
};
export const problem = (status, slug, headers = {}, more = {}) => async (asked, ask, response) => {
  const document =
    {type: `/problems/${slug}`, title: slug, status, detail: 'a fault of the test', request_id: 'test', ...more};
  response.writeHead(status, {'content-type': 'application/problem+json', ...headers}).end(JSON.stringify(document));
};
/** The gateway executes the request, and the connection breaks before its answer. */
export const loseAnswer = async (asked, ask, response) => {
  await ask();
  response.destroy();
};
/** `change` returns the JSON of the answer as the caller gets it. */
export const changeAnswer = change => async (asked, ask, response) => {
  const answer = await ask();
  const {status = answer.status, body} = change(JSON.parse(answer.body), answer.status);
  const {'content-length': _, ...headers} = answer.headers;
  const added = {'content-type': status < 300 ? 'application/json' : 'application/problem+json',
    ...(status === 503 && {'retry-after': '1'})};
  response.writeHead(status, {...headers, ...added}).end(JSON.stringify(body));
};

/**
 * Opens a proxy before `target`, on a free port if `port` is 0. `requests` has every request;
 * `rule(asked)` returns the fault of a request, or nothing.
 */
export async function openFront(target, rule = () => undefined, port = 0) {
  const front = {requests: [], rule};
  const server = createServer(async (incoming, response) => {
    const asked = {method: incoming.method, path: incoming.url, headers: incoming.headers, at: performance.now()};
    asked.body = await read(incoming);
    asked.json = asked.body.length ? JSON.parse(asked.body) : undefined;
    const watches = asked.headers.accept === 'text/event-stream' && asked.path.startsWith('/v1/leases/');
    if (watches) return stream(target, () => undefined)(asked, undefined, response).catch(() => response.destroy());
    asked.number = front.requests.push(asked);
    try {
      await (front.rule(asked) ?? forward)(asked, () => send(asked, target), response);
    } catch {
      response.destroy();
    }
  });
  await new Promise(resolve => { server.listen(port, '127.0.0.1', resolve); });
  front.url = `http://127.0.0.1:${server.address().port}`;
  front.cut = () => server.closeAllConnections();
  front.close = () => {
    front.cut();
    server.close();
  };
  return front;
}

/** Runs work with a proxy before `target`. */
export async function withFront(target, rule, work, port) {
  const front = await openFront(target, rule, port);
  try {
    return await work(front);
  } finally {
    front.close();
  }
}

/** A rule that applies faults to the first requests, in this order. */
export const first = (...faults) => asked => faults[asked.number - 1];
