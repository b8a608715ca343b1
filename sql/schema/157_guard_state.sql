-- The state of the guard in one value. `fencegate check`, `status` and `verify`, the gateways and the console show it.

create or replace function fencing.guard_state() returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- as guard_faults()
set jit = off
set timezone = 'UTC'
as $$
  with faults as materialized (  -- a fault of a partition is one of the protected table
    select g.fault, coalesce((select p.relation::oid from pg_partition_ancestors(t.relation) a
                                join fencing.protected p on p.relation = a.relid limit 1), t.relation) as relation
      from fencing.guard_faults() g (fault)
           left join (select distinct f.relation, f.fault from fencing.table_faults() f where f.about <> 'history') t
                  on t.fault = g.fault
  ), open as (
    select f.relation, count(distinct f.fault) as fault_count,
           (array_agg(distinct f.fault order by f.fault))[1:20] as faults,
           min(k.found_at) as since, min(coalesce(k.not_before, k.found_at)) as not_before,
           (array_agg(k.principal order by k.found_at) filter (where k.fault is not null))[1] as principal
      from faults f left join fencing.known_fault k on k.fault = f.fault
     where f.relation is not null
     group by f.relation
  ), listed as (
    select p.relation::oid as relation, case p.mode when 'enforce' then 'enforced' else 'observed' end as state,
           null as reason, p.protected_at as since, p.protected_by as principal
      from fencing.protected p
    union all
    select u.relation::oid, 'open', 'unprotected', u.unprotected_at, u.unprotected_by
      from fencing.unprotected u
     where not exists (select from fencing.protected p
                        where p.relation = u.relation
                           or p.relation in (select a.relid from pg_partition_ancestors(u.relation) a))
  ), tables as (
    select c.oid::regclass::text as name, case when o.relation is null then l.state else 'open' end as state,
           case when o.relation is null then l.reason else 'fault' end as reason,
           case when o.relation is null then l.since else o.since end as since,
           case when o.not_before < o.since then o.not_before end as not_before,
           case when o.relation is null then l.principal else o.principal end as principal,
           coalesce(o.fault_count, 0) as fault_count, coalesce(o.faults, '{}') as faults
      from listed l full join open o on o.relation = l.relation
           join pg_class c on c.oid = coalesce(l.relation, o.relation)
  ), form (text) as (
    values ('YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
  ), limits (text) as (
    select 'event triggers are missing: the owner of a table can disable its checks and change rows, which is a fault '
           'afterwards; that a trigger was put between the checks, or a partition detached, is not noticed if it is '
           'undone before a gateway compares'
     where exists (select from fencing.wrong_event_triggers())
    union all
    select 'the recorder is not set up: refusals of direct SQL are not in the history'
     where fencing.recorder_schema() is null
  )
  select jsonb_build_object(
    'tables', (select coalesce(jsonb_agg(jsonb_build_object(
                                 'table', t.name, 'state', t.state, 'reason', t.reason,
                                 'since', to_char(t.since, f.text), 'not_before', to_char(t.not_before, f.text),
                                 'principal', t.principal, 'fault_count', t.fault_count, 'faults', t.faults)
                               order by t.state <> 'open', t.state <> 'observed', t.name), '[]')
                 from tables t cross join form f),
    'faults', (select coalesce(jsonb_agg(distinct f.fault order by f.fault), '[]') from faults f),
    'limits', (select coalesce(jsonb_agg(l.text), '[]') from limits l),
    'storage_generation', (select jsonb_build_object('timeline', s.timeline, 'floor', s.floor)
                             from fencing.storage_generation s),
    'compared_at', (select to_char(c.checked_at, f.text) from fencing.fault_check c cross join form f));
$$;
comment on function fencing.guard_state() is
  'The state of the guard as JSON. tables: each table that is protected, or was and is open: state (enforced, '
  'observed, or open: changes are not checked), reason of open (unprotected: unprotect() was called; fault), '
  'since (of a fault: when it was found; else when protect() or unprotect() was called), '
  'not_before (the fault may be as old), principal (who did it; '
  'null where that is not known), fault_count and the first 20 faults. faults: guard_faults(). '
  'limits: what this installation can''t notice. storage_generation: timeline (null: unknown) and floor. '
  'compared_at: when a gateway last compared the faults. '
  '`fencegate check`, `verify` and gateways call it. Locks: none.';
