-- MERGE: each of its actions is checked.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1), ('sku-2', 1)) as v (sku, n) on i.sku = v.sku when matched then update set stock = i.stock - v.n;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1), ('sku-m', 1)) as v (sku, n) on i.sku = v.sku
  when matched then update set stock = i.stock - v.n when not matched then insert (sku, stock, initial_stock) values (v.sku, 1, 1);
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-3')) as v (sku) on i.sku = v.sku when matched then delete;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1)) as v (sku, n) on i.sku = v.sku when matched then update set stock = i.stock - v.n;
commit;
select sku, stock from inventory where sku in ('sku-1', 'sku-2') order by sku;
