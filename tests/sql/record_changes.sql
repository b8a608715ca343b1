-- record_changes: each changed row is kept with its key, the values that changed, and the write that changed it.
create function hidden(jsonb) returns jsonb immutable language sql
  return regexp_replace($1::text, '"[0-9a-f]{64}"', '"(hash)"', 'g')::jsonb;
create view changes as select relation, operation as op, row_key as key, hidden(old) as old, hidden(new) as new,
    resource, fencing_token as token,
    right(write_id::text, 4) as write, principal, direct, application from fencing.row_change order by id;
select fencing.record_changes('inventory', array['sku', 'stock', 'note'], array['note']);
select relation, columns, masked from fencing.recorded_table;
select fencing.guard_faults();
-- direct SQL: values that were null or did not change, columns that are not recorded
\connect - test_app
begin;
select fencing.enter(array['inventory/sku-1', 'inventory/sku-2', 'inventory/sku-x'], 5);
update inventory set stock = stock - 1, note = 'a secret' where sku in ('sku-1', 'sku-2');
update inventory set note = null, price = 3 where sku = 'sku-1';
update inventory set price = 4 where sku = 'sku-1';
insert into inventory (sku, stock, initial_stock) values ('sku-x', 1, 1);
delete from inventory where sku = 'sku-x';
commit;
-- what is refused or rolled back leaves nothing
update inventory set stock = 0 where sku = 'sku-1';
begin;
select fencing.enter('inventory/sku-1', 5);
savepoint s;
update inventory set stock = 0 where sku = 'sku-1';
rollback to s;
update inventory set stock = 1 where sku = 'sku-2';
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = 0 where sku = 'sku-1';
rollback;
\connect - postgres
select * from changes;
-- a masked value is found by its hash, and equal values have equal hashes
select operation, new -> 'note' = fencing.masked_value('a secret') as found from fencing.row_change
  where new -> 'note' ? 'masked' order by id;
-- gateways' writes: two writes in one transaction, and one statement for several writes
\connect - test_gateway
begin;
select * from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-00000000000a', 'o', 'alice', null,
  '{}');
update inventory set stock = 50 where sku = 'sku-1';
select * from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-00000000000b', 'o', 'bob', null,
  '{}');
update inventory set stock = 51 where sku = 'sku-1';
select accepted from fencing.begin_writes('{inventory/sku-1,inventory/sku-2}', '{6,6}',
  '{00000000-0000-0000-0000-00000000000c,00000000-0000-0000-0000-00000000000d}', '{o,o}', '{alice,bob}',
  array[null, null]::text[], array['{}', '{}']::jsonb[],
  '{00000000-0000-0000-0000-00000000000c,00000000-0000-0000-0000-00000000000c}');
select set_config('fencing.write_id', '00000000-0000-0000-0000-00000000000c', true);
update inventory set stock = stock + 1 where sku in ('sku-1', 'sku-2');
commit;
\connect - postgres
select op, key, old, new, resource, token, write, principal, direct, application from changes where not direct;
-- COPY, an upsert, and a data-modifying WITH
begin;
select fencing.enter(array['inventory/c-1', 'inventory/c-2', 'inventory/c-3'], 1);
copy inventory (sku, stock, initial_stock, note) from stdin;
c-1	1	1	\N
c-2	1	1	x
\.
update inventory set stock = 6 where sku = 'c-1';
insert into inventory (sku, stock, initial_stock) values ('c-3', 7, 7);
insert into inventory (sku, stock, initial_stock) values ('c-1', 0, 0), ('c-2', 0, 0)
  on conflict (sku) do update set stock = excluded.stock;
with d as (delete from inventory where sku = 'c-1' returning sku),
  u as (update inventory set stock = 9 where sku = 'c-2')
  update inventory set stock = 8 where sku = 'c-3';
commit;
select op, key, old, new from changes where key ->> 'sku' like 'c-%';
-- another key, and another resource
create table part (a integer, b text, hall text, v text, primary key (a, b));
select fencing.protect('part', $$'hall/' || hall$$);
select fencing.record_changes('part');
begin;
select fencing.enter(array['hall/a', 'hall/b'], 1);
insert into part values (1, 'x', 'a', 'one'), (2, 'x', 'b', null);
update part set a = a + 10 where hall = 'a';
update part set hall = 'a', v = 'two' where a = 2;
update part set v = null, hall = hall;
commit;
select op, key, old, new, resource from changes where relation = 'public.part';
-- a value of more than 8 KiB, values of other types, and a null in each
create type public.pair as (x integer, y text);
create table sized (id integer primary key, big text, bytes bytea, at timestamptz, n numeric, j jsonb,
  p pair, l text[]);
select fencing.protect('sized', $$case when id < 4 then 'sized/' || id::text end$$, 'observe');
select fencing.record_changes('sized');
set timezone = 'Asia/Tokyo';
set bytea_output = escape;
insert into sized values (1, repeat('x', 3000000), '\x00ff', '2026-01-02 03:04:05+00', 1.50, '{"a": 1}',
  (1, null), '{a,null}'),
  (2, repeat('x', 8192), null, null, null, null, null, null),
  (3, null, null, null, null, 'null', row(null, null), '{}');
update sized set n = 1.5, at = null where id = 1;
update sized set big = big || 'y' where id in (1, 2);
reset timezone;
select op, key, regexp_replace(old::text, 'x{100,}', 'x...') as old,
       regexp_replace(new::text, 'x{100,}', 'x...') as new, resource, direct from changes
  where relation = 'public.sized';
-- a gateway's write of a row without a resource, in mode observe; a caller who only sets the write_id is direct SQL
grant insert on sized to test_gateway, test_app;
\connect - test_gateway
begin;
select accepted from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-00000000000e', 'o', 'eve',
  null, '{}');
insert into sized (id) values (4);
commit;
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 6);
set local fencing.write_id = '00000000-0000-0000-0000-00000000000e';
insert into sized (id) values (5);
commit;
\connect - postgres
select key, resource, token, write, principal, direct from changes where (key ->> 'id') in ('4', '5')
  and relation = 'public.sized';
-- of the guard only the row of the resource is read
insert into fencing.guard (resource, last_fencing_token) select 'many/' || n, 1 from generate_series(1, 20000) n;
analyze fencing.guard;
begin;
select accepted from fencing.begin_write('{many/last}', 6, '00000000-0000-0000-0000-00000000000f', 'o', 'eve', null,
  '{}');
set local fencing.write_id = '00000000-0000-0000-0000-00000000000f';
insert into sized (id) values (6);
select key, write, principal, direct from changes where (key ->> 'id') = '6' and relation = 'public.sized';
select pg_stat_get_xact_tuples_returned('fencing.guard'::regclass) < 100 as reads_few;
commit;
-- what cannot be recorded
create table keyless (id integer, v text);
select fencing.record_changes('keyless');
select fencing.protect('keyless', $$'keyless/' || id::text$$);
select fencing.record_changes('keyless');
select fencing.record_changes('part', array['nothing']);
select fencing.record_changes('part', '{}');
select fencing.record_changes('part', array['v'], array['hall']);
select fencing.record_changes('changes');
select fencing.record_changes('fencing.guard');
-- nobody changes what was recorded
update fencing.row_change set principal = 'x';
delete from fencing.row_change;
truncate fencing.row_change;
\connect - test_app
select * from fencing.row_change;
\connect - test_auditor
select count(*) > 0 as readable from fencing.row_change;
delete from fencing.row_change;
\connect - postgres
-- the end
select fencing.unprotect('part');
select fencing.stop_recording('part');
select fencing.stop_recording('part');
begin;
select fencing.enter(array['hall/a', 'hall/b'], 1);
update part set v = 'unrecorded';
commit;
select count(*) from changes where new ->> 'v' = 'unrecorded';
select count(*) from pg_proc where proname like 'record\_%\_part';
select detail - 'application' as detail from fencing.history where detail ->> 'action' ~ 'record' order by id;
select fencing.guard_faults();
