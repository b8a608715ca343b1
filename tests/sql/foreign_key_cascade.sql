-- What a foreign key does to other rows is checked on those rows.
create table customer (id integer primary key);
create table address (id integer primary key, customer_id integer references customer on delete cascade
    on update cascade);
create table contact (id integer primary key, customer_id integer references customer on delete set null);
select fencing.protect('address', $$'address/' || id::text$$);
select fencing.protect('contact', $$'customer/' || coalesce(customer_id, 0)::text$$);
insert into customer values (1), (2), (3);
begin;
select fencing.enter('address/10', 1);
select fencing.enter('customer/2', 1);
insert into address values (10, 1);
insert into contact values (20, 2);
commit;
delete from customer where id = 1;
update customer set id = 9 where id = 1;
-- set null moves the row to customer/0, which is another resource
begin;
select fencing.enter('customer/2', 1);
delete from customer where id = 2;
rollback;
begin;
select fencing.enter('address/10', 1);
delete from customer where id = 1;
commit;
select (select count(*) from address) as addresses, (select count(*) from contact) as contacts;
