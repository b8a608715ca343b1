-- One lease allows many writes: an equal token is accepted, and enter returns the fence before the call.
\connect - test_app
select fencing.enter('inventory/sku-1', 7);
begin;
select fencing.enter('inventory/sku-1', 7);
update inventory set stock = stock - 1 where sku = 'sku-1';
select fencing.enter('inventory/sku-1', 8);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select fencing.fence('inventory/sku-1'), stock from inventory where sku = 'sku-1';
select fencing.enter('never/seen', 3);
