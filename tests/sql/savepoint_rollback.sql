-- A savepoint rolled back takes the opening and the fence back with it; one released keeps them.
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
-- Entered twice, with a savepoint between: back to it, and the first is what is open.
begin;
select fencing.enter('inventory/sku-1', 7);
savepoint a;
select fencing.enter('inventory/sku-1', 8), fencing.enter('inventory/sku-2', 8);
rollback to a;
select fencing.fence('inventory/sku-1'), fencing.fence('inventory/sku-2');
update inventory set stock = stock - 1 where sku = 'sku-1';
update inventory set stock = 0 where sku = 'sku-2';
rollback;
