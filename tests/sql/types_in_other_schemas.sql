-- Types in other schemas, and types with operators of their own: gateways may name these types,
-- and the catalogue has the schemas of their operators.
create schema kinds;
create schema "Own Types";
create extension citext schema "Own Types";
create type kinds.mood as enum ('good', 'bad');
create domain kinds.email as "Own Types".citext;
create domain kinds.address as kinds.email;
create table public.people (id integer primary key, feeling kinds.mood, many kinds.mood[], email kinds.address,
    name "Own Types".citext, made timestamptz);
create function public.cheer(feeling kinds.mood) returns text language sql immutable
  set search_path = pg_catalog, pg_temp as 'select feeling::text';
insert into public.people values (1, 'good', '{bad}', 'A@B', 'Ann');
select fencing.expose_table('public.people', operations => '{select}', columns => '{id}');
select has_schema_privilege('fencing_gateway', 'kinds', 'usage'),
  has_schema_privilege('fencing_gateway', 'Own Types', 'usage');
select fencing.expose_function('public.cheer(kinds.mood)');
select has_schema_privilege('fencing_gateway', 'kinds', 'usage'),
  has_schema_privilege('fencing_gateway', 'Own Types', 'usage');
select fencing.expose_table('public.people', operations => '{select}');
\connect - test_gateway
set search_path = pg_catalog, pg_temp;
select c ->> 'name' as name, c ->> 'type' as type, c ->> 'base' as base, c ->> 'operators' as operators
  from fencing.api_catalog, jsonb_array_elements(columns) as c where name = 'people';
select id from public.people t where t.email = 'a@b' or t.name = 'ANN';
select id from public.people t where t.email operator("Own Types".=) 'a@b' and t.name operator("Own Types".~~) 'AN%'
  and t.name operator("Own Types".=) any ('{ANN}');
select * from json_to_recordset('[{"feeling": "bad", "email": "x"}]') as r (feeling kinds.mood, email kinds.address);
select public.cheer('good'::kinds.mood);
