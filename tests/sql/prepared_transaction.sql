-- Two-phase commit: the opening belongs to the transaction that is prepared, the next one on the connection has none.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = stock - 1 where sku = 'sku-1';
prepare transaction 'first';
update inventory set stock = 0 where sku = 'sku-2';
set lock_timeout = '50ms';
select fencing.enter('inventory/sku-1', 6);
commit prepared 'first';
select fencing.enter('inventory/sku-1', 4);
update inventory set stock = 0 where sku = 'sku-1';
select fencing.fence('inventory/sku-1'), stock from inventory where sku = 'sku-1';
