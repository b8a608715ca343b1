-- describe_api gives JSON Schemas of what is exposed: types, nullability, keys, comments.
-- No generated column is written.
create type mood as enum ('calm', 'busy');
create domain code as varchar(9) not null;
create table described (
  id bigint generated always as identity primary key, mood mood, moods mood[], prices numeric(10,2)[], code code,
  doc jsonb not null, twice integer generated always as (2) stored, at timestamptz not null default now(),
  sku text not null references inventory (sku), secret text);
comment on column described.sku is 'The article.';
comment on table described is 'Everything.';
create function wanted(low integer, high bigint default 5, out total bigint, out note text) language sql stable
  as 'select 1::bigint, null::text';
create function quiet(code uuid) returns void language sql as '';
create function numbers() returns setof integer language sql stable as 'select 1';
create function rows_of(low real) returns setof inventory language sql stable as 'select * from inventory';
select fencing.expose_table('described', operations => '{select,insert}', columns =>
  '{id,mood,moods,prices,code,doc,twice,at,sku}');
select fencing.expose_function(f::regprocedure)
  from unnest('{"wanted(int,bigint)",quiet(uuid),numbers(),rows_of(real)}'::text[]) f;
select name, kind, description, operations, changes_nothing, returns_void, json_array_length(schemas) as schemas
  from fencing.describe_api() where name in ('described', 'wanted', 'quiet', 'numbers', 'rows_of');
select d.part, p.key, p.value
  from fencing.describe_api() a, json_array_elements(a.schemas) with ordinality as d (schema, part),
       json_each(d.schema -> 'properties') p
 where a.name = 'described' and (d.part = 1 or p.key in ('id', 'twice', 'sku'));
select d.part, d.schema -> 'required' as required, d.schema -> 'additionalProperties' as more
  from fencing.describe_api() a, json_array_elements(a.schemas) with ordinality as d (schema, part)
 where a.name = 'described';
select a.name, d.part, d.schema
  from fencing.describe_api() a, json_array_elements(a.schemas) with ordinality as d (schema, part)
 where a.name in ('wanted', 'quiet', 'numbers') order by 1, 2;
-- what the writing role and an auditor may not call
\connect - test_app
select count(*) from fencing.describe_api();
\connect - test_gateway
select count(*) > 5 from fencing.describe_api();
