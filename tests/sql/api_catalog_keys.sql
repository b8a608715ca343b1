-- What gateways read about keys and about the rows of functions: primary keys,
-- foreign keys with the columns of both tables, columns of what functions return.
create schema app;
create domain app.code as text;
create table app.places (land app.code, number integer, name text, primary key (number, land));
create table app.people (
  id integer primary key, land app.code, place integer, boss integer constraint boss references app.people,
    twin integer unique constraint twin references app.people,
  constraint home foreign key (land, place) references app.places (land, number));
create unique index on app.people (boss) where boss > 0;
create table app.passports (holder integer, issued date, primary key (holder), foreign key (holder)
    references app.people);
create table app.loose (id integer);
create table app.secret (id integer primary key, person integer references app.people);
create unique index broken on app.secret (person);
update pg_index set indisvalid = false where indexrelid = 'app.broken'::regclass;
alter table app.secret enable row level security;
create view app.some_places as select * from app.places;
create function app.all_people() returns setof app.people language sql stable as 'select * from app.people';
create function app.pairs(wanted integer) returns table (id integer, land app.code)
  language sql stable as 'select 1, ''x''::app.code';
create function app.ids() returns setof integer language sql stable as 'select 1';
create function app.only_id() returns table (id integer) language sql stable as 'select 1';
create function app.spot(out x integer, inout y text) language sql stable as 'select 1, y';
create function app.nothing() returns void language sql as '';
select fencing.expose_table(t::regclass)
  from unnest('{app.places,app.people,app.passports,app.loose,app.secret,app.some_places}'::text[]) as t;
select fencing.expose_function(f::regprocedure) from unnest('{app.all_people(),app.pairs(integer),app.ids(),'
    'app.only_id(),app.spot(text),app.nothing()}'::text[]) as f;
\connect - test_gateway
set search_path = app, pg_catalog;
select name, primary_key, jsonb_pretty(foreign_keys) as foreign_keys from fencing.api_catalog
  where target like 'app.%' and kind = 'table' order by name;
select name, returns_set, returns_row, columns from fencing.api_catalog where target like 'app.%' and kind = 'function'
  order by name;
select name, hides_rows from fencing.api_catalog where target like 'app.%' and kind = 'table' order by name;
