-- What is exposed, in the form from which a gateway builds its statements.

create or replace function fencing.type_name(type oid, modifier integer) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format_type(type, modifier);
$$;
comment on function fencing.type_name(oid, integer) is
  'The name of the type for a cast, with its schema unless that is pg_catalog, '
  'independent of the caller''s search_path. Locks: none.';

create or replace view fencing.api_catalog as
select e.name,
       'table'::text as kind,
       format('%I.%I', n.nspname, c.relname) as target,
       e.operations,
       (select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                 'name', a.attname, 'type', fencing.type_name(a.atttypid, a.atttypmod),
                 -- The server's own are below.
                 'base', case when a.atttypid >= 16384
                   then fencing.type_name(nullif(fencing.base_type(a.atttypid), a.atttypid), null) end,
                 'operators', case when a.atttypid >= 16384 then fencing.operator_schema(a.atttypid)::text end))
                   order by a.attnum)
          from pg_catalog.pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
           and (e.columns is null or a.attname = any (e.columns))) as columns,
       null::jsonb as arguments,
       null::boolean as returns_set,
       null::boolean as returns_void,
       null::boolean as changes_nothing,
       fencing.shared_resource_expression(e.relation) as shared_resource_expression,
       (select jsonb_agg(a.attname order by u.place)
          from pg_catalog.pg_index i, unnest((i.indkey::int2[])[0:i.indnkeyatts - 1])
            with ordinality as u (number, place), pg_catalog.pg_attribute a
         where i.indrelid = c.oid and i.indisprimary and a.attrelid = c.oid and a.attnum = u.number) as primary_key,
       (select jsonb_agg(jsonb_build_object(
                 'name', k.conname, 'target', format('%I.%I', s.nspname, r.relname),
                 'columns', (select jsonb_agg(a.attname order by u.place)
                     from unnest(k.conkey) with ordinality as u (number, place), pg_catalog.pg_attribute a
                              where a.attrelid = k.conrelid and a.attnum = u.number),
                 'target_columns', (select jsonb_agg(a.attname order by u.place)
                     from unnest(k.confkey) with ordinality as u (number, place), pg_catalog.pg_attribute a
                                     where a.attrelid = k.confrelid and a.attnum = u.number),
                 'is_unique', exists (select from pg_catalog.pg_index i where i.indrelid = k.conrelid and i.indisunique
                     and i.indisvalid and i.indpred is null and i.indexprs is null
                                         and (i.indkey::int2[])[0:i.indnkeyatts - 1] <@ k.conkey)) order by k.conname)
          from pg_catalog.pg_constraint k
          join pg_catalog.pg_class r on r.oid = k.confrelid
          join pg_catalog.pg_namespace s on s.oid = r.relnamespace
         where k.conrelid = c.oid and k.contype = 'f' and k.conparentid = 0) as foreign_keys,
       null::boolean as returns_row,
       c.relkind = 'v' or c.relrowsecurity as hides_rows,
       (select concat_ws(' ', c.oid, string_agg(a.atttypid::text, ' ' order by a.attnum)) from pg_catalog.pg_attribute a
           where a.attrelid = c.oid and a.attnum > 0) as object_ids
  from fencing.exposed e
  join pg_catalog.pg_class c on c.oid = e.relation
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
union all
select e.name,
       'function',
       format('%I.%I', n.nspname, p.proname),
       null,
       (select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                 'name', o.name, 'type', fencing.type_name(o.type, o.modifier),
                 'base', case
                   when o.type >= 16384 then fencing.type_name(nullif(fencing.base_type(o.type), o.type), null) end,
                 'operators', case when o.type >= 16384 then fencing.operator_schema(o.type)::text end))
                   order by o.place)
          from (select t.argument, t.type, null::integer, t.place
                  from unnest(p.proargnames, p.proargmodes, p.proallargtypes)
                    with ordinality as t (argument, mode, type, place)
                 where t.mode in ('o', 'b', 't') and t.argument <> ''
                union all
                select a.attname, a.atttypid, a.atttypmod, a.attnum
                  from pg_catalog.pg_type y join pg_catalog.pg_attribute a on a.attrelid = y.typrelid
                 where y.oid = p.prorettype and a.attnum > 0 and not a.attisdropped)
                   as o (name, type, modifier, place)),
       (select coalesce(jsonb_agg(jsonb_build_object('name', i.argument,
             'type', fencing.type_name(p.proargtypes[i.number - 1], null),
                                                     'has_default', i.number > p.pronargs - p.pronargdefaults)
                                                         order by i.number), '[]')
          from (select t.argument, row_number() over (order by t.place) as number
                  from unnest(p.proargnames, p.proargmodes) with ordinality as t (argument, mode, place)
                 where coalesce(t.mode, 'i') in ('i', 'b')) i
         where i.number <= p.pronargs),
       p.proretset,
       p.prorettype = 'pg_catalog.void'::pg_catalog.regtype,
       p.provolatile <> 'v',
       null,
       null,
       null,
       (select y.typtype in ('c', 'p') from pg_catalog.pg_type y where y.oid = p.prorettype)
         and p.prorettype <> 'pg_catalog.void'::pg_catalog.regtype,
       null,
       (select concat_ws(' ', p.oid, p.prorettype, p.proargtypes, array_to_string(p.proallargtypes, ' '),
             string_agg(a.atttypid::text, ' ' order by a.attnum))
          from pg_catalog.pg_type y left join pg_catalog.pg_attribute a on a.attrelid = y.typrelid and a.attnum > 0
          where y.oid = p.prorettype)
  from fencing.exposed e
  join pg_catalog.pg_proc p on p.oid = pg_catalog.to_regprocedure(e.function)
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace;

comment on view fencing.api_catalog is
  'What is exposed, without tables and functions that were dropped. NOTIFY fencing_catalog announces changes.';
comment on column fencing.api_catalog.name is 'The name in the HTTP interface.';
comment on column fencing.api_catalog.kind is 'table (also a view) or function.';
comment on column fencing.api_catalog.target is 'The identifier, quoted and with its schema, ready for use in SQL.';
comment on column fencing.api_catalog.operations is 'Tables: which of select, insert, update, delete.';
comment on column fencing.api_catalog.columns is
  'Tables: [{"name", "type", "base", "operators"}] in the table''s order; '
  'base: the base type of a domain; operators: the schema of the type''s own comparison operators, if it has some. '
  'Functions: [{"name", "type"}] of the row that it returns, or of its output arguments; null: none has a name.';
comment on column fencing.api_catalog.arguments is
  'Functions: [{"name", "type", "has_default"}] of the input arguments, in order.';
comment on column fencing.api_catalog.returns_set is 'Functions: whether it returns a set of rows.';
comment on column fencing.api_catalog.returns_void is 'Functions: whether it returns nothing.';
comment on column fencing.api_catalog.shared_resource_expression is
  'Tables: the result of shared_resource_expression().';
comment on column fencing.api_catalog.changes_nothing is
  'Functions: whether it is declared stable or immutable, so that gateways call it without a lease, '
  'in a read-only transaction.';
comment on column fencing.api_catalog.primary_key is
  'Tables: the names of the columns of the primary key, exposed or not; null: there is none.';
comment on column fencing.api_catalog.foreign_keys is
  'Tables: [{"name", "target", "columns", "target_columns", "is_unique"}] of its foreign keys, exposed or not; '
  'target: the referenced table as in target; is_unique: at most one row has the same values.';
comment on column fencing.api_catalog.returns_row is
  'Functions: whether it returns rows of columns and not single values.';
comment on column fencing.api_catalog.object_ids is
  'The OIDs of the relation or function and of the types of its columns and arguments: they change if one '
  'of them is replaced by another of the same name.';
comment on column fencing.api_catalog.hides_rows is
  'Tables: whether it may have fewer rows for a caller than the planner''s statistics count: a view, '
  'or a table with row security.';
