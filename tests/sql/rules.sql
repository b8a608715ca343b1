-- Rules rewrite a statement before it runs; the rewritten statements are checked like any other.
create table wish (sku text, pieces integer);
create rule wish_goes_on as on insert to wish do also update inventory set stock = stock - new.pieces
  where sku = new.sku;
create view sold_out as select sku from inventory where stock = 0;
create rule sold_out_instead as on delete to sold_out do instead delete from inventory where sku = old.sku;
create rule sold_out_new as on insert to sold_out do instead insert into inventory (sku, stock, initial_stock)
  values (new.sku, 0, 0);
grant select, insert, delete on wish, sold_out to test_app;
\connect - test_app
insert into wish values ('sku-1', 1);
insert into sold_out values ('rule-1');
begin;
select fencing.enter('inventory/rule-1', 5);
insert into sold_out values ('rule-1');
commit;
delete from sold_out;
begin;
select fencing.enter('inventory/sku-1', 5);
insert into wish values ('sku-1', 1);
insert into wish values ('sku-2', 1);
rollback;
begin;
select fencing.enter('inventory/rule-1', 5);
delete from sold_out;
commit;
select count(*) from wish;
-- A rule that discards the statement changes nothing, so there is nothing to refuse;
-- only the table's owner can create it.
\connect - postgres
create rule inventory_closed as on delete to inventory do instead nothing;
\connect - test_app
delete from inventory where sku = 'sku-1';
select count(*) from inventory where sku = 'sku-1';
