-- One statement that writes several tables, and one that enters in its own WITH: each table is checked
-- at the end of the statement.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
with sold as (update inventory set stock = stock - 1 where sku = 'sku-1' returning sku)
insert into orders (id, sku, quantity) select 1, sku, 1 from sold;
rollback;
with entered as (select fencing.enter('inventory/sku-1', 5) as fence)
update inventory set stock = stock - 1 from entered where sku = 'sku-1' and entered.fence >= 0 returning stock;
with entered as (select fencing.enter('inventory/sku-1', 4) as fence)
update inventory set stock = stock - 1 from entered where sku = 'sku-1' and entered.fence >= 0 returning stock;
select stock from inventory where sku = 'sku-1';
