-- If a superuser installed the guard, event triggers refuse every change of the schema
-- that would disable checks of a protected table.
create table public.yearly (id bigint) partition by range (id);
create table public.old_style ();
create schema app authorization test_app;
\connect - test_app
create table app.ticket (id bigint);
create function app.never() returns trigger language plpgsql as $$ begin return null; end $$;
\connect - postgres
select fencing.protect('app.ticket', $$'ticket/' || id::text$$);
alter table public.yearly attach partition app.ticket for values from (0) to (10);
alter table public.order_events inherit public.old_style;
create table public.by_hand () inherits (public.inventory);
drop table public.order_events;
drop schema app cascade;
create or replace trigger fencing_check_update after update on public.inventory for each statement when (false)
  execute function fencing.check_truncate();
drop trigger fencing_verify_update on public.inventory;
alter trigger fencing_check_update on public.inventory rename to other;
drop function fencing.verify_change() cascade;
\connect - test_app
alter table app.ticket disable trigger all;
alter table app.ticket enable replica trigger fencing_check_insert;
drop trigger fencing_verify_insert on app.ticket;
drop table app.ticket;
create or replace trigger fencing_check_insert after insert on app.ticket for each statement
  execute function app.never();
-- changes that disable no check are allowed
alter table app.ticket rename to tickets;
alter table app.tickets add column note text;
create table app.ticket (id bigint);
create temporary table ticket (id bigint);
create table app.hall (id integer) partition by range (id);
\connect - postgres
select fencing.protect('app.hall', $$'hall/' || id::text$$);
create table app.hall_1 partition of app.hall for values from (0) to (10);
alter table app.hall_1 owner to test_app;
\connect - test_app
-- a partition made after protect() can be changed in other ways
alter table app.hall_1 set (fillfactor = 90);
create trigger own after insert on app.hall_1 for each statement execute function app.never();
drop trigger own on app.hall_1;
\connect - postgres
-- a partition can be dropped, and a whole table after unprotect()
create table halls (id integer) partition by range (id);
create table halls_1 partition of halls for values from (0) to (10);
select fencing.protect('halls', $$'halls/' || id::text$$);
create table halls_2 partition of halls for values from (10) to (20);
alter table halls detach partition halls_1;
drop table halls_1;
drop table halls_2;
drop table halls;
select fencing.unprotect('halls');
drop table halls;
select * from fencing.guard_faults();
