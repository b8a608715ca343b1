-- A role that may create triggers, or reference a table with a cascade, can run code with the rights of the role
-- that writes, also a gateway's: protect() and expose_table() revoke these privileges from everyone but the owner.
create table public.halls (id integer primary key) partition by range (id);
create table public.halls_1 partition of public.halls for values from (0) to (10);
grant all on public.inventory, public.halls, public.halls_1 to test_app;
grant trigger on public.inventory to test_app with grant option;
grant trigger, references on public.orders to public;
grant references (sku) on public.inventory to test_auditor;
create view public.low as select * from public.inventory;
grant all on public.low to test_app;
create schema app authorization test_app;
\connect - test_app
grant trigger on public.inventory to test_auditor;
create function app.lower() returns trigger language plpgsql as
  $$ begin perform fencing.repair_fence('inventory/sku-1', 0, 'nobody', null, 'because'); return new; end $$;
-- the attack that these privileges allow
create trigger trojan before update on public.inventory for each row execute function app.lower();
\connect - test_gateway
begin;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', null, 'orders', null, null);
update public.inventory set note = 'innocent' where sku = 'sku-1';
select fencing.fence('inventory/sku-1');
rollback;
\connect - test_app
drop function app.lower cascade;
create function app.lower() returns trigger language plpgsql as
  $$ begin perform fencing.repair_fence('inventory/sku-1', 0, 'nobody', null, 'because'); return null;
    exception when insufficient_privilege then return null; end $$;
create table app.mine (sku text references public.inventory on delete cascade);
insert into app.mine values ('sku-1');
create trigger trojan after delete on app.mine for each row execute function app.lower();
\connect - test_gateway
begin;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000001', null, 'orders', null, null);
delete from public.inventory where sku = 'sku-1';
select (fencing.fence('inventory/sku-1') < 5) = (current_setting('server_version_num')::integer < 180000)
  as "lowered before PostgreSQL 18, then the trigger runs as test_app";
rollback;
\connect - postgres
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.protect('public.halls', $$'halls/' || id::text$$);
select fencing.expose_table('public.orders');
select fencing.expose_table('public.low');
select * from fencing.guard_faults();
drop table app.mine;
select * from fencing.guard_faults();
\connect - test_app
create trigger trojan before update on public.inventory for each row execute function app.lower();
create trigger trojan before update on public.orders for each row execute function app.lower();
create trigger trojan before update on public.halls_1 for each row execute function app.lower();
create trigger trojan instead of update on public.low for each row execute function app.lower();
create table app.mine (sku text references public.inventory on delete cascade);
create table app.mine (id bigint references public.orders on delete cascade);
-- the other privileges are unchanged
insert into public.low (sku) values ('x');
