-- The schema as version 3 made it, file by file: what an upgrade begins with. Never changed.

-- 010_roles.sql
-- The roles, and the lock that keeps two installations of one database apart.
--
-- Roles belong to the whole cluster of databases, the rest to this database: a role that exists already is taken as it is.

select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('fencing.install', 0));

do $$
declare
  wanted text;
begin
  foreach wanted in array array['fencing_gateway', 'fencing_writer', 'fencing_auditor'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      execute format('create role %I nologin', wanted);
    end if;
  end loop;
end
$$;

-- Comments on roles need the right to create roles; whoever re-runs the installation may have lost it.
do $$
begin
  comment on role fencing_gateway is
    'fencegate''s gateways: writes through begin_write, reads guard, history, cluster and api_catalog, and what is exposed';
  comment on role fencing_writer is
    'applications that write with their own connection: may call fencing.enter and fencing.fence';
  comment on role fencing_auditor is
    'reads history, guard and cluster; changes nothing';
exception when insufficient_privilege then
  raise notice 'fencing: the comments on the roles were left as they are';
end
$$;

-- 020_schema.sql
-- The schema, its version, its settings, and the two words of the contract that every other file checks: resource and token.

create schema if not exists fencing;
comment on schema fencing is
  'The guard of fencegate: a write whose fencing token is lower than the fence does not land. Nothing here is granted to public.';

create table if not exists fencing.schema_version (
  version    integer primary key check (version > 0),
  applied_at timestamptz not null default clock_timestamp()
);
comment on table fencing.schema_version is 'The versions of this schema that were applied: migrations/ has what each needed beyond the schema files.';
comment on column fencing.schema_version.version is 'From 1 on; a migration''s file name begins with it.';
comment on column fencing.schema_version.applied_at is 'When it was applied.';
insert into fencing.schema_version (version) values (1), (2), (3) on conflict do nothing;

create or replace function fencing.schema_version() returns integer
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select max(version) from fencing.schema_version;
$$;
comment on function fencing.schema_version() is
  'The newest version applied, so that a gateway can refuse a database that is older than itself. Locks: none.';

create table if not exists fencing.settings (
  key   text primary key check (key in ('recorder', 'require_proof')),
  value text not null,
  constraint settings_recorder_is_keywords check (key <> 'recorder' or value !~* '^postgres(ql)?://'),
  constraint settings_require_proof_is_on_or_off check (key <> 'require_proof' or value in ('on', 'off'))
);
comment on table fencing.settings is 'Settings of the operator; no role is granted anything on it, for a recorder may hold a password.';
comment on column fencing.settings.key is 'recorder: how a refusal is written to the history although its transaction rolls back. require_proof: whether enter() demands a proof.';
comment on column fencing.settings.value is 'For recorder: a libpq connection string of keywords (not a URI), used through dblink. For require_proof: on or off.';

create or replace function fencing.is_resource(resource text) returns boolean
language sql immutable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select resource is not null
     and pg_catalog.octet_length(resource) operator(pg_catalog.<=) 200
     and resource collate pg_catalog."C" operator(pg_catalog.~) '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$';
$$;
comment on function fencing.is_resource(text) is
  'Whether this is the name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment. Locks: none.';

-- Words of the contract are domains and not check constraints of tables: a domain's check is compiled once a session, a table's once a statement,
-- which would cost every write some 10 us.
do $$
begin
  if to_regtype('fencing.resource_name') is null then
    create domain fencing.resource_name as text collate "C"
      constraint resource_word check (octet_length(value) <= 200 and value ~ '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$');
  end if;
  if to_regtype('fencing.event_word') is null then
    create domain fencing.event_word as text constraint event_word check (value in (
      'lease_granted', 'lease_renewed', 'lease_released', 'lease_expired', 'lease_refused', 'lease_revoked', 'fence_raised',
      'write_applied', 'write_rejected', 'write_failed', 'node_quarantined', 'node_readmitted', 'epoch_raised'));
  end if;
end
$$;
comment on domain fencing.resource_name is 'The name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment; compared by bytes.';
comment on domain fencing.event_word is 'The events of the HTTP contract.';

create or replace function fencing.require_words(resources text[], fencing_token bigint) returns void
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
comment on function fencing.require_words(text[], bigint) is
  'Raises 22023 unless every name is a resource and the token is from 1 to 2^53 - 1. Locks: none.';

-- 030_guard.sql
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

-- 040_history.sql
-- The history: rows are added, never changed. Weekly partitions are made by 050_rotation.sql.

create sequence if not exists fencing.history_id_seq as bigint;
comment on sequence fencing.history_id_seq is 'Numbers the rows of the history over all partitions.';

create table if not exists fencing.history (
  id                 bigint not null default nextval('fencing.history_id_seq'::regclass),
  at                 timestamptz not null default clock_timestamp(),
  event              fencing.event_word not null,
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
  'What happened to leases, fences, writes and nodes. A write''s row commits together with the write. Update, delete and truncate are refused for everyone; '
  'rotate_history() drops whole partitions.';
comment on column fencing.history.id is 'From one sequence: the order in which rows reached this table. A transaction that commits late may show an id lower than one already seen.';
comment on column fencing.history.at is 'When it happened, by the clock of whoever recorded it: the server''s for fences and writes, the gateway''s for leases. The partition key, and with id the order of GET /v1/history.';
comment on column fencing.history.event is 'One of the words of the HTTP contract.';
comment on column fencing.history.resource is 'The resource, null for events of nodes and epochs.';
comment on column fencing.history.fencing_token is 'The token that the caller carried.';
comment on column fencing.history.last_fencing_token is 'The fence after the event; for write_rejected the fence that refused.';
comment on column fencing.history.owner is 'The lease''s owner as the caller named it.';
comment on column fencing.history.principal is 'Who: the gateway''s authenticated caller, or session_user for direct SQL.';
comment on column fencing.history.trace_id is 'The trace that the request belonged to.';
comment on column fencing.history.write_id is 'The guarded write; one write on several resources has a row for each.';
comment on column fencing.history.detail is 'Whatever else is known; observed = true marks what observe mode let through.';

-- What version 1 had: everything in the order of id, although the events of leases reach the table after the writes made under them.
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

-- For the filters of GET /v1/history. Those that are asked for alone and over long times stand in its order, (at, id), which the primary key serves
-- where there is no filter. The others hold the bare value: what is rare is found and sorted, what is frequent is met soon by going through time, and an index
-- of values that repeat is small and cheap. Microseconds that each costs a row (tests/bench/README.md): resource 3, owner 2, principal 2, trace_id 3, id 1, token 1, event 0.5.
-- The one on id is for those who follow the history as it grows (GET /v1/history/stream): rows arrive at its right edge.
-- Asked for by name first: CREATE INDEX IF NOT EXISTS would lock out writers before it finds that there is nothing to do.
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
  'How far the events of each gateway have come into the history, so that what is sent again after a broken connection is not added twice. rotate_history() forgets the old ones.';
comment on column fencing.event_stream.stream is 'One start of a gateway, by an id that it made up.';
comment on column fencing.event_stream.last_sequence is 'The number of the last event that is in the history.';
comment on column fencing.event_stream.previous_sequence is 'The same before the last batch.';
comment on column fencing.event_stream.appended_at is 'When the last batch came.';

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
  'Takes rows for whose time there is no partition, so that no event is lost where rotate_history() was not run; it moves them on.';

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
  -- Only now: whoever was given an id up to last_id had locked the history before, and holds the lock until its transaction ends.
  writers := array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = 'fencing.history'::regclass or l.relation in (select i.inhrelid from pg_inherits i where i.inhparent = 'fencing.history'::regclass)));
  return next;
end
$$;
comment on function fencing.history_tail() is
  'For readers that follow the history by id, although ids are given before rows are committed: the last id given, and the transactions that may still commit rows with ids up to it. '
  'Once none of those is among the writers of a later call, every row up to that last_id that will ever be there is visible to statements begun after that call. Locks: none.';

-- 050_rotation.sql
-- Partitions of the history: one a week, made ahead; old ones dropped whole.

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
  execute format('revoke all on fencing.%I from public', partition);
  return true;
end
$$;
comment on function fencing.make_history_partition(timestamptz) is
  'Makes the partition of that moment''s week (Monday, UTC), moving rows that the default partition had taken in; false if it is there already. '
  'For the role that installed the schema. Locks: history share update exclusive, history_default access exclusive, in this order.';

create or replace function fencing.make_history_partitions() returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  weeks_ahead constant integer := 8;
  weeks timestamptz[];  -- collected first: a query still open on the default partition would forbid altering it
  week timestamptz;
  made integer := 0;
begin
  weeks := array(
    select generate_series(now(), now() + weeks_ahead * interval '168 hours', interval '168 hours')
    union all
    select distinct date_trunc('week', d.at, 'UTC') from fencing.history_default d where d.at between '2000-01-01' and '3000-01-01');
  foreach week in array weeks loop
    made := made + fencing.make_history_partition(week)::integer;
  end loop;
  return made;
end
$$;
comment on function fencing.make_history_partitions() is
  'Makes this week''s and the next eight weeks'' partitions, and those for what the default partition had taken in. For the role that installed the schema. '
  'Locks: as make_history_partition, where it makes any.';

create or replace function fencing.old_history_partitions(keep interval) returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where i.inhparent = 'fencing.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
     and to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' + interval '168 hours' <= now() - keep
   order by 1;
$$;
comment on function fencing.old_history_partitions(interval) is 'The partitions whose every row is older than keep, oldest first. Locks: none.';

create or replace function fencing.forget_event_streams() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  delete from fencing.event_stream s where s.appended_at < now() - interval '168 hours';  -- much longer than a gateway tries to repeat a batch
$$;
comment on function fencing.forget_event_streams() is 'Forgets streams of events a week after their last. Locks: the rows that it deletes.';

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
  'Makes this week''s and the next eight weeks'' partitions, moves what the default partition had taken in, and drops the partitions whose every row is older than keep. '
  'To be run by the role that installed the schema, where no gateway does it (keep_history); run again it does nothing. SQLSTATE 22023: keep is not positive. '
  'Locks: history_default access exclusive where partitions are made, history access exclusive where some are dropped; set lock_timeout.';

create or replace function fencing.keep_history(keep_days integer) returns table (made integer, dropped integer, remaining integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  old text[] := '{}';
begin
  if keep_days is null or keep_days < 0 or keep_days between 1 and 6 then
    raise exception using errcode = '22023', message = 'keep_days must be 0 (for ever) or at least 7';
  end if;
  made := 0;
  dropped := 0;
  remaining := 0;
  if pg_try_advisory_xact_lock(hashtextextended('fencing.keep_history', 0)) then
    made := fencing.make_history_partitions();
    if keep_days > 0 then
      old := array(select fencing.old_history_partitions(make_interval(days => keep_days)));
    end if;
    perform fencing.forget_event_streams();
    remaining := cardinality(old);
    if remaining > 0 then
      begin
        execute format('drop table fencing.%I', old[1]);
        dropped := 1;
        remaining := remaining - 1;
      exception when lock_not_available then
        null;  -- somebody reads; what was made stands
      end;
    end if;
  end if;
  return next;
end
$$;
comment on function fencing.keep_history(integer) is
  'For gateways: makes partitions ahead as rotate_history does, and drops the oldest one whose every row is older than keep_days (0: none), one a call; remaining says how many are left to drop, also where a lock for the drop was not to be had within 100 ms, which is as long as writes can be held up. '
  'Where another call is under way it does nothing. Not fewer than 7 days, so that a gateway''s role can''t be used to wipe what it has just done. '
  'SQLSTATE 22023: keep_days; 55P03: partitions were to be made and a lock was not to be had within 100 ms; nothing was done, call again later. '
  'Locks: as rotate_history, each waited for 100 ms at most.';

do $$
begin
  for weeks in 0..8 loop
    perform fencing.make_history_partition(now() + weeks * interval '168 hours');
  end loop;
end
$$;

-- 060_cluster.sql
-- What all gateways must agree on, and the epochs that bring a restarted Redis node back.

create table if not exists fencing.cluster (
  singleton  boolean primary key default true check (singleton),
  epoch      bigint not null default 0 check (epoch >= 0 and epoch < 2097152),
  node_names text[] not null check (cardinality(node_names) > 0),
  quorum     integer not null check (quorum > 0),
  max_ttl_ms bigint not null check (max_ttl_ms > 0),
  buckets    integer not null default 65536 check (buckets > 0)
);
comment on table fencing.cluster is 'One row, written by the first gateway that joins: what a gateway''s configuration must agree with.';
comment on column fencing.cluster.singleton is 'Keeps the table at one row.';
comment on column fencing.cluster.epoch is 'The highest epoch drawn; below 2^21, because a token holds epoch * 2^32 and stays below 2^53.';
comment on column fencing.cluster.node_names is 'The names of the Redis nodes, sorted.';
comment on column fencing.cluster.quorum is 'How many of them make a majority.';
comment on column fencing.cluster.max_ttl_ms is 'The longest lease in milliseconds, which is how long a restarted node stays out.';
comment on column fencing.cluster.buckets is 'How many token counters a node keeps; resources are hashed onto them.';

create table if not exists fencing.node (
  name           text primary key,
  first_drawn_at timestamptz not null default clock_timestamp(),
  last_drawn_at  timestamptz not null default clock_timestamp(),
  epoch          bigint not null
);
comment on table fencing.node is 'The Redis nodes for which an epoch was ever drawn.';
comment on column fencing.node.name is 'The node''s name in the configuration.';
comment on column fencing.node.first_drawn_at is 'When it was first admitted.';
comment on column fencing.node.last_drawn_at is 'When an epoch was last drawn for it.';
comment on column fencing.node.epoch is 'The epoch last drawn for it.';

create or replace function fencing.join_cluster(node_names text[], quorum integer, max_ttl_ms bigint, buckets integer) returns void
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
  insert into fencing.cluster (node_names, quorum, max_ttl_ms, buckets)
  values (names, join_cluster.quorum, join_cluster.max_ttl_ms, join_cluster.buckets)
  on conflict do nothing;
  select * into fixed from fencing.cluster;
  for line in
    select * from (values
      ('node_names', array_to_string(fixed.node_names, ', '), array_to_string(names, ', ')),
      ('quorum', fixed.quorum::text, join_cluster.quorum::text),
      ('max_ttl_ms', fixed.max_ttl_ms::text, join_cluster.max_ttl_ms::text),
      ('buckets', fixed.buckets::text, join_cluster.buckets::text)) as t (name, theirs, ours)
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
comment on function fencing.join_cluster(text[], integer, bigint, integer) is
  'The first call fixes the configuration, every later one is compared with it; the order of the names does not matter. '
  'SQLSTATE FG500: the line named in the message differs (DETAIL: line, cluster, gateway), 23502 or 23514: a value is missing or not positive. '
  'Locks: the cluster row, by the first call only.';

create or replace function fencing.draw_epoch(node_name text, seen_epoch bigint) returns table (epoch bigint, first_admission boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  drawn bigint;
  is_first boolean;
begin
  if node_name is null or node_name = '' or seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'an epoch is drawn for a node by name, and no epoch seen is negative';
  end if;
  select greatest(c.epoch, coalesce(seen_epoch, 0)) + 1 into drawn from fencing.cluster c for update;
  if drawn is null then
    raise exception using errcode = 'FG500', message = 'no gateway has joined the cluster yet: fencing.join_cluster comes before fencing.draw_epoch';
  end if;
  if drawn >= 2097152 then
    raise exception using errcode = 'FG500', message = format('epoch %s does not fit: epochs stay below 2^21', drawn),
      detail = jsonb_build_object('node', node_name, 'seen_epoch', seen_epoch)::text;
  end if;
  update fencing.cluster set epoch = drawn;
  is_first := not exists (select from fencing.node n where n.name = node_name);
  insert into fencing.node (name, epoch) values (node_name, drawn)
  on conflict on constraint node_pkey do update set epoch = excluded.epoch, last_drawn_at = clock_timestamp();
  return query select drawn, is_first;
end
$$;
comment on function fencing.draw_epoch(text, bigint) is
  'Draws the next epoch: one more than the highest ever drawn and than seen_epoch. No two committed calls get the same. The caller commits before it uses it. '
  'first_admission: no committed call had drawn for this node before. SQLSTATE FG500: no cluster joined, or 2^21 reached; 22023: bad argument. '
  'Locks until the end of the transaction: the cluster row, then the node''s row.';

-- 070_refusal.sql
-- Events that the gateway records, and refusals of direct SQL callers, which must be in the history although their transaction rolls back.

create or replace function fencing.record_events(events jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    raise exception using errcode = '22023', message = 'events must be a JSON array of objects';
  end if;
  if events @> '[{"event": "write_applied"}]' then
    raise exception using errcode = '22023', message = 'write_applied is recorded by the guard alone, together with the write';
  end if;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
  select coalesce(e.at, clock_timestamp()), e.event, e.resource, e.fencing_token, e.last_fencing_token, e.owner, e.principal, e.trace_id, e.write_id, e.detail
    from jsonb_to_recordset(events) as e (at timestamptz, event text, resource text, fencing_token bigint, last_fencing_token bigint,
                                          owner text, principal text, trace_id text, write_id uuid, detail jsonb);
end
$$;
comment on function fencing.record_events(jsonb) is
  'Adds events to the history in one insert: objects with event and any of at, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail. '
  'All of them or none. SQLSTATE 22023: not an array, or write_applied among them; 23502, 23514: an event is missing or unknown. Locks: none that anyone waits for.';

create or replace function fencing.append_events(
  stream uuid, first_sequence bigint, at_us bigint[], event text[], resource text[], fencing_token bigint[], last_fencing_token bigint[],
  owner text[], principal text[], trace_id text[], write_id uuid[], detail jsonb[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  events constant integer := coalesce(cardinality(append_events.event), 0);
  already bigint;
  added integer;
begin
  if append_events.stream is null or coalesce(append_events.first_sequence, 0) < 1 then
    raise exception using errcode = '22023', message = 'events come from a stream and are numbered from 1 on';
  end if;
  if 'write_applied' = any (append_events.event) then
    raise exception using errcode = '22023', message = 'write_applied is recorded by the guard alone, together with the write';
  end if;
  if events = 0 then
    return 0;
  end if;
  -- Waits for the same batch on a connection that the gateway has given up, and then sees how far it came.
  insert into fencing.event_stream as s (stream, last_sequence)
  values (append_events.stream, append_events.first_sequence + events - 1)
  on conflict on constraint event_stream_pkey do update
    set previous_sequence = s.last_sequence, last_sequence = greatest(s.last_sequence, excluded.last_sequence), appended_at = clock_timestamp()
  returning s.previous_sequence into already;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
  select coalesce(to_timestamp(e.at_us::float8 / 1e6), clock_timestamp()), e.event, e.resource, e.fencing_token, e.last_fencing_token,
         e.owner, e.principal, e.trace_id, e.write_id, e.detail
    from unnest(append_events.at_us, append_events.event, append_events.resource, append_events.fencing_token, append_events.last_fencing_token,
                append_events.owner, append_events.principal, append_events.trace_id, append_events.write_id, append_events.detail)
         with ordinality as e (at_us, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail, position)
   where append_events.first_sequence + e.position - 1 > already;
  get diagnostics added = row_count;
  return added;
end
$$;
comment on function fencing.append_events(uuid, bigint, bigint[], text[], text[], bigint[], bigint[], text[], text[], text[], uuid[], jsonb[]) is
  'For gateways: adds a batch of events, each once. A gateway numbers its events from 1 on in a stream of its own (stream: an id made up at its start); the first of the batch has '
  'first_sequence, and those that the stream has delivered before are passed over, so that a batch whose answer was lost is simply sent again. One array a column, null where the '
  'batch has nothing to say there; at_us in microseconds since 1970. Gives the number of rows added; all of them or none. '
  'SQLSTATE 22023: no stream or number, or write_applied among the events; 23502, 23514: an event is missing or unknown. Locks until the end of the transaction: the stream''s row.';

create or replace function fencing.is_gateway_session() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(session_user, 'fencing_gateway', 'member')
     and not exists (select from pg_roles r where r.rolname = session_user and r.rolsuper);
$$;
comment on function fencing.is_gateway_session() is
  'Whether the session logged in as a member of fencing_gateway: a gateway records its own refusals. Superusers are members of nothing here. Locks: none.';

create or replace function fencing.record_refusal(refusal jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  conninfo text;
  dblink_schema text;
  event jsonb;
begin
  if fencing.is_gateway_session() then
    return;
  end if;
  event := jsonb_build_array(jsonb_build_object('event', 'write_rejected', 'at', clock_timestamp(), 'principal', session_user) || refusal);
  select s.value into conninfo from fencing.settings s where s.key = 'recorder';
  select n.nspname into dblink_schema from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'dblink';
  if conninfo is null or dblink_schema is null then
    raise log 'fencing: a refusal is not in the history, for there is no recorder: %', event;
    return;
  end if;
  if conninfo !~* '\mconnect_timeout\s*=' then
    conninfo := conninfo || ' connect_timeout=2';
  end if;
  if conninfo !~* '\moptions\s*=' then
    conninfo := conninfo || ' options=''-c statement_timeout=2000 -c lock_timeout=1000''';
  end if;
  execute format('select r.done from %I.dblink($1, $2) as r (done text)', dblink_schema)
    into dblink_schema using conninfo, format('select fencing.record_events(%L)::text', event);
exception when query_canceled or assert_failure or others then
  raise log 'fencing: a refusal could not be recorded (% %): %', sqlstate, sqlerrm, event;
end
$$;
comment on function fencing.record_refusal(jsonb) is
  'Writes a refusal to the history over a connection of its own (settings, recorder; extension dblink), so that it outlives the rollback. '
  'Never raises: what fails here goes to the server''s log. Bounded by 2 s to connect and 2 s to write. Locks in the caller''s transaction: none.';

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
  'What is known of a change that is not covered. Which of the two codes it gets rests on settings that a caller could forge; that it is refused does not. Locks: none.';

create or replace function fencing.refuse_change(relation oid, operation text, resource text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  about constant jsonb := fencing.describe_change(relation, operation, resource);
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'detail', about));
  if about ->> 'sqlstate' = 'FG428' then
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
  'Records what enforce mode would have refused, in the caller''s own transaction: at most 1,000 of one transaction, the last with and_more = true. Locks: none.';

create or replace function fencing.refuse_answer(bytes bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = '54000', message = format('the answer would have %s bytes, more than a gateway gives: ask for fewer rows or columns, or for none', bytes);
end
$$;
comment on function fencing.refuse_answer(bigint) is 'For gateways, whose statements call it in place of an answer that is too large: raises 54000, so that the write is undone. Locks: none.';

-- 075_proof.sql
-- Proofs: a caller of enter() shows the lease_id that a gateway gave it, and the database checks the signature on it.

create table if not exists fencing.proof_key (
  name       text primary key check (name <> ''),
  inner_pad  bytea not null check (length(inner_pad) = 64),
  outer_pad  bytea not null check (length(outer_pad) = 64),
  added_at   timestamptz not null default clock_timestamp(),
  expires_at timestamptz
);
comment on table fencing.proof_key is
  'The keys with which gateways sign lease ids. Whoever reads them can forge leases: no role is granted anything on this table, and a dump that holds it is a secret.';
comment on column fencing.proof_key.name is 'What the operator calls the key; by default made from a hash of it.';
comment on column fencing.proof_key.inner_pad is 'The key in the form in which HMAC-SHA256 uses it first: padded to 64 bytes, each xor 0x36.';
comment on column fencing.proof_key.outer_pad is 'The same for its second step: each byte xor 0x5c.';
comment on column fencing.proof_key.added_at is 'When add_proof_key() was last called for it.';
comment on column fencing.proof_key.expires_at is 'From then on the key proves nothing; null: never.';

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
  return name;
end
$$;
comment on function fencing.add_proof_key(bytea, timestamptz, text) is
  'For the role that installed the schema: from the commit on, lease ids signed with this key are proofs; gives its name. The bytes are those of the gateways'' signing key '
  '(the file without a line''s end). Known by that name already: replaced. `fencegate migrate --require-proof` calls it. SQLSTATE 22023: shorter than 32 bytes. '
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
  return found;
end
$$;
comment on function fencing.retire_proof_key(text, timestamptz) is
  'For the role that installed the schema: the key proves nothing any more from that moment on; in the past or now, it is deleted. False: there is no such key. '
  'Locks until the end of the transaction: the key''s row.';

create or replace function fencing.require_proof(required boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if required and not exists (select from fencing.proof_key k where k.expires_at is null or k.expires_at > clock_timestamp()) then
    raise exception using errcode = '22023', message = 'there is no key to check proofs with: add the gateways'' signing key first',
      hint = 'fencegate migrate --require-proof does both; fencing.add_proof_key adds a key.';
  end if;
  insert into fencing.settings (key, value) values ('require_proof', case when required then 'on' else 'off' end)
  on conflict on constraint settings_pkey do update set value = excluded.value;
end
$$;
comment on function fencing.require_proof(boolean) is
  'For the role that installed the schema: whether enter() demands a proof from everyone, from the commit on. A proof that is given is checked in any case. '
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
  -- Only now are the claims known to be a gateway's own. Their first five lines are ASCII; "escape" leaves those as they are, in any encoding.
  lines := string_to_array(encode(decode(translate(claims, '-_', '+/') || repeat('=', -length(claims) & 3), 'base64'), 'escape'), E'\n');
  if lines[1] is distinct from '1' then
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
  'It says nothing of time: that the lease is over shows in the fence. Locks: none.';

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
-- enter: how a caller with its own connection opens a resource for its transaction.

create or replace function fencing.enter(resource text, fencing_token bigint, proof text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_token bigint;
  fence bigint;
  fault text;
begin
  if (enter.fencing_token between 1 and 9007199254740991 and fencing.is_resource(enter.resource)) is not true then
    perform fencing.require_words(array[enter.resource], enter.fencing_token);
  end if;
  if proof is not null or exists (select from fencing.settings s where s.key = 'require_proof' and s.value = 'on') then
    fault := fencing.proof_fault(enter.resource, enter.fencing_token, proof);
    if fault is not null then
      perform fencing.refuse_proof(enter.resource, enter.fencing_token, fault);
    end if;
  end if;

  with mine as (  -- what this transaction has entered, only it could have changed
    select from fencing.guard g
     where g.resource = enter.resource and g.entered_xid = pg_current_xact_id() and g.entered_at = transaction_timestamp()
  ), entered as (
    insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
    values (enter.resource, enter.fencing_token, pg_current_xact_id(), transaction_timestamp(), coalesce(current_setting('fencing.write_id', true), ''))
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
    perform set_config('fencing.entered', pg_current_xact_id()::text, true);  -- chooses a message, opens nothing
    return found_token;
  end if;

  select g.last_fencing_token into fence from fencing.guard g where g.resource = enter.resource;
  perform fencing.record_refusal(jsonb_build_object(
    'resource', enter.resource, 'fencing_token', enter.fencing_token, 'last_fencing_token', fence,
    'detail', jsonb_build_object('sqlstate', 'FG412', 'application_name', current_setting('application_name', true))));
  raise exception using errcode = 'FG412',
    message = format('stale fencing token: %s for %s, whose fence is %s', enter.fencing_token, enter.resource, fence),
    detail = jsonb_build_object('resource', enter.resource, 'fencing_token', enter.fencing_token, 'last_fencing_token', fence)::text,
    hint = 'A newer lease has written or read since. Nothing was changed; take a new lease.';
end
$$;
comment on function fencing.enter(text, bigint, text) is
  'Raises the fence of the resource to the token, opens the resource for this transaction, gives the fence that it found (0: none). '
  'Equal tokens pass. Adds a write_applied row with detail.direct = true, which commits with the caller''s changes: one a transaction, and one more where it enters again with a higher token. Open until the transaction ends or the savepoint in which it was called is rolled back; may be called for several resources, in the order of their names. '
  'SQLSTATE FG412: the token is stale, DETAIL is JSON with resource, fencing_token, last_fencing_token; 22023: not a resource or a token from 1 to 2^53 - 1; '
  'FG401: proof, the lease_id, is demanded and missing (require_proof) or does not hold; 40001 above read committed where the fence moved; 55P03: lock_timeout passed. '
  'Locks until the end of the transaction: the guard row.';

-- 090_begin_write.sql
-- begin_write: the gateway's way in. The fence, the opening and the history row in one call; the change follows in the same transaction.

create or replace function fencing.lock_guards(resources text[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.guard as g (resource, last_fencing_token)
  select distinct r collate "C", 0 from unnest(resources) as t (r) order by 1
  on conflict on constraint guard_pkey do update set resource = excluded.resource where false;  -- locks, writes nothing
$$;
comment on function fencing.lock_guards(text[]) is
  'Locks the guard rows in the order of their names by bytes, adding missing ones with the fence 0. Waits also for a transaction that is just adding one. '
  'Locks until the end of the transaction: those rows.';

create or replace function fencing.begin_write_on_many(resources text[], fencing_token bigint, write_id uuid, owner text, principal text, trace_id text, detail jsonb)
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
  if exists (select from fencing.guard g where g.resource = any (names) and g.last_fencing_token > token) then
    insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
    select 'write_rejected', g.resource, token, g.last_fencing_token, begin_write_on_many.owner, begin_write_on_many.principal,
           begin_write_on_many.trace_id, begin_write_on_many.write_id, begin_write_on_many.detail
      from fencing.guard g where g.resource = any (names) and g.last_fencing_token > token order by g.resource;
    return query
      select g.resource::text, g.last_fencing_token, g.last_fencing_token, false from fencing.guard g where g.resource = any (names) order by g.resource;
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
      select 'write_applied', e.resource, token, e.last_fencing_token, begin_write_on_many.owner, begin_write_on_many.principal,
             begin_write_on_many.trace_id, begin_write_on_many.write_id, begin_write_on_many.detail
        from entered e
    )
    select e.resource, e.found_fencing_token, e.last_fencing_token, true from entered e order by e.resource;
end
$$;
comment on function fencing.begin_write_on_many(text[], bigint, uuid, text, text, text, jsonb) is
  'The part of begin_write that can''t be one statement: several resources, or a refusal. Locks: the guard rows in the order of their names.';

create or replace function fencing.begin_write(resources text[], fencing_token bigint, write_id uuid, owner text, principal text, trace_id text, detail jsonb)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if begin_write.write_id is null then
    raise exception using errcode = '22004', message = 'a write has a write_id';
  end if;
  if cardinality(resources) = 1 and begin_write.fencing_token between 1 and 9007199254740991 and fencing.is_resource(resources[1]) then
    null;  -- the common case, without a call
  else
    perform fencing.require_words(resources, begin_write.fencing_token);
  end if;
  perform set_config('fencing.write_id', begin_write.write_id::text, true);  -- narrows what is open, opens nothing
  if cardinality(resources) = 1 then
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
        select 'write_applied', e.resource, begin_write.fencing_token, e.last_fencing_token, begin_write.owner, begin_write.principal,
               begin_write.trace_id, begin_write.write_id, begin_write.detail
          from entered e
      )
      select e.resource, e.found_fencing_token, e.last_fencing_token, true from entered e;
    if found then
      return;
    end if;
  end if;
  return query select * from fencing.begin_write_on_many(resources, begin_write.fencing_token, begin_write.write_id, begin_write.owner,
                                                         begin_write.principal, begin_write.trace_id, begin_write.detail);
end
$$;
comment on function fencing.begin_write(text[], bigint, uuid, text, text, text, jsonb) is
  'For gateways. Locks the guards; if the token is lower than any fence, opens none, adds a write_rejected row for each stale resource and answers accepted = false '
  'on all rows (the caller commits, so that the refusal is kept). Else raises the fences, opens the resources for this write, and adds a write_applied row for each. '
  'One row a resource, in the order of the names: found_token is the fence before, last_fencing_token the fence now. From here on the transaction''s changes are checked against '
  'this write''s resources alone: an earlier write of the same batch is closed. A caller that undoes the write rolls back to a savepoint taken before this call. '
  'SQLSTATE 22023: not a resource or not a token; 22004: no write_id; 55P03: lock_timeout passed. '
  'Locks until the end of the transaction: the guard rows in the order of their names by bytes.';

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
  turns constant uuid[] := coalesce(begin_writes.turns, begin_writes.write_ids);
begin
  if (cardinality(fencing_tokens) = count and cardinality(write_ids) = count and cardinality(owners) = count and cardinality(principals) = count
      and cardinality(trace_ids) = count and cardinality(details) = count and cardinality(turns) = count) is not true
     or exists (select from unnest(resources, fencing_tokens, write_ids, turns) as t (r, token, write_id, turn)
                 where (t.token between 1 and 9007199254740991 and fencing.is_resource(t.r) and t.write_id is not null and t.turn is not null) is not true) then
    raise exception using errcode = '22023', message = 'begin_writes takes lists of one length, with a resource, a token and a write_id each';
  end if;
  perform set_config('fencing.write_id', '', true);  -- none of them is open before the caller says whose turn it is
  return query
    with given as (
      select t.* from unnest(resources, fencing_tokens, write_ids, owners, principals, trace_ids, details, turns) with ordinality
                      as t (resource, token, write_id, owner, principal, trace_id, detail, turn, place)
    ), entered as (
      insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
      select n.resource, n.token, pg_current_xact_id(), transaction_timestamp(), n.turn::text from given n order by n.resource collate "C"
      on conflict on constraint guard_pkey do update
        set last_fencing_token = excluded.last_fencing_token, found_fencing_token = g.last_fencing_token,
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for
        where g.last_fencing_token <= excluded.last_fencing_token
      returning g.resource::text, g.found_fencing_token, g.last_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail)
      select 'write_applied', e.resource, n.token, e.last_fencing_token, n.owner, n.principal, n.trace_id, n.write_id, n.detail
        from given n join entered e on e.resource = n.resource collate "C" order by n.place
    )
    select n.resource, e.found_fencing_token, e.last_fencing_token, e.resource is not null
      from given n left join entered e on e.resource = n.resource collate "C" order by n.place;
end
$$;
comment on function fencing.begin_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[], uuid[]) is
  'begin_write for many writes at once, each on one resource, no resource twice: the lists'' n-th items are one write. Raises the fences, opens the resources and adds a write_applied row '
  'for each. None can change anything before set_config(''fencing.write_id'', its turn, true) says that it is its turn: its own write_id (turns not given), or that of one of them for several, '
  'which are then not kept apart here: the caller answers for what each of them reaches. One row a write, in the lists'' order. A stale one has accepted = false '
  'and is not in the history: the caller rolls back, leaves it out, and gives it to begin_write, which records it. '
  'SQLSTATE 22023: not a resource, not a token, no write_id, or lists of different lengths; 21000: a resource twice; 55P03: lock_timeout passed. '
  'Locks until the end of the transaction: the guard rows in the order of their names by bytes.';

-- 095_kept_outcomes.sql
-- Outcomes kept under the caller's Idempotency-Key: a write sent again gets the first one's outcome in place of a second execution.

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
  -- Not `if not exists`, which locks the table against writers before it looks.
  if to_regclass('fencing.kept_outcome_expires_at_idx') is null then
    create index kept_outcome_expires_at_idx on fencing.kept_outcome (expires_at);
  end if;
end
$$;
comment on table fencing.kept_outcome is
  'The first outcome of each write that came with an Idempotency-Key, committed together with the write, or with the record of its refusal. Written only by functions of this schema, granted to no one.';
comment on column fencing.kept_outcome.principal is 'Whose key it is: two principals may use the same one.';
comment on column fencing.kept_outcome.key is 'The key as the caller chose it.';
comment on column fencing.kept_outcome.fingerprint is 'SHA-256 of what was asked for, so that the key is of no use for anything else.';
comment on column fencing.kept_outcome.outcome is 'What the gateway answers from, as it wrote it down.';
comment on column fencing.kept_outcome.expires_at is 'From then on the key is as if it had never been used; forget_outcomes() deletes the row.';

create or replace function fencing.find_outcomes(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other' else 'new' end,
         case when o.fingerprint = t.fingerprint then o.outcome end
    from unnest($1, $2, $3) with ordinality as t (principal, key, fingerprint, place)
    left join lateral (  -- by the index, one by one, also where the plan was made while the table was small
      select k.fingerprint, k.outcome from fencing.kept_outcome k
       where k.principal = t.principal collate "C" and k.key = t.key collate "C" and k.expires_at > statement_timestamp() offset 0) o on true
   order by t.place;
$$;
comment on function fencing.find_outcomes(text[], text[], bytea[]) is
  'For gateways: as claim_keys, but only looks: a new key is nobody''s, and one that is under way is new. To write, claim_keys comes first. Locks: none.';

create or replace function fencing.claim_keys(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  locked boolean[];
begin
  if (cardinality(principals) = cardinality(keys) and cardinality(fingerprints) = cardinality(keys)) is not true
     or exists (select from unnest(principals, keys, fingerprints) as t (principal, key, fingerprint)
                 where (octet_length(t.key) between 1 and 64 and t.principal is not null and octet_length(t.fingerprint) = 32) is not true) then
    raise exception using errcode = '22023', message = 'claim_keys takes lists of one length: a principal, a key of 1 to 64 bytes and a fingerprint of 32 bytes each';
  end if;
  locked := array(select pg_try_advisory_xact_lock(hashtextextended(t.principal || E'\n' || t.key, 0))
                    from unnest(principals, keys) with ordinality as t (principal, key, place) order by t.place);
  -- A statement of its own: whatever was committed before a lock came free is seen.
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
  'For gateways, first thing in the transaction of writes that have keys; the lists'' n-th items are one write. One row each, in order. new: the key is this transaction''s, and nobody else gets it until '
  'the transaction ends; kept: outcome is what the first write with this key came to; other: the key was used for another request; running: another transaction has it, or an earlier item of '
  'the lists. Never waits. Read committed only; elsewhere keep_outcomes raises. SQLSTATE 22023: not such lists. Locks until the end of the transaction: an advisory lock a key.';

create or replace function fencing.keep_outcomes(principals text[], keys text[], fingerprints bytea[], outcomes text[], keep_for_ms bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  kept bigint;
begin
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
  'For gateways: keeps the outcomes of writes whose keys this transaction has claimed, for keep_for_ms. SQLSTATE 40001: an outcome is kept there already (the key was not claimed, or not at read '
  'committed); 23502: something is null. Locks until the end of the transaction: the rows.';

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
  'For gateways: deletes outcomes whose time is over, the oldest first and at most so many, and gives how many. Passes over what another transaction has locked, and locks nothing that a write waits '
  'for but a key whose time is over. Locks until the end of the transaction: the deleted rows.';

-- 100_fences.sql
-- Raising a fence without writing (fenced reads, fence_on_grant, seals), repairing one, and finding out whether a write landed.

create or replace function fencing.raise_fences(resources text[], to_token bigint, owner text, principal text, trace_id text, reason text)
returns table (resource text, found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if to_token is null or to_token not between 1 and 9007199254740992 then
    raise exception using errcode = '22023',
      message = format('a fence is raised to an integer from 1 to 2^53, the seal of the last token, not to %s', coalesce(to_token::text, 'null'));
  end if;
  perform fencing.require_words(resources, 1);
  perform fencing.lock_guards(resources);
  return query
    with found as (
      select g.resource::text, g.last_fencing_token from fencing.guard g where g.resource = any (resources)
    ), raised as (
      update fencing.guard g set last_fencing_token = to_token
       where g.resource = any (resources) and g.last_fencing_token < to_token
      returning g.resource
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, detail)
      select 'fence_raised', f.resource, to_token, to_token, raise_fences.owner, raise_fences.principal, raise_fences.trace_id,
             jsonb_build_object('found_token', f.last_fencing_token, 'reason', reason)
        from found f join raised using (resource)
    )
    select f.resource, f.last_fencing_token, greatest(f.last_fencing_token, to_token) from found f order by f.resource;
end
$$;
comment on function fencing.raise_fences(text[], bigint, text, text, text, text) is
  'For gateways. Raises each fence to to_token (a seal: token + 1) and adds fence_raised where it raised something; never lowers one, opens nothing. '
  'One row a resource, in the order of the names: the fence before and now. SQLSTATE 22023: not a resource, or to_token not from 1 to 2^53; 55P03: lock_timeout passed. '
  'Locks until the end of the transaction: the guard rows in the order of their names by bytes.';

create or replace function fencing.repair_fence(resource text, to_token bigint, principal text, trace_id text, reason text)
returns table (found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_fence bigint;
begin
  if to_token is null or to_token not between 0 and 9007199254740992 or coalesce(btrim(reason), '') = '' then
    raise exception using errcode = '22023', message = 'a fence is repaired for a reason, and to an integer from 0 to 2^53';
  end if;
  perform fencing.require_words(array[repair_fence.resource], 1);
  perform fencing.lock_guards(array[repair_fence.resource]);
  select g.last_fencing_token into found_fence from fencing.guard g where g.resource = repair_fence.resource;
  update fencing.guard g set last_fencing_token = to_token where g.resource = repair_fence.resource;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, trace_id, detail)
  values ('fence_raised', repair_fence.resource, to_token, to_token, repair_fence.principal, repair_fence.trace_id,
          jsonb_build_object('repair', true, 'found_token', found_fence, 'reason', reason));
  return query select found_fence, to_token;
end
$$;
comment on function fencing.repair_fence(text, bigint, text, text, text) is
  'For gateways, on behalf of an operator: sets the fence to any value, the only way down. Adds fence_raised with detail.repair = true, the fence before and the reason. '
  'Whoever lowers a fence lets older holders write again. SQLSTATE 22023: no reason, not a resource, not a token. Locks until the end of the transaction: the guard row.';

create or replace function fencing.write_landed(write_id uuid, resource text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencing.require_words(array[write_landed.resource], 1);
  perform fencing.lock_guards(array[write_landed.resource]);
  return exists (select from fencing.history h
                  where h.write_id = write_landed.write_id and h.resource = write_landed.resource and h.event = 'write_applied');
end
$$;
comment on function fencing.write_landed(uuid, text) is
  'For gateways whose connection broke during commit: waits until the transaction that has the resource''s guard ends, then says whether the write is in the history. '
  'The answer false is final only if begin_write had answered on the broken connection: a statement that the server has not yet read holds no lock. '
  'Read committed only. SQLSTATE 55P03: lock_timeout passed, nothing is known. Locks until the end of the transaction: the guard row.';

-- 105_seal.sql
-- Sealing the tokens of writes in the transaction that they are made in.

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
  select 'fence_raised', s.resource, s.token + 1, s.token + 1, s.owner, s.principal, s.trace_id, s.write_id,
         jsonb_build_object('found_token', s.token, 'reason', 'seal')
    from sealed s order by s.resource;
end
$$;
comment on function fencing.seal_writes(text[], bigint[], uuid[], text[], text[], text[]) is
  'For gateways: seals tokens in the transaction of the writes that were their last, behind those writes: raises the fence of each resource from its token to token + 1, and adds fence_raised, with the '
  'write_id. The lists'' n-th items are one resource of one write. Touches only resources that this transaction has entered with that token: a fence that stands higher shuts the token out already. '
  'Waits for nobody. Locks until the end of the transaction: the guard rows, which the transaction has.';

-- 110_protect.sql
-- protect and unprotect: from now on the rows of a table change only in a transaction that entered their resource.

create sequence if not exists fencing.check_id_seq as bigint;
comment on sequence fencing.check_id_seq is 'Numbers the check functions, so that a name is never used twice, not even after a dump was restored.';

create table if not exists fencing.protected (
  relation            regclass primary key,
  resource_expression text not null,
  mode                text not null check (mode in ('enforce', 'observe')),
  check_function      name not null,
  protected_at        timestamptz not null default clock_timestamp(),
  protected_by        text not null default session_user
);
comment on table fencing.protected is 'What is protected, and how. The triggers on the tables do the work; this is the operator''s list.';
comment on column fencing.protected.relation is 'The table, or the root of a partitioned table.';
comment on column fencing.protected.resource_expression is 'Gives the resource of a row from its columns.';
comment on column fencing.protected.mode is 'enforce refuses; observe records what it would have refused and lets it through.';
comment on column fencing.protected.check_function is 'The trigger function in this schema that protect() generated for the table.';
comment on column fencing.protected.protected_at is 'When protect() was last called.';
comment on column fencing.protected.protected_by is 'Who called it.';

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

create or replace function fencing.require_resource_expression(relation regclass, resource_expression text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_type oid;
  hint constant text := 'Immutable, over columns of the table alone, of type text; numbers as id::text, functions with their schema. For example ''orders/'' || id::text';
begin
  execute format('create temporary table fencing_probe (like %s) on commit drop', relation);
  begin
    -- An index takes exactly what is wanted here: an immutable expression over the columns of one row.
    execute format(E'create index fencing_probe_expression on pg_temp.fencing_probe ((%s\n))', resource_expression);
  exception when others then
    raise exception using errcode = '22023', message = format('the resource expression of %s can''t be used: %s', relation, sqlerrm),
      detail = resource_expression, hint = hint;
  end;
  select a.atttypid into found_type from pg_attribute a where a.attrelid = 'pg_temp.fencing_probe_expression'::regclass and a.attnum = 1;
  drop table pg_temp.fencing_probe;
  if found_type <> 'text'::regtype then
    raise exception using errcode = '22023', message = format('the resource expression of %s gives %s, not text', relation, format_type(found_type, null)),
      detail = resource_expression, hint = hint;
  end if;
end
$$;
comment on function fencing.require_resource_expression(regclass, text) is
  'Raises 22023 with the reason unless the expression is immutable, over the table''s own columns, of type text. Locks: the table, access share.';

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
  'Who but the owner has TRIGGER or REFERENCES on the table or its partitions. Triggers, and those of tables that a foreign key''s cascade reaches, run with the rights of whoever writes, '
  'and a gateway may lower fences. Locks: none.';

create or replace function fencing.take_code_rights(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in select * from fencing.code_rights(relation) loop
    execute format('revoke %s on %s from %s cascade', item.privilege, item.target, item.grantee);
    raise notice 'fencing: the privilege % on % was taken from %, who could run code as whoever writes', item.privilege, item.target, item.grantee;
  end loop;
end
$$;
comment on function fencing.take_code_rights(regclass) is 'Takes what code_rights() names. Locks: none.';

create or replace function fencing.remove_checks(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in
    select t.tgrelid::regclass as target, t.tgname
      from pg_trigger t
     where t.tgrelid in (select relation union select p.relid from pg_partition_tree(relation) p)
       and t.tgname like 'fencing\_check\_%'
     order by t.tgrelid <> relation, t.tgrelid, t.tgname  -- the root first: its row triggers take their clones along
  loop
    execute format('drop trigger if exists %I on %s', item.tgname, item.target);
  end loop;
  -- Check functions of this table, and of tables that were dropped.
  for item in
    delete from fencing.protected p
     where p.relation = remove_checks.relation or not exists (select from pg_class c where c.oid = p.relation)
    returning p.check_function
  loop
    execute format('drop function if exists fencing.%I()', item.check_function);
  end loop;
end
$$;
comment on function fencing.remove_checks(regclass) is 'Drops the triggers that protect() made and their function. Locks: the table and its partitions, access exclusive.';

create or replace function fencing.protect(relation regclass, resource_expression text, mode text default 'enforce') returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  class pg_class;
  check_function name;
begin
  if mode is null or mode not in ('enforce', 'observe') then
    raise exception using errcode = '22023', message = format('mode is enforce or observe, not %s', coalesce(mode, 'null'));
  end if;
  perform fencing.require_protectable(relation);
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.require_resource_expression(relation, resource_expression);
  perform fencing.remove_checks(relation);
  select * into class from pg_class where oid = relation;
  check_function := format('check_%s_%s', nextval('fencing.check_id_seq'), left(class.relname, 30));
  if class.relkind = 'p' then
    perform fencing.create_row_checks(relation, resource_expression, mode, check_function);
  else
    perform fencing.create_statement_checks(relation, resource_expression, mode, check_function);
  end if;
  perform fencing.create_truncate_checks(relation, mode);
  perform fencing.take_code_rights(relation);
  insert into fencing.protected (relation, resource_expression, mode, check_function)
  values (relation, resource_expression, mode, check_function);
end
$$;
comment on function fencing.protect(regclass, text, text) is
  'From the commit on, rows of the table change only in a transaction that entered their resource, old and new row alike; TRUNCATE is refused. Whoever connects, '
  'also where session_replication_role = replica. Mode observe lets all through and records it as write_rejected with detail.observed = true. '
  'Takes the privileges TRIGGER and REFERENCES from everyone but the owner. To be called again after a change of the expression, the mode or a column''s name. A partitioned table is protected at its root: every partition is covered, also against direct writes, '
  'also those attached later; only TRUNCATE of a partition attached later is not refused until protect() is called again. '
  'The caller installed the schema and owns the table. SQLSTATE 22023: the expression can''t be used or the mode is unknown; 42809, 0A000: not a table that can be protected. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';

create or replace function fencing.unprotect(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.remove_checks(relation);
end
$$;
comment on function fencing.unprotect(regclass) is
  'Removes all that protect() made; does nothing where nothing is protected. The fences stay. Locks until the end of the transaction: the table and its partitions, access exclusive.';

-- 120_checks.sql
-- What protect() generates. Ordinary tables get statement triggers, which check a whole batch at once; partitioned tables get row triggers,
-- because PostgreSQL clones those to every partition, also to those attached later, and so covers writes that name a partition.
--
-- The search is written as a scalar subquery, which is always answered by one probe of the guard's primary key a row, whatever the statistics say.

create or replace function fencing.check_body(resource_expression text, mode text, old_rows text, new_rows text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $body$
  select replace(replace(replace(replace(replace($template$
#variable_conflict use_column
declare
  fencing_xid   constant xid8 := pg_current_xact_id_if_assigned();
  fencing_write constant text := coalesce(current_setting('fencing.write_id', true), '');
  fencing_found text;
begin
  if tg_op = 'INSERT' then
    {look} (select ({expression}
) collate "C" as resource from {new}) t {uncovered}
  elsif tg_op = 'UPDATE' then
    {look} (select ({expression}
) collate "C" as resource from {old} union all select ({expression}
) collate "C" from {new}) t {uncovered}
  else
    {look} (select ({expression}
) collate "C" as resource from {old}) t {uncovered}
  end if;
  {verdict}return null;
end
$template$,
    '{look}', case mode when 'enforce' then 'select t.resource into fencing_found from'
                        else 'perform fencing.observe_change(tg_relid, tg_op, d.resource) from (select distinct t.resource from' end),
    '{uncovered}', E'\n     where (select true from fencing.guard g where g.resource = t.resource and g.entered_xid = fencing_xid\n'
                   '             and g.entered_at = transaction_timestamp() and g.entered_for = fencing_write) is null\n'
                   || case mode when 'enforce' then '     limit 1;' else '     limit 100) d;' end),
    '{verdict}', case mode when 'enforce' then E'if found then\n    perform fencing.refuse_change(tg_relid, tg_op, fencing_found);\n  end if;\n  ' else '' end),
    '{old}', old_rows),
    '{new}', new_rows)
$body$;
comment on function fencing.check_body(text, text, text, text) is 'The body of a check function, but for the resource expression. Locks: none.';

create or replace function fencing.create_check_function(check_function name, body text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create function fencing.%I() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as %L', check_function, body);
  execute format('revoke all on function fencing.%I() from public', check_function);
  execute format('comment on function fencing.%I() is %L', check_function,
                 'Trigger, generated by fencing.protect: refuses changes of rows whose resource this transaction has not entered. SQLSTATE FG428, FG403. Locks: none.');
end
$$;
comment on function fencing.create_check_function(name, text) is 'Creates a generated trigger function, granted to nobody. Locks: none.';

create or replace function fencing.create_statement_checks(relation regclass, resource_expression text, mode text, check_function name) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  trigger record;
begin
  perform fencing.create_check_function(check_function,
    replace(fencing.check_body(resource_expression, mode, 'fencing_old', 'fencing_new'), '{expression}', resource_expression));
  for trigger in
    select * from (values ('insert', 'new table as fencing_new'), ('update', 'old table as fencing_old new table as fencing_new'),
                          ('delete', 'old table as fencing_old')) as t (operation, tables)
  loop
    execute format('create trigger fencing_check_%1$s after %1$s on %2$s referencing %3$s for each statement execute function fencing.%4$I()',
                   trigger.operation, relation, trigger.tables, check_function);
    execute format('alter table %s enable always trigger fencing_check_%s', relation, trigger.operation);
  end loop;
end
$$;
comment on function fencing.create_statement_checks(regclass, text, text, name) is 'The checks of an ordinary table. Locks: the table, access exclusive.';

create or replace function fencing.create_row_checks(relation regclass, resource_expression text, mode text, check_function name) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  target regclass;
begin
  perform fencing.create_check_function(check_function,
    replace(fencing.check_body(resource_expression, mode, '(select old.*) o', '(select new.*) n'), '{expression}', resource_expression));
  execute format('create trigger fencing_check_row after insert or update or delete on %s for each row execute function fencing.%I()', relation, check_function);
  for target in select p.relid from pg_partition_tree(relation) p loop
    execute format('alter table %s enable always trigger fencing_check_row', target);
  end loop;
end
$$;
comment on function fencing.create_row_checks(regclass, text, text, name) is 'The checks of a partitioned table. Locks: the table and its partitions, access exclusive.';

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
comment on function fencing.check_truncate() is 'Trigger: refuses TRUNCATE of a protected table, for it touches every resource at once. SQLSTATE FG403. Locks: none.';

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
comment on function fencing.create_truncate_checks(regclass, text) is 'The refusal of TRUNCATE, on the table and on every partition. Locks: those, access exclusive.';

-- 130_expose.sql
-- What the HTTP interface may touch, and under which name.

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
comment on column fencing.exposed.columns is 'The columns that can be read and written, null: all, also those added later.';
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
comment on function fencing.grant_table(regclass) is 'Grants fencing_gateway exactly what is exposed of the table, under whatever names. Locks: none.';

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
comment on function fencing.base_type(oid) is 'What a domain is made of, also through other domains; of every other type the type itself. Locks: none.';

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
  'Where the type, or what its domain is made of, brings comparisons of its own (citext, hstore, ltree): the schema of its =; null where those of pg_catalog apply. '
  'Gateways have no such schema in their search_path and would compare otherwise than psql does. Locks: none.';

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
  'Grants fencing_gateway usage of the schemas of these types and of their operators, where it has none. Locks: none.';

create or replace function fencing.expose_table(
  relation regclass, name text default null, operations text[] default '{select,insert,update,delete}', columns text[] default null) returns void
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
  select c into missing from unnest(columns) as t (c)
   where not exists (select from pg_attribute a where a.attrelid = relation and a.attname = c and a.attnum > 0 and not a.attisdropped);
  if found then
    raise exception using errcode = '42703', message = format('%s has no column %s', relation, coalesce(missing, 'null'));
  end if;
  perform fencing.hide(coalesce(expose_table.name, class.relname));
  insert into fencing.exposed (name, relation, operations, columns)
  values (coalesce(expose_table.name, class.relname), expose_table.relation, expose_table.operations, expose_table.columns);
  execute format('grant usage on schema %s to fencing_gateway', class.relnamespace::regnamespace);
  perform fencing.grant_table(relation);
  perform fencing.take_code_rights(relation);
  perform fencing.grant_types(array(
    select a.atttypid from pg_attribute a
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and (columns is null or a.attname = any (columns))));
  perform pg_notify('fencing_catalog', coalesce(expose_table.name, class.relname));
end
$$;
comment on function fencing.expose_table(regclass, text, text[], text[]) is
  'Lets gateways serve the table or view under that name (its own by default) with these operations and columns (null: all), and grants fencing_gateway just that, '
  'with usage of the schemas of table and types; takes the privileges TRIGGER and REFERENCES from everyone but the owner. Update and delete need select too, for their conditions. '
  'Replaces what had the name before. Running gateways hear of it when the transaction commits. The caller installed the schema and owns the table. '
  'SQLSTATE 42809: not a table; 0A000: one of fencing''s or PostgreSQL''s own; 42703: no such column; 23514: a bad name or operation. Locks: none that writers wait for.';

create or replace function fencing.expose_function(function regprocedure, name text default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
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
  perform fencing.hide(coalesce(expose_function.name, proc.proname));
  insert into fencing.exposed (name, function)
  values (coalesce(expose_function.name, proc.proname), expose_function.function::text);
  execute format('grant usage on schema %s to fencing_gateway', proc.pronamespace::regnamespace);
  execute format('grant execute on function %s to fencing_gateway', function);
  perform fencing.grant_types(proc.proargtypes::oid[]);
  perform pg_notify('fencing_catalog', coalesce(expose_function.name, proc.proname));
end
$$;
comment on function fencing.expose_function(regprocedure, text) is
  'Lets gateways call the function under that name (its own by default) and grants fencing_gateway execute. Arguments are passed by name. Replaces what had the name before. '
  'SQLSTATE 42809: not a function; 0A000: an argument without a name, variadic, or one of fencing''s or PostgreSQL''s own; 23514: a bad name. Locks: none that writers wait for.';

create or replace function fencing.hide(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  gone fencing.exposed;
begin
  delete from fencing.exposed e where e.name = hide.name returning * into gone;
  if not found then
    return;
  end if;
  if gone.relation is not null and exists (select from pg_class c where c.oid = gone.relation) then
    perform fencing.grant_table(gone.relation);
  elsif to_regprocedure(gone.function) is not null and not exists (select from fencing.exposed e where e.function = gone.function) then
    execute format('revoke execute on function %s from fencing_gateway', gone.function);
  end if;
  perform pg_notify('fencing_catalog', hide.name);
end
$$;
comment on function fencing.hide(text) is
  'Takes back what expose_table or expose_function gave under this name, and the privileges that no other name needs; usage of the schema stays. '
  'Does nothing where the name is unknown. Locks: none that writers wait for.';

create or replace function fencing.guard_faults() returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with tables as (  -- with their partitions, and the triggers that each has to have
    select t.oid, case when c.relkind = 'p' then '{fencing_check_row,fencing_check_truncate}'::text[]
                       else '{fencing_check_insert,fencing_check_update,fencing_check_delete,fencing_check_truncate}' end as triggers
      from fencing.protected p join pg_class c on c.oid = p.relation
           cross join lateral (select p.relation::oid union select relid from pg_partition_tree(p.relation)) t (oid)
    union all
    select relid, '{history_append_only,history_no_truncate}' from pg_partition_tree('fencing.history')
  )
  select format('%s: the trigger %s %s; %s puts it back', c.oid::regclass, n.name,
                case when t.oid is null then 'is missing' else 'is not always on' end,
                case when c.relnamespace = 'fencing'::regnamespace then 'alter table … enable always trigger' else 'protect()' end)
    from tables g join pg_class c on c.oid = g.oid cross join unnest(g.triggers) as n (name)
         left join pg_trigger t on t.tgrelid = c.oid and t.tgname = n.name
   where t.tgenabled is distinct from 'A' and (c.relkind in ('r', 'p') or n.name not like '%truncate')
  union
  select format('%s: %s has the privilege %s, and could run code as whoever writes; protect() and expose_table() take it', r.target, r.grantee, r.privilege)
    from (select oid from tables union select e.relation from fencing.exposed e where e.relation is not null) g cross join fencing.code_rights(g.oid) r
  union
  select format('%s: %s belongs to another role, whose triggers run as whoever changes a key: its constraint %s has an action', p.oid::regclass, f.oid::regclass, k.conname)
    from (select oid from tables union select e.relation from fencing.exposed e) g join pg_class p on p.oid = g.oid
         join pg_constraint k on k.confrelid = p.oid and k.contype = 'f' and (k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r'))
         join pg_class f on f.oid = k.conrelid and f.relowner <> p.relowner
  order by 1;
$$;
comment on function fencing.guard_faults() is
  'What would let a change past the guard although protect() was called: checks that are missing or not always on (a restore of data alone with --disable-triggers leaves them so), TRUNCATE of '
  'partitions attached since, and who but the owner may have triggers run. Nothing where all is well. `fencegate check` asks it. Locks: none.';

-- 135_shared_updates.sql
-- Which tables may be updated for several writes of a batch by one statement.

create or replace function fencing.shared_resource_expression(relation regclass) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$  -- in plpgsql because that keeps the plan
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
  'For gateways: the resource expression of a protected table, if one update for several writes of a batch can reach no more than those writes could one by one; else null. '
  'That is an ordinary table in mode enforce on which an update sets off nothing else: no triggers but those of protect(), no rules, no row security, no cascades. '
  'Asked again behind such an update, whose lock keeps all of that as it is, the answer holds for the transaction. Locks: none.';

-- 140_api_catalog.sql
-- What is exposed, in the form in which a gateway builds its statements from it.

create or replace function fencing.type_name(type oid, modifier integer) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format_type(type, modifier);
$$;
comment on function fencing.type_name(oid, integer) is
  'The type as a cast writes it, with its schema unless that is pg_catalog, whatever the caller''s search_path. Locks: none.';

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

comment on view fencing.api_catalog is 'What is exposed; a table or function that was dropped is no longer here. NOTIFY fencing_catalog says when to read it again.';
comment on column fencing.api_catalog.name is 'The name in the HTTP interface.';
comment on column fencing.api_catalog.kind is 'table (also a view) or function.';
comment on column fencing.api_catalog.target is 'The identifier, quoted and with its schema, ready for use in SQL.';
comment on column fencing.api_catalog.operations is 'Tables: which of select, insert, update, delete.';
comment on column fencing.api_catalog.columns is 'Tables: [{"name", "type", "base", "operators"}] in the table''s order; base: what a domain is made of; operators: the schema of the type''s own comparisons, where it has some.';
comment on column fencing.api_catalog.arguments is 'Functions: [{"name", "type", "has_default"}] in order, those that go in.';
comment on column fencing.api_catalog.returns_set is 'Functions: whether it returns a set of rows.';
comment on column fencing.api_catalog.returns_void is 'Functions: whether it returns nothing.';
comment on column fencing.api_catalog.shared_resource_expression is 'Tables: what shared_resource_expression() says.';
comment on column fencing.api_catalog.changes_nothing is 'Functions: whether it is declared stable or immutable, so that gateways call it without a lease, in a read-only transaction.';

-- 900_grants.sql
-- Who may do what, object by object. Nothing to public.

revoke all on schema fencing from public;
revoke all on all tables in schema fencing from public;
revoke all on all sequences in schema fencing from public;
revoke all on all functions in schema fencing from public;
revoke all on domain fencing.resource_name, fencing.event_word from public;
revoke all on all tables in schema fencing from fencing_gateway, fencing_writer, fencing_auditor;
revoke all on all functions in schema fencing from fencing_gateway, fencing_writer, fencing_auditor;

grant usage on schema fencing to fencing_gateway, fencing_writer, fencing_auditor;

grant execute on function fencing.enter(text, bigint, text) to fencing_writer;
grant execute on function fencing.fence(text) to fencing_writer, fencing_auditor, fencing_gateway;
grant execute on function fencing.guard_faults() to fencing_auditor, fencing_gateway;

grant select on fencing.history, fencing.guard, fencing.cluster to fencing_auditor, fencing_gateway;
grant execute on function fencing.schema_version() to fencing_auditor;
grant select on fencing.node, fencing.api_catalog to fencing_gateway;

grant execute on function
  fencing.begin_write(text[], bigint, uuid, text, text, text, jsonb),
  fencing.begin_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[], uuid[]),
  fencing.shared_resource_expression(regclass),
  fencing.find_outcomes(text[], text[], bytea[]),
  fencing.claim_keys(text[], text[], bytea[]),
  fencing.keep_outcomes(text[], text[], bytea[], text[], bigint),
  fencing.forget_outcomes(integer),
  fencing.seal_writes(text[], bigint[], uuid[], text[], text[], text[]),
  fencing.record_events(jsonb),
  fencing.append_events(uuid, bigint, bigint[], text[], text[], bigint[], bigint[], text[], text[], text[], uuid[], jsonb[]),
  fencing.history_tail(),
  fencing.keep_history(integer),
  fencing.raise_fences(text[], bigint, text, text, text, text),
  fencing.repair_fence(text, bigint, text, text, text),
  fencing.draw_epoch(text, bigint),
  fencing.join_cluster(text[], integer, bigint, integer),
  fencing.schema_version(),
  fencing.write_landed(uuid, text),
  fencing.type_name(oid, integer),
  fencing.refuse_answer(bigint),
  fencing.base_type(oid),
  fencing.operator_schema(oid)
  to fencing_gateway;

-- What was exposed before a re-run is untouched: those are grants on the application's own objects.
