-- record_changes names columns: one that gets the name of another is not taken for it.
create view changes as select operation as op, old, new from fencing.row_change order by id;
create table item (id integer primary key, note text, price text);
select fencing.protect('item', $$'item/' || id::text$$, 'observe');
select fencing.record_changes('item', null, array['note']);
insert into item values (1, 'a secret', '5');
-- a new column of the name
alter table item rename note to note_old;
alter table item add note text;
update item set note_old = 'another secret', note = 'x';
select regexp_replace(f, 'record_\d+', 'record_N') as fault from fencing.guard_faults() f;
alter table item rename note to note_new;
alter table item rename note_old to note;
update item set note = 'another secret', note_new = 'x';
-- two columns that swap their names
alter table item rename note to other;
alter table item rename price to note;
alter table item rename other to price;
update item set price = 'a third secret', note = '6';
select fencing.record_changes('item', null, array['price']);
update item set price = 'a third secret', note = '6';
select op, regexp_replace(old::text, '[0-9a-f]{64}', '(hash)') as old,
  regexp_replace(new::text, '[0-9a-f]{64}', '(hash)') as new from changes;
select count(*) from changes where old::text || new::text ~ 'secret';
select fencing.guard_faults();
-- after a dump was restored, columns may have other numbers
update fencing.recorded_table set numbers = '{77}', relation_oid = 1;
alter table item add later text default 'l';
update item set later = 'm';
select old, new from changes where new ? 'later';
-- but not where writes failed before
alter table item rename price to note_old;
update fencing.recorded_table set relation_oid = 1;
alter table item add price text;
update item set note_old = 'a fourth secret';
-- columns that the primary key only includes are not of the key
create table covering (id integer, note text, v text, primary key (id) include (note));
select fencing.protect('covering', $$'covering/' || id::text$$, 'observe');
select fencing.record_changes('covering', array['v'], array['note']);
select fencing.record_changes('covering', array['v']);
insert into covering values (1, 'a', 'v');
update covering set note = 'b';
update covering set v = 'w';
select operation, row_key, old, new from fencing.row_change where relation = 'public.covering' order by id;
-- many columns
do $$ begin
  execute (select format('create table wide (id integer primary key, %s)', string_agg(format('c%s text', n), ', '))
    from generate_series(1, 549) n);
end $$;
select fencing.protect('wide', $$'wide/' || id::text$$, 'observe'), fencing.record_changes('wide');
insert into wide (id, c1, c549) values (1, 'a', 'b');
update wide set c549 = 'c';
select operation, new -> 'c549' as new from fencing.row_change where relation = 'public.wide' order by id;
alter table wide add c550 text;
select fencing.record_changes('wide');
select fencing.record_changes('wide', array['c550']);
-- without event triggers
create table plain (id integer primary key, a text, b text);
select fencing.protect('plain', $$'plain/' || id::text$$, 'observe'), fencing.record_changes('plain');
alter event trigger fencing_refuse_openings disable;
alter table plain drop a;
insert into plain values (1, 'b');
begin;
alter table plain rename b to c;
select fencing.record_changes('plain');
commit;
insert into plain values (2, 'c');
alter table plain add d text;
insert into plain values (3, 'c', 'd');
alter table plain rename c to e;
insert into plain values (4, 'e', 'd');
select fencing.complete_partitions();
insert into plain values (4, 'e', 'd');
select new from fencing.row_change where relation = 'public.plain' order by id;
