-- Two-phase commit: the resource is open to the prepared transaction;
-- the next transaction on the connection has entered nothing.
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
-- A rollback leaves no change; the resource was open only to the prepared transaction, whichever session ends it.
begin;
select fencing.enter('inventory/sku-2', 9);
update inventory set stock = 0 where sku = 'sku-2';
prepare transaction 'second';
\connect - postgres
rollback prepared 'second';
select fencing.fence('inventory/sku-2'), stock > 0 as kept from inventory where sku = 'sku-2';
-- A change of another resource fails at its statement, so it is never prepared.
begin;
update inventory set stock = 0 where sku = 'sku-2';
prepare transaction 'third';
select count(*) from pg_prepared_xacts;
