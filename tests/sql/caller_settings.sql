-- Settings open nothing: they choose a message or restrict what is open.
\connect - test_app
begin;
set fencing.write_id = 'anything';
select set_config('fencing.entered', pg_current_xact_id()::text, false) is not null as forged;
update inventory set stock = 0 where sku = 'sku-1';
rollback;
set fencing.write_id = 'anything';
set fencing.entered = 'anything';
set fencing.mode = 'observe';
set session_replication_role = replica;
update inventory set stock = 0 where sku = 'sku-1';
-- settings left on a pooled connection do not affect the next caller
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = stock - 1 where sku = 'sku-1';
set local fencing.write_id = 'something else';
update inventory set stock = 0 where sku = 'sku-1';
rollback;
-- a search_path in which the caller replaces tables and functions
create temporary table guard (resource text, entered_xid xid8, entered_at timestamptz, entered_for text);
create function pg_temp.transaction_timestamp() returns timestamptz
  language sql as 'select ''2000-01-01''::timestamptz';
set search_path = pg_temp, fencing, public, pg_catalog;
update public.inventory set stock = 0 where sku = 'sku-1';
