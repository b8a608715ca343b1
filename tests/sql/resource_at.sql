-- A resource at a time: its lease, fence, guard mode, and its rows from the recorded changes.
create table part (id integer primary key, name text, price numeric);
insert into part values (1, 'before', 5);
select fencing.protect('part', $$'part/' || id$$, 'observe');
select fencing.protect('part', $$'part/' || id$$);
select fencing.record_changes('part');
create function happen(seconds integer, event text, token bigint, detail jsonb) returns void language sql as
  $$ select fencing.append_events(gen_random_uuid(), 1,
       array[extract(epoch from now() - interval '1 hour') * 1e6 + seconds * 1e6]::bigint[], array[event], '{part/1}',
       array[token], null, '{o}', '{p}', null, null, array[detail]); $$;
create function then_at(seconds integer) returns text language sql as
  $$ select fencing.resource_at('part/1', now() - interval '1 hour' + seconds * interval '1 s')
       #>> '{lease,fencing_token}' $$;
select happen(10, 'lease_granted', 7, '{"ttl_ms": 10000}'), happen(15, 'lease_renewed', 7, '{"ttl_ms": 10000}'),
       happen(20, 'lease_released', 7, null), happen(30, 'lease_granted', 8, '{"ttl_ms": 10000}');
select s, then_at(s) from unnest('{9,10,19,21,31,39,41}'::integer[]) s;
-- a holder whose release is later by the clock of another gateway
select happen(50, 'lease_granted', 12, '{"ttl_ms": 10000}'), happen(51, 'lease_released', 11, null);
select s, then_at(s) from unnest('{52,61}'::integer[]) s;
create table moment (name text, at timestamptz);
begin;
select fencing.enter('part/1', 9);
update part set price = 6 where id = 1;
commit;
insert into moment values ('first', clock_timestamp());
begin;
select fencing.enter('part/1', 10);
update part set name = 'after', price = 7 where id = 1;
commit;
insert into moment values ('second', clock_timestamp());
begin;
select fencing.enter('part/1', 11);
delete from part where id = 1;
commit;
insert into moment values ('third', clock_timestamp());
begin;
select fencing.enter('part/1', 11);
insert into part values (1, 'again', 1);
commit;
insert into moment values ('fourth', clock_timestamp());
select fencing.unprotect('part');
select fencing.stop_recording('part');
select fencing.unprotect('part');
insert into moment values ('fifth', clock_timestamp());
select m.name, r ->> 'last_fencing_token' as fence,
       jsonb_path_query_first(r, '$.tables[*] ? (@.table == "public.part").mode') as mode,
       r -> 'rows' as rows, r -> 'rows_complete' as complete
  from moment m cross join fencing.resource_at('part/1', m.at) r order by m.at;
-- before the first change, and without the rows
select r -> 'rows' as rows, r ->> 'last_fencing_token' as fence
  from fencing.resource_at('part/1', (select min(at) from fencing.row_change) - interval '1 microsecond') r;
select fencing.resource_at('part/1', now(), false) -> 'rows' as rows;
select fencing.resource_at('nothing', '2020-01-01');
-- a partition is truncated: which rows were in it is not known
create table ticket (id integer primary key) partition by range (id);
create table ticket_1 partition of ticket for values from (0) to (10);
create table ticket_2 partition of ticket for values from (10) to (20);
select fencing.protect('ticket', $$'ticket/' || id$$, 'observe');
select fencing.record_changes('ticket');
insert into ticket values (1), (11);
select r -> 'rows' as rows, r -> 'rows_complete' as complete from fencing.resource_at('ticket/11', clock_timestamp()) r;
truncate ticket_1;
select r -> 'rows' as rows, r -> 'rows_complete' as complete from fencing.resource_at('ticket/11', clock_timestamp()) r;
select fencing.stop_recording('ticket');
select fencing.unprotect('ticket');
drop table ticket;
set role fencing_auditor;
select jsonb_typeof(fencing.resource_at('part/1', now())) as auditor;
reset role;
select fencing.guard_faults();
