// Starts a stack (`fencegate dev --auth`), which serves the console, and calls its HTTP API for the tests.

import {spawn} from 'node:child_process';
import {createHash, randomBytes} from 'node:crypto';
import {appendFileSync, chmodSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync} from 'node:fs';
import {connect} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
export const sleep = ms => new Promise(resolve => { setTimeout(resolve, ms); });

/** Calls `check` until it returns a true value, and returns that. Throws an error with `description` after `ms`. */
export async function eventually(check, description, ms = 15_000) {
  const end = Date.now() + ms;
  let lastError = '';
  while (Date.now() < end) {
    try {
      const value = await check();
      if (value) return value;
    } catch (fault) {
      lastError = `: ${fault.message}`;
    }
    await sleep(50);
  }
  throw new Error(`not within ${ms} ms: ${description}${lastError}`);
}

export class Stack {
  async start() {
    // The path is short, because a socket's path has at most 107 bytes.
    // All users may enter, because PostgreSQL may run as another user.
    this.folder = mkdtempSync(join(tmpdir(), 'fg-'));
    chmodSync(this.folder, 0o755);
    const log = openSync(join(this.folder, 'dev.log'), 'a');
    const program = process.env.FENCEGATE_BINARY ?? join(ROOT, 'build/release/fencegate');
    this.process = spawn(program, ['dev', '--auth', '--data-dir', join(this.folder, 'data'), '--http', '127.0.0.1:0'],
      {stdio: ['ignore', log, log]});
    process.once('exit', () => this.process.kill());
    const stackFile = join(this.folder, 'data/stack.json');
    try {
      await eventually(() => {
        if (this.process.exitCode !== null) throw new Error(`fencegate dev ended with ${this.process.exitCode}`);
        return existsSync(stackFile);
      }, 'the stack is up', 60_000);
      this.readStackFile();
      await eventually(async () => (await this.nodes()).every(node => node.state === 'voting'),
        'every node votes', 30_000);
    } catch (fault) {
      process.stderr.write(readFileSync(join(this.folder, 'dev.log')));
      throw fault;
    }
  }

  readStackFile() {
    this.stackFile = JSON.parse(readFileSync(join(this.folder, 'data/stack.json')));
    return this.stackFile;
  }

  get url() { return this.stackFile.http; }
  key(name = 'admin') { return this.stackFile.api_keys[name]; }

  /**
   * Adds an API key with these rights, in YAML, to the configuration of the gateway,
   * and returns it once the gateway accepts it.
   */
  async addKey(principal, rights) {
    const key = randomBytes(24).toString('hex');
    const hash = createHash('sha256').update(key).digest('hex');
    appendFileSync(join(this.folder, 'data/gateway-1.yaml'),
      `    - {principal: ${principal}, key_sha256: "${hash}", ${rights}}\n`);
    process.kill(this.readStackFile().gateways[0].pid, 'SIGHUP');
    const isAccepted = async () =>
      (await fetch(`${this.url}/v1/leases?limit=1`, {headers: {Authorization: `Bearer ${key}`}})).status === 200;
    await eventually(isAccepted, `the gateway accepts the key of ${principal}`);
    return key;
  }

  async stop() {
    const ended = new Promise(resolve => { this.process.once('exit', resolve); });
    this.process.kill();
    await ended;
    rmSync(this.folder, {recursive: true, force: true});
  }

  async call(method, path, body, as = 'admin') {
    const answer = await fetch(this.url + path, {method,
      headers: {Authorization: `Bearer ${this.key(as)}`, ...(body ? {'Content-Type': 'application/json'} : {})},
      body: body && JSON.stringify(body)});
    const text = await answer.text();
    return {status: answer.status, body: text ? JSON.parse(text) : null};
  }

  /** Repeats the call for 10 s while the gateway answers 503: on a busy machine too few nodes may answer in time. */
  async #ok(method, path, body, as) {
    const end = Date.now() + 10_000;
    let answer = await this.call(method, path, body, as);
    while (answer.status === 503 && Date.now() < end) {
      await sleep(50);
      answer = await this.call(method, path, body, as);
      if (answer.status === 410 && method === 'DELETE') return null; // the attempt before has released the lease
    }
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  acquire(resource,
    {as, ...more} = {}) { return this.#ok('POST', '/v1/leases', {resource, ttl_ms: 60_000, ...more}, as); }
  release(lease, as) { return this.#ok('DELETE', `/v1/leases/${encodeURIComponent(lease.lease_id)}`, undefined, as); }
  async history(query) { return (await this.#ok('GET', `/v1/history?${new URLSearchParams(query)}`)).items; }
  async nodes() { return (await this.#ok('GET', '/v1/nodes')).nodes; }

  /** Writes with a lease; returns the status. */
  async write(lease, sku, as) {
    return (await this.call('POST', '/v1/writes',
      {lease_id: lease.lease_id, operations: [{update: 'inventory', where: {sku}, set: {note: 'sold'}}]}, as)).status;
  }

  /** Renews a lease until the function that it returns is called. */
  keepRenewing(lease, as) {
    const renewing = setInterval(() => this.call('POST', `/v1/leases/${encodeURIComponent(lease.lease_id)}/renew`,
      {ttl_ms: 60_000}, as), 20_000);
    return () => clearInterval(renewing);
  }

  /** Keeps a request in the queue of a resource until the function that it returns is called. */
  waitInQueue(resource, owner) {
    const cancelled = new AbortController();
    const requestRepeatedly = async () => {
      while (!cancelled.signal.aborted) {
        await fetch(`${this.url}/v1/leases`, {method: 'POST', signal: cancelled.signal,
          headers: {Authorization: `Bearer ${this.key()}`, 'Content-Type': 'application/json'},
          body: JSON.stringify({resource, owner, ttl_ms: 1000, wait_ms: 30_000})});
      }
    };
    requestRepeatedly().catch(() => {});
    return () => cancelled.abort();
  }

  /** Sends a command to a node. */
  async command(index, line) {
    const {host, port} = this.readStackFile().redis[index];
    const redis = connect(port, host);
    redis.end(`${line}\r\n`);
    await new Promise((resolve, reject) => redis.once('error', reject).once('close', resolve).resume());
  }

  /**
   * Deletes the data of a node, so that it is quarantined for more than `ms`, unless it is already.
   * Its memory is full, so that it can't get the other nodes' leases and vote again at once.
   */
  async quarantine(index, ms = 10_000) {
    const isQuarantined = async () => (await this.nodes())[index].quarantine_left_ms > ms;
    await eventually(async () => {
      if (await isQuarantined()) return true;
      await this.command(index, 'CONFIG SET maxmemory 0');
      await this.command(index, 'FLUSHALL');
      await eventually(isQuarantined, `node ${index} is quarantined`);
      await this.command(index, 'CONFIG SET maxmemory 1');
      await sleep(1_500); // A copy that had begun before has ended.
      return isQuarantined();
    }, `node ${index} stays in quarantine`, 30_000);
  }
}
