-- record_changes and what changes a table: its columns, its protection, its partitions, its triggers, TRUNCATE.
create view changes as select operation as op, row_key as key, old, new, resource, fencing_token as token
  from fencing.row_change order by id;
-- cascades and changes by triggers of others
create table customer (id integer primary key, name text);
create table address (id integer primary key, customer_id integer references customer on delete cascade
    on update cascade);
create function copied() returns trigger language plpgsql as $$ begin
  insert into public.customer values (new.id + 100, 'copy'); return null; end $$;
create trigger copied after insert on customer for each row when (new.id < 100) execute function copied();
select fencing.protect(t, $$'c/' || id::text$$, 'observe'), fencing.record_changes(t)
  from unnest('{customer,address}'::regclass[]) t;
insert into customer values (1, 'a'), (2, 'b');
insert into address values (10, 1), (11, 1);
update customer set id = 3 where id = 1;
delete from customer where id = 3;
select * from changes;
-- columns that are added, renamed and dropped
create table item (id integer primary key, a text, b text);
select fencing.protect('item', $$'item/' || id::text$$, 'observe'), fencing.record_changes('item');
insert into item values (1, 'a', 'b');
alter table item add c text default 'c';
alter table item rename a to "A {new} %s '";
alter table item drop b;
update item set c = 'd', "A {new} %s '" = 'e';
alter table item alter c type varchar(10), add virtual_or_not text generated always as (c || '!') stored;
update item set c = 'f';
select op, key, old, new from changes where old ? 'c' or new ? 'a';
-- a named column that is renamed stops writes until the call is repeated
select fencing.record_changes('item', array['c'], array['c']);
alter table item rename c to d;
update item set d = 'g';
select fencing.record_changes('item', array['d'], array['d']);
update item set d = 'g';
select op, key, jsonb_object_keys(new) as column from changes where new -> 'd' ? 'masked';
alter table item rename to thing;
update thing set d = 'h';
select relation from fencing.row_change order by id desc limit 1;
-- a row gets its resource by the expression and the mode of the last protect()
select fencing.protect('customer', $$'customer/' || id::text$$);
begin;
select fencing.enter('customer/2', 7);
update customer set name = 'c' where id = 2;
commit;
select fencing.protect('customer', $$'c/' || id::text$$, 'observe');
update customer set name = 'd' where id = 2;
select * from changes where key = '{"id": "2"}' and op = 'update';
-- partitions: through the root, by their own name, attached later, a row that moves, TRUNCATE of one
create table ticket (id integer, region text, hall text, primary key (id, region)) partition by list (region);
create table ticket_eu partition of ticket for values in ('eu');
select fencing.protect('ticket', $$'hall/' || hall$$), fencing.record_changes('ticket');
create table ticket_us (hall text, region text not null, id integer not null);
alter table ticket attach partition ticket_us for values in ('us');
create table ticket_asia partition of ticket for values in ('asia');
begin;
select fencing.enter(array['hall/a', 'hall/b'], 3);
insert into ticket values (1, 'eu', 'a'), (2, 'us', 'a');
update ticket_us set hall = 'b';
update ticket set region = 'asia' where id = 1;
delete from ticket_asia;
commit;
select fencing.guard_faults();
select relation, operation, row_key, old, new, resource from fencing.row_change where relation = 'public.ticket'
  order by id;
truncate ticket;
select fencing.protect('ticket', $$'hall/' || hall$$, 'observe');
truncate ticket_us;
truncate ticket;
select relation, operation, row_key, old, new, principal from fencing.row_change where operation = 'truncate'
  order by id;
-- the triggers are protected as those of protect()
drop trigger fencing_record_keep_update on customer;
alter trigger fencing_record_find_update on customer rename to other;
alter table customer disable trigger fencing_record_keep_update;
select fencing.guard_faults();
alter table customer enable always trigger fencing_record_keep_update;
select fencing.guard_faults();
select fencing.record_changes('customer');
alter table ticket disable trigger all;
select count(*) from fencing.guard_faults() f where f ~ 'fencing_record';
select fencing.protect('ticket', $$'hall/' || hall$$);
select count(*) from fencing.guard_faults();
select fencing.record_changes('ticket');
select fencing.guard_faults();
drop function fencing.record_truncate() cascade;
drop table fencing.row_change cascade;
-- what opens a protected table
create table parent (id integer, name text);
alter table customer inherit parent;
create trigger fencing_record_g after update on customer execute function fencing.check_truncate();
drop table customer cascade;
create table partitioned (like customer including all) partition by list (id);
alter table partitioned attach partition customer default;
-- a partition that is protected and recorded by itself ends both where the table above is protected
alter event trigger fencing_refuse_openings disable;
alter table partitioned attach partition customer default;
alter event trigger fencing_refuse_openings enable always;
select fencing.guard_faults();
select fencing.protect('partitioned', $$'c/' || id::text$$);
select relation from fencing.recorded_table order by recorded_at;
select fencing.guard_faults();
-- a table that is dropped takes what was created for it along
alter event trigger fencing_refuse_drops disable;
drop table thing;
alter event trigger fencing_refuse_drops enable always;
select fencing.record_changes('partitioned');
select count(*) from pg_proc where proname like 'record\_%\_item';
