-- Observe mode allows every change and records what enforce would have refused.
select fencing.protect('public.inventory', $$'inventory/' || sku$$, 'observe');
\connect - test_app
set application_name = 'legacy';
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-3');
insert into inventory (sku, stock, initial_stock) values ('sku-n', 1, 1);
delete from inventory where sku = 'sku-n';
commit;
\connect - postgres
select event, resource, principal, detail from fencing.history where event <> 'guard_changed' order by id, resource;
select mode from fencing.protected where relation = 'inventory'::regclass;
select fencing.protect('public.inventory', $$'inventory/' || sku$$, 'sometimes');
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
-- From one mode to the other and back; the records are bounded: 100 resources per statement, 1,000 per transaction.
select fencing.protect('public.inventory', $$'inventory/' || sku$$, 'observe');
create table ticket (id integer, region text) partition by list (region);
create table ticket_eu partition of ticket for values in ('eu');
select fencing.protect('ticket', $$'ticket/' || id::text$$, 'observe');
grant select, insert, update, delete, truncate on ticket, ticket_eu to test_app;
select max(id) as seen from fencing.history \gset
\connect - test_app
insert into inventory (sku, stock, initial_stock) select 'many-' || n, 1, 1 from generate_series(1, 500) as t (n);
begin;
insert into ticket select n, 'eu' from generate_series(1, 1500) as t (n);
insert into ticket_eu values (0, 'eu');
commit;
-- a new transaction counts from zero, whatever the one before recorded, and so does one rolled back to a savepoint
insert into ticket_eu values (0, 'eu');
begin;
savepoint a;
update ticket set id = 0 where id between 1 and 2;
rollback to a;
update ticket set id = 0 where id = 1;
commit;
truncate ticket;
select fencing.enter('inventory/sku-1', 99);
select fencing.enter('inventory/sku-1', 98);
\connect - postgres
select detail ->> 'relation' as relation, detail ->> 'operation' as operation, count(*),
  count(distinct resource) as resources, count(detail ->> 'and_more') as and_more
  from fencing.history where id > :seen and event = 'write_rejected' group by 1, 2 order by 1, 2;
select event, principal, resource, detail from fencing.history
  where id > :seen and detail ->> 'operation' in ('truncate', 'update') order by resource, id;
select fencing.protect('ticket', $$'ticket/' || id::text$$, 'enforce');
insert into ticket values (1, 'eu');
select fencing.protect('ticket', $$'ticket/' || id::text$$, 'observe');
insert into ticket values (1, 'eu');
