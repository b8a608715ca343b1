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

create or replace function fencing.json_schema(type oid, modifier integer, nullable boolean) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  t    record;
  made jsonb;
begin
  select y.typtype, y.typname, y.typbasetype, y.typtypmod, y.typnotnull, y.typelem,
         y.typsubscript = 'array_subscript_handler'::regproc as is_array
    into strict t from pg_type y where y.oid = json_schema.type;
  if t.typtype = 'd' then
    return fencing.json_schema(t.typbasetype, t.typtypmod, nullable and not t.typnotnull);
  end if;
  made := case
    when t.is_array then jsonb_build_object('type', 'array', 'items', fencing.json_schema(t.typelem, modifier, false))
    when t.typtype = 'e' then jsonb_build_object('type', 'string', 'enum',
      (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = json_schema.type))
    when t.typtype = 'c' then '{"type": "object"}'
    when json_schema.type >= 16384 then '{"type": "string"}'  -- of an application or an extension
    else case
      when t.typname in ('json', 'jsonb', 'record') then '{}'
      when t.typname in ('int2', 'int4') then '{"type": "integer", "format": "int32"}'
      when t.typname = 'int8' then '{"type": "integer", "format": "int64"}'
      when t.typname in ('float4', 'float8') then '{"type": "number", "format": "double"}'
      when t.typname = 'numeric' then '{"type": "number"}'
      when t.typname = 'bool' then '{"type": "boolean"}'
      when t.typname = 'date' then '{"type": "string", "format": "date"}'
      when t.typname = 'timestamptz' then '{"type": "string", "format": "date-time"}'
      when t.typname = 'uuid' then '{"type": "string", "format": "uuid"}'
      when t.typname in ('varchar', 'bpchar') and modifier > 4
        then jsonb_build_object('type', 'string', 'maxLength', modifier - 4)
      else '{"type": "string"}' end::jsonb
    end;
  if nullable and made ? 'type' then
    made := made || jsonb_build_object('type', jsonb_build_array(made -> 'type', 'null'));
    if made ? 'enum' then
      made := made || jsonb_build_object('enum', (made -> 'enum') || 'null'::jsonb);
    end if;
  end if;
  return made;
end
$$;
comment on function fencing.json_schema(oid, integer, boolean) is
  'The JSON Schema of the values that gateways send and take for a type, as OpenAPI 3.1 has it; {} allows any. '
  'Locks: none.';

create or replace function fencing.describe_table(relation oid, columns text[])
  returns table (schema_of_rows json, schema_of_new_rows json, schema_of_changes json)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with shown as (
    select a.attname::text as name, a.attnum as place, a.atttypid as type, a.atttypmod as modifier,
           a.attnotnull or y.typnotnull as has_value, a.attgenerated <> '' or a.attidentity = 'a' as is_given,
           a.atthasdef or a.attidentity <> '' as has_default,
           nullif(concat_ws(E'\n', col_description(relation, a.attnum),
             (select 'Primary key' || case when i.indnkeyatts > 1 then ', with others.' else '.' end
                from pg_index i where i.indrelid = relation and i.indisprimary and a.attnum = any (i.indkey)),
             (select string_agg(format('Foreign key to %s(%s).', x.name,
                       (select string_agg(f.attname, ', ' order by u.place)
                          from unnest(k.confkey) with ordinality as u (number, place), pg_attribute f
                         where f.attrelid = k.confrelid and f.attnum = u.number)), E'\n' order by k.conname)
                from pg_constraint k, lateral (
                  select min(e.name) from fencing.exposed e where e.relation = k.confrelid) as x (name)
               where k.conrelid = relation and k.contype = 'f' and k.conparentid = 0 and a.attnum = any (k.conkey)
                 and x.name is not null)), '') as comment
      from pg_attribute a join pg_type y on y.oid = a.atttypid
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
       and (columns is null or a.attname = any (columns))
  ), described as (
    select s.*, jsonb_strip_nulls(jsonb_build_object('description', s.comment))
             || fencing.json_schema(s.type, s.modifier, not s.has_value) as schema from shown s
  )
  select json_strip_nulls(json_build_object('type', 'object', 'description', obj_description(relation, 'pg_class'),
             'required', json_agg(d.name order by d.place),
             'properties', coalesce(json_object_agg(d.name, d.schema order by d.place), '{}'))),
         json_strip_nulls(json_build_object('type', 'object',
             'required', json_agg(d.name order by d.place)
               filter (where d.has_value and not d.has_default and not d.is_given),
             'properties', coalesce(json_object_agg(d.name, d.schema order by d.place)
               filter (where not d.is_given), '{}'),
             'additionalProperties', false)),
         json_strip_nulls(json_build_object('type', 'object',
             'properties', coalesce(json_object_agg(d.name, d.schema order by d.place)
               filter (where not d.is_given), '{}'),
             'additionalProperties', false))
    from described d;
$$;
comment on function fencing.describe_table(oid, text[]) is
  'The JSON Schemas of the rows of a table with these columns (null: all), of those to insert, and of changes to them. '
  'Locks: none.';

create or replace function fencing.describe_function(function oid)
  returns table (schema_of_arguments json, schema_of_result json)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with parts as (
    select t.name, t.place, coalesce(t.mode, 'i') as mode, t.type,
           row_number() over (partition by coalesce(t.mode, 'i') in ('i', 'b') order by t.place) as number
      from pg_proc p, unnest(p.proargnames, p.proargmodes, coalesce(p.proallargtypes, p.proargtypes::oid[]))
        with ordinality as t (name, mode, type, place)
     where p.oid = function
  ), fields as (
    select f.name, f.place, f.type from parts f where f.mode in ('o', 'b', 't') and f.name <> ''
    union all
    select a.attname, a.attnum, a.atttypid
      from pg_proc p join pg_type y on y.oid = p.prorettype join pg_attribute a on a.attrelid = y.typrelid
     where p.oid = function and a.attnum > 0 and not a.attisdropped
  ), result as (
    select case when (select count(*) from fields) > 1 or y.typtype = 'c'
             then (select jsonb_build_object('type', 'object', 'properties',
                     jsonb_object_agg(f.name, fencing.json_schema(f.type, -1, true))) from fields f)
             else fencing.json_schema(p.prorettype, -1, true) end as schema, p.proretset
      from pg_proc p join pg_type y on y.oid = p.prorettype where p.oid = function
  )
  select (select json_strip_nulls(json_build_object('type', 'object',
              'required', json_agg(f.name order by f.place)
                filter (where f.name is not null and f.number <= p.pronargs - p.pronargdefaults),
              'properties', coalesce(json_object_agg(f.name, fencing.json_schema(f.type, -1, true) order by f.place)
                filter (where f.name is not null), '{}'),
              'additionalProperties', false))
            from parts f where f.mode in ('i', 'b')),
         (select case when r.proretset then jsonb_build_object('type', 'array', 'items', r.schema)
                      else r.schema end::json
            from result r)
    from pg_proc p where p.oid = function;
$$;
comment on function fencing.describe_function(oid) is
  'The JSON Schemas of the arguments of a function, as the members of an object, and of its result. Locks: none.';

create or replace function fencing.describe_api()
  returns table (name text, kind text, description text, operations text[], changes_nothing boolean,
    returns_void boolean, schemas json)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select e.name, 'table', obj_description(e.relation, 'pg_class'), e.operations, null::boolean, null::boolean,
         json_build_array(d.schema_of_rows, d.schema_of_new_rows, d.schema_of_changes)
    from fencing.exposed e join pg_class c on c.oid = e.relation, fencing.describe_table(e.relation, e.columns) d
  union all
  select e.name, 'function', obj_description(p.oid, 'pg_proc'), null, p.provolatile <> 'v',
         p.prorettype = 'void'::regtype, json_build_array(d.schema_of_arguments, d.schema_of_result)
    from fencing.exposed e join pg_proc p on p.oid = to_regprocedure(e.function), fencing.describe_function(p.oid) d
   order by 2 desc, 1;
$$;
comment on function fencing.describe_api() is
  'For gateways: what is exposed, with JSON Schemas for OpenAPI. schemas: of a table [rows, rows to insert, changes], '
  'of a function [arguments, result]. Locks: none.';
