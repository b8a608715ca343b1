-- The tables and functions of the HTTP interface, and their names there.

create table if not exists fencing.exposed (
  name       text primary key check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$'),
  relation   regclass,
  function   text,
  operations text[] check (operations <@ '{select,insert,update,delete}' and cardinality(operations) > 0),
  columns    text[] check (cardinality(columns) > 0),
  exposed_at timestamptz not null default clock_timestamp(),
  constraint exposed_is_one_thing check ((relation is null) <> (function is null)
      and (relation is null) = (operations is null))
);
comment on table fencing.exposed is
  'The list of tables and functions that gateways serve; nothing else can be named over HTTP.';
comment on column fencing.exposed.name is 'The name in /v1/tables/{name} and /v1/rpc/{name}.';
comment on column fencing.exposed.relation is 'The table or view, null for a function.';
comment on column fencing.exposed.function is
  'The function as name(argument types) with its schema, null for a table; '
  'as text, because pg_upgrade accepts no regprocedure.';
comment on column fencing.exposed.operations is 'Which of select, insert, update, delete.';
comment on column fencing.exposed.columns is
  'The columns that can be read and written; null: all, also columns added later.';
comment on column fencing.exposed.exposed_at is 'When it was exposed.';

create or replace function fencing.grant_table(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  sequence regclass;
begin
  execute format('revoke all on %s from fencing_gateway', relation);
  for item in
    select o as operation, (select string_agg(quote_ident(c), ', ') from unnest(e.columns) as u (c)) as columns
      from fencing.exposed e cross join unnest(e.operations) as t (o)
     where e.relation = grant_table.relation
  loop
    execute format('grant %s%s on %s to fencing_gateway', item.operation,
                   case when item.columns is not null and item.operation <> 'delete' then format(' (%s)', item.columns)
                     else '' end, relation);
  end loop;
  for sequence in
    select d.objid from pg_depend d join pg_class c on c.oid = d.objid
     where d.refobjid = relation and d.classid = 'pg_class'::regclass and d.deptype = 'a' and c.relkind = 'S'
  loop
    execute format(case when exists (select from fencing.exposed e where e.relation = grant_table.relation
          and 'insert' = any (e.operations))
                        then 'grant usage on sequence %s to fencing_gateway'
                          else 'revoke usage on sequence %s from fencing_gateway' end, sequence);
  end loop;
end
$$;
comment on function fencing.grant_table(regclass) is
  'Grants fencing_gateway exactly what is exposed of the table, under all names together. Locks: none.';

create or replace function fencing.base_type(type oid) returns oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive base as (
    select t.oid, t.typbasetype from pg_type t where t.oid = $1
    union all
    select t.oid, t.typbasetype from base b join pg_type t on t.oid = b.typbasetype
  )
  select b.oid from base b where b.typbasetype = 0;
$$;
comment on function fencing.base_type(oid) is
  'The base type of a domain, also through other domains; for every other type the type itself. Locks: none.';

create or replace function fencing.operator_schema(type oid) returns regnamespace
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select o.oprnamespace::regnamespace
    from (select fencing.base_type($1) as oid offset 0) b
         join pg_opclass c on c.opcintype = b.oid and c.opcdefault
         join pg_am m on m.oid = c.opcmethod
         join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = b.oid and a.amoprighttype = b.oid
                       and a.amopstrategy = case m.amname when 'btree' then 3 when 'hash' then 1 end
         join pg_operator o on o.oid = a.amopopr
   where o.oprnamespace <> 'pg_catalog'::regnamespace
   limit 1;
$$;
comment on function fencing.operator_schema(oid) is
  'The schema of the operator = of the type, or of its base type, if it has comparison operators of its own (citext, '
  'hstore, ltree); null where those of pg_catalog apply. '
  'Gateways do not have that schema in their search_path, and would else compare in another way than psql. '
  'Locks: none.';

create or replace function fencing.grant_schema_usage(schema oid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- Before PostgreSQL 15 the schema public belongs to a superuser, and everyone may use it.
  if has_schema_privilege(schema, 'usage with grant option')
      or not has_schema_privilege('fencing_gateway', schema, 'usage') then
    execute format('grant usage on schema %s to fencing_gateway', schema::regnamespace);
  end if;
end
$$;
comment on function fencing.grant_schema_usage(oid) is
  'Grants fencing_gateway the use of a schema, unless it has that and the caller can''t grant it. Locks: none.';

create or replace function fencing.grant_types(types oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  schema regnamespace;
begin
  for schema in
    select distinct s.id from unnest(types) as t (id)
     cross join lateral (select y.typnamespace from pg_type y where y.oid in (t.id, fencing.base_type(t.id))
         union all select fencing.operator_schema(t.id)::oid) as s (id)
     where s.id is not null and not has_schema_privilege('fencing_gateway', s.id, 'usage')
  loop
    execute format('grant usage on schema %s to fencing_gateway', schema);
  end loop;
end
$$;
comment on function fencing.grant_types(oid[]) is
  'Grants fencing_gateway usage of the schemas of these types and of their operators, '
  'where it does not have it. Locks: none.';

create or replace function fencing.require_name(name text, target text, replace boolean) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  holder text;
begin
  select coalesce(c.oid::regclass::text, to_regprocedure(e.function)::text) into holder
    from fencing.exposed e left join pg_class c on c.oid = e.relation where e.name = require_name.name;
  if holder <> target and replace is not true then
    raise exception using errcode = '42710',
      message = format('the name %s is taken: it refers to %s, and would refer to %s', name, holder, target),
      hint = 'Choose another with name => ..., or pass replace => true: callers of the name then reach the new one.';
  end if;
end
$$;
comment on function fencing.require_name(text, text, boolean) is
  'Raises 42710 if another table or function that still exists is exposed under the name, '
  'unless replace is true. Locks: none.';

create or replace function fencing.expose_table(
  relation regclass, name text default null, operations text[] default '{select,insert,update,delete}',
    columns text[] default null, replace boolean default false) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
declare
  class pg_class;
  missing text;
begin
  perform fencing.require_read_committed();
  select * into class from pg_class where oid = relation;
  if not found or class.relkind not in ('r', 'p', 'v', 'f', 'm') then
    raise exception using errcode = '42809', message = format('%s is not a table or view', relation);
  end if;
  if class.relnamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000',
      message = format('%s is not exposed: callers could undo what the guard promises', relation),
      hint = 'A view of your own can show what is to be seen.';
  end if;
  if expose_table.operations && '{insert,update,delete}'
     and exists (select from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid)
         join pg_class c on c.oid = t.oid and c.relpersistence = 'u') then
    raise exception using errcode = '42809',
      message = format('%s is unlogged: a crash of PostgreSQL would empty it after its writes were answered', relation),
      hint = 'alter table ... set logged, or expose it for select alone';
  end if;
  perform fencing.require_owner(relation);
  perform fencing.require_own_code(array[relation::oid]);
  select c into missing from unnest(columns) as t (c)
   where not exists (select from pg_attribute a where a.attrelid = relation and a.attname = c and a.attnum > 0
       and not a.attisdropped);
  if found then
    raise exception using errcode = '42703',
      message = format('%s has no column %s', relation, coalesce(missing, 'null'));
  end if;
  perform fencing.require_name(coalesce(expose_table.name, class.relname), relation::text, replace);
  perform fencing.hide(e.name) from fencing.exposed e where e.name = coalesce(expose_table.name, class.relname);
  insert into fencing.exposed (name, relation, operations, columns)
  values (coalesce(expose_table.name, class.relname), expose_table.relation, expose_table.operations,
      expose_table.columns);
  perform fencing.grant_schema_usage(class.relnamespace);
  perform fencing.grant_table(relation);
  perform fencing.take_code_rights(relation);
  perform fencing.grant_types(array(
    select a.atttypid from pg_attribute a
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
       and (columns is null or a.attname = any (columns))));
  perform fencing.record_guard_change('expose_table', jsonb_build_object('name', coalesce(expose_table.name,
        class.relname), 'relation', relation::text, 'operations', operations, 'columns', columns));
  perform pg_notify('fencing_catalog', coalesce(expose_table.name, class.relname));
end
$$;
comment on function fencing.expose_table(regclass, text, text[], text[], boolean) is
  'Lets gateways serve the table or view under that name (its own by default) with these operations and columns (null: '
  'all), and grants fencing_gateway exactly these privileges, with usage of the schemas of table and types. '
  'Revokes the privileges TRIGGER and REFERENCES of all roles but the owner. '
  'Update and delete need select too, for their conditions. '
  'Another call for the same table replaces what was exposed; a name that is used '
  'for something else is taken only with replace => true. Running gateways are notified when the transaction commits. '
  'The caller installed the schema and owns the table. '
  'SQLSTATE 42809: not a table, or unlogged; 42501: others own code that runs where it is written or read; '
  '0A000: one of fencing''s or PostgreSQL''s own; 42703: no such column; 42710: the name is taken; '
  '23514: a bad name or operation. Locks: none that writers wait for.';

create or replace function fencing.expose_function(function regprocedure, name text default null,
    replace boolean default false) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
declare
  proc pg_proc;
begin
  select * into proc from pg_proc where oid = function;
  if not found or proc.prokind <> 'f' then
    raise exception using errcode = '42809', message = format('%s is not a function', function);
  end if;
  if proc.pronamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000',
      message = format('%s is not exposed: callers could undo what the guard promises', function),
      hint = 'A function of your own can call what is to be called.';
  end if;
  if proc.provariadic <> 0 then
    raise exception using errcode = '0A000', message = format('%s takes a variable number of arguments', function);
  end if;
  if exists (select from unnest(coalesce(proc.proargmodes, array_fill('i'::"char", array[proc.pronargs::integer])),
        proc.proargnames) as t (mode, argument)
              where t.mode in ('i', 'b') and coalesce(t.argument, '') = '') then
    raise exception using errcode = '0A000', message = format('%s has an argument without a name', function),
      hint = 'Arguments are passed by name.';
  end if;
  perform fencing.require_name(coalesce(expose_function.name, proc.proname), function::text, replace);
  perform fencing.hide(e.name) from fencing.exposed e where e.name = coalesce(expose_function.name, proc.proname);
  insert into fencing.exposed (name, function)
  values (coalesce(expose_function.name, proc.proname), expose_function.function::text);
  perform fencing.grant_schema_usage(proc.pronamespace);
  execute format('grant execute on function %s to fencing_gateway', function);
  perform fencing.grant_types(proc.proargtypes::oid[]);
  perform fencing.record_guard_change('expose_function',
      jsonb_build_object('name', coalesce(expose_function.name, proc.proname), 'function', function::text));
  perform pg_notify('fencing_catalog', coalesce(expose_function.name, proc.proname));
end
$$;
comment on function fencing.expose_function(regprocedure, text, boolean) is
  'Lets gateways call the function under that name (its own by default) and grants fencing_gateway execute. '
  'Arguments are passed by name. A name that is used for something else is taken only with replace => true. '
  'SQLSTATE 42809: not a function; 0A000: an argument without a name, variadic, or one of fencing''s '
  'or PostgreSQL''s own; 42710: the name is taken; 23514: a bad name. Locks: none that writers wait for.';

create or replace function fencing.hide(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names were stored as text and are compared
as $$
declare
  gone fencing.exposed;
begin
  delete from fencing.exposed e where e.name = hide.name returning * into gone;
  if not found then
    raise exception using errcode = '42704', message = format('nothing is exposed under the name %s', hide.name);
  end if;
  if gone.relation is not null and exists (select from pg_class c where c.oid = gone.relation) then
    perform fencing.grant_table(gone.relation);
  elsif to_regprocedure(gone.function) is not null
      and not exists (select from fencing.exposed e where e.function = gone.function) then
    execute format('revoke execute on function %s from fencing_gateway', gone.function);
  end if;
  perform fencing.record_guard_change('hide', jsonb_build_object('name', hide.name, 'relation', gone.relation::text,
        'function', gone.function));
  perform pg_notify('fencing_catalog', hide.name);
end
$$;
comment on function fencing.hide(text) is
  'Removes what expose_table or expose_function exposed under this name, and the privileges that no other name needs; '
  'usage of the schema stays. '
  'SQLSTATE 42704: nothing is exposed under this name. Locks: none that writers wait for.';

create or replace function fencing.masked_wanted(detail jsonb) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  shown jsonb;
begin
  if (detail ? 'wanted') is not true then
    return detail;
  end if;
  select jsonb_agg(o.operation || jsonb_build_object('arguments', (
           select coalesce(jsonb_agg(case
                    when not coalesce(a.argument ->> 'column' = any (r.columns), true) then a.argument - 'value'
                    else a.argument || jsonb_build_object('value', case
                           when a.argument -> 'value' = 'null' then 'null'
                           when a.argument ->> 'column' = any (r.masked)
                             then fencing.masked_value(a.argument ->> 'value')
                           else fencing.bounded_value(a.argument ->> 'value') end) end order by a.place), '[]')
             from jsonb_array_elements(o.operation -> 'arguments') with ordinality as a (argument, place)))
           order by o.place)
    into shown
    from jsonb_array_elements(detail -> 'wanted') with ordinality as o (operation, place)
         join fencing.exposed e on e.name = o.operation ->> 'table'
         join fencing.recorded_table r on r.relation = coalesce(pg_partition_root(e.relation), e.relation)
          and r.relation_oid = r.relation
          and r.numbers = fencing.column_numbers(r.relation, r.columns || r.masked);
  return detail - 'wanted' || case when shown is null then '{}' else jsonb_build_object('wanted', shown) end;
end
$$;
comment on function fencing.masked_wanted(jsonb) is
  'The detail of a refused write; of its member wanted, the operations with their values, only those on tables '
  'for which record_changes() was called, and of these values what row_change would have: '
  'none of columns that are not recorded, a keyed hash of masked ones. Locks: none.';
