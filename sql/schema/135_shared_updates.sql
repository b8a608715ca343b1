-- For gateways, in transactions of several writes: which tables one statement may update for several of them,
-- and constraints that are deferred again after the turn of a caller.

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
       and not exists (select from pg_constraint k where k.confrelid = c.oid and k.contype = 'f'
           and k.confupdtype not in ('a', 'r')));
end
$$;
comment on function fencing.shared_resource_expression(regclass) is
  'For gateways: the resource expression of a protected table, '
  'if one update for several writes of a batch can change no more rows than those writes could one by one; else null. '
  'Such a table is an ordinary table in mode enforce on which an update triggers nothing else: no triggers but those '
  'of protect(), no rules, no row security, no cascades. '
  'A second call after such an update, whose lock prevents changes of all this, '
  'is valid for the transaction. Locks: none.';

create or replace function fencing.defer_constraints() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  names constant text := (
    select string_agg(format('%I.%I', n.nspname, k.conname), ', ')
      from (select distinct d.connamespace, d.conname from pg_constraint d where d.condeferred) k
           join pg_namespace n on n.oid = k.connamespace
     where has_schema_privilege(n.oid, 'usage') and not pg_is_other_temp_schema(n.oid)
       -- SET CONSTRAINTS takes all that have the name
       and not exists (select from pg_constraint o where o.conname = k.conname and o.connamespace = k.connamespace
           and not o.condeferred));
begin
  if names is not null then
    execute 'set constraints ' || names || ' deferred';
  end if;
end
$$;
comment on function fencing.defer_constraints() is
  'For gateways, after `set constraints all immediate`, which runs what the operations of one caller have deferred '
  'while its role is taken: defers all constraints that are initially deferred again, so that the next write '
  'of the transaction meets the constraints as a write in a transaction of its own does. Constraints whose name '
  'another one in the same schema has that is not initially deferred stay immediate. Locks: none.';
