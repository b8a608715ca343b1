-- The guard: one row for each resource. Its row lock orders the writers of a resource.

-- Where the table was dropped, no fence is known any more: nothing is let in until a gateway has set the floor,
-- as after fence_all().
do $$
begin
  if to_regclass('fencing.guard') is null
      and exists (select from fencing.schema_version v where v.applied_at < now()) then
    update fencing.storage_generation s
       set system_identifier = null, timeline = null, changed_at = clock_timestamp(),
         reason = 'the table fencing.guard was missing',
           last_system_identifier = s.system_identifier, last_timeline = s.timeline
     where s.system_identifier is not null;
  end if;
end
$$;

create table if not exists fencing.guard (
  resource            fencing.resource_name not null,
  last_fencing_token  bigint not null,
  found_fencing_token bigint not null default 0,
  entered_xid         xid8,
  entered_at          timestamptz,
  entered_for         text not null default '',
  entered_token       bigint,
  entered_write       uuid,
  entered_by          text,
  last_read_token     bigint not null default 0,
  constraint guard_pkey primary key (resource)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

comment on table fencing.guard is
  'One row for each resource: the fence, and which transaction has the resource open. '
  'Written only by functions of this schema. '
  'It has no second index, so that raising a fence is a heap-only update.';
comment on column fencing.guard.resource is 'The name of the thing protected, inventory/sku-1; compared by bytes.';
comment on column fencing.guard.last_fencing_token is
  'The highest token of enter, of guarded writes, of reads under exclusive leases and of seals; 0: none. The fence '
  'is this, last_read_token or the floor (storage_generation), whichever is the highest. '
  'At 2^53 it refuses every token. Only repair_fence lowers it.';
comment on column fencing.guard.found_fencing_token is 'The fence before the resource was last entered.';
comment on column fencing.guard.entered_xid is
  'The transaction that entered last. The resource is open for that transaction alone; '
  'a rollback to a savepoint restores the value before.';
comment on column fencing.guard.entered_at is
  'That transaction''s timestamp. Compared together with entered_xid, '
  'so that a dump restored into a cluster whose transaction ids start again opens nothing.';
comment on column fencing.guard.entered_for is
  'The write for which it was entered; empty for a caller of enter(). '
  'Keeps the writes of one batch from changing each other''s resources.';

comment on column fencing.guard.entered_token is
  'The token of the gateway''s write that entered it, which may be sealed already; null for a caller of enter().';
comment on column fencing.guard.entered_write is
  'That write, of several under one token the first; null for a caller of enter(). '
  'One statement may serve several writes, of which entered_for names one.';
comment on column fencing.guard.entered_by is 'The caller of that write; null for a caller of enter().';
comment on column fencing.guard.last_read_token is
  'The read fence: the highest token of enter_shared; 0: none. Only writes compare with it, '
  'and only repair_fence lowers it.';

create or replace function fencing.fence(resource text) returns bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return greatest((select greatest(g.last_fencing_token, g.last_read_token) from fencing.guard g
        where g.resource = fence.resource),
      (select s.floor from fencing.storage_generation s), 0);
end
$$;
comment on function fencing.fence(text) is
  'The fence of a resource: the highest token that this database has seen for it, or the floor (storage_generation) if '
  'that is higher; 0 where there is neither. A multiple of 2^32 is the floor. It does not wait for other transactions, '
  'so the fence may be higher by the time the result is used: only enter() locks it. Locks: none.';
