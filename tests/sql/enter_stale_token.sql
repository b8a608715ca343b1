-- A token lower than the fence is refused with FG412; DETAIL has the resource and both tokens. The fence stays.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select fencing.enter('inventory/sku-1', 4);
select fencing.fence('inventory/sku-1'), stock from inventory where sku = 'sku-1';
