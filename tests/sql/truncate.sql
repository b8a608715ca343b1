-- TRUNCATE is refused, also in a transaction that entered a resource, also by cascade.
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
