-- Who may create triggers runs code with the rights of whoever writes, a gateway's among them: protect() and expose_table() take that from everyone but the owner.
create table public.halls (id integer primary key) partition by range (id);
create table public.halls_1 partition of public.halls for values from (0) to (10);
grant all on public.inventory, public.halls, public.halls_1 to test_app;
grant trigger on public.inventory to test_app with grant option;
grant trigger on public.orders to public;
create view public.low as select * from public.inventory;
grant all on public.low to test_app;
create schema app authorization test_app;
\connect - test_app
grant trigger on public.inventory to test_auditor;
create function app.lower() returns trigger language plpgsql as
  $$ begin perform fencing.repair_fence('inventory/sku-1', 0, 'nobody', null, 'because'); return new; end $$;
-- what it would be good for
create trigger trojan before update on public.inventory for each row execute function app.lower();
\connect - test_gateway
begin;
select accepted from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', null, 'orders', null, null);
update public.inventory set note = 'innocent' where sku = 'sku-1';
select fencing.fence('inventory/sku-1');
rollback;
\connect - postgres
drop trigger trojan on public.inventory;
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.protect('public.halls', $$'halls/' || id::text$$);
select fencing.expose_table('public.orders');
select fencing.expose_table('public.low');
select c.oid::regclass, a.grantee, a.privilege_type from pg_class c, aclexplode(c.relacl) a
 where c.relname in ('inventory', 'orders', 'halls', 'halls_1', 'low') and a.privilege_type = 'TRIGGER' and a.grantee <> c.relowner;
\connect - test_app
create trigger trojan before update on public.inventory for each row execute function app.lower();
create trigger trojan before update on public.orders for each row execute function app.lower();
create trigger trojan before update on public.halls_1 for each row execute function app.lower();
create trigger trojan instead of update on public.low for each row execute function app.lower();
-- the rest of what was granted is as it was
insert into public.low (sku) values ('x');
