-- protect() refuses tables with old-style inheritance. A child created later is a table of its own,
-- checked only when a statement names its parent.
create table vehicle (id integer, hall text);
create table lorry (load integer) inherits (vehicle);
select fencing.protect('vehicle', $$'hall/' || hall$$);
select fencing.protect('lorry', $$'hall/' || hall$$);
drop table lorry;
select fencing.protect('vehicle', $$'hall/' || hall$$);
-- which is refused if a superuser installed the guard
create table lorry (load integer) inherits (vehicle);
alter event trigger fencing_refuse_openings disable;
create table lorry (load integer) inherits (vehicle);
insert into lorry values (1, 'a', 7);
insert into vehicle values (2, 'a');
update vehicle set hall = 'b';
delete from vehicle;
begin;
select fencing.enter('hall/a', 1);
update vehicle set hall = 'b';
rollback;
truncate vehicle;
-- calling protect() again reports the child
select fencing.protect('vehicle', $$'hall/' || hall$$);
select * from vehicle;
