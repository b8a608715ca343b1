-- A name in the HTTP interface is given to another object only if the caller requests it.
create schema nw;
create table nw.orders (id bigint primary key);
create function nw.place_order(note text) returns void language sql as '';
create function public.place_order(note text) returns void language sql as '';
select fencing.expose_table('nw.orders');
select fencing.expose_table('nw.orders', 'place_order');
select fencing.expose_function('nw.place_order(text)');
select fencing.expose_function('public.place_order(text)');
select name, target from fencing.api_catalog where name in ('orders', 'place_order') order by name;
select has_table_privilege('fencing_gateway', 'nw.orders', 'select');
-- the object that has the name keeps it, also with other columns
select fencing.expose_table('public.orders', operations => '{select}', columns => '{id}');
select fencing.expose_function('public.place_order(bigint, text, integer)');
-- another name, or the same name with replace
select fencing.expose_table('nw.orders', 'nw_orders');
select fencing.expose_table('nw.orders', replace => true);
select fencing.expose_function('nw.place_order(text)', replace => true);
select name, target from fencing.api_catalog where name in ('orders', 'nw_orders', 'place_order') order by name;
-- the name of a dropped table is free
drop table nw.orders;
select fencing.expose_table('public.orders');
select name, target from fencing.api_catalog where name in ('orders', 'nw_orders') order by name;
