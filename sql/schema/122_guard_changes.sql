-- Changes of the guard are events of the history: what an operator changes by its functions,
-- and faults that appear and disappear.

create or replace function fencing.bound_guard_change(detail jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when pg_column_size(detail) <= 65536 then detail
              else (select jsonb_object_agg(m.key, case when pg_column_size(m.value) <= 4096 then m.value
                                                        when jsonb_typeof(m.value) = 'string'
                                                          then to_jsonb(fencing.bound_text(m.value #>> '{}', 2000))
                                                        else jsonb_build_object(
                                                            'left_out_bytes', pg_column_size(m.value)) end)
                      from jsonb_each(detail) m) end;
$$;
comment on function fencing.bound_guard_change(jsonb) is
  'The detail of a change of the guard; where it has more than 64 KiB, of each long member the first 2,000 characters '
  'of a text (bound_text), else left_out_bytes (its size): action and relation are always kept. Locks: none.';

create or replace function fencing.record_guard_change(action text, facts jsonb) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.history (event, principal, detail)
  values ('guard_changed', session_user, fencing.bound_guard_change(jsonb_strip_nulls(
    fencing.session_origin() || jsonb_build_object('action', action) || facts)));
$$;
comment on function fencing.record_guard_change(text, jsonb) is
  'Adds guard_changed to the history, in the transaction of the change. The functions that change the guard call it. '
  'Locks: none that others wait for.';

create or replace function fencing.record_setting() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'TRUNCATE' then
    delete from fencing.settings;  -- so that each row is recorded
    return null;
  end if;
  if old.key = 'legal_hold' and new.key is distinct from 'legal_hold' then
    perform fencing.record_guard_change('legal_hold_lifted', jsonb_build_object('reason', old.value));
  elsif new.key = 'legal_hold' then
    perform fencing.record_guard_change('legal_hold_set', jsonb_build_object('reason', new.value,
        'was', case old.key when new.key then old.value end));
  end if;
  if 'history_keep_days_min' in (old.key, new.key) then
    perform fencing.record_guard_change('history_keep_days_min', jsonb_build_object(
        'days', case new.key when 'history_keep_days_min' then new.value end,
        'was', case old.key when 'history_keep_days_min' then old.value end));
  end if;
  return null;
end
$$;
comment on function fencing.record_setting() is
  'Trigger: records in the history that a legal hold was set or lifted, and changes of history_keep_days_min. '
  'Locks: none that others wait for.';

do $$
begin
  if not exists (select from pg_catalog.pg_trigger where tgrelid = 'fencing.settings'::regclass
      and tgname = 'settings_recorded') then
    create trigger settings_recorded after insert or update or delete on fencing.settings
      for each row execute function fencing.record_setting();
    create trigger settings_truncated before truncate on fencing.settings
      for each statement execute function fencing.record_setting();
    alter table fencing.settings enable always trigger settings_recorded;
    alter table fencing.settings enable always trigger settings_truncated;
  end if;
end
$$;

create table if not exists fencing.fault_check (
  singleton  boolean primary key default true check (singleton),
  checked_at timestamptz
);
comment on table fencing.fault_check is
  'One row, locked by the gateway that compares the faults with known_fault: one at a time. Granted to no one.';
comment on column fencing.fault_check.singleton is 'Keeps the table at one row.';
comment on column fencing.fault_check.checked_at is
  'When the last comparison of all faults began; null before the first.';
insert into fencing.fault_check default values on conflict do nothing;

create table if not exists fencing.known_fault (
  id         bigint generated always as identity primary key,
  fault      text not null,
  relation   text,
  found_at   timestamptz not null default clock_timestamp(),
  not_before timestamptz,
  principal  text
);
comment on table fencing.known_fault is
  'The faults that the history has as found and not yet as gone, so that it records each once, '
  'whichever session finds it. A row each, so that a command that makes or mends a fault waits for no gateway and '
  'for no other command. Granted to no one.';
comment on sequence fencing.known_fault_id_seq is 'Numbers the rows of known_fault.';
comment on column fencing.known_fault.id is 'A fault may be here twice, if two have found it at the same time.';
comment on column fencing.known_fault.fault is 'As guard_faults() words it.';
comment on column fencing.known_fault.relation is 'The table that it opens, or null.';
comment on column fencing.known_fault.found_at is 'When it was found.';
comment on column fencing.known_fault.not_before is
  'When the faults were compared before, or the table protected since, where no command made it: it may be as old. '
  'Null where a command made it.';
comment on column fencing.known_fault.principal is 'Who made it, where a command did; null where a gateway found it.';

create or replace function fencing.record_fault_changes(known jsonb, current jsonb, checked_at timestamptz,
    command text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into fencing.history (event, principal, detail)
  select 'guard_changed', case when command is not null then session_user end,
         jsonb_strip_nulls(jsonb_build_object('action', f.action, 'relation', f.relation,
               'faults', jsonb_agg(f.fault order by f.fault), 'not_before', f.not_before, 'command', command))
    -- Of at most 32 KiB and a fault.
    from (select c.*, sum(octet_length(c.fault)) over (partition by c.action, c.relation, c.not_before
          order by c.fault) / 32768 as part
            from (select 'fault_found' as action, c.key as fault, c.value as relation, checked_at as not_before
                from jsonb_each_text(current) c where not known ? c.key
                  union all
                  select 'fault_gone', k.key, k.value, null from jsonb_each_text(known) k
                    where not current ? k.key) c) f
   group by f.action, f.relation, f.not_before, f.part
   order by f.action, f.relation, f.part;
  insert into fencing.known_fault (fault, relation, not_before, principal)
  select c.key, c.value, checked_at, case when command is not null then session_user end
    from jsonb_each_text(current) c where not known ? c.key;
  begin
    delete from fencing.known_fault k
     where k.id in (select g.id from fencing.known_fault g where known ? g.fault and not current ? g.fault
         for update skip locked);
  exception when serialization_failure then
    null;  -- at a higher isolation level, where another has deleted the row since the snapshot
  end;
end
$$;
comment on function fencing.record_fault_changes(jsonb, jsonb, timestamptz, text) is
  'Adds guard_changed for the faults that are new (fault_found) and for those that are gone (fault_gone), '
  'one for each table, or several where the list is long, and notes both in known_fault. '
  'not_before (checked_at): a fault that no command made may be as old. '
  'command: the command that made it, with the session''s user as principal; null where a gateway found it. '
  'Locks: none that others wait for.';

create or replace function fencing.watch_guard() returns setof text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- as guard_faults()
set jit = off
as $$
declare
  began constant timestamptz := clock_timestamp();
  compared fencing.fault_check;
  known jsonb;
  current jsonb;
begin
  if not current_setting('transaction_read_only')::boolean then
    select * into compared from fencing.fault_check for update skip locked;  -- one gateway compares at a time
  end if;
  if compared.singleton then
    perform fencing.complete_partitions();
  end if;
  -- In one statement, so in one snapshot: a command that makes a fault notes it in the same transaction.
  select coalesce(jsonb_object_agg(g.fault, t.relation), '{}'),
    (select coalesce(jsonb_object_agg(k.fault, k.relation), '{}') from fencing.known_fault k) into current, known
    from fencing.guard_faults() g (fault)
         left join (select f.fault, min(f.relation::regclass::text) as relation from fencing.table_faults() f
             where f.about <> 'history' group by f.fault) t on t.fault = g.fault;
  if compared.singleton then
    perform fencing.record_fault_changes(known, current, compared.checked_at, null);
    update fencing.fault_check set checked_at = began;
  end if;
  return query select k.fault from jsonb_object_keys(current) k (fault) order by 1;
end
$$;
comment on function fencing.watch_guard() is
  'For gateways, which call it once in postgres.guard_check_interval_ms: returns guard_faults(), '
  'and records in the history which of them are new and which are gone since any gateway called it. '
  'It records nothing in a read-only transaction, and while another call is under way. '
  'Before, it completes new partitions (complete_partitions). '
  'Locks until the end of the transaction: the row of fault_check, without waiting, and those partitions.';

create or replace function fencing.record_faults_of(relations oid[], faults jsonb, command text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  names constant text[] := array(select r::regclass::text from unnest(relations) as t (r));
  known jsonb;
  current jsonb;
begin
  select coalesce(jsonb_object_agg(k.fault, k.relation), '{}') into known from fencing.known_fault k
    where k.relation = any (names);
  select coalesce(jsonb_object_agg(f.fault, f.relation::regclass::text), '{}') into current
    from jsonb_to_recordset(faults) f (relation oid, about text, fault text) where f.relation = any (relations)
      and f.about <> 'history';
  if known <> current then
    perform fencing.record_fault_changes(
      known, current, case when command is null then (
        select greatest(max(c.checked_at), min(p.protected_at)) from fencing.fault_check c, fencing.protected p
         where p.relation = any (relations)) end, command);
  end if;
end
$$;
comment on function fencing.record_faults_of(oid[], jsonb, text) is
  'Called by the event triggers after a command that changed these tables: records in the history which of their '
  'faults the command made (a superuser may disable a check) or mended. faults: what table_faults() returns for them. '
  'Called by protect() without a command: the faults that it finds. '
  'Locks: none that others wait for.';
