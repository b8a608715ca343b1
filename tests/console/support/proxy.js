// A reverse proxy before the gateway of a stack, to break connections.
// The console is opened at its address instead of the gateway's.

import {createServer, request} from 'node:http';

export class Proxy {
  constructor(stack) {
    this.stack = stack;
    this.refuse = () => false; // (request) → whether its connection is closed without an answer
    this.truncate = () => false; // (request) → whether its answer breaks off after some bytes
    this.server = createServer((incoming, answer) => this.#forward(incoming, answer));
  }

  async start() {
    await new Promise(resolve => { this.server.listen(0, '127.0.0.1', resolve); });
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  key(name) { return this.stack.key(name); }

  closeConnections() { this.server.closeAllConnections(); }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }

  #forward(incoming, answer) {
    if (this.refuse(incoming)) return incoming.socket.destroy();
    const {method, url, headers} = incoming;
    const outgoing =
        request(this.stack.url + url, {method, headers: {...headers, host: new URL(this.stack.url).host}}, received => {
      answer.writeHead(received.statusCode, received.headers);
      answer.flushHeaders();
      if (this.truncate(incoming))
        received.once('data', data => answer.write(data.subarray(0, 10), () => answer.destroy()));
      else received.pipe(answer);
    });
    outgoing.on('error', () => answer.destroy());
    answer.on('close', () => outgoing.destroy());
    incoming.pipe(outgoing);
  }
}
