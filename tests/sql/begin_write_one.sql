-- begin_write on one resource: an accepted write opens it, a refused one opens nothing; the history has both.
\connect - test_gateway
begin;
select * from fencing.begin_write('{inventory/sku-1}', 34, '00000000-0000-0000-0000-000000000001', 'orders-7f3a',
    'orders', 'trace', '{"request": 1}');
update inventory set stock = stock - 3 where sku = 'sku-1';
savepoint s;
update inventory set stock = 0 where sku = 'sku-2';
rollback to s;
commit;
begin;
select * from fencing.begin_write('{inventory/sku-1}', 33, '00000000-0000-0000-0000-000000000002',
    'late', 'orders', null, null);
savepoint s;
update inventory set stock = 0 where sku = 'sku-1';
rollback to s;
commit;
begin;
select * from fencing.begin_write('{new/resource}', 35, '00000000-0000-0000-0000-000000000003', null, null, null, null);
rollback;
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail
  from fencing.history order by id;
select sku, stock from inventory where sku in ('sku-1', 'sku-2') order by sku;
select fencing.write_landed('00000000-0000-0000-0000-000000000001', 'inventory/sku-1') as committed,
       fencing.write_landed('00000000-0000-0000-0000-000000000002', 'inventory/sku-1') as refused,
       fencing.write_landed('00000000-0000-0000-0000-000000000003', 'new/resource') as rolled_back,
       fencing.write_landed('00000000-0000-0000-0000-000000000001', 'inventory/sku-2') as elsewhere;
select fencing.begin_write('{inventory/sku-1}', 35, null, null, null, null, null);
select fencing.begin_write('{}', 35, '00000000-0000-0000-0000-000000000004', null, null, null, null);
select fencing.begin_write('{a//b}', 35, '00000000-0000-0000-0000-000000000004', null, null, null, null);
select fencing.begin_write('{a}', 0, '00000000-0000-0000-0000-000000000004', null, null, null, null);
-- also where the fence is 0
select last_fencing_token from fencing.repair_fence('zero', 0, 'admin', null, 'a reason');
select fencing.begin_write('{zero}', 0, '00000000-0000-0000-0000-000000000004', null, null, null, null);
