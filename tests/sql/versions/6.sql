-- The schema as version 6 made it, file by file: what an upgrade begins with. Never changed.

-- 010_roles.sql
-- The roles. They belong to the whole database cluster, everything else to this database: a role that exists already is used as it is.

do $$
declare
  wanted text;
begin
  foreach wanted in array array['fencing_gateway', 'fencing_writer', 'fencing_auditor', 'fencing_recorder'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      begin
        execute format('create role %I nologin', wanted);
      exception when duplicate_object or unique_violation then
        null;  -- an installation in another database has created it meanwhile
      end;
    end if;
  end loop;
end
$$;

-- Comments on roles need the right to create roles, which a role that repeats the installation may have lost.
do $$
begin
  comment on role fencing_gateway is
    'fencegate''s gateways: writes through begin_write, reads guard, history, cluster, node and api_catalog, and what is exposed';
  comment on role fencing_writer is
    'applications that write with their own connection: may call fencing.enter and fencing.fence';
  comment on role fencing_auditor is
    'reads history, guard and cluster; changes nothing';
  comment on role fencing_recorder is
    'adds refusals of direct SQL to the history, by fencing.append_refusal, and can do nothing else';
exception when insufficient_privilege then
  raise notice 'fencing: the comments on the roles were left as they are';
end
$$;

-- 020_schema.sql
-- The schema, its version, its settings, and the checks of resources and tokens that all other files use.

do $$
begin
  if pg_catalog.to_regnamespace('fencing') is null then
    create schema fencing;
  end if;
exception when unique_violation or duplicate_schema then
  null;  -- another installation in this new database created it and committed
end
$$;
comment on schema fencing is
  'The guard of fencegate: a write whose fencing token is lower than the fence is refused. Nothing here is granted to public.';

create table if not exists fencing.schema_version (
  version    integer primary key check (version > 0),
  applied_at timestamptz not null default clock_timestamp()
);
comment on table fencing.schema_version is 'The versions of this schema that were applied; migrations/ has what each needed beyond the schema files.';
comment on column fencing.schema_version.version is 'From 1 on; a migration''s file name begins with it.';
comment on column fencing.schema_version.applied_at is 'When it was applied.';
lock table fencing.schema_version in share update exclusive mode;  -- one installation at a time, also of a new database
insert into fencing.schema_version (version) values (1), (2), (3), (4), (5), (6) on conflict do nothing;

create or replace function fencing.schema_version() returns integer
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select max(version) from fencing.schema_version;
$$;
comment on function fencing.schema_version() is
  'The newest version applied, so that a gateway can refuse a database that is older than itself. Locks: none.';

create table if not exists fencing.settings (
  key   text primary key check (key in ('require_proof', 'history_keep_days_min')),
  value text not null,
  constraint settings_require_proof_is_on_or_off check (key <> 'require_proof' or value in ('on', 'off')),
  constraint settings_history_keep_days_min_is_days check (key <> 'history_keep_days_min' or value ~ '^[1-9][0-9]{0,4}$')
);
comment on table fencing.settings is 'Settings of the operator; no role is granted anything on it.';
comment on column fencing.settings.key is 'require_proof: whether enter() requires a proof. history_keep_days_min: how long gateways have to keep the history.';
comment on column fencing.settings.value is 'For require_proof: on or off. For history_keep_days_min: days, 1 to 99999.';

create or replace function fencing.is_resource(resource text) returns boolean
language sql immutable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select resource is not null
     and pg_catalog.octet_length(resource) operator(pg_catalog.<=) 200
     and resource collate pg_catalog."C" operator(pg_catalog.~) '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$';
$$;
comment on function fencing.is_resource(text) is
  'Whether this is the name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment. Locks: none.';

create or replace function fencing.bound_text(value text, max_length integer) returns text
language sql immutable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when pg_catalog.octet_length(value) operator(pg_catalog.<=) max_length then value
              else pg_catalog.left(value, max_length) operator(pg_catalog.||) '... (' operator(pg_catalog.||) pg_catalog.octet_length(value)::text operator(pg_catalog.||) ' bytes)' end;
$$;
comment on function fencing.bound_text(text, integer) is
  'The text; where it has more bytes than max_length, its first characters and its length in bytes. Nothing that a caller sends is stored without a limit. Locks: none.';

create or replace function fencing.bound_detail(detail jsonb) returns jsonb
language sql immutable parallel safe
as $$  -- as above
  select case when pg_catalog.pg_column_size(detail) operator(pg_catalog.>) 65536 then pg_catalog.jsonb_build_object('left_out_bytes', pg_catalog.pg_column_size(detail))
              else detail end;
$$;
comment on function fencing.bound_detail(jsonb) is 'The detail of an event; where it has more than 64 KiB, left_out_bytes (its size) in its place. Locks: none.';

create or replace function fencing.revoke_from_others(kind text, object text, acl aclitem[], owner oid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  grantee text;
begin
  for grantee in
    select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end from aclexplode(acl) a where a.grantee <> owner
  loop
    execute format('revoke all on %s %s from %s cascade', kind, object, grantee);
  end loop;
end
$$;
comment on function fencing.revoke_from_others(text, text, aclitem[], oid) is
  'Revokes every privilege on a new object from all but the owner: default privileges may have granted some. Locks: none.';

-- Resources and event types are domains instead of check constraints of tables: a domain's check is compiled once a session, a table's once a statement,
-- which would cost every write about 10 us.
do $$
begin
  if to_regtype('fencing.resource_name') is null then
    create domain fencing.resource_name as text collate "C"
      constraint resource_name check (octet_length(value) <= 200 and value ~ '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$');
  end if;
  if to_regtype('fencing.event_type') is null then
    create domain fencing.event_type as text;
  end if;
  if not exists (select from pg_catalog.pg_constraint k where k.contypid = 'fencing.event_type'::regtype and pg_catalog.strpos(pg_catalog.pg_get_constraintdef(k.oid), 'storage_generation_changed') > 0) then
    -- Not valid: the check counts for new rows, and the history is not read and locked for it.
    alter domain fencing.event_type drop constraint if exists event_type;
    alter domain fencing.event_type add constraint event_type check (value in (
      'lease_granted', 'lease_renewed', 'lease_released', 'lease_expired', 'lease_refused', 'lease_revoked', 'fence_raised',
      'write_applied', 'write_rejected', 'write_failed', 'node_quarantined', 'node_readmitted', 'epoch_raised',
      'request_denied', 'guard_changed', 'storage_generation_changed')) not valid;
  end if;
end
$$;
comment on domain fencing.resource_name is 'The name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment; compared by bytes.';
comment on domain fencing.event_type is 'The events of the HTTP contract.';

create or replace function fencing.validate_fence_arguments(resources text[], fencing_token bigint) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  name text;
begin
  if fencing_token is null or fencing_token not between 1 and 9007199254740991 then
    raise exception using errcode = '22023',
      message = format('a fencing token is an integer from 1 to 2^53 - 1, not %s', coalesce(fencing_token::text, 'null'));
  end if;
  if resources is null or cardinality(resources) = 0 then
    raise exception using errcode = '22023', message = 'no resource is named';
  end if;
  foreach name in array resources loop
    if not fencing.is_resource(name) then
      raise exception using errcode = '22023',
        message = format('not the name of a resource: %s', coalesce(quote_literal(left(name, 200)), 'null')),
        hint = '1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment.';
    end if;
  end loop;
end
$$;
comment on function fencing.validate_fence_arguments(text[], bigint) is
  'Raises 22023 unless every name is a resource and the token is from 1 to 2^53 - 1. Locks: none.';

-- 025_storage_generation.sql
-- The storage generation: the system identifier and the timeline of the primary under which the fences were last known to be whole, and the floor, below which every token is refused.
-- After a promotion, a restore or the load of a dump the last moments may be lost: the fences may be lower than they were. 065_generation_change.sql has what gateways do then.

create table if not exists fencing.storage_generation (
  singleton                 boolean primary key default true check (singleton),
  system_identifier         bigint,
  timeline                  bigint,
  floor                     bigint not null default 0 check (floor >= 0 and floor % 4294967296 = 0 and floor < 9007199254740992),
  changed_at                timestamptz not null default clock_timestamp(),
  reason                    text,
  last_system_identifier    bigint,
  last_timeline             bigint,
  pending_id                uuid,
  pending_epoch             bigint check (pending_epoch > 0 and pending_epoch < 2097152),
  pending_system_identifier bigint,
  pending_timeline          bigint,
  constraint storage_generation_is_known_or_unknown check ((system_identifier is null) = (timeline is null)),
  constraint storage_generation_pending_is_complete check (num_nulls(pending_id, pending_epoch, pending_system_identifier, pending_timeline) in (0, 4))
);
comment on table fencing.storage_generation is
  'One row: under which primary the fences were last known to be whole, the floor, and the change of generation that gateways have begun. A table of its own, because draws of epochs update the row of cluster. Granted to no one.';
comment on column fencing.storage_generation.singleton is 'Keeps the table at one row.';
comment on column fencing.storage_generation.system_identifier is 'The system identifier of that primary (pg_control_system); null: unknown, so nothing is let in.';
comment on column fencing.storage_generation.timeline is 'Its timeline; null with system_identifier.';
comment on column fencing.storage_generation.floor is 'Every token below it is refused, whatever the resource. An epoch * 2^32, which no granted token equals; 0: there was no change of generation. Never decreases.';
comment on column fencing.storage_generation.changed_at is 'When system_identifier and timeline were last set, also to null.';
comment on column fencing.storage_generation.reason is 'Why the pair was set to null: what the operator gave to fence_all, or that the system identifier differs; null otherwise.';
comment on column fencing.storage_generation.last_system_identifier is 'The system identifier before the pair was set to null, for the history; null otherwise.';
comment on column fencing.storage_generation.last_timeline is 'The timeline before the pair was set to null.';
comment on column fencing.storage_generation.pending_id is 'The change that was begun and is not finished; null: none.';
comment on column fencing.storage_generation.pending_epoch is 'The epoch of the floor that it will set.';
comment on column fencing.storage_generation.pending_system_identifier is 'The primary for which it was begun: it cannot be finished on another.';
comment on column fencing.storage_generation.pending_timeline is 'The timeline for which it was begun.';

create or replace function fencing.live_timeline() returns bigint
language sql volatile
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when pg_catalog.pg_is_in_recovery() then null
              else ('x' operator(pg_catalog.||) pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int8 end;
$$;
comment on function fencing.live_timeline() is
  'The timeline in which this server writes now, also in a session that was opened before the promotion; null on a standby. Locks: none.';

-- The installing operator vouches for the data: the fences of a new installation, or of an upgrade, count as whole.
insert into fencing.storage_generation (system_identifier, timeline)
select c.system_identifier, fencing.live_timeline() from pg_catalog.pg_control_system() c
on conflict do nothing;

create or replace function fencing.refuse_storage_generation(live bigint, stored bigint, resource text, fencing_token bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if resource is not null then
    perform fencing.record_refusal(jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'detail',
      jsonb_build_object('sqlstate', 'FG503', 'cause', 'storage-generation-changed', 'application_name', current_setting('application_name', true))));
  end if;
  raise exception using errcode = 'FG503',
    message = case when stored is null then 'the storage generation is unknown: the fences may not be whole'
                   else format('the storage generation changed: the fences were last known to be whole on timeline %s, this is timeline %s', stored, live) end,
    detail = jsonb_build_object('cause', 'storage-generation-changed', 'timeline', live, 'stored_timeline', stored)::text,
    hint = 'A running gateway changes the generation as soon as it reaches a majority of the nodes. Nothing was changed; repeat.';
end
$$;
comment on function fencing.refuse_storage_generation(bigint, bigint, text, bigint) is
  'Raises FG503; a refusal of direct SQL, which names a resource, is recorded before. DETAIL is JSON: cause, timeline, stored_timeline. Locks: none.';

create or replace function fencing.storage_floor(resource text default null, fencing_token bigint default null) returns bigint
language plpgsql
as $$  -- no search_path of its own, which would cost every write 1.5 us; therefore every name is qualified, and it is granted to no one
#variable_conflict use_variable
declare
  live constant bigint := fencing.live_timeline();
  stored bigint;
  lowest bigint;
begin
  -- Before the row is read: fence_all, which waits for this lock, has committed or waits for this transaction. Does not wait for pg_dump, and pg_dump not for it.
  lock table fencing.storage_generation in row share mode;
  if pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.~~) 'read %' then
    select s.timeline, s.floor into stored, lowest from fencing.storage_generation s;
  else  -- the snapshot may be older than the row: 40001
    select s.timeline, s.floor into stored, lowest from fencing.storage_generation s for share;
  end if;
  if stored operator(pg_catalog.=) live or live is null then  -- null on a standby, whose transactions PostgreSQL refuses with 25006
    return coalesce(lowest, 0);
  end if;
  perform fencing.refuse_storage_generation(live, stored, resource, fencing_token);
end
$$;
comment on function fencing.storage_floor(text, bigint) is
  'The floor, for functions that let a token in or draw an epoch; they call it once, before anything else that locks. The arguments are for the record of the refusal of direct SQL. '
  'SQLSTATE FG503: the storage generation changed or is unknown; 40001: it changed after the snapshot of a transaction above read committed. '
  'Locks until the end of the transaction: storage_generation row share; above read committed also its row, for share.';

-- 030_guard.sql
-- The guard: one row for each resource. Its row lock orders the writers of a resource.

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
  'One row for each resource: the fence, and which transaction has the resource open. Written only by functions of this schema. '
  'It has no second index, so that raising a fence is a heap-only update.';
comment on column fencing.guard.resource is 'The name of the thing protected, inventory/sku-1; compared by bytes.';
comment on column fencing.guard.last_fencing_token is
  'The highest token seen; 0 where none was seen. The fence is this or the floor (storage_generation), whichever is higher. At 2^53 it refuses every token. Only repair_fence lowers it.';
comment on column fencing.guard.found_fencing_token is 'The fence before the resource was last entered.';
comment on column fencing.guard.entered_xid is
  'The transaction that entered last. The resource is open for that transaction alone; a rollback to a savepoint restores the value before.';
comment on column fencing.guard.entered_at is
  'That transaction''s timestamp. Compared together with entered_xid, so that a dump restored into a cluster whose transaction ids start again opens nothing.';
comment on column fencing.guard.entered_for is
  'The write for which it was entered; empty for a caller of enter(). Keeps the writes of one batch from changing each other''s resources.';

create or replace function fencing.fence(resource text) returns bigint
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return greatest((select g.last_fencing_token from fencing.guard g where g.resource = fence.resource), (select s.floor from fencing.storage_generation s), 0);
end
$$;
comment on function fencing.fence(text) is
  'The fence of a resource: the highest token that this database has seen for it, or the floor (storage_generation) if that is higher; 0 where there is neither. A multiple of 2^32 is the floor. It does not wait for other transactions, so the fence may '
  'be higher by the time the result is used: only enter() locks it. Locks: none.';

-- 040_history.sql
-- The history: rows are added, never changed. 050_rotation.sql creates its weekly partitions.

create sequence if not exists fencing.history_id_seq as bigint;
comment on sequence fencing.history_id_seq is 'Numbers the rows of the history over all partitions.';

create table if not exists fencing.history (
  id                 bigint not null default nextval('fencing.history_id_seq'::regclass),
  at                 timestamptz not null default clock_timestamp(),
  event              fencing.event_type not null,
  resource           text collate "C",
  fencing_token      bigint,
  last_fencing_token bigint,
  owner              text,
  principal          text,
  trace_id           text,
  write_id           uuid,
  detail             jsonb,
  constraint history_pkey primary key (at, id)
) partition by range (at);

comment on table fencing.history is
  'What happened to leases, fences, writes, nodes and the guard itself, and which requests were denied. A write''s row commits together with the write. Update, delete and truncate are refused for everyone; '
  'rotate_history() drops whole partitions.';
comment on column fencing.history.id is 'From one sequence: the order in which rows reached this table. A transaction that commits late may show an id lower than one already seen.';
comment on column fencing.history.at is 'When it happened: by the server''s clock for fences and writes, by the gateway''s for leases. The partition key, and with id the order of GET /v1/history.';
comment on column fencing.history.event is 'The type of the event, as in the HTTP contract.';
comment on column fencing.history.resource is 'The resource, null for events that concern none: of nodes, epochs and the guard, and most denied requests.';
comment on column fencing.history.fencing_token is 'The token that the caller carried.';
comment on column fencing.history.last_fencing_token is 'The fence after the event; for write_rejected the fence that refused.';
comment on column fencing.history.owner is 'The owner of the lease, which the caller chose.';
comment on column fencing.history.principal is 'The gateway''s authenticated caller, or session_user for direct SQL and for changes of the guard.';
comment on column fencing.history.trace_id is 'The trace that the request belonged to.';
comment on column fencing.history.write_id is 'The guarded write; one write on several resources has a row for each.';
comment on column fencing.history.detail is 'Further facts; observed = true marks a change that observe mode allowed.';

-- Version 1 had the order of id, although the events of leases reach the table after the writes made under them.
do $$
begin
  if exists (select from pg_catalog.pg_index i join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
              where i.indrelid = 'fencing.history'::regclass and i.indisprimary and a.attname = 'id') then
    alter table fencing.history drop constraint history_pkey, add constraint history_pkey primary key (at, id);
  end if;
end
$$;
drop index if exists fencing.history_resource_idx, fencing.history_trace_id_idx, fencing.history_owner_idx, fencing.history_event_idx, fencing.history_at_idx,
  fencing.history_owner_at_idx, fencing.history_trace_id_at_idx;

-- Indexes for the filters of GET /v1/history. Filters that are used alone and over long times have an index in the order of the answer, (at, id); without a filter the primary key
-- serves that order. The other indexes hold only the value: rows with a rare value are found by it and sorted, rows with a frequent value are found soon by reading in order of time, and an index
-- of repeated values is small and cheap. Cost of each per row in microseconds (tests/bench/README.md): resource 3, owner 2, principal 2, trace_id 3, id 1, token 1, event 0.5.
-- The index on id serves readers that follow the history (GET /v1/history/stream); new rows are added at its right edge.
-- The name is looked up first: CREATE INDEX IF NOT EXISTS would lock out writers before it finds that the index exists.
do $$
declare
  item record;
begin
  for item in
    select * from (values
      ('history_resource_at_idx', '(resource, at, id)'),
      ('history_write_id_idx', '(write_id) where write_id is not null'),
      ('history_by_trace_idx', '(trace_id) where trace_id is not null'),
      ('history_by_owner_idx', '(owner) where owner is not null'),
      ('history_by_principal_idx', '(principal) where principal is not null'),
      ('history_by_token_idx', '(fencing_token) where fencing_token is not null'),
      ('history_event_at_idx', $i$(event, at, id) where event not in ('write_applied', 'lease_granted', 'lease_renewed', 'lease_released')$i$),
      ('history_by_event_idx', $i$(event) where event in ('write_applied', 'lease_granted', 'lease_renewed', 'lease_released')$i$),
      ('history_id_idx', '(id)'))
      as t (name, definition)
  loop
    if pg_catalog.to_regclass('fencing.' || item.name) is null then
      execute pg_catalog.format('create index %I on fencing.history %s', item.name, item.definition);
    end if;
  end loop;
end
$$;

create table if not exists fencing.event_stream (
  stream            uuid primary key,
  last_sequence     bigint not null,
  previous_sequence bigint not null default 0,
  appended_at       timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table fencing.event_stream is
  'Up to which number the events of each gateway are in the history, so that events sent again after a broken connection are not added twice. rotate_history() deletes old streams.';
comment on column fencing.event_stream.stream is 'An id that a gateway makes each time it starts.';
comment on column fencing.event_stream.last_sequence is 'The number of the last event that is in the history.';
comment on column fencing.event_stream.previous_sequence is 'The same before the last batch.';
comment on column fencing.event_stream.appended_at is 'When the last batch was added.';

create or replace function fencing.refuse_history_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = '42501', message = format('fencing.history can be added to, never changed: %s is refused', lower(tg_op)),
    hint = 'fencing.rotate_history(keep) drops old partitions.';
end
$$;
comment on function fencing.refuse_history_change() is 'Trigger: raises 42501 for every update, delete and truncate of the history. Locks: none.';

create table if not exists fencing.history_default partition of fencing.history default;
comment on table fencing.history_default is
  'Holds rows for whose time there is no partition, so that no event is lost where rotate_history() was not run; rotate_history() moves them to their partitions.';

-- Row triggers are cloned to every partition, also to those made later; triggers of truncate are not, so each partition gets its own.
do $$
declare
  target text;
begin
  if not exists (select from pg_catalog.pg_trigger where tgrelid = 'fencing.history'::regclass and tgname = 'history_append_only') then
    create trigger history_append_only before update or delete on fencing.history
      for each row execute function fencing.refuse_history_change();
    alter table fencing.history enable always trigger history_append_only;
    alter table fencing.history_default enable always trigger history_append_only;
  end if;
  foreach target in array array['fencing.history', 'fencing.history_default'] loop
    if not exists (select from pg_catalog.pg_trigger where tgrelid = target::regclass and tgname = 'history_no_truncate') then
      execute format('create trigger history_no_truncate before truncate on %s for each statement execute function fencing.refuse_history_change()', target);
      execute format('alter table %s enable always trigger history_no_truncate', target);
    end if;
  end loop;
end
$$;

create or replace function fencing.history_tail() returns table (last_id bigint, writers text[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select case when s.is_called then s.last_value else s.last_value - 1 end into last_id from fencing.history_id_seq s;
  -- After last_id was read: a transaction that got an id up to last_id had locked the history before, and holds the lock until it ends.
  writers := array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = 'fencing.history'::regclass or l.relation in (select i.inhrelid from pg_inherits i where i.inhparent = 'fencing.history'::regclass)));
  return next;
end
$$;
comment on function fencing.history_tail() is
  'For readers that follow the history by id, although ids are assigned before rows are committed: the last id assigned, and the transactions that may still commit rows with ids up to it. '
  'Once none of those is among the writers of a later call, statements begun after that call see every row up to that last_id that will ever exist. Locks: none.';

-- 050_rotation.sql
-- Partitions of the history: one for each week, created ahead; old ones are dropped whole.

create or replace function fencing.make_history_partition(day timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  first_moment constant timestamptz := date_trunc('week', day, 'UTC');
  end_moment   constant timestamptz := date_trunc('week', day + interval '168 hours', 'UTC');
  partition    constant text := 'history_' || to_char(first_moment at time zone 'UTC', 'YYYYMMDD');
begin
  if to_regclass('fencing.' || partition) is not null then
    return false;
  end if;
  execute format('create table fencing.%I (like fencing.history including defaults including constraints)', partition);
  execute format('comment on table fencing.%I is %L', partition, 'One week of fencing.history, from this UTC day on.');
  if exists (select from fencing.history_default d where d.at >= first_moment and d.at < end_moment) then
    alter table fencing.history_default disable trigger history_append_only;
    execute format('with moved as (delete from fencing.history_default where at >= $1 and at < $2 returning *) '
                   'insert into fencing.%I select * from moved', partition) using first_moment, end_moment;
    alter table fencing.history_default enable always trigger history_append_only;
  end if;
  execute format('alter table fencing.history attach partition fencing.%I for values from (%L) to (%L)', partition, first_moment, end_moment);
  execute format('alter table fencing.%I enable always trigger history_append_only', partition);
  execute format('create trigger history_no_truncate before truncate on fencing.%I for each statement execute function fencing.refuse_history_change()', partition);
  execute format('alter table fencing.%I enable always trigger history_no_truncate', partition);
  perform fencing.revoke_from_others('table', c.oid::regclass::text, c.relacl, c.relowner)
     from pg_class c where c.relnamespace = 'fencing'::regnamespace and c.relname = partition;
  return true;
end
$$;
comment on function fencing.make_history_partition(timestamptz) is
  'Creates the partition of that moment''s week (Monday, UTC) and moves rows there from the default partition; false if it exists already. '
  'For the role that installed the schema. Locks: history share update exclusive, history_default access exclusive, in this order; where rows move, '
  'before these history_default share row exclusive.';

create or replace function fencing.make_history_partitions() returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  weeks_ahead constant integer := 8;
  default_weeks_max constant integer := 20;  -- each takes some milliseconds, in which the history is locked
  weeks timestamptz[];  -- collected first: a query still open on the default partition would forbid altering it
  week timestamptz;
  made integer := 0;
begin
  weeks := array(
    select generate_series(now(), now() + weeks_ahead * interval '168 hours', interval '168 hours')
    union all
    (select distinct date_trunc('week', d.at, 'UTC') as week from fencing.history_default d where d.at between '2000-01-01' and '3000-01-01' order by week desc limit default_weeks_max));
  foreach week in array weeks loop
    made := made + fencing.make_history_partition(week)::integer;
  end loop;
  return made;
end
$$;
comment on function fencing.make_history_partitions() is
  'Creates the partitions of this week and the next eight, and those for rows in the default partition, of at most 20 weeks in one call. For the role that installed the schema. '
  'Locks: as make_history_partition, where it creates any.';

create or replace function fencing.old_history_partitions(keep interval) returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where i.inhparent = 'fencing.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
     and to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' + interval '168 hours' <= now() - keep
   order by 1;
$$;
comment on function fencing.old_history_partitions(interval) is 'The partitions that have only rows older than keep, oldest first. Locks: none.';

create or replace function fencing.forget_event_streams() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  delete from fencing.event_stream s where s.appended_at < now() - interval '168 hours';  -- much longer than a gateway tries to repeat a batch
$$;
comment on function fencing.forget_event_streams() is 'Deletes streams of events a week after their last batch. Locks: the rows that it deletes.';

create or replace function fencing.rotate_history(keep interval) returns table (made integer, dropped integer)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  partition text;
begin
  if keep is null or keep <= interval '0' then
    raise exception using errcode = '22023', message = 'keep must be a positive interval';
  end if;
  lock table only fencing.history in access exclusive mode;  -- before any partition, as every reader does: no deadlock
  made := fencing.make_history_partitions();
  dropped := 0;
  foreach partition in array array(select fencing.old_history_partitions(keep)) loop
    execute format('drop table fencing.%I', partition);
    dropped := dropped + 1;
  end loop;
  perform fencing.forget_event_streams();
  return next;
end
$$;
comment on function fencing.rotate_history(interval) is
  'Creates the partitions of this week and the next eight, moves rows there from the default partition, and drops the partitions that have only rows older than keep. '
  'For the role that installed the schema, where no gateway does it (keep_history); a repetition does nothing. SQLSTATE 22023: keep is not positive. '
  'Locks: history access exclusive until the end of the transaction, so that writes wait meanwhile; set lock_timeout.';

create or replace function fencing.keep_history(keep_days integer) returns table (made integer, dropped integer, remaining integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  old text[] := '{}';
  owner_days constant integer := (select s.value::integer from fencing.settings s where s.key = 'history_keep_days_min');
begin
  if keep_days is null or keep_days < 0 or keep_days between 1 and 6 then
    raise exception using errcode = '22023', message = 'keep_days must be 0 (for ever) or at least 7';
  end if;
  made := 0;
  dropped := 0;
  remaining := 0;
  perform from fencing.schema_version v where v.version = 1 for update skip locked;  -- one call at a time; apart from this function only the owner can lock this row
  if found then
    made := fencing.make_history_partitions();
    if keep_days > 0 then
      old := array(select fencing.old_history_partitions(make_interval(days => greatest(keep_days, owner_days))));
    end if;
    perform fencing.forget_event_streams();
    remaining := cardinality(old);
    if remaining > 0 and made = 0 then  -- partitions created in this transaction are locked: to lock the history after them could deadlock with a reader
      begin
        lock table only fencing.history in access exclusive mode;  -- before the partition, as every reader does: no deadlock
        execute format('drop table fencing.%I', old[1]);
        dropped := 1;
        remaining := remaining - 1;
      exception when lock_not_available then
        null;  -- a reader holds a lock; the partitions created above stay
      end;
    end if;
  end if;
  return next;
end
$$;
comment on function fencing.keep_history(integer) is
  'For gateways: creates partitions ahead as rotate_history does, and drops the oldest partition that has only rows older than keep_days (0: drops none), one in each call and none in a call that created any. remaining: how many are left to drop, also where a lock for the drop was not free within 100 ms; that is the longest that writes are delayed. '
  'Where another call is under way it does nothing. The owner''s minimum (settings, history_keep_days_min) is kept, whatever keep_days is. keep_days is at least 7, so that a gateway''s role can''t be used to delete traces of what it has just done. '
  'SQLSTATE 22023: keep_days; 55P03: partitions had to be created and a lock was not free within 100 ms; nothing was done, call again later. '
  'Locks: as make_history_partition where partitions are created, history access exclusive where one is dropped, each waited for 100 ms at most, and a row of schema_version.';

do $$
begin
  for weeks in 0..8 loop
    perform fencing.make_history_partition(now() + weeks * interval '168 hours');
  end loop;
end
$$;

-- 060_cluster.sql
-- The settings that all gateways share, and the epochs with which Redis nodes are admitted.

create table if not exists fencing.cluster (
  singleton  boolean primary key default true check (singleton),
  epoch      bigint not null default 0 check (epoch >= 0 and epoch < 2097152),
  node_names text[] not null check (cardinality(node_names) > 0),
  quorum     integer not null check (quorum > 0),
  max_ttl_ms bigint not null check (max_ttl_ms > 0),
  buckets    integer not null default 65536 check (buckets > 0),
  answer_bound_ms bigint check (answer_bound_ms > 0)
);
comment on table fencing.cluster is 'One row, written by the first gateway that joins: the settings that every gateway''s configuration must equal.';
comment on column fencing.cluster.singleton is 'Keeps the table at one row.';
comment on column fencing.cluster.epoch is 'The highest epoch drawn; below 2^21, because a token holds epoch * 2^32 and stays below 2^53.';
comment on column fencing.cluster.node_names is 'The names of the Redis nodes, sorted.';
comment on column fencing.cluster.quorum is 'How many of them make a majority.';
comment on column fencing.cluster.max_ttl_ms is 'The longest ttl of a lease in milliseconds, which is also the longest quarantine of a restarted node.';
comment on column fencing.cluster.answer_bound_ms is 'An answer of a node that a gateway reads later than this counts for nothing (milliseconds); null until the first gateway that knows it has joined.';
comment on column fencing.cluster.buckets is 'How many token counters a node keeps; resources are hashed onto them.';

create table if not exists fencing.node (
  name           text primary key,
  first_drawn_at timestamptz not null default clock_timestamp(),
  last_drawn_at  timestamptz not null default clock_timestamp(),
  epoch          bigint not null,
  life           text,
  synced         boolean not null default false
);
comment on table fencing.node is 'The Redis nodes for which an epoch was drawn.';
comment on column fencing.node.name is 'The node''s name in the configuration.';
comment on column fencing.node.first_drawn_at is 'When it was first admitted.';
comment on column fencing.node.last_drawn_at is 'When an epoch was last drawn for it.';
comment on column fencing.node.epoch is 'The epoch last drawn for it.';
comment on column fencing.node.life is 'The life (process and data) of the node for which it was drawn; null where a gateway of version 3 drew it.';
comment on column fencing.node.synced is 'Whether the node was always seen syncing every write in that life: if its data are still there after a restart, it has lost nothing.';

create or replace function fencing.join_cluster(node_names text[], quorum integer, max_ttl_ms bigint, buckets integer, answer_bound_ms bigint default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  names text[];
  fixed fencing.cluster;
  line  record;
begin
  select array_agg(distinct n collate "C" order by n collate "C") into names from unnest(join_cluster.node_names) as t (n);
  insert into fencing.cluster (node_names, quorum, max_ttl_ms, buckets, answer_bound_ms)
  values (names, join_cluster.quorum, join_cluster.max_ttl_ms, join_cluster.buckets, join_cluster.answer_bound_ms)
  on conflict do nothing;
  update fencing.cluster c set answer_bound_ms = join_cluster.answer_bound_ms
   where c.answer_bound_ms is null and join_cluster.answer_bound_ms is not null;
  select * into fixed from fencing.cluster;
  for line in
    select * from (values
      ('node_names', array_to_string(fixed.node_names, ', '), array_to_string(names, ', ')),
      ('quorum', fixed.quorum::text, join_cluster.quorum::text),
      ('max_ttl_ms', fixed.max_ttl_ms::text, join_cluster.max_ttl_ms::text),
      ('buckets', fixed.buckets::text, join_cluster.buckets::text),
      ('answer_bound_ms', fixed.answer_bound_ms::text, coalesce(join_cluster.answer_bound_ms, fixed.answer_bound_ms)::text)) as t (name, theirs, ours)
  loop
    if line.theirs is distinct from line.ours then
      raise exception using errcode = 'FG500',
        message = format('%s differs: the cluster has %s, this gateway %s', line.name, line.theirs, coalesce(line.ours, 'null')),
        detail = jsonb_build_object('line', line.name, 'cluster', line.theirs, 'gateway', line.ours)::text,
        hint = 'Every gateway of one database must be configured alike; fencing.cluster says how.';
    end if;
  end loop;
end
$$;
comment on function fencing.join_cluster(text[], integer, bigint, integer, bigint) is
  'The first call stores the configuration, every later one is compared with it; the order of the names does not matter. answer_bound_ms is null for gateways that do not have it: not compared. '
  'SQLSTATE FG500: the setting named in the message differs (DETAIL: line, cluster, gateway); 23502, 23514: a value is missing or not positive. '
  'Locks: the cluster row, by the first call only, and by the first with answer_bound_ms.';

create or replace function fencing.next_epoch(seen_epoch bigint) returns bigint
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  drawn bigint;
  lowest bigint;
begin
  if seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'no epoch seen is negative';
  end if;
  lowest := fencing.storage_floor();
  select greatest(c.epoch, coalesce(seen_epoch, 0), lowest >> 32) + 1 into drawn from fencing.cluster c for update;
  if drawn is null then
    raise exception using errcode = 'FG500', message = 'no gateway has joined the cluster yet: fencing.join_cluster comes before fencing.draw_epoch';
  end if;
  if drawn >= 2097152 then
    raise exception using errcode = 'FG500', message = format('epoch %s does not fit: epochs stay below 2^21', drawn),
      detail = jsonb_build_object('seen_epoch', seen_epoch)::text;
  end if;
  update fencing.cluster set epoch = drawn;
  return drawn;
end
$$;
comment on function fencing.next_epoch(bigint) is 'Draws the next epoch: one more than the highest epoch drawn before, than that of the floor and than seen_epoch. For draw_epoch alone. SQLSTATEs as draw_epoch. Locks until the end of the transaction: as storage_floor, then the cluster row.';

create or replace function fencing.draw_epoch(node_name text, node_life text, syncs boolean, seen_epoch bigint)
  returns table (epoch bigint, repeated boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  drawn bigint;
begin
  if node_life is null or node_life = '' then
    return query select fencing.next_epoch(seen_epoch), false;
    return;
  end if;
  if (octet_length(node_name) between 1 and 200 and octet_length(node_life) <= 200) is not true or syncs is null or seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'an epoch is drawn for a node by name, of 1 to 200 bytes, in a life of at most 200, which syncs or does not, and no epoch seen is negative';
  end if;
  perform fencing.storage_floor();  -- no node is admitted by a register that may have gone back
  perform from fencing.cluster for update;  -- always locked before the node's row
  update fencing.node n set synced = n.synced and syncs
  where n.name = node_name and n.life = node_life returning n.epoch into drawn;
  if found then
    return query select drawn, true;
    return;
  end if;
  drawn := fencing.next_epoch(seen_epoch);
  insert into fencing.node (name, epoch, life, synced) values (node_name, drawn, node_life, syncs)
  on conflict on constraint node_pkey do update
    set epoch = excluded.epoch, life = excluded.life, synced = excluded.synced, last_drawn_at = clock_timestamp();
  return query select drawn, false;
end
$$;
comment on function fencing.draw_epoch(text, text, boolean, bigint) is
  'The epoch of one life of a node. The first call draws it: one more than the highest epoch drawn before and than seen_epoch. Later calls for the life that drew last return the same epoch (repeated). '
  'Records whether the node syncs every write in that life; once false it stays false. Without a life: draws the next epoch, for no node. The caller commits before it uses the epoch. '
  'SQLSTATE FG503: the storage generation changed; FG500: no cluster joined, or 2^21 reached; 22023: bad argument. Locks until the end of the transaction: as storage_floor, then the cluster row, then the node''s row.';

create or replace function fencing.note_unsynced(node_name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update fencing.node n set synced = false where n.name = note_unsynced.node_name and n.synced;
$$;
comment on function fencing.note_unsynced(text) is
  'Records that the node was seen not syncing every write in the life for which an epoch was drawn last, or that it may have loaded older data since. No effect on a node for which none was drawn. Locks until the end of the transaction: the node''s row.';

create or replace function fencing.draw_epoch(node_name text, seen_epoch bigint) returns table (epoch bigint, first_admission boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  drawn bigint;
  is_first boolean;
begin
  if (octet_length(node_name) between 1 and 200) is not true or seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'an epoch is drawn for a node by name, of 1 to 200 bytes, and no epoch seen is negative';
  end if;
  drawn := fencing.next_epoch(seen_epoch);
  is_first := not exists (select from fencing.node n where n.name = node_name);
  insert into fencing.node (name, epoch) values (node_name, drawn)
  on conflict on constraint node_pkey do update
    set epoch = excluded.epoch, life = null, synced = false, last_drawn_at = clock_timestamp();
  return query select drawn, is_first;
end
$$;
comment on function fencing.draw_epoch(text, bigint) is
  'For gateways of version 3: draws the next epoch at every call; the node counts as not synced. '
  'first_admission: no committed call drew an epoch for this node before. SQLSTATE FG503: the storage generation changed; FG500: no cluster joined, or 2^21 reached; 22023: bad argument. '
  'Locks until the end of the transaction: as storage_floor, then the cluster row, then the node''s row.';

-- 065_generation_change.sql
-- A change of the storage generation: a gateway begins it, announces its epoch to a majority of the nodes, and finishes it. Until then nothing is let in. Any gateway continues what another began.

create or replace function fencing.storage_generation_state()
  returns table (current boolean, system_identifier bigint, timeline bigint, live_system_identifier bigint, live_timeline bigint, floor bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(s.system_identifier = c.system_identifier and s.timeline = c.timeline, false), s.system_identifier, s.timeline, c.system_identifier, c.timeline,
         coalesce(s.floor, 0)
    from (select p.system_identifier, fencing.live_timeline() as timeline from pg_control_system() p) c left join fencing.storage_generation s on true;
$$;
comment on function fencing.storage_generation_state() is
  'For gateways: whether this server is the primary under which the fences were last known to be whole (system identifier and timeline), and the floor. '
  'On a standby live_timeline is null and current is false. Locks: none.';

create or replace function fencing.begin_generation_change(seen_epoch bigint) returns table (change_id uuid, epoch bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  epochs_lost_max constant bigint := 1024;  -- more epochs than can have been drawn in what was lost, by admissions that no node shows
  live_system constant bigint := (select c.system_identifier from pg_control_system() c);
  live_timeline constant bigint := fencing.live_timeline();
  stored fencing.storage_generation;
begin
  if seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'no epoch seen is negative';
  end if;
  if exists (select from fencing.storage_generation s where s.system_identifier = live_system and s.timeline = live_timeline) then
    return;  -- the common case, in every new connection of a gateway, locks and writes nothing
  end if;
  insert into fencing.storage_generation (system_identifier, timeline) values (null, null) on conflict do nothing;  -- a lost row: unknown
  select * into stored from fencing.storage_generation s for update;
  if stored.system_identifier = live_system and stored.timeline = live_timeline then
    return;
  end if;
  if stored.system_identifier <> live_system then  -- the guard compares only the timeline, which can be the same
    update fencing.storage_generation s
       set system_identifier = null, timeline = null, changed_at = clock_timestamp(), reason = 'the system identifier differs',
           last_system_identifier = s.system_identifier, last_timeline = s.timeline;
  end if;
  if stored.pending_system_identifier = live_system and stored.pending_timeline = live_timeline and stored.pending_epoch >= coalesce(seen_epoch, 0) then
    return query select stored.pending_id, stored.pending_epoch;
    return;
  end if;
  stored.pending_epoch := greatest((select c.epoch from fencing.cluster c for update), stored.floor >> 32, seen_epoch) + epochs_lost_max;
  if stored.pending_epoch >= 2097152 then
    raise exception using errcode = 'FG500', message = format('epoch %s does not fit: epochs stay below 2^21', stored.pending_epoch),
      detail = jsonb_build_object('seen_epoch', seen_epoch)::text;
  end if;
  update fencing.storage_generation s
     set pending_id = gen_random_uuid(), pending_epoch = stored.pending_epoch, pending_system_identifier = live_system, pending_timeline = live_timeline
  returning s.pending_id into stored.pending_id;
  update fencing.cluster c set epoch = stored.pending_epoch;
  return query select stored.pending_id, stored.pending_epoch;
end
$$;
comment on function fencing.begin_generation_change(bigint) is
  'For gateways: begins the change to this server''s system identifier and timeline, or returns the one that is under way for them, if its epoch is not lower than seen_epoch. No row: the generation is current. '
  'seen_epoch: the highest epoch that the caller saw on any node; one more than e after a node''s BEHIND e. A new epoch is 1,024 higher than it and than every epoch drawn here, so that it is also higher than those drawn in what was lost. '
  'The caller commits before it announces the epoch to the nodes. If the system identifier differs, everything is refused from the commit on. '
  'SQLSTATE 22023: seen_epoch is negative; FG500: 2^21 reached. Locks until the end of the transaction: the row of storage_generation, then the cluster row; none if the generation is current.';

create or replace function fencing.finish_generation_change(change_id uuid, gateway text, lost_writes jsonb) returns table (finished boolean, floor bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  live_system constant bigint := (select c.system_identifier from pg_control_system() c);
  live_timeline constant bigint := fencing.live_timeline();
  drained boolean;
  stored fencing.storage_generation;
  named jsonb;
begin
  if jsonb_typeof(lost_writes) not in ('array', 'null') then
    raise exception using errcode = '22023', message = 'lost_writes must be a JSON array';
  end if;
  -- Transactions may have been let in before the pair was set to null (not after a promotion, where the timeline refuses them): waits for their end. Before the row is locked, as in fence_all.
  select s.timeline is null into drained from fencing.storage_generation s;
  if drained then
    lock table fencing.storage_generation in exclusive mode;
  end if;
  select * into stored from fencing.storage_generation s for update;
  if (stored.pending_id = change_id and stored.pending_system_identifier = live_system and stored.pending_timeline = live_timeline and (drained or stored.timeline is not null)) is not true then
    return query select false, coalesce(stored.floor, 0);
    return;
  end if;
  update fencing.storage_generation s
     set system_identifier = live_system, timeline = live_timeline, floor = stored.pending_epoch << 32, changed_at = clock_timestamp(), reason = null, last_system_identifier = null, last_timeline = null,
         pending_id = null, pending_epoch = null, pending_system_identifier = null, pending_timeline = null;
  update fencing.node n set synced = false where n.synced;  -- the record of a loss may be among what was lost
  select jsonb_agg(w.item order by w.place) into named  -- as many as fit into the detail of an event
    from (select e.item, e.place, sum(pg_column_size(e.item)) over (order by e.place) as bytes
            from jsonb_array_elements(case when jsonb_typeof(lost_writes) = 'array' then lost_writes else '[]' end) with ordinality as e (item, place)) w
   where w.place <= 1000 and w.bytes <= 49152;
  insert into fencing.history (event, principal, detail)
  values ('storage_generation_changed', session_user, jsonb_build_object(
    'from', jsonb_strip_nulls(jsonb_build_object('system_identifier', coalesce(stored.system_identifier, stored.last_system_identifier)::text, 'timeline', coalesce(stored.timeline, stored.last_timeline))),
    'to', jsonb_build_object('system_identifier', live_system::text, 'timeline', live_timeline),
    'floor', stored.pending_epoch << 32, 'epoch', stored.pending_epoch, 'reason', coalesce(stored.reason, 'the timeline differs'), 'gateway', fencing.bound_text(gateway, 200),
    'lost_writes', coalesce(named, '[]'), 'lost_write_count', case when jsonb_typeof(lost_writes) = 'array' then jsonb_array_length(lost_writes) else 0 end));
  return query select true, stored.pending_epoch << 32;
end
$$;
comment on function fencing.finish_generation_change(uuid, text, jsonb) is
  'For gateways, once a majority of the nodes has the epoch: stores this server''s system identifier and timeline, sets the floor to epoch * 2^32, marks every node as not synced (note_unsynced), and adds storage_generation_changed to the history, all of it or nothing. '
  'finished = false: the change is not the one under way on this server (another gateway has finished it, or a newer one was begun); nothing is changed. lost_writes: writes that the gateway had reported as committed and that are missing '
  '(find_lost_writes), of which up to 1,000 are recorded. Read committed only. SQLSTATE 22023: lost_writes is not an array; 55P03: lock_timeout. '
  'Locks until the end of the transaction: if the generation was unknown, storage_generation exclusive; its row; the rows of node.';

create or replace function fencing.find_lost_writes(write_ids uuid[]) returns setof uuid
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select w.write_id from unnest($1) with ordinality as w (write_id, place)
    left join lateral (  -- only the write_id inside, so that its index is used, also before the history was analyzed
      select h.event from fencing.history h where h.write_id = w.write_id offset 0) found on found.event = 'write_applied'
   where found.event is null
   order by w.place;
$$;
comment on function fencing.find_lost_writes(uuid[]) is
  'For gateways, after a change of the storage generation was begun: those of the writes that have no write_applied row in the history, in the order of the list. Looks each up in every partition, about 30 us for ten. Locks: none.';

create or replace function fencing.fence_all(reason text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if coalesce(btrim(fence_all.reason), '') = '' then
    raise exception using errcode = '22023', message = 'all tokens are fenced for a reason';
  end if;
  lock table fencing.storage_generation in exclusive mode;  -- waits for transactions that were let in
  insert into fencing.storage_generation (system_identifier, timeline) values (null, null) on conflict do nothing;  -- a lost row
  update fencing.storage_generation s
     set last_system_identifier = coalesce(s.system_identifier, s.last_system_identifier), last_timeline = coalesce(s.timeline, s.last_timeline), system_identifier = null, timeline = null,
         changed_at = clock_timestamp(), reason = fencing.bound_text(fence_all.reason, 2000),
         pending_id = null, pending_epoch = null, pending_system_identifier = null, pending_timeline = null;  -- a change begun before would not fence tokens granted since
end
$$;
comment on function fencing.fence_all(text) is
  'For the role that installed the schema, after a disk snapshot was put back or a dump was loaded, and whenever the fences may not be whole: sets the storage generation to unknown. From the commit on everything is refused with FG503, '
  'until a running gateway has changed the generation; then every token granted before is refused. Waits for transactions that were let in; new ones wait behind it: set lock_timeout. '
  'SQLSTATE 22023: no reason; 55P03: lock_timeout. Locks until the end of the transaction: storage_generation exclusive.';

-- 070_refusal.sql
-- Events that the gateway records, and refusals of direct SQL, which have to be in the history although their transaction rolls back.

create or replace function fencing.bound_time(at timestamptz) returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case when at between '2000-01-01' and clock_timestamp() + interval '1 day' then at else clock_timestamp() end;
$$;
comment on function fencing.bound_time(timestamptz) is
  'The time of an event; now where there is none, or one that no event can have: before the year 2000, or more than a day ahead. Locks: none.';

create or replace function fencing.bound_token(token bigint) returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when token between 0 and 9007199254740992 then token end;
$$;
comment on function fencing.bound_token(bigint) is 'The token or fence of an event; null where it can be neither: below 0, or above 2^53. Locks: none.';

create or replace function fencing.record_events(events jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    raise exception using errcode = '22023', message = 'events must be a JSON array of objects';
  end if;
  if events @> '[{"event": "write_applied"}]' or events @> '[{"event": "guard_changed"}]' then
    raise exception using errcode = '22023', message = 'write_applied and guard_changed are recorded by the guard alone, together with the write or change';
  end if;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
  select fencing.bound_time(e.at), e.event, fencing.bound_text(e.resource, 200), fencing.bound_token(e.fencing_token), fencing.bound_token(e.last_fencing_token), fencing.bound_text(e.owner, 200),
         fencing.bound_text(e.principal, 200), fencing.bound_text(e.trace_id, 200), e.write_id, fencing.bound_detail(e.detail)
    from jsonb_to_recordset(events) as e (at timestamptz, event text, resource text, fencing_token bigint, last_fencing_token bigint,
                                          owner text, principal text, trace_id text, write_id uuid, detail jsonb);
end
$$;
comment on function fencing.record_events(jsonb) is
  'Adds events to the history in one insert: objects with event and any of at, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail. '
  'All of them or none. SQLSTATE 22023: not an array, or write_applied or guard_changed among them; 23502, 23514: an event is missing or unknown. Locks: none that others wait for.';

create or replace function fencing.append_events(
  stream uuid, first_sequence bigint, at_us bigint[], event text[], resource text[], fencing_token bigint[], last_fencing_token bigint[],
  owner text[], principal text[], trace_id text[], write_id uuid[], detail jsonb[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  events constant integer := coalesce(cardinality(append_events.event), 0);
  already_added bigint;
  added integer;
begin
  if append_events.stream is null or coalesce(append_events.first_sequence, 0) < 1 then
    raise exception using errcode = '22023', message = 'events come from a stream and are numbered from 1 on';
  end if;
  if append_events.event && '{write_applied,guard_changed}' then
    raise exception using errcode = '22023', message = 'write_applied and guard_changed are recorded by the guard alone, together with the write or change';
  end if;
  if events = 0 then
    return 0;
  end if;
  -- Waits until the same batch on an abandoned connection of the gateway has committed or rolled back.
  insert into fencing.event_stream as s (stream, last_sequence)
  values (append_events.stream, append_events.first_sequence + events - 1)
  on conflict on constraint event_stream_pkey do update
    set previous_sequence = s.last_sequence, last_sequence = greatest(s.last_sequence, excluded.last_sequence), appended_at = clock_timestamp()
  returning s.previous_sequence into already_added;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
  select fencing.bound_time(to_timestamp(e.at_us::float8 / 1e6)), e.event, fencing.bound_text(e.resource, 200), fencing.bound_token(e.fencing_token), fencing.bound_token(e.last_fencing_token),
         fencing.bound_text(e.owner, 200), fencing.bound_text(e.principal, 200), fencing.bound_text(e.trace_id, 200), e.write_id, fencing.bound_detail(e.detail)
    from unnest(append_events.at_us, append_events.event, append_events.resource, append_events.fencing_token, append_events.last_fencing_token,
                append_events.owner, append_events.principal, append_events.trace_id, append_events.write_id, append_events.detail)
         with ordinality as e (at_us, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail, position)
   where append_events.first_sequence + e.position - 1 > already_added;
  get diagnostics added = row_count;
  return added;
end
$$;
comment on function fencing.append_events(uuid, bigint, bigint[], text[], text[], bigint[], bigint[], text[], text[], text[], uuid[], jsonb[]) is
  'For gateways: adds a batch of events, each once. A gateway numbers its events from 1 on in a stream of its own (stream: an id that it makes when it starts); the first of the batch has '
  'the number first_sequence, and events that the stream has delivered before are skipped, so that a batch whose answer was lost can be sent again. One array for each column, null where no '
  'event has a value; at_us is in microseconds since 1970. Returns the number of rows added; all of them or none. '
  'SQLSTATE 22023: no stream or number, or write_applied or guard_changed among the events; 23502, 23514: an event is missing or unknown. Locks until the end of the transaction: the stream''s row.';

create or replace function fencing.is_gateway_session() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(session_user, 'fencing_gateway', 'member')
     and not exists (select from pg_roles r where r.rolname = session_user and r.rolsuper);
$$;
comment on function fencing.is_gateway_session() is
  'Whether the session logged in as a member of fencing_gateway: gateways record their refusals themselves. False for superusers. Locks: none.';

create or replace function fencing.append_refusal(database name, refusal jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if database is distinct from current_database() then
    raise exception using errcode = '22023', message = format('the recorder of %s leads to the database %s', coalesce(database, 'null'), current_database());
  end if;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, detail)
  select 'write_rejected', fencing.bound_text(r.resource, 250), fencing.bound_token(r.fencing_token), fencing.bound_token(r.last_fencing_token), fencing.bound_text(r.principal, 200), fencing.bound_detail(r.detail)
    from jsonb_to_record(refusal) as r (resource text, fencing_token bigint, last_fencing_token bigint, principal text, detail jsonb)
   where refusal <> '{}';  -- an empty refusal only tests the connection
end
$$;
comment on function fencing.append_refusal(name, jsonb) is
  'For the recorder, which may do nothing else: adds one refusal to the history. database: the database of the refused transaction, so that a copy of a database records nothing in the original. '
  'SQLSTATE 22023: the recorder leads to another database. Locks: none that others wait for.';

create or replace function fencing.recorder_schema() returns name
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select n.nspname
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace
         join pg_foreign_server s on s.srvname = 'fencing_recorder' and s.srvowner = current_user::regrole
         join pg_user_mappings m on m.srvid = s.oid and m.umuser = s.srvowner
   where e.extname = 'dblink';
$$;
comment on function fencing.recorder_schema() is
  'The schema of dblink where a recorder is set up: the foreign server fencing_recorder and its user mapping, both the owner''s. Null where there is none. Locks: none.';

create or replace function fencing.call_recorder(dblink_schema name, refusal jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  connections text[];
  done text;
begin
  -- dblink would use a connection that the caller has opened under this name instead of the foreign server.
  execute format('select %I.dblink_get_connections()', dblink_schema) into connections;
  if 'fencing_recorder' = any (connections) then
    execute format('select %I.dblink_disconnect(''fencing_recorder'')', dblink_schema) into done;
  end if;
  execute format('select r.done from %I.dblink(''fencing_recorder'', $1) as r (done text)', dblink_schema)
    into done using format('select fencing.append_refusal(%L, %L)::text', current_database(), refusal);
end
$$;
comment on function fencing.call_recorder(name, jsonb) is
  'Adds a refusal through the recorder''s connection. No statement, parameter or plan contains the connection''s password: dblink reads it from the user mapping. '
  'Raises what dblink raises. Locks in the caller''s transaction: none.';

create or replace function fencing.record_refusal(refusal jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  event constant jsonb := jsonb_build_object('principal', session_user) || refusal;
  dblink_schema name;
begin
  if fencing.is_gateway_session() then
    return;
  end if;
  dblink_schema := fencing.recorder_schema();
  if dblink_schema is null then
    raise log 'fencing: a refusal is not in the history, for there is no recorder: %', event;
    return;
  end if;
  perform fencing.call_recorder(dblink_schema, event);
exception when query_canceled or assert_failure or others then
  raise log 'fencing: a refusal could not be recorded (% %): %', sqlstate, sqlerrm, event;
end
$$;
comment on function fencing.record_refusal(jsonb) is
  'Writes a refusal to the history over a connection of its own (150_recorder.sql), so that the row stays when the transaction rolls back. '
  'Never raises: errors go to the server''s log. Takes at most 2 s to connect and 2 s to write. Locks in the caller''s transaction: none.';

create or replace function fencing.describe_change(relation oid, operation text, resource text) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('relation', relation::regclass::text, 'operation', lower(operation), 'application_name', current_setting('application_name', true),
    'sqlstate', case when resource is not null and coalesce(current_setting('fencing.write_id', true), '') = ''
                      and current_setting('fencing.entered', true) is distinct from pg_current_xact_id_if_assigned()::text
                     then 'FG428' else 'FG403' end);
$$;
comment on function fencing.describe_change(oid, text, text) is
  'The facts about a change that is not covered. A caller could forge the settings that decide which of the two SQLSTATEs it gets, but not that it is refused. Locks: none.';

create or replace function fencing.refuse_change(relation oid, operation text, resource text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  facts constant jsonb := fencing.describe_change(relation, operation, resource);
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'detail', facts));
  if facts ->> 'sqlstate' = 'FG428' then
    raise exception using errcode = 'FG428',
      message = format('fencing required: %s of %s without having entered its resource', lower(operation), relation::regclass),
      detail = jsonb_build_object('resource', resource, 'relation', relation::regclass::text, 'operation', lower(operation))::text,
      hint = 'Call fencing.enter(resource, fencing_token) in the same transaction first.';
  end if;
  raise exception using errcode = 'FG403',
    message = case when operation = 'TRUNCATE' then format('resource not covered: truncate of %s would touch every resource', relation::regclass)
                   when resource is null then format('resource not covered: the row in %s has no resource', relation::regclass)
                   else format('resource not covered: %s of %s touches %s, which this transaction has not entered', lower(operation), relation::regclass, resource) end,
    detail = jsonb_build_object('resource', resource, 'relation', relation::regclass::text, 'operation', lower(operation))::text;
end
$$;
comment on function fencing.refuse_change(oid, text, text) is
  'Records and raises: FG428 where the transaction entered nothing, FG403 where it entered something else or the row has no resource. '
  'DETAIL is JSON: resource, relation, operation. Locks: none.';

create or replace function fencing.observe_change(relation oid, operation text, resource text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  most constant integer := 1000;
  xid constant text := pg_current_xact_id()::text;
  before constant text := coalesce(current_setting('fencing.observed', true), '');  -- "xid:count"; a caller who forges it hides what it does, no more
  nth constant integer := case when before ~ ('^' || xid || ':[0-9]{1,6}$') then split_part(before, ':', 2)::integer + 1 else 1 end;
begin
  if nth > most then
    return;
  end if;
  perform set_config('fencing.observed', xid || ':' || nth, true);
  insert into fencing.history (event, resource, principal, detail)
  values ('write_rejected', resource, session_user,
          fencing.describe_change(relation, operation, resource) || '{"observed": true}' || case when nth = most then '{"and_more": true}' else '{}' end::jsonb);
end
$$;
comment on function fencing.observe_change(oid, text, text) is
  'Records a change that enforce mode would have refused, in the caller''s own transaction: at most 1,000 in one transaction, the last with and_more = true. Locks: none.';

create or replace function fencing.refuse_answer(bytes bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = '54000', message = format('the answer would have %s bytes, more than a gateway gives: ask for fewer rows or columns, or for none', bytes);
end
$$;
comment on function fencing.refuse_answer(bigint) is 'For gateways, whose statements call it instead of returning an answer that is too large: raises 54000, so that the write is rolled back. Locks: none.';

-- 075_proof.sql
-- Proofs: a caller of enter() passes the lease_id that a gateway gave it, and the database verifies its signature.

create table if not exists fencing.proof_key (
  name       text primary key check (name <> ''),
  inner_pad  bytea not null check (length(inner_pad) = 64),
  outer_pad  bytea not null check (length(outer_pad) = 64),
  added_at   timestamptz not null default clock_timestamp(),
  expires_at timestamptz
);
comment on table fencing.proof_key is
  'The keys with which gateways sign lease ids. Any role that reads them can forge leases: no role is granted anything on this table, and a dump that contains it is a secret.';
comment on column fencing.proof_key.name is 'What the operator calls the key; by default made from a hash of it.';
comment on column fencing.proof_key.inner_pad is 'The key in the form in which HMAC-SHA256 uses it first: padded to 64 bytes, each xor 0x36.';
comment on column fencing.proof_key.outer_pad is 'The same for its second step: each byte xor 0x5c.';
comment on column fencing.proof_key.added_at is 'When add_proof_key() was last called for it.';
comment on column fencing.proof_key.expires_at is 'From then on proofs signed with the key are refused; null: never.';

create or replace function fencing.add_proof_key(key bytea, expires_at timestamptz default null, name text default null) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  padded bytea := case when length(key) > 64 then sha256(key) else key end;
  inner_pad bytea := '';
  outer_pad bytea := '';
  byte integer;
begin
  if key is null or length(key) < 32 then
    raise exception using errcode = '22023', message = 'a signing key has at least 32 bytes';
  end if;
  for i in 0..63 loop
    byte := case when i < length(padded) then get_byte(padded, i) else 0 end;
    inner_pad := inner_pad || set_byte('\x00', 0, byte # 54);
    outer_pad := outer_pad || set_byte('\x00', 0, byte # 92);
  end loop;
  name := coalesce(name, 'key-' || left(encode(sha256(outer_pad), 'hex'), 12));
  insert into fencing.proof_key values (name, inner_pad, outer_pad, clock_timestamp(), expires_at)
  on conflict on constraint proof_key_pkey do update
    set inner_pad = excluded.inner_pad, outer_pad = excluded.outer_pad, added_at = excluded.added_at, expires_at = excluded.expires_at;
  perform fencing.record_guard_change('add_proof_key', jsonb_build_object('name', name, 'expires_at', expires_at));
  return name;
end
$$;
comment on function fencing.add_proof_key(bytea, timestamptz, text) is
  'For the role that installed the schema: from the commit on, lease ids signed with this key are proofs. Returns the key''s name. key: the bytes of the gateways'' signing key '
  '(the file without the newline at its end). Replaces a key of the same name. `fencegate migrate --require-proof` calls it. SQLSTATE 22023: shorter than 32 bytes. '
  'Locks until the end of the transaction: the key''s row.';

create or replace function fencing.retire_proof_key(name text, at timestamptz default clock_timestamp()) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  if at <= clock_timestamp() then
    delete from fencing.proof_key k where k.name = name;
  else
    update fencing.proof_key k set expires_at = at where k.name = name;
  end if;
  if not found then
    return false;
  end if;
  perform fencing.record_guard_change('retire_proof_key', jsonb_build_object('name', name, 'expires_at', at));
  return true;
end
$$;
comment on function fencing.retire_proof_key(text, timestamptz) is
  'For the role that installed the schema: from that time on, proofs signed with the key are refused; if the time has come, the key is deleted. False: there is no such key. '
  'Locks until the end of the transaction: the key''s row.';

create or replace function fencing.proof_keys() returns table (name text, id text, expires_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select k.name, 'key-' || left(encode(sha256(k.outer_pad), 'hex'), 12), k.expires_at from fencing.proof_key k order by k.added_at, k.name;
$$;
comment on function fencing.proof_keys() is
  'The keys that proofs may be signed with, without the keys themselves. id: as gateways show it for their signing keys; also the name, unless add_proof_key() was given another. '
  'Locks: none.';

create or replace function fencing.require_proof(required boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  was text;
begin
  if required and not exists (select from fencing.proof_key k where k.expires_at is null or k.expires_at > clock_timestamp()) then
    raise exception using errcode = '22023', message = 'there is no key to check proofs with: add the gateways'' signing key first',
      hint = 'fencegate migrate --require-proof does both; fencing.add_proof_key adds a key.';
  end if;
  select s.value into was from fencing.settings s where s.key = 'require_proof';
  insert into fencing.settings (key, value) values ('require_proof', case when required then 'on' else 'off' end)
  on conflict on constraint settings_pkey do update set value = excluded.value;
  perform fencing.record_guard_change('require_proof', jsonb_build_object('required', required, 'was', coalesce(was, 'off') = 'on'));
end
$$;
comment on function fencing.require_proof(boolean) is
  'For the role that installed the schema: sets whether enter() requires a proof of every caller, from the commit on. A proof that is passed is always verified. '
  'SQLSTATE 22023: there is no key; 23502: null. Locks until the end of the transaction: the setting''s row.';

create or replace function fencing.proof_fault(resource text, fencing_token bigint, proof text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  claims constant text := split_part(proof, '.', 1);
  lines text[];
begin
  if proof is null then
    return 'missing';
  end if;
  if octet_length(proof) > 5120 or not exists (
       select from fencing.proof_key k
        where (k.expires_at is null or k.expires_at > clock_timestamp())
          and proof = claims || '.' || translate(encode(
                sha256(k.outer_pad || sha256(k.inner_pad || convert_to(claims, 'UTF8'))), 'base64'), '+/=', '-_')) then
    return 'not_authentic';
  end if;
  -- The signature shows that a gateway wrote the claims. Their first five lines are ASCII, which "escape" leaves unchanged in any encoding.
  lines := string_to_array(encode(decode(translate(claims, '-_', '+/') || repeat('=', -length(claims) & 3), 'base64'), 'escape'), E'\n');
  -- "1" is the older form of a lease, whose holds were counted; both forms have the token and the resources in the same lines.
  if lines[1] in ('1', '2') is not true then
    return 'not_authentic';
  elsif lines[3] is distinct from fencing_token::text then
    return 'other_token';
  elsif resource = any (string_to_array(lines[5], ' ')) is not true then
    return 'other_resource';
  end if;
  return null;
end
$$;
comment on function fencing.proof_fault(text, bigint, text) is
  'Null where the proof, a whole lease_id, was signed with one of the keys and names this token and this resource; else missing, not_authentic, other_token or other_resource. '
  'It does not check the time: the fence refuses the token of a lease that has ended. Locks: none.';

create or replace function fencing.refuse_proof(resource text, fencing_token bigint, fault text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'detail',
    jsonb_build_object('sqlstate', 'FG401', 'fault', fault, 'application_name', current_setting('application_name', true))));
  raise exception using errcode = 'FG401',
    message = case fault when 'missing' then format('a proof is required to enter %s', resource)
                         else format('the proof does not hold for token %s of %s: %s', fencing_token, resource, replace(fault, '_', ' ')) end,
    detail = jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'fault', fault)::text,
    hint = 'The proof is the lease_id as the gateway gave it, with the token and a resource of that lease.';
end
$$;
comment on function fencing.refuse_proof(text, bigint, text) is
  'Records and raises FG401. DETAIL is JSON: resource, fencing_token, fault. Nothing of the proof or of a key is shown. Locks: none.';

-- 080_enter.sql
-- enter: opens a resource for the transaction of a caller with its own connection.

create or replace function fencing.enter(resource text, fencing_token bigint, proof text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_token bigint;
  fence bigint;
  fault text;
  lowest bigint;
  below_floor boolean;
  cause jsonb;
begin
  if (enter.fencing_token between 1 and 9007199254740991 and fencing.is_resource(enter.resource)) is not true then
    perform fencing.validate_fence_arguments(array[enter.resource], enter.fencing_token);
  end if;
  lowest := fencing.storage_floor(enter.resource, enter.fencing_token);
  if proof is not null or exists (select from fencing.settings s where s.key = 'require_proof' and s.value = 'on') then
    fault := fencing.proof_fault(enter.resource, enter.fencing_token, proof);
    if fault is not null then
      perform fencing.refuse_proof(enter.resource, enter.fencing_token, fault);
    end if;
  end if;

  if enter.fencing_token >= lowest then
    with mine as (  -- no row unless this transaction has entered the resource before
      select from fencing.guard g
       where g.resource = enter.resource and g.entered_xid = pg_current_xact_id() and g.entered_at = transaction_timestamp()
    ), entered as (
      insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
      values (enter.resource, enter.fencing_token, pg_current_xact_id(), transaction_timestamp(), left(coalesce(current_setting('fencing.write_id', true), ''), 64))
      on conflict on constraint guard_pkey do update
        set last_fencing_token = excluded.last_fencing_token, found_fencing_token = g.last_fencing_token,
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for
        where g.last_fencing_token <= excluded.last_fencing_token
      returning g.found_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, detail)
      select 'write_applied', enter.resource, enter.fencing_token, enter.fencing_token, session_user,
             jsonb_build_object('direct', true, 'application', left(current_setting('application_name', true), 64))
        from entered e where e.found_fencing_token < enter.fencing_token or not exists (select from mine)
    )
    select e.found_fencing_token into found_token from entered e;
    if found then
      perform set_config('fencing.entered', pg_current_xact_id()::text, true);  -- only selects the error message of a later refusal
      return greatest(found_token, lowest);
    end if;
  end if;

  select greatest(max(g.last_fencing_token), lowest), lowest > coalesce(max(g.last_fencing_token), 0) into fence, below_floor from fencing.guard g where g.resource = enter.resource;
  cause := case when below_floor then '{"cause": "storage-generation-changed"}' else '{}' end;
  perform fencing.record_refusal(jsonb_build_object(
    'resource', enter.resource, 'fencing_token', enter.fencing_token, 'last_fencing_token', fence,
    'detail', jsonb_build_object('sqlstate', 'FG412', 'application_name', current_setting('application_name', true)) || cause));
  raise exception using errcode = 'FG412',
    message = format('stale fencing token: %s for %s, whose fence is %s', enter.fencing_token, enter.resource, fence),
    detail = (jsonb_build_object('resource', enter.resource, 'fencing_token', enter.fencing_token, 'last_fencing_token', fence) || cause)::text,
    hint = case when below_floor then 'The token is older than the last change of the storage generation (promotion or restore). Nothing was changed; take a new lease.'
                else 'A newer lease has written or read since. Nothing was changed; take a new lease.' end;
end
$$;
comment on function fencing.enter(text, bigint, text) is
  'Raises the fence of the resource to the token, opens the resource for this transaction, and returns the fence before the call (0: none; at least the floor). '
  'An equal token is accepted. Adds a write_applied row with detail.direct = true, which commits with the caller''s changes: one in each transaction, and one more if it enters again with a higher token. The resource is open until the transaction ends or the savepoint in which enter was called is rolled back. May be called for several resources, in the order of their names. '
  'SQLSTATE FG412: the token is stale, DETAIL is JSON with resource, fencing_token, last_fencing_token, and cause = storage-generation-changed where the floor refused it; '
  'FG503: the storage generation changed, and no gateway has finished the change yet: repeat; 22023: not a resource or a token from 1 to 2^53 - 1; '
  'FG401: the proof (the lease_id) is required and missing (require_proof), or not valid; 40001 above read committed where another transaction raised the fence, or the storage generation changed; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard row.';

-- 090_begin_write.sql
-- begin_write: the gateway's form of enter. One call checks the fence, opens the resources and adds the history's row; the change follows in the same transaction.

create or replace function fencing.lock_guards(resources text[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.guard as g (resource, last_fencing_token)
  select distinct r collate "C", 0 from unnest(resources) as t (r) order by 1
  on conflict on constraint guard_pkey do update set resource = excluded.resource where false;  -- locks the row and writes nothing
$$;
comment on function fencing.lock_guards(text[]) is
  'Locks the guard rows in the order of their names by bytes, and adds missing ones with the fence 0. Also waits for a transaction that is adding one. '
  'Locks until the end of the transaction: those rows.';

create or replace function fencing.begin_write_on_many(resources text[], fencing_token bigint, write_id uuid, owner text, principal text, trace_id text, detail jsonb, lowest bigint)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  names constant text[] := array(select distinct r collate "C" from unnest(resources) as t (r) order by 1);
  token constant bigint := begin_write_on_many.fencing_token;
begin
  perform fencing.lock_guards(names);
  if token < lowest or exists (select from fencing.guard g where g.resource = any (names) and g.last_fencing_token > token) then
    insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
    select 'write_rejected', g.resource, token, greatest(g.last_fencing_token, lowest), fencing.bound_text(begin_write_on_many.owner, 200), fencing.bound_text(begin_write_on_many.principal, 200),
           fencing.bound_text(begin_write_on_many.trace_id, 200), begin_write_on_many.write_id,
           case when g.last_fencing_token < lowest then coalesce(fencing.bound_detail(begin_write_on_many.detail), '{}') || '{"cause": "storage-generation-changed"}' else fencing.bound_detail(begin_write_on_many.detail) end
      from fencing.guard g where g.resource = any (names) and greatest(g.last_fencing_token, lowest) > token order by g.resource;
    return query
      select g.resource::text, greatest(g.last_fencing_token, lowest), greatest(g.last_fencing_token, lowest), false from fencing.guard g where g.resource = any (names) order by g.resource;
    return;
  end if;
  return query
    with entered as (
      update fencing.guard g
         set last_fencing_token = token, found_fencing_token = g.last_fencing_token, entered_xid = pg_current_xact_id(),
             entered_at = transaction_timestamp(), entered_for = begin_write_on_many.write_id::text
       where g.resource = any (names)
      returning g.resource::text, g.found_fencing_token, g.last_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
      select 'write_applied', e.resource, token, e.last_fencing_token, fencing.bound_text(begin_write_on_many.owner, 200), fencing.bound_text(begin_write_on_many.principal, 200),
             fencing.bound_text(begin_write_on_many.trace_id, 200), begin_write_on_many.write_id, fencing.bound_detail(begin_write_on_many.detail)
        from entered e
    )
    select e.resource, greatest(e.found_fencing_token, lowest), e.last_fencing_token, true from entered e order by e.resource;
end
$$;
comment on function fencing.begin_write_on_many(text[], bigint, uuid, text, text, text, jsonb, bigint) is
  'The part of begin_write that needs several statements: several resources, or a refusal. lowest: the floor. Locks: the guard rows in the order of their names.';

create or replace function fencing.begin_write(resources text[], fencing_token bigint, write_id uuid, owner text, principal text, trace_id text, detail jsonb)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  lowest bigint;
begin
  if begin_write.write_id is null then
    raise exception using errcode = '22004', message = 'a write has a write_id';
  end if;
  if cardinality(resources) = 1 and begin_write.fencing_token between 1 and 9007199254740991 and fencing.is_resource(resources[1]) then
    null;  -- the common case saves a call
  else
    perform fencing.validate_fence_arguments(resources, begin_write.fencing_token);
  end if;
  lowest := fencing.storage_floor();
  perform set_config('fencing.write_id', begin_write.write_id::text, true);  -- selects among the open resources, opens none
  if cardinality(resources) = 1 and begin_write.fencing_token >= lowest then
    return query
      with entered as (
        insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
        values (resources[1], begin_write.fencing_token, pg_current_xact_id(), transaction_timestamp(), begin_write.write_id::text)
        on conflict on constraint guard_pkey do update
          set last_fencing_token = excluded.last_fencing_token, found_fencing_token = g.last_fencing_token,
              entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for
          where g.last_fencing_token <= excluded.last_fencing_token
        returning g.resource::text, g.found_fencing_token, g.last_fencing_token
      ), recorded as (
        insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
        select 'write_applied', e.resource, begin_write.fencing_token, e.last_fencing_token, fencing.bound_text(begin_write.owner, 200), fencing.bound_text(begin_write.principal, 200),
               fencing.bound_text(begin_write.trace_id, 200), begin_write.write_id, fencing.bound_detail(begin_write.detail)
          from entered e
      )
      select e.resource, greatest(e.found_fencing_token, lowest), e.last_fencing_token, true from entered e;
    if found then
      return;
    end if;
  end if;
  return query select * from fencing.begin_write_on_many(resources, begin_write.fencing_token, begin_write.write_id, begin_write.owner,
                                                         begin_write.principal, begin_write.trace_id, begin_write.detail, lowest);
end
$$;
comment on function fencing.begin_write(text[], bigint, uuid, text, text, text, jsonb) is
  'For gateways. Locks the guard rows. If the token is lower than any fence (at least the floor), opens no resource, adds a write_rejected row for each stale resource and returns accepted = false '
  'in all rows (the caller commits, so that the refusal is kept; where the floor refused it, the row''s detail has cause = storage-generation-changed). Else raises the fences, opens the resources for this write, and adds a write_applied row for each. '
  'One row for each resource, in the order of the names: found_token is the fence before, last_fencing_token the fence now. From now on the transaction''s changes are checked against '
  'the resources of this write alone, no longer against those of an earlier write of the batch. To undo the write, the caller rolls back to a savepoint taken before this call. '
  'SQLSTATE FG503: the storage generation changed; 22023: not a resource or not a token; 22004: no write_id; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';

create or replace function fencing.begin_writes(
  resources text[], fencing_tokens bigint[], write_ids uuid[], owners text[], principals text[], trace_ids text[], details jsonb[],
  turns uuid[] default null)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  count constant integer := cardinality(resources);
  open_for constant uuid[] := coalesce(begin_writes.turns, begin_writes.write_ids);
  lowest bigint;
begin
  if (cardinality(fencing_tokens) = count and cardinality(write_ids) = count and cardinality(owners) = count and cardinality(principals) = count
      and cardinality(trace_ids) = count and cardinality(details) = count and cardinality(open_for) = count) is not true
     or exists (select from unnest(resources, fencing_tokens, write_ids, open_for) as t (r, token, write_id, opened_write)
                 where (t.token between 1 and 9007199254740991 and fencing.is_resource(t.r) and t.write_id is not null and t.opened_write is not null) is not true) then
    raise exception using errcode = '22023', message = 'begin_writes takes lists of one length, with a resource, a token and a write_id each';
  end if;
  lowest := fencing.storage_floor();
  perform set_config('fencing.write_id', '', true);  -- none of the resources is open before the caller selects a write_id
  return query
    with given as (
      select t.* from unnest(resources, fencing_tokens, write_ids, owners, principals, trace_ids, details, open_for) with ordinality
                      as t (resource, token, write_id, owner, principal, trace_id, detail, opened_write, place)
    ), entered as (
      insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
      select n.resource, n.token, pg_current_xact_id(), transaction_timestamp(), n.opened_write::text from given n where n.token >= lowest order by n.resource collate "C"
      on conflict on constraint guard_pkey do update
        set last_fencing_token = excluded.last_fencing_token, found_fencing_token = g.last_fencing_token,
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for
        where g.last_fencing_token <= excluded.last_fencing_token
      returning g.resource::text, g.found_fencing_token, g.last_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
      select 'write_applied', e.resource, n.token, e.last_fencing_token, fencing.bound_text(n.owner, 200), fencing.bound_text(n.principal, 200), fencing.bound_text(n.trace_id, 200), n.write_id,
             fencing.bound_detail(n.detail)
        from given n join entered e on e.resource = n.resource collate "C" order by n.place
    )
    select n.resource, greatest(e.found_fencing_token, case when e.resource is not null then lowest end), e.last_fencing_token, e.resource is not null
      from given n left join entered e on e.resource = n.resource collate "C" order by n.place;
end
$$;
comment on function fencing.begin_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[], uuid[]) is
  'begin_write for many writes at once, each on one resource, no resource twice: the n-th items of the lists are one write. Raises the fences, opens the resources and adds a write_applied row '
  'for each. A resource can be changed only after set_config(''fencing.write_id'', <write_id>, true) has selected the write_id for which it is open: that of its own write (turns not given), or that of one write for '
  'several; the guard then does not separate those, and the caller has to make sure that each changes only its own resource. One row for each write, in the order of the lists. A stale write (its token is lower than the fence or the floor) has accepted = false '
  'and no row in the history: the caller rolls back, leaves it out, and passes it to begin_write, which records it. '
  'SQLSTATE FG503: the storage generation changed; 22023: not a resource, not a token, no write_id, or lists of different lengths; 21000: a resource twice; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';

-- 095_kept_outcomes.sql
-- Outcomes kept under the caller's Idempotency-Key: a write that is sent again gets the outcome of the first one instead of being executed again.

create table if not exists fencing.kept_outcome (
  principal   text collate "C" not null,
  key         text collate "C" not null,
  fingerprint bytea not null,
  outcome     text not null,
  expires_at  timestamptz not null,
  constraint kept_outcome_pkey primary key (principal, key)
);
do $$
begin
  -- Not `create index if not exists`, which locks the table against writers before it looks for the index.
  if to_regclass('fencing.kept_outcome_expires_at_idx') is null then
    create index kept_outcome_expires_at_idx on fencing.kept_outcome (expires_at);
  end if;
end
$$;
comment on table fencing.kept_outcome is
  'The first outcome of each write that came with an Idempotency-Key, committed together with the write, or with the record of its refusal. Written only by functions of this schema, granted to no one.';
comment on column fencing.kept_outcome.principal is 'The principal that used the key; two principals may use the same key.';
comment on column fencing.kept_outcome.key is 'The key that the caller chose.';
comment on column fencing.kept_outcome.fingerprint is 'SHA-256 of the request, so that the key can''t be used for another request.';
comment on column fencing.kept_outcome.outcome is 'The outcome, in the gateway''s own format.';
comment on column fencing.kept_outcome.expires_at is 'From then on the key counts as unused; forget_outcomes() deletes the row.';

create or replace function fencing.find_outcomes(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other' else 'new' end,
         case when o.fingerprint = t.fingerprint then o.outcome end
    from unnest($1, $2, $3) with ordinality as t (principal, key, fingerprint, place)
    left join lateral (  -- makes the planner use the index for each key, also for a plan made while the table was small
      select k.fingerprint, k.outcome from fencing.kept_outcome k
       where k.principal = t.principal collate "C" and k.key = t.key collate "C" and k.expires_at > statement_timestamp() offset 0) o on true
   order by t.place;
$$;
comment on function fencing.find_outcomes(text[], text[], bytea[]) is
  'For gateways: looks up outcomes as claim_keys does, without claiming the keys; a key that another transaction has claimed is new. Before a write the keys have to be claimed. Locks: none.';

create or replace function fencing.claim_keys(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  locks bigint[];
  locked boolean[];
begin
  if (cardinality(principals) = cardinality(keys) and cardinality(fingerprints) = cardinality(keys)) is not true
     or exists (select from unnest(principals, keys, fingerprints) as t (principal, key, fingerprint)
                 where (octet_length(t.key) between 1 and 64 and octet_length(t.principal) <= 1024 and octet_length(t.fingerprint) = 32) is not true) then
    raise exception using errcode = '22023', message = 'claim_keys takes lists of one length: a principal of at most 1,024 bytes, a key of 1 to 64 bytes and a fingerprint of 32 bytes each';
  end if;
  locks := array(select hashtextextended(t.principal || E'\n' || t.key, 0) from unnest(principals, keys) with ordinality as t (principal, key, place) order by t.place);
  locked := array(select pg_try_advisory_xact_lock(t.lock) from unnest(locks) with ordinality as t (lock, place) order by t.place);
  if false = any (locked) then
    -- Any login can take an advisory lock and could so block a key: only locks of gateways count. Without the lock keep_outcomes() still lets only one write commit.
    locked := array(
      select t.locked or pg_try_advisory_xact_lock(t.lock) or not exists (
               select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
                  and l.classid = ((t.lock >> 32) & 4294967295)::oid and l.objid = (t.lock & 4294967295)::oid and pg_has_role(a.usesysid, 'fencing_gateway', 'member'))
        from unnest(locks, locked) with ordinality as t (lock, locked, place) order by t.place);
  end if;
  -- A separate statement, whose snapshot includes everything committed before a lock was released.
  return query
    select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other'
                when t.locked and t.nth = 1 then 'new' else 'running' end,
           case when o.fingerprint = t.fingerprint then o.outcome end
      from (select u.*, row_number() over (partition by u.principal, u.key order by u.place) as nth
              from unnest(principals, keys, fingerprints, locked) with ordinality as u (principal, key, fingerprint, locked, place)) t
      left join lateral (  -- as above
        select k.fingerprint, k.outcome from fencing.kept_outcome k
         where k.principal = t.principal collate "C" and k.key = t.key collate "C" and k.expires_at > statement_timestamp() offset 0) o on true
     order by t.place;
end
$$;
comment on function fencing.claim_keys(text[], text[], bytea[]) is
  'For gateways, at the beginning of a transaction of writes that have keys; the n-th items of the lists are one write. One row each, in order. new: this transaction has claimed the key until '
  'it ends; kept: outcome is that of the first write with this key; other: the key was used for another request; running: another transaction, or an earlier item of the lists, has claimed it. '
  'Never waits. Advisory locks of sessions that are not gateways are ignored. Read committed only; at other levels keep_outcomes raises. SQLSTATE 22023: lists of another form. Locks until the end of the transaction: an advisory lock for each key.';

create or replace function fencing.keep_outcomes(principals text[], keys text[], fingerprints bytea[], outcomes text[], keep_for_ms bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  kept bigint;
begin
  if exists (select from unnest(outcomes) as t (outcome) where octet_length(t.outcome) > 1048576) then
    raise exception using errcode = '22023', message = 'an outcome has at most 1 MiB';
  end if;
  insert into fencing.kept_outcome as o (principal, key, fingerprint, outcome, expires_at)
  select t.principal, t.key, t.fingerprint, t.outcome, clock_timestamp() + keep_for_ms * interval '1 millisecond'
    from unnest(principals, keys, fingerprints, outcomes) as t (principal, key, fingerprint, outcome)
  on conflict on constraint kept_outcome_pkey do update
    set fingerprint = excluded.fingerprint, outcome = excluded.outcome, expires_at = excluded.expires_at
    where o.expires_at <= statement_timestamp();
  get diagnostics kept = row_count;
  if kept <> cardinality(keys) then
    raise exception using errcode = '40001', message = 'another write has kept its outcome under the same key';
  end if;
end
$$;
comment on function fencing.keep_outcomes(text[], text[], bytea[], text[], bigint) is
  'For gateways: keeps the outcomes of writes whose keys this transaction has claimed, for keep_for_ms. SQLSTATE 40001: an outcome is kept under the key already (the key was not claimed, or not at read '
  'committed); 22023: an outcome has more than 1 MiB; 23502: a value is null. Locks until the end of the transaction: the rows.';

create or replace function fencing.forget_outcomes(most integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  forgotten integer;
begin
  delete from fencing.kept_outcome o
   where o.ctid = any (array(select x.ctid from fencing.kept_outcome x where x.expires_at <= statement_timestamp()
                              order by x.expires_at limit most for update skip locked));
  get diagnostics forgotten = row_count;
  return forgotten;
end
$$;
comment on function fencing.forget_outcomes(integer) is
  'For gateways: deletes expired outcomes, the oldest first and at most that many, and returns their number. Skips rows that another transaction has locked. A write waits for it only if it uses '
  'an expired key. Locks until the end of the transaction: the deleted rows.';

-- 100_fences.sql
-- Raising a fence without writing (fenced reads, fence_on_grant, seals), repairing a fence, and finding out whether a write was committed.

create or replace function fencing.raise_fences(resources text[], to_token bigint, owner text, principal text, trace_id text, reason text)
returns table (resource text, found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  lowest bigint;
begin
  if to_token is null or to_token not between 1 and 9007199254740992 then
    raise exception using errcode = '22023',
      message = format('a fence is raised to an integer from 1 to 2^53, the seal of the last token, not to %s', coalesce(to_token::text, 'null'));
  end if;
  perform fencing.validate_fence_arguments(resources, 1);
  lowest := fencing.storage_floor();
  perform fencing.lock_guards(resources);
  return query
    with found as (
      select g.resource::text, g.last_fencing_token from fencing.guard g where g.resource = any (resources)
    ), raised as (
      update fencing.guard g set last_fencing_token = to_token
       where g.resource = any (resources) and greatest(g.last_fencing_token, lowest) < to_token
      returning g.resource
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, detail)
      select 'fence_raised', f.resource, to_token, to_token, fencing.bound_text(raise_fences.owner, 200), fencing.bound_text(raise_fences.principal, 200),
             fencing.bound_text(raise_fences.trace_id, 200), jsonb_build_object('found_token', f.last_fencing_token, 'reason', fencing.bound_text(reason, 2000))
        from found f join raised using (resource)
    )
    select f.resource, greatest(f.last_fencing_token, lowest), greatest(f.last_fencing_token, to_token, lowest) from found f order by f.resource;
end
$$;
comment on function fencing.raise_fences(text[], bigint, text, text, text, text) is
  'For gateways. Raises each fence to to_token (for a seal: token + 1) and adds fence_raised for each that it raised; never lowers a fence and opens no resource. '
  'One row for each resource, in the order of the names: the fence before and now, at least the floor. SQLSTATE FG503: the storage generation changed; 22023: not a resource, or to_token not from 1 to 2^53; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';

create or replace function fencing.repair_fence(resource text, to_token bigint, principal text, trace_id text, reason text)
returns table (found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_fence bigint;
  lowest constant bigint := (select s.floor from fencing.storage_generation s);
begin
  if to_token is null or to_token not between 0 and 9007199254740992 or coalesce(btrim(reason), '') = '' then
    raise exception using errcode = '22023', message = 'a fence is repaired for a reason, and to an integer from 0 to 2^53';
  end if;
  perform fencing.validate_fence_arguments(array[repair_fence.resource], 1);
  perform fencing.lock_guards(array[repair_fence.resource]);
  select g.last_fencing_token into found_fence from fencing.guard g where g.resource = repair_fence.resource;
  update fencing.guard g set last_fencing_token = to_token where g.resource = repair_fence.resource;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, trace_id, detail)
  values ('fence_raised', repair_fence.resource, to_token, to_token, fencing.bound_text(repair_fence.principal, 200), fencing.bound_text(repair_fence.trace_id, 200),
          jsonb_build_object('repair', true, 'found_token', found_fence, 'reason', fencing.bound_text(reason, 2000)));
  return query select greatest(found_fence, lowest), greatest(to_token, lowest);
end
$$;
comment on function fencing.repair_fence(text, bigint, text, text, text) is
  'For gateways, on behalf of an operator: sets the fence to any value; nothing else can lower a fence. Adds fence_raised with detail.repair = true, the fence before and the reason. '
  'A lower fence lets older holders write again, down to the floor, which no repair lowers. Returns the fence before and now. SQLSTATE 22023: no reason, not a resource, not a token. Locks until the end of the transaction: the guard row.';

create or replace function fencing.write_landed(write_id uuid, resource text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencing.validate_fence_arguments(array[write_landed.resource], 1);
  perform fencing.lock_guards(array[write_landed.resource]);
  return exists (select from fencing.history h
                  where h.write_id = write_landed.write_id and h.resource = write_landed.resource and h.event = 'write_applied');
end
$$;
comment on function fencing.write_landed(uuid, text) is
  'For gateways whose connection broke during COMMIT: waits until the transaction that has locked the resource''s guard row ends, then returns whether the write is in the history. '
  'False is final only if begin_write had answered on the broken connection: a statement that the server has not read yet holds no lock. '
  'Read committed only. SQLSTATE 55P03: lock_timeout; the outcome is unknown. Locks until the end of the transaction: the guard row.';

-- 105_seal.sql
-- Seals the tokens of writes in the transaction of the writes.

create or replace function fencing.seal_writes(resources text[], fencing_tokens bigint[], write_ids uuid[], owners text[], principals text[], trace_ids text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  with given as (
    select distinct on (t.resource collate "C") t.*
      from unnest(resources, fencing_tokens, write_ids, owners, principals, trace_ids) as t (resource, token, write_id, owner, principal, trace_id)
     order by t.resource collate "C", t.token desc
  ), sealed as (
    update fencing.guard g set last_fencing_token = n.token + 1
      from given n
     where g.resource = n.resource collate "C" and g.last_fencing_token = n.token and g.entered_xid = pg_current_xact_id()
    returning g.resource::text, n.token, n.write_id, n.owner, n.principal, n.trace_id
  )
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
  select 'fence_raised', s.resource, s.token + 1, s.token + 1, fencing.bound_text(s.owner, 200), fencing.bound_text(s.principal, 200), fencing.bound_text(s.trace_id, 200), s.write_id,
         jsonb_build_object('found_token', s.token, 'reason', 'seal')
    from sealed s order by s.resource;
end
$$;
comment on function fencing.seal_writes(text[], bigint[], uuid[], text[], text[], text[]) is
  'For gateways: seals tokens after their last writes, in the same transaction: raises the fence of each resource from its token to token + 1, and adds fence_raised with the '
  'write_id. The n-th items of the lists are one resource of one write. Changes only resources that this transaction has entered with that token: a higher fence refuses the token already. '
  'Does not wait. Locks until the end of the transaction: the guard rows, which the transaction has locked before.';

-- 110_protect.sql
-- protect and unprotect: the rows of a protected table change only in a transaction that entered their resource.

create sequence if not exists fencing.check_id_seq as bigint;
comment on sequence fencing.check_id_seq is 'Numbers the check functions, so that no name is used twice, even after a dump was restored.';

create table if not exists fencing.protected (
  relation            regclass primary key,
  resource_expression text not null,
  mode                text not null check (mode in ('enforce', 'observe')),
  check_function      name not null,
  protected_at        timestamptz not null default clock_timestamp(),
  protected_by        text not null default session_user,
  relation_name       text not null,
  expression_objects  text[],
  row_expression      text
);
comment on table fencing.protected is 'The protected tables. The triggers on the tables do the checks; this is the list for the operator and for guard_faults().';
comment on column fencing.protected.relation is 'The table, or the root of a partitioned table.';
comment on column fencing.protected.resource_expression is 'Computes the resource of a row from its columns.';
comment on column fencing.protected.mode is 'enforce refuses changes that are not covered; observe allows and records them.';
comment on column fencing.protected.check_function is 'The trigger function in this schema that protect() generated for the table.';
comment on column fencing.protected.protected_at is 'When protect() was last called.';
comment on column fencing.protected.protected_by is 'Who called it.';
comment on column fencing.protected.relation_name is 'The table''s name at that time, with its schema: a new table of the same name is not protected.';
comment on column fencing.protected.expression_objects is 'Functions, operators and types that the expression uses, except PostgreSQL''s own, as kind and identity.';
comment on column fencing.protected.row_expression is 'The expression as PostgreSQL prints it, over a row called fencing_row: what the check function evaluates.';

create or replace function fencing.require_protectable(relation regclass) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  class pg_class;
begin
  select * into class from pg_class where oid = relation;
  if not found then
    raise exception using errcode = '42P01', message = 'no such table';
  elsif class.relkind not in ('r', 'p') or class.relpersistence = 't' then
    raise exception using errcode = '42809', message = format('%s is not an ordinary or partitioned table', relation),
      hint = 'Protect the tables below a view; writes through the view are checked there.';
  elsif exists (select from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid) join pg_class c on c.oid = t.oid and c.relpersistence = 'u') then
    raise exception using errcode = '42809', message = format('%s is unlogged: a crash of PostgreSQL would empty it', relation), hint = 'alter table … set logged';
  elsif class.relnamespace in ('pg_catalog'::regnamespace, 'fencing'::regnamespace) then
    raise exception using errcode = '42809', message = format('%s belongs to the system', relation);
  elsif class.relispartition then
    raise exception using errcode = '42809', message = format('%s is a partition', relation),
      hint = 'Protect the partitioned table at its root: that covers every partition, also against direct writes.';
  elsif class.relkind = 'r' and exists (select from pg_inherits i where relation in (i.inhparent, i.inhrelid)) then
    raise exception using errcode = '0A000', message = format('%s takes part in table inheritance, which is not supported', relation);
  end if;
end
$$;
comment on function fencing.require_protectable(regclass) is 'Raises 42P01, 42809 or 0A000 unless this is an ordinary table or the root of a partitioned one. Locks: none.';

create or replace function fencing.foreign_owner(object text, relation regclass) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.rolname::text
    from (select split_part(object, ' ', 1) as kind, substr(object, strpos(object, ' ') + 1) as identity offset 0) i
         cross join lateral
         (select case when i.kind in ('function', 'aggregate', 'procedure') then (select p.proowner from pg_proc p where p.oid = to_regprocedure(i.identity))
                      when i.kind = 'operator' then (select o.oprowner from pg_operator o where o.oid = to_regoperator(i.identity))
                      when i.kind = 'type' then (select t.typowner from pg_type t where t.oid = to_regtype(i.identity))
                      when i.kind = 'relation' then (select c.relowner from pg_class c where c.oid = to_regclass(i.identity))
                 end) as o (owner)
    join pg_roles r on r.oid = o.owner and not r.rolsuper
   where r.oid not in (select n.nspowner from pg_namespace n where n.nspname = 'fencing' union all select c.relowner from pg_class c where c.oid = relation);
$$;
comment on function fencing.foreign_owner(text, regclass) is
  'The owner of an object (an item of expression_objects, or of code_of_others()), unless that is the owner of the schema, the owner of the table or a superuser: such an owner could change the result of the expression, and run code '
  'with the rights of the writing role. Locks: none.';

create or replace function fencing.code_objects(relations oid[]) returns table (relation oid, object text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with recursive dependents (relation, class, oid) as (
    select r.oid, 'pg_class'::regclass::oid, r.oid from unnest($1) as r (oid)  -- its columns and partition key
    union all select r.ev_class, 'pg_rewrite'::regclass, r.oid from pg_rewrite r where r.ev_class = any ($1)
    union all select k.conrelid, 'pg_constraint'::regclass, k.oid from pg_constraint k where k.conrelid = any ($1) and k.contype in ('c', 'x')
    union all select d.adrelid, 'pg_attrdef'::regclass, d.oid from pg_attrdef d where d.adrelid = any ($1)
    union all select i.indrelid, 'pg_class'::regclass, i.indexrelid from pg_index i where i.indrelid = any ($1)
    union all select p.polrelid, 'pg_policy'::regclass, p.oid from pg_policy p where p.polrelid = any ($1)
    union all select t.tgrelid, 'pg_trigger'::regclass, t.oid from pg_trigger t where t.tgrelid = any ($1) and not t.tgisinternal
  ), used (relation, class, oid, subid) as (
    select d.relation, d.class, d.oid, 0 from dependents d
    union
    select u.relation, x.class, x.oid, x.subid
      from used u
           cross join lateral (select d.refclassid, d.refobjid, d.refobjsubid from pg_depend d
                                where d.classid = u.class and d.objid = u.oid and (u.subid = 0 or d.objsubid = u.subid)
                                  and d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_class'::regclass)
                               union all  -- a domain evaluates its constraints
                               select 'pg_constraint'::regclass, k.oid, 0 from pg_constraint k where u.class = 'pg_type'::regclass and k.contypid = u.oid
                               union all
                               select 'pg_class'::regclass, t.typrelid, 0 from pg_type t where u.class = 'pg_type'::regclass and t.oid = u.oid) x (class, oid, subid)
     where x.oid >= 16384  -- the server's own objects are below
  )
  select o.relation, i.type || ' ' || i.identity
    from (select distinct u.relation, u.class, u.oid from used u where u.class in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)) o
         cross join lateral pg_identify_object(o.class, o.oid, 0) i;
$$;
comment on function fencing.code_objects(oid[]) is
  'The functions, operators and types, except PostgreSQL''s own, whose code runs where one of these tables is written or views is read: those of the view''s query, or of the table''s constraints, defaults, partition key, indexes, policies and '
  'triggers, and those of its columns'' types and of functions as far as PostgreSQL records what they use. Each as kind and identity. Locks: none.';

create or replace function fencing.code_relations(relations oid[]) returns table (root oid, relation oid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive reached (root, oid) as (
    select c.oid, c.oid from pg_class c where c.oid = any ($1)
    union
    select r.root, c.oid
      from reached r
           cross join lateral (select p.relid from pg_partition_tree(r.oid) p
                               union all
                               select d.refobjid
                                 from (select 'pg_rewrite'::regclass, w.oid from pg_rewrite w where w.ev_class = r.oid union all select 'pg_policy'::regclass, p.oid from pg_policy p where p.polrelid = r.oid) q (class, oid)
                                      join pg_depend d on d.classid = q.class and d.objid = q.oid and d.refclassid = 'pg_class'::regclass) x (oid)
           join pg_class c on c.oid = x.oid and c.oid >= 16384 and c.relkind in ('r', 'p', 'v', 'm', 'f')
  )
  select * from reached;
$$;
comment on function fencing.code_relations(oid[]) is
  'These relations, and with each its partitions and the relations that its query, its rules and its policies name, also through other views: code of all of them may run where it is read or written. Locks: none.';

create or replace function fencing.code_of_others(relations oid[]) returns table (relation oid, object text, owner text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with reached as materialized (
    select * from fencing.code_relations($1)
  ), objects as (
    select r.root, o.object from fencing.code_objects(array(select distinct r.relation from reached r)) o join reached r on r.relation = o.relation
    union
    select r.root, 'relation ' || r.relation::regclass from reached r
  )
  select o.root, o.object, f.owner from objects o cross join lateral (select fencing.foreign_owner(o.object, o.root::regclass) as owner offset 0) f where f.owner is not null;
$$;
comment on function fencing.code_of_others(oid[]) is
  'Of the code_relations() of these relations, those and their code_objects() that belong to another role than the owners of the schema and of the relation, and superusers: that role could run code with the rights of the writing role. Locks: none.';

create or replace function fencing.require_own_code(relations oid[]) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  other record;
begin
  select * into other from fencing.code_of_others(relations) o order by o.object limit 1;
  if found then
    raise exception using errcode = '42501', message = format('%s belongs to %s, who could run code with the rights of the writing role', other.object, other.owner),
      hint = 'Give it to the owner of the table: alter … owner to …';
  end if;
end
$$;
comment on function fencing.require_own_code(oid[]) is 'Raises 42501 if there are code_of_others() for these relations. Locks: none.';

create or replace function fencing.parse_expression(relation regclass, resource_expression text, probe name) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  table_owner constant name := (select r.rolname from pg_class c join pg_roles r on r.oid = c.relowner where c.oid = relation);
begin
  execute format('create schema %I', probe);
  execute format('create table %I.fencing_probe (like %s)', probe, relation);
  execute format('create table %I.start as select 1 as n', probe);
  -- A view says what an expression uses. With two relations in it, PostgreSQL prints each column with the name of its relation. An index takes exactly what is wanted here: an immutable expression over the columns of one row.
  execute format('create function %I.parse() returns void language plpgsql set search_path = pg_catalog, pg_temp as %L', probe, format(
    E'begin execute %L; execute %L; end',
    format(E'create view %I.result as select (%s\n) is null as probe from %I.fencing_probe as fencing_row cross join (values (1)) as fencing_other (fencing_other)', probe, resource_expression, probe),
    format(E'create index expression on %I.fencing_probe ((%s\n))', probe, resource_expression)));
  execute format('create function %I.started(n integer) returns integer immutable language plpgsql set search_path = pg_catalog, pg_temp as %L', probe, format('begin perform %I.parse(); return n; end', probe));
  execute format('grant usage, create on schema %I to %I', probe, table_owner);
  execute format('grant execute on function %1$I.parse(), %1$I.started(integer) to %2$I', probe, table_owner);
  if table_owner <> current_user then
    execute format('alter table %I.fencing_probe owner to %I', probe, table_owner);
    execute format('alter table %I.start owner to %I', probe, table_owner);
  end if;
  execute format('create index on %1$I.start (%1$I.started(n))', probe);
end
$$;
comment on function fencing.parse_expression(regclass, text, name) is
  'Creates the schema probe with a view and an index over the expression: probe.result, probe.expression. Already parsing runs code, which the table''s owner may have made: a constant of a domain evaluates its constraints. So both are '
  'created while PostgreSQL builds an index of a table of that owner: with the owner''s rights, in an operation that the code can''t leave (no other role, nothing deferred to the end of the transaction). Raises what parsing raises. '
  'Locks: the table, access share.';

create or replace function fencing.require_resource_expression(relation regclass, resource_expression text, out objects text[], out row_expression text)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = warning  -- not what is dropped with the schema
as $$
declare
  found_type oid;
  other record;
  result regclass;
  probe constant name := 'fencing_probe_' || replace(gen_random_uuid()::text, '-', '');
  hint constant text := 'Immutable, over columns of the table alone, of type text; numbers as id::text, functions with their schema. For example ''orders/'' || id::text';
begin
  begin
    perform fencing.parse_expression(relation, resource_expression, probe);
    result := format('%I.result', probe)::regclass;  -- it has the table's owner
    objects := array(select o.object from fencing.code_objects(array[result::oid]) o order by o.object);
    select o.object, f.owner into other
      from unnest(objects) as o (object) cross join lateral fencing.foreign_owner(o.object, relation) f (owner) where f.owner is not null limit 1;
    if found then
      raise exception using message = format('%s belongs to %s, who could run code with the rights of the writing role', other.object, other.owner);
    end if;
  exception when others then
    raise exception using errcode = '22023', message = format('the resource expression of %s can''t be used: %s', relation, sqlerrm),
      detail = resource_expression, hint = hint;
  end;
  -- Printed, the expression means the same under every setting of the session.
  row_expression := substring(pg_get_viewdef(result) from '^ *SELECT \((.*) IS NULL\) AS probe\s+FROM ');
  select a.atttypid into found_type from pg_attribute a where a.attrelid = format('%I.expression', probe)::regclass and a.attnum = 1;
  execute format('drop schema %I cascade', probe);
  if found_type <> 'text'::regtype then
    raise exception using errcode = '22023', message = format('the resource expression of %s gives %s, not text', relation, format_type(found_type, null)),
      detail = resource_expression, hint = hint;
  end if;
end
$$;
comment on function fencing.require_resource_expression(regclass, text) is
  'Raises 22023 with the reason unless the expression is immutable, uses only the table''s own columns and is of type text, and uses only objects of the owners of the schema and of the table and of superusers. '
  'Returns those objects, and the expression over a row called fencing_row. Locks: the table, access share.';

create or replace function fencing.code_rights(relation regclass) returns table (target regclass, privilege text, grantee text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct c.oid::regclass, lower(a.privilege_type), case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    from (select $1::oid as oid union select p.relid from pg_partition_tree($1) p) t
    join pg_class c on c.oid = t.oid
    cross join lateral (select * from aclexplode(c.relacl)
                        union all select x.* from pg_attribute b cross join aclexplode(b.attacl) x where b.attrelid = c.oid) a
   where a.privilege_type in ('TRIGGER', 'REFERENCES') and a.grantee <> c.relowner;
$$;
comment on function fencing.code_rights(regclass) is
  'The roles other than the owner that have TRIGGER or REFERENCES on the table or its partitions. Triggers on the table, and on tables that a foreign key''s cascade reaches, run with the rights of the writing role, '
  'and a gateway''s role may lower fences. Locks: none.';

create or replace function fencing.take_code_rights(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in select * from fencing.code_rights(relation) loop
    execute format('revoke %s on %s from %s cascade', item.privilege, item.target, item.grantee);
    raise notice 'fencing: the privilege % on % was revoked from %, who could run code with the rights of the writing role', item.privilege, item.target, item.grantee;
  end loop;
end
$$;
comment on function fencing.take_code_rights(regclass) is 'Revokes the privileges that code_rights() returns. Locks: none.';

create or replace function fencing.remove_checks(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  functions name[];
begin
  -- The entry first, for what is on the list can't be undone piece by piece (125_openings.sql). With it go those of tables that were dropped and had this name.
  with gone as (
    delete from fencing.protected p
     where p.relation = remove_checks.relation
        or p.relation_name = remove_checks.relation::text and not exists (select from pg_class c where c.oid = p.relation)
    returning p.check_function
  )
  select array_agg(g.check_function) into functions from gone g;
  for item in
    select t.tgrelid::regclass as target, t.tgname
      from pg_trigger t
     where t.tgrelid in (select relation union select p.relid from pg_partition_tree(relation) p)
       and t.tgname ~ '^fencing_(check|verify)_'
     order by t.tgrelid <> relation, t.tgrelid, t.tgname  -- the root first: its row triggers take their clones along
  loop
    execute format('drop trigger if exists %I on %s', item.tgname, item.target);
  end loop;
  for item in select f.name from unnest(functions) as f (name) loop
    execute format('drop function if exists fencing.%I()', item.name);
  end loop;
end
$$;
comment on function fencing.remove_checks(regclass) is 'Drops the triggers that protect() created, and their function. Locks: the table and its partitions, access exclusive.';

create or replace function fencing.protect(relation regclass, resource_expression text, mode text default 'enforce') returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
#variable_conflict use_variable
declare
  class pg_class;
  check_function name;
  expression record;
  between text;
  was text;
begin
  if mode is null or mode not in ('enforce', 'observe') then
    raise exception using errcode = '22023', message = format('mode is enforce or observe, not %s', coalesce(mode, 'null'));
  end if;
  perform fencing.require_protectable(relation);
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.require_protectable(relation);  -- what was committed while this call waited for the lock
  select format('%s of %s', b.name, t.oid::regclass) into between
    from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid) cross join lateral fencing.triggers_between(t.oid) b (name)
   where b.name !~ '^fencing_(check|verify)_' limit 1;  -- those are dropped below
  if found then
    raise exception using errcode = '55000', message = format('the trigger %s would run between the checks and could change what they hand on', between), hint = 'Rename it, or drop it.';
  end if;
  expression := fencing.require_resource_expression(relation, resource_expression);
  perform fencing.require_own_code(array[relation::oid]);
  select p.mode into was from fencing.protected p where p.relation = relation;
  perform fencing.remove_checks(relation);
  select * into class from pg_class where oid = relation;
  check_function := format('check_%s_%s', nextval('fencing.check_id_seq'), left(class.relname, 30));
  perform fencing.create_check_function(check_function, expression.row_expression, class.relkind = 'p');
  perform fencing.create_checks(relation, class.relkind = 'p', mode, check_function);
  perform fencing.create_truncate_checks(relation, mode);
  perform fencing.take_code_rights(relation);
  insert into fencing.protected (relation, resource_expression, mode, check_function, relation_name, expression_objects, row_expression)
  values (relation, resource_expression, mode, check_function, relation::text, expression.objects, expression.row_expression);
  perform fencing.record_guard_change('protect', jsonb_build_object('relation', relation::text, 'resource_expression', resource_expression, 'mode', mode, 'was', was));
end
$$;
comment on function fencing.protect(regclass, text, text) is
  'From the commit on, rows of the table change only in a transaction that entered their resource (that of the old and of the new row); TRUNCATE is refused. This holds for every role, '
  'also with session_replication_role = replica. Mode observe allows such changes and records them as write_rejected with detail.observed = true. '
  'Revokes the privileges TRIGGER and REFERENCES of all roles but the owner. Has to be called again after a change of the expression, the mode or a column''s name. A partitioned table is protected at its root: every partition is covered, also against direct writes '
  'and if it is attached later; only TRUNCATE of a partition attached later is allowed until protect() is called again. '
  'The expression is evaluated with the rights of the writing role. '
  'The caller installed the schema and owns the table. SQLSTATE 22023: the expression can''t be used, or the mode is unknown; 42501: others own code that runs where the table is written; 42809, 0A000: not a table that can be protected. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';

create or replace function fencing.unprotect(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
declare
  was text;
begin
  execute format('lock table %s in access exclusive mode', relation);
  if not exists (select from fencing.protected p
                  where p.relation = unprotect.relation or p.relation_name = unprotect.relation::text and not exists (select from pg_class c where c.oid = p.relation))
     and not exists (select from pg_trigger t where t.tgrelid = unprotect.relation and t.tgname ~ '^fencing_(check|verify)_') then
    raise exception using errcode = '42704', message = format('%s is not protected', relation);
  end if;
  select p.mode into was from fencing.protected p where p.relation = unprotect.relation;
  perform fencing.remove_checks(relation);
  perform fencing.record_guard_change('unprotect', jsonb_build_object('relation', relation::text, 'was', was));
end
$$;
comment on function fencing.unprotect(regclass) is
  'Removes everything that protect() created. The fences stay. SQLSTATE 42704: the table is not protected. Locks until the end of the transaction: the table and its partitions, access exclusive.';

-- 120_checks.sql
-- The triggers that protect() creates. Ordinary tables have statement triggers, which check all rows of a statement at once; partitioned tables have row triggers,
-- because PostgreSQL clones those to every partition, also to those attached later, so that writes that name a partition are checked too.
--
-- Two triggers run one after the other. The first, fencing_check_*, finds the resources of the changed rows. It evaluates the expression, and so code that others may have written (functions, conversions of
-- types), so it has only the rights of the writing role. The second, fencing_verify_*, has the owner's rights, which it needs to read the guard, and evaluates no code of others: it gets the
-- resources as text, in a setting that it empties. A trigger whose name sorts between theirs could change that setting: protect() and the event triggers refuse one, and guard_faults() names it.

create or replace function fencing.bounded_text_of(expression text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select format($e$case when octet_length(%1$s) > 200 then left(%1$s, 200) || '... (' || octet_length(%1$s)::text || ' bytes)' else coalesce(%1$s, '') end$e$, expression)
$$;
comment on function fencing.bounded_text_of(text) is
  'The text of an expression that does what bound_text does, and gives an empty text for null, for check functions: the writing role may call no function of this schema. Locks: none.';

create or replace function fencing.check_body(row_expression text, by_row boolean) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $body$
  select replace(replace(replace(case when by_row then $row$
declare
  fencing_row  record;
  old_resource text;
  new_resource text;
  handed_over  text;
begin
  if tg_op <> 'INSERT' then
    fencing_row := old;
    old_resource := {expression};
  end if;
  if tg_op <> 'DELETE' then
    fencing_row := new;
    new_resource := {expression};
  end if;
  {hand_over_one}
  return null;
end
$row$ else $statement$
#variable_conflict use_column
declare
  old_resource text;
  new_resource text;
  handed_over  text;
begin
  -- One row, the common case: three plain scans cost half as much as the query below.
  if tg_op <> 'INSERT' then
    select {expression} into old_resource from fencing_old as fencing_row;
  end if;
  if tg_op <> 'DELETE' then
    select {expression} into new_resource from fencing_new as fencing_row;
  end if;
  if found then
    if tg_op = 'DELETE' then
      perform from fencing_old offset 1;
    else
      perform from fencing_new offset 1;
    end if;
    if not found then
      {hand_over_one}
      return null;
    end if;
  end if;
  if tg_op = 'INSERT' then
    {hand_over} (select ({expression}) collate "C" as resource from fencing_new as fencing_row) t)::text, true);
  elsif tg_op = 'UPDATE' then
    {hand_over} (select ({expression}) collate "C" as resource from fencing_old as fencing_row union all select ({expression}) collate "C" from fencing_new as fencing_row) t)::text, true);
  else
    {hand_over} (select ({expression}) collate "C" as resource from fencing_old as fencing_row) t)::text, true);
  end if;
  return null;
end
$statement$ end,
    '{hand_over_one}', format($one$handed_over := set_config('fencing.changed',
    (case tg_op when 'INSERT' then array[%2$s] when 'DELETE' then array[%1$s] else array[%1$s, %2$s] end)::text, true);$one$,
                              fencing.bounded_text_of('old_resource'), fencing.bounded_text_of('new_resource'))),
    '{hand_over}', format('handed_over := set_config(''fencing.changed'', array(select distinct %s from', fencing.bounded_text_of('t.resource'))),
    '{expression}', row_expression)
$body$;
comment on function fencing.check_body(text, boolean) is 'The body of a check function. Locks: none.';

create or replace function fencing.check_settings() returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$  -- in the form of pg_proc.proconfig
  values (array['search_path=pg_catalog, pg_temp', 'extra_float_digits=1', 'bytea_output=hex', 'quote_all_identifiers=off', 'standard_conforming_strings=on', 'transform_null_equals=off', 'DateStyle=iso, mdy',
                'IntervalStyle=postgres', 'TimeZone=utc'])
$$;
comment on function fencing.check_settings() is
  'The settings with which a resource expression is evaluated: all settings that change the text of an immutable expression, so that no caller''s setting makes one resource look like another. Locks: none.';

create or replace function fencing.create_check_function(check_function name, row_expression text, by_row boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create function fencing.%I() returns trigger language plpgsql %s as %L', check_function,
                 (select string_agg(format('set %s = %s', split_part(x.setting, '=', 1), split_part(x.setting, '=', 2)), ' ' order by x.n)
                    from unnest(fencing.check_settings()) with ordinality as x (setting, n)),
                 fencing.check_body(row_expression, by_row));
  perform fencing.revoke_from_others('function', p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner)
     from pg_proc p where p.pronamespace = 'fencing'::regnamespace and p.proname = check_function;
  execute format('comment on function fencing.%I() is %L', check_function,
                 'Trigger, generated by fencing.protect: finds the resources of the rows that change, for fencing.verify_change. Runs with the rights of the writing role. Locks: none.');
end
$$;
comment on function fencing.create_check_function(name, text, boolean) is 'Creates a generated trigger function, granted to nobody. Locks: none.';

create or replace function fencing.verify_change() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  changed constant text[] := nullif(current_setting('fencing.changed', true), '');
  xid     constant xid8 := pg_current_xact_id_if_assigned();
  write   constant text := left(coalesce(current_setting('fencing.write_id', true), ''), 64);
  emptied constant text := set_config('fencing.changed', '', true);
  uncovered text;  -- empty: a row without a resource
begin
  if changed is null then
    raise exception using errcode = 'FG403', message = format('resource not covered: the check of %s did not run; fencing.protect() puts it back', tg_relid::regclass),
      detail = jsonb_build_object('resource', null, 'relation', tg_relid::regclass::text, 'operation', lower(tg_op))::text;
  end if;
  if changed[1] = all (changed) then  -- the common case, in half the time
    perform from fencing.guard g where g.resource = changed[1] collate "C" and g.entered_xid = xid and g.entered_at = transaction_timestamp() and g.entered_for = write;
    if found then
      return null;
    end if;
  end if;
  -- A scalar subquery is always answered by one probe of the guard's primary key a resource, whatever the statistics say. The list is a subquery too: seen by the planner, it would be planned for each time.
  if tg_argv[0] = 'enforce' then
    select t.resource into uncovered from unnest((select changed)) as t (resource)
     where (select true from fencing.guard g where g.resource = t.resource collate "C" and g.entered_xid = xid
             and g.entered_at = transaction_timestamp() and g.entered_for = write) is null
     limit 1;
    if found then
      perform fencing.refuse_change(tg_relid, tg_op, nullif(uncovered, ''));
    end if;
  else
    perform fencing.observe_change(tg_relid, tg_op, nullif(d.resource, '')) from (select distinct t.resource from unnest((select changed)) as t (resource)
     where (select true from fencing.guard g where g.resource = t.resource collate "C" and g.entered_xid = xid
             and g.entered_at = transaction_timestamp() and g.entered_for = write) is null
     limit 100) d;
  end if;
  return null;
end
$$;
comment on function fencing.verify_change() is
  'Trigger: refuses changes of rows whose resource this transaction has not entered, or records them in mode observe. The trigger before it passes the resources as text. '
  'SQLSTATE FG428, FG403. Locks: none.';

create or replace function fencing.expected_triggers(by_row boolean, mode text, check_function name) returns table (name name, function name, kind integer, argument text, tables text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$  -- kind as in pg_trigger.tgtype: 1 a row, 2 before, 4 insert, 8 delete, 16 update, 32 truncate
  select * from (values
    ('fencing_check_insert'::name, check_function, 4, null, 'new table as fencing_new'),
    ('fencing_check_update', check_function, 16, null, 'old table as fencing_old new table as fencing_new'),
    ('fencing_check_delete', check_function, 8, null, 'old table as fencing_old'),
    ('fencing_verify_insert', 'verify_change', 4, mode, null),
    ('fencing_verify_update', 'verify_change', 16, mode, null),
    ('fencing_verify_delete', 'verify_change', 8, mode, null)) t
   where not by_row
  union all
  select * from (values
    ('fencing_check_row'::name, check_function, 29, null, null),
    ('fencing_verify_row', 'verify_change', 29, mode, null)) t
   where by_row
  union all
  select 'fencing_check_truncate', 'check_truncate', 34, mode, null;
$$;
comment on function fencing.expected_triggers(boolean, text, name) is 'The triggers that a protected table must have; row triggers also on each partition. Locks: none.';

create or replace function fencing.triggers_between(relation regclass) returns setof name
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select t.tgname from pg_trigger t
   where t.tgrelid = relation and t.tgname > 'fencing_check' and t.tgname < 'fencing_verify~'
     and t.tgname not in (select x.name from fencing.expected_triggers(false, '', '') x union all select x.name from fencing.expected_triggers(true, '', '') x);
$$;
comment on function fencing.triggers_between(regclass) is
  'Other triggers that would run between the two of protect() (triggers fire in the order of their names) and so could change what the first passes to the second. Locks: none.';

create or replace function fencing.create_checks(relation regclass, by_row boolean, mode text, check_function name) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  target regclass;
begin
  for item in select * from fencing.expected_triggers(by_row, mode, check_function) t where t.name <> 'fencing_check_truncate' loop
    execute format('create trigger %I after %s on %s %s for each %s execute function fencing.%I(%s)', item.name,
                   case when by_row then 'insert or update or delete' else split_part(item.name, '_', 3) end, relation,
                   coalesce('referencing ' || item.tables, ''), case when by_row then 'row' else 'statement' end, item.function, coalesce(quote_literal(item.argument), ''));
    for target in select relation union select p.relid from pg_partition_tree(relation) p loop
      execute format('alter table %s enable always trigger %I', target, item.name);
    end loop;
  end loop;
end
$$;
comment on function fencing.create_checks(regclass, boolean, text, name) is 'Creates the check triggers of a table: row triggers for a partitioned table, else statement triggers. Locks: the table and its partitions, access exclusive.';

create or replace function fencing.check_truncate() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_argv[0] = 'enforce' then
    perform fencing.refuse_change(tg_relid, tg_op, null);
  else
    perform fencing.observe_change(tg_relid, tg_op, null);
  end if;
  return null;
end
$$;
comment on function fencing.check_truncate() is 'Trigger: refuses TRUNCATE of a protected table, because it changes every resource at once. SQLSTATE FG403. Locks: none.';

create or replace function fencing.create_truncate_checks(relation regclass, mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  target regclass;
begin
  for target in
    select relation union select p.relid from pg_partition_tree(relation) p join pg_class c on c.oid = p.relid where c.relkind in ('r', 'p')
  loop
    execute format('create trigger fencing_check_truncate before truncate on %s for each statement execute function fencing.check_truncate(%L)', target, mode);
    execute format('alter table %s enable always trigger fencing_check_truncate', target);
  end loop;
end
$$;
comment on function fencing.create_truncate_checks(regclass, text) is 'Creates the triggers that refuse TRUNCATE of the table and of every partition. Locks: those, access exclusive.';

-- 122_guard_changes.sql
-- Changes of the guard are events of the history: what an operator changes by its functions, and faults that appear and disappear.

create or replace function fencing.record_guard_change(action text, facts jsonb) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.history (event, principal, detail)
  values ('guard_changed', session_user, fencing.bound_detail(jsonb_strip_nulls(
    jsonb_build_object('action', action, 'application_name', current_setting('application_name', true)) || facts)));
$$;
comment on function fencing.record_guard_change(text, jsonb) is
  'Adds guard_changed to the history, in the transaction of the change. The functions that change the guard call it. Locks: none that others wait for.';

create table if not exists fencing.known_faults (
  singleton  boolean primary key default true check (singleton),
  checked_at timestamptz,
  faults     jsonb not null default '{}'
);
comment on table fencing.known_faults is 'One row: what guard_faults() returned when it was last compared, so that the history records each fault once, whichever gateway finds it. Granted to no one.';
comment on column fencing.known_faults.singleton is 'Keeps the table at one row.';
comment on column fencing.known_faults.checked_at is 'When the last comparison of all faults began; null before the first.';
comment on column fencing.known_faults.faults is 'An object: each fault, and the table that it opens, or null.';
insert into fencing.known_faults default values on conflict do nothing;

create or replace function fencing.record_fault_changes(known jsonb, current jsonb, checked_at timestamptz, command text) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.history (event, principal, detail)
  select 'guard_changed', case when command is not null then session_user end,
         fencing.bound_detail(jsonb_strip_nulls(jsonb_build_object('action', f.action, 'relation', f.relation, 'faults', jsonb_agg(f.fault order by f.fault), 'not_before', f.not_before, 'command', command)))
    from (select 'fault_found' as action, c.key as fault, c.value as relation, checked_at as not_before from jsonb_each_text(current) c where not known ? c.key
          union all
          select 'fault_gone', k.key, k.value, null from jsonb_each_text(known) k where not current ? k.key) f
   group by f.action, f.relation, f.not_before
   order by f.action, f.relation;
$$;
comment on function fencing.record_fault_changes(jsonb, jsonb, timestamptz, text) is
  'Adds guard_changed for the faults that are new (fault_found) and for those that are gone (fault_gone), one for each table. not_before: when the faults were compared before; a fault that a gateway found may be as old. '
  'command: the command that made it, with the session''s user as principal; null where a gateway found it. Locks: none that others wait for.';

create or replace function fencing.watch_guard() returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off  -- as guard_faults()
as $$
declare
  began constant timestamptz := clock_timestamp();
  known fencing.known_faults;
  current jsonb;
begin
  if not current_setting('transaction_read_only')::boolean then
    select * into known from fencing.known_faults for update skip locked;  -- one gateway compares at a time
  end if;
  select coalesce(jsonb_object_agg(g.fault, t.relation), '{}') into current
    from fencing.guard_faults() g (fault)
         left join (select f.fault, min(f.relation::regclass::text) as relation from fencing.table_faults() f where f.about <> 'history' group by f.fault) t on t.fault = g.fault;
  if known.singleton then
    perform fencing.record_fault_changes(known.faults, current, known.checked_at, null);
    update fencing.known_faults set checked_at = began, faults = current;
  end if;
  return query select k.fault from jsonb_object_keys(current) k (fault) order by 1;
end
$$;
comment on function fencing.watch_guard() is
  'For gateways, which call it every 30 s: returns guard_faults(), and records in the history which of them are new and which are gone since any gateway called it. It records nothing in a read-only '
  'transaction, and while another call is under way. Locks until the end of the transaction: the row of known_faults, without waiting.';

create or replace function fencing.record_faults_of(relations oid[], faults jsonb, command text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  names constant text[] := array(select r::regclass::text from unnest(relations) as t (r));
  known jsonb;
  current jsonb;
begin
  select coalesce(jsonb_object_agg(f.key, f.value), '{}') into known from fencing.known_faults k cross join jsonb_each_text(k.faults) f where f.value = any (names);
  select coalesce(jsonb_object_agg(f.fault, f.relation::regclass::text), '{}') into current
    from jsonb_to_recordset(faults) f (relation oid, about text, fault text) where f.relation = any (relations) and f.about <> 'history';
  if known = current then
    return;
  end if;
  perform fencing.record_fault_changes(known, current, null, command);
  perform from fencing.known_faults for update skip locked;
  if found then
    update fencing.known_faults k set faults = k.faults - array(select jsonb_object_keys(known)) || current;
  end if;
exception when serialization_failure then
  null;  -- in a transaction of a higher isolation level; a gateway finds the fault
end
$$;
comment on function fencing.record_faults_of(oid[], jsonb, text) is
  'Called by the event triggers after a command that changed these tables: records in the history which of their faults the command made (a superuser may disable a check) or mended. faults: what table_faults() returns for them. '
  'Locks until the end of the transaction: the row of known_faults, without waiting.';

-- 125_openings.sql
-- Changes that would open a protected table without unprotect(): checks dropped or replaced, a parent or child that is not checked, a new table of the same name. guard_faults() names each, and event triggers
-- refuse it if the installing role is a superuser, because only a superuser may create event triggers.

create or replace function fencing.table_faults() returns table (relation oid, other oid, about text, fault text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
  with tables as materialized (  -- the protected tables, and their partitions
    select p.relation::oid as root, t.oid, c.relkind = 'p' as by_row, p.mode, p.check_function
      from fencing.protected p join pg_class c on c.oid = p.relation
           cross join lateral (select p.relation::oid union select relid from pg_partition_tree(p.relation)) t (oid)
  ), expected as materialized (
    select g.oid, x.name, f.oid as function, x.kind, coalesce(convert_to(x.argument, 'UTF8') || '\x00', '') as argument, 'protect()' as remedy, 'table' as about
      from tables g cross join lateral fencing.expected_triggers(g.by_row, g.mode, g.check_function) x
           left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = x.function and f.pronargs = 0
    union all
    select h.relid, x.name, 'fencing.refuse_history_change()'::regprocedure, x.kind, '', 'alter table … enable always trigger', 'history'
      from pg_partition_tree('fencing.history') h cross join (values ('history_append_only'::name, 27), ('history_no_truncate', 34)) as x (name, kind)
  )
  select c.oid, null::oid, case when x.about = 'history' then 'history' when t.oid is null then 'missing trigger' when t.tgenabled <> 'A' then 'disabled trigger' else 'changed trigger' end,
         format('%s: the trigger %s %s; %s puts it back', c.oid::regclass, x.name,
                case when t.oid is null then 'is missing' when t.tgenabled <> 'A' then 'is not always on' else 'is not the one that checks' end, x.remedy)
    from expected x join pg_class c on c.oid = x.oid left join pg_trigger t on t.tgrelid = c.oid and t.tgname = x.name
   where (t.tgenabled = 'A' and t.tgfoid = x.function and t.tgtype = x.kind and t.tgqual is null and t.tgattr = '' and t.tgargs = x.argument and not t.tgdeferrable) is not true
     and (c.relkind in ('r', 'p') or x.name not like '%truncate')
  union all
  select p.relation, null, 'function', format('%s: the function fencing.%s() is not what this version of protect() makes; call it again', p.relation, p.check_function)
    from fencing.protected p join pg_class c on c.oid = p.relation
         left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = p.check_function and f.pronargs = 0
   where (f.prosrc = fencing.check_body(p.row_expression, c.relkind = 'p') and not f.prosecdef and f.proconfig = fencing.check_settings()) is not true
  union all
  select g.oid, g.root, 'trigger between', format('%s: the trigger %s runs between the checks and could change what they hand on; rename or drop it', g.oid::regclass, b.name)
    from tables g cross join lateral fencing.triggers_between(g.oid) b (name)
  union all
  select p.relation, i.inhparent, 'parent', format('%s: changes through %s, which is not protected, are not checked; detach it, or protect that', p.relation, i.inhparent::regclass)
    from fencing.protected p join pg_inherits i on i.inhrelid = p.relation
   where i.inhparent not in (select g.oid from tables g where g.by_row)
  union all
  select g.root, c.oid, 'parent', format('%s: %s inherits from it and is not checked where it is named itself; alter table … no inherit', g.oid::regclass, c.oid::regclass)
    from tables g join pg_inherits i on i.inhparent = g.oid join pg_class c on c.oid = i.inhrelid and not c.relispartition
  union all
  select c.oid, p.relation, 'name', format('%s: a table of this name was protected, which %s; this one is not: protect() it', c.oid::regclass,
                                          case when o.oid is null then 'was dropped' else 'is now ' || o.oid::regclass::text end)
    from fencing.protected p join pg_class c on c.oid = to_regclass(p.relation_name) and c.oid <> p.relation left join pg_class o on o.oid = p.relation
   where c.oid not in (select g.oid from tables g)
  union all
  select g.oid, g.root, 'unlogged', format('%s is unlogged: a crash of PostgreSQL empties it, and the fences stay; alter table … set logged', c.oid::regclass)
    from tables g join pg_class c on c.oid = g.oid and c.relpersistence = 'u';
$$;
comment on function fencing.table_faults() is
  'The states in which changes of a protected table are not checked. relation: the table; other: a second table that is involved; about: missing, disabled or changed trigger, function (that computes the resources), trigger between, parent, name, unlogged, or history, whose triggers belong to the guard itself. Locks: none.';

create or replace function fencing.event_triggers() returns table (name name, event text, tags text[])
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  values ('fencing_refuse_openings'::name, 'ddl_command_end',
          -- ALTER INDEX can rename a table
          array['CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE', 'ALTER INDEX', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'CREATE VIEW', 'ALTER VIEW', 'CREATE MATERIALIZED VIEW',
                'ALTER MATERIALIZED VIEW', 'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE EXTENSION', 'ALTER EXTENSION', 'IMPORT FOREIGN SCHEMA', 'CREATE TRIGGER', 'ALTER TRIGGER']),
         ('fencing_refuse_drops', 'sql_drop', null);
$$;
comment on function fencing.event_triggers() is 'The event triggers that call refuse_openings(), and for which commands; null: for all. Locks: none.';

create or replace function fencing.refuse_openings() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
declare
  moves_schema constant boolean := tg_tag in ('ALTER SCHEMA', 'ALTER EXTENSION');  -- reported without the tables that moved
  touched oid[];
  faults jsonb;
  found_fault text;
begin
  if tg_event = 'sql_drop' then
    select p.relation_name into found_fault
      from pg_event_trigger_dropped_objects() d join fencing.protected p on d.classid = 'pg_class'::regclass and d.objid = p.relation and d.objsubid = 0 limit 1;
    if found then
      raise exception using errcode = '55000', message = format('%s is protected: a table made anew under its name would be open', found_fault),
        hint = format('select fencing.unprotect(%L) first.', found_fault);
    end if;
    touched := array(select to_regclass(format('%I.%I', d.address_names[1], d.address_names[2]))::oid from pg_event_trigger_dropped_objects() d
                       where d.object_type = 'trigger' and d.address_names[3] ~ '^fencing_(check|verify)_');
  else
    touched := array(select case when d.classid = 'pg_trigger'::regclass
                                 then (select t.tgrelid from pg_trigger t join pg_proc f on f.oid = t.tgfoid where t.oid = d.objid and (starts_with(t.tgname, 'fencing_') or f.pronamespace = 'fencing'::regnamespace))
                                 else d.objid end
                       from pg_event_trigger_ddl_commands() d where d.classid in ('pg_trigger'::regclass, 'pg_class'::regclass));
  end if;
  if touched = '{}' and not moves_schema then
    return;
  end if;
  faults := (select coalesce(jsonb_agg(to_jsonb(f)), '[]') from fencing.table_faults() f where f.relation = any (touched) or f.other = any (touched) or moves_schema and f.about = 'name');
  -- Only faults that this command can have made: a partition attached earlier lacks the trigger for TRUNCATE, and after an upgrade in which protect() failed the checks are those of the earlier version.
  -- A superuser may disable and enable the checks, and could do so in any case: pg_restore --data-only --disable-triggers needs it.
  select f.fault into found_fault from jsonb_to_recordset(faults) f (relation oid, other oid, about text, fault text)
   where case f.about when 'history' then false
                      when 'function' then false
                      when 'missing trigger' then tg_event = 'sql_drop' or tg_tag = 'ALTER TRIGGER'
                      when 'changed trigger' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER')
                      when 'disabled trigger' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER')
                                                   or tg_tag = 'ALTER TABLE' and not exists (select from pg_roles r where r.rolname = session_user and r.rolsuper)
                      when 'trigger between' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER') or tg_tag = 'ALTER TABLE' and f.relation <> f.other  -- a partition that was attached
                      else true end
   order by f.fault limit 1;
  if found then
    raise exception using errcode = '55000', message = 'this would open a protected table: ' || found_fault, hint = 'fencing.unprotect() takes the protection off, and fencing.protect() puts it on again.';
  end if;
  perform fencing.record_faults_of(touched, faults, tg_tag);
end
$$;
comment on function fencing.refuse_openings() is
  'Event trigger: refuses a command after which table_faults() would name a fault, and the dropping of a protected table. protect() and unprotect() are not affected: they first remove the table from the list. '
  'The history records a fault that a command makes or mends all the same (record_faults_of). SQLSTATE 55000. Locks: none.';

-- 130_expose.sql
-- The tables and functions of the HTTP interface, and their names there.

create table if not exists fencing.exposed (
  name       text primary key check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$'),
  relation   regclass,
  function   text,
  operations text[] check (operations <@ '{select,insert,update,delete}' and cardinality(operations) > 0),
  columns    text[] check (cardinality(columns) > 0),
  exposed_at timestamptz not null default clock_timestamp(),
  constraint exposed_is_one_thing check ((relation is null) <> (function is null) and (relation is null) = (operations is null))
);
comment on table fencing.exposed is 'The list of tables and functions that gateways serve; nothing else can be named over HTTP.';
comment on column fencing.exposed.name is 'The name in /v1/tables/{name} and /v1/rpc/{name}.';
comment on column fencing.exposed.relation is 'The table or view, null for a function.';
comment on column fencing.exposed.function is 'The function as name(argument types) with its schema, null for a table; as text, because pg_upgrade accepts no regprocedure.';
comment on column fencing.exposed.operations is 'Which of select, insert, update, delete.';
comment on column fencing.exposed.columns is 'The columns that can be read and written; null: all, also columns added later.';
comment on column fencing.exposed.exposed_at is 'When it was exposed.';

create or replace function fencing.grant_table(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  sequence regclass;
begin
  execute format('revoke all on %s from fencing_gateway', relation);
  for item in
    select o as operation, (select string_agg(quote_ident(c), ', ') from unnest(e.columns) as u (c)) as columns
      from fencing.exposed e cross join unnest(e.operations) as t (o)
     where e.relation = grant_table.relation
  loop
    execute format('grant %s%s on %s to fencing_gateway', item.operation,
                   case when item.columns is not null and item.operation <> 'delete' then format(' (%s)', item.columns) else '' end, relation);
  end loop;
  for sequence in
    select d.objid from pg_depend d join pg_class c on c.oid = d.objid
     where d.refobjid = relation and d.classid = 'pg_class'::regclass and d.deptype = 'a' and c.relkind = 'S'
  loop
    execute format(case when exists (select from fencing.exposed e where e.relation = grant_table.relation and 'insert' = any (e.operations))
                        then 'grant usage on sequence %s to fencing_gateway' else 'revoke usage on sequence %s from fencing_gateway' end, sequence);
  end loop;
end
$$;
comment on function fencing.grant_table(regclass) is 'Grants fencing_gateway exactly what is exposed of the table, under all names together. Locks: none.';

create or replace function fencing.base_type(type oid) returns oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive base as (
    select t.oid, t.typbasetype from pg_type t where t.oid = $1
    union all
    select t.oid, t.typbasetype from base b join pg_type t on t.oid = b.typbasetype
  )
  select b.oid from base b where b.typbasetype = 0;
$$;
comment on function fencing.base_type(oid) is 'The base type of a domain, also through other domains; for every other type the type itself. Locks: none.';

create or replace function fencing.operator_schema(type oid) returns regnamespace
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select o.oprnamespace::regnamespace
    from (select fencing.base_type($1) as oid offset 0) b
         join pg_opclass c on c.opcintype = b.oid and c.opcdefault
         join pg_am m on m.oid = c.opcmethod
         join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = b.oid and a.amoprighttype = b.oid
                       and a.amopstrategy = case m.amname when 'btree' then 3 when 'hash' then 1 end
         join pg_operator o on o.oid = a.amopopr
   where o.oprnamespace <> 'pg_catalog'::regnamespace
   limit 1;
$$;
comment on function fencing.operator_schema(oid) is
  'The schema of the operator = of the type, or of its base type, if it has comparison operators of its own (citext, hstore, ltree); null where those of pg_catalog apply. '
  'Gateways do not have that schema in their search_path, and would else compare in another way than psql. Locks: none.';

create or replace function fencing.grant_types(types oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  schema regnamespace;
begin
  for schema in
    select distinct s.id from unnest(types) as t (id)
     cross join lateral (select y.typnamespace from pg_type y where y.oid in (t.id, fencing.base_type(t.id)) union all select fencing.operator_schema(t.id)::oid) as s (id)
     where s.id is not null and not has_schema_privilege('fencing_gateway', s.id, 'usage')
  loop
    execute format('grant usage on schema %s to fencing_gateway', schema);
  end loop;
end
$$;
comment on function fencing.grant_types(oid[]) is
  'Grants fencing_gateway usage of the schemas of these types and of their operators, where it does not have it. Locks: none.';

create or replace function fencing.require_name(name text, target text, replace boolean) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  holder text;
begin
  select coalesce(c.oid::regclass::text, to_regprocedure(e.function)::text) into holder
    from fencing.exposed e left join pg_class c on c.oid = e.relation where e.name = require_name.name;
  if holder <> target and replace is not true then
    raise exception using errcode = '42710', message = format('the name %s is taken: it refers to %s, and would refer to %s', name, holder, target),
      hint = 'Choose another with name => …, or pass replace => true: callers of the name then reach the new one.';
  end if;
end
$$;
comment on function fencing.require_name(text, text, boolean) is
  'Raises 42710 if another table or function that still exists is exposed under the name, unless replace is true. Locks: none.';

create or replace function fencing.expose_table(
  relation regclass, name text default null, operations text[] default '{select,insert,update,delete}', columns text[] default null, replace boolean default false) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  class pg_class;
  missing text;
begin
  select * into class from pg_class where oid = relation;
  if not found or class.relkind not in ('r', 'p', 'v', 'f', 'm') then
    raise exception using errcode = '42809', message = format('%s is not a table or view', relation);
  end if;
  if class.relnamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000', message = format('%s is not exposed: callers could undo what the guard promises', relation),
      hint = 'A view of your own can show what is to be seen.';
  end if;
  if expose_table.operations && '{insert,update,delete}'
     and exists (select from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid) join pg_class c on c.oid = t.oid and c.relpersistence = 'u') then
    raise exception using errcode = '42809', message = format('%s is unlogged: a crash of PostgreSQL would empty it after its writes were answered', relation), hint = 'alter table … set logged, or expose it for select alone';
  end if;
  perform fencing.require_own_code(array[relation::oid]);
  select c into missing from unnest(columns) as t (c)
   where not exists (select from pg_attribute a where a.attrelid = relation and a.attname = c and a.attnum > 0 and not a.attisdropped);
  if found then
    raise exception using errcode = '42703', message = format('%s has no column %s', relation, coalesce(missing, 'null'));
  end if;
  perform fencing.require_name(coalesce(expose_table.name, class.relname), relation::text, replace);
  perform fencing.hide(e.name) from fencing.exposed e where e.name = coalesce(expose_table.name, class.relname);
  insert into fencing.exposed (name, relation, operations, columns)
  values (coalesce(expose_table.name, class.relname), expose_table.relation, expose_table.operations, expose_table.columns);
  execute format('grant usage on schema %s to fencing_gateway', class.relnamespace::regnamespace);
  perform fencing.grant_table(relation);
  perform fencing.take_code_rights(relation);
  perform fencing.grant_types(array(
    select a.atttypid from pg_attribute a
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and (columns is null or a.attname = any (columns))));
  perform fencing.record_guard_change('expose_table', jsonb_build_object('name', coalesce(expose_table.name, class.relname), 'relation', relation::text, 'operations', operations, 'columns', columns));
  perform pg_notify('fencing_catalog', coalesce(expose_table.name, class.relname));
end
$$;
comment on function fencing.expose_table(regclass, text, text[], text[], boolean) is
  'Lets gateways serve the table or view under that name (its own by default) with these operations and columns (null: all), and grants fencing_gateway exactly these privileges, '
  'with usage of the schemas of table and types. Revokes the privileges TRIGGER and REFERENCES of all roles but the owner. Update and delete need select too, for their conditions. '
  'Another call for the same table replaces what was exposed; a name that is used for something else is taken only with replace => true. Running gateways are notified when the transaction commits. The caller installed the schema and owns the table. '
  'SQLSTATE 42809: not a table, or unlogged; 42501: others own code that runs where it is written or read; 0A000: one of fencing''s or PostgreSQL''s own; 42703: no such column; 42710: the name is taken; 23514: a bad name or operation. Locks: none that writers wait for.';

create or replace function fencing.expose_function(function regprocedure, name text default null, replace boolean default false) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
declare
  proc pg_proc;
begin
  select * into proc from pg_proc where oid = function;
  if not found or proc.prokind <> 'f' then
    raise exception using errcode = '42809', message = format('%s is not a function', function);
  end if;
  if proc.pronamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000', message = format('%s is not exposed: callers could undo what the guard promises', function),
      hint = 'A function of your own can call what is to be called.';
  end if;
  if proc.provariadic <> 0 then
    raise exception using errcode = '0A000', message = format('%s takes a variable number of arguments', function);
  end if;
  if exists (select from unnest(coalesce(proc.proargmodes, array_fill('i'::"char", array[proc.pronargs::integer])), proc.proargnames) as t (mode, argument)
              where t.mode in ('i', 'b') and coalesce(t.argument, '') = '') then
    raise exception using errcode = '0A000', message = format('%s has an argument without a name', function), hint = 'Arguments are passed by name.';
  end if;
  perform fencing.require_name(coalesce(expose_function.name, proc.proname), function::text, replace);
  perform fencing.hide(e.name) from fencing.exposed e where e.name = coalesce(expose_function.name, proc.proname);
  insert into fencing.exposed (name, function)
  values (coalesce(expose_function.name, proc.proname), expose_function.function::text);
  execute format('grant usage on schema %s to fencing_gateway', proc.pronamespace::regnamespace);
  execute format('grant execute on function %s to fencing_gateway', function);
  perform fencing.grant_types(proc.proargtypes::oid[]);
  perform fencing.record_guard_change('expose_function', jsonb_build_object('name', coalesce(expose_function.name, proc.proname), 'function', function::text));
  perform pg_notify('fencing_catalog', coalesce(expose_function.name, proc.proname));
end
$$;
comment on function fencing.expose_function(regprocedure, text, boolean) is
  'Lets gateways call the function under that name (its own by default) and grants fencing_gateway execute. Arguments are passed by name. A name that is used for something else is taken only with replace => true. '
  'SQLSTATE 42809: not a function; 0A000: an argument without a name, variadic, or one of fencing''s or PostgreSQL''s own; 42710: the name is taken; 23514: a bad name. Locks: none that writers wait for.';

create or replace function fencing.hide(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  gone fencing.exposed;
begin
  delete from fencing.exposed e where e.name = hide.name returning * into gone;
  if not found then
    raise exception using errcode = '42704', message = format('nothing is exposed under the name %s', hide.name);
  end if;
  if gone.relation is not null and exists (select from pg_class c where c.oid = gone.relation) then
    perform fencing.grant_table(gone.relation);
  elsif to_regprocedure(gone.function) is not null and not exists (select from fencing.exposed e where e.function = gone.function) then
    execute format('revoke execute on function %s from fencing_gateway', gone.function);
  end if;
  perform fencing.record_guard_change('hide', jsonb_build_object('name', hide.name, 'relation', gone.relation::text, 'function', gone.function));
  perform pg_notify('fencing_catalog', hide.name);
end
$$;
comment on function fencing.hide(text) is
  'Removes what expose_table or expose_function exposed under this name, and the privileges that no other name needs; usage of the schema stays. '
  'SQLSTATE 42704: nothing is exposed under this name. Locks: none that writers wait for.';


-- 135_shared_updates.sql
-- Which tables one statement may update for several writes of a batch.

create or replace function fencing.shared_resource_expression(relation regclass) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$  -- plpgsql, because it caches the plan
begin
  return (
    select p.resource_expression
      from fencing.protected p join pg_class c on c.oid = p.relation
     where p.relation = $1 and p.mode = 'enforce' and c.relkind = 'r' and not c.relhasrules and not c.relrowsecurity
       and not exists (select from pg_trigger t join pg_proc f on f.oid = t.tgfoid
                        where t.tgrelid = c.oid and not t.tgisinternal and f.pronamespace <> 'fencing'::regnamespace)
       and not exists (select from pg_constraint k where k.confrelid = c.oid and k.contype = 'f' and k.confupdtype not in ('a', 'r')));
end
$$;
comment on function fencing.shared_resource_expression(regclass) is
  'For gateways: the resource expression of a protected table, if one update for several writes of a batch can change no more rows than those writes could one by one; else null. '
  'Such a table is an ordinary table in mode enforce on which an update triggers nothing else: no triggers but those of protect(), no rules, no row security, no cascades. '
  'A second call after such an update, whose lock prevents changes of all this, is valid for the transaction. Locks: none.';

-- 140_api_catalog.sql
-- What is exposed, in the form from which a gateway builds its statements.

create or replace function fencing.type_name(type oid, modifier integer) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format_type(type, modifier);
$$;
comment on function fencing.type_name(oid, integer) is
  'The name of the type for a cast, with its schema unless that is pg_catalog, independent of the caller''s search_path. Locks: none.';

create or replace view fencing.api_catalog as
select e.name,
       'table'::text as kind,
       format('%I.%I', n.nspname, c.relname) as target,
       e.operations,
       (select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                 'name', a.attname, 'type', fencing.type_name(a.atttypid, a.atttypmod),
                 'base', case when a.atttypid >= 16384 then fencing.type_name(nullif(fencing.base_type(a.atttypid), a.atttypid), null) end,  -- the server's own are below
                 'operators', case when a.atttypid >= 16384 then fencing.operator_schema(a.atttypid)::text end)) order by a.attnum)
          from pg_catalog.pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and (e.columns is null or a.attname = any (e.columns))) as columns,
       null::jsonb as arguments,
       null::boolean as returns_set,
       null::boolean as returns_void,
       null::boolean as changes_nothing,
       fencing.shared_resource_expression(e.relation) as shared_resource_expression
  from fencing.exposed e
  join pg_catalog.pg_class c on c.oid = e.relation
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
union all
select e.name,
       'function',
       format('%I.%I', n.nspname, p.proname),
       null,
       null,
       (select coalesce(jsonb_agg(jsonb_build_object('name', i.argument, 'type', fencing.type_name(p.proargtypes[i.number - 1], null),
                                                     'has_default', i.number > p.pronargs - p.pronargdefaults) order by i.number), '[]')
          from (select t.argument, row_number() over (order by t.place) as number
                  from unnest(p.proargnames, p.proargmodes) with ordinality as t (argument, mode, place)
                 where coalesce(t.mode, 'i') in ('i', 'b')) i
         where i.number <= p.pronargs),
       p.proretset,
       p.prorettype = 'pg_catalog.void'::pg_catalog.regtype,
       p.provolatile <> 'v',
       null
  from fencing.exposed e
  join pg_catalog.pg_proc p on p.oid = pg_catalog.to_regprocedure(e.function)
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace;

comment on view fencing.api_catalog is 'What is exposed, without tables and functions that were dropped. NOTIFY fencing_catalog announces changes.';
comment on column fencing.api_catalog.name is 'The name in the HTTP interface.';
comment on column fencing.api_catalog.kind is 'table (also a view) or function.';
comment on column fencing.api_catalog.target is 'The identifier, quoted and with its schema, ready for use in SQL.';
comment on column fencing.api_catalog.operations is 'Tables: which of select, insert, update, delete.';
comment on column fencing.api_catalog.columns is 'Tables: [{"name", "type", "base", "operators"}] in the table''s order; base: the base type of a domain; operators: the schema of the type''s own comparison operators, if it has some.';
comment on column fencing.api_catalog.arguments is 'Functions: [{"name", "type", "has_default"}] of the input arguments, in order.';
comment on column fencing.api_catalog.returns_set is 'Functions: whether it returns a set of rows.';
comment on column fencing.api_catalog.returns_void is 'Functions: whether it returns nothing.';
comment on column fencing.api_catalog.shared_resource_expression is 'Tables: the result of shared_resource_expression().';
comment on column fencing.api_catalog.changes_nothing is 'Functions: whether it is declared stable or immutable, so that gateways call it without a lease, in a read-only transaction.';

-- 145_privileges.sql
-- The complete list of privileges, object by object. Nothing is granted to public; on objects that are not listed only the owner has privileges.

create or replace function fencing.expected_privileges() returns table (kind text, object text, role text, privilege text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  values
    ('schema', 'fencing', 'fencing_gateway', 'usage'),
    ('schema', 'fencing', 'fencing_writer', 'usage'),
    ('schema', 'fencing', 'fencing_auditor', 'usage'),
    ('schema', 'fencing', 'fencing_recorder', 'usage'),
    ('function', 'fencing.enter(text,bigint,text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.fence(text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.refuse_answer(bigint)', 'fencing_writer', 'execute'),
    ('function', 'fencing.append_refusal(name,jsonb)', 'fencing_recorder', 'execute'),
    ('function', 'fencing.fence(text)', 'fencing_auditor', 'execute'),
    ('function', 'fencing.guard_faults()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.recorder_fault()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.schema_version()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.proof_keys()', 'fencing_auditor', 'execute'),
    ('table', 'fencing.history', 'fencing_auditor', 'select'),
    ('table', 'fencing.guard', 'fencing_auditor', 'select'),
    ('table', 'fencing.cluster', 'fencing_auditor', 'select'),
    ('table', 'fencing.history', 'fencing_gateway', 'select'),
    ('table', 'fencing.guard', 'fencing_gateway', 'select'),
    ('table', 'fencing.cluster', 'fencing_gateway', 'select'),
    ('table', 'fencing.node', 'fencing_gateway', 'select'),
    ('table', 'fencing.api_catalog', 'fencing_gateway', 'select'),
    ('function', 'fencing.fence(text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.guard_faults()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.watch_guard()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.recorder_fault()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.schema_version()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.proof_keys()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_write(text[],bigint,uuid,text,text,text,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_writes(text[],bigint[],uuid[],text[],text[],text[],jsonb[],uuid[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.shared_resource_expression(regclass)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.find_outcomes(text[],text[],bytea[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.claim_keys(text[],text[],bytea[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.keep_outcomes(text[],text[],bytea[],text[],bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.forget_outcomes(integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.seal_writes(text[],bigint[],uuid[],text[],text[],text[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.record_events(jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.append_events(uuid,bigint,bigint[],text[],text[],bigint[],bigint[],text[],text[],text[],uuid[],jsonb[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.history_tail()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.keep_history(integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.raise_fences(text[],bigint,text,text,text,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.repair_fence(text,bigint,text,text,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.draw_epoch(text,bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.draw_epoch(text,text,boolean,bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.note_unsynced(text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.storage_generation_state()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_generation_change(bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.finish_generation_change(uuid,text,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.find_lost_writes(uuid[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.join_cluster(text[],integer,bigint,integer,bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.write_landed(uuid,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.type_name(oid,integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.refuse_answer(bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.base_type(oid)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.operator_schema(oid)', 'fencing_gateway', 'execute');
$$;
comment on function fencing.expected_privileges() is 'The privileges on the schema and its objects, except the owner''s. The installation grants them and revokes all others. Locks: none.';

create or replace function fencing.granted_privileges() returns table (kind text, object text, role text, privilege text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct o.kind, o.object, case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
         p.prefix || lower(a.privilege_type)
    from (select 'schema' as kind, n.nspname::text as object, n.nspacl as acl, n.nspowner as owner from pg_namespace n where n.nspname = 'fencing'
          union all
          select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, c.relacl, c.relowner
            from pg_class c where c.relnamespace = 'fencing'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
          union all
          select 'column', format('%s (%I)', c.oid::regclass, a.attname), a.attacl, c.relowner
            from pg_class c join pg_attribute a on a.attrelid = c.oid where c.relnamespace = 'fencing'::regnamespace and a.attacl is not null
          union all
          select 'function', f.oid::regprocedure::text, coalesce(f.proacl, acldefault('f', f.proowner)), f.proowner from pg_proc f where f.pronamespace = 'fencing'::regnamespace
          union all
          select 'type', t.oid::regtype::text, coalesce(t.typacl, acldefault('T', t.typowner)), t.typowner
            from pg_type t where t.typnamespace = 'fencing'::regnamespace and t.typtype = 'd'
          union all
          select 'foreign server', s.srvname::text, s.srvacl, s.srvowner from pg_foreign_server s where s.srvname = 'fencing_recorder') o
         cross join aclexplode(o.acl) a
         cross join lateral (select '' as prefix union all select 'grant option for ' where a.is_grantable) p
   where a.grantee <> o.owner;
$$;
comment on function fencing.granted_privileges() is
  'The privileges that exist on the schema and its objects, except the owner''s; a privilege with grant option has a second row, "grant option for …". Locks: none.';

create or replace function fencing.apply_privileges() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in select * from (select * from fencing.granted_privileges() except select * from fencing.expected_privileges()) g order by g.privilege like 'grant%', g.object, g.role loop
    if item.kind = 'column' then
      execute format('revoke %s%s on table %s from %s cascade', item.privilege, substring(item.object from ' \(.*$'), split_part(item.object, ' (', 1), item.role);
    else
      execute format('revoke %s on %s %s from %s cascade', item.privilege, item.kind, item.object, item.role);
    end if;
  end loop;
  for item in select * from (select * from fencing.expected_privileges() except select * from fencing.granted_privileges()) g loop
    execute format('grant %s on %s %s to %s', item.privilege, item.kind, item.object, item.role);
  end loop;
end
$$;
comment on function fencing.apply_privileges() is
  'For the installation: revokes every privilege on the schema that is not expected, whatever granted it (for example the owner''s default privileges), and grants those that are missing. Locks: none.';

-- 150_recorder.sql
-- The recorder: a separate connection for each refusal of direct SQL, so that the history's row stays although the refused transaction rolls back. It needs the extension dblink.
--
-- The connection is defined by a foreign server and a user mapping of the owner. Only the owner and superusers can read the password in the mapping, and no statement contains it. The login role
-- is used for this database alone, is a member of fencing_recorder, and can add refusals and do nothing else.

create or replace function fencing.set_up_recorder() returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  login constant name := 'fencing_recorder_' || (select d.oid from pg_database d where d.datname = current_database());
  password constant text := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
  hosts text;
begin
  if fencing.recorder_schema() is not null and exists (
       select from pg_foreign_server s cross join pg_options_to_table(s.srvoptions) o join pg_user_mappings m on m.srvid = s.oid
                   cross join pg_options_to_table(m.umoptions) u join pg_roles r on r.rolname = u.option_value
        where s.srvname = 'fencing_recorder' and o.option_name = 'dbname' and o.option_value = current_database() and u.option_name = 'user') then
    return null;  -- it exists; the operator may have changed it, so it stays as it is
  end if;
  if not exists (select from pg_extension e where e.extname = 'dblink') then
    if not exists (select from pg_available_extensions e where e.name = 'dblink') then
      return 'the server has no extension dblink: install PostgreSQL''s contrib modules';
    end if;
    if exists (select from pg_namespace n where n.nspname = 'fencing_recorder') then
      return 'the schema fencing_recorder is in the way: drop it';
    end if;
    create schema fencing_recorder;  -- granted to nobody, so that dblink opens connections for nobody else
    perform fencing.revoke_from_others('schema', 'fencing_recorder', n.nspacl, n.nspowner) from pg_namespace n where n.nspname = 'fencing_recorder';
    execute 'create extension dblink schema fencing_recorder';
  end if;
  execute 'drop server if exists fencing_recorder cascade';
  -- First TCP on the loopback interface, which usually accepts a password where the socket requires an operating system user (peer); the socket is for servers that do not listen on TCP.
  hosts := concat_ws(',',
    case when exists (select from unnest(string_to_array(replace(current_setting('listen_addresses'), ' ', ''), ',')) as t (address) where t.address in ('*', '0.0.0.0', 'localhost', '127.0.0.1')) then '127.0.0.1' end,
    case when pg_has_role('pg_read_all_settings', 'usage') then nullif(btrim(split_part(current_setting('unix_socket_directories'), ',', 1)), '') end);
  execute format('create server fencing_recorder foreign data wrapper dblink_fdw options (%s port %L, dbname %L, connect_timeout ''2'', '
                 'application_name ''fencing_recorder'', options ''-c statement_timeout=2000 -c lock_timeout=1000'')', 'host ' || quote_literal(nullif(hosts, '')) || ',', current_setting('port'), current_database());
  if not exists (select from pg_roles r where r.rolname = login) then
    execute format('create role %I login', login);
    execute format('comment on role %I is %L', login, 'records refusals of direct SQL in the database ' || current_database());
  end if;
  execute format('alter role %I password %L', login, password);
  execute format('grant fencing_recorder to %I', login);
  if not has_database_privilege(login, current_database(), 'connect') then
    execute format('grant connect on database %I to %I', current_database(), login);
  end if;
  execute format('create user mapping for current_user server fencing_recorder options (user %L, password %L)', login, password);
  return null;
exception when others then
  return sqlerrm;
end
$$;
comment on function fencing.set_up_recorder() is
  'For the role that installed the schema, and called by the installation: creates the missing parts of the recorder: the extension dblink (as a superuser), the foreign server fencing_recorder, a login '
  'role and the user mapping. A foreign server for this database that has a mapping stays as it is. Null, or the error; then nothing was created. Locks: none that writers wait for.';

create or replace function fencing.recorder_fault() returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  dblink_schema constant name := fencing.recorder_schema();
  problem text;
  detail text;
begin
  if dblink_schema is null then
    return case when not exists (select from pg_extension e where e.extname = 'dblink') then 'the extension dblink is missing'
                else 'the foreign server fencing_recorder or its user mapping for ' || current_user || ' is missing' end
           || case when (select r.rolsuper from pg_roles r where r.rolname = current_user) then format(': run `fencegate migrate` as %s', current_user)
                   else format(': a superuser runs the statement of "The recorder" in sql/README.md, then %s runs `fencegate migrate`', current_user) end;
  end if;
  perform fencing.call_recorder(dblink_schema, '{}');
  return null;
exception when query_canceled or others then
  get stacked diagnostics problem = message_text, detail = pg_exception_detail;
  return concat_ws(': ', problem, nullif(btrim(detail, E' \n'), '')) || ' (foreign server fencing_recorder; "The recorder" in sql/README.md says how to make it anew)';
end
$$;
comment on function fencing.recorder_fault() is
  'Why refusals of direct SQL are not recorded in the history, found by connecting as the recorder does; null where they are. `fencegate check` and `migrate` call it. Takes at most 2 s to connect and 2 s for the answer. Locks: none.';

-- 153_installed_functions.sql
-- A digest of each function of the schema as it was installed, so that guard_faults() can name a function that was replaced since.

create table if not exists fencing.installed_function (
  function text  primary key,
  digest   bytea not null
);
comment on table fencing.installed_function is 'The functions that this version installs, except those that protect() generates. Every installation writes the table again.';
comment on column fencing.installed_function.function is 'Name and argument types.';
comment on column fencing.installed_function.digest is 'SHA-256 of the body, the language, the settings and the arguments.';

create or replace function fencing.function_digests() returns table (function text, digest bytea)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.oid::regprocedure::text,
         sha256(convert_to(jsonb_build_array(p.prosrc, l.lanname, p.prosecdef, p.proisstrict, p.provolatile, p.proretset, p.prorettype::regtype, p.proconfig, p.proargnames, p.proargmodes)::text, 'UTF8'))
    from pg_proc p join pg_language l on l.oid = p.prolang
   where p.pronamespace = 'fencing'::regnamespace and p.proname !~ '^check_[0-9]+_';
$$;
comment on function fencing.function_digests() is
  'The current functions of the schema, in the form of installed_function. Functions that protect() generated are compared with what it would generate now (table_faults). Locks: none.';

-- 155_guard_faults.sql
-- What would let a change past the guard.

create or replace function fencing.guard_faults() returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
  with roots as materialized (
    select p.relation::oid as oid from fencing.protected p union select e.relation from fencing.exposed e where e.relation is not null
  ), expected as materialized (
    select * from fencing.expected_privileges()
  ), granted as materialized (
    select * from fencing.granted_privileges()
  )
  select f.fault from fencing.table_faults() f
  union
  select format('%s: its resource expression uses %s, which belongs to %s, who could run code with the rights of the writing role', p.relation, o.object, fencing.foreign_owner(o.object, p.relation))
    from fencing.protected p join pg_class c on c.oid = p.relation cross join unnest(p.expression_objects) as o (object)
   where fencing.foreign_owner(o.object, p.relation) is not null
  union
  select format('%s: %s belongs to %s, who could run code with the rights of the writing role', o.relation::regclass, o.object, o.owner)
    from fencing.code_of_others(array(select oid from roots)) o
  union
  select format('%s %s: %s has the privilege %s, which is for nobody but the owner; fencegate migrate takes it', g.kind, g.object, g.role, g.privilege)
    from (select * from granted except select * from expected) g
  union
  select format('%s %s: %s lacks the privilege %s; fencegate migrate grants it', g.kind, g.object, g.role, g.privilege)
    from (select * from expected except select * from granted) g
  union
  select format('the function %s is not the one that this version installs; fencegate migrate puts it back', i.function)
    from (select * from fencing.installed_function except select * from fencing.function_digests()) i
  union
  select format('%s %s belongs to %s, not to the owner of the schema', o.kind, o.name, o.owner::regrole)
    from (select 'table' as kind, c.oid::regclass::text as name, c.relowner as owner from pg_class c where c.relnamespace = 'fencing'::regnamespace
          union all select 'function', f.oid::regprocedure::text, f.proowner from pg_proc f where f.pronamespace = 'fencing'::regnamespace
          union all select 'type', t.oid::regtype::text, t.typowner from pg_type t where t.typnamespace = 'fencing'::regnamespace and t.typtype = 'd') o
   where o.owner <> current_user::regrole
  union
  select format('the event trigger %s is missing or not always on, or not that of this version; fencegate migrate puts it back', x.name)
    from fencing.event_triggers() x left join pg_event_trigger e on e.evtname = x.name
   where exists (select from pg_roles r where r.rolname = current_user and r.rolsuper)
     and (e.evtenabled = 'A' and e.evtfoid = 'fencing.refuse_openings()'::regprocedure and e.evtevent = x.event and e.evttags is not distinct from x.tags) is not true
  union
  select format('%s: %s has the privilege %s, and could run code with the rights of the writing role; protect() and expose_table() take it', r.target, r.grantee, r.privilege)
    from roots g cross join fencing.code_rights(g.oid) r
  union
  select format('%s: %s belongs to another role, whose triggers run with the rights of the role that changes a key: its constraint %s has an action', p.oid::regclass, f.oid::regclass, k.conname)
    from (select oid from roots union select p.relid from roots cross join pg_partition_tree(roots.oid) p) g join pg_class p on p.oid = g.oid
         join pg_constraint k on k.confrelid = p.oid and k.contype = 'f' and (k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r'))
         join pg_class f on f.oid = k.conrelid and f.relowner <> p.relowner
  order by 1;
$$;
comment on function fencing.guard_faults() is
  'What would let a change past the guard although protect() was called: checks that are missing, replaced or not always enabled (as after pg_restore --data-only --disable-triggers), TRUNCATE of '
  'partitions attached since, new tables of the same name, parents and children that are not checked, expressions that use objects of other owners, functions of this schema that were replaced, every privilege on this schema that is not expected, and roles '
  'other than the owner that can make triggers run. No row where there is no fault. `fencegate check` and running gateways call it. Locks: none.';

-- 900_grants.sql
-- The last steps, once all objects exist. A step that was done before does nothing.

select fencing.apply_privileges();

-- The history records an installation of another version, or of other functions.
do $$
declare
  was constant integer := (select max(v.version) from fencing.schema_version v where v.applied_at < now());
begin
  if was is distinct from fencing.schema_version() or exists (select from (select * from fencing.function_digests() except select * from fencing.installed_function) d) then
    perform fencing.record_guard_change('migrate', jsonb_build_object('version', fencing.schema_version(), 'was', was));
  end if;
  if was < 5 then  -- the tables that were protected before changes of the guard were recorded
    insert into fencing.history (event, principal, detail)
    select 'guard_changed', p.protected_by, jsonb_build_object('action', 'protect', 'relation', p.relation_name, 'resource_expression', p.resource_expression, 'mode', p.mode, 'since', p.protected_at)
      from fencing.protected p order by p.relation_name;
  end if;
end
$$;

-- The digests with which guard_faults() compares the functions.
delete from fencing.installed_function;
insert into fencing.installed_function select * from fencing.function_digests();
-- Exposed tables and functions stay as they are: their privileges are on the application's own objects.

-- Checks that an earlier version created evaluate the expression with the owner's rights, so they are created again. Where that fails the old check stays, and guard_faults() names it.
do $$
declare
  item record;
begin
  for item in
    select p.* from fencing.protected p join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = p.check_function and f.prosecdef
      join pg_class c on c.oid = p.relation order by p.relation_name
  loop
    begin
      perform fencing.protect(item.relation, item.resource_expression, item.mode);
    exception when others then
      raise warning 'fencing: % keeps the checks of an earlier version: %', item.relation, sqlerrm;
    end;
  end loop;
end
$$;

-- Only a superuser may create event triggers; without them guard_faults() still names what they would have refused.
do $$
declare
  item record;
begin
  if not exists (select from pg_catalog.pg_roles r where r.rolname = current_user and r.rolsuper) then
    return;
  end if;
  for item in
    select x.*, e.oid from fencing.event_triggers() x left join pg_catalog.pg_event_trigger e on e.evtname = x.name
     where (e.evtenabled = 'A' and e.evtfoid = 'fencing.refuse_openings()'::pg_catalog.regprocedure and e.evtevent = x.event and e.evttags is not distinct from x.tags) is not true
  loop
    if item.oid is not null then
      execute format('drop event trigger %I', item.name);
    end if;
    execute format('create event trigger %I on %s%s execute function fencing.refuse_openings()', item.name, item.event,
                   (select format(' when tag in (%s)', string_agg(quote_literal(t.tag), ', ')) from unnest(item.tags) as t (tag) having count(*) > 0));
    execute format('alter event trigger %I enable always', item.name);
    execute format('comment on event trigger %I is %L', item.name, 'Refuses commands that would open a protected table without fencing.unprotect().');
  end loop;
end
$$;

do $$
declare
  problem constant text := fencing.set_up_recorder();
begin
  if problem is not null then
    raise notice 'fencing: refusals of direct SQL are not recorded: %', problem;
  end if;
end
$$;
