-- fence_all, another system identifier, a lost row: nothing is let in until the change,
-- which leaves nothing of before valid.
\connect - test_gateway
select fencing.fence_all('no gateway may');
select * from fencing.storage_generation;
update fencing.storage_generation set floor = 0;
\connect - test_app
select fencing.enter('a/b', 7);
select fencing.storage_floor();
select * from fencing.storage_generation_state();
\connect - postgres
select fencing.fence_all(' ');
select fencing.fence_all(null);
select fencing.fence_all('a disk snapshot was put back');
select system_identifier, timeline, floor, reason, last_timeline from fencing.storage_generation;
\connect - test_app
select fencing.enter('a/b', 8);
\connect - test_gateway
select current, timeline, live_timeline from fencing.storage_generation_state();
select change_id as first, epoch from fencing.begin_generation_change(0) \gset
-- A change begun before fence_all does not count: tokens may have been granted since.
\connect - postgres
select fencing.fence_all('again: ' || repeat('x', 3000));
\connect - test_gateway
select * from fencing.finish_generation_change(:'first', 'g1', '[]');
select change_id as second, change_id = :'first' as same, epoch from fencing.begin_generation_change(1024) \gset
select :'same' as same, :epoch as epoch;
select * from fencing.finish_generation_change(:'second',
    'g1', (select jsonb_agg(gen_random_uuid()) from generate_series(1, 5000)));
select detail ->> 'lost_write_count' as lost, jsonb_array_length(detail -> 'lost_writes') as named,
  length(detail ->> 'reason') as reason, detail ->> 'gateway' as gateway,
       detail -> 'from' = detail -> 'to' as from_and_to_are_equal, detail ->> 'epoch' as epoch from fencing.history
         where event = 'storage_generation_changed';
-- The fields of large items are left out before the other facts.
\connect - postgres
select fencing.fence_all('large items');
\connect - test_gateway
select change_id as large, epoch from fencing.begin_generation_change(0) \gset
select * from fencing.finish_generation_change(:'large', repeat('g', 3000),
    (select jsonb_agg(jsonb_build_object('write_id', n, 'note', repeat('x', 1000))) from generate_series(1, 100) n));
select detail ->> 'lost_write_count' as lost, jsonb_array_length(detail -> 'lost_writes') as named,
  length(detail ->> 'gateway') as gateway, detail ->> 'epoch' as epoch
  from fencing.history where event = 'storage_generation_changed' order by id desc limit 1;

-- Another system identifier with the same timeline, as after a load of a dump: writes are let in
-- until a gateway has compared, and refused from then on.
\connect - postgres
update fencing.storage_generation set system_identifier = 12;
\set above 13194139533313
\connect - test_app
select fencing.enter('a/b', :above);
\connect - test_gateway
select current, system_identifier, timeline = live_timeline as same_timeline from fencing.storage_generation_state();
select change_id as loaded, epoch from fencing.begin_generation_change(0) \gset
select current, system_identifier, timeline from fencing.storage_generation_state();
\connect - test_app
select fencing.enter('a/b', :above);
\connect - test_gateway
select * from fencing.finish_generation_change(:'loaded', 'g1', '[]');
select detail -> 'from' as was, detail ->> 'reason' as reason from fencing.history
  where event = 'storage_generation_changed' order by id desc limit 1;
select epoch from fencing.begin_generation_change(0);

-- The row was deleted
\connect - postgres
delete from fencing.storage_generation;
select fencing.enter('a/b', 9007199254740991);
select fencing.fence('a/b');
select current, floor from fencing.storage_generation_state();
select epoch from fencing.begin_generation_change(5);
select system_identifier, pending_epoch from fencing.storage_generation;

-- Gateways that lost writes of their own add a row of their own; the change itself is recorded with the change.
\connect - test_gateway
select fencing.record_events(
    '[{"event": "storage_generation_changed", "detail": {"gateway": "g2", "lost_writes": [], "lost_write_count": 0}}]');
\connect - postgres
\set VERBOSITY terse
update fencing.storage_generation set floor = 5;
update fencing.storage_generation set system_identifier = 5;
update fencing.storage_generation set pending_epoch = null;
insert into fencing.storage_generation (singleton) values (false);
