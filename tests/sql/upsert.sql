-- INSERT ... ON CONFLICT is checked whether it inserts or updates.
\connect - test_app
insert into inventory (sku, stock, initial_stock) values ('sku-1', 1, 1) on conflict (sku) do update set stock = 0;
insert into inventory (sku, stock, initial_stock) values ('sku-x', 1, 1) on conflict (sku) do update set stock = 0;
insert into inventory (sku, stock, initial_stock) values ('sku-1', 1, 1) on conflict do nothing;
begin;
select fencing.enter('inventory/sku-1', 5);
insert into inventory (sku, stock, initial_stock) values ('sku-1', 1, 1), ('sku-2', 1, 1) on conflict (sku) do update
  set stock = 0;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
insert into inventory (sku, stock, initial_stock) values ('sku-1', 1, 1) on conflict (sku) do update set stock = 3;
commit;
select sku, stock from inventory where sku in ('sku-1', 'sku-2', 'sku-x') order by sku;
