// The embedded stack (`fencegate dev --auth`) that the console is shown by, and its HTTP API as the tests use it.

import {spawn} from 'node:child_process';
import {chmodSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync} from 'node:fs';
import {connect} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
export const pause = ms => new Promise(resolve => { setTimeout(resolve, ms); });

/** What `found` gives, as soon as it gives something; an error that says `what` after `ms`. */
export async function eventually(found, what, ms = 15_000) {
  const end = Date.now() + ms;
  let last = '';
  while (Date.now() < end) {
    try {
      const value = await found();
      if (value) return value;
    } catch (fault) {
      last = `: ${fault.message}`;
    }
    await pause(50);
  }
  throw new Error(`not within ${ms} ms: ${what}${last}`);
}

export class Stack {
  async start() {
    // Short, because a socket's path may have 107 bytes, and open to all, because PostgreSQL may run as another user.
    this.folder = mkdtempSync(join(tmpdir(), 'fg-'));
    chmodSync(this.folder, 0o755);
    const log = openSync(join(this.folder, 'dev.log'), 'a');
    const program = process.env.FENCEGATE_BINARY ?? join(ROOT, 'build/release/fencegate');
    this.process = spawn(program, ['dev', '--auth', '--data-dir', join(this.folder, 'data'), '--http', '127.0.0.1:0'], {stdio: ['ignore', log, log]});
    process.once('exit', () => this.process.kill());
    const facts = join(this.folder, 'data/stack.json');
    try {
      await eventually(() => {
        if (this.process.exitCode !== null) throw new Error(`fencegate dev ended with ${this.process.exitCode}`);
        return existsSync(facts);
      }, 'the stack is up', 60_000);
      this.read();
      await eventually(async () => (await this.nodes()).every(node => node.state === 'voting'), 'every node votes', 30_000);
    } catch (fault) {
      process.stderr.write(readFileSync(join(this.folder, 'dev.log')));
      throw fault;
    }
  }

  read() {
    this.facts = JSON.parse(readFileSync(join(this.folder, 'data/stack.json')));
    return this.facts;
  }

  get url() { return this.facts.http; }
  key(name = 'admin') { return this.facts.api_keys[name]; }

  async stop() {
    const ended = new Promise(resolve => { this.process.once('exit', resolve); });
    this.process.kill();
    await ended;
    rmSync(this.folder, {recursive: true, force: true});
  }

  async call(method, path, body, as = 'admin') {
    const answer = await fetch(this.url + path, {method, headers: {Authorization: `Bearer ${this.key(as)}`, ...(body ? {'Content-Type': 'application/json'} : {})},
      body: body && JSON.stringify(body)});
    const text = await answer.text();
    return {status: answer.status, body: text ? JSON.parse(text) : null};
  }

  async #ok(method, path, body, as) {
    const answer = await this.call(method, path, body, as);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  take(resource, {as, ...more} = {}) { return this.#ok('POST', '/v1/leases', {resource, ttl_ms: 60_000, ...more}, as); }
  release(lease, as) { return this.#ok('DELETE', `/v1/leases/${encodeURIComponent(lease.lease_id)}`, undefined, as); }
  async history(query) { return (await this.#ok('GET', `/v1/history?${new URLSearchParams(query)}`)).items; }
  async nodes() { return (await this.#ok('GET', '/v1/nodes')).nodes; }

  /** A write under a lease; gives the status. */
  async write(lease, sku, as) {
    return (await this.call('POST', '/v1/writes', {lease_id: lease.lease_id, operations: [{update: 'inventory', where: {sku}, set: {note: 'sold'}}]}, as)).status;
  }

  /** Renews a lease until the function is called that this gives. */
  keep(lease, as) {
    const renewing = setInterval(() => this.call('POST', `/v1/leases/${encodeURIComponent(lease.lease_id)}/renew`, {ttl_ms: 60_000}, as), 20_000);
    return () => clearInterval(renewing);
  }

  /** Somebody who waits in the queue, again and again, until the function is called that this gives. */
  wait(resource, owner) {
    const gone = new AbortController();
    const again = async () => {
      while (!gone.signal.aborted) {
        await fetch(`${this.url}/v1/leases`, {method: 'POST', signal: gone.signal, headers: {Authorization: `Bearer ${this.key()}`, 'Content-Type': 'application/json'},
          body: JSON.stringify({resource, owner, ttl_ms: 1000, wait_ms: 30_000})});
      }
    };
    again().catch(() => {});
    return () => gone.abort();
  }

  /** A node that has lost its data sits out for as long as a lease may last; more than `ms` of it are to come. */
  async quarantine(index, ms = 10_000) {
    if ((await this.nodes())[index].quarantine_left_ms > ms) return;
    const {host, port} = this.read().redis[index];
    const redis = connect(port, host);
    redis.end('FLUSHALL\r\n');
    await new Promise((resolve, reject) => redis.once('error', reject).once('close', resolve).resume());
    await eventually(async () => (await this.nodes())[index].quarantine_left_ms > ms, `node ${index} is quarantined`, 20_000);
  }
}
