-- If no event trigger refuses it, guard_faults names every change of the schema that disables checks.
alter event trigger fencing_refuse_openings disable;
alter event trigger fencing_refuse_drops disable;
-- a child of a parent that is not protected: its rows change without a check
create table public.yearly (id integer, n integer) partition by range (id);
create table public.year_1 (id integer, n integer);
select fencing.protect('public.year_1', $$'year/' || id::text$$);
alter table public.yearly attach partition public.year_1 for values from (0) to (10);
insert into public.yearly values (1, 1);
create table public.old_style (n integer);
create table public.below (id integer, n integer);
select fencing.protect('public.below', $$'below/' || id::text$$);
alter table public.below inherit public.old_style;
create table public.child () inherits (public.below);
-- dropped and created again; renamed, and another table under its name
create table public.again (id integer);
select fencing.protect('public.again', $$'again/' || id::text$$);
drop table public.again;
create table public.again (id integer);
alter table public.orders rename to orders_before;
create table public.orders (id bigint);
-- triggers that never fire, or have another function, another event or a single column
create function public.never() returns trigger language plpgsql as $$ begin return null; end $$;
create or replace trigger fencing_check_insert after insert on public.inventory referencing new table as fencing_new
  for each statement when (false) execute function public.never();
create or replace trigger fencing_verify_insert after insert on public.inventory for each statement when (false)
  execute function fencing.verify_change('enforce');
alter table public.inventory enable always trigger fencing_check_insert;
alter table public.inventory enable always trigger fencing_verify_insert;
create or replace trigger fencing_verify_update after update of note on public.inventory for each statement
  execute function fencing.verify_change('enforce');
alter table public.inventory enable always trigger fencing_verify_update;
create or replace trigger fencing_verify_delete after delete on public.inventory for each statement
  execute function fencing.verify_change('observe');
alter table public.inventory enable always trigger fencing_verify_delete;
-- the function that computes the resources
do $$ begin
  execute (select format('create or replace function fencing.%I() returns trigger language plpgsql '
        'as $f$ begin perform set_config(''fencing.changed'', ''{}'', true); return null; end $f$', check_function)
             from fencing.protected where relation = 'public.order_events'::regclass);
end $$;
select regexp_replace(f, 'check_\d+_', 'check_(n)_') as guard_faults from fencing.guard_faults() f;
alter event trigger fencing_refuse_openings enable always;
alter event trigger fencing_refuse_drops enable always;
alter table public.yearly detach partition public.year_1;
drop table public.child;
alter table public.below no inherit public.old_style;
select fencing.protect(relation, resource_expression) from fencing.protected p
  where exists (select from pg_class c where c.oid = p.relation);
select fencing.protect('public.again', $$'again/' || id::text$$),
  fencing.protect('public.orders', $$'orders/' || id::text$$);
select * from fencing.guard_faults();
select count(*), count(c.oid) from fencing.protected p left join pg_class c on c.oid = p.relation;
