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
  constraint history_pkey primary key (id, at)
) partition by range (at);

comment on table fencing.history is
  'What happened to leases, fences, writes and nodes. A write''s row commits together with the write. Update, delete and truncate are refused for everyone; '
  'rotate_history() drops whole partitions.';
comment on column fencing.history.id is 'From one sequence. Grows with time, though a transaction that commits late may show an id lower than one already seen.';
comment on column fencing.history.at is 'When it happened, by the clock of whoever recorded it; the partition key.';
comment on column fencing.history.event is 'One of the words of the HTTP contract.';
comment on column fencing.history.resource is 'The resource, null for events of nodes and epochs.';
comment on column fencing.history.fencing_token is 'The token that the caller carried.';
comment on column fencing.history.last_fencing_token is 'The fence after the event; for write_rejected the fence that refused.';
comment on column fencing.history.owner is 'The lease''s owner as the caller named it.';
comment on column fencing.history.principal is 'Who: the gateway''s authenticated caller, or session_user for direct SQL.';
comment on column fencing.history.trace_id is 'The trace that the request belonged to.';
comment on column fencing.history.write_id is 'The guarded write; one write on several resources has a row for each.';
comment on column fencing.history.detail is 'Whatever else is known; observed = true marks what observe mode let through.';

-- For the filters of GET /v1/history. Every index costs each write some 3 us, so that two have none: the token's range, which belongs to rows
-- found by resource or time, and the principal, of whom there are few: the newest rows are found by id and sifted.
create index if not exists history_resource_idx on fencing.history (resource, id);
create index if not exists history_write_id_idx on fencing.history (write_id) where write_id is not null;
create index if not exists history_trace_id_idx on fencing.history (trace_id, id) where trace_id is not null;
create index if not exists history_owner_idx on fencing.history (owner, id) where owner is not null;
create index if not exists history_event_idx on fencing.history (event, id) where event <> 'write_applied';
create index if not exists history_at_idx on fencing.history using brin (at) with (pages_per_range = 32);

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
