-- protect() refuses an expression that gives a row no valid name;
-- a row that gets none later is refused as such, with a way out.
create table subscriber (email text primary key, plan text);
insert into subscriber values ('ann+shop@example.com', 'free'), ('müller gmbh', 'free'), ('100% #1', 'free');
select fencing.protect('subscriber', $$'subscriber/' || email$$);
-- every one of these names can be entered
begin;
select fencing.enter(array(select 'subscriber/' || email from subscriber), 1);
update subscriber set plan = 'paid';
commit;
select fencing.unprotect('subscriber');
insert into subscriber values (repeat('ü', 95), 'free'), (E'tab\there', 'free'), ('a//b', 'free'), (E'\u0085', 'free');
select fencing.protect('subscriber', $$'subscriber/' || email$$);
select relation from fencing.protected where relation = 'subscriber'::regclass;
delete from subscriber where email <> repeat('ü', 95);
select fencing.protect('subscriber', $$'subscriber/' || email$$);
select fencing.protect('subscriber', $$'subscriber/' || md5(email)$$);
begin;
select fencing.enter('subscriber/' || md5(repeat('ü', 95)), 1);
update subscriber set plan = 'paid';
commit;
select fencing.unprotect('subscriber');
update subscriber set email = 'x';
-- a row without a name, and one for which the expression raises an error
alter table subscriber add shop integer;
select fencing.protect('subscriber', $$'shop/' || shop::text$$);
update subscriber set shop = 0;
select fencing.protect('subscriber', $$(1 / shop)::text$$);
-- of a partitioned table, with a function of the table's schema
create function name_of(text) returns text immutable language sql as $$ select 'order/' || $1 $$;
create table "order" (id integer, name text) partition by list (id);
create table order_1 partition of "order" for values in (1);
insert into "order" values (1, 'a'), (1, 'a/');
select fencing.protect('"order"', $$public.name_of(name)$$);
-- rows that get no valid name later
update "order" set name = 'b' where name = 'a/';
select fencing.protect('"order"', $$public.name_of(name)$$);
select fencing.protect('subscriber', $$'subscriber/' || email$$);
insert into subscriber values (repeat('x', 190), 'free');
begin;
select fencing.enter(array['subscriber/x', 'order/a'], 2);
update subscriber set email = E'x\ny';
rollback;
begin;
select fencing.enter(array['subscriber/x', 'order/a'], 2);
insert into subscriber values ('y', 'free'), ('y//z', 'free');
rollback;
begin;
select fencing.enter(array['subscriber/x', 'order/a'], 2);
insert into order_1 values (1, '/');
rollback;
-- observe warns, and records why
select fencing.unprotect('subscriber');
insert into subscriber values ('a//b', 'free'), ('c/', 'free');
select fencing.protect('subscriber', $$'subscriber/' || email$$, 'observe');
update subscriber set plan = 'paid' where email in ('c/', 'x');
insert into subscriber values (repeat('🛒', 100), 'free');
select fencing.protect('subscriber', $$(1 / shop)::text$$, 'observe');
select resource, detail ->> 'sqlstate' as sqlstate, detail ->> 'name_fault' as name_fault from fencing.history
  where event = 'write_rejected' order by id;
select fencing.guard_faults();
