-- begin_write on several resources opens all or none. Each stale resource has its row in the history.
\connect - test_gateway
begin;
select * from fencing.begin_write('{orders/1,inventory/sku-2,inventory/sku-1,orders/1}', 34,
    '00000000-0000-0000-0000-000000000001', 'o', 'p', null, null);
select place_order(1, 'sku-1', 3);
update inventory set note = 'sold' where sku in ('sku-1', 'sku-2');
commit;
begin;
select * from fencing.begin_write('{inventory/sku-3,inventory/sku-2,inventory/sku-1}', 33,
    '00000000-0000-0000-0000-000000000002', 'o', 'p', null, null);
savepoint s;
update inventory set stock = 0 where sku = 'sku-3';
rollback to s;
commit;
select event, resource, fencing_token, last_fencing_token, write_id from fencing.history order by id;
select fencing.fence('inventory/sku-3');
select * from shop_check();
