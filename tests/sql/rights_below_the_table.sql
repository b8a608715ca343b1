-- Triggers of tables that a change of a protected or exposed table reaches run with the rights of the role that writes:
-- by foreign keys with an action, also at the second step, by rules, and below a view.
-- protect() and expose_table() revoke TRIGGER and REFERENCES there; what is granted or created later is a fault.
create schema app authorization test_app;
create table public.line (sku text primary key references public.inventory on delete cascade);
create table public.line_note (sku text primary key references public.line on delete cascade);
create table public.plain (sku text references public.inventory);
create table public.target (sku text);
create rule copied as on insert to public.orders do also insert into public.target values (new.id::text);
create table public.base (id integer primary key, n integer);
create view public.shown as select id, n from public.base;
create view public.counted as select count(*) from public.plain;
grant all on public.line, public.line_note, public.plain, public.target, public.base to test_app;
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.expose_table('public.orders');
select fencing.expose_table('public.shown', operations => '{select,update}');
select fencing.expose_table('public.counted', operations => '{select}');
select * from fencing.guard_faults();
\connect - test_app
create function app.lower() returns trigger language plpgsql as
  $$ begin perform fencing.repair_fence('inventory/sku-1', 0, 'nobody', null, 'because'); return null; end $$;
create trigger trojan after delete on public.line for each row execute function app.lower();
create trigger trojan after delete on public.line_note for each row execute function app.lower();
create trigger trojan after insert on public.target for each row execute function app.lower();
create trigger trojan after update on public.base for each row execute function app.lower();
create table app.deep (sku text references public.line_note on delete cascade);
-- what a view only reads keeps its privileges; code of others there is named
create trigger own after delete on public.plain for each row execute function app.lower();
\connect - postgres
grant trigger on public.line_note, public.target, public.base to test_app;
grant references on public.line_note to public;
\connect - test_app
create trigger trojan after delete on public.line_note for each row execute function app.lower();
create table app.deep (sku text references public.line_note on delete cascade);
\connect - postgres
select * from fencing.guard_faults();
drop table app.deep;
drop function app.lower cascade;
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
select fencing.expose_table('public.orders', replace => true);
select fencing.expose_table('public.shown', operations => '{select,update}', replace => true);
select * from fencing.guard_faults();
-- code that a planner or a foreign key runs, views below a view, children
\connect - test_app
create function app.rate(n integer) returns integer immutable language sql as 'select n';
create table app.customers (id integer primary key);
grant references, select on app.customers to public;
\connect - postgres
create table public.bills (id integer primary key, customer integer references app.customers, n integer);
create statistics public.guessed on (n + app.rate(1)), id from public.bills;
create view public.rates as select app.rate(1) as n;
create function public.first_rate() returns integer language sql begin atomic select n from public.rates; end;
create table public.with_default (id integer primary key, n integer);
create table public.parent (id integer primary key);
create table public.child () inherits (public.parent);
create view public.joined as select b.id, b.n from public.base b join public.line l on l.sku = b.id::text;
create view public.over as select id, n from public.joined;
grant trigger on public.joined to test_app;
select fencing.expose_table('public.with_default');
select fencing.expose_table('public.parent');
select fencing.expose_table('public.over');
alter table public.with_default alter n set default public.first_rate();
alter table public.child owner to test_app;
update fencing.exposed set relation = 'public.bills', name = 'bills' where name = 'counted';
select array(select distinct a.grantee::regrole from aclexplode(c.relacl) a) as have_privileges from pg_class c
  where c.oid = 'public.joined'::regclass;
select * from fencing.guard_faults();
-- a privilege on a column that another role has granted
grant references on public.inventory to test_auditor with grant option;
\connect - test_auditor
grant references (sku) on public.inventory to test_app;
\connect - postgres
set client_min_messages = notice;
select fencing.protect('public.inventory', $$'inventory/' || sku$$);
