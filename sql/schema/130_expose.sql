-- What the HTTP interface may touch, and under which name.

create table if not exists fencing.exposed (
  name       text primary key check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$'),
  relation   regclass,
  function   text,
  operations text[] check (operations <@ '{select,insert,update,delete}' and cardinality(operations) > 0),
  columns    text[] check (cardinality(columns) > 0),
  exposed_at timestamptz not null default clock_timestamp(),
  constraint exposed_is_one_thing check ((relation is null) <> (function is null) and (relation is null) = (operations is null))
);
comment on table fencing.exposed is 'The list of tables and functions that gateways serve; nothing else can be named over HTTP.';
comment on column fencing.exposed.name is 'The name in /v1/tables/{name} and /v1/rpc/{name}.';
comment on column fencing.exposed.relation is 'The table or view, null for a function.';
comment on column fencing.exposed.function is 'The function as name(argument types) with its schema, null for a table; as text, because pg_upgrade accepts no regprocedure.';
comment on column fencing.exposed.operations is 'Which of select, insert, update, delete.';
comment on column fencing.exposed.columns is 'The columns that can be read and written, null: all, also those added later.';
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
                   case when item.columns is not null and item.operation <> 'delete' then format(' (%s)', item.columns) else '' end, relation);
  end loop;
  for sequence in
    select d.objid from pg_depend d join pg_class c on c.oid = d.objid
     where d.refobjid = relation and d.classid = 'pg_class'::regclass and d.deptype = 'a' and c.relkind = 'S'
  loop
    execute format(case when exists (select from fencing.exposed e where e.relation = grant_table.relation and 'insert' = any (e.operations))
                        then 'grant usage on sequence %s to fencing_gateway' else 'revoke usage on sequence %s from fencing_gateway' end, sequence);
  end loop;
end
$$;
comment on function fencing.grant_table(regclass) is 'Grants fencing_gateway exactly what is exposed of the table, under whatever names. Locks: none.';

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
comment on function fencing.base_type(oid) is 'What a domain is made of, also through other domains; of every other type the type itself. Locks: none.';

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
  'Where the type, or what its domain is made of, brings comparisons of its own (citext, hstore, ltree): the schema of its =; null where those of pg_catalog apply. '
  'Gateways have no such schema in their search_path and would compare otherwise than psql does. Locks: none.';

create or replace function fencing.grant_types(types oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  schema regnamespace;
begin
  for schema in
    select distinct s.id from unnest(types) as t (id)
     cross join lateral (select y.typnamespace from pg_type y where y.oid in (t.id, fencing.base_type(t.id)) union all select fencing.operator_schema(t.id)::oid) as s (id)
     where s.id is not null and not has_schema_privilege('fencing_gateway', s.id, 'usage')
  loop
    execute format('grant usage on schema %s to fencing_gateway', schema);
  end loop;
end
$$;
comment on function fencing.grant_types(oid[]) is
  'Grants fencing_gateway usage of the schemas of these types and of their operators, where it has none. Locks: none.';

create or replace function fencing.expose_table(
  relation regclass, name text default null, operations text[] default '{select,insert,update,delete}', columns text[] default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  class pg_class;
  missing text;
begin
  select * into class from pg_class where oid = relation;
  if not found or class.relkind not in ('r', 'p', 'v', 'f', 'm') then
    raise exception using errcode = '42809', message = format('%s is not a table or view', relation);
  end if;
  if class.relnamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000', message = format('%s is not exposed: callers could undo what the guard promises', relation),
      hint = 'A view of your own can show what is to be seen.';
  end if;
  select c into missing from unnest(columns) as t (c)
   where not exists (select from pg_attribute a where a.attrelid = relation and a.attname = c and a.attnum > 0 and not a.attisdropped);
  if found then
    raise exception using errcode = '42703', message = format('%s has no column %s', relation, coalesce(missing, 'null'));
  end if;
  perform fencing.hide(coalesce(expose_table.name, class.relname));
  insert into fencing.exposed (name, relation, operations, columns)
  values (coalesce(expose_table.name, class.relname), expose_table.relation, expose_table.operations, expose_table.columns);
  execute format('grant usage on schema %s to fencing_gateway', class.relnamespace::regnamespace);
  perform fencing.grant_table(relation);
  perform fencing.take_code_rights(relation);
  perform fencing.grant_types(array(
    select a.atttypid from pg_attribute a
     where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and (columns is null or a.attname = any (columns))));
  perform pg_notify('fencing_catalog', coalesce(expose_table.name, class.relname));
end
$$;
comment on function fencing.expose_table(regclass, text, text[], text[]) is
  'Lets gateways serve the table or view under that name (its own by default) with these operations and columns (null: all), and grants fencing_gateway just that, '
  'with usage of the schemas of table and types; takes the privileges TRIGGER and REFERENCES from everyone but the owner. Update and delete need select too, for their conditions. '
  'Replaces what had the name before. Running gateways hear of it when the transaction commits. The caller installed the schema and owns the table. '
  'SQLSTATE 42809: not a table; 0A000: one of fencing''s or PostgreSQL''s own; 42703: no such column; 23514: a bad name or operation. Locks: none that writers wait for.';

create or replace function fencing.expose_function(function regprocedure, name text default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  proc pg_proc;
begin
  select * into proc from pg_proc where oid = function;
  if not found or proc.prokind <> 'f' then
    raise exception using errcode = '42809', message = format('%s is not a function', function);
  end if;
  if proc.pronamespace in ('fencing'::regnamespace, 'pg_catalog'::regnamespace) then
    raise exception using errcode = '0A000', message = format('%s is not exposed: callers could undo what the guard promises', function),
      hint = 'A function of your own can call what is to be called.';
  end if;
  if proc.provariadic <> 0 then
    raise exception using errcode = '0A000', message = format('%s takes a variable number of arguments', function);
  end if;
  if exists (select from unnest(coalesce(proc.proargmodes, array_fill('i'::"char", array[proc.pronargs::integer])), proc.proargnames) as t (mode, argument)
              where t.mode in ('i', 'b') and coalesce(t.argument, '') = '') then
    raise exception using errcode = '0A000', message = format('%s has an argument without a name', function), hint = 'Arguments are passed by name.';
  end if;
  perform fencing.hide(coalesce(expose_function.name, proc.proname));
  insert into fencing.exposed (name, function)
  values (coalesce(expose_function.name, proc.proname), expose_function.function::text);
  execute format('grant usage on schema %s to fencing_gateway', proc.pronamespace::regnamespace);
  execute format('grant execute on function %s to fencing_gateway', function);
  perform fencing.grant_types(proc.proargtypes::oid[]);
  perform pg_notify('fencing_catalog', coalesce(expose_function.name, proc.proname));
end
$$;
comment on function fencing.expose_function(regprocedure, text) is
  'Lets gateways call the function under that name (its own by default) and grants fencing_gateway execute. Arguments are passed by name. Replaces what had the name before. '
  'SQLSTATE 42809: not a function; 0A000: an argument without a name, variadic, or one of fencing''s or PostgreSQL''s own; 23514: a bad name. Locks: none that writers wait for.';

create or replace function fencing.hide(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  gone fencing.exposed;
begin
  delete from fencing.exposed e where e.name = hide.name returning * into gone;
  if not found then
    return;
  end if;
  if gone.relation is not null and exists (select from pg_class c where c.oid = gone.relation) then
    perform fencing.grant_table(gone.relation);
  elsif to_regprocedure(gone.function) is not null and not exists (select from fencing.exposed e where e.function = gone.function) then
    execute format('revoke execute on function %s from fencing_gateway', gone.function);
  end if;
  perform pg_notify('fencing_catalog', hide.name);
end
$$;
comment on function fencing.hide(text) is
  'Takes back what expose_table or expose_function gave under this name, and the privileges that no other name needs; usage of the schema stays. '
  'Does nothing where the name is unknown. Locks: none that writers wait for.';

create or replace function fencing.guard_faults() returns setof text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with tables as (  -- with their partitions, and the triggers that each has to have
    select t.oid, case when c.relkind = 'p' then '{fencing_check_row,fencing_check_truncate}'::text[]
                       else '{fencing_check_insert,fencing_check_update,fencing_check_delete,fencing_check_truncate}' end as triggers
      from fencing.protected p join pg_class c on c.oid = p.relation
           cross join lateral (select p.relation::oid union select relid from pg_partition_tree(p.relation)) t (oid)
    union all
    select relid, '{history_append_only,history_no_truncate}' from pg_partition_tree('fencing.history')
  )
  select format('%s: the trigger %s %s; %s puts it back', c.oid::regclass, n.name,
                case when t.oid is null then 'is missing' else 'is not always on' end,
                case when c.relnamespace = 'fencing'::regnamespace then 'alter table … enable always trigger' else 'protect()' end)
    from tables g join pg_class c on c.oid = g.oid cross join unnest(g.triggers) as n (name)
         left join pg_trigger t on t.tgrelid = c.oid and t.tgname = n.name
   where t.tgenabled is distinct from 'A' and (c.relkind in ('r', 'p') or n.name not like '%truncate')
  union
  select format('%s: %s has the privilege %s, and could run code as whoever writes; protect() and expose_table() take it', r.target, r.grantee, r.privilege)
    from (select oid from tables union select e.relation from fencing.exposed e where e.relation is not null) g cross join fencing.code_rights(g.oid) r
  union
  select format('%s: %s belongs to another role, whose triggers run as whoever changes a key: its constraint %s has an action', p.oid::regclass, f.oid::regclass, k.conname)
    from (select oid from tables union select e.relation from fencing.exposed e) g join pg_class p on p.oid = g.oid
         join pg_constraint k on k.confrelid = p.oid and k.contype = 'f' and (k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r'))
         join pg_class f on f.oid = k.conrelid and f.relowner <> p.relowner
  order by 1;
$$;
comment on function fencing.guard_faults() is
  'What would let a change past the guard although protect() was called: checks that are missing or not always on (a restore of data alone with --disable-triggers leaves them so), TRUNCATE of '
  'partitions attached since, and who but the owner may have triggers run. Nothing where all is well. `fencegate check` asks it. Locks: none.';
