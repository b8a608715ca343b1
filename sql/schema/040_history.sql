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
  detail             jsonb
) partition by range (at);

comment on table fencing.history is
  'What happened to leases, fences, writes, nodes and the guard itself, and which requests were denied. '
  'A write''s row commits together with the write. Update, delete and truncate are refused for everyone; '
  'rotate_history() drops whole partitions.';
comment on column fencing.history.id is
  'From one sequence: the order in which rows reached this table. '
  'A transaction that commits late may show an id lower than one already seen.';
comment on column fencing.history.at is
  'When it happened: by the server''s clock for fences and writes, by the gateway''s for leases. '
  'The partition key, and with id the order of GET /v1/history.';
comment on column fencing.history.event is 'The type of the event, as in the HTTP contract.';
comment on column fencing.history.resource is
  'The resource, null for events that concern none: of nodes, epochs and the guard, and most denied requests.';
comment on column fencing.history.fencing_token is 'The token that the caller carried.';
comment on column fencing.history.last_fencing_token is
  'The fence after the event; for write_rejected the fence that refused.';
comment on column fencing.history.owner is 'The owner of the lease, which the caller chose.';
comment on column fencing.history.principal is
  'The gateway''s authenticated caller, or session_user for direct SQL and for changes of the guard.';
comment on column fencing.history.trace_id is 'The trace that the request belonged to.';
comment on column fencing.history.write_id is 'The guarded write; one write on several resources has a row for each.';
comment on column fencing.history.detail is 'Further facts; observed = true marks a change that observe mode allowed.';

-- Indexes for the filters of GET /v1/history. Filters that are used alone and over long times have an index
-- in the order of the answer, (at, id); without a filter the unique index serves that order.
-- It is no primary key, because `pg_restore --clean` would drop the key of each partition before that of the history,
-- which PostgreSQL refuses. The other indexes hold only the value: rows with a rare value are found by it and sorted,
-- rows with a frequent value are found soon by reading in order of time,
-- and an index of repeated values is small and cheap. That of a value which nearly every row has is not partial,
-- because each new row evaluates the predicates.
-- The index on id serves readers that follow the history (GET /v1/history/stream);
-- new rows are added at its right edge.
-- The name is looked up first: CREATE INDEX IF NOT EXISTS would lock out writers before it finds that the index exists.
do $$
declare
  item record;
begin
  for item in
    select * from (values
      ('history_at_id_idx', '(at, id)'),
      ('history_resource_at_idx', '(resource, at, id)'),
      ('history_write_id_idx', '(write_id) where write_id is not null'),
      ('history_by_trace_idx', '(trace_id) where trace_id is not null'),
      ('history_by_owner_idx', '(owner)'),
      ('history_by_principal_idx', '(principal)'),
      ('history_by_token_idx', '(fencing_token)'),
      ('history_event_at_idx', $i$(event, at, id)
          where event not in ('write_applied', 'lease_granted', 'lease_renewed', 'lease_released')$i$),
      ('history_by_event_idx', $i$(event)
          where event in ('write_applied', 'lease_granted', 'lease_renewed', 'lease_released')$i$),
      ('history_id_idx', '(id)'))
      as t (name, definition)
  loop
    if pg_catalog.to_regclass('fencing.' || item.name) is null then
      execute pg_catalog.format('create %s index %I on fencing.history %s',
          case item.name when 'history_at_id_idx' then 'unique' else '' end, item.name, item.definition);
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
  'Up to which number the events of each gateway are in the history, '
  'so that events sent again after a broken connection are not added twice. rotate_history() deletes old streams.';
comment on column fencing.event_stream.stream is 'An id that a gateway makes each time it starts.';
comment on column fencing.event_stream.last_sequence is 'The number of the last event that is in the history.';
comment on column fencing.event_stream.previous_sequence is 'The same before the last batch.';
comment on column fencing.event_stream.appended_at is 'When the last batch was added.';

create or replace function fencing.refuse_history_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  erasable constant text[] := '{owner,principal,detail,row_key,old,new,application,erasable_salt}';
begin
  if tg_op = 'UPDATE' then
    if to_jsonb(new) - erasable = to_jsonb(old) - erasable and exists (select from fencing.history h
        where h.event = 'person_erased' and h.at >= transaction_timestamp()
          and h.xmin = pg_current_xact_id_if_assigned()::xid) then
      return new;
    end if;
  end if;
  raise exception using errcode = '42501',
    message = format('%s can be added to, never changed: %s is refused',
        coalesce(pg_partition_root(tg_relid), tg_relid::regclass), lower(tg_op)),
    hint = 'fencing.rotate_history(keep) drops old partitions.';
end
$$;
comment on function fencing.refuse_history_change() is
  'Trigger: raises 42501 for every update, delete and truncate of history, row_change and history_digest; but for '
  'updates of what may be erased, in a transaction that has added person_erased. Locks: none.';

create table if not exists fencing.history_default partition of fencing.history default;
comment on table fencing.history_default is
  'Holds rows for whose time there is no partition, so that no event is lost where rotate_history() was not run; '
  'rotate_history() moves them to their partitions.';

-- Row triggers are cloned to every partition, also to those made later; triggers of truncate are not,
-- so each partition gets its own.
do $$
declare
  target text;
begin
  if not exists (select from pg_catalog.pg_trigger where tgrelid = 'fencing.history'::regclass
      and tgname = 'history_append_only') then
    create trigger history_append_only before update or delete on fencing.history
      for each row execute function fencing.refuse_history_change();
    alter table fencing.history enable always trigger history_append_only;
    alter table fencing.history_default enable always trigger history_append_only;
  end if;
  foreach target in array array['fencing.history', 'fencing.history_default'] loop
    if not exists (select from pg_catalog.pg_trigger where tgrelid = target::regclass
        and tgname = 'history_no_truncate') then
      execute format('create trigger history_no_truncate before truncate on %s for each statement '
          'execute function fencing.refuse_history_change()', target);
      execute format('alter table %s enable always trigger history_no_truncate', target);
    end if;
  end loop;
end
$$;

create or replace function fencing.writers_of(relations regclass[]) returns text[]
language sql
set search_path = pg_catalog, pg_temp
as $$
  with locks as materialized (select * from pg_locks l where l.granted), writing as (
    select distinct l.virtualtransaction from locks l
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = any (relations)
           or l.relation in (select i.inhrelid from pg_inherits i where i.inhparent = any (relations))))
  select array(
    select w.virtualtransaction from writing w
    union all
    select l.transactionid::text from locks l join writing w using (virtualtransaction)
      where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock');
$$;
comment on function fencing.writers_of(regclass[]) is
  'The transactions that hold the lock for adding rows to these tables: each named by its virtual transaction and, '
  'once it has one, by its transaction id, which a prepared transaction keeps when the server restarts. Locks: none.';

create or replace function fencing.history_tail() returns table (last_id bigint, writers text[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select case when s.is_called then s.last_value else s.last_value - 1 end into last_id from fencing.history_id_seq s;
  -- After last_id was read: a transaction that got an id up to last_id had locked the history before,
  -- and holds the lock until it ends.
  writers := fencing.writers_of(array['fencing.history'::regclass]);
  return next;
end
$$;
comment on function fencing.history_tail() is
  'For readers that follow the history by id, although ids are assigned before rows are committed: '
  'the last id assigned, and the names of the transactions that may still commit rows with ids up '
  'to it (of one transaction its virtual transaction and its transaction ids). '
  'Once none of those names is among the writers of a later call, statements begun after that call see every row up to '
  'that last_id that will ever exist. Locks: none.';
