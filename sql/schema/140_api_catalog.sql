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
