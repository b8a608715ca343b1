-- A row cannot be moved to or from a resource that is not entered: OLD and NEW are both checked.
create table seat (id integer primary key, hall text not null);
select fencing.protect('seat', $$'hall/' || hall$$);
begin;
select fencing.enter('hall/a', 1);
insert into seat values (1, 'a');
commit;
-- out of a hall that was entered, into one that was not
begin;
select fencing.enter('hall/a', 1);
update seat set hall = 'b';
rollback;
-- out of a hall that was not entered
begin;
select fencing.enter('hall/b', 1);
update seat set hall = 'b';
rollback;
-- both entered
begin;
select fencing.enter('hall/a', 1);
select fencing.enter('hall/b', 1);
update seat set hall = 'b';
commit;
select * from seat;
