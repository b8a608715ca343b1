-- A security definer function is checked like its caller; what it enters stays open to the transaction.
create function sell_without(text) returns void language sql security definer
  set search_path = pg_catalog, public, pg_temp as
  $$ update inventory set stock = stock - 1 where sku = $1 $$;
create function sell_with(text, bigint) returns void language plpgsql security definer
  set search_path = pg_catalog, public, pg_temp as
  $$ begin perform fencing.enter('inventory/' || $1, $2); update inventory set stock = stock - 1 where sku = $1; end $$;
create role case_customer login;
\connect - case_customer
select sell_without('sku-1');
select fencing.enter('inventory/sku-1', 5);
begin;
select sell_with('sku-1', 5);
select sell_without('sku-1');
select sell_without('sku-2');
rollback;
select sell_with('sku-1', 5);
select sell_without('sku-1');
select stock from inventory where sku = 'sku-1';
\connect - postgres
select stock from inventory where sku = 'sku-1';
drop role case_customer;
