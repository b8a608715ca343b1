-- The opening ends with the transaction: the next one on the same connection, as through a pool, has entered nothing.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
commit;
update inventory set stock = 0 where sku = 'sku-1';
begin;
select fencing.enter('inventory/sku-1', 5);
commit and chain;
update inventory set stock = 0 where sku = 'sku-1';
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
rollback;
update inventory set stock = 0 where sku = 'sku-1';
