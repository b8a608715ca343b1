// Entering the resources of a lease in a transaction that the caller runs with pg.

import type {LeaseMode} from './lease.js';

/** What enter needs of a client of pg: Client and PoolClient have it. A Pool is refused. */
export interface Queryable {
  query(text: string, values: unknown[]): Promise<unknown>;
}

/** What enter needs of a lease; a Lease has it. */
export interface Enterable {
  readonly leaseId: string;
  readonly fencingToken: number;
  readonly resources: readonly string[];
  readonly mode?: LeaseMode;
  readonly shared?: readonly string[];
  check?(): void;
}

/**
 * Opens the resources of a lease, all or none, for the transaction that the caller has begun on `client`:
 * from then on it may change their rows, and nobody with an older token may.
 * What the lease shares beside them is entered as by enterShared.
 * Read what a change depends on after it: what was read before, although the lease was held, may be older than the last
 * change of the holder before, for whose transaction it waits.
 * Throws the reason if the lease is lost, and a TypeError if it only shares its resources;
 * rejects with the error of pg, whose code is FG412 if PostgreSQL has seen a newer token.
 * `proof` shows the lease_id to the database, which checks it; needed after `fencegate migrate --require-proof`.
 */
export async function enter(client: Queryable, lease: Enterable,
    {proof = false}: {proof?: boolean} = {}): Promise<void> {
  if ('totalCount' in client)
    throw new TypeError('client: is a pool, which may use several connections; give what its connect() returns');
  if (lease.mode === 'shared') throw new TypeError('lease: it only shares its resources; call enterShared to read');
  lease.check?.();
  // First what is shared, as gateways do: another order could deadlock.
  if (lease.shared?.length) await enterShared(client, lease, {proof});
  await client.query('select fencing.enter($1::text[], $2::bigint, $3::text)',
    [lease.resources, lease.fencingToken, proof ? lease.leaseId : null]);
}

/**
 * Lets the transaction that the caller has begun on `client` read what a lease shares: what it reads from then on,
 * no older holder can overwrite any more. Errors: those of enter.
 */
export async function enterShared(client: Queryable, lease: Enterable,
    {proof = false}: {proof?: boolean} = {}): Promise<void> {
  lease.check?.();
  await client.query('select fencing.enter_shared(name, $2::bigint, $3::text) from unnest($1::text[]) as name ' +
    'order by name collate "C"',
    [lease.mode === 'shared' ? lease.resources : lease.shared ?? [], lease.fencingToken,
      proof ? lease.leaseId : null]);
}
