-- The example's invariants: stock never below zero, stock sold = quantities ordered.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5), fencing.enter('orders/1', 5);
select place_order(1, 'sku-1', 3);
commit;
select place_order(2, 'sku-1', 3);
begin;
select fencing.enter('inventory/sku-1', 5), fencing.enter('orders/2', 5);
select place_order(2, 'sku-1', 8);
rollback;
begin;
select fencing.enter('orders/2', 5);
select place_order(2, 'sku-1', 1);
rollback;
begin;
select fencing.enter('inventory/sku-1', 5), fencing.enter('orders/1', 5);
select place_order(1, 'sku-1', 1);
rollback;
select * from shop_check();
begin;
select fencing.enter('inventory/sku-1', 6), fencing.enter('orders/1', 6);
select cancel_order(1);
select cancel_order(1);
commit;
select * from shop_check();
select event from order_events order by id;
\connect - postgres
select shop_stock('load-', 100, 5), shop_stock('load-', 101, 5);
select * from shop_check();
