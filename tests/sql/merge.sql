-- MERGE: each of its actions is checked.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1), ('sku-2', 1)) as v (sku, n) on i.sku = v.sku when matched then update
  set stock = i.stock - v.n;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1), ('sku-m', 1)) as v (sku, n) on i.sku = v.sku
  when matched then update set stock = i.stock - v.n when not matched then insert (sku, stock, initial_stock)
    values (v.sku, 1, 1);
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-3')) as v (sku) on i.sku = v.sku when matched then delete;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
merge into inventory i using (values ('sku-1', 1)) as v (sku, n) on i.sku = v.sku when matched then update
  set stock = i.stock - v.n;
commit;
select sku, stock from inventory where sku in ('sku-1', 'sku-2') order by sku;
-- beside another change of the table in the same query (PostgreSQL's bug #19380:
-- servers with it are refused by the installation)
with u as (update inventory set note = 'other' where false returning sku)
  merge into inventory i using (values ('sku-2')) as v (sku) on i.sku = v.sku when matched then update
    set note = 'nothing entered';
begin;
select fencing.enter('inventory/sku-1', 5);
with u as (update inventory set note = 'other' where sku = 'sku-1' returning sku)
  merge into inventory i using (values ('sku-2')) as v (sku) on i.sku = v.sku when matched then update
    set note = 'not entered';
rollback;
begin;
select fencing.enter('inventory/sku-n', 5);
with n as (insert into inventory (sku, stock, initial_stock) values ('sku-n', 1, 1) returning sku)
  merge into inventory i using (values ('sku-2')) as v (sku) on i.sku = v.sku when matched then delete;
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
with d as (delete from inventory where false returning sku)
  merge into inventory i using (values ('sku-m')) as v (sku)
    on i.sku = v.sku when not matched then insert (sku, stock, initial_stock) values (v.sku, 1, 1);
rollback;
select sku, note from inventory order by sku;
