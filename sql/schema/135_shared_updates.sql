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
