-- Exposed objects are in the catalogue and granted; hidden ones are neither.
listen fencing_catalog;
create schema app;
create type app.mood as enum ('good', 'bad');
create table app."Odd Table" (id integer generated always as identity primary key, feeling app.mood, secret text,
    price numeric(12,2), at timestamptz(3), tags text[]);
create table app.counted (id serial primary key, n integer);
create function app.act(first_value app.mood, second_value integer default 3, out total integer,
    inout both_ways text default 'x') language sql as $$ select 1, 'y'::text $$;
create function app.nameless(integer) returns void language sql as '';
create function app.many(variadic list integer[]) returns void language sql as '';
create procedure app.proc() language sql as '';
create function app.nothing() returns void language sql as '';
select fencing.expose_table('app."Odd Table"');
select fencing.expose_table('app."Odd Table"', 'odd', '{select,update}', '{id,feeling}');
select fencing.expose_table('app.counted', operations => '{insert,select}');
select fencing.expose_table('app.counted', 'bad name');
select fencing.expose_table('app.counted', 'x', '{truncate}');
select fencing.expose_table('app.counted', 'x', '{select}', '{no_such}');
select fencing.expose_table('app.counted_id_seq');
select fencing.expose_function('app.act(app.mood, integer, text)');
select fencing.expose_function('app.nothing()', 'noop');
select fencing.expose_function('app.nameless(integer)');
select fencing.expose_function('app.many(integer[])');
select fencing.expose_function('app.proc()');
select fencing.expose_table('fencing.guard');
select fencing.expose_table('pg_authid');
select fencing.expose_function('fencing.fence(text)');
select fencing.expose_function('pg_reload_conf()');
\connect - test_gateway
set search_path = app, pg_catalog;
select name, kind, target, operations, jsonb_pretty(columns) as columns from fencing.api_catalog
  where target like 'app.%' and kind = 'table' order by name;
select name, kind, target, jsonb_pretty(arguments) as arguments, returns_set, returns_void, changes_nothing
  from fencing.api_catalog where target like 'app.%' and kind = 'function' order by name;
update app."Odd Table" set feeling = 'bad' where id = 1;
update app."Odd Table" set secret = 'seen' where id = 1;
select secret from app."Odd Table";
insert into app.counted (n) values (1) returning id;
delete from app.counted where id = 1;
select fencing.hide('odd');
select fencing.expose_table('inventory');
\connect - postgres
select fencing.expose_table('app."Odd Table"', 'odd_too', '{select}', '{id}');
select fencing.hide('odd');
select fencing.hide('never exposed');
select fencing.hide('act');
-- the privilege to insert includes the table's sequence
select has_sequence_privilege('fencing_gateway', 'app.counted_id_seq', 'usage');
select fencing.expose_table('app.counted', operations => '{select}');
select has_sequence_privilege('fencing_gateway', 'app.counted_id_seq', 'usage');
\connect - test_gateway
select id from app."Odd Table";
select feeling from app."Odd Table";
update app."Odd Table" set feeling = 'bad' where id = 1;
\connect - postgres
drop table app.counted;
drop function app.nothing();
select name from fencing.api_catalog where target like 'app.%' order by name;
