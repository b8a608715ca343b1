-- A transaction that has entered nothing: every change of a protected row is refused with FG428.
-- A statement that finds no row changes nothing.
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
insert into inventory (sku, stock, initial_stock) values ('sku-new', 1, 1);
delete from inventory where sku = 'sku-2';
update inventory set note = 'all';
update inventory set stock = 0 where sku = 'no such article';
select sum(stock) from inventory;
-- A superuser is refused as well.
\connect - postgres
update inventory set stock = 0 where sku = 'sku-1';
