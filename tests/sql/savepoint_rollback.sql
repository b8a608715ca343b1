-- Rolling back to a savepoint closes the resource and restores the fence; releasing the savepoint keeps both.
\connect - test_app
begin;
savepoint a;
select fencing.enter('inventory/sku-1', 5);
rollback to a;
select fencing.fence('inventory/sku-1');
update inventory set stock = 0 where sku = 'sku-1';
rollback;
begin;
savepoint a;
select fencing.enter('inventory/sku-1', 5);
release a;
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
do $$
begin
  begin
    perform fencing.enter('inventory/sku-1', 6);
    raise exception 'undone';
  exception when raise_exception then null;
  end;
  update inventory set stock = 0 where sku = 'sku-1';
end
$$;
select fencing.fence('inventory/sku-1'), stock from inventory where sku = 'sku-1';
-- Entered twice, with a savepoint in between: after the rollback the resource is open by the first call.
begin;
select fencing.enter('inventory/sku-1', 7);
savepoint a;
select fencing.enter('inventory/sku-1', 8), fencing.enter('inventory/sku-2', 8);
rollback to a;
select fencing.fence('inventory/sku-1'), fencing.fence('inventory/sku-2');
update inventory set stock = stock - 1 where sku = 'sku-1';
update inventory set stock = 0 where sku = 'sku-2';
rollback;
