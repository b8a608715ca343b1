-- What protect() and unprotect() refuse, and what they free.
-- A protected table below another: its rows would be checked by the expression of the other alone.
create table event_old (id integer not null, v integer);
select fencing.protect('event_old', $$'old/' || id::text$$);
create table event (id integer not null, v integer) partition by range (id);
select fencing.protect('event', $$'event/' || id::text$$);
alter table event attach partition event_old for values from (0) to (100);
begin;
select fencing.unprotect('event_old');
alter table event attach partition event_old for values from (0) to (100);
select fencing.protect('event', $$'event/' || id::text$$);
commit;
insert into event_old values (1, 1);
truncate event_old;
select fencing.unprotect('event_old');
select fencing.guard_faults();
-- A table of the other's former name.
create table swap (id integer);
select fencing.protect('swap', $$'swap/' || id::text$$);
create table swap_new (id integer);
select fencing.protect('swap_new', $$'swap/' || id::text$$);
alter table swap rename to swap_old;
alter table swap_new rename to swap;
select fencing.protect('swap', $$'swap/' || id::text$$);
select fencing.unprotect('swap');
select relation, relation_name from fencing.protected where relation = 'swap_old'::regclass;
-- Arguments.
select fencing.unprotect(null);
select fencing.protect('swap', null);
select fencing.protect('swap', $$'b/' || id::text) , ('x' || id::text$$);
begin isolation level repeatable read;
select fencing.protect('swap', $$'swap/' || id::text$$);
rollback;
begin isolation level serializable;
select fencing.expose_table('swap');
rollback;
-- Keys of proofs.
select fencing.add_proof_key(decode(repeat('ab', 32), 'hex'), 'infinity', 'k');
select fencing.require_proof(true);
select fencing.require_proof(null);
select value from fencing.settings where key = 'require_proof';
select fencing.require_proof(false);
select fencing.retire_proof_key('k', null);
select name from fencing.proof_keys();
-- Without the event triggers it is a fault, and protect() of the root makes one of the two.
create table late (id integer not null, v integer);
select fencing.protect('late', $$'late/' || id::text$$);
drop event trigger fencing_refuse_openings;
drop event trigger fencing_refuse_drops;
alter table event attach partition late for values from (100) to (200);
select fault from fencing.guard_faults() as fault where fault ~ '^public.late';
select fencing.protect('event', $$'event/' || id::text$$);
select relation, check_function ~ '_event$' as of_event from fencing.protected
  where relation in ('event'::regclass, 'late'::regclass);
select fault from fencing.guard_faults() as fault where fault ~ '^public';
