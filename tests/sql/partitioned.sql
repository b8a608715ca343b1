-- All of a partitioned table is checked: through the root, by a partition's own name, two levels down,
-- and in a partition attached later.
create table ticket (id integer, region text, hall text, primary key (id, region)) partition by list (region);
create table ticket_eu partition of ticket for values in ('eu') partition by range (id);
create table ticket_eu_1 partition of ticket_eu for values from (0) to (100);
create table ticket_us partition of ticket for values in ('us');
select fencing.protect('ticket', $$'hall/' || hall$$);
insert into ticket values (1, 'eu', 'a');
insert into ticket_us values (1, 'us', 'a');
insert into ticket_eu_1 values (1, 'eu', 'a');
begin;
select fencing.enter('hall/a', 1);
insert into ticket values (1, 'eu', 'a'), (1, 'us', 'a');
insert into ticket_us values (2, 'us', 'b');
rollback;
begin;
select fencing.enter('hall/a', 1);
insert into ticket values (1, 'eu', 'a'), (1, 'us', 'a');
commit;
update ticket_eu_1 set hall = 'b';
delete from ticket_us;
-- a row that changes its partition and its hall in one statement
begin;
select fencing.enter('hall/a', 1);
update ticket set region = 'us', id = 5, hall = 'b' where region = 'eu';
rollback;
begin;
select fencing.enter('hall/b', 1);
update ticket set region = 'us', id = 5, hall = 'b' where region = 'eu';
rollback;
-- attached and created later, with columns in another order
create table ticket_asia (hall text, region text not null, id integer not null);
alter table ticket attach partition ticket_asia for values in ('asia');
create table ticket_eu_2 partition of ticket_eu for values from (100) to (200);
insert into ticket_asia values ('a', 'asia', 1);
insert into ticket_eu_2 values (150, 'eu', 'a');
begin;
select fencing.enter('hall/a', 1);
insert into ticket_asia values ('a', 'asia', 1);
insert into ticket_asia values ('b', 'asia', 2);
rollback;
begin;
select fencing.enter('hall/a', 1);
insert into ticket_asia values ('a', 'asia', 1);
commit;
set session_replication_role = replica;
delete from ticket_eu_1;
delete from ticket_asia;
set session_replication_role = origin;
truncate ticket;
truncate ticket_us;
-- TRUNCATE of the later partition is refused as well, also after another call of protect()
select fencing.protect('ticket', $$'hall/' || hall$$);
truncate ticket_asia;
-- a partition alone cannot be protected
select fencing.protect('ticket_us', $$'hall/' || hall$$);
select fencing.unprotect('ticket');
select count(*) from pg_trigger
  where tgname like 'fencing%' and tgrelid in (select relid from pg_partition_tree('ticket'));
insert into ticket_asia values ('z', 'asia', 7);
