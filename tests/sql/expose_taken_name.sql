-- A name in the HTTP interface goes to something else only where that is asked for.
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
-- what has the name keeps it, with other columns too
select fencing.expose_table('public.orders', operations => '{select}', columns => '{id}');
select fencing.expose_function('public.place_order(bigint, text, integer)');
-- another name, or the name itself where it is meant
select fencing.expose_table('nw.orders', 'nw_orders');
select fencing.expose_table('nw.orders', replace => true);
select fencing.expose_function('nw.place_order(text)', replace => true);
select name, target from fencing.api_catalog where name in ('orders', 'nw_orders', 'place_order') order by name;
-- a name whose table is gone is free
drop table nw.orders;
select fencing.expose_table('public.orders');
select name, target from fencing.api_catalog where name in ('orders', 'nw_orders') order by name;
