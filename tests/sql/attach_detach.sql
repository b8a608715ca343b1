-- The owner may attach and detach a partition, because no rows change;
-- from the next statement on its rows are checked, or no longer checked.
create table ticket (id integer, region text, hall text, primary key (id, region)) partition by list (region);
create table ticket_eu partition of ticket for values in ('eu');
select fencing.protect('ticket', $$'hall/' || hall$$);
create table ticket_us (id integer not null, region text not null, hall text);
insert into ticket_us values (1, 'us', 'a');
alter table ticket attach partition ticket_us for values in ('us');
update ticket_us set hall = 'b';
alter table ticket detach partition ticket_us;
update ticket_us set hall = 'b';
alter table ticket attach partition ticket_us for values in ('us');
update ticket_us set hall = 'c';
begin;
select fencing.enter('hall/b', 1);
update ticket set hall = 'c' where region = 'us';
rollback;
-- a row that only moves to another partition: its resource before and after the change must be entered
update ticket set region = 'eu' where region = 'us';
begin;
select fencing.enter('hall/b', 1);
update ticket set region = 'eu' where region = 'us';
commit;
select tableoid::regclass, * from ticket;
