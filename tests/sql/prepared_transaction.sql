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
-- Rolled back, it has left nothing; and only the transaction that was prepared had it open, whoever ends it.
begin;
select fencing.enter('inventory/sku-2', 9);
update inventory set stock = 0 where sku = 'sku-2';
prepare transaction 'second';
\connect - postgres
rollback prepared 'second';
select fencing.fence('inventory/sku-2'), stock > 0 as kept from inventory where sku = 'sku-2';
-- A change that is not covered fails at its statement, so that it is never prepared.
begin;
update inventory set stock = 0 where sku = 'sku-2';
prepare transaction 'third';
select count(*) from pg_prepared_xacts;
