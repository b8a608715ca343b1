-- guard_faults names what would let a change pass the guard unchecked, and nothing else.
create table public.halls (id integer primary key) partition by range (id);
create table public.halls_1 partition of public.halls for values from (0) to (10);
select fencing.protect('public.halls', $$'halls/' || id::text$$);
select * from fencing.guard_faults();
-- the state after pg_restore --data-only --disable-triggers
alter table public.inventory disable trigger all;
alter table public.inventory enable trigger all;
alter table public.orders disable trigger fencing_check_update;
drop trigger fencing_check_truncate on public.order_events;
alter event trigger fencing_refuse_drops disable;
drop trigger fencing_check_truncate on public.order_events;
create table public.halls_2 partition of public.halls for values from (10) to (20);
alter table fencing.history_default disable trigger history_no_truncate;
grant all on public.halls_1 to test_app;
create view public.low as select * from public.inventory;
select fencing.expose_table('public.low');
grant trigger on public.low to public;
\connect - test_gateway
select * from fencing.guard_faults();
\connect - test_app
select * from fencing.guard_faults();
\connect - postgres
select fencing.protect(relation, resource_expression, mode) from fencing.protected;
select fencing.expose_table('public.low');
select * from fencing.guard_faults();
