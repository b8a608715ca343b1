-- Observe mode lets everything through and records what enforce would have refused.
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
select event, resource, principal, detail from fencing.history order by id, resource;
select mode from fencing.protected where relation = 'inventory'::regclass;
select fencing.protect('public.inventory', $$'inventory/' || sku$$, 'sometimes');
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
