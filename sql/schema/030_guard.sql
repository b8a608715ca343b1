-- The guard: one row a resource. Locking this row is what puts the writers of one resource in order.

create table if not exists fencing.guard (
  resource            fencing.resource_name not null,
  last_fencing_token  bigint not null,
  found_fencing_token bigint not null default 0,
  entered_xid         xid8,
  entered_at          timestamptz,
  entered_for         text not null default '',
  constraint guard_pkey primary key (resource)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

comment on table fencing.guard is
  'One row a resource: the fence, and which transaction has the resource open. Written only by functions of this schema; '
  'there is no second index, so that raising a fence stays a heap-only update.';
comment on column fencing.guard.resource is 'The name of the thing protected, inventory/sku-1; compared by bytes.';
comment on column fencing.guard.last_fencing_token is
  'The fence: the highest token seen, 0 where none was. 2^53 shuts out every token. It goes down by repair_fence alone.';
comment on column fencing.guard.found_fencing_token is 'The fence that the transaction which entered last found.';
comment on column fencing.guard.entered_xid is
  'The transaction that entered last. The resource is open for that transaction and no other; a savepoint rolled back takes this value back with it.';
comment on column fencing.guard.entered_at is
  'That transaction''s timestamp. Compared together with entered_xid, so that a dump restored into a cluster whose transaction numbers start again opens nothing.';
comment on column fencing.guard.entered_for is
  'The write for which it was entered, empty for a caller of enter(). Keeps the writes of one batch out of each other''s resources.';

create or replace function fencing.fence(resource text) returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select g.last_fencing_token from fencing.guard g where g.resource = $1), 0);
$$;
comment on function fencing.fence(text) is
  'The fence of a resource: the highest token that this database has seen for it, 0 where none was seen. Waits for nobody; what it says may be '
  'old by the time it is read: only enter() keeps it. Locks: none.';
