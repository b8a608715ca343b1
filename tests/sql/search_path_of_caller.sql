-- Objects that a caller puts before pg_catalog in its search_path,
-- and temporary tables with the names of protected ones.
create schema trap authorization test_app;
\connect - test_app
create table trap.guard (resource text, last_fencing_token bigint, entered_xid xid8, entered_at timestamptz,
    entered_for text);
create function trap.pg_current_xact_id_if_assigned() returns xid8 language sql as $$ select '3'::xid8 $$;
create function trap.current_setting(text, boolean) returns text language sql as $$ select 'observe'::text $$;
create function trap.is_resource(text) returns boolean language sql as $$ select true $$;
create function trap.refuse_change(oid, text, text) returns void language sql as $$ select null::void $$;
create function trap.any_texts(text, text) returns boolean language sql as $$ select true $$;
create function trap.any_numbers(bigint, bigint) returns boolean language sql as $$ select true $$;
create function trap.joined(text, text) returns text language sql as $$ select 'inventory/sku-2'::text $$;
create operator trap.= (leftarg = text, rightarg = text, function = trap.any_texts);
create operator trap.<= (leftarg = bigint, rightarg = bigint, function = trap.any_numbers);
create operator trap.|| (leftarg = text, rightarg = text, function = trap.joined);
set search_path = trap, pg_catalog, fencing;
select 'a'::text = 'b'::text as the_trap_is_set;
update public.inventory set stock = 0 where sku = 'sku-1';
select fencing.enter('inventory/sku-1', 5);
select fencing.enter('inventory/sku-1', 4);
select fencing.enter('no//resource', 4);
begin;
select fencing.enter('inventory/sku-2', 5);
update public.inventory set stock = 0 where public.inventory.sku operator(pg_catalog.=) 'sku-1';
rollback;
reset search_path;
-- a temporary table of the same name is another table; the real one keeps its rows
create temporary table inventory (sku text, stock integer);
insert into inventory values ('sku-1', 0);
update inventory set stock = 0;
select i.stock from public.inventory i where i.sku = 'sku-1';
update public.inventory set stock = 0 where sku = 'sku-1';
-- nobody can create objects in the guard's schema
create function fencing.enter(text, integer) returns bigint language sql as $$ select 1::bigint $$;
create table fencing.mine ();
set session authorization postgres;
set role fencing_gateway;
