-- A resource is open until the transaction ends: the next transaction on the same connection,
-- as in a pool, has entered nothing.
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
-- Nor is it open after a commit or rollback inside a procedure.
do $$
begin
  perform fencing.enter('inventory/sku-1', 5);
  update inventory set stock = stock - 1 where sku = 'sku-1';
  commit;
  update inventory set stock = 0 where sku = 'sku-1';
end
$$;
do $$
begin
  perform fencing.enter('inventory/sku-1', 5);
  rollback;
  update inventory set stock = 0 where sku = 'sku-1';
end
$$;
select stock from inventory where sku = 'sku-1';
