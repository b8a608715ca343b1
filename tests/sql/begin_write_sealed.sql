-- begin_write that seals: the write and the seal in one call, and the token can write no more.
\connect - test_gateway
begin;
select * from fencing.begin_write('{inventory/sku-1}', 34, '00000000-0000-0000-0000-000000000001', 'orders-7f3a',
    'orders', 'trace', '{"request": 1}', true);
update inventory set stock = stock - 3 where sku = 'sku-1';
savepoint s;
update inventory set stock = 0 where sku = 'sku-2';
rollback to s;
commit;
begin;
select * from fencing.begin_write('{inventory/sku-1}', 34, '00000000-0000-0000-0000-000000000002', null, null, null,
    null, true);
savepoint s;
update inventory set stock = 0 where sku = 'sku-1';
rollback to s;
commit;
begin;
select * from fencing.begin_write('{inventory/sku-1}', 35, '00000000-0000-0000-0000-000000000003', null, null, null,
    null, true);
rollback;
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail
  from fencing.history order by id;
select resource, last_fencing_token, found_fencing_token from fencing.guard where resource = 'inventory/sku-1';
select sku, stock from inventory where sku in ('sku-1', 'sku-2') order by sku;
select fencing.begin_write('{a,b}', 35, '00000000-0000-0000-0000-000000000004', null, null, null, null, true);
