-- The storage generation: the system identifier and the timeline of the primary under which the fences were last known
-- to be whole (none lower than it had been), and the floor, below which every token is refused.
-- After a promotion, a restore or the load of a dump the last moments may be lost: the fences may be lower
-- than they were. 065_generation_change.sql has what gateways do then.

create table if not exists fencing.storage_generation (
  singleton                 boolean primary key default true check (singleton),
  system_identifier         bigint,
  timeline                  bigint,
  floor                     bigint not null default 0 check (floor >= 0 and floor % 4294967296 = 0
      and floor < 9007199254740992),
  changed_at                timestamptz not null default clock_timestamp(),
  reason                    text,
  last_system_identifier    bigint,
  last_timeline             bigint,
  pending_id                uuid,
  pending_epoch             bigint check (pending_epoch > 0 and pending_epoch < 2097152),
  pending_system_identifier bigint,
  pending_timeline          bigint,
  constraint storage_generation_is_known_or_unknown check ((system_identifier is null) = (timeline is null)),
  constraint storage_generation_pending_is_complete check (num_nulls(pending_id, pending_epoch,
        pending_system_identifier, pending_timeline) in (0, 4))
);
comment on table fencing.storage_generation is
  'One row: under which primary the fences were last known to be whole, the floor, and the change of generation '
  'that gateways have begun. A table of its own, because draws of epochs update the row of cluster. Granted to no one.';
comment on column fencing.storage_generation.singleton is 'Keeps the table at one row.';
comment on column fencing.storage_generation.system_identifier is
  'The system identifier of that primary (pg_control_system); null: unknown, so nothing is let in.';
comment on column fencing.storage_generation.timeline is 'Its timeline; null with system_identifier.';
comment on column fencing.storage_generation.floor is
  'Every token below it is refused, whatever the resource. An epoch * 2^32, which no granted token equals; '
  '0: there was no change of generation. Never decreases.';
comment on column fencing.storage_generation.changed_at is
  'When system_identifier and timeline were last set, also to null.';
comment on column fencing.storage_generation.reason is
  'Why the pair was set to null: what the operator gave to fence_all, '
  'or that the system identifier differs; null otherwise.';
comment on column fencing.storage_generation.last_system_identifier is
  'The system identifier before the pair was set to null, for the history; null otherwise.';
comment on column fencing.storage_generation.last_timeline is 'The timeline before the pair was set to null.';
comment on column fencing.storage_generation.pending_id is 'The change that was begun and is not finished; null: none.';
comment on column fencing.storage_generation.pending_epoch is 'The epoch of the floor that it will set.';
comment on column fencing.storage_generation.pending_system_identifier is
  'The primary for which it was begun: it cannot be finished on another.';
comment on column fencing.storage_generation.pending_timeline is 'The timeline for which it was begun.';

create or replace function fencing.live_timeline() returns bigint
language sql volatile
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when pg_catalog.pg_is_in_recovery() then null
              else ('x' operator(pg_catalog.||) pg_catalog.left(pg_catalog.pg_walfile_name(
                    pg_catalog.pg_current_wal_insert_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int8 end;
$$;
comment on function fencing.live_timeline() is
  'The timeline in which this server writes now, also in a session that was opened before the promotion; '
  'null on a standby. Locks: none.';

-- In a new installation no fence can be missing.
insert into fencing.storage_generation (system_identifier, timeline)
select c.system_identifier, fencing.live_timeline() from pg_catalog.pg_control_system() c
on conflict do nothing;

create or replace function fencing.refuse_storage_generation(live bigint, stored bigint, resource text,
    fencing_token bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if resource is not null then
    perform fencing.record_refusal(jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'detail',
      fencing.session_origin() || '{"sqlstate": "FG503", "cause": "storage-generation-changed"}'));
  end if;
  raise exception using errcode = 'FG503',
    message = case when stored is null then 'the storage generation is unknown: the fences may not be whole'
                   else format('the storage generation changed: the fences were last known to be whole on timeline %s, '
                       'this is timeline %s', stored, live) end,
    detail = jsonb_build_object('cause', 'storage-generation-changed', 'timeline', live,
        'stored_timeline', stored)::text,
    hint = 'A running gateway changes the generation as soon as it reaches a majority of the nodes. '
      'Nothing was changed; repeat.';
end
$$;
comment on function fencing.refuse_storage_generation(bigint, bigint, text, bigint) is
  'Raises FG503; a refusal of direct SQL, which names a resource, is recorded before. DETAIL is JSON: cause, timeline, '
  'stored_timeline. Locks: none.';

create or replace function fencing.storage_floor(resource text default null, fencing_token bigint default null)
  returns bigint
language plpgsql
as $$
  -- No search_path of its own, which would cost every write 1.5 us; therefore every name is qualified,
  -- and it is granted to no one.
#variable_conflict use_variable
declare
  is_current boolean;
  stored bigint;
  lowest bigint;
begin
  -- Before the row is read: fence_all, which waits for this lock, has committed or waits for this transaction.
  -- Does not wait for pg_dump, and pg_dump not for it.
  lock table fencing.storage_generation in row share mode;
  if pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.~~) 'read %' then
    select s.timeline operator(pg_catalog.=) fencing.live_timeline(), s.timeline, s.floor
      into is_current, stored, lowest
      from fencing.storage_generation s;
  else  -- the snapshot may be older than the row: 40001
    select s.timeline operator(pg_catalog.=) fencing.live_timeline(), s.timeline, s.floor
      into is_current, stored, lowest
      from fencing.storage_generation s for share;
  end if;
  if is_current then
    return lowest;
  elsif pg_catalog.pg_is_in_recovery() then  -- a standby, whose transactions PostgreSQL refuses with 25006
    return coalesce(lowest, 0);
  end if;
  perform fencing.refuse_storage_generation(fencing.live_timeline(), stored, resource, fencing_token);
end
$$;
comment on function fencing.storage_floor(text, bigint) is
  'The floor, for functions that let a token in or draw an epoch; they call it once, before anything else that locks. '
  'The arguments are for the record of the refusal of direct SQL. '
  'SQLSTATE FG503: the storage generation changed or is unknown; '
  '40001: it changed after the snapshot of a transaction above read committed. '
  'Locks until the end of the transaction: storage_generation row share; above read committed also its row, for share.';
