-- TRUNCATE is refused, also for one who entered something, also when it arrives by cascade.
\connect - test_app
truncate order_events;
begin;
select fencing.enter('orders/1', 1);
truncate order_events;
rollback;
\connect - postgres
create table customer (id integer primary key);
create table address (id integer primary key, customer_id integer references customer);
select fencing.protect('address', $$'customer/' || customer_id::text$$);
truncate customer cascade;
