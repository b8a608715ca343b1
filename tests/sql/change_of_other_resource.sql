-- A row of a resource that was not entered is refused with FG403, alone or among others; a row without a resource too.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = 0 where sku = 'sku-2';
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
select fencing.enter('inventory/sku-2', 2);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
commit;
select sku, stock from inventory where sku in ('sku-1', 'sku-2') order by sku;
\connect - postgres
create table parcel (id integer primary key, owner_name text);
select fencing.protect('parcel', $$'parcel/' || owner_name$$);
begin;
select fencing.enter('parcel/ann', 1);
insert into parcel values (1, 'ann');
insert into parcel values (2, null);
rollback;
