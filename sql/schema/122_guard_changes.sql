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
