-- Changes through a writable view, and through a view with an INSTEAD OF trigger, are checked on the underlying table.
create view cheap as select sku, stock, initial_stock, price from inventory where price < 5 with check option;
create view odd as select sku, stock from inventory;
create function odd_update() returns trigger language plpgsql as $$ begin update inventory set stock = new.stock
  where sku = new.sku; return new; end $$;
create trigger odd_update instead of update on odd for each row execute function odd_update();
grant select, update on cheap, odd to test_app;
\connect - test_app
update cheap set stock = 0 where sku = 'sku-1';
update odd set stock = 0 where sku = 'sku-1';
begin;
select fencing.enter('inventory/sku-1', 5);
update cheap set stock = stock - 1 where sku = 'sku-1';
update odd set stock = stock - 1 where sku = 'sku-1';
update odd set stock = 0 where sku = 'sku-2';
rollback;
