-- unprotect() removes the triggers, the function and the entry; two calls of protect() leave one set;
-- a protected table cannot be dropped.
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select tgname, tgenabled from pg_trigger where tgrelid = 'inventory'::regclass and not tgisinternal order by tgname;
select fencing.unprotect('public.inventory');
select fencing.unprotect('public.inventory');
select tgname from pg_trigger where tgrelid = 'inventory'::regclass and not tgisinternal;
select relation, resource_expression, mode from fencing.protected order by relation::text;
\connect - test_app
update inventory set note = 'free' where sku = 'sku-1';
\connect - postgres
drop table order_events;
select fencing.unprotect('public.order_events');
drop table order_events;
select fencing.unprotect('public.orders');
select count(*) as entries from fencing.protected;
select count(*) as functions from pg_proc where pronamespace = 'fencing'::regnamespace and proname ~ '^check_\d';
