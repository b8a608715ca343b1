-- protect() reports at once what is wrong with an expression or a relation.
create table item (id bigint primary key, name varchar(20), kind text);
select fencing.protect('item', $$'item/' || id$$);
select fencing.protect('item', $$'item/' || nosuch$$);
select fencing.protect('item', $$'item/' || now()::text$$);
select fencing.protect('item', $$id$$);
select fencing.protect('item', $$name$$);
select fencing.protect('item', $$(select 'a'::text)$$);
select fencing.protect('item', $$max(kind)$$);
select fencing.protect('item', $$kind, id$$);
select fencing.protect('item', $$$$);
create view item_view as select * from item;
create temporary table item_temp (id integer);
alter event trigger fencing_refuse_openings disable;
create table item_child () inherits (item);
alter event trigger fencing_refuse_openings enable always;
select fencing.protect('item_view', $$kind$$);
select fencing.protect('item_temp', $$id::text$$);
select fencing.protect('item', $$kind$$);
select fencing.protect('fencing.guard', $$resource$$);
drop table item_child;
-- a quoted name, quoted columns and a comment in the expression
create table "Odd ""Name" (fencing_xid text, resource text, "t" text);
select fencing.protect('"Odd ""Name"', $$resource || '/' || fencing_xid -- and so on$$);
begin;
select fencing.enter('a/b', 1);
insert into "Odd ""Name" values ('b', 'a', null);
update "Odd ""Name" set t = 'x';
update "Odd ""Name" set fencing_xid = 'y';
rollback;
-- after a column was renamed, every write is refused until protect() is called again
select fencing.protect('item', $$'item/' || id::text$$);
alter table item rename id to number;
insert into item values (1, 'n', 'k');
select fencing.protect('item', $$'item/' || number::text$$);
insert into item values (1, 'n', 'k');
-- a constant is one resource for all rows
select fencing.protect('item', $$'all'$$);
select fencing.protect('item', $$'all'::text$$);
