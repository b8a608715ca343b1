-- Many writes, one commit: each write may change only rows of its own resources,
-- and a write rolled back to its savepoint leaves nothing behind.
\connect - test_gateway
begin;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', 'a', 'p', null, null);
update inventory set stock = stock - 1 where sku = 'sku-1';
release w;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-2}', 9, '00000000-0000-0000-0000-000000000002', 'b', 'p', null, null);
update inventory set stock = 0 where sku = 'sku-1';
rollback to w;
release w;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-3}', 9, '00000000-0000-0000-0000-000000000003', 'c', 'p', null, null);
update inventory set stock = -1 where sku = 'sku-3';
rollback to w;
release w;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 4, '00000000-0000-0000-0000-000000000004', 'd', 'p', null, null);
release w;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-000000000005', 'e', 'p', null, null);
update inventory set stock = stock - 1 where sku = 'sku-1';
select * from fencing.raise_fences('{inventory/sku-1}', 7, 'e', 'p', null, 'seal');
release w;
savepoint w;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-000000000006', 'e', 'p', null, null);
release w;
commit;
select event, resource, fencing_token, last_fencing_token, owner from fencing.history order by id;
select g.resource, g.last_fencing_token, i.stock from fencing.guard g
  join inventory i on g.resource = 'inventory/' || i.sku where i.sku in ('sku-1', 'sku-2', 'sku-3') order by 1;
